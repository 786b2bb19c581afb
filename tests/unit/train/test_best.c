/* The weights of the best evaluation at the end of a run whose checkpoint of them could not be written, or that BEST does not name. In all
 * of these runs the first evaluation behind update 0 is the best: min_delta is more than any other could be better. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "runtime/ckpt/ckpt.h"
#include "tests/unit/train/hf_case.h"
#include "tests/unit/train/job_run.h"

static void add(struct job *j, const char *set) { j->sets[j->n_sets++] = set; }

static void path_of(const struct job *j, const char *name, char *out, size_t n) { (void)snprintf(out, n, "%s/%s", j->dir, name); }

static bool there(const struct job *j, const char *name)
{
    char path[512];
    path_of(j, name, path, sizeof path);
    return !access(path, F_OK);
}

static void open_best(struct job *j, char valid[512], const char *lines)
{
    open_job(j, 1, 19, lines);
    (void)snprintf(valid, 512, "data.valid=%s/valid.jsonl", j->dir);
    add(j, valid);
    add(j, "eval.min_delta=100");
}

static const char lines[] = "steps = 6\nmicro_batch = 2\n[eval]\nevery = 2\n[checkpoint]\nevery = 1000\nkeep = 0";

/* The disk was full at update 2 and is not at the end: the last weights are exported and the run is a good one, now and when the same
 * command comes again, whose state knows of a best that is not there. */
static void a_best_that_was_not_saved_is_no_fault(void **state)
{
    (void)state;
    static const char *const async[] = {"checkpoint.async=no", "checkpoint.async=yes"};
    struct job last;
    struct result want;
    char valid[512], out[512];
    open_best(&last, valid, lines);
    add(&last, "eval.restore_best=no");
    run_good(&last, &want);
    for (int i = 0; i < 2; i++) {
        struct job j;
        struct result x;
        open_best(&j, valid, lines);
        add(&j, async[i]);
        setenv("FT_FAULT", "fallocate:1:enospc", 1);
        run_good(&j, &x);
        unsetenv("FT_FAULT");
        assert_false(there(&j, "checkpoints/step_00000002"));
        assert_true(there(&j, "checkpoints/step_00000006"));
        assert_true(same_bits(&want, &x));
        free_result(&x);
        path_of(&j, "out", out, sizeof out);
        remove_tree(out);
        run_good(&j, &x);
        assert_int_equal(x.n, 6);
        assert_true(same_bits(&want, &x));
        free_result(&x);
        remove_tree(j.dir);
    }
    free_result(&want);
    remove_tree(last.dir);
}

/* BEST speaks of a branch that was given up by resuming at update 5: retention and prune keep the best that the state knows, and it
 * is exported. */
static void the_best_of_the_state_is_kept(void **state)
{
    (void)state;
    struct job j;
    struct result best, x;
    char valid[512], path[512], folder[512];
    struct ft_err err;
    open_best(&j, valid, lines);
    add(&j, "checkpoint.every=1");
    run_good(&j, &best);
    path_of(&j, "checkpoints/BEST", path, sizeof path);
    assert_int_equal(ft_write_file(path, "step_00000006\n", 14, 0600, &err), FT_OK);
    path_of(&j, "out", path, sizeof path);
    remove_tree(path);
    add(&j, "checkpoint.resume=5");
    add(&j, "checkpoint.keep=1");
    run_good(&j, &x);
    assert_true(there(&j, "checkpoints/step_00000002"));
    assert_false(there(&j, "checkpoints/step_00000003"));
    assert_true(same_bits(&best, &x));
    char verb[] = "prune", flag[] = "--keep", one[] = "1", *words[] = {verb, folder, flag, one, NULL};
    path_of(&j, "checkpoints", folder, sizeof folder);
    assert_int_equal(ft_ckpt_command(4, words, stderr, stderr), 0);
    assert_true(there(&j, "checkpoints/step_00000002"));
    assert_false(there(&j, "checkpoints/step_00000005"));
    assert_true(there(&j, "checkpoints/step_00000006"));
    free_result(&best);
    free_result(&x);
    remove_tree(j.dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_best_that_was_not_saved_is_no_fault),
        cmocka_unit_test(the_best_of_the_state_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
