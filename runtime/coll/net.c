#include "runtime/coll/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

int64_t ft_net_now(void) { return ft_clock_now(ft_clock_real()); }

int ft_net_ms(int64_t deadline)
{
    const int64_t left = deadline - ft_net_now();
    if (left <= 0) return 0;
    const int64_t ms = (left + FT_MS - 1) / FT_MS;
    return ms > 1000000 ? 1000000 : (int)ms;
}

static void write_text(struct ft_addr *a)
{
    char ip[INET6_ADDRSTRLEN] = "?";
    if (a->sa.ss_family == AF_INET6) {
        struct sockaddr_in6 s;
        memcpy(&s, &a->sa, sizeof s);
        inet_ntop(AF_INET6, &s.sin6_addr, ip, sizeof ip);
        snprintf(a->text, sizeof a->text, "[%s]:%u", ip, ntohs(s.sin6_port));
    } else {
        struct sockaddr_in s;
        memcpy(&s, &a->sa, sizeof s);
        inet_ntop(AF_INET, &s.sin_addr, ip, sizeof ip);
        snprintf(a->text, sizeof a->text, "%s:%u", ip, ntohs(s.sin_port));
    }
}

static void set_port(struct ft_addr *a, int port)
{
    if (a->sa.ss_family == AF_INET6) {
        struct sockaddr_in6 s;
        memcpy(&s, &a->sa, sizeof s);
        s.sin6_port = htons((uint16_t)port);
        memcpy(&a->sa, &s, sizeof s);
    } else {
        struct sockaddr_in s;
        memcpy(&s, &a->sa, sizeof s);
        s.sin_port = htons((uint16_t)port);
        memcpy(&a->sa, &s, sizeof s);
    }
    write_text(a);
}

enum ft_code ft_net_resolve(const char *host, int port, struct ft_addr *out, struct ft_err *err)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;
    if (port < 0 || port > 65535) return ft_fail(err, FT_CONFIG, "port %d of '%s' is not between 0 and 65535", port, host);
    const int rc = getaddrinfo(host, NULL, &hints, &list);
    if (rc)
        return ft_fail(err, FT_NET, "address '%s' cannot be resolved: %s", host,
                       rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
    memset(out, 0, sizeof *out);
    memcpy(&out->sa, list->ai_addr, list->ai_addrlen);
    out->len = list->ai_addrlen;
    freeaddrinfo(list);
    set_port(out, port);
    return FT_OK;
}

static bool numeric(const struct sockaddr *sa, char *out, size_t n)
{
    const socklen_t len = sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    return !getnameinfo(sa, len, out, (socklen_t)n, NULL, 0, NI_NUMERICHOST);
}

/* Source address of the route to `to` (of the documentation's networks): nothing is sent. */
static bool of_route(const char *to, char *out, size_t n)
{
    struct ft_addr a, own;
    if (ft_net_resolve(to, 9, &a, NULL)) return false;
    int fd = socket(a.sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool ok = fd >= 0 && !connect(fd, (const struct sockaddr *)&a.sa, a.len) && !ft_net_own(fd, 0, &own, NULL) &&
                    !ft_net_is_loopback(&own) && numeric((const struct sockaddr *)&own.sa, out, n);
    ft_close(&fd);
    return ok;
}

static bool link_local(const struct sockaddr *sa)
{
    struct sockaddr_in6 s6;
    struct sockaddr_in s4;
    if (sa->sa_family == AF_INET6) {
        memcpy(&s6, sa, sizeof s6);
        return IN6_IS_ADDR_LINKLOCAL(&s6.sin6_addr);
    }
    memcpy(&s4, sa, sizeof s4);
    return ntohl(s4.sin_addr.s_addr) >> 16 == 0xA9FE;
}

static bool of_interface(int family, char *out, size_t n)
{
    struct ifaddrs *list = NULL;
    bool found = false;
    if (getifaddrs(&list) < 0) return false;
    for (const struct ifaddrs *i = list; i && !found; i = i->ifa_next)
        found = i->ifa_addr && i->ifa_addr->sa_family == family && (i->ifa_flags & IFF_UP) && !(i->ifa_flags & IFF_LOOPBACK) &&
                !link_local(i->ifa_addr) && numeric(i->ifa_addr, out, n);
    freeifaddrs(list);
    return found;
}

enum ft_code ft_net_own_address(char *out, size_t n, struct ft_err *err)
{
    if (of_route("192.0.2.1", out, n) || of_interface(AF_INET, out, n) || of_route("2001:db8::1", out, n) ||
        of_interface(AF_INET6, out, n))
        return FT_OK;
    ft_fail(err, FT_NET, "this node has no address by which others could reach it");
    return ft_fix(err, "set MASTER_ADDR and MASTER_PORT");
}

bool ft_net_is_loopback(const struct ft_addr *a)
{
    if (a->sa.ss_family == AF_INET6) {
        struct sockaddr_in6 s;
        memcpy(&s, &a->sa, sizeof s);
        return IN6_IS_ADDR_LOOPBACK(&s.sin6_addr);
    }
    struct sockaddr_in s;
    memcpy(&s, &a->sa, sizeof s);
    return (ntohl(s.sin_addr.s_addr) >> 24) == 127;
}

enum ft_code ft_net_own(int fd, int port, struct ft_addr *out, struct ft_err *err)
{
    memset(out, 0, sizeof *out);
    out->len = sizeof out->sa;
    if (getsockname(fd, (struct sockaddr *)&out->sa, &out->len) < 0)
        return ft_fail(err, FT_NET, "getsockname: %s", strerror(errno));
    set_port(out, port);
    return FT_OK;
}

enum ft_code ft_net_listen(const struct ft_addr *a, int backlog, int *out_fd, int *out_port, int *out_errno, struct ft_err *err)
{
    const int on = 1;
    int fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), saved;
    if (fd < 0) {
        saved = errno;
        goto failed;
    }
    /* Only so that a port in TIME_WAIT of an earlier run can be taken at once; a listener is never displaced by it. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (const struct sockaddr *)&a->sa, a->len) < 0 || listen(fd, backlog) < 0) {
        saved = errno;
        goto failed;
    }
    if (out_port) {
        struct ft_addr own;
        if (ft_net_own(fd, 0, &own, err)) {
            ft_close(&fd);
            return ft_wrap(err, "listening on %s", a->text);
        }
        struct sockaddr_storage sa = {0};
        socklen_t len = sizeof sa;
        getsockname(fd, (struct sockaddr *)&sa, &len);
        struct sockaddr_in s4;
        struct sockaddr_in6 s6;
        memcpy(&s4, &sa, sizeof s4);
        memcpy(&s6, &sa, sizeof s6);
        *out_port = ntohs(sa.ss_family == AF_INET6 ? s6.sin6_port : s4.sin_port);
    }
    *out_fd = fd;
    return FT_OK;
failed:
    ft_close(&fd);
    if (out_errno) *out_errno = saved;
    return ft_fail(err, FT_NET, "cannot listen on %s: %s", a->text, strerror(saved));
}

void ft_net_tune(int fd)
{
    const int on = 1, idle = 10, interval = 5, count = 4;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

/* Result of a connect in progress: 0, or its errno; ETIMEDOUT at the deadline. */
static int finish_connect(int fd, int64_t deadline)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        const int rc = poll(&p, 1, ft_net_ms(deadline));
        if (rc < 0 && errno == EINTR) continue;
        if (rc < 0) return errno;
        if (rc == 0) return ETIMEDOUT;
        int e = 0;
        socklen_t len = sizeof e;
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len);
        return e;
    }
}

enum ft_code ft_net_connect(const struct ft_addr *a, int64_t deadline, int *out_fd, int *out_errno, struct ft_err *err)
{
    int e = 0, fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) e = errno;
    else if (connect(fd, (const struct sockaddr *)&a->sa, a->len) < 0)
        e = errno == EINPROGRESS || errno == EINTR ? finish_connect(fd, deadline) : errno;
    if (!e) {
        /* A port of the ephemeral range can be connected to itself when nobody listens there. */
        struct ft_addr own;
        if (!ft_net_own(fd, 0, &own, NULL)) {
            struct sockaddr_storage me = {0}, peer = {0};
            socklen_t n = sizeof me, m = sizeof peer;
            if (!getsockname(fd, (struct sockaddr *)&me, &n) && !getpeername(fd, (struct sockaddr *)&peer, &m) && n == m &&
                !memcmp(&me, &peer, n))
                e = ECONNREFUSED;
        }
    }
    if (e) {
        ft_close(&fd);
        if (out_errno) *out_errno = e;
        return ft_fail(err, FT_NET, "cannot connect to %s: %s", a->text, strerror(e));
    }
    ft_net_tune(fd);
    *out_fd = fd;
    return FT_OK;
}

static enum ft_code wait_fd(int fd, short events, int64_t deadline, struct ft_err *err)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        const int rc = poll(&p, 1, ft_net_ms(deadline));
        if (rc > 0) return FT_OK;
        if (rc == 0) return ft_fail(err, FT_TIMEOUT, "no answer in time");
        if (errno != EINTR) return ft_fail(err, FT_NET, "poll: %s", strerror(errno));
    }
}

enum ft_code ft_net_send_all(int fd, const void *p, size_t n, int64_t deadline, struct ft_err *err)
{
    const char *c = p;
    while (n) {
        const ssize_t k = send(fd, c, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k > 0) {
            c += k;
            n -= (size_t)k;
        } else if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (wait_fd(fd, POLLOUT, deadline, err)) return err ? err->code : FT_TIMEOUT;
        } else if (k < 0 && errno != EINTR) {
            return ft_fail(err, FT_NET, "send: %s", strerror(errno));
        }
    }
    return FT_OK;
}

enum ft_code ft_net_recv_all(int fd, void *p, size_t n, int64_t deadline, struct ft_err *err)
{
    char *c = p;
    while (n) {
        const ssize_t k = recv(fd, c, n, MSG_DONTWAIT);
        if (k > 0) {
            c += k;
            n -= (size_t)k;
        } else if (k == 0) {
            return ft_fail(err, FT_NET, "the other side closed the connection");
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (wait_fd(fd, POLLIN, deadline, err)) return err ? err->code : FT_TIMEOUT;
        } else if (errno != EINTR) {
            return ft_fail(err, FT_NET, "receive: %s", strerror(errno));
        }
    }
    return FT_OK;
}
