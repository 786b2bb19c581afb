/* Byte pair encoding: merges in the order of their rank, leftmost first among equals. Short pieces by repeated scanning of an
 * array, long ones with a heap of candidates over a linked list (O(n log n)). A cache of pieces makes common words cheap. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/bits/mix64.h"
#include "runtime/token/tok.h"

enum { SHORT = 24, CACHE = 1 << 15, CACHE_BYTES = 32, CACHE_TOKENS = 8 };

struct symbol {
    int32_t id;          /* -1: merged into the one before */
    uint32_t begin, end; /* bytes of the piece */
    int32_t prev, next;
};

struct candidate {
    uint32_t rank, pos, id;
};

struct cached {
    uint8_t key_n, n; /* n 0: empty */
    char key[CACHE_BYTES];
    struct ft_piece_token v[CACHE_TOKENS];
};

struct ft_bpe_work {
    struct symbol *sym;
    size_t n_sym, sym_cap;
    struct candidate *heap;
    size_t n_heap, heap_cap;
    struct ft_piece_token *out;
    size_t n_out, out_cap;
    struct cached *cache;
};

void ft_bpe_fini(struct ft_bpe *b)
{
    ft_vocab_fini(&b->raw);
    free(b->merges);
    memset(b, 0, sizeof *b);
}

static size_t merge_slot(const struct ft_bpe *b, uint64_t pair)
{
    size_t i = (size_t)ft_mix64(pair) & (b->merges_cap - 1);
    while (b->merges[i].pair != UINT64_MAX && b->merges[i].pair != pair) i = (i + 1) & (b->merges_cap - 1);
    return i;
}

void ft_bpe_merge_add(struct ft_bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    if (2 * (b->n_merges + 1) > b->merges_cap) {
        struct ft_bpe big = *b;
        big.merges_cap = b->merges_cap ? 2 * b->merges_cap : 1024;
        big.merges = ft_xcalloc(big.merges_cap, sizeof *big.merges);
        for (size_t i = 0; i < big.merges_cap; i++) big.merges[i].pair = UINT64_MAX;
        for (size_t i = 0; i < b->merges_cap; i++)
            if (b->merges[i].pair != UINT64_MAX) big.merges[merge_slot(&big, b->merges[i].pair)] = b->merges[i];
        free(b->merges);
        *b = big;
    }
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    struct ft_merge *m = &b->merges[merge_slot(b, pair)];
    if (m->pair == UINT64_MAX) b->n_merges++;
    *m = (struct ft_merge){pair, rank, (uint32_t)id};
}

static const struct ft_merge *merge_of(const struct ft_bpe *b, int32_t left, int32_t right)
{
    if (!b->merges_cap || left < 0 || right < 0) return NULL;
    const struct ft_merge *m = &b->merges[merge_slot(b, (uint64_t)(uint32_t)left << 32 | (uint32_t)right)];
    return m->pair == UINT64_MAX ? NULL : m;
}

struct ft_bpe_work *ft_bpe_work_create(void)
{
    struct ft_bpe_work *w = ft_xcalloc(1, sizeof *w);
    w->cache = ft_xcalloc(CACHE, sizeof *w->cache);
    return w;
}

void ft_bpe_work_destroy(struct ft_bpe_work *w)
{
    if (!w) return;
    free(w->sym);
    free(w->heap);
    free(w->out);
    free(w->cache);
    free(w);
}

static void add_symbol(struct ft_bpe_work *w, int32_t id, size_t begin, size_t end)
{
    ft_grow(&w->sym, &w->sym_cap, w->n_sym + 1, sizeof *w->sym);
    w->sym[w->n_sym] = (struct symbol){id, (uint32_t)begin, (uint32_t)end, (int32_t)w->n_sym - 1, (int32_t)w->n_sym + 1};
    w->n_sym++;
}

/* The tokens of a character's bytes, when all of them exist. */
static bool fall_back(const struct ft_bpe *b, struct ft_bpe_work *w, const char *s, size_t at, size_t n)
{
    if (!b->byte_fallback) return false;
    for (size_t i = 0; i < n; i++)
        if (b->byte_id[(unsigned char)s[at + i]] < 0) return false;
    for (size_t i = 0; i < n; i++) add_symbol(w, b->byte_id[(unsigned char)s[at + i]], at + i, at + i + 1);
    return true;
}

/* One symbol per byte (byte level) or character. An unknown one becomes unk, which is entered before the next known one (so it
 * stands behind the bytes of a fallback, as in the reference); without unk it is dropped and its bytes belong to no token. */
static void first_symbols(const struct ft_bpe *b, struct ft_bpe_work *w, const char *s, size_t n)
{
    size_t unk_at = 0, unk_end = 0; /* pending when unk_end > 0 */
    w->n_sym = 0;
    for (size_t i = 0, step; i < n; i += step) {
        uint32_t cp;
        step = b->byte_level ? 1 : (size_t)ft_utf8_decode(s + i, n - i, &cp);
        const int32_t id = b->byte_level ? b->byte_id[(unsigned char)s[i]] : ft_vocab_find(b->names, s + i, step);
        if (id >= 0) {
            if (unk_end) add_symbol(w, b->unk, unk_at, unk_end);
            unk_end = 0;
            add_symbol(w, id, i, i + step);
            continue;
        }
        if ((!b->byte_level && fall_back(b, w, s, i, step)) || b->unk < 0) continue;
        if (unk_end && !b->fuse_unk) add_symbol(w, b->unk, unk_at, unk_end);
        if (!unk_end || !b->fuse_unk) unk_at = i;
        unk_end = i + step;
    }
    if (unk_end) add_symbol(w, b->unk, unk_at, unk_end);
    if (w->n_sym) w->sym[w->n_sym - 1].next = -1;
}

static void join(struct symbol *a, const struct symbol *b)
{
    if (b->begin < a->begin) a->begin = b->begin;
    if (b->end > a->end) a->end = b->end;
}

static void emit(struct ft_bpe_work *w, int32_t id, uint32_t begin, uint32_t end)
{
    ft_grow(&w->out, &w->out_cap, w->n_out + 1, sizeof *w->out);
    w->out[w->n_out++] = (struct ft_piece_token){id, begin, end};
}

static void merge_short(const struct ft_bpe *b, struct ft_bpe_work *w)
{
    const struct ft_merge *pair[SHORT];
    struct symbol *v = w->sym;
    size_t n = w->n_sym;
    for (size_t i = 0; i + 1 < n; i++) pair[i] = merge_of(b, v[i].id, v[i + 1].id);
    while (n > 1) {
        size_t best = n;
        uint32_t rank = UINT32_MAX;
        for (size_t i = 0; i + 1 < n; i++)
            if (pair[i] && pair[i]->rank < rank) rank = pair[i]->rank, best = i;
        if (best == n) break;
        v[best].id = (int32_t)pair[best]->id;
        join(&v[best], &v[best + 1]);
        for (size_t i = best + 1; i + 1 < n; i++) v[i] = v[i + 1], pair[i] = i + 2 < n ? pair[i + 1] : NULL;
        n--;
        if (best > 0) pair[best - 1] = merge_of(b, v[best - 1].id, v[best].id);
        if (best + 1 < n) pair[best] = merge_of(b, v[best].id, v[best + 1].id);
    }
    for (size_t i = 0; i < n; i++) emit(w, v[i].id, v[i].begin, v[i].end);
}

static bool before(struct candidate a, struct candidate b) { return a.rank != b.rank ? a.rank < b.rank : a.pos < b.pos; }

static void push(const struct ft_bpe *b, struct ft_bpe_work *w, int32_t left, int32_t right)
{
    if (left < 0 || right < 0) return;
    const struct ft_merge *m = merge_of(b, w->sym[left].id, w->sym[right].id);
    if (!m) return;
    ft_grow(&w->heap, &w->heap_cap, w->n_heap + 1, sizeof *w->heap);
    const struct candidate c = {m->rank, (uint32_t)left, m->id};
    size_t i = w->n_heap++;
    for (; i > 0 && before(c, w->heap[(i - 1) / 2]); i = (i - 1) / 2) w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = c;
}

static struct candidate pop(struct ft_bpe_work *w)
{
    const struct candidate top = w->heap[0], last = w->heap[--w->n_heap];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < w->n_heap; i = k) {
        if (k + 1 < w->n_heap && before(w->heap[k + 1], w->heap[k])) k++;
        if (!before(w->heap[k], last)) break;
        w->heap[i] = w->heap[k];
    }
    w->heap[i] = last;
    return top;
}

static void merge_long(const struct ft_bpe *b, struct ft_bpe_work *w)
{
    struct symbol *v = w->sym;
    w->n_heap = 0;
    for (size_t i = 0; i + 1 < w->n_sym; i++) push(b, w, (int32_t)i, (int32_t)i + 1);
    while (w->n_heap) {
        const struct candidate c = pop(w);
        struct symbol *a = &v[c.pos];
        if (a->id < 0 || a->next < 0) continue;
        const struct ft_merge *m = merge_of(b, a->id, v[a->next].id);
        if (!m || m->id != c.id) continue; /* the pair changed after it was entered */
        struct symbol *gone = &v[a->next];
        a->id = (int32_t)c.id;
        join(a, gone);
        gone->id = -1;
        a->next = gone->next;
        if (a->next >= 0) v[a->next].prev = (int32_t)c.pos;
        push(b, w, a->prev, (int32_t)c.pos);
        push(b, w, (int32_t)c.pos, a->next);
    }
    for (int32_t i = w->n_sym ? 0 : -1; i >= 0; i = v[i].next) emit(w, v[i].id, v[i].begin, v[i].end);
}

size_t ft_bpe_piece(const struct ft_bpe *b, struct ft_bpe_work *w, const char *s, size_t n, const struct ft_piece_token **v)
{
    struct cached *c = NULL;
    w->n_out = 0;
    if (n <= CACHE_BYTES) {
        c = &w->cache[ft_xxh3_64(s, n) & (CACHE - 1)];
        if (c->n && c->key_n == n && !memcmp(c->key, s, n)) {
            *v = c->v;
            return c->n;
        }
    }
    const int32_t whole = b->ignore_merges ? ft_vocab_find(b->byte_level ? &b->raw : b->names, s, n) : -1;
    if (whole >= 0) {
        emit(w, whole, 0, (uint32_t)n);
    } else {
        first_symbols(b, w, s, n);
        if (w->n_sym <= SHORT) merge_short(b, w);
        else merge_long(b, w);
    }
    if (c && w->n_out && w->n_out <= CACHE_TOKENS) {
        c->key_n = (uint8_t)n, c->n = (uint8_t)w->n_out;
        memcpy(c->key, s, n);
        memcpy(c->v, w->out, w->n_out * sizeof *w->out);
    }
    *v = w->out;
    return w->n_out;
}
