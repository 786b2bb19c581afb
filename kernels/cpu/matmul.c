/* gemm: C cut by shape into tiles, one single-threaded BLAS call per tile and term. Compute-bound. bf16 operands are widened
 * into the worker's scratch, so products and sums are fp32 and C is rounded once. */
#include "kernels/cpu/ops.h"

/* About this many multiply-adds a tile: enough tiles for many threads, few enough that BLAS packs little. At most MOST tiles in all
 * and none narrower than LEAST. */
enum { TILE_WORK = 32 << 20, MOST = 128, LEAST = 48 };

/* bf16 operands are widened this many of k at a time, so that a worker's scratch does not grow with the vocabulary. */
enum { K_BLOCK = 512 };

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

/* Rows [m0,m0+m), columns [k0,k0+k) of op(X), widened: as stored, dense. */
static void widen_part(const void *x, int64_t ld_x, bool trans, int64_t m0, int64_t m, int64_t k0, int64_t k, float *out)
{
    if (trans) widen_block((const uint16_t *)x + k0 * ld_x + m0, ld_x, k, m, out);
    else widen_block((const uint16_t *)x + m0 * ld_x + k0, ld_x, m, k, out);
}

/* c (m,n) = [c +] the term's product for rows i0.. and columns j0.. */
static void add_term(const struct job *w, const struct ft_gemm_term *x, int64_t i0, int64_t m, int64_t j0, int64_t n, bool add,
                     float *c, int64_t ldc, float *tmp)
{
    if (w->g->ab_type == FT_F32) {
        const float *a = (const float *)x->a + (x->ta ? i0 : i0 * x->lda), *b = (const float *)x->b + (x->tb ? j0 * x->ldb : j0);
        ft_cpu_sgemm(w->k, x->ta, x->tb, m, n, x->k, 1, a, x->lda, b, x->ldb, add, c, ldc);
        return;
    }
    float *a = tmp, *b = tmp + m * K_BLOCK;
    for (int64_t k0 = 0; k0 < x->k; k0 += K_BLOCK) {
        const int64_t k = min64(K_BLOCK, x->k - k0);
        widen_part(x->a, x->lda, x->ta, i0, m, k0, k, a);
        widen_part(x->b, x->ldb, !x->tb, j0, n, k0, k, b);
        ft_cpu_sgemm(w->k, x->ta, x->tb, m, n, k, 1, a, x->ta ? m : k, b, x->tb ? k : n, add || k0 > 0, c, ldc);
    }
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
    for (int t = 0; t < g->n_terms; t++) add_term(w, &g->term[t], i0, m, j0, n, begun || t > 0, c, ldc, tmp);
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
    int64_t sum = 0, scratch = 0;
    for (int t = 0; t < g->n_terms; t++) sum += g->term[t].k;
    cut(&w, g->m, g->n, sum);
    if (g->c_type != FT_F32) scratch += w.tm * w.tn;
    if (g->ab_type != FT_F32) scratch += (w.tm + w.tn) * K_BLOCK;
    ft_cpu_parallel(k, w.nm * w.nn, scratch * (int64_t)sizeof(float), tile, &w);
}
