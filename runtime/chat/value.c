#include "runtime/chat/value.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/token/unicode.h"

enum { DEEP = 256 };

void *ft_vheap_alloc(struct ft_vheap *h, size_t bytes)
{
    if (bytes > h->limit || h->used > h->limit - bytes) {
        h->failed = true;
        return NULL;
    }
    h->used += bytes + 16;
    return ft_arena_alloc(h->arena, bytes ? bytes : 1);
}

struct ft_jval ft_v_none(void) { return (struct ft_jval){.type = FT_V_NONE}; }
struct ft_jval ft_v_bool(bool b) { return (struct ft_jval){.type = FT_V_BOOL, .u.b = b}; }
struct ft_jval ft_v_int(int64_t i) { return (struct ft_jval){.type = FT_V_INT, .u.i = i}; }
struct ft_jval ft_v_float(double f) { return (struct ft_jval){.type = FT_V_FLOAT, .u.f = f}; }
struct ft_jval ft_v_str(const char *s, size_t n) { return (struct ft_jval){.type = FT_V_STRING, .n = (uint32_t)n, .u.s = s}; }
struct ft_jval ft_v_cstr(const char *s) { return ft_v_str(s, strlen(s)); }
struct ft_jval ft_v_undefined(const char *name)
{
    return (struct ft_jval){.type = FT_V_UNDEFINED, .n = (uint32_t)strlen(name), .u.s = name};
}

struct ft_jval ft_v_copy(struct ft_vheap *h, const char *s, size_t n)
{
    char *c = n <= UINT32_MAX ? ft_vheap_alloc(h, n + 1) : NULL;
    if (!c) {
        h->failed = true;
        return ft_v_cstr("");
    }
    if (n) memcpy(c, s, n);
    return ft_v_str(c, n);
}

struct ft_jval ft_v_list(struct ft_vheap *h, enum ft_vtype type, size_t room)
{
    struct ft_vlist *l = ft_vheap_alloc(h, sizeof *l);
    struct ft_jval v = {.type = (uint8_t)type, .u.list = l ? l : &h->spare_list};
    if (!l || !room || room > h->limit / sizeof *l->v) return v;
    l->v = ft_vheap_alloc(h, room * sizeof *l->v);
    if (l->v) l->cap = room;
    return v;
}

void ft_v_push(struct ft_vheap *h, struct ft_jval list, struct ft_jval x)
{
    struct ft_vlist *l = list.u.list;
    if (h->failed) return;
    if (l->n == l->cap) {
        const size_t cap = l->cap ? 2 * l->cap : 8;
        struct ft_jval *v = ft_vheap_alloc(h, cap * sizeof *v);
        if (!v) return;
        if (l->n) memcpy(v, l->v, l->n * sizeof *v);
        l->v = v, l->cap = cap;
    }
    l->v[l->n++] = x;
}

struct ft_jval ft_v_dict(struct ft_vheap *h)
{
    struct ft_vdict *d = ft_vheap_alloc(h, sizeof *d);
    return (struct ft_jval){.type = FT_V_DICT, .u.dict = d ? d : &h->spare_dict};
}

static bool find(const struct ft_vdict *d, struct ft_jval key, size_t *at)
{
    for (size_t i = 0; i < d->n; i++)
        if (ft_v_equal(d->key[i], key)) {
            *at = i;
            return true;
        }
    return false;
}

static void append(struct ft_vheap *h, struct ft_vdict *d, struct ft_jval key, struct ft_jval value)
{
    if (h->failed) return;
    if (d->n == d->cap) {
        const size_t cap = d->cap ? 2 * d->cap : 8;
        struct ft_jval *k = ft_vheap_alloc(h, cap * sizeof *k), *v = ft_vheap_alloc(h, cap * sizeof *v);
        if (!k || !v) return;
        if (d->n) memcpy(k, d->key, d->n * sizeof *k), memcpy(v, d->value, d->n * sizeof *v);
        d->key = k, d->value = v, d->cap = cap;
    }
    d->key[d->n] = key, d->value[d->n++] = value;
}

void ft_v_set(struct ft_vheap *h, struct ft_jval dict, struct ft_jval key, struct ft_jval value)
{
    size_t at;
    if (find(dict.u.dict, key, &at)) dict.u.dict->value[at] = value;
    else append(h, dict.u.dict, key, value);
}

bool ft_v_get(struct ft_jval dict, struct ft_jval key, struct ft_jval *out)
{
    size_t at;
    if (!find(dict.u.dict, key, &at)) return false;
    *out = dict.u.dict->value[at];
    return true;
}

bool ft_v_get_str(struct ft_jval dict, const char *key, size_t n, struct ft_jval *out)
{
    return (dict.type == FT_V_DICT || dict.type == FT_V_NAMESPACE) && ft_v_get(dict, ft_v_str(key, n), out);
}

struct ft_jval ft_v_json(struct ft_vheap *h, const struct ft_json *v)
{
    struct ft_jval out;
    if (!v) return ft_v_none();
    switch (ft_json_type(v)) {
    case FT_JSON_NULL: return ft_v_none();
    case FT_JSON_FALSE: return ft_v_bool(false);
    case FT_JSON_TRUE: return ft_v_bool(true);
    case FT_JSON_INT: return ft_v_int(ft_json_int(v, 0));
    case FT_JSON_REAL: return ft_v_float(ft_json_real(v, 0));
    case FT_JSON_STRING: return ft_v_str(ft_json_str(v), ft_json_str_len(v));
    case FT_JSON_ARRAY:
        out = ft_v_list(h, FT_V_LIST, ft_json_count(v));
        for (size_t i = 0; i < ft_json_count(v) && !h->failed; i++) ft_v_push(h, out, ft_v_json(h, ft_json_at(v, i)));
        return out;
    case FT_JSON_OBJECT:
        out = ft_v_dict(h);
        for (void *it = ft_json_iter(v); it && !h->failed; it = ft_json_iter_next(v, it))
            append(h, out.u.dict, ft_v_cstr(ft_json_iter_key(it)), ft_v_json(h, ft_json_iter_value(it)));
        return out;
    }
    return ft_v_none();
}

bool ft_v_is_number(struct ft_jval v) { return v.type == FT_V_INT || v.type == FT_V_FLOAT || v.type == FT_V_BOOL; }

bool ft_v_truth(struct ft_jval v)
{
    switch ((enum ft_vtype)v.type) {
    case FT_V_UNDEFINED:
    case FT_V_NONE: return false;
    case FT_V_BOOL: return v.u.b;
    case FT_V_INT: return v.u.i != 0;
    case FT_V_FLOAT: return v.u.f != 0;
    case FT_V_STRING: return v.n > 0;
    case FT_V_LIST:
    case FT_V_TUPLE: return v.u.list->n > 0;
    case FT_V_DICT: return v.u.dict->n > 0;
    case FT_V_NAMESPACE:
    case FT_V_FUNCTION:
    case FT_V_METHOD:
    case FT_V_MACRO:
    case FT_V_LOOP: return true;
    }
    return false;
}

static double as_real(struct ft_jval v) { return v.type == FT_V_FLOAT ? v.u.f : v.type == FT_V_INT ? (double)v.u.i : v.u.b; }
static int64_t as_int(struct ft_jval v) { return v.type == FT_V_INT ? v.u.i : v.u.b; }

static bool equal(struct ft_jval a, struct ft_jval b, int depth)
{
    if (depth > DEEP) return false;
    if (ft_v_is_number(a) && ft_v_is_number(b)) {
        if (a.type == FT_V_FLOAT || b.type == FT_V_FLOAT) return as_real(a) == as_real(b);
        return as_int(a) == as_int(b);
    }
    if (a.type != b.type) return false;
    switch ((enum ft_vtype)a.type) {
    case FT_V_UNDEFINED:
    case FT_V_NONE: return true;
    case FT_V_STRING: return a.n == b.n && (!a.n || !memcmp(a.u.s, b.u.s, a.n));
    case FT_V_LIST:
    case FT_V_TUPLE:
        if (a.u.list->n != b.u.list->n) return false;
        for (size_t i = 0; i < a.u.list->n; i++)
            if (!equal(a.u.list->v[i], b.u.list->v[i], depth + 1)) return false;
        return true;
    case FT_V_DICT:
        if (a.u.dict->n != b.u.dict->n) return false;
        for (size_t i = 0, at; i < a.u.dict->n; i++)
            if (!find(b.u.dict, a.u.dict->key[i], &at) || !equal(a.u.dict->value[i], b.u.dict->value[at], depth + 1)) return false;
        return true;
    case FT_V_FUNCTION: return a.n == b.n;
    case FT_V_BOOL:
    case FT_V_INT:
    case FT_V_FLOAT:
    case FT_V_NAMESPACE:
    case FT_V_METHOD:
    case FT_V_MACRO:
    case FT_V_LOOP: return a.u.dict == b.u.dict;
    }
    return false;
}

bool ft_v_equal(struct ft_jval a, struct ft_jval b) { return equal(a, b, 0); }

const char *ft_v_type_name(struct ft_jval v)
{
    static const char *const names[] = {"Undefined", "NoneType", "bool",      "int",      "float",  "str",   "list",
                                        "tuple",     "dict",     "Namespace", "function", "method", "Macro", "LoopContext"};
    return names[v.type];
}

/* ---- printing ---- */

void ft_v_float_text(double f, struct ft_buf *out)
{
    char digits[40];
    if (isnan(f) || isinf(f)) {
        ft_buf_adds(out, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    int p = 0;
    for (; p < 17; p++) {
        snprintf(digits, sizeof digits, "%.*e", p, f);
        if (strtod(digits, NULL) == f) break;
    }
    const char *e = strchr(digits, 'e');
    const long exponent = e ? strtol(e + 1, NULL, 10) : 0;
    if (exponent >= -4 && exponent < 16) {
        const int after = p - (int)exponent;
        snprintf(digits, sizeof digits, "%.*f", after > 1 ? after : 1, f);
        ft_buf_adds(out, digits);
    } else {
        ft_buf_addf(out, "%.*se%c%02ld", (int)(e - digits), digits, exponent < 0 ? '-' : '+', labs(exponent));
    }
}

static void repr_str(struct ft_jval v, struct ft_buf *out)
{
    const bool single = memchr(v.u.s ? v.u.s : "", '\'', v.n), both = single && memchr(v.u.s, '"', v.n);
    const char quote = single && !both ? '"' : '\'';
    ft_buf_addc(out, quote);
    for (size_t i = 0, k; i < v.n; i += k) {
        uint32_t cp;
        k = (size_t)ft_utf8_decode(v.u.s + i, v.n - i, &cp);
        if (cp == (uint32_t)quote || cp == '\\') ft_buf_addf(out, "\\%c", (char)cp);
        else if (cp == '\n') ft_buf_adds(out, "\\n");
        else if (cp == '\r') ft_buf_adds(out, "\\r");
        else if (cp == '\t') ft_buf_adds(out, "\\t");
        else if (ft_is_printable(cp)) ft_buf_add(out, v.u.s + i, k);
        else ft_buf_addf(out, cp < 256 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
    }
    ft_buf_addc(out, quote);
}

static bool repr(struct ft_jval v, struct ft_buf *out, int depth)
{
    if (depth > DEEP) return false;
    switch ((enum ft_vtype)v.type) {
    case FT_V_UNDEFINED: ft_buf_adds(out, "Undefined"); return true;
    case FT_V_NONE: ft_buf_adds(out, "None"); return true;
    case FT_V_BOOL: ft_buf_adds(out, v.u.b ? "True" : "False"); return true;
    case FT_V_INT: ft_buf_addf(out, "%" PRId64, v.u.i); return true;
    case FT_V_FLOAT: ft_v_float_text(v.u.f, out); return true;
    case FT_V_STRING: repr_str(v, out); return true;
    case FT_V_LIST:
    case FT_V_TUPLE:
        ft_buf_addc(out, v.type == FT_V_LIST ? '[' : '(');
        for (size_t i = 0; i < v.u.list->n; i++) {
            if (i) ft_buf_adds(out, ", ");
            if (!repr(v.u.list->v[i], out, depth + 1)) return false;
        }
        if (v.type == FT_V_TUPLE && v.u.list->n == 1) ft_buf_addc(out, ',');
        ft_buf_addc(out, v.type == FT_V_LIST ? ']' : ')');
        return true;
    case FT_V_DICT:
        ft_buf_addc(out, '{');
        for (size_t i = 0; i < v.u.dict->n; i++) {
            if (i) ft_buf_adds(out, ", ");
            if (!repr(v.u.dict->key[i], out, depth + 1)) return false;
            ft_buf_adds(out, ": ");
            if (!repr(v.u.dict->value[i], out, depth + 1)) return false;
        }
        ft_buf_addc(out, '}');
        return true;
    case FT_V_NAMESPACE:
        ft_buf_adds(out, "<Namespace ");
        v.type = FT_V_DICT;
        if (!repr(v, out, depth + 1)) return false;
        ft_buf_addc(out, '>');
        return true;
    case FT_V_FUNCTION:
    case FT_V_METHOD:
    case FT_V_MACRO:
    case FT_V_LOOP: ft_buf_addf(out, "<%s>", ft_v_type_name(v)); return true;
    }
    return false;
}

bool ft_v_repr(struct ft_jval v, struct ft_buf *out) { return repr(v, out, 0); }

bool ft_v_print(struct ft_jval v, struct ft_buf *out)
{
    if (v.type == FT_V_UNDEFINED) return true;
    if (v.type != FT_V_STRING) return repr(v, out, 0);
    if (v.n) ft_buf_add(out, v.u.s, v.n);
    return true;
}

/* ---- json.dumps ---- */

static void dump_str(struct ft_jval v, const struct ft_dumps *how, struct ft_buf *out)
{
    ft_buf_addc(out, '"');
    for (size_t i = 0, k; i < v.n; i += k) {
        static const char plain[] = "\b\f\n\r\t\"\\", letter[] = "bfnrt\"\\";
        const unsigned char c = (unsigned char)v.u.s[i];
        const char *at = c ? memchr(plain, c, sizeof plain - 1) : NULL;
        k = 1;
        if (at) ft_buf_addf(out, "\\%c", letter[at - plain]);
        else if (c < 0x20) ft_buf_addf(out, "\\u%04x", c);
        else if (c < 0x80 || !how->ensure_ascii) ft_buf_addc(out, (char)c);
        else {
            uint32_t cp;
            k = (size_t)ft_utf8_decode(v.u.s + i, v.n - i, &cp);
            if (cp < 0x10000) ft_buf_addf(out, "\\u%04x", cp);
            else ft_buf_addf(out, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10), 0xDC00 + ((cp - 0x10000) & 0x3FF));
        }
    }
    ft_buf_addc(out, '"');
}

static void line_break(const struct ft_dumps *how, int depth, struct ft_buf *out)
{
    if (how->indent < 0) return;
    ft_buf_addc(out, '\n');
    for (int i = 0; i < how->indent * depth; i++) ft_buf_addc(out, ' ');
}

static void separator(const struct ft_dumps *how, struct ft_jval own, const char *usual, struct ft_buf *out)
{
    (void)how;
    if (own.type == FT_V_STRING) ft_buf_add(out, own.u.s, own.n);
    else ft_buf_adds(out, usual);
}

static bool dump(struct ft_jval v, const struct ft_dumps *how, int depth, struct ft_buf *out, const char **why);

static void dump_float(double f, struct ft_buf *out)
{
    if (isnan(f)) ft_buf_adds(out, "NaN");
    else if (isinf(f)) ft_buf_adds(out, f < 0 ? "-Infinity" : "Infinity");
    else ft_v_float_text(f, out);
}

static bool dump_key(struct ft_jval k, const struct ft_dumps *how, struct ft_buf *out, const char **why)
{
    if (k.type == FT_V_STRING) {
        dump_str(k, how, out);
        return true;
    }
    if (k.type != FT_V_NONE && !ft_v_is_number(k)) {
        *why = "a key of a dict is no string";
        return false;
    }
    ft_buf_addc(out, '"');
    const bool good = dump(k, how, DEEP, out, why);
    ft_buf_addc(out, '"');
    return good;
}

static int by_key(const void *a, const void *b)
{
    const struct ft_jval *x = *(const struct ft_jval *const *)a, *y = *(const struct ft_jval *const *)b;
    const size_t n = x->n < y->n ? x->n : y->n;
    const int c = n ? memcmp(x->u.s, y->u.s, n) : 0;
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

static bool dump_dict(struct ft_jval v, const struct ft_dumps *how, int depth, struct ft_buf *out, const char **why)
{
    const struct ft_vdict *d = v.u.dict;
    const struct ft_jval **order = ft_xcalloc(d->n + 1, sizeof *order);
    bool good = true, strings = true;
    for (size_t i = 0; i < d->n; i++) order[i] = &d->key[i], strings = strings && d->key[i].type == FT_V_STRING;
    if (how->sort_keys && strings) qsort(order, d->n, sizeof *order, by_key);
    ft_buf_addc(out, '{');
    for (size_t i = 0; i < d->n && good; i++) {
        if (i) separator(how, how->item, how->indent < 0 ? ", " : ",", out);
        line_break(how, depth + 1, out);
        good = dump_key(*order[i], how, out, why);
        separator(how, how->key, ": ", out);
        good = good && dump(d->value[order[i] - d->key], how, depth + 1, out, why);
    }
    if (d->n) line_break(how, depth, out);
    ft_buf_addc(out, '}');
    free(order);
    return good;
}

static bool dump(struct ft_jval v, const struct ft_dumps *how, int depth, struct ft_buf *out, const char **why)
{
    if (depth > DEEP) {
        *why = "the value nests too deeply";
        return false;
    }
    switch ((enum ft_vtype)v.type) {
    case FT_V_NONE: ft_buf_adds(out, "null"); return true;
    case FT_V_BOOL: ft_buf_adds(out, v.u.b ? "true" : "false"); return true;
    case FT_V_INT: ft_buf_addf(out, "%" PRId64, v.u.i); return true;
    case FT_V_FLOAT: dump_float(v.u.f, out); return true;
    case FT_V_STRING: dump_str(v, how, out); return true;
    case FT_V_LIST:
    case FT_V_TUPLE:
        ft_buf_addc(out, '[');
        for (size_t i = 0; i < v.u.list->n; i++) {
            if (i) separator(how, how->item, how->indent < 0 ? ", " : ",", out);
            line_break(how, depth + 1, out);
            if (!dump(v.u.list->v[i], how, depth + 1, out, why)) return false;
        }
        if (v.u.list->n) line_break(how, depth, out);
        ft_buf_addc(out, ']');
        return true;
    case FT_V_DICT: return dump_dict(v, how, depth, out, why);
    case FT_V_UNDEFINED: *why = "Object of type Undefined is not JSON serializable"; return false;
    case FT_V_NAMESPACE:
    case FT_V_FUNCTION:
    case FT_V_METHOD:
    case FT_V_MACRO:
    case FT_V_LOOP: *why = "the value has no JSON form"; return false;
    }
    return false;
}

bool ft_v_dumps(struct ft_jval v, const struct ft_dumps *how, struct ft_buf *out, const char **why)
{
    return dump(v, how, 0, out, why);
}
