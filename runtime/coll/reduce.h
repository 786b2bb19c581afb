/* The only place where numbers of different ranks are combined: always in ascending order of the members, so the result does not
 * depend on engine, host map or timing. fp32 for F32 and BF16 (one rounding at the end), fp64 for F64, u64 (mod 2^64) for a
 * SUM of I64. MIN and MAX keep the first NaN (a NaN is never hidden) and, of equal values, the first. */
#ifndef FT_RUNTIME_COLL_REDUCE_H
#define FT_RUNTIME_COLL_REDUCE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/bits/dtype.h"
#include "runtime/coll/comm.h"

bool ft_reduce_has(enum ft_dtype t, enum ft_reduce op); /* is this pair built? */
/* out (n) = src[0] op src[1] op …; n elements each; out may be one of the sources. n_src >= 1. */
void ft_reduce_ordered(const void *const *src, int n_src, void *out, size_t n, enum ft_dtype t, enum ft_reduce op);

#endif
