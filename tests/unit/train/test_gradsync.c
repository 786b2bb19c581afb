/* Gradients over the data group with real ranks: sums, poisoned padding (RT-05), odd numbers of ranks, replicas. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/device/device.h"
#include "runtime/train/gradsync.h"
#include "runtime/train/optimizer.h"
#include "tests/unit/coll/ranks.h"

static const struct ft_param small[] = {
    {.name = "embed", .n_dims = 2, .dims = {50, 2}, .local = {50, 2}, .shard = FT_SHARD_DIM0, .decay = true},
    {.name = "norm", .n_dims = 1, .dims = {10, 1}, .local = {10, 1}, .shard = FT_SHARD_NONE},
    {.name = "W", .n_dims = 2, .dims = {7, 10}, .local = {7, 10}, .shard = FT_SHARD_DIM0, .decay = true}};

#define WANT(cond)                                                                                                                 \
    do {                                                                                                                           \
        if (cond) break;                                                                                                           \
        say("rank %d, line %d: %s\n", place->rank, __LINE__, #cond);                                                               \
        return 1;                                                                                                                  \
    } while (0)

struct one {
    struct ft_arena *arena;
    struct ft_comm *comm;
    struct ft_device *device;
    struct ft_buckets b;
    struct ft_gradsync g;
    struct ft_optimizer o;
};

static int open_one(const struct ft_place *place, int64_t limit, struct one *x)
{
    struct ft_err err;
    const struct ft_comm_options o = {.engine = "auto", .timeout_ns = 20000000000, .join_ns = 20000000000, .fingerprint = "test=1"};
    if (ft_comm_open(place, ft_mesh_make(1, 1, place->world, 1), &o, &x->comm, &err)) {
        say_err(err.code, &err);
        return 1;
    }
    WANT(!ft_device_open("cpu", 0, 1, &x->device, &err));
    x->arena = ft_arena_create();
    struct ft_bucket_param sizes[3];
    for (size_t i = 0; i < 3; i++) sizes[i] = (struct ft_bucket_param){ft_param_local(&small[i]), false};
    x->b = ft_buckets_make(sizes, 3, place->world, place->rank, limit, x->arena);
    const size_t n = (size_t)x->b.total, s = (size_t)x->b.state_total;
    x->g = (struct ft_gradsync){.buckets = &x->b,
                                .params = small,
                                .comm = x->comm,
                                .weights = ft_arena_array(x->arena, n, sizeof(float)),
                                .weight_type = FT_F32,
                                .grads = ft_arena_array(x->arena, n, sizeof(float))};
    x->o = (struct ft_optimizer){.kernels = x->device->kernels,
                                 .kctx = x->device->kctx,
                                 .buckets = &x->b,
                                 .params = small,
                                 .beta1 = 0.9,
                                 .beta2 = 0.95,
                                 .eps = 1e-6,
                                 .weight_decay = 0.1,
                                 .weights = x->g.weights,
                                 .weight_type = FT_F32,
                                 .grads = x->g.grads,
                                 .m = ft_arena_array(x->arena, s + 1, sizeof(float)),
                                 .v = ft_arena_array(x->arena, s + 1, sizeof(float))};
    return 0;
}

static void close_one(struct one *x)
{
    ft_comm_close(x->comm);
    ft_device_close(x->device);
    ft_arena_destroy(x->arena);
}

/* Whole numbers, so that sums are exact in any order. */
static float gradient(int k, int rank, size_t param, int64_t e)
{
    return (float)((k * 7 + rank * 3 + (int)param * 5 + e) % 17 - 8);
}

static int updates(const struct ft_place *place, void *arg)
{
    const int64_t limit = *(const int64_t *)arg;
    struct one x = {0};
    struct ft_err err;
    if (open_one(place, limit, &x)) return 1;
    float *w = x.g.weights;
    for (size_t i = 0; i < 3; i++)
        for (int64_t e = x.b.place[i].start; e < x.b.place[i].end; e++) w[e] = (float)(e % 11) / 8;
    for (int k = 0; k < 5; k++) {
        ft_gradsync_zero(&x.g);
        for (int64_t e = 0; e < x.b.total; e++) x.g.grads[e] = 1e30f; /* padding is poisoned */
        for (size_t i = 0; i < 3; i++)
            for (int64_t e = x.b.place[i].start; e < x.b.place[i].end; e++)
                x.g.grads[e] = gradient(k, place->rank, i, e - x.b.place[i].start);
        WANT(!ft_gradsync_finish(&x.g, &err));
        double want = 0, sum = ft_optimizer_norm_sq(&x.o);
        for (size_t i = 0; i < 3; i++)
            for (int64_t e = 0; e < ft_param_local(&small[i]); e++) {
                double g = 0;
                for (int r = 0; r < place->world; r++) g += gradient(k, r, i, e);
                want += g * g;
            }
        WANT(!ft_comm_all_reduce(x.comm, FT_GROUP_WORLD, &sum, 1, FT_F64, FT_SUM, &err));
        WANT(fabs(sum - want) <= 1e-6 * want);
        ft_optimizer_step(&x.o, 1e-2, ft_clip_coef(1, sqrt(sum)));
        WANT(!ft_gradsync_gather(&x.g, &err));
        size_t param;
        WANT(!ft_gradsync_check_replicas(&x.g, &param, &err));
    }
    for (size_t i = 0; i < 3; i++)
        for (int64_t e = x.b.place[i].start; e < x.b.place[i].end; e++) WANT(isfinite(w[e]) && fabsf(w[e]) < 3);
    close_one(&x);
    return 0;
}

static void rt05_sums_and_poisoned_padding(void **state)
{
    (void)state;
    const int64_t limits[] = {FT_BUCKET_LIMIT, 80};
    for (size_t l = 0; l < 2; l++)
        for (int n = 1; n <= 8; n = n < 4 ? n + 1 : n * 2) {
            int64_t limit = limits[l];
            struct ranks r = {.n = n, .run = updates, .arg = &limit};
            ranks_run(&r);
            ranks_all_ok(&r);
        }
}

static int zero_gradient(const struct ft_place *place, void *arg)
{
    (void)arg;
    struct one x = {0};
    struct ft_err err;
    if (open_one(place, FT_BUCKET_LIMIT, &x)) return 1;
    for (int k = 0; k < 2; k++) {
        ft_gradsync_zero(&x.g);
        for (int64_t e = 0; !k && e < x.b.total; e++) x.g.grads[e] = 3;
        WANT(!ft_gradsync_finish(&x.g, &err));
        for (size_t i = 0; k && i < x.b.n_pieces; i++)
            for (int64_t e = 0; e < x.b.pieces[i].to - x.b.pieces[i].from; e++) WANT(x.g.grads[x.b.pieces[i].at + e] == 0);
    }
    close_one(&x);
    return 0;
}

static void r3_second_update_has_no_stale_data(void **state)
{
    (void)state;
    struct ranks r = {.n = 3, .run = zero_gradient};
    ranks_run(&r);
    ranks_all_ok(&r);
}

static int drifted(const struct ft_place *place, void *arg)
{
    (void)arg;
    struct one x = {0};
    struct ft_err err;
    size_t param = 99;
    if (open_one(place, FT_BUCKET_LIMIT, &x)) return 1;
    if (place->rank == 1) ((float *)x.g.weights)[x.b.place[1].start + 3] = 1e-30f;
    WANT(ft_gradsync_check_replicas(&x.g, &param, &err) == FT_BUG_FOUND);
    WANT(param == 1);
    close_one(&x);
    return 0;
}

static void a_drifted_replica_is_found(void **state)
{
    (void)state;
    struct ranks r = {.n = 2, .run = drifted};
    ranks_run(&r);
    ranks_all_ok(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rt05_sums_and_poisoned_padding),
        cmocka_unit_test(r3_second_update_has_no_stale_data),
        cmocka_unit_test(a_drifted_replica_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
