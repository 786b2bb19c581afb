/* AdamW and the norm over owned pieces, with the CPU's kernels: the accepted values RT-05 and RT-10, and that any number of data
 * ranks gives the same numbers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/device/device.h"
#include "runtime/train/optimizer.h"

static struct ft_device *device;

static int open_device(void **state)
{
    (void)state;
    struct ft_err err;
    return ft_device_open("cpu", 0, 1, &device, &err) == FT_OK ? 0 : -1;
}
static int close_device(void **state)
{
    (void)state;
    ft_device_close(device);
    return 0;
}

static bool near(double a, double b, double rel) { return fabs(a - b) <= rel * fmax(fabs(a), fabs(b)); }

/* One optimizer per data rank over the same buffers. */
struct world {
    struct ft_arena *arena;
    struct ft_buckets *b;
    struct ft_optimizer *o;
    float *w, *g;
    int d;
};

static struct world make_world(const struct ft_param *params, size_t n, int d, enum ft_dtype type)
{
    struct world x = {.arena = ft_arena_create(), .d = d};
    struct ft_bucket_param *sizes = ft_arena_array(x.arena, n, sizeof *sizes);
    for (size_t i = 0; i < n; i++) sizes[i].n = ft_param_local(&params[i]);
    x.b = ft_arena_array(x.arena, (size_t)d, sizeof *x.b);
    x.o = ft_arena_array(x.arena, (size_t)d, sizeof *x.o);
    for (int r = 0; r < d; r++) {
        x.b[r] = ft_buckets_make(sizes, n, d, r, FT_BUCKET_LIMIT, x.arena);
        if (!r) {
            x.w = ft_arena_array(x.arena, (size_t)x.b[0].total, sizeof *x.w);
            x.g = ft_arena_array(x.arena, (size_t)x.b[0].total, sizeof *x.g);
        }
        const size_t state_n = (size_t)x.b[r].state_total;
        x.o[r] = (struct ft_optimizer){.kernels = device->kernels,
                                       .kctx = device->kctx,
                                       .buckets = &x.b[r],
                                       .params = params,
                                       .beta1 = 0.9,
                                       .beta2 = 0.999,
                                       .eps = 1e-8,
                                       .weight_decay = 0.1,
                                       .weights = x.w,
                                       .weight_type = type,
                                       .grads = x.g,
                                       .master = type == FT_F32 ? NULL : ft_arena_array(x.arena, state_n, sizeof(float)),
                                       .m = ft_arena_array(x.arena, state_n, sizeof(float)),
                                       .v = ft_arena_array(x.arena, state_n, sizeof(float))};
    }
    return x;
}

static void rt05_three_updates(void **state)
{
    (void)state;
    const struct ft_param p = {.name = "p", .n_dims = 2, .dims = {1, 1}, .local = {1, 1}, .shard = FT_SHARD_DIM0, .decay = true};
    struct world x = make_world(&p, 1, 1, FT_F32);
    const double g[] = {0.1, -0.2, 0.3}, want_p[] = {0.989000001, 0.991672036, 0.987247953}, want_m[] = {0.01, -0.011, 0.0201},
                 want_v[] = {1e-5, 4.999e-5, 1.3994e-4};
    x.w[0] = 1;
    for (int k = 0; k < 3; k++) {
        x.g[0] = (float)g[k];
        ft_optimizer_step(&x.o[0], 0.01, 1);
        assert_true(near(x.w[0], want_p[k], 1e-6));
        assert_true(near(x.o[0].m[0], want_m[k], 1e-6));
        assert_true(near(x.o[0].v[0], want_v[k], 5e-5)); /* v is given with five digits */
    }
    assert_int_equal(x.o[0].t, 3);
    ft_arena_destroy(x.arena);
}

static void rt10_norm_counts_distinct_elements_once(void **state)
{
    (void)state;
    double sum = 0;
    for (int tp = 0; tp < 2; tp++) { /* t=2: sharded [3] and [4], replicated [12] on both */
        const struct ft_param p[] = {
            {.name = "w", .n_dims = 2, .dims = {2, 1}, .local = {1, 1}, .shard = FT_SHARD_DIM0, .decay = true},
            {.name = "n", .n_dims = 1, .dims = {1, 1}, .local = {1, 1}, .shard = FT_SHARD_NONE}};
        struct world x = make_world(p, 2, 1, FT_F32);
        x.o[0].tensor_rank = tp;
        x.g[x.b[0].place[0].start] = tp ? 4 : 3;
        x.g[x.b[0].place[1].start] = 12;
        sum += ft_optimizer_norm_sq(&x.o[0]);
        ft_arena_destroy(x.arena);
    }
    assert_true(near(sqrt(sum), 13.0, 1e-12));
    assert_true(near(ft_clip_coef(1, sqrt(sum)), 0.0769230710, 1e-9));
    assert_true(ft_clip_coef(0, 13) == 1);
    assert_true(ft_clip_coef(20, 13) == 1);
}

static void replicas_do_not_count(void **state)
{
    (void)state;
    const struct ft_param p[] = {
        {.name = "w", .n_dims = 2, .dims = {4, 2}, .local = {4, 2}, .shard = FT_SHARD_DIM0, .decay = true},
        {.name = "copy", .n_dims = 2, .dims = {4, 2}, .local = {4, 2}, .shard = FT_SHARD_DIM0, .replica = true}};
    struct world x = make_world(p, 2, 1, FT_F32);
    for (int64_t i = 0; i < 8; i++) x.g[x.b[0].place[0].start + i] = x.g[x.b[0].place[1].start + i] = 2;
    assert_true(near(ft_optimizer_norm_sq(&x.o[0]), 32, 1e-12));
    ft_arena_destroy(x.arena);
}

static float noise(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)((double)(*seed >> 8) / (1 << 24) - 0.5);
}

/* Sizes of a small model; 1-D ones have no decay. */
static const struct ft_param small[] = {
    {.name = "embed", .n_dims = 2, .dims = {50, 2}, .local = {50, 2}, .shard = FT_SHARD_DIM0, .decay = true},
    {.name = "norm", .n_dims = 1, .dims = {10, 1}, .local = {10, 1}, .shard = FT_SHARD_NONE},
    {.name = "W", .n_dims = 2, .dims = {7, 10}, .local = {7, 10}, .shard = FT_SHARD_DIM0, .decay = true}};

static void run_small(int d, enum ft_dtype type, float *weights, double *norm)
{
    struct world x = make_world(small, 3, d, type);
    uint32_t seed = 7;
    for (size_t i = 0; i < 3; i++)
        for (int64_t e = x.b[0].place[i].start; e < x.b[0].place[i].end; e++) {
            const float w = noise(&seed);
            if (type == FT_F32) x.w[e] = w;
            for (int r = 0; r < d && type == FT_BF16; r++)
                for (size_t k = 0; k < x.b[r].n_pieces; k++) {
                    const struct ft_piece *p = &x.b[r].pieces[k];
                    if (p->param == i && e >= p->at && e < p->at + p->to - p->from) x.o[r].master[p->state + e - p->at] = w;
                }
        }
    for (int k = 0; k < 5; k++) {
        for (size_t i = 0; i < 3; i++)
            for (int64_t e = x.b[0].place[i].start; e < x.b[0].place[i].end; e++) x.g[e] = noise(&seed);
        double sum = 0;
        for (int r = 0; r < d; r++) sum += ft_optimizer_norm_sq(&x.o[r]);
        *norm = sqrt(sum);
        for (int r = 0; r < d; r++) ft_optimizer_step(&x.o[r], 1e-2, ft_clip_coef(1, *norm));
    }
    for (size_t i = 0, at = 0; i < 3; i++)
        for (int64_t e = x.b[0].place[i].start; e < x.b[0].place[i].end; e++)
            weights[at++] = type == FT_F32 ? x.w[e] : ft_bf16_to_f32(((uint16_t *)x.w)[e]);
    ft_arena_destroy(x.arena);
}

static void rt05_any_number_of_ranks_gives_the_same_bits(void **state)
{
    (void)state;
    const enum ft_dtype types[] = {FT_F32, FT_BF16};
    for (size_t t = 0; t < 2; t++) {
        float one[180], many[180];
        double norm1, norm;
        run_small(1, types[t], one, &norm1);
        for (int d = 2; d <= 8; d++) {
            run_small(d, types[t], many, &norm);
            assert_memory_equal(one, many, sizeof one);
            assert_true(near(norm, norm1, 1e-6));
        }
    }
}

static void norms_have_no_decay(void **state)
{
    (void)state;
    struct world x = make_world(small, 3, 1, FT_F32);
    for (size_t i = 0; i < 3; i++)
        for (int64_t e = x.b[0].place[i].start; e < x.b[0].place[i].end; e++) x.w[e] = 1;
    ft_optimizer_step(&x.o[0], 0.5, 1); /* zero gradients: only decay moves */
    assert_true(x.w[x.b[0].place[1].start] == 1);
    assert_true(near(x.w[x.b[0].place[0].start], 0.95, 1e-6));
    assert_true(near(x.w[x.b[0].place[2].start], 0.95, 1e-6));
    ft_arena_destroy(x.arena);
}

/* w = 1, 100 updates of -1e-3 each: with a master the copy ends at round(0.9); rounded every time it would stay at 1. */
static void rt16_masters_keep_small_updates(void **state)
{
    (void)state;
    const struct ft_param p = {.name = "p", .n_dims = 2, .dims = {1, 1}, .local = {1, 1}, .shard = FT_SHARD_DIM0};
    struct world x = make_world(&p, 1, 1, FT_BF16);
    x.o[0].beta1 = x.o[0].beta2 = 0; /* then an update is lr times the sign of the gradient */
    x.o[0].weight_decay = 0;
    x.o[0].eps = 0;
    x.o[0].master[0] = 1;
    for (int k = 0; k < 100; k++) {
        x.g[0] = 5;
        ft_optimizer_step(&x.o[0], 1e-3, 1);
        assert_int_equal(((uint16_t *)x.w)[0], ft_f32_to_bf16(x.o[0].master[0]));
    }
    assert_true(near(x.o[0].master[0], 0.9, 1e-5));
    assert_true(ft_bf16_to_f32(((uint16_t *)x.w)[0]) == 0.8984375f);
    ft_arena_destroy(x.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rt05_three_updates),    cmocka_unit_test(rt10_norm_counts_distinct_elements_once),
        cmocka_unit_test(replicas_do_not_count), cmocka_unit_test(rt05_any_number_of_ranks_gives_the_same_bits),
        cmocka_unit_test(norms_have_no_decay),   cmocka_unit_test(rt16_masters_keep_small_updates),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
