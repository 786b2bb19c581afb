/* Finishing gradients and spreading weights over the data group (runtime maths, sections 5 and 8).
 * One function finalises gradients, called by every path that ends an update.
 *
 *  1. gradients of all micro-batches were added into the pool (whole buffer, fp32)
 *  2. ft_gradsync_finish()   padding is zeroed, every bucket is reduce-scattered: my shard holds the sum over the group
 *  3. the optimizer changes my shard of the weights
 *  4. ft_gradsync_gather()   every bucket of weights is all-gathered
 * With one data rank 2 only zeroes padding and 4 does nothing. Sums are fp32 on the wire, whatever the weights are. */
#ifndef FT_RUNTIME_TRAIN_GRADSYNC_H
#define FT_RUNTIME_TRAIN_GRADSYNC_H

#include "base/bits/dtype.h"
#include "base/err.h"
#include "runtime/train/buckets.h"

struct ft_comm;

struct ft_gradsync {
    const struct ft_buckets *buckets;
    struct ft_comm *comm; /* the data group is FT_GROUP_DP; NULL: one rank */
    void *weights;        /* buckets->total elements of weight_type */
    enum ft_dtype weight_type;
    float *grads; /* buckets->total */
};

void ft_gradsync_zero(const struct ft_gradsync *g); /* all gradients, before the first micro-batch of an update */
enum ft_code ft_gradsync_finish(const struct ft_gradsync *g, struct ft_err *err) FT_MUST_CHECK;
enum ft_code ft_gradsync_gather(const struct ft_gradsync *g, struct ft_err *err) FT_MUST_CHECK;
/* Replicas are bitwise equal on all data ranks: MIN and MAX of the logical hash of every parameter; FT_BUG_FOUND names the first
 * parameter (index in *param) that differs. */
enum ft_code ft_gradsync_check_replicas(const struct ft_gradsync *g, size_t *param, struct ft_err *err) FT_MUST_CHECK;

#endif
