/* ftlaunch run: reads, plans, checks, makes the run folder, runs. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "launcher/ask.h"
#include "launcher/cmd/cmd.h"
#include "launcher/head.h"

enum { OPT_RANKS = 1, OPT_CONTINUE, OPT_FIT };

static const struct ft_option options[] = {
    {NULL, 'n', "N", "number of ranks (the world)", OPT_RANKS},
    {"fit", 0, NULL, "lower the batch or choose a method until it fits", OPT_FIT},
    FT_OPTION_SET,
    FT_OPTIONS_SHARED,
};
struct request {
    struct ft_cmd c;
    char **command; /* ftlaunch's own line, for run_start */
    int n_ranks;
    const char *continued;
    struct ft_rundir dir;
    int attempt;
    struct ft_json *facts; /* fttrain's answer; NULL: none */
};

static bool read_options(struct request *q)
{
    const char *value;
    bool fit = false;
    for (int id; (id = ft_cmd_next(&q->c, &value)) > 0;) {
        if (id == OPT_CONTINUE) q->continued = value;
        else if (id == OPT_RANKS) q->n_ranks = ft_cmd_ranks(&q->c, value);
        else fit = true;
    }
    if (fit && !q->c.done) {
        struct ft_err err;
        ft_fail(&err, FT_UNSUPPORTED, "--fit is not built yet");
        ft_fix(&err, "leave out --fit and set [train] micro_batch and method by hand");
        ft_cmd_fail(&q->c, &err);
    }
    return !q->c.done;
}

/* fttrain's own sections, model, data and memory, before anything is started. Relative paths mean the working directory of the
 * ranks: where that is another one, only the sections are looked at here. */
static void ask_fttrain(struct request *q, const struct ft_plan *p)
{
    struct ft_err err = {.code = FT_OK};
    if (!p->n_argv) {
        ft_faults_add(&q->c.faults, FT_SEV_ERROR, (struct ft_source){NULL, 0, 0}, NULL, NULL,
                      "there is no fttrain beside ftlaunch or on PATH, and no program behind '--'");
        return;
    }
    int status = 0;
    const char *workdir = q->c.config->launch.workdir;
    const char *data = ft_arena_printf(q->c.arena, "parallel.data=%d", p->mesh.size[FT_AXIS_DP]);
    struct ft_question ask = {.fttrain = p->argv[0],
                              .word = "check",
                              .files = q->c.words,
                              .n_files = q->c.n_words,
                              .sets = q->c.sets,
                              .n_sets = q->c.n_sets,
                              .more_set = data};
    if (workdir) ask.more[0] = "--shallow";
    if (ft_ask_fttrain(&ask, &q->facts, &status, &err)) {
        ft_faults_add(&q->c.faults, FT_SEV_ERROR, (struct ft_source){NULL, 0, 0}, NULL, NULL, "%s", err.text);
        return;
    }
    ft_ask_take_faults(q->facts, &q->c.faults);
}

/* Names a program of the run folder when neither the cluster nor a file has a name. */
static const char *job_name(const struct request *q, const struct ft_plan *p)
{
    const struct ft_launcher_config *c = q->c.config;
    if (c->cluster.name || q->c.job_name) return p->name;
    return p->n_argv ? p->argv[0] : p->name;
}

static enum ft_code write_folder(struct request *q, const struct ft_plan *p, struct ft_err *err)
{
    struct ft_buf b = {0};
    char *cwd = realpath(".", NULL);
    ft_plan_write_job(p, cwd, ft_json_get(ft_json_get(q->facts, "facts"), "resolved"), &b);
    free(cwd);
    enum ft_code c = ft_rundir_write(&q->dir, "job.ini", &b, err);
    ft_buf_clear(&b);
    ft_plan_write_json(p, &b);
    if (!c) c = ft_rundir_write(&q->dir, "plan.json", &b, err);
    ft_buf_fini(&b);
    return c;
}

/* launch.log gets every line; the console is the head's alone while it runs. */
static int open_log(struct request *q)
{
    int fd = open(ft_rundir_file(&q->dir, "launch.log", q->c.arena), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct ft_log_sink s = ft_log_get();
    s.fd = -1;
    s.also_fd = fd;
    ft_log_set(s);
    return fd;
}

static int start(struct request *q, const struct ft_plan *p)
{
    struct ft_err err = {.code = FT_OK};
    struct ft_buf self = {0};
    enum ft_code c = ft_self_dir(&self, &err);
    if (!c && !q->dir.path) c = ft_rundir_create(q->c.config->launch.run_dir, job_name(q, p), q->c.arena, &q->dir, &err);
    if (!c) c = write_folder(q, p, &err);
    if (c) {
        ft_cmd_fail(&q->c, &err);
        ft_buf_fini(&self);
        return q->c.status;
    }
    struct ft_log_sink before = ft_log_get();
    int log = open_log(q);
    struct ft_head_request r = {.plan = p,
                                .argv = p->argv,
                                .dir = q->dir,
                                .attempt = q->attempt,
                                .command = q->command,
                                .verbose = q->c.verbose,
                                .program_dir = self.data};
    int status = ft_head_run(&r, q->c.arena);
    ft_log_set(before);
    ft_close(&log);
    ft_buf_fini(&self);
    return status;
}

static int run(const struct ft_command *self, int argc, char **argv)
{
    struct request q = {.command = argv};
    ft_cmd_begin(&q.c, self, argc, argv);
    if (!read_options(&q) || !ft_cmd_read_job(&q.c)) return ft_cmd_end(&q.c);
    const struct ft_plan *p = ft_cmd_make_plan(&q.c, q.n_ranks);
    if (p && p->is_fttrain) ask_fttrain(&q, p);
    ft_cmd_print_faults(&q.c);
    if (p && !q.c.faults.n_errors) q.c.status = start(&q, p);
    else q.c.status = 2;
    ft_json_destroy(q.facts);
    return ft_cmd_end(&q.c);
}

static const struct ft_command command = {
    .name = "run",
    .usage = "[JOB.ini…] [--set SECTION.KEY=VALUE]… [-n N] [-- PROGRAM ARGS…]",
    .summary = "start the ranks of a job, watch them, end them together",
    .text =
        "Without PROGRAM the ranks are fttrain. The exit status is 0 when every rank ended with 0, else that of the first rank\n"
        "that failed (128+N for signal N), 124 after a hang or a deadline, 125 when an agent was lost, 2 when nothing was started.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .takes_rest = true,
    .main = run,
};
const struct ft_cmd_ops ft_cmd_run = {&command, false};
