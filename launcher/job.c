#include "launcher/job.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/err.h"
#include "launcher/job_internal.h"

const char *ft_job_state_name(enum ft_job_state s)
{
    static const char *const names[] = {"off", "reaching", "checking", "ready", "running", "stopping", "restarting", "done"};
    return names[s];
}

const char *ft_stop_reason_name(enum ft_stop_reason r)
{
    static const char *const names[] = {"none",     "done",   "rank0", "rank",   "node", "hang",
                                        "deadline", "signal", "stop",  "config", "node"};
    return names[r];
}

/* Who has ranks: the nodes that are named. */
static void take_seats(struct ft_job *j, const int *rank_node, int n_ranks)
{
    if (n_ranks != j->c.n_ranks) j->ranks = ft_xrealloc(j->ranks, (size_t)n_ranks, sizeof *j->ranks);
    j->c.rank_node = rank_node;
    j->c.n_ranks = n_ranks;
    for (int n = 0; n < j->c.n_nodes; n++) j->nodes[n].seated = false;
    for (int i = 0; i < n_ranks; i++) j->nodes[rank_node[i]].seated = true;
}

void ft_job_init(struct ft_job *j, const struct ft_job_config *c)
{
    memset(j, 0, sizeof *j);
    j->c = *c;
    j->nodes = ft_xcalloc((size_t)c->n_nodes, sizeof *j->nodes);
    j->ranks = ft_xcalloc((size_t)c->n_ranks, sizeof *j->ranks);
    j->step_times = ft_xcalloc(FT_JOB_STEP_TIMES, sizeof *j->step_times);
    j->attempt = c->first_attempt;
    j->tick_at = INT64_MAX;
    j->best_step = -1;
    j->last_rank = -1;
    j->backoff = FT_SEC;
    take_seats(j, c->rank_node, c->n_ranks);
    ft_job_reset_attempt(j);
}

void ft_job_fini(struct ft_job *j)
{
    free(j->nodes);
    free(j->ranks);
    free(j->step_times);
    free(j->restart_at);
    memset(j, 0, sizeof *j);
}

void ft_job_reset_attempt(struct ft_job *j)
{
    for (int r = 0; r < j->c.n_ranks; r++) j->ranks[r] = (struct ft_job_rank){.node = j->c.rank_node[r], .step = -1, .saved = -1};
    for (int n = 0; n < j->c.n_nodes; n++) j->nodes[n].ready = j->nodes[n].stopped = j->nodes[n].stacks = false;
    j->stop = FT_STOP_NONE;
    j->stop_signal = 0;
    j->killed = j->hanging = j->hang_said = j->all_stepped = false;
    j->killed_at = j->kill_at = j->stop_at = 0;
    j->last_signal_n = 0;
    j->lost_node = -1;
    j->hang_rank = -1;
    j->n_steps = 0;
    j->last_min_step = j->min_step = -1;
    j->n_at_min = j->c.n_ranks;
    j->n_ended = 0;
}

void ft_job_do(struct ft_job_actions *out, struct ft_job_action a)
{
    ft_grow(&out->v, &out->cap, out->n + 1, sizeof *out->v);
    out->v[out->n++] = a;
}

static void do_kind(struct ft_job_actions *out, enum ft_job_action_kind kind)
{
    ft_job_do(out, (struct ft_job_action){.kind = kind});
}

static bool is_live(const struct ft_job_node *n) { return n->state == FT_NODE_UP || n->state == FT_NODE_EMPTY; }

bool ft_job_any_node(struct ft_job *j, bool (*is)(const struct ft_job_node *))
{
    for (int i = 0; i < j->c.n_nodes; i++, j->node_at++) {
        if (j->node_at >= j->c.n_nodes) j->node_at = 0;
        if (is(&j->nodes[j->node_at])) return true;
    }
    return false;
}

static bool is_reaching(const struct ft_job_node *n) { return n->state == FT_NODE_REACHING; }
static bool is_unready(const struct ft_job_node *n) { return n->seated && !n->ready && n->state == FT_NODE_UP; }
static bool stands(const struct ft_job_node *n) { return n->seated && n->state == FT_NODE_UP; } /* has not said GONE */
static bool is_ending(const struct ft_job_node *n) { return n->seated && (n->state == FT_NODE_UP || n->sweeping); }

static void set_sweeping(struct ft_job *j, struct ft_job_node *n, bool sweeping)
{
    j->n_sweeping += (int)sweeping - (int)n->sweeping;
    n->sweeping = sweeping;
}

static bool any_after_stop(const struct ft_job *j)
{
    for (int r = 0; r < j->c.n_ranks; r++)
        if (j->ranks[r].end.after_stop) return true;
    return false;
}

static void finish(struct ft_job *j, int status, struct ft_job_actions *out)
{
    j->state = FT_JOB_DONE;
    j->tick_at = INT64_MAX;
    ft_job_do(out, (struct ft_job_action){.kind = FT_DO_BYE});
    ft_job_do(out, (struct ft_job_action){.kind = FT_DO_FINISH, .number = status});
}

/* Before GO: nothing runs, so nothing has to be stopped. */
static void refuse(struct ft_job *j, enum ft_stop_reason why, int status, int64_t t, struct ft_job_actions *out)
{
    j->stop = why;
    j->config_status = status;
    j->stop_at = t;
    finish(j, status, out);
}

void ft_job_stop(struct ft_job *j, enum ft_stop_reason why, int64_t grace, int64_t t, struct ft_job_actions *out)
{
    j->state = FT_JOB_STOPPING;
    j->stop = why;
    j->stop_at = t;
    j->kill_at = t + grace;
    do_kind(out, FT_DO_SAY_STOP);
    ft_job_do(out, (struct ft_job_action){.kind = FT_DO_STOP, .ns = grace});
}

static void kill_now(struct ft_job *j, int64_t t, struct ft_job_actions *out)
{
    if (j->killed) return;
    bool any = false;
    for (int n = 0; n < j->c.n_nodes; n++) any |= j->nodes[n].seated && j->nodes[n].state == FT_NODE_UP;
    j->killed = true;
    j->killed_at = t;
    if (!any) return; /* only lost nodes are waited for */
    do_kind(out, FT_DO_SAY_KILL);
    do_kind(out, FT_DO_KILL);
}

/* ---- REACHING, CHECKING, READY ---- */

static int n_seated(const struct ft_job *j)
{
    int n = 0;
    for (int i = 0; i < j->c.n_nodes; i++) n += j->nodes[i].seated;
    return n;
}

static bool is_fit(const struct ft_job_node *n) { return n->state == FT_NODE_UP && !n->faulty; }

/* Seats whose node is gone or to blame; *waiting: nodes that could take one. */
static int n_vacant(const struct ft_job *j, int *waiting)
{
    int vacant = 0;
    *waiting = 0;
    for (int i = 0; i < j->c.n_nodes; i++) {
        vacant += j->nodes[i].seated && !is_fit(&j->nodes[i]);
        *waiting += !j->nodes[i].seated && is_fit(&j->nodes[i]);
    }
    return vacant;
}

/* A wait before the first GO refuses the run; later it is the run's end, whose ranks did run. */
static int refused_status(const struct ft_job *j, int status) { return j->began && status == 2 ? 125 : status; }

/* Every seat has a node that is up; those that were not reached are not needed. */
static void begin_checking(struct ft_job *j, int64_t t, struct ft_job_actions *out)
{
    j->state = FT_JOB_CHECKING;
    j->config_status = 0;
    j->phase_limit = t + j->c.reach_timeout;
    do_kind(out, FT_DO_ADDRESS);
}

/* Every node that was being reached is up or not: the ranks get their nodes. */
static void all_decided(struct ft_job *j, int64_t t, struct ft_job_actions *out)
{
    int waiting;
    if (ft_job_any_node(j, is_reaching)) return;
    const int vacant = n_vacant(j, &waiting);
    if (vacant || (waiting && n_seated(j) < j->c.n_seats)) {
        j->seating = true;
        j->phase_limit = t + FT_JOB_SEAT_LIMIT;
        do_kind(out, FT_DO_SEAT);
        return;
    }
    begin_checking(j, t, out);
}

/* Nodes that are lost are reached again when nobody waits for their seats, or when the run has had to shrink. */
static void begin_attempt(struct ft_job *j, int64_t t, struct ft_job_actions *out)
{
    int waiting;
    j->state = FT_JOB_REACHING;
    j->seating = false;
    j->phase_limit = t + j->c.reach_timeout;
    for (int n = 0; n < j->c.n_nodes; n++)
        if (j->nodes[n].state == FT_NODE_EMPTY) j->nodes[n].state = FT_NODE_UP; /* a kept agent */
    const int vacant = n_vacant(j, &waiting);
    const bool all = !j->began || vacant > waiting || n_seated(j) + waiting < j->c.n_seats;
    for (int n = 0; n < j->c.n_nodes; n++) {
        if (j->nodes[n].state == FT_NODE_UP || !all) continue;
        j->nodes[n].state = FT_NODE_REACHING;
        ft_job_do(out, (struct ft_job_action){.kind = FT_DO_REACH, .node = n});
    }
    all_decided(j, t, out);
}

static void on_seated(struct ft_job *j, const struct ft_job_event *e, struct ft_job_actions *out)
{
    if (j->state != FT_JOB_REACHING || !j->seating) return;
    j->seating = false;
    take_seats(j, e->rank_node, e->number);
    for (int n = 0; n < j->c.n_nodes; n++) {
        if (!j->nodes[n].seated || !j->nodes[n].faulty) continue;
        j->nodes[n].faulty = false; /* nobody else could: it gets another two attempts */
        j->nodes[n].n_blamed = 0;
    }
    ft_job_reset_attempt(j);
    int waiting;
    if (n_vacant(j, &waiting)) { /* lost while that was being decided */
        all_decided(j, e->t, out);
        return;
    }
    begin_checking(j, e->t, out);
}

static void on_no_seats(struct ft_job *j, const struct ft_job_event *e, struct ft_job_actions *out)
{
    if (j->state != FT_JOB_REACHING || !j->seating) return;
    j->seating = false;
    if (!j->began) refuse(j, FT_STOP_CONFIG, j->config_status ? j->config_status : 2, e->t, out);
    else refuse(j, FT_STOP_SEATS, 125, e->t, out);
}

static void on_node_up(struct ft_job *j, const struct ft_job_event *e, struct ft_job_actions *out)
{
    if (j->nodes[e->node].state != FT_NODE_REACHING) FT_BUG("node %d came up in state %d", e->node, j->nodes[e->node].state);
    j->nodes[e->node].state = FT_NODE_UP;
    j->nodes[e->node].heard_at = e->t;
    all_decided(j, e->t, out);
}

static void on_node_failed(struct ft_job *j, const struct ft_job_event *e, struct ft_job_actions *out)
{
    j->nodes[e->node].state = FT_NODE_BAD;
    j->config_status = e->status;
    all_decided(j, e->t, out);
}

static void on_node_ready(struct ft_job *j, const struct ft_job_event *e, struct ft_job_actions *out)
{
    j->nodes[e->node].ready = true;
    if (e->status) /* 126 and 127 only when nothing else is wrong */
        j->config_status = j->config_status == 0 || j->config_status == e->status ? e->status : 2;
    if (ft_job_any_node(j, is_unready)) return;
    if (j->config_status) {
        refuse(j, FT_STOP_CONFIG, refused_status(j, j->config_status), e->t, out);
        return;
    }
    j->state = FT_JOB_RUNNING;
    j->attempt_at = e->t;
    j->began = true;
    for (int r = 0; r < j->c.n_ranks; r++) j->ranks[r].state = FT_RANK_STARTING;
    do_kind(out, FT_DO_GO);
}

/* ---- ends ---- */

static void rank_ended(struct ft_job *j, const struct ft_job_event *e, struct ft_job_actions *out)
{
    struct ft_job_rank *r = &j->ranks[e->rank];
    if (r->state == FT_RANK_ENDED || r->state == FT_RANK_WAITING) FT_BUG("rank %d ended in state %d", e->rank, r->state);
    r->state = FT_RANK_ENDED;
    j->n_ended++;
    r->ended_at = e->t;
    r->end = (struct ft_end_of){.rank = e->rank,
                                .node = r->node,
                                .status = e->status,
                                .signal = e->signal,
                                .after_stop = e->after_stop,
                                .oom = e->oom,
                                .t_ns = e->t_node,
                                .error_ns = e->error_ns,
                                .order = e->order};
    if (j->state != FT_JOB_RUNNING) return;
    if (ft_end_is_failure(&r->end)) ft_job_stop(j, FT_STOP_FAILURE, j->c.grace, e->t, out);
    else if (j->c.end_rank0 && e->rank == 0) ft_job_stop(j, FT_STOP_RANK0, j->c.grace, e->t, out);
    else if (j->n_ended == j->c.n_ranks && !any_after_stop(j)) /* an agent that ends by itself is about to be lost */
        ft_job_stop(j, FT_STOP_DONE, FT_JOB_DONE_GRACE, e->t, out);
}

size_t ft_job_ends(const struct ft_job *j, struct ft_end_of *ends)
{
    size_t n = 0;
    for (int r = 0; r < j->c.n_ranks; r++)
        if (j->ranks[r].state == FT_RANK_ENDED) ends[n++] = j->ranks[r].end;
    return n;
}

static int status_of_first(const struct ft_job *j)
{
    struct ft_end_of *ends = ft_xcalloc((size_t)j->c.n_ranks, sizeof *ends);
    size_t n = ft_job_ends(j, ends);
    if (j->stop == FT_STOP_RANK0) /* peers that noticed its end are no failures */
        for (size_t i = 0; i < n; i++)
            if (!ft_end_before(&ends[i], &j->ranks[0].end)) ends[i].after_stop = true;
    struct ft_verdict v = ft_verdict_find(ends, n);
    int status = v.first < 0 ? 0 : ends[v.first].signal ? 128 + ends[v.first].signal : ends[v.first].status;
    free(ends);
    return status;
}

int ft_job_status(const struct ft_job *j)
{
    switch (j->stop) {
    case FT_STOP_SIGNAL: return 128 + j->stop_signal;
    case FT_STOP_REQUEST: return 128 + SIGTERM;
    case FT_STOP_HANG:
    case FT_STOP_DEADLINE: return 124;
    case FT_STOP_CONFIG: return j->config_status;
    case FT_STOP_SEATS: return 125;
    case FT_STOP_NODE: return 125;
    case FT_STOP_FAILURE:
    case FT_STOP_DONE:
    case FT_STOP_RANK0:
    case FT_STOP_NONE: break;
    }
    int status = status_of_first(j);
    if (status == 0 && j->lost_node >= 0) return 125;
    return status;
}

/* STOPPING is over when every node said GONE or is lost and swept. */
static void check_stopped(struct ft_job *j, int64_t t, struct ft_job_actions *out)
{
    if (j->state != FT_JOB_STOPPING || ft_job_any_node(j, is_ending)) return;
    ft_job_attempt_over(j, t, out);
}

void ft_job_begin_again(struct ft_job *j, int64_t t, struct ft_job_actions *out)
{
    ft_job_reset_attempt(j);
    begin_attempt(j, t, out);
}

void ft_job_finish(struct ft_job *j, int status, struct ft_job_actions *out) { finish(j, status, out); }

/* Before GO: a run that has not begun is refused; one that has begun goes on without the node, as after a failed attempt. */
static void lost_early(struct ft_job *j, const struct ft_job_event *e, struct ft_job_actions *out)
{
    if (j->state == FT_JOB_REACHING) { /* seats are given when all are decided */
        if (!j->seating) all_decided(j, e->t, out);
        return;
    }
    if (!j->began) {
        refuse(j, FT_STOP_NODE, 2, e->t, out);
        return;
    }
    j->stop = FT_STOP_NODE;
    j->stop_at = e->t;
    ft_job_attempt_over(j, e->t, out);
}

static void on_lost(struct ft_job *j, const struct ft_job_event *e, struct ft_job_actions *out)
{
    struct ft_job_node *n = &j->nodes[e->node];
    if (!is_live(n)) return;
    n->state = FT_NODE_DARK;
    n->lost_at = e->t;
    if (!n->seated || j->state == FT_JOB_RESTARTING) { /* it waited: no rank is lost with it */
        if (j->state == FT_JOB_REACHING) lost_early(j, e, out);
        return;
    }
    if (j->lost_node < 0) j->lost_node = e->node;
    if (j->state != FT_JOB_RUNNING && j->state != FT_JOB_STOPPING) {
        lost_early(j, e, out);
        return;
    }
    set_sweeping(j, n, true);
    ft_job_do(out, (struct ft_job_action){.kind = FT_DO_SWEEP, .node = e->node});
    if (j->state == FT_JOB_RUNNING) ft_job_stop(j, FT_STOP_NODE, j->c.grace, e->t, out);
    check_stopped(j, e->t, out);
}

/* ---- signals ---- */

static bool is_fatal(int number) { return number == SIGINT || number == SIGTERM || number == SIGHUP; }

static void on_fatal(struct ft_job *j, const struct ft_job_event *e, struct ft_job_actions *out)
{
    if (j->state < FT_JOB_RUNNING || j->state == FT_JOB_RESTARTING) {
        j->stop_signal = e->number;
        refuse(j, FT_STOP_SIGNAL, 128 + e->number, e->t, out);
        return;
    }
    if (j->state == FT_JOB_RUNNING) {
        j->stop_signal = e->number;
        j->last_signal_n = 1;
        j->first_signal_at = e->t;
        ft_job_stop(j, FT_STOP_SIGNAL, j->c.grace, e->t, out);
        return;
    }
    if (j->state != FT_JOB_STOPPING) return;
    if (j->last_signal_n++ == 0) { /* the first one came while a failure was being cleaned up */
        j->first_signal_at = e->t;
        return;
    }
    int64_t since = e->t - j->first_signal_at;
    if (since > (e->number == SIGINT ? FT_JOB_SAME_SIGNAL : FT_SEC)) kill_now(j, e->t, out);
}

static void on_signal(struct ft_job *j, const struct ft_job_event *e, struct ft_job_actions *out)
{
    if (is_fatal(e->number)) on_fatal(j, e, out);
    else if (e->number == SIGTSTP) do_kind(out, FT_DO_PAUSE);
    else if (e->number == SIGCONT) {
        for (int r = 0; r < j->c.n_ranks; r++) j->ranks[r].step_at = e->t; /* hang clocks stood still */
        j->last_min_at = e->t;
        do_kind(out, FT_DO_RESUME);
    } else if (j->state == FT_JOB_RUNNING || j->state == FT_JOB_STOPPING)
        ft_job_do(out, (struct ft_job_action){.kind = FT_DO_SIGNAL, .number = e->number});
}

static void on_request(struct ft_job *j, const struct ft_job_event *e, struct ft_job_actions *out)
{
    if (j->state < FT_JOB_RUNNING || j->state == FT_JOB_RESTARTING) {
        refuse(j, FT_STOP_REQUEST, 128 + SIGTERM, e->t, out);
        return;
    }
    if (j->state == FT_JOB_RUNNING) ft_job_stop(j, FT_STOP_REQUEST, e->number ? 0 : j->c.grace, e->t, out);
    if (j->state == FT_JOB_STOPPING && e->number) kill_now(j, e->t, out);
}

/* ---- time ---- */

static void on_tick(struct ft_job *j, const struct ft_job_event *e, struct ft_job_actions *out)
{
    if ((j->state == FT_JOB_REACHING || j->state == FT_JOB_CHECKING) && e->t >= j->phase_limit) {
        refuse(j, FT_STOP_CONFIG, refused_status(j, 2), e->t, out);
        return;
    }
    if (j->state == FT_JOB_RUNNING) {
        if (j->c.deadline && e->t >= j->begin_at + j->c.deadline) ft_job_stop(j, FT_STOP_DEADLINE, j->c.grace, e->t, out);
        else ft_job_check_hang(j, e->t, out);
    }
    if (j->state == FT_JOB_STOPPING && !j->killed && e->t >= j->kill_at) kill_now(j, e->t, out);
    if (j->state == FT_JOB_STOPPING && j->killed && e->t >= j->killed_at + FT_JOB_KILL_LIMIT) {
        for (int n = 0; n < j->c.n_nodes; n++) { /* an agent that does not answer to KILL: its lease ends it */
            if (stands(&j->nodes[n])) j->nodes[n].state = FT_NODE_DARK;
        }
        check_stopped(j, e->t, out);
    }
    if (j->state == FT_JOB_STOPPING) { /* a lost node that cannot be reached again: its lease ends what is there */
        for (int n = 0; n < j->c.n_nodes; n++)
            if (e->t >= j->nodes[n].lost_at + j->c.sweep_limit) set_sweeping(j, &j->nodes[n], false);
        check_stopped(j, e->t, out);
    }
    if (j->state == FT_JOB_RESTARTING && j->c.deadline && e->t >= j->begin_at + j->c.deadline) {
        refuse(j, FT_STOP_DEADLINE, 124, e->t, out);
        return;
    }
    if (j->state == FT_JOB_RESTARTING && e->t >= j->phase_limit) ft_job_begin_again(j, e->t, out);
}

static int64_t sooner(int64_t a, int64_t b) { return a < b ? a : b; }

static void set_tick(struct ft_job *j)
{
    int64_t at = INT64_MAX;
    switch (j->state) {
    case FT_JOB_REACHING:
    case FT_JOB_CHECKING: at = j->phase_limit; break;
    case FT_JOB_RESTARTING:
        at = j->phase_limit;
        if (j->c.deadline) at = sooner(at, j->begin_at + j->c.deadline);
        break;
    case FT_JOB_RUNNING:
        if (j->c.deadline) at = j->begin_at + j->c.deadline;
        at = sooner(at, ft_job_hang_due(j));
        break;
    case FT_JOB_STOPPING:
        if (!j->killed) at = j->kill_at;
        else if (ft_job_any_node(j, stands)) at = j->killed_at + FT_JOB_KILL_LIMIT;
        for (int n = 0; n < j->c.n_nodes && j->n_sweeping; n++)
            if (j->nodes[n].sweeping) at = sooner(at, j->nodes[n].lost_at + j->c.sweep_limit);
        break;
    case FT_JOB_OFF:
    case FT_JOB_READY:
    case FT_JOB_DONE: break;
    }
    j->tick_at = at;
}

/* Events of a node that was given up may still be on the way. */
static bool is_stale(const struct ft_job *j, const struct ft_job_event *e)
{
    int node = -1;
    switch (e->kind) {
    case FT_EV_STARTED:
    case FT_EV_EXEC_FAILED:
    case FT_EV_PROGRESS:
    case FT_EV_EXIT:
    case FT_EV_RANK_STATE: node = j->ranks[e->rank].node; break;
    case FT_EV_NODE_READY:
    case FT_EV_STOPPED:
    case FT_EV_GONE:
    case FT_EV_STACKS:
    case FT_EV_SILENT:
    case FT_EV_HEARD: node = e->node; break;
    case FT_EV_START:
    case FT_EV_SEATED:
    case FT_EV_NO_SEATS:
    case FT_EV_NODE_UP:
    case FT_EV_NODE_FAILED:
    case FT_EV_ADDRESS:
    case FT_EV_NO_ADDRESS:
    case FT_EV_LOST:
    case FT_EV_SWEPT:
    case FT_EV_SIGNAL:
    case FT_EV_STOP_REQUEST:
    case FT_EV_TICK: break;
    }
    return node >= 0 && !is_live(&j->nodes[node]);
}

void ft_job_step(struct ft_job *j, const struct ft_job_event *e, struct ft_job_actions *out)
{
    if (j->state == FT_JOB_DONE || is_stale(j, e)) return;
    switch (e->kind) {
    case FT_EV_START:
        j->begin_at = e->t;
        begin_attempt(j, e->t, out);
        break;
    case FT_EV_NODE_UP: on_node_up(j, e, out); break;
    case FT_EV_SEATED: on_seated(j, e, out); break;
    case FT_EV_NO_SEATS: on_no_seats(j, e, out); break;
    case FT_EV_NODE_FAILED: on_node_failed(j, e, out); break;
    case FT_EV_ADDRESS:
        j->phase_limit = e->t + j->c.ready_timeout;
        do_kind(out, FT_DO_PREPARE);
        break;
    case FT_EV_NO_ADDRESS: refuse(j, FT_STOP_CONFIG, refused_status(j, 2), e->t, out); break;
    case FT_EV_NODE_READY: on_node_ready(j, e, out); break;
    case FT_EV_STARTED:
        j->ranks[e->rank].state = FT_RANK_RUNNING;
        j->ranks[e->rank].started_at = e->t;
        break;
    case FT_EV_EXEC_FAILED:
    case FT_EV_EXIT: rank_ended(j, e, out); break;
    case FT_EV_PROGRESS: ft_job_progress(j, e, out); break;
    case FT_EV_STOPPED: j->nodes[e->node].stopped = true; break;
    case FT_EV_GONE:
        j->nodes[e->node].state = FT_NODE_EMPTY;
        check_stopped(j, e->t, out);
        break;
    case FT_EV_SILENT: j->nodes[e->node].silent = true; break;
    case FT_EV_HEARD: j->nodes[e->node].silent = false; break;
    case FT_EV_LOST: on_lost(j, e, out); break;
    case FT_EV_SWEPT:
        set_sweeping(j, &j->nodes[e->node], false);
        check_stopped(j, e->t, out);
        break;
    case FT_EV_SIGNAL: on_signal(j, e, out); break;
    case FT_EV_STOP_REQUEST: on_request(j, e, out); break;
    case FT_EV_RANK_STATE: ft_job_rank_state(j, e, out); break;
    case FT_EV_STACKS: ft_job_stacks(j, e, out); break;
    case FT_EV_TICK: on_tick(j, e, out); break;
    }
    set_tick(j);
}
