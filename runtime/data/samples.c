#include "runtime/data/samples.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

void ft_samples_fini(struct ft_samples *s)
{
    free(s->ids);
    free(s->labels);
    free(s->v);
    memset(s, 0, sizeof *s);
}

struct ft_hash128 ft_hash_chain(struct ft_hash128 h, const void *p, size_t n)
{
    const struct ft_hash128 pair[2] = {h, ft_xxh3_128(p, n)};
    return ft_xxh3_128(pair, sizeof pair);
}

int32_t ft_samples_add(struct ft_samples *s, const int32_t *ids, const int32_t *labels, int32_t n, int32_t file, int64_t line)
{
    const size_t at = s->n_tokens, more = (size_t)n;
    int32_t trained = 0;
    ft_grow(&s->ids, &s->ids_cap, at + more, sizeof *s->ids);
    ft_grow(&s->labels, &s->labels_cap, at + more, sizeof *s->labels);
    memcpy(s->ids + at, ids, more * sizeof *ids);
    memcpy(s->labels + at, labels, more * sizeof *labels);
    if (n) s->labels[at] = FT_NOT_TRAINED;
    for (size_t i = 0; i < more; i++) trained += s->labels[at + i] != FT_NOT_TRAINED;
    ft_grow(&s->v, &s->cap, s->n + 1, sizeof *s->v);
    s->v[s->n++] = (struct ft_sample){.at = (int64_t)at, .n = n, .trained = trained, .file = file, .line = line};
    s->n_tokens += more;
    s->trained += trained;
    if (n > s->longest) s->longest = n;
    s->hash = ft_hash_chain(s->hash, s->ids + at, more * sizeof *ids);
    s->hash = ft_hash_chain(s->hash, s->labels + at, more * sizeof *labels);
    return trained;
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
    if (2 * (k->n + 1) > k->cap) {
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
