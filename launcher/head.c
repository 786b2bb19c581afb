#include "launcher/head.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"

#define GOODBYE_LIMIT  (3 * FT_SEC)   /* BYE to the end of the agents */
#define ASK_LIMIT      (120 * FT_SEC) /* fttrain check on a node */
#define SWEEP_LIMIT    (10 * FT_SEC)
#define ORPHANS        (4 * FT_SEC) /* an agent without a head: TERM, KILL, gone */
#define CONSOLE_STALL  (5 * FT_SEC) /* a reader that takes nothing while the run is being ended */
#define CONSOLE_KILLED FT_SEC       /* the same after KILL */
#define CREDIT_NODE    (1024 * 1024)
#define CREDIT_ALL     (64 * 1024 * 1024)
#define CREDIT_LEAST   (64 * 1024)
enum { OWN_FILES = 64, LEAST_OPEN = 16 }; /* open files of the head itself; of ranks, the others are opened when they write */

int64_t ft_head_now(void) { return ft_clock_now(ft_clock_real()); }

/* ---- the machine ---- */

void ft_head_event(struct ft_head *h, struct ft_job_event e)
{
    if (h->finished) return;
    e.t = ft_head_now();
    if (h->check) {
        ft_head_check_event(h, &e);
        return;
    }
    ft_job_step(&h->job, &e, &h->actions);
    if (h->acting) return;
    h->acting = true;
    for (size_t i = 0; i < h->actions.n; i++) { /* carrying one out may append more */
        struct ft_job_action a = h->actions.v[i];
        ft_head_act(h, &a);
    }
    h->actions.n = 0;
    h->acting = false;
    ft_head_set_timers(h);
}

static void on_tick(void *self, int64_t now)
{
    (void)now;
    ft_head_event(self, (struct ft_job_event){.kind = FT_EV_TICK});
}

static void on_mux(void *self, int64_t now)
{
    struct ft_head *h = self;
    ft_mux_tick(&h->mux, now);
    ft_head_set_timers(h);
}

void ft_head_set_timers(struct ft_head *h)
{
    if (h->job.tick_at == INT64_MAX) ft_timer_cancel(&h->tick);
    else ft_timer_set(&h->loop, &h->tick, h->job.tick_at, on_tick, h);
    if (h->mux.tick_at == INT64_MAX) ft_timer_cancel(&h->mux_timer);
    else ft_timer_set(&h->loop, &h->mux_timer, h->mux.tick_at, on_mux, h);
}

static void on_beat(void *self, int64_t now)
{
    struct ft_head *h = self;
    (void)now;
    ft_timer_set(&h->loop, &h->beat, ft_head_beat(h), on_beat, h);
}

static void on_progress_time(void *self, int64_t now)
{
    struct ft_head *h = self;
    ft_head_progress_line(h);
    ft_timer_set(&h->loop, &h->progress_timer, now + 200 * FT_MS, on_progress_time, h);
}

/* While a run is being ended a reader that takes nothing must not hold it up: the files have everything. */
static void on_console_time(void *self, int64_t now)
{
    struct ft_head *h = self;
    int64_t limit = h->job.killed ? CONSOLE_KILLED : CONSOLE_STALL;
    bool ending = h->job.state == FT_JOB_STOPPING && h->job.stop != FT_STOP_DONE;
    if (ending && ft_console_waiting(&h->console) && now - h->console.moved_at > limit) {
        ft_console_drop(&h->console);
        ft_head_credit(h);
    }
    ft_timer_set(&h->loop, &h->console_timer, now + 250 * FT_MS, on_console_time, h);
}

static void on_console_room(void *self) { ft_head_credit(self); }

/* ---- signals ---- */

static void suspend(struct ft_head *h)
{
    for (int n = 0; n < h->job.c.n_nodes; n++) ft_head_flush(h, n);
    kill(getpid(), SIGSTOP);
}

static void on_signal(void *self, short revents)
{
    (void)revents;
    struct ft_head *h = self;
    struct signalfd_siginfo info;
    while (read(h->signal_fd, &info, sizeof info) == sizeof info) {
        int number = (int)info.ssi_signo;
        struct ft_jw *w = ft_head_record(h, "signal");
        ft_jw_kint(w, "number", number);
        ft_jw_key(w, "from");
        ft_jw_object(w);
        ft_jw_kint(w, "pid", (int64_t)info.ssi_pid);
        ft_jw_end(w);
        ft_head_recorded(h);
        if (number == SIGQUIT) {
            ft_head_dump(h);
            continue;
        }
        ft_head_event(h, (struct ft_job_event){.kind = FT_EV_SIGNAL, .number = number});
        if (number == SIGTSTP && !h->finished) suspend(h);
    }
}

/* HUP that was ignored at the start (nohup) stays ignored; TTIN and TTOU never stop us. */
static enum ft_code take_signals(struct ft_head *h, struct ft_err *err)
{
    static const int taken[] = {SIGQUIT, SIGINT,  SIGTERM,   SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP,
                                SIGCONT, SIGALRM, SIGVTALRM, SIGPROF, SIGIO,   SIGPWR,   SIGURG};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) sigaddset(&set, taken[i]);
    for (int n = SIGRTMIN; n <= SIGRTMAX; n++) sigaddset(&set, n);
    struct sigaction hup;
    if (sigaction(SIGHUP, NULL, &hup) == 0 && hup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file at its limit is a write error, said once */
    signal(SIGTTIN, SIG_IGN);
    signal(SIGTTOU, SIG_IGN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    h->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    char why[200];
    if (h->signal_fd < 0) return ft_fail(err, FT_IO, "signalfd: %s", ft_errno_text(errno, why));
    const int e = ft_loop_open(&h->loop);
    if (e) return ft_fail(err, FT_IO, "epoll_create1: %s", ft_errno_text(e, why));
    ft_watch_add(&h->loop, &h->signals, h->signal_fd, POLLIN, on_signal, h);
    return FT_OK;
}

/* ---- the control socket ---- */

static void on_asked(void *self, const char *request, struct ft_buf *answer)
{
    struct ft_head *h = self;
    if (ft_str_starts(request, "stop")) {
        bool at_once = ft_str_eq(request, "stop now");
        ft_buf_adds(answer, "ok\n");
        ft_head_event(h, (struct ft_job_event){.kind = FT_EV_STOP_REQUEST, .number = at_once});
        return;
    }
    struct ft_jw w = ft_jw_begin(answer);
    ft_jw_object(&w);
    ft_jw_kstr(&w, "run", h->q->dir.id);
    ft_jw_kstr(&w, "state", ft_job_state_name(h->job.state));
    ft_jw_kint(&w, "ranks", h->job.c.n_ranks);
    ft_jw_kint(&w, "nodes", h->job.c.n_nodes);
    ft_jw_kint(&w, "attempt", h->job.attempt);
    int64_t step = INT64_MAX;
    for (int r = 0; r < h->job.c.n_ranks; r++)
        if (h->job.ranks[r].step < step) step = h->job.ranks[r].step;
    ft_jw_kint(&w, "step", step);
    ft_jw_kreal(&w, "seconds", (double)(ft_head_now() - h->start_at) / 1e9);
    ft_jw_kint(&w, "pid", getpid());
    ft_jw_kstr(&w, "folder", h->q->dir.path);
    ft_jw_end(&w);
    ft_buf_addc(answer, '\n');
}

void ft_head_open_ctl(struct ft_head *h)
{
    struct ft_err err;
    if (h->ctl.fd < 0 &&
        ft_ctl_open(&h->ctl, &h->loop, h->q->dir.id, on_asked, h, &err)) /* ps then reads files, stop is a signal */
        ft_head_say(h, FT_LOG_INFO, "no control socket: %s", err.text);
}

/* ---- start and end ---- */

static void make_secrets(struct ft_head *h)
{
    if (!ft_random(h->secret, sizeof h->secret)) FT_BUG("getrandom failed");
    unsigned char rank[32];
    ft_hmac_sha256(h->secret, sizeof h->secret, "rank", 4, rank);
    ft_hex(rank, sizeof rank, h->token);
}

static void make_job(struct ft_head *h)
{
    const struct ft_plan *p = h->plan;
    const struct ft_launch_fields *l = &h->config->launch;
    h->n_nodes = (int)(p->n_nodes + p->n_spares);
    h->nodes = ft_xcalloc((size_t)h->n_nodes, sizeof *h->nodes);
    for (int n = 0; n < h->n_nodes; n++) {
        const struct ft_plan_node *conf = n < (int)p->n_nodes ? &p->nodes[n] : &p->spares[n - (int)p->n_nodes];
        h->nodes[n] = (struct ft_head_node){.index = n, .name = conf->name, .conf = conf, .seat = -1};
    }
    ft_head_seat_first(h);
    const int64_t beat = l->heartbeat > 0 ? l->heartbeat : 2 * FT_SEC, sweep = 2 * beat + ORPHANS;
    uint64_t seed;
    memcpy(&seed, h->secret, sizeof seed);
    struct ft_job_config c = {.n_nodes = h->n_nodes,
                              .n_seats = (int)p->n_nodes,
                              .n_ranks = p->world,
                              .rank_node = h->rank_node,
                              .grace = l->grace,
                              .reach_timeout = h->config->ssh.timeout + FT_SEC, /* the transport's own deadline comes first */
                              .ready_timeout = h->config->ssh.timeout + FT_SEC + (p->is_fttrain ? ASK_LIMIT : 0),
                              .sweep_limit = sweep < SWEEP_LIMIT ? sweep : SWEEP_LIMIT,
                              .hang_timeout = l->hang_timeout,
                              .restarts = (int)l->restarts,
                              .restart_window = l->restart_window,
                              .deadline = l->deadline,
                              .first_attempt = h->q->attempt,
                              .end_rank0 = l->end == FT_END_RANK0,
                              .is_fttrain = p->is_fttrain,
                              .seed = seed};
    ft_job_init(&h->job, &c);
    h->ranks = ft_xcalloc((size_t)p->world, sizeof *h->ranks);
    h->credit = CREDIT_ALL / (unsigned)h->n_nodes < CREDIT_NODE ? CREDIT_ALL / (unsigned)h->n_nodes : CREDIT_NODE;
    if (h->credit < CREDIT_LEAST) h->credit = CREDIT_LEAST;
    h->beat_ns = beat;
}

static void make_output(struct ft_head *h)
{
    int output = h->config->launch.output;
    ft_console_open(&h->console, &h->loop, on_console_room, h);
    h->mux.console = &h->console;
    h->mux.show = output == FT_OUTPUT_BOTH || output == FT_OUTPUT_PREFIX;
    h->mux.drop = h->config->launch.slow_output == FT_SLOW_DROP;
    h->mux.folder = h->check || output == FT_OUTPUT_PREFIX ? NULL : ft_rundir_file(&h->q->dir, "ranks", h->arena);
    h->quiet = output == FT_OUTPUT_QUIET || h->q->verbose < 0;
    ft_mux_open(&h->mux, h->plan->world);
    for (int r = 0; r < h->plan->world; r++) h->mux.ranks[r].node = h->nodes[h->rank_node[r]].name;
    struct rlimit lim;
    if (getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < lim.rlim_max) {
        lim.rlim_cur = lim.rlim_max;
        setrlimit(RLIMIT_NOFILE, &lim);
    }
}

/* Every node takes some open files for as long as it is up; files of ranks get what is left, and share that. */
static enum ft_code divide_descriptors(struct ft_head *h, struct ft_err *err)
{
    struct rlimit lim;
    const size_t need = h->ops->descriptors(h->transport) + OWN_FILES + LEAST_OPEN;
    if (getrlimit(RLIMIT_NOFILE, &lim) < 0 || lim.rlim_cur == RLIM_INFINITY) return FT_OK;
    if (lim.rlim_cur < need) {
        ft_fail(err, FT_CONFIG, "%d node%s need %zu open files at the head, but it may have %llu (the hard limit)", h->n_nodes,
                h->n_nodes == 1 ? "" : "s", need, (unsigned long long)lim.rlim_cur);
        return ft_fix(err, "raise the hard limit of open files (ulimit -Hn, or LimitNOFILE= of a service), or name fewer nodes");
    }
    const size_t left = (size_t)lim.rlim_cur - need + LEAST_OPEN;
    h->mux.max_open = left < INT_MAX ? (int)left : INT_MAX;
    return FT_OK;
}

/* A node that sees this file in the run folder shares it. */
static enum ft_code write_nonce(struct ft_head *h, struct ft_err *err)
{
    unsigned char r[32];
    if (!ft_random(r, sizeof r)) FT_BUG("getrandom failed");
    ft_hex(r, sizeof r, h->folder_nonce);
    return ft_write_file(ft_rundir_file(&h->q->dir, ".head", h->arena), h->folder_nonce, strlen(h->folder_nonce), 0600, err);
}

static enum ft_code begin(struct ft_head *h, struct ft_err *err)
{
    enum ft_code c = FT_OK;
    if (!h->check) c = ft_events_open(&h->events, ft_rundir_file(&h->q->dir, "events.jsonl", h->arena), h->q->attempt, err);
    if (!c) c = take_signals(h, err);
    if (!c) c = ft_transport_find(h->plan->transport, &h->ops, err);
    const struct ft_plan_node **nodes = ft_arena_array(h->arena, (size_t)h->n_nodes, sizeof *nodes);
    for (int n = 0; n < h->n_nodes; n++) nodes[n] = h->nodes[n].conf;
    struct ft_transport_request q = {.config = h->config,
                                     .nodes = nodes,
                                     .n_nodes = (size_t)h->n_nodes,
                                     .loop = &h->loop,
                                     .user = ft_head_user(h),
                                     .explain = h->check && h->q->verbose > 0,
                                     .program_dir = h->q->program_dir};
    if (!c) c = h->ops->open(&q, &h->transport, err);
    if (!c) c = divide_descriptors(h, err);
    if (c || h->check) return c;
    if (!h->ops->same_machine) c = write_nonce(h, err);
    if (c) return c;
    if (!h->ops->same_machine) ft_head_open_ctl(h); /* else: once the agent knows the socket, which it removes when we are killed */
    return FT_OK;
}

/* BYE was sent: the agents end; a bounded wait, so that nothing of ours is left when we return. */
static void say_goodbye(struct ft_head *h)
{
    int64_t until = ft_head_now() + GOODBYE_LIMIT;
    while (h->ops->busy(h->transport) && ft_head_now() < until && ft_loop_once(&h->loop, until)) {}
}

/* The rest of the output. A run that ended well waits for its reader; one that is being ended does not for long. */
static void drain_console(struct ft_head *h)
{
    bool patient = h->job.stop == FT_STOP_DONE || h->job.stop == FT_STOP_RANK0;
    for (int r = 0; r < h->plan->world; r++) ft_mux_end(&h->mux, r);
    ft_console_flush(&h->console);
    while (ft_console_waiting(&h->console)) {
        int64_t now = ft_head_now();
        if (!patient && now - h->console.moved_at > (h->job.killed ? CONSOLE_KILLED : CONSOLE_STALL)) ft_console_drop(&h->console);
        struct signalfd_siginfo info; /* INT or TERM: the user has seen enough */
        if (read(h->signal_fd, &info, sizeof info) == sizeof info && (info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM))
            ft_console_drop(&h->console);
        if (!ft_console_waiting(&h->console) || !ft_loop_once(&h->loop, now + 250 * FT_MS)) break;
    }
}

static void destroy(struct ft_head *h)
{
    ft_ctl_close(&h->ctl);
    if (h->ops && h->transport) h->ops->close(h->transport);
    ft_head_meet_end(h);
    ft_head_seating_end(h);
    ft_head_ask_end(h);
    free(h->why_no_seats);
    ft_check_destroy(h->check);
    if (h->folder_nonce[0]) unlink(ft_rundir_file(&h->q->dir, ".head", h->arena));
    for (int n = 0; n < h->n_nodes; n++) {
        ft_wire_fini(&h->nodes[n].wire);
        free(h->nodes[n].fail_reason);
        ft_head_drop_facts(&h->nodes[n]);
    }
    for (int r = 0; r < h->plan->world; r++) {
        free(h->ranks[r].last);
        free(h->ranks[r].evidence);
    }
    ft_buf_fini(&h->job_file);
    free(h->nodes);
    free(h->ranks);
    free(h->actions.v);
    ft_job_fini(&h->job);
    ft_mux_close(&h->mux);
    ft_console_close(&h->console);
    ft_events_close(&h->events);
    ft_close(&h->signal_fd);
    ft_loop_fini(&h->loop);
}

int ft_head_check(const struct ft_head_request *q, struct ft_faults *faults, struct ft_buf *facts, struct ft_buf *text,
                  struct ft_arena *arena)
{
    struct ft_head h = {
        .q = q, .plan = q->plan, .config = q->plan->config, .arena = arena, .start_at = ft_head_now(), .signal_fd = -1};
    struct ft_err err = {.code = FT_OK};
    h.events.fd = h.ctl.fd = -1;
    make_secrets(&h);
    make_job(&h);
    h.check = ft_check_create(faults, h.n_nodes);
    make_output(&h);
    if (begin(&h, &err)) {
        ft_faults_add(faults, FT_SEV_ERROR, (struct ft_source){0}, NULL, NULL, "%s%s%s", err.text,
                      err.where[0] ? "\n  where: " : "", err.where);
        if (err.fix[0]) ft_fault_fix(faults, "%s", err.fix);
    } else {
        on_beat(&h, ft_head_now());
        ft_head_check_start(&h);
        while (!h.finished && ft_loop_once(&h.loop, INT64_MAX)) {}
        say_goodbye(&h);
        ft_head_check_report(&h, facts, text);
    }
    drain_console(&h);
    const int status = h.status;
    destroy(&h);
    return status;
}

int ft_head_run(const struct ft_head_request *q, struct ft_arena *arena)
{
    struct ft_head h = {
        .q = q, .plan = q->plan, .config = q->plan->config, .arena = arena, .start_at = ft_head_now(), .signal_fd = -1};
    h.events.fd = h.ctl.fd = -1;
    h.attempt_at = h.start_at;
    make_secrets(&h);
    make_job(&h);
    make_output(&h);
    struct ft_err err = {.code = FT_OK};
    if (begin(&h, &err)) {
        ft_console_flush(&h.console);
        ft_err_print(stderr, "ftlaunch", &err);
        destroy(&h);
        return 2; /* nothing was started */
    }
    ft_head_record_start(&h);
    on_beat(&h, ft_head_now());
    on_console_time(&h, ft_head_now());
    if (h.console.tty[1] && !h.quiet) on_progress_time(&h, ft_head_now());
    ft_head_event(&h, (struct ft_job_event){.kind = FT_EV_START});
    while (!h.finished && ft_loop_once(&h.loop, INT64_MAX)) {}
    ft_head_input_stop(&h);
    ft_timer_cancel(&h.progress_timer);
    ft_head_clear_progress(&h);
    say_goodbye(&h);
    drain_console(&h);
    ft_head_summary(&h);
    int status = h.status;
    destroy(&h);
    return status;
}
