#include "runtime/data/pack.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"

/* Open packs by free tokens: a stack for every capacity, and three levels of bitmaps to find the next capacity that is not empty. */
struct bins {
    int64_t *head;      /* (row+1) pack number + 1 on top of the stack; 0: empty */
    uint64_t *level[4]; /* bit c of level 0: head[c]; bit of the next level: a word of the one below */
    size_t words[4];
};

static void bins_init(struct bins *b, int32_t row)
{
    size_t bits = (size_t)row + 1;
    b->head = ft_xcalloc(bits, sizeof *b->head);
    for (int l = 0; l < 4; l++) {
        b->words[l] = (bits + 63) / 64;
        b->level[l] = ft_xcalloc(b->words[l], sizeof *b->level[l]);
        bits = b->words[l];
    }
}

static void bins_fini(struct bins *b)
{
    free(b->head);
    for (int l = 0; l < 4; l++) free(b->level[l]);
}

static void mark(struct bins *b, size_t c)
{
    for (int l = 0; l < 4; l++, c /= 64) b->level[l][c / 64] |= 1ull << (c % 64);
}

static void unmark(struct bins *b, size_t c)
{
    for (int l = 0; l < 4; l++, c /= 64) {
        b->level[l][c / 64] &= ~(1ull << (c % 64));
        if (b->level[l][c / 64]) return;
    }
}

/* The smallest marked capacity >= c; SIZE_MAX: none. */
static size_t next_marked(const struct bins *b, size_t c)
{
    int l = 0;
    size_t i = c;
    while (l < 4) { /* up: a word with a bit at or behind i */
        const size_t w = i / 64;
        if (w >= b->words[l]) return SIZE_MAX;
        const uint64_t rest = b->level[l][w] >> (i % 64);
        if (rest) {
            i += (size_t)__builtin_ctzll(rest);
            break;
        }
        i = w + 1;
        l++;
    }
    if (l == 4) return SIZE_MAX;
    for (; l > 0; l--) i = 64 * i + (size_t)__builtin_ctzll(b->level[l - 1][i]); /* down */
    return i;
}

struct packer {
    struct bins bins;
    int64_t *below;   /* (packs) next in the stack of its capacity, +1 */
    int32_t *free_of; /* (packs) */
    int64_t *pack_of; /* (n) by place in `sorted` */
    int64_t n_packs;
};

static void push(struct packer *p, int64_t pack)
{
    const size_t c = (size_t)p->free_of[pack];
    p->below[pack] = p->bins.head[c];
    p->bins.head[c] = pack + 1;
    mark(&p->bins, c);
}

static int64_t pop(struct packer *p, size_t c)
{
    const int64_t pack = p->bins.head[c] - 1;
    p->bins.head[c] = p->below[pack];
    if (!p->bins.head[c]) unmark(&p->bins, c);
    return pack;
}

/* Longest first, stable. */
static void sort_window(const int32_t *lengths, const int64_t *order, int64_t n, int32_t row, int64_t *count, int64_t *sorted)
{
    memset(count, 0, ((size_t)row + 2) * sizeof *count);
    for (int64_t i = 0; i < n; i++) count[row - lengths[order[i]] + 1]++;
    for (int32_t c = 1; c <= row; c++) count[c] += count[c - 1];
    for (int64_t i = 0; i < n; i++) sorted[count[row - lengths[order[i]]]++] = order[i];
}

static void pack_window(struct packer *p, const int32_t *lengths, const int64_t *sorted, int64_t n, int32_t row, int64_t *pack_of)
{
    const int64_t first = p->n_packs;
    for (int64_t i = 0; i < n; i++) {
        const int32_t len = lengths[sorted[i]];
        const size_t c = next_marked(&p->bins, (size_t)len);
        int64_t pack = p->n_packs;
        if (c == SIZE_MAX) p->free_of[p->n_packs++] = row;
        else pack = pop(p, c);
        p->free_of[pack] -= len;
        pack_of[i] = pack;
        if (p->free_of[pack]) push(p, pack);
    }
    for (int64_t k = first; k < p->n_packs; k++) /* the window's packs are closed */
        if (p->free_of[k] && p->bins.head[p->free_of[k]]) {
            p->bins.head[p->free_of[k]] = 0;
            unmark(&p->bins, (size_t)p->free_of[k]);
        }
}

struct ft_packs ft_pack(const int32_t *lengths, const int64_t *order, int64_t n, int32_t row, int64_t window)
{
    struct packer p = {.n_packs = 0};
    struct ft_packs out = {.n = n};
    const size_t room = (size_t)n + 1;
    int64_t *sorted = ft_xcalloc(room, sizeof *sorted), *count = ft_xcalloc((size_t)row + 2, sizeof *count);
    bins_init(&p.bins, row);
    p.below = ft_xcalloc(room, sizeof *p.below), p.free_of = ft_xcalloc(room, sizeof *p.free_of),
    p.pack_of = ft_xcalloc(room, sizeof *p.pack_of);
    for (int64_t i = 0; i < n; i++) FT_ASSERT(lengths[order[i]] > 0 && lengths[order[i]] <= row);
    for (int64_t at = 0; at < n; at += window) {
        const int64_t k = n - at < window ? n - at : window;
        sort_window(lengths, order + at, k, row, count, sorted + at);
        pack_window(&p, lengths, sorted + at, k, row, p.pack_of + at);
    }
    out.n_packs = p.n_packs;
    out.start = ft_xcalloc((size_t)p.n_packs + 2, sizeof *out.start);
    out.sample = ft_xcalloc(room, sizeof *out.sample);
    for (int64_t i = 0; i < n; i++) out.start[p.pack_of[i] + 2]++;
    for (int64_t k = 2; k <= p.n_packs; k++) out.start[k] += out.start[k - 1];
    for (int64_t i = 0; i < n; i++) out.sample[out.start[p.pack_of[i] + 1]++] = sorted[i];
    bins_fini(&p.bins);
    free(p.below);
    free(p.free_of);
    free(p.pack_of);
    free(sorted);
    free(count);
    return out;
}

void ft_packs_reorder(struct ft_packs *p, const int64_t *perm)
{
    int64_t *sample = ft_xcalloc((size_t)p->n + 1, sizeof *sample), *start = ft_xcalloc((size_t)p->n_packs + 2, sizeof *start);
    for (int64_t k = 0; k < p->n_packs; k++) {
        const int64_t from = p->start[perm[k]], n = p->start[perm[k] + 1] - from;
        memcpy(sample + start[k], p->sample + from, (size_t)n * sizeof *sample);
        start[k + 1] = start[k] + n;
    }
    free(p->sample);
    free(p->start);
    p->sample = sample, p->start = start;
}

void ft_packs_fini(struct ft_packs *p)
{
    free(p->sample);
    free(p->start);
    memset(p, 0, sizeof *p);
}
