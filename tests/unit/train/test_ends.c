/* How a run ends when it does not end by itself: SIGTERM, a killed rank, a stopped rank, a rank that is refused, a full disk. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "runtime/train/cli.h"
#include "tests/unit/coll/ranks.h"
#include "tests/unit/train/hf_case.h"
#include "tests/unit/train/job_run.h"

struct plan {
    char dir[128];
    int victim, signal, after_lines;
    const char *rank1_set; /* rank 1 has this --set too; NULL: none */
    const char *sets[4];
    size_t n_sets;
};

static int one_rank(const struct ft_place *place, void *arg)
{
    const struct plan *j = arg;
    char job[256], log[256];
    (void)snprintf(job, sizeof job, "%s/job.ini", j->dir);
    (void)snprintf(log, sizeof log, "%s/err.%d", j->dir, place->rank);
    const int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || dup2(fd, 2) < 0) return 99;
    close(fd);
    struct ft_place p = *place;
    p.run_dir = j->dir;
    const char *words[] = {job}, *sets[5];
    memcpy(sets, j->sets, sizeof j->sets);
    size_t n = j->n_sets;
    if (place->rank == 1 && j->rank1_set) sets[n++] = j->rank1_set;
    const pid_t killer = place->rank == j->victim ? signal_start(j->dir, j->after_lines, j->signal, -1) : -1;
    const struct ft_cli cli = {.words = words, .n_words = 1, .sets = sets, .n_sets = n, .quiet = true};
    const int status = ft_train_rank(&cli, &p);
    signal_end(killer);
    return status;
}

/* Many updates of few rows: nobody gets to the end by himself. */
static void open_plan(struct plan *p, int victim, int signal_)
{
    memset(p, 0, sizeof *p);
    (void)snprintf(p->dir, sizeof p->dir, "/tmp/ft-ends-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    p->victim = victim;
    p->signal = signal_;
    p->after_lines = 5;
    struct ft_buf b = {0}, path = {0};
    struct ft_err err;
    for (int i = 0; i < 32; i++) ft_buf_addf(&b, "{\"input_ids\": [%d, 2, 3, 4, 5], \"labels\": [-100, -100, 3, 4, 5]}\n", i + 5);
    ft_buf_addf(&path, "%s/train.jsonl", p->dir);
    assert_int_equal(ft_write_file(path.data, b.data, b.n, 0600, &err), FT_OK);
    ft_buf_clear(&b);
    ft_buf_clear(&path);
    ft_buf_addf(&b,
                "[model]\npath = " FT_GOLDEN
                "/hf/llama\nprecision = fp32\n[data]\ntrain = %s/train.jsonl\nformat = tokens\npacking = no\n"
                "seq_len = 32\n[train]\nsteps = 1000000\nglobal_batch = 12\nlr = 1e-6\n[export]\ndir = %s/out\n",
                p->dir, p->dir);
    ft_buf_addf(&path, "%s/job.ini", p->dir);
    assert_int_equal(ft_write_file(path.data, b.data, b.n, 0600, &err), FT_OK);
    ft_buf_fini(&b);
    ft_buf_fini(&path);
}

static void said(const struct plan *p, int rank, const char *text)
{
    struct ft_buf b = {0};
    struct ft_err err;
    char path[256];
    (void)snprintf(path, sizeof path, "%s/err.%d", p->dir, rank);
    assert_int_equal(ft_read_file(path, 1 << 20, &b, &err), FT_OK);
    if (!strstr(ft_buf_str(&b), text)) fail_msg("rank %d did not say '%s' but: %s", rank, text, ft_buf_str(&b));
    ft_buf_fini(&b);
}

static void not_exported(const struct plan *p)
{
    char out[256];
    (void)snprintf(out, sizeof out, "%s/out", p->dir);
    assert_false(ft_is_dir(out));
}

static void sigterm_of_any_rank_ends_all_with_143(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        struct plan p;
        open_plan(&p, n - 1, SIGTERM);
        struct ranks r = {.n = n, .run = one_rank, .arg = &p, .limit_s = 120};
        ranks_run(&r);
        for (int i = 0; i < n; i++) {
            assert_false(r.late[i]);
            assert_int_equal(r.status[i], 143 << 8);
        }
        not_exported(&p);
        remove_tree(p.dir);
    }
}

/* Over data ranks, over stages and over tensor ranks: the victim waits in another collective each time. */
static void r1_a_killed_rank_is_named_by_the_others(void **state)
{
    (void)state;
    static const struct {
        const char *layout;
        int n;
    } kinds[] = {{"parallel.data=3", 3}, {"parallel.pipeline=4", 4}, {"parallel.tensor=2", 4}};
    for (int k = 0; k < 3 * 3; k++) {
        const int victim = k % 3, n = kinds[k / 3].n;
        struct plan p;
        open_plan(&p, victim, SIGKILL);
        p.sets[p.n_sets++] = kinds[k / 3].layout;
        struct ranks r = {.n = n, .run = one_rank, .arg = &p, .limit_s = 120};
        char name[32];
        (void)snprintf(name, sizeof name, "rank %d", victim);
        ranks_run(&r);
        for (int i = 0; i < n; i++) {
            assert_false(r.late[i]);
            if (i == victim) {
                assert_true(WIFSIGNALED(r.status[i]));
                continue;
            }
            assert_int_equal(r.status[i], 69 << 8);
            said(&p, i, name);
            said(&p, i, "ends because a peer ended");
        }
        not_exported(&p);
        remove_tree(p.dir);
    }
}

static void sigterm_of_any_stage_ends_all_with_143(void **state)
{
    (void)state;
    for (int stage = 0; stage < 4; stage++) {
        struct plan p;
        open_plan(&p, stage, SIGTERM);
        p.sets[p.n_sets++] = "parallel.pipeline=4";
        struct ranks r = {.n = 4, .run = one_rank, .arg = &p, .limit_s = 120};
        ranks_run(&r);
        for (int i = 0; i < 4; i++) {
            assert_false(r.late[i]);
            assert_int_equal(r.status[i], 143 << 8);
        }
        not_exported(&p);
        remove_tree(p.dir);
    }
}

static void a_stopped_rank_is_missed_within_the_deadline(void **state)
{
    (void)state;
    struct plan p;
    open_plan(&p, 1, SIGSTOP);
    p.sets[0] = "train.collective_timeout=5s"; /* which holds while the ranks come up, too */
    p.n_sets = 1;
    struct ranks r = {.n = 2, .stays = 2, .run = one_rank, .arg = &p, .limit_s = 120};
    ranks_run(&r);
    assert_false(r.late[0]);
    assert_true(WIFEXITED(r.status[0]));
    assert_int_equal(WEXITSTATUS(r.status[0]), 1);
    said(&p, 0, "rank 1");
    said(&p, 0, "5 s");
    said(&p, 0, "update");
    remove_tree(p.dir);
}

/* A job that is another one on rank 1: refused by name before anything is trained. */
static void ranks_with_different_jobs_are_refused(void **state)
{
    (void)state;
    struct plan p;
    open_plan(&p, -1, 0);
    p.rank1_set = "train.lr=2e-6";
    struct ranks r = {.n = 2, .run = one_rank, .arg = &p, .limit_s = 120};
    ranks_run(&r);
    for (int i = 0; i < 2; i++) {
        assert_true(WIFEXITED(r.status[i]) && WEXITSTATUS(r.status[i]) != 0 && WEXITSTATUS(r.status[i]) != 69);
        said(&p, i, "lr");
    }
    remove_tree(p.dir);
}

/* Rank 0 alone cannot write where the export goes: it says so once, the other one ends as its victim. */
static void one_refused_rank_ends_all_before_the_first_update(void **state)
{
    (void)state;
    struct plan p;
    open_plan(&p, -1, 0);
    char out[256];
    (void)snprintf(out, sizeof out, "%s/out", p.dir);
    struct ft_err err;
    assert_int_equal(ft_mkdirs(out, 0700, &err), FT_OK);
    struct ranks r = {.n = 2, .run = one_rank, .arg = &p, .limit_s = 120};
    ranks_run(&r);
    assert_int_equal(r.status[0], 2 << 8);
    assert_int_equal(r.status[1], 69 << 8);
    said(&p, 0, "it exists");
    remove_tree(p.dir);
}

/* Nearly all updates have no trained token, so that SIGTERM comes in one of them: what was learnt before is saved all the same. */
static void sigterm_among_updates_without_targets_saves(void **state)
{
    (void)state;
    struct plan p;
    open_plan(&p, 0, SIGTERM);
    p.after_lines = 3;
    p.sets[p.n_sets++] = "train.global_batch=1";
    p.sets[p.n_sets++] = "data.shuffle=no";
    p.sets[p.n_sets++] = "data.dedupe=no";
    struct ft_buf data = {0}, path = {0}, metrics = {0}, latest = {0};
    struct ft_err err;
    for (int i = 0; i < 3000; i++)
        ft_buf_addf(&data, "{\"input_ids\": [%d, 2, 3, 4], \"labels\": [-100, -100, -100, %d]}\n", i % 100 + 5, i < 3 ? 4 : -100);
    ft_buf_addf(&path, "%s/train.jsonl", p.dir);
    assert_int_equal(ft_write_file(path.data, data.data, data.n, 0600, &err), FT_OK);
    struct ranks r = {.n = 1, .run = one_rank, .arg = &p, .limit_s = 60};
    ranks_run(&r);
    assert_false(r.late[0]);
    assert_int_equal(r.status[0], 143 << 8);
    ft_buf_clear(&path);
    ft_buf_addf(&path, "%s/metrics.jsonl", p.dir);
    assert_int_equal(ft_read_file(path.data, 1 << 24, &metrics, &err), FT_OK);
    ft_buf_clear(&path);
    ft_buf_addf(&path, "%s/checkpoints/LATEST", p.dir);
    if (ft_read_file(path.data, 1 << 10, &latest, &err)) fail_msg("%s", err.text);
    long long last = 0;
    for (const char *at = metrics.data; (at = strstr(at, "{\"step\":")); at += 8) last = atoll(at + 8);
    char name[32];
    (void)snprintf(name, sizeof name, "step_%08lld\n", last);
    assert_true(last >= 3);
    assert_string_equal(latest.data, name);
    ft_buf_fini(&data);
    ft_buf_fini(&path);
    ft_buf_fini(&metrics);
    ft_buf_fini(&latest);
    remove_tree(p.dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sigterm_of_any_rank_ends_all_with_143),
        cmocka_unit_test(r1_a_killed_rank_is_named_by_the_others),
        cmocka_unit_test(sigterm_of_any_stage_ends_all_with_143),
        cmocka_unit_test(sigterm_among_updates_without_targets_saves),
        cmocka_unit_test(a_stopped_rank_is_missed_within_the_deadline),
        cmocka_unit_test(ranks_with_different_jobs_are_refused),
        cmocka_unit_test(one_refused_rank_ends_all_before_the_first_update),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
