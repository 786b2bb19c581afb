#include "base/json.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/fd.h"

/* struct ft_json is jansson's json_t under another name: no other file sees it. */
static const json_t *in(const struct ft_json *v) { return (const json_t *)(const void *)v; }
static const struct ft_json *out(const json_t *v) { return (const struct ft_json *)(const void *)v; }
static json_t *bare(const struct ft_json *v) /* jansson's iterators take a non-const object and change nothing */
{
    json_t *p;
    memcpy(&p, &v, sizeof p);
    return p;
}

static void fill_where(const json_error_t *e, struct ft_json_where *w)
{
    const enum json_error_code code = json_error_code(e);
    *w = (struct ft_json_where){.line = e->line, .column = e->column, .offset = e->position < 0 ? 0 : (size_t)e->position};
    w->duplicate_key = code == json_error_duplicate_key;
    w->bad_utf8 = code == json_error_invalid_utf8;
    w->bad_escape = code == json_error_null_character || strncmp(e->text, "invalid Unicode", 15) == 0 ||
                    strncmp(e->text, "invalid escape", 14) == 0 || strncmp(e->text, "control character", 17) == 0;
    w->big_integer = code == json_error_numeric_overflow && strncmp(e->text, "too big", 7) == 0;
    snprintf(w->text, sizeof w->text, "%s", e->text);
}

/* jansson loses a NUL byte behind a number or a word and reads on; no JSON has one. */
static bool has_nul(const char *text, size_t n, struct ft_json_where *w)
{
    const char *nul = n ? memchr(text, 0, n) : NULL;
    if (!nul) return false;
    *w = (struct ft_json_where){.line = 1, .column = 1, .offset = (size_t)(nul - text), .bad_escape = true};
    for (const char *p = text; p < nul; p++) {
        const bool end = *p == '\n', inside = ((unsigned char)*p & 0xC0) == 0x80;
        w->line += end;
        w->column = end ? 1 : w->column + !inside;
    }
    snprintf(w->text, sizeof w->text, "control character 0x0");
    return true;
}

enum ft_code ft_json_parse(const char *text, size_t n, unsigned flags, struct ft_json **out_v, struct ft_json_where *where,
                           struct ft_err *err)
{
    size_t f = 0;
    if (flags & FT_JSON_BIGINT_AS_REAL) f |= JSON_DECODE_INT_AS_REAL;
    if (flags & FT_JSON_NUL) f |= JSON_ALLOW_NUL;
    if (!(flags & FT_JSON_DUPLICATES)) f |= JSON_REJECT_DUPLICATES;
    if (flags & FT_JSON_ANY_ROOT) f |= JSON_DECODE_ANY;
    json_error_t e;
    json_t *v = json_loadb(text, n, f, &e);
    struct ft_json_where w;
    const bool nul = v && has_nul(text, n, &w);
    if (v && !nul) {
        *out_v = (struct ft_json *)(void *)v;
        return FT_OK;
    }
    json_decref(v);
    if (!nul) fill_where(&e, &w);
    if (where) *where = w;
    return ft_fail(err, FT_DATA, "not valid JSON at line %d column %d: %s", w.line, w.column, w.text);
}

enum ft_code ft_json_read_file(const char *path, unsigned flags, struct ft_json **out_v, struct ft_err *err)
{
    struct ft_buf b = {0};
    enum ft_code code = ft_read_file(path, (size_t)1 << 31, &b, err);
    if (!code) {
        const size_t bom = b.n >= 3 && memcmp(b.data, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
        struct ft_json_where w;
        code = ft_json_parse(ft_buf_str(&b) + bom, b.n - bom, flags, out_v, &w, err);
        if (code) {
            code = ft_fail(err, FT_DATA, "'%s' is not valid JSON: %s", path, w.text);
            ft_at(err, "%s:%d:%d", path, w.line, w.column);
        }
    }
    ft_buf_fini(&b);
    return code;
}

void ft_json_destroy(struct ft_json *v) { json_decref(bare(v)); }

enum ft_json_type ft_json_type(const struct ft_json *v)
{
    switch (json_typeof(in(v))) {
    case JSON_OBJECT: return FT_JSON_OBJECT;
    case JSON_ARRAY: return FT_JSON_ARRAY;
    case JSON_STRING: return FT_JSON_STRING;
    case JSON_INTEGER: return FT_JSON_INT;
    case JSON_REAL: return FT_JSON_REAL;
    case JSON_TRUE: return FT_JSON_TRUE;
    case JSON_FALSE: return FT_JSON_FALSE;
    case JSON_NULL: return FT_JSON_NULL;
    }
    FT_BUG("impossible JSON type");
}

const char *ft_json_type_name(const struct ft_json *v)
{
    static const char *const names[] = {"null",          "false",    "true",     "an integer",
                                        "a real number", "a string", "an array", "an object"};
    return v ? names[ft_json_type(v)] : "nothing";
}

bool ft_json_is(const struct ft_json *v, enum ft_json_type type) { return v && ft_json_type(v) == type; }
bool ft_json_is_bool(const struct ft_json *v) { return v && json_is_boolean(in(v)); }
bool ft_json_is_number(const struct ft_json *v) { return v && json_is_number(in(v)); }

const struct ft_json *ft_json_get(const struct ft_json *object, const char *key) { return out(json_object_get(in(object), key)); }

size_t ft_json_count(const struct ft_json *v)
{
    return ft_json_is(v, FT_JSON_ARRAY) ? json_array_size(in(v)) : ft_json_is(v, FT_JSON_OBJECT) ? json_object_size(in(v)) : 0;
}

const struct ft_json *ft_json_at(const struct ft_json *array, size_t i) { return out(json_array_get(in(array), i)); }
const char *ft_json_str(const struct ft_json *s) { return json_string_value(in(s)); }
size_t ft_json_str_len(const struct ft_json *s) { return json_string_length(in(s)); }

int64_t ft_json_int(const struct ft_json *v, int64_t otherwise)
{
    return ft_json_is(v, FT_JSON_INT) ? json_integer_value(in(v)) : otherwise;
}
double ft_json_real(const struct ft_json *v, double otherwise)
{
    return ft_json_is_number(v) ? json_number_value(in(v)) : otherwise;
}
bool ft_json_bool(const struct ft_json *v, bool otherwise) { return ft_json_is_bool(v) ? json_is_true(in(v)) : otherwise; }

void *ft_json_iter(const struct ft_json *object) { return json_object_iter(bare(object)); }
void *ft_json_iter_next(const struct ft_json *object, void *it) { return json_object_iter_next(bare(object), it); }
const char *ft_json_iter_key(void *it) { return json_object_iter_key(it); }
const struct ft_json *ft_json_iter_value(void *it) { return out(json_object_iter_value(it)); }

bool ft_json_equal(const struct ft_json *a, const struct ft_json *b) { return json_equal(in(a), in(b)); }

struct ft_jw ft_jw_begin(struct ft_buf *to) { return (struct ft_jw){.out = to}; }

static void before(struct ft_jw *w)
{
    const bool in_array = w->depth && (w->is_array >> (w->depth - 1) & 1);
    FT_ASSERT(!w->depth || in_array || w->after_key); /* members of an object need a key */
    if (w->need_comma && !w->after_key) ft_buf_addc(w->out, ',');
    w->after_key = false;
    w->need_comma = true;
}

static void open_level(struct ft_jw *w, char c, bool is_array)
{
    before(w);
    FT_ASSERT(w->depth < 64);
    ft_buf_addc(w->out, c);
    w->is_array = (w->is_array & ~(1ull << w->depth)) | (uint64_t)is_array << w->depth;
    w->depth++;
    w->need_comma = false;
}
void ft_jw_object(struct ft_jw *w) { open_level(w, '{', false); }
void ft_jw_array(struct ft_jw *w) { open_level(w, '[', true); }

void ft_jw_end(struct ft_jw *w)
{
    FT_ASSERT(w->depth > 0 && !w->after_key);
    w->depth--;
    ft_buf_addc(w->out, w->is_array >> w->depth & 1 ? ']' : '}');
    w->need_comma = true;
}

static void quoted(struct ft_buf *b, const char *s, size_t n)
{
    ft_buf_addc(b, '"');
    for (size_t i = 0; i < n;) {
        const size_t good = ft_utf8_valid(s + i, n - i);
        for (size_t j = i; j < i + good; j++) {
            const unsigned char c = (unsigned char)s[j];
            if (c == '"' || c == '\\') {
                ft_buf_addc(b, '\\');
                ft_buf_addc(b, (char)c);
            } else if (c == '\n') {
                ft_buf_adds(b, "\\n");
            } else if (c == '\t') {
                ft_buf_adds(b, "\\t");
            } else if (c == '\r') {
                ft_buf_adds(b, "\\r");
            } else if (c < 0x20 || c == 0x7F) {
                ft_buf_addf(b, "\\u%04x", c);
            } else {
                ft_buf_addc(b, (char)c);
            }
        }
        i += good;
        if (i < n) {
            ft_buf_adds(b, "\xEF\xBF\xBD");
            i++;
        }
    }
    ft_buf_addc(b, '"');
}

void ft_jw_key(struct ft_jw *w, const char *key)
{
    FT_ASSERT(w->depth && !w->after_key && !(w->is_array >> (w->depth - 1) & 1));
    if (w->need_comma) ft_buf_addc(w->out, ',');
    quoted(w->out, key, strlen(key));
    ft_buf_addc(w->out, ':');
    w->after_key = true;
}

void ft_jw_strn(struct ft_jw *w, const char *s, size_t n)
{
    before(w);
    quoted(w->out, s, n);
}
void ft_jw_str(struct ft_jw *w, const char *s)
{
    if (s) ft_jw_strn(w, s, strlen(s));
    else ft_jw_null(w);
}
void ft_jw_int(struct ft_jw *w, int64_t x)
{
    before(w);
    ft_buf_addf(w->out, "%lld", (long long)x);
}
void ft_jw_u64(struct ft_jw *w, uint64_t x)
{
    before(w);
    ft_buf_addf(w->out, "%llu", (unsigned long long)x);
}
void ft_jw_real(struct ft_jw *w, double x)
{
    before(w);
    if (!isfinite(x)) {
        ft_buf_adds(w->out, "null");
        return;
    }
    const size_t at = w->out->n;
    ft_buf_add_real(w->out, x);
    if (!strpbrk(w->out->data + at, ".e")) ft_buf_adds(w->out, ".0"); /* stays a real for readers that tell them apart */
}
void ft_jw_bool(struct ft_jw *w, bool x) { ft_jw_raw(w, x ? "true" : "false"); }
void ft_jw_null(struct ft_jw *w) { ft_jw_raw(w, "null"); }
void ft_jw_raw(struct ft_jw *w, const char *json)
{
    before(w);
    ft_buf_adds(w->out, json);
}

void ft_jw_value(struct ft_jw *w, const struct ft_json *v)
{
    if (!v) {
        ft_jw_null(w);
        return;
    }
    switch (ft_json_type(v)) {
    case FT_JSON_NULL: ft_jw_null(w); break;
    case FT_JSON_FALSE:
    case FT_JSON_TRUE: ft_jw_bool(w, ft_json_bool(v, false)); break;
    case FT_JSON_INT: ft_jw_int(w, ft_json_int(v, 0)); break;
    case FT_JSON_REAL: ft_jw_real(w, ft_json_real(v, 0)); break;
    case FT_JSON_STRING: ft_jw_strn(w, ft_json_str(v), ft_json_str_len(v)); break;
    case FT_JSON_ARRAY:
        ft_jw_array(w);
        for (size_t i = 0; i < ft_json_count(v); i++) ft_jw_value(w, ft_json_at(v, i));
        ft_jw_end(w);
        break;
    case FT_JSON_OBJECT:
        ft_jw_object(w);
        for (void *it = ft_json_iter(v); it; it = ft_json_iter_next(v, it)) {
            ft_jw_key(w, ft_json_iter_key(it));
            ft_jw_value(w, ft_json_iter_value(it));
        }
        ft_jw_end(w);
        break;
    }
}

void ft_jw_kstr(struct ft_jw *w, const char *key, const char *s)
{
    ft_jw_key(w, key);
    ft_jw_str(w, s);
}
void ft_jw_kint(struct ft_jw *w, const char *key, int64_t x)
{
    ft_jw_key(w, key);
    ft_jw_int(w, x);
}
void ft_jw_kreal(struct ft_jw *w, const char *key, double x)
{
    ft_jw_key(w, key);
    ft_jw_real(w, x);
}
void ft_jw_kbool(struct ft_jw *w, const char *key, bool x)
{
    ft_jw_key(w, key);
    ft_jw_bool(w, x);
}
