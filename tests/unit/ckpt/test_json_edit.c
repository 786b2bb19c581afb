/* Changing one key of a JSON object and no other byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/ckpt/export.h"

static void check(const char *text, const char *key, const char *value, const char *want)
{
    struct ft_buf out = {0};
    struct ft_err err;
    assert_int_equal(ft_json_edit(text, strlen(text), key, value, &out, &err), FT_OK);
    assert_string_equal(ft_buf_str(&out), want);
    ft_buf_fini(&out);
}

static void replaces_only_the_value(void **state)
{
    (void)state;
    check("{\"a\": 1, \"b\": 2}", "a", "7", "{\"a\": 7, \"b\": 2}");
    check("{\"a\": 1, \"b\": 2 }\n", "b", "[1, 2]", "{\"a\": 1, \"b\": [1, 2] }\n");
    check("{\n  \"x\": {\"b\": 1},\n  \"b\" :\t\"old\"\n}", "b", "\"new\"", "{\n  \"x\": {\"b\": 1},\n  \"b\" :\t\"new\"\n}");
    check("{\"s\": \"a \\\"b\\\": {\", \"b\": [1, [2], {\"b\": 3}], \"c\": 1}", "b", "0",
          "{\"s\": \"a \\\"b\\\": {\", \"b\": 0, \"c\": 1}");
    check("{\"b\":null}", "b", "1", "{\"b\":1}");
    check("{\"b\":{\"c\":1}}", "b", "1", "{\"b\":1}");
    check("  {\"b\":[]  }", "b", "1", "  {\"b\":1  }");
}

static void adds_behind_the_last_in_its_style(void **state)
{
    (void)state;
    check("{\n  \"a\": 1,\n  \"c\": 2\n}\n", "b", "3", "{\n  \"a\": 1,\n  \"c\": 2,\n  \"b\": 3\n}\n");
    check("{\"a\": 1}", "b", "3", "{\"a\": 1,\"b\": 3}");
    check("{}", "b", "3", "{\"b\": 3}");
}

static void refuses_what_is_no_object(void **state)
{
    (void)state;
    struct ft_buf out = {0};
    struct ft_err err;
    assert_int_equal(ft_json_edit("[1]", 3, "a", "1", &out, &err), FT_DATA);
    assert_int_equal(ft_json_edit("{\"a\":}", 6, "a", "1", &out, &err), FT_DATA);
    ft_buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replaces_only_the_value),
        cmocka_unit_test(adds_behind_the_last_in_its_style),
        cmocka_unit_test(refuses_what_is_no_object),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
