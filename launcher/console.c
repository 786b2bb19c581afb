#include "launcher/console.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

enum { CAREFUL = 4096 }; /* poll promises room for this much in a pipe */

static size_t color_length(const char *p, size_t n)
{
    if (n < 3 || p[0] != 0x1B || p[1] != '[') return 0;
    size_t i = 2;
    while (i < n && i < 32 && ((p[i] >= '0' && p[i] <= '9') || p[i] == ';')) i++;
    return i < n && p[i] == 'm' ? i + 1 : 0;
}

void ft_console_add_visible(struct ft_buf *q, const char *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t color = color_length(p + i, n - i), plain = color;
        if (color) ft_buf_add(q, p + i, color);
        else {
            while (i + plain < n && (!plain || !color_length(p + i + plain, n - i - plain))) plain++;
            ft_buf_add_visible(q, p + i, plain, "");
        }
        i += plain;
    }
}

void ft_console_paint(const char *text, bool color, struct ft_buf *out)
{
    static const struct {
        const char *word, *color;
    } heads[] = {{"ftlaunch: error:", "31"}, {"ftlaunch: warning:", "33"}, {"ftlaunch: note:", "36"}};
    for (const char *line = text; *line;) {
        size_t n = strcspn(line, "\n");
        for (size_t i = 0; color && i < sizeof heads / sizeof *heads; i++) {
            size_t head = strlen(heads[i].word);
            if (strncmp(line, heads[i].word, head) != 0) continue;
            ft_buf_addf(out, "\033[1;%sm%s\033[0m", heads[i].color, heads[i].word);
            line += head;
            n -= head;
        }
        ft_buf_add_visible(out, line, n, "");
        line += n;
        if (*line) ft_buf_addc(out, *line++);
    }
}

/* A description of our own that does not block: setting O_NONBLOCK on the inherited one would change it for everybody else. */
static void open_out(struct ft_console_out *o, int fd)
{
    struct stat st;
    o->fd = fd;
    if (fstat(fd, &st) < 0) return;
    o->is_socket = S_ISSOCK(st.st_mode);
    if (!S_ISFIFO(st.st_mode) && !S_ISCHR(st.st_mode)) return; /* a file has its place; writing does not wait there */
    char name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    int mine = open(name, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (mine < 0) return;
    o->fd = mine;
    o->own = true;
}

static void on_room(void *self, short revents)
{
    (void)revents;
    struct ft_console_out *o = self;
    ft_console_flush(o->console);
}

void ft_console_open(struct ft_console *c, struct ft_loop *loop, void (*room)(void *), void *self)
{
    *c = (struct ft_console){.loop = loop, .room = room, .self = self, .moved_at = ft_clock_now(ft_clock_real())};
    struct stat a, b;
    c->shared = fstat(1, &a) == 0 && fstat(2, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    for (int i = 0; i < 2; i++) {
        c->tty[i] = isatty(i + 1) == 1;
        c->out[i].console = c;
        open_out(&c->out[i], i + 1);
        ft_watch_add(loop, &c->out[i].watch, c->out[i].fd, 0, on_room, &c->out[i]);
    }
}

void ft_console_close(struct ft_console *c)
{
    for (int i = 0; i < 2; i++) {
        ft_watch_remove(c->loop, &c->out[i].watch);
        if (c->out[i].own) ft_close(&c->out[i].fd);
        ft_buf_fini(&c->out[i].q);
    }
}

static struct ft_console_out *out_of(struct ft_console *c, int stream) { return &c->out[c->shared ? 0 : stream - 1]; }

static ssize_t put(struct ft_console_out *o, const char *p, size_t n)
{
    if (o->is_socket) return send(o->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (!o->own) { /* may block: only when poll says that there is room, and not more than it promises */
        struct pollfd ready = {.fd = o->fd, .events = POLLOUT};
        if (poll(&ready, 1, 0) == 0) {
            errno = EAGAIN;
            return -1;
        }
        struct stat st;
        bool file = fstat(o->fd, &st) == 0 && S_ISREG(st.st_mode);
        if (!file && n > CAREFUL) n = CAREFUL;
    }
    return write(o->fd, p, n);
}

static void flush_one(struct ft_console_out *o)
{
    while (o->at < o->q.n && !o->closed) {
        ssize_t n = put(o, o->q.data + o->at, o->q.n - o->at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        if (n < 0) { /* EPIPE, or a full disk under a redirected stdout: the console of this stream is off */
            o->last_errno = errno;
            o->closed = true;
            break;
        }
        o->at += (size_t)n;
        o->console->moved_at = ft_clock_now(ft_clock_real());
    }
    if (o->closed || o->at == o->q.n) {
        ft_buf_clear(&o->q);
        o->at = 0;
    } else if (o->at > FT_CONSOLE_ROOM) {
        ft_buf_drop(&o->q, o->at);
        o->at = 0;
    }
    ft_watch_want(o->console->loop, &o->watch, o->q.n ? POLLOUT : 0);
}

void ft_console_flush(struct ft_console *c)
{
    size_t before = ft_console_waiting(c);
    for (int i = 0; i < 2; i++) flush_one(&c->out[i]);
    size_t after = ft_console_waiting(c);
    if (!after) c->moved_at = ft_clock_now(ft_clock_real());
    if (before >= FT_CONSOLE_ROOM && after < FT_CONSOLE_ROOM && c->room) c->room(c->self);
}

struct ft_buf *ft_console_queue(struct ft_console *c, int stream) { return &out_of(c, stream)->q; }

void ft_console_add(struct ft_console *c, int stream, const void *p, size_t n)
{
    struct ft_console_out *o = out_of(c, stream);
    if (c->off || o->closed) return;
    ft_buf_add(&o->q, p, n);
    ft_console_flush(c);
}

size_t ft_console_waiting(const struct ft_console *c) { return c->out[0].q.n - c->out[0].at + c->out[1].q.n - c->out[1].at; }

void ft_console_drop(struct ft_console *c)
{
    c->off = true;
    for (int i = 0; i < 2; i++) {
        ft_buf_clear(&c->out[i].q);
        c->out[i].at = 0;
        ft_watch_want(c->loop, &c->out[i].watch, 0);
    }
}
