/* The plan for people: the table, and what each rank will get. */
#include <string.h>

#include "launcher/plan.h"
#include "launcher/plan_env.h"

/* Ascending numbers as "0-3,8". */
struct numbers {
    struct ft_buf *out;
    int from, to; /* the range being made; from < 0: none */
    bool any;
};

static void flush(struct numbers *n)
{
    if (n->from < 0) return;
    ft_buf_addf(n->out, n->to > n->from ? "%s%d-%d" : "%s%d", n->any ? "," : "", n->from, n->to);
    n->any = true;
}

static void add(struct numbers *n, int x)
{
    if (n->from >= 0 && x == n->to) return;
    if (n->from >= 0 && x == n->to + 1) {
        n->to = x;
        return;
    }
    flush(n);
    n->from = n->to = x;
}

static int by_value(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return x < y ? -1 : x > y;
}

/* The numbers that of() gives for the ranks of a node. */
static void add_numbers(const struct ft_plan *p, const struct ft_plan_node *node,
                        int (*of)(struct ft_mesh, const struct ft_plan_rank *), struct ft_buf *out)
{
    struct numbers n = {.out = out, .from = -1};
    int v[FT_MAX_SLOTS];
    for (int i = 0; i < node->n_ranks; i++) v[i] = of(p->mesh, &p->ranks[node->first_rank + i]);
    qsort(v, (size_t)node->n_ranks, sizeof *v, by_value);
    for (int i = 0; i < node->n_ranks; i++) add(&n, v[i]);
    flush(&n);
}

static int tp_group(struct ft_mesh m, const struct ft_plan_rank *r) { return ft_mesh_group_of(m, 1u << FT_AXIS_TP, r->rank); }
static int dp_coord(struct ft_mesh m, const struct ft_plan_rank *r) { return (void)m, r->coord.c[FT_AXIS_DP]; }
static int pp_coord(struct ft_mesh m, const struct ft_plan_rank *r) { return (void)m, r->coord.c[FT_AXIS_PP]; }

static void print_node(const struct ft_plan *p, const struct ft_plan_node *node, int width, struct ft_buf *out)
{
    ft_buf_addf(out, "node %-4d %-*s  ", node->index, width, node->name);
    size_t begin = out->n;
    ft_buf_addf(out, node->n_ranks > 1 ? "ranks %d-%d" : "rank %d", node->first_rank, node->first_rank + node->n_ranks - 1);
    ft_buf_addf(out, "%*s", out->n - begin < 16 ? (int)(16 - (out->n - begin)) : 1, "");
    if (p->mesh.size[FT_AXIS_TP] > 1) {
        ft_buf_adds(out, "tp ");
        add_numbers(p, node, tp_group, out);
        ft_buf_adds(out, "   ");
    }
    if (p->mesh.size[FT_AXIS_PP] > 1) {
        ft_buf_adds(out, "pp coordinates ");
        add_numbers(p, node, pp_coord, out);
        ft_buf_adds(out, "   ");
    }
    ft_buf_adds(out, "dp coordinates ");
    add_numbers(p, node, dp_coord, out);
    int idle = node->slots - node->n_ranks;
    if (idle) ft_buf_addf(out, "   (%d slot%s unused)", idle, idle == 1 ? "" : "s");
    ft_buf_addc(out, '\n');
}

static void print_names(const char *what, const struct ft_plan_node *v, size_t n, struct ft_buf *out)
{
    if (!n) return;
    const char **names = ft_xcalloc(n, sizeof *names);
    for (size_t i = 0; i < n; i++) names[i] = v[i].name;
    struct ft_names list = {names, n};
    ft_buf_addf(out, "%-8s", what);
    ft_hostlist_fold(&list, out);
    ft_buf_addc(out, '\n');
    free(names);
}

/* The slots of all used nodes, when they are equal; else 0. */
static int equal_slots(const struct ft_plan *p)
{
    for (size_t i = 1; i < p->n_nodes; i++)
        if (p->nodes[i].slots != p->nodes[0].slots) return 0;
    return p->nodes[0].slots;
}

static void print_head(const struct ft_plan *p, struct ft_buf *out)
{
    int slots = equal_slots(p);
    ft_buf_addf(out, "job %s   %d rank%s = tp %d x pp %d x dp %d   %zu node%s", p->name, p->world, p->world == 1 ? "" : "s",
                p->mesh.size[FT_AXIS_TP], p->mesh.size[FT_AXIS_PP], p->mesh.size[FT_AXIS_DP], p->n_nodes,
                p->n_nodes == 1 ? "" : "s");
    if (slots) ft_buf_addf(out, " x %d slot%s", slots, slots == 1 ? "" : "s");
    if (p->n_spares) ft_buf_addf(out, ", %zu spare", p->n_spares);
    ft_buf_addf(out, "   transport %s\n", p->transport);
}

/* The words behind '=' of a [nodes] line. */
void ft_plan_node_words(const struct ft_plan_node *n, bool from, struct ft_buf *out)
{
    static const struct ft_node_conf none = {0};
    const struct ft_node_conf *c = n->conf ? n->conf : &none;
    ft_buf_addf(out, "slots=%d", n->slots);
    if (c->host) ft_buf_addf(out, " host=%s", c->host);
    if (c->port) ft_buf_addf(out, " port=%d", c->port);
    if (c->user) ft_buf_addf(out, " user=%s", c->user);
    if (c->identity) ft_buf_addf(out, " identity=%s", c->identity);
    if (c->jump) ft_buf_addf(out, " jump=%s", c->jump);
    for (size_t i = 0; i < c->tags.n; i++) ft_buf_addf(out, "%s%s", i ? "," : " tags=", c->tags.v[i]);
    if (!from || !n->from) return;
    ft_buf_addf(out, " from=%s", n->from);
}

/* What a host list means, as a valid [nodes] section. An address that is its own name cannot be a name there. */
static void print_normal_form(const struct ft_plan *p, struct ft_buf *out)
{
    const struct ft_plan_node *const parts[] = {p->nodes, p->unused, p->spares};
    const size_t counts[] = {p->n_nodes, p->n_unused, p->n_spares};
    struct ft_buf words = {0}, next = {0};
    ft_buf_adds(out, "\n[nodes]\n");
    for (size_t k = 0; k < 3; k++) {
        const char **names = ft_xcalloc(counts[k] + 1, sizeof *names);
        struct ft_names list = {names, 0};
        for (size_t i = 0; i <= counts[k]; i++) {
            ft_buf_clear(&next);
            if (i < counts[k]) ft_plan_node_words(&parts[k][i], false, &next);
            if (list.n && (i == counts[k] || strcmp(ft_buf_str(&words), ft_buf_str(&next)) != 0)) {
                bool address = strchr(names[0], ':') != NULL;
                if (address)
                    ft_buf_addf(out, "; an address needs a name of its own: node = host=%s %s\n", names[0], ft_buf_str(&words));
                else ft_hostlist_fold(&list, out);
                if (!address) ft_buf_addf(out, " = %s\n", ft_buf_str(&words));
                list.n = 0;
            }
            if (i == counts[k]) break;
            names[list.n++] = parts[k][i].name;
            ft_buf_clear(&words);
            ft_buf_add(&words, ft_buf_str(&next), next.n);
        }
        free(names);
    }
    ft_buf_fini(&words);
    ft_buf_fini(&next);
}

void ft_plan_print(const struct ft_plan *p, struct ft_buf *out)
{
    size_t width = 5;
    const struct ft_cluster_fields *c = &p->config->cluster;
    for (size_t i = 0; i < p->n_nodes; i++)
        if (strlen(p->nodes[i].name) > width) width = strlen(p->nodes[i].name);
    print_head(p, out);
    for (size_t i = 0; i < p->n_nodes; i++) print_node(p, &p->nodes[i], (int)width, out);
    print_names("spare", p->spares, p->n_spares, out);
    print_names("unused", p->unused, p->n_unused, out);
    bool addr = strcmp(c->master_addr, "auto") != 0, port = c->master_port != 0;
    ft_buf_addf(out, "master  %s", addr ? c->master_addr : "first node");
    if (port) ft_buf_addf(out, ", port %lld", (long long)c->master_port);
    if (!addr || !port) ft_buf_addf(out, ", %s at start", !addr && !port ? "address and port" : addr ? "port" : "address");
    ft_buf_addc(out, '\n');
    if (c->hostfile) print_normal_form(p, out);
}

static void print_value(const struct ft_plan_var *v, int rank, struct ft_buf *out)
{
    const char *text = ft_plan_var_value(v, rank);
    if (text) ft_buf_addf(out, "%s=%s\n", v->name, v->secret ? "***" : text);
}

void ft_plan_print_env(const struct ft_plan *p, struct ft_buf *out)
{
    struct ft_arena *arena = ft_arena_create();
    struct ft_plan_vars vars = ft_plan_vars_make(p, arena);
    ft_buf_addf(out, "# every rank (0-%d)\n", p->world - 1);
    for (size_t i = 0; i < vars.n; i++)
        if (!vars.v[i].per_rank) print_value(&vars.v[i], 0, out);
    ft_buf_adds(out, "# at start:");
    for (size_t i = 0; i < vars.n; i++)
        if (vars.v[i].at_start) ft_buf_addf(out, " %s", vars.v[i].name);
    ft_buf_addc(out, '\n');
    for (size_t k = 0; k < p->n_nodes; k++) {
        const struct ft_plan_node *node = &p->nodes[k];
        ft_buf_addf(out, "# node %d, %s: ranks %d-%d\n", node->index, node->name, node->first_rank,
                    node->first_rank + node->n_ranks - 1);
        for (size_t i = 0; i < vars.n; i++)
            if (vars.v[i].per_rank && vars.v[i].per_node) print_value(&vars.v[i], node->first_rank, out);
        for (int r = node->first_rank; r < node->first_rank + node->n_ranks; r++) {
            ft_buf_addf(out, "# rank %d on %s\n", r, node->name);
            for (size_t i = 0; i < vars.n; i++)
                if (vars.v[i].per_rank && !vars.v[i].per_node) print_value(&vars.v[i], r, out);
        }
    }
    ft_arena_destroy(arena);
}
