/* transport = local: the agent beside this program, at the other end of a socketpair. The base case: same wire, same program,
 * same rules as at a distance. The agent leads a session of its own, so that the terminal's signals reach the head only. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/fd.h"
#include "launcher/agent/contain.h"
#include "launcher/proc.h"
#include "launcher/transport/transport.h"

extern char **environ;

struct link {
    struct local *local;
    int node, fd, err_fd;
    bool open, killed; /* killed: the keeper was ended by a signal */
    struct ft_proc proc;
    struct ft_watch watch, err_watch, exec_watch, end_watch;
    struct ft_timer fail_timer;
    struct ft_link_error why;
    struct link *next;
};

struct local {
    struct ft_transport_request q;
    struct link *links; /* newest first: a node may have an old link whose processes are still ending */
    char *agent;
};

static enum ft_code open_local(const struct ft_transport_request *q, void **out, struct ft_err *err)
{
    struct local *l = ft_xcalloc(1, sizeof *l);
    struct ft_buf path = {0};
    l->q = *q;
    ft_buf_addf(&path, "%s/ftlaunch-agent", q->program_dir);
    l->agent = path.data;
    if (access(l->agent, X_OK) < 0) {
        ft_fail(err, FT_IO, "cannot start the agent '%s': %s", l->agent, strerror(errno));
        free(l->agent);
        free(l);
        return ft_fix(err, "install ftlaunch-agent beside ftlaunch");
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    *out = l;
    return FT_OK;
}

static struct link *find(struct local *l, int node)
{
    for (struct link *k = l->links; k; k = k->next)
        if (k->node == node && k->open) return k;
    return NULL;
}

/* A process of ours below a keeper that lives. */
static bool is_known(struct local *l, const struct ft_process *rows, size_t n, const struct ft_process *p)
{
    for (int depth = 0; p && depth < 4096; depth++) {
        for (struct link *k = l->links; k; k = k->next)
            if (k->proc.pidfd >= 0 && k->proc.pid == p->pid) return true;
        p = ft_process_find(rows, n, p->ppid);
    }
    return false;
}

/* Keeper and agent were both killed: what was in their tree has become ours (we are a subreaper) and is ended here. */
static void end_orphans(struct local *l)
{
    enum { PASSES = 200 };
    for (int i = 0; i < PASSES; i++) { /* at most a second */
        struct ft_process *rows;
        size_t n = ft_processes_all(&rows, getpid()), left = 0;
        for (size_t k = 0; k < n; k++) {
            if (!rows[k].ours || is_known(l, rows, n, &rows[k])) continue;
            left++;
            if (rows[k].state != 'Z') kill(rows[k].pid, SIGKILL);
            if (rows[k].ppid == getpid()) waitpid(rows[k].pid, NULL, WNOHANG);
        }
        free(rows);
        if (!left) return;
        poll(NULL, 0, 5);
    }
}

static void close_link(struct link *k)
{
    k->open = false;
    ft_watch_remove(k->local->q.loop, &k->watch);
    ft_watch_remove(k->local->q.loop, &k->exec_watch);
    ft_timer_cancel(&k->fail_timer);
    ft_close(&k->fd);
    ft_close(&k->proc.exec_fd);
}

static void report(struct link *k, const char *phase, const char *reason)
{
    struct ft_transport_user *u = &k->local->q.user;
    struct ft_link_error why = {.phase = phase, .status = 2};
    snprintf(why.reason, sizeof why.reason, "%.511s", reason);
    close_link(k);
    if (k->killed) end_orphans(k->local);
    u->closed(u->self, k->node, &why);
}

static void on_fail_timer(void *self, int64_t now)
{
    (void)now;
    struct link *k = self;
    report(k, k->why.phase, k->why.reason);
}

static void fail_later(struct link *k, const char *phase, const char *reason)
{
    k->why.phase = phase;
    snprintf(k->why.reason, sizeof k->why.reason, "%.511s", reason);
    ft_timer_set(k->local->q.loop, &k->fail_timer, 0, on_fail_timer, k);
}

static void on_ready(void *self, short revents)
{
    struct link *k = self;
    struct ft_transport_user *u = &k->local->q.user;
    if (revents & POLLOUT) {
        k->watch.events = POLLIN;
        u->room(u->self, k->node);
        if (!k->open) return;
    }
    if (!(revents & (POLLIN | POLLHUP | POLLERR))) return;
    char bytes[128 * 1024];
    ssize_t n = read(k->fd, bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n > 0) u->data(u->self, k->node, bytes, (size_t)n);
    else report(k, "stream", n < 0 && errno != ECONNRESET ? strerror(errno) : "the agent ended");
}

static void on_said(void *self, short revents)
{
    (void)revents;
    struct link *k = self;
    struct ft_transport_user *u = &k->local->q.user;
    char text[4096];
    ssize_t n = read(k->err_fd, text, sizeof text);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n > 0) {
        u->said(u->self, k->node, text, (size_t)n);
        return;
    }
    ft_watch_remove(k->local->q.loop, &k->err_watch);
    ft_close(&k->err_fd);
}

static void on_exec(void *self, short revents)
{
    (void)revents;
    struct link *k = self;
    enum ft_proc_state s = ft_proc_poll(&k->proc);
    if (s == FT_PROC_PENDING) return;
    ft_watch_remove(k->local->q.loop, &k->exec_watch);
    if (s == FT_PROC_STARTED) return;
    char text[300];
    snprintf(text, sizeof text, "%s: %s", ft_step_name(k->proc.step), strerror(k->proc.error));
    report(k, "agent", text);
}

/* The keeper (our child) ended: reaped here, whatever became of the stream. */
static void on_end(void *self, short revents)
{
    (void)revents;
    struct link *k = self;
    siginfo_t info = {.si_pid = 0};
    if (waitid(P_PIDFD, (id_t)k->proc.pidfd, &info, WEXITED | WNOHANG) == 0 && info.si_pid == 0) return;
    ft_watch_remove(k->local->q.loop, &k->end_watch);
    ft_close(&k->proc.pidfd);
    k->killed = info.si_code != CLD_EXITED;
    if (k->killed && !k->open) end_orphans(k->local);
}

static void reach(void *t, int node)
{
    struct local *l = t;
    struct link *k = ft_xcalloc(1, sizeof *k);
    *k = (struct link){.local = l, .node = node, .fd = -1, .err_fd = -1, .open = true, .next = l->links};
    k->proc.pidfd = k->proc.exec_fd = -1;
    l->links = k;
    int pair[2], err_pipe[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        char why[200];
        fail_later(k, "agent", ft_errno_text(errno, why));
        return;
    }
    struct ft_err err = {.code = FT_OK};
    if (ft_pipe(err_pipe, &err)) {
        close(pair[0]);
        close(pair[1]);
        fail_later(k, "agent", err.text);
        return;
    }
    char name[] = "ftlaunch-agent", *argv[] = {name, NULL};
    struct ft_proc_spec spec = {
        .path = l->agent, .argv = argv, .env = environ, .std = {pair[1], pair[1], err_pipe[1]}, .cgroup = -1};
    enum ft_code c = ft_proc_start(&spec, &k->proc, &err);
    close(pair[1]);
    close(err_pipe[1]);
    k->fd = pair[0];
    k->err_fd = err_pipe[0];
    if (c || ft_nonblock(k->fd, &err) || ft_nonblock(k->err_fd, &err)) {
        ft_close(&k->err_fd);
        fail_later(k, "agent", err.text);
        return;
    }
    ft_watch_add(l->q.loop, &k->watch, k->fd, POLLIN, on_ready, k);
    ft_watch_add(l->q.loop, &k->err_watch, k->err_fd, POLLIN, on_said, k);
    ft_watch_add(l->q.loop, &k->exec_watch, k->proc.exec_fd, POLLIN, on_exec, k);
    ft_watch_add(l->q.loop, &k->end_watch, k->proc.pidfd, POLLIN, on_end, k);
}

static size_t write_local(void *t, int node, const void *p, size_t n)
{
    struct link *k = find(t, node);
    size_t done = 0;
    while (k && k->fd >= 0 && done < n) {
        ssize_t w = send(k->fd, (const char *)p + done, n - done, MSG_NOSIGNAL);
        if (w < 0 && errno == EINTR) continue;
        if (w <= 0) break; /* full, or broken: then reading says so */
        done += (size_t)w;
    }
    if (k && k->watch.prev) k->watch.events = done < n ? POLLIN | POLLOUT : POLLIN;
    return done;
}

static void shut(void *t, int node)
{
    struct link *k = find(t, node);
    if (k) close_link(k);
}

static bool busy(void *t)
{
    struct local *l = t;
    for (struct link *k = l->links; k; k = k->next)
        if (k->proc.pidfd >= 0) return true;
    return false;
}

static void close_local(void *t)
{
    struct local *l = t;
    if (!l) return;
    for (struct link *k = l->links, *next; k; k = next) {
        next = k->next;
        close_link(k);
        ft_watch_remove(l->q.loop, &k->err_watch);
        ft_watch_remove(l->q.loop, &k->end_watch);
        ft_close(&k->err_fd);
        ft_close(&k->proc.pidfd);
        free(k);
    }
    free(l->agent);
    free(l);
}

extern const struct ft_transport_ops ft_transport_local;
const struct ft_transport_ops ft_transport_local = {"local", open_local,  reach, write_local, shut,
                                                    busy,    close_local, NULL,  NULL,        true};
