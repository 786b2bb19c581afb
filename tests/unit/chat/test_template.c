/* Refusals with their line, limits against hostile templates, and rules of the language that the golden set shows only in passing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/chat/template.h"

struct pair {
    const char *text, *want;
};

static void refused_when_loaded(void **state)
{
    (void)state;
    static const struct pair cases[] = {
        {"a\n{% include 'x' %}", "line 2: the statement 'include' is not supported"},
        {"{% extends 'x' %}", "the statement 'extends' is not supported"},
        {"{% call m() %}{% endcall %}", "the statement 'call' is not supported"},
        {"{% raw %}{% endraw %}", "the statement 'raw' is not supported"},
        {"\n\n{{ x|nosuch }}", "line 3: the filter 'nosuch' is not supported"},
        {"{{ x is nosuch }}", "line 1: the test 'nosuch' is not supported"},
        {"{{ x.nosuch() }}", "the method '.nosuch()' is not supported"},
        {"{{ x }", "line 1: "},
        {"{% if x %}", "'{% endif %}' is missing"},
        {"a\n{# never", "line 2: a comment '{#' is not closed"},
        {"{{ 'abc }}", "a string is not closed"},
        {"{{ 1 + }}", "unexpected }}"},
        {"{{ (1 }}", "line 1: "},
        {"{% endfor %}", "the statement 'endfor' is not supported"},
        {"{% break %}", "'break' stands outside a loop"},
        {"{% for x in y recursive %}{% endfor %}", "a recursive loop is not supported"},
        {"{{ f(*a) }}", "argument lists with * are not supported"},
        {"{{ 99999999999999999999 }}", "a number is out of range"},
        {"\xff", "is not UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ft_template *t = NULL;
        struct ft_err err = {0};
        assert_int_equal(ft_template_compile("x", cases[i].text, strlen(cases[i].text), &t, &err), FT_DATA);
        assert_null(t);
        if (!strstr(err.text, cases[i].want)) fail_msg("%s: '%s' instead of '%s'", cases[i].text, err.text, cases[i].want);
    }
}

static bool render(const char *text, const char *date, struct ft_render *r)
{
    struct ft_template *t = NULL;
    struct ft_err err = {0};
    if (ft_template_compile("x", text, strlen(text), &t, &err) != FT_OK) fail_msg("%s: %s", text, err.text);
    ft_render_begin(r);
    struct ft_var vars[4] = {
        {"n", ft_v_int(3)}, {"s", ft_v_cstr("Hello")}, {"l", ft_v_list(&r->heap, FT_V_LIST, 2)}, {"d", ft_v_dict(&r->heap)}};
    ft_v_push(&r->heap, vars[2].value, ft_v_int(1));
    ft_v_push(&r->heap, vars[2].value, ft_v_cstr("b"));
    ft_v_set(&r->heap, vars[3].value, ft_v_cstr("items"), ft_v_int(7));
    const bool good = ft_template_render(t, vars, 4, date, r);
    ft_template_destroy(t);
    return good;
}

static void limits(void **state)
{
    (void)state;
    static const struct pair cases[] = {
        {"{% for a in range(2000) %}{% for b in range(2000) %}{% endfor %}{% endfor %}", "steps"},
        {"{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}", "levels"},
        {"{% set ns = namespace(x='aaaaaaaa') %}{% for a in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "64 MiB"},
        {"{% for a in range(90000) %}{{ 'x' * 10000 }}{% endfor %}", "64 MiB"},
        {"{{ 'x' * 999999999999 }}", "repeated too often"},
        {"{% set ns = namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "steps"},
        {"{% set ns = namespace(x=[]) %}{% for a in range(300) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
         "nests too deeply"},
        {"{{ range(1000000)|length }}", "Range too big"},
        {"{{ 9223372036854775807 + 1 }}", "out of range"},
        {"{{ 1 // 0 }}", "division by zero"},
        {"{{ strftime_now('%d') }}", "the date of today"},
        {"{{ raise_exception('no: ' ~ n) }}", "no: 3"},
        {"{{ nothing.x }}", "'nothing' is undefined"},
        {"{{ nothing() }}", "'nothing' is undefined"},
        {"{{ s + n }}", "unsupported operand types for +: 'str' and 'int'"},
        {"{% for x in 5 %}{% endfor %}", "'int' object is not iterable"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ft_render r;
        assert_false(render(cases[i].text, NULL, &r));
        if (!strstr(r.error, cases[i].want)) fail_msg("%s: '%s' instead of '%s'", cases[i].text, r.error, cases[i].want);
        assert_int_equal(r.needs_date, strstr(cases[i].text, "strftime") != NULL);
        ft_render_end(&r);
    }
    struct ft_buf deep = {0}; /* nesting in the text of the template */
    for (int i = 0; i < 5000; i++) ft_buf_adds(&deep, "{% if n %}");
    struct ft_template *t = NULL;
    struct ft_err err = {0};
    assert_int_equal(ft_template_compile("x", deep.data, deep.n, &t, &err), FT_DATA);
    ft_buf_clear(&deep);
    ft_buf_adds(&deep, "{{ ");
    for (int i = 0; i < 5000; i++) ft_buf_adds(&deep, "-");
    ft_buf_adds(&deep, "1 }}");
    assert_int_equal(ft_template_compile("x", deep.data, deep.n, &t, &err), FT_DATA);
    ft_buf_clear(&deep);
    ft_buf_adds(&deep, "{{ 1");
    for (int i = 0; i < 100000; i++) ft_buf_adds(&deep, " + 1");
    ft_buf_adds(&deep, " }}");
    struct ft_render r;
    assert_false(render(deep.data, NULL, &r)); /* a chain is a deep tree: an error, no crash */
    ft_render_end(&r);
    ft_buf_fini(&deep);
}

static void language(void **state)
{
    (void)state;
    static const struct pair cases[] = {
        {"  {% if n %}\nx\n  {% endif %}\ny", "x\ny"},
        {"a {%- if n -%} x {%- endif %} b", "ax b"},
        {"  {%+ if n %}x{% endif %}", "  x"},
        {"{{ n }}\n{# c #}\nz\n", "3\nz"},
        {"a\r\nb\rc", "a\nb\nc"},
        {"{{ d.items is mapping }}|{{ d['items'] }}|{{ d.items()|list }}", "False|7|[('items', 7)]"},
        {"{{ [{'a': 1}, {'a': 2}]|map(attribute=none)|list }}", "[{'a': 1}, {'a': 2}]"}, /* attributes that are no text */
        {"{{ ['xy', 'zu']|map(attribute=true)|list }}", "['y', 'u']"},
        {"{{ [{'': 1}]|map(attribute='')|list }}{{ [[1, 2], [3, 4]]|map(attribute=1)|list }}", "[1][2, 4]"},
        {"{{ [{'a': 1}]|selectattr('x' < 'y')|list }}{{ [{'a': 1}]|selectattr(['a', 'b', 'c'])|list }}", "[][]"},
        {"{% set x = 1 %}{% for i in l %}{% set x = 2 %}{% endfor %}{{ x }}", "1"},
        {"{% set x = 1 %}{% if n %}{% set x = 2 %}{% endif %}{{ x }}", "2"},
        {"{{ [none, true, 1, 1.5, 'a\\'b', {'k': (1,)}] }}", "[None, True, 1, 1.5, \"a'b\", {'k': (1,)}]"},
        {"{{ nothing }}{{ nothing|length }}{{ 'x' in nothing }}{{ l[5] is defined }}{{ l[-1] }}", "0FalseFalseb"},
        {"{{ s[1:3] }}{{ s[::-1] }}{{ -7 // 2 }}{{ -7 % 3 }}{{ 7 / 2 }}{{ 2 ** 3 }}", "elolleH-423.58"},
        {"{{ '{{ n }}' }}{{ '<b>&' }}", "{{ n }}<b>&"},
        {"{{ {'a': 'é\"', 'b': [1, none]}|tojson }}", "{\"a\": \"é\\\"\", \"b\": [1, null]}"},
        {"{{ strftime_now('%A %d %B %Y %H:%M') }}", "Monday 30 November 2026 12:00"},
        {"{{ 'a' if nothing }}-{{ (none or 'b') and 'c' }}", "-c"},
        {"{% for k in [3, 1] %}{{ loop.index }}{{ loop.last }}{% else %}none{% endfor %}", "1False2True"},
        {"{% macro m(a, b='q') %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(b=2, a=3) }}", "1q32"},
        {"{% generation %}x{% endgeneration %}", "x"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ft_render r;
        if (!render(cases[i].text, "2026-11-30", &r)) fail_msg("%s: %s", cases[i].text, r.error);
        assert_string_equal(ft_buf_str(&r.out), cases[i].want);
        ft_render_end(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refused_when_loaded), cmocka_unit_test(limits), cmocka_unit_test(language)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
