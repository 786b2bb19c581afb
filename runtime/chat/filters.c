#include <stdlib.h>
#include <string.h>

#include "runtime/chat/eval.h"

enum filter {
    TRIM,
    LENGTH,
    TOJSON,
    JOIN,
    LOWER,
    UPPER,
    TITLE,
    CAPITALIZE,
    STRING,
    INT,
    ITEMS,
    REJECT,
    SELECT,
    REJECTATTR,
    SELECTATTR,
    MAP,
    DEFAULT,
    REPLACE,
    SAFE,
    FIRST,
    LAST,
    LIST,
    UNIQUE,
    INDENT
};

static const struct {
    const char *name;
    enum filter id;
} names[] = {{"trim", TRIM},
             {"length", LENGTH},
             {"count", LENGTH},
             {"tojson", TOJSON},
             {"join", JOIN},
             {"lower", LOWER},
             {"upper", UPPER},
             {"title", TITLE},
             {"capitalize", CAPITALIZE},
             {"string", STRING},
             {"int", INT},
             {"items", ITEMS},
             {"reject", REJECT},
             {"select", SELECT},
             {"rejectattr", REJECTATTR},
             {"selectattr", SELECTATTR},
             {"map", MAP},
             {"default", DEFAULT},
             {"d", DEFAULT},
             {"replace", REPLACE},
             {"safe", SAFE},
             {"first", FIRST},
             {"last", LAST},
             {"list", LIST},
             {"unique", UNIQUE},
             {"indent", INDENT}};

int ft_filter_id(const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i].name, name)) return (int)names[i].id;
    return -1;
}

static struct ft_jval to_json(struct ft_eval *e, struct ft_jval v, const struct ft_args *a)
{
    struct ft_dumps how = {.indent = -1};
    struct ft_jval x;
    if (ft_arg(a, 1, "indent", &x)) {
        if (x.type == FT_V_INT && x.u.i <= 64) how.indent = x.u.i > 0 ? (int)x.u.i : 0;
        else if (x.type != FT_V_NONE) return ft_fail_eval(e, a->line, "tojson: indent must be a small number");
    }
    if (ft_arg(a, 2, "separators", &x) && x.type != FT_V_NONE) {
        const bool pair = (x.type == FT_V_TUPLE || x.type == FT_V_LIST) && x.u.list->n == 2;
        if (!pair || x.u.list->v[0].type != FT_V_STRING || x.u.list->v[1].type != FT_V_STRING)
            return ft_fail_eval(e, a->line, "tojson: separators must be two texts");
        how.item = x.u.list->v[0], how.key = x.u.list->v[1];
    }
    how.sort_keys = ft_arg(a, 3, "sort_keys", &x) && ft_v_truth(x);
    how.ensure_ascii = ft_arg(a, 0, "ensure_ascii", &x) && ft_v_truth(x);
    struct ft_buf text = {0};
    const char *why = NULL;
    if (!ft_v_dumps(v, &how, &text, &why)) ft_fail_eval(e, a->line, "tojson: %s", why);
    const struct ft_jval out = e->failed ? v : ft_eval_text(e, &text, a->line);
    ft_buf_fini(&text);
    return out;
}

/* "a.b.0" of a value, as jinja2's make_attrgetter. */
static struct ft_jval attribute(struct ft_eval *e, struct ft_jval v, struct ft_jval path, int line)
{
    if (path.type == FT_V_NONE) return v;
    if (path.type != FT_V_STRING) return ft_get_item(e, v, path, line);
    if (path.n == 0) return ft_get_item(e, v, ft_v_str("", 0), line);
    for (size_t i = 0; i <= path.n && !e->failed;) {
        const char *dot = i < path.n ? memchr(path.u.s + i, '.', path.n - i) : NULL;
        const size_t n = dot ? (size_t)(dot - (path.u.s + i)) : path.n - i;
        char number[24];
        int64_t index;
        struct ft_jval key = ft_v_str(path.u.s + i, n);
        if (n && n < sizeof number) {
            memcpy(number, path.u.s + i, n), number[n] = 0;
            if (ft_parse_i64(number, 0, INT64_MAX, &index)) key = ft_v_int(index);
        }
        v = ft_get_item(e, v, key, line);
        i += n + 1;
    }
    return v;
}

static struct ft_jval join(struct ft_eval *e, struct ft_jval v, const struct ft_args *a)
{
    struct ft_jval sep = ft_v_str("", 0), path, items;
    (void)ft_arg(a, 0, "d", &sep);
    if (!ft_items_of(e, v, a->line, &items)) return v;
    if (ft_arg(a, 1, "attribute", &path) && path.type != FT_V_NONE) {
        const struct ft_jval all = ft_v_list(e->heap, FT_V_LIST, items.u.list->n);
        for (size_t i = 0; i < items.u.list->n && !e->failed; i++)
            ft_v_push(e->heap, all, attribute(e, items.u.list->v[i], path, a->line));
        items = all;
    }
    sep = ft_as_text(e, sep, a->line);
    return e->failed ? v : ft_str_join(e, items, sep, a->line);
}

static struct ft_jval to_int(struct ft_eval *e, struct ft_jval v, const struct ft_args *a)
{
    struct ft_jval otherwise = ft_v_int(0), base;
    (void)ft_arg(a, 0, "default", &otherwise);
    if (ft_arg(a, 1, "base", &base) && !(base.type == FT_V_INT && base.u.i == 10))
        return ft_fail_eval(e, a->line, "the filter int with another base than 10 is not supported");
    if (v.type == FT_V_UNDEFINED) return ft_fail_eval(e, a->line, "'%.*s' is undefined", (int)v.n, v.u.s);
    if (v.type == FT_V_INT || v.type == FT_V_BOOL) return ft_v_int(v.type == FT_V_INT ? v.u.i : v.u.b);
    double f = 0;
    if (v.type == FT_V_FLOAT) {
        f = v.u.f;
    } else if (v.type == FT_V_STRING && v.n < 64) {
        const struct ft_jval t = ft_str_strip(e, v, ft_v_none(), true, true, a->line);
        char text[64];
        int64_t i;
        const char *digits = text;
        memcpy(text, t.u.s, t.n), text[t.n] = 0;
        if (*digits == '+') digits++;
        if (ft_parse_i64(digits, INT64_MIN, INT64_MAX, &i)) return ft_v_int(i);
        if (!ft_parse_real(digits, &f)) return otherwise;
    } else {
        return otherwise;
    }
    return f > -9.2e18 && f < 9.2e18 ? ft_v_int((int64_t)f) : otherwise;
}

static struct ft_jval pairs(struct ft_eval *e, struct ft_jval v, const struct ft_args *a)
{
    const struct ft_jval out = ft_v_list(e->heap, FT_V_LIST, v.type == FT_V_DICT ? v.u.dict->n : 0);
    if (v.type == FT_V_UNDEFINED) return out;
    if (v.type != FT_V_DICT) return ft_fail_eval(e, a->line, "Can only get item pairs from a mapping.");
    for (size_t i = 0; i < v.u.dict->n && ft_eval_step(e, a->line, 0); i++) {
        const struct ft_jval pair = ft_v_list(e->heap, FT_V_TUPLE, 2);
        ft_v_push(e->heap, pair, v.u.dict->key[i]);
        ft_v_push(e->heap, pair, v.u.dict->value[i]);
        ft_v_push(e->heap, out, pair);
    }
    return out;
}

/* A name that a template gives as a text. */
static bool name_of(struct ft_eval *e, struct ft_jval v, char name[32], int line)
{
    if (v.type != FT_V_STRING || v.n >= 32) {
        ft_fail_eval(e, line, "the name of a filter or test must be a short text");
        return false;
    }
    memcpy(name, v.u.s, v.n), name[v.n] = 0;
    return true;
}

/* select, reject, selectattr, rejectattr: the items for which a test (default: truth) holds. */
static struct ft_jval select_items(struct ft_eval *e, enum filter how, struct ft_jval v, const struct ft_args *a)
{
    const bool by_attr = how == SELECTATTR || how == REJECTATTR, want = how == SELECT || how == SELECTATTR;
    const size_t first = by_attr ? 1 : 0;
    struct ft_jval items;
    char name[32];
    int test = -1;
    if (by_attr && !a->n) return ft_fail_eval(e, a->line, "the filter needs the name of an attribute");
    if (a->n > first) {
        if (!name_of(e, a->v[first], name, a->line)) return v;
        test = ft_test_id(name);
        if (test < 0) return ft_fail_eval(e, a->line, "No test named '%s'.", name);
    }
    if (!ft_v_truth(v)) return ft_v_list(e->heap, FT_V_LIST, 0); /* none, false, 0: nothing, as jinja2 */
    if (!ft_items_of(e, v, a->line, &items)) return v;
    const size_t used = first + (test >= 0 ? 1 : 0);
    const struct ft_args rest = {.v = a->v + used, .names = a->names ? a->names + used : NULL, .n = a->n - used, .line = a->line};
    const struct ft_jval out = ft_v_list(e->heap, FT_V_LIST, items.u.list->n);
    for (size_t i = 0; i < items.u.list->n && ft_eval_step(e, a->line, 0); i++) {
        const struct ft_jval item = items.u.list->v[i], x = by_attr ? attribute(e, item, a->v[0], a->line) : item;
        const bool holds = !e->failed && (test >= 0 ? ft_test_value(e, test, x, &rest) : ft_v_truth(x));
        if (holds == want) ft_v_push(e->heap, out, item);
    }
    return out;
}

static struct ft_jval map(struct ft_eval *e, struct ft_jval v, const struct ft_args *a)
{
    struct ft_jval items, path, otherwise = ft_v_undefined("");
    const bool by_attr = ft_arg(a, 99, "attribute", &path), fallback = ft_arg(a, 99, "default", &otherwise);
    char name[32];
    int filter = -1;
    if (!by_attr) {
        if (!a->n || a->names[0]) return ft_fail_eval(e, a->line, "map requires a filter argument");
        if (!name_of(e, a->v[0], name, a->line)) return v;
        filter = ft_filter_id(name);
        if (filter < 0) return ft_fail_eval(e, a->line, "No filter named '%s'.", name);
    }
    if (!ft_v_truth(v)) return ft_v_list(e->heap, FT_V_LIST, 0);
    if (!ft_items_of(e, v, a->line, &items)) return v;
    const struct ft_args rest = {.v = a->v + 1, .names = a->names + 1, .n = a->n ? a->n - 1 : 0, .line = a->line};
    const struct ft_jval out = ft_v_list(e->heap, FT_V_LIST, items.u.list->n);
    for (size_t i = 0; i < items.u.list->n && ft_eval_step(e, a->line, 0); i++) {
        struct ft_jval x = items.u.list->v[i];
        x = by_attr ? attribute(e, x, path, a->line) : ft_filter(e, filter, x, &rest);
        ft_v_push(e->heap, out, by_attr && fallback && x.type == FT_V_UNDEFINED ? otherwise : x);
    }
    return out;
}

static struct ft_jval end_of(struct ft_eval *e, struct ft_jval v, bool last, int line)
{
    struct ft_jval items;
    if (!ft_items_of(e, v, line, &items)) return v;
    if (!items.u.list->n) return ft_v_undefined("item of an empty list");
    return items.u.list->v[last ? items.u.list->n - 1 : 0];
}

static struct ft_jval unique(struct ft_eval *e, struct ft_jval v, const struct ft_args *a)
{
    struct ft_jval items, flag, path = ft_v_none();
    const bool exact = ft_arg(a, 0, "case_sensitive", &flag) && ft_v_truth(flag);
    (void)ft_arg(a, 1, "attribute", &path);
    if (!ft_items_of(e, v, a->line, &items)) return v;
    const struct ft_jval out = ft_v_list(e->heap, FT_V_LIST, 0), keys = ft_v_list(e->heap, FT_V_LIST, 0);
    for (size_t i = 0; i < items.u.list->n && ft_eval_step(e, a->line, keys.u.list->n * 16); i++) {
        struct ft_jval k = items.u.list->v[i];
        if (path.type != FT_V_NONE) k = attribute(e, k, path, a->line);
        if (!exact && k.type == FT_V_STRING) k = ft_str_case(e, k, FT_CASE_LOWER, a->line);
        bool seen = false;
        for (size_t n = 0; n < keys.u.list->n && !seen; n++) seen = ft_v_equal(keys.u.list->v[n], k);
        if (seen) continue;
        ft_v_push(e->heap, keys, k);
        ft_v_push(e->heap, out, items.u.list->v[i]);
    }
    return out;
}

static struct ft_jval indent(struct ft_eval *e, struct ft_jval v, const struct ft_args *a)
{
    struct ft_jval width = ft_v_int(4), flag;
    struct ft_buf pad = {0}, out = {0};
    (void)ft_arg(a, 0, "width", &width);
    const bool first = ft_arg(a, 1, "first", &flag) && ft_v_truth(flag), blank = ft_arg(a, 2, "blank", &flag) && ft_v_truth(flag);
    if (width.type == FT_V_STRING) ft_buf_add(&pad, width.u.s, width.n);
    else if (width.type == FT_V_INT && width.u.i <= 1000)
        for (int64_t i = 0; i < width.u.i; i++) ft_buf_addc(&pad, ' ');
    else ft_fail_eval(e, a->line, "indent: the width must be a small number or a text");
    struct ft_jval lines;
    const struct ft_jval text = ft_binary(e, FT_OP_ADD, v, ft_v_cstr("\n"), a->line);
    lines = e->failed ? text : ft_str_lines(e, text, a->line);
    for (size_t i = 0; !e->failed && i < lines.u.list->n; i++) {
        const struct ft_jval l = lines.u.list->v[i];
        if (i) ft_buf_addc(&out, '\n');
        if (i ? l.n || blank : first) ft_buf_add(&out, ft_buf_str(&pad), pad.n);
        ft_buf_add(&out, l.u.s, l.n);
        if (out.n > FT_RENDER_OUTPUT) ft_fail_eval(e, a->line, "a text is longer than 64 MiB");
    }
    const struct ft_jval made = e->failed ? v : ft_eval_text(e, &out, a->line);
    ft_buf_fini(&pad);
    ft_buf_fini(&out);
    return made;
}

static struct ft_jval replace(struct ft_eval *e, struct ft_jval v, const struct ft_args *a)
{
    struct ft_jval from, to, count = ft_v_none();
    if (!ft_arg(a, 0, "old", &from) || !ft_arg(a, 1, "new", &to)) return ft_fail_eval(e, a->line, "replace needs two arguments");
    (void)ft_arg(a, 2, "count", &count);
    from = ft_as_text(e, from, a->line), to = ft_as_text(e, to, a->line), v = ft_as_text(e, v, a->line);
    return e->failed ? v : ft_str_replace(e, v, from, to, count.type == FT_V_INT ? count.u.i : -1, a->line);
}

static struct ft_jval simple(struct ft_eval *e, enum filter id, struct ft_jval v, const struct ft_args *a)
{
    struct ft_jval x = ft_v_none(), flag;
    if (id == LENGTH) {
        const int64_t n = ft_length_of(v);
        return n < 0 ? ft_fail_eval(e, a->line, "object of type '%s' has no len()", ft_v_type_name(v)) : ft_v_int(n);
    }
    if (id == DEFAULT) {
        const bool truth = ft_arg(a, 1, "boolean", &flag) && ft_v_truth(flag);
        if (!(v.type == FT_V_UNDEFINED || (truth && !ft_v_truth(v)))) return v;
        return ft_arg(a, 0, "default_value", &x) ? x : ft_v_str("", 0);
    }
    if (id == LIST) return ft_items_of(e, v, a->line, &x) ? x : v;
    v = ft_as_text(e, v, a->line);
    if (e->failed || id == STRING || id == SAFE) return v;
    if (id == TRIM) {
        (void)ft_arg(a, 0, "chars", &x);
        return ft_str_strip(e, v, x, true, true, a->line);
    }
    return ft_str_case(e, v,
                       id == LOWER   ? FT_CASE_LOWER
                       : id == UPPER ? FT_CASE_UPPER
                       : id == TITLE ? FT_CASE_TITLE_FILTER
                                     : FT_CASE_CAPITAL,
                       a->line);
}

struct ft_jval ft_filter(struct ft_eval *e, int id, struct ft_jval v, const struct ft_args *a)
{
    if (!ft_eval_step(e, a->line, 0)) return v;
    switch ((enum filter)id) {
    case TOJSON: return to_json(e, v, a);
    case JOIN: return join(e, v, a);
    case INT: return to_int(e, v, a);
    case ITEMS: return pairs(e, v, a);
    case REJECT:
    case SELECT:
    case REJECTATTR:
    case SELECTATTR: return select_items(e, (enum filter)id, v, a);
    case MAP: return map(e, v, a);
    case REPLACE: return replace(e, v, a);
    case FIRST: return end_of(e, v, false, a->line);
    case LAST: return end_of(e, v, true, a->line);
    case UNIQUE: return unique(e, v, a);
    case INDENT: return indent(e, v, a);
    case TRIM:
    case LENGTH:
    case LOWER:
    case UPPER:
    case TITLE:
    case CAPITALIZE:
    case STRING:
    case DEFAULT:
    case SAFE:
    case LIST: return simple(e, (enum filter)id, v, a);
    }
    return v;
}
