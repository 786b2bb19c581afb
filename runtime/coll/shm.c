#include "runtime/coll/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/log.h"
#include "runtime/coll/net.h"
#include "runtime/coll/store.h"

/* All rings of a node together stay below this; one ring lies between the two bounds. */
enum { RINGS_TOTAL = 256 << 20, RING_MIN = 64 << 10, RING_MAX = 512 << 10, FDS_AT_ONCE = 100, LINE = 64 };

struct ring {
    _Alignas(LINE) atomic_size_t tail; /* bytes ever written; only the writer stores */
    _Alignas(LINE) atomic_size_t head; /* bytes ever read; only the reader stores */
};

struct flag {
    _Alignas(LINE) atomic_uint sleeping;
};

struct ft_shm {
    int n, me;
    size_t ring_bytes, bytes;
    unsigned char *base; /* flags[n], rings[n*n], then n*n times ring_bytes */
    int *bells;          /* n eventfds */
};

static size_t heads_bytes(int n)
{
    const size_t k = (size_t)n, b = k * sizeof(struct flag) + k * k * sizeof(struct ring);
    return (b + 4095) & ~(size_t)4095;
}

static size_t ring_size(int n)
{
    size_t b = RING_MAX;
    while (b > RING_MIN && b * (size_t)n * (size_t)n > RINGS_TOTAL) b /= 2;
    return b;
}

static struct flag *flag_of(const struct ft_shm *s, int i) { return (struct flag *)(void *)s->base + i; }

static struct ring *ring_of(const struct ft_shm *s, int from, int to)
{
    return (struct ring *)(void *)(s->base + (size_t)s->n * sizeof(struct flag)) + from * s->n + to;
}

static unsigned char *data_of(const struct ft_shm *s, int from, int to)
{
    return s->base + heads_bytes(s->n) + (size_t)(from * s->n + to) * s->ring_bytes;
}

/* The peer raises its flag, then looks at the rings; we moved a ring, then look at the flag. One of us sees the other. */
static void ring_bell(struct ft_shm *s, int i)
{
    const uint64_t one = 1;
    atomic_thread_fence(memory_order_seq_cst);
    struct flag *f = flag_of(s, i);
    if (!atomic_load_explicit(&f->sleeping, memory_order_relaxed)) return;
    if (!atomic_exchange(&f->sleeping, 0)) return;
    if (write(s->bells[i], &one, sizeof one) < 0) ft_log(FT_LOG_DEBUG, "shm", "eventfd: %s", strerror(errno));
}

size_t ft_shm_push(struct ft_shm *s, int j, const void *p, size_t n)
{
    struct ring *r = ring_of(s, s->me, j);
    unsigned char *data = data_of(s, s->me, j);
    const size_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    const size_t room = s->ring_bytes - (tail - atomic_load_explicit(&r->head, memory_order_acquire));
    if (n > room) n = room;
    if (!n) return 0;
    const size_t at = tail & (s->ring_bytes - 1), first = n < s->ring_bytes - at ? n : s->ring_bytes - at;
    memcpy(data + at, p, first);
    if (n > first) memcpy(data, (const char *)p + first, n - first);
    atomic_store_explicit(&r->tail, tail + n, memory_order_release);
    ring_bell(s, j);
    return n;
}

size_t ft_shm_available(const struct ft_shm *s, int i)
{
    struct ring *r = ring_of(s, i, s->me);
    return atomic_load_explicit(&r->tail, memory_order_acquire) - atomic_load_explicit(&r->head, memory_order_relaxed);
}

size_t ft_shm_room(const struct ft_shm *s, int j)
{
    struct ring *r = ring_of(s, s->me, j);
    return s->ring_bytes -
           (atomic_load_explicit(&r->tail, memory_order_relaxed) - atomic_load_explicit(&r->head, memory_order_acquire));
}

size_t ft_shm_peek(struct ft_shm *s, int i, const void **p)
{
    struct ring *r = ring_of(s, i, s->me);
    const size_t head = atomic_load_explicit(&r->head, memory_order_relaxed), at = head & (s->ring_bytes - 1);
    const size_t have = atomic_load_explicit(&r->tail, memory_order_acquire) - head;
    *p = data_of(s, i, s->me) + at;
    return have < s->ring_bytes - at ? have : s->ring_bytes - at;
}

void ft_shm_consume(struct ft_shm *s, int i, size_t n)
{
    struct ring *r = ring_of(s, i, s->me);
    if (!n) return;
    atomic_store_explicit(&r->head, atomic_load_explicit(&r->head, memory_order_relaxed) + n, memory_order_release);
    ring_bell(s, i);
}

void ft_shm_arm(struct ft_shm *s)
{
    atomic_store(&flag_of(s, s->me)->sleeping, 1);
    atomic_thread_fence(memory_order_seq_cst);
}

void ft_shm_disarm(struct ft_shm *s)
{
    uint64_t x;
    atomic_store(&flag_of(s, s->me)->sleeping, 0);
    if (read(s->bells[s->me], &x, sizeof x) < 0 && errno != EAGAIN) ft_log(FT_LOG_DEBUG, "shm", "eventfd: %s", strerror(errno));
}

int ft_shm_bell(const struct ft_shm *s) { return s->bells[s->me]; }

/* --- opening ----------------------------------------------------------------------------------------------------------- */

static enum ft_code map(struct ft_shm *s, int memfd, struct ft_err *err)
{
    s->ring_bytes = ring_size(s->n);
    s->bytes = heads_bytes(s->n) + (size_t)s->n * (size_t)s->n * s->ring_bytes;
    void *p = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    if (p == MAP_FAILED) return ft_fail(err, FT_NOMEM, "cannot map %zu bytes of shared memory: %s", s->bytes, strerror(errno));
    s->base = p;
    return FT_OK;
}

static enum ft_code make(struct ft_shm *s, int *memfd, struct ft_err *err)
{
    *memfd = memfd_create("ftlaunch-coll", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*memfd < 0) return ft_fail(err, FT_IO, "memfd_create: %s", strerror(errno));
    const size_t bytes = heads_bytes(s->n) + (size_t)s->n * (size_t)s->n * ring_size(s->n);
    if (ftruncate(*memfd, (off_t)bytes) < 0)
        return ft_fail(err, FT_NOMEM, "shared memory of %zu bytes: %s", bytes, strerror(errno));
    (void)fcntl(*memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    for (int i = 0; i < s->n; i++)
        if ((s->bells[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) return ft_fail(err, FT_IO, "eventfd: %s", strerror(errno));
    return FT_OK;
}

static socklen_t abstract_name(struct sockaddr_un *a, const char *name)
{
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    const size_t n = strlen(name) < sizeof a->sun_path - 1 ? strlen(name) : sizeof a->sun_path - 1;
    memcpy(a->sun_path + 1, name, n);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(FDS_AT_ONCE * sizeof(int))];
};

static enum ft_code send_fds(struct ft_store *store, int fd, const int *fds, int n, int64_t deadline, struct ft_err *err)
{
    union control c;
    char byte = 'f';
    struct iovec v = {.iov_base = &byte, .iov_len = 1};
    memset(&c, 0, sizeof c);
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = c.bytes, .msg_controllen = CMSG_SPACE((size_t)n * sizeof(int))};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
    memcpy(CMSG_DATA(h), fds, (size_t)n * sizeof(int));
    for (;;) {
        if (sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) return FT_OK;
        if (errno == EINTR) continue;
        if (errno != EAGAIN) return ft_fail(err, FT_IO, "handing shared memory to a rank of this node: %s", strerror(errno));
        const enum ft_code rc = ft_store_wait(store, fd, POLLOUT, deadline, err);
        if (rc) return rc;
    }
}

static enum ft_code recv_fds(struct ft_store *store, int fd, int *fds, int n, int64_t deadline, struct ft_err *err)
{
    union control c;
    char byte;
    struct iovec v = {.iov_base = &byte, .iov_len = 1};
    for (;;) {
        struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = c.bytes, .msg_controllen = sizeof c.bytes};
        const ssize_t k = recvmsg(fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0 && errno == EAGAIN) {
            const enum ft_code rc = ft_store_wait(store, fd, POLLIN, deadline, err);
            if (rc) return rc;
            continue;
        }
        const struct cmsghdr *h = k == 1 ? CMSG_FIRSTHDR(&m) : NULL;
        if (!h || h->cmsg_type != SCM_RIGHTS || h->cmsg_len != CMSG_LEN((size_t)n * sizeof(int)) || (m.msg_flags & MSG_CTRUNC))
            return ft_fail(err, FT_IO, "shared memory was not handed over: %s",
                           k < 0 ? strerror(errno)
                           : k   ? "descriptors missing (RLIMIT_NOFILE?)"
                                 : "the connection closed");
        memcpy(fds, CMSG_DATA(h), (size_t)n * sizeof(int));
        return FT_OK;
    }
}

static enum ft_code hand_out(struct ft_shm *s, struct ft_store *store, int listener, int memfd, int64_t deadline,
                             struct ft_err *err)
{
    int *fds = ft_xcalloc((size_t)s->n + 1, sizeof *fds);
    enum ft_code rc = FT_OK;
    fds[0] = memfd;
    for (int i = 0; i < s->n; i++) fds[i + 1] = s->bells[i];
    for (int done = 1; done < s->n && !rc;) {
        rc = ft_store_wait(store, listener, POLLIN, deadline, err);
        int fd = rc ? -1 : accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) continue;
        struct ucred who = {0};
        socklen_t len = sizeof who;
        if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) && who.uid == geteuid()) {
            for (int at = 0; at < s->n + 1 && !rc; at += FDS_AT_ONCE)
                rc = send_fds(store, fd, fds + at, s->n + 1 - at < FDS_AT_ONCE ? s->n + 1 - at : FDS_AT_ONCE, deadline, err);
            done++;
        }
        ft_close(&fd);
    }
    free(fds);
    return rc;
}

static enum ft_code lead(struct ft_shm *s, struct ft_store *store, const char *key, int64_t deadline, struct ft_err *err)
{
    unsigned char random[16];
    char hex[33], name[64];
    struct sockaddr_un a;
    int memfd = -1, fd = -1;
    enum ft_code rc = make(s, &memfd, err);
    if (!rc) rc = map(s, memfd, err);
    if (!rc && !ft_random(random, sizeof random)) rc = ft_fail(err, FT_IO, "getrandom: %s", strerror(errno));
    if (!rc) {
        ft_hex(random, sizeof random, hex);
        snprintf(name, sizeof name, "ftlaunch/coll/%s", hex);
        const socklen_t len = abstract_name(&a, name);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0 || bind(fd, (struct sockaddr *)&a, len) < 0 || listen(fd, s->n) < 0)
            rc = ft_fail(err, FT_IO, "unix socket for shared memory: %s", strerror(errno));
    }
    if (!rc) rc = ft_store_set(store, key, name, strlen(name), err);
    if (!rc) rc = hand_out(s, store, fd, memfd, deadline, err);
    ft_close(&fd);
    ft_close(&memfd);
    return rc;
}

static enum ft_code follow(struct ft_shm *s, struct ft_store *store, const char *key, int leader, int64_t deadline,
                           struct ft_err *err)
{
    struct ft_buf name = {0};
    struct sockaddr_un a;
    int fd = -1, *fds = ft_xcalloc((size_t)s->n + 1, sizeof *fds);
    for (int i = 0; i <= s->n; i++) fds[i] = -1;
    enum ft_code rc = ft_store_get(store, key, deadline, &name, err);
    if (!rc) {
        const socklen_t len = abstract_name(&a, ft_buf_str(&name));
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&a, len) < 0) {
            rc = ft_fail(err, FT_NET, "no shared memory with rank %d, which has the same NODE_RANK: %s", leader, strerror(errno));
            ft_fix(err, "likely: they run in different containers; give each its own NODE_RANK or one network namespace");
        }
    }
    for (int at = 0; at < s->n + 1 && !rc; at += FDS_AT_ONCE)
        rc = recv_fds(store, fd, fds + at, s->n + 1 - at < FDS_AT_ONCE ? s->n + 1 - at : FDS_AT_ONCE, deadline, err);
    for (int i = 0; i < s->n; i++) s->bells[i] = fds[i + 1];
    if (!rc) rc = map(s, fds[0], err);
    ft_close(&fds[0]);
    ft_close(&fd);
    free(fds);
    ft_buf_fini(&name);
    return rc;
}

enum ft_code ft_shm_open(struct ft_store *store, int node_rank, const int *ranks, int n, int me, int64_t deadline,
                         struct ft_shm **out, struct ft_err *err)
{
    char key[32];
    struct ft_shm *s = ft_xcalloc(1, sizeof *s);
    s->n = n;
    s->me = me;
    s->bells = ft_xcalloc((size_t)n, sizeof *s->bells);
    for (int i = 0; i < n; i++) s->bells[i] = -1;
    snprintf(key, sizeof key, "shm/%d", node_rank);
    const enum ft_code rc = me == 0 ? lead(s, store, key, deadline, err) : follow(s, store, key, ranks[0], deadline, err);
    if (rc) {
        ft_shm_close(s);
        return rc;
    }
    *out = s;
    return FT_OK;
}

void ft_shm_close(struct ft_shm *s)
{
    if (!s) return;
    if (s->base) munmap(s->base, s->bytes);
    for (int i = 0; i < s->n; i++) ft_close(&s->bells[i]);
    free(s->bells);
    free(s);
}
