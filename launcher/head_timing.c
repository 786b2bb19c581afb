/* ftlaunch run --timing: how long each phase of the last attempt took, of the nodes that went through it; reaching a node is of the time it
 * was reached last. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "launcher/head.h"

/* Phases of a node behind those of its transport. */
enum { READY = FT_TRANSPORT_PHASES, STARTED, GONE, N_PHASES };

static const char *name_of(const struct ft_head *h, int phase)
{
    static const char *const names[] = {"ready", "start", "gone"};
    if (phase >= READY) return names[phase - READY];
    for (int n = 0; n < h->n_nodes; n++)
        if ((size_t)phase < h->nodes[n].times.n) return h->nodes[n].times.v[phase].name;
    return NULL;
}

/* ns; -1: the node did not go through it. */
static int64_t time_of(const struct ft_head_node *n, int phase)
{
    switch (phase) {
    case READY: return n->ready_at ? n->ready_at - n->prepared_at : -1;
    case STARTED: return n->started_ns ? n->started_ns : -1;
    case GONE: return n->gone_ns ? n->gone_ns : -1;
    default: return (size_t)phase < n->times.n ? n->times.v[phase].ns : -1;
    }
}

static int by_value(const void *a, const void *b)
{
    int64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static void add_phase(const struct ft_head *h, int phase, int64_t *v, struct ft_buf *out)
{
    const char *name = name_of(h, phase);
    size_t count = 0;
    int worst = -1;
    for (int n = 0; n < h->n_nodes; n++) {
        const int64_t ns = time_of(&h->nodes[n], phase);
        if (ns < 0) continue;
        v[count++] = ns;
        if (worst < 0 || ns > time_of(&h->nodes[worst], phase)) worst = n;
    }
    if (!name || !count) return;
    qsort(v, count, sizeof *v, by_value);
    ft_buf_addf(out, "  %-10s %9.1f ms %9.1f ms  %s\n", name, (double)v[count / 2] / 1e6, (double)v[count - 1] / 1e6,
                h->nodes[worst].name);
}

static void add_run(const char *name, int64_t from, int64_t to, struct ft_buf *out)
{
    if (from && to) ft_buf_addf(out, "  %-10s %9.1f ms\n", name, (double)(to - from) / 1e6);
}

void ft_head_timing(struct ft_head *h)
{
    struct ft_buf b = {0};
    int64_t *v = ft_xcalloc((size_t)h->n_nodes, sizeof *v);
    ft_buf_adds(&b, "ftlaunch: timing   median        worst  node\n");
    for (int p = 0; p < READY; p++) add_phase(h, p, v, &b);
    add_run("all up", h->attempt_at, h->all_up_at, &b);
    add_run("address", h->all_up_at, h->address_at, &b);
    add_phase(h, READY, v, &b);
    add_run("until GO", h->attempt_at, h->go_at, &b);
    add_phase(h, STARTED, v, &b);
    add_phase(h, GONE, v, &b);
    ft_head_show(h, &b);
    ft_buf_fini(&b);
    free(v);
}
