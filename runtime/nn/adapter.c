#include "runtime/nn/adapter.h"

#include "base/err.h"

enum ft_linear_split ft_adapter_split(const struct ft_param *base, int in_axis)
{
    if (base->shard == FT_SHARD_NONE) return FT_LINEAR_WHOLE;
    return (base->shard == FT_SHARD_DIM1) == (in_axis == 1) ? FT_LINEAR_IN : FT_LINEAR_OUT;
}

static struct ft_param factor(const struct ft_param *base, int64_t rows, int64_t columns)
{
    return (struct ft_param){
        .n_dims = 2, .dims = {rows, columns}, .local = {rows, columns}, .granule = 1, .layer = base->layer, .decay = true};
}

/* Axis `to` of the factor is the base's axis `from`, cut alike. */
static void cut(struct ft_param *p, int to, const struct ft_param *base, int from)
{
    p->shard = to ? FT_SHARD_DIM1 : FT_SHARD_DIM0;
    p->local[to] = base->local[from];
    p->origin[to] = base->origin[from];
    p->granule = base->granule;
}

struct ft_adapter ft_adapter_rows(const struct ft_param *base, int in_axis, int64_t r, enum ft_adapter_way way)
{
    const int out_axis = 1 - in_axis;
    const enum ft_linear_split split = ft_adapter_split(base, in_axis);
    if (way == FT_ADAPTER_FUSED && split != FT_LINEAR_IN) FT_BUG("only a row-parallel adapter can join the base's sum");
    struct ft_adapter x = {factor(base, r, base->dims[in_axis]), factor(base, base->dims[out_axis], r), FT_Z_LOCAL};
    if (split == FT_LINEAR_OUT) { /* every rank has all of z, and its own rows of y: dz is a sum over the ranks' rows */
        cut(&x.b, 0, base, out_axis);
        x.b.partial = base->partial; /* K/V replicas: each sees its own query heads only */
        x.b.replica = base->replica;
        x.a.partial = FT_PARTIAL_TENSOR;
        if (way == FT_ADAPTER_SEQUENCE) x.z = FT_Z_GATHER;
    } else if (split == FT_LINEAR_IN) {
        cut(&x.a, 1, base, in_axis);
        if (way == FT_ADAPTER_PLAIN) x.z = FT_Z_SUM; /* z and dy are whole on every rank: so is dB */
        else x.b.partial = FT_PARTIAL_TENSOR;        /* of a partial z (fused), or of this rank's tokens */
        if (way == FT_ADAPTER_SEQUENCE) x.z = FT_Z_SCATTER;
    }
    return x;
}
