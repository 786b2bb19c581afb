#include "runtime/data/tally.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/str.h"

static struct ft_tally_entry *find(const struct ft_tally *t, struct ft_hash128 key)
{
    size_t i = (size_t)key.lo & (t->cap - 1);
    while (t->slot[i].n && (t->slot[i].key.hi != key.hi || t->slot[i].key.lo != key.lo)) i = (i + 1) & (t->cap - 1);
    return &t->slot[i];
}

static void grow(struct ft_tally *t)
{
    struct ft_tally big = *t;
    big.cap = t->cap ? 2 * t->cap : 64;
    big.slot = ft_xcalloc(big.cap, sizeof *big.slot);
    for (size_t i = 0; i < t->cap; i++)
        if (t->slot[i].n) *find(&big, t->slot[i].key) = t->slot[i];
    free(t->slot);
    *t = big;
}

void ft_tally_add(struct ft_tally *t, const char *text, size_t n)
{
    const struct ft_hash128 key = ft_xxh3_128(text, n);
    t->total++;
    if (2 * (t->n + 1) > t->cap) grow(t);
    struct ft_tally_entry *e = find(t, key);
    if (!e->n && t->n >= FT_TALLY_MAX) return;
    if (!e->n++) {
        size_t k = n < FT_TALLY_TEXT - 1 ? n : FT_TALLY_TEXT - 1;
        t->n++;
        e->key = key;
        if (k) memcpy(e->text, text, k);
        e->text[ft_utf8_valid(e->text, k)] = 0;
    }
}

const struct ft_tally_entry *ft_tally_top(const struct ft_tally *t)
{
    const struct ft_tally_entry *best = NULL;
    for (size_t i = 0; i < t->cap; i++) {
        const struct ft_tally_entry *e = &t->slot[i];
        if (e->n && (!best || e->n > best->n || (e->n == best->n && strcmp(e->text, best->text) < 0))) best = e;
    }
    return best;
}

void ft_tally_rare(const struct ft_tally *t, double share, void (*visit)(void *ctx, const struct ft_tally_entry *e), void *ctx)
{
    for (size_t i = 0; i < t->cap; i++)
        if (t->slot[i].n && (double)t->slot[i].n < share * (double)t->total) visit(ctx, &t->slot[i]);
}

void ft_tally_fini(struct ft_tally *t)
{
    free(t->slot);
    memset(t, 0, sizeof *t);
}
