/* The collectives of comm.h: each is one or two exchanges (exchange.h) of a group. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/str.h"
#include "runtime/coll/exchange.h"
#include "runtime/coll/inside.h"
#include "runtime/coll/meeting.h"
#include "runtime/coll/net.h"

/* --- one exchange of a group ---------------------------------------------------------------------------------------------- */

/* Freed with step_end. */
struct step {
    struct ft_comm *c;
    struct ft_comm_group *g;
    struct ft_exchange x;
    uint32_t number; /* of this collective in its group */
    int64_t started;
};

/* Room for n_sends and n_recvs messages. */
static struct step step_make(struct ft_comm *c, enum ft_group g, enum ft_xop op, size_t n_sends, size_t n_recvs)
{
    struct step s = {.c = c, .g = &c->groups[g], .started = ft_net_now()};
    s.x = (struct ft_exchange){
        .ops = c->ops, .self = c->self, .what = (uint32_t)op << 16 | (uint32_t)g, .timeout_ns = c->timeout_ns};
    s.x.sends = ft_xcalloc(n_sends, sizeof *s.x.sends);
    s.x.recvs = ft_xcalloc(n_recvs, sizeof *s.x.recvs);
    return s;
}

/* A collective of the whole group: at most one message to and from every other member at a time. */
static struct step step_begin(struct ft_comm *c, enum ft_group g, enum ft_xop op)
{
    const size_t size = (size_t)c->groups[g].size;
    struct step s = step_make(c, g, op, size, size);
    s.number = ++s.g->number;
    return s;
}

static void to(struct step *s, int member, const void *p, size_t n)
{
    s->x.sends[s->x.n_sends++] = (struct ft_xsend){.peer = s->g->ranks[member], .p = p, .n = n, .number = s->number};
}

static void from(struct step *s, int member, void *p, size_t n)
{
    s->x.recvs[s->x.n_recvs++] = (struct ft_xrecv){.peer = s->g->ranks[member], .p = p, .n = n, .number = s->number};
}

static enum ft_code timed_out(struct step *s, int *missing, size_t n, struct ft_err *err)
{
    struct ft_buf b = {0};
    if (n) ft_ranks_text(&b, missing, n);
    ft_fail(err, FT_TIMEOUT, "%s over %s (%d ranks)%s%s made no progress for %.3g s: %s %s missing", ft_xop_name(s->x.what),
            ft_group_name(s->x.what), s->g->size, *s->c->note ? " at " : "", s->c->note, (double)s->x.timeout_ns / FT_SEC,
            n ? ft_buf_str(&b) : "a rank", n == 1 ? "is" : "are");
    ft_buf_fini(&b);
    return ft_fix(err, "likely: a stopped or much slower rank; [train] collective_timeout is the limit");
}

static enum ft_code step_run(struct step *s, struct ft_err *err)
{
    int *missing = NULL;
    size_t n = 0;
    enum ft_code rc = ft_exchange_run(&s->x, &missing, &n, err);
    if (rc == FT_TIMEOUT) rc = timed_out(s, missing, n, err);
    free(missing);
    s->c->failed |= rc != FT_OK;
    if (rc == FT_COLL)
        ft_wrap(err, "in %s over %s%s%s", ft_xop_name(s->x.what), ft_group_name(s->x.what), *s->c->note ? " at " : "", s->c->note);
    s->x.n_sends = s->x.n_recvs = 0;
    return rc;
}

static void step_end(struct step *s)
{
    s->c->busy_ns += ft_net_now() - s->started;
    free(s->x.sends);
    free(s->x.recvs);
}

/* --- pieces: member i of a group of n_members holds elements [i*each, i*each + each) clipped to n ---------------------------- */

struct pieces {
    size_t n, each; /* bytes */
};

static size_t piece_at(struct pieces p, int i) { return (size_t)i * p.each < p.n ? (size_t)i * p.each : p.n; }
static size_t piece_bytes(struct pieces p, int i) { return piece_at(p, i + 1) - piece_at(p, i); }

/* Everybody gets its piece of in, combined, in out. */
static enum ft_code scatter(struct step *s, const void *in, void *out, struct pieces p, enum ft_dtype t, enum ft_reduce op,
                            struct ft_err *err)
{
    const int me = s->g->index;
    const struct ft_xreduce d = {.own = (const char *)in + piece_at(p, me), .out = out, .own_index = me, .dtype = t, .op = op};
    for (int k = 1; k < s->g->size; k++) {
        const int j = (me + k) % s->g->size; /* not all to the same one first */
        to(s, j, (const char *)in + piece_at(p, j), piece_bytes(p, j));
    }
    for (int j = 0; j < s->g->size; j++)
        if (j != me) from(s, j, NULL, piece_bytes(p, me));
    s->x.reduce = &d;
    const enum ft_code rc = step_run(s, err);
    s->x.reduce = NULL;
    return rc;
}

/* Everybody's piece (mine is at `mine`) goes to its place in all. */
static enum ft_code gather(struct step *s, const void *mine, void *all, struct pieces p, struct ft_err *err)
{
    const int me = s->g->index;
    for (int k = 1; k < s->g->size; k++) to(s, (me + k) % s->g->size, mine, piece_bytes(p, me));
    for (int j = 0; j < s->g->size; j++)
        if (j != me) from(s, j, (char *)all + piece_at(p, j), piece_bytes(p, j));
    char *place = (char *)all + piece_at(p, me);
    if (place != mine && piece_bytes(p, me)) memcpy(place, mine, piece_bytes(p, me));
    return step_run(s, err);
}

/* --- collectives ------------------------------------------------------------------------------------------------------------ */

static enum ft_code check_call(enum ft_dtype t, enum ft_reduce op, int64_t n, struct ft_err *err)
{
    if (n < 0) return ft_fail(err, FT_BUG_FOUND, "a collective over %lld elements", (long long)n);
    if (!ft_reduce_has(t, op)) return ft_fail(err, FT_BUG_FOUND, "no reduction %d for element type %d", (int)op, (int)t);
    return FT_OK;
}

/* Below this many bytes one exchange of everything is faster than two of pieces. Same order, same bits. */
enum { SMALL_BYTES = 4096 };

static enum ft_code all_reduce_small(struct step *s, void *buf, size_t bytes, enum ft_dtype t, enum ft_reduce op,
                                     struct ft_err *err)
{
    _Alignas(16) unsigned char mine[SMALL_BYTES];
    const struct ft_xreduce d = {.own = mine, .out = buf, .own_index = s->g->index, .dtype = t, .op = op};
    memcpy(mine, buf, bytes);
    for (int j = 0; j < s->g->size; j++) {
        if (j == s->g->index) continue;
        to(s, j, mine, bytes);
        from(s, j, NULL, bytes);
    }
    s->x.reduce = &d;
    return step_run(s, err);
}

enum ft_code ft_comm_all_reduce(struct ft_comm *c, enum ft_group g, void *buf, int64_t n, enum ft_dtype t, enum ft_reduce op,
                                struct ft_err *err)
{
    enum ft_code rc = check_call(t, op, n, err);
    if (rc || c->groups[g].size == 1) return rc;
    struct step s = step_begin(c, g, FT_XOP_ALL_REDUCE);
    const size_t bytes = (size_t)n * ft_dtype_bytes(t), size = (size_t)s.g->size;
    if (bytes <= SMALL_BYTES) {
        rc = bytes ? all_reduce_small(&s, buf, bytes, t, op, err) : FT_OK;
    } else {
        const struct pieces p = {.n = bytes, .each = ((bytes + size - 1) / size + 63) & ~(size_t)63};
        char *mine = (char *)buf + piece_at(p, s.g->index);
        rc = scatter(&s, buf, mine, p, t, op, err);
        if (!rc) rc = gather(&s, mine, buf, p, err);
    }
    step_end(&s);
    return rc;
}

enum ft_code ft_comm_reduce_scatter(struct ft_comm *c, enum ft_group g, const void *in, void *out, int64_t n_each, enum ft_dtype t,
                                    enum ft_reduce op, struct ft_err *err)
{
    enum ft_code rc = check_call(t, op, n_each, err);
    if (rc || !n_each) return rc;
    const size_t each = (size_t)n_each * ft_dtype_bytes(t);
    if (c->groups[g].size == 1) {
        if (out != in) memcpy(out, in, each);
        return FT_OK;
    }
    struct step s = step_begin(c, g, FT_XOP_REDUCE_SCATTER);
    rc = scatter(&s, in, out, (struct pieces){.n = each * (size_t)s.g->size, .each = each}, t, op, err);
    step_end(&s);
    return rc;
}

enum ft_code ft_comm_all_gather(struct ft_comm *c, enum ft_group g, const void *in, void *out, int64_t n_each, enum ft_dtype t,
                                struct ft_err *err)
{
    if (n_each < 0) return ft_fail(err, FT_BUG_FOUND, "a collective over %lld elements", (long long)n_each);
    if (!n_each) return FT_OK;
    const size_t each = (size_t)n_each * ft_dtype_bytes(t);
    if (c->groups[g].size == 1) {
        if (out != in) memcpy(out, in, each);
        return FT_OK;
    }
    struct step s = step_begin(c, g, FT_XOP_ALL_GATHER);
    const enum ft_code rc = gather(&s, in, out, (struct pieces){.n = each * (size_t)s.g->size, .each = each}, err);
    step_end(&s);
    return rc;
}

/* From this size on the root gives each of the others a piece and they complete each other. */
enum { BROADCAST_BIG = 1 << 20 };

static enum ft_code broadcast_big(struct step *s, int root, void *buf, size_t bytes, struct ft_err *err)
{
    const int others = s->g->size - 1, me = s->g->index;
    const struct pieces p = {.n = bytes, .each = (bytes + (size_t)others - 1) / (size_t)others};
    for (int j = 0, i = 0; j < s->g->size; j++) {
        if (j == root) continue;
        if (me == root) to(s, j, (char *)buf + piece_at(p, i), piece_bytes(p, i));
        else if (j == me) from(s, root, (char *)buf + piece_at(p, i), piece_bytes(p, i));
        i++;
    }
    const enum ft_code rc = step_run(s, err);
    if (rc || me == root) return rc;
    const int mine = me - (me > root);
    for (int j = 0, i = 0; j < s->g->size; j++) {
        if (j == root) continue;
        if (j != me) {
            to(s, j, (char *)buf + piece_at(p, mine), piece_bytes(p, mine));
            from(s, j, (char *)buf + piece_at(p, i), piece_bytes(p, i));
        }
        i++;
    }
    return step_run(s, err);
}

enum ft_code ft_comm_broadcast(struct ft_comm *c, enum ft_group g, int root, void *buf, int64_t bytes, struct ft_err *err)
{
    if (bytes < 0 || root < 0 || root >= c->groups[g].size)
        return ft_fail(err, FT_BUG_FOUND, "a broadcast of %lld bytes from member %d of %d", (long long)bytes, root,
                       c->groups[g].size);
    if (!bytes || c->groups[g].size == 1) return FT_OK;
    struct step s = step_begin(c, g, FT_XOP_BROADCAST);
    enum ft_code rc;
    if (bytes >= BROADCAST_BIG && s.g->size > 2) {
        rc = broadcast_big(&s, root, buf, (size_t)bytes, err);
    } else {
        for (int j = 0; j < s.g->size && s.g->index == root; j++)
            if (j != root) to(&s, j, buf, (size_t)bytes);
        if (s.g->index != root) from(&s, root, buf, (size_t)bytes);
        rc = step_run(&s, err);
    }
    step_end(&s);
    return rc;
}

/* --- messages between members ------------------------------------------------------------------------------------------------ */

static enum ft_code check_message(const struct ft_comm_group *g, const struct ft_message *m, struct ft_err *err)
{
    if (m->peer >= 0 && m->peer < g->size && m->peer != g->index && m->bytes >= 0) return FT_OK;
    return ft_fail(err, FT_BUG_FOUND, "a message of %lld bytes between members %d and %d of %d", (long long)m->bytes, g->index,
                   m->peer, g->size);
}

/* Appends m behind the messages of its channel. */
static void post(struct step *s, const struct ft_message *m)
{
    s->number = m->tag;
    if (m->way == FT_WAY_SEND) {
        to(s, m->peer, m->out, (size_t)m->bytes);
        struct ft_xsend *last = &s->x.sends[s->x.n_sends - 1];
        for (struct ft_xsend *e = s->x.sends; e < last; e++)
            if (e->peer == last->peer) last->after = e;
    } else {
        from(s, m->peer, m->in, (size_t)m->bytes);
        struct ft_xrecv *last = &s->x.recvs[s->x.n_recvs - 1];
        for (struct ft_xrecv *e = s->x.recvs; e < last; e++)
            if (e->peer == last->peer) last->after = e;
    }
}

enum ft_code ft_comm_exchange(struct ft_comm *c, enum ft_group g, const struct ft_message *m, size_t n, struct ft_err *err)
{
    size_t n_sends = 0;
    for (size_t i = 0; i < n; i++) {
        const enum ft_code rc = check_message(&c->groups[g], &m[i], err);
        if (rc) return rc;
        n_sends += m[i].way == FT_WAY_SEND;
    }
    if (!n) return FT_OK;
    struct step s = step_make(c, g, FT_XOP_EXCHANGE, n_sends, n - n_sends);
    for (size_t i = 0; i < n; i++) post(&s, &m[i]);
    const enum ft_code rc = step_run(&s, err);
    step_end(&s);
    return rc;
}

enum ft_code ft_comm_send(struct ft_comm *c, enum ft_group g, int to_member, const void *buf, int64_t bytes, struct ft_err *err)
{
    const struct ft_message m = {.way = FT_WAY_SEND, .peer = to_member, .bytes = bytes, .out = buf};
    return ft_comm_exchange(c, g, &m, 1, err);
}

enum ft_code ft_comm_recv(struct ft_comm *c, enum ft_group g, int from_member, void *buf, int64_t bytes, struct ft_err *err)
{
    const struct ft_message m = {.way = FT_WAY_RECV, .peer = from_member, .bytes = bytes, .in = buf};
    return ft_comm_exchange(c, g, &m, 1, err);
}

enum ft_code ft_comm_barrier(struct ft_comm *c, enum ft_group g, struct ft_err *err)
{
    if (c->groups[g].size == 1) return FT_OK;
    struct step s = step_begin(c, g, FT_XOP_BARRIER);
    for (int j = 0; j < s.g->size; j++) {
        if (j == s.g->index) continue;
        to(&s, j, NULL, 0);
        from(&s, j, NULL, 0);
    }
    const enum ft_code rc = step_run(&s, err);
    step_end(&s);
    return rc;
}
