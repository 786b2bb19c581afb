/* What the kernel tests share: numbers, instruction sets, working types, comparison, finite differences in double. Forward oracles are
 * written in double in the test itself; backwards are compared with central differences of those. */
#ifndef FT_TESTS_KERNELS_ORACLE_H
#define FT_TESTS_KERNELS_ORACLE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits/mix64.h"
#include "kernels/cpu/cpu.h"
#include "kernels/kernels.h"

/* A uniform number in (-1,1), a function of seed and index. */
static inline double noise(uint64_t seed, int64_t i)
{
    return (double)(int64_t)ft_mix64(seed * 0x9E3779B97F4A7C15ull + (uint64_t)i) * 0x1p-63;
}
static inline double *doubles(int64_t n)
{
    double *p = calloc((size_t)(n > 0 ? n : 1), sizeof *p);
    assert_non_null(p);
    return p;
}
/* n numbers of working type t in new memory; exact receives what they are. */
static inline void *operand(enum ft_dtype t, int64_t n, uint64_t seed, double scale, double *exact)
{
    float *p = calloc((size_t)(n > 0 ? n : 1), sizeof *p);
    assert_non_null(p);
    for (int64_t i = 0; i < n; i++) {
        const float x = (float)(noise(seed, i) * scale);
        if (t == FT_F32) p[i] = x;
        else ((uint16_t *)p)[i] = ft_f32_to_bf16(x);
        if (exact) exact[i] = (double)(t == FT_F32 ? x : ft_bf16_to_f32(ft_f32_to_bf16(x)));
    }
    return p;
}
static inline double get(enum ft_dtype t, const void *p, int64_t i)
{
    return (double)(t == FT_F32 ? ((const float *)p)[i] : ft_bf16_to_f32(((const uint16_t *)p)[i]));
}
/* |got - want| <= tol * (|want| + floor) for every element; bf16 results may be off by one rounding more. */
static inline void close_all(const char *what, enum ft_dtype t, const void *got, const double *want, int64_t n, double tol,
                             double floor)
{
    if (t == FT_BF16) tol += 0x1p-8;
    for (int64_t i = 0; i < n; i++) {
        const double g = get(t, got, i);
        if (!(fabs(g - want[i]) <= tol * (fabs(want[i]) + floor)))
            fail_msg("%s (%s): element %lld is %.9g, not %.9g", what, t == FT_F32 ? "fp32" : "bf16", (long long)i, g, want[i]);
    }
}

/* g (n) = gradient of f at x, central differences. */
typedef double scalar_fn(const double *x, void *ctx);
static inline void differences(scalar_fn *f, void *ctx, double *x, int64_t n, double *g)
{
    for (int64_t i = 0; i < n; i++) {
        const double keep = x[i], e = 1e-5;
        x[i] = keep + e;
        const double up = f(x, ctx);
        x[i] = keep - e;
        const double down = f(x, ctx);
        x[i] = keep;
        g[i] = (up - down) / (2 * e);
    }
}

/* Runs fn for every instruction set of this CPU and 1 and 3 threads; fails when none ran. */
static inline void each_set(void (*fn)(const struct ft_kernels *, struct ft_kctx *))
{
    static const char *const sets[] = {"generic", "avx2", "avx512"};
    int ran = 0;
    for (int s = 0; s < 3; s++) {
        const struct ft_kernels *table = ft_cpu_kernels_isa(sets[s]);
        for (int threads = 1; table && threads <= 3; threads += 2) {
            char why[256];
            struct ft_kctx *k = ft_cpu_kctx_create(threads, why, sizeof why);
            if (!k) fail_msg("%s", why);
            fn(table, k);
            ft_cpu_kctx_destroy(k);
            ran++;
        }
    }
    assert_true(ran >= 2);
}

static const enum ft_dtype both_types[] = {FT_F32, FT_BF16};

#endif
