/* Operands of the kernels in the order in which they are read. Memory-bound. bf16 is widened here. */
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu/sgemm.h"

/* Columns 0..3 of LANES rows, turned: out[c] = column c. Four elements of every fourth row make one vector; then 4x4 in each 128 bits. */
#if FT_VBYTES == 64
static inline void turn4(const float *p, int64_t ld_p, float *out, int64_t ld_out)
{
    __m512 r[4];
    for (int i = 0; i < 4; i++) {
        const float *q = p + i * ld_p;
        r[i] = _mm512_castps128_ps512(_mm_loadu_ps(q));
        r[i] = _mm512_insertf32x4(r[i], _mm_loadu_ps(q + 4 * ld_p), 1);
        r[i] = _mm512_insertf32x4(r[i], _mm_loadu_ps(q + 8 * ld_p), 2);
        r[i] = _mm512_insertf32x4(r[i], _mm_loadu_ps(q + 12 * ld_p), 3);
    }
    const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(r[0], r[1])), b = _mm512_castps_pd(_mm512_unpackhi_ps(r[0], r[1])),
                  c = _mm512_castps_pd(_mm512_unpacklo_ps(r[2], r[3])), d = _mm512_castps_pd(_mm512_unpackhi_ps(r[2], r[3]));
    _mm512_storeu_ps(out, _mm512_castpd_ps(_mm512_unpacklo_pd(a, c)));
    _mm512_storeu_ps(out + ld_out, _mm512_castpd_ps(_mm512_unpackhi_pd(a, c)));
    _mm512_storeu_ps(out + 2 * ld_out, _mm512_castpd_ps(_mm512_unpacklo_pd(b, d)));
    _mm512_storeu_ps(out + 3 * ld_out, _mm512_castpd_ps(_mm512_unpackhi_pd(b, d)));
}
#elif FT_VBYTES == 32
static inline void turn4(const float *p, int64_t ld_p, float *out, int64_t ld_out)
{
    __m256 r[4];
    for (int i = 0; i < 4; i++)
        r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + i * ld_p)), _mm_loadu_ps(p + (i + 4) * ld_p), 1);
    const __m256d a = _mm256_castps_pd(_mm256_unpacklo_ps(r[0], r[1])), b = _mm256_castps_pd(_mm256_unpackhi_ps(r[0], r[1])),
                  c = _mm256_castps_pd(_mm256_unpacklo_ps(r[2], r[3])), d = _mm256_castps_pd(_mm256_unpackhi_ps(r[2], r[3]));
    _mm256_storeu_ps(out, _mm256_castpd_ps(_mm256_unpacklo_pd(a, c)));
    _mm256_storeu_ps(out + ld_out, _mm256_castpd_ps(_mm256_unpackhi_pd(a, c)));
    _mm256_storeu_ps(out + 2 * ld_out, _mm256_castpd_ps(_mm256_unpacklo_pd(b, d)));
    _mm256_storeu_ps(out + 3 * ld_out, _mm256_castpd_ps(_mm256_unpackhi_pd(b, d)));
}
#else
static inline void turn4(const float *p, int64_t ld_p, float *out, int64_t ld_out)
{
    for (int c = 0; c < 4; c++)
        for (int r = 0; r < LANES; r++) out[c * ld_out + r] = p[r * ld_p + c];
}
#endif

/* A strip of `rows` <= LANES rows of kc floats, turned: out[k*ld_out + row], zeros for the rows that are missing. */
static void turn(const float *p, int64_t ld_p, int64_t rows, int64_t kc, float *out, int64_t ld_out)
{
    int64_t k = 0;
    if (rows == LANES)
        for (; k + 4 <= kc; k += 4) turn4(p + k, ld_p, out + k * ld_out, ld_out);
    for (; k < kc; k++) {
        float *o = out + k * ld_out;
        for (int64_t r = 0; r < rows; r++) o[r] = p[r * ld_p + k];
        for (int64_t r = rows; r < LANES; r++) o[r] = 0;
    }
}

static void turn_bf16(const uint16_t *p, int64_t ld_p, int64_t rows, int64_t kc, float *out, int64_t ld_out)
{
    enum { W = 64 };
    float tmp[LANES * W];
    for (int64_t k = 0; k < kc; k += W) {
        const int64_t w = min64(W, kc - k);
        for (int64_t r = 0; r < rows; r++) widen(p + r * ld_p + k, w, tmp + r * W);
        turn(tmp, W, rows, w, out + k * ld_out, ld_out);
    }
}

static void rows_of_b(enum ft_dtype t, int64_t kc, int64_t n, const void *b, int64_t ldb, float *dst)
{
    const int64_t vectors = ceil_div(n, LANES);
    for (int64_t k = 0; k < kc; k++)
        for (int64_t v = 0, nv; v < vectors; v += nv) {
            nv = sg_panel(vectors - v);
            const int64_t j = v * LANES, width = nv * LANES, have = min64(width, n - j), at = k * ldb + j;
            float *o = dst + j * kc + k * width;
            if (t != FT_F32) widen((const uint16_t *)b + at, have, o);
            else if (have == SG_NR) memcpy(o, (const float *)b + at, SG_NR * sizeof *o);
            else memcpy(o, (const float *)b + at, (size_t)have * sizeof *o);
            for (int64_t c = have; c < width; c++) o[c] = 0;
        }
}

void ISA(sg_pack_b)(enum ft_dtype t, bool trans, int64_t kc, int64_t n, const void *b, int64_t ldb, float *dst)
{
    if (!trans) {
        rows_of_b(t, kc, n, b, ldb, dst);
        return;
    }
    const int64_t vectors = ceil_div(n, LANES);
    for (int64_t v = 0, nv; v < vectors; v += nv) {
        nv = sg_panel(vectors - v);
        for (int64_t s = v; s < v + nv; s++) {
            const int64_t j = s * LANES, rows = min64(LANES, n - j);
            float *o = dst + v * LANES * kc + (s - v) * LANES;
            if (t == FT_F32) turn((const float *)b + j * ldb, ldb, rows, kc, o, nv * LANES);
            else turn_bf16((const uint16_t *)b + j * ldb, ldb, rows, kc, o, nv * LANES);
        }
    }
}

struct sg_a ISA(sg_pack_a)(enum ft_dtype t, bool trans, int64_t m, int64_t kc, const void *a, int64_t lda, float *dst)
{
    if (!trans) {
        for (int64_t i = 0; i < m; i++)
            if (t == FT_F32) memcpy(dst + i * kc, (const float *)a + i * lda, (size_t)kc * sizeof *dst);
            else widen((const uint16_t *)a + i * lda, kc, dst + i * kc);
        return sg_a_direct(false, dst, kc);
    }
    const int64_t panel = SG_MR * kc + SG_PAD, whole = m / SG_MR, rest = m % SG_MR;
    for (int64_t k = 0; k < kc; k++) {
        float *o = dst + k * SG_MR;
        if (t == FT_F32) {
            const float *x = (const float *)a + k * lda;
            for (int64_t q = 0; q < whole; q++, x += SG_MR, o += panel) memcpy(o, x, SG_MR * sizeof *o);
            for (int64_t i = 0; i < rest; i++) o[i] = x[i];
        } else {
            const uint16_t *x = (const uint16_t *)a + k * lda;
            for (int64_t q = 0; q < whole; q++, x += SG_MR, o += panel) widen(x, SG_MR, o);
            widen(x, rest, o);
        }
    }
    const struct sg_a v = {dst, SG_MR, panel, true};
    return v;
}
