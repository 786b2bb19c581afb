#include "base/str.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

void ft_buf_fini(struct ft_buf *b)
{
    free(b->data);
    *b = (struct ft_buf){0};
}

void ft_buf_reserve(struct ft_buf *b, size_t more)
{
    if (more > SIZE_MAX / 2 - b->n) ft_die_nomem(more);
    ft_grow(&b->data, &b->cap, b->n + more + 1, 1);
}

void ft_buf_add(struct ft_buf *b, const void *bytes, size_t n)
{
    ft_buf_reserve(b, n);
    if (n) memcpy(b->data + b->n, bytes, n);
    b->n += n;
    b->data[b->n] = 0;
}

void ft_buf_adds(struct ft_buf *b, const char *s) { ft_buf_add(b, s, strlen(s)); }
void ft_buf_addc(struct ft_buf *b, char c) { ft_buf_add(b, &c, 1); }

void ft_buf_vaddf(struct ft_buf *b, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    const int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (n < 0) return;
    ft_buf_reserve(b, (size_t)n);
    vsnprintf(b->data + b->n, (size_t)n + 1, fmt, ap);
    b->n += (size_t)n;
}

void ft_buf_addf(struct ft_buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    ft_buf_vaddf(b, fmt, ap);
    va_end(ap);
}

void ft_buf_clear(struct ft_buf *b)
{
    b->n = 0;
    if (b->data) b->data[0] = 0;
}

void ft_buf_drop(struct ft_buf *b, size_t n)
{
    if (n > b->n) n = b->n;
    if (!n) return;
    memmove(b->data, b->data + n, b->n - n);
    b->n -= n;
    b->data[b->n] = 0;
}

const char *ft_buf_str(const struct ft_buf *b) { return b->data ? b->data : ""; }

/* The decimal point is a dot whatever the program's locale says. */
static locale_t c_locale(void) { return newlocale(LC_ALL_MASK, "C", (locale_t)0); }

bool ft_is_secret_name(const char *name)
{
    static const char *const words[] = {"TOKEN", "KEY", "SECRET", "PASS", "CRED"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasestr(name, words[i])) return true;
    return false;
}

size_t ft_visible_next(const char *p, size_t n, char out[8])
{
    const unsigned char c = (unsigned char)p[0];
    const size_t valid = c >= 0x80 ? ft_utf8_valid(p, n < 4 ? n : 4) : 0;
    uint32_t cp = 0;
    const size_t k = valid ? (size_t)ft_utf8_decode(p, n, &cp) : 1;
    const bool plain = valid ? cp >= 0xA0 : (c >= 0x20 && c < 0x7F) || c == '\t';
    if (plain) {
        memcpy(out, p, k);
        out[k] = 0;
        return k;
    }
    snprintf(out, 8, "\\x%02X", c);
    return 1;
}

void ft_buf_add_visible(struct ft_buf *b, const char *p, size_t n, const char *also)
{
    char one[8];
    for (size_t i = 0; i < n;) {
        if (p[i] && strchr(also, p[i])) ft_buf_addc(b, p[i++]);
        else {
            i += ft_visible_next(p + i, n - i, one);
            ft_buf_adds(b, one);
        }
    }
}

void ft_buf_add_real(struct ft_buf *b, double x)
{
    if (isnan(x)) {
        ft_buf_adds(b, "nan");
        return;
    }
    if (isinf(x)) {
        ft_buf_adds(b, x < 0 ? "-inf" : "inf");
        return;
    }
    const locale_t c = c_locale(), old = uselocale(c);
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x) break;
    }
    uselocale(old);
    freelocale(c);
    ft_buf_adds(b, text);
}

bool ft_parse_i64(const char *s, int64_t min, int64_t max, int64_t *out)
{
    const char *p = s + (*s == '-');
    if (*p < '0' || *p > '9') return false;
    for (const char *q = p; *q; q++)
        if (*q < '0' || *q > '9') return false;
    errno = 0;
    const long long v = strtoll(s, NULL, 10);
    if (errno || v < min || v > max) return false;
    *out = v;
    return true;
}

bool ft_parse_u64(const char *s, uint64_t max, uint64_t *out)
{
    if (!*s) return false;
    for (const char *q = s; *q; q++)
        if (*q < '0' || *q > '9') return false;
    errno = 0;
    const unsigned long long v = strtoull(s, NULL, 10);
    if (errno || v > max) return false;
    *out = v;
    return true;
}

bool ft_parse_real(const char *s, double *out)
{
    const char *p = s + (*s == '-');
    size_t digits = 0;
    for (; *p >= '0' && *p <= '9'; p++) digits++;
    if (*p == '.')
        for (p++; *p >= '0' && *p <= '9'; p++) digits++;
    if (!digits) return false;
    if (*p == 'e' || *p == 'E') {
        p++;
        p += *p == '-' || *p == '+';
        if (*p < '0' || *p > '9') return false;
        while (*p >= '0' && *p <= '9') p++;
    }
    if (*p) return false;
    const locale_t c = c_locale(), old = uselocale(c);
    const double v = strtod(s, NULL);
    uselocale(old);
    freelocale(c);
    if (!isfinite(v)) return false;
    *out = v;
    return true;
}

bool ft_str_eq(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }
bool ft_str_starts(const char *s, const char *prefix) { return strncmp(s, prefix, strlen(prefix)) == 0; }

bool ft_str_ends(const char *s, const char *suffix)
{
    const size_t n = strlen(s), m = strlen(suffix);
    return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

bool ft_str_case_eq(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (lower(*a) != lower(*b)) return false;
    return *a == *b;
}

static size_t utf8_one(const unsigned char *s, size_t n)
{
    if (s[0] < 0x80) return 1;
    const size_t len = s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : s[0] < 0xF5 ? 4 : 0;
    if (!len || len > n) return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    if (s[0] == 0xE0 && s[1] < 0xA0) return 0; /* overlong */
    if (s[0] == 0xED && s[1] > 0x9F) return 0; /* surrogates */
    if (s[0] == 0xF0 && s[1] < 0x90) return 0;
    if (s[0] == 0xF4 && s[1] > 0x8F) return 0; /* past U+10FFFF */
    return len;
}

size_t ft_utf8_valid(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        const size_t len = utf8_one((const unsigned char *)s + i, n - i);
        if (!len) return i;
        i += len;
    }
    return n;
}

int ft_utf8_decode(const char *s, size_t n, uint32_t *cp)
{
    const unsigned char *u = (const unsigned char *)s;
    const size_t len = n ? utf8_one(u, n) : 0;
    switch (len) {
    case 1: *cp = u[0]; return 1;
    case 2: *cp = (u[0] & 31u) << 6 | (u[1] & 63u); return 2;
    case 3: *cp = (u[0] & 15u) << 12 | (u[1] & 63u) << 6 | (u[2] & 63u); return 3;
    case 4: *cp = (u[0] & 7u) << 18 | (u[1] & 63u) << 12 | (u[2] & 63u) << 6 | (u[3] & 63u); return 4;
    default: *cp = 0xFFFD; return n ? 1 : 0;
    }
}

int ft_utf8_encode(uint32_t cp, char out[4])
{
    unsigned char *u = (unsigned char *)out;
    if (cp < 0x80) {
        u[0] = (unsigned char)cp;
        return 1;
    }
    if (cp < 0x800) {
        u[0] = (unsigned char)(0xC0 | cp >> 6);
        u[1] = (unsigned char)(0x80 | (cp & 63));
        return 2;
    }
    if (cp < 0x10000) {
        u[0] = (unsigned char)(0xE0 | cp >> 12);
        u[1] = (unsigned char)(0x80 | (cp >> 6 & 63));
        u[2] = (unsigned char)(0x80 | (cp & 63));
        return 3;
    }
    u[0] = (unsigned char)(0xF0 | cp >> 18);
    u[1] = (unsigned char)(0x80 | (cp >> 12 & 63));
    u[2] = (unsigned char)(0x80 | (cp >> 6 & 63));
    u[3] = (unsigned char)(0x80 | (cp & 63));
    return 4;
}

unsigned ft_edit_distance(const char *a, const char *b, unsigned limit)
{
    const size_t n = strlen(a), m = strlen(b);
    if ((n > m ? n - m : m - n) > limit) return limit + 1;
    unsigned *row = ft_xcalloc(m + 1, sizeof *row);
    for (size_t j = 0; j <= m; j++) row[j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            const unsigned up = row[j], swap = diagonal + (a[i - 1] != b[j - 1]);
            const unsigned step = (up < row[j - 1] ? up : row[j - 1]) + 1;
            row[j] = swap < step ? swap : step;
            diagonal = up;
        }
    }
    const unsigned d = row[m];
    free(row);
    return d > limit ? limit + 1 : d;
}

const char *ft_nearest(const char *word, const char *const *names, size_t n)
{
    const char *best = NULL;
    unsigned best_d = 3;
    for (size_t i = 0; i < n; i++) {
        if (!names[i]) continue;
        if (ft_str_case_eq(word, names[i])) return names[i];
        const unsigned d = ft_edit_distance(word, names[i], 2);
        if (d < best_d && d < strlen(names[i])) {
            best = names[i];
            best_d = d;
        }
    }
    return best;
}
