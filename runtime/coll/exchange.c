#include "runtime/coll/exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/coll/net.h"

enum { HEAD = 16, COMBINE_BYTES = 64 << 10 };

struct head {
    uint32_t what, number;
    uint64_t bytes;
};

static size_t whole(size_t n) { return HEAD + ((n + FT_COLL_ALIGN - 1) & ~(size_t)(FT_COLL_ALIGN - 1)); }

const char *ft_xop_name(uint32_t what)
{
    static const char *const names[] = {"?", "all_reduce", "reduce_scatter", "all_gather", "broadcast", "send/recv", "barrier"};
    return what >> 16 <= FT_XOP_BARRIER ? names[what >> 16] : names[0];
}

const char *ft_group_name(uint32_t what)
{
    static const char *const names[] = {"world", "tp", "pp", "dp", "embedding"};
    return (what & 0xFFFF) < FT_N_GROUPS ? names[what & 0xFFFF] : "?";
}

/* Sends what goes now; true when anything did. */
static bool send_some(struct ft_exchange *x, struct ft_xsend *s)
{
    static const unsigned char fill[FT_COLL_ALIGN] = {0};
    const struct head h = {.what = x->what, .number = s->number, .bytes = s->n};
    const size_t end = whole(s->n), before = s->at;
    while (s->at < end) {
        const void *p;
        size_t n;
        if (s->at < HEAD) {
            p = (const unsigned char *)&h + s->at;
            n = HEAD - s->at;
        } else if (s->at < HEAD + s->n) {
            p = (const unsigned char *)s->p + (s->at - HEAD);
            n = HEAD + s->n - s->at;
        } else {
            p = fill;
            n = end - s->at;
        }
        const size_t k = x->ops->push(x->self, s->peer, p, n);
        s->at += k;
        if (k < n) break;
    }
    return s->at != before;
}

static bool send_done(const struct ft_xsend *s) { return s->at == whole(s->n); }
static bool recv_done(const struct ft_xrecv *r) { return r->at == whole(r->n); }

/* A message waits until the one before it in its channel is through. */
static bool send_waits(const struct ft_xsend *s) { return send_done(s) || (s->after && !send_done(s->after)); }
static bool recv_waits(const struct ft_xrecv *r) { return recv_done(r) || (r->after && !recv_done(r->after)); }

/* "send/recv over pp (tag 7, 40 bytes)" */
static void head_text(const struct head *h, char *out, size_t n)
{
    snprintf(out, n, "%s over %s (%s %u, %llu bytes)", ft_xop_name(h->what), ft_group_name(h->what),
             h->what >> 16 == FT_XOP_EXCHANGE ? "tag" : "number", h->number, (unsigned long long)h->bytes);
}

static enum ft_code check_head(const struct ft_exchange *x, const struct ft_xrecv *r, const struct head *h, struct ft_err *err)
{
    const struct head own = {.what = x->what, .number = r->number, .bytes = r->n};
    char theirs[96], ours[96];
    if (!memcmp(h, &own, sizeof own)) return FT_OK;
    head_text(h, theirs, sizeof theirs);
    head_text(&own, ours, sizeof ours);
    return ft_fail(err, FT_BUG_FOUND, "rank %d is in %s, this rank in %s", r->peer, theirs, ours);
}

/* Head and fill are taken whole: peers send them so, but a channel may cut them. */
static enum ft_code take_head(struct ft_exchange *x, struct ft_xrecv *r, bool *moved, struct ft_err *err)
{
    const void *p;
    struct head h;
    r->have = x->ops->peek(x->self, r->peer, &p);
    if (r->have < HEAD) return FT_OK;
    memcpy(&h, p, HEAD);
    x->ops->consume(x->self, r->peer, HEAD);
    r->at = HEAD;
    r->have -= HEAD;
    *moved = true;
    return check_head(x, r, &h, err);
}

static void take_fill(struct ft_exchange *x, struct ft_xrecv *r, bool *moved)
{
    const void *p;
    const size_t rest = whole(r->n) - r->at;
    if (!rest) return;
    r->have = x->ops->peek(x->self, r->peer, &p);
    if (r->have < rest) return;
    x->ops->consume(x->self, r->peer, rest);
    r->at += rest;
    *moved = true;
}

static void store_some(struct ft_exchange *x, struct ft_xrecv *r, bool *moved)
{
    while (r->at < HEAD + r->n) {
        const void *p;
        const size_t left = HEAD + r->n - r->at;
        r->have = x->ops->peek(x->self, r->peer, &p);
        const size_t k = r->have < left ? r->have : left;
        if (!k) return;
        memcpy((unsigned char *)r->p + (r->at - HEAD), p, k);
        x->ops->consume(x->self, r->peer, k);
        r->at += k;
        r->have -= k;
        *moved = true;
    }
}

/* Combines as far as all peers have come. All recvs are at the same place. */
static void combine_some(struct ft_exchange *x, const void **sources, bool *moved)
{
    const struct ft_xreduce *d = x->reduce;
    const size_t size = ft_dtype_bytes(d->dtype);
    for (;;) {
        const size_t done = x->recvs[0].at - HEAD;
        if (done >= x->recvs[0].n) return; /* complete; its fill may be counted already */
        size_t k = x->recvs[0].n - done;
        if (k > COMBINE_BYTES) k = COMBINE_BYTES;
        for (size_t i = 0; i < x->n_recvs; i++) {
            struct ft_xrecv *r = &x->recvs[i];
            r->have = x->ops->peek(x->self, r->peer, &sources[i + ((int)i >= d->own_index)]);
            if (r->have < k) k = r->have;
        }
        k -= k % size;
        if (!k) return;
        sources[d->own_index] = (const unsigned char *)d->own + done;
        ft_reduce_ordered(sources, (int)x->n_recvs + 1, (unsigned char *)d->out + done, k / size, d->dtype, d->op);
        for (size_t i = 0; i < x->n_recvs; i++) {
            x->ops->consume(x->self, x->recvs[i].peer, k);
            x->recvs[i].at += k;
            x->recvs[i].have -= k;
        }
        *moved = true;
    }
}

/* One look at everything. */
static enum ft_code turn(struct ft_exchange *x, const void **sources, bool *moved, bool *done, struct ft_err *err)
{
    bool heads = true, all = true;
    for (size_t i = 0; i < x->n_sends; i++) {
        if (!send_waits(&x->sends[i])) *moved |= send_some(x, &x->sends[i]);
        all &= send_done(&x->sends[i]);
    }
    if (x->ops->flush) x->ops->flush(x->self);
    for (size_t i = 0; i < x->n_recvs; i++) {
        struct ft_xrecv *r = &x->recvs[i];
        if (!recv_waits(r)) {
            if (r->at < HEAD && take_head(x, r, moved, err)) return FT_BUG_FOUND;
            if (!x->reduce && r->at >= HEAD) store_some(x, r, moved);
        }
        heads &= r->at >= HEAD;
    }
    if (x->reduce && x->n_recvs && heads) combine_some(x, sources, moved);
    for (size_t i = 0; i < x->n_recvs; i++) {
        struct ft_xrecv *r = &x->recvs[i];
        if (r->at >= HEAD + r->n) take_fill(x, r, moved);
        all &= recv_done(r);
    }
    *done = all;
    return FT_OK;
}

/* When combining, a peer that is ahead of the others is not waited for. */
static size_t list_wants(const struct ft_exchange *x, struct ft_coll_want *w)
{
    size_t n = 0, least = SIZE_MAX;
    for (size_t i = 0; i < x->n_recvs; i++) {
        const struct ft_xrecv *r = &x->recvs[i];
        if (!recv_waits(r) && r->at + r->have < least) least = r->at + r->have;
    }
    for (size_t i = 0; i < x->n_recvs; i++) {
        const struct ft_xrecv *r = &x->recvs[i];
        if (recv_waits(r) || (x->reduce && r->at >= HEAD && r->at + r->have > least)) continue;
        w[n++] = (struct ft_coll_want){.peer = r->peer, .in = true, .have = r->have};
    }
    for (size_t i = 0; i < x->n_sends; i++)
        if (!send_waits(&x->sends[i])) w[n++] = (struct ft_coll_want){.peer = x->sends[i].peer, .out = true};
    return n;
}

static size_t add_rank(int *v, size_t n, int rank)
{
    for (size_t i = 0; i < n; i++)
        if (v[i] == rank) return n;
    v[n] = rank;
    return n + 1;
}

/* Who has not come: ranks of whose message nothing has arrived; else those that are behind. wants: room for one per message. */
static void list_missing(const struct ft_exchange *x, struct ft_coll_want *wants, int **missing, size_t *n)
{
    int *v = ft_xcalloc(x->n_recvs + x->n_sends + 1, sizeof *v);
    size_t k = 0;
    for (size_t i = 0; i < x->n_recvs; i++)
        if (!recv_waits(&x->recvs[i]) && x->recvs[i].at == 0) k = add_rank(v, k, x->recvs[i].peer);
    const size_t n_wants = k ? 0 : list_wants(x, wants);
    for (size_t i = 0; i < n_wants; i++) k = add_rank(v, k, wants[i].peer);
    *missing = v;
    *n = k;
}

/* Tells the core that we are looking in a circle. */
static void relax(void)
{
#if defined __x86_64__
    __builtin_ia32_pause();
#else
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
#endif
}

enum ft_code ft_exchange_run(struct ft_exchange *x, int **missing, size_t *n_missing, struct ft_err *err)
{
    const void **sources = ft_xcalloc(x->n_recvs + 1, sizeof *sources);
    struct ft_coll_want *wants = NULL;
    const int spins = x->ops->spins(x->self);
    int idle = 0;
    int64_t deadline = 0; /* 0: not waiting yet */
    enum ft_code rc = FT_OK;
    for (bool done = false;;) {
        bool moved = false;
        rc = turn(x, sources, &moved, &done, err);
        if (rc || done) break;
        if (moved) {
            idle = 0;
            deadline = 0;
            continue;
        }
        if (idle++ < spins) {
            relax();
            continue;
        }
        if (!deadline) deadline = ft_net_now() + x->timeout_ns;
        if (!wants) wants = ft_xcalloc(x->n_recvs + x->n_sends + 1, sizeof *wants);
        rc = x->ops->wait(x->self, wants, list_wants(x, wants), deadline, err);
        if (rc == FT_TIMEOUT) list_missing(x, wants, missing, n_missing);
        if (rc) break;
    }
    free(sources);
    free(wants);
    return rc;
}
