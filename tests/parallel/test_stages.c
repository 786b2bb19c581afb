/* Stages of a pipeline with chunks of layers against the whole model (RT-11), and a stage that dies or hangs while micro-batches are under
 * way: who says what. The moment is a place in the schedule, not a time. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "runtime/arch/config.h"
#include "runtime/coll/inside.h"
#include "runtime/device/device.h"
#include "runtime/train/buckets.h"
#include "runtime/train/pipeline.h"
#include "tests/unit/coll/ranks.h"

enum { TOKENS = 8, MICRO_BATCHES = 6, MOST_MICRO = 8 };

static const char llama[] = "{\"model_type\": \"llama\", \"vocab_size\": 33, \"hidden_size\": 16, \"intermediate_size\": 24,"
                            "\"num_hidden_layers\": 24, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
                            "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false}";

enum fault { FAULT_NONE, FAULT_DIES, FAULT_HANGS };

struct scene {
    int stages, chunks;
    int64_t n_micro;
    int recompute, victim;
    enum fault fault;
    int64_t micro;
    int pass;         /* fault: when `micro` is asked for so many times. One chunk: 1 before its forward, 2 before its backward */
    double timeout_s; /* of a message; stages come up within a minute */
    int over[2];      /* pipe: one byte from each rank that has ended by itself */
};

struct at_work {
    const struct scene *s;
    int rank, asked[MOST_MICRO];
    int32_t cu[2];
};

/* Another length for each; the third has no target. */
static struct ft_batch micro_batch(struct at_work *w, int64_t micro)
{
    static const int32_t ids[TOKENS] = {1, 5, 9, 2, 7, 32, 0, 4}, positions[TOKENS] = {0, 1, 2, 3, 4, 5, 6, 7},
                         targets[TOKENS] = {5, 9, 2, 7, 32, 0, 4, -100},
                         none[TOKENS] = {-100, -100, -100, -100, -100, -100, -100, -100};
    const int64_t T = TOKENS - micro % 5;
    w->cu[1] = (int32_t)T;
    return (struct ft_batch){T, ids, positions, micro == 2 ? none : targets, 1, w->cu, NULL, NULL};
}

static struct ft_batch get(void *ctx, int64_t micro)
{
    struct at_work *w = ctx;
    const struct scene *s = w->s;
    const int pass = ++w->asked[micro];
    if (w->rank != s->victim || micro != s->micro || pass != s->pass) return micro_batch(w, micro);
    if (s->fault == FAULT_DIES) raise(SIGKILL);
    if (s->fault == FAULT_HANGS) { /* until the others are over */
        char c;
        for (int i = 0; i < s->stages - 1; i++)
            if (read(s->over[0], &c, 1) != 1) _exit(98);
        _exit(97);
    }
    return micro_batch(w, micro);
}

/* A model over stages, or the whole one (comm NULL), its weights a function of their names; its gradients after one training pass. */
struct part {
    struct ft_arena *a;
    struct ft_device *device;
    struct ft_model *model;
    const struct ft_param *rows;
    size_t n;
    int64_t *offsets;
    float *weights, *grads;
    double ce;
};

static float noise(const char *name, int64_t i)
{
    uint32_t x = 2166136261u;
    for (; *name; name++) x = (x ^ (unsigned char)*name) * 16777619u;
    x = (x ^ (uint32_t)i) * 2654435761u;
    return ((float)(x >> 8) / (float)(1 << 24) - 0.5f) * 0.6f;
}

static enum ft_code train(const struct ft_place *place, const struct scene *s, struct ft_comm *comm, struct part *x,
                          struct ft_err *err)
{
    struct ft_model_config *config = ft_arena_array(x->a, 1, sizeof *config);
    enum ft_code code = ft_model_config_parse("test", llama, strlen(llama), x->a, config, err);
    if (!code) code = ft_device_open("cpu", 0, 1, &x->device, err);
    const struct ft_pipeline p = {NULL, comm, comm ? place->rank : 0, comm ? s->stages : 1, comm ? s->chunks : 1};
    const struct ft_model_options o = {.config = config,
                                       .device = x->device,
                                       .comm = comm,
                                       .tensor = 1,
                                       .pipeline = p.stages,
                                       .stage = p.stage,
                                       .chunks = p.chunks,
                                       .micro_batches = s->n_micro,
                                       .recompute = s->recompute,
                                       .compute = FT_F32,
                                       .max_tokens = TOKENS,
                                       .seq_len = TOKENS};
    if (!code) code = ft_model_create(&o, &x->model, err);
    if (code) return code;
    x->rows = ft_model_params(x->model, &x->n);
    x->offsets = ft_arena_array(x->a, x->n, sizeof *x->offsets);
    int64_t total = 0;
    for (size_t i = 0; i < x->n; i++) {
        x->offsets[i] = total;
        total += ft_param_local(&x->rows[i]);
    }
    x->weights = ft_xcalloc((size_t)(2 * total), sizeof *x->weights);
    x->grads = x->weights + total;
    for (size_t i = 0; i < x->n; i++)
        for (int64_t e = 0; e < ft_param_local(&x->rows[i]); e++)
            x->weights[x->offsets[i] + e] = noise(x->rows[i].name, e) + (x->rows[i].n_dims == 1 ? 1.0f : 0.0f);
    ft_model_bind(x->model, x->weights, x->grads, x->offsets);
    if (comm) code = ft_comm_barrier(comm, FT_GROUP_WORLD, err);
    if (code) return code;
    if (comm) comm->timeout_ns = (int64_t)(s->timeout_s * 1e9);
    struct at_work w = {.s = s, .rank = comm ? place->rank : -2};
    struct ft_pipeline with = p;
    with.model = x->model;
    const struct ft_micro_batches b = {get, &w, 0, s->n_micro};
    return ft_pipeline_train(&with, &b, 1, &x->ce, err);
}

static void close_part(struct part *x)
{
    free(x->weights);
    ft_model_destroy(x->model);
    ft_device_close(x->device);
    ft_arena_destroy(x->a);
}

/* Each gradient of a stage, and the loss on the last one, is that of the whole model. */
static enum ft_code compare(const struct part *mine, const struct part *whole, bool last, struct ft_err *err)
{
    if (fabs(mine->ce - (last ? whole->ce : 0)) > 1e-5 * whole->ce)
        return ft_fail(err, FT_DATA, "cross-entropy %.9g, not %.9g", mine->ce, whole->ce);
    for (size_t i = 0; i < mine->n; i++) {
        size_t k = 0;
        while (strcmp(whole->rows[k].name, mine->rows[i].name) != 0) k++;
        double diff = 0, size = 0;
        for (int64_t e = 0; e < ft_param_local(&mine->rows[i]); e++) {
            const double a = (double)mine->grads[mine->offsets[i] + e], b = (double)whole->grads[whole->offsets[k] + e];
            diff += (a - b) * (a - b);
            size += b * b;
        }
        if (sqrt(diff) > 1e-5 * sqrt(size) || size == 0)
            return ft_fail(err, FT_DATA, "the gradient of %s is off by %.3g of %.3g", mine->rows[i].name, sqrt(diff), sqrt(size));
    }
    return FT_OK;
}

/* Stage i of p with v chunks holds every (p v)-th part of the layers, in order, embedding and head at the ends. */
static enum ft_code holds_its_chunks(const struct part *x, const struct scene *s, int stage, struct ft_err *err)
{
    int last = -1, n_layers = 0;
    for (size_t i = 0; i < x->n; i++) {
        const int l = x->rows[i].layer;
        if (l < 0 || l == last) continue;
        if (l < last || l / (24 / (s->stages * s->chunks)) % s->stages != stage)
            return ft_fail(err, FT_DATA, "stage %d holds layer %d behind %d", stage, l, last);
        last = l;
        n_layers++;
    }
    return n_layers == 24 / s->stages ? FT_OK : ft_fail(err, FT_DATA, "stage %d holds %d layers", stage, n_layers);
}

static int one_stage(const struct ft_place *place, void *arg)
{
    const struct scene *s = arg;
    struct ft_comm *comm = NULL;
    struct ft_err err = {0};
    const struct ft_comm_options o = {.engine = "auto", .timeout_ns = 60000000000, .join_ns = 60000000000, .fingerprint = "test=1"};
    enum ft_code code = ft_comm_open(place, ft_mesh_make(1, 1, 1, s->stages), &o, &comm, &err);
    if (!code) {
        ft_comm_note(comm, "update 7");
        struct part mine = {.a = ft_arena_create()}, whole = {.a = ft_arena_create()};
        code = train(place, s, comm, &mine, &err);
        if (!code && s->victim < 0) code = train(place, s, NULL, &whole, &err);
        if (!code && s->victim < 0) code = holds_its_chunks(&mine, s, place->rank, &err);
        if (!code && s->victim < 0) code = compare(&mine, &whole, place->rank == s->stages - 1, &err);
        close_part(&mine);
        close_part(&whole);
    }
    if (code) say_err(code, &err);
    if (code && comm) ft_comm_abort(comm, err.text);
    ft_comm_close(comm);
    if (write(s->over[1], "", 1) != 1) return 99;
    return code ? 10 + (int)code : 0;
}

static void play(struct scene *s, struct ranks *r)
{
    *r = (struct ranks){.n = s->stages, .run = one_stage, .arg = s, .limit_s = 120};
    assert_int_equal(pipe(s->over), 0);
    ranks_run(r);
    close(s->over[0]);
    close(s->over[1]);
    for (int i = 0; i < s->stages; i++)
        if (r->late[i]) fail_msg("stage %d did not end: %s", i, r->text[i]);
    nothing_left();
}

static void expect_words(const struct ranks *r, int rank, enum ft_code code, const char *const *words)
{
    if (!WIFEXITED(r->status[rank]) || WEXITSTATUS(r->status[rank]) != 10 + (int)code)
        fail_msg("stage %d ended with %#x, not %s; said: %s", rank, (unsigned)r->status[rank], ft_code_name(code), r->text[rank]);
    for (; *words; words++)
        if (!strstr(r->text[rank], *words)) fail_msg("stage %d did not say '%s' but: %s", rank, *words, r->text[rank]);
}

/* m = 1 is how a gradient that is not finite is searched for. */
static void test_RT11_chunks_equal_the_whole_model(void **state)
{
    (void)state;
    static const struct {
        int stages, chunks, n_micro;
    } cases[] = {{4, 1, 6}, {2, 2, 2}, {2, 2, 4}, {2, 3, 8}, {4, 2, 4}, {4, 2, 8},
                 {3, 2, 3}, {3, 4, 6}, {4, 3, 1}, {2, 2, 1}, {2, 12, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct scene s = {.stages = cases[i].stages,
                          .chunks = cases[i].chunks,
                          .n_micro = cases[i].n_micro,
                          .recompute = (int)i % 3,
                          .victim = -1,
                          .timeout_s = 60};
        struct ranks r;
        play(&s, &r);
        for (int k = 0; k < s.stages; k++)
            if (r.status[k]) print_error("p = %d, v = %d, m = %lld:\n", s.stages, s.chunks, (long long)s.n_micro);
        ranks_all_ok(&r);
    }
}

/* In the warm-up, between its pairs and in the drain; the last stage has pairs only. */
static void r1_a_stage_killed_between_passes_is_named_by_all_others(void **state)
{
    (void)state;
    static const struct {
        int64_t micro;
        int pass;
    } at[] = {{0, 1}, {3, 1}, {2, 2}, {MICRO_BATCHES - 1, 2}};
    for (int victim = 0; victim < 4; victim++)
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
            struct scene s = {4, 1, MICRO_BATCHES, 0, victim, FAULT_DIES, at[i].micro, at[i].pass, 60, {0}};
            struct ranks r;
            char name[32];
            (void)snprintf(name, sizeof name, "rank %d on ", victim);
            const char *const words[] = {name, " ended", NULL};
            play(&s, &r);
            assert_true(WIFSIGNALED(r.status[victim]) && WTERMSIG(r.status[victim]) == SIGKILL);
            for (int k = 0; k < 4; k++) {
                /* what was behind this stage's last message may be all it had to do */
                if (k == victim || r.status[k] == 0) continue;
                expect_words(&r, k, FT_COLL, words);
            }
            /* the stage before it waits for a gradient that never comes; for stage 0 none does, and stage 1 lacks its activations */
            if (victim > 0) expect_words(&r, victim - 1, FT_COLL, words);
            else if (at[i].pass == 1) expect_words(&r, 1, FT_COLL, words);
        }
}

static void r1_a_stage_killed_among_chunks_is_named_by_all_others(void **state)
{
    (void)state;
    for (int victim = 0; victim < 3; victim++)
        for (int pass = 1; pass <= 8; pass += 2) {
            struct scene s = {3, 2, MICRO_BATCHES, 0, victim, FAULT_DIES, 3, pass, 60, {0}};
            struct ranks r;
            char name[32];
            (void)snprintf(name, sizeof name, "rank %d on ", victim);
            const char *const words[] = {name, " ended", NULL};
            play(&s, &r);
            assert_true(WIFSIGNALED(r.status[victim]) && WTERMSIG(r.status[victim]) == SIGKILL);
            for (int k = 0; k < 3; k++)
                if (k != victim) expect_words(&r, k, FT_COLL, words);
        }
}

static void a_hanging_stage_is_missed_in_its_group(void **state)
{
    (void)state;
    for (int victim = 0; victim < 2; victim++) {
        /* stage 0 is waited for before a forward, stage 1 before a gradient */
        struct scene s = {2, 1, MICRO_BATCHES, 0, victim, FAULT_HANGS, 3, victim ? 2 : 1, 3, {0}};
        struct ranks r;
        char missing[48];
        (void)snprintf(missing, sizeof missing, "rank %d is missing", victim);
        const char *const words[] = {"send/recv over pp (2 ranks) at update 7", "for 3 s", missing, NULL};
        play(&s, &r);
        assert_true(WIFEXITED(r.status[victim]) && WEXITSTATUS(r.status[victim]) == 97);
        expect_words(&r, 1 - victim, FT_TIMEOUT, words);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_RT11_chunks_equal_the_whole_model),
        cmocka_unit_test(r1_a_stage_killed_between_passes_is_named_by_all_others),
        cmocka_unit_test(r1_a_stage_killed_among_chunks_is_named_by_all_others),
        cmocka_unit_test(a_hanging_stage_is_missed_in_its_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
