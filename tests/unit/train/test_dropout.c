/* Dropout in a whole run (RT-13): masks are a function of the row, so any split of the batch, recomputation and a resumed run draw the
 * same ones. The model is golden/hf/gpt2 with rates of 0.1 everywhere. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "tests/unit/train/hf_case.h"
#include "tests/unit/train/job_run.h"

/* A copy of the folder in the job's, each "…pdrop": 0.0 made 0.1. */
static void put_model(const struct job *j, char *set, size_t n)
{
    struct ft_buf text = {0}, weights = {0}, path = {0};
    struct ft_err err;
    assert_int_equal(ft_read_file(FT_GOLDEN "/hf/gpt2/config.json", 1 << 20, &text, &err), FT_OK);
    assert_int_equal(ft_read_file(FT_GOLDEN "/hf/gpt2/model.safetensors", 1 << 24, &weights, &err), FT_OK);
    int rates = 0;
    for (char *at = text.data; (at = strstr(at, "pdrop\": 0.0")); rates++) at[strlen("pdrop\": 0.")] = '1';
    assert_int_equal(rates, 3);
    ft_buf_addf(&path, "%s/model", j->dir);
    assert_int_equal(ft_mkdirs(path.data, 0700, &err), FT_OK);
    ft_buf_adds(&path, "/config.json");
    assert_int_equal(ft_write_file(path.data, text.data, text.n, 0600, &err), FT_OK);
    ft_buf_clear(&path);
    ft_buf_addf(&path, "%s/model/model.safetensors", j->dir);
    assert_int_equal(ft_write_file(path.data, weights.data, weights.n, 0600, &err), FT_OK);
    (void)snprintf(set, n, "model.path=%s/model", j->dir);
    ft_buf_fini(&text);
    ft_buf_fini(&weights);
    ft_buf_fini(&path);
}

static void run_with(int data, int micro, const char *const *sets, size_t n_sets, struct result *x)
{
    struct job j;
    char more[96], model[256];
    /* GPT-2's k biases have almost no gradient: with eps = 1e-8 Adam divides their rounding noise by its own size, without dropout
     * too (weights differ by 1.5e-5 of their norm between splits) */
    (void)snprintf(more, sizeof more, "epochs = 2\neps = 1e-6\nmicro_batch = %d", micro);
    open_job(&j, data, 19, more);
    put_model(&j, model, sizeof model);
    j.sets[j.n_sets++] = model;
    for (size_t i = 0; i < n_sets; i++) j.sets[j.n_sets++] = sets[i];
    run_good(&j, x);
    remove_tree(j.dir);
}

static void rt13_the_same_masks_at_every_split(void **state)
{
    (void)state;
    static const int splits[][2] = {{1, 8}, {1, 1}, {2, 2}, {4, 1}, {8, 1}}; /* data, micro */
    struct result first;
    int bad = 0;
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        struct result x;
        char what[64];
        (void)snprintf(what, sizeof what, "data %d micro %d", splits[i][0], splits[i][1]);
        run_with(splits[i][0], splits[i][1], NULL, 0, &x);
        if (i == 0) {
            first = x;
        } else {
            bad += !same_within_tol(&first, &x, what);
            free_result(&x);
        }
    }
    /* another seed draws others: the rates are in force */
    static const char *const seed[] = {"train.seed=2", "data.shuffle=no"}, *const same_order[] = {"train.seed=3",
                                                                                                  "data.shuffle=no"};
    struct result a, b;
    run_with(1, 8, seed, 2, &a);
    run_with(1, 8, same_order, 2, &b);
    assert_false(near_to(a.loss[0], b.loss[0]));
    free_result(&a);
    free_result(&b);
    free_result(&first);
    assert_int_equal(bad, 0);
}

static void rt13_recomputation_draws_the_same_masks(void **state)
{
    (void)state;
    static const char *const modes[] = {"model.recompute=off", "model.recompute=selective", "model.recompute=full"};
    struct result x[3];
    for (int i = 0; i < 3; i++) run_with(2, 2, &modes[i], 1, &x[i]);
    assert_true(same_bits(&x[0], &x[1]));
    assert_true(same_bits(&x[0], &x[2]));
    for (int i = 0; i < 3; i++) free_result(&x[i]);
}

static void rt13_a_resumed_run_goes_on_with_the_same_masks(void **state)
{
    (void)state;
    struct job a, b;
    struct result whole, tail;
    char model[256], from[256], train[256];
    static const char more[] = "epochs = 2\nmicro_batch = 2\n[checkpoint]\nevery = 4\nkeep = 0";
    open_job(&a, 2, 19, more);
    put_model(&a, model, sizeof model);
    a.sets[a.n_sets++] = model;
    run_good(&a, &whole);
    open_job(&b, 2, 19, more);
    (void)snprintf(from, sizeof from, "checkpoint.resume=%s/checkpoints/step_00000004", a.dir);
    (void)snprintf(train, sizeof train, "data.train=%s/train.jsonl", a.dir);
    b.sets[b.n_sets++] = model;
    b.sets[b.n_sets++] = from;
    b.sets[b.n_sets++] = train;
    run_good(&b, &tail);
    assert_int_equal(whole.n, 6);
    assert_int_equal(tail.n, 2);
    for (int i = 0; i < 2; i++) assert_true(tail.loss[i] == whole.loss[4 + i] && tail.norm[i] == whole.norm[4 + i]);
    assert_int_equal(tail.n_weights, whole.n_weights);
    assert_memory_equal(tail.weights, whole.weights, (size_t)whole.n_weights * sizeof *whole.weights);
    free_result(&whole);
    free_result(&tail);
    remove_tree(a.dir);
    remove_tree(b.dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rt13_the_same_masks_at_every_split),
        cmocka_unit_test(rt13_recomputation_draws_the_same_masks),
        cmocka_unit_test(rt13_a_resumed_run_goes_on_with_the_same_masks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
