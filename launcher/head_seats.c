/* Which node has which ranks. Seats are the nodes of the first plan; a seat keeps its ranks, whoever sits there:
 *   1. whoever sits there and is up stays; else the node that was planned there; else one that waits (spares first)
 *   2. seats that stay empty: fewer nodes, down to min_nodes, when data = auto: the largest data size with the same tensor and
 *      pipeline, then smaller pipelines; whether a layout is legal fttrain says, asked on a node that is up
 *   3. none: NO_SEATS */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "launcher/head.h"
#include "topology/hostlist.h"

enum { MAX_TRIED = 64 };

struct layout {
    int pipeline, data;
};
struct ft_seating {
    int *nodes; /* that are there, in the order of their seats */
    int n_nodes;
    struct layout tried[MAX_TRIED];
    int n_tried, at;
    const struct ft_plan *plan; /* being asked about */
    struct ft_buf said;         /* what was tried and why it was not taken */
};

const struct ft_plan_node *ft_head_seat(const struct ft_head *h, int node)
{
    const int s = h->nodes[node].seat;
    return s < 0 ? NULL : &h->plan->nodes[s];
}

/* Makes plan the one in force, with nodes[s] on seat s. */
static void sit(struct ft_head *h, const struct ft_plan *plan, const int *nodes)
{
    h->plan = plan;
    h->seats = ft_arena_array(h->arena, plan->n_nodes, sizeof *h->seats);
    h->rank_node = ft_arena_array(h->arena, (size_t)plan->world, sizeof *h->rank_node);
    for (int n = 0; n < h->n_nodes; n++) h->nodes[n].seat = -1;
    for (size_t s = 0; s < plan->n_nodes; s++) {
        h->seats[s] = nodes[s];
        h->nodes[nodes[s]].seat = (int)s;
    }
    for (int r = 0; r < plan->world; r++) h->rank_node[r] = nodes[plan->ranks[r].node];
}

void ft_head_seat_first(struct ft_head *h)
{
    int *nodes = ft_arena_array(h->arena, h->plan->n_nodes, sizeof *nodes);
    for (size_t s = 0; s < h->plan->n_nodes; s++) nodes[s] = (int)s;
    sit(h, h->plan, nodes);
}

void ft_head_seating_end(struct ft_head *h)
{
    if (!h->seating) return;
    free(h->seating->nodes);
    ft_buf_fini(&h->seating->said);
    free(h->seating);
    h->seating = NULL;
}

/* ---- the result ---- */

static void refuse(struct ft_head *h, const char *why)
{
    struct ft_buf b = {0};
    ft_buf_adds(&b, why);
    if (h->seating && h->seating->said.n) ft_buf_addf(&b, "%s%s", b.n ? "\n" : "", h->seating->said.data);
    if (h->job.began) {
        ft_buf_adds(&b, b.n ? "\n" : "");
        if (!ft_head_add_not_reached(h, &b)) ft_buf_adds(&b, "their nodes were lost");
    } else if (b.n) snprintf(h->refused, sizeof h->refused, "%s", b.data);
    free(h->why_no_seats);
    h->why_no_seats = ft_xstrdup(ft_buf_str(&b));
    ft_buf_fini(&b);
    ft_head_seating_end(h);
    ft_head_event(h, (struct ft_job_event){.kind = FT_EV_NO_SEATS});
}

/* Buffers of ranks that the old plan had and the new one may not. */
static void resize_ranks(struct ft_head *h, int world)
{
    const int before = h->mux.n_ranks;
    for (int r = 0; r < before; r++) ft_mux_end(&h->mux, r);
    if (world == before) return;
    for (int r = world; r < before; r++) {
        free(h->ranks[r].last);
        free(h->ranks[r].evidence);
    }
    h->ranks = ft_xrealloc(h->ranks, (size_t)world, sizeof *h->ranks);
    for (int r = before; r < world; r++) h->ranks[r] = (struct ft_head_rank){.pid = 0};
    ft_mux_resize(&h->mux, world);
}

static void take(struct ft_head *h, const struct ft_plan *plan, const int *nodes, const char *reason)
{
    struct ft_err err = {.code = FT_OK};
    const bool fewer = plan->n_nodes < h->q->plan->n_nodes || plan->world < h->q->plan->world;
    resize_ranks(h, plan->world);
    sit(h, plan, nodes);
    for (int r = 0; r < plan->world; r++) h->mux.ranks[r].node = h->nodes[h->rank_node[r]].name;
    if (h->q->keep_plan && h->q->keep_plan(h->q->self, plan, &err)) ft_head_say(h, FT_LOG_WARN, "%s", err.text);
    ft_head_record_replan(h, reason);
    if (fewer)
        ft_head_say(h, FT_LOG_WARN, "goes on with %d rank%s on %zu node%s (min_nodes = %lld)", plan->world,
                    plan->world == 1 ? "" : "s", plan->n_nodes, plan->n_nodes == 1 ? "" : "s",
                    (long long)h->config->launch.min_nodes);
    ft_head_seating_end(h);
    ft_head_event(h, (struct ft_job_event){.kind = FT_EV_SEATED, .number = plan->world, .rank_node = h->rank_node});
}

/* ---- all seats ---- */

static bool is_up(const struct ft_head *h, int node) { return h->job.nodes[node].state == FT_NODE_UP && h->nodes[node].open; }

static bool may_sit(const struct ft_head *h, int node, size_t seat, const bool *taken, bool faulty)
{
    return !taken[node] && is_up(h, node) && h->job.nodes[node].faulty == faulty &&
           h->nodes[node].conf->slots >= h->q->plan->nodes[seat].n_ranks;
}

/* Fills who[] (-1: empty); how many are empty. */
static size_t fill(const struct ft_head *h, int *who)
{
    const struct ft_plan *first = h->q->plan;
    const size_t n = first->n_nodes;
    const bool whole = h->plan->world == first->world && h->plan->n_nodes == n;
    bool *taken = ft_xcalloc((size_t)h->n_nodes, sizeof *taken);
    size_t empty = n;
    for (size_t s = 0; s < n; s++) who[s] = -1;
    for (int pass = 0; pass < 5; pass++) /* stays, planned there, waits; then those to blame */
        for (size_t s = 0; s < n; s++) {
            if (who[s] >= 0) continue;
            const bool faulty = pass > 2;
            int node = -1;
            if (pass == 0) node = whole ? h->seats[s] : -1;
            else if (pass == 1 || pass == 3) node = (int)s;
            else
                for (int k = h->n_nodes; k-- > 0;)
                    if (may_sit(h, k, s, taken, faulty) && (k >= (int)n || node < 0)) node = k; /* spares in order, then others */
            if (node < 0 || !may_sit(h, node, s, taken, faulty)) continue;
            who[s] = node;
            taken[node] = true;
            empty--;
        }
    free(taken);
    return empty;
}

/* The first plan with other nodes on its seats. */
static const struct ft_plan *with_nodes(struct ft_head *h, const int *who)
{
    const struct ft_plan *first = h->q->plan;
    struct ft_plan *p = ft_arena_alloc(h->arena, sizeof *p);
    *p = *first;
    p->nodes = ft_arena_array(h->arena, first->n_nodes, sizeof *p->nodes);
    p->spares = ft_arena_array(h->arena, (size_t)h->n_nodes, sizeof *p->spares);
    p->n_spares = 0;
    for (size_t s = 0; s < first->n_nodes; s++) {
        p->nodes[s] = *h->nodes[who[s]].conf;
        p->nodes[s].index = (int)s;
        p->nodes[s].first_rank = first->nodes[s].first_rank;
        p->nodes[s].n_ranks = first->nodes[s].n_ranks;
    }
    bool *seated = ft_xcalloc((size_t)h->n_nodes, sizeof *seated);
    for (size_t s = 0; s < first->n_nodes; s++) seated[who[s]] = true;
    for (int k = 0; k < h->n_nodes; k++) {
        if (seated[k]) continue;
        struct ft_plan_node *spare = &p->spares[p->n_spares++];
        *spare = *h->nodes[k].conf;
        spare->index = -1;
        spare->first_rank = spare->n_ranks = 0;
    }
    free(seated);
    return p;
}

/* "gpu17 takes the place of gpu03 (node 2)", for every seat that has another node than before. */
static void take_all(struct ft_head *h, const int *who)
{
    struct ft_buf reason = {0};
    const bool whole = h->plan->world == h->q->plan->world && h->plan->n_nodes == h->q->plan->n_nodes;
    for (size_t s = 0; s < h->q->plan->n_nodes; s++) {
        const struct ft_head_node *now = &h->nodes[who[s]], *before = &h->nodes[whole ? h->seats[s] : (int)s];
        if (now == before) continue;
        ft_buf_addf(&reason, "%s%s takes the place of %s (node %zu)", reason.n ? ", " : "", now->name, before->name, s);
    }
    if (!whole) ft_buf_addf(&reason, "%sall %zu nodes are there again", reason.n ? ", " : "", h->q->plan->n_nodes);
    if (!reason.n) ft_buf_adds(&reason, "nobody waits for the seats of nodes that failed");
    ft_head_say(h, FT_LOG_WARN, "%s", reason.data);
    take(h, with_nodes(h, who), who, reason.data);
    ft_buf_fini(&reason);
}

/* ---- fewer ---- */

static int64_t fact_of(const struct ft_head *h, const char *key)
{
    const struct ft_json *resolved = ft_json_get(ft_json_get(h->q->facts, "facts"), "resolved");
    const char *text = ft_json_str(ft_json_get(ft_json_get(resolved, key), "value"));
    int64_t x;
    return text && ft_parse_i64(text, 1, INT64_MAX, &x) ? x : 0;
}

/* Same tensor and pipeline with the largest data that fits first; then the smaller divisors of the pipeline size. */
static void list_layouts(struct ft_head *h, struct ft_seating *x)
{
    const struct ft_mesh *m = &h->q->plan->mesh;
    const int t = m->size[FT_AXIS_TP], p0 = m->size[FT_AXIS_PP];
    const int64_t batch = fact_of(h, "train.global_batch"), micro = fact_of(h, "train.micro_batch");
    int room = 0; /* groups of t ranks that the nodes hold */
    for (int i = 0; i < x->n_nodes; i++) room += h->nodes[x->nodes[i]].conf->slots / t;
    for (int p = p0; p > 0; p--) {
        if (p < p0 && !h->q->plan->is_fttrain) break; /* for other programs only the world shrinks */
        for (int d = room / p; d > 0 && x->n_tried < MAX_TRIED; d--) {
            if (batch && micro && batch % (micro * d)) continue;
            x->tried[x->n_tried++] = (struct layout){p, d};
        }
    }
}

/* The plan of a layout on the nodes that are there; NULL: it cannot be placed, said has why. */
static const struct ft_plan *plan_of(struct ft_head *h, const struct ft_seating *x, struct layout l, struct ft_buf *why)
{
    struct ft_faults faults = {.arena = h->arena};
    struct ft_launcher_config *c = ft_arena_alloc(h->arena, sizeof *c);
    const char **names = ft_arena_array(h->arena, (size_t)x->n_nodes, sizeof *names);
    for (int i = 0; i < x->n_nodes; i++) names[i] = h->nodes[x->nodes[i]].name;
    *c = *h->q->planning->config;
    c->parallel.pipeline = l.pipeline;
    c->parallel.data = l.data;
    struct ft_plan_request q = *h->q->planning;
    q.config = c;
    q.only = names;
    q.n_only = (size_t)x->n_nodes;
    const struct ft_plan *p = ft_plan_make(&q, h->arena, &faults);
    if (!p) ft_buf_adds(why, faults.n ? faults.v[0].text : "it cannot be placed");
    return p;
}

static void next_layout(struct ft_head *h);

static void note_tried(struct ft_seating *x, const char *why)
{
    const struct layout l = x->tried[x->at];
    ft_buf_addf(&x->said, "%spipeline = %d, data = %d: %s", x->said.n ? "\n" : "", l.pipeline, l.data, why);
}

static void accept(struct ft_head *h)
{
    struct ft_seating *x = h->seating;
    struct ft_buf reason = {0};
    int *nodes = ft_arena_array(h->arena, x->plan->n_nodes, sizeof *nodes);
    struct ft_name_index index = ft_name_index_make(h->arena);
    for (int i = 0; i < x->n_nodes; i++) ft_name_index_add(&index, h->nodes[x->nodes[i]].name);
    for (size_t s = 0; s < x->plan->n_nodes; s++) nodes[s] = x->nodes[ft_name_index_find(&index, x->plan->nodes[s].name)];
    if (x->said.n) ft_head_say(h, FT_LOG_WARN, "not taken: %s", x->said.data);
    if (!h->job.began) { /* the table says whom it does without */
        struct ft_buf b = {0};
        ft_buf_adds(&b, "ftlaunch: ");
        if (ft_head_add_not_reached(h, &b)) {
            ft_buf_addc(&b, '\n');
            ft_head_show(h, &b);
        }
        ft_buf_fini(&b);
    }
    ft_buf_addf(&reason, "%zu of %zu nodes are left: tensor = %d, pipeline = %d, data = %d", x->plan->n_nodes, h->q->plan->n_nodes,
                x->plan->mesh.size[FT_AXIS_TP], x->plan->mesh.size[FT_AXIS_PP], x->plan->mesh.size[FT_AXIS_DP]);
    take(h, x->plan, nodes, reason.data);
    ft_buf_fini(&reason);
}

static void on_answer(struct ft_head *h, int node, const struct ft_head_answer *a)
{
    struct ft_faults faults = {.arena = h->arena};
    if (!h->seating) return;
    ft_head_take_check(h, node, a, &faults);
    if (!faults.n_errors) {
        accept(h);
        return;
    }
    for (size_t i = 0; i < faults.n; i++) {
        if (faults.v[i].severity != FT_SEV_ERROR) continue;
        note_tried(h->seating, faults.v[i].text);
        break;
    }
    h->seating->at++;
    next_layout(h);
}

static void ask_legal(struct ft_head *h)
{
    struct ft_seating *x = h->seating;
    char pipeline[64], data[64];
    snprintf(pipeline, sizeof pipeline, "parallel.pipeline=%d", x->tried[x->at].pipeline);
    snprintf(data, sizeof data, "parallel.data=%d", x->tried[x->at].data);
    const char *const words[] = {"check", "--json", "/dev/stdin", "--set", pipeline, "--set", data};
    h->job_number++;
    ft_buf_clear(&h->job_file);
    ft_head_send_context(h, x->nodes[0]);
    ft_head_ask(h, x->nodes[0], words, sizeof words / sizeof *words, on_answer);
}

static void next_layout(struct ft_head *h)
{
    struct ft_seating *x = h->seating;
    for (; x->at < x->n_tried; x->at++) {
        struct ft_buf why = {0};
        x->plan = plan_of(h, x, x->tried[x->at], &why);
        if (x->plan) {
            ft_buf_fini(&why);
            if (h->q->plan->is_fttrain && !h->ops->same_machine) ask_legal(h);
            else accept(h);
            return;
        }
        note_tried(x, why.data);
        ft_buf_fini(&why);
    }
    refuse(h, "no smaller layout is legal");
}

static void fewer(struct ft_head *h, const int *who)
{
    const struct ft_launcher_config *c = h->config;
    struct ft_seating *x = h->seating = ft_xcalloc(1, sizeof *x);
    x->nodes = ft_xcalloc((size_t)h->n_nodes, sizeof *x->nodes);
    bool *in = ft_xcalloc((size_t)h->n_nodes, sizeof *in);
    for (size_t s = 0; s < h->q->plan->n_nodes; s++)
        if (who[s] >= 0) in[x->nodes[x->n_nodes++] = who[s]] = true;
    for (int k = 0; k < h->n_nodes; k++)
        if (!in[k] && is_up(h, k)) x->nodes[x->n_nodes++] = k;
    free(in);
    if (!c->launch.min_nodes || x->n_nodes < c->launch.min_nodes || !x->n_nodes) {
        char why[160] = "";
        if (c->launch.min_nodes)
            snprintf(why, sizeof why, "%d nodes are there, min_nodes = %lld", x->n_nodes, (long long)c->launch.min_nodes);
        refuse(h, h->job.began ? why : "");
    } else if (c->parallel.data || h->q->plan->world_given) refuse(h, h->job.began ? "only data = auto without -n can shrink" : "");
    else {
        list_layouts(h, x);
        next_layout(h);
    }
}

void ft_head_seat_all(struct ft_head *h)
{
    int *who = ft_arena_array(h->arena, h->q->plan->n_nodes, sizeof *who);
    ft_head_seating_end(h);
    if (fill(h, who)) fewer(h, who);
    else take_all(h, who);
}
