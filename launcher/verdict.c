#include "launcher/verdict.h"

#include <signal.h>

bool ft_end_is_failure(const struct ft_end_of *e) { return (e->status != 0 || e->signal != 0) && !e->after_stop; }

bool ft_end_before(const struct ft_end_of *a, const struct ft_end_of *b)
{
    if (a->node == b->node && a->order && b->order) return a->order < b->order;
    return b->t_ns - a->t_ns > a->error_ns + b->error_ns;
}

/* Undecided by time: what kind of end is likelier a cause. Lower is likelier. */
static int weight(const struct ft_end_of *e)
{
    if (e->oom || e->signal == SIGSEGV || e->signal == SIGBUS || e->signal == SIGILL || e->signal == SIGFPE) return 0;
    if (e->signal) return 2;
    return e->status == FT_STATUS_PEER_ENDED ? 3 : 1;
}

/* Whom to take the cause from. */
enum among {
    AMONG_OWN,  /* failures other than 69 */
    AMONG_TOLD, /* there are only 69s: of the ranks that we told to end meanwhile, those that ended with a status of their own */
    AMONG_PEERS /* the 69s: there is nothing else */
};

static bool counts(const struct ft_end_of *e, enum among a)
{
    const bool peer = !e->signal && e->status == FT_STATUS_PEER_ENDED;
    if (a == AMONG_TOLD) return e->after_stop && !e->signal && e->status && !peer && e->status != 128 + SIGTERM;
    return ft_end_is_failure(e) && (a == AMONG_PEERS || !peer);
}

static enum among whom(const struct ft_end_of *ends, size_t n)
{
    bool failed = false, told = false;
    for (size_t i = 0; i < n; i++) {
        if (counts(&ends[i], AMONG_OWN)) return AMONG_OWN;
        failed = failed || ft_end_is_failure(&ends[i]);
        told = told || counts(&ends[i], AMONG_TOLD);
    }
    return failed && told ? AMONG_TOLD : AMONG_PEERS;
}

struct ft_verdict ft_verdict_find(const struct ft_end_of *ends, size_t n)
{
    struct ft_verdict v = {.first = -1, .gap_ns = -1, .next = -1};
    const enum among among = whom(ends, n);
    for (size_t i = 0; i < n; i++) v.n_failures += ft_end_is_failure(&ends[i]);
    for (size_t i = 0; i < n; i++) { /* earliest by time, then what is certainly before it */
        if (!counts(&ends[i], among)) continue;
        const struct ft_end_of *best = v.first < 0 ? NULL : &ends[v.first];
        if (!best || ft_end_before(&ends[i], best) || (!ft_end_before(best, &ends[i]) && ends[i].t_ns < best->t_ns))
            v.first = (int)i;
    }
    if (v.first < 0) return v;
    v.n_failures += among == AMONG_TOLD;
    int earliest = v.first;
    for (size_t i = 0; i < n; i++) { /* those that may have been first: weigh them */
        if (!counts(&ends[i], among) || (int)i == earliest || ft_end_before(&ends[earliest], &ends[i])) continue;
        v.undecided = true;
        const struct ft_end_of *a = &ends[i], *b = &ends[v.first];
        if (weight(a) < weight(b) || (weight(a) == weight(b) && a->rank < b->rank)) v.first = (int)i;
    }
    for (size_t i = 0; i < n; i++) {
        if (!ft_end_is_failure(&ends[i]) || (int)i == v.first) continue;
        int64_t gap = ends[i].t_ns - ends[v.first].t_ns;
        if (gap < 0) gap = v.undecided ? -gap : 0;
        if (v.next >= 0 && gap >= v.gap_ns) continue;
        v.gap_ns = gap;
        v.next = (int)i;
    }
    return v;
}
