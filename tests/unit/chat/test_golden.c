/* tests/golden/chat: 60 published templates x 24 conversations as jinja2 renders them, and where the answers stand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fd.h"
#include "runtime/chat/spans.h"

#define DATE "2026-11-30"

static struct ft_json *read_json(const char *name)
{
    char path[512];
    struct ft_json *v = NULL;
    struct ft_err err = {0};
    snprintf(path, sizeof path, FT_GOLDEN "/chat/%s", name);
    if (ft_json_read_file(path, 0, &v, &err) != FT_OK) fail_msg("%s", err.text);
    return v;
}

static struct ft_template *compile(const char *file)
{
    char path[512];
    struct ft_buf text = {0};
    struct ft_template *t = NULL;
    struct ft_err err = {0};
    snprintf(path, sizeof path, FT_GOLDEN "/chat/%s", file);
    assert_int_equal(ft_read_file(path, 1 << 24, &text, &err), FT_OK);
    if (ft_template_compile(file, text.data, text.n, &t, &err) != FT_OK) fail_msg("%s", err.text);
    ft_buf_fini(&text);
    return t;
}

enum { MAX_VARS = 32 };

static size_t variables(const struct ft_json *globals, const struct ft_json *c, struct ft_vheap *heap, struct ft_var *vars)
{
    const struct ft_json *from[2] = {globals, c};
    size_t n = 0;
    vars[n++] = (struct ft_var){"tools", ft_v_none()};
    vars[n++] = (struct ft_var){"documents", ft_v_none()};
    for (int i = 0; i < 2; i++)
        for (void *it = ft_json_iter(from[i]); it; it = ft_json_iter_next(from[i], it)) {
            assert_true(n < MAX_VARS);
            vars[n++] = (struct ft_var){ft_json_iter_key(it), ft_v_json(heap, ft_json_iter_value(it))};
        }
    return n;
}

typedef bool check_fn(const struct ft_template *t, const struct ft_var *vars, size_t n, struct ft_render *r,
                      const struct ft_json *want);

/* Runs check over every line of a file and every case that the line names under `key`. */
static void over_all(const char *name, const char *key, check_fn *check, int *n, int *failed)
{
    char path[512];
    struct ft_buf lines = {0};
    struct ft_err err = {0};
    struct ft_json *cases = read_json("cases.json");
    const struct ft_json *globals = ft_json_get(cases, "globals");
    snprintf(path, sizeof path, FT_GOLDEN "/chat/%s", name);
    assert_int_equal(ft_read_file(path, 1 << 26, &lines, &err), FT_OK);
    for (char *line = lines.data, *end; line && *line; line = end + 1) {
        struct ft_json *v = NULL;
        char file[256];
        end = strchrnul(line, '\n');
        if (ft_json_parse(line, (size_t)(end - line), 0, &v, NULL, &err) != FT_OK) fail_msg("%s", err.text);
        const char *title = ft_json_str(ft_json_get(v, "template"));
        snprintf(file, sizeof file, "templates/%s.jinja", title);
        for (char *c = file; *c; c++) *c = *c == ':' ? '_' : *c;
        struct ft_template *t = compile(ft_json_get(v, "file") ? ft_json_str(ft_json_get(v, "file")) : file);
        const struct ft_json *results = ft_json_get(v, key);
        for (void *it = ft_json_iter(results); it; it = ft_json_iter_next(results, it)) {
            struct ft_render r;
            struct ft_var vars[MAX_VARS];
            const struct ft_json *c = ft_json_get(ft_json_get(cases, "cases"), ft_json_iter_key(it));
            assert_non_null(c);
            ft_render_begin(&r);
            const size_t n_vars = variables(globals, c, &r.heap, vars);
            if (!check(t, vars, n_vars, &r, ft_json_iter_value(it))) {
                fprintf(stderr, "%s, %s\n", title, ft_json_iter_key(it));
                ++*failed;
            }
            ++*n;
            ft_render_end(&r);
        }
        ft_template_destroy(t);
        ft_json_destroy(v);
        if (!*end) break;
    }
    ft_json_destroy(cases);
    ft_buf_fini(&lines);
}

static bool check_text(const struct ft_template *t, const struct ft_var *vars, size_t n, struct ft_render *r,
                       const struct ft_json *want)
{
    const struct ft_json *out = ft_json_get(want, "out");
    const bool good = ft_template_render(t, vars, n, DATE, r);
    if (!out) return !good;
    if (!good) fprintf(stderr, "%s: ", r->error);
    return good && r->out.n == ft_json_str_len(out) && !memcmp(ft_buf_str(&r->out), ft_json_str(out), r->out.n);
}

static void renderings(void **state)
{
    (void)state;
    int n = 0, failed = 0;
    over_all("rendered.jsonl", "results", check_text, &n, &failed);
    printf("%d renderings, %d differ\n", n, failed);
    assert_int_equal(failed, 0);
    assert_int_equal(n, 60 * 24);
}

static bool flag(const struct ft_json *v, const char *name) { return ft_json_bool(ft_json_get(v, name), false); }

static bool check_span(const struct ft_span *x, const struct ft_json *want)
{
    const char *how = ft_span_how_name(x->how), *want_how = ft_json_str(ft_json_get(want, "how"));
    const struct ft_json *content = ft_json_get(want, "content"), *end = ft_json_get(want, "end");
    if ((int64_t)x->message != ft_json_int(ft_json_get(want, "msg"), -1) || !ft_str_eq(how, want_how)) return false;
    if (!how) return x->why && x->dropped == (ft_json_get(want, "why") != NULL);
    if ((int64_t)x->begin != ft_json_int(ft_json_get(want, "start"), -1)) return false;
    if (content && ((int64_t)x->content_begin != ft_json_int(ft_json_at(content, 0), -1) ||
                    (int64_t)x->content_end != ft_json_int(ft_json_at(content, 1), -1)))
        return false;
    if (end && (!x->has_end || (int64_t)x->end != ft_json_int(end, -1))) return false;
    return x->prompt_differs == flag(want, "prompt_differs") && x->rewritten == flag(want, "rewritten");
}

static bool check_spans(const struct ft_template *t, const struct ft_var *vars, size_t n, struct ft_render *r,
                        const struct ft_json *want)
{
    struct ft_spans s = {0};
    bool good = ft_spans_find(t, vars, n, DATE, r, &s) && s.n == ft_json_count(want);
    for (size_t i = 0; good && i < s.n; i++) {
        good = check_span(&s.v[i], ft_json_at(want, i));
        if (!good)
            fprintf(stderr, "message %zu, %s %zu (%s): ", s.v[i].message, ft_span_how_name(s.v[i].how), s.v[i].begin,
                    s.v[i].why ? s.v[i].why : "");
    }
    ft_spans_fini(&s);
    return good;
}

static void spans(void **state)
{
    (void)state;
    int n = 0, failed = 0;
    over_all("spans.jsonl", "spans", check_spans, &n, &failed);
    printf("%d conversations, %d differ\n", n, failed);
    assert_int_equal(failed, 0);
    assert_true(n > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(renderings), cmocka_unit_test(spans)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
