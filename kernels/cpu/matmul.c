/* gemm: C cut by shape into tiles, one single-threaded BLAS call per tile and term. Compute-bound. bf16 operands are widened
 * into the worker's scratch, so products and sums are fp32 and C is rounded once. */
#include "kernels/cpu/ops.h"

/* About this many multiply-adds a tile: enough tiles for many threads, few enough that BLAS packs little. At most MOST tiles in all
 * and none narrower than LEAST. */
enum { TILE_WORK = 32 << 20, MOST = 128, LEAST = 48 };

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

/* Cuts m x n into w->nm x w->nn tiles, a function of the shape alone. Each row of tiles packs its part of B again and each column its part
 * of A: of the cuts with enough tiles the one with the least packing. */
static void cut(struct job *w, int64_t m, int64_t n, int64_t k)
{
    const int64_t want = min64(MOST, max64(1, m * n / (TILE_WORK / max64(k, 1) + 1)));
    int64_t best = INT64_MAX;
    w->nm = w->nn = 1;
    for (int64_t nm = 1; nm <= want && (nm == 1 || m / nm >= LEAST); nm++) {
        const int64_t nn = min64(ceil_div(want, nm), max64(1, n / LEAST)), packed = nn * m + nm * n;
        if (packed >= best) continue;
        best = packed;
        w->nm = nm;
        w->nn = nn;
    }
    w->tm = ceil_div(ceil_div(m, w->nm), 16) * 16;
    w->tn = ceil_div(ceil_div(n, w->nn), 16) * 16;
    w->nm = ceil_div(m, w->tm);
    w->nn = ceil_div(n, w->tn);
}

void ISA(gemm)(struct ft_kctx *k, const struct ft_gemm *g)
{
    if (g->m <= 0 || g->n <= 0) return;
    struct job w = {.k = k, .g = g};
    int64_t most = 0, sum = 0, scratch = 0;
    for (int t = 0; t < g->n_terms; t++) {
        most = max64(most, g->term[t].k);
        sum += g->term[t].k;
    }
    cut(&w, g->m, g->n, sum);
    if (g->c_type != FT_F32) scratch += w.tm * w.tn;
    if (g->ab_type != FT_F32) scratch += (w.tm + w.tn) * max64(most, 1);
    ft_cpu_parallel(k, w.nm * w.nn, scratch * (int64_t)sizeof(float), tile, &w);
}
