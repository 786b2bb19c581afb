/* Rows -> a micro-batch for the model: one after another, no pads, labels shifted to the position that predicts them. The buffers
 * belong to the batcher and are used again for every micro-batch.
 *
 *  1. {0} is an empty batcher
 *  2. per micro-batch: ft_batch_begin(), ft_batch_add()…, ft_batch_view()
 *  3. ft_batcher_fini() */
#ifndef FT_RUNTIME_TRAIN_BATCH_H
#define FT_RUNTIME_TRAIN_BATCH_H

#include "runtime/data/dataset.h"
#include "runtime/nn/model.h"

struct ft_batcher {
    int32_t *ids, *positions, *targets; /* (n) */
    int32_t *cu, *row_offset;           /* (n_segments+1), (n_segments) */
    int64_t *rows;                      /* (n_segments) */
    size_t tokens_cap, segments_cap;
    int64_t n, n_segments;
    int64_t n_targets; /* of the micro-batch that is being built */
};

void ft_batch_begin(struct ft_batcher *b);
/* row_no: number of the row since the start of the run (dropout); not used in evaluation. */
void ft_batch_add(struct ft_batcher *b, const struct ft_row *row, int64_t row_no);
/* A one-token row without target: what stands where an epoch has no more rows. */
void ft_batch_add_filler(struct ft_batcher *b, int64_t row_no);
struct ft_batch ft_batch_view(const struct ft_batcher *b); /* valid until the next begin */
void ft_batcher_fini(struct ft_batcher *b);

#endif
