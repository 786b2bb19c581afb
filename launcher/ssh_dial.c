#include "launcher/ssh_dial.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"

#define APART (250 * FT_MS)
enum { MAX_ADDRESSES = 16 };

static int64_t now_ns(void) { return ft_clock_now(ft_clock_real()); }

enum ft_ssh_fate ft_ssh_poll(int fd, short events, const struct ft_ssh_limits *lim, int64_t until_ns, short *out_revents)
{
    *out_revents = 0;
    for (;;) {
        const int64_t now = now_ns();
        if (now >= lim->deadline) return FT_FATE_NO_ANSWER;
        if (now >= until_ns) return FT_FATE_UP;
        const int64_t until = until_ns < lim->deadline ? until_ns : lim->deadline;
        struct pollfd p[2] = {{fd, events, 0}, {lim->cancel_fd, POLLIN, 0}};
        const int rc = poll(p, 2, (int)((until - now) / FT_MS + 1));
        if (rc < 0 && errno != EINTR) return FT_FATE_FINAL;
        if (rc <= 0) continue;
        if (p[1].revents) return FT_FATE_CANCELLED;
        *out_revents = p[0].revents;
        return FT_FATE_UP;
    }
}

struct attempts {
    struct pollfd fds[MAX_ADDRESSES + 1];
    size_t n;
    int last_error;
};

static void begin(struct attempts *a, const struct addrinfo *ai)
{
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, ai->ai_addr, ai->ai_addrlen) && errno != EINPROGRESS) {
        a->last_error = errno;
        ft_close(&fd);
    } else if (fd < 0) a->last_error = errno;
    if (fd >= 0) a->fds[a->n++] = (struct pollfd){fd, POLLOUT, 0};
}

/* Index of the attempt that is connected, or -1; attempts that failed are taken out. */
static int look(struct attempts *a)
{
    for (size_t i = 0; i < a->n; i++) {
        if (!a->fds[i].revents) continue;
        int error = 0;
        socklen_t len = sizeof error;
        if (getsockopt(a->fds[i].fd, SOL_SOCKET, SO_ERROR, &error, &len)) error = errno;
        if (!error) return (int)i;
        a->last_error = error;
        close(a->fds[i].fd);
        a->fds[i--] = a->fds[--a->n];
    }
    return -1;
}

static enum ft_ssh_fate why(int error, char *reason, size_t cap)
{
    switch (error) {
    case ECONNREFUSED: snprintf(reason, cap, "connection refused"); return FT_FATE_LATER;
    case ETIMEDOUT: snprintf(reason, cap, "no answer"); return FT_FATE_NO_ANSWER;
    case ECONNRESET: snprintf(reason, cap, "connection reset"); return FT_FATE_DROPPED;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN: snprintf(reason, cap, "no route to host (%s)", strerror(error)); return FT_FATE_NO_ROUTE;
    default: snprintf(reason, cap, "%s", strerror(error)); return FT_FATE_FINAL;
    }
}

static enum ft_ssh_fate connect_any(const struct addrinfo *list, const struct ft_ssh_limits *lim, int *out_fd, char *reason,
                                    size_t cap)
{
    struct attempts a = {.last_error = ENETUNREACH};
    enum ft_ssh_fate fate = FT_FATE_UP;
    int won = -1;
    size_t started = 0;
    for (int64_t next = 0; won < 0;) {
        int64_t now = now_ns();
        if (now >= lim->deadline) {
            snprintf(reason, cap, "no answer");
            fate = FT_FATE_NO_ANSWER;
            break;
        }
        while (list && started < MAX_ADDRESSES && (now >= next || !a.n)) {
            begin(&a, list);
            list = list->ai_next;
            started++;
            next = now + APART;
        }
        if (!a.n) {
            fate = why(a.last_error, reason, cap);
            break;
        }
        const int64_t until = list && started < MAX_ADDRESSES && next < lim->deadline ? next : lim->deadline;
        a.fds[a.n] = (struct pollfd){lim->cancel_fd, POLLIN, 0};
        const int rc = poll(a.fds, a.n + 1, (int)((until - now) / FT_MS + 1));
        if (rc > 0 && a.fds[a.n].revents) {
            fate = FT_FATE_CANCELLED;
            break;
        }
        if (rc > 0) won = look(&a);
    }
    for (size_t i = 0; i < a.n; i++)
        if ((int)i != won) close(a.fds[i].fd);
    if (won >= 0) *out_fd = a.fds[won].fd;
    return fate;
}

enum ft_ssh_fate ft_ssh_dial(const struct ft_ssh_dialer *d, int *out_fd, const char **phase, char *reason, size_t cap)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    char port[16], *host = ft_xstrdup(d->host); /* ours while the resolver runs */
    const struct ft_ssh_dialer copy = *d;
    snprintf(port, sizeof port, "%d", d->port);
    const int rc = getaddrinfo(host, port, &hints, &list);
    const int error = errno;
    if (!copy.resolved(copy.self)) {
        if (rc == 0) freeaddrinfo(list);
        free(host);
        return FT_FATE_CANCELLED;
    }
    enum ft_ssh_fate fate;
    *phase = "resolve";
    if (rc) {
        snprintf(reason, cap, "'%s': %s", host, rc == EAI_SYSTEM ? strerror(error) : gai_strerror(rc));
        fate = rc == EAI_AGAIN || rc == EAI_NONAME || rc == EAI_NODATA || rc == EAI_SYSTEM ? FT_FATE_LATER : FT_FATE_FINAL;
    } else {
        *phase = "tcp";
        fate = connect_any(list, &copy.limits, out_fd, reason, cap);
        freeaddrinfo(list);
    }
    free(host);
    if (fate != FT_FATE_UP) return fate;
    const int yes = 1;
    setsockopt(*out_fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(*out_fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &yes, sizeof yes);
    return FT_FATE_UP;
}
