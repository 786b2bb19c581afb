#include <stdlib.h>

#include "base/arena.h"
#include "base/bits/philox.h"
#include "runtime/data/dataset.h"
#include "runtime/data/order.h"

struct keyed {
    uint64_t w;
    int64_t i;
};

static int by_key(const void *pa, const void *pb)
{
    const struct keyed *a = pa, *b = pb;
    if (a->w != b->w) return a->w < b->w ? -1 : 1;
    return (a->i > b->i) - (a->i < b->i);
}

void ft_keyed_order(uint64_t seed, uint64_t site, int64_t epoch, int64_t n, int64_t *perm)
{
    const uint64_t key = ft_philox_key(seed, site, (uint64_t)epoch);
    struct keyed *k = ft_xcalloc((size_t)n + 1, sizeof *k);
    for (int64_t i = 0; i < n; i++) {
        const uint64_t hi = ft_philox_word(key, 0, 2 * (uint64_t)i), lo = ft_philox_word(key, 0, 2 * (uint64_t)i + 1);
        k[i] = (struct keyed){hi << 32 | lo, i};
    }
    qsort(k, (size_t)n, sizeof *k, by_key);
    for (int64_t i = 0; i < n; i++) perm[i] = k[i].i;
    free(k);
}

void ft_epoch_order(uint64_t seed, int64_t epoch, bool shuffle, int64_t n, int64_t *perm)
{
    if (shuffle) ft_keyed_order(seed, FT_SITE_SAMPLES, epoch, n, perm);
    else
        for (int64_t i = 0; i < n; i++) perm[i] = i;
}
