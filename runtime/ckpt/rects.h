/* From flat ranges of a local shard to rectangles of the logical tensor (on-disk formats, section 4), and what is summed over their
 * elements. Pure. Offsets are 64-bit. */
#ifndef FT_RUNTIME_CKPT_RECTS_H
#define FT_RUNTIME_CKPT_RECTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/nn/param.h"

/* Rows [at[0], at[0]+n[0]) and columns [at[1], at[1]+n[1]) of the logical tensor. */
struct ft_rect {
    int64_t at[2], n[2];
    int64_t from; /* local element where it begins: its elements are contiguous in the shard */
};

/* Local elements [a,b) of p: at most three rectangles, clipped to the unpadded shape, none empty. Returns their number. */
int ft_rects(const struct ft_param *p, int64_t a, int64_t b, struct ft_rect out[3]);
static inline int64_t ft_rect_count(const struct ft_rect *r) { return r->n[0] * r->n[1]; }
/* false: they have nothing in common. */
bool ft_rect_meet(const struct ft_rect *a, const struct ft_rect *b, struct ft_rect *out);

struct ft_rect_sums {
    uint64_t hash;      /* of the fp32 values */
    uint64_t hash_bf16; /* of round(value); 0 unless asked for */
    uint64_t nonfinite;
    uint64_t first_nonfinite; /* element of the rectangle */
};
/* Over x (n[0]*n[1]), a dense rectangle of a logical tensor with `columns` columns. */
struct ft_rect_sums ft_rect_sums(const struct ft_rect *r, int64_t columns, const float *x, bool bf16);

#endif
