/* The ops of one instruction set, each with the type of its entry in struct ft_kernels. */
#ifndef FT_KERNELS_CPU_OPS_H
#define FT_KERNELS_CPU_OPS_H

#include "kernels/cpu/isa.h"

#define OP(name) extern __typeof__(*((const struct ft_kernels *)0)->name) ISA(name)
OP(gemm);
OP(embed_fwd);
OP(embed_bwd);
OP(add_rows);
OP(rmsnorm_fwd);
OP(rmsnorm_bwd);
OP(layernorm_fwd);
OP(layernorm_bwd);
OP(heads_fwd);
OP(heads_bwd);
OP(attn_fwd);
OP(attn_bwd);
OP(swiglu_fwd);
OP(swiglu_bwd);
OP(gelu_fwd);
OP(gelu_bwd);
OP(bias_grad);
OP(dropout);
OP(gather_rows);
OP(scatter_rows);
OP(xent_max);
OP(xent_sum);
OP(xent_bwd);
OP(cast);
OP(add);
OP(zero);
OP(adamw);
OP(sum_squares);
OP(count_nonfinite);
OP(find_nonfinite);
#undef OP

extern const struct ft_kernels ISA(table);

/* C (m,n) = alpha op(A) op(B) [+ C], row-major fp32, in the calling worker only; op(A) (m,k), stored (k,m) when ta; op(B) (k,n), stored
 * (n,k) when tb. An element's bits depend on its row of A, its column of B and k alone (cpu/sgemm.h). */
void ISA(sgemm)(struct ft_kctx *k, bool ta, bool tb, int64_t m, int64_t n, int64_t kk, float alpha, const float *a, int64_t lda,
                const float *b, int64_t ldb, bool add, float *c, int64_t ldc);

/* y (n) fp32 += the n_slices rows of partial (n_slices, n), ascending. */
void ISA(add_slices)(struct ft_kctx *k, int64_t n_slices, int64_t n, const float *partial, float *y);

/* One row's keep-factors: out[j] = 0 or 1/(1-p) for elements e0+j of row `row`. */
struct drop_site {
    uint64_t key;
    uint64_t threshold; /* floor(p * 2^32); 2^32 drops all */
    float scale;
};
static inline struct drop_site drop_site(const struct ft_dropout *d)
{
    const struct drop_site s = {d->key, (uint64_t)(d->p * 4294967296.0), (float)(1.0 / (1.0 - d->p))};
    return s;
}
void ISA(drop_row)(const struct drop_site *s, uint64_t row, uint64_t e0, int64_t n, float *out);

#endif
