/* What attention's two directions share: blocks of BQ queries by BK keys, a row's visible range, operands as floats. */
#ifndef FT_KERNELS_CPU_ATTN_H
#define FT_KERNELS_CPU_ATTN_H

#include "kernels/cpu/ops.h"

enum { BQ = 64, BK = 256 };

struct attn_job {
    struct ft_kctx *k;
    enum ft_dtype t;
    const struct ft_attn *a;
    const void *q, *key, *v;
    int64_t group; /* query heads of a kv head */
    bool drops;
    struct drop_site site;
};

static inline struct attn_job attn_job(struct ft_kctx *k, enum ft_dtype t, const struct ft_attn *a, const void *q, const void *key,
                                       const void *v)
{
    const struct attn_job j = {k, t, a, q, key, v, a->H / a->K, a->drop.p > 0 && a->seg.rows, drop_site(&a->drop)};
    return j;
}

/* rows x D of one head as floats with leading dimension *ld: the tensor itself, or a widened copy in tmp. */
static inline const float *attn_rows(enum ft_dtype t, const void *x, int64_t ld_x, int64_t row, int64_t rows, int64_t head,
                                     int64_t D, float *tmp, int64_t *ld)
{
    const int64_t at = row * ld_x + head * D;
    *ld = ld_x;
    if (t == FT_F32) return (const float *)x + at;
    for (int64_t i = 0; i < rows; i++) widen((const uint16_t *)x + at + i * ld_x, D, tmp + i * D);
    *ld = D;
    return tmp;
}

/* Keys [*lo, *hi) of the block [j0, j0+n) that query i of its segment sees. */
static inline void attn_visible(const struct ft_attn *a, int64_t i, int64_t j0, int64_t n, int64_t *lo, int64_t *hi)
{
    *hi = max64(0, min64(n, i - j0 + 1));
    *lo = a->window > 0 ? min64(*hi, max64(0, i - a->window + 1 - j0)) : 0;
}
/* First key block that a query block from i0 on needs. */
static inline int64_t attn_first_key(const struct ft_attn *a, int64_t i0)
{
    return a->window > 0 ? max64(0, i0 - a->window + 1) / BK * BK : 0;
}

/* Keep-factors of keys [j0, j0+n) for query i of a segment. */
static inline void attn_drop(const struct attn_job *w, int64_t segment, int64_t head, int64_t i, int64_t j0, int64_t n, float *keep)
{
    const struct ft_segments *s = &w->a->seg;
    const uint64_t first = s->row_offset ? (uint64_t)s->row_offset[segment] : 0, S = (uint64_t)w->a->S;
    const uint64_t e = ((uint64_t)(w->a->head0 + head) * S + first + (uint64_t)i) * S + first + (uint64_t)j0;
    ISA(drop_row)(&w->site, (uint64_t)s->rows[segment], e, n, keep);
}

#endif
