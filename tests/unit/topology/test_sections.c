/* Names of sections: owners and misspellings. */
#include "topology/sections.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_owner(void **state)
{
    (void)state;
    assert_int_equal(ft_section_owner("nodes"), FT_OWNER_LAUNCHER);
    assert_int_equal(ft_section_owner("env"), FT_OWNER_LAUNCHER);
    assert_int_equal(ft_section_owner("env gpu[01-04]"), FT_OWNER_LAUNCHER);
    assert_int_equal(ft_section_owner("parallel"), FT_OWNER_SHARED);
    assert_int_equal(ft_section_owner("train"), FT_OWNER_TRAIN);
    assert_int_equal(ft_section_owner("Train"), FT_OWNER_NONE);
    assert_int_equal(ft_section_owner("environment"), FT_OWNER_NONE);
}

static void test_check(void **state)
{
    (void)state;
    struct ft_arena *arena = ft_arena_create();
    struct ft_faults faults = {.arena = arena};
    struct ft_ini *ini = ft_ini_create(arena);
    static const char text[] = "[node]\nnode01 = lots=1\n[train]\nlr = 1\n[modle]\n[Data]\n[zzzzzz]\nx = 1\n";
    ft_ini_read_text(ini, "job.ini", text, strlen(text), &faults);
    ft_ini_set(ini, "trian.lr=1", &faults);
    ft_ini_set(ini, "train.lr=1", &faults);
    assert_int_equal(faults.n, 0);
    ft_sections_check(ini, &faults);
    assert_int_equal(faults.n, 5);
    static const struct {
        int line;
        const char *text, *fix;
    } want[] = {{1, "'node'", "likely: [nodes]"},
                {5, "'modle'", "likely: [model]"},
                {6, "'Data'", "likely: [data]"},
                {7, "'zzzzzz'", NULL},
                {0, "'trian'", "likely: [train]"}};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(faults.v[i].at.line, want[i].line);
        assert_int_equal(faults.v[i].at.column, want[i].line ? 2 : 0);
        assert_non_null(strstr(faults.v[i].text, want[i].text));
        if (want[i].fix) assert_string_equal(faults.v[i].fix, want[i].fix);
        else assert_null(faults.v[i].fix);
    }
    ft_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_owner), cmocka_unit_test(test_check)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
