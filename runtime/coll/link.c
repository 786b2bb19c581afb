#include "runtime/coll/link.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "runtime/coll/net.h"
#include "runtime/coll/proof.h"
#include "runtime/coll/store.h"

size_t ft_link_push(struct ft_link *l, const void *p, size_t n)
{
    while (n && !l->ended) {
        const ssize_t k = send(l->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k >= 0) return (size_t)k;
        if (errno == EINTR) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
        l->problem = errno;
        l->ended = true;
    }
    return 0;
}

static void fill(struct ft_link *l)
{
    while (!l->ended && l->tail - l->head < FT_LINK_RING / 2) {
        const size_t at = l->tail & (FT_LINK_RING - 1), room = FT_LINK_RING - (l->tail - l->head);
        const ssize_t k = recv(l->fd, l->in + at, room < FT_LINK_RING - at ? room : FT_LINK_RING - at, MSG_DONTWAIT);
        if (k > 0) {
            l->tail += (size_t)k;
        } else if (k < 0 && errno == EINTR) {
            continue;
        } else if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return;
        } else {
            l->problem = k < 0 ? errno : 0;
            l->ended = true;
        }
    }
}

size_t ft_link_peek(struct ft_link *l, const void **p)
{
    fill(l);
    const size_t at = l->head & (FT_LINK_RING - 1), have = l->tail - l->head;
    *p = l->in + at;
    return have < FT_LINK_RING - at ? have : FT_LINK_RING - at;
}

void ft_link_consume(struct ft_link *l, size_t n) { l->head += n; }

void ft_link_close(struct ft_link *l)
{
    ft_close(&l->fd);
    free(l->in);
    l->in = NULL;
}

static void take(struct ft_link *l, int fd)
{
    ft_net_tune(fd);
    *l = (struct ft_link){.fd = fd, .in = ft_xcalloc(FT_LINK_RING, 1)};
}

/* The port goes with the address by which this node reaches rank 0: that is a network that the nodes share. */
static enum ft_code announce(struct ft_store *store, int me, int world, int *listener, struct ft_err *err)
{
    struct ft_addr a;
    char key[32];
    int port = 0;
    if (ft_net_own(ft_store_own_fd(store), 0, &a, err)) return err ? err->code : FT_NET;
    if (ft_net_listen(&a, world, listener, &port, NULL, err)) return err ? err->code : FT_NET;
    struct ft_addr full;
    if (ft_net_own(ft_store_own_fd(store), port, &full, err)) return err ? err->code : FT_NET;
    snprintf(key, sizeof key, "link/%d", me);
    return ft_store_set(store, key, &full, sizeof full, err);
}

static enum ft_code connect_to(struct ft_store *store, const char *token, int me, int r, int64_t deadline, struct ft_link *l,
                               struct ft_err *err)
{
    char key[32], who[64];
    struct ft_buf b = {0};
    struct ft_addr a;
    int fd = -1;
    const uint32_t my_rank = (uint32_t)me;
    snprintf(key, sizeof key, "link/%d", r);
    snprintf(who, sizeof who, "rank %d on %.40s", r, ft_store_peer(store, r)->host);
    enum ft_code rc = ft_store_get(store, key, deadline, &b, err);
    if (!rc && b.n != sizeof a) rc = ft_fail(err, FT_NET, "the address of rank %d in the store is broken", r);
    if (!rc) {
        memcpy(&a, b.data, sizeof a);
        rc = ft_net_connect(&a, deadline, &fd, NULL, err);
    }
    if (!rc) rc = ft_proof_client(fd, token, who, deadline, err);
    if (!rc) rc = ft_net_send_all(fd, &my_rank, sizeof my_rank, deadline, err);
    ft_buf_fini(&b);
    if (rc) {
        ft_close(&fd);
        return ft_wrap(err, "connecting rank %d to %s", me, who);
    }
    take(l, fd);
    return FT_OK;
}

/* A stranger may call here too: it is closed and waited for no longer than 5 s. */
static enum ft_code accept_one(struct ft_store *store, const char *token, int me, int world, const bool *wanted, int listener,
                               int64_t deadline, struct ft_link *links, int *n_left, struct ft_err *err)
{
    const enum ft_code rc = ft_store_wait(store, listener, POLLIN, deadline, err);
    if (rc) return rc;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return FT_OK;
    const int64_t soon = ft_net_now() + 5 * FT_SEC;
    uint32_t r = 0;
    struct ft_err why = {0};
    if (ft_proof_server(fd, token, "a connection", soon, &why) || ft_net_recv_all(fd, &r, sizeof r, soon, &why) ||
        r <= (uint32_t)me || r >= (uint32_t)world || !wanted[r] || links[r].fd >= 0) {
        ft_log(FT_LOG_WARN, "link", "a connection to rank %d was closed: %s", me,
               *why.text ? why.text : "it is no rank that belongs here");
        ft_close(&fd);
        return FT_OK;
    }
    take(&links[r], fd);
    (*n_left)--;
    return FT_OK;
}

enum ft_code ft_links_open(struct ft_store *store, const char *token, int me, int world, const bool *wanted, int64_t deadline,
                           struct ft_link *links, struct ft_err *err)
{
    int listener = -1, n_left = 0;
    for (int r = 0; r < world; r++) links[r].fd = -1;
    for (int r = me + 1; r < world; r++) n_left += wanted[r];
    enum ft_code rc = FT_OK;
    if (n_left) rc = announce(store, me, world, &listener, err);
    for (int r = 0; r < me && !rc; r++)
        if (wanted[r]) rc = connect_to(store, token, me, r, deadline, &links[r], err);
    while (n_left && !rc) rc = accept_one(store, token, me, world, wanted, listener, deadline, links, &n_left, err);
    if (rc == FT_TIMEOUT) {
        for (int r = me + 1; r < world; r++)
            if (wanted[r] && links[r].fd < 0) {
                rc = ft_fail(err, FT_TIMEOUT, "rank %d on %s did not connect to rank %d in time", r, ft_store_peer(store, r)->host,
                             me);
                break;
            }
    }
    ft_close(&listener);
    if (rc)
        for (int r = 0; r < world; r++) ft_link_close(&links[r]);
    return rc;
}
