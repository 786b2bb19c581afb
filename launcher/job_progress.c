/* Steps, slow steps and hangs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/job_internal.h"

static int64_t min_step(const struct ft_job *j)
{
    int64_t min = INT64_MAX;
    for (int r = 0; r < j->c.n_ranks; r++)
        if (j->ranks[r].step < min) min = j->ranks[r].step;
    return min;
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
    r->step = e->step;
    r->step_at = e->t;
    if (first) ft_job_do(out, (struct ft_job_action){.kind = FT_DO_SAY_FIRST_STEP, .rank = e->rank, .step = e->step});
    int64_t min = min_step(j);
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
    if (!j->c.hang_timeout || !j->all_stepped) return INT64_MAX;
    for (int r = 0; r < j->c.n_ranks; r++)
        if (j->ranks[r].state == FT_RANK_ENDED) return INT64_MAX; /* ranks are leaving: no step is due any more */
    return j->last_min_at + j->c.hang_timeout;
}

/* Where most ranks wait: waiting elsewhere is odd. */
static void mark_common_wait(struct ft_job *j)
{
    int best = 0;
    const char *common = "";
    for (int r = 0; r < j->c.n_ranks; r++) {
        int n = 0;
        for (int q = 0; q < j->c.n_ranks; q++) n += strcmp(j->ranks[q].wait, j->ranks[r].wait) == 0;
        if (n > best) {
            best = n;
            common = j->ranks[r].wait;
        }
    }
    for (int r = 0; r < j->c.n_ranks; r++) j->ranks[r].same_wait = strcmp(j->ranks[r].wait, common) == 0;
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
        j->hang_step = min_step(j);
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
    for (int i = 0; i < j->c.n_ranks; i++)
        if (!j->ranks[i].letter && j->ranks[i].state == FT_RANK_RUNNING) return;
    say_hang(j, out);
}

void ft_job_stacks(struct ft_job *j, const struct ft_job_event *e, struct ft_job_actions *out)
{
    j->nodes[e->node].stacks = true;
    if (!j->hanging || j->state != FT_JOB_RUNNING) return;
    for (int n = 0; n < j->c.n_nodes; n++)
        if (j->nodes[n].seated && !j->nodes[n].stacks && j->nodes[n].state == FT_NODE_UP) return;
    if (!j->hang_said) say_hang(j, out);
    ft_job_stop(j, FT_STOP_HANG, j->c.grace, e->t, out);
}
