/* Saving and loading a checkpoint beside cp on the same disk: bench_ckpt DIR [MILLION PARAMETERS] [RUNS] [RANKS] [data|tensor]. fp32: 12
 * bytes a parameter, cut over the ranks as the distributed optimizer or as tensor shards. Save: from the call to published, against one
 * cp for each of the same files, all at once, into the same file system and `sync -f`. Load: until verified, against such cps to
 * /dev/shm. The files that are read are in the page cache for both. What was written before is removed outside the time of both.
 * Alternating runs; medians and ratios are printed. Last: what an update waits for a save beside it, against memcpy of the same bytes. */
#include <spawn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "runtime/ckpt/ckpt.h"
#include "runtime/coll/comm.h"
#include "topology/place.h"

extern char **environ;

enum { N_PARAMS = 24, COLUMNS = 1024, MAX_RUNS = 99, MAX_RANKS = 16 };

struct bench {
    int rank, ranks, tensor; /* tensor: ranks that cut rows; the others are data ranks */
    struct ft_comm *comm;
    int64_t held; /* floats of this rank */
    struct ft_param params[N_PARAMS], model[N_PARAMS];
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

/* Tensor ranks have rows of their own, data ranks a range of every parameter. */
static void fill(struct bench *b, int64_t parameters)
{
    const int64_t rows = parameters / N_PARAMS / COLUMNS / b->tensor * b->tensor, mine = rows / b->tensor * COLUMNS;
    const int data = b->ranks / b->tensor, part = b->tensor > 1 ? 0 : b->rank;
    const int64_t from = mine * part / data, to = mine * (part + 1) / data, n = to - from;
    for (int i = 0; i < N_PARAMS; i++) {
        snprintf(b->names[i], sizeof b->names[i], "layers.%d.weight", i);
        b->model[i] = b->params[i] = (struct ft_param){
            .name = b->names[i], .n_dims = 2, .dims = {rows, COLUMNS}, .local = {rows, COLUMNS}, .shard = FT_SHARD_DIM0};
        b->params[i].local[0] = rows / b->tensor;
        b->params[i].origin[0] = b->tensor > 1 ? rows / b->tensor * b->rank : 0;
        float *x = ft_xcalloc((size_t)(3 * n) + 1, sizeof *x);
        for (int64_t j = 0; j < 3 * n; j++) x[j] = (float)((j * 2654435761) % 1000003) * 1e-6f;
        b->pieces[i] = (struct ft_ckpt_piece){.param = (size_t)i, .from = from, .to = to, .master = x, .m = x + n, .v = x + 2 * n};
    }
    b->held = 3 * n * N_PARAMS;
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

/* Everybody is here: seconds since it was so the last time. */
static double together(struct bench *b, double since)
{
    struct ft_err err;
    check(ft_comm_barrier(b->comm, FT_GROUP_WORLD, &err), &err);
    return now() - since;
}

static struct ft_ckpt *open_at(struct bench *b, const char *resume)
{
    struct ft_err err;
    struct ft_ckpt *c;
    b->o.resume = resume;
    check(ft_ckpt_open(&b->o, &c, &err), &err);
    (void)together(b, 0);
    return c;
}

static double save_step(struct bench *b, int step)
{
    struct ft_err err;
    const struct ft_ckpt_scalars s = {.step = step};
    struct ft_ckpt *c = open_at(b, "never");
    const double start = now();
    check(ft_ckpt_save(c, b->pieces, N_PARAMS, &s, false, &err), &err);
    const double t = together(b, start);
    ft_ckpt_close(c);
    return t;
}

/* The longest of all ranks' times. */
static double longest(struct bench *b, double t)
{
    struct ft_err err;
    check(ft_comm_all_reduce(b->comm, FT_GROUP_WORLD, &t, 1, FT_F64, FT_MAX, &err), &err);
    return t;
}

/* What the update behind it waits for; *copied: memcpy of the same bytes to the same place. */
static double begin_step(struct bench *b, int step, double *copied)
{
    struct ft_err err;
    const struct ft_ckpt_scalars s = {.step = step};
    struct ft_ckpt *c = open_at(b, "never");
    float *to = b->o.copy;
    (void)together(b, 0);
    double start = now();
    for (int i = 0; i < N_PARAMS; i++) {
        const int64_t n = 3 * (b->pieces[i].to - b->pieces[i].from);
        memcpy(to, b->pieces[i].master, (size_t)n * sizeof *to);
        to += n;
    }
    *copied = longest(b, now() - start);
    start = now();
    check(ft_ckpt_begin(c, b->pieces, N_PARAMS, &s, false, &err), &err);
    const double t = longest(b, now() - start);
    check(ft_ckpt_drain(c, &err), &err);
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
    struct ft_ckpt_scalars s;
    char text[24];
    int64_t got;
    bool fresh;
    snprintf(text, sizeof text, "%d", step);
    struct ft_ckpt *c = open_at(b, text);
    if (b->rank == 0) warm(b, step);
    (void)together(b, 0);
    const double start = now();
    check(ft_ckpt_resume(c, b->pieces, N_PARAMS, &s, &got, &fresh, &err), &err);
    const double t = together(b, start);
    ft_ckpt_close(c);
    return t;
}

/* One cp for each file of the step, all at once, to a folder of the name; then a command. Rank 0 does it, the others wait. */
static double copy_step(struct bench *b, int step, const char *to, const char *then)
{
    char script[8192];
    double t = 0;
    if (b->rank == 0) {
        snprintf(script, sizeof script,
                 "mkdir '%s' || exit 1; all=; for f in '%s/step_%08d'/*; do cp \"$f\" '%s' & all=\"$all $!\"; done; for p in $all; "
                 "do wait $p || exit 1; done; %s",
                 to, b->o.dir, step, to, then);
        warm(b, step);
        t = timed(script);
        snprintf(script, sizeof script, "rm -rf '%s'", to);
        shell(script);
    }
    (void)together(b, 0);
    return t;
}

static double cp_to_disk(struct bench *b, int step)
{
    char to[2048], then[4096];
    snprintf(to, sizeof to, "%s/copy", b->o.dir);
    snprintf(then, sizeof then, "sync -f '%s'", to);
    return copy_step(b, step, to, then);
}

static double cp_to_memory(struct bench *b, int step)
{
    char to[64];
    snprintf(to, sizeof to, "/dev/shm/bench-ckpt-%d", (int)getpid());
    return copy_step(b, step, to, ":");
}

static void remove_step(struct bench *b, const char *what)
{
    char script[4096];
    snprintf(script, sizeof script, "rm -rf '%s'/%s", b->o.dir, what);
    if (b->rank == 0) shell(script);
    (void)together(b, 0);
}

static void measure(struct bench *b, int runs, double gb)
{
    static double save[MAX_RUNS], copy[MAX_RUNS], load[MAX_RUNS], read[MAX_RUNS], begin[MAX_RUNS], moved[MAX_RUNS];
    char name[32];
    save_step(b, 1); /* not counted: memory that the system has never touched is slow */
    for (int i = 0; i < runs; i++) {
        for (int k = 0; k < 2; k++) /* who comes first changes from run to run */
            if (k == i % 2) save[i] = save_step(b, i + 2);
            else copy[i] = cp_to_disk(b, k ? i + 2 : i + 1);
        for (int k = 0; k < 2; k++)
            if (k == i % 2) load[i] = load_step(b, i + 2);
            else read[i] = cp_to_memory(b, i + 2);
        snprintf(name, sizeof name, "step_%08d", i + 1);
        remove_step(b, name);
    }
    b->o.copy = ft_xcalloc((size_t)b->held + 1, sizeof(float));
    for (int i = 0; i < runs + 1; i++) { /* the first one touches the copy */
        begin[i ? i - 1 : 0] = begin_step(b, runs + 2 + i, &moved[i ? i - 1 : 0]);
        snprintf(name, sizeof name, "step_%08d", runs + 1 + i);
        remove_step(b, name);
    }
    free(b->o.copy);
    remove_step(b, "step_*");
    remove_step(b, "LATEST");
    const double s = median(save, runs), k = median(copy, runs), l = median(load, runs), r = median(read, runs),
                 w = median(begin, runs), c = median(moved, runs);
    if (b->rank) return;
    printf("%d ranks, %s\n", b->ranks, b->tensor > 1 ? "tensor shards" : "data shards");
    printf("save  %.2f s (%.2f GB/s)   cp and sync  %.2f s (%.2f GB/s)   ratio %.2f (goal 0.80)\n", s, gb / s, k, gb / k, k / s);
    printf("load  %.2f s (%.2f GB/s)   cp to tmpfs  %.2f s (%.2f GB/s)   ratio %.2f (goal 0.80)\n", l, gb / l, r, gb / r, r / l);
    printf("wait  %.2f s (%.2f GB/s)   memcpy       %.2f s (%.2f GB/s)   ratio %.2f (async; at most 1.20)\n", w, gb / w, c, gb / c,
           w / c);
}

static void run(int rank, int ranks, bool tensor, int port, const char *dir, int64_t million, int runs)
{
    static struct bench b;
    struct ft_err err;
    const int t = tensor ? ranks : 1;
    const struct ft_place place = {
        .rank = rank, .world = ranks, .local_rank = rank, .local_world = ranks, .master_addr = "127.0.0.1", .master_port = port};
    const struct ft_comm_options co = {.engine = "auto"};
    const struct ft_ckpt_fact fact = {"x", "1"};
    b.rank = rank;
    b.ranks = ranks;
    b.tensor = t;
    check(ft_comm_open(&place, ft_mesh_make(t, 1, ranks / t, 1), &co, &b.comm, &err), &err);
    fill(&b, million * 1000000);
    b.run = (struct ft_ckpt_run){.run_id = "bench",
                                 .backend = "cpu",
                                 .tensor = t,
                                 .pipeline = 1,
                                 .data = ranks / t,
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
    b.o = (struct ft_ckpt_options){.dir = dir,
                                   .keep = 0,
                                   .comm = b.comm,
                                   .run = &b.run,
                                   .model = b.model,
                                   .n_model = N_PARAMS,
                                   .params = b.params,
                                   .n_params = N_PARAMS,
                                   .tensor_rank = tensor ? rank : 0};
    measure(&b, runs, (double)million * 12e6 / 1e9);
    for (int i = 0; i < N_PARAMS; i++) free(b.pieces[i].master);
    ft_comm_close(b.comm);
}

int main(int argc, char **argv)
{
    const int64_t million = argc > 2 ? strtoll(argv[2], NULL, 10) : 350;
    const long asked = argc > 3 ? strtol(argv[3], NULL, 10) : 5, ranks = argc > 4 ? strtol(argv[4], NULL, 10) : 1;
    const int runs = asked > 0 && asked < MAX_RUNS ? (int)asked : 5, port = 20000 + (int)(getpid() % 9000);
    const bool tensor = argc > 5 && !strcmp(argv[5], "tensor");
    if (argc < 2 || million < 1 || ranks < 1 || ranks > MAX_RANKS) {
        fprintf(stderr, "usage: bench_ckpt DIR [MILLION PARAMETERS] [RUNS] [RANKS] [data|tensor]\n");
        return 2;
    }
    for (int r = 1; r < ranks; r++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            run(r, (int)ranks, tensor, port, argv[1], million, runs);
            return 0;
        }
    run(0, (int)ranks, tensor, port, argv[1], million, runs);
    int bad = 0;
    for (int status; wait(&status) > 0;) bad |= status;
    return bad ? 1 : 0;
}
