/* Saving and loading over layouts, what must agree, choosing, retention, locks. */
#include "drive.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "runtime/ckpt/manifest.h"

static uint64_t state_hash(const char *dir, const char *name)
{
    char path[512];
    struct ft_buf text = {0};
    struct ft_manifest *m = NULL;
    struct ft_err err;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (ft_manifest_read(path, &text, &err) || ft_manifest_parse(path, text.data, text.n, &m, &err)) fail_msg("%s", err.text);
    const uint64_t h = m->state_hash;
    ft_manifest_destroy(m);
    ft_buf_fini(&text);
    return h;
}

/* d = 2 -> 3 -> 4 -> 8 (ranks without anything) -> 1, bitwise, in both kinds of precision. */
static void test_RT05_odd_shards(void **state)
{
    (void)state;
    static const int data[] = {2, 3, 4, 8, 1};
    for (int precision = 0; precision < 2; precision++) {
        char *dir = make_dir();
        struct ranks r;
        for (int i = 0; i < 5; i++) {
            struct job j = {.dir = dir, .run_id = "run-a", .precision = (enum ft_ckpt_precision)precision, .saves = {i + 1}};
            drive(&j, data[i], &r);
            went_well(&r, i);
        }
        assert_non_null(strstr(r.text[0], "resumed step 4 (saved tp=1 pp=1 dp=8, now tp=1 pp=1 dp=1): 15 tensors"));
        assert_non_null(strstr(r.text[0], "changed since checkpoint: data 8 -> 1"));
        char names[512];
        list_dir(dir, names, sizeof names);
        assert_string_equal(names, "LATEST step_00000004 step_00000005");
        remove_dir(dir);
    }
}

/* Tensor shards: rows, columns, a padded vocabulary, a replicated norm. (t,d) = (2,1) (1,2) (2,2) (4,1) (1,1) (4,2). */
static void test_RT06_RT07_tensor_shards(void **state)
{
    (void)state;
    static const struct {
        int tensor, world;
    } layouts[] = {{2, 2}, {1, 2}, {2, 4}, {4, 4}, {1, 1}, {4, 8}};
    char *dir = make_dir(), *other = make_dir();
    struct ranks r;
    for (int i = 0; i < 6; i++) {
        struct job j = {.dir = dir,
                        .run_id = "run-a",
                        .precision = FT_CKPT_BF16,
                        .layout = {.tensor = layouts[i].tensor},
                        .saves = {i + 1},
                        .values = 9};
        drive(&j, layouts[i].world, &r);
        went_well(&r, i);
    }
    struct job whole = {.dir = other, .run_id = "run-b", .precision = FT_CKPT_BF16, .saves = {9}};
    drive(&whole, 1, &r);
    went_well(&r, 0);
    assert_true(state_hash(other, "step_00000009") == state_hash(dir, "step_00000006"));
    assert_true(state_hash(other, "step_00000009") == state_hash(dir, "step_00000005"));
    size_t n;
    char path[600];
    snprintf(path, sizeof path, "%s/step_00000006", dir);
    char *text = slurp(path, "manifest.json", &n);
    assert_non_null(strstr(text, "\"name\":\"model.embed_tokens.weight\",\"dtype\":\"BF16\",\"shape\":[101,6]")); /* never padded */
    free(text);
    remove_dir(dir);
    remove_dir(other);
}

/* The same values at any layout have the same hash; a second save after a load too. */
static void test_same_state_hash(void **state)
{
    (void)state;
    char *a = make_dir(), *b = make_dir();
    struct ranks r;
    struct job j = {.dir = a, .run_id = "run-a", .precision = FT_CKPT_BF16, .saves = {5}};
    drive(&j, 1, &r);
    went_well(&r, 0);
    j.dir = b;
    drive(&j, 3, &r);
    went_well(&r, 0);
    assert_true(state_hash(a, "step_00000005") == state_hash(b, "step_00000005"));
    struct job again = {.dir = b, .run_id = "run-b", .precision = FT_CKPT_BF16, .saves = {6}, .values = 5};
    drive(&again, 2, &r);
    went_well(&r, 5);
    assert_true(state_hash(a, "step_00000005") == state_hash(b, "step_00000006"));
    remove_dir(a);
    remove_dir(b);
}

static void vocab(struct fake *f) { f->maths[0].json = "300"; }
static void theta(struct fake *f) { f->maths[1].json = "500000"; }
static void kv_heads(struct fake *f) { f->maths[2].json = "4"; }
static void eps(struct fake *f) { f->maths[3].json = "1e-05"; }
static void method(struct fake *f) { f->run.method = "lora"; }
static void betas(struct fake *f) { f->run.beta1 = 0.8; }
static void many(struct fake *f)
{
    f->run.hi = 5e-4;
    f->run.n = 200;
}
static void many_accepted(struct fake *f)
{
    many(f);
    f->accept[0] = "train.lr";
    f->accept[1] = "train.epochs";
    f->o.n_accept = 2;
}
static void new_data(struct fake *f)
{
    f->run.data_fingerprint = "123456";
    f->accept[0] = "data";
    f->o.n_accept = 1;
}
static void free_things(struct fake *f)
{
    f->run.order = "tp-pp-dp";
    f->run.backend = "cuda";
}
static void to_bf16(struct fake *f)
{
    f->accept[0] = "model.precision";
    f->o.n_accept = 1;
}

static void test_what_must_agree(void **state)
{
    (void)state;
    char *dir = make_dir();
    struct ranks r;
    struct job first = {.dir = dir, .run_id = "run-a", .saves = {1, 2}};
    drive(&first, 2, &r);
    went_well(&r, 0);
    const struct {
        void (*change)(struct fake *f);
        const char *text;
    } rows[] = {{vocab, "cannot resume from 'step_00000002': vocab_size is 300, checkpoint has 37"},
                {theta, "rope_theta is 500000, checkpoint has 10000"},
                {kv_heads, "num_key_value_heads is 4, checkpoint has 2"},
                {eps, "rms_norm_eps is 1e-05, checkpoint has 1e-06"},
                {method, "train.method is lora, checkpoint has full"},
                {betas, "train.beta1 is 0.8, checkpoint has 0.9"},
                {many, "train.steps is 200, checkpoint has 100; train.lr is 0.0005, checkpoint has 0.001"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct job j = {.dir = dir, .run_id = "run-b", .change = rows[i].change};
        drive(&j, 2, &r);
        refused(&r, FT_CONFIG, rows[i].text);
        assert_null(strstr(r.text[0], "passed over"));
    }
    struct job lists = {.dir = dir, .run_id = "run-b", .change = many};
    drive(&lists, 1, &r);
    refused(&r, FT_CONFIG, "[checkpoint] accept = train.steps, train.lr");
    struct job accepted = {.dir = dir, .run_id = "run-b", .change = many_accepted};
    drive(&accepted, 2, &r);
    went_well(&r, 2);
    assert_non_null(strstr(r.text[0], "train.steps 100 -> 200, train.lr 0.001 -> 0.0005"));
    struct job data = {.dir = dir, .run_id = "run-b", .change = new_data};
    drive(&data, 2, &r);
    went_well(&r, 2);
    assert_non_null(strstr(r.text[1], "fresh position"));
    struct job liberty = {.dir = dir, .run_id = "run-b", .change = free_things};
    drive(&liberty, 2, &r);
    went_well(&r, 2);
    /* fp32 weights become bf16's masters when accepted, and back */
    struct job other = {.dir = dir, .run_id = "run-b", .precision = FT_CKPT_BF16, .saves = {3}};
    drive(&other, 2, &r);
    refused(&r, FT_CONFIG, "model.precision is bf16, checkpoint has fp32");
    other.change = to_bf16;
    drive(&other, 2, &r);
    went_well(&r, 2);
    other.precision = FT_CKPT_FP32;
    other.saves[0] = 0;
    drive(&other, 3, &r);
    went_well(&r, 3);
    remove_dir(dir);
}

static void test_choosing(void **state)
{
    (void)state;
    char *dir = make_dir(), path[600];
    struct ranks r;
    struct job a = {.dir = dir, .run_id = "run-a", .saves = {1, 2, 3}, .keep = -1};
    drive(&a, 2, &r);
    went_well(&r, 0);
    struct job step = {.dir = dir, .run_id = "run-b", .resume = "2"};
    drive(&step, 2, &r);
    went_well(&r, 2);
    step.resume = "7";
    drive(&step, 2, &r);
    refused(&r, FT_CONFIG, "there is no checkpoint of step 7");
    snprintf(path, sizeof path, "%s/step_00000001", dir);
    step.resume = path;
    drive(&step, 1, &r);
    went_well(&r, 1);
    step.resume = "/nowhere/step_00000001";
    drive(&step, 1, &r);
    refused(&r, FT_CONFIG, "no such folder");
    /* a branch: from 1 on again to 2; then auto goes on with that one, not with the later 3 of the branch that was left */
    struct job branch = {.dir = dir, .run_id = "run-b", .resume = "1", .saves = {2}, .keep = -1};
    drive(&branch, 2, &r);
    went_well(&r, 1);
    struct job next = {.dir = dir, .run_id = "run-c"};
    drive(&next, 2, &r);
    went_well(&r, 2);
    /* another lineage in the same folder */
    struct job never = {.dir = dir, .run_id = "run-d", .resume = "never", .saves = {2}, .keep = -1};
    drive(&never, 2, &r);
    went_well(&r, 0);
    char names[512];
    list_dir(dir, names, sizeof names);
    assert_string_equal(names, "LATEST step_00000001 step_00000002 step_00000002-run-d step_00000003");
    drive(&next, 2, &r);
    went_well(&r, 2); /* LATEST speaks of run-d */
    snprintf(path, sizeof path, "%s/LATEST", dir);
    assert_int_equal(unlink(path), 0);
    drive(&next, 2, &r);
    refused(&r, FT_CONFIG,
            "checkpoints of several runs and no LATEST that says which one goes on: run-a (step_00000001), run-d "
            "(step_00000002-run-d)");
    remove_dir(dir);
}

static void test_retention(void **state)
{
    (void)state;
    char *dir = make_dir(), names[512];
    struct ranks r;
    struct job stale = {.dir = dir, .run_id = "old-run", .saves = {9000}};
    drive(&stale, 1, &r);
    went_well(&r, 0);
    struct job a = {.dir = dir, .run_id = "run-a", .resume = "never", .saves = {1, 2, 3, 4, 5}, .best = 2};
    drive(&a, 2, &r);
    went_well(&r, 0);
    list_dir(dir, names, sizeof names);
    assert_string_equal(names, "BEST LATEST step_00000002 step_00000004 step_00000005 step_00009000");
    struct job b = {.dir = dir, .run_id = "run-b", .resume = "4", .saves = {6, 7, 8}, .keep = 1};
    drive(&b, 2, &r);
    went_well(&r, 4);
    list_dir(dir, names, sizeof names); /* the one resumed from stays, BEST stays, the stale one is none of ours */
    assert_string_equal(names, "BEST LATEST step_00000002 step_00000004 step_00000008 step_00009000");
    remove_dir(dir);
}

/* Saving a step again, and what a killed run leaves behind. */
static void test_leftovers(void **state)
{
    (void)state;
    char *dir = make_dir(), names[512], a[600], b[600];
    struct ranks r;
    struct job j = {.dir = dir, .run_id = "run-a", .saves = {1, 2}};
    drive(&j, 2, &r);
    went_well(&r, 0);
    struct job again = {.dir = dir, .run_id = "run-a", .resume = "1", .saves = {2}};
    drive(&again, 2, &r);
    went_well(&r, 1);
    list_dir(dir, names, sizeof names);
    assert_string_equal(names, "LATEST step_00000001 step_00000002");
    snprintf(a, sizeof a, "%s/step_00000002", dir);
    snprintf(b, sizeof b, "%s/.old-step_00000002-run-a", dir);
    assert_int_equal(rename(a, b), 0); /* killed between setting aside and publishing */
    snprintf(a, sizeof a, "%s/.tmp-step_00000003-run-a", dir);
    assert_int_equal(mkdir(a, 0700), 0);
    spill(a, "w-00000-of-00002.safetensors", "half", 4);
    snprintf(a, sizeof a, "%s/.del-step_00000000-run-a", dir);
    assert_int_equal(mkdir(a, 0700), 0);
    snprintf(a, sizeof a, "%s/.tmp-mine", dir); /* not of our patterns: stays */
    assert_int_equal(mkdir(a, 0700), 0);
    struct job next = {.dir = dir, .run_id = "run-b"};
    drive(&next, 2, &r);
    went_well(&r, 2);
    list_dir(dir, names, sizeof names);
    assert_string_equal(names, ".tmp-mine LATEST step_00000001 step_00000002");
    remove_dir(dir);
}

static void test_locks(void **state)
{
    (void)state;
    char *dir = make_dir(), names[512];
    struct ranks r;
    struct job j = {.dir = dir, .run_id = "run-b", .saves = {1}};
    /* the lock of a process that lives (this one), of another run */
    char host[256], text[1024];
    struct ft_buf boot = {0};
    gethostname(host, sizeof host);
    struct ft_err err;
    assert_int_equal(ft_read_file("/proc/sys/kernel/random/boot_id", 100, &boot, &err), 0);
    boot.data[boot.n - 1] = 0;
    const int n = snprintf(text, sizeof text,
                           "{\"run_id\":\"run-a\",\"lineage\":\"run-a\",\"host\":\"%s\",\"pid\":%d,\"boot_id\":\"%s\",\"since\":"
                           "\"2026-11-30T10:00:00.000Z\"}\n",
                           host, (int)getpid(), boot.data);
    spill(dir, "LOCK", text, (size_t)n);
    drive(&j, 2, &r);
    snprintf(names, sizeof names, "run run-a on %s (pid %d, since 2026-11-30T10:00:00.000Z, last sign of life ", host,
             (int)getpid());
    refused(&r, FT_CONFIG, names);
    /* the same run again: a restart */
    struct job same = {.dir = dir, .run_id = "run-a", .saves = {1}};
    drive(&same, 2, &r);
    went_well(&r, 0);
    list_dir(dir, names, sizeof names);
    assert_string_equal(names, "LATEST step_00000001"); /* gone at a clean end */
    /* a process that has ended */
    const pid_t dead = fork();
    if (dead == 0) _exit(0);
    waitpid(dead, NULL, 0);
    const int m = snprintf(text, sizeof text,
                           "{\"run_id\":\"run-x\",\"host\":\"%s\",\"pid\":%d,\"boot_id\":\"%s\",\"since\":\"s\"}\n", host,
                           (int)dead, boot.data);
    spill(dir, "LOCK", text, (size_t)m);
    drive(&j, 2, &r);
    went_well(&r, 1);
    assert_non_null(strstr(r.text[0], "took over LOCK of run run-x"));
    /* another machine: never broken, whatever its age */
    const int k = snprintf(text, sizeof text,
                           "{\"run_id\":\"run-x\",\"host\":\"gpu99\",\"pid\":1,\"boot_id\":\"b\",\"since\":\"s\"}\n");
    spill(dir, "LOCK", text, (size_t)k);
    drive(&j, 1, &r);
    refused(&r, FT_CONFIG, "run run-x on gpu99 (pid 1, since s");
    ft_buf_fini(&boot);
    remove_dir(dir);
}

static void test_bad_target(void **state)
{
    (void)state;
    char *dir = make_dir(), path[600];
    struct ranks r;
    spill(dir, "file", "x", 1);
    snprintf(path, sizeof path, "%s/file/checkpoints", dir);
    struct job j = {.dir = path, .run_id = "run-a", .saves = {1}};
    drive(&j, 2, &r);
    refused(&r, FT_IO, "is no folder");
    j.dir = dir;
    j.run_id = "../x";
    drive(&j, 1, &r);
    refused(&r, FT_CONFIG, "run id '../x'");
    remove_dir(dir);
}

static void poison(struct fake *f, int rank, int world)
{
    if (f->buckets.n_pieces && rank == world - 1) f->pieces[0].m[1] = (float)NAN;
}

static void test_nan_is_not_saved(void **state)
{
    (void)state;
    char *dir = make_dir(), names[512];
    struct ranks r;
    struct job j = {.dir = dir, .run_id = "run-a", .saves = {1}};
    drive(&j, 2, &r);
    went_well(&r, 0);
    struct job bad = {.dir = dir, .run_id = "run-b", .saves = {2}, .spoil = poison};
    drive(&bad, 2, &r);
    refused(&r, FT_DATA, "step 2 is not saved: 1 values are not finite, the first in optim.m/");
    list_dir(dir, names, sizeof names);
    assert_string_equal(names, "LATEST step_00000001");
    remove_dir(dir);
}

/* Two runs, one folder: the second one refuses while the first one lives. */
struct two {
    const char *dir;
    struct gate opened, refused;
};

static int two_runs(const struct ft_place *place, void *arg)
{
    const struct two *two = arg;
    struct ft_err err = {0};
    struct fake f;
    struct ft_ckpt *c = NULL;
    struct ft_place alone = *place;
    alone.rank = 0;
    alone.world = 1;
    if (fake_begin(&f, &alone, two->dir, place->rank ? "run-b" : "run-a", FT_CKPT_FP32, &(struct fake_layout){0}, &err)) return 9;
    if (place->rank) gate_wait(&two->opened, 1);
    const enum ft_code rc = ft_ckpt_open(&f.o, &c, &err);
    if (rc) say_err(rc, &err);
    gate_pass(place->rank ? &two->refused : &two->opened);
    if (!place->rank) gate_wait(&two->refused, 1);
    ft_ckpt_close(c);
    fake_end(&f);
    return rc ? 10 + (int)rc : 0;
}

static void test_two_runs(void **state)
{
    (void)state;
    char *dir = make_dir();
    struct two two = {.dir = dir};
    struct ranks r = {.n = 2, .run = two_runs, .arg = &two, .limit_s = 120};
    gate_open(&two.opened, NULL);
    gate_open(&two.refused, NULL);
    ranks_run(&r);
    gate_close(&two.opened);
    gate_close(&two.refused);
    assert_int_equal(r.status[0], 0);
    assert_int_equal(WEXITSTATUS(r.status[1]), 10 + FT_CONFIG);
    assert_non_null(strstr(r.text[1], "run run-a on "));
    remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_RT05_odd_shards), cmocka_unit_test(test_RT06_RT07_tensor_shards),
        cmocka_unit_test(test_same_state_hash), cmocka_unit_test(test_what_must_agree),
        cmocka_unit_test(test_choosing),        cmocka_unit_test(test_retention),
        cmocka_unit_test(test_leftovers),       cmocka_unit_test(test_locks),
        cmocka_unit_test(test_bad_target),      cmocka_unit_test(test_nan_is_not_saved),
        cmocka_unit_test(test_two_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
