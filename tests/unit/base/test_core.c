#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdlib.h>
#include <fcntl.h>
#include <locale.h>
#include <pwd.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/argv.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/str.h"

static void errors(void **state)
{
    (void)state;
    struct ft_err e = {0};
    assert_int_equal(ft_fail(&e, FT_IO, "cannot open '%s'", "x"), FT_IO);
    assert_int_equal(ft_wrap(&e, "reading %d", 1), FT_IO);
    ft_at(&e, "job.ini:%d", 14);
    ft_fix(&e, "set x");
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    ft_err_print(f, "fttrain", &e);
    fclose(f);
    assert_string_equal(text, "fttrain: error: cannot open 'x'\n  where: job.ini:14\n  while: reading 1\n  fix:   set x\n");
    free(text);
    ft_fail(&e, FT_NET, "outer: %s", e.text); /* the argument is the error itself */
    assert_string_equal(e.text, "outer: cannot open 'x'");
    assert_int_equal(e.n_chain, 0);
    char big[4000];
    memset(big, 'a', sizeof big - 1);
    big[sizeof big - 1] = 0;
    ft_fail(&e, FT_NET, "%s", big);
    assert_true(ft_str_ends(e.text, "a..."));
    for (int i = 0; i < 9; i++) ft_wrap(&e, "%d", i);
    assert_int_equal(e.n_chain, FT_ERR_CHAIN);
    assert_string_equal(e.chain[FT_ERR_CHAIN - 1], "8");
    assert_int_equal(ft_fail(NULL, FT_IO, "x"), FT_IO);
}

static void arena(void **state)
{
    (void)state;
    struct ft_arena *a = ft_arena_create();
    for (int i = 0; i < 5000; i++) {
        unsigned char *p = ft_arena_alloc(a, (size_t)(i % 97));
        assert_int_equal((uintptr_t)p % 16, 0);
        for (int j = 0; j < i % 97; j++) assert_int_equal(p[j], 0);
        memset(p, 0xEE, (size_t)(i % 97));
    }
    char *big = ft_arena_alloc(a, 1 << 20);
    memset(big, 1, 1 << 20);
    assert_string_equal(ft_arena_printf(a, "%d-%s", 7, "x"), "7-x");
    ft_arena_destroy(a);
    ft_arena_destroy(NULL);
}

static void numbers(void **state)
{
    (void)state;
    int64_t i;
    uint64_t u;
    double d;
    assert_true(ft_parse_i64("-9223372036854775808", INT64_MIN, INT64_MAX, &i) && i == INT64_MIN);
    const char *const bad[] = {"", "-", "+1", " 1", "1 ", "0x4", "4.0", "99999999999999999999", "1e3"};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) assert_false(ft_parse_i64(bad[k], INT64_MIN, INT64_MAX, &i));
    assert_false(ft_parse_i64("5", 0, 4, &i));
    assert_true(ft_parse_u64("18446744073709551615", UINT64_MAX, &u) && u == UINT64_MAX);
    assert_false(ft_parse_u64("-1", UINT64_MAX, &u));
    assert_true(ft_parse_real("1e-5", &d) && d == 1e-5);
    assert_true(ft_parse_real("-.5", &d) && d == -0.5);
    const char *const bad_real[] = {"", ".", "nan", "inf", "0x1p3", "1e", "1e999", "1,5", "1 "};
    for (size_t k = 0; k < sizeof bad_real / sizeof *bad_real; k++) assert_false(ft_parse_real(bad_real[k], &d));
    struct ft_buf b = {0};
    const double some[] = {0.1, 1e-5, 2, 1.0 / 3, 6.181084632873535, 1e300, -0.0, 5e-324};
    for (size_t k = 0; k < sizeof some / sizeof *some; k++) {
        ft_buf_clear(&b);
        ft_buf_add_real(&b, some[k]);
        assert_true(strtod(b.data, NULL) == some[k]);
    }
    ft_buf_clear(&b);
    ft_buf_add_real(&b, 0.1);
    assert_string_equal(b.data, "0.1");
    ft_buf_fini(&b);
}

static void utf8(void **state)
{
    (void)state;
    const char *const good[] = {
        "a", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"};
    for (size_t k = 0; k < sizeof good / sizeof *good; k++) {
        uint32_t cp;
        char back[4];
        const size_t n = strlen(good[k]);
        assert_int_equal(ft_utf8_valid(good[k], n), n);
        assert_int_equal(ft_utf8_decode(good[k], n, &cp), n);
        assert_int_equal(ft_utf8_encode(cp, back), n);
        assert_memory_equal(back, good[k], n);
    }
    const char *const bad[] = {"\x80",         "\xC0\xAF",         "\xC1\xBF",         "\xE0\x9F\xBF",
                               "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
                               "\xE2\x82"};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) assert_int_equal(ft_utf8_valid(bad[k], strlen(bad[k])), 0);
}

static void nearest(void **state)
{
    (void)state;
    const char *const names[] = {"slots", "host", "tags", "nodes"};
    assert_string_equal(ft_nearest("lots", names, 4), "slots");
    assert_string_equal(ft_nearest("HOST", names, 4), "host");
    assert_string_equal(ft_nearest("tag", names, 4), "tags");
    assert_null(ft_nearest("wholly", names, 4));
    assert_int_equal(ft_edit_distance("kitten", "sitting", 5), 3);
    assert_int_equal(ft_edit_distance("a", "abcdef", 2), 3);
}

static void files(void **state)
{
    (void)state;
    char dir[] = "/tmp/ft-core-XXXXXX";
    assert_non_null(mkdtemp(dir));
    struct ft_buf path = {0}, text = {0};
    struct ft_err e = {0};
    ft_buf_addf(&path, "%s/a/b/c", dir);
    assert_int_equal(ft_mkdirs(path.data, 0700, &e), FT_OK);
    assert_int_equal(ft_mkdirs(path.data, 0700, &e), FT_OK);
    assert_int_equal(ft_read_file(path.data, 100, &text, &e), FT_IO);
    assert_non_null(strstr(e.text, "Is a directory"));
    ft_buf_adds(&path, "/f");
    assert_int_equal(ft_write_file(path.data, "12345", 5, 0600, &e), FT_OK);
    struct stat st;
    assert_int_equal(stat(path.data, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(ft_read_file(path.data, 5, &text, &e), FT_OK);
    assert_string_equal(text.data, "12345");
    assert_int_equal(ft_read_file(path.data, 4, &text, &e), FT_IO);
    assert_int_equal(ft_mkdirs(path.data, 0700, &e), FT_IO);
    assert_non_null(strstr(e.text, "Not a directory"));
    unlink(path.data);
    ft_buf_adds(&path, "-missing");
    assert_int_equal(ft_read_file(path.data, 5, &text, &e), FT_IO);
    assert_non_null(strstr(e.text, "No such file"));
    const char *const parts[] = {"/a/b/c", "/a/b", "/a", ""};
    for (int i = 0; i < 4; i++) {
        ft_buf_clear(&path);
        ft_buf_addf(&path, "%s%s", dir, parts[i]);
        assert_int_equal(rmdir(path.data), 0); /* no .part file was left */
    }
    ft_buf_fini(&path);
    ft_buf_fini(&text);
}

static void options(void **state)
{
    (void)state;
    static const struct ft_option opts[] = {{"set", 's', "K=V", "sets", 1},
                                            {"json", 0, NULL, "json", 2},
                                            {NULL, 'n', "N", "ranks", 3},
                                            {"quiet", 'q', NULL, "less", 4}};
    const struct ft_command c = {
        .name = "run", .usage = "", .summary = "runs", .options = opts, .n_options = 4, .takes_rest = true};
    char *args[] = {(char[]){"run"},   (char[]){"--set=a=b"}, (char[]){"-qn"}, (char[]){"4"},  (char[]){"job.ini"},
                    (char[]){"--set"}, (char[]){"x"},         (char[]){"-n8"}, (char[]){"--"}, (char[]){"-q"}};
    struct ft_argv a = ft_argv_begin(&c, 10, args);
    struct ft_err e = {0};
    const char *v;
    const struct {
        int id;
        const char *value;
    } want[] = {{1, "a=b"}, {4, NULL}, {3, "4"}, {FT_ARG_WORD, "job.ini"}, {1, "x"}, {3, "8"}, {FT_ARG_END, NULL}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_int_equal(ft_argv_next(&a, &v, &e), want[i].id);
        assert_true(ft_str_eq(v, want[i].value));
    }
    assert_int_equal(a.n_rest, 1);
    assert_string_equal(a.rest[0], "-q");
    char *bad[][2] = {{(char[]){"run"}, (char[]){"--sat"}},
                      {(char[]){"run"}, (char[]){"--set"}},
                      {(char[]){"run"}, (char[]){"--json=1"}},
                      {(char[]){"run"}, (char[]){"-x"}},
                      {(char[]){"run"}, (char[]){"-n"}}};
    const char *const said[] = {"--sat", "--set K=V", "takes no value", "no option -x", "-n N"};
    for (int i = 0; i < 5; i++) {
        a = ft_argv_begin(&c, 2, bad[i]);
        assert_int_equal(ft_argv_next(&a, &v, &e), FT_ARG_BAD);
        assert_non_null(strstr(e.text, said[i]));
        if (i == 0) assert_string_equal(e.fix, "did you mean --set?");
    }
}

static void times(void **state)
{
    (void)state;
    char text[32];
    ft_wall_iso(1764523260123LL * FT_MS, text);
    assert_string_equal(text, "2025-11-30T17:21:00.123Z");
    ft_wall_compact(1764523260123LL * FT_MS, text);
    assert_string_equal(text, "20251130-172100");
    int64_t now = 5;
    assert_int_equal(ft_clock_now(ft_clock_fake(&now)), 5);
    const int64_t t = ft_clock_now(ft_clock_real());
    assert_true(ft_clock_now(ft_clock_real()) >= t);
}

static void visible(const char *text, const char *also, const char *want)
{
    struct ft_buf b = {0};
    ft_buf_add_visible(&b, text, strlen(text), also);
    assert_string_equal(ft_buf_str(&b), want);
    ft_buf_fini(&b);
}

static void test_visible(void **state)
{
    (void)state;
    visible("plain\ttext", "", "plain\ttext");
    visible("\033[31mred\r\n", "", "\\x1B[31mred\\x0D\\x0A");
    visible("a\nb", "\n", "a\nb");
    visible("gr\xc3\xbc\xc3\x9f", "", "gr\xc3\xbc\xc3\x9f");
    visible("\xc2\x9b"
            "31m \xff \xe2\x82",
            "", "\\xC2\\x9B31m \\xFF \\xE2\\x82"); /* CSI as one code point; cut sequences */
    visible("\x7f", "", "\\x7F");
}

static void test_home(void **state)
{
    (void)state;
    struct ft_buf b = {0};
    struct ft_err err = {0};
    char *before = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
    setenv("HOME", "/h", 1);
    static const char *const rows[][2] = {{"~", "/h"}, {"~/x/y", "/h/x/y"}, {"a/~", "a/~"},
                                          {"", ""},    {"./~x", "./~x"},    {"~root/x", "/root/x"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(ft_expand_home(rows[i][0], &b, &err), FT_OK);
        assert_string_equal(ft_buf_str(&b), rows[i][1]);
    }
    assert_int_equal(ft_expand_home("~nosuchuser/x", &b, &err), FT_CONFIG);
    assert_string_equal(ft_buf_str(&b), "~nosuchuser/x");
    assert_non_null(strstr(err.text, "'nosuchuser'"));
    unsetenv("HOME");
    const bool known = getpwuid(getuid()) != NULL;
    assert_int_equal(ft_expand_home("~/x", &b, &err), known ? FT_OK : FT_CONFIG);
    assert_int_equal(ft_buf_str(&b)[0], known ? '/' : '~');
    assert_true(ft_str_ends(b.data, "/x"));
    if (before) setenv("HOME", before, 1);
    free(before);
    ft_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(errors),   cmocka_unit_test(arena),   cmocka_unit_test(numbers),
                                       cmocka_unit_test(utf8),     cmocka_unit_test(nearest), cmocka_unit_test(files),
                                       cmocka_unit_test(options),  cmocka_unit_test(times),   cmocka_unit_test(test_visible),
                                       cmocka_unit_test(test_home)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
