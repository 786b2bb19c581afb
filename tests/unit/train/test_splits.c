/* One run at many splits of its batch: losses, norms and weights must not depend on data ranks, micro-batches, accumulation
 * (RT-08, RT-09, RT-10), nor on evaluation; and what one layout does twice is the same to the bit (RT-18). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits/dtype.h"
#include "base/fd.h"
#include "tests/unit/train/hf_case.h"
#include "tests/unit/train/job_run.h"

/* R7: the loss that is written is the one of all micro-batches, whatever the accumulation. (b, d) of a global batch of 8; 19 rows: the last update of an epoch has 3, so with 8 ranks five have none. */
static void rt08_rt09_r7_loss_norm_and_weights_at_every_split(void **state)
{
    (void)state;
    static const int splits[][2] = {{8, 1}, {1, 1}, {4, 1}, {2, 2}, {1, 2}, {4, 2}, {1, 4}, {2, 4}, {1, 8}};
    struct result first;
    int bad = 0;
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        struct job j;
        struct result x;
        char more[64], what[64];
        (void)snprintf(more, sizeof more, "epochs = 2\nmicro_batch = %d", splits[i][0]);
        (void)snprintf(what, sizeof what, "micro %d data %d", splits[i][0], splits[i][1]);
        open_job(&j, splits[i][1], 19, more);
        run_good(&j, &x);
        assert_int_equal(x.n, 6);
        assert_int_equal(x.rows[2], 3);
        if (i == 0) first = x;
        else {
            bad += !same_within_tol(&first, &x, what);
            free_result(&x);
        }
        remove_tree(j.dir);
    }
    free_result(&first);
    assert_int_equal(bad, 0);
}

/* Buckets whose ends are no multiple of the usual 128 elements per rank: three and six data ranks. */
static void rt08_three_and_six_data_ranks(void **state)
{
    (void)state;
    static const int splits[][2] = {{12, 1}, {4, 3}, {2, 3}, {2, 6}, {1, 6}};
    struct result first;
    int bad = 0;
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        struct job j;
        struct result x;
        char more[64];
        (void)snprintf(more, sizeof more, "epochs = 2\nmicro_batch = %d", splits[i][0]);
        open_job(&j, splits[i][1], 19, more);
        j.sets[j.n_sets++] = "train.global_batch=12";
        run_good(&j, &x);
        assert_int_equal(x.n, 4);
        if (i == 0) {
            first = x;
        } else {
            bad += !same_within_tol(&first, &x, more);
            free_result(&x);
        }
        remove_tree(j.dir);
    }
    free_result(&first);
    assert_int_equal(bad, 0);
}

/* Interleaved chunks at the end of an epoch: 19 rows in updates of 8 leave 3 micro-batches for 2 stages. */
static void rt11_chunks_over_the_end_of_an_epoch(void **state)
{
    (void)state;
    static const char *const chunks[] = {"parallel.virtual_pipeline=1", "parallel.virtual_pipeline=2"};
    struct result x[2];
    for (int i = 0; i < 2; i++) {
        struct job j;
        open_job(&j, 2, 19, "epochs = 2\nmicro_batch = 1");
        j.sets[j.n_sets++] = "parallel.pipeline=2";
        j.sets[j.n_sets++] = chunks[i];
        run_good(&j, &x[i]);
        assert_int_equal(x[i].n, 6);
        assert_int_equal(x[i].rows[2], 3);
        remove_tree(j.dir);
    }
    assert_true(same_within_tol(&x[0], &x[1], "two chunks"));
    for (int i = 0; i < 2; i++) free_result(&x[i]);
}

/* An update takes the whole epoch, so that packs and single rows are the same samples: the same loss, norm and weights. */
static void rt08_packed_is_unpacked(void **state)
{
    (void)state;
    static const struct {
        const char *packing;
        int data;
    } runs[] = {{"data.packing=no", 1}, {"data.packing=yes", 1}, {"data.packing=yes", 2}};
    struct result first;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct job j;
        struct result x;
        char proof[256];
        open_job(&j, runs[i].data, 19, "epochs = 3\nmicro_batch = 1");
        j.sets[0] = runs[i].packing;
        j.sets[1] = "train.global_batch=32";
        j.sets[2] = "data.seq_len=64";
        j.n_sets = 3;
        run_good(&j, &x);
        assert_int_equal(x.n, 3);
        (void)snprintf(proof, sizeof proof, "%s/packing.json", j.dir);
        assert_int_equal(ft_is_file(proof), i > 0);
        if (i == 0) {
            first = x;
        } else {
            assert_true(x.rows[0] < first.rows[0] / 2);
            memcpy(x.rows, first.rows, sizeof x.rows);
            assert_true(same_within_tol(&first, &x, "packed"));
            free_result(&x);
        }
        remove_tree(j.dir);
    }
    free_result(&first);
}

static void rt18_the_same_run_is_the_same_bits_with_and_without_evaluation(void **state)
{
    (void)state;
    struct result x[3];
    for (int i = 0; i < 3; i++) {
        struct job j;
        open_job(&j, 2, 19, "epochs = 2\nmicro_batch = 2");
        char valid[256];
        (void)snprintf(valid, sizeof valid, "data.valid=%s/valid.jsonl", j.dir);
        if (i == 2) {
            j.sets[0] = valid;
            j.sets[1] = "eval.every=1";
            j.sets[2] = "eval.restore_best=no";
            j.n_sets = 3;
        }
        run_good(&j, &x[i]);
        remove_tree(j.dir);
    }
    assert_true(same_bits(&x[0], &x[1]));
    assert_true(same_bits(&x[0], &x[2]));
    assert_int_equal(x[0].evals.n, 0);
    assert_non_null(strstr(x[2].evals.data, "{\"step\":0,\"eval\":\"valid\",\"loss\":"));
    assert_non_null(strstr(x[2].evals.data, "{\"step\":6,\"eval\":\"valid\",\"loss\":"));
    for (int i = 0; i < 3; i++) free_result(&x[i]);
}

static void rt13_recompute_is_the_same_bits(void **state)
{
    (void)state;
    static const char *const sets[] = {"model.recompute=off", "model.recompute=selective", "model.recompute=full"};
    static const char *const precisions[] = {"model.precision=fp32", "model.precision=bf16"};
    for (size_t p = 0; p < 2; p++) {
        struct result x[3];
        for (int i = 0; i < 3; i++) {
            struct job j;
            open_job(&j, 2, 19, "steps = 4\nmicro_batch = 2");
            j.sets[0] = sets[i];
            j.sets[1] = precisions[p];
            j.n_sets = 2;
            run_good(&j, &x[i]);
            remove_tree(j.dir);
        }
        assert_true(same_bits(&x[0], &x[1]));
        assert_true(same_bits(&x[0], &x[2]));
        for (int i = 0; i < 3; i++) free_result(&x[i]);
    }
}

/* bf16 with masters stays near fp32, and its exports are its masters: as fp32 not rounded, as base rounded once. */
static void bf16_stays_near_fp32_and_exports_its_masters(void **state)
{
    (void)state;
    struct result x[4];
    static const char *const sets[][2] = {{"model.precision=fp32", "export.dtype=fp32"},
                                          {"model.precision=bf16", "export.dtype=fp32"},
                                          {"model.precision=bf16", "export.dtype=base"},
                                          {"model.precision=bf16", "export.dtype=fp32"}};
    for (int i = 0; i < 4; i++) {
        struct job j;
        open_job(&j, i == 3 ? 1 : 2, 19, "steps = 6\nmicro_batch = 2");
        j.sets[0] = sets[i][0];
        j.sets[1] = sets[i][1];
        j.n_sets = 2;
        run_good(&j, &x[i]);
        remove_tree(j.dir);
    }
    int64_t unrounded = 0;
    for (int k = 0; k < 6; k++)
        for (int i = 1; i < 4; i++) assert_true(fabs(x[i].loss[k] - x[0].loss[k]) <= 1e-2 * x[0].loss[k]);
    for (int64_t e = 0; e < x[1].n_weights; e++) {
        const float once = ft_bf16_to_f32(ft_f32_to_bf16(x[1].weights[e]));
        assert_true(x[2].weights[e] == once);
        unrounded += once != x[1].weights[e];
    }
    assert_true(unrounded > x[1].n_weights / 2);
    for (int i = 0; i < 4; i++) free_result(&x[i]);
}

static double eval_value(const struct result *x, const char *name, int step)
{
    char head[64];
    (void)snprintf(head, sizeof head, "{\"step\":%d,\"eval\":\"%s\",\"loss\":", step, name);
    const char *at = x->evals.data ? strstr(x->evals.data, head) : NULL;
    return at ? strtod(at + strlen(head), NULL) : NAN;
}

/* Two validation files: each by itself and both; sum over sum, whatever the split. */
static void rt09_evaluation_at_every_split(void **state)
{
    (void)state;
    static const int splits[][2] = {{8, 1}, {1, 1}, {2, 2}, {1, 4}, {1, 8}};
    double all = 0, one = 0;
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        struct job j;
        struct result x;
        char more[64], valid[700], other[256];
        (void)snprintf(more, sizeof more, "steps = 2\nmicro_batch = %d", splits[i][0]);
        open_job(&j, splits[i][1], 19, more);
        (void)snprintf(other, sizeof other, "%s/other.jsonl", j.dir);
        write_data(other, 5, 1234);
        (void)snprintf(valid, sizeof valid, "data.valid=%s/valid.jsonl, %s", j.dir, other);
        j.sets[0] = valid;
        j.n_sets = 1;
        run_good(&j, &x);
        const double a = eval_value(&x, "valid", 2), v = eval_value(&x, "valid/valid", 2), o = eval_value(&x, "valid/other", 2);
        assert_true(a > 0 && v > 0 && o > 0 && (a - v) * (a - o) <= 0); /* between the two */
        if (i == 0) {
            all = a;
            one = o;
        }
        if (!near_to(a, all) || !near_to(o, one))
            fail_msg("micro %d data %d: %.9g %.9g, not %.9g %.9g", splits[i][0], splits[i][1], a, o, all, one);
        assert_true(eval_value(&x, "valid", 0) > a);
        free_result(&x);
        remove_tree(j.dir);
    }
}

/* The loss runs away: seen before the update, on all ranks, status 3, nothing exported. */
static void a_loss_that_is_not_finite_stops_with_3(void **state)
{
    (void)state;
    for (int data = 1; data <= 2; data++) {
        struct job j;
        struct result x;
        char out[256];
        open_job(&j, data, 19, "steps = 20\nclip = 0\nschedule = constant");
        j.sets[0] = "train.lr=1e30";
        j.sets[1] = "train.warmup=0";
        j.n_sets = 2;
        run_job(&j, &x);
        for (int i = 0; i < data; i++) assert_int_equal(WEXITSTATUS(x.status[i]), 3);
        (void)snprintf(out, sizeof out, "%s/out", j.dir);
        assert_false(ft_is_dir(out));
        read_metrics(&j, &x);
        assert_true(x.n >= 1 && x.n < 20);
        for (int i = 0; i < x.n; i++) assert_true(isfinite(x.loss[i]) && isfinite(x.norm[i]));
        free_result(&x);
        remove_tree(j.dir);
    }
}

/* A rate that throws the loss far above its start: stopped with 3, or said and gone on with. */
static void a_loss_that_runs_away_stops_with_3_unless_told_to_go_on(void **state)
{
    (void)state;
    for (int warn = 0; warn < 2; warn++) {
        struct job j;
        struct result x;
        open_job(&j, 2, 19, "steps = 30\nschedule = constant");
        j.sets[0] = "train.lr=1";
        j.sets[1] = warn ? "train.on_divergence=warn" : "train.on_divergence=stop";
        j.n_sets = 2;
        run_job(&j, &x);
        for (int i = 0; i < 2; i++) assert_int_equal(WEXITSTATUS(x.status[i]), warn ? 0 : 3);
        read_metrics(&j, &x);
        assert_int_equal(x.n, warn ? 30 : 20); /* 20 updates make the first mean */
        free_result(&x);
        remove_tree(j.dir);
    }
}

/* Training on few rows for long: validation rises, the run stops, the best weights are exported. */
static void patience_stops_and_the_best_is_exported(void **state)
{
    (void)state;
    struct job j;
    struct result x;
    open_job(&j, 2, 8, "steps = 60\nmicro_batch = 2");
    char valid[256];
    (void)snprintf(valid, sizeof valid, "data.valid=%s/valid.jsonl", j.dir);
    j.sets[0] = valid;
    j.sets[1] = "eval.every=2";
    j.sets[2] = "eval.patience=2";
    j.sets[3] = "train.lr=5e-3";
    j.sets[4] = "train.on_divergence=warn";
    j.n_sets = 5;
    run_good(&j, &x);
    assert_true(x.n < 60);
    /* the export, evaluated as a base, has the best value that was logged */
    double best = INFINITY;
    for (int s = 2; s <= x.n; s += 2) best = fmin(best, eval_value(&x, "valid", s));
    struct job again;
    struct result y;
    char path[256];
    open_job(&again, 1, 8, "steps = 1");
    (void)snprintf(path, sizeof path, "model.path=%s/out", j.dir);
    again.sets[0] = valid;
    again.sets[1] = path;
    again.n_sets = 2;
    run_good(&again, &y);
    assert_true(near_to(eval_value(&y, "valid", 0), best));
    free_result(&x);
    free_result(&y);
    remove_tree(j.dir);
    remove_tree(again.dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rt08_rt09_r7_loss_norm_and_weights_at_every_split),
        cmocka_unit_test(rt08_three_and_six_data_ranks),
        cmocka_unit_test(rt11_chunks_over_the_end_of_an_epoch),
        cmocka_unit_test(rt08_packed_is_unpacked),
        cmocka_unit_test(rt18_the_same_run_is_the_same_bits_with_and_without_evaluation),
        cmocka_unit_test(rt13_recompute_is_the_same_bits),
        cmocka_unit_test(bf16_stays_near_fp32_and_exports_its_masters),
        cmocka_unit_test(rt09_evaluation_at_every_split),
        cmocka_unit_test(a_loss_that_is_not_finite_stops_with_3),
        cmocka_unit_test(a_loss_that_runs_away_stops_with_3_unless_told_to_go_on),
        cmocka_unit_test(patience_stops_and_the_best_is_exported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
