/* Methods of texts, lists and dicts, and the global functions. */
#include <string.h>
#include <time.h>

#include "runtime/chat/eval.h"

enum method {
    STRIP,
    LSTRIP,
    RSTRIP,
    SPLIT,
    STARTSWITH,
    ENDSWITH,
    TITLE,
    UPPER,
    LOWER,
    CAPITALIZE,
    REPLACE,
    FIND,
    COUNT,
    JOIN,
    SPLITLINES,
    KEYS,
    VALUES,
    ITEMS,
    GET,
    CYCLE
};

enum { OF_TEXT = 1, OF_LIST = 2, OF_DICT = 4, OF_LOOP = 8 };

static const struct {
    const char *name;
    enum method id;
    unsigned of;
} methods[] = {{"strip", STRIP, OF_TEXT},
               {"lstrip", LSTRIP, OF_TEXT},
               {"rstrip", RSTRIP, OF_TEXT},
               {"split", SPLIT, OF_TEXT},
               {"startswith", STARTSWITH, OF_TEXT},
               {"endswith", ENDSWITH, OF_TEXT},
               {"title", TITLE, OF_TEXT},
               {"upper", UPPER, OF_TEXT},
               {"lower", LOWER, OF_TEXT},
               {"capitalize", CAPITALIZE, OF_TEXT},
               {"replace", REPLACE, OF_TEXT},
               {"find", FIND, OF_TEXT},
               {"count", COUNT, OF_TEXT | OF_LIST},
               {"join", JOIN, OF_TEXT},
               {"splitlines", SPLITLINES, OF_TEXT},
               {"keys", KEYS, OF_DICT},
               {"values", VALUES, OF_DICT},
               {"items", ITEMS, OF_DICT},
               {"get", GET, OF_DICT},
               {"cycle", CYCLE, OF_LOOP}};

static const char *const functions[] = {"raise_exception", "strftime_now", "namespace", "range", "dict"};
enum function { RAISE_EXCEPTION, STRFTIME_NOW, NAMESPACE, RANGE, DICT };

int ft_method_id(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strlen(methods[i].name) == n && !memcmp(methods[i].name, name, n)) return (int)i;
    return -1;
}

int ft_function_id(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strlen(functions[i]) == n && !memcmp(functions[i], name, n)) return (int)i;
    return -1;
}

bool ft_has_method(struct ft_jval of, int id)
{
    const unsigned mask = of.type == FT_V_STRING                          ? OF_TEXT
                          : of.type == FT_V_LIST || of.type == FT_V_TUPLE ? OF_LIST
                          : of.type == FT_V_DICT                          ? OF_DICT
                          : of.type == FT_V_LOOP                          ? OF_LOOP
                                                                          : 0;
    return methods[id].of & mask;
}

static struct ft_jval text_arg(struct ft_eval *e, const struct ft_args *a, size_t i, const char *what)
{
    if (i < a->n && a->v[i].type == FT_V_STRING) return a->v[i];
    return ft_fail_eval(e, a->line, "%s() needs a text, found %s", what, i < a->n ? ft_v_type_name(a->v[i]) : "nothing");
}

static bool has_affix(struct ft_jval s, struct ft_jval affix, bool front)
{
    if (affix.n > s.n) return false;
    return !affix.n || !memcmp(front ? s.u.s : s.u.s + s.n - affix.n, affix.u.s, affix.n);
}

static struct ft_jval affix(struct ft_eval *e, struct ft_jval s, const struct ft_args *a, bool front)
{
    const char *name = front ? "startswith" : "endswith";
    if (a->n == 1 && a->v[0].type == FT_V_TUPLE) {
        for (size_t i = 0; i < a->v[0].u.list->n; i++)
            if (a->v[0].u.list->v[i].type == FT_V_STRING && has_affix(s, a->v[0].u.list->v[i], front)) return ft_v_bool(true);
        return ft_v_bool(false);
    }
    if (a->n != 1) return ft_fail_eval(e, a->line, "%s() with %zu arguments is not supported", name, a->n);
    const struct ft_jval x = text_arg(e, a, 0, name);
    return e->failed ? x : ft_v_bool(has_affix(s, x, front));
}

static struct ft_jval find(struct ft_eval *e, struct ft_jval s, const struct ft_args *a)
{
    const struct ft_jval x = text_arg(e, a, 0, "find");
    if (a->n != 1 && !e->failed) return ft_fail_eval(e, a->line, "find() with %zu arguments is not supported", a->n);
    if (e->failed || !ft_eval_step(e, a->line, s.n / 16)) return x;
    const char *hit = x.n ? (s.n ? memmem(s.u.s, s.n, x.u.s, x.n) : NULL) : s.u.s;
    return ft_v_int(hit || !x.n ? ft_length_of(ft_v_str(s.u.s, hit ? (size_t)(hit - s.u.s) : 0)) : -1);
}

static struct ft_jval count(struct ft_eval *e, struct ft_jval s, const struct ft_args *a)
{
    int64_t n = 0;
    if (s.type != FT_V_STRING) {
        if (a->n != 1) return ft_fail_eval(e, a->line, "count() needs one argument");
        for (size_t i = 0; i < s.u.list->n && ft_eval_step(e, a->line, 0); i++) n += ft_v_equal(s.u.list->v[i], a->v[0]);
        return ft_v_int(n);
    }
    const struct ft_jval x = text_arg(e, a, 0, "count");
    if (e->failed || !ft_eval_step(e, a->line, s.n / 16)) return x;
    if (!x.n) return ft_v_int(ft_length_of(s) + 1);
    for (size_t at = 0; at < s.n; n++) {
        const char *hit = memmem(s.u.s + at, s.n - at, x.u.s, x.n);
        if (!hit) break;
        at = (size_t)(hit - s.u.s) + x.n;
    }
    return ft_v_int(n);
}

static struct ft_jval join(struct ft_eval *e, struct ft_jval sep, const struct ft_args *a)
{
    struct ft_jval items;
    if (a->n != 1) return ft_fail_eval(e, a->line, "join() needs one argument");
    if (!ft_items_of(e, a->v[0], a->line, &items)) return sep;
    for (size_t i = 0; i < items.u.list->n; i++)
        if (items.u.list->v[i].type != FT_V_STRING)
            return ft_fail_eval(e, a->line, "sequence item %zu: expected str instance, %s found", i,
                                ft_v_type_name(items.u.list->v[i]));
    return ft_str_join(e, items, sep, a->line);
}

static struct ft_jval text_method(struct ft_eval *e, enum method id, struct ft_jval s, const struct ft_args *a)
{
    struct ft_jval x = ft_v_none(), y = ft_v_none();
    const int line = a->line;
    switch (id) {
    case STRIP:
    case LSTRIP:
    case RSTRIP: (void)ft_arg(a, 0, "chars", &x); return ft_str_strip(e, s, x, id != RSTRIP, id != LSTRIP, line);
    case SPLIT:
        (void)ft_arg(a, 0, "sep", &x);
        return ft_str_split(e, s, x, ft_arg(a, 1, "maxsplit", &y) && y.type == FT_V_INT ? y.u.i : -1, line);
    case STARTSWITH: return affix(e, s, a, true);
    case ENDSWITH: return affix(e, s, a, false);
    case TITLE: return ft_str_case(e, s, FT_CASE_TITLE, line);
    case UPPER: return ft_str_case(e, s, FT_CASE_UPPER, line);
    case LOWER: return ft_str_case(e, s, FT_CASE_LOWER, line);
    case CAPITALIZE: return ft_str_case(e, s, FT_CASE_CAPITAL, line);
    case REPLACE:
        x = text_arg(e, a, 0, "replace"), y = text_arg(e, a, 1, "replace");
        return e->failed ? x : ft_str_replace(e, s, x, y, a->n > 2 && a->v[2].type == FT_V_INT ? a->v[2].u.i : -1, line);
    case FIND: return find(e, s, a);
    case COUNT: return count(e, s, a);
    case JOIN: return join(e, s, a);
    case SPLITLINES: return a->n ? ft_fail_eval(e, line, "splitlines() with arguments is not supported") : ft_str_lines(e, s, line);
    case KEYS:
    case VALUES:
    case ITEMS:
    case GET:
    case CYCLE: break;
    }
    return ft_v_undefined("");
}

static struct ft_jval dict_method(struct ft_eval *e, enum method id, struct ft_jval d, const struct ft_args *a)
{
    struct ft_jval x = ft_v_none();
    if (id == GET) {
        if (!a->n || a->n > 2) return ft_fail_eval(e, a->line, "get() needs one or two arguments");
        if (!ft_eval_step(e, a->line, d.u.dict->n * 16)) return d;
        if (ft_v_get(d, a->v[0], &x)) return x;
        return a->n > 1 ? a->v[1] : ft_v_none();
    }
    const struct ft_jval out = ft_v_list(e->heap, FT_V_LIST, d.u.dict->n);
    for (size_t i = 0; i < d.u.dict->n && ft_eval_step(e, a->line, 0); i++) {
        x = id == KEYS ? d.u.dict->key[i] : d.u.dict->value[i];
        if (id == ITEMS) {
            const struct ft_jval pair = ft_v_list(e->heap, FT_V_TUPLE, 2);
            ft_v_push(e->heap, pair, d.u.dict->key[i]);
            ft_v_push(e->heap, pair, x);
            x = pair;
        }
        ft_v_push(e->heap, out, x);
    }
    return out;
}

struct ft_jval ft_call_method(struct ft_eval *e, const struct ft_vmethod *m, const struct ft_args *a)
{
    const enum method id = methods[m->id].id;
    if (m->self.type == FT_V_STRING) return text_method(e, id, m->self, a);
    if (m->self.type == FT_V_DICT) return dict_method(e, id, m->self, a);
    if (m->self.type == FT_V_LOOP)
        return a->n ? a->v[m->self.u.loop->index % a->n] : ft_fail_eval(e, a->line, "no items for cycling given");
    return count(e, m->self, a);
}

/* ---- functions ---- */

static struct ft_jval strftime_now(struct ft_eval *e, const struct ft_args *a)
{
    const struct ft_jval format = text_arg(e, a, 0, "strftime_now");
    char text[512], pattern[256];
    struct tm tm = {.tm_hour = 12};
    if (e->failed) return format;
    if (!e->date) {
        e->r->needs_date = true;
        return ft_fail_eval(e, a->line, "the template asks for the date of today, so the text would change from day to day");
    }
    if (format.n >= sizeof pattern - 1) return ft_fail_eval(e, a->line, "strftime_now(): the format is too long");
    if (!strptime(e->date, "%Y-%m-%d", &tm)) return ft_fail_eval(e, a->line, "'%s' is no date", e->date);
    tm.tm_hour = 12, tm.tm_min = tm.tm_sec = 0;
    (void)timegm(&tm); /* day of the week and of the year */
    memcpy(pattern, format.u.s, format.n);
    memcpy(pattern + format.n, "x", 2); /* so that an empty result is no failure */
    char *out = text;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const size_t n = strftime(out, sizeof text, pattern, &tm); /* the format is the template's; strftime reads no memory by it */
#pragma GCC diagnostic pop
    if (!n) return ft_fail_eval(e, a->line, "strftime_now(): the result is too long");
    return ft_v_copy(e->heap, text, n - 1);
}

static struct ft_jval make_dict(struct ft_eval *e, const struct ft_args *a, enum ft_vtype type)
{
    struct ft_jval d = ft_v_dict(e->heap);
    for (size_t i = 0; i < a->n && !e->failed; i++) {
        if (a->names[i]) {
            ft_v_set(e->heap, d, ft_v_cstr(a->names[i]), a->v[i]);
        } else if (a->v[i].type == FT_V_DICT) {
            for (size_t k = 0; k < a->v[i].u.dict->n && ft_eval_step(e, a->line, d.u.dict->n * 16); k++)
                ft_v_set(e->heap, d, a->v[i].u.dict->key[k], a->v[i].u.dict->value[k]);
        } else {
            return ft_fail_eval(e, a->line, "cannot make a dict from '%s'", ft_v_type_name(a->v[i]));
        }
    }
    d.type = (uint8_t)type;
    return d;
}

static struct ft_jval range(struct ft_eval *e, const struct ft_args *a)
{
    int64_t v[3] = {0, 0, 1};
    if (!a->n || a->n > 3) return ft_fail_eval(e, a->line, "range() needs one to three arguments");
    for (size_t i = 0; i < a->n; i++) {
        if (a->v[i].type != FT_V_INT) return ft_fail_eval(e, a->line, "range() needs integers");
        v[a->n == 1 ? 1 : i] = a->v[i].u.i;
    }
    if (!v[2]) return ft_fail_eval(e, a->line, "range() arg 3 must not be zero");
    const struct ft_jval out = ft_v_list(e->heap, FT_V_LIST, 0);
    for (int64_t i = v[0]; (v[2] > 0 ? i < v[1] : i > v[1]) && ft_eval_step(e, a->line, 0);) {
        if (out.u.list->n >= 100000)
            return ft_fail_eval(e, a->line, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
        ft_v_push(e->heap, out, ft_v_int(i));
        if (__builtin_add_overflow(i, v[2], &i)) break;
    }
    return out;
}

struct ft_jval ft_call_function(struct ft_eval *e, int id, const struct ft_args *a)
{
    struct ft_jval text;
    switch ((enum function)id) {
    case RAISE_EXCEPTION:
        text = a->n ? ft_as_text(e, a->v[0], a->line) : ft_v_str("", 0);
        return ft_fail_eval(e, a->line, "%.*s", (int)(text.n < 480 ? text.n : 480), text.n ? text.u.s : "");
    case STRFTIME_NOW: return strftime_now(e, a);
    case NAMESPACE: return make_dict(e, a, FT_V_NAMESPACE);
    case RANGE: return range(e, a);
    case DICT: return make_dict(e, a, FT_V_DICT);
    }
    return ft_v_undefined("");
}
