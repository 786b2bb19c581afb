#include "launcher/transport/child.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

extern char **environ;

enum { READ_BYTES = 128 * 1024 };

static void close_stream(struct ft_child *c)
{
    c->open = false;
    ft_watch_remove(c->loop, &c->watch);
    ft_watch_remove(c->loop, &c->exec_watch);
    ft_timer_cancel(&c->fail_timer);
    ft_close(&c->fd);
    ft_close(&c->proc.exec_fd);
}

void ft_child_close(struct ft_child *c)
{
    if (!c->open) return;
    close_stream(c);
    if (c->proc.pidfd < 0) c->over(c->self, c);
}

static void report(struct ft_child *c, const char *phase, const char *reason)
{
    struct ft_link_error why = {.phase = phase, .status = 2};
    snprintf(why.reason, sizeof why.reason, "%.511s", reason);
    ft_child_close(c);
    c->user.closed(c->user.self, c->node, &why);
}

static void on_fail_timer(void *self, int64_t now)
{
    (void)now;
    struct ft_child *c = self;
    report(c, c->why.phase, c->why.reason);
}

static void fail_later(struct ft_child *c, const char *reason)
{
    c->why.phase = "agent";
    snprintf(c->why.reason, sizeof c->why.reason, "%.511s", reason);
    ft_timer_set(c->loop, &c->fail_timer, 0, on_fail_timer, c);
}

static void on_ready(void *self, short revents)
{
    struct ft_child *c = self;
    if (revents & POLLOUT) {
        ft_watch_want(c->loop, &c->watch, POLLIN);
        c->user.room(c->user.self, c->node);
        if (!c->open) return;
    }
    if (!(revents & (POLLIN | POLLHUP | POLLERR))) return;
    char bytes[READ_BYTES];
    ssize_t n = read(c->fd, bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n > 0) c->user.data(c->user.self, c->node, bytes, (size_t)n);
    else report(c, "stream", n < 0 && errno != ECONNRESET ? strerror(errno) : "the agent ended");
}

static void on_said(void *self, short revents)
{
    (void)revents;
    struct ft_child *c = self;
    char text[4096];
    ssize_t n = read(c->err_fd, text, sizeof text);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n > 0) {
        c->user.said(c->user.self, c->node, text, (size_t)n);
        return;
    }
    ft_watch_remove(c->loop, &c->err_watch);
    ft_close(&c->err_fd);
}

static void on_exec(void *self, short revents)
{
    (void)revents;
    struct ft_child *c = self;
    enum ft_proc_state s = ft_proc_poll(&c->proc);
    if (s == FT_PROC_PENDING) return;
    ft_watch_remove(c->loop, &c->exec_watch);
    ft_close(&c->proc.exec_fd);
    if (s == FT_PROC_STARTED) return;
    char text[300];
    snprintf(text, sizeof text, "%s: %s", ft_step_name(c->proc.step), strerror(c->proc.error));
    report(c, "agent", text);
}

/* Reaped here, whatever became of the stream. */
static void on_end(void *self, short revents)
{
    (void)revents;
    struct ft_child *c = self;
    siginfo_t info = {.si_pid = 0};
    if (waitid(P_PIDFD, (id_t)c->proc.pidfd, &info, WEXITED | WNOHANG) == 0 && info.si_pid == 0) return;
    ft_watch_remove(c->loop, &c->end_watch);
    ft_close(&c->proc.pidfd);
    c->killed = info.si_code != CLD_EXITED;
    if (!c->open) c->over(c->self, c);
}

void ft_child_start(struct ft_child *c, const struct ft_child_spec *s)
{
    *c = (struct ft_child){
        .loop = s->loop, .user = s->user, .node = s->node, .over = s->over, .self = s->self, .open = true, .fd = -1, .err_fd = -1};
    c->proc.pidfd = c->proc.exec_fd = -1;
    int pair[2], err_pipe[2];
    char why[200];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        fail_later(c, ft_errno_text(errno, why));
        return;
    }
    struct ft_err err = {.code = FT_OK};
    if (ft_pipe(err_pipe, &err)) {
        close(pair[0]);
        close(pair[1]);
        fail_later(c, err.text);
        return;
    }
    struct ft_proc_spec spec = {
        .path = s->path, .argv = s->argv, .env = environ, .std = {pair[1], pair[1], err_pipe[1]}, .cgroup = -1};
    enum ft_code code = ft_proc_start(&spec, &c->proc, &err);
    close(pair[1]);
    close(err_pipe[1]);
    c->fd = pair[0];
    c->err_fd = err_pipe[0];
    if (code || ft_nonblock(c->fd, &err) || ft_nonblock(c->err_fd, &err)) {
        ft_close(&c->err_fd);
        fail_later(c, err.text);
        return;
    }
    ft_watch_add(c->loop, &c->watch, c->fd, POLLIN, on_ready, c);
    ft_watch_add(c->loop, &c->err_watch, c->err_fd, POLLIN, on_said, c);
    ft_watch_add(c->loop, &c->exec_watch, c->proc.exec_fd, POLLIN, on_exec, c);
    ft_watch_add(c->loop, &c->end_watch, c->proc.pidfd, POLLIN, on_end, c);
}

size_t ft_child_write(struct ft_child *c, const void *p, size_t n)
{
    size_t done = 0;
    while (c->open && c->fd >= 0 && done < n) {
        ssize_t w = send(c->fd, (const char *)p + done, n - done, MSG_NOSIGNAL);
        if (w < 0 && errno == EINTR) continue;
        if (w <= 0) break; /* full, or broken: then reading says so */
        done += (size_t)w;
    }
    ft_watch_want(c->loop, &c->watch, done < n ? POLLIN | POLLOUT : POLLIN);
    return done;
}

void ft_child_fini(struct ft_child *c)
{
    close_stream(c);
    ft_watch_remove(c->loop, &c->err_watch);
    ft_watch_remove(c->loop, &c->end_watch);
    ft_close(&c->err_fd);
    ft_close(&c->proc.pidfd);
}
