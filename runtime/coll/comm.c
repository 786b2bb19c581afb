#include "runtime/coll/comm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/str.h"
#include "runtime/coll/build_id.h"
#include "runtime/coll/inside.h"
#include "runtime/coll/net.h"
#include "topology/place.h"

/* How long rank 0 serves the others after its own orderly end. */
#define LINGER_NS (5 * FT_SEC)

/* --- groups ------------------------------------------------------------------------------------------------------------- */

static void make_group(struct ft_comm_group *g, struct ft_mesh mesh, unsigned axes, int rank)
{
    const int number = ft_mesh_group_of(mesh, axes, rank);
    g->size = ft_mesh_group_size(mesh, axes);
    g->index = ft_mesh_group_index(mesh, axes, rank);
    g->ranks = ft_xcalloc((size_t)g->size, sizeof *g->ranks);
    for (int i = 0; i < g->size; i++) g->ranks[i] = ft_mesh_group_member(mesh, axes, number, i);
}

static void make_groups(struct ft_comm *c, struct ft_mesh mesh)
{
    struct ft_comm_group *world = &c->groups[FT_GROUP_WORLD];
    *world = (struct ft_comm_group){.size = c->world, .index = c->rank, .ranks = ft_xcalloc((size_t)c->world, sizeof(int))};
    for (int r = 0; r < c->world; r++) world->ranks[r] = r;
    make_group(&c->groups[FT_GROUP_TP], mesh, 1u << FT_AXIS_TP, c->rank);
    make_group(&c->groups[FT_GROUP_PP], mesh, 1u << FT_AXIS_PP, c->rank);
    make_group(&c->groups[FT_GROUP_DP], mesh, 1u << FT_AXIS_DP, c->rank);
    /* First and last stage; a stage between them is alone, and so is the only one. */
    const struct ft_comm_group *pp = &c->groups[FT_GROUP_PP];
    struct ft_comm_group *e = &c->groups[FT_GROUP_EMBEDDING];
    const bool end = pp->size > 1 && (pp->index == 0 || pp->index == pp->size - 1);
    *e = (struct ft_comm_group){.size = end ? 2 : 1, .index = end && pp->index, .ranks = ft_xcalloc(2, sizeof(int))};
    e->ranks[0] = end ? pp->ranks[0] : c->rank;
    e->ranks[1] = end ? pp->ranks[pp->size - 1] : c->rank;
}

/* --- open and close ------------------------------------------------------------------------------------------------------ */

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

static enum ft_code no_master(const struct ft_place *place, struct ft_err *err)
{
    struct ft_err why;
    const struct ft_coll_ops *ops;
    ft_fail(err, FT_CONFIG, "rank %d of %d has no %s", place->rank, place->world,
            place->master_addr ? "MASTER_PORT" : "MASTER_ADDR");
    if (place->pmi == FT_PMI_NONE) return ft_fix(err, "use ftlaunch run, or set MASTER_ADDR and MASTER_PORT");
    if (!ft_coll_choose("mpi", place, &ops, &why)) return ft_fix(err, "set collectives = auto, or MASTER_ADDR and MASTER_PORT");
    return ft_fix(err, "set MASTER_ADDR and MASTER_PORT; MPI could tell rank 0's address, but: %s", why.text);
}

/* What rank 0 tells when nobody else says where it is. */
struct told {
    char addr[64]; /* numeric */
    char token[33];
    int32_t port; /* 0: it cannot serve */
};

/* Rank 0 serves at an address of its choice and the engine tells it. p's addr and token then point into t. */
static enum ft_code tell(struct ft_comm *c, struct ft_place *p, int64_t join_ns, struct told *t, struct ft_err *err)
{
    enum ft_code rc = FT_OK, told;
    unsigned char secret[16];
    memset(t, 0, sizeof *t);
    if (p->rank == 0) {
        if (!ft_random(secret, sizeof secret)) rc = ft_fail(err, FT_IO, "getrandom: %s", strerror(errno));
        ft_hex(secret, sizeof secret, t->token);
        if (p->master_addr) snprintf(t->addr, sizeof t->addr, "%s", p->master_addr);
        else if (p->local_world == p->world) snprintf(t->addr, sizeof t->addr, "127.0.0.1");
        else if (!rc) rc = ft_net_own_address(t->addr, sizeof t->addr, err);
        p->master_addr = t->addr;
        if (!p->token) p->token = t->token;
        if (!rc) rc = ft_store_serve(p, join_ns, &c->server, err);
        if (!rc) t->port = ft_store_port(c->server);
    }
    struct ft_err lost;
    told = c->ops->tell(c->self, t, sizeof *t, ft_net_now() + join_ns, rc ? &lost : err);
    if (rc || told) return rc ? rc : told;
    if (!t->port) return ft_fail(err, FT_COLL, "rank 0 ended: it cannot serve the meeting");
    p->master_addr = t->addr;
    p->master_port = t->port;
    if (!p->token) p->token = t->token;
    return FT_OK;
}

static enum ft_code meet(struct ft_comm *c, const struct ft_place *place, struct ft_mesh mesh, const struct ft_comm_options *o,
                         struct ft_err *err)
{
    struct ft_buf text = {0};
    struct ft_place p = *place;
    struct told told;
    enum ft_code rc = FT_OK;
    struct ft_coll_env env = {.place = &p, .deadline = ft_net_now() + o->join_ns};
    const bool known = p.master_addr && p.master_port;
    if (!known && !c->ops->tell) return no_master(place, err);
    if (c->ops->prepare) rc = c->ops->prepare(&env, &c->self, err);
    if (!rc && !known) rc = tell(c, &p, o->join_ns, &told, err);
    else if (!rc && p.rank == 0) rc = ft_store_serve(&p, o->join_ns, &c->server, err);
    common_text(&p, mesh, o, c->ops->name, &text);
    if (!rc) rc = ft_store_join(&p, ft_buf_str(&text), o->join_ns, &c->store, err);
    ft_buf_fini(&text);
    if (rc) return rc;
    env.store = c->store;
    env.deadline = ft_net_now() + o->join_ns;
    rc = c->ops->open(&env, &c->self, err);
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
    enum ft_code rc = ft_coll_choose(o->engine, place, &ops, err);
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
        c->failed = true;
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
    if (c->ops->end && c->store && !c->failed) c->ops->end(c->self, ft_net_now() + c->timeout_ns);
    ft_store_leave(c->store);
    ft_store_stop(c->server, LINGER_NS);
    c->ops->close(c->self);
    for (int g = 0; g < FT_N_GROUPS; g++) free(c->groups[g].ranks);
    free(c);
}

void ft_comm_abort(struct ft_comm *c, const char *why)
{
    if (!c || !c->store) return;
    c->failed = true;
    ft_store_abort(c->store, why ? why : "");
}

int ft_comm_rank(const struct ft_comm *c, enum ft_group g) { return c->groups[g].index; }
int ft_comm_size(const struct ft_comm *c, enum ft_group g) { return c->groups[g].size; }
const char *ft_comm_engine(const struct ft_comm *c) { return c->ops->name; }
int64_t ft_comm_busy_ns(const struct ft_comm *c) { return c->busy_ns; }

void ft_comm_note(struct ft_comm *c, const char *note) { snprintf(c->note, sizeof c->note, "%s", note ? note : ""); }
