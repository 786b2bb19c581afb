#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/token/tok.h"

struct ft_encoder {
    const struct ft_tokenizer *t;
    struct ft_regex_work *regex;
    struct ft_bpe_work *bpe;
    struct ft_unigram_work *unigram;
    struct ft_pre_work pre;
    struct ft_text text, other;
    struct ft_parts parts, inner;
    struct ft_pieces pieces;
};

void ft_tokens_fini(struct ft_tokens *t)
{
    free(t->v);
    memset(t, 0, sizeof *t);
}

struct ft_encoder *ft_encoder_create(const struct ft_tokenizer *t)
{
    struct ft_encoder *e = ft_xcalloc(1, sizeof *e);
    e->t = t;
    e->regex = ft_regex_work_create();
    e->bpe = t->is_unigram ? NULL : ft_bpe_work_create();
    e->unigram = t->is_unigram ? ft_unigram_work_create() : NULL;
    return e;
}

void ft_encoder_destroy(struct ft_encoder *e)
{
    if (!e) return;
    ft_regex_work_destroy(e->regex);
    ft_bpe_work_destroy(e->bpe);
    ft_unigram_work_destroy(e->unigram);
    ft_pre_work_fini(&e->pre);
    ft_text_fini(&e->text);
    ft_text_fini(&e->other);
    free(e->parts.v);
    free(e->inner.v);
    free(e->pieces.v);
    free(e);
}

static void add_token(struct ft_tokens *out, int32_t id, size_t begin, size_t end)
{
    ft_grow(&out->v, &out->cap, out->n + 1, sizeof *out->v);
    out->v[out->n++] = (struct ft_token){id, (uint32_t)begin, (uint32_t)end};
}

/* Tokens of bytes [a, b) of a normalised text. */
static enum ft_code encode_text(struct ft_encoder *e, struct ft_text *all, size_t a, size_t b, bool no_prefix, size_t base,
                                struct ft_tokens *out, struct ft_err *err)
{
    struct ft_text part = *all, *t; /* a view: shares the storage of *all */
    part.s = all->s + a, part.n = b - a;
    if (part.aligned) part.from = all->from + a, part.to = all->to + a;
    else part.base = all->base + (uint32_t)a;
    const enum ft_code rc = ft_pres_apply(&e->t->pres, e->regex, &e->pre, &part, no_prefix, &e->pieces, &t, err);
    if (rc != FT_OK) return rc;
    for (size_t k = 0; k < e->pieces.n; k++) {
        const struct ft_piece p = e->pieces.v[k];
        const struct ft_piece_token *v;
        const size_t n = e->unigram ? ft_unigram_piece(&e->t->unigram, e->unigram, t->s + p.begin, p.end - p.begin, &v)
                                    : ft_bpe_piece(&e->t->bpe, e->bpe, t->s + p.begin, p.end - p.begin, &v);
        for (size_t i = 0; i < n; i++) {
            const size_t from = p.begin + v[i].begin, to = p.begin + v[i].end;
            size_t begin = ft_text_from(t, from), end = begin;
            for (size_t c = t->aligned ? from : to - 1; c < to; c++) { /* a reordering normal form may cross over */
                if (ft_text_from(t, c) < begin) begin = ft_text_from(t, c);
                if (ft_text_to(t, c) > end) end = ft_text_to(t, c);
            }
            add_token(out, v[i].id, base + (t->aligned ? begin : ft_text_from(t, from)), base + end);
        }
    }
    return FT_OK;
}

/* Ranges in which special tokens are text. Positions are those of the whole text; t maps normalised bytes back (NULL: none was done). */
struct plain {
    const struct ft_encode_how *how;
    const struct ft_text *t;
};

static bool in_plain(void *ctx, size_t begin, size_t end)
{
    const struct plain *p = ctx;
    const struct ft_encode_how *h = p->how;
    if (p->t && end > begin) {
        const size_t last = end - 1;
        begin = ft_text_from(p->t, begin), end = ft_text_to(p->t, last);
    }
    begin += h->base, end += h->base;
    size_t lo = 0, hi = h->n_plain; /* first range that ends behind begin */
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (h->plain[mid].end <= begin) lo = mid + 1;
        else hi = mid;
    }
    return lo < h->n_plain && h->plain[lo].begin < end;
}

/* A stretch between added tokens that are searched before normalising. */
static enum ft_code encode_stretch(struct ft_encoder *e, const char *s, size_t n, size_t at, bool no_prefix,
                                   const struct ft_encode_how *how, struct ft_tokens *out, struct ft_err *err)
{
    struct ft_text *t;
    ft_text_borrow(&e->text, s, n, (uint32_t)at);
    enum ft_code rc = ft_norms_apply(&e->t->norms, e->regex, &e->text, &e->other, no_prefix, &t, err);
    if (rc != FT_OK) return rc;
    struct plain plain = {how, t};
    e->inner.n = 0;
    ft_added_split(&e->t->added.normalized, t->s, t->n, how->n_plain ? in_plain : NULL, &plain, &e->inner);
    for (size_t i = 0; i < e->inner.n && rc == FT_OK; i++) {
        const struct ft_part p = e->inner.v[i];
        if (!p.token) rc = encode_text(e, t, p.begin, p.end, no_prefix && p.begin == 0, how->base, out, err);
        else if (p.end > p.begin)
            add_token(out, p.token->id, how->base + ft_text_from(t, p.begin), how->base + ft_text_to(t, p.end - 1));
    }
    return rc;
}

enum ft_code ft_encode(struct ft_encoder *e, const char *text, size_t n, const struct ft_encode_how *how, struct ft_tokens *out,
                       struct ft_err *err)
{
    const struct ft_tokenizer *t = e->t;
    struct plain plain = {how, NULL};
    if (n > INT32_MAX - 64) return ft_fail(err, FT_DATA, "a text of %zu bytes is too long for the tokenizer", n);
    const size_t good = ft_utf8_valid(text, n), before = out->n;
    if (good < n) return ft_fail(err, FT_DATA, "the text is not UTF-8 (byte %zu)", good);
    if (how->flags & FT_ENCODE_POST)
        for (size_t i = 0; i < t->n_front; i++) add_token(out, t->front[i], how->base, how->base);
    e->parts.n = 0;
    ft_added_split(&t->added.plain, text, n, how->n_plain ? in_plain : NULL, &plain, &e->parts);
    for (size_t i = 0; i < e->parts.n; i++) {
        const struct ft_part p = e->parts.v[i];
        if (p.token) {
            add_token(out, p.token->id, how->base + p.begin, how->base + p.end);
            continue;
        }
        const bool no_prefix = (how->flags & FT_ENCODE_NO_PREFIX) && p.begin == 0;
        const enum ft_code rc = encode_stretch(e, text + p.begin, p.end - p.begin, p.begin, no_prefix, how, out, err);
        if (rc != FT_OK) {
            out->n = before;
            return rc;
        }
    }
    if (how->flags & FT_ENCODE_POST)
        for (size_t i = 0; i < t->n_back; i++) add_token(out, t->back[i], how->base + n, how->base + n);
    return FT_OK;
}

int32_t ft_tokenizer_find_special(const struct ft_tokenizer *t, const char *text, size_t n, size_t *at)
{
    const struct ft_trie *tries[2] = {&t->added.plain, &t->added.normalized};
    const size_t from = *at;
    size_t best = SIZE_MAX;
    int32_t id = -1;
    for (int k = 0; k < 2 && from < n; k++) { /* the second: as they stand, which is how texts hold them */
        struct ft_parts parts = {0};
        ft_added_split(tries[k], text + from, n - from, NULL, NULL, &parts);
        for (size_t i = 0; i < parts.n; i++) {
            if (!parts.v[i].token || !parts.v[i].token->special || from + parts.v[i].begin >= best) continue;
            best = from + parts.v[i].begin, id = parts.v[i].token->id;
            break;
        }
        free(parts.v);
    }
    if (id >= 0) *at = best;
    return id;
}
