/* AdamW over the pieces that this data rank owns, and the gradient norm (Loshchilov and Hutter 2019; runtime maths, section 10).
 * Decay only for parameters with two or more dims. State per owned element: m, v, and a master where the working type is not
 * fp32 (in fp32 the working copy is the master).
 *
 *  1. ft_optimizer_norm_sq()   my part of the sum of squares: distinct logical elements, after the reductions
 *  2. (sum over the world, coef = ft_clip_coef)
 *  3. ft_optimizer_step()      t counts applied updates; writes round(master) into my shard of the weights
 * One thread at a time. Storage belongs to the caller (pools). */
#ifndef FT_RUNTIME_TRAIN_OPTIMIZER_H
#define FT_RUNTIME_TRAIN_OPTIMIZER_H

#include "kernels/kernels.h"
#include "runtime/nn/param.h"
#include "runtime/train/buckets.h"

struct ft_optimizer {
    const struct ft_kernels *kernels;
    struct ft_kctx *kctx;
    const struct ft_buckets *buckets;
    const struct ft_param *params; /* [buckets->n_params], in the order of the buckets */
    int tensor_rank;               /* parameters replicated over the tensor group count on rank 0 */
    double beta1, beta2, eps, weight_decay;
    int64_t t; /* applied updates */

    void *weights; /* whole buffer, weight_type */
    enum ft_dtype weight_type;
    const float *grads; /* whole buffer; only my shards are read */
    float *master;      /* (state_total); NULL when weight_type is FT_F32 */
    float *m, *v;       /* (state_total), zeroed at the start */
};

double ft_optimizer_norm_sq(const struct ft_optimizer *o);
/* min(1, clip/(norm + 1e-6)); 1 when clip is 0 (clipping off). */
double ft_clip_coef(double clip, double norm);
void ft_optimizer_step(struct ft_optimizer *o, double lr, double coef);
/* Where the masters of a piece lie: the working copy itself in fp32. */
float *ft_optimizer_masters(const struct ft_optimizer *o, const struct ft_piece *p);
/* round(master) into the weights for one piece (nothing to do in fp32). */
void ft_optimizer_round(const struct ft_optimizer *o, const struct ft_piece *p);

#endif
