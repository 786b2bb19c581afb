#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/token/tok.h"

void ft_added_fini(struct ft_added_set *a)
{
    for (size_t i = 0; i < a->n; i++) free(a->v[i].content), free(a->v[i].name);
    free(a->v);
    free(a->plain.v);
    free(a->normalized.v);
    free(a->by_id);
    ft_vocab_fini(&a->names);
    memset(a, 0, sizeof *a);
}

static int bytewise(const void *pa, const void *pb)
{
    const struct ft_added *a = *(const struct ft_added *const *)pa, *b = *(const struct ft_added *const *)pb;
    const int c = memcmp(a->content, b->content, a->n < b->n ? a->n : b->n);
    return c ? c : (a->n > b->n) - (a->n < b->n);
}

static void build_trie(const struct ft_added_set *a, bool normalized, struct ft_trie *t)
{
    t->v = ft_xcalloc(a->n + 1, sizeof *t->v);
    for (size_t i = 0; i < a->n; i++) {
        const struct ft_added *x = &a->v[i];
        if (x->normalized != normalized || !x->n) continue;
        t->v[t->n++] = x;
        t->first[(unsigned char)x->content[0]] = true;
        if (x->n > t->longest) t->longest = x->n;
    }
    qsort(t->v, t->n, sizeof *t->v, bytewise);
}

void ft_added_build(struct ft_added_set *a)
{
    int32_t top = -1;
    for (size_t i = 0; i < a->n; i++)
        if (a->v[i].id > top) top = a->v[i].id;
    a->n_ids = (size_t)(top + 1);
    a->by_id = ft_xcalloc(a->n_ids + 1, sizeof *a->by_id);
    for (size_t i = 0; i < a->n; i++) a->by_id[a->v[i].id] = (int32_t)i + 1;
    build_trie(a, false, &a->plain);
    build_trie(a, true, &a->normalized);
}

const struct ft_added *ft_added_of(const struct ft_added_set *a, int32_t id)
{
    return id >= 0 && (size_t)id < a->n_ids && a->by_id[id] ? &a->v[a->by_id[id] - 1] : NULL;
}

const struct ft_added *ft_added_find(const struct ft_added_set *a, const char *name, size_t n)
{
    const int32_t i = ft_vocab_find(&a->names, name, n);
    return i < 0 ? NULL : &a->v[i];
}

/* The longest token at the front of s. */
static const struct ft_added *longest_at(const struct ft_trie *t, const char *s, size_t n)
{
    size_t lo = 0, hi = t->n;
    const struct ft_added *best = NULL;
    for (size_t depth = 0; lo < hi; depth++) {
        if (t->v[lo]->n == depth) { /* shorter ones sort first */
            best = t->v[lo];
            while (lo < hi && t->v[lo]->n == depth) lo++;
        }
        if (depth >= n || lo >= hi) break;
        const unsigned char c = (unsigned char)s[depth];
        size_t a = lo, b = hi;
        while (a < b) {
            const size_t mid = (a + b) / 2;
            if ((unsigned char)t->v[mid]->content[depth] < c) a = mid + 1;
            else b = mid;
        }
        lo = a, b = hi;
        while (a < b) {
            const size_t mid = (a + b) / 2;
            if ((unsigned char)t->v[mid]->content[depth] <= c) a = mid + 1;
            else b = mid;
        }
        hi = a;
    }
    return best;
}

static size_t char_before(const char *s, size_t at, uint32_t *cp)
{
    size_t k = 1;
    while (k < 4 && k < at && ((unsigned char)s[at - k] & 0xC0) == 0x80) k++;
    (void)ft_utf8_decode(s + at - k, k, cp);
    return k;
}

static bool alone(const char *s, size_t n, size_t begin, size_t end)
{
    uint32_t cp;
    if (begin > 0 && (char_before(s, begin, &cp), ft_is_word(cp))) return false;
    return !(end < n && ((void)ft_utf8_decode(s + end, n - end, &cp), ft_is_word(cp)));
}

static void add_part(struct ft_parts *out, const struct ft_added *token, size_t begin, size_t end)
{
    ft_grow(&out->v, &out->cap, out->n + 1, sizeof *out->v);
    out->v[out->n++] = (struct ft_part){token, begin, end};
}

void ft_added_split(const struct ft_trie *t, const char *s, size_t n, bool (*skip)(void *ctx, size_t begin, size_t end), void *ctx,
                    struct ft_parts *out)
{
    size_t done = 0, at = 0;
    while (t->n && at < n) {
        const struct ft_added *x = t->first[(unsigned char)s[at]] ? longest_at(t, s + at, n - at) : NULL;
        if (!x) {
            at++;
            continue;
        }
        size_t begin = at, end = at + x->n;
        at = end;
        if (x->special && skip && skip(ctx, begin, end)) continue;
        if (x->single_word && !alone(s, n, begin, end)) continue;
        uint32_t cp;
        for (size_t k; x->lstrip && begin > done && (k = char_before(s, begin, &cp), ft_is_space(cp));) begin -= k;
        if (x->lstrip && begin < done) begin = done;
        for (size_t k; x->rstrip && end < n && (k = (size_t)ft_utf8_decode(s + end, n - end, &cp), ft_is_space(cp));) end += k;
        /* A token in the white space that the one before has taken (rstrip) is found all the same, and what follows it is read again,
         * as the reference does: ranges may overlap, their begins never go back. */
        if (begin > done) add_part(out, NULL, done, begin);
        add_part(out, x, begin, end > begin ? end : begin);
        done = end > begin ? end : begin;
    }
    if (done < n) add_part(out, NULL, done, n);
}
