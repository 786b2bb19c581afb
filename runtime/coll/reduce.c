#include "runtime/coll/reduce.h"

#include <stdint.h>
#include <string.h>

/* Elements of an accumulator: it stays in the first-level cache, and the loops over it have a fixed length, so that the compiler
 * makes vectors of them. Memory-bound: each source is read once, out written once. */
enum { BLOCK = 1024 };

bool ft_reduce_has(enum ft_dtype t, enum ft_reduce op)
{
    return t == FT_F32 || t == FT_F64 || t == FT_BF16 || t == FT_I64 || (t == FT_U8 && op != FT_SUM);
}

/* acc (n) op= x (n), n <= BLOCK */
#define DEFINE_FOLDS(NAME, ACC, TYPE, LOAD, SUM_TYPE)                                                                              \
    static void fold_##NAME(ACC *restrict acc, const TYPE *restrict x, size_t n, enum ft_reduce op)                                \
    {                                                                                                                              \
        if (op == FT_SUM && n == BLOCK) {                                                                                          \
            for (size_t i = 0; i < BLOCK; i++) acc[i] = (ACC)((SUM_TYPE)acc[i] + (SUM_TYPE)LOAD(x[i]));                            \
        } else if (op == FT_SUM) {                                                                                                 \
            for (size_t i = 0; i < n; i++) acc[i] = (ACC)((SUM_TYPE)acc[i] + (SUM_TYPE)LOAD(x[i]));                                \
        } else if (op == FT_MIN) {                                                                                                 \
            for (size_t i = 0; i < n; i++)                                                                                         \
                if ((ACC)LOAD(x[i]) < acc[i] || (IS_NAN((ACC)LOAD(x[i])) && !IS_NAN(acc[i]))) acc[i] = (ACC)LOAD(x[i]);            \
        } else {                                                                                                                   \
            for (size_t i = 0; i < n; i++)                                                                                         \
                if ((ACC)LOAD(x[i]) > acc[i] || (IS_NAN((ACC)LOAD(x[i])) && !IS_NAN(acc[i]))) acc[i] = (ACC)LOAD(x[i]);            \
        }                                                                                                                          \
    }
#define IS_NAN(x) ((x) != (x))
#define SAME(x)   (x)
DEFINE_FOLDS(f32, float, float, SAME, float)
DEFINE_FOLDS(f64, double, double, SAME, double)
DEFINE_FOLDS(bf16, float, uint16_t, ft_bf16_to_f32, float)
DEFINE_FOLDS(i64, int64_t, int64_t, SAME, uint64_t)
DEFINE_FOLDS(u8, uint8_t, uint8_t, SAME, uint8_t)

/* One block of at most BLOCK elements from element `at` on, for types that are summed as they are. */
#define REDUCE_AS_IS(NAME, TYPE)                                                                                                   \
    static void reduce_##NAME(const void *const *src, int n_src, void *out, size_t at, size_t n, enum ft_reduce op)                \
    {                                                                                                                              \
        TYPE acc[BLOCK];                                                                                                           \
        memcpy(acc, (const TYPE *)src[0] + at, n * sizeof(TYPE));                                                                  \
        for (int s = 1; s < n_src; s++) fold_##NAME(acc, (const TYPE *)src[s] + at, n, op);                                        \
        memcpy((TYPE *)out + at, acc, n * sizeof(TYPE));                                                                           \
    }
REDUCE_AS_IS(f32, float)
REDUCE_AS_IS(f64, double)
REDUCE_AS_IS(i64, int64_t)
REDUCE_AS_IS(u8, uint8_t)

static void reduce_bf16(const void *const *src, int n_src, void *out, size_t at, size_t n, enum ft_reduce op)
{
    float acc[BLOCK];
    const uint16_t *first = (const uint16_t *)src[0] + at;
    for (size_t i = 0; i < n; i++) acc[i] = ft_bf16_to_f32(first[i]);
    for (int s = 1; s < n_src; s++) fold_bf16(acc, (const uint16_t *)src[s] + at, n, op);
    uint16_t *o = (uint16_t *)out + at;
    for (size_t i = 0; i < n; i++) o[i] = ft_f32_to_bf16(acc[i]);
}

void ft_reduce_ordered(const void *const *src, int n_src, void *out, size_t n, enum ft_dtype t, enum ft_reduce op)
{
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t k = n - at < BLOCK ? n - at : BLOCK;
        if (t == FT_F32) reduce_f32(src, n_src, out, at, k, op);
        else if (t == FT_F64) reduce_f64(src, n_src, out, at, k, op);
        else if (t == FT_BF16) reduce_bf16(src, n_src, out, at, k, op);
        else if (t == FT_I64) reduce_i64(src, n_src, out, at, k, op);
        else reduce_u8(src, n_src, out, at, k, op);
    }
}
