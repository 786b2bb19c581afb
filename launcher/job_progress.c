/* Steps, slow steps and hangs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "launcher/job_internal.h"

static void find_min(struct ft_job *j)
{
    j->min_step = INT64_MAX;
    for (int r = 0; r < j->c.n_ranks; r++) {
        if (j->ranks[r].step < j->min_step) {
            j->min_step = j->ranks[r].step;
            j->n_at_min = 0;
        }
        j->n_at_min += j->ranks[r].step == j->min_step;
    }
}

/* The slowest are looked for again when the last of them has gone on: once per step, not once per rank and step. */
static void take_step(struct ft_job *j, struct ft_job_rank *r, int64_t step)
{
    const int64_t before = r->step;
    r->step = step;
    if (step == before) return;
    j->n_at_min += (step == j->min_step) - (before == j->min_step);
    if (step < j->min_step || !j->n_at_min) find_min(j);
}

static int by_value(const void *a, const void *b)
{
    int64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

static int64_t median(const struct ft_job *j)
{
    int n = j->n_steps < FT_JOB_STEP_TIMES ? j->n_steps : FT_JOB_STEP_TIMES;
    int64_t v[FT_JOB_STEP_TIMES];
    memcpy(v, j->step_times, (size_t)n * sizeof *v);
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n ? v[n / 2] : 0;
}

void ft_job_progress(struct ft_job *j, const struct ft_job_event *e, struct ft_job_actions *out)
{
    struct ft_job_rank *r = &j->ranks[e->rank];
    if (e->saved > r->saved) r->saved = e->saved;
    if (e->step < 0) return;
    bool first = r->step < 0;
    take_step(j, r, e->step);
    r->step_at = e->t;
    if (first) ft_job_do(out, (struct ft_job_action){.kind = FT_DO_SAY_FIRST_STEP, .rank = e->rank, .step = e->step});
    const int64_t min = j->min_step;
    if (min < 0 || min <= j->last_min_step) {
        if (min >= 0 && !j->all_stepped) j->last_min_step = min, j->last_min_at = e->t;
        j->all_stepped = min >= 0;
        return;
    }
    if (j->all_stepped) { /* the slowest rank completed a step: e->rank reported it last */
        int64_t took = e->t - j->last_min_at, usual = median(j);
        if (j->n_steps >= 5 && took > 10 * usual && took > FT_SEC)
            ft_job_do(out, (struct ft_job_action){.kind = FT_DO_SAY_SLOW_STEP, .rank = e->rank, .step = min, .ns = took});
        j->step_times[j->n_steps++ % FT_JOB_STEP_TIMES] = took;
    }
    j->all_stepped = true;
    j->last_min_step = min;
    j->last_min_at = e->t;
}

int64_t ft_job_hang_due(const struct ft_job *j)
{
    if (j->hanging) return j->hang_said ? j->hang_at + FT_JOB_STACKS_LIMIT : j->hang_at + FT_JOB_STATES_LIMIT;
    if (!j->c.hang_timeout || !j->all_stepped || j->n_ended) return INT64_MAX; /* when ranks leave no step is due any more */
    return j->last_min_at + j->c.hang_timeout;
}

struct waiter {
    const char *wait;
    int rank;
};

static int by_wait(const void *a, const void *b)
{
    const struct waiter *x = a, *y = b;
    const int c = strcmp(x->wait, y->wait);
    return c ? c : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Where most ranks wait (of equally many: where the lowest of them does): waiting elsewhere is odd. */
static void mark_common_wait(struct ft_job *j)
{
    const int n = j->c.n_ranks;
    struct waiter *v = ft_xcalloc((size_t)n, sizeof *v);
    int best = 0, first = n;
    const char *common = "";
    for (int r = 0; r < n; r++) v[r] = (struct waiter){j->ranks[r].wait, r};
    qsort(v, (size_t)n, sizeof *v, by_wait);
    for (int i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && strcmp(v[k].wait, v[i].wait) == 0;) k++;
        if (k - i < best || (k - i == best && v[i].rank > first)) continue;
        best = k - i;
        first = v[i].rank;
        common = v[i].wait;
    }
    for (int r = 0; r < n; r++) j->ranks[r].same_wait = strcmp(j->ranks[r].wait, common) == 0;
    free(v);
}

/* Lower is odder: state T, then D, then running without progress, then not waiting where the others wait. */
static int oddness(const struct ft_job_rank *r)
{
    if (r->letter == 'T' || r->letter == 't') return 0;
    if (r->letter == 'D') return 1;
    if (r->letter == 'R') return 2;
    return r->same_wait ? 4 : 3;
}

/* The odd one out: the lowest step, then the state; -1 when several are equally odd. */
static int odd_one(struct ft_job *j)
{
    mark_common_wait(j);
    int best = 0, ties = 1;
    for (int r = 1; r < j->c.n_ranks; r++) {
        const struct ft_job_rank *a = &j->ranks[r], *b = &j->ranks[best];
        if (a->step < b->step || (a->step == b->step && oddness(a) < oddness(b))) best = r, ties = 1;
        else if (a->step == b->step && oddness(a) == oddness(b)) ties++;
    }
    return ties == 1 ? best : -1;
}

static void say_hang(struct ft_job *j, struct ft_job_actions *out)
{
    j->hang_said = true;
    j->hang_rank = odd_one(j);
    ft_job_do(out, (struct ft_job_action){.kind = FT_DO_SAY_HANG, .rank = j->hang_rank, .step = j->hang_step});
}

void ft_job_check_hang(struct ft_job *j, int64_t t, struct ft_job_actions *out)
{
    if (t < ft_job_hang_due(j)) return;
    if (!j->hanging) {
        j->hanging = true;
        j->hang_at = t;
        j->hang_step = j->min_step;
        for (int r = 0; r < j->c.n_ranks; r++) j->ranks[r].letter = 0; /* what was known of another look counts no more */
        for (int n = 0; n < j->c.n_nodes; n++) j->nodes[n].stacks = false;
        ft_job_do(out, (struct ft_job_action){.kind = FT_DO_STACKS});
    } else if (!j->hang_said) {
        say_hang(j, out);
    } else ft_job_stop(j, FT_STOP_HANG, j->c.grace, t, out);
}

void ft_job_rank_state(struct ft_job *j, const struct ft_job_event *e, struct ft_job_actions *out)
{
    struct ft_job_rank *r = &j->ranks[e->rank];
    r->letter = (char)e->number;
    snprintf(r->wait, sizeof r->wait, "%s", e->text ? e->text : "");
    if (!j->hanging || j->hang_said) return;
    for (int i = 0; i < j->c.n_ranks; i++, j->rank_at++) { /* as ft_job_any_node */
        if (j->rank_at >= j->c.n_ranks) j->rank_at = 0;
        if (!j->ranks[j->rank_at].letter && j->ranks[j->rank_at].state == FT_RANK_RUNNING) return;
    }
    say_hang(j, out);
}

static bool owes_stacks(const struct ft_job_node *n) { return n->seated && !n->stacks && n->state == FT_NODE_UP; }

void ft_job_stacks(struct ft_job *j, const struct ft_job_event *e, struct ft_job_actions *out)
{
    j->nodes[e->node].stacks = true;
    if (!j->hanging || j->state != FT_JOB_RUNNING) return;
    if (ft_job_any_node(j, owes_stacks)) return;
    if (!j->hang_said) say_hang(j, out);
    ft_job_stop(j, FT_STOP_HANG, j->c.grace, e->t, out);
}
