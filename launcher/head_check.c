/* ftlaunch check on the nodes. The events of the agents come here instead of to the job machine; what fails is kept as a fault and
 * the rest goes on, so that one run finds everything:
 *   1. every node is reached, spares too
 *   2. an address of the first node that all others reach, and a port there; then the way back: the first node to all others
 *   3. the job is sent without GO: working directory, program, devices, room; fttrain is asked on one node of each kind
 *   4. what the nodes told about themselves is compared
 * Nothing is made on a node but the agent's own file (staging). */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"
#include "launcher/head.h"
#include "topology/hostlist.h"

enum { LISTEN_MS = 30000, CONNECT_MS = 4000, PER_PROBE = 32, LITTLE_ROOM_MIB = 1024 };
#define READY_LIMIT (60 * FT_SEC)
#define ASK_LIMIT   (130 * FT_SEC)

enum node_check { CHECK_WAIT, CHECK_UP, CHECK_BAD };
enum check_stage { CHECK_REACHING, CHECK_MEETING, CHECK_BACK, CHECK_READY, CHECK_OVER };

struct way { /* an address of a node that the first node tries */
    int seat;
    char text[100];
};
struct found {
    int node, order;
    bool told; /* by another one */
    struct ft_fault fault;
    struct found *next; /* the same fault of a node behind it */
};
struct ft_check {
    struct ft_faults *faults;
    struct found *found;
    size_t n_found, found_cap;
    enum check_stage stage;
    enum node_check *node; /* (n_nodes) */
    bool *waits;           /* (n_nodes) an answer is missing */
    struct ft_timer limit;
    char nonce[65];
    struct way *ways;
    size_t n_ways, ways_cap, tried; /* tried: first of the probe under way */
    bool *back;                     /* (seats) reached from the first node */
};

/* Kept until all are known: equal ones of several nodes become one. */
static void fault_at(struct ft_head *h, int node, const struct ft_fault *f)
{
    struct ft_check *c = h->check;
    ft_grow(&c->found, &c->found_cap, c->n_found + 1, sizeof *c->found);
    struct found *k = &c->found[c->n_found++];
    *k = (struct found){.node = node, .order = (int)c->n_found, .fault = *f};
    k->fault.text = ft_arena_strdup(h->arena, f->text);
    if (f->fix) k->fault.fix = ft_arena_strdup(h->arena, f->fix);
}

static void fault(struct ft_head *h, int node, const char *text, const char *fix)
{
    const struct ft_fault f = {
        .severity = FT_SEV_ERROR, .at = h->nodes[node].conf->at, .section = "nodes", .text = text, .fix = fix};
    fault_at(h, node, &f);
}

/* In the order of the nodes, those of one node in the order found. */
static int by_node(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    return x->node != y->node ? x->node - y->node : x->order - y->order;
}

static int by_text(const void *a, const void *b)
{
    const struct found *const *px = a, *const *py = b, *x = *px, *y = *py;
    int c = strcmp(x->fault.text, y->fault.text);
    if (!c) c = (int)x->fault.severity - (int)y->fault.severity;
    return c ? c : by_node(x, y);
}

static bool is_same(const struct found *x, const struct found *y)
{
    return x->fault.severity == y->fault.severity && !strcmp(x->fault.text, y->fault.text);
}

/* Each fault leads to the next node's equal one; those that others lead to are told by them. */
static void chain_equal(struct ft_check *c)
{
    struct found **v = ft_xcalloc(c->n_found + 1, sizeof *v);
    for (size_t i = 0; i < c->n_found; i++) v[i] = &c->found[i];
    qsort(v, c->n_found, sizeof *v, by_text);
    for (size_t i = 1; i < c->n_found; i++) {
        if (!is_same(v[i - 1], v[i])) continue;
        v[i - 1]->next = v[i];
        v[i]->told = true;
    }
    free(v);
}

static void tell_found(struct ft_head *h)
{
    struct ft_check *c = h->check;
    const char **names = ft_xcalloc((size_t)h->n_nodes + 1, sizeof *names);
    struct ft_buf folded = {0};
    if (c->n_found) qsort(c->found, c->n_found, sizeof *c->found, by_node);
    chain_equal(c);
    for (size_t i = 0; i < c->n_found; i++) {
        const struct found *f = &c->found[i];
        struct ft_names set = {names, 0};
        if (f->told) continue;
        for (const struct found *g = f; g; g = g->next)
            if (!set.n || names[set.n - 1] != h->nodes[g->node].name) names[set.n++] = h->nodes[g->node].name;
        ft_buf_clear(&folded);
        ft_hostlist_fold(&set, &folded);
        ft_faults_add(c->faults, f->fault.severity, f->fault.at, f->fault.section, f->fault.key, "%s: %s", folded.data,
                      f->fault.text);
        if (f->fault.fix) ft_fault_fix(c->faults, "%s", f->fault.fix);
    }
    ft_buf_fini(&folded);
    free(names);
}

struct ft_check *ft_check_create(struct ft_faults *faults, int n_nodes)
{
    struct ft_check *c = ft_xcalloc(1, sizeof *c);
    c->faults = faults;
    c->node = ft_xcalloc((size_t)n_nodes, sizeof *c->node);
    c->waits = ft_xcalloc((size_t)n_nodes, sizeof *c->waits);
    c->back = ft_xcalloc((size_t)n_nodes, sizeof *c->back);
    unsigned char r[32];
    if (!ft_random(r, sizeof r)) FT_BUG("getrandom failed");
    ft_hex(r, sizeof r, c->nonce);
    return c;
}

void ft_check_destroy(struct ft_check *c)
{
    if (!c) return;
    ft_timer_cancel(&c->limit);
    free(c->node);
    free(c->waits);
    free(c->back);
    free(c->ways);
    free(c->found);
    free(c);
}

static bool any_waits(const struct ft_head *h)
{
    for (int n = 0; n < h->n_nodes; n++)
        if (h->check->waits[n]) return true;
    return false;
}

static void over(struct ft_head *h)
{
    struct ft_msg bye = ft_msg_make(FT_MSG_BYE, FT_WIRE_NODE);
    h->check->stage = CHECK_OVER;
    ft_timer_cancel(&h->check->limit);
    ft_head_send_all(h, &bye);
    h->finished = true;
}

/* ---- 1: reaching ---- */

static void not_reached(struct ft_head *h)
{
    for (int n = 0; n < h->n_nodes; n++) {
        const struct ft_head_node *k = &h->nodes[n];
        if (k->fail_reason) fault(h, n, ft_arena_printf(h->arena, "not reached: %s: %s", k->fail_phase, k->fail_reason), NULL);
    }
}

/* The nodes that are up take the seats, spares behind the others. */
static size_t seat_those_up(struct ft_head *h)
{
    struct ft_plan *p = ft_arena_alloc(h->arena, sizeof *p);
    *p = *h->q->plan;
    p->nodes = ft_arena_array(h->arena, (size_t)h->n_nodes, sizeof *p->nodes);
    p->n_nodes = 0;
    h->seats = ft_arena_array(h->arena, (size_t)h->n_nodes, sizeof *h->seats);
    for (int n = 0; n < h->n_nodes; n++) {
        h->nodes[n].seat = -1;
        if (h->check->node[n] != CHECK_UP) continue;
        struct ft_plan_node *node = &p->nodes[p->n_nodes];
        *node = *h->nodes[n].conf;
        if (!node->n_ranks) node->n_ranks = node->slots; /* a spare must be able to hold them */
        node->index = h->nodes[n].seat = (int)p->n_nodes;
        h->seats[p->n_nodes++] = n;
    }
    h->plan = p;
    return p->n_nodes;
}

static void all_decided(struct ft_head *h)
{
    for (int n = 0; n < h->n_nodes; n++)
        if (h->check->node[n] == CHECK_WAIT) return;
    not_reached(h);
    if (!seat_those_up(h)) {
        over(h);
        return;
    }
    h->check->stage = CHECK_MEETING;
    h->job.state = FT_JOB_CHECKING;
    ft_head_meet_start(h);
}

void ft_head_check_start(struct ft_head *h)
{
    h->job.state = FT_JOB_REACHING;
    for (int n = 0; n < h->n_nodes; n++) ft_head_reach(h, n, false);
}

/* ---- 3: ready ---- */

static void maybe_over(struct ft_head *h)
{
    if (h->check->stage == CHECK_READY && !any_waits(h)) over(h);
}

static void on_limit(void *self, int64_t now)
{
    (void)now;
    struct ft_head *h = self;
    for (int n = 0; n < h->n_nodes; n++)
        if (h->check->waits[n]) fault(h, n, "gave no answer in time", NULL);
    over(h);
}

static void on_checked(struct ft_head *h, int node, const struct ft_head_answer *a)
{
    h->check->waits[node] = false;
    struct ft_faults faults = {.arena = h->arena};
    ft_head_take_check(h, node, a, &faults);
    for (size_t i = 0; i < faults.n; i++) fault_at(h, node, &faults.v[i]);
    maybe_over(h);
}

static void make_ready(struct ft_head *h)
{
    struct ft_check *c = h->check;
    const bool ask = h->plan->is_fttrain && !h->ops->same_machine;
    c->stage = CHECK_READY;
    h->job_number++;
    if (ask) ft_head_choose_asked(h, h->seats, (int)h->plan->n_nodes);
    ft_timer_set(&h->loop, &c->limit, ft_head_now() + READY_LIMIT + (ask ? ASK_LIMIT : 0), on_limit, h);
    for (size_t s = 0; s < h->plan->n_nodes; s++) {
        if (c->node[h->seats[s]] != CHECK_UP) continue;
        c->waits[h->seats[s]] = true;
        ft_head_prepare(h, h->seats[s]);
    }
    maybe_over(h);
}

static void on_ready(struct ft_head *h, const struct ft_job_event *e)
{
    if (h->check->stage != CHECK_READY || !h->check->waits[e->node]) return;
    if (e->status) fault(h, e->node, e->text, NULL);
    else if (h->nodes[e->node].asked) {
        ft_head_ask_check(h, e->node, on_checked);
        return;
    }
    h->check->waits[e->node] = false;
    maybe_over(h);
}

/* ---- 2: the way back ---- */

static void try_next(struct ft_head *h);

static void on_tried(struct ft_head *h, int node, const struct ft_head_answer *a)
{
    struct ft_check *c = h->check;
    (void)node;
    for (size_t i = 0; a->ok && i < a->n && c->tried + i < c->n_ways; i++)
        if (a->text[i] == '1') c->back[c->ways[c->tried + i].seat] = true;
    c->tried += PER_PROBE;
    try_next(h);
}

static void say_one_way(struct ft_head *h)
{
    for (size_t s = 1; s < h->plan->n_nodes; s++) {
        const struct ft_check *c = h->check;
        struct ft_buf b = {0};
        size_t n = 0;
        if (c->back[s] || c->node[h->seats[s]] != CHECK_UP) continue;
        for (size_t i = 0; i < c->n_ways; i++)
            if (c->ways[i].seat == (int)s)
                ft_buf_addf(&b, "%s%.*s", n++ ? ", " : "", (int)strcspn(c->ways[i].text, " "), c->ways[i].text);
        if (!n) continue; /* it could not listen, which was said */
        fault(h, h->seats[s],
              ft_arena_printf(h->arena, "not reached from %s (tried %s): ranks connect both ways", h->nodes[h->seats[0]].name,
                              b.data),
              "likely: a firewall");
        ft_buf_fini(&b);
    }
}

static void try_next(struct ft_head *h)
{
    struct ft_check *c = h->check;
    if (c->tried >= c->n_ways || c->node[h->seats[0]] != CHECK_UP) {
        if (c->node[h->seats[0]] == CHECK_UP) say_one_way(h);
        make_ready(h);
        return;
    }
    struct ft_buf b = {0};
    ft_buf_addf(&b, "%s\n", c->nonce);
    for (size_t i = c->tried; i < c->n_ways && i < c->tried + PER_PROBE; i++) ft_buf_addf(&b, "%s\n", c->ways[i].text);
    ft_head_probe(h, h->seats[0], FT_PROBE_CONNECT, CONNECT_MS, b.data, b.n, on_tried);
    ft_buf_fini(&b);
}

/* Lines "ADDRESS PORT INTERFACE". */
static void on_listens(struct ft_head *h, int node, const struct ft_head_answer *a)
{
    struct ft_check *c = h->check;
    c->waits[node] = false;
    if (!a->ok && c->node[node] == CHECK_UP) fault(h, node, a->text, NULL);
    for (const char *p = a->ok ? a->text : ""; *p;) {
        const size_t n = strcspn(p, "\n");
        char addr[64];
        int port;
        ft_grow(&c->ways, &c->ways_cap, c->n_ways + 1, sizeof *c->ways);
        struct way *w = &c->ways[c->n_ways];
        w->seat = h->nodes[node].seat;
        if (sscanf(p, "%63s %d", addr, &port) == 2 && snprintf(w->text, sizeof w->text, "%s %d", addr, port) > 0) c->n_ways++;
        p += n + (p[n] == '\n');
    }
    if (!any_waits(h)) try_next(h);
}

static void way_back(struct ft_head *h)
{
    struct ft_check *c = h->check;
    const char *interface = h->config->cluster.interface;
    struct ft_buf b = {0};
    c->stage = CHECK_BACK;
    if (h->plan->n_nodes < 2) {
        make_ready(h);
        return;
    }
    ft_buf_addf(&b, "%s\n%s\n\n", c->nonce, interface ? interface : "auto");
    for (size_t s = 1; s < h->plan->n_nodes; s++) c->waits[h->seats[s]] = c->node[h->seats[s]] == CHECK_UP;
    for (size_t s = 1; s < h->plan->n_nodes; s++)
        if (c->waits[h->seats[s]]) ft_head_probe(h, h->seats[s], FT_PROBE_LISTEN, LISTEN_MS, b.data, b.n, on_listens);
    ft_buf_fini(&b);
    if (!any_waits(h)) make_ready(h);
}

/* ---- events ---- */

static void on_lost(struct ft_head *h, const struct ft_job_event *e)
{
    struct ft_check *c = h->check;
    c->node[e->node] = CHECK_BAD;
    if (c->stage == CHECK_REACHING) {
        free(h->nodes[e->node].fail_reason);
        h->nodes[e->node].fail_phase = "stream";
        h->nodes[e->node].fail_reason = ft_xstrdup(e->text);
        all_decided(h);
        return;
    }
    fault(h, e->node, ft_arena_printf(h->arena, "lost: %s", e->text), NULL);
    if (c->stage == CHECK_MEETING) { /* its answer will not come */
        ft_head_meet_end(h);
        way_back(h);
    } else if (c->stage == CHECK_READY) {
        c->waits[e->node] = false;
        maybe_over(h);
    }
}

void ft_head_check_event(struct ft_head *h, const struct ft_job_event *e)
{
    struct ft_check *c = h->check;
    if (c->stage == CHECK_OVER) return;
    switch ((unsigned)e->kind) {
    case FT_EV_NODE_UP:
    case FT_EV_NODE_FAILED:
        c->node[e->node] = e->kind == FT_EV_NODE_UP ? CHECK_UP : CHECK_BAD;
        all_decided(h);
        break;
    case FT_EV_LOST: on_lost(h, e); break;
    case FT_EV_NO_ADDRESS:
        ft_faults_add(c->faults, FT_SEV_ERROR, (struct ft_source){0}, NULL, NULL, "%s", e->text);
        way_back(h);
        break;
    case FT_EV_ADDRESS: way_back(h); break;
    case FT_EV_NODE_READY: on_ready(h, e); break;
    case FT_EV_SIGNAL:
        if (e->number != SIGINT && e->number != SIGTERM && e->number != SIGHUP) break;
        h->status = 128 + e->number;
        over(h);
        break;
    default: break;
    }
}

/* ---- 4: comparing ---- */

/* Is a fact one that nodes should have in common? */
static bool is_compared(const char *name) { return strcmp(name, "room") != 0; }

static bool has_differences(const struct ft_head *h, const char *name)
{
    const char *first = NULL;
    for (int n = 0; n < h->n_nodes; n++) {
        if (h->check->node[n] != CHECK_UP) continue;
        const char *v = ft_head_fact(&h->nodes[n], name);
        if (first && strcmp(first, v) != 0) return true;
        first = v;
    }
    return false;
}

/* "gpu[01-15] driver 550, gpu16 535" */
static void add_groups(const struct ft_head *h, const char *name, struct ft_buf *out)
{
    bool *told = ft_xcalloc((size_t)h->n_nodes, sizeof *told);
    const char **names = ft_xcalloc((size_t)h->n_nodes, sizeof *names);
    int groups = 0;
    for (int i = 0; i < h->n_nodes; i++) {
        struct ft_names set = {names, 0};
        if (told[i] || h->check->node[i] != CHECK_UP) continue;
        const char *value = ft_head_fact(&h->nodes[i], name);
        for (int k = i; k < h->n_nodes; k++) {
            if (h->check->node[k] != CHECK_UP || strcmp(ft_head_fact(&h->nodes[k], name), value) != 0) continue;
            told[k] = true;
            names[set.n++] = h->nodes[k].name;
        }
        ft_buf_adds(out, groups ? ", " : "");
        ft_hostlist_fold(&set, out);
        ft_buf_addf(out, " %s%s%s", groups ? "" : name, groups ? "" : " ", *value ? value : "not known");
        groups++;
    }
    free(names);
    free(told);
}

static const struct ft_head_node *first_up(const struct ft_head *h)
{
    for (int n = 0; n < h->n_nodes; n++)
        if (h->check->node[n] == CHECK_UP) return &h->nodes[n];
    return NULL;
}

static void add_text(const struct ft_head *h, struct ft_buf *out)
{
    const struct ft_head_node *first = first_up(h);
    for (size_t i = 0; i < first->n_facts; i++) {
        const char *name = first->facts[i].name;
        if (!is_compared(name) || (!has_differences(h, name) && h->q->verbose < 1)) continue;
        ft_buf_adds(out, has_differences(h, name) ? "differ  " : "equal   ");
        add_groups(h, name, out);
        ft_buf_addc(out, '\n');
    }
}

static void add_json(const struct ft_head *h, struct ft_buf *out)
{
    const struct ft_head_node *first = first_up(h);
    struct ft_jw w = ft_jw_begin(out);
    ft_jw_object(&w);
    ft_jw_key(&w, "nodes");
    ft_jw_array(&w);
    for (int n = 0; n < h->n_nodes; n++) {
        ft_jw_object(&w);
        ft_jw_kstr(&w, "name", h->nodes[n].name);
        ft_jw_kbool(&w, "reached", h->check->node[n] == CHECK_UP);
        ft_jw_key(&w, "facts");
        ft_jw_object(&w);
        for (size_t i = 0; i < h->nodes[n].n_facts; i++) ft_jw_kstr(&w, h->nodes[n].facts[i].name, h->nodes[n].facts[i].value);
        ft_jw_end(&w);
        ft_jw_end(&w);
    }
    ft_jw_end(&w);
    ft_jw_key(&w, "differ");
    ft_jw_array(&w);
    for (size_t i = 0; first && i < first->n_facts; i++)
        if (is_compared(first->facts[i].name) && has_differences(h, first->facts[i].name)) ft_jw_str(&w, first->facts[i].name);
    ft_jw_end(&w);
    ft_jw_end(&w);
}

static void check_room(struct ft_head *h)
{
    for (int n = 0; n < h->n_nodes; n++) {
        int64_t bytes;
        if (h->check->node[n] != CHECK_UP || !ft_parse_i64(ft_head_fact(&h->nodes[n], "room"), 0, INT64_MAX, &bytes)) continue;
        if (bytes >> 20 >= LITTLE_ROOM_MIB) continue;
        const struct ft_fault f = {
            .severity = FT_SEV_WARNING,
            .at = h->nodes[n].conf->at,
            .section = "nodes",
            .text = ft_arena_printf(h->arena, "only %lld MiB are free in the working directory", (long long)(bytes >> 20))};
        fault_at(h, n, &f);
    }
}

/* How each node is reached; equal ones together. */
static void add_origins(struct ft_head *h, struct ft_buf *out)
{
    bool *told = ft_xcalloc((size_t)h->n_nodes, sizeof *told);
    const char **names = ft_xcalloc((size_t)h->n_nodes, sizeof *names);
    for (int i = 0; i < h->n_nodes; i++) {
        const char *own = told[i] ? NULL : h->ops->explain(h->transport, i);
        struct ft_names set = {names, 0};
        if (!own) continue;
        for (int k = i; k < h->n_nodes; k++) {
            const char *other = h->ops->explain(h->transport, k);
            if (!other || strcmp(own, other) != 0) continue;
            told[k] = true;
            names[set.n++] = h->nodes[k].name;
        }
        ft_buf_adds(out, "reached ");
        ft_hostlist_fold(&set, out);
        ft_buf_addf(out, "  %s\n", own);
    }
    free(names);
    free(told);
}

void ft_head_check_report(struct ft_head *h, struct ft_buf *facts, struct ft_buf *text)
{
    check_room(h);
    tell_found(h);
    add_json(h, facts);
    if (h->ops->explain && h->q->verbose > 0) add_origins(h, text);
    if (first_up(h)) add_text(h, text);
}
