/* Frames of the head, modes, timers. */
#include "launcher/agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"

enum { TICK_MS = 20, READ_BYTES = 64 * 1024, PAUSED_LEASE_MS = 3600 * 1000, LEASE_WAIT_MS = 3000 };

static int64_t now_ns(void) { return ft_clock_now(ft_clock_real()); }

/* ---- the keeper ---- */

static void tell_keeper(struct ft_agent *a, char what, const char *text, int pass)
{
    char line[600];
    int n = snprintf(line, sizeof line, "%c%s", what, text);
    if (n >= (int)sizeof line) n = (int)sizeof line - 1;
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    memset(&control, 0, sizeof control);
    struct iovec iov = {line, (size_t)n};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (pass >= 0) {
        m.msg_control = &control;
        m.msg_controllen = sizeof control;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof pass);
        memcpy(CMSG_DATA(c), &pass, sizeof pass);
    }
    if (!a->keeper_gone && sendmsg(a->keeper_fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EPIPE) a->keeper_gone = true;
}

static void on_beat(void *self, int64_t now)
{
    struct ft_agent *a = self;
    tell_keeper(a, 'B', "", -1);
    ft_timer_set(&a->loop, &a->beat, now + FT_KEEPER_BEAT_MS * FT_MS, on_beat, a);
}

/* ---- the stream ---- */

static void on_out_room(void *self, short revents)
{
    (void)revents;
    struct ft_agent *a = self;
    ft_agent_flush(a);
    ft_pumps_wake(a);
}

static void drop_out(struct ft_agent *a)
{
    ft_buf_clear(&a->wire.out);
    a->out_at = 0;
}

size_t ft_agent_unsent(const struct ft_agent *a) { return a->wire.out.n - a->out_at; }

void ft_agent_flush(struct ft_agent *a)
{
    if (a->head_gone) {
        drop_out(a);
        return;
    }
    while (ft_agent_unsent(a)) {
        ssize_t n = write(a->out_fd, a->wire.out.data + a->out_at, ft_agent_unsent(a));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0) {
            ft_agent_head_gone(a);
            return;
        }
        a->out_at += (size_t)n;
    }
    if (!ft_agent_unsent(a)) drop_out(a);
    else if (a->out_at >= FT_OUT_BACKLOG) { /* the stream takes a little at a time: the rest is not moved for each */
        ft_buf_drop(&a->wire.out, a->out_at);
        a->out_at = 0;
    }
    ft_watch_want(&a->loop, &a->out_watch, ft_agent_unsent(a) ? POLLOUT : 0);
}

void ft_agent_note(struct ft_agent *a, int level, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    struct ft_msg m = ft_msg_make(FT_MSG_NOTE, FT_WIRE_NODE);
    ft_msg_u(&m, 0, (uint64_t)level);
    ft_msg_text(&m, 1, text);
    if (!a->head_gone) ft_wire_send(&a->wire, &m);
}

void ft_agent_head_gone(struct ft_agent *a)
{
    if (a->head_gone) return;
    a->head_gone = true;
    if (a->socket[0] && unlink(a->socket) < 0) errno = 0; /* it may have gone in good order */
    ft_watch_remove(&a->loop, &a->in_watch);
    ft_watch_remove(&a->loop, &a->out_watch);
    drop_out(a);
    if (a->mode == FT_AGENT_RUNNING || (a->mode == FT_AGENT_STOPPING && !a->killing)) ft_agent_stop(a, FT_ORPHAN_GRACE_MS * FT_MS);
    a->starved = true;
    ft_pumps_wake(a);
    ft_agent_check_gone(a);
}

static void keeper_is_gone(struct ft_agent *a)
{
    a->keeper_gone = true;
    ft_watch_remove(&a->loop, &a->keeper_watch);
    ft_agent_note(a, 0, "the keeper of this node was killed; everything of the run is ended here");
    ft_agent_flush(a);
    if (a->mode == FT_AGENT_RUNNING || a->mode == FT_AGENT_STOPPING) ft_agent_stop(a, FT_ORPHAN_GRACE_MS * FT_MS);
    ft_agent_check_gone(a);
}

static void on_keeper(void *self, short revents)
{
    struct ft_agent *a = self;
    char byte;
    if (revents & (POLLHUP | POLLERR) || recv(a->keeper_fd, &byte, 1, MSG_DONTWAIT) == 0) keeper_is_gone(a);
}

/* ---- ending ---- */

void ft_agent_stop(struct ft_agent *a, int64_t grace_ns)
{
    int64_t at = now_ns() + grace_ns;
    if (a->mode == FT_AGENT_STOPPING) { /* a shorter grace counts */
        if (at < a->kill_at) a->kill_at = at;
        return;
    }
    ft_agent_stacks_stop(a);
    a->mode = FT_AGENT_STOPPING;
    a->kill_at = at;
    a->killing = false;
    ft_ending_stop(a);
    ft_ranks_advance(a);
}

static void forget_job(struct ft_agent *a)
{
    ft_agent_ask_end(a);
    ft_ranks_destroy(a);
    ft_buf_fini(&a->job.workdir);
    ft_buf_fini(&a->job.argv);
    ft_buf_fini(&a->job.forward);
    ft_buf_fini(&a->job.env);
    ft_buf_fini(&a->job.run_dir);
    ft_buf_fini(&a->job.job_file);
    a->job = (struct ft_job_parts){.in = "-"};
}

static void new_attempt(struct ft_agent *a)
{
    ft_agent_meet_end(a);
    ft_agent_stacks_stop(a);
    forget_job(a);
    ft_contain_remove(&a->contain);
    tell_keeper(a, 'C', "", -1);
    ft_close(&a->port_fd);
    a->order = 0;
    a->n_killed = 0;
    a->killing = false;
    a->mode = FT_AGENT_IDLE;
}

/* Every exit that came before the STOP must be in before it is acknowledged; ranks that were exiting then count too. */
static void acknowledge_stop(struct ft_agent *a)
{
    if (a->said_stopped || a->mode != FT_AGENT_STOPPING) return;
    for (int i = 0; i < a->n_slots; i++)
        if (a->slots[i].state < FT_SLOT_ENDED && a->slots[i].state > FT_SLOT_WAITING && !a->slots[i].after_stop && !a->killing)
            return;
    a->said_stopped = true;
    struct ft_msg m = ft_msg_make(FT_MSG_STOPPED, FT_WIRE_NODE);
    ft_msg_u(&m, 0, a->n_signalled);
    if (!a->head_gone) ft_wire_send(&a->wire, &m);
}

/* What is still in the pipes when no process is left. false: it waits for credit. */
static bool drain_pipes(struct ft_agent *a)
{
    for (int i = 0; i < a->n_slots; i++)
        for (int k = 0; k < 3; k++) {
            struct ft_pump *p = &a->slots[i].pump[k];
            if (p->fd < 0) continue;
            p->dry = false;
            p->since_death = 0;
            ft_pump_read(p, true);
            if (p->fd >= 0 && !p->dry) return false;
        }
    return true;
}

static void say_gone(struct ft_agent *a)
{
    if (!ft_ranks_all_ended(a)) return;
    if (a->job.keep_children && !a->head_gone && !a->killing) ft_ending_list_kept(a);
    else if (!ft_ending_nothing_left(a)) return;
    if (a->mode != FT_AGENT_STOPPING || !drain_pipes(a)) return;
    if (a->job.keep_children && !a->head_gone && !a->killing) ft_agent_drain_kept(a);
    struct ft_msg m = ft_msg_make(FT_MSG_GONE, FT_WIRE_NODE);
    ft_msg_u(&m, 0, a->n_killed);
    bool leave = a->head_gone || a->keeper_gone;
    new_attempt(a);
    if (!leave) ft_wire_send(&a->wire, &m);
    a->done = leave;
}

void ft_agent_check_gone(struct ft_agent *a)
{
    if (a->mode != FT_AGENT_STOPPING) {
        if (a->head_gone || a->keeper_gone) a->done = true;
        return;
    }
    acknowledge_stop(a);
    say_gone(a);
    ft_agent_flush(a); /* both in one packet when nothing was left to end */
}

static void on_tick(void *self, int64_t now)
{
    struct ft_agent *a = self;
    int64_t lease = a->paused ? PAUSED_LEASE_MS * FT_MS : a->lease_ns;
    if (a->welcomed && lease && !a->head_gone && now - a->heard_at > lease) ft_agent_head_gone(a);
    if (a->mode == FT_AGENT_RUNNING || a->mode == FT_AGENT_STOPPING) {
        if (a->mode == FT_AGENT_STOPPING && now >= a->kill_at) {
            a->killing = true;
            ft_ending_kill(a); /* again at every tick until nothing is left */
        }
        ft_ranks_advance(a);
    }
    if (a->mode == FT_AGENT_STOPPING) ft_agent_check_gone(a);
    bool busy = a->mode == FT_AGENT_STOPPING;
    for (int i = 0; i < a->n_slots && !busy; i++) busy = a->slots[i].leftovers || a->slots[i].state == FT_SLOT_DEAD;
    ft_timer_set(&a->loop, &a->tick, now + (busy ? TICK_MS : 500) * FT_MS, on_tick, a);
}

/* Deaths and messages may make the next tick due sooner than it was set for. */
static void hurry(struct ft_agent *a)
{
    int64_t at = now_ns() + TICK_MS * FT_MS;
    if (a->tick.at > at) ft_timer_set(&a->loop, &a->tick, at, on_tick, a);
}

static void on_deaths(void *self, short revents)
{
    (void)revents;
    struct ft_agent *a = self;
    ft_ranks_deaths(a);
    hurry(a);
}

/* ---- frames ---- */

static void said_leftover(void *self, pid_t pid, const char *run, const char *command)
{
    struct ft_agent *a = self;
    struct ft_msg m = ft_msg_make(FT_MSG_LEFT, FT_WIRE_NODE);
    ft_msg_u(&m, 0, (uint64_t)pid);
    ft_msg_u(&m, 1, FT_LEFT_SWEPT);
    ft_msg_text(&m, 2, run);
    ft_msg_text(&m, 3, command);
    ft_wire_send(&a->wire, &m);
}

static void take_lease(struct ft_agent *a)
{
    int64_t until = now_ns() + LEASE_WAIT_MS * FT_MS; /* the keeper of a killed agent may still hold it */
    while ((a->lease_fd = ft_lease_take(a->run)) < 0 && errno == EADDRINUSE && now_ns() < until) {
        struct pollfd none = {.fd = -1};
        poll(&none, 1, 5);
    }
    a->leased = a->lease_fd >= 0;
    tell_keeper(a, 'R', a->run, a->lease_fd);
}

static void on_welcome(struct ft_agent *a, const struct ft_msg *m)
{
    ft_msg_copy_text(m, 0, a->run, sizeof a->run);
    ft_msg_copy_text(m, 2, a->node, sizeof a->node);
    a->lease_ns = (int64_t)m->f[3].u * FT_MS;
    a->welcomed = true;
    ft_agent_facts(a);
}

/* SWEEP: the agent of this run was lost; whoever holds its lease is killed with all that carries the run's id. */
static void on_sweep(struct ft_agent *a, const struct ft_msg *m)
{
    char run[128];
    ft_msg_copy_text(m, 0, run, sizeof run);
    unsigned killed = 0;
    for (int64_t until = now_ns() + 5 * FT_SEC; now_ns() < until;) {
        pid_t agent = ft_lease_holder(run);
        struct ft_process row, parent;
        if (agent > 1 && agent != getpid() && ft_process_read(agent, &row)) {
            char name[32];
            ft_process_command(row.ppid, name, sizeof name);
            bool keeper = row.ppid > 1 && row.ppid != getppid() && strstr(name, "ftlaunch-agent") &&
                          ft_process_read(row.ppid, &parent);
            if (row.state == 'T') kill(agent, SIGKILL); /* a stopped agent; its keeper kills the tree */
            if (!keeper) kill(agent, SIGKILL);
            tell_keeper(a, 'B', "", -1);
        }
        unsigned n = ft_sweep_run(run, 0);
        killed += n;
        if (!n && !agent) break;
        struct pollfd none = {.fd = -1};
        poll(&none, 1, 10);
    }
    struct ft_contain c;
    ft_contain_init(&c);
    if (ft_contain_make(&c, run)) {
        ft_contain_kill(&c);
        ft_contain_remove(&c);
    }
    struct ft_msg gone = ft_msg_make(FT_MSG_GONE, FT_WIRE_NODE);
    ft_msg_u(&gone, 0, killed);
    ft_wire_send(&a->wire, &gone);
}

static const char *setting(const struct ft_msg *m, const char *name)
{
    size_t n = strlen(name);
    for (size_t at = 0; at < m->f[1].n; at += strnlen(m->f[1].p + at, m->f[1].n - at) + 1)
        if (m->f[1].n - at > n && memcmp(m->f[1].p + at, name, n) == 0 && m->f[1].p[at + n] == '=') return m->f[1].p + at + n + 1;
    return "";
}

static void take_settings(struct ft_agent *a, const struct ft_msg *m)
{
    if (m->f[1].n && m->f[1].p[m->f[1].n - 1]) return; /* every string must end in a NUL */
    int64_t n;
    forget_job(a);
    if (ft_parse_i64(setting(m, "job"), 0, UINT32_MAX, &n)) a->job.number = (uint32_t)n;
    a->job.check = strcmp(setting(m, "check"), "yes") == 0;
    if (ft_parse_i64(setting(m, "slots"), 1, 4096, &n)) a->job.n_slots = (int)n;
    if (ft_parse_i64(setting(m, "first_rank"), 0, INT32_MAX, &n)) a->job.first_rank = (int)n;
    a->job.keep_children = strcmp(setting(m, "children"), "keep") == 0;
    snprintf(a->job.in, sizeof a->job.in, "%s", setting(m, "stdin"));
    snprintf(a->job.bind, sizeof a->job.bind, "%.15s", setting(m, "bind"));
    snprintf(a->job.interface, sizeof a->job.interface, "%.63s", setting(m, "interface"));
    a->job.files = strcmp(setting(m, "files"), "yes") == 0;
    a->job.else_path = strcmp(setting(m, "else_path"), "yes") == 0;
    snprintf(a->socket, sizeof a->socket, "%s", setting(m, "socket"));
    ft_ranks_create(a);
}

static void say_ready(struct ft_agent *a)
{
    if (!a->leased) take_lease(a);
    if (!a->job.check) ft_sweep_dead_runs(said_leftover, a);
    /* Kept children stay in no cgroup of ours: it could not be removed. */
    if (!a->job.check && !a->job.keep_children && ft_contain_make(&a->contain, a->run)) tell_keeper(a, 'C', a->contain.path, -1);
    a->oom_kills = ft_contain_oom_kills();
    struct ft_buf why = {0};
    int code = a->leased ? ft_ranks_ready(a, &why) : 2;
    if (!a->leased) ft_buf_adds(&why, "another agent of this run is alive on this machine");
    struct ft_msg r = ft_msg_make(FT_MSG_READY, FT_WIRE_NODE);
    ft_msg_u(&r, 0, (uint64_t)code);
    ft_msg_bytes(&r, 1, why.data, why.n);
    ft_msg_u(&r, 2, a->job.number);
    ft_wire_send(&a->wire, &r);
    ft_buf_fini(&why);
}

static bool on_job(struct ft_agent *a, const struct ft_msg *m)
{
    if (ft_xxh3_64(m->f[1].p, m->f[1].n) != m->f[2].u) return false;
    struct ft_buf *to = NULL;
    switch (m->f[0].u) {
    case FT_PART_SETTINGS: take_settings(a, m); return true;
    case FT_PART_WORKDIR: to = &a->job.workdir; break;
    case FT_PART_ARGV: to = &a->job.argv; break;
    case FT_PART_FORWARD: to = &a->job.forward; break;
    case FT_PART_ENV: to = &a->job.env; break;
    case FT_PART_RUN_DIR: to = &a->job.run_dir; break;
    case FT_PART_JOB_FILE: to = &a->job.job_file; break;
    case FT_PART_RANK_ENV:
        if (m->slot >= a->n_slots) return false;
        to = &a->slots[m->slot].rank_env;
        break;
    case FT_PART_END: say_ready(a); return true;
    default: return false;
    }
    if (m->f[1].n) ft_buf_add(to, m->f[1].p, m->f[1].n);
    if (!(m->flags & FT_WIRE_MORE) && to->n && to->data[to->n - 1]) ft_buf_addc(to, 0); /* lists are walked by their NULs */
    return true;
}

static void on_ping(struct ft_agent *a, const struct ft_msg *m, int64_t received)
{
    struct ft_msg r = ft_msg_make(FT_MSG_PONG, FT_WIRE_NODE);
    ft_msg_u(&r, 0, m->f[0].u);
    ft_msg_u(&r, 1, (uint64_t)received);
    ft_msg_u(&r, 2, (uint64_t)now_ns());
    ft_wire_send(&a->wire, &r);
}

static void on_probe(struct ft_agent *a, const struct ft_msg *m)
{
    const uint32_t id = (uint32_t)m->f[0].u;
    char *text = ft_xcalloc(m->f[4].n + 1, 1);
    if (m->f[4].n) memcpy(text, m->f[4].p, m->f[4].n);
    if (m->f[1].u == FT_PROBE_PORT) ft_agent_probe_port(a, id, text, (unsigned)m->f[2].u, m->f[3].u);
    else if (m->f[1].u == FT_PROBE_LISTEN) ft_agent_probe_listen(a, id, (int64_t)(m->f[2].u % 3600000), text);
    else if (m->f[1].u == FT_PROBE_CONNECT) ft_agent_probe_connect(a, id, (int64_t)(m->f[2].u % 3600000), text);
    else if (m->f[1].u == FT_PROBE_ASK) ft_agent_probe_ask(a, id, (int64_t)(m->f[2].u % 3600000), text, m->f[4].n);
    free(text);
}

/* false: the head sent something that makes no sense now; the stream ends. */
static bool take_message(struct ft_agent *a, const struct ft_msg *m)
{
    struct ft_slot *slot = m->slot < a->n_slots ? &a->slots[m->slot] : NULL;
    if (!a->welcomed && m->type != FT_MSG_WELCOME) return false;
    switch (m->type) {
    case FT_MSG_WELCOME: on_welcome(a, m); break;
    case FT_MSG_PROBE: on_probe(a, m); break;
    case FT_MSG_JOB: return a->mode == FT_AGENT_IDLE && on_job(a, m);
    case FT_MSG_GO:
        if (a->mode != FT_AGENT_IDLE || !a->slots) return false;
        ft_ranks_start(a);
        break;
    case FT_MSG_SIGNAL:
        if (m->f[0].u < 1 || m->f[0].u > 64) return false;
        ft_ending_signal(a, m->slot == FT_WIRE_NODE ? NULL : slot, (int)m->f[0].u);
        break;
    case FT_MSG_STOP: ft_agent_stop(a, (int64_t)m->f[0].u * FT_MS); break;
    case FT_MSG_KILL:
        ft_agent_stop(a, 0);
        a->kill_at = 0;
        on_tick(a, now_ns());
        break;
    case FT_MSG_SWEEP: on_sweep(a, m); break;
    case FT_MSG_CREDIT:
        a->credit += m->f[0].u;
        ft_pumps_wake(a);
        break;
    case FT_MSG_STDIN:
        if (slot) ft_slot_feed(slot, m->f[0].p, m->f[0].n, m->f[1].u != 0);
        break;
    case FT_MSG_STACKS: ft_agent_stacks(a, (int64_t)m->f[0].u * FT_MS); break;
    case FT_MSG_PAUSE: ft_ending_pause(a, true); break;
    case FT_MSG_RESUME: ft_ending_pause(a, false); break;
    case FT_MSG_PING: on_ping(a, m, a->heard_at); break;
    case FT_MSG_BYE: a->done = true; break;
    default: return false;
    }
    return true;
}

static void on_in(void *self, short revents)
{
    (void)revents;
    struct ft_agent *a = self;
    char bytes[READ_BYTES];
    ssize_t n = read(a->in_fd, bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0) {
        ft_agent_head_gone(a);
        return;
    }
    a->heard_at = now_ns();
    ft_wire_feed(&a->wire, bytes, (size_t)n);
    struct ft_msg m;
    int r;
    while (!a->head_gone && !a->done && (r = ft_wire_next(&a->wire, &m)) != 0) {
        if (r > 0 && take_message(a, &m)) continue;
        const struct ft_wire_row *row = r > 0 ? ft_wire_row(m.type) : NULL;
        ft_agent_note(a, 0, "the head's stream is broken: %s", row ? row->name : a->wire.why);
        ft_agent_flush(a);
        ft_agent_head_gone(a);
    }
    ft_agent_flush(a);
    hurry(a);
}

/* Signals that reached the agent itself (a batch system signals whole steps): reported, obeyed by nobody here. */
static void on_signal(void *self, short revents)
{
    (void)revents;
    struct ft_agent *a = self;
    struct signalfd_siginfo info;
    while (read(a->signal_fd, &info, sizeof info) == sizeof info)
        ft_agent_note(a, 2, "the agent got signal %u from pid %u", info.ssi_signo, info.ssi_pid);
    ft_agent_flush(a);
}

/* ---- start ---- */

/* A rank takes six descriptors of ours. */
static void raise_files(void)
{
    struct rlimit lim;
    if (getrlimit(RLIMIT_NOFILE, &lim) < 0 || lim.rlim_cur == lim.rlim_max) return;
    lim.rlim_cur = lim.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &lim) < 0) errno = 0; /* then a big node says "too many open files" by itself */
}

static bool open_all(struct ft_agent *a)
{
    raise_files();
    sigset_t set;
    sigemptyset(&set);
    static const int told[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
        signal(told[i], SIG_DFL);
        sigaddset(&set, told[i]);
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    a->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    a->deaths = epoll_create1(EPOLL_CLOEXEC);
    a->kmsg_fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (a->kmsg_fd >= 0) lseek(a->kmsg_fd, 0, SEEK_END);
    /* The stream, moved away from 0 and 1, which become /dev/null: nothing a child of ours does can disturb it. */
    a->in_fd = fcntl(0, F_DUPFD_CLOEXEC, 3);
    a->out_fd = fcntl(1, F_DUPFD_CLOEXEC, 3);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    return a->signal_fd >= 0 && a->deaths >= 0 && a->in_fd >= 0 && a->out_fd >= 0 && null >= 0 && dup2(null, 0) == 0 &&
           dup2(null, 1) == 1 && ft_nonblock(a->in_fd, NULL) == FT_OK && ft_nonblock(a->out_fd, NULL) == FT_OK;
}

int ft_agent_main(int keeper_fd)
{
    struct ft_agent a = {.keeper_fd = keeper_fd, .lease_fd = -1, .port_fd = -1, .kmsg_fd = -1};
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGPIPE, SIG_IGN);
    if (!open_all(&a)) return 125;
    ft_contain_init(&a.contain);
    ft_wire_init(&a.wire, FT_WIRE_AGENT);
    a.heard_at = now_ns();
    new_attempt(&a);
    ft_watch_add(&a.loop, &a.in_watch, a.in_fd, POLLIN, on_in, &a);
    ft_watch_add(&a.loop, &a.out_watch, a.out_fd, 0, on_out_room, &a);
    ft_watch_add(&a.loop, &a.keeper_watch, a.keeper_fd, POLLIN, on_keeper, &a);
    ft_watch_add(&a.loop, &a.signal_watch, a.signal_fd, POLLIN, on_signal, &a);
    ft_watch_add(&a.loop, &a.death_watch, a.deaths, POLLIN, on_deaths, &a);
    on_tick(&a, a.heard_at);
    on_beat(&a, a.heard_at);
    ft_agent_hello(&a);
    while (!a.done && ft_loop_once(&a.loop, INT64_MAX)) ft_pumps_wake(&a); /* any flush may have made room */
    ft_agent_flush(&a);
    new_attempt(&a);
    ft_buf_fini(&a.oom_pids);
    free(a.drains);
    ft_wire_fini(&a.wire);
    ft_loop_fini(&a.loop);
    tell_keeper(&a, 'D', "", -1);
    return 0;
}
