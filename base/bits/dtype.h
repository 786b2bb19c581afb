/* Element types and their conversions, one rounding (nearest, ties to even). C and CUDA. */
#ifndef FT_BITS_DTYPE_H
#define FT_BITS_DTYPE_H

#include <stddef.h>
#include <string.h>

#include "base/bits/mix64.h"

enum ft_dtype { FT_F32, FT_F16, FT_BF16, FT_F64, FT_I32, FT_I64, FT_U8, FT_I8, FT_BOOL, FT_F8_E4M3, FT_F8_E5M2, FT_N_DTYPES };

FT_HD size_t ft_dtype_bytes(enum ft_dtype t)
{
    return t == FT_F64 || t == FT_I64 ? 8 : t == FT_F32 || t == FT_I32 ? 4 : t == FT_F16 || t == FT_BF16 ? 2 : 1;
}

FT_HD uint32_t ft_f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}
FT_HD float ft_f32_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}

FT_HD float ft_bf16_to_f32(uint16_t h) { return ft_f32_from_bits((uint32_t)h << 16); }
FT_HD uint16_t ft_f32_to_bf16(float x)
{
    const uint32_t u = ft_f32_bits(x);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)((u >> 16) | 0x40u); /* NaN stays NaN */
    return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

FT_HD float ft_f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 0x3FFu;
    if (e == 31) return ft_f32_from_bits(sign | 0x7F800000u | (m << 13));
    if (e) return ft_f32_from_bits(sign | ((e + 112u) << 23) | (m << 13));
    const float sub = (float)m * 5.9604644775390625e-8f; /* 2^-24, exact */
    return sign ? -sub : sub;
}
FT_HD uint16_t ft_f32_to_f16(float x)
{
    const uint32_t u = ft_f32_bits(x), sign = (u >> 16) & 0x8000u, a = u & 0x7FFFFFFFu;
    if (a > 0x7F800000u) return (uint16_t)(sign | 0x7E00u | ((a >> 13) & 0x3FFu));
    if (a >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u); /* >= 65520 rounds to infinity */
    if (a < 0x38800000u) {                                   /* below 2^-14: subnormal */
        if (a < 0x33000000u) return (uint16_t)sign;          /* below 2^-25: zero */
        const uint32_t shift = 126u - (a >> 23), m = (a & 0x7FFFFFu) | 0x800000u;
        const uint32_t q = m >> shift, rest = m & ((1u << shift) - 1u), half = 1u << (shift - 1u);
        return (uint16_t)(sign | (q + (rest > half || (rest == half && (q & 1u)))));
    }
    const uint32_t r = a - 0x38000000u;
    return (uint16_t)(sign | ((r + 0xFFFu + ((r >> 13) & 1u)) >> 13));
}

#endif
