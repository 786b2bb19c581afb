/* Gathers, scatters, casts, sums of two: copies, memory-bound. */
#include "kernels/cpu/ops.h"

enum { BLOCK = 1024, PIECE = 65536 };

struct rows {
    int64_t n, bytes, per;
    const int32_t *index;
    const char *x;
    char *y;
};

static void gather_piece(void *arg, int64_t piece, void *scratch)
{
    (void)scratch;
    const struct rows *w = arg;
    for (int64_t i = piece * w->per; i < min64(w->n, (piece + 1) * w->per); i++)
        memcpy(w->y + i * w->bytes, w->x + w->index[i] * w->bytes, (size_t)w->bytes);
}

void ISA(gather_rows)(struct ft_kctx *k, enum ft_dtype t, int64_t n, int64_t h, const int32_t *index, const void *x, void *y)
{
    struct rows w = {n, h * (int64_t)ft_dtype_bytes(t), rows_per_piece(h), index, x, y};
    ft_cpu_parallel(k, ceil_div(n, w.per), 0, gather_piece, &w);
}

void ISA(scatter_rows)(struct ft_kctx *k, enum ft_dtype t, int64_t T, int64_t n, int64_t h, const int32_t *index, const void *y,
                       void *x)
{
    (void)k;
    const size_t bytes = (size_t)h * ft_dtype_bytes(t);
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        memset((char *)x + (size_t)at * bytes, 0, (size_t)(index[i] - at) * bytes);
        memcpy((char *)x + (size_t)index[i] * bytes, (const char *)y + (size_t)i * bytes, bytes);
        at = index[i] + 1;
    }
    memset((char *)x + (size_t)at * bytes, 0, (size_t)(T - at) * bytes);
}

struct pair {
    int64_t n;
    enum ft_dtype from, to;
    const void *x;
    void *y;
};

static void to_floats(enum ft_dtype t, const void *x, int64_t at, int64_t n, float *y)
{
    if (t == FT_F16)
        for (int64_t i = 0; i < n; i++) y[i] = ft_f16_to_f32(((const uint16_t *)x)[at + i]);
    else if (t == FT_BF16) widen((const uint16_t *)x + at, n, y);
    else memcpy(y, (const float *)x + at, (size_t)n * sizeof *y);
}

static void cast_piece(void *arg, int64_t piece, void *scratch)
{
    (void)scratch;
    const struct pair *w = arg;
    float tmp[BLOCK];
    for (int64_t at = piece * PIECE; at < min64(w->n, (piece + 1) * PIECE); at += BLOCK) {
        const int64_t n = min64(BLOCK, w->n - at);
        to_floats(w->from, w->x, at, n, tmp);
        if (w->to == FT_F16)
            for (int64_t i = 0; i < n; i++) ((uint16_t *)w->y)[at + i] = ft_f32_to_f16(tmp[i]);
        else if (w->to == FT_BF16) narrow(tmp, n, (uint16_t *)w->y + at);
        else memcpy((float *)w->y + at, tmp, (size_t)n * sizeof *tmp);
    }
}

void ISA(cast)(struct ft_kctx *k, int64_t n, enum ft_dtype from, const void *x, enum ft_dtype to, void *y)
{
    struct pair w = {n, from, to, x, y};
    ft_cpu_parallel(k, ceil_div(n, PIECE), 0, cast_piece, &w);
}

static void add_piece(void *arg, int64_t piece, void *scratch)
{
    (void)scratch;
    const struct pair *w = arg;
    float ta[BLOCK], tb[BLOCK];
    for (int64_t at = piece * PIECE; at < min64(w->n, (piece + 1) * PIECE); at += BLOCK) {
        const int64_t n = min64(BLOCK, w->n - at);
        const float *a = row_in(w->from, w->x, at, n, ta), *b = row_in(w->from, w->y, at, n, tb);
        float *y = row_out(w->from, w->y, at, tb);
        add_rows_of(b, a, n, y);
        row_end(w->from, w->y, at, n, y);
    }
}

void ISA(add)(struct ft_kctx *k, enum ft_dtype t, int64_t n, const void *x, void *y)
{
    struct pair w = {n, t, t, x, y};
    ft_cpu_parallel(k, ceil_div(n, PIECE), 0, add_piece, &w);
}

static void zero_piece(void *arg, int64_t piece, void *scratch)
{
    (void)scratch;
    const struct pair *w = arg;
    const int64_t at = piece * 16 * PIECE;
    memset((char *)w->y + at, 0, (size_t)min64(16 * PIECE, w->n - at));
}

void ISA(zero)(struct ft_kctx *k, int64_t bytes, void *x)
{
    struct pair w = {bytes, FT_U8, FT_U8, NULL, x};
    ft_cpu_parallel(k, ceil_div(bytes, 16 * PIECE), 0, zero_piece, &w);
}
