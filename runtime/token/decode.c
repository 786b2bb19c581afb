#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/token/tok.h"

void ft_decs_fini(struct ft_decs *d)
{
    for (size_t i = 0; i < d->n; i++) {
        ft_pattern_fini(&d->v[i].pattern);
        free(d->v[i].content);
    }
    free(d->v);
    memset(d, 0, sizeof *d);
}

/* A list of texts: bytes one after another, ends[i] the end of text i. */
struct texts {
    struct ft_buf bytes;
    size_t *ends, n, cap;
};

static void close_text(struct texts *t)
{
    ft_grow(&t->ends, &t->cap, t->n + 1, sizeof *t->ends);
    t->ends[t->n++] = t->bytes.n;
}

static void clear(struct texts *t)
{
    ft_buf_clear(&t->bytes);
    t->n = 0;
}

static void fini(struct texts *t)
{
    ft_buf_fini(&t->bytes);
    free(t->ends);
}

/* Bytes as UTF-8, each maximal ill-formed part as U+FFFD (the practice of the Unicode standard, section 3.9). */
static void add_lossy(struct ft_buf *out, const char *s, size_t n)
{
    while (n) {
        const size_t good = ft_utf8_valid(s, n);
        ft_buf_add(out, s, good);
        s += good, n -= good;
        if (!n) break;
        const unsigned char c = (unsigned char)s[0];
        size_t want = c >= 0xC2 && c <= 0xDF ? 2 : c >= 0xE0 && c <= 0xEF ? 3 : c >= 0xF0 && c <= 0xF4 ? 4 : 1, k = 1;
        unsigned lo = 0x80, hi = 0xBF;
        if (c == 0xE0) lo = 0xA0;
        if (c == 0xED) hi = 0x9F;
        if (c == 0xF0) lo = 0x90;
        if (c == 0xF4) hi = 0x8F;
        for (; k < want && k < n && (unsigned char)s[k] >= lo && (unsigned char)s[k] <= hi; k++) lo = 0x80, hi = 0xBF;
        ft_buf_adds(out, "\xEF\xBF\xBD");
        s += k, n -= k;
    }
}

/* All texts become one: the bytes that the alphabet stands for; a text with other characters is taken as it is. */
static void byte_level(const struct texts *in, struct texts *out)
{
    struct ft_buf bytes = {0};
    for (size_t i = 0, from = 0; i < in->n; from = in->ends[i++]) {
        const size_t before = bytes.n, n = in->ends[i] - from;
        const char *s = in->bytes.data ? in->bytes.data + from : "";
        for (size_t k = 0; k < n;) {
            uint32_t cp;
            k += (size_t)ft_utf8_decode(s + k, n - k, &cp);
            const int b = ft_char_to_byte(cp);
            if (b < 0) {
                bytes.n = before;
                ft_buf_add(&bytes, s, n);
                break;
            }
            ft_buf_addc(&bytes, (char)b);
        }
    }
    add_lossy(&out->bytes, bytes.data, bytes.n);
    close_text(out);
    ft_buf_fini(&bytes);
}

static int byte_of(const char *s, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    int x = 0;
    if (n != 6 || s[0] != '<' || s[1] != '0' || s[2] != 'x' || s[5] != '>') return -1;
    for (int i = 3; i < 5; i++) {
        const char c = s[i] >= 'A' && s[i] <= 'F' ? (char)(s[i] + 32) : s[i], *at = c ? strchr(hex, c) : NULL;
        if (!at) return -1;
        x = 16 * x + (int)(at - hex);
    }
    return x;
}

static void flush_bytes(struct ft_buf *bytes, struct texts *out)
{
    if (!bytes->n) return;
    if (ft_utf8_valid(bytes->data, bytes->n) == bytes->n) ft_buf_add(&out->bytes, bytes->data, bytes->n), close_text(out);
    else
        for (size_t i = 0; i < bytes->n; i++) ft_buf_adds(&out->bytes, "\xEF\xBF\xBD"), close_text(out);
    ft_buf_clear(bytes);
}

static void byte_fallback(const struct texts *in, struct texts *out)
{
    struct ft_buf bytes = {0};
    for (size_t i = 0, from = 0; i < in->n; from = in->ends[i++]) {
        const char *s = in->bytes.data ? in->bytes.data + from : "";
        const size_t n = in->ends[i] - from;
        const int b = byte_of(s, n);
        if (b >= 0) {
            ft_buf_addc(&bytes, (char)b);
            continue;
        }
        flush_bytes(&bytes, out);
        ft_buf_add(&out->bytes, s, n);
        close_text(out);
    }
    flush_bytes(&bytes, out);
    ft_buf_fini(&bytes);
}

static void strip(const struct ft_dec *d, const char *s, size_t n, struct ft_buf *out)
{
    char c[4];
    const size_t k = (size_t)ft_utf8_encode(d->strip_char, c);
    size_t a = 0, b = n;
    for (size_t i = 0; i < d->start && b - a >= k && !memcmp(s + a, c, k); i++) a += k;
    for (size_t i = 0; i < d->stop && b - a >= k && !memcmp(s + b - k, c, k); i++) b -= k;
    ft_buf_add(out, s + a, b - a);
}

static void replace(const struct ft_dec *d, struct ft_regex_work *w, const char *s, size_t n, struct ft_buf *out)
{
    size_t at = 0, copied = 0, begin, end;
    while (at <= n && ft_pattern_next(&d->pattern, w, s, n, at, &begin, &end, NULL) > 0) {
        ft_buf_add(out, s + copied, begin - copied);
        ft_buf_add(out, d->content, d->content_n);
        copied = at = end;
        if (end == begin) at++;
        while (at < n && ((unsigned char)s[at] & 0xC0) == 0x80) at++;
    }
    ft_buf_add(out, s + copied, n - copied);
}

static void metaspace(const struct ft_dec *d, size_t index, const char *s, size_t n, struct ft_buf *out)
{
    const size_t rn = strlen(d->replacement);
    for (size_t i = 0; i < n;) {
        if (n - i >= rn && !memcmp(s + i, d->replacement, rn)) {
            if (index > 0 || d->prepend == FT_PREPEND_NEVER) ft_buf_addc(out, ' ');
            i += rn;
        } else {
            ft_buf_addc(out, s[i++]);
        }
    }
}

static void step(const struct ft_dec *d, struct ft_regex_work *w, const struct texts *in, struct texts *out)
{
    clear(out);
    if (d->kind == FT_DEC_BYTE_LEVEL) {
        byte_level(in, out);
        return;
    }
    if (d->kind == FT_DEC_BYTE_FALLBACK) {
        byte_fallback(in, out);
        return;
    }
    if (d->kind == FT_DEC_FUSE) {
        ft_buf_add(&out->bytes, in->bytes.data, in->bytes.n);
        close_text(out);
        return;
    }
    for (size_t i = 0, from = 0; i < in->n; from = in->ends[i++]) {
        const char *s = in->bytes.data ? in->bytes.data + from : "";
        const size_t n = in->ends[i] - from;
        if (d->kind == FT_DEC_STRIP) strip(d, s, n, &out->bytes);
        else if (d->kind == FT_DEC_REPLACE) replace(d, w, s, n, &out->bytes);
        else metaspace(d, i, s, n, &out->bytes);
        close_text(out);
    }
}

/* The reference knows special tokens by their text, as the file writes it; one that is searched in another form is none for it. */
static bool is_special_text(const struct ft_tokenizer *t, const char *s, size_t n)
{
    const struct ft_added *x = ft_added_find(&t->added, s, n);
    return x && x->special;
}

void ft_decode(const struct ft_tokenizer *t, const int32_t *ids, size_t n, bool skip_special, struct ft_buf *out)
{
    struct texts a = {0}, b = {0}, *in = &a, *to = &b;
    struct ft_regex_work *w = ft_regex_work_create();
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *s = ft_tokenizer_token(t, ids[i], &len);
        if (!s || (skip_special && is_special_text(t, s, len))) continue;
        if (a.n && !t->decs.any) ft_buf_addc(&a.bytes, ' ');
        ft_buf_add(&a.bytes, s, len);
        close_text(&a);
    }
    for (size_t i = 0; i < t->decs.n; i++) {
        step(&t->decs.v[i], w, in, to);
        struct texts *swap = in;
        in = to, to = swap;
    }
    if (in->bytes.n) ft_buf_add(out, in->bytes.data, in->bytes.n);
    fini(&a);
    fini(&b);
    ft_regex_work_destroy(w);
}
