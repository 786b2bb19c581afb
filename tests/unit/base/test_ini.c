/* Strict INI reading: grammar, positions, comments, encodings, --set. */
#include "base/ini.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/str.h"

static struct ft_arena *arena;
static struct ft_faults faults;
static struct ft_ini *ini;

static void read_n(const char *text, size_t n)
{
    ft_arena_destroy(arena);
    arena = ft_arena_create();
    faults = (struct ft_faults){.arena = arena};
    ini = ft_ini_create(arena);
    ft_ini_read_text(ini, "job.ini", text, n, &faults);
}
static void read_s(const char *text) { read_n(text, strlen(text)); }

static void expect(size_t i, const char *section, const char *key, const char *value, int line, int col, int value_col)
{
    assert_true(i < ini->n);
    assert_string_equal(ini->v[i].section, section);
    assert_string_equal(ini->v[i].key, key);
    assert_string_equal(ini->v[i].value, value);
    assert_int_equal(ini->v[i].value_len, strlen(value));
    assert_int_equal(ini->v[i].at.line, line);
    assert_int_equal(ini->v[i].at.column, col);
    assert_int_equal(ini->v[i].value_at.line, line);
    assert_int_equal(ini->v[i].value_at.column, value_col);
}

static void test_plain(void **state)
{
    (void)state;
    read_s("; c\n# c\n[a]\nx = 1 ; one\n  y=two words\t\nz =\n[ b ] ; c\n\nq = a#b ;c\n[a]\nx2 = ;c\nx3=;c");
    assert_int_equal(faults.n, 0);
    assert_int_equal(ini->n, 6);
    expect(0, "a", "x", "1", 4, 1, 5);
    expect(1, "a", "y", "two words", 5, 3, 5);
    expect(2, "a", "z", "", 6, 1, 4);
    expect(3, "b", "q", "a#b", 9, 1, 5);
    expect(4, "a", "x2", "", 11, 1, 5);
    expect(5, "a", "x3", ";c", 12, 1, 4);
    assert_int_equal(ini->v[3].section_at.line, 7);
    assert_int_equal(ini->v[3].section_at.column, 3);
    assert_int_equal(ini->n_headers, 3);
    assert_int_equal(ini->headers[1].bracket.column, 1);
}

static void test_line_ends(void **state)
{
    (void)state;
    read_s("\xEF\xBB\xBF[a]\r\nx = 1\r\ny = 2");
    assert_int_equal(faults.n, 2);
    assert_int_equal(faults.n_errors, 0);
    assert_int_equal(faults.v[0].severity, FT_SEV_NOTE);
    assert_int_equal(faults.v[1].severity, FT_SEV_NOTE);
    expect(0, "a", "x", "1", 2, 1, 5);
    expect(1, "a", "y", "2", 3, 1, 5);
    read_s("\r\n");
    assert_int_equal(faults.n_errors, 0);
    read_s("");
    assert_int_equal(faults.n, 0);
    assert_int_equal(ini->n_files, 1);
}

static void test_env(void **state)
{
    (void)state;
    read_s("[env]\nX = a ; b # c\nBASH_FUNC_m%%=() { x; }\nY=\"a=b\" \\ \n# c\nC:D = 1\nE = \xff\xfe\n[env "
           "gpu[01-04],x[1-2]]\nZ=;\n[x]y = 3\n");
    assert_int_equal(faults.n, 0);
    expect(0, "env", "X", "a ; b # c", 2, 1, 5);
    expect(1, "env", "BASH_FUNC_m%%", "() { x; }", 3, 1, 15);
    expect(2, "env", "Y", "\"a=b\" \\", 4, 1, 3);
    expect(3, "env", "C:D", "1", 6, 1, 7);
    expect(4, "env", "E", "\xff\xfe", 7, 1, 5);
    expect(5, "env gpu[01-04],x[1-2]", "Z", ";", 9, 1, 3);
    expect(6, "env gpu[01-04],x[1-2]", "[x]y", "3", 10, 1, 8);
    assert_int_equal(ini->n, 7);
}

static void test_nodes(void **state)
{
    (void)state;
    read_s("[nodes]\nn1 = slots=4 # c\nn2=slots=4#c\n[1-4]x = slots=1\nn[1-2] =\n::1 = slots=1\n[fd00::1]:2222 = slots=1 ; c\n");
    assert_int_equal(faults.n, 0);
    expect(0, "nodes", "n1", "slots=4", 2, 1, 6);
    expect(1, "nodes", "n2", "slots=4#c", 3, 1, 4);
    expect(2, "nodes", "[1-4]x", "slots=1", 4, 1, 10);
    expect(3, "nodes", "n[1-2]", "", 5, 1, 9);
    expect(4, "nodes", "::1", "slots=1", 6, 1, 7);
    expect(5, "nodes", "[fd00::1]:2222", "slots=1", 7, 1, 18);
}

/* text, place of the one fault, a word of it */
static const struct {
    const char *text;
    size_t n; /* 0: strlen */
    int line, col;
    const char *word;
    size_t entries;
} bad[] = {
    {"[a]\nkey : value\nz = 1", 0, 2, 5, "':'", 1},
    {"[a]\nkey\nz = 1", 0, 2, 1, "without '='", 1},
    {"[a]\n= 3\nz = 1", 0, 2, 1, "no key", 1},
    {"[]\nx = 1\n[b]\nz = 1", 0, 1, 1, "without a name", 1},
    {"[a\nx = 1\n[b]\nz = 1", 0, 1, 1, "not closed", 1},
    {"[a] b = c\nx = 1\n[b]\nz = 1", 0, 1, 5, "'b = c'", 1},
    {"[a]b\n", 0, 1, 4, "'b'", 0},
    {"x = 1\ny = 2\n[b]\nz = 1", 0, 1, 1, "before the first", 1},
    {"[a]\nx = 1\ry = 2\nz = 1", 0, 2, 6, "carriage", 1},
    {"[a]\nx = 1\r", 0, 2, 6, "carriage", 0},
    {"[a]\nx = \0y\nz = 1", 16, 2, 5, "NUL", 1},
    {"[env]\nX = a\0\nz = 1", 17, 2, 6, "NUL", 1},
    {"[env]\nX\nz = 1", 0, 2, 1, "without '='", 1},
    {"[a]\nk\xff = 1\nz = 1", 0, 2, 2, "0xFF", 1},
    {"[a]\n; \xc3( c\nz = 1", 0, 2, 3, "0xC3", 1},
    {"[a]\ny = 1 ; \x80\nz = 1", 0, 2, 9, "0x80", 1},
    {"[\xed\xa0\x80]\nx = 1\n[b]\nz=1", 0, 1, 2, "0xED", 1},
    {"[nodes]\nnode01 : slots=4\nz =", 0, 2, 8, "':'", 1},
    {"[nodes]\nnode01: slots=4\nz =", 0, 2, 7, "':'", 1},
    {"[nodes]\nnode01 # x = 1\nz =", 0, 2, 1, "'node01'", 1},
    {"[nodes]\n[x\nz =", 0, 2, 1, "not closed", 0},
};

static void test_bad(void **state)
{
    (void)state;
    int failed = 0;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        read_n(bad[i].text, bad[i].n ? bad[i].n : strlen(bad[i].text));
        bool ok = faults.n == 1 && faults.v[0].severity == FT_SEV_ERROR && faults.v[0].at.line == bad[i].line &&
                  faults.v[0].at.column == bad[i].col && strstr(faults.v[0].text, bad[i].word) && ini->n == bad[i].entries;
        if (ok) continue;
        failed++;
        print_error("case %zu: %zu faults, %zu entries", i, faults.n, ini->n);
        for (size_t k = 0; k < faults.n; k++)
            print_error("; %d:%d %s", faults.v[k].at.line, faults.v[k].at.column, faults.v[k].text);
        print_error("\n");
    }
    assert_int_equal(failed, 0);
}

/* Every fault of a file appears in one run. */
static void test_all_faults(void **state)
{
    (void)state;
    read_s("[a]\nx\ny : 1\nz = 1\n[b\nq = 1\n[c] d\n= 1\n[e]\nr = 1\r2\ns = 1\n");
    assert_int_equal(faults.n_errors, 5);
    static const int lines[] = {2, 3, 5, 7, 10};
    for (size_t i = 0; i < 5; i++) assert_int_equal(faults.v[i].at.line, lines[i]);
    assert_int_equal(ini->n, 2);
}

/* inih as packaged cuts at 199 bytes and parses the rest as a new line. */
static void test_long(void **state)
{
    (void)state;
    struct ft_buf b = {0};
    ft_buf_adds(&b, "[env]\nX = ");
    for (int i = 0; i < 190; i++) ft_buf_addc(&b, 'a');
    ft_buf_adds(&b, " y = 1");
    for (int i = 0; i < 400; i++) ft_buf_addc(&b, 'b');
    ft_buf_adds(&b, "\n[");
    for (int i = 0; i < 60; i++) ft_buf_addc(&b, 's');
    ft_buf_adds(&b, "]\n");
    for (int i = 0; i < 300000; i++) ft_buf_addc(&b, 'k');
    ft_buf_adds(&b, " = ");
    for (int i = 0; i < 300000; i++) ft_buf_addc(&b, 'v');
    read_n(b.data, b.n);
    assert_int_equal(faults.n, 0);
    assert_int_equal(ini->n, 2);
    assert_int_equal(ini->v[0].value_len, 596);
    assert_int_equal(strlen(ini->v[1].section), 60);
    assert_int_equal(strlen(ini->v[1].key), 300000);
    assert_int_equal(ini->v[1].value_len, 300000);
    ft_buf_fini(&b);
}

static void test_files(void **state)
{
    (void)state;
    read_s("[a]\nx = 1\n");
    ft_ini_read(ini, "/nowhere/x.ini", &faults);
    assert_int_equal(faults.n_errors, 1);
    assert_non_null(strstr(faults.v[0].text, "/nowhere/x.ini"));
    assert_non_null(strstr(faults.v[0].text, "No such file"));
    ft_ini_read(ini, "/tmp", &faults);
    assert_int_equal(faults.n_errors, 2);
    assert_non_null(strstr(faults.v[1].text, "Is a directory"));
    if (geteuid() != 0) {
        char path[] = "/tmp/ft-test-ini-XXXXXX";
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        assert_int_equal(fchmod(fd, 0), 0);
        close(fd);
        ft_ini_read(ini, path, &faults);
        unlink(path);
        assert_int_equal(faults.n_errors, 3);
        assert_non_null(strstr(faults.v[2].text, "Permission denied"));
    } else {
        print_message("running as root: a file without permissions cannot be tried\n");
    }
    ft_ini_read_text(ini, "b.ini", "[a]\nx = 2\n", 10, &faults);
    assert_string_equal(ft_ini_find(ini, "a", "x")->value, "2");
    assert_int_equal(ft_ini_find(ini, "a", "x")->file_index, ini->n_files - 1);
    assert_null(ft_ini_find(ini, "a", "y"));
}

static void test_set(void **state)
{
    (void)state;
    read_s("[train]\nlr = 1\n");
    ft_ini_set(ini, "train.lr=2", &faults);
    ft_ini_set(ini, "train.lr = 3 = 4 ", &faults);
    ft_ini_set(ini, "nodes.a.b=slots=4", &faults);
    ft_ini_set(ini, "env n[1-2].x.X.Y=z", &faults);
    ft_ini_set(ini, "env.X=", &faults);
    assert_int_equal(faults.n, 0);
    assert_string_equal(ft_ini_find(ini, "train", "lr")->value, "3 = 4");
    assert_string_equal(ft_ini_find(ini, "train", "lr")->at.file, "--set");
    assert_true(ft_ini_is_set(ini, ft_ini_find(ini, "train", "lr")));
    assert_string_equal(ft_ini_find(ini, "nodes", "a.b")->value, "slots=4");
    assert_string_equal(ft_ini_find(ini, "env n[1-2]", "x.X.Y")->value, "z");
    assert_string_equal(ft_ini_find(ini, "env", "X")->value, "");
    static const char *const wrong[] = {"",     "x",       "a.b",      "a=b",      "=",        ".=",      "a.=1",
                                        ".b=1", "a b=c.d", "a.b=1\n2", "a.b=1 ;2", "env.#x=1", "env.;x=1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        size_t before = faults.n_errors;
        ft_ini_set(ini, wrong[i], &faults);
        if (faults.n_errors != before + 1) fail_msg("--set '%s' was taken", wrong[i]);
    }
}

/* Faults in the order of the files that were read, --set behind them, whatever came first. */
static void test_order(void **state)
{
    (void)state;
    read_s("[a]\nx = 1\n");
    ft_ini_read_text(ini, "b.ini", "[a]\n", 4, &faults);
    static const struct ft_source at[] = {{"--set", 0, 0},   {NULL, 0, 0},      {"b.ini", 1, 1},
                                          {"job.ini", 7, 2}, {"job.ini", 7, 1}, {"job.ini", 2, 1}};
    for (size_t i = 0; i < 6; i++) ft_faults_add(&faults, FT_SEV_ERROR, at[i], NULL, NULL, "f%zu", i);
    ft_ini_sort_faults(ini, &faults);
    static const char *const want[] = {"f5", "f4", "f3", "f2", "f0", "f1"};
    for (size_t i = 0; i < 6; i++) assert_string_equal(faults.v[i].text, want[i]);
}

static void test_quote(void **state)
{
    (void)state;
    struct ft_arena *a = ft_arena_create();
    assert_string_equal(ft_quote(a, "a b", 3), "'a b'");
    assert_string_equal(ft_quote(a, "a\n\xff\xc3\xb6\0", 6), "'a\\x0A\\xFF\xc3\xb6\\x00'");
    char big[500];
    memset(big, 'x', sizeof big);
    assert_int_equal(strlen(ft_quote(a, big, sizeof big)), 200 + 2 + 3);
    ft_arena_destroy(a);
}

static int end(void **state)
{
    (void)state;
    ft_arena_destroy(arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain), cmocka_unit_test(test_line_ends),  cmocka_unit_test(test_env),   cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_bad),   cmocka_unit_test(test_all_faults), cmocka_unit_test(test_long),  cmocka_unit_test(test_files),
        cmocka_unit_test(test_set),   cmocka_unit_test(test_quote),      cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
