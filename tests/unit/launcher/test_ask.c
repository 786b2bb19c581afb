/* Asking a program: its object, its end, its silence. */
#include "launcher/ask.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"

static enum ft_code sh(const char *script, int64_t timeout, struct ft_json **out, int *status, struct ft_err *err)
{
    char shell[] = "/bin/sh", c[] = "-c", *text = ft_xstrdup(script), *argv[] = {shell, c, text, NULL};
    enum ft_code code = ft_ask(argv, timeout, out, status, err);
    free(text);
    return code;
}

static void test_answers(void **state)
{
    (void)state;
    struct ft_json *v = NULL;
    struct ft_err err;
    int status = -1;
    assert_int_equal(sh("echo '{\"schema\":1,\"x\":[1,2]}'; echo noise >&2; exit 2", 60 * FT_SEC, &v, &status, &err), FT_OK);
    assert_int_equal(status, 2);
    assert_int_equal(ft_json_count(ft_json_get(v, "x")), 2);
    ft_json_destroy(v);
    /* a large answer, stdin is empty */
    assert_int_equal(sh("cat; printf '{\"schema\":1,\"x\":\"'; head -c 3000000 /dev/zero | tr '\\0' a; printf '\"}'", 60 * FT_SEC,
                        &v, &status, &err),
                     FT_OK);
    assert_int_equal(ft_json_str_len(ft_json_get(v, "x")), 3000000);
    ft_json_destroy(v);
    assert_int_equal(sh("echo one >&2; echo the last words >&2; exit 9", 60 * FT_SEC, &v, &status, &err), FT_DATA);
    assert_non_null(strstr(err.text, "status 9: the last words"));
    assert_int_equal(sh("head -c 3000000 /dev/zero >&2; kill -SEGV $$", 60 * FT_SEC, &v, &status, &err), FT_DATA);
    assert_non_null(strstr(err.text, "139"));
    char none[] = "/nowhere/fttrain", *argv[] = {none, NULL};
    assert_int_equal(ft_ask(argv, FT_SEC, &v, &status, &err), FT_IO);
    assert_non_null(strstr(err.text, "No such file"));
}

/* A program that says nothing, one that closes its output and goes on, one whose child keeps the pipe. */
static void test_deadline(void **state)
{
    (void)state;
    static const char *const silent[] = {"exec sleep 60", "exec >&- 2>&-; exec sleep 60", "sleep 30 & exit 0"};
    for (size_t i = 0; i < 3; i++) {
        struct ft_json *v = NULL;
        struct ft_err err;
        int status = -1;
        int64_t begin = ft_clock_now(ft_clock_real());
        enum ft_code code = sh(silent[i], 300 * FT_MS, &v, &status, &err);
        if (code != FT_TIMEOUT) fail_msg("%s: %s", silent[i], ft_code_name(code));
        assert_true(ft_clock_now(ft_clock_real()) - begin < 30 * FT_SEC);
    }
}

static void test_faults(void **state)
{
    (void)state;
    static const char text[] = "{\"schema\":1,\"faults\":[{\"severity\":\"warning\",\"file\":\"a\",\"line\":2,\"column\":3,"
                               "\"section\":\"s\",\"key\":\"k\",\"text\":\"%s odd\",\"fix\":\"f\"},"
                               "{\"text\":null},7,{\"severity\":\"new\",\"file\":\"--set\",\"line\":null,\"text\":\"t\"}]}";
    struct ft_json *v = NULL;
    struct ft_err err;
    assert_int_equal(ft_json_parse(text, strlen(text), 0, &v, NULL, &err), FT_OK);
    struct ft_arena *arena = ft_arena_create();
    struct ft_faults f = {.arena = arena};
    ft_ask_take_faults(v, &f);
    ft_json_destroy(v);
    assert_int_equal(f.n, 4);
    assert_int_equal(f.n_errors, 3);
    assert_string_equal(f.v[0].text, "%s odd");
    assert_string_equal(f.v[0].fix, "f");
    assert_int_equal(f.v[0].at.column, 3);
    assert_string_equal(f.v[3].at.file, "--set");
    ft_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers), cmocka_unit_test(test_deadline),
                                       cmocka_unit_test(test_faults)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
