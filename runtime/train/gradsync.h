/* Finishing gradients and spreading weights (runtime maths, sections 5 and 8). One function finalises gradients, called by every
 * path that ends an update; what a row needs is said by the row (runtime/nn/param.h), never by its name or the layout.
 *
 *  1. gradients of all micro-batches were added into the pool (whole buffer, fp32)
 *  2. ft_gradsync_finish()   padding is zeroed; partial rows are summed over the tensor group or their replicas; every bucket is
 *                            reduce-scattered over the data group: my shard holds the sum; my shard of a tied copy is summed over
 *                            the embedding group, whose two stages cut it alike
 *  3. the optimizer changes my shard of the weights
 *  4. ft_gradsync_gather()   every bucket of weights is all-gathered over the data group
 * Sums are fp32 on the wire, whatever the weights are, in ascending rank order: replicas get the same bits. */
#ifndef FT_RUNTIME_TRAIN_GRADSYNC_H
#define FT_RUNTIME_TRAIN_GRADSYNC_H

#include "base/bits/dtype.h"
#include "base/err.h"
#include "runtime/nn/param.h"
#include "runtime/train/buckets.h"

struct ft_comm;

struct ft_gradsync {
    const struct ft_buckets *buckets;
    const struct ft_param *params; /* [buckets->n_params], in the order of the buckets */
    struct ft_comm *comm;
    void *weights; /* buckets->total elements of weight_type */
    enum ft_dtype weight_type;
    float *grads; /* buckets->total */
};

void ft_gradsync_zero(const struct ft_gradsync *g); /* all gradients, before the first micro-batch of an update */
enum ft_code ft_gradsync_finish(const struct ft_gradsync *g, struct ft_err *err) FT_MUST_CHECK;
enum ft_code ft_gradsync_gather(const struct ft_gradsync *g, struct ft_err *err) FT_MUST_CHECK;
/* Copies are bitwise equal: of every parameter on all data ranks, of replicated ones and K/V replicas in the tensor group, of a tied
 * one on its two stages. MIN and MAX of a hash each; FT_BUG_FOUND names the first parameter (index in *param) that differs. */
enum ft_code ft_gradsync_check_replicas(const struct ft_gradsync *g, size_t *param, struct ft_err *err) FT_MUST_CHECK;

#endif
