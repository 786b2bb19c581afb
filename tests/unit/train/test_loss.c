/* The loss of an update is the sum over all its targets divided by their number (RT-08), with a model that says given sums: a mean
 * of means over micro-batches or ranks would give other numbers. The weights of golden/hf/llama are only there to be moved: by a known
 * gradient, which shows what a resumed run makes of new betas (RT-05). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/fd.h"
#include "runtime/ckpt/safetensors.h"
#include "runtime/nn/model.h"
#include "runtime/train/cli.h"
#include "tests/unit/train/hf_case.h"
#include "tests/unit/train/job_run.h"

/* ---- the model: row k (by its first id) has the cross-entropy ce[k]; each target adds scale to one element of the gradient ---- */

struct ft_model {
    float *grads;
    int64_t at;
};
static const double ce[] = {6, 5, 8, 6};

enum ft_code ft_model_create(const struct ft_model_options *o, struct ft_model **out, struct ft_err *err)
{
    (void)o;
    (void)err;
    *out = ft_xcalloc(1, sizeof **out);
    return FT_OK;
}
void ft_model_destroy(struct ft_model *m) { free(m); }
const struct ft_param *ft_model_params(const struct ft_model *m, size_t *n)
{
    (void)m;
    *n = 0;
    return NULL;
}
void ft_model_bind(struct ft_model *m, void *weights, float *grads, const int64_t *offsets)
{
    (void)weights;
    m->grads = grads;
    m->at = offsets[0];
}
int ft_model_live(const struct ft_model *m)
{
    (void)m;
    return 1;
}
int64_t ft_model_stage_bytes(const struct ft_model *m, const struct ft_batch *b)
{
    (void)m;
    (void)b;
    return 0;
}
void *ft_model_stage_input(const struct ft_model *m, int slot)
{
    (void)m;
    (void)slot;
    return NULL;
}
const void *ft_model_stage_output(const struct ft_model *m)
{
    (void)m;
    return NULL;
}
void *ft_model_stage_gradient(const struct ft_model *m)
{
    (void)m;
    return NULL;
}
void *ft_model_stage_gradient_next(const struct ft_model *m)
{
    (void)m;
    return NULL;
}
void ft_model_stage_turn(struct ft_model *m) { (void)m; }
enum ft_code ft_model_stage_forward(struct ft_model *m, const struct ft_batch *b, int chunk, int slot, double scale, double *sum,
                                    struct ft_err *err)
{
    (void)chunk;
    (void)slot;
    (void)err;
    *sum = 0;
    for (int64_t s = 0; s < b->n_segments; s++) {
        const int32_t from = b->cu_seqlens[s];
        bool any = false;
        for (int32_t i = from; i < b->cu_seqlens[s + 1]; i++)
            if (b->targets[i] != -100) {
                m->grads[m->at] += (float)scale;
                any = true;
            }
        if (any) *sum += ce[b->ids[from]];
    }
    return FT_OK;
}
enum ft_code ft_model_stage_backward(struct ft_model *m, const struct ft_batch *b, int chunk, int slot, struct ft_err *err)
{
    (void)m;
    (void)b;
    (void)chunk;
    (void)slot;
    (void)err;
    return FT_OK;
}
enum ft_code ft_model_stage_evaluate(struct ft_model *m, const struct ft_batch *b, int chunk, double *sum, float *token_loss,
                                     struct ft_err *err)
{
    (void)m;
    (void)b;
    (void)chunk;
    (void)token_loss;
    (void)err;
    *sum = 0;
    return FT_OK;
}

/* ---- rows 0..3 with 6, 1, 2 and 3 targets: rank 0 takes rows 0 and 2, rank 1 rows 1 and 3 ---- */

static void write_rows(const struct job *j)
{
    static const int targets[] = {6, 1, 2, 3};
    struct ft_buf b = {0};
    struct ft_err err;
    char path[256];
    for (int r = 0; r < 4; r++) {
        ft_buf_addf(&b, "{\"input_ids\": [%d", r);
        for (int i = 0; i < targets[r]; i++) ft_buf_adds(&b, ", 7");
        ft_buf_adds(&b, "], \"labels\": [-100");
        for (int i = 0; i < targets[r]; i++) ft_buf_adds(&b, ", 7");
        ft_buf_adds(&b, "]}\n");
    }
    (void)snprintf(path, sizeof path, "%s/train.jsonl", j->dir);
    assert_int_equal(ft_write_file(path, b.data, b.n, 0600, &err), FT_OK);
    ft_buf_fini(&b);
}

static void rt08_every_token_weighs_the_same(void **state)
{
    (void)state;
    static const int splits[][2] = {{1, 2}, {4, 1}, {1, 1}, {2, 2}, {1, 4}};
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        struct job j;
        struct result x;
        char more[64];
        (void)snprintf(more, sizeof more, "steps = 1\nmicro_batch = %d", splits[i][0]);
        open_job(&j, splits[i][1], 4, more);
        write_rows(&j);
        j.sets[j.n_sets++] = "data.shuffle=no";
        j.sets[j.n_sets++] = "train.global_batch=4";
        run_good(&j, &x);
        assert_int_equal(x.n, 1);
        assert_int_equal(x.trained[0], 12);
        assert_true(fabs(x.loss[0] - 25.0 / 12) <= 1e-12);
        assert_true(fabs(x.norm[0] - 1) <= 1e-6); /* each of the 12 targets adds a twelfth */
        free_result(&x);
        remove_tree(j.dir);
    }
}

/* ---- betas: the gradient of the first element of the embedding is 1 in every update ---- */

static float first_weight(const char *folder)
{
    struct ft_st_folder *f = NULL;
    struct ft_err err;
    float x = NAN;
    if (ft_st_folder_open(folder, "model", &f, &err)) fail_msg("%s", err.text);
    const struct ft_st_tensor *t = ft_st_folder_find(f, "model.embed_tokens.weight");
    assert_non_null(t);
    assert_int_equal(ft_st_read_f32(t, 0, 1, &x, &err), FT_OK);
    ft_st_folder_close(f);
    return x;
}

/* AdamW in fp64 as the maths has it, update k with betas[k]; t goes on counting. */
static double three_updates(double p, const double betas[3][2])
{
    static const double lr[3] = {0.5e-3, 1e-3, 1e-3};
    double m = 0, v = 0;
    for (int k = 0; k < 3; k++) {
        const double b1 = betas[k][0], b2 = betas[k][1];
        p *= 1 - lr[k] * 0.1;
        m = b1 * m + (1 - b1);
        v = b2 * v + (1 - b2);
        p -= lr[k] * m / (1 - pow(b1, k + 1)) / (sqrt(v) / sqrt(1 - pow(b2, k + 1)) + 1e-8);
    }
    return p;
}

static double exported(const struct job *j)
{
    char out[256];
    (void)snprintf(out, sizeof out, "%s/out", j->dir);
    return first_weight(out);
}

/* Saved behind update 2, resumed with other betas: refused; accepted, the third update uses them, with the moments and the count of
 * updates that were stored. */
static void rt05_accepted_betas_hold_from_the_next_update(void **state)
{
    (void)state;
    static const char more[] =
        "steps = 3\nmicro_batch = 1\nschedule = constant\nclip = 0\nweight_decay = 0.1\n[checkpoint]\nevery = "
        "2\nkeep = 0";
    static const double same[3][2] = {{0.9, 0.999}, {0.9, 0.999}, {0.9, 0.999}},
                        then[3][2] = {{0.9, 0.999}, {0.9, 0.999}, {0.8, 0.99}};
    const double start = first_weight(FT_GOLDEN "/hf/llama");
    struct job a, b;
    struct result x;
    char from[256], train[256];
    open_job(&a, 2, 4, more);
    write_rows(&a);
    a.sets[a.n_sets++] = "data.shuffle=no";
    a.sets[a.n_sets++] = "train.global_batch=4";
    run_good(&a, &x);
    free_result(&x);
    assert_true(fabs(exported(&a) - three_updates(start, same)) <= 1e-7);
    open_job(&b, 1, 4, more);
    (void)snprintf(from, sizeof from, "checkpoint.resume=%s/checkpoints/step_00000002", a.dir);
    (void)snprintf(train, sizeof train, "data.train=%s/train.jsonl", a.dir);
    const char *const sets[] = {"data.shuffle=no", "train.global_batch=4", from, train, "train.beta1=0.8", "train.beta2=0.99"};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) b.sets[b.n_sets++] = sets[i];
    run_job(&b, &x);
    assert_int_equal(x.status[0], 2 << 8);
    b.sets[b.n_sets++] = "checkpoint.accept=train.beta1, train.beta2";
    run_good(&b, &x);
    assert_int_equal(x.n, 1);
    assert_int_equal(x.step[0], 3);
    assert_true(fabs(exported(&b) - three_updates(start, then)) <= 1e-7);
    assert_true(fabs(exported(&b) - exported(&a)) > 1e-4);
    free_result(&x);
    remove_tree(a.dir);
    remove_tree(b.dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rt08_every_token_weighs_the_same),
        cmocka_unit_test(rt05_accepted_betas_hold_from_the_next_update),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
