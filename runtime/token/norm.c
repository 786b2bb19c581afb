#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/token/tok.h"

void ft_pattern_fini(struct ft_pattern *p)
{
    free(p->literal);
    ft_regex_destroy(p->regex);
    memset(p, 0, sizeof *p);
}

int ft_pattern_next(const struct ft_pattern *p, struct ft_regex_work *w, const char *s, size_t n, size_t at, size_t *begin,
                    size_t *end, struct ft_err *err)
{
    if (p->regex) return ft_regex_next(p->regex, w, s, n, at, begin, end, err);
    if (at > n || !p->literal_n) return 0;
    const char *hit = n > at ? memmem(s + at, n - at, p->literal, p->literal_n) : NULL;
    if (!hit) return 0;
    *begin = (size_t)(hit - s), *end = *begin + p->literal_n;
    return 1;
}

void ft_norms_fini(struct ft_norms *n)
{
    for (size_t i = 0; i < n->n; i++) {
        ft_pattern_fini(&n->v[i].pattern);
        free(n->v[i].content);
    }
    free(n->v);
    memset(n, 0, sizeof *n);
}

/* Every match of the pattern becomes content, which comes from the whole match. */
static enum ft_code replace(const struct ft_norm *x, struct ft_regex_work *w, const struct ft_text *in, struct ft_text *out,
                            bool *changed, struct ft_err *err)
{
    size_t at = 0, copied = 0, begin, end;
    int rc;
    *changed = false;
    while ((rc = ft_pattern_next(&x->pattern, w, in->s, in->n, at, &begin, &end, err)) > 0) {
        if (!*changed) ft_text_clear(out);
        *changed = true;
        ft_text_copy(out, in, copied, begin);
        const uint32_t from = begin < in->n ? ft_text_from(in, begin) : in->n ? ft_text_to(in, in->n - 1) : 0;
        ft_text_put(out, x->content, x->content_n, from, end > begin ? ft_text_to(in, end - 1) : from);
        copied = at = end;
        if (end == begin) { /* an empty match: go on behind the next character */
            if (at >= in->n) break;
            uint32_t cp;
            at += (size_t)ft_utf8_decode(in->s + at, in->n - at, &cp);
        }
    }
    if (rc < 0) return err ? err->code : FT_DATA;
    if (*changed) ft_text_copy(out, in, copied, in->n);
    return FT_OK;
}

static void prepend(const struct ft_norm *x, const struct ft_text *in, struct ft_text *out)
{
    const uint32_t from = ft_text_from(in, 0);
    ft_text_clear(out);
    ft_text_put(out, x->content, x->content_n, from, from);
    ft_text_copy(out, in, 0, in->n);
}

static bool lowercase(const struct ft_text *in, struct ft_text *out)
{
    ft_text_clear(out);
    for (size_t i = 0, k; i < in->n; i += k) {
        uint32_t cp, low[3];
        char s[4];
        k = (size_t)ft_utf8_decode(in->s + i, in->n - i, &cp);
        const int n = ft_to_lower(cp, low);
        if (n == 1 && low[0] == cp) ft_text_copy(out, in, i, i + k);
        else
            for (int c = 0; c < n; c++)
                ft_text_put(out, s, (size_t)ft_utf8_encode(low[c], s), ft_text_from(in, i), ft_text_to(in, i + k - 1));
    }
    return true;
}

static bool strip_accents(const struct ft_text *in, struct ft_text *out)
{
    ft_text_clear(out);
    for (size_t i = 0, k; i < in->n; i += k) {
        uint32_t cp;
        k = (size_t)ft_utf8_decode(in->s + i, in->n - i, &cp);
        if (!ft_is_accent(cp)) ft_text_copy(out, in, i, i + k);
    }
    return true;
}

static bool strip(const struct ft_norm *x, const struct ft_text *in, struct ft_text *out)
{
    size_t a = 0, b = in->n;
    uint32_t cp;
    while (x->left && a < b) {
        const size_t k = (size_t)ft_utf8_decode(in->s + a, b - a, &cp);
        if (!ft_is_space(cp)) break;
        a += k;
    }
    while (x->right && b > a) {
        size_t k = 1;
        while (k < 4 && ((unsigned char)in->s[b - k] & 0xC0) == 0x80) k++;
        (void)ft_utf8_decode(in->s + b - k, k, &cp);
        if (!ft_is_space(cp)) break;
        b -= k;
    }
    if (a == 0 && b == in->n) return false;
    ft_text_clear(out);
    ft_text_copy(out, in, a, b);
    return true;
}

enum ft_code ft_norms_apply(const struct ft_norms *n, struct ft_regex_work *w, struct ft_text *a, struct ft_text *b, bool no_prefix,
                            struct ft_text **result, struct ft_err *err)
{
    struct ft_text *in = a, *out = b;
    for (size_t i = 0; i < n->n && in->n; i++) {
        const struct ft_norm *x = &n->v[i];
        bool changed = false;
        enum ft_code rc = FT_OK;
        switch (x->kind) {
        case FT_NORM_FORM: changed = ft_normal_form(x->form, in, out); break;
        case FT_NORM_REPLACE: rc = replace(x, w, in, out, &changed, err); break;
        case FT_NORM_PREPEND:
            changed = !no_prefix;
            if (changed) prepend(x, in, out);
            break;
        case FT_NORM_LOWERCASE: changed = lowercase(in, out); break;
        case FT_NORM_STRIP: changed = strip(x, in, out); break;
        case FT_NORM_STRIP_ACCENTS: changed = strip_accents(in, out); break;
        }
        if (rc != FT_OK) return rc;
        if (changed) {
            struct ft_text *t = in;
            in = out, out = t;
        }
    }
    *result = in;
    return FT_OK;
}
