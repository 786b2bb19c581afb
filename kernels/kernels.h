/* Every op once, with its shapes. A device fills one table; a NULL entry is an error that names op and device when used.
 *
 * Letters: T tokens of a micro-batch (its rows one after another), h hidden, H query heads, K kv heads, D head dim, q = H*D,
 * kv = K*D, f ffn, V vocabulary; all sizes are local to this rank. Tensors are row-major and dense unless a leading dimension is given.
 * `t` is the working type (FT_F32 or FT_BF16) of activations and weights; statistics, gradients of parameters and logits are
 * fp32. Every result is computed in fp32 and rounded once. Gradients of parameters are ADDED to. NULL for an optional argument
 * is said at the argument. Buffers belong to the caller and live in the device's memory, but for what is marked (host).
 * Results never depend on the number of threads. Ops return when their result may be used by the next op. */
#ifndef FT_KERNELS_KERNELS_H
#define FT_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bits/dtype.h"

struct ft_kctx; /* threads (CPU) or stream (CUDA); one caller at a time */

/* op(A) (m,k) times op(B) (k,n); ta: A is stored (k,m); tb: B is stored (n,k). */
struct ft_gemm_term {
    const void *a, *b;
    int64_t lda, ldb, k;
    bool ta, tb;
};
enum { FT_GEMM_TERMS = 3 };
/* C (m,n) = sum of terms [+ C] [+ bias (n) on every row]; fp32 accumulation, one rounding to c_type. */
struct ft_gemm {
    int64_t m, n, ldc;
    enum ft_dtype ab_type, c_type;
    bool add;         /* + C */
    const void *bias; /* (n) ab_type, or NULL */
    void *c;
    int n_terms;
    struct ft_gemm_term term[FT_GEMM_TERMS];
};

/* The segments of a micro-batch: attention never crosses a border; a row of the run may be cut into several. */
struct ft_segments {
    int64_t n;
    const int32_t *cu;         /* (n+1) (host) first 0, last T */
    const int64_t *rows;       /* (n) (host) row number since the start of the run; NULL: no dropout */
    const int32_t *row_offset; /* (n) (host) index of the segment's first token in its row; NULL: 0 */
};

/* A dropout site: element e of row `row` is dropped iff its Philox word < floor(p * 2^32), else times 1/(1-p). */
struct ft_dropout {
    double p; /* 0: off */
    uint64_t key;
};

struct ft_attn {
    int64_t T, H, K, D;
    int64_t ld_q, ld_kv, ld_out; /* leading dimensions of q, of k and v, of out; the same for their gradients */
    float scale;                 /* 1/sqrt(D) */
    int64_t window;              /* query i sees keys i-window < j <= i; 0: no limit */
    struct ft_segments seg;
    struct ft_dropout drop; /* of probabilities; e = ((head0+head)*S + i)*S + j, i and j counted in the row */
    int64_t head0, S;       /* logical number of local head 0; seq_len */
};

struct ft_adamw {
    /* double, so that 1 - beta2 is rounded once (1 - 0.999f is off by 1e-5); derived factors become fp32 in the kernel */
    double lr, beta1, beta2, eps, weight_decay; /* weight_decay 0 for rows without decay */
    double coef;                                /* clip coefficient, multiplies the gradient */
    double inv_correction1, inv_correction2;    /* 1/(1-beta1^t), 1/(1-beta2^t) */
};

/* Which way a row-wise gather list goes: token lists of equal ids, ascending token numbers in each list (host sorted). */
struct ft_lists {
    int64_t n;            /* distinct rows */
    const int32_t *row;   /* (n) local row of the table */
    const int32_t *start; /* (n+1) into token */
    const int32_t *token; /* (start[n]) */
};

struct ft_kernels {
    const char *device; /* "cpu" */

    void (*gemm)(struct ft_kctx *k, const struct ft_gemm *g);

    /* x (T,h) = E[ids - first_row]; ids outside [first_row, first_row+n_rows) give zeros. E (n_rows,h). */
    void (*embed_fwd)(struct ft_kctx *k, enum ft_dtype t, int64_t T, int64_t h, const int32_t *ids, int64_t first_row,
                      int64_t n_rows, const void *E, void *x);
    /* dE (rows,h) fp32 += sums of dx (T,h) over each list, ascending tokens. */
    void (*embed_bwd)(struct ft_kctx *k, enum ft_dtype t, int64_t h, const struct ft_lists *l, const void *dx, float *dE);
    /* x (T,h) += table[index]: learned positions. */
    void (*add_rows)(struct ft_kctx *k, enum ft_dtype t, int64_t T, int64_t h, const int32_t *index, const void *table, void *x);

    /* s (T,h) = x + delta (delta NULL: s is not written and x is used); y (T,h) = s * rstd * w, rstd (T) = 1/sqrt(mean(s^2)+eps).
     * s may be x. s is rounded before the statistics: recomputing from a stored s gives the same bits. */
    void (*rmsnorm_fwd)(struct ft_kctx *k, enum ft_dtype t, int64_t T, int64_t h, float eps, const void *x, const void *delta,
                        const void *w, void *s, void *y, float *rstd);
    /* dx (T,h) = dres (NULL: 0) + gradient through the norm; dw (h) fp32 += (NULL: frozen). dx may be dres or dy. */
    void (*rmsnorm_bwd)(struct ft_kctx *k, enum ft_dtype t, int64_t T, int64_t h, const void *dy, const void *x, const float *rstd,
                        const void *w, const void *dres, void *dx, float *dw);
    /* The same with mean (T), weight and bias (h); biased variance in two passes. */
    void (*layernorm_fwd)(struct ft_kctx *k, enum ft_dtype t, int64_t T, int64_t h, float eps, const void *x, const void *delta,
                          const void *w, const void *b, void *s, void *y, float *mean, float *rstd);
    void (*layernorm_bwd)(struct ft_kctx *k, enum ft_dtype t, int64_t T, int64_t h, const void *dy, const void *x,
                          const float *mean, const float *rstd, const void *w, const void *dres, void *dx, float *dw, float *db);

    /* In place on the n_heads heads of D at x (T, ld): RMSNorm over D with w (D) and eps (w NULL: none), then half-split rotation
     * by cos/sin (positions, D/2) (NULL: none). pre (T, n_heads*D) receives the heads before the norm and rstd (T,n_heads) its
     * statistics (both NULL without norm). */
    void (*heads_fwd)(struct ft_kctx *k, enum ft_dtype t, int64_t T, int64_t n_heads, int64_t D, int64_t ld, void *x,
                      const int32_t *positions, const float *cos, const float *sin, const void *w, float eps, void *pre,
                      float *rstd);
    /* dx (T, ld) in place: rotation back, then the gradient through the norm; dw (D) fp32 += (NULL: frozen). */
    void (*heads_bwd)(struct ft_kctx *k, enum ft_dtype t, int64_t T, int64_t n_heads, int64_t D, int64_t ld, void *dx,
                      const int32_t *positions, const float *cos, const float *sin, const void *w, const void *pre,
                      const float *rstd, float *dw);

    /* Causal attention inside segments: out (T,H*D), lse (T,H) fp32 = log of the sum of exp(scale*q.k). A query without visible key gives 0. */
    void (*attn_fwd)(struct ft_kctx *k, enum ft_dtype t, const struct ft_attn *a, const void *q, const void *key, const void *v,
                     void *out, float *lse);
    /* dq (T, ld_q), dk, dv (T, ld_kv) are written; dk, dv summed over the query heads of a kv head. */
    void (*attn_bwd)(struct ft_kctx *k, enum ft_dtype t, const struct ft_attn *a, const void *q, const void *key, const void *v,
                     const void *out, const float *lse, const void *dout, void *dq, void *dk, void *dv);

    /* a (n) = silu(gate) * up. */
    void (*swiglu_fwd)(struct ft_kctx *k, enum ft_dtype t, int64_t n, const void *gate, const void *up, void *a);
    /* dgate, dup (n); may be gate, up themselves. */
    void (*swiglu_bwd)(struct ft_kctx *k, enum ft_dtype t, int64_t n, const void *gate, const void *up, const void *da, void *dgate,
                       void *dup);
    /* y (n) = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). dx may be dy. */
    void (*gelu_fwd)(struct ft_kctx *k, enum ft_dtype t, int64_t n, const void *x, void *y);
    void (*gelu_bwd)(struct ft_kctx *k, enum ft_dtype t, int64_t n, const void *x, const void *dy, void *dx);
    /* db (n) fp32 += column sums of dy (T, ld). */
    void (*bias_grad)(struct ft_kctx *k, enum ft_dtype t, int64_t T, int64_t n, const void *dy, int64_t ld, float *db);

    /* out (T,C) = drop(y); e = token_in_row * C_logical + c0 + c. out may be y. The backward is the same call on the gradient. */
    void (*dropout)(struct ft_kctx *k, enum ft_dtype t, const struct ft_dropout *d, const struct ft_segments *s, int64_t C,
                    int64_t C_logical, int64_t c0, const void *y, void *out);

    /* y (n,h) = x[index] ; x (T,h): rows of index = y, all others zero (index ascending). */
    void (*gather_rows)(struct ft_kctx *k, enum ft_dtype t, int64_t n, int64_t h, const int32_t *index, const void *x, void *y);
    void (*scatter_rows)(struct ft_kctx *k, enum ft_dtype t, int64_t T, int64_t n, int64_t h, const int32_t *index, const void *y,
                         void *x);

    /* Cross-entropy of logits z (c, ldz) fp32, the first n_valid columns (others: pads, -inf). Column v is id first+v.
     * max (c) = largest logit; then sum (c) = sum exp(z - max), zy (c) = z[target] - max, or 0 when the target is elsewhere.
     * Between the two a tensor group takes the MAX, behind them the SUM of sum and zy. */
    void (*xent_max)(struct ft_kctx *k, int64_t c, int64_t n_valid, int64_t ldz, const float *z, float *max);
    void (*xent_sum)(struct ft_kctx *k, int64_t c, int64_t n_valid, int64_t ldz, const float *z, const int32_t *targets,
                     int64_t first, const float *max, float *sum, float *zy);
    /* dz (c, n_cols) of type t over the front of z's own memory: element (i,v) at index i*ldd+v with ldd = ldz*4/size(t);
     * (exp(z-max)/sum - [v=target])*scale; columns >= n_valid are zero. */
    void (*xent_bwd)(struct ft_kctx *k, enum ft_dtype t, int64_t c, int64_t n_valid, int64_t n_cols, int64_t ldz, float *z,
                     const int32_t *targets, int64_t first, const float *max, const float *sum, float scale);

    void (*cast)(struct ft_kctx *k, int64_t n, enum ft_dtype from, const void *x, enum ft_dtype to, void *y); /* F32, BF16, F16 */
    void (*add)(struct ft_kctx *k, enum ft_dtype t, int64_t n, const void *x, void *y);                       /* y += x */
    void (*zero)(struct ft_kctx *k, int64_t bytes, void *x);

    /* p, m, v (n) fp32 in place; g (n) fp32; w (n) receives round(p) in w_type, or NULL when p is the working copy itself.
     * p -= p*lr*wd; m = b1 m + (1-b1) g'; v = b2 v + (1-b2) g'^2; p -= lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps). */
    void (*adamw)(struct ft_kctx *k, const struct ft_adamw *a, int64_t n, float *p, float *m, float *v, const float *g, void *w,
                  enum ft_dtype w_type);
    /* Sum of squares of x (n) fp32: 64-element fp32 runs, then fp64, fixed cut: independent of the number of threads. */
    double (*sum_squares)(struct ft_kctx *k, int64_t n, const float *x);
    /* Number of non-finite values of x (n) fp32; index of the first, -1 when there is none. */
    int64_t (*count_nonfinite)(struct ft_kctx *k, int64_t n, const float *x);
    int64_t (*find_nonfinite)(struct ft_kctx *k, int64_t n, const float *x);
};

#endif
