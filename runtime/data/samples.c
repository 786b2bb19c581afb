#include "runtime/data/samples.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

struct ft_hash128 ft_hash_chain(struct ft_hash128 h, const void *p, size_t n)
{
    const struct ft_hash128 pair[2] = {h, ft_xxh3_128(p, n)};
    return ft_xxh3_128(pair, sizeof pair);
}

/* Open addressing; the all-zero key marks an empty slot and is stored as all-one. */
static struct ft_hash128 as_stored(struct ft_hash128 k)
{
    if (!k.hi && !k.lo) k.hi = k.lo = UINT64_MAX;
    return k;
}

static size_t slot_of(const struct ft_keyset *k, struct ft_hash128 key)
{
    size_t i = (size_t)key.lo & (k->cap - 1);
    while ((k->v[i].hi || k->v[i].lo) && (k->v[i].hi != key.hi || k->v[i].lo != key.lo)) i = (i + 1) & (k->cap - 1);
    return i;
}

bool ft_keyset_add(struct ft_keyset *k, struct ft_hash128 key)
{
    key = as_stored(key);
    if (4 * (k->n + 1) > 3 * k->cap) {
        struct ft_keyset bigger = {.cap = k->cap ? 2 * k->cap : 64, .n = k->n};
        bigger.v = ft_xcalloc(bigger.cap, sizeof *bigger.v);
        for (size_t i = 0; i < k->cap; i++)
            if (k->v[i].hi || k->v[i].lo) bigger.v[slot_of(&bigger, k->v[i])] = k->v[i];
        free(k->v);
        *k = bigger;
    }
    const size_t i = slot_of(k, key);
    if (k->v[i].hi || k->v[i].lo) return false;
    k->v[i] = key;
    k->n++;
    return true;
}

bool ft_keyset_has(const struct ft_keyset *k, struct ft_hash128 key)
{
    if (!k->cap) return false;
    const size_t i = slot_of(k, as_stored(key));
    return k->v[i].hi || k->v[i].lo;
}

void ft_keyset_fini(struct ft_keyset *k)
{
    free(k->v);
    memset(k, 0, sizeof *k);
}
