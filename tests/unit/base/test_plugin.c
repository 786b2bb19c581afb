/* Plugins beside the program: found and used; missing, of another build, without the function: said so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/plugin.h"

struct sample {
    struct ft_plugin_head head;
    int (*twice)(int x);
};
static const struct ft_plugin_head right = {.abi = 7, .bytes = sizeof(struct sample), .version = FT_VERSION};

static void test_used(void **state)
{
    (void)state;
    const void *table = NULL;
    struct ft_err err = {0};
    for (int scope = FT_PLUGIN_LOCAL; scope <= FT_PLUGIN_GLOBAL; scope++) {
        if (ft_plugin_open("libft_sample.so", "ft_sample_plugin", &right, (enum ft_plugin_scope)scope, &table, &err))
            fail_msg("%s", err.text);
        assert_int_equal(((const struct sample *)table)->twice(21), 42);
    }
}

static void refused(const char *file, const char *function, const struct ft_plugin_head *want, const char *text)
{
    const void *table = NULL;
    struct ft_err err = {0};
    assert_int_equal(ft_plugin_open(file, function, want, FT_PLUGIN_LOCAL, &table, &err), FT_UNSUPPORTED);
    assert_null(table);
    if (!strstr(err.text, text)) fail_msg("'%s' is not in: %s", text, err.text);
}

static void test_refused(void **state)
{
    (void)state;
    struct ft_plugin_head other = right;
    refused("libft_nothing.so", "ft_sample_plugin", &right, "libft_nothing.so: No such file or directory");
    refused("libft_sample.so", "ft_other_plugin", &right, "has no function ft_other_plugin");
    refused("libft_broken.so", "ft_sample_plugin", &right, "libft_broken.so cannot be opened: ");
    other.abi = 8;
    refused("libft_sample.so", "ft_sample_plugin", &other, "(table 7 of");
    other = right;
    other.bytes++;
    refused("libft_sample.so", "ft_sample_plugin", &other, "this program of " FT_VERSION);
    other = right;
    other.version = "9.9.9";
    refused("libft_sample.so", "ft_sample_plugin", &other, "this program of 9.9.9");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_used), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
