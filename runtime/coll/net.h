/* TCP by addresses and deadlines, for the store and the links between nodes.
 * A deadline is a point on CLOCK_MONOTONIC in ns (ft_net_now() + x). All descriptors are close-on-exec and non-blocking. */
#ifndef FT_RUNTIME_COLL_NET_H
#define FT_RUNTIME_COLL_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"

struct ft_addr {
    struct sockaddr_storage sa;
    socklen_t len;
    char text[80]; /* "127.0.0.1:29500", "[::1]:29500" */
};

int64_t ft_net_now(void); /* CLOCK_MONOTONIC, ns */
/* For poll(2): milliseconds until the deadline, rounded up, 0 when it has passed. */
int ft_net_ms(int64_t deadline);

/* host: numeric or a name (first address of it). Port 0: for ft_net_listen, any free one. */
enum ft_code ft_net_resolve(const char *host, int port, struct ft_addr *out, struct ft_err *err) FT_MUST_CHECK;
/* The address by which other nodes most likely reach this one, numeric: that of the default route, else the first of an interface
 * that is up, not loopback and not link-local; IPv4 before IPv6. */
enum ft_code ft_net_own_address(char *out, size_t n, struct ft_err *err) FT_MUST_CHECK;
bool ft_net_is_loopback(const struct ft_addr *a);
/* Own address of a connected socket with another port. */
enum ft_code ft_net_own(int fd, int port, struct ft_addr *out, struct ft_err *err) FT_MUST_CHECK;

/* Listens on exactly that address. On failure returns FT_NET and leaves errno of bind/listen in *out_errno (may be NULL). */
enum ft_code ft_net_listen(const struct ft_addr *a, int backlog, int *out_fd, int *out_port, int *out_errno,
                           struct ft_err *err) FT_MUST_CHECK;
/* One attempt. errno in *out_errno (may be NULL) when it fails; ETIMEDOUT when the deadline passed. */
enum ft_code ft_net_connect(const struct ft_addr *a, int64_t deadline, int *out_fd, int *out_errno,
                            struct ft_err *err) FT_MUST_CHECK;
/* No delay for small frames, keep-alive so that a vanished host is noticed. */
void ft_net_tune(int fd);

/* Whole buffers over a non-blocking socket. A closed peer is FT_NET "closed the connection". */
enum ft_code ft_net_send_all(int fd, const void *p, size_t n, int64_t deadline, struct ft_err *err) FT_MUST_CHECK;
enum ft_code ft_net_recv_all(int fd, void *p, size_t n, int64_t deadline, struct ft_err *err) FT_MUST_CHECK;

#endif
