#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>

#include "base/fault.h"
#include "base/json.h"

static void reading(void **state)
{
    (void)state;
    const char *text = "{\"b\":1,\"a\":[true,null,1.5,\"x\\u00e9\"]}";
    struct ft_json *v;
    struct ft_err e = {0};
    assert_int_equal(ft_json_parse(text, strlen(text), 0, &v, NULL, &e), FT_OK);
    assert_int_equal(ft_json_int(ft_json_get(v, "b"), 0), 1);
    const struct ft_json *a = ft_json_get(v, "a");
    assert_int_equal(ft_json_count(a), 4);
    assert_true(ft_json_bool(ft_json_at(a, 0), false));
    assert_true(ft_json_is(ft_json_at(a, 1), FT_JSON_NULL));
    assert_true(ft_json_real(ft_json_at(a, 2), 0) == 1.5);
    assert_string_equal(ft_json_str(ft_json_at(a, 3)), "x\xC3\xA9");
    assert_null(ft_json_get(v, "zzz"));
    assert_null(ft_json_at(a, 9));
    assert_string_equal(ft_json_type_name(NULL), "nothing");
    assert_string_equal(ft_json_iter_key(ft_json_iter(v)), "b"); /* order of the file */
    struct ft_buf b = {0};
    struct ft_jw w = ft_jw_begin(&b);
    ft_jw_value(&w, v);
    assert_string_equal(b.data, "{\"b\":1,\"a\":[true,null,1.5,\"x\xC3\xA9\"]}");
    ft_buf_fini(&b);
    ft_json_destroy(v);
}

static void refusals(void **state)
{
    (void)state;
    const struct {
        const char *text;
        size_t n;
        int duplicate, utf8, escape, big;
    } bad[] = {{"{\"a\":1,\"a\":2}", 0, 1, 0, 0, 0},
               {"{\"a\":\"\xFF\"}", 0, 0, 1, 0, 0},
               {"{\"a\":\"\\ud800\"}", 0, 0, 0, 1, 0},
               {"{\"a\":\"\\u0000\"}", 0, 0, 0, 1, 0},
               {"{\"a\":99999999999999999999}", 0, 0, 0, 0, 1},
               {"{\"a\":1,}", 0, 0, 0, 0, 0},
               {"{\"a\":1} x", 0, 0, 0, 0, 0},
               {"", 0, 0, 0, 0, 0},
               {"{\"a\":NaN}", 0, 0, 0, 0, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ft_json *v = NULL;
        struct ft_json_where w;
        struct ft_err e = {0};
        assert_int_equal(ft_json_parse(bad[i].text, strlen(bad[i].text), 0, &v, &w, &e), FT_DATA);
        assert_null(v);
        assert_int_equal(w.duplicate_key, bad[i].duplicate);
        assert_int_equal(w.bad_utf8, bad[i].utf8);
        assert_int_equal(w.bad_escape, bad[i].escape);
        assert_int_equal(w.big_integer, bad[i].big);
        assert_non_null(strstr(e.text, "line 1 column"));
    }
}

static void writing(void **state)
{
    (void)state;
    struct ft_buf b = {0};
    struct ft_jw w = ft_jw_begin(&b);
    ft_jw_object(&w);
    ft_jw_kint(&w, "i", -3);
    ft_jw_kreal(&w, "r", 2);
    ft_jw_kreal(&w, "n", NAN);
    ft_jw_kstr(&w, "s", "a\"\\\n\x01\xFFz");
    ft_jw_kstr(&w, "none", NULL);
    ft_jw_key(&w, "l");
    ft_jw_array(&w);
    ft_jw_bool(&w, true);
    ft_jw_u64(&w, UINT64_MAX);
    ft_jw_object(&w);
    ft_jw_end(&w);
    ft_jw_end(&w);
    ft_jw_end(&w);
    assert_string_equal(b.data, "{\"i\":-3,\"r\":2.0,\"n\":null,\"s\":\"a\\\"\\\\\\n\\u0001\xEF\xBF\xBDz\",\"none\":null,\"l\":["
                                "true,18446744073709551615,{}]}");
    ft_buf_fini(&b);
}

static void faults(void **state)
{
    (void)state;
    struct ft_faults f = {.arena = ft_arena_create()};
    ft_faults_add(&f, FT_SEV_ERROR, (struct ft_source){"b.ini", 3, 1}, "nodes", "x", "third '%s'", "v");
    ft_faults_add(&f, FT_SEV_ERROR, (struct ft_source){"a.ini", 9, 1}, NULL, NULL, "fourth");
    ft_faults_add(&f, FT_SEV_WARNING, (struct ft_source){"b.ini", 2, 7}, NULL, NULL, "second");
    ft_faults_add(&f, FT_SEV_ERROR, (struct ft_source){"b.ini", 2, 1}, NULL, NULL, "first");
    ft_fault_fix(&f, "do %d", 1);
    ft_faults_add(&f, FT_SEV_ERROR, (struct ft_source){"b.ini", 2, 1}, NULL, NULL, "first");
    ft_faults_sort(&f);
    assert_int_equal(f.n, 4);
    assert_int_equal(f.n_errors, 3);
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    ft_faults_print(out, "ftlaunch", &f);
    fclose(out);
    assert_string_equal(text,
                        "ftlaunch: error: first\n  where: b.ini:2:1\n  fix:   do 1\nftlaunch: warning: second\n  where: b.ini:2:7\n"
                        "ftlaunch: error: third 'v'\n  where: b.ini:3:1, [nodes] x\nftlaunch: error: fourth\n  where: a.ini:9:1\n");
    free(text);
    ft_arena_destroy(f.arena);
}

/* A NUL byte is nowhere in JSON: behind a number or a word too, where jansson alone would read on. */
static void nul_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n;
        int line, column;
    } bad[] = {
        {"[-10\0,0]", 8, 1, 5}, {"{\"a\":1\0}", 8, 1, 7}, {"[1,\n true\0]", 11, 2, 6}, {"\0[1]", 4, 1, 1}, {"[1]\0", 4, 1, 4}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ft_json *v = NULL;
        struct ft_json_where w = {0};
        struct ft_err e;
        assert_int_equal(ft_json_parse(bad[i].text, bad[i].n, 0, &v, &w, &e), FT_DATA);
        assert_null(v);
        if (!strstr(w.text, "control character")) continue; /* jansson's own words */
        assert_int_equal(w.line, bad[i].line);
        assert_int_equal(w.column, bad[i].column);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nul_bytes), cmocka_unit_test(reading), cmocka_unit_test(refusals),
                                       cmocka_unit_test(writing), cmocka_unit_test(faults)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
