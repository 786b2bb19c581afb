#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/token/tok.h"

/* GPT-2's own pattern. */
const char ft_gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

void ft_pres_fini(struct ft_pres *p)
{
    for (size_t i = 0; i < p->n; i++) ft_pattern_fini(&p->v[i].pattern);
    free(p->v);
    memset(p, 0, sizeof *p);
}

void ft_pre_work_fini(struct ft_pre_work *w)
{
    ft_text_fini(&w->spare[0]);
    ft_text_fini(&w->spare[1]);
    free(w->other.v);
    free(w->matches);
    memset(w, 0, sizeof *w);
}

static void add_piece(struct ft_pieces *p, size_t begin, size_t end)
{
    if (begin >= end) return;
    ft_grow(&p->v, &p->cap, p->n + 1, sizeof *p->v);
    p->v[p->n++] = (struct ft_piece){begin, end};
}

static void add_match(struct ft_pre_work *w, size_t begin, size_t end, bool match)
{
    ft_grow(&w->matches, &w->matches_cap, w->n_matches + 1, sizeof *w->matches);
    w->matches[w->n_matches++] = (struct ft_match){begin, end, match};
}

/* Matches of the pattern in s[a..b) as a gapless list of stretches that match or do not. Positions are those of s. */
static enum ft_code find_matches(const struct ft_pre *p, struct ft_regex_work *rw, struct ft_pre_work *w, const char *s, size_t a,
                                 size_t b, struct ft_err *err)
{
    size_t at = 0, last = 0, begin, end;
    const size_t n = b - a;
    int rc;
    w->n_matches = 0;
    while ((rc = ft_pattern_next(&p->pattern, rw, s + a, n, at, &begin, &end, err)) > 0) {
        if (begin > last) add_match(w, a + last, a + begin, p->invert);
        add_match(w, a + begin, a + end, !p->invert);
        last = at = end;
        if (end == begin) {
            if (at >= n) break;
            uint32_t cp;
            at += (size_t)ft_utf8_decode(s + a + at, n - at, &cp);
        }
    }
    if (rc < 0) return err ? err->code : FT_DATA;
    if (last < n) add_match(w, a + last, b, p->invert);
    return FT_OK;
}

/* Matches by a property of single characters. */
static void find_chars(struct ft_pre_work *w, const char *s, size_t a, size_t b, bool (*is)(uint32_t cp))
{
    size_t last = a;
    w->n_matches = 0;
    for (size_t i = a, k; i < b; i += k) {
        uint32_t cp;
        k = (size_t)ft_utf8_decode(s + i, b - i, &cp);
        if (!is(cp)) continue;
        if (i > last) add_match(w, last, i, false);
        add_match(w, i, i + k, true);
        last = i + k;
    }
    if (last < b) add_match(w, last, b, false);
}

static void split_merged_next(struct ft_pre_work *w, struct ft_pieces *out)
{
    const size_t first = out->n;
    bool previous = false;
    for (size_t i = w->n_matches; i-- > 0;) {
        const struct ft_match *m = &w->matches[i];
        if (m->match && !previous && out->n > first) out->v[out->n - 1].begin = m->begin;
        else add_piece(out, m->begin, m->end);
        previous = m->match;
    }
    for (size_t i = first, k = out->n; i + 1 < k; i++, k--) {
        const struct ft_piece t = out->v[i];
        out->v[i] = out->v[k - 1], out->v[k - 1] = t;
    }
}

static void split_by(enum ft_split_how how, struct ft_pre_work *w, struct ft_pieces *out)
{
    const size_t first = out->n;
    bool previous = false;
    if (how == FT_SPLIT_MERGED_WITH_NEXT) {
        split_merged_next(w, out);
        return;
    }
    for (size_t i = 0; i < w->n_matches; i++) {
        const struct ft_match *m = &w->matches[i];
        bool join = false;
        if (how == FT_SPLIT_REMOVED && m->match) continue;
        if (how == FT_SPLIT_CONTIGUOUS) join = m->match == previous;
        if (how == FT_SPLIT_MERGED_WITH_PREVIOUS) join = m->match && !previous;
        if (join && out->n > first) out->v[out->n - 1].end = m->end;
        else add_piece(out, m->begin, m->end);
        previous = m->match;
    }
}

/* ByteLevel's alphabet, when a later step wants to see it. */
static void to_alphabet(const struct ft_text *in, struct ft_text *out, struct ft_pieces *pieces)
{
    ft_text_clear(out);
    for (size_t k = 0; k < pieces->n; k++) {
        const struct ft_piece p = pieces->v[k];
        pieces->v[k].begin = out->n;
        for (size_t i = p.begin; i < p.end; i++) {
            char s[4];
            ft_text_put(out, s, (size_t)ft_utf8_encode(ft_byte_to_char((unsigned char)in->s[i]), s), ft_text_from(in, i),
                        ft_text_to(in, i));
        }
        pieces->v[k].end = out->n;
    }
}

/* A blank before every piece that does not begin with one. */
static bool add_prefixes(struct ft_text *in, struct ft_text *out, struct ft_pieces *pieces, bool no_prefix)
{
    bool any = false;
    for (size_t k = no_prefix ? 1 : 0; k < pieces->n; k++) any = any || in->s[pieces->v[k].begin] != ' ';
    if (!any) return false;
    ft_text_clear(out);
    for (size_t k = 0; k < pieces->n; k++) {
        const struct ft_piece p = pieces->v[k];
        const uint32_t from = ft_text_from(in, p.begin);
        pieces->v[k].begin = out->n;
        if (in->s[p.begin] != ' ' && !(k == 0 && no_prefix)) ft_text_put(out, " ", 1, from, from);
        ft_text_copy(out, in, p.begin, p.end);
        pieces->v[k].end = out->n;
    }
    return true;
}

static void metaspace(const struct ft_pre *p, const struct ft_text *in, struct ft_text *out, struct ft_pieces *pieces,
                      bool no_prefix)
{
    const size_t rn = strlen(p->replacement);
    ft_text_clear(out);
    for (size_t k = 0; k < pieces->n; k++) {
        const struct ft_piece x = pieces->v[k];
        const uint32_t from = ft_text_from(in, x.begin);
        const bool starts = in->s[x.begin] == ' ' || (x.end - x.begin >= rn && !memcmp(in->s + x.begin, p->replacement, rn));
        const bool wants = p->prepend == FT_PREPEND_ALWAYS || (p->prepend == FT_PREPEND_FIRST && from == 0);
        pieces->v[k].begin = out->n;
        if (wants && !starts && !(k == 0 && no_prefix)) ft_text_put(out, p->replacement, rn, from, from);
        for (size_t i = x.begin; i < x.end;) {
            const char *blank = memchr(in->s + i, ' ', x.end - i);
            const size_t stop = blank ? (size_t)(blank - in->s) : x.end;
            ft_text_copy(out, in, i, stop);
            if (blank) ft_text_put(out, p->replacement, rn, ft_text_from(in, stop), ft_text_to(in, stop));
            i = stop + (blank ? 1 : 0);
        }
        pieces->v[k].end = out->n;
    }
}

static bool is_word_run(uint32_t cp) { return ft_is_word(cp); }
static bool is_not_space(uint32_t cp) { return !ft_is_space(cp); }

/* \w+ | [^\w\s]+ ; everything else (white space) goes. */
static void whitespace_words(const char *s, struct ft_piece p, struct ft_pieces *out)
{
    int kind = 0;
    size_t from = p.begin;
    for (size_t i = p.begin, k; i < p.end; i += k) {
        uint32_t cp;
        k = (size_t)ft_utf8_decode(s + i, p.end - i, &cp);
        const int now = is_word_run(cp) ? 1 : is_not_space(cp) ? 2 : 0;
        if (now != kind) {
            if (kind) add_piece(out, from, i);
            from = i, kind = now;
        }
    }
    if (kind) add_piece(out, from, p.end);
}

static enum ft_code split_one(const struct ft_pre *p, struct ft_regex_work *rw, struct ft_pre_work *w, const struct ft_text *t,
                              struct ft_piece x, struct ft_pieces *out, struct ft_err *err)
{
    switch (p->kind) {
    case FT_PRE_DIGITS:
        find_chars(w, t->s, x.begin, x.end, ft_is_numeric);
        split_by(p->individual ? FT_SPLIT_ISOLATED : FT_SPLIT_CONTIGUOUS, w, out);
        return FT_OK;
    case FT_PRE_PUNCTUATION:
        find_chars(w, t->s, x.begin, x.end, ft_is_punctuation);
        split_by(p->how, w, out);
        return FT_OK;
    case FT_PRE_WHITESPACE_SPLIT:
        find_chars(w, t->s, x.begin, x.end, ft_is_space);
        split_by(FT_SPLIT_REMOVED, w, out);
        return FT_OK;
    case FT_PRE_WHITESPACE: whitespace_words(t->s, x, out); return FT_OK;
    case FT_PRE_SPLIT:
    case FT_PRE_BYTE_LEVEL:
    case FT_PRE_METASPACE: break;
    }
    const enum ft_code rc = find_matches(p, rw, w, t->s, x.begin, x.end, err);
    if (rc == FT_OK)
        split_by(p->kind == FT_PRE_SPLIT       ? p->how
                 : p->kind == FT_PRE_METASPACE ? FT_SPLIT_MERGED_WITH_NEXT
                                               : FT_SPLIT_ISOLATED,
                 w, out);
    return rc;
}

static bool splits(const struct ft_pre *p)
{
    return p->kind == FT_PRE_BYTE_LEVEL ? p->use_regex : p->kind == FT_PRE_METASPACE ? p->split : true;
}

enum ft_code ft_pres_apply(const struct ft_pres *p, struct ft_regex_work *rw, struct ft_pre_work *w, struct ft_text *text,
                           bool no_prefix, struct ft_pieces *pieces, struct ft_text **result, struct ft_err *err)
{
    struct ft_text *t = text;
    pieces->n = 0;
    add_piece(pieces, 0, text->n);
    for (size_t i = 0; i < p->n; i++) {
        const struct ft_pre *x = &p->v[i];
        struct ft_text *spare = t == &w->spare[0] ? &w->spare[1] : &w->spare[0];
        if (x->kind == FT_PRE_METASPACE) {
            metaspace(x, t, spare, pieces, no_prefix);
            t = spare;
        } else if (x->kind == FT_PRE_BYTE_LEVEL && x->add_prefix_space && add_prefixes(t, spare, pieces, no_prefix)) {
            t = spare;
        }
        if (splits(x)) {
            w->other.n = 0;
            for (size_t k = 0; k < pieces->n; k++) {
                const enum ft_code rc = split_one(x, rw, w, t, pieces->v[k], &w->other, err);
                if (rc != FT_OK) return rc;
            }
            const struct ft_pieces swap = *pieces;
            *pieces = w->other, w->other = swap;
        }
        if (x->kind == FT_PRE_BYTE_LEVEL && !x->raw) {
            spare = t == &w->spare[0] ? &w->spare[1] : &w->spare[0];
            to_alphabet(t, spare, pieces);
            t = spare;
        }
    }
    *result = t;
    return FT_OK;
}
