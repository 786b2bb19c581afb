#include "runtime/train/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

extern char **environ;

static int usage(const struct ft_command *self, const struct ft_err *err)
{
    ft_err_print(stderr, "fttrain", err);
    fprintf(stderr, "usage: fttrain %s %s\n", self->name, self->usage);
    return FT_EXIT_REFUSED;
}

static int take(struct ft_cli *cli, int id, const char *value, struct ft_err *err)
{
    int64_t n;
    switch (id) {
    case FT_OPT_SET: cli->sets[cli->n_sets++] = value; return -1;
    case FT_OPT_JSON: cli->json = true; return -1;
    case FT_OPT_SHALLOW: cli->shallow = true; return -1;
    case FT_OPT_QUIET: cli->quiet = true; return -1;
    case FT_OPT_VERBOSE: cli->verbose = true; return -1;
    case FT_OPT_FIT: cli->fit = true; return -1;
    case FT_OPT_OUT: cli->out = value; return -1;
    case FT_OPT_DTYPE: cli->dtype = value; return -1;
    case FT_OPT_MEMORY:
        if (!ft_parse_i64(value, 1, INT64_MAX / 2, &cli->memory)) {
            ft_fail(err, FT_USAGE, "--memory wants a number of bytes, found '%s'", value);
            return FT_EXIT_REFUSED;
        }
        return -1;
    case FT_OPT_WORLD:
        if (!ft_parse_i64(value, 1, 1 << 20, &n)) {
            ft_fail(err, FT_USAGE, "--world wants a number of ranks, found '%s'", value);
            return FT_EXIT_REFUSED;
        }
        cli->world = (int)n;
        return -1;
    default: FT_BUG("option %d has no meaning", id);
    }
}

int ft_cli_parse(const struct ft_command *self, int argc, char **argv, struct ft_arena *arena, struct ft_cli *cli)
{
    memset(cli, 0, sizeof *cli);
    cli->words = ft_arena_array(arena, (size_t)argc + 1, sizeof *cli->words);
    cli->sets = ft_arena_array(arena, (size_t)argc + 1, sizeof *cli->sets);
    struct ft_argv a = ft_argv_begin(self, argc, argv);
    struct ft_err err;
    const char *value;
    for (int id; (id = ft_argv_next(&a, &value, &err)) != FT_ARG_END;) {
        if (id == FT_ARG_BAD) return usage(self, &err);
        if (id == FT_ARG_HELP) {
            struct ft_buf help = {0};
            ft_command_help("fttrain", self, &help);
            ft_cli_print(&help);
            ft_buf_fini(&help);
            return FT_EXIT_DONE;
        }
        if (id == FT_ARG_WORD) cli->words[cli->n_words++] = value;
        else if (take(cli, id, value, &err) >= 0) return usage(self, &err);
    }
    struct ft_log_sink sink = ft_log_get();
    sink.level = cli->quiet ? FT_LOG_ERROR : cli->verbose ? FT_LOG_DEBUG : FT_LOG_WARN;
    ft_log_set(sink);
    return -1;
}

enum ft_code ft_cli_job(const struct ft_cli *cli, const struct ft_place *place, struct ft_job_config *job, struct ft_faults *faults,
                        struct ft_err *err)
{
    const char *const *files = cli->words;
    size_t n = cli->n_words;
    if (!n && place && place->job) {
        files = &place->job;
        n = 1;
    }
    if (!n && !cli->n_sets) {
        ft_fail(err, FT_USAGE, "no job file");
        return ft_fix(err, "name one (fttrain job.ini), or set FT_JOB");
    }
    ft_job_read(job, files, n, cli->sets, cli->n_sets, faults);
    return FT_OK;
}

int ft_cli_with_job(const struct ft_command *self, int argc, char **argv,
                    int (*act)(const struct ft_cli *cli, struct ft_job_config *job, struct ft_faults *faults,
                               const struct ft_place *place))
{
    struct ft_job_config job;
    struct ft_faults faults;
    struct ft_cli cli;
    struct ft_place place;
    struct ft_err err;
    ft_job_init(&job, &faults);
    int status = ft_cli_parse(self, argc, argv, job.arena, &cli);
    if (status < 0 && (ft_place_from_env(environ, job.arena, &place, &err) || ft_cli_job(&cli, &place, &job, &faults, &err))) {
        ft_err_print(stderr, "fttrain", &err);
        status = FT_EXIT_REFUSED;
    }
    if (status < 0) status = act(&cli, &job, &faults, &place);
    ft_job_fini(&job);
    return status;
}

void ft_cli_print_faults(struct ft_faults *faults)
{
    ft_faults_sort(faults);
    ft_faults_print(stderr, "fttrain", faults);
}

void ft_cli_write_faults(struct ft_faults *faults, struct ft_jw *w)
{
    ft_faults_sort(faults);
    ft_jw_array(w);
    for (size_t i = 0; i < faults->n; i++) {
        const struct ft_fault *f = &faults->v[i];
        if (f->severity == FT_SEV_NOTE) continue;
        ft_jw_object(w);
        ft_jw_kstr(w, "severity", f->severity == FT_SEV_ERROR ? "error" : "warning");
        ft_jw_kstr(w, "file", f->at.file);
        ft_jw_kint(w, "line", f->at.line);
        ft_jw_kint(w, "column", f->at.column);
        ft_jw_kstr(w, "section", f->section);
        ft_jw_kstr(w, "key", f->key);
        ft_jw_kstr(w, "text", f->text);
        ft_jw_kstr(w, "fix", f->fix);
        ft_jw_end(w);
    }
    ft_jw_end(w);
}

void ft_cli_print(const struct ft_buf *out)
{
    fwrite(ft_buf_str(out), 1, out->n, stdout);
    fflush(stdout);
}
