/* JSON: strict reading (jansson, only in json.c) and a streaming writer of our own. Locale-free. */
#ifndef FT_BASE_JSON_H
#define FT_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* A parsed value. The root is owned by who parsed it; children are borrowed and live as long as the root. */
struct ft_json;

enum ft_json_type {
    FT_JSON_NULL,
    FT_JSON_FALSE,
    FT_JSON_TRUE,
    FT_JSON_INT,
    FT_JSON_REAL,
    FT_JSON_STRING,
    FT_JSON_ARRAY,
    FT_JSON_OBJECT
};

enum ft_json_flag {
    FT_JSON_BIGINT_AS_REAL = 1, /* all integers become reals; else an integer beyond 64 bit is an error */
    FT_JSON_NUL = 2,            /* \u0000 in strings is allowed (lengths tell) */
    FT_JSON_DUPLICATES = 4,     /* a repeated key replaces the earlier one; else refused */
    FT_JSON_ANY_ROOT = 8        /* the root may be any value; else object or array */
};

/* What jansson said about the text; column counts code points from 1. */
struct ft_json_where {
    int line, column;
    size_t offset; /* bytes */
    bool duplicate_key, bad_utf8, bad_escape, big_integer;
    char text[256];
};

/* Parses exactly n bytes. On error returns FT_DATA with line and column in the text, and *where when given. */
enum ft_code ft_json_parse(const char *text, size_t n, unsigned flags, struct ft_json **out_v, struct ft_json_where *where,
                           struct ft_err *err) FT_MUST_CHECK;
/* Reads and parses a file; the error names it. */
enum ft_code ft_json_read_file(const char *path, unsigned flags, struct ft_json **out_v, struct ft_err *err) FT_MUST_CHECK;
void ft_json_destroy(struct ft_json *v); /* NULL is fine */

enum ft_json_type ft_json_type(const struct ft_json *v);
const char *ft_json_type_name(const struct ft_json *v);           /* "null", "string", …; "nothing" for NULL */
bool ft_json_is(const struct ft_json *v, enum ft_json_type type); /* false for NULL; TRUE and FALSE are two types */
bool ft_json_is_bool(const struct ft_json *v);
bool ft_json_is_number(const struct ft_json *v);

/* NULL / 0 when v is not of that type. */
const struct ft_json *ft_json_get(const struct ft_json *object, const char *key);
size_t ft_json_count(const struct ft_json *array_or_object);
const struct ft_json *ft_json_at(const struct ft_json *array, size_t i);
const char *ft_json_str(const struct ft_json *string); /* NUL terminated; NULL when no string */
size_t ft_json_str_len(const struct ft_json *string);
int64_t ft_json_int(const struct ft_json *number, int64_t otherwise); /* a real is not taken */
double ft_json_real(const struct ft_json *number, double otherwise);  /* integers too */
bool ft_json_bool(const struct ft_json *v, bool otherwise);

/* Members in file order:  for (it = ft_json_iter(o); it; it = ft_json_iter_next(o, it)) … */
void *ft_json_iter(const struct ft_json *object);
void *ft_json_iter_next(const struct ft_json *object, void *it);
const char *ft_json_iter_key(void *it);
const struct ft_json *ft_json_iter_value(void *it);

bool ft_json_equal(const struct ft_json *a, const struct ft_json *b);

/* Writer: appends to *out. Commas and quoting are its business; nesting is checked (FT_BUG).
 *   struct ft_jw w = ft_jw_begin(&buf);  ft_jw_object(&w); ft_jw_key(&w,"a"); ft_jw_int(&w,1); ft_jw_end(&w);      */
struct ft_jw {
    struct ft_buf *out;
    unsigned depth;
    uint64_t is_array; /* bit per level */
    bool need_comma, after_key;
};
struct ft_jw ft_jw_begin(struct ft_buf *out);
void ft_jw_object(struct ft_jw *w);
void ft_jw_array(struct ft_jw *w);
void ft_jw_end(struct ft_jw *w); /* closes the innermost object or array */
void ft_jw_key(struct ft_jw *w, const char *key);
void ft_jw_str(struct ft_jw *w, const char *s); /* NULL: null; bytes that are not UTF-8 become U+FFFD */
void ft_jw_strn(struct ft_jw *w, const char *s, size_t n);
void ft_jw_int(struct ft_jw *w, int64_t x);
void ft_jw_u64(struct ft_jw *w, uint64_t x);
void ft_jw_real(struct ft_jw *w, double x); /* shortest round trip; NaN and Inf: null */
void ft_jw_bool(struct ft_jw *w, bool x);
void ft_jw_null(struct ft_jw *w);
void ft_jw_raw(struct ft_jw *w, const char *json);          /* an already written value */
void ft_jw_value(struct ft_jw *w, const struct ft_json *v); /* copies a parsed value, order kept */
/* key + value in one call */
void ft_jw_kstr(struct ft_jw *w, const char *key, const char *s);
void ft_jw_kint(struct ft_jw *w, const char *key, int64_t x);
void ft_jw_kreal(struct ft_jw *w, const char *key, double x);
void ft_jw_kbool(struct ft_jw *w, const char *key, bool x);

#endif
