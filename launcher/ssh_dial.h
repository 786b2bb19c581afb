/* From a name to a connected socket, in a thread of the pool: resolve, then TCP to all addresses, 250 ms apart, first one wins.
 * Every wait ends at the deadline or when the pool is cancelled; only the resolver cannot be stopped (the pool abandons its
 * thread). */
#ifndef FT_LAUNCHER_SSH_DIAL_H
#define FT_LAUNCHER_SSH_DIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct ft_ssh_limits {
    int64_t deadline; /* CLOCK_MONOTONIC ns */
    int cancel_fd;    /* readable: stop; -1: none */
};

/* What happened, as the retry table (ssh_retry.h) knows it. */
enum ft_ssh_fate {
    FT_FATE_UP,
    FT_FATE_LATER,   /* refused; a name that is not known now */
    FT_FATE_DROPPED, /* closed or reset before or during key exchange */
    FT_FATE_NO_ROUTE,
    FT_FATE_NO_ANSWER, /* the deadline passed */
    FT_FATE_FINAL,
    FT_FATE_CANCELLED
};

/* poll() on one descriptor within the limits. UP: ready (or until_ns passed: *out_revents 0). */
enum ft_ssh_fate ft_ssh_poll(int fd, short events, const struct ft_ssh_limits *lim, int64_t until_ns, short *out_revents);

/* Called by the thread between steps: false: its work is no longer wanted (nothing of the caller may be touched). */
struct ft_ssh_dialer {
    const char *host; /* name or address, "%zone" too */
    int port;
    struct ft_ssh_limits limits;
    bool (*resolved)(void *self); /* after getaddrinfo */
    void *self;
};
/* FT_FATE_UP: *out_fd is connected, non-blocking, close-on-exec, TCP_NODELAY. Else *phase ("resolve", "tcp") and the reason. */
enum ft_ssh_fate ft_ssh_dial(const struct ft_ssh_dialer *d, int *out_fd, const char **phase, char *reason, size_t cap);

#endif
