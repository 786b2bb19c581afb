/* plan.json, and the table of variables behind it. */
#include <string.h>

#include "launcher/plan.h"
#include "launcher/plan_env.h"
#include "topology/place.h"

const char *ft_plan_var_value(const struct ft_plan_var *v, int rank) { return v->per_rank ? v->values[rank] : v->value; }

static struct ft_plan_var *find(struct ft_plan_vars *vars, const char *name)
{
    for (size_t i = 0; i < vars->n; i++)
        if (!strcmp(vars->v[i].name, name)) return &vars->v[i];
    return NULL;
}

/* Are the values of a variable one value, or one on each node? */
static void sum_up(const struct ft_plan *p, struct ft_plan_var *v)
{
    bool everywhere = true;
    v->per_node = true;
    for (size_t k = 0; k < p->n_nodes; k++) {
        const struct ft_plan_node *node = &p->nodes[k];
        everywhere = everywhere && ft_str_eq(v->values[node->first_rank], v->values[0]);
        for (int r = node->first_rank + 1; r < node->first_rank + node->n_ranks && v->per_node; r++)
            v->per_node = ft_str_eq(v->values[r], v->values[node->first_rank]);
    }
    v->value = v->values[0];
    v->per_rank = !(everywhere && v->per_node);
}

/* What topology/place.c will write for each rank. */
static void add_place(const struct ft_plan *p, struct ft_plan_vars *vars, struct ft_arena *arena)
{
    const struct ft_cluster_fields *c = &p->config->cluster;
    struct ft_run_facts facts = {.master_addr = strcmp(c->master_addr, "auto") ? c->master_addr : NULL,
                                 .master_port = (int)c->master_port};
    for (size_t i = 0; ft_place_names[i]; i++)
        vars->v[vars->n++] = (struct ft_plan_var){.name = ft_place_names[i],
                                                  .values = ft_arena_array(arena, (size_t)p->world, sizeof(char *))};
    for (int r = 0; r < p->world; r++) {
        size_t n;
        struct ft_env *env = ft_plan_rank_env(p, r, &facts, arena, &n);
        for (size_t i = 0, k = 0; i < n; i++, k++) { /* same order as ft_place_names */
            while (strcmp(vars->v[k].name, env[i].name) != 0) k++;
            vars->v[k].values[r] = env[i].value;
        }
    }
    for (size_t i = 0; i < vars->n; i++) {
        struct ft_plan_var *v = &vars->v[i];
        sum_up(p, v);
        v->at_start = (!v->per_rank && !v->value) || !strcmp(v->name, "FT_RESTART");
        if (v->at_start) v->value = NULL;
    }
}

static void add_ranges(const struct ft_plan *p, struct ft_plan_vars *vars, struct ft_arena *arena)
{
    const struct ft_launcher_config *c = p->config;
    size_t first = vars->n;
    for (size_t r = 0; r < c->n_env_ranges; r++)
        for (size_t i = 0; i < c->env_ranges[r].env.n; i++) {
            const struct ft_env *e = &c->env_ranges[r].env.v[i];
            struct ft_plan_var *v = find(vars, e->name);
            if (!v) {
                v = &vars->v[vars->n++];
                *v = (struct ft_plan_var){.name = e->name, .secret = e->secret};
            }
            if (!v->per_rank) v->values = NULL;
            v->at_start = false;
            if (v->values) continue;
            v->values = ft_arena_array(arena, (size_t)p->world, sizeof(char *));
            for (int k = 0; k < p->world; k++) v->values[k] = v->value;
            v->per_rank = true;
        }
    (void)first;
    for (size_t k = 0; c->n_env_ranges && k < p->n_nodes; k++) {
        size_t n;
        struct ft_env *env = ft_plan_node_env(p, &p->nodes[k], arena, &n);
        for (size_t i = 0; i < n; i++) {
            struct ft_plan_var *v = find(vars, env[i].name);
            for (int r = p->nodes[k].first_rank; v->per_rank && r < p->nodes[k].first_rank + p->nodes[k].n_ranks; r++)
                v->values[r] = env[i].value;
        }
    }
    for (size_t i = 0; i < vars->n; i++)
        if (vars->v[i].per_rank) sum_up(p, &vars->v[i]);
}

struct ft_plan_vars ft_plan_vars_make(const struct ft_plan *p, struct ft_arena *arena)
{
    size_t most = p->n_env;
    for (size_t i = 0; ft_place_names[i]; i++) most++;
    for (size_t r = 0; r < p->config->n_env_ranges; r++) most += p->config->env_ranges[r].env.n;
    struct ft_plan_vars vars = {.v = ft_arena_array(arena, most, sizeof *vars.v)};
    add_place(p, &vars, arena);
    size_t n_place = vars.n;
    for (size_t i = 0; i < p->n_env; i++) { /* [env] wins */
        struct ft_plan_vars ours = {vars.v, n_place};
        struct ft_plan_var *v = find(&ours, p->env[i].name);
        if (!v) v = &vars.v[vars.n++];
        *v = (struct ft_plan_var){.name = p->env[i].name, .value = p->env[i].value, .secret = p->env[i].secret};
    }
    add_ranges(p, &vars, arena);
    return vars;
}

static void write_value(struct ft_jw *w, const struct ft_plan_var *v, const char *value)
{
    ft_jw_str(w, value && v->secret ? "***" : value);
}

static void write_env(const struct ft_plan *p, struct ft_jw *w)
{
    struct ft_arena *arena = ft_arena_create();
    struct ft_plan_vars vars = ft_plan_vars_make(p, arena);
    ft_jw_key(w, "env");
    ft_jw_object(w);
    for (size_t i = 0; i < vars.n; i++) {
        if (vars.v[i].per_rank) continue;
        ft_jw_key(w, vars.v[i].name);
        write_value(w, &vars.v[i], vars.v[i].value);
    }
    ft_jw_end(w);
    ft_jw_key(w, "env_rank");
    ft_jw_object(w);
    for (size_t i = 0; i < vars.n; i++) {
        if (!vars.v[i].per_rank) continue;
        ft_jw_key(w, vars.v[i].name);
        ft_jw_array(w);
        for (int r = 0; r < p->world; r++) write_value(w, &vars.v[i], vars.v[i].values[r]);
        ft_jw_end(w);
    }
    ft_jw_end(w);
    ft_arena_destroy(arena);
}

static void write_node(struct ft_jw *w, const struct ft_plan_node *n)
{
    ft_jw_object(w);
    ft_jw_kstr(w, "name", n->name);
    ft_jw_key(w, "index");
    n->index >= 0 ? ft_jw_int(w, n->index) : ft_jw_null(w);
    ft_jw_kstr(w, "host", n->host);
    ft_jw_key(w, "port");
    n->port ? ft_jw_int(w, n->port) : ft_jw_null(w);
    ft_jw_kstr(w, "user", n->user);
    ft_jw_kint(w, "slots", n->slots);
    ft_jw_kint(w, "ranks", n->n_ranks);
    ft_jw_kstr(w, "from", n->from);
    ft_jw_end(w);
}

static void write_nodes(struct ft_jw *w, const char *key, const struct ft_plan_node *v, size_t n)
{
    ft_jw_key(w, key);
    ft_jw_array(w);
    for (size_t i = 0; i < n; i++) write_node(w, &v[i]);
    ft_jw_end(w);
}

static void write_mesh(const struct ft_plan *p, struct ft_jw *w)
{
    struct ft_buf order = {0};
    for (int i = 0; i < FT_N_AXES; i++) {
        if (p->mesh.order[i] == FT_AXIS_CP) continue;
        ft_buf_addf(&order, "%s%s", order.n ? "-" : "", ft_axis_name(p->mesh.order[i]));
    }
    ft_jw_key(w, "mesh");
    ft_jw_object(w);
    ft_jw_kint(w, "tp", p->mesh.size[FT_AXIS_TP]);
    ft_jw_kint(w, "pp", p->mesh.size[FT_AXIS_PP]);
    ft_jw_kint(w, "dp", p->mesh.size[FT_AXIS_DP]);
    ft_jw_kstr(w, "order", ft_buf_str(&order));
    ft_jw_end(w);
    ft_buf_fini(&order);
}

static void write_ranks(const struct ft_plan *p, struct ft_jw *w)
{
    static const char *const binds[] = {"auto", "none", "core", "numa", "gpu"};
    ft_jw_key(w, "ranks");
    ft_jw_array(w);
    for (int i = 0; i < p->world; i++) {
        const struct ft_plan_rank *r = &p->ranks[i];
        ft_jw_object(w);
        ft_jw_kint(w, "rank", r->rank);
        ft_jw_kint(w, "node", r->node);
        ft_jw_kint(w, "local", r->local);
        ft_jw_kint(w, "tp", r->coord.c[FT_AXIS_TP]);
        ft_jw_kint(w, "pp", r->coord.c[FT_AXIS_PP]);
        ft_jw_kint(w, "dp", r->coord.c[FT_AXIS_DP]);
        ft_jw_kstr(w, "bind", binds[p->config->launch.bind]);
        ft_jw_end(w);
    }
    ft_jw_end(w);
}

void ft_plan_write_members(const struct ft_plan *p, struct ft_jw *w)
{
    ft_jw_kint(w, "schema", 1);
    ft_jw_kstr(w, "run", p->name);
    ft_jw_kstr(w, "transport", p->transport);
    ft_jw_kint(w, "world", p->world);
    write_mesh(p, w);
    write_nodes(w, "nodes", p->nodes, p->n_nodes);
    write_nodes(w, "spares", p->spares, p->n_spares);
    write_nodes(w, "unused", p->unused, p->n_unused);
    write_ranks(p, w);
    ft_jw_key(w, "argv");
    ft_jw_array(w);
    if (!p->n_argv) ft_jw_str(w, "fttrain"); /* the one on PATH of the nodes */
    for (size_t i = 0; i < p->n_argv; i++) ft_jw_str(w, p->argv[i]);
    ft_jw_end(w);
    write_env(p, w);
}

void ft_plan_write_json(const struct ft_plan *p, struct ft_buf *out)
{
    struct ft_jw w = ft_jw_begin(out);
    ft_jw_object(&w);
    ft_plan_write_members(p, &w);
    ft_jw_end(&w);
    ft_buf_addc(out, '\n');
}
