/* Finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64-bit numbers. C and CUDA. */
#ifndef FT_BITS_MIX64_H
#define FT_BITS_MIX64_H

#include <stdint.h>

#ifdef __CUDACC__
#define FT_HD __host__ __device__ static inline
#else
#define FT_HD static inline
#endif

FT_HD uint64_t ft_mix64(uint64_t z)
{
    z ^= z >> 30;
    z *= 0xBF58476D1CE4E5B9ull;
    z ^= z >> 27;
    z *= 0x94D049BB133111EBull;
    z ^= z >> 31;
    return z;
}

#endif
