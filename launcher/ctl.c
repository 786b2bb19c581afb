#include "launcher/ctl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

enum { LINE = 256 };

enum ft_code ft_ctl_folder(bool make, struct ft_buf *out, struct ft_err *err)
{
    ft_buf_clear(out);
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (runtime && runtime[0] == '/' && ft_is_dir(runtime) && access(runtime, W_OK) == 0) ft_buf_addf(out, "%s/ftlaunch", runtime);
    else ft_buf_addf(out, "/tmp/ftlaunch-%u", (unsigned)getuid());
    struct stat st;
    if (make && mkdir(out->data, 0700) < 0 && errno != EEXIST)
        return ft_fail(err, FT_IO, "cannot make '%s': %s", out->data, strerror(errno));
    if (lstat(out->data, &st) < 0) return ft_fail(err, FT_IO, "'%s': %s", out->data, strerror(errno));
    if (!S_ISDIR(st.st_mode) || st.st_uid != getuid() || (st.st_mode & 077))
        return ft_fail(err, FT_AUTH, "'%s' is not a folder of this user alone (mode 0700)", out->data);
    return FT_OK;
}

static enum ft_code address(const char *run, bool make, struct sockaddr_un *sa, struct ft_err *err)
{
    struct ft_buf path = {0};
    enum ft_code c = ft_ctl_folder(make, &path, err);
    memset(sa, 0, sizeof *sa);
    sa->sun_family = AF_UNIX;
    if (!c && snprintf(sa->sun_path, sizeof sa->sun_path, "%s/%s.sock", path.data, run) >= (int)sizeof sa->sun_path)
        c = ft_fail(err, FT_IO, "the name of the control socket is too long: %s/%s.sock", path.data, run);
    ft_buf_fini(&path);
    return c;
}

enum ft_code ft_ctl_path(const char *run, struct ft_buf *out, struct ft_err *err)
{
    enum ft_code c = ft_ctl_folder(true, out, err);
    if (!c) ft_buf_addf(out, "/%s.sock", run);
    return c;
}

static void drop_peer(struct ft_ctl_peer *p)
{
    ft_watch_remove(p->ctl->loop, &p->watch);
    ft_close(&p->fd);
    ft_buf_fini(&p->in);
}

static void on_peer(void *self, short revents)
{
    (void)revents;
    struct ft_ctl_peer *p = self;
    char text[LINE];
    ssize_t n = read(p->fd, text, sizeof text);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n > 0) ft_buf_add(&p->in, text, (size_t)n);
    char *end = p->in.n ? memchr(p->in.data, '\n', p->in.n) : NULL;
    if (n > 0 && !end && p->in.n < LINE) return;
    if (end) {
        *end = 0;
        struct ft_buf answer = {0};
        p->ctl->asked(p->ctl->self, p->in.data, &answer);
        if (send(p->fd, ft_buf_str(&answer), answer.n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) errno = 0; /* it went away: its business */
        ft_buf_fini(&answer);
    }
    drop_peer(p);
}

static void on_connect(void *self, short revents)
{
    (void)revents;
    struct ft_ctl *c = self;
    int fd = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    struct ucred cred = {0, 0, 0};
    socklen_t len = sizeof cred;
    bool mine = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 && (cred.uid == getuid() || cred.uid == 0);
    for (int i = 0; mine && i < FT_CTL_PEERS; i++) {
        struct ft_ctl_peer *p = &c->peers[i];
        if (p->fd >= 0) continue;
        p->fd = fd;
        ft_watch_add(c->loop, &p->watch, fd, POLLIN, on_peer, p);
        return;
    }
    close(fd);
}

/* Sockets of heads that died without removing them. */
static void remove_dead(const char *own)
{
    struct ft_buf path = {0};
    DIR *d = ft_ctl_folder(false, &path, NULL) == FT_OK ? opendir(path.data) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        struct sockaddr_un sa = {.sun_family = AF_UNIX};
        if (!ft_str_ends(e->d_name, ".sock") ||
            snprintf(sa.sun_path, sizeof sa.sun_path, "%s/%s", path.data, e->d_name) >= (int)sizeof sa.sun_path)
            continue;
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        bool dead = fd >= 0 && !ft_str_eq(sa.sun_path, own) && connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0 &&
                    errno == ECONNREFUSED;
        ft_close(&fd);
        if (dead) unlink(sa.sun_path);
    }
    if (d) closedir(d);
    ft_buf_fini(&path);
}

enum ft_code ft_ctl_open(struct ft_ctl *c, struct ft_loop *loop, const char *run,
                         void (*asked)(void *, const char *, struct ft_buf *), void *self, struct ft_err *err)
{
    *c = (struct ft_ctl){.loop = loop, .fd = -1, .asked = asked, .self = self};
    for (int i = 0; i < FT_CTL_PEERS; i++) c->peers[i] = (struct ft_ctl_peer){.ctl = c, .fd = -1};
    struct sockaddr_un sa;
    enum ft_code code = address(run, true, &sa, err);
    if (code) return code;
    unlink(sa.sun_path); /* of a dead head of the same run (--continue) */
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof sa) < 0 || listen(fd, 16) < 0) {
        code = ft_fail(err, FT_IO, "cannot listen on '%s': %s", sa.sun_path, strerror(errno));
        if (fd >= 0) close(fd);
        return code;
    }
    c->fd = fd;
    snprintf(c->path, sizeof c->path, "%s", sa.sun_path);
    ft_watch_add(loop, &c->watch, fd, POLLIN, on_connect, c);
    remove_dead(c->path);
    return FT_OK;
}

void ft_ctl_close(struct ft_ctl *c)
{
    if (c->fd < 0) return;
    for (int i = 0; i < FT_CTL_PEERS; i++)
        if (c->peers[i].fd >= 0) drop_peer(&c->peers[i]);
    ft_watch_remove(c->loop, &c->watch);
    ft_close(&c->fd);
    unlink(c->path);
}

static enum ft_code silent(const char *run, int limit_ms, struct ft_err *err)
{
    return ft_fail(err, FT_TIMEOUT, "the launcher of run '%s' did not answer within %d ms", run, limit_ms);
}

enum ft_code ft_ctl_ask(const char *run, const char *request, int limit_ms, struct ft_buf *answer, struct ft_err *err)
{
    struct sockaddr_un sa;
    enum ft_code c = address(run, false, &sa, err);
    if (c) return FT_NET;
    const struct timeval limit = {limit_ms / 1000, limit_ms % 1000 * 1000};
    int64_t until = ft_clock_now(ft_clock_real()) + limit_ms * FT_MS;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* a launcher that was stopped takes nobody in: once its queue is full, connect waits, and so would send */
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) < 0 ||
        connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0) {
        if (errno == EAGAIN) c = silent(run, limit_ms, err);
        else c = ft_fail(err, FT_NET, "nobody answers for run '%s': %s", run, strerror(errno));
        ft_close(&fd);
        return c;
    }
    struct ft_buf line = {0};
    ft_buf_addf(&line, "%s\n", request);
    c = send(fd, line.data, line.n, MSG_NOSIGNAL) == (ssize_t)line.n ? FT_OK
                                                                     : ft_fail(err, FT_NET, "run '%s': %s", run, strerror(errno));
    ft_buf_fini(&line);
    char text[4096];
    while (!c) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int64_t left = until - ft_clock_now(ft_clock_real());
        if (left <= 0 || poll(&p, 1, (int)(left / FT_MS) + 1) == 0) {
            c = silent(run, limit_ms, err);
            break;
        }
        ssize_t n = read(fd, text, sizeof text);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        ft_buf_add(answer, text, (size_t)n);
    }
    close(fd);
    return c;
}
