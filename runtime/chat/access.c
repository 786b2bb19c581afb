/* Attributes, items, slices, iteration. */
#include <string.h>

#include "runtime/chat/eval.h"

static int64_t n_chars(struct ft_jval s)
{
    int64_t n = 0;
    for (size_t i = 0; i < s.n; i++) n += ((unsigned char)s.u.s[i] & 0xC0) != 0x80;
    return n;
}

int64_t ft_length_of(struct ft_jval v)
{
    switch ((enum ft_vtype)v.type) {
    case FT_V_UNDEFINED: return 0;
    case FT_V_STRING: return n_chars(v);
    case FT_V_LIST:
    case FT_V_TUPLE: return (int64_t)v.u.list->n;
    case FT_V_DICT: return (int64_t)v.u.dict->n;
    case FT_V_LOOP: return (int64_t)v.u.loop->items->n;
    case FT_V_NONE:
    case FT_V_BOOL:
    case FT_V_INT:
    case FT_V_FLOAT:
    case FT_V_NAMESPACE:
    case FT_V_FUNCTION:
    case FT_V_METHOD:
    case FT_V_MACRO: return -1;
    }
    return -1;
}

static struct ft_jval bind(struct ft_eval *e, struct ft_jval self, int id)
{
    struct ft_vmethod *m = ft_vheap_alloc(e->heap, sizeof *m);
    if (!m) return ft_v_undefined("");
    *m = (struct ft_vmethod){self, id};
    return (struct ft_jval){.type = FT_V_METHOD, .u.method = m};
}

static struct ft_jval loop_attr(struct ft_jval v, const char *name)
{
    const struct ft_vloop *l = v.u.loop;
    const int64_t i = (int64_t)l->index, n = (int64_t)l->items->n;
    if (!strcmp(name, "index")) return ft_v_int(i + 1);
    if (!strcmp(name, "index0")) return ft_v_int(i);
    if (!strcmp(name, "first")) return ft_v_bool(i == 0);
    if (!strcmp(name, "last")) return ft_v_bool(i == n - 1);
    if (!strcmp(name, "length")) return ft_v_int(n);
    if (!strcmp(name, "revindex")) return ft_v_int(n - i);
    if (!strcmp(name, "revindex0")) return ft_v_int(n - i - 1);
    if (!strcmp(name, "depth")) return ft_v_int(l->depth);
    if (!strcmp(name, "depth0")) return ft_v_int(l->depth - 1);
    if (!strcmp(name, "previtem")) return i > 0 ? l->items->v[i - 1] : ft_v_undefined("there is no previous item");
    if (!strcmp(name, "nextitem")) return i + 1 < n ? l->items->v[i + 1] : ft_v_undefined("there is no next item");
    return ft_v_undefined("loop attribute");
}

static struct ft_jval missing(struct ft_eval *e, const char *name, size_t n)
{
    struct ft_jval v = ft_v_copy(e->heap, name, n);
    v.type = FT_V_UNDEFINED;
    return v;
}

struct ft_jval ft_get_attr(struct ft_eval *e, struct ft_jval of, const char *name, size_t n, int line)
{
    struct ft_jval v;
    if (of.type == FT_V_UNDEFINED) return ft_fail_eval(e, line, "'%.*s' is undefined", (int)of.n, of.u.s);
    const int id = ft_method_id(name, n);
    if (id >= 0 && ft_has_method(of, id)) return bind(e, of, id);
    if (of.type == FT_V_DICT || of.type == FT_V_NAMESPACE) {
        if (!ft_eval_step(e, line, of.u.dict->n * 16)) return of;
        if (ft_v_get_str(of, name, n, &v)) return v;
    }
    if (of.type == FT_V_LOOP) {
        char word[16] = "";
        if (n < sizeof word) memcpy(word, name, n);
        return loop_attr(of, word);
    }
    return missing(e, name, n);
}

/* Byte at which character i of s begins. */
static size_t char_at(struct ft_jval s, int64_t i)
{
    size_t at = 0;
    uint32_t cp;
    for (; i > 0 && at < s.n; i--) at += (size_t)ft_utf8_decode(s.u.s + at, s.n - at, &cp);
    return at;
}

static struct ft_jval one_char(struct ft_jval s, size_t at)
{
    uint32_t cp;
    return ft_v_str(s.u.s + at, (size_t)ft_utf8_decode(s.u.s + at, s.n - at, &cp));
}

struct ft_jval ft_get_item(struct ft_eval *e, struct ft_jval of, struct ft_jval key, int line)
{
    struct ft_jval v;
    if (of.type == FT_V_UNDEFINED) return ft_fail_eval(e, line, "'%.*s' is undefined", (int)of.n, of.u.s);
    if (of.type == FT_V_DICT) {
        if (!ft_eval_step(e, line, of.u.dict->n * 16)) return of;
        if (ft_v_get(of, key, &v)) return v;
    }
    if (key.type == FT_V_STRING) {
        if (of.type != FT_V_DICT) return ft_get_attr(e, of, key.u.s, key.n, line);
        const int id = ft_method_id(key.u.s, key.n);
        return id >= 0 && ft_has_method(of, id) ? bind(e, of, id) : missing(e, key.u.s, key.n);
    }
    const bool index = key.type == FT_V_INT || key.type == FT_V_BOOL, text = of.type == FT_V_STRING;
    if (!index || !(text || of.type == FT_V_LIST || of.type == FT_V_TUPLE)) return ft_v_undefined("item");
    if (text && !ft_eval_step(e, line, of.n)) return of;
    const int64_t n = ft_length_of(of);
    int64_t i = key.type == FT_V_INT ? key.u.i : key.u.b;
    if (i < 0) i += n;
    if (i < 0 || i >= n) return ft_v_undefined("item of a list");
    return text ? one_char(of, char_at(of, i)) : of.u.list->v[i];
}

static bool bound(struct ft_eval *e, struct ft_jval v, int line, int64_t *out)
{
    if (v.type == FT_V_NONE) return false;
    if (v.type == FT_V_INT) *out = v.u.i;
    else if (v.type == FT_V_BOOL) *out = v.u.b;
    else ft_fail_eval(e, line, "slice indices must be integers or None");
    return !e->failed;
}

struct ft_jval ft_slice(struct ft_eval *e, struct ft_jval of, const struct ft_jval part[3], int line)
{
    if (of.type == FT_V_UNDEFINED) return ft_fail_eval(e, line, "'%.*s' is undefined", (int)of.n, of.u.s);
    if (of.type != FT_V_STRING && of.type != FT_V_LIST && of.type != FT_V_TUPLE)
        return ft_fail_eval(e, line, "'%s' object is not subscriptable", ft_v_type_name(of));
    if (of.type == FT_V_STRING && !ft_eval_step(e, line, of.n)) return of;
    const int64_t n = ft_length_of(of);
    int64_t step = 1, from, to, x = 0;
    if (bound(e, part[2], line, &x)) step = x;
    if (step == 0) return ft_fail_eval(e, line, "slice step cannot be zero");
    from = step > 0 ? 0 : n - 1, to = step > 0 ? n : -1;
    if (bound(e, part[0], line, &x)) from = x < 0 ? (x + n < 0 ? (step > 0 ? 0 : -1) : x + n) : x >= n ? (step > 0 ? n : n - 1) : x;
    if (bound(e, part[1], line, &x)) to = x < 0 ? (x + n < 0 ? (step > 0 ? 0 : -1) : x + n) : x >= n ? (step > 0 ? n : n - 1) : x;
    if (e->failed) return of;
    if (step > n) step = n ? n : 1;
    if (step < -n) step = n ? -n : -1;
    if (of.type == FT_V_STRING && step == 1) {
        if (from >= to) return ft_v_str("", 0);
        const size_t a = char_at(of, from), b = char_at(ft_v_str(of.u.s + a, of.n - a), to - from);
        return ft_v_str(of.u.s + a, b);
    }
    if (of.type == FT_V_STRING) {
        struct ft_jval chars, text;
        struct ft_buf b = {0};
        if (!ft_items_of(e, of, line, &chars)) return of;
        for (int64_t i = from; step > 0 ? i < to : i > to; i += step) ft_buf_add(&b, chars.u.list->v[i].u.s, chars.u.list->v[i].n);
        text = ft_eval_text(e, &b, line);
        ft_buf_fini(&b);
        return text;
    }
    const struct ft_jval out = ft_v_list(e->heap, (enum ft_vtype)of.type, 0);
    for (int64_t i = from; (step > 0 ? i < to : i > to) && ft_eval_step(e, line, 0); i += step)
        ft_v_push(e->heap, out, of.u.list->v[i]);
    return out;
}

bool ft_items_of(struct ft_eval *e, struct ft_jval v, int line, struct ft_jval *list)
{
    switch ((enum ft_vtype)v.type) {
    case FT_V_LIST:
    case FT_V_TUPLE: *list = v; return true;
    case FT_V_UNDEFINED: *list = ft_v_list(e->heap, FT_V_LIST, 0); return true;
    case FT_V_DICT:
        *list = ft_v_list(e->heap, FT_V_LIST, v.u.dict->n);
        for (size_t i = 0; i < v.u.dict->n; i++) ft_v_push(e->heap, *list, v.u.dict->key[i]);
        return true;
    case FT_V_STRING:
        *list = ft_v_list(e->heap, FT_V_LIST, v.n);
        for (size_t i = 0; i < v.n && !e->heap->failed;) {
            const struct ft_jval c = one_char(v, i);
            ft_v_push(e->heap, *list, c);
            i += c.n;
        }
        return ft_eval_step(e, line, v.n);
    case FT_V_NONE:
    case FT_V_BOOL:
    case FT_V_INT:
    case FT_V_FLOAT:
    case FT_V_NAMESPACE:
    case FT_V_FUNCTION:
    case FT_V_METHOD:
    case FT_V_MACRO:
    case FT_V_LOOP: break;
    }
    ft_fail_eval(e, line, "'%s' object is not iterable", ft_v_type_name(v));
    return false;
}
