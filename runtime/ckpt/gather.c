/* Export from the pieces of all ranks, at any layout: rank 0 asks for a range of a parameter, every rank adds what it owns of it, and the
 * sum of bit patterns (everybody else's are zero) is the range. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/ckpt/export.h"
#include "runtime/ckpt/state.h"
#include "runtime/coll/comm.h"

struct gather {
    struct ft_ckpt *c;
    struct ft_ckpt_item *items; /* masters and moments; only the former are read */
    size_t n;
    int64_t *sum; /* [1 + (to-from+1)/2]: how many elements came, then their bits, two at a time */
    int64_t room; /* elements that sum has room for */
};

/* What rank 0 wants next; `to` 0: nothing more. */
struct request {
    int64_t param, from, to;
};

/* Copies what the item has of logical elements [from,to) of a parameter with `columns` columns. Returns how many. */
static int64_t add_item(const struct ft_ckpt_item *it, int64_t columns, int64_t from, int64_t to, float *out)
{
    const struct ft_rect *r = &it->rect;
    const bool whole_rows = r->n[1] == columns;
    const int64_t runs = whole_rows ? 1 : r->n[0], length = whole_rows ? ft_rect_count(r) : r->n[1];
    int64_t first = whole_rows ? 0 : from / columns - r->at[0], n = 0;
    for (int64_t k = first > 0 ? first : 0; k < runs; k++) {
        const int64_t at = (r->at[0] + k) * columns + r->at[1], a = at > from ? at : from, b = at + length < to ? at + length : to;
        if (at >= to) break;
        if (a >= b) continue;
        memcpy(out + (a - from), it->x + k * length + (a - at), (size_t)(b - a) * sizeof *out);
        n += b - a;
    }
    return n;
}

static enum ft_code answer(struct gather *g, const struct request *q, struct ft_err *err)
{
    const int64_t n = q->to - q->from, words = 1 + (n + 1) / 2;
    if (n > g->room) {
        free(g->sum);
        g->sum = ft_xcalloc((size_t)words, sizeof *g->sum);
        g->room = n;
    }
    memset(g->sum, 0, (size_t)words * sizeof *g->sum);
    for (size_t i = 0; i < g->n; i++) {
        const struct ft_ckpt_item *it = &g->items[i];
        if (it->model != (size_t)q->param || it->slot != FT_CKPT_MASTER) continue;
        g->sum[0] += add_item(it, g->c->o.model[q->param].dims[1], q->from, q->to, (float *)(g->sum + 1));
    }
    return ft_comm_all_reduce(g->c->o.comm, FT_GROUP_WORLD, g->sum, words, FT_I64, FT_SUM, err);
}

static enum ft_code fetch(void *ctx, size_t i, int64_t from, int64_t to, float *out, struct ft_err *err)
{
    struct gather *g = ctx;
    struct request q = {(int64_t)i, from, to};
    enum ft_code code = ft_comm_broadcast(g->c->o.comm, FT_GROUP_WORLD, 0, &q, (int64_t)sizeof q, err);
    if (!code) code = answer(g, &q, err);
    if (code) return code;
    if (g->sum[0] != to - from)
        return ft_fail(err, FT_BUG_FOUND, "%s: the ranks own %lld of elements %lld..%lld", g->c->o.model[i].name,
                       (long long)g->sum[0], (long long)from, (long long)to);
    memcpy(out, g->sum + 1, (size_t)(to - from) * sizeof *out);
    return FT_OK;
}

static enum ft_code serve(struct gather *g, struct ft_err *err)
{
    for (;;) {
        struct request q;
        enum ft_code code = ft_comm_broadcast(g->c->o.comm, FT_GROUP_WORLD, 0, &q, (int64_t)sizeof q, err);
        if (code || !q.to) return code;
        code = answer(g, &q, err);
        if (code) return code;
    }
}

enum ft_code ft_ckpt_export(struct ft_ckpt *c, const struct ft_ckpt_piece *pieces, size_t n, const struct ft_export *e,
                            struct ft_err *err)
{
    struct gather g = {.c = c};
    g.items = ft_ckpt_items(c, pieces, n, &g.n);
    enum ft_code code = FT_OK;
    if (c->rank == 0) {
        struct ft_export mine = *e;
        struct request stop = {0, 0, 0};
        struct ft_err lost;
        mine.fetch = fetch;
        mine.ctx = &g;
        code = ft_export_full(&mine, err);
        if (code != FT_COLL && code != FT_TIMEOUT &&
            ft_comm_broadcast(c->o.comm, FT_GROUP_WORLD, 0, &stop, (int64_t)sizeof stop, &lost)) {
            code = lost.code;
            if (err) *err = lost;
        }
    } else {
        code = serve(&g, err);
    }
    free(g.items);
    free(g.sum);
    return code == FT_COLL || code == FT_TIMEOUT ? code : ft_ckpt_share(c, code, err);
}
