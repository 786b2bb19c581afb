#include "runtime/train/gradsync.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "runtime/coll/comm.h"

static char *weight_at(const struct ft_gradsync *g, int64_t element)
{
    return (char *)g->weights + (size_t)element * ft_dtype_bytes(g->weight_type);
}

void ft_gradsync_zero(const struct ft_gradsync *g) { memset(g->grads, 0, (size_t)g->buckets->total * sizeof *g->grads); }

/* Everything between the parameters, which lie in reverse order of declaration. */
static void zero_padding(const struct ft_gradsync *g)
{
    const struct ft_buckets *b = g->buckets;
    int64_t at = 0;
    for (size_t i = b->n_params; i-- > 0;) {
        memset(g->grads + at, 0, (size_t)(b->place[i].start - at) * sizeof *g->grads);
        at = b->place[i].end;
    }
    memset(g->grads + at, 0, (size_t)(b->total - at) * sizeof *g->grads);
}

/* ---- partial rows: summed over the tensor group, many at a time ---- */

enum { BATCH = 1 << 18 }; /* elements of one sum: few calls for small rows, little memory for large ones */

struct walk {
    size_t param;
    int64_t at; /* elements of it that are done */
};
/* A stretch of a partial row. In the sum each distinct set of replicas has a place of its own, the others' places are zero here. */
struct part {
    float *grad;
    int64_t n, sets, set;
};

/* The next stretch of which all sets fit into `room` elements; false: there is none. */
static bool next_part(const struct ft_gradsync *g, struct walk *w, int64_t room, struct part *out)
{
    const struct ft_buckets *b = g->buckets;
    while (w->param < b->n_params &&
           (g->params[w->param].partial == FT_PARTIAL_NO || w->at == b->place[w->param].end - b->place[w->param].start)) {
        w->param++;
        w->at = 0;
    }
    if (w->param == b->n_params) return false;
    const struct ft_param *p = &g->params[w->param];
    const struct ft_place_in_buffer *place = &b->place[w->param];
    const int64_t left = place->end - place->start - w->at, fits = room / ft_param_sets(p);
    *out = (struct part){g->grads + place->start + w->at, left < fits ? left : fits, ft_param_sets(p), ft_param_set(p)};
    w->at += out->n;
    return out->n > 0;
}

static int64_t fill(const struct ft_gradsync *g, struct walk w, float *sum)
{
    int64_t used = 0;
    for (struct part p; next_part(g, &w, BATCH - used, &p); used += p.sets * p.n) {
        memset(sum + used, 0, (size_t)(p.sets * p.n) * sizeof *sum);
        memcpy(sum + used + p.set * p.n, p.grad, (size_t)p.n * sizeof *sum);
    }
    return used;
}

static void take_back(const struct ft_gradsync *g, struct walk *w, const float *sum)
{
    int64_t used = 0;
    for (struct part p; next_part(g, w, BATCH - used, &p); used += p.sets * p.n)
        memcpy(p.grad, sum + used + p.set * p.n, (size_t)p.n * sizeof *sum);
}

static enum ft_code sum_partial(const struct ft_gradsync *g, struct ft_err *err)
{
    struct walk at = {0};
    struct part any;
    if (!next_part(g, &(struct walk){0}, BATCH, &any)) return FT_OK;
    float *sum = ft_xcalloc(BATCH, sizeof *sum);
    enum ft_code code = FT_OK;
    for (int64_t n; !code && (n = fill(g, at, sum)) > 0; take_back(g, &at, sum))
        code = ft_comm_all_reduce(g->comm, FT_GROUP_TP, sum, n, FT_F32, FT_SUM, err);
    free(sum);
    return code ? ft_wrap(err, "summing gradients over the tensor group") : FT_OK;
}

/* ---- tied copies ---- */

/* Both stages have it in a bucket of its own, cut alike over the data group. */
static enum ft_code sum_tied(const struct ft_gradsync *g, struct ft_err *err)
{
    for (size_t i = 0; i < g->buckets->n_params; i++) {
        if (!g->params[i].tied_copy) continue;
        const struct ft_bucket mine = ft_buckets_shard(g->buckets, g->buckets->place[i].bucket);
        const enum ft_code code = ft_comm_all_reduce(g->comm, FT_GROUP_EMBEDDING, g->grads + mine.start, mine.end - mine.start,
                                                     FT_F32, FT_SUM, err);
        if (code) return ft_wrap(err, "summing the gradient of %s over its two stages", g->params[i].name);
    }
    return FT_OK;
}

enum ft_code ft_gradsync_finish(const struct ft_gradsync *g, struct ft_err *err)
{
    zero_padding(g);
    enum ft_code code = sum_partial(g, err);
    for (size_t k = 0; !code && g->buckets->data > 1 && k < g->buckets->n; k++) {
        const struct ft_bucket whole = g->buckets->v[k], mine = ft_buckets_shard(g->buckets, k);
        code = ft_comm_reduce_scatter(g->comm, FT_GROUP_DP, g->grads + whole.start, g->grads + mine.start, mine.end - mine.start,
                                      FT_F32, FT_SUM, err);
        if (code) ft_wrap(err, "summing gradients over the data group (bucket %zu of %zu)", k + 1, g->buckets->n);
    }
    return code ? code : sum_tied(g, err);
}

enum ft_code ft_gradsync_gather(const struct ft_gradsync *g, struct ft_err *err)
{
    if (g->buckets->data == 1) return FT_OK;
    for (size_t k = 0; k < g->buckets->n; k++) {
        const struct ft_bucket whole = g->buckets->v[k], mine = ft_buckets_shard(g->buckets, k);
        enum ft_code code = ft_comm_all_gather(g->comm, FT_GROUP_DP, weight_at(g, mine.start), weight_at(g, whole.start),
                                               mine.end - mine.start, g->weight_type, err);
        if (code) return ft_wrap(err, "gathering weights over the data group (bucket %zu of %zu)", k + 1, g->buckets->n);
    }
    return FT_OK;
}

/* ---- copies ---- */

/* Hashes to be compared over a group: of each parameter, or of each of its sets. What this rank does not hold is neutral. */
struct hashes {
    int64_t *lo, *hi; /* for MIN and MAX */
    size_t *param;
    size_t n;
};

static struct hashes hashes_of(const struct ft_gradsync *g)
{
    struct hashes h = {0};
    for (size_t i = 0; i < g->buckets->n_params; i++) h.n += (size_t)ft_param_sets(&g->params[i]);
    h.lo = ft_xcalloc(2 * h.n + 1, sizeof *h.lo);
    h.hi = h.lo + h.n;
    h.param = ft_xcalloc(h.n + 1, sizeof *h.param);
    return h;
}

static void hashes_fini(struct hashes *h)
{
    free(h->lo);
    free(h->param);
}

static bool has_copies(const struct ft_param *p, enum ft_group group)
{
    if (group == FT_GROUP_TP) return p->shard == FT_SHARD_NONE || p->partial == FT_PARTIAL_REPLICAS;
    return group == FT_GROUP_DP || p->tied_copy;
}

static void hash_copies(const struct ft_gradsync *g, enum ft_group group, struct hashes *h)
{
    const struct ft_buckets *b = g->buckets;
    const int width = (int)ft_dtype_bytes(g->weight_type);
    h->n = 0;
    for (size_t i = 0; i < b->n_params; i++) {
        const struct ft_param *p = &g->params[i];
        if (!has_copies(p, group)) continue;
        const uint64_t x = ft_logical_hash(weight_at(g, b->place[i].start), (size_t)(b->place[i].end - b->place[i].start), width,
                                           0);
        for (int64_t s = 0; s < ft_param_sets(p); s++, h->n++) {
            const bool mine = group != FT_GROUP_TP || s == ft_param_set(p);
            h->param[h->n] = i;
            h->lo[h->n] = INT64_MAX;
            h->hi[h->n] = INT64_MIN;
            if (!mine) continue;
            memcpy(&h->lo[h->n], &x, sizeof x);
            h->hi[h->n] = h->lo[h->n];
        }
    }
}

enum ft_code ft_gradsync_check_replicas(const struct ft_gradsync *g, size_t *param, struct ft_err *err)
{
    static const struct {
        enum ft_group group;
        const char *what;
    } groups[] = {{FT_GROUP_DP, "data ranks"}, {FT_GROUP_TP, "tensor ranks"}, {FT_GROUP_EMBEDDING, "the first and the last stage"}};
    struct hashes h = hashes_of(g);
    enum ft_code code = FT_OK;
    for (size_t k = 0; !code && k < sizeof groups / sizeof *groups; k++) {
        hash_copies(g, groups[k].group, &h);
        code = ft_comm_all_reduce(g->comm, groups[k].group, h.lo, (int64_t)h.n, FT_I64, FT_MIN, err);
        if (!code) code = ft_comm_all_reduce(g->comm, groups[k].group, h.hi, (int64_t)h.n, FT_I64, FT_MAX, err);
        for (size_t i = 0; !code && i < h.n; i++) {
            if (h.lo[i] == h.hi[i]) continue;
            *param = h.param[i];
            code = ft_fail(err, FT_BUG_FOUND, "the copies of %s differ between %s", g->params[*param].name, groups[k].what);
        }
    }
    hashes_fini(&h);
    return code;
}
