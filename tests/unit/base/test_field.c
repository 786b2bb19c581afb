/* Field tables: every type, ranges, words, lists, provenance, what is not built, JSON there and back, INI. */
#include "base/field.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct fields {
    const char *text, *path;
    int64_t count, limit, wait, size;
    double lr, share;
    bool flag, other;
    int mode;
    struct ft_list list, numbers;
};
static bool even(const char *value, struct ft_buf *why)
{
    if ((value[strlen(value) - 1] - '0') % 2 == 0) return true;
    ft_buf_addf(why, "%s is odd", value);
    return false;
}
static const char *const modes[] = {"full", "lora", "qlora", NULL};
static const char *const autos[] = {"auto", "never", NULL};
static const struct ft_unbuilt no_qlora[] = {{"qlora", "set mode = lora"}, {NULL, NULL}};
static const struct ft_unbuilt no_yes[] = {{"yes", "set other = no"}, {"default", "set other = no"}, {NULL, NULL}};
static const struct ft_unbuilt no_b[] = {{"b", "leave b out"}, {NULL, NULL}};
#define AT(m) .at = offsetof(struct fields, m)
static const struct ft_field rows[] = {
    {.name = "text", .type = FT_F_TEXT, AT(text), .help = "a text"},
    {.name = "path", .type = FT_F_PATH, .def = "~/x", AT(path), .help = "a path"},
    {.name = "count",
     .type = FT_F_INT,
     .unit = "things",
     .def = "2",
     .min = 1,
     .max = 4096,
     AT(count),
     .help = "how many",
     .check = even},
    {.name = "limit",
     .type = FT_F_INT,
     .def = "auto",
     .values = autos,
     .word_value = -1,
     .min = 1,
     AT(limit),
     .help = "at least one"},
    {.name = "wait", .type = FT_F_DURATION, .def = "30s", .min = 0, .max = 3600e9, AT(wait), .help = "how long"},
    {.name = "size", .type = FT_F_SIZE, .def = "1K", AT(size), .help = "how big"},
    {.name = "lr", .type = FT_F_REAL, .def = "1e-5", .min = 0, .max = 1, AT(lr), .help = "rate"},
    {.name = "share", .type = FT_F_SHARE, .def = "5%", .min = 0, .max = 1, AT(share), .help = "part"},
    {.name = "flag", .type = FT_F_BOOL, .def = "no", AT(flag), .help = "whether"},
    {.name = "other", .type = FT_F_BOOL, .def = "yes", AT(other), .help = "whether too", .unbuilt = no_yes},
    {.name = "mode", .type = FT_F_ENUM, .values = modes, .def = "full", AT(mode), .help = "which", .unbuilt = no_qlora},
    {.name = "list", .type = FT_F_TEXT, .list = true, AT(list), .help = "names", .unbuilt = no_b},
    {.name = "numbers", .type = FT_F_INT, .list = true, .min = 0, .max = 9, AT(numbers), .help = "digits"},
};
static const struct ft_section section = {"s", "a section", rows, sizeof rows / sizeof *rows, sizeof(struct fields)};

static struct ft_arena *arena;
static struct ft_faults faults;
static struct ft_ini *ini;
static struct fields f;
static struct ft_value values[sizeof rows / sizeof *rows];

static void read_files(const char *a, const char *b, const char *set)
{
    ft_arena_destroy(arena);
    arena = ft_arena_create();
    faults = (struct ft_faults){.arena = arena};
    ini = ft_ini_create(arena);
    ft_ini_read_text(ini, "a.ini", a, strlen(a), &faults);
    if (b) ft_ini_read_text(ini, "b.ini", b, strlen(b), &faults);
    if (set) ft_ini_set(ini, set, &faults);
    ft_section_read(&section, ini, &f, values, &faults);
}

static void test_defaults(void **state)
{
    (void)state;
    setenv("HOME", "/home/ml", 1);
    read_files("[s]\nother = no\n", NULL, NULL);
    assert_int_equal(faults.n, 0);
    assert_null(f.text);
    assert_string_equal(f.path, "/home/ml/x");
    assert_int_equal(f.count, 2);
    assert_int_equal(f.limit, -1);
    assert_true(f.wait == 30000000000);
    assert_int_equal(f.size, 1024);
    assert_true(f.lr == 1e-5);
    assert_true(f.share == 0.05);
    assert_false(f.flag);
    assert_int_equal(f.mode, 0);
    assert_int_equal(f.list.n, 0);
    assert_null(values[2].at.file);
    assert_string_equal(values[2].text, "2");
}

static void test_values(void **state)
{
    (void)state;
    read_files(
        "[s]\ntext = a b\npath = ~/y\ncount = 4096\nlimit = 7\nwait = 1500ms\nsize = 3M\nlr = 0.5\nshare = 2.5%\nflag = yes\n"
        "other = no\nmode = lora\nlist = a , c,d\nnumbers = 1,9\n",
        NULL, NULL);
    assert_int_equal(faults.n, 0);
    assert_string_equal(f.text, "a b");
    assert_string_equal(f.path, "/home/ml/y");
    assert_int_equal(f.count, 4096);
    assert_int_equal(f.limit, 7);
    assert_true(f.wait == 1500000000);
    assert_int_equal(f.size, 3 << 20);
    assert_true(f.lr == 0.5);
    assert_true(f.share == 0.025);
    assert_true(f.flag);
    assert_int_equal(f.mode, 1);
    assert_int_equal(f.list.n, 3);
    assert_string_equal(f.list.v[1], "c");
    assert_int_equal(f.numbers.n, 2);
    assert_int_equal(values[10].at.line, 12);
    assert_int_equal(values[10].at.column, 8);
}

static void test_merge(void **state)
{
    (void)state;
    read_files("[s]\nother = no\ncount = 4\nwait = 2m\n", "[s]\ncount = 6\n[s]\nwait=0\n", "s.wait=1h");
    assert_int_equal(faults.n, 0);
    assert_int_equal(f.count, 6);
    assert_string_equal(values[2].at.file, "b.ini");
    assert_true(f.wait == 3600000000000);
    assert_string_equal(values[4].at.file, "--set");
    read_files("[s]\nother = no\ntext = x\nlist = a\n", "[s]\ntext =\nlist =\n", NULL);
    assert_int_equal(faults.n, 0);
    assert_null(f.text);
    assert_int_equal(f.list.n, 0);
}

static const struct {
    const char *line;
    int col;
    const char *word, *fix;
} bad[] = {
    {"cuont = 2", 1, "'cuont'", "count"},
    {"Count = 2", 1, "'Count'", "count"},
    {"count = 0", 9, "1..4096", NULL},
    {"count = 5", 9, "5 is odd", NULL},
    {"count = 4097", 9, "'4097'", NULL},
    {"count = 4.0", 9, "'4.0'", NULL},
    {"count = 0x4", 9, "'0x4'", NULL},
    {"count = 99999999999999999999", 9, "1..4096", NULL},
    {"count =", 8, "no value", NULL},
    {"path =", 7, "no value", NULL},
    {"limit = 0", 9, "1 or more", NULL},
    {"limit = Auto", 9, "did you mean 'auto'", NULL},
    {"wait = 30", 8, "unit", NULL},
    {"wait = 30 s", 8, "unit", NULL},
    {"wait = 2h", 8, "in 0s..1h", NULL},
    {"wait = -1s", 8, "'-1s'", NULL},
    {"size = 1.5M", 8, "'1.5M'", NULL},
    {"size = 9999999T", 8, "'9999999T'", NULL},
    {"size = 4k", 8, "'4k'", NULL},
    {"lr = nan", 6, "'nan'", NULL},
    {"lr = 1.5", 6, "0..1", NULL},
    {"lr = 1e999", 6, "'1e999'", NULL},
    {"share = 5", 9, "%", NULL},
    {"share = 101%", 9, "0%..100%", NULL},
    {"flag = true", 8, "yes or no", NULL},
    {"mode = Lora", 8, "did you mean 'lora'", NULL},
    {"mode = qlora", 8, "mode = qlora is not built yet", "set mode = lora"},
    {"list = a,,b", 8, "item 2", NULL},
    {"list = a, b ", 8, "list = b is not built", "leave b out"},
    {"numbers = 1,10", 11, "'10'", NULL},
    {"text = a\xff", 8, "UTF-8", NULL},
};

static void test_bad(void **state)
{
    (void)state;
    int failed = 0;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[128];
        snprintf(text, sizeof text, "[s]\n%s\nother = no\n", bad[i].line);
        read_files(text, NULL, NULL);
        const struct ft_fault *v = faults.v;
        bool ok = faults.n == 1 && faults.n_errors == 1 && v->at.line == 2 && v->at.column == bad[i].col &&
                  strstr(v->text, bad[i].word);
        if (ok && bad[i].fix) ok = v->fix && strstr(v->fix, bad[i].fix);
        if (ok) continue;
        failed++;
        print_error("%s: %zu faults; %d:%d %s (fix %s)\n", bad[i].line, faults.n, v ? v->at.line : 0, v ? v->at.column : 0,
                    v ? v->text : "", v && v->fix ? v->fix : "-");
    }
    assert_int_equal(failed, 0);
}

static void test_twice(void **state)
{
    (void)state;
    read_files("[s]\nother = no\ncount = 2\n[x]\n[s]\ncount = 4\n", "[s]\ncount = 6\n", NULL);
    assert_int_equal(faults.n, 1);
    assert_int_equal(faults.v[0].at.line, 6);
    assert_int_equal(faults.v[0].at.column, 1);
    assert_non_null(strstr(faults.v[0].text, "line 3"));
    assert_int_equal(f.count, 6);
}

/* A wrong value that a later file replaces is a fault all the same; what is not built counts only when it is in force. */
static void test_replaced(void **state)
{
    (void)state;
    read_files("[s]\ncount = 0\nmode = qlora\nother = yes\n", "[s]\ncount = 2\nmode = full\nother = no\n", NULL);
    assert_int_equal(faults.n, 1);
    assert_string_equal(faults.v[0].key, "count");
    read_files("[s]\n", NULL, NULL);
    assert_int_equal(faults.n, 1);
    assert_null(faults.v[0].at.file);
    assert_string_equal(faults.v[0].text, "the default other = yes is not built yet");
    assert_string_equal(faults.v[0].fix, "set other = no");
    read_files("[s]\nother = yes\n", NULL, NULL);
    assert_int_equal(faults.n, 1);
    assert_int_equal(faults.v[0].at.line, 2);
}

static void test_json(void **state)
{
    (void)state;
    struct ft_buf text = {0}, again = {0};
    struct ft_jw w = ft_jw_begin(&text);
    ft_section_write_json(&section, &w);
    struct ft_json *v = NULL;
    struct ft_err err;
    assert_int_equal(ft_json_parse(text.data, text.n, 0, &v, NULL, &err), FT_OK);
    struct ft_section *s = ft_section_from_json(v, arena);
    ft_json_destroy(v);
    assert_non_null(s);
    assert_int_equal(s->n_fields, section.n_fields);
    w = ft_jw_begin(&again);
    ft_section_write_json(s, &w);
    assert_string_equal(text.data, again.data);
    ft_buf_clear(&again);
    struct ft_buf here = {0};
    ft_section_write_ini(&section, &here);
    ft_section_write_ini(s, &again);
    assert_string_equal(here.data, again.data);
    for (size_t i = 0; i < section.n_fields; i++) assert_non_null(strstr(here.data, rows[i].name));
    assert_non_null(strstr(here.data, "[s]\n"));
    assert_non_null(strstr(here.data, "; how many (whole number, things, 1..4096)\n; count = 2\n"));
    /* what was written is read back as nothing but comments */
    ft_arena_destroy(arena);
    arena = ft_arena_create();
    faults = (struct ft_faults){.arena = arena};
    ini = ft_ini_create(arena);
    ft_ini_read_text(ini, "c.ini", here.data, here.n, &faults);
    assert_int_equal(ini->n, 0);
    assert_int_equal(faults.n, 0);
    ft_buf_fini(&text);
    ft_buf_fini(&again);
    ft_buf_fini(&here);
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
        cmocka_unit_test(test_defaults), cmocka_unit_test(test_values),   cmocka_unit_test(test_merge), cmocka_unit_test(test_bad),
        cmocka_unit_test(test_twice),    cmocka_unit_test(test_replaced), cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
