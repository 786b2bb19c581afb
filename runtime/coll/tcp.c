/* The engine of our own: shared memory between the ranks of a node, TCP between nodes. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "runtime/coll/engine.h"
#include "runtime/coll/link.h"
#include "runtime/coll/net.h"
#include "runtime/coll/shm.h"
#include "runtime/coll/store.h"
#include "topology/place.h"

/* A closed connection says who has gone, the store says why: it gets this long to say so. */
#define CAUSE_NS FT_SEC

struct tcp {
    struct ft_store *store;
    int rank, world, n_local, spins;
    int *local;            /* world: index inside my node, -1: on another one */
    struct ft_shm *shm;    /* NULL: alone on the node */
    struct ft_link *links; /* world; fd -1: not remote */
    struct pollfd *polls;  /* store, bell, and each peer's two directions */
};

static void close_tcp(void *self)
{
    struct tcp *t = self;
    if (!t) return;
    ft_shm_close(t->shm);
    for (int r = 0; r < t->world && t->links; r++) ft_link_close(&t->links[r]);
    free(t->links);
    free(t->local);
    free(t->polls);
    free(t);
}

/* Looking again costs a core: worth it only where each rank of the node has one. */
static int spin_count(int n_local)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) < 0 || CPU_COUNT(&set) < n_local) return 0;
    return 2000;
}

static enum ft_code open_tcp(const struct ft_coll_env *env, void **self, struct ft_err *err)
{
    const int world = env->place->world, rank = env->place->rank, node = ft_store_peer(env->store, rank)->node_rank;
    struct tcp *t = ft_xcalloc(1, sizeof *t);
    int *ranks = ft_xcalloc((size_t)world, sizeof *ranks);
    bool *remote = ft_xcalloc((size_t)world, sizeof *remote);
    t->store = env->store;
    t->rank = rank;
    t->world = world;
    t->local = ft_xcalloc((size_t)world, sizeof *t->local);
    t->links = ft_xcalloc((size_t)world, sizeof *t->links);
    t->polls = ft_xcalloc(2 * (size_t)world + 2, sizeof *t->polls);
    for (int r = 0; r < world; r++) {
        t->links[r].fd = -1;
        remote[r] = ft_store_peer(env->store, r)->node_rank != node;
        t->local[r] = remote[r] ? -1 : t->n_local;
        if (!remote[r]) ranks[t->n_local++] = r;
    }
    t->spins = spin_count(t->n_local);
    enum ft_code rc = FT_OK;
    if (t->n_local > 1) rc = ft_shm_open(env->store, node, ranks, t->n_local, t->local[rank], env->deadline, &t->shm, err);
    if (!rc) rc = ft_links_open(env->store, env->place->token, rank, world, remote, env->deadline, t->links, err);
    free(ranks);
    free(remote);
    if (rc) {
        close_tcp(t);
        return rc;
    }
    *self = t;
    return FT_OK;
}

static size_t push(void *self, int peer, const void *p, size_t n)
{
    struct tcp *t = self;
    return t->local[peer] >= 0 ? ft_shm_push(t->shm, t->local[peer], p, n) : ft_link_push(&t->links[peer], p, n);
}

static size_t peek(void *self, int peer, const void **p)
{
    struct tcp *t = self;
    return t->local[peer] >= 0 ? ft_shm_peek(t->shm, t->local[peer], p) : ft_link_peek(&t->links[peer], p);
}

static void consume(void *self, int peer, size_t n)
{
    struct tcp *t = self;
    if (t->local[peer] >= 0) ft_shm_consume(t->shm, t->local[peer], n);
    else ft_link_consume(&t->links[peer], n);
}

static int spins(const void *self) { return ((const struct tcp *)self)->spins; }

/* Has a want come true since the caller looked? */
static bool ready(const struct tcp *t, const struct ft_coll_want *w)
{
    if (t->local[w->peer] >= 0)
        return (w->in && ft_shm_available(t->shm, t->local[w->peer]) > w->have) ||
               (w->out && ft_shm_room(t->shm, t->local[w->peer]) > 0);
    return w->in && t->links[w->peer].tail - t->links[w->peer].head > w->have;
}

/* A peer of ours closed its connection. The store's word about it (or about who began) is on its way. */
static enum ft_code link_ended(struct tcp *t, int peer, struct ft_err *err)
{
    const int64_t until = ft_net_now() + CAUSE_NS;
    while (ft_store_peer(t->store, peer)->gone == FT_GONE_NO && ft_net_now() < until && ft_store_fd(t->store) >= 0) {
        struct pollfd p = {.fd = ft_store_fd(t->store), .events = POLLIN};
        if (poll(&p, 1, ft_net_ms(until)) > 0) ft_store_pump(t->store);
        if (ft_store_check(t->store, err)) return FT_COLL;
    }
    return ft_store_ended(t->store, peer, err);
}

static enum ft_code check_ends(struct tcp *t, const struct ft_coll_want *wants, size_t n, struct ft_err *err)
{
    ft_store_pump(t->store);
    if (ft_store_check(t->store, err)) return FT_COLL;
    for (size_t i = 0; i < n; i++) {
        const int peer = wants[i].peer;
        if (ready(t, &wants[i])) continue;
        if (t->local[peer] >= 0 && ft_store_peer(t->store, peer)->gone != FT_GONE_NO) return ft_store_ended(t->store, peer, err);
        if (t->local[peer] < 0 && t->links[peer].ended) return link_ended(t, peer, err);
    }
    return FT_OK;
}

static enum ft_code sleep_on(struct tcp *t, const struct ft_coll_want *wants, size_t n, int64_t deadline, struct ft_err *err)
{
    nfds_t k = 0;
    t->polls[k++] = (struct pollfd){.fd = ft_store_fd(t->store), .events = POLLIN};
    t->polls[k++] = (struct pollfd){.fd = t->shm ? ft_shm_bell(t->shm) : -1, .events = POLLIN};
    for (size_t i = 0; i < n; i++)
        if (t->local[wants[i].peer] < 0)
            t->polls[k++] = (struct pollfd){.fd = t->links[wants[i].peer].fd,
                                            .events = (short)((wants[i].in ? POLLIN : 0) | (wants[i].out ? POLLOUT : 0))};
    const int rc = poll(t->polls, k, ft_net_ms(deadline));
    if (rc < 0 && errno != EINTR) return ft_fail(err, FT_NET, "poll: %s", strerror(errno));
    if (rc == 0) return ft_fail(err, FT_TIMEOUT, "no progress");
    return FT_OK;
}

static enum ft_code wait_tcp(void *self, const struct ft_coll_want *wants, size_t n, int64_t deadline, struct ft_err *err)
{
    struct tcp *t = self;
    bool any = false;
    if (t->shm) ft_shm_arm(t->shm);
    for (size_t i = 0; i < n && !any; i++) any = ready(t, &wants[i]);
    enum ft_code rc = any ? FT_OK : check_ends(t, wants, n, err);
    if (!any && !rc) rc = sleep_on(t, wants, n, deadline, err);
    if (t->shm) ft_shm_disarm(t->shm);
    return rc;
}

extern const struct ft_coll_ops ft_coll_tcp;
const struct ft_coll_ops ft_coll_tcp = {.name = "tcp",
                                        .open = open_tcp,
                                        .close = close_tcp,
                                        .push = push,
                                        .peek = peek,
                                        .consume = consume,
                                        .spins = spins,
                                        .wait = wait_tcp};
