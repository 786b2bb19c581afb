/* Unigram: the segmentation with the greatest sum of scores (Viterbi; Kudo 2018). Unknown characters cost unk_score and are fused. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/token/tok.h"

struct best {
    double score;
    uint32_t from; /* where the token that ends here begins */
    int32_t id;    /* -2: not reached */
};

struct ft_unigram_work {
    struct best *best;
    size_t cap;
    struct ft_piece_token *out;
    size_t n_out, out_cap;
};

void ft_unigram_fini(struct ft_unigram *u)
{
    free(u->score);
    memset(u, 0, sizeof *u);
}

struct ft_unigram_work *ft_unigram_work_create(void) { return ft_xcalloc(1, sizeof(struct ft_unigram_work)); }

void ft_unigram_work_destroy(struct ft_unigram_work *w)
{
    if (!w) return;
    free(w->best);
    free(w->out);
    free(w);
}

static void relax(struct best *to, double score, uint32_t from, int32_t id)
{
    if (to->id == -2 || score > to->score) *to = (struct best){score, from, id};
}

static void emit(struct ft_unigram_work *w, int32_t id, size_t begin, size_t end)
{
    ft_grow(&w->out, &w->out_cap, w->n_out + 1, sizeof *w->out);
    w->out[w->n_out++] = (struct ft_piece_token){id, (uint32_t)begin, (uint32_t)end};
}

static void emit_unknown(const struct ft_unigram *u, struct ft_unigram_work *w, const char *s, size_t begin, size_t end)
{
    bool all = u->byte_fallback;
    for (size_t i = begin; all && i < end; i++) all = u->byte_id[(unsigned char)s[i]] >= 0;
    for (size_t i = begin; all && i < end; i++) emit(w, u->byte_id[(unsigned char)s[i]], i, i + 1);
    if (!all && u->unk >= 0) emit(w, u->unk, begin, end);
}

size_t ft_unigram_piece(const struct ft_unigram *u, struct ft_unigram_work *w, const char *s, size_t n,
                        const struct ft_piece_token **v)
{
    ft_grow(&w->best, &w->cap, n + 1, sizeof *w->best);
    struct best *best = w->best;
    for (size_t i = 0; i <= n; i++) best[i] = (struct best){0, 0, -2};
    best[0].id = -1;
    for (size_t i = 0, k; i < n; i += k) {
        uint32_t cp;
        bool single = false;
        k = (size_t)ft_utf8_decode(s + i, n - i, &cp);
        for (size_t end = i + k; end <= n && end - i <= u->longest;) {
            const int32_t id = ft_vocab_find(u->names, s + i, end - i);
            if (id >= 0 && (size_t)id < u->n) {
                relax(&best[end], best[i].score + u->score[id], (uint32_t)i, id);
                single = single || end == i + k;
            }
            if (end == n) break;
            end += (size_t)ft_utf8_decode(s + end, n - end, &cp);
        }
        if (!single) relax(&best[i + k], best[i].score + u->unk_score, (uint32_t)i, u->unk);
    }
    /* Walk back, then write forwards; neighbouring unknowns become one. */
    uint32_t next = (uint32_t)n;
    for (uint32_t at = (uint32_t)n; at > 0;) { /* turn "from" links into "to" links, kept in .from of the token's begin */
        const uint32_t from = best[at].from;
        best[at].score = (double)next;
        next = at, at = from;
    }
    best[0].score = (double)next;
    w->n_out = 0;
    size_t unk_from = SIZE_MAX;
    for (size_t at = 0; at < n;) {
        const size_t to = (size_t)best[at].score;
        const int32_t id = best[to].id;
        if (id == u->unk && unk_from == SIZE_MAX) unk_from = at;
        if (unk_from != SIZE_MAX && (id != u->unk || to == n)) {
            emit_unknown(u, w, s, unk_from, id == u->unk ? to : at);
            unk_from = SIZE_MAX;
        }
        if (id != u->unk) emit(w, id, at, to);
        at = to;
    }
    *v = w->out;
    return w->n_out;
}
