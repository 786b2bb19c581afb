#include "runtime/coll/comm.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/str.h"
#include "runtime/coll/build_id.h"
#include "runtime/coll/engine.h"
#include "runtime/coll/exchange.h"
#include "runtime/coll/meeting.h"
#include "runtime/coll/net.h"
#include "runtime/coll/store.h"
#include "topology/place.h"

/* How long rank 0 serves the others after its own orderly end. */
#define LINGER_NS (5 * FT_SEC)

struct group {
    int size, index;
    int *ranks; /* size; ascending in the group's own order */
    uint32_t number;
};

struct ft_comm {
    const struct ft_coll_ops *ops;
    void *self;
    struct ft_store *store;
    struct ft_store_server *server;
    int rank, world;
    int64_t timeout_ns, busy_ns;
    struct group groups[FT_N_GROUPS];
    char note[128];
};

/* --- groups ------------------------------------------------------------------------------------------------------------- */

static void make_group(struct group *g, struct ft_mesh mesh, unsigned axes, int rank)
{
    const int number = ft_mesh_group_of(mesh, axes, rank);
    g->size = ft_mesh_group_size(mesh, axes);
    g->index = ft_mesh_group_index(mesh, axes, rank);
    g->ranks = ft_xcalloc((size_t)g->size, sizeof *g->ranks);
    for (int i = 0; i < g->size; i++) g->ranks[i] = ft_mesh_group_member(mesh, axes, number, i);
}

static void make_groups(struct ft_comm *c, struct ft_mesh mesh)
{
    struct group *world = &c->groups[FT_GROUP_WORLD];
    *world = (struct group){.size = c->world, .index = c->rank, .ranks = ft_xcalloc((size_t)c->world, sizeof(int))};
    for (int r = 0; r < c->world; r++) world->ranks[r] = r;
    make_group(&c->groups[FT_GROUP_TP], mesh, 1u << FT_AXIS_TP, c->rank);
    make_group(&c->groups[FT_GROUP_PP], mesh, 1u << FT_AXIS_PP, c->rank);
    make_group(&c->groups[FT_GROUP_DP], mesh, 1u << FT_AXIS_DP, c->rank);
    /* First and last stage; a stage between them is alone, and so is the only one. */
    const struct group *pp = &c->groups[FT_GROUP_PP];
    struct group *e = &c->groups[FT_GROUP_EMBEDDING];
    const bool end = pp->size > 1 && (pp->index == 0 || pp->index == pp->size - 1);
    *e = (struct group){.size = end ? 2 : 1, .index = end && pp->index, .ranks = ft_xcalloc(2, sizeof(int))};
    e->ranks[0] = end ? pp->ranks[0] : c->rank;
    e->ranks[1] = end ? pp->ranks[pp->size - 1] : c->rank;
}

/* --- open and close ------------------------------------------------------------------------------------------------------ */

static enum ft_code find_engine(const char *wanted, int world, const struct ft_coll_ops **out, struct ft_err *err)
{
    struct ft_buf built = {0};
    const char *name = world == 1 ? "self" : !wanted || !strcmp(wanted, "auto") ? "tcp" : wanted;
    for (const struct ft_coll_entry *e = ft_coll_table; e->name; e++) {
        if (e->ops && strcmp(e->name, "self") != 0) ft_buf_addf(&built, "%s%s", built.n ? ", " : "", e->name);
        if (strcmp(e->name, name) != 0) continue;
        if (!e->ops) {
            ft_fail(err, FT_UNSUPPORTED, "collectives = %s is not built yet", name);
            ft_fix(err, "set collectives = tcp");
        } else if (world > 1 && !strcmp(name, "self")) {
            ft_fail(err, FT_CONFIG, "collectives = self is for one rank, this run has %d", world);
        } else {
            *out = e->ops;
            ft_buf_fini(&built);
            return FT_OK;
        }
        ft_buf_fini(&built);
        return err ? err->code : FT_CONFIG;
    }
    ft_fail(err, FT_CONFIG, "collectives = %s is not known; this build has auto, %s", name, ft_buf_str(&built));
    ft_buf_fini(&built);
    return FT_CONFIG;
}

/* What all ranks must have in common, in the order in which differences are named. */
static void common_text(const struct ft_place *place, struct ft_mesh mesh, const struct ft_comm_options *o, const char *engine,
                        struct ft_buf *b)
{
    char build[FT_BUILD_ID_TEXT];
    ft_build_id(build);
    ft_buf_addf(b, "version=%s\nbuild=%s\nworld=%d\nmesh=", FT_VERSION, build, place->world);
    for (int i = 0; i < FT_N_AXES; i++)
        ft_buf_addf(b, "%s%s %d", i ? ", " : "", ft_axis_name(mesh.order[i]), mesh.size[mesh.order[i]]);
    ft_buf_addf(b, "\ncollectives=%s\n", engine);
    if (o->fingerprint) ft_buf_adds(b, o->fingerprint);
}

static enum ft_code meet(struct ft_comm *c, const struct ft_place *place, struct ft_mesh mesh, const struct ft_comm_options *o,
                         struct ft_err *err)
{
    struct ft_buf text = {0};
    if (!place->master_addr || !place->master_port) {
        ft_fail(err, FT_CONFIG, "rank %d of %d has no %s", place->rank, place->world,
                place->master_addr ? "MASTER_PORT" : "MASTER_ADDR");
        return ft_fix(err, "use ftlaunch run, or set MASTER_ADDR and MASTER_PORT");
    }
    const struct ft_coll_env env = {.place = place, .deadline = ft_net_now() + o->join_ns};
    enum ft_code rc = place->rank == 0 ? ft_store_serve(place, o->join_ns, &c->server, err) : FT_OK;
    common_text(place, mesh, o, c->ops->name, &text);
    if (!rc) rc = ft_store_join(place, ft_buf_str(&text), o->join_ns, &c->store, err);
    ft_buf_fini(&text);
    if (rc) return rc;
    struct ft_coll_env met = env;
    met.store = c->store;
    met.deadline = ft_net_now() + o->join_ns;
    rc = c->ops->open(&met, &c->self, err);
    if (!rc) rc = ft_comm_barrier(c, FT_GROUP_WORLD, err);
    if (rc && rc != FT_COLL) ft_store_abort(c->store, err ? err->text : "its engine did not open");
    return rc;
}

enum ft_code ft_comm_open(const struct ft_place *place, struct ft_mesh mesh, const struct ft_comm_options *o, struct ft_comm **out,
                          struct ft_err *err)
{
    const struct ft_coll_ops *ops = NULL;
    if (ft_mesh_world(mesh) != place->world)
        return ft_fail(err, FT_BUG_FOUND, "a mesh of %d ranks for a world of %d", ft_mesh_world(mesh), place->world);
    enum ft_code rc = find_engine(o->engine, place->world, &ops, err);
    if (rc) return rc;
    struct ft_comm *c = ft_xcalloc(1, sizeof *c);
    c->ops = ops;
    c->rank = place->rank;
    c->world = place->world;
    c->timeout_ns = o->timeout_ns > 0 ? o->timeout_ns : 600 * FT_SEC;
    make_groups(c, mesh);
    if (place->world > 1) {
        struct ft_comm_options limits = *o;
        if (limits.join_ns <= 0) limits.join_ns = 120 * FT_SEC;
        rc = meet(c, place, mesh, &limits, err);
    } else {
        rc = ops->open(NULL, &c->self, err);
    }
    if (rc) {
        ft_comm_close(c);
        return rc;
    }
    c->busy_ns = 0;
    *out = c;
    return FT_OK;
}

void ft_comm_close(struct ft_comm *c)
{
    if (!c) return;
    ft_store_leave(c->store);
    ft_store_stop(c->server, LINGER_NS);
    c->ops->close(c->self);
    for (int g = 0; g < FT_N_GROUPS; g++) free(c->groups[g].ranks);
    free(c);
}

void ft_comm_abort(struct ft_comm *c, const char *why)
{
    if (c && c->store) ft_store_abort(c->store, why ? why : "");
}

int ft_comm_rank(const struct ft_comm *c, enum ft_group g) { return c->groups[g].index; }
int ft_comm_size(const struct ft_comm *c, enum ft_group g) { return c->groups[g].size; }
const char *ft_comm_engine(const struct ft_comm *c) { return c->ops->name; }
int64_t ft_comm_busy_ns(const struct ft_comm *c) { return c->busy_ns; }

void ft_comm_note(struct ft_comm *c, const char *note) { snprintf(c->note, sizeof c->note, "%s", note ? note : ""); }

/* --- one exchange of a group ---------------------------------------------------------------------------------------------- */

/* Freed with step_end. */
struct step {
    struct ft_comm *c;
    struct group *g;
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

static enum ft_code check_message(const struct group *g, const struct ft_message *m, struct ft_err *err)
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
