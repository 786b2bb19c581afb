/* Every op once, with its shapes. A device fills one table; a NULL entry is an error that names op and device when used.
 * Letters as in docs/design.md: T tokens, h hidden, H query heads, K kv heads, D head dim, f ffn, V vocabulary; _l local. */
#ifndef FT_KERNELS_KERNELS_H
#define FT_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bits/dtype.h"

struct ft_kctx; /* threads (CPU) or stream (CUDA); one caller at a time */

struct ft_adamw {
    /* double, so that 1 - beta2 is rounded once (1 - 0.999f is off by 1e-5); derived factors become fp32 in the kernel */
    double lr, beta1, beta2, eps, weight_decay; /* weight_decay 0 for rows without decay */
    double coef;                                /* clip coefficient, multiplies the gradient */
    double inv_correction1, inv_correction2;   /* 1/(1-beta1^t), 1/(1-beta2^t) */
};

struct ft_kernels {
    const char *device; /* "cpu" */

    /* p, m, v (n) fp32 in place; g (n) fp32; w (n) receives round(p) in w_type, or NULL when p is the working copy itself.
     * p -= p*lr*wd; m = b1 m + (1-b1) g'; v = b2 v + (1-b2) g'^2; p -= lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps). */
    void (*adamw)(struct ft_kctx *k, const struct ft_adamw *a, int64_t n, float *p, float *m, float *v, const float *g, void *w,
                  enum ft_dtype w_type);
    /* Sum of squares of x (n) fp32: 64-element fp32 runs, then fp64, fixed cut: independent of the number of threads. */
    double (*sum_squares)(struct ft_kctx *k, int64_t n, const float *x);
    /* Number of non-finite values of x (n). */
    int64_t (*count_nonfinite)(struct ft_kctx *k, int64_t n, const float *x);
};

#endif
