/* ftlaunch plan: nodes, ranks, groups; starts nothing. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/ini.h"
#include "launcher/ask.h"
#include "launcher/cmd/cmd.h"
#include "launcher/node_faults.h"

extern char **environ;

int ft_cmd_ranks(struct ft_cmd *c, const char *value)
{
    int64_t n;
    if (ft_parse_i64(value, 1, (int64_t)FT_MAX_NODES * FT_MAX_SLOTS, &n)) return (int)n;
    struct ft_err err;
    ft_fail(&err, FT_USAGE, "-n %s is not a number of ranks (1 or more)", value);
    ft_cmd_fail(c, &err);
    return 0;
}

/* execve lets argv and environment have a quarter of the stack limit, 6 MiB at most. */
static size_t stack_bytes(void)
{
    struct rlimit r;
    const rlim_t most = 24u << 20;
    if (getrlimit(RLIMIT_STACK, &r)) return 0;
    return r.rlim_cur == RLIM_INFINITY || r.rlim_cur > most ? most : (size_t)r.rlim_cur;
}

const struct ft_plan *ft_cmd_make_plan(struct ft_cmd *c, int n_ranks)
{
    struct ft_names *late = NULL;
    if (c->uses_nodes) { /* planning alone is the same every time */
        late = ft_arena_alloc(c->arena, sizeof *late);
        ft_node_faults_read(c->config, c->arena, late, &c->faults);
    }
    c->planning = (struct ft_plan_request){.config = c->config,
                                           .n_ranks = n_ranks,
                                           .program = c->argv.n_rest ? c->argv.rest : NULL,
                                           .n_program = c->argv.n_rest,
                                           .fttrain = ft_find_fttrain(c->arena),
                                           .job_name = c->job_name,
                                           .late = late,
                                           .environ_ = environ,
                                           .stack_bytes = stack_bytes()};
    return ft_plan_make(&c->planning, c->arena, &c->faults);
}

static bool has_section(const struct ft_cmd *c, const char *section)
{
    for (size_t i = 0; i < c->ini->n; i++)
        if (!strcmp(c->ini->v[i].section, section)) return true;
    return false;
}

/* `fttrain plan --json` of the same job; NULL and a line on stderr: why not. */
static struct ft_json *ask_fttrain(struct ft_cmd *c, const struct ft_plan *p)
{
    struct ft_err err;
    struct ft_json *answer = ft_cmd_ask_plan(c, p, false, &err);
    if (!answer && c->verbose >= 0) ft_cmd_say(c, ft_arena_printf(c->arena, "ftlaunch: note: %s\n", err.text));
    return answer;
}

static void add_mib(const char *name, int64_t bytes, struct ft_buf *out)
{
    ft_buf_addf(out, "%s %.1f MiB", name, (double)bytes / (1 << 20));
}

static void print_memory(const struct ft_json *answer, struct ft_buf *out)
{
    const struct ft_json *all = ft_json_get(answer, "memory"), *most = NULL;
    for (size_t i = 0; i < ft_json_count(all); i++) {
        const struct ft_json *m = ft_json_at(all, i);
        if (!most || ft_json_int(ft_json_get(m, "bytes"), 0) > ft_json_int(ft_json_get(most, "bytes"), 0)) most = m;
    }
    if (!most) return;
    add_mib("memory  per rank at most", ft_json_int(ft_json_get(most, "bytes"), 0), out);
    ft_buf_addf(out, " (rank %lld:", (long long)ft_json_int(ft_json_get(most, "rank"), 0));
    const struct ft_json *parts = ft_json_get(most, "parts");
    for (void *it = ft_json_iter(parts); it; it = ft_json_iter_next(parts, it)) {
        ft_buf_addc(out, ' ');
        add_mib(ft_json_iter_key(it), ft_json_int(ft_json_iter_value(it), 0), out);
    }
    ft_buf_adds(out, ")\n");
}

static void print_stages(const struct ft_json *answer, struct ft_buf *out)
{
    const struct ft_json *stages = ft_json_get(answer, "stages");
    if (ft_json_count(stages) < 2) return;
    ft_buf_adds(out, "stages ");
    for (size_t i = 0; i < ft_json_count(stages); i++) {
        const struct ft_json *layers = ft_json_get(ft_json_at(stages, i), "layers");
        ft_buf_addf(out, " %zu: layers", i);
        for (size_t k = 0; k + 1 < ft_json_count(layers); k += 2)
            ft_buf_addf(out, "%s%lld-%lld", k ? "," : " ", (long long)ft_json_int(ft_json_at(layers, k), 0),
                        (long long)ft_json_int(ft_json_at(layers, k + 1), 0) - 1);
    }
    ft_buf_addc(out, '\n');
}

static void print_batch(const struct ft_json *answer, struct ft_buf *out)
{
    const struct ft_json *b = ft_json_get(answer, "batch");
    if (!b) return;
    ft_buf_addf(out, "batch   global %lld = micro %lld x accumulation %lld x dp %lld\n",
                (long long)ft_json_int(ft_json_get(b, "global"), 0), (long long)ft_json_int(ft_json_get(b, "micro"), 0),
                (long long)ft_json_int(ft_json_get(b, "accumulation"), 0), (long long)ft_json_int(ft_json_get(b, "data"), 0));
}

static void print_answer(const struct ft_json *answer, struct ft_buf *out)
{
    const char *why = ft_json_str(ft_json_get(answer, "why"));
    bool legal = ft_json_bool(ft_json_get(answer, "legal"), true);
    ft_buf_addf(out, "fttrain %s%s\n", legal ? "this layout is legal" : "this layout is not legal: ",
                legal ? ""
                : why ? why
                      : "no reason given");
    print_batch(answer, out);
    print_memory(answer, out);
    print_stages(answer, out);
}

enum { OPT_N = 1, OPT_ENV, OPT_FIT, OPT_JOB };
static const struct ft_option options[] = {
    {NULL, 'n', "N", "number of ranks (the world)", OPT_N},
    {"env", 0, NULL, "what each rank will get; differences between ranks once", OPT_ENV},
    {"job", 0, NULL, "the resolved job file: every value in force, defaults included", OPT_JOB},
    {"fit", 0, NULL, "change micro_batch and recompute until a rank fits its memory", OPT_FIT},
    FT_OPTION_SET,
    FT_OPTION_JSON,
    FT_OPTIONS_SHARED,
};

static void print_plan(struct ft_cmd *c, const struct ft_plan *p, bool env, bool job)
{
    struct ft_buf out = {0};
    bool ask = p->is_fttrain && has_section(c, "model") && !env && !job;
    struct ft_json *answer = ask ? ask_fttrain(c, p) : NULL;
    if (job) {
        char *here = realpath(".", NULL);
        ft_plan_write_job(p, here, NULL, &out);
        free(here);
    } else if (c->json) {
        struct ft_jw w = ft_jw_begin(&out);
        ft_jw_object(&w);
        ft_plan_write_members(p, &w);
        if (ask) {
            ft_jw_key(&w, "fttrain");
            answer ? ft_jw_value(&w, answer) : ft_jw_null(&w);
        }
        ft_jw_end(&w);
        ft_buf_addc(&out, '\n');
    } else if (env) {
        ft_plan_print_env(p, &out);
    } else {
        ft_plan_print(p, &out);
        if (answer) print_answer(answer, &out);
    }
    fwrite(out.data, 1, out.n, stdout);
    ft_json_destroy(answer);
    ft_buf_fini(&out);
}

static int run(const struct ft_command *self, int argc, char **argv)
{
    struct ft_cmd c;
    const char *value;
    bool env = false, fit = false, job = false;
    int n = 0;
    ft_cmd_begin(&c, self, argc, argv);
    for (int id; (id = ft_cmd_next(&c, &value)) > 0;) {
        if (id == OPT_N) n = ft_cmd_ranks(&c, value);
        else if (id == OPT_ENV) env = true;
        else if (id == OPT_JOB) job = true;
        else fit = true;
    }
    if (c.done || !ft_cmd_read_job(&c)) return ft_cmd_end(&c);
    const struct ft_plan *p = ft_cmd_make_plan(&c, n);
    if (p && fit) p = ft_cmd_fit(&c, p, n);
    ft_cmd_print_faults(&c);
    if (p) print_plan(&c, p, env, job);
    else c.status = 2;
    return ft_cmd_end(&c);
}

static const struct ft_command command = {
    .name = "plan",
    .usage = "[JOB.ini…] [--set SECTION.KEY=VALUE]… [-n N] [--json] [--env] [--fit] [-- PROGRAM ARGS…]",
    .summary = "nodes, ranks and groups of a job; starts nothing",
    .text = "Reads the files from left to right, then --set, and prints which rank runs where. Nothing is contacted. With a "
            "[model] and\n"
            "without a program, what fttrain plans (memory of each rank) follows. --json prints plan.json.",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .takes_rest = true,
    .main = run,
};
const struct ft_cmd_ops ft_cmd_plan = {&command, false};
