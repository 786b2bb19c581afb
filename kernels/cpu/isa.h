/* Vectors of floats as wide as the instruction set this file is compiled for (FT_ISA, FT_VBYTES: kernels/CMakeLists.txt). Every
 * op file is compiled once per set; ISA(name) gives its functions their own names. Included by kernels/cpu op files only. */
#ifndef FT_KERNELS_CPU_ISA_H
#define FT_KERNELS_CPU_ISA_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/bits/dtype.h"
#include "kernels/cpu/cpu.h"
#include "kernels/kernels.h"

#ifndef FT_ISA /* this header alone */
#define FT_ISA    generic
#define FT_VBYTES 16
#endif
#define ISA_JOIN2(a, b) ft_cpu_##a##_##b
#define ISA_JOIN(a, b)  ISA_JOIN2(a, b)
#define ISA(name)       ISA_JOIN(name, FT_ISA)

typedef float vf __attribute__((vector_size(FT_VBYTES)));
typedef int32_t vi __attribute__((vector_size(FT_VBYTES)));
typedef uint32_t vu __attribute__((vector_size(FT_VBYTES)));
typedef uint16_t vh __attribute__((vector_size(FT_VBYTES / 2)));
enum { LANES = FT_VBYTES / 4 };

static inline vf ld(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void st(float *p, vf v) { memcpy(p, &v, sizeof v); }
static inline vf all(float x) { return x - (vf){0}; }
static inline vf pick(vi mask, vf yes, vf no) { return (vf)((mask & (vi)yes) | (~mask & (vi)no)); }
static inline vf vmax(vf a, vf b) { return pick(a > b, a, b); }
static inline float hsum(vf v)
{
    float s = v[0];
    for (int i = 1; i < LANES; i++) s += v[i];
    return s;
}
static inline float hmax(vf v)
{
    float s = v[0];
    for (int i = 1; i < LANES; i++) s = v[i] > s ? v[i] : s;
    return s;
}
/* n < LANES elements; the other lanes are fill. */
static inline vf ld_part(const float *p, int64_t n, float fill)
{
    vf v = all(fill);
    for (int64_t i = 0; i < n; i++) v[i] = p[i];
    return v;
}
static inline void st_part(float *p, vf v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) p[i] = v[i];
}

/* e^x: range reduction by ln 2 in two parts, polynomial of Cephes' expf; 1 ulp in (-87.3, 88.7); 0 below; NaN stays. */
static inline vf vexp(vf x)
{
    const vf lo = all(-87.336544f), hi = all(88.722831f), magic = all(12582912.0f);
    const vi zero = x < lo;
    vf y = pick(x < lo, lo, x);
    y = pick(y > hi, hi, y);
    const vf t = y * 1.44269504088896341f + magic, n = t - magic;
    vf r = y - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    vf p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    /* 2^n in two steps, so that n = 128 does not overflow */
    const vi bits = (vi)t - (vi)magic, half = bits >> 1;
    p = p * (vf)((half + 127) << 23);
    p = p * (vf)(((bits - half) + 127) << 23);
    return pick(zero, all(0), p);
}
static inline float exp1(float x) { return vexp(all(x))[0]; }

/* Iterations of the next loop are independent though its arrays may be one array (same index only). */
#ifdef __clang__
#define IVDEP /* clang checks for overlap itself */
#else
#define IVDEP _Pragma("GCC ivdep")
#endif

/* ---- working types: ops compute on rows of floats; bf16 rows go through a buffer ---- */

static inline void widen(const uint16_t *x, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = ft_f32_from_bits((uint32_t)x[i] << 16);
}
static inline void narrow(const float *x, int64_t n, uint16_t *y)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t u = ft_f32_bits(x[i]), up = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16, nan = (u >> 16) | 0x40u;
        y[i] = (uint16_t)((u & 0x7FFFFFFFu) > 0x7F800000u ? nan : up);
    }
}
/* n elements of x from `at` on as floats: x's own memory, or tmp. */
static inline const float *row_in(enum ft_dtype t, const void *x, int64_t at, int64_t n, float *tmp)
{
    if (t == FT_F32) return (const float *)x + at;
    widen((const uint16_t *)x + at, n, tmp);
    return tmp;
}
static inline float *row_out(enum ft_dtype t, void *y, int64_t at, float *tmp) { return t == FT_F32 ? (float *)y + at : tmp; }
static inline void row_end(enum ft_dtype t, void *y, int64_t at, int64_t n, const float *tmp)
{
    if (t != FT_F32) narrow(tmp, n, (uint16_t *)y + at);
}
/* y = a + b; the arrays may be one array. */
static inline void add_rows_of(const float *a, const float *b, int64_t n, float *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) st(y + i, ld(a + i) + ld(b + i));
    for (; i < n; i++) y[i] = a[i] + b[i];
}
static inline float dot_of(const float *a, const float *b, int64_t n)
{
    vf sum = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) sum += ld(a + i) * ld(b + i);
    float s = hsum(sum);
    for (; i < n; i++) s += a[i] * b[i];
    return s;
}
static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
/* Rows of a row-wise op per piece: about 32k elements. */
static inline int64_t rows_per_piece(int64_t h) { return max64(1, 32768 / max64(h, 1)); }

#endif
