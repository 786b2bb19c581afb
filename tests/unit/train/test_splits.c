/* One run at many splits of its batch: losses, norms and weights must not depend on data ranks, micro-batches, accumulation
 * (RT-08, RT-09, RT-10), nor on evaluation; and what one layout does twice is the same to the bit (RT-18). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "runtime/ckpt/safetensors.h"
#include "runtime/train/cli.h"
#include "tests/unit/coll/ranks.h"
#include "tests/unit/train/hf_case.h"

enum { MAX_UPDATES = 64, MAX_SETS = 8 };

struct job {
    char dir[128];
    const char *sets[MAX_SETS];
    size_t n_sets;
    int data;
};

/* What a run left behind. */
struct result {
    int status[RANKS_MAX];
    int n;
    double loss[MAX_UPDATES], norm[MAX_UPDATES];
    int64_t rows[MAX_UPDATES], trained[MAX_UPDATES];
    struct ft_buf evals; /* lines of evaluation */
    float *weights;
    int64_t n_weights;
    char text[4096]; /* what rank 0 said; unused when quiet */
};

static int one_rank(const struct ft_place *place, void *arg)
{
    const struct job *j = arg;
    struct ft_place p = *place;
    char path[256];
    (void)snprintf(path, sizeof path, "%s/job.ini", j->dir);
    p.run_dir = j->dir;
    const char *words[] = {path}, *sets[MAX_SETS];
    memcpy(sets, j->sets, sizeof sets);
    const struct ft_cli cli = {.words = words, .n_words = 1, .sets = sets, .n_sets = j->n_sets, .quiet = true};
    return ft_train_rank(&cli, &p);
}

static uint32_t next(uint32_t *seed) { return (*seed = *seed * 1664525u + 1013904223u) >> 8; }

/* Rows of very different lengths and masks: from one trained token to all of them. */
static void write_data(const char *path, int n_rows, uint32_t seed)
{
    struct ft_buf b = {0};
    struct ft_err err;
    for (int r = 0; r < n_rows; r++) {
        const int n = 3 + (int)(next(&seed) % 28), first = 1 + (r % 3 == 0 ? n - 2 : (int)(next(&seed) % (uint32_t)(n - 1)));
        ft_buf_adds(&b, "{\"input_ids\": [");
        struct ft_buf labels = {0};
        for (int i = 0; i < n; i++) {
            const int id = (int)(next(&seed) % 199u);
            ft_buf_addf(&b, i ? ", %d" : "%d", id);
            ft_buf_addf(&labels, i ? ", %d" : "%d", i >= first ? id : -100);
        }
        ft_buf_addf(&b, "], \"labels\": [%s]}\n", labels.data);
        ft_buf_fini(&labels);
    }
    assert_int_equal(ft_write_file(path, b.data, b.n, 0600, &err), FT_OK);
    ft_buf_fini(&b);
}

static void open_job(struct job *j, int data, int n_rows, const char *more)
{
    memset(j, 0, sizeof *j);
    j->data = data;
    (void)snprintf(j->dir, sizeof j->dir, "/tmp/ft-split-XXXXXX");
    assert_non_null(mkdtemp(j->dir));
    struct ft_buf b = {0}, path = {0};
    struct ft_err err;
    ft_buf_addf(&path, "%s/train.jsonl", j->dir);
    write_data(path.data, n_rows, 5);
    ft_buf_clear(&path);
    ft_buf_addf(&path, "%s/valid.jsonl", j->dir);
    write_data(path.data, 7, 99);
    ft_buf_addf(
        &b,
        "[model]\npath = " FT_GOLDEN "/hf/llama\nprecision = fp32\n[data]\ntrain = %s/train.jsonl\nformat = tokens\npacking = no\n"
        "dedupe = no\nseq_len = 32\n[train]\nglobal_batch = 8\nlr = 1e-3\nwarmup = 2\n%s\n[export]\ndir = %s/out\ndtype = fp32\n",
        j->dir, more, j->dir);
    ft_buf_clear(&path);
    ft_buf_addf(&path, "%s/job.ini", j->dir);
    assert_int_equal(ft_write_file(path.data, b.data, b.n, 0600, &err), FT_OK);
    ft_buf_fini(&b);
    ft_buf_fini(&path);
}

static void read_metrics(const struct job *j, struct result *x)
{
    struct ft_buf path = {0}, text = {0};
    struct ft_err err;
    ft_buf_addf(&path, "%s/metrics.jsonl", j->dir);
    if (ft_read_file(path.data, 1 << 24, &text, &err)) fail_msg("%s", err.text);
    for (char *line = text.data; line && *line;) {
        char *end = strchr(line, '\n');
        assert_non_null(end);
        struct ft_json *v = NULL;
        assert_int_equal(ft_json_parse(line, (size_t)(end - line), 0, &v, NULL, &err), FT_OK);
        if (ft_json_get(v, "lr")) {
            assert_true(x->n < MAX_UPDATES);
            x->loss[x->n] = ft_json_real(ft_json_get(v, "loss"), NAN);
            x->norm[x->n] = ft_json_real(ft_json_get(v, "grad_norm"), NAN);
            x->rows[x->n] = ft_json_int(ft_json_get(v, "rows"), -1);
            x->trained[x->n] = ft_json_int(ft_json_get(v, "trained_tokens"), -1);
            x->n++;
        } else {
            ft_buf_add(&x->evals, line, (size_t)(end - line) + 1);
        }
        ft_json_destroy(v);
        line = end + 1;
    }
    ft_buf_fini(&path);
    ft_buf_fini(&text);
}

static void read_weights(const struct job *j, struct result *x)
{
    char dir[256];
    (void)snprintf(dir, sizeof dir, "%s/out", j->dir);
    struct ft_st_folder *f = NULL;
    struct ft_err err;
    if (ft_st_folder_open(dir, "model", &f, &err)) fail_msg("%s", err.text);
    for (size_t i = 0; i < ft_st_folder_count(f); i++) x->n_weights += ft_st_folder_at(f, i)->count;
    x->weights = calloc((size_t)x->n_weights, sizeof *x->weights);
    int64_t at = 0;
    for (size_t i = 0; i < ft_st_folder_count(f); i++) {
        const struct ft_st_tensor *t = ft_st_folder_at(f, i);
        assert_int_equal(ft_st_read_f32(t, 0, t->count, x->weights + at, &err), FT_OK);
        at += t->count;
    }
    ft_st_folder_close(f);
}

static void run_job(struct job *j, struct result *x)
{
    memset(x, 0, sizeof *x);
    struct ranks r = {.n = j->data, .run = one_rank, .arg = j, .limit_s = 100};
    ranks_run(&r);
    memcpy(x->status, r.status, sizeof x->status);
    memcpy(x->text, r.text[0], sizeof x->text);
}

static void run_good(struct job *j, struct result *x)
{
    run_job(j, x);
    for (int i = 0; i < j->data; i++)
        if (x->status[i]) fail_msg("rank %d of %d ended with %#x", i, j->data, (unsigned)x->status[i]);
    read_metrics(j, x);
    read_weights(j, x);
}

static void free_result(struct result *x)
{
    free(x->weights);
    ft_buf_fini(&x->evals);
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-5 * fmax(fabs(a), fabs(b)); }

static bool same_within_tol(const struct result *a, const struct result *b, const char *what)
{
    bool ok = a->n == b->n && a->n_weights == b->n_weights;
    for (int i = 0; ok && i < a->n; i++)
        if (!near(a->loss[i], b->loss[i]) || !near(a->norm[i], b->norm[i]) || a->rows[i] != b->rows[i] ||
            a->trained[i] != b->trained[i]) {
            print_error("%s: update %d: loss %.9g and %.9g, norm %.9g and %.9g\n", what, i + 1, a->loss[i], b->loss[i], a->norm[i],
                        b->norm[i]);
            ok = false;
        }
    double diff = 0, norm = 0;
    for (int64_t i = 0; ok && i < a->n_weights; i++) {
        diff += ((double)a->weights[i] - b->weights[i]) * ((double)a->weights[i] - b->weights[i]);
        norm += (double)a->weights[i] * a->weights[i];
    }
    if (!ok || sqrt(diff) <= 1e-5 * sqrt(norm)) return ok;
    print_error("%s: weights differ by %.3g of their norm\n", what, sqrt(diff / norm));
    return false;
}

static bool same_bits(const struct result *a, const struct result *b)
{
    return a->n == b->n && a->n_weights == b->n_weights && !memcmp(a->loss, b->loss, sizeof a->loss) &&
           !memcmp(a->norm, b->norm, sizeof a->norm) && !memcmp(a->weights, b->weights, (size_t)a->n_weights * sizeof *a->weights);
}

/* (b, d) of a global batch of 8; 19 rows: the last update of an epoch has 3, so with 8 ranks five have none. */
static void rt08_rt09_loss_norm_and_weights_at_every_split(void **state)
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
        if (!near(a, all) || !near(o, one))
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
    assert_true(near(eval_value(&y, "valid", 0), best));
    free_result(&x);
    free_result(&y);
    remove_tree(j.dir);
    remove_tree(again.dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rt08_rt09_loss_norm_and_weights_at_every_split),
        cmocka_unit_test(rt18_the_same_run_is_the_same_bits_with_and_without_evaluation),
        cmocka_unit_test(rt13_recompute_is_the_same_bits),
        cmocka_unit_test(bf16_stays_near_fp32_and_exports_its_masters),
        cmocka_unit_test(rt09_evaluation_at_every_split),
        cmocka_unit_test(a_loss_that_is_not_finite_stops_with_3),
        cmocka_unit_test(patience_stops_and_the_best_is_exported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
