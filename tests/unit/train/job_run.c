#include "tests/unit/train/job_run.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "runtime/ckpt/safetensors.h"
#include "runtime/train/cli.h"

static int lines_of(const char *path)
{
    struct ft_buf b = {0};
    int n = 0;
    if (!ft_read_file(path, 1 << 24, &b, NULL))
        for (size_t i = 0; i < b.n; i++) n += b.data[i] == '\n';
    ft_buf_fini(&b);
    return n;
}

pid_t signal_start(const char *dir, int after_lines, int number, int progress)
{
    const pid_t target = getpid(), pid = fork();
    if (pid) return pid;
    char path[256], bytes[256];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != target) _exit(0);
    (void)snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    while (lines_of(path) < after_lines) usleep(2000);
    (void)kill(target, number);
    while (progress >= 0 && read(progress, bytes, sizeof bytes) > 0) continue;
    _exit(0);
}

/* The gate of a writer (FT_FAULT) is opened once so many updates are made. */
static pid_t gate_start(const struct job *j)
{
    const pid_t rank = getpid(), pid = fork();
    if (pid) return pid;
    char path[256];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != rank) _exit(0);
    (void)snprintf(path, sizeof path, "%s/metrics.jsonl", j->dir);
    while (lines_of(path) < j->term_after) usleep(2000);
    (void)snprintf(path, sizeof path, "%s/%s", j->dir, j->absent);
    const bool early = !access(path, F_OK);
    (void)snprintf(path, sizeof path, "%s/early", j->dir);
    const bool marked = !early || !ft_write_file(path, "", 0, 0600, NULL);
    _exit(!marked || write(j->gate_fd, "x", 1) != 1);
}

/* Progress goes into a pipe that takes a few updates: the rank cannot get to its end before the signal. The reading end; *in: the other. */
static int narrow_pipe(int *in)
{
    enum { ROOM = 60 }; /* bytes: some twenty updates */
    int pair[2];
    char fill[4096] = {0};
    if (pipe2(pair, O_CLOEXEC) < 0) _exit(98);
    const int size = fcntl(pair[1], F_SETPIPE_SZ, 4096);
    for (int left = size - ROOM; left > 0;) {
        const ssize_t n = write(pair[1], fill, left < 4096 ? (size_t)left : sizeof fill);
        if (n <= 0) _exit(98);
        left -= (int)n;
    }
    *in = pair[1];
    return pair[0];
}

void signal_end(pid_t pid)
{
    if (pid <= 0) return;
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

static int one_rank(const struct ft_place *place, void *arg)
{
    const struct job *j = arg;
    const bool helped = place->rank == 0 && j->term_after, victim = helped && !j->gate_fd;
    struct ft_place p = *place;
    char path[256], progress[256];
    (void)snprintf(path, sizeof path, "%s/job.ini", j->dir);
    p.run_dir = j->dir;
    const char *words[] = {path}, *sets[MAX_SETS];
    memcpy(sets, j->sets, sizeof sets);
    const struct ft_cli cli = {.words = words, .n_words = 1, .sets = sets, .n_sets = j->n_sets, .quiet = true};
    (void)snprintf(progress, sizeof progress, "%s/progress.%d", j->dir, place->rank);
    const int out = victim ? narrow_pipe(&p.progress_fd) : -1;
    if (!victim) p.progress_fd = open(progress, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const pid_t helper = !helped ? -1 : victim ? signal_start(j->dir, j->term_after, j->term_signal, out) : gate_start(j);
    const int status = ft_train_rank(&cli, &p);
    close(p.progress_fd);
    if (victim) close(out);
    signal_end(helper);
    return status;
}

static uint32_t next(uint32_t *seed) { return (*seed = *seed * 1664525u + 1013904223u) >> 8; }

/* Rows of very different lengths and masks: from one trained token to all of them. */
void write_data(const char *path, int n_rows, uint32_t seed)
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

void open_job(struct job *j, int data, int n_rows, const char *more)
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

void read_metrics(const struct job *j, struct result *x)
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
            x->step[x->n] = ft_json_int(ft_json_get(v, "step"), -1);
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

void run_job(struct job *j, struct result *x)
{
    memset(x, 0, sizeof *x);
    struct ranks r = {.n = j->data, .run = one_rank, .arg = j, .limit_s = 100};
    ranks_run(&r);
    memcpy(x->status, r.status, sizeof x->status);
}

void run_good(struct job *j, struct result *x)
{
    run_job(j, x);
    for (int i = 0; i < j->data; i++)
        if (x->status[i]) fail_msg("rank %d of %d ended with %#x", i, j->data, (unsigned)x->status[i]);
    read_metrics(j, x);
    read_weights(j, x);
}

void free_result(struct result *x)
{
    free(x->weights);
    ft_buf_fini(&x->evals);
}

char *text_of(const struct job *j, const char *name)
{
    struct ft_buf b = {0}, path = {0};
    struct ft_err err;
    ft_buf_addf(&path, "%s/%s", j->dir, name);
    if (ft_read_file(ft_buf_str(&path), 1 << 24, &b, &err)) fail_msg("%s", err.text);
    ft_buf_fini(&path);
    ft_buf_reserve(&b, 1);
    b.data[b.n] = 0;
    return b.data;
}

/* Of the checkpoint of a step, as in its manifest, which says that step. */
static void state_hash(const struct job *j, int step, char out[17])
{
    char name[64], want[32];
    (void)snprintf(name, sizeof name, "checkpoints/step_%08d/manifest.json", step);
    (void)snprintf(want, sizeof want, "\"step\":%d,", step);
    char *text = text_of(j, name), *at = strstr(text, "\"state_hash\":\"");
    assert_non_null(at);
    assert_non_null(strstr(text, want));
    memcpy(out, at + 14, 16);
    out[16] = 0;
    free(text);
}

void same_checkpoint(const struct job *a, const struct job *b, int step)
{
    char x[17], y[17];
    state_hash(a, step, x);
    state_hash(b, step, y);
    if (strcmp(x, y) != 0) fail_msg("step %d: state %s and %s", step, x, y);
}

bool near_to(double a, double b) { return fabs(a - b) <= 1e-5 * fmax(fabs(a), fabs(b)); }

bool same_within_tol(const struct result *a, const struct result *b, const char *what)
{
    bool ok = a->n == b->n && a->n_weights == b->n_weights;
    for (int i = 0; ok && i < a->n; i++)
        if (!near_to(a->loss[i], b->loss[i]) || !near_to(a->norm[i], b->norm[i]) || a->rows[i] != b->rows[i] ||
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

bool same_bits(const struct result *a, const struct result *b)
{
    return a->n == b->n && a->n_weights == b->n_weights && !memcmp(a->loss, b->loss, sizeof a->loss) &&
           !memcmp(a->norm, b->norm, sizeof a->norm) && !memcmp(a->weights, b->weights, (size_t)a->n_weights * sizeof *a->weights);
}
