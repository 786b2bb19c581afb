/* A run that is cut and goes on is the run that was never cut: bit for bit at the same layout, within tol at others (RT-18), after
 * a save, SIGTERM and kill -9; what does not fit is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/unit/train/hf_case.h"
#include "tests/unit/train/job_run.h"

/* Warm-up, cosine, accumulation, shuffle, an odd epoch end, evaluation on the way. */
static const char lines[] = "steps = 8\nmicro_batch = %d\n[eval]\nevery = 3\nrestore_best = no\n[checkpoint]\nevery = 4\nkeep = 0";

static void open_resume_job(struct job *j, int data, int micro, char *valid, size_t n)
{
    char more[256];
    (void)snprintf(more, sizeof more, lines, micro);
    open_job(j, data, 19, more);
    (void)snprintf(valid, n, "data.valid=%s/valid.jsonl", j->dir);
    j->sets[j->n_sets++] = valid;
}

static bool same_tail(const struct result *whole, const struct result *tail, bool bits)
{
    struct result cut = *whole;
    const int from = whole->n - tail->n;
    if (from < 0) return false;
    cut.n = tail->n;
    for (int i = 0; i < tail->n; i++) {
        if (whole->step[from + i] != tail->step[i]) return false;
        cut.loss[i] = whole->loss[from + i];
        cut.norm[i] = whole->norm[from + i];
        cut.rows[i] = whole->rows[from + i];
        cut.trained[i] = whole->trained[from + i];
    }
    for (int i = cut.n; i < MAX_UPDATES; i++) cut.loss[i] = cut.norm[i] = 0;
    return bits ? same_bits(&cut, tail) : same_within_tol(&cut, tail, "resumed");
}

static void rt18_save_and_resume(void **state)
{
    (void)state;
    static const struct {
        int data, micro, to_data, to_micro;
        bool bits;
        const char *precision;
    } cases[] = {{1, 2, 1, 2, true, "model.precision=fp32"},
                 {2, 2, 2, 2, true, "model.precision=fp32"},
                 {2, 2, 2, 2, true, "model.precision=bf16"},
                 {2, 2, 1, 1, false, "model.precision=fp32"},
                 {1, 4, 4, 1, false, "model.precision=fp32"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job a, b;
        struct result whole, tail;
        char valid_a[256], valid_b[256], from[256], train[256];
        open_resume_job(&a, cases[i].data, cases[i].micro, valid_a, sizeof valid_a);
        a.sets[a.n_sets++] = cases[i].precision;
        run_good(&a, &whole);
        assert_int_equal(whole.n, 8);
        open_resume_job(&b, cases[i].to_data, cases[i].to_micro, valid_b, sizeof valid_b);
        (void)snprintf(from, sizeof from, "checkpoint.resume=%s/checkpoints/step_00000004", a.dir);
        (void)snprintf(train, sizeof train, "data.train=%s/train.jsonl", a.dir);
        b.sets[b.n_sets++] = from;
        b.sets[b.n_sets++] = train;
        b.sets[b.n_sets++] = cases[i].precision;
        run_good(&b, &tail);
        assert_int_equal(tail.n, 4);
        if (!same_tail(&whole, &tail, cases[i].bits)) fail_msg("case %zu: the resumed run is another one", i);
        if (cases[i].bits) same_checkpoint(&a, &b, 8); /* what a resumed run saves is not what it loaded */
        assert_null(tail.evals.data ? strstr(tail.evals.data, "\"step\":0") : NULL); /* not again */
        assert_non_null(strstr(tail.evals.data, "\"step\":6"));
        free_result(&whole);
        free_result(&tail);
        remove_tree(a.dir);
        remove_tree(b.dir);
    }
}

/* 16 rows, 8 an update: update 2 ends the epoch. Resumed there, the next epoch runs fully and in its own order. */
static void rt18_resume_at_an_epoch_end(void **state)
{
    (void)state;
    struct job a, b;
    struct result whole, tail;
    char from[256], train[256];
    open_job(&a, 2, 16, "epochs = 3\nmicro_batch = 2\n[checkpoint]\nevery = 2\nkeep = 0");
    run_good(&a, &whole);
    assert_int_equal(whole.n, 6);
    open_job(&b, 2, 16, "epochs = 3\nmicro_batch = 2\n[checkpoint]\nevery = 2\nkeep = 0");
    (void)snprintf(from, sizeof from, "checkpoint.resume=%s/checkpoints/step_00000002", a.dir);
    (void)snprintf(train, sizeof train, "data.train=%s/train.jsonl", a.dir);
    b.sets[b.n_sets++] = from;
    b.sets[b.n_sets++] = train;
    run_good(&b, &tail);
    assert_int_equal(tail.n, 4);
    assert_true(same_tail(&whole, &tail, true));
    free_result(&whole);
    free_result(&tail);
    remove_tree(a.dir);
    remove_tree(b.dir);
}

static void progress_is_told(const struct job *j, int rank, const char *want)
{
    struct ft_buf b = {0};
    struct ft_err err;
    char path[256];
    (void)snprintf(path, sizeof path, "%s/progress.%d", j->dir, rank);
    assert_int_equal(ft_read_file(path, 1 << 20, &b, &err), FT_OK);
    assert_string_equal(ft_buf_str(&b), want);
    ft_buf_fini(&b);
}

static void each_update_and_each_save_is_told(void **state)
{
    (void)state;
    struct job j;
    struct result x;
    open_job(&j, 2, 16, "steps = 5\nmicro_batch = 2\n[checkpoint]\nevery = 2");
    run_good(&j, &x);
    progress_is_told(&j, 0, "1\n2\nsaved 2\n3\n4\nsaved 4\n5\nsaved 5\n");
    progress_is_told(&j, 1, "1\n2\n3\n4\n5\n");
    free_result(&x);
    remove_tree(j.dir);
}

/* The same folder and command again, after SIGTERM (a checkpoint of that very update) and after kill -9 (an older one). */
static void a_cut_run_goes_on(void **state)
{
    (void)state;
    const int signals[] = {SIGTERM, SIGKILL};
    for (int i = 0; i < 2; i++) {
        struct job a, b;
        struct result whole, cut;
        char valid_a[256], valid_b[256], train[256];
        open_resume_job(&a, 2, 1, valid_a, sizeof valid_a);
        a.sets[a.n_sets++] = "train.steps=40";
        run_good(&a, &whole);
        open_resume_job(&b, 2, 1, valid_b, sizeof valid_b);
        (void)snprintf(train, sizeof train, "data.train=%s/train.jsonl", a.dir);
        b.sets[b.n_sets++] = "train.steps=40";
        b.sets[b.n_sets++] = train;
        b.term_after = 12;
        b.term_signal = signals[i];
        run_job(&b, &cut);
        if (signals[i] == SIGTERM) assert_int_equal(cut.status[0], 143 << 8);
        else assert_true(WIFSIGNALED(cut.status[0]));
        b.term_after = 0;
        run_good(&b, &cut);
        assert_int_equal(cut.n, 40); /* every update once: what came after the checkpoint was written again */
        assert_true(same_tail(&whole, &cut, true));
        free_result(&whole);
        free_result(&cut);
        remove_tree(a.dir);
        remove_tree(b.dir);
    }
}

static void another_job_is_refused_unless_accepted(void **state)
{
    (void)state;
    struct job a;
    struct result x;
    char valid[256];
    open_resume_job(&a, 2, 2, valid, sizeof valid);
    run_good(&a, &x);
    free_result(&x);
    a.sets[a.n_sets++] = "export.what=none";
    a.sets[a.n_sets++] = "train.lr=2e-3";
    run_job(&a, &x);
    assert_int_equal(x.status[0], 2 << 8);
    assert_int_equal(x.status[1], 69 << 8);
    a.sets[a.n_sets++] = "checkpoint.accept=train.lr";
    run_job(&a, &x);
    assert_int_equal(x.status[0], 0);
    assert_int_equal(x.status[1], 0);
    remove_tree(a.dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rt18_save_and_resume),
        cmocka_unit_test(rt18_resume_at_an_epoch_end),
        cmocka_unit_test(each_update_and_each_save_is_told),
        cmocka_unit_test(a_cut_run_goes_on),
        cmocka_unit_test(another_job_is_refused_unless_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
