/* Saving and loading a checkpoint beside cp on the same disk: bench_ckpt DIR [MILLION PARAMETERS] [RUNS]. One rank, fp32: 12 bytes a
 * parameter. Save: from the call to published, against `cp -r` of the same files into the same file system and `sync -f`. Load: until
 * verified, against `cp -r` of the files to /dev/shm. The files that are read are in the page cache for both. What was written before is removed outside the time of both. Alternating runs;
 * medians and ratios are printed. */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "runtime/ckpt/ckpt.h"
#include "runtime/coll/comm.h"
#include "topology/place.h"

extern char **environ;

enum { N_PARAMS = 24, COLUMNS = 1024, MAX_RUNS = 99 };

struct bench {
    struct ft_param params[N_PARAMS];
    struct ft_ckpt_piece pieces[N_PARAMS];
    struct ft_ckpt_run run;
    struct ft_ckpt_options o;
    char names[N_PARAMS][32];
};

static double now(void) { return (double)ft_clock_now(ft_clock_real()) / FT_SEC; }

static void shell(const char *script)
{
    char sh[] = "sh", c[] = "-c", *line = ft_xstrdup(script), *argv[] = {sh, c, line, NULL};
    pid_t pid;
    int status = 0;
    if (posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ) || waitpid(pid, &status, 0) != pid || status)
        FT_BUG("failed: %s", script);
    free(line);
}

static double timed(const char *script)
{
    const double start = now();
    shell(script);
    return now() - start;
}

static void fill(struct bench *b, int64_t parameters)
{
    const int64_t rows = parameters / N_PARAMS / COLUMNS, n = rows * COLUMNS;
    for (int i = 0; i < N_PARAMS; i++) {
        snprintf(b->names[i], sizeof b->names[i], "layers.%d.weight", i);
        b->params[i] = (struct ft_param){.name = b->names[i], .n_dims = 2, .dims = {rows, COLUMNS}, .local = {rows, COLUMNS}};
        float *x = ft_xcalloc((size_t)(3 * n), sizeof *x);
        for (int64_t j = 0; j < 3 * n; j++) x[j] = (float)((j * 2654435761) % 1000003) * 1e-6f;
        b->pieces[i] = (struct ft_ckpt_piece){.param = (size_t)i, .from = 0, .to = n, .master = x, .m = x + n, .v = x + 2 * n};
    }
}

static int by_value(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

static void check(enum ft_code rc, const struct ft_err *err)
{
    if (!rc) return;
    ft_err_print(stderr, "bench_ckpt", err);
    _exit(1);
}

static double save_step(struct bench *b, int step)
{
    struct ft_err err;
    struct ft_ckpt *c;
    const struct ft_ckpt_scalars s = {.step = step};
    b->o.resume = "never";
    check(ft_ckpt_open(&b->o, &c, &err), &err);
    const double start = now();
    check(ft_ckpt_save(c, b->pieces, N_PARAMS, &s, false, &err), &err);
    const double t = now() - start;
    ft_ckpt_close(c);
    return t;
}

static void warm(const struct bench *b, int step)
{
    char script[4096];
    snprintf(script, sizeof script, "cat '%s/step_%08d'/* > /dev/null", b->o.dir, step);
    shell(script);
}

static double load_step(struct bench *b, int step)
{
    struct ft_err err;
    struct ft_ckpt *c;
    struct ft_ckpt_scalars s;
    char text[24];
    int64_t got;
    bool fresh;
    snprintf(text, sizeof text, "%d", step);
    b->o.resume = text;
    check(ft_ckpt_open(&b->o, &c, &err), &err);
    warm(b, step);
    const double start = now();
    check(ft_ckpt_resume(c, b->pieces, N_PARAMS, &s, &got, &fresh, &err), &err);
    const double t = now() - start;
    ft_ckpt_close(c);
    return t;
}

static double copy_step(const struct bench *b, int step)
{
    char script[4096];
    snprintf(script, sizeof script, "cp -r '%s/step_%08d' '%s/copy' && sync -f '%s/copy'", b->o.dir, step, b->o.dir, b->o.dir);
    warm(b, step);
    const double t = timed(script);
    snprintf(script, sizeof script, "rm -rf '%s/copy'", b->o.dir);
    shell(script);
    return t;
}

static double read_step(const struct bench *b, int step)
{
    char script[4096];
    snprintf(script, sizeof script, "cp -r '%s/step_%08d' /dev/shm/bench-ckpt-%d", b->o.dir, step, (int)getpid());
    warm(b, step);
    const double t = timed(script);
    snprintf(script, sizeof script, "rm -rf /dev/shm/bench-ckpt-%d", (int)getpid());
    shell(script);
    return t;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: bench_ckpt DIR [MILLION PARAMETERS] [RUNS]\n");
        return 2;
    }
    const int64_t million = argc > 2 ? strtoll(argv[2], NULL, 10) : 350;
    const long asked = argc > 3 ? strtol(argv[3], NULL, 10) : 5;
    const int runs = asked > 0 && asked <= MAX_RUNS ? (int)asked : 5;
    static struct bench b;
    char script[4096];
    static double save[MAX_RUNS], copy[MAX_RUNS], load[MAX_RUNS], read[MAX_RUNS];
    struct ft_err err;
    struct ft_comm *comm;
    const struct ft_place place = {.world = 1};
    const struct ft_comm_options co = {.engine = "auto"};
    const struct ft_ckpt_fact fact = {"x", "1"};
    check(ft_comm_open(&place, ft_mesh_make(1, 1, 1, 1), &co, &comm, &err), &err);
    fill(&b, million * 1000000);
    b.run = (struct ft_ckpt_run){.run_id = "bench",
                                 .backend = "cpu",
                                 .tensor = 1,
                                 .pipeline = 1,
                                 .data = 1,
                                 .virtual_pipeline = 1,
                                 .order = "tp-dp-pp",
                                 .method = "full",
                                 .family = "llama",
                                 .config_json = "{}",
                                 .maths = &fact,
                                 .n_maths = 1,
                                 .schedule = "cosine",
                                 .n = 10,
                                 .data_fingerprint = "0"};
    b.o = (struct ft_ckpt_options){.dir = argv[1],
                                   .keep = 0,
                                   .comm = comm,
                                   .run = &b.run,
                                   .model = b.params,
                                   .n_model = N_PARAMS,
                                   .params = b.params,
                                   .n_params = N_PARAMS};
    save_step(&b, 1); /* not counted: memory that the system has never touched is slow */
    for (int i = 0; i < runs; i++) {
        for (int k = 0; k < 2; k++) /* who comes first changes from run to run */
            if (k == i % 2) save[i] = save_step(&b, i + 2);
            else copy[i] = copy_step(&b, k ? i + 2 : i + 1);
        for (int k = 0; k < 2; k++)
            if (k == i % 2) load[i] = load_step(&b, i + 2);
            else read[i] = read_step(&b, i + 2);
        snprintf(script, sizeof script, "rm -rf '%s/step_%08d'", b.o.dir, i + 1);
        shell(script);
    }
    const double gb = (double)million * 12e6 / 1e9, s = median(save, runs), k = median(copy, runs), l = median(load, runs),
                 r = median(read, runs);
    printf("save  %.2f s (%.2f GB/s)   cp and sync  %.2f s (%.2f GB/s)   ratio %.2f (goal 0.80)\n", s, gb / s, k, gb / k, k / s);
    printf("load  %.2f s (%.2f GB/s)   cp to tmpfs  %.2f s (%.2f GB/s)   ratio %.2f (goal 0.80)\n", l, gb / l, r, gb / r, r / l);
    snprintf(script, sizeof script, "rm -rf '%s/step_%08d' '%s/LATEST'", b.o.dir, runs + 1, b.o.dir);
    shell(script);
    for (int i = 0; i < N_PARAMS; i++) free(b.pieces[i].master);
    ft_comm_close(comm);
    return 0;
}
