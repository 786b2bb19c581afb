/* ftlaunch run: reads, plans, checks, makes the run folder, runs. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "launcher/ask.h"
#include "launcher/cmd/cmd.h"
#include "launcher/head.h"
#include "launcher/runs.h"

enum { OPT_RANKS = 1, OPT_CONTINUE, OPT_FIT, OPT_TIMING };

static const struct ft_option options[] = {
    {NULL, 'n', "N", "number of ranks (the world)", OPT_RANKS},
    {"continue", 0, "RUN", "go on with an interrupted run: same id and folder, next attempt", OPT_CONTINUE},
    {"fit", 0, NULL, "change micro_batch and recompute until a rank fits its memory", OPT_FIT},
    {"timing", 0, NULL, "at the end, how long each phase took: median, worst and its node", OPT_TIMING},
    FT_OPTION_SET,
    FT_OPTIONS_SHARED,
};
struct request {
    struct ft_cmd c;
    char **command; /* ftlaunch's own line, for run_start */
    int n_ranks;
    bool fit, timing;
    const char *continued;
    struct ft_rundir dir;
    int attempt;
    const char *changed;   /* what --set changed in a run that goes on */
    struct ft_json *facts; /* fttrain's answer; NULL: none */
};

static bool read_options(struct request *q)
{
    const char *value;
    for (int id; (id = ft_cmd_next(&q->c, &value)) > 0;) {
        if (id == OPT_CONTINUE) q->continued = value;
        else if (id == OPT_RANKS) q->n_ranks = ft_cmd_ranks(&q->c, value);
        else if (id == OPT_TIMING) q->timing = true;
        else q->fit = true;
    }
    return !q->c.done;
}

/* Folder of runs before any job file is read: as --set says, else the default. */
static const char *runs_folder(struct request *q)
{
    static const char key[] = "launch.run_dir=";
    const char *found = "runs";
    for (size_t i = 0; i < q->c.n_sets; i++)
        if (ft_str_starts(q->c.sets[i], key)) found = q->c.sets[i] + sizeof key - 1;
    struct ft_buf b = {0};
    (void)ft_expand_home(found, &b, NULL); /* without a home it is no folder, which is said */
    found = ft_arena_strdup(q->c.arena, ft_buf_str(&b));
    ft_buf_fini(&b);
    return found;
}

/* The program of the run, from its plan.json; its world is in the job file. */
static enum ft_code take_program(struct request *q, struct ft_err *err)
{
    struct ft_json *plan = NULL;
    if (ft_json_read_file(ft_rundir_file(&q->dir, "plan.json", q->c.arena), 0, &plan, err))
        return ft_wrap(err, "going on with run '%s'", q->dir.id);
    const struct ft_json *argv = ft_json_get(plan, "argv");
    size_t n = ft_json_count(argv);
    const char *first = n ? ft_json_str(ft_json_at(argv, 0)) : NULL, *slash = first ? strrchr(first, '/') : NULL;
    if (first && !(n == 1 && ft_str_eq(slash ? slash + 1 : first, "fttrain"))) {
        q->c.argv.rest = ft_arena_array(q->c.arena, n + 1, sizeof *q->c.argv.rest);
        q->c.argv.n_rest = (int)n;
        for (size_t i = 0; i < n; i++) {
            const char *word = ft_json_str(ft_json_at(argv, i));
            q->c.argv.rest[i] = ft_arena_strdup(q->c.arena, word ? word : "");
        }
    }
    ft_json_destroy(plan);
    return FT_OK;
}

/* --continue RUN: its folder, id, resolved job and program; refused while it lives. */
static bool resume(struct request *q)
{
    struct ft_err err = {.code = FT_OK};
    struct ft_run_info info;
    enum ft_code c = FT_OK;
    if (q->c.n_words || q->c.argv.n_rest)
        c = ft_fail(&err, FT_USAGE, "--continue takes the job of the run: no file and no program beside it");
    else c = ft_rundir_find(runs_folder(q), q->continued, q->c.arena, &q->dir, &err);
    if (!c) {
        ft_run_info_read(&q->dir, q->c.arena, &info);
        if (info.alive) {
            c = ft_fail(&err, FT_USAGE, "run '%s' lives", q->dir.id);
            ft_fix(&err, "ftlaunch stop %s ends it", q->dir.id);
        }
    }
    if (!c) c = take_program(q, &err);
    if (c) {
        ft_cmd_fail(&q->c, &err);
        q->c.status = 2; /* nothing was started */
        return false;
    }
    q->attempt = info.last_attempt + 1;
    q->c.words = ft_xrealloc(q->c.words, 1, sizeof *q->c.words);
    q->c.words[0] = ft_xstrdup(ft_rundir_file(&q->dir, "job.ini", q->c.arena));
    q->c.n_words = 1;
    return true;
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
    if (workdir || q->c.config->cluster.transport != FT_TRANSPORT_LOCAL) ask.more[0] = "--shallow"; /* the nodes are asked */
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

/* One line when the newest run of this name did not finish: it can go on. */
static void mention_unfinished(struct request *q)
{
    struct ft_run_info info;
    struct ft_rundir dir;
    const char *name = ft_arena_strndup(q->c.arena, q->dir.id, ft_rundir_is_run(q->dir.id));
    const char *last = ft_runs_before(q->c.config->launch.run_dir, name, q->dir.id, q->c.arena);
    if (!last || !q->c.job_name) return; /* programs without a job file have nothing to go on with */
    dir = (struct ft_rundir){
        last, ft_arena_printf(q->c.arena, "%.*s%s", (int)(strlen(q->dir.path) - strlen(q->dir.id)), q->dir.path, last)};
    ft_run_info_read(&dir, q->c.arena, &info);
    if (info.alive || (info.ended && !info.status)) return;
    ft_cmd_say(&q->c, ft_arena_printf(q->c.arena,
                                      "ftlaunch: the run before, %s, did not finish; ftlaunch run --continue %s goes on with it\n",
                                      last, last));
}

static enum ft_code keep_plan(void *self, const struct ft_plan *p, struct ft_err *err) { return write_folder(self, p, err); }

static int start(struct request *q, const struct ft_plan *p)
{
    struct ft_err err = {.code = FT_OK};
    struct ft_buf self = {0};
    enum ft_code c = ft_self_dir(&self, &err);
    if (!c && !q->continued) c = ft_rundir_create(q->c.config->launch.run_dir, job_name(q, p), q->c.arena, &q->dir, &err);
    if (!c) c = write_folder(q, p, &err);
    if (c) {
        ft_cmd_fail(&q->c, &err);
        ft_buf_fini(&self);
        q->c.status = 2; /* nothing was started */
        return q->c.status;
    }
    if (!q->continued && q->c.verbose >= 0) mention_unfinished(q);
    struct ft_log_sink before = ft_log_get();
    int log = open_log(q);
    struct ft_head_request r = {.plan = p,
                                .argv = p->argv,
                                .dir = q->dir,
                                .attempt = q->attempt,
                                .continued = q->changed,
                                .command = q->command,
                                .timing = q->timing,
                                .verbose = q->c.verbose,
                                .color = ft_cmd_color(&q->c),
                                .program_dir = self.data,
                                .planning = &q->c.planning,
                                .facts = q->facts,
                                .keep_plan = keep_plan,
                                .self = q};
    int status = ft_head_run(&r, q->c.arena);
    ft_log_set(before);
    ft_close(&log);
    ft_buf_fini(&self);
    return status;
}

/* What --set changes in a run that goes on, for its events; secrets do not show. */
static const char *changes(struct request *q)
{
    struct ft_buf b = {0};
    for (size_t i = 0; i < q->c.n_sets; i++)
        ft_buf_addf(&b, "%s--set %s", i ? " " : "", ft_config_mask_set(q->c.config, q->c.sets[i], q->c.arena));
    const char *text = ft_arena_strdup(q->c.arena, ft_buf_str(&b));
    ft_buf_fini(&b);
    return text;
}

static int run(const struct ft_command *self, int argc, char **argv)
{
    struct request q = {.command = argv};
    signal(SIGTTOU, SIG_IGN); /* before the first word: a terminal may stop whoever writes from the background (stty tostop) */
    ft_cmd_begin(&q.c, self, argc, argv);
    q.c.uses_nodes = true;
    if (!read_options(&q) || (q.continued && !resume(&q)) || !ft_cmd_read_job(&q.c)) return ft_cmd_end(&q.c);
    if (q.continued) q.changed = changes(&q);
    const struct ft_plan *p = ft_cmd_make_plan(&q.c, q.n_ranks);
    if (p && q.fit) p = ft_cmd_fit(&q.c, p, q.n_ranks);
    if (p && p->is_fttrain) ask_fttrain(&q, p);
    ft_cmd_print_faults(&q.c);
    q.c.status = p && !q.c.faults.n_errors ? start(&q, p) : 2;
    ft_json_destroy(q.facts);
    return ft_cmd_end(&q.c);
}

static const struct ft_command command = {
    .name = "run",
    .usage = "[JOB.ini…] [--set SECTION.KEY=VALUE]… [-n N] [--fit] [--timing] [-- PROGRAM ARGS…]",
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
