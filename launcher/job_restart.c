/* After an attempt: the end, or another one. */
#include <stdlib.h>

#include "base/arena.h"
#include "base/bits/mix64.h"
#include "launcher/job_internal.h"

#define MAX_BACKOFF (60 * FT_SEC)

static int64_t attempt_step(const struct ft_job *j)
{
    int64_t slowest = INT64_MAX, saved = -1;
    for (int r = 0; r < j->c.n_ranks; r++) {
        if (j->ranks[r].step < slowest) slowest = j->ranks[r].step;
        if (j->ranks[r].saved > saved) saved = j->ranks[r].saved;
    }
    return slowest > saved ? slowest : saved;
}

/* Rank and status of the first failure; -1 when no rank is to blame. */
static void culprit(const struct ft_job *j, int *rank, int *status)
{
    struct ft_end_of *ends = ft_xcalloc((size_t)j->c.n_ranks, sizeof *ends);
    struct ft_verdict v = ft_verdict_find(ends, ft_job_ends(j, ends));
    *rank = v.first < 0 ? -1 : ends[v.first].rank;
    *status = v.first < 0 ? ft_job_status(j) : ends[v.first].signal ? 128 + ends[v.first].signal : ends[v.first].status;
    if (j->stop == FT_STOP_HANG) *rank = j->hang_rank;
    free(ends);
}

static bool within_limit(const struct ft_job *j, int64_t t)
{
    if (!j->c.restart_window) return j->n_restarts < j->c.restarts;
    int n = 0; /* they are in order of time */
    for (int i = j->n_restarts; i-- > 0 && t - j->restart_at[i] < j->c.restart_window;) n++;
    return n < j->c.restarts;
}

/* NULL: restart; else why not ("" when none was wished). */
static const char *refusal(const struct ft_job *j, int rank, int status, bool progressed, int64_t t)
{
    if (j->stop != FT_STOP_FAILURE && j->stop != FT_STOP_NODE && j->stop != FT_STOP_HANG) return "";
    if (j->last_signal_n || !j->c.restarts) return "";
    if (j->stop == FT_STOP_FAILURE && rank >= 0) {
        if (status == 126 || status == 127) return "its program cannot be started";
        if (status == 2) return "exit status 2 is a refusal; trying again would end the same way";
        if (status == 3 && j->c.is_fttrain) return "a watch of fttrain stopped it; trying again would end the same way";
    }
    if (!within_limit(j, t)) return "no restart is left";
    if (!progressed && j->last_without_progress && ((rank == j->last_rank && status == j->last_status) || attempt_step(j) < 0))
        return "two attempts in a row ended without progress";
    return NULL;
}

/* A node whose ranks fail twice gives its seat to one that waits; a lost node has given it already. */
static void blame(struct ft_job *j, int rank)
{
    if (rank < 0 || rank >= j->c.n_ranks || (j->stop != FT_STOP_FAILURE && j->stop != FT_STOP_HANG)) return;
    struct ft_job_node *n = &j->nodes[j->ranks[rank].node];
    bool other = false;
    if (++n->n_blamed < 2) return;
    for (int i = 0; i < j->c.n_nodes; i++) {
        const struct ft_job_node *k = &j->nodes[i];
        other |= !k->seated && !k->faulty && (k->state == FT_NODE_UP || k->state == FT_NODE_EMPTY);
    }
    n->faulty = other;
}

void ft_job_attempt_over(struct ft_job *j, int64_t t, struct ft_job_actions *out)
{
    int rank, status;
    culprit(j, &rank, &status);
    int64_t step = attempt_step(j);
    bool progressed = step > j->best_step;
    const char *no = refusal(j, rank, status, progressed, t);
    if (no) {
        if (no[0]) ft_job_do(out, (struct ft_job_action){.kind = FT_DO_SAY_NO_RESTART, .text = no});
        ft_job_finish(j, ft_job_status(j), out);
        return;
    }
    if (progressed) j->best_step = step;
    j->backoff = progressed || !j->n_restarts ? FT_SEC : j->backoff * 2;
    if (j->backoff > MAX_BACKOFF) j->backoff = MAX_BACKOFF;
    j->last_without_progress = !progressed;
    j->last_rank = rank;
    j->last_status = status;
    blame(j, rank);
    ft_grow(&j->restart_at, &j->restart_cap, (size_t)j->n_restarts + 1, sizeof *j->restart_at);
    j->restart_at[j->n_restarts] = t;
    j->n_restarts++;
    j->attempt++;
    uint64_t dice = ft_mix64(j->c.seed + (uint64_t)j->attempt);
    int64_t wait = j->backoff - j->backoff / 8 + (int64_t)(dice % (uint64_t)(j->backoff / 4)); /* ± an eighth */
    j->state = FT_JOB_RESTARTING;
    j->phase_limit = t + wait;
    ft_job_do(out, (struct ft_job_action){.kind = FT_DO_SAY_RESTART, .ns = wait});
}
