/* [checkpoint] async: the same run, bit for bit, with saves beside it; a writer that is slow, one that fails, a run that is cut. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/unit/train/hf_case.h"
#include "tests/unit/train/job_run.h"

static bool there(const struct job *j, const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", j->dir, name);
    return !access(path, F_OK);
}

static void add(struct job *j, const char *set) { j->sets[j->n_sets++] = set; }

/* Weights, logs and every checkpoint; best ones and the end included. */
static void rt18_async_on_and_off_are_the_same_bits(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *layout, *precision;
    } cases[] = {{1, "parallel.tensor=1", "model.precision=fp32"},
                 {2, "parallel.tensor=1", "model.precision=bf16"},
                 {4, "parallel.tensor=2", "model.precision=fp32"},
                 {2, "parallel.pipeline=2", "model.precision=fp32"}};
    static const char lines[] = "steps = 8\nmicro_batch = 2\n[eval]\nevery = 2\n[checkpoint]\nevery = 3\nkeep = 0";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job j[2];
        struct result x[2];
        char valid[2][512];
        for (int k = 0; k < 2; k++) {
            open_job(&j[k], cases[i].ranks, 19, lines);
            (void)snprintf(valid[k], sizeof valid[k], "data.valid=%s/valid.jsonl", j[k].dir);
            add(&j[k], valid[k]);
            add(&j[k], cases[i].layout);
            add(&j[k], cases[i].precision);
            add(&j[k], k ? "checkpoint.async=yes" : "checkpoint.async=no");
            run_good(&j[k], &x[k]);
            assert_int_equal(x[k].n, 8);
        }
        assert_true(same_bits(&x[0], &x[1]));
        for (int step = 1; step < 8; step++) {
            char name[64];
            (void)snprintf(name, sizeof name, "checkpoints/step_%08d", step);
            assert_int_equal(there(&j[0], name), there(&j[1], name));
            if (there(&j[0], name)) same_checkpoint(&j[0], &j[1], step);
        }
        same_checkpoint(&j[0], &j[1], 8);
        for (int k = 0; k < 2; k++) {
            free_result(&x[k]);
            remove_tree(j[k].dir);
        }
    }
}

/* The writer of rank 1 is held from update 12 to 23: the checkpoint is that of update 12 to the bit, the save of update 24 waits for
 * it, the one of the end is waited for. */
static void rt19_a_slow_writer(void **state)
{
    (void)state;
    struct job a, b;
    struct result x, y;
    int gate[2];
    char fault[64];
    static const char lines[] = "steps = 26\nmicro_batch = 2\n[checkpoint]\nevery = 12\nkeep = 0";
    open_job(&a, 2, 19, lines);
    run_good(&a, &x);
    open_job(&b, 2, 19, lines);
    add(&b, "checkpoint.async=yes");
    assert_int_equal(pipe(gate), 0);
    (void)snprintf(fault, sizeof fault, "write@1:1:gate=%d", gate[0]);
    b.term_after = 23;
    b.gate_fd = gate[1];
    b.absent = "checkpoints/step_00000012";
    setenv("FT_FAULT", fault, 1);
    run_good(&b, &y);
    unsetenv("FT_FAULT");
    close(gate[0]);
    close(gate[1]);
    assert_false(there(&b, "early"));
    assert_true(same_bits(&x, &y));
    for (int step = 12; step <= 26; step += step == 24 ? 2 : 12) same_checkpoint(&a, &b, step);
    char *told = text_of(&b, "progress.0"), *first = strstr(told, "saved 12\n"), *second = strstr(told, "saved 24\n"),
         *third = strstr(told, "saved 26\n"), *update = strstr(told, "\n23\n");
    if (!update || !first || !second || !third || update > first || first > second || second > third) fail_msg("told: %s", told);
    free(told);
    free_result(&x);
    free_result(&y);
    remove_tree(a.dir);
    remove_tree(b.dir);
}

/* A disk that is full once: said, training goes on, the next save works; the last one of a run that fails ends it with 1, as does any
 * with on_error = stop. What was published before stays. */
static void a_failed_save_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *fault, *on_error;
        int status;
        bool four, eight;
    } cases[] = {{"write@1:3:enospc", "checkpoint.on_error=continue", 0, false, true},
                 {"fallocate@1:2:enospc;fallocate@1:3:enospc", "checkpoint.on_error=continue", 1, true, false},
                 {"write@1:3:enospc", "checkpoint.on_error=stop", 1, false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job j;
        struct result x;
        open_job(&j, 2, 19, "steps = 8\nmicro_batch = 2\n[checkpoint]\nevery = 4\nkeep = 0\nasync = yes");
        add(&j, cases[i].on_error);
        setenv("FT_FAULT", cases[i].fault, 1);
        run_job(&j, &x);
        unsetenv("FT_FAULT");
        int alike = 0;
        for (int r = 0; r < 2; r++) {
            const bool victim = cases[i].status && x.status[r] == 69 << 8; /* the other one has ended first */
            alike += x.status[r] == cases[i].status << 8;
            if (x.status[r] != cases[i].status << 8 && !victim)
                fail_msg("%s: rank %d: %#x", cases[i].fault, r, (unsigned)x.status[r]);
        }
        assert_true(alike >= 1);
        assert_int_equal(there(&j, "checkpoints/step_00000004"), cases[i].four);
        assert_int_equal(there(&j, "checkpoints/step_00000008"), cases[i].eight);
        remove_tree(j.dir);
    }
}

/* The same command again after SIGTERM, which waits for the save of that update, and after kill -9 somewhere. */
static void a_cut_run_goes_on(void **state)
{
    (void)state;
    const int signals[] = {SIGTERM, SIGKILL};
    static const char lines[] = "steps = 40\nmicro_batch = 2\n[checkpoint]\nevery = 2\nkeep = 2";
    struct job a;
    struct result whole;
    open_job(&a, 2, 19, lines);
    run_good(&a, &whole);
    for (int i = 0; i < 2; i++) {
        struct job b;
        struct result cut;
        open_job(&b, 2, 19, lines);
        add(&b, "checkpoint.async=yes");
        b.term_after = 12;
        b.term_signal = signals[i];
        run_job(&b, &cut);
        if (signals[i] == SIGTERM) assert_int_equal(cut.status[0], 143 << 8);
        else assert_true(WIFSIGNALED(cut.status[0]));
        b.term_after = 0;
        run_good(&b, &cut);
        assert_int_equal(cut.n, 40); /* every update once */
        assert_true(same_bits(&whole, &cut));
        free_result(&cut);
        remove_tree(b.dir);
    }
    free_result(&whole);
    remove_tree(a.dir);
}

/* A rate that makes the weights infinite at update 1, which is saved: the run has diverged, trying again would end the same way. */
static void a_state_that_is_not_finite_ends_as_diverged(void **state)
{
    (void)state;
    static const char *const sets[][2] = {{"checkpoint.async=no", "checkpoint.every=1"},
                                          {"checkpoint.async=yes", "checkpoint.every=1"},
                                          {"checkpoint.async=yes", "train.steps=1"}};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        struct job j;
        struct result x;
        open_job(&j, 2, 19, "steps = 8\nmicro_batch = 2\nclip = 0\nschedule = constant\n[checkpoint]\nkeep = 0");
        add(&j, "train.lr=1e39");
        add(&j, sets[i][0]);
        add(&j, sets[i][1]);
        run_job(&j, &x);
        int alike = 0;
        for (int r = 0; r < 2; r++) {
            alike += x.status[r] == 3 << 8;
            if (x.status[r] != 3 << 8 && x.status[r] != 69 << 8) fail_msg("%zu: rank %d: %#x", i, r, (unsigned)x.status[r]);
        }
        assert_true(alike >= 1);
        assert_false(there(&j, "checkpoints/step_00000001"));
        remove_tree(j.dir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rt18_async_on_and_off_are_the_same_bits),
        cmocka_unit_test(rt19_a_slow_writer),
        cmocka_unit_test(a_failed_save_is_told),
        cmocka_unit_test(a_cut_run_goes_on),
        cmocka_unit_test(a_state_that_is_not_finite_ends_as_diverged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
