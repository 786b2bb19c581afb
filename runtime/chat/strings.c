/* Python's str methods, on UTF-8. */
#include <string.h>

#include "runtime/chat/eval.h"
#include "runtime/token/unicode.h"

struct ft_jval ft_as_text(struct ft_eval *e, struct ft_jval v, int line)
{
    if (v.type == FT_V_STRING) return v;
    struct ft_buf text = {0};
    if (!ft_v_print(v, &text)) ft_fail_eval(e, line, "a value nests too deeply to be printed");
    const struct ft_jval out = e->failed ? ft_v_undefined("") : ft_eval_text(e, &text, line);
    ft_buf_fini(&text);
    return out;
}

/* Is the code point at s (k bytes) among chars? */
static bool among(const char *s, size_t k, struct ft_jval chars)
{
    for (size_t i = 0; i < chars.n;) {
        uint32_t cp;
        const size_t n = (size_t)ft_utf8_decode(chars.u.s + i, chars.n - i, &cp);
        if (n == k && !memcmp(chars.u.s + i, s, k)) return true;
        i += n;
    }
    return false;
}

struct ft_jval ft_str_strip(struct ft_eval *e, struct ft_jval s, struct ft_jval chars, bool left, bool right, int line)
{
    size_t a = 0, b = s.n;
    uint32_t cp;
    if (chars.type != FT_V_NONE && chars.type != FT_V_STRING)
        return ft_fail_eval(e, line, "strip arg must be None or str, not %s", ft_v_type_name(chars));
    const bool own = chars.type == FT_V_STRING;
    while (left && a < b) {
        const size_t k = (size_t)ft_utf8_decode(s.u.s + a, b - a, &cp);
        if (own ? !among(s.u.s + a, k, chars) : !ft_py_space(cp)) break;
        a += k;
    }
    while (right && b > a) {
        size_t k = 1;
        while (k < 4 && k < b - a && ((unsigned char)s.u.s[b - k] & 0xC0) == 0x80) k++;
        (void)ft_utf8_decode(s.u.s + b - k, k, &cp);
        if (own ? !among(s.u.s + b - k, k, chars) : !ft_py_space(cp)) break;
        b -= k;
    }
    return ft_v_str(s.u.s + a, b - a);
}

struct ft_jval ft_str_replace(struct ft_eval *e, struct ft_jval s, struct ft_jval from, struct ft_jval to, int64_t count, int line)
{
    struct ft_buf out = {0};
    size_t at = 0;
    if (!ft_eval_step(e, line, s.n / 16)) return s;
    if (!from.n) { /* before every character and at the end */
        for (; count != 0 && !e->failed; count--) {
            uint32_t cp;
            ft_buf_add(&out, to.u.s, to.n);
            if (out.n > FT_RENDER_OUTPUT) ft_fail_eval(e, line, "a text is longer than 64 MiB");
            if (at >= s.n) break;
            const size_t k = (size_t)ft_utf8_decode(s.u.s + at, s.n - at, &cp);
            ft_buf_add(&out, s.u.s + at, k);
            at += k;
        }
    }
    for (; from.n && count != 0 && at < s.n; count--) {
        const char *hit = memmem(s.u.s + at, s.n - at, from.u.s, from.n);
        if (!hit || out.n > FT_RENDER_OUTPUT) break;
        ft_buf_add(&out, s.u.s + at, (size_t)(hit - s.u.s) - at);
        ft_buf_add(&out, to.u.s, to.n);
        at = (size_t)(hit - s.u.s) + from.n;
    }
    if (at < s.n) ft_buf_add(&out, s.u.s + at, s.n - at);
    const struct ft_jval v = e->failed ? s : ft_eval_text(e, &out, line);
    ft_buf_fini(&out);
    return v;
}

static struct ft_jval split_spaces(struct ft_eval *e, struct ft_jval s, int64_t max, int line)
{
    const struct ft_jval out = ft_v_list(e->heap, FT_V_LIST, 0);
    size_t at = ft_py_space_front(s.u.s, s.n);
    while (at < s.n && ft_eval_step(e, line, 0)) {
        size_t end = at;
        if (max == 0) {
            end = s.n - ft_py_space_back(s.u.s + at, s.n - at);
            ft_v_push(e->heap, out, ft_v_str(s.u.s + at, end - at));
            break;
        }
        uint32_t cp;
        for (size_t k; end < s.n && (k = (size_t)ft_utf8_decode(s.u.s + end, s.n - end, &cp), !ft_py_space(cp));) end += k;
        ft_v_push(e->heap, out, ft_v_str(s.u.s + at, end - at));
        at = end + ft_py_space_front(s.u.s + end, s.n - end);
        max--;
    }
    return out;
}

struct ft_jval ft_str_split(struct ft_eval *e, struct ft_jval s, struct ft_jval sep, int64_t max, int line)
{
    if (!ft_eval_step(e, line, s.n / 16)) return s;
    if (sep.type == FT_V_NONE) return split_spaces(e, s, max, line);
    if (sep.type != FT_V_STRING) return ft_fail_eval(e, line, "must be str or None, not %s", ft_v_type_name(sep));
    if (!sep.n) return ft_fail_eval(e, line, "empty separator");
    const struct ft_jval out = ft_v_list(e->heap, FT_V_LIST, 0);
    size_t at = 0;
    for (; max != 0 && ft_eval_step(e, line, 0); max--) {
        const char *hit = at < s.n ? memmem(s.u.s + at, s.n - at, sep.u.s, sep.n) : NULL;
        if (!hit) break;
        ft_v_push(e->heap, out, ft_v_str(s.u.s + at, (size_t)(hit - s.u.s) - at));
        at = (size_t)(hit - s.u.s) + sep.n;
    }
    ft_v_push(e->heap, out, ft_v_str(s.u.s + at, s.n - at));
    return out;
}

static bool cased(uint32_t cp) { return ft_is_cased(cp); }

struct ft_jval ft_str_case(struct ft_eval *e, struct ft_jval s, enum ft_case how, int line)
{
    struct ft_buf out = {0};
    bool start = true; /* of a word, of the text */
    if (!ft_eval_step(e, line, s.n / 4)) return s;
    for (size_t i = 0, k; i < s.n; i += k) {
        uint32_t cp, to[3];
        char u[4];
        k = (size_t)ft_utf8_decode(s.u.s + i, s.n - i, &cp);
        int n;
        if (how == FT_CASE_UPPER) n = ft_to_upper(cp, to);
        else if (how == FT_CASE_LOWER || !start) n = ft_to_lower(cp, to);
        else n = how == FT_CASE_TITLE_FILTER ? ft_to_upper(cp, to) : ft_to_title(cp, to);
        for (int c = 0; c < n; c++) ft_buf_add(&out, u, (size_t)ft_utf8_encode(to[c], u));
        if (how == FT_CASE_TITLE) start = !cased(cp);
        else if (how == FT_CASE_TITLE_FILTER) start = ft_py_space(cp) || (cp && cp < 128 && strchr("-({[<", (int)cp));
        else start = false;
    }
    const struct ft_jval v = ft_eval_text(e, &out, line);
    ft_buf_fini(&out);
    return v;
}

struct ft_jval ft_str_lines(struct ft_eval *e, struct ft_jval s, int line)
{
    const struct ft_jval out = ft_v_list(e->heap, FT_V_LIST, 0);
    size_t from = 0;
    for (size_t i = 0, k; i < s.n && !e->failed; i += k) {
        uint32_t cp;
        k = (size_t)ft_utf8_decode(s.u.s + i, s.n - i, &cp);
        if (!((cp >= 10 && cp <= 13) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 || cp == 0x2029)) continue;
        if (!ft_eval_step(e, line, 0)) break;
        ft_v_push(e->heap, out, ft_v_str(s.u.s + from, i - from));
        if (cp == '\r' && i + 1 < s.n && s.u.s[i + 1] == '\n') k = 2;
        from = i + k;
    }
    if (from < s.n) ft_v_push(e->heap, out, ft_v_str(s.u.s + from, s.n - from));
    return out;
}

struct ft_jval ft_str_join(struct ft_eval *e, struct ft_jval list, struct ft_jval sep, int line)
{
    struct ft_buf out = {0};
    for (size_t i = 0; i < list.u.list->n && ft_eval_step(e, line, 0); i++) {
        if (i) ft_buf_add(&out, sep.u.s, sep.n);
        if (!ft_v_print(list.u.list->v[i], &out)) ft_fail_eval(e, line, "a value nests too deeply to be printed");
        if (out.n > FT_RENDER_OUTPUT) ft_fail_eval(e, line, "a text is longer than 64 MiB");
    }
    const struct ft_jval v = e->failed ? ft_v_undefined("") : ft_eval_text(e, &out, line);
    ft_buf_fini(&out);
    return v;
}
