/* The self-test of packing on real models: it passes, its control differs, and a difference beyond the tolerance is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "runtime/arch/config.h"
#include "runtime/ckpt/import.h"
#include "runtime/device/device.h"
#include "runtime/train/memory.h"
#include "runtime/train/selftest.h"

struct fixture {
    struct ft_arena *arena;
    struct ft_model_config config;
    struct ft_device *device;
    struct ft_model *model;
    float *weights;
};

static void open_model(struct fixture *f, const char *name)
{
    struct ft_err err;
    char dir[512];
    (void)snprintf(dir, sizeof dir, FT_GOLDEN "/hf/%s", name);
    memset(f, 0, sizeof *f);
    f->arena = ft_arena_create();
    assert_int_equal(ft_model_config_read(dir, f->arena, &f->config, &err), FT_OK);
    assert_int_equal(ft_device_open("cpu", 0, 1, &f->device, &err), FT_OK);
    const struct ft_model_options o = {
        .config = &f->config, .device = f->device, .tensor = 1, .pipeline = 1, .compute = FT_F32, .max_tokens = 256, .seq_len = 64};
    assert_int_equal(ft_model_create(&o, &f->model, &err), FT_OK);
    size_t n;
    const struct ft_param *p = ft_model_params(f->model, &n);
    const struct ft_buckets b = ft_memory_buckets(p, n, 1, 0, f->arena);
    f->weights = ft_xcalloc((size_t)b.total, sizeof *f->weights);
    int64_t *offsets = ft_arena_array(f->arena, n, sizeof *offsets);
    struct ft_import *m = NULL;
    assert_int_equal(ft_import_open(dir, &f->config, &m, &err), FT_OK);
    for (size_t i = 0; i < n; i++) {
        offsets[i] = b.place[i].start;
        assert_int_equal(ft_import_read(m, &p[i], 0, ft_param_local(&p[i]), f->weights + offsets[i], &err), FT_OK);
    }
    ft_import_close(m);
    ft_model_bind(f->model, f->weights, NULL, offsets);
}

static void close_model(struct fixture *f)
{
    ft_model_destroy(f->model);
    ft_device_close(f->device);
    free(f->weights);
    ft_arena_destroy(f->arena);
}

static void packing_is_invisible(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "gpt2", "qwen3", "llama31"};
    static const int32_t ids[40] = {3, 50, 7, 91, 12, 5, 66, 8, 120, 44, 9, 2, 31, 77, 5, 18, 20, 99, 101, 4,
                                    3, 50, 8, 6,  71, 5, 60, 8, 12,  40, 9, 2, 33, 70, 5, 11, 21, 92, 100, 1};
    const struct ft_sample s[] = {{ids, 11}, {ids + 11, 5}, {ids + 16, 2}, {ids + 18, 22}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct fixture f;
        struct ft_selftest r;
        struct ft_err err;
        open_model(&f, names[i]);
        if (ft_packing_selftest(&(struct ft_pipeline){f.model, NULL, 0, 1, 1}, s, 4, 1e-5, &r, &err))
            fail_msg("%s: %s", names[i], err.text);
        assert_true(r.packed <= 1e-5 && r.reordered <= 1e-5);
        assert_true(r.proves);
        close_model(&f);
    }
}

/* Numbers that are wrong on purpose: nothing is below a negative tolerance. */
static void a_difference_is_refused(void **state)
{
    (void)state;
    static const int32_t ids[] = {3, 50, 7, 91, 12, 5};
    const struct ft_sample s[] = {{ids, 3}, {ids + 3, 3}};
    struct fixture f;
    struct ft_selftest r;
    struct ft_err err;
    open_model(&f, "llama");
    assert_int_equal(ft_packing_selftest(&(struct ft_pipeline){f.model, NULL, 0, 1, 1}, s, 2, -1, &r, &err), FT_DATA);
    assert_non_null(strstr(err.text, "packing changes the loss of a token"));
    close_model(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packing_is_invisible),
        cmocka_unit_test(a_difference_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
