/* The schedule of a pipeline against golden/groups/shards.jsonl (Megatron-Core), and jobs over stages against the same jobs on one
 * rank (RT-11). */
#include "runtime/train/pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/topology/golden.h"
#include "tests/unit/train/hf_case.h"
#include "tests/unit/train/job_run.h"

/* ---- the schedule ---- */

static size_t n_checked, n_failed;

static int64_t in(const struct ft_json *v, const char *key) { return ft_json_int(ft_json_get(ft_json_get(v, "in"), key), 0); }
static const struct ft_json *out(const struct ft_json *v, const char *key) { return ft_json_get(ft_json_get(v, "out"), key); }

/* Actions of a stage as the reference writes them: c + 1 the next forward of chunk c, -c - 1 its next backward; the k-th of a kind is
 * of the table's k-th micro-batch (of its chunk, of the opposite one in a backward). */
static bool same_order(const struct ft_pipeline_schedule *s, const struct ft_json *order, const struct ft_json *table, int chunks)
{
    size_t next[2] = {0, 0};
    bool ok = ft_json_count(order) == s->n && ft_json_count(table) * 2 == s->n;
    for (size_t i = 0; ok && i < s->n; i++) {
        const int64_t wanted = ft_json_int(ft_json_at(order, i), 0);
        const enum ft_pass pass = wanted > 0 ? FT_PASS_FORWARD : FT_PASS_BACKWARD;
        const struct ft_json *row = ft_json_at(table, next[pass]++);
        const int64_t chunk = ft_json_int(ft_json_at(row, 1), -1);
        ok = s->actions[i].pass == pass && s->actions[i].chunk + 1 == (wanted > 0 ? wanted : -wanted) &&
             s->actions[i].chunk == (pass == FT_PASS_FORWARD ? chunk : chunks - 1 - chunk) &&
             s->actions[i].micro == ft_json_int(ft_json_at(row, 0), -1);
    }
    return ok;
}

/* Most micro-batches between their forward and their backward, counted from the list. */
static int64_t peak_of(const struct ft_pipeline_schedule *s)
{
    int64_t live = 0, most = 0;
    for (size_t i = 0; i < s->n; i++) {
        live += s->actions[i].pass == FT_PASS_FORWARD ? 1 : -1;
        if (live > most) most = live;
    }
    return most;
}

static void check_case(const struct ft_json *v, const char *name)
{
    if (strcmp(ft_json_str(ft_json_get(v, "kind")), "schedule") != 0) return;
    struct ft_arena *a = ft_arena_create();
    n_checked++;
    for (int i = 0; i < in(v, "pp"); i++) {
        const struct ft_pipeline_schedule s = ft_pipeline_schedule((int)in(v, "pp"), i, (int)in(v, "vpp"), in(v, "microbatches"),
                                                                   a);
        const size_t stage = (size_t)i;
        if (same_order(&s, ft_json_at(out(v, "order"), stage), out(v, "table"), (int)in(v, "vpp")) &&
            s.warmup == ft_json_int(ft_json_at(out(v, "warmup"), stage), -1) &&
            s.peak == ft_json_int(ft_json_at(out(v, "peak"), stage), -1) && s.peak == peak_of(&s))
            continue;
        n_failed++;
        print_error("%s, stage %d\n", name, i);
    }
    ft_arena_destroy(a);
}

static void golden_schedules_exactly(void **state)
{
    (void)state;
    assert_int_equal(golden_each(FT_GOLDEN "/groups/shards.jsonl", check_case), 163);
    assert_int_equal(n_checked, 42);
    assert_int_equal(n_failed, 0);
}

static void the_schedule_is_printable(void **state)
{
    (void)state;
    static const int64_t peaks[4][4] = {{4, 3, 2, 1}, {3, 3, 2, 1}, {2, 2, 2, 1}, {1, 1, 1, 1}}, ms[4] = {8, 3, 2, 1};
    struct ft_arena *a = ft_arena_create();
    struct ft_buf b = {0};
    const struct ft_pipeline_schedule s = ft_pipeline_schedule(4, 2, 1, 3, a);
    ft_pipeline_print(&s, &b);
    assert_string_equal(b.data, "F0 F1 B0 F2 B1 B2");
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 4; i++) assert_int_equal(ft_pipeline_schedule(4, i, 1, ms[k], a).peak, peaks[k][i]);
    ft_buf_clear(&b);
    const struct ft_pipeline_schedule two = ft_pipeline_schedule(2, 1, 2, 2, a);
    ft_pipeline_print(&two, &b);
    assert_string_equal(b.data, "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 B1.0");
    for (int i = 0; i < 4; i++) assert_int_equal(ft_pipeline_schedule(4, i, 2, 8, a).peak, 11 - 2 * i);
    assert_true(ft_pipeline_bubble(4, 1, 8) == 0.375);
    assert_true(ft_pipeline_bubble(4, 2, 8) == 0.1875);
    ft_buf_fini(&b);
    ft_arena_destroy(a);
}

/* ---- jobs: rows of very different lengths, so every micro-batch has another T ---- */

static void same_as_one_rank(int stages, int chunks, int m, const char *recompute)
{
    char batch[64], pipeline[64], virtual_[64], mode[64], name[128];
    struct job j;
    struct result one, x;
    (void)snprintf(batch, sizeof batch, "train.global_batch=%d", m);
    (void)snprintf(pipeline, sizeof pipeline, "parallel.pipeline=%d", stages);
    (void)snprintf(virtual_, sizeof virtual_, "parallel.virtual_pipeline=%d", chunks);
    (void)snprintf(mode, sizeof mode, "model.recompute=%s", recompute);
    (void)snprintf(name, sizeof name, "p = %d, v = %d, m = %d, recompute %s", stages, chunks, m, recompute);
    open_job(&j, 1, 2 * m + 1, "epochs = 1"); /* the last update is one row and fillers */
    j.sets[j.n_sets++] = batch;
    run_good(&j, &one);
    assert_int_equal(one.n, 3);
    remove_tree(j.dir);
    open_job(&j, stages, 2 * m + 1, "epochs = 1");
    j.sets[j.n_sets++] = batch;
    j.sets[j.n_sets++] = pipeline;
    j.sets[j.n_sets++] = virtual_;
    j.sets[j.n_sets++] = mode;
    run_good(&j, &x);
    if (!same_within_tol(&one, &x, name)) fail_msg("%s", name);
    remove_tree(j.dir);
    free_result(&one);
    free_result(&x);
}

static void test_RT11_stages_equal_one_rank(void **state)
{
    (void)state;
    static const int four[] = {1, 2, 3, 4, 8, 9};
    static const char *const modes[] = {"off", "full", "selective"};
    for (size_t i = 0; i < sizeof four / sizeof *four; i++) same_as_one_rank(4, 1, four[i], modes[i % 3]);
    for (int m = 1; m <= 4; m++) same_as_one_rank(2, 1, m, modes[m % 3]);
    for (int m = 2; m <= 6; m += 2) same_as_one_rank(2, 2, m, modes[m / 2 % 3]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_schedules_exactly),
        cmocka_unit_test(the_schedule_is_printable),
        cmocka_unit_test(test_RT11_stages_equal_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
