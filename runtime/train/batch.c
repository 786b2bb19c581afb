#include "runtime/train/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

enum { NO_TARGET = -100 };

void ft_batch_begin(struct ft_batcher *b) { b->n = b->n_segments = b->n_targets = 0; }

static void grow(struct ft_batcher *b, int64_t tokens, int64_t segments)
{
    const size_t n = (size_t)(b->n + tokens), s = (size_t)(b->n_segments + segments) + 1;
    if (n > b->tokens_cap) {
        const size_t cap = n > 2 * b->tokens_cap ? n : 2 * b->tokens_cap;
        b->ids = ft_xrealloc(b->ids, cap, sizeof *b->ids);
        b->positions = ft_xrealloc(b->positions, cap, sizeof *b->positions);
        b->targets = ft_xrealloc(b->targets, cap, sizeof *b->targets);
        b->tokens_cap = cap;
    }
    if (s > b->segments_cap) {
        const size_t cap = s > 2 * b->segments_cap ? s : 2 * b->segments_cap;
        b->cu = ft_xrealloc(b->cu, cap, sizeof *b->cu);
        b->row_offset = ft_xrealloc(b->row_offset, cap, sizeof *b->row_offset);
        b->rows = ft_xrealloc(b->rows, cap, sizeof *b->rows);
        b->segments_cap = cap;
    }
}

/* One sample: positions from 0, the last token predicts nothing. */
static void add_segment(struct ft_batcher *b, const int32_t *ids, const int32_t *labels, int64_t n, int64_t row_no, int32_t offset)
{
    if (!n) return;
    memcpy(b->ids + b->n, ids, (size_t)n * sizeof *ids);
    for (int64_t i = 0; i < n; i++) {
        b->positions[b->n + i] = (int32_t)i;
        const int32_t target = i + 1 < n ? labels[i + 1] : NO_TARGET;
        b->targets[b->n + i] = target;
        b->n_targets += target != NO_TARGET;
    }
    b->cu[b->n_segments] = (int32_t)b->n;
    b->row_offset[b->n_segments] = offset;
    b->rows[b->n_segments] = row_no;
    b->n += n;
    b->n_segments++;
    b->cu[b->n_segments] = (int32_t)b->n;
}

void ft_batch_add(struct ft_batcher *b, const struct ft_row *row, int64_t row_no)
{
    grow(b, row->n_tokens, row->n_segments);
    for (int64_t s = 0; s < row->n_segments; s++) {
        const int32_t from = row->cu_seqlens[s], to = row->cu_seqlens[s + 1];
        add_segment(b, row->ids + from, row->labels + from, to - from, row_no, from);
    }
}

void ft_batch_add_filler(struct ft_batcher *b, int64_t row_no)
{
    static const int32_t id = 0, label = NO_TARGET;
    grow(b, 1, 1);
    add_segment(b, &id, &label, 1, row_no, 0);
}

struct ft_batch ft_batch_view(const struct ft_batcher *b)
{
    return (struct ft_batch){.T = b->n,
                             .ids = b->ids,
                             .positions = b->positions,
                             .targets = b->targets,
                             .n_segments = b->n_segments,
                             .cu_seqlens = b->cu,
                             .rows = b->rows,
                             .row_offset = b->row_offset};
}

void ft_batcher_fini(struct ft_batcher *b)
{
    free(b->ids);
    free(b->positions);
    free(b->targets);
    free(b->cu);
    free(b->row_offset);
    free(b->rows);
    memset(b, 0, sizeof *b);
}
