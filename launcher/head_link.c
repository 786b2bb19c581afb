/* Streams between head and agents: frames to events, heartbeats, clocks, credit. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "launcher/head.h"
#include "launcher/node_faults.h"
#include "launcher/proc.h"

enum { MISSED_SILENT = 2, MISSED_LOST = 4, LEASE_BEATS = 5, KEPT_ROOM = 4096 };
/* A clock is known as well as its quickest answer was, and a rank may fail soon: the first answers are asked for in quick succession. */
#define FIRST_BEATS (100 * FT_MS)
enum { YOUNG_CLOCK = 8 };

static void lose(struct ft_head *h, int node, const char *phase, const char *reason, int status);

void ft_head_flush(struct ft_head *h, int node)
{
    struct ft_head_node *n = &h->nodes[node];
    if (!n->open || !n->wire.out.n) return;
    size_t k = h->ops->write(h->transport, node, n->wire.out.data, n->wire.out.n);
    ft_buf_drop(&n->wire.out, k);
    if (!n->wire.out.n && n->wire.out.cap > KEPT_ROOM) ft_buf_fini(&n->wire.out); /* a job was in it */
}

void ft_head_send(struct ft_head *h, int node, const struct ft_msg *m)
{
    if (!h->nodes[node].open) return;
    ft_wire_send(&h->nodes[node].wire, m);
    ft_head_flush(h, node);
}

void ft_head_send_all(struct ft_head *h, const struct ft_msg *m)
{
    for (int n = 0; n < h->n_nodes; n++)
        if (h->nodes[n].greeted && !h->nodes[n].sweeping) ft_head_send(h, n, m);
}

void ft_head_reach(struct ft_head *h, int node, bool sweep)
{
    struct ft_head_node *n = &h->nodes[node];
    ft_wire_fini(&n->wire);
    ft_wire_init(&n->wire, FT_WIRE_HEAD);
    n->open = true;
    n->greeted = n->silent = n->up = false;
    n->sweeping = sweep;
    n->n_clock = 0;
    ft_head_drop_facts(n);
    free(n->fail_reason);
    n->fail_reason = NULL;
    n->reached_at = n->heard_at = ft_head_now();
    h->ops->reach(h->transport, node);
    ft_head_flush(h, node);
}

/* ---- clocks and beats ---- */

static void ping(struct ft_head *h, int node)
{
    struct ft_msg m = ft_msg_make(FT_MSG_PING, FT_WIRE_NODE);
    h->nodes[node].pinged_at = ft_head_now();
    ft_msg_u(&m, 0, (uint64_t)h->nodes[node].pinged_at);
    ft_head_send(h, node, &m);
}

static void on_pong(struct ft_head_node *n, const struct ft_msg *m)
{
    int64_t t1 = ft_msg_i64(m, 0), t2 = ft_msg_i64(m, 1), t3 = ft_msg_i64(m, 2), t4 = ft_head_now();
    n->clock[n->n_clock++ % FT_CLOCK_SAMPLES] = (struct ft_clock_sample){((t2 - t1) + (t3 - t4)) / 2, (t4 - t1) - (t3 - t2)};
}

int64_t ft_head_time(const struct ft_head *h, int node, int64_t t_node, int64_t *error)
{
    const struct ft_head_node *n = &h->nodes[node];
    int have = n->n_clock < FT_CLOCK_SAMPLES ? n->n_clock : FT_CLOCK_SAMPLES;
    const struct ft_clock_sample *best = NULL;
    for (int i = 0; i < have; i++)
        if (!best || n->clock[i].rtt < best->rtt) best = &n->clock[i];
    *error = best ? best->rtt / 2 : FT_SEC;
    return best ? t_node - best->offset : ft_head_now();
}

/* While the head itself stood still (SIGSTOP, a machine that was paused) nobody was silent: what they said waits to be read. */
static int64_t own_stall(const struct ft_head *h, int64_t now)
{
    const int64_t late = h->beat_at ? now - h->beat_at : 0;
    return late > h->beat_ns / 2 ? late : 0;
}

int64_t ft_head_beat(struct ft_head *h)
{
    int64_t now = ft_head_now();
    const int64_t stall = own_stall(h, now), soon = h->beat_ns < FIRST_BEATS ? h->beat_ns : FIRST_BEATS;
    const bool running = h->job.state == FT_JOB_RUNNING || h->job.state == FT_JOB_STOPPING;
    h->beat_at = now + (h->job.state < FT_JOB_RUNNING ? soon : h->beat_ns);
    for (int i = 0; i < h->n_nodes; i++) {
        struct ft_head_node *n = &h->nodes[i];
        if (!n->open || !n->greeted) continue;
        const bool young = running && n->n_clock < YOUNG_CLOCK;
        n->heard_at += stall;
        if (young) h->beat_at = now + soon;
        if (young || now - n->pinged_at >= h->beat_ns - soon / 2) ping(h, i);
        if (n->sweeping) continue;
        int64_t age = now - n->heard_at;
        if (!n->silent && age > MISSED_SILENT * h->beat_ns) {
            n->silent = true;
            ft_head_event(h, (struct ft_job_event){.kind = FT_EV_SILENT, .node = i});
        }
        if (age > MISSED_LOST * h->beat_ns) lose(h, i, "stream", "silent", 125);
    }
    return h->beat_at;
}

static void heard(struct ft_head *h, struct ft_head_node *n)
{
    int64_t age = ft_head_now() - n->heard_at;
    n->heard_at = ft_head_now();
    if (!n->silent) return;
    n->silent = false;
    ft_head_say(h, FT_LOG_WARN, "node %s is heard again after %.1f s", n->name, (double)age / 1e9);
    struct ft_jw *w = ft_head_record(h, "node_heard");
    ft_jw_kstr(w, "node", n->name);
    ft_jw_kint(w, "last_heard_ms", age / FT_MS);
    ft_head_recorded(h);
    ft_head_event(h, (struct ft_job_event){.kind = FT_EV_HEARD, .node = n->index});
}

/* ---- credit ---- */

static struct ft_msg credit_of(uint64_t bytes)
{
    struct ft_msg m = ft_msg_make(FT_MSG_CREDIT, FT_WIRE_NODE);
    ft_msg_u(&m, 0, bytes);
    return m;
}

static void give_back(struct ft_head *h, struct ft_head_node *n)
{
    if (n->owed < h->credit / 4) return; /* it still has three quarters of its window */
    if (!h->mux.drop && ft_console_waiting(&h->console) >= FT_CONSOLE_ROOM) return;
    const struct ft_msg m = credit_of(n->owed);
    ft_head_send(h, n->index, &m);
    n->owed = 0;
}

void ft_head_credit(struct ft_head *h)
{
    for (int i = 0; i < h->n_nodes; i++) give_back(h, &h->nodes[i]);
}

/* ---- frames ---- */

static void on_hello(struct ft_head *h, struct ft_head_node *n, const struct ft_msg *m)
{
    ft_msg_copy_text(m, 2, n->build, sizeof n->build);
    ft_msg_copy_text(m, 3, n->hostname, sizeof n->hostname);
    ft_msg_copy_text(m, 4, n->boot, sizeof n->boot);
    n->netns = m->f[5].u;
    n->greeted = true;
    n->up_at = ft_head_now();
    struct ft_msg w = ft_msg_make(FT_MSG_WELCOME, FT_WIRE_NODE);
    ft_msg_text(&w, 0, n->sweeping ? "" : h->q->dir.id);
    ft_msg_u(&w, 1, (uint64_t)n->index);
    ft_msg_text(&w, 2, n->name);
    ft_msg_u(&w, 3, (uint64_t)(h->beat_ns / FT_MS * LEASE_BEATS));
    ft_msg_u(&w, 4, (uint64_t)(h->beat_ns / FT_MS));
    ft_wire_send(&n->wire, &w); /* it goes with what follows: each packet wakes a server and an agent */
    if (n->sweeping) {
        struct ft_msg s = ft_msg_make(FT_MSG_SWEEP, FT_WIRE_NODE);
        ft_msg_text(&s, 0, h->q->dir.id);
        ft_head_send(h, n->index, &s);
        return;
    }
    const struct ft_msg credit = credit_of(h->credit);
    ft_wire_send(&n->wire, &credit);
    ping(h, n->index); /* its answer is the first sample of the node's clock: then the node is up */
}

static void node_up(struct ft_head *h, struct ft_head_node *n)
{
    int64_t error, now = ft_head_now(), t = ft_head_time(h, n->index, now, &error);
    struct ft_jw *j = ft_head_record(h, "node_up");
    n->up = true;
    ft_jw_kstr(j, "node", n->name);
    ft_jw_key(j, "ms");
    ft_jw_object(j);
    n->times = (struct ft_transport_times){.v = {{"agent", n->up_at - n->reached_at}}, .n = 1};
    if (h->ops->times) h->ops->times(h->transport, n->index, &n->times);
    for (size_t i = 0; i < n->times.n; i++) ft_jw_kreal(j, n->times.v[i].name, (double)n->times.v[i].ns / 1e6);
    ft_jw_end(j);
    ft_jw_kreal(j, "clock_ms", (double)(now - t) / 1e6);
    ft_jw_kreal(j, "error_ms", (double)error / 1e6);
    ft_head_recorded(h);
    ft_head_event(h, (struct ft_job_event){.kind = FT_EV_NODE_UP, .node = n->index});
}

void ft_head_not_ready(struct ft_head *h, int node, const char *text)
{
    const size_t used = strlen(h->refused);
    snprintf(h->refused + used, sizeof h->refused - used, "%s%s: %s", used ? "\n" : "", h->nodes[node].name, text);
    struct ft_jw *w = ft_head_record(h, "node_failed");
    ft_jw_kstr(w, "node", h->nodes[node].name);
    ft_jw_kstr(w, "phase", "ready");
    ft_jw_kstr(w, "reason", text);
    ft_jw_kbool(w, "final", true);
    ft_head_recorded(h);
}

/* fttrain has looked at its sections, the model, the data and the memory on this node. */
static void on_checked(struct ft_head *h, int node, const struct ft_head_answer *a)
{
    struct ft_faults faults = {.arena = h->arena};
    struct ft_buf text = {0};
    ft_head_take_check(h, node, a, &faults);
    for (size_t i = 0; i < faults.n; i++) {
        const struct ft_fault *f = &faults.v[i];
        if (f->severity != FT_SEV_ERROR) continue;
        ft_buf_addf(&text, "%s%s", text.n ? "\n" : "", f->text);
        if (f->at.file) ft_buf_addf(&text, "\n  where: %s", ft_source_text(f->at, h->arena));
        if (f->fix) ft_buf_addf(&text, "\n  fix:   %s", f->fix);
    }
    h->nodes[node].ready_at = ft_head_now();
    if (faults.n_errors) ft_head_not_ready(h, node, text.data);
    ft_buf_fini(&text);
    if (h->job.state == FT_JOB_CHECKING)
        ft_head_event(h, (struct ft_job_event){.kind = FT_EV_NODE_READY, .node = node, .status = faults.n_errors ? 2 : 0});
}

static void on_node_ready(struct ft_head *h, struct ft_head_node *n, const struct ft_msg *m)
{
    char text[1024];
    ft_msg_copy_text(m, 1, text, sizeof text);
    int code = (int)m->f[0].u;
    if ((uint32_t)m->f[2].u != h->job_number) return; /* of a JOB that was given up */
    n->ready_at = ft_head_now();
    if (h->check) {
        ft_head_event(h, (struct ft_job_event){.kind = FT_EV_NODE_READY, .node = n->index, .status = code, .text = text});
        return;
    }
    if (code) ft_head_not_ready(h, n->index, text);
    if (!code && n->asked) ft_head_ask_check(h, n->index, on_checked);
    else ft_head_event(h, (struct ft_job_event){.kind = FT_EV_NODE_READY, .node = n->index, .status = code});
}

static void on_started(struct ft_head *h, struct ft_head_node *n, int rank, const struct ft_msg *m)
{
    h->ranks[rank].pid = (int)m->f[0].u;
    n->started_ns = ft_head_now() - h->go_at;
    struct ft_jw *w = ft_head_record(h, "rank_started");
    ft_jw_kint(w, "rank", rank);
    ft_jw_kstr(w, "node", n->name);
    ft_jw_kint(w, "pid", (int64_t)m->f[0].u);
    ft_jw_kint(w, "log_offset", ft_mux_offset(&h->mux, rank));
    ft_head_recorded(h);
    ft_head_event(h, (struct ft_job_event){.kind = FT_EV_STARTED, .rank = rank});
}

static char *copy_bytes(const struct ft_wire_value *v)
{
    if (!v->n) return NULL;
    char *s = ft_xcalloc(v->n + 1, 1);
    memcpy(s, v->p, v->n);
    for (size_t i = 0; i < v->n; i++)
        if (!s[i]) s[i] = '?';
    return s;
}

static void on_exit_frame(struct ft_head *h, struct ft_head_node *n, int rank, const struct ft_msg *m)
{
    struct ft_head_rank *r = &h->ranks[rank];
    unsigned marks = (unsigned)m->f[2].u;
    free(r->last);
    free(r->evidence);
    r->last = copy_bytes(&m->f[6]);
    r->evidence = copy_bytes(&m->f[5]);
    r->core = marks & FT_EXIT_CORE;
    r->undrained = marks & FT_EXIT_UNDRAINED;
    int64_t error, t = ft_head_time(h, n->index, ft_msg_i64(m, 3), &error);
    ft_mux_end(&h->mux, rank);
    ft_head_input_rank_over(h, rank);
    if (m->f[1].u == SIGKILL && marks & FT_EXIT_AFTER_STOP) ft_head_record_killed(h); /* an agent whose grace was over first */
    ft_head_record_exit(h, rank, m, t);
    ft_head_event(h, (struct ft_job_event){.kind = FT_EV_EXIT,
                                           .rank = rank,
                                           .status = (int)m->f[0].u,
                                           .signal = (int)m->f[1].u,
                                           .after_stop = marks & FT_EXIT_AFTER_STOP,
                                           .oom = marks & FT_EXIT_OOM,
                                           .t_node = t,
                                           .error_ns = error,
                                           .order = m->f[4].u});
}

static void on_execfail(struct ft_head *h, struct ft_head_node *n, int rank, const struct ft_msg *m)
{
    struct ft_head_rank *r = &h->ranks[rank];
    int status = ft_step_status((enum ft_step)m->f[0].u, (int)m->f[1].u);
    ft_msg_copy_text(m, 2, r->exec_error, sizeof r->exec_error);
    struct ft_jw *w = ft_head_record(h, "rank_exit");
    ft_jw_kint(w, "rank", rank);
    ft_jw_kstr(w, "node", n->name);
    ft_jw_kint(w, "status", status);
    ft_jw_kstr(w, "reason", r->exec_error);
    ft_head_recorded(h);
    ft_head_event(h, (struct ft_job_event){.kind = FT_EV_EXEC_FAILED,
                                           .rank = rank,
                                           .status = status,
                                           .t_node = ft_head_now(),
                                           .error_ns = FT_SEC,
                                           .text = r->exec_error});
}

static void on_out(struct ft_head *h, struct ft_head_node *n, int rank, const struct ft_msg *m)
{
    unsigned stream = (unsigned)m->f[0].u;
    if (stream != 1 && stream != 2) return;
    ft_head_clear_progress(h);
    ft_mux_bytes(&h->mux, rank, (int)stream, m->f[1].p, m->f[1].n, ft_head_now());
    n->owed += m->f[1].n;
    if (h->mux.file_failed && !h->file_error_said) {
        h->file_error_said = true;
        ft_head_say(h, FT_LOG_ERROR, "cannot write '%s': %s; the job goes on, its output files are incomplete", h->mux.file_name,
                    strerror(h->mux.file_errno));
    }
    if (h->console.out[0].closed && !h->epipe_said) {
        h->epipe_said = true;
        if (!h->console.shared)
            ft_head_say(h, FT_LOG_WARN, "stdout: %s; the job goes on without it, output is in %s/ranks",
                        strerror(h->console.out[0].last_errno), h->q->dir.path);
    }
    ft_head_set_timers(h);
}

static void on_progress(struct ft_head *h, int rank, const struct ft_msg *m)
{
    ft_head_event(h,
                  (struct ft_job_event){.kind = FT_EV_PROGRESS, .rank = rank, .step = ft_msg_i64(m, 0), .saved = ft_msg_i64(m, 1)});
}

static void on_left(struct ft_head *h, struct ft_head_node *n, const struct ft_msg *m)
{
    char run[128], command[256];
    ft_msg_copy_text(m, 2, run, sizeof run);
    ft_msg_copy_text(m, 3, command, sizeof command);
    bool kept = m->f[1].u == FT_LEFT_KEPT;
    ft_head_say(h, FT_LOG_WARN,
                kept ? "left running on %s (children = keep): pid %d, %s" : "ended a leftover of a dead run on %s: pid %d, %s",
                n->name, (int)m->f[0].u, command);
    h->n_kept += kept;
    struct ft_jw *w = ft_head_record(h, "leftover");
    ft_jw_kstr(w, "node", n->name);
    ft_jw_kint(w, "pid", (int64_t)m->f[0].u);
    ft_jw_kstr(w, "command", command);
    ft_jw_kstr(w, "run", run);
    ft_jw_kbool(w, "kept", kept);
    ft_head_recorded(h);
}

static void on_gone(struct ft_head *h, struct ft_head_node *n, const struct ft_msg *m)
{
    h->n_killed += (unsigned)m->f[0].u;
    struct ft_jw *w = ft_head_record(h, "gone");
    ft_jw_kstr(w, "node", n->name);
    ft_jw_kint(w, "n", (int64_t)m->f[0].u);
    ft_head_recorded(h);
    if (!n->sweeping) {
        if (h->job.state == FT_JOB_STOPPING) n->gone_ns = ft_head_now() - h->job.stop_at;
        ft_head_event(h, (struct ft_job_event){.kind = FT_EV_GONE, .node = n->index});
        return;
    }
    struct ft_msg bye = ft_msg_make(FT_MSG_BYE, FT_WIRE_NODE);
    ft_head_send(h, n->index, &bye);
    n->open = n->greeted = n->up = false;
    h->ops->shut(h->transport, n->index);
    ft_head_event(h, (struct ft_job_event){.kind = FT_EV_SWEPT, .node = n->index});
}

static void on_note(struct ft_head *h, struct ft_head_node *n, const struct ft_msg *m)
{
    char text[1024];
    ft_msg_copy_text(m, 1, text, sizeof text);
    enum ft_level level = m->f[0].u <= FT_LOG_WARN ? FT_LOG_WARN : FT_LOG_DEBUG;
    ft_head_say(h, level, "%s: %s", n->name, text);
}

/* The rank of a slot; -1: the frame names none of this node's. */
static int rank_of(const struct ft_head *h, const struct ft_head_node *n, const struct ft_msg *m)
{
    const struct ft_plan_node *p = ft_head_seat(h, n->index);
    return p && m->slot < p->n_ranks ? p->first_rank + m->slot : -1;
}

static void on_rank_frame(struct ft_head *h, struct ft_head_node *n, const struct ft_msg *m)
{
    int rank = rank_of(h, n, m);
    if (rank < 0) {
        lose(h, n->index, "stream", "a frame names a slot that the node does not have", 125);
        return;
    }
    enum ft_rank_state s = h->job.ranks[rank].state;
    bool alive = s == FT_RANK_STARTING || s == FT_RANK_RUNNING;
    switch (m->type) {
    case FT_MSG_STARTED:
        if (s == FT_RANK_STARTING) on_started(h, n, rank, m);
        break;
    case FT_MSG_EXECFAIL:
        if (alive) on_execfail(h, n, rank, m);
        break;
    case FT_MSG_EXIT:
        if (alive) on_exit_frame(h, n, rank, m);
        break;
    case FT_MSG_OUT: on_out(h, n, rank, m); break;
    case FT_MSG_PROGRESS: on_progress(h, rank, m); break;
    case FT_MSG_STACK: ft_head_stack(h, rank, m); break;
    case FT_MSG_TAKEN: ft_head_input_taken(h, rank, m->f[0].u); break;
    default: break;
    }
}

static void on_frame(struct ft_head *h, struct ft_head_node *n, const struct ft_msg *m)
{
    if (!n->greeted && m->type != FT_MSG_HELLO) {
        lose(h, n->index, "agent", "it did not begin with HELLO", 2);
        return;
    }
    if (n->sweeping && m->type != FT_MSG_HELLO && m->type != FT_MSG_GONE && m->type != FT_MSG_PONG && m->type != FT_MSG_NOTE)
        return;
    switch (m->type) {
    case FT_MSG_HELLO:
        if (!n->greeted) on_hello(h, n, m);
        break;
    case FT_MSG_RESULT:
        if (!ft_head_ask_result(h, n->index, m)) ft_head_meet_result(h, n->index, m);
        break;
    case FT_MSG_READY:
        if (h->job.state == FT_JOB_CHECKING) on_node_ready(h, n, m);
        break;
    case FT_MSG_STOPPED: ft_head_event(h, (struct ft_job_event){.kind = FT_EV_STOPPED, .node = n->index}); break;
    case FT_MSG_GONE: on_gone(h, n, m); break;
    case FT_MSG_LEFT: on_left(h, n, m); break;
    case FT_MSG_NOTE: on_note(h, n, m); break;
    case FT_MSG_PONG:
        on_pong(n, m);
        if (!n->up && !n->sweeping) node_up(h, n);
        break;
    case FT_MSG_STACK:
        if (m->slot == FT_WIRE_NODE) {
            ft_head_event(h, (struct ft_job_event){.kind = FT_EV_STACKS, .node = n->index});
            break;
        }
        on_rank_frame(h, n, m);
        break;
    case FT_MSG_FACT: ft_head_take_fact(n, m); break;
    case FT_MSG_PROOF: break; /* TCP streams */
    default: on_rank_frame(h, n, m); break;
    }
}

/* ---- the transport's side ---- */

/* For the next run's plan. A jump host that is lost says nothing about the nodes behind it. */
static void remember(struct ft_head *h, const struct ft_head_node *n, bool loss, const char *phase, const char *reason)
{
    static const char *const starts[] = {"tcp", "banner", "kex", "channel", "agent", "stream"};
    bool is_start = false;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) is_start |= !strcmp(phase, starts[i]);
    if (h->check || h->ops->same_machine || ft_str_starts(reason, "jump host") || (!loss && !is_start)) return;
    const struct ft_node_fault f = {.node = n->name, .boot = n->boot, .kind = loss ? "loss" : "start", .run = h->q->dir.id};
    ft_node_faults_add(h->config, &f);
}

static void lose(struct ft_head *h, int node, const char *phase, const char *reason, int status)
{
    struct ft_head_node *n = &h->nodes[node];
    if (!n->open) return;
    bool sweeping = n->sweeping, up = n->up;
    int64_t age = ft_head_now() - n->heard_at;
    h->ops->shut(h->transport, node);
    n->open = n->greeted = n->sweeping = n->up = false;
    if (h->finished) return;
    if (sweeping) {
        ft_head_event(h, (struct ft_job_event){.kind = FT_EV_SWEPT, .node = node});
        return;
    }
    struct ft_jw *w = ft_head_record(h, up ? "node_lost" : "node_failed");
    ft_jw_kstr(w, "node", n->name);
    if (up) ft_jw_kint(w, "last_heard_ms", age / FT_MS);
    ft_jw_kstr(w, "phase", phase);
    ft_jw_kstr(w, "reason", reason);
    if (!up) ft_jw_kbool(w, "final", true);
    if (up) {
        ft_jw_key(w, "ranks");
        ft_jw_array(w);
        for (int r = 0; r < h->job.c.n_ranks; r++)
            if (h->rank_node[r] == node) ft_jw_int(w, r);
        ft_jw_end(w);
    }
    ft_head_recorded(h);
    if (up) {
        if (n->seat >= 0 && h->n_lost++ == 0) snprintf(h->refused, sizeof h->refused, "%s: %s", phase, reason);
    } else {
        free(n->fail_reason);
        n->fail_phase = phase;
        n->fail_reason = ft_xstrdup(reason);
    }
    remember(h, n, up, phase, reason);
    if (n->seat < 0 && !h->check)
        ft_head_say(h, FT_LOG_WARN, "spare %s %s: %s: %s", n->name, up ? "was lost" : "is not there", phase, reason);
    if (up) ft_head_event(h, (struct ft_job_event){.kind = FT_EV_LOST, .node = node, .text = reason});
    else ft_head_event(h, (struct ft_job_event){.kind = FT_EV_NODE_FAILED, .node = node, .status = status, .text = reason});
    ft_head_ask_lost(h, node);
}

static void on_data(void *self, int node, const void *p, size_t n)
{
    struct ft_head *h = self;
    struct ft_head_node *k = &h->nodes[node];
    if (!k->open) return;
    heard(h, k);
    ft_wire_feed(&k->wire, p, n);
    struct ft_msg m;
    int r = 0;
    while (k->open && (r = ft_wire_next(&k->wire, &m)) > 0) {
        if (h->q->verbose >= 2 && m.type != FT_MSG_OUT) {
            struct ft_buf text = {0};
            ft_msg_print(&m, &text);
            ft_head_say(h, FT_LOG_DEBUG, "%s: %s", k->name, text.data);
            ft_buf_fini(&text);
        }
        on_frame(h, k, &m);
    }
    if (k->open && r < 0) {
        char why[300];
        snprintf(why, sizeof why, "the stream is broken: %.255s", k->wire.why);
        lose(h, node, "stream", why, 2);
    }
    give_back(h, k); /* what others are owed waits for the console, which says when it has room */
}

static void on_room(void *self, int node) { ft_head_flush(self, node); }

static void on_closed(void *self, int node, const struct ft_link_error *why)
{
    struct ft_head *h = self;
    lose(h, node, why->phase, why->reason, why->status);
}

static void on_said(void *self, int node, const char *text, size_t n)
{
    struct ft_head *h = self;
    ft_log(FT_LOG_DEBUG, "agent", "%s: agent: %.*s", h->nodes[node].name, (int)(n && text[n - 1] == '\n' ? n - 1 : n), text);
}

static void on_transport_note(void *self, int node, const char *text)
{
    struct ft_head *h = self;
    if (node >= 0) ft_head_say(h, FT_LOG_WARN, "%s: %s", h->nodes[node].name, text);
    else ft_head_say(h, FT_LOG_WARN, "%s", text);
}

struct ft_transport_user ft_head_user(struct ft_head *h)
{
    return (struct ft_transport_user){h, on_data, on_room, on_closed, on_said, on_transport_note};
}
