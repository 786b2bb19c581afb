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

enum ft_code ft_gradsync_finish(const struct ft_gradsync *g, struct ft_err *err)
{
    zero_padding(g);
    if (g->buckets->data == 1) return FT_OK;
    for (size_t k = 0; k < g->buckets->n; k++) {
        const struct ft_bucket whole = g->buckets->v[k], mine = ft_buckets_shard(g->buckets, k);
        enum ft_code code = ft_comm_reduce_scatter(g->comm, FT_GROUP_DP, g->grads + whole.start, g->grads + mine.start,
                                                   mine.end - mine.start, FT_F32, FT_SUM, err);
        if (code) return ft_wrap(err, "summing gradients over the data group (bucket %zu of %zu)", k + 1, g->buckets->n);
    }
    return FT_OK;
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

enum ft_code ft_gradsync_check_replicas(const struct ft_gradsync *g, size_t *param, struct ft_err *err)
{
    const struct ft_buckets *b = g->buckets;
    if (b->data == 1 || !b->n_params) return FT_OK;
    const int width = (int)ft_dtype_bytes(g->weight_type);
    int64_t *h = ft_xcalloc(b->n_params, 2 * sizeof *h); /* hashes, for MIN, and their copy for MAX */
    int64_t *hi = h + b->n_params;
    for (size_t i = 0; i < b->n_params; i++) {
        const uint64_t x = ft_logical_hash(weight_at(g, b->place[i].start), (size_t)(b->place[i].end - b->place[i].start), width,
                                           0);
        memcpy(&h[i], &x, sizeof x);
        hi[i] = h[i];
    }
    enum ft_code code = ft_comm_all_reduce(g->comm, FT_GROUP_DP, h, (int64_t)b->n_params, FT_I64, FT_MIN, err);
    if (!code) code = ft_comm_all_reduce(g->comm, FT_GROUP_DP, hi, (int64_t)b->n_params, FT_I64, FT_MAX, err);
    for (size_t i = 0; !code && i < b->n_params; i++) {
        if (h[i] == hi[i]) continue;
        *param = i;
        code = ft_fail(err, FT_BUG_FOUND, "the copies of parameter %zu differ between data ranks", i);
    }
    free(h);
    return code;
}
