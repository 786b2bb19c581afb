#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "runtime/device/device.h"

static void open_and_use(void **state)
{
    (void)state;
    static const char *const names[] = {"cpu", "auto"};
    for (int i = 0; i < 2; i++) {
        struct ft_err err;
        struct ft_device *d = NULL;
        assert_int_equal(ft_device_open(names[i], 0, 2, &d, &err), FT_OK);
        assert_string_equal(d->ops->name, "cpu");
        assert_string_equal(d->kernels->device, "cpu");
        void *p = NULL;
        assert_int_equal(ft_device_alloc(d, 1000, "a test", NULL, &p, &err), FT_OK);
        assert_int_equal((uintptr_t)p % 256, 0);
        char out[1000], in[1000];
        memset(in, 7, sizeof in);
        ft_device_write(d, p, in, sizeof in);
        ft_device_read(d, out, p, sizeof out);
        assert_memory_equal(in, out, sizeof in);
        assert_int_equal(d->used, 1000);
        ft_device_free(d, p, 1000);
        assert_int_equal(d->used, 0);
        assert_int_equal(d->peak, 1000);
        ft_device_close(d);
    }
}

/* Every entry of the CPU's table is filled. */
static void whole_table(void **state)
{
    (void)state;
    struct ft_err err;
    struct ft_device *d = NULL;
    assert_int_equal(ft_device_open("cpu", 0, 1, &d, &err), FT_OK);
    void (*entry[sizeof *d->kernels / sizeof(void *)])(void);
    memcpy(entry, d->kernels, sizeof entry);
    for (size_t i = 0; i < sizeof entry / sizeof *entry; i++)
        if (!entry[i]) fail_msg("entry %zu of struct ft_kernels is empty", i);
    ft_device_close(d);
}

static void refused(void **state)
{
    (void)state;
    struct ft_err err;
    struct ft_device *d = NULL;
    assert_int_equal(ft_device_open("cuda", 0, 1, &d, &err), FT_UNSUPPORTED);
    assert_non_null(strstr(err.text, "'cuda' is not in this build"));
    assert_int_equal(ft_device_open("cpo", 0, 1, &d, &err), FT_CONFIG);
    assert_non_null(strstr(err.text, "no device 'cpo'"));
    assert_string_equal(err.fix, "[train] device = cpu");
    assert_null(d);
    assert_int_equal(ft_device_open("cpu", 0, 1, &d, &err), FT_OK);
    void *p = NULL;
    assert_int_equal(ft_device_alloc(d, INT64_C(1) << 60, "activations", "[train] micro_batch", &p, &err), FT_NOMEM);
    assert_non_null(strstr(err.text, "1152921504606846976 bytes asked"));
    assert_string_equal(err.fix, "lower [train] micro_batch");
    assert_null(p);
    ft_device_close(d);
}

static void threads(void **state)
{
    (void)state;
    assert_int_equal(ft_device_threads("3", 1), 3);
    assert_int_equal(ft_device_threads("5,2", 8), 5);
    const int all = ft_device_threads(NULL, 1);
    assert_true(all >= 1);
    assert_int_equal(ft_device_threads("0", 1), all);
    assert_int_equal(ft_device_threads("many", 1), all);
    assert_int_equal(ft_device_threads(NULL, 100000), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(open_and_use), cmocka_unit_test(whole_table), cmocka_unit_test(refused),
                                       cmocka_unit_test(threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
