/* ftlaunch check: everything that can be found out before the start; all problems, not the first. At the head: the sections of the
 * launcher, the plan, and what fttrain says of its own (with everything when the head is the node, else its sections only); on
 * nodes elsewhere: their agents (head_check.c). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/hash.h"
#include "base/ini.h"
#include "launcher/ask.h"
#include "launcher/cmd/cmd.h"
#include "launcher/head.h"
#include "launcher/proc.h"
#include "launcher/transport/transport.h"

enum { OPT_N = 1 };
static const struct ft_option options[] = {
    {NULL, 'n', "N", "number of ranks (the world)", OPT_N},
    FT_OPTION_SET,
    FT_OPTION_JSON,
    FT_OPTIONS_SHARED,
};

/* `fttrain check --json`; NULL and a note: why not. */
static struct ft_json *ask_fttrain(struct ft_cmd *c, const struct ft_plan *plan)
{
    struct ft_json *answer = NULL;
    struct ft_err err;
    int status;
    const char *fttrain = ft_find_fttrain(c->arena);
    if (!fttrain) {
        ft_faults_add(&c->faults, FT_SEV_NOTE, (struct ft_source){0}, NULL, NULL,
                      "no fttrain beside ftlaunch or on PATH: the sections [model] to [export] are not checked");
        return NULL;
    }
    struct ft_question q = {
        .fttrain = fttrain, .word = "check", .files = c->words, .n_files = c->n_words, .sets = c->sets, .n_sets = c->n_sets};
    if (!plan || plan->config->cluster.transport != FT_TRANSPORT_LOCAL) q.more[0] = "--shallow";
    if (plan) q.more_set = ft_arena_printf(c->arena, "parallel.data=%d", plan->mesh.size[FT_AXIS_DP]);
    if (!ft_ask_fttrain(&q, &answer, &status, &err)) {
        ft_ask_take_faults(answer, &c->faults);
        if (status == 0 || status == 2) return answer;
        ft_fail(&err, FT_DATA, "'%s check' ended with status %d", fttrain, status);
    }
    ft_faults_add(&c->faults, FT_SEV_ERROR, (struct ft_source){0}, NULL, NULL, "%s", err.text);
    return answer;
}

/* PATH of the ranks: [env]'s, else the head's. NULL: none. */
static const char *path_of_ranks(const struct ft_cmd *c, const struct ft_plan *p)
{
    size_t n;
    const struct ft_env *env = ft_plan_node_env(p, &p->nodes[0], c->arena, &n);
    const char *path = getenv("PATH");
    for (size_t i = 0; i < n; i++)
        if (!strcmp(env[i].name, "PATH")) path = env[i].value;
    return path;
}

/* May the run folder be made? Asked of the first folder of its path that is there. */
static const char *why_no_run_folder(const char *folder)
{
    struct ft_buf at = {0};
    ft_buf_adds(&at, folder);
    while (at.n > 1 && access(at.data, F_OK) < 0 && errno == ENOENT) {
        const char *slash = strrchr(at.data, '/');
        if (!slash) {
            ft_buf_clear(&at);
            ft_buf_addc(&at, '.');
        } else {
            at.n = slash > at.data ? (size_t)(slash - at.data) : 1;
            at.data[at.n] = 0;
        }
    }
    const char *why = NULL;
    if (access(at.data, F_OK) < 0) why = strerror(errno);
    else if (!ft_is_dir(at.data)) why = strerror(ENOTDIR);
    else if (access(at.data, W_OK | X_OK) < 0) why = strerror(errno);
    ft_buf_fini(&at);
    return why;
}

/* The head is the node: what its agent would refuse before the start. */
static void check_here(struct ft_cmd *c, const struct ft_plan *p)
{
    const struct ft_launch_fields *l = &c->config->launch;
    struct ft_buf found = {0};
    char *env[2] = {NULL, NULL};
    const char *path = path_of_ranks(c, p), *why = why_no_run_folder(l->run_dir);
    if (path) env[0] = ft_arena_printf(c->arena, "PATH=%s", path);
    if (why)
        ft_faults_add(&c->faults, FT_SEV_ERROR, ft_config_at(c->config, "launch", "run_dir"), "launch", "run_dir",
                      "cannot make the run folder in '%s': %s", l->run_dir, why);
    if (l->workdir && !ft_is_dir(l->workdir)) {
        ft_faults_add(&c->faults, FT_SEV_ERROR, ft_config_at(c->config, "launch", "workdir"), "launch", "workdir",
                      "working directory '%s': %s", l->workdir, strerror(access(l->workdir, F_OK) < 0 ? errno : ENOTDIR));
        return; /* the program may lie in it */
    }
    int e = p->n_argv ? ft_proc_find(p->argv[0], l->workdir, env, &found) : 0;
    if (e)
        ft_faults_add(&c->faults, FT_SEV_ERROR, (struct ft_source){0}, NULL, NULL, "program '%s': %s", ft_buf_str(&found),
                      e == ENOENT && !strchr(p->argv[0], '/') ? "not found in PATH" : strerror(e));
    ft_buf_fini(&found);
}

static void write_fault(struct ft_jw *w, const struct ft_fault *f)
{
    static const char *const names[] = {"error", "warning", "note"};
    ft_jw_object(w);
    ft_jw_kstr(w, "severity", names[f->severity]);
    ft_jw_kstr(w, "file", f->at.file);
    ft_jw_key(w, "line");
    f->at.line ? ft_jw_int(w, f->at.line) : ft_jw_null(w);
    ft_jw_key(w, "column");
    f->at.column ? ft_jw_int(w, f->at.column) : ft_jw_null(w);
    ft_jw_kstr(w, "section", f->section);
    ft_jw_kstr(w, "key", f->key);
    ft_jw_kstr(w, "text", f->text);
    ft_jw_kstr(w, "fix", f->fix);
    ft_jw_end(w);
}

/* What the nodes said about themselves. */
static void write_cluster(struct ft_jw *w, const struct ft_buf *cluster)
{
    struct ft_json *v = NULL;
    if (!cluster->n || ft_json_parse(cluster->data, cluster->n, 0, &v, NULL, NULL)) return;
    ft_jw_key(w, "cluster");
    ft_jw_value(w, v);
    ft_json_destroy(v);
}

/* -v: every value of the launcher that is no default, and the place that set it. */
static void print_origins(const struct ft_cmd *c)
{
    for (size_t s = 0; ft_launcher_sections[s]; s++)
        for (size_t i = 0; i < ft_launcher_sections[s]->n_fields; i++) {
            const struct ft_value *v = &c->config->values[s][i];
            if (!v->text || !v->at.file) continue;
            printf("set     %s.%s = %s (%s)\n", ft_launcher_sections[s]->name, ft_launcher_sections[s]->fields[i].name, v->text,
                   ft_source_text(v->at, c->arena));
        }
}

/* The nodes are elsewhere: their agents look. */
static void check_nodes(struct ft_cmd *c, const struct ft_plan *p, const struct ft_json *facts, struct ft_buf *cluster,
                        struct ft_buf *text)
{
    struct ft_buf self = {0};
    struct ft_err err = {.code = FT_OK};
    unsigned char r[8];
    char id[32] = "check-";
    if (!ft_random(r, sizeof r)) FT_BUG("getrandom failed");
    ft_hex(r, sizeof r, id + 6);
    if (ft_self_dir(&self, &err)) {
        ft_faults_add(&c->faults, FT_SEV_ERROR, (struct ft_source){0}, NULL, NULL, "%s", err.text);
        return;
    }
    const struct ft_head_request q = {.plan = p,
                                      .argv = p->argv,
                                      .dir = {.id = id, .path = "/"},
                                      .verbose = c->verbose,
                                      .program_dir = self.data,
                                      .planning = &c->planning,
                                      .facts = facts};
    const int status = ft_head_check(&q, &c->faults, cluster, text, c->arena);
    if (status)
        ft_faults_add(&c->faults, FT_SEV_ERROR, (struct ft_source){0}, NULL, NULL,
                      "stopped by a signal before everything was checked");
    c->status = status;
    ft_buf_fini(&self);
}

static void print_json(const struct ft_cmd *c, const struct ft_json *answer, const struct ft_buf *cluster)
{
    struct ft_buf out = {0};
    struct ft_jw w = ft_jw_begin(&out);
    ft_jw_object(&w);
    ft_jw_kint(&w, "schema", 1);
    ft_jw_key(&w, "faults");
    ft_jw_array(&w);
    for (size_t i = 0; i < c->faults.n; i++) write_fault(&w, &c->faults.v[i]);
    ft_jw_end(&w);
    ft_jw_key(&w, "facts");
    if (ft_json_is(ft_json_get(answer, "facts"), FT_JSON_OBJECT)) {
        ft_jw_value(&w, ft_json_get(answer, "facts"));
    } else {
        ft_jw_object(&w);
        ft_jw_end(&w);
    }
    write_cluster(&w, cluster);
    ft_jw_end(&w);
    printf("%s\n", out.data);
    ft_buf_fini(&out);
}

/* One line on stdout when nothing is wrong. */
static void print_fine(const struct ft_cmd *c, const struct ft_plan *p, bool asked)
{
    printf("no fault: job %s, %d rank%s on %zu node%s, transport %s", p->name, p->world, p->world == 1 ? "" : "s", p->n_nodes,
           p->n_nodes == 1 ? "" : "s", p->transport);
    if (c->faults.n_warnings) printf(", %zu warning%s", c->faults.n_warnings, c->faults.n_warnings == 1 ? "" : "s");
    puts(asked || !p->is_fttrain ? "" : " (the sections of fttrain are not checked)");
}

static bool may_start(struct ft_cmd *c, const struct ft_plan *p)
{
    if (!p->n_argv)
        ft_faults_add(&c->faults, FT_SEV_ERROR, (struct ft_source){0}, NULL, NULL,
                      "there is no fttrain beside ftlaunch or on PATH, and no program behind '--'");
    return p->n_argv > 0;
}

static void check_transport(struct ft_cmd *c, const struct ft_plan *p)
{
    const struct ft_transport_ops *ops;
    struct ft_err err = {.code = FT_OK};
    if (ft_transport_find(p->transport, &ops, &err) == FT_OK) return;
    ft_faults_add(&c->faults, FT_SEV_ERROR, ft_config_at(c->config, "cluster", "transport"), "cluster", "transport", "%s",
                  err.text);
    if (err.fix[0]) ft_fault_fix(&c->faults, "%s", err.fix);
}

static int run(const struct ft_command *self, int argc, char **argv)
{
    struct ft_cmd c;
    const char *value;
    int n = 0;
    ft_cmd_begin(&c, self, argc, argv);
    for (int id; (id = ft_cmd_next(&c, &value)) > 0;) n = ft_cmd_ranks(&c, value);
    if (c.done) return ft_cmd_end(&c);
    if (!c.n_words && !c.argv.n_rest) {
        struct ft_err err;
        ft_fail(&err, FT_USAGE, "check needs a job file");
        ft_fix(&err, "ftlaunch check JOB.ini");
        ft_cmd_fail(&c, &err);
        return ft_cmd_end(&c);
    }
    c.uses_nodes = true;
    const struct ft_plan *p = ft_cmd_load_job(&c) ? ft_cmd_make_plan(&c, n) : NULL;
    struct ft_json *answer = c.argv.n_rest ? NULL : ask_fttrain(&c, p);
    if (p) check_transport(&c, p);
    if (p && p->config->cluster.transport == FT_TRANSPORT_LOCAL) check_here(&c, p);
    struct ft_buf cluster = {0}, text = {0};
    if (p && !c.faults.n_errors && p->config->cluster.transport == FT_TRANSPORT_SSH && may_start(&c, p))
        check_nodes(&c, p, answer, &cluster, &text);
    ft_ini_sort_faults(c.ini, &c.faults);
    if (c.json) print_json(&c, answer, &cluster);
    else ft_cmd_print_faults(&c);
    if (!c.status) c.status = c.faults.n_errors ? 2 : 0;
    if (!c.json && c.verbose > 0 && c.config) print_origins(&c);
    if (!c.json && c.verbose >= 0) fputs(ft_buf_str(&text), stdout);
    if (!c.status && !c.json && c.verbose >= 0) print_fine(&c, p, answer != NULL);
    ft_buf_fini(&cluster);
    ft_buf_fini(&text);
    ft_json_destroy(answer);
    return ft_cmd_end(&c);
}

static const struct ft_command command = {
    .name = "check",
    .usage = "JOB.ini… [--set SECTION.KEY=VALUE]… [-n N] [--json] [-- PROGRAM ARGS…]",
    .summary = "everything that can be found out before the start; all problems",
    .text = "Reads and plans the job, asks fttrain about its sections, and prints every problem in the order of files and lines. "
            "Nodes\n"
            "over ssh are reached: login, agent, addresses and ports both ways, working directory, program, devices, room; fttrain "
            "looks at\n"
            "model, data and memory on one node of each kind; what differs between nodes is printed (-v: what is equal too, and "
            "what set\n"
            "each value). Nothing is started, nothing is left.\n"
            "Exit status 0: nothing is wrong; 2: something is.",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .takes_rest = true,
    .main = run,
};
const struct ft_cmd_ops ft_cmd_check = {&command, false};
