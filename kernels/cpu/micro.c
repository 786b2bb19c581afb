/* The kernels: a tile of C in registers over one block of k, and the loop over tiles. One kernel for every height (SG_MR and the
 * powers of two below) and width in vectors; heights left over are made of them. */
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu/sgemm.h"

struct tile {
    struct sg_c c;
    int64_t cols; /* of the last vector's end; less than the kernel's width at the edge */
};
typedef void kernel_fn(int64_t kc, const float *a, int64_t lda, const float *b, int64_t ldb, const struct tile *t);

/* a*b + c: one rounding where the set has it, in every kernel and at every edge alike. */
#if FT_VBYTES == 64
static inline vf fma_v(vf a, vf b, vf c) { return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
static inline vf spread(const float *p) { return (vf)_mm512_set1_ps(*p); }
static inline float fma_1(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#elif FT_VBYTES == 32
static inline vf fma_v(vf a, vf b, vf c) { return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
static inline vf spread(const float *p) { return (vf)_mm256_broadcast_ss(p); }
static inline float fma_1(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
static inline vf fma_v(vf a, vf b, vf c) { return a * b + c; }
static inline vf spread(const float *p) { return all(*p); }
static inline float fma_1(float a, float b, float c)
{
    const vf r = fma_v(all(a), all(b), all(c));
    return r[0];
}
#endif

/* A tile that is cut off at the right or turned: sums (mr, width) come through memory. */
static __attribute__((noinline)) void edge(const float *sum, int64_t mr, int64_t width, const struct tile *t)
{
    const struct sg_c *c = &t->c;
    if (c->turned) {
        for (int64_t j = 0; j < t->cols; j++)
            for (int64_t i = 0; i < mr; i++) {
                const float s = sum[i * width + j];
                c->c[j * c->ld + i] = c->from ? fma_1(c->alpha, s, c->from[j * c->ld_from + i]) : c->alpha * s;
            }
        return;
    }
    for (int64_t i = 0; i < mr; i++)
        for (int64_t j = 0; j < t->cols; j++) {
            const float s = sum[i * width + j];
            c->c[i * c->ld + j] = c->from ? fma_1(c->alpha, s, c->from[i * c->ld_from + j]) : c->alpha * s;
        }
}

/* Each loop over registers is unrolled before the compiler decides where sums live: in registers, then. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 24")
#endif

static inline __attribute__((always_inline)) void kernel(const int mr, const int nv, const bool columns, int64_t kc, const float *a,
                                                         int64_t lda, const float *b, int64_t ldb, const struct tile *t)
{
    vf sum[SG_MR * SG_NV], bv[SG_NV];
    UNROLL
    for (int s = 0; s < mr * nv; s++) sum[s] = (vf){0};
    const bool whole = t->cols == nv * LANES && !t->c.turned;
    if (whole) {
        UNROLL
        for (int s = 0; s < mr * nv; s++) __builtin_prefetch(t->c.c + s / nv * t->c.ld + s % nv * LANES, 1);
    }
    for (int64_t x = 0; x < kc; x++) {
        UNROLL
        for (int v = 0; v < nv; v++) bv[v] = ld(b + v * LANES);
        UNROLL
        for (int s = 0; s < mr * nv; s++) sum[s] = fma_v(spread(columns ? a + s / nv : a + s / nv * lda), bv[s % nv], sum[s]);
        a += columns ? lda : 1;
        b += ldb;
    }
    if (!whole) {
        float out[SG_MR * SG_NR];
        UNROLL
        for (int s = 0; s < mr * nv; s++) st(out + s * LANES, sum[s]);
        edge(out, mr, nv * LANES, t);
        return;
    }
    const vf alpha = spread(&t->c.alpha);
    UNROLL
    for (int s = 0; s < mr * nv; s++) {
        const float *from = t->c.from ? t->c.from + s / nv * t->c.ld_from + s % nv * LANES : NULL;
        st(t->c.c + s / nv * t->c.ld + s % nv * LANES, from ? fma_v(alpha, sum[s], ld(from)) : alpha * sum[s]);
    }
}

#define KERNEL(mr, nv)                                                                                                             \
    static void rows_##mr##x##nv(int64_t kc, const float *a, int64_t lda, const float *b, int64_t ldb, const struct tile *t)       \
    {                                                                                                                              \
        kernel(mr, nv, false, kc, a, lda, b, ldb, t);                                                                              \
    }                                                                                                                              \
    static void columns_##mr##x##nv(int64_t kc, const float *a, int64_t lda, const float *b, int64_t ldb, const struct tile *t)    \
    {                                                                                                                              \
        kernel(mr, nv, true, kc, a, lda, b, ldb, t);                                                                               \
    }
#if FT_VBYTES == 64
#define HEIGHTS(X, nv) X(8, nv) X(4, nv) X(2, nv) X(1, nv)
#define WIDTHS(X)      HEIGHTS(X, 1) HEIGHTS(X, 2) HEIGHTS(X, 3)
static const int heights[] = {8, 4, 2, 1};
#elif FT_VBYTES == 32
#define HEIGHTS(X, nv) X(6, nv) X(4, nv) X(2, nv) X(1, nv)
#define WIDTHS(X)      HEIGHTS(X, 1) HEIGHTS(X, 2)
static const int heights[] = {6, 4, 2, 1};
#else
#define HEIGHTS(X, nv) X(4, nv) X(2, nv) X(1, nv)
#define WIDTHS(X)      HEIGHTS(X, 1) HEIGHTS(X, 2)
static const int heights[] = {4, 2, 1};
#endif
enum { N_HEIGHTS = sizeof heights / sizeof *heights };
WIDTHS(KERNEL)

#define ROWS(mr, nv)    rows_##mr##x##nv,
#define COLUMNS(mr, nv) columns_##mr##x##nv,
static kernel_fn *const kernels[2][SG_NV * N_HEIGHTS] = {{WIDTHS(ROWS)}, {WIDTHS(COLUMNS)}};

void ISA(sg_block)(int64_t m, int64_t n, int64_t kc, struct sg_a a, struct sg_b b, struct sg_c c)
{
    const int64_t vectors = ceil_div(n, LANES), step = a.columns ? 1 : a.ld;
    for (int64_t v = 0, nv; v < vectors; v += nv) {
        nv = sg_panel(vectors - v);
        const int64_t j = v * LANES, ldb = b.ld ? b.ld : nv * LANES;
        const float *bp = b.ld ? b.p + j : b.p + j * kc;
        struct tile t = {.c = c, .cols = min64(nv * LANES, n - j)};
        for (int64_t i = 0; i < m; i += SG_MR) {
            const float *ap = a.p + i / SG_MR * a.panel;
            const int64_t rows = min64(SG_MR, m - i);
            int64_t done = 0;
            for (int h = 0; h < N_HEIGHTS; h++)
                for (; rows - done >= heights[h]; done += heights[h]) {
                    const int64_t r = i + done;
                    t.c.c = c.c + (c.turned ? j * c.ld + r : r * c.ld + j);
                    if (c.from) t.c.from = c.from + (c.turned ? j * c.ld_from + r : r * c.ld_from + j);
                    kernels[a.columns][(nv - 1) * N_HEIGHTS + h](kc, ap + done * step, a.ld, bp, ldb, &t);
                }
        }
    }
}
