/* Bytes and text: a growable buffer, strict number parsing, UTF-8, nearest names. Locale-free. */
#ifndef FT_BASE_STR_H
#define FT_BASE_STR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Growable bytes. {0} is empty. data is NUL terminated whenever it is not NULL; n does not count that NUL. Owner frees. */
struct ft_buf {
    char *data;
    size_t n, cap;
};
void ft_buf_fini(struct ft_buf *b); /* frees and empties */
void ft_buf_reserve(struct ft_buf *b, size_t more);
void ft_buf_add(struct ft_buf *b, const void *bytes, size_t n);
void ft_buf_adds(struct ft_buf *b, const char *s);
void ft_buf_addc(struct ft_buf *b, char c);
void ft_buf_addf(struct ft_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ft_buf_vaddf(struct ft_buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
void ft_buf_clear(struct ft_buf *b);            /* n = 0, memory kept */
void ft_buf_drop(struct ft_buf *b, size_t n);   /* removes n bytes at the front */
const char *ft_buf_str(const struct ft_buf *b); /* "" when empty */
/* What stands for the front of p[0..n), n > 0, on a terminal: tab and printable UTF-8 themselves, any other byte (newline and C1
 * controls too) as \xHH. Returns how many bytes of p that was; out is NUL terminated. */
size_t ft_visible_next(const char *p, size_t n, char out[8]);
/* Appends text that came from outside so that a terminal obeys nothing in it; newlines pass when also is "\n", not when it is "". */
void ft_buf_add_visible(struct ft_buf *b, const char *p, size_t n, const char *also);
/* Appends x in the shortest form that reads back to the same double ("1e-05", "0.1", "2"); NaN/Inf as nan, inf, -inf. */
void ft_buf_add_real(struct ft_buf *b, double x);

/* Whole-string decimal integer, optional sign, no blanks, no leading '+'. false: not a number or out of [min,max]. */
bool ft_parse_i64(const char *s, int64_t min, int64_t max, int64_t *out);
bool ft_parse_u64(const char *s, uint64_t max, uint64_t *out);
bool ft_parse_real(const char *s, double *out); /* decimal with optional exponent; no hex, nan, inf */

bool ft_str_eq(const char *a, const char *b); /* NULL equals NULL only */
bool ft_str_starts(const char *s, const char *prefix);
bool ft_str_ends(const char *s, const char *suffix);
bool ft_str_case_eq(const char *a, const char *b); /* ASCII */
/* Does the name of a variable say that its value is a secret: TOKEN KEY SECRET PASS CRED in it, in any case? */
bool ft_is_secret_name(const char *name);

/* Length of valid UTF-8 at the front of s[0..n): n when all is valid. No overlong forms, no surrogates, <= U+10FFFF. */
size_t ft_utf8_valid(const char *s, size_t n);
/* Decodes one code point of valid UTF-8; returns its length 1..4. */
int ft_utf8_decode(const char *s, size_t n, uint32_t *cp);
int ft_utf8_encode(uint32_t cp, char out[4]);

/* Damerau-free edit distance of two short texts (bytes), at most limit+1. */
unsigned ft_edit_distance(const char *a, const char *b, unsigned limit);
/* The name in names[0..n) that a user likely meant: equal but for case, else edit distance <= 2 (and less than the
 * length); NULL when none. Ties: the first. */
const char *ft_nearest(const char *word, const char *const *names, size_t n);

#endif
