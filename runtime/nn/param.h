/* Parameter rows: ONE list per model that memory plan, pools, sharding, safetensors, optimizer, checkpoints and tests read.
 * Names are Hugging Face's logical names (unfused, unpadded; a tied copy has no row of its own). */
#ifndef FT_RUNTIME_NN_PARAM_H
#define FT_RUNTIME_NN_PARAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ft_shard {
    FT_SHARD_NONE, /* replicated over the tensor group */
    FT_SHARD_DIM0, /* rows are split (column-parallel linears: q k v gate up; embedding, head over the vocabulary) */
    FT_SHARD_DIM1  /* columns are split (row-parallel linears: o, down) */
};

/* What a rank's gradient of a row is before gradients are finished (runtime maths, section 5). */
enum ft_partial {
    FT_PARTIAL_NO,     /* complete, and the same on every rank that holds the same elements */
    FT_PARTIAL_TENSOR, /* a part on every rank of the tensor group: SUM over it (q_norm, k_norm: each rank has only its heads; the norms
                         * of layers with sequence parallelism: only its tokens) */
    FT_PARTIAL_REPLICAS /* a part on each of the t/K ranks that hold the same K/V head: SUM over them */
};

struct ft_param {
    const char *name;  /* "model.layers.3.self_attn.q_proj.weight" */
    int n_dims;        /* 1 or 2 */
    int64_t dims[2];   /* logical shape; dims[1] = 1 when n_dims == 1 */
    int64_t local[2];  /* shape on this rank */
    int64_t origin[2]; /* logical index of local element (0,0) */
    enum ft_shard shard;
    int64_t granule; /* the shard axis is cut at multiples of this (head dim for q k v o, 1 else) */
    int layer;       /* -1: not in a layer */
    bool decay;      /* weight decay applies (>= 2 dims) */
    bool replica;    /* this rank holds a second copy (K/V replicas, tied copy of the last stage): not in norm, not stored */
    bool tied_copy;  /* the embedding of a tied model cut into stages: first and last stage hold a copy each, its gradient is
                      * the SUM over the embedding group */
    enum ft_partial partial;
    double init_std; /* N(0, std) for models from nothing; 0: ones for norm weights, zeros for biases */
};

/* Shards along the split axis that are distinct: K/V replicas share one. Set r of ft_param_sets() is held by this rank. */
static inline int64_t ft_param_sets(const struct ft_param *p)
{
    return p->partial == FT_PARTIAL_REPLICAS ? p->dims[p->shard == FT_SHARD_DIM1] / p->granule : 1;
}
static inline int64_t ft_param_set(const struct ft_param *p)
{
    return p->partial == FT_PARTIAL_REPLICAS ? p->origin[p->shard == FT_SHARD_DIM1] / p->granule : 0;
}

static inline int64_t ft_param_count(const struct ft_param *p) { return p->dims[0] * p->dims[1]; }
static inline int64_t ft_param_local(const struct ft_param *p) { return p->local[0] * p->local[1]; }

#endif
