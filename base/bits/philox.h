/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, SC 2011): a random word is a pure function of a
 * key and a counter. C and CUDA. Sites, keys and counters: docs/design.md, "Random numbers". */
#ifndef FT_BITS_PHILOX_H
#define FT_BITS_PHILOX_H

#include "base/bits/mix64.h"

struct ft_philox_word4 {
    uint32_t v[4];
};

FT_HD struct ft_philox_word4 ft_philox4x32(uint32_t k0, uint32_t k1, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3)
{
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    struct ft_philox_word4 w = {{c0, c1, c2, c3}};
    return w;
}

/* Key of a site in a layer for a seed; low word first. */
FT_HD uint64_t ft_philox_key(uint64_t seed, uint64_t site, uint64_t layer)
{
    return ft_mix64(seed ^ ((site << 32) + layer + 1) * 0x9E3779B97F4A7C15ull);
}

/* Word of element e of row `row` under key. */
FT_HD uint32_t ft_philox_word(uint64_t key, uint64_t row, uint64_t e)
{
    const struct ft_philox_word4 w = ft_philox4x32((uint32_t)key, (uint32_t)(key >> 32), (uint32_t)(e >> 2), (uint32_t)(e >> 34),
                                                   (uint32_t)row, (uint32_t)(row >> 32));
    return w.v[e & 3];
}

#endif
