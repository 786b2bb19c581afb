/* gemm: C cut by shape into tiles, one single-threaded BLAS call per tile and term. Compute-bound. bf16 operands are widened
 * into the worker's scratch, so products and sums are fp32 and C is rounded once. */
#include "kernels/cpu/ops.h"

/* A tile is at most TILE_M x TILE_N, split evenly; large enough that BLAS packs little, small enough that threads share. */
enum { TILE_M = 192, TILE_N = 384 };

struct job {
    struct ft_kctx *k;
    const struct ft_gemm *g;
    int64_t nm, nn, tm, tn;
};

/* rows x cols (as stored) of a bf16 matrix into dense floats. */
static void widen_block(const uint16_t *x, int64_t ld_x, int64_t rows, int64_t cols, float *y)
{
    for (int64_t i = 0; i < rows; i++) widen(x + i * ld_x, cols, y + i * cols);
}

/* Operand block as floats: (m0,m) x (0,k) of op(A); *ld_out its leading dimension as stored. */
static const float *block(enum ft_dtype t, const void *x, int64_t ld_x, bool trans, int64_t m0, int64_t m, int64_t k, float *tmp,
                          int64_t *ld_out)
{
    const int64_t at = trans ? m0 : m0 * ld_x;
    *ld_out = ld_x;
    if (t == FT_F32) return (const float *)x + at;
    widen_block((const uint16_t *)x + at, ld_x, trans ? k : m, trans ? m : k, tmp);
    *ld_out = trans ? m : k;
    return tmp;
}

static void start_tile(const struct ft_gemm *g, int64_t i0, int64_t m, int64_t j0, int64_t n, float *c, int64_t ldc, float *tmp)
{
    for (int64_t i = 0; i < m; i++) {
        float *row = c + i * ldc;
        if (g->add) {
            if (g->c_type != FT_F32) widen((const uint16_t *)g->c + (i0 + i) * g->ldc + j0, n, row);
        } else {
            memset(row, 0, (size_t)n * sizeof *row);
        }
        if (!g->bias) continue;
        const float *b = row_in(g->ab_type, g->bias, j0, n, tmp);
        for (int64_t j = 0; j < n; j++) row[j] += b[j];
    }
}

static void tile(void *arg, int64_t piece, void *scratch)
{
    const struct job *w = arg;
    const struct ft_gemm *g = w->g;
    const int64_t i0 = piece / w->nn * w->tm, j0 = piece % w->nn * w->tn, m = min64(w->tm, g->m - i0), n = min64(w->tn, g->n - j0);
    if (m <= 0 || n <= 0) return;
    float *tmp = scratch, *c = (float *)g->c + i0 * g->ldc + j0;
    int64_t ldc = g->ldc;
    if (g->c_type != FT_F32) {
        c = tmp;
        ldc = n;
        tmp += m * n;
    }
    const bool begun = g->add || g->bias;
    if (begun) start_tile(g, i0, m, j0, n, c, ldc, tmp);
    for (int t = 0; t < g->n_terms; t++) {
        const struct ft_gemm_term *x = &g->term[t];
        int64_t lda, ldb;
        const float *a = block(g->ab_type, x->a, x->lda, x->ta, i0, m, x->k, tmp, &lda);
        const float *b = block(g->ab_type, x->b, x->ldb, !x->tb, j0, n, x->k, g->ab_type == FT_F32 ? NULL : tmp + m * x->k, &ldb);
        ft_cpu_sgemm(w->k, x->ta, x->tb, m, n, x->k, 1, a, lda, b, ldb, begun || t > 0, c, ldc);
    }
    if (g->c_type != FT_F32)
        for (int64_t i = 0; i < m; i++) narrow(c + i * n, n, (uint16_t *)g->c + (i0 + i) * g->ldc + j0);
}

static int64_t even(int64_t n, int64_t most, int64_t *parts)
{
    *parts = max64(1, ceil_div(n, most));
    return ceil_div(ceil_div(n, *parts), 16) * 16;
}

void ISA(gemm)(struct ft_kctx *k, const struct ft_gemm *g)
{
    if (g->m <= 0 || g->n <= 0) return;
    struct job w = {.k = k, .g = g};
    w.tm = even(g->m, TILE_M, &w.nm);
    w.tn = even(g->n, TILE_N, &w.nn);
    int64_t most = 0, scratch = 0;
    for (int t = 0; t < g->n_terms; t++) most = max64(most, g->term[t].k);
    if (g->c_type != FT_F32) scratch += w.tm * w.tn;
    if (g->ab_type != FT_F32) scratch += (w.tm + w.tn) * max64(most, 1);
    ft_cpu_parallel(k, w.nm * w.nn, scratch * (int64_t)sizeof(float), tile, &w);
}
