#include "launcher/ssh_agent.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"

/* draft-miller-ssh-agent */
enum { FAILURE = 5, REQUEST_IDENTITIES = 11, IDENTITIES_ANSWER = 12, SIGN_REQUEST = 13, MAX_MESSAGE = 256 * 1024, MAX_KEYS = 1024 };

static uint32_t get32(const unsigned char *p) { return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]; }

static void add32(struct ft_buf *b, uint32_t x)
{
    const unsigned char v[4] = {(unsigned char)(x >> 24), (unsigned char)(x >> 16), (unsigned char)(x >> 8), (unsigned char)x};
    ft_buf_add(b, v, 4);
}

static bool move(int fd, void *p, size_t n, bool out, const struct ft_ssh_limits *lim)
{
    for (size_t done = 0; done < n;) {
        short revents;
        if (ft_ssh_poll(fd, out ? POLLOUT : POLLIN, lim, INT64_MAX, &revents) != FT_FATE_UP) return false;
        char *at = (char *)p + done;
        const ssize_t k = out ? send(fd, at, n - done, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, at, n - done, MSG_DONTWAIT);
        if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR)) return false;
        if (k > 0) done += (size_t)k;
    }
    return true;
}

/* One message: u32 length, then that many bytes. */
static bool read_message(int fd, struct ft_buf *m, const struct ft_ssh_limits *lim)
{
    unsigned char head[4];
    if (!move(fd, head, 4, false, lim)) return false;
    const uint32_t n = get32(head);
    if (n < 1 || n > MAX_MESSAGE) return false;
    ft_buf_clear(m);
    ft_buf_reserve(m, n + 1);
    if (!move(fd, m->data, n, false, lim)) return false;
    m->n = n;
    m->data[n] = 0;
    return true;
}

static bool write_message(int fd, const struct ft_buf *m, const struct ft_ssh_limits *lim)
{
    struct ft_buf b = {0};
    add32(&b, (uint32_t)m->n);
    ft_buf_add(&b, m->data, m->n);
    const bool ok = move(fd, b.data, b.n, true, lim);
    ft_buf_fini(&b);
    return ok;
}

static int dial(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(a.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&a, sizeof a)) ft_close(&fd);
    return fd;
}

static char *base64(struct ft_arena *arena, const unsigned char *p, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *out = ft_arena_alloc(arena, (n + 2) / 3 * 4 + 1), *q = out;
    for (size_t i = 0; i < n; i += 3) {
        const uint32_t x = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) | (i + 2 < n ? p[i + 2] : 0u);
        *q++ = digits[x >> 18];
        *q++ = digits[x >> 12 & 63];
        *q++ = i + 1 < n ? digits[x >> 6 & 63] : '=';
        *q++ = i + 2 < n ? digits[x & 63] : '=';
    }
    return out;
}

static bool take_string(const struct ft_buf *m, size_t *at, const unsigned char **p, size_t *n)
{
    if (m->n - *at < 4) return false;
    const uint32_t len = get32((const unsigned char *)m->data + *at);
    if (len > m->n - *at - 4) return false;
    *p = (const unsigned char *)m->data + *at + 4;
    *n = len;
    *at += 4 + len;
    return true;
}

static bool parse_list(const struct ft_buf *m, struct ft_arena *arena, struct ft_ssh_agent_keys *out)
{
    if (m->n < 5 || m->data[0] != IDENTITIES_ANSWER) return false;
    const uint32_t count = get32((const unsigned char *)m->data + 1);
    if (count > MAX_KEYS) return false;
    out->v = ft_arena_array(arena, count + 1, sizeof *out->v);
    size_t at = 5;
    for (uint32_t i = 0; i < count; i++) {
        const unsigned char *blob, *comment;
        size_t n, comment_n;
        if (!take_string(m, &at, &blob, &n) || !take_string(m, &at, &comment, &comment_n)) return false;
        const uint32_t type_n = n >= 4 ? get32(blob) : 0;
        if (n < 4 || type_n > n - 4) continue;
        struct ft_ssh_agent_key *k = &out->v[out->n++];
        k->blob = (const unsigned char *)ft_arena_strndup(arena, (const char *)blob, n);
        k->n = n;
        k->type = ft_arena_strndup(arena, (const char *)blob + 4, type_n);
        char *text = ft_arena_strndup(arena, (const char *)comment, comment_n);
        for (char *p = text; *p; p++)
            if ((unsigned char)*p < 0x20 || *p == 0x7F) *p = '?';
        k->comment = text;
        k->key64 = base64(arena, blob, n);
    }
    return true;
}

enum ft_code ft_ssh_agent_list(const char *path, int64_t limit_ns, struct ft_arena *arena, struct ft_ssh_agent_keys *out,
                               struct ft_err *err)
{
    *out = (struct ft_ssh_agent_keys){0};
    const struct ft_ssh_limits within = {ft_clock_now(ft_clock_real()) + limit_ns, -1}, *lim = &within;
    int fd = dial(path);
    if (fd < 0) return ft_fail(err, FT_IO, "ssh-agent at '%s': %s", path, strerror(errno));
    struct ft_buf m = {0};
    ft_buf_addc(&m, REQUEST_IDENTITIES);
    enum ft_code c = FT_OK;
    if (!write_message(fd, &m, lim) || !read_message(fd, &m, lim))
        c = ft_fail(err, FT_TIMEOUT, "ssh-agent at '%s' does not answer", path);
    else if (!parse_list(&m, arena, out)) c = ft_fail(err, FT_IO, "ssh-agent at '%s' gives an answer that cannot be read", path);
    ft_buf_fini(&m);
    ft_close(&fd);
    return c;
}

/* ---- the door ---- */

static void answer_list(const struct ft_ssh_agent_door *d, struct ft_buf *m)
{
    ft_buf_clear(m);
    ft_buf_addc(m, IDENTITIES_ANSWER);
    add32(m, 1);
    add32(m, (uint32_t)d->key->n);
    ft_buf_add(m, d->key->blob, d->key->n);
    add32(m, (uint32_t)strlen(d->key->comment));
    ft_buf_adds(m, d->key->comment);
}

/* Passes a request for a signature of our key on; everything else fails. */
static void answer_sign(const struct ft_ssh_agent_door *d, struct ft_buf *m)
{
    size_t at = 1, n;
    const unsigned char *blob;
    bool ok = m->n > 1 && m->data[0] == SIGN_REQUEST && take_string(m, &at, &blob, &n) && n == d->key->n &&
              memcmp(blob, d->key->blob, n) == 0;
    int fd = ok ? dial(d->path) : -1;
    ok = fd >= 0 && write_message(fd, m, &d->limits) && read_message(fd, m, &d->limits);
    ft_close(&fd);
    if (ok) return;
    ft_buf_clear(m);
    ft_buf_addc(m, FAILURE);
}

static void *serve(void *self)
{
    const struct ft_ssh_agent_door *d = self;
    struct ft_buf m = {0};
    while (read_message(d->fd, &m, &d->limits)) {
        if (m.data[0] == REQUEST_IDENTITIES) answer_list(d, &m);
        else answer_sign(d, &m);
        if (!write_message(d->fd, &m, &d->limits)) break;
    }
    shutdown(d->fd, SHUT_RDWR); /* libssh waits at the other end */
    ft_buf_fini(&m);
    return NULL;
}

enum ft_code ft_ssh_agent_begin(struct ft_ssh_agent_door *door, int *out_fd, struct ft_err *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair))
        return ft_fail(err, FT_IO, "socketpair: %s", strerror(errno));
    door->fd = pair[0];
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 * 1024);
    const int rc = pthread_create(&door->thread, &attr, serve, door);
    pthread_attr_destroy(&attr);
    if (rc) {
        close(pair[0]);
        close(pair[1]);
        return ft_fail(err, FT_NOMEM, "cannot start a thread: %s", strerror(rc));
    }
    *out_fd = pair[1];
    return FT_OK;
}

void ft_ssh_agent_end(struct ft_ssh_agent_door *door)
{
    shutdown(door->fd, SHUT_RDWR);
    pthread_join(door->thread, NULL);
    ft_close(&door->fd);
}
