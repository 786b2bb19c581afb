#include "launcher/cmd/cmd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/ini.h"
#include "launcher/console.h"

extern char **environ;

void ft_cmd_begin(struct ft_cmd *c, const struct ft_command *self, int argc, char **argv)
{
    *c = (struct ft_cmd){.self = self, .arena = ft_arena_create(), .argv = ft_argv_begin(self, argc, argv)};
    c->faults.arena = c->arena;
    c->color = getenv("NO_COLOR") && *getenv("NO_COLOR") ? FT_COLOR_NEVER : FT_COLOR_AUTO;
}

bool ft_cmd_color(const struct ft_cmd *c) { return c->color == FT_COLOR_ALWAYS || (c->color == FT_COLOR_AUTO && isatty(2)); }

void ft_cmd_say(const struct ft_cmd *c, const char *text)
{
    struct ft_buf out = {0};
    ft_console_paint(text, ft_cmd_color(c), &out);
    fwrite(ft_buf_str(&out), 1, out.n, stderr);
    ft_buf_fini(&out);
}

/* What print() writes into a stream, said. */
static void say_stream(const struct ft_cmd *c, const struct ft_err *err, const struct ft_faults *faults)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f) ft_die_nomem(n);
    if (err) ft_err_print(f, "ftlaunch", err);
    if (faults) ft_faults_print(f, "ftlaunch", faults);
    if (fclose(f)) ft_die_nomem(n);
    ft_cmd_say(c, text);
    free(text);
}

void ft_cmd_fail(struct ft_cmd *c, const struct ft_err *err)
{
    say_stream(c, err, NULL);
    c->done = true;
    c->status = err->code == FT_USAGE || err->code == FT_CONFIG || err->code == FT_UNSUPPORTED || err->code == FT_DATA ? 2 : 125;
}

static void keep(char ***list, size_t *n, size_t *cap, const char *word)
{
    ft_grow(list, cap, *n + 1, sizeof **list);
    (*list)[(*n)++] = ft_xstrdup(word);
}

void ft_cmd_add_set(struct ft_cmd *c, const char *assignment) { keep(&c->sets, &c->n_sets, &c->sets_cap, assignment); }

static bool take_color(struct ft_cmd *c, const char *value)
{
    static const char *const words[] = {"auto", "never", "always"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(value, words[i])) {
            c->color = (enum ft_color)i;
            return true;
        }
    struct ft_err err;
    ft_fail(&err, FT_USAGE, "--color %s is not auto, never or always", value);
    ft_cmd_fail(c, &err);
    return false;
}

static void print_help(struct ft_cmd *c)
{
    struct ft_buf text = {0};
    ft_command_help("ftlaunch", c->self, &text);
    fputs(ft_buf_str(&text), stdout);
    ft_buf_fini(&text);
    c->done = true;
}

int ft_cmd_next(struct ft_cmd *c, const char **value)
{
    struct ft_err err = {0};
    while (!c->done) {
        int id = ft_argv_next(&c->argv, value, &err);
        switch (id) {
        case FT_ARG_END: return FT_ARG_END;
        case FT_ARG_BAD: ft_cmd_fail(c, &err); break;
        case FT_ARG_HELP: print_help(c); break;
        case FT_ARG_WORD: keep(&c->words, &c->n_words, &c->words_cap, *value); break;
        case FT_OPT_SET: keep(&c->sets, &c->n_sets, &c->sets_cap, *value); break;
        case FT_OPT_JSON: c->json = true; break;
        case FT_OPT_QUIET: c->verbose = -1; break;
        case FT_OPT_VERBOSE: c->verbose = c->verbose < 0 ? 1 : c->verbose + 1; break;
        case FT_OPT_COLOR: (void)take_color(c, *value); break;
        default: return id;
        }
    }
    return FT_ARG_END;
}

void ft_cmd_print_faults(struct ft_cmd *c)
{
    struct ft_faults shown = {.arena = c->arena};
    if (c->ini) ft_ini_sort_faults(c->ini, &c->faults);
    for (size_t i = 0; i < c->faults.n; i++) {
        const struct ft_fault *f = &c->faults.v[i];
        if (c->verbose < 0 && f->severity != FT_SEV_ERROR) continue;
        ft_faults_add(&shown, f->severity, f->at, f->section, f->key, "%s", f->text);
        if (f->fix) ft_fault_fix(&shown, "%s", f->fix);
    }
    say_stream(c, NULL, &shown);
}

bool ft_cmd_load_job(struct ft_cmd *c)
{
    c->ini = ft_ini_create(c->arena);
    for (size_t i = 0; i < c->n_words; i++) ft_ini_read(c->ini, c->words[i], &c->faults);
    for (size_t i = 0; i < c->n_sets; i++) ft_ini_set(c->ini, c->sets[i], &c->faults);
    if (c->n_words) {
        const char *last = c->words[c->n_words - 1], *slash = strrchr(last, '/');
        const char *base = slash ? slash + 1 : last;
        size_t n = strlen(base);
        c->job_name = ft_arena_strndup(c->arena, base, ft_str_ends(base, ".ini") && n > 4 ? n - 4 : n);
    }
    c->config = ft_config_read(c->ini, environ, c->arena, &c->faults);
    return c->config && !c->faults.n_errors;
}

bool ft_cmd_read_job(struct ft_cmd *c)
{
    bool ok = ft_cmd_load_job(c);
    ft_cmd_print_faults(c);
    c->faults = (struct ft_faults){.arena = c->arena}; /* later ones are printed by themselves */
    if (!ok) {
        c->done = true;
        c->status = 2;
    }
    return ok;
}

int ft_cmd_print_page(const struct ft_command *self, int argc, char **argv,
                      bool (*write)(struct ft_cmd *c, const char *word, struct ft_buf *out))
{
    struct ft_cmd c;
    const char *value;
    struct ft_buf out = {0};
    ft_cmd_begin(&c, self, argc, argv);
    while (ft_cmd_next(&c, &value) > 0) {}
    if (c.done) return ft_cmd_end(&c);
    if (c.n_words != 1 || !write(&c, c.words[0], &out)) {
        struct ft_err err;
        ft_fail(&err, FT_USAGE, "%s takes one word: %s", self->name, self->usage);
        ft_cmd_fail(&c, &err);
    }
    fwrite(ft_buf_str(&out), 1, out.n, stdout);
    ft_buf_fini(&out);
    return ft_cmd_end(&c);
}

int ft_cmd_end(struct ft_cmd *c)
{
    int status = c->status;
    for (size_t i = 0; i < c->n_words; i++) free(c->words[i]);
    for (size_t i = 0; i < c->n_sets; i++) free(c->sets[i]);
    free(c->words);
    free(c->sets);
    ft_arena_destroy(c->arena);
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "ftlaunch: error: cannot write to stdout: %s\n", strerror(errno));
        if (!status) status = 125;
    }
    return status;
}

const char *ft_find_fttrain(struct ft_arena *arena)
{
    struct ft_buf path = {0};
    struct ft_err err;
    const char *found = NULL;
    if (!ft_self_dir(&path, &err)) {
        ft_buf_adds(&path, "/fttrain");
        if (!access(path.data, X_OK) && ft_is_file(path.data)) found = ft_arena_strdup(arena, path.data);
    }
    const char *dirs = getenv("PATH");
    while (!found && dirs && *dirs) {
        size_t n = strcspn(dirs, ":");
        ft_buf_clear(&path);
        ft_buf_add(&path, n ? dirs : ".", n ? n : 1);
        ft_buf_adds(&path, "/fttrain");
        if (!access(path.data, X_OK) && ft_is_file(path.data)) found = ft_arena_strdup(arena, path.data);
        dirs += n + (dirs[n] == ':');
    }
    ft_buf_fini(&path);
    return found;
}
