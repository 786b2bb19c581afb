#include "runtime/ckpt/cmd.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/argv.h"
#include "base/fd.h"

enum { OPT_JSON = 1, OPT_VERBOSE, OPT_KEEP, OPT_DRY };

static const struct ft_option json_only[] = {{"json", 0, NULL, "one JSON object", OPT_JSON}};
static const struct ft_option diff_options[] = {{"json", 0, NULL, "one JSON object", OPT_JSON},
                                                {"verbose", 'v', NULL, "max |a-b| of every tensor that differs", OPT_VERBOSE}};
static const struct ft_option prune_options[] = {{"json", 0, NULL, "one JSON object", OPT_JSON},
                                                 {"keep", 0, "N", "how many of the newest stay", OPT_KEEP},
                                                 {"dry-run", 0, NULL, "say what would go", OPT_DRY}};

static int ls(struct ft_ckpt_call *c);
static int prune(struct ft_ckpt_call *c);

static const struct {
    struct ft_command command;
    size_t min_words, max_words;
    int (*run)(struct ft_ckpt_call *c);
} verbs[] = {
    {{.name = "ls", .usage = "DIR", .summary = "checkpoints of a folder", .options = json_only, .n_options = 1}, 1, 1, ls},
    {{.name = "verify",
      .usage = "PATH…",
      .summary = "read everything: checksums, coverage, hashes",
      .options = json_only,
      .n_options = 1},
     1,
     SIZE_MAX,
     ft_ckpt_cmd_verify},
    {{.name = "diff", .usage = "A B", .summary = "what differs between two checkpoints", .options = diff_options, .n_options = 2},
     2,
     2,
     ft_ckpt_cmd_diff},
    {{.name = "prune", .usage = "DIR --keep N", .summary = "remove old checkpoints", .options = prune_options, .n_options = 3},
     1,
     1,
     prune},
};

static int usage(FILE *err, const struct ft_err *e)
{
    ft_err_print(err, "fttrain", e);
    return 2;
}

static int read_options(const struct ft_command *cmd, int argc, char **argv, struct ft_ckpt_call *c, struct ft_err *err)
{
    struct ft_argv a = ft_argv_begin(cmd, argc, argv);
    const char *value;
    for (int id; (id = ft_argv_next(&a, &value, err)) != FT_ARG_END;) {
        if (id == FT_ARG_BAD) return 2;
        if (id == FT_ARG_HELP) {
            struct ft_buf b = {0};
            ft_command_help("fttrain ckpt", cmd, &b);
            fputs(ft_buf_str(&b), c->out);
            ft_buf_fini(&b);
            return 0;
        }
        if (id == FT_ARG_WORD) c->words[c->n_words++] = value;
        if (id == OPT_JSON) c->json = true;
        if (id == OPT_VERBOSE) c->verbose = true;
        if (id == OPT_DRY) c->dry_run = true;
        if (id == OPT_KEEP && !ft_parse_i64(value, 1, 1000000, &c->keep)) {
            ft_fail(err, FT_USAGE, "--keep %s: a number of checkpoints from 1 on is wanted", value);
            return 2;
        }
    }
    return -1;
}

/* A run's folder stands for its folder of checkpoints. Heap. */
static char *folder_of(const char *word)
{
    struct ft_buf path = {0};
    ft_buf_addf(&path, "%s/manifest.json", word);
    const bool one = ft_is_file(path.data);
    ft_buf_clear(&path);
    ft_buf_addf(&path, "%s/checkpoints", word);
    if (one || !ft_is_dir(path.data)) {
        ft_buf_clear(&path);
        ft_buf_adds(&path, word);
    }
    return path.data;
}

static int run_verb(int (*verb)(struct ft_ckpt_call *c), struct ft_ckpt_call *c)
{
    char **own = ft_xcalloc(c->n_words + 1, sizeof *own);
    for (size_t i = 0; i < c->n_words; i++) c->words[i] = own[i] = folder_of(c->words[i]);
    const int rc = verb(c);
    for (size_t i = 0; i < c->n_words; i++) free(own[i]);
    free(own);
    return rc;
}

int ft_ckpt_command(int argc, char **argv, FILE *out, FILE *err)
{
    struct ft_err e = {0};
    struct ft_ckpt_call c = {.out = out, .err = err, .keep = -1};
    const char *verb = argc > 0 ? argv[0] : "";
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(verb, verbs[i].command.name) != 0) continue;
        c.words = ft_xcalloc((size_t)argc + 1, sizeof *c.words);
        int rc = read_options(&verbs[i].command, argc, argv, &c, &e);
        if (rc < 0 && (c.n_words < verbs[i].min_words || c.n_words > verbs[i].max_words)) {
            ft_fail(&e, FT_USAGE, "usage: fttrain ckpt %s %s", verb, verbs[i].command.usage);
            rc = 2;
        }
        if (rc < 0) rc = run_verb(verbs[i].run, &c);
        else if (rc == 2) usage(err, &e);
        free(c.words);
        return rc;
    }
    if (!strcmp(verb, "--help") || !strcmp(verb, "-h")) {
        fputs("fttrain ckpt: look at, check, compare and remove checkpoints\n\n", out);
        for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
            fprintf(out, "  fttrain ckpt %-7s%-16s%s\n", verbs[i].command.name, verbs[i].command.usage, verbs[i].command.summary);
        return 0;
    }
    if (*verb) ft_fail(&e, FT_USAGE, "'%s' is no verb of fttrain ckpt", verb);
    else ft_fail(&e, FT_USAGE, "fttrain ckpt wants a verb");
    ft_fix(&e, "use ls, verify, diff or prune");
    return usage(err, &e);
}

enum ft_code ft_ckpt_cmd_open(const char *path, struct ft_buf *text, struct ft_manifest **m, struct ft_err *err)
{
    enum ft_code rc = ft_manifest_read(path, text, err);
    if (!rc) rc = ft_manifest_parse(path, text->data, text->n, m, err);
    return rc;
}

/* --- ls ---------------------------------------------------------------------------------------------------------------------- */

struct line {
    const char *name;
    const struct ft_manifest *m; /* NULL: not readable */
    bool latest, best;
    const char *why; /* NULL: valid */
};

static double last_loss(const struct ft_manifest *m)
{
    return m->scalars.n_window ? m->scalars.losses[m->scalars.n_window - 1] : (double)NAN;
}

static void ls_json(struct ft_jw *w, const struct line *l)
{
    ft_jw_object(w);
    ft_jw_kstr(w, "name", l->name);
    if (l->m) {
        ft_jw_kint(w, "step", l->m->step);
        ft_jw_kstr(w, "created", l->m->created);
        ft_jw_kint(w, "bytes", l->m->bytes);
        ft_jw_kstr(w, "run_id", l->m->run_id);
        ft_jw_kstr(w, "lineage", l->m->lineage);
        ft_jw_kreal(w, "loss", last_loss(l->m));
    }
    ft_jw_kbool(w, "latest", l->latest);
    ft_jw_kbool(w, "best", l->best);
    ft_jw_kbool(w, "valid", !l->why);
    ft_jw_kstr(w, "why", l->why);
    ft_jw_end(w);
}

static void ls_text(FILE *out, const struct line *l)
{
    if (!l->m) {
        fprintf(out, "%-24s not valid: %s\n", l->name, l->why);
        return;
    }
    fprintf(out, "%-24s step %-8lld %s %10.1f MB  loss %-8.4g %s%s%s", l->name, (long long)l->m->step, l->m->created,
            (double)l->m->bytes / 1e6, last_loss(l->m), l->m->lineage, l->latest ? "  LATEST" : "", l->best ? "  BEST" : "");
    if (l->why) fprintf(out, "  not valid: %s", l->why);
    fputc('\n', out);
}

static int ls(struct ft_ckpt_call *c)
{
    const char *dir = c->words[0];
    struct ft_ckpt_names names;
    size_t n = 0;
    struct ft_err err = {0};
    struct ft_buf latest = {0}, best = {0}, path = {0}, json = {0};
    if (ft_ckpt_names_read(dir, &names, &err)) return usage(c->err, &err);
    ft_ckpt_hint_read(dir, "LATEST", &latest);
    ft_ckpt_hint_read(dir, "BEST", &best);
    struct ft_jw w = ft_jw_begin(&json);
    ft_jw_object(&w);
    ft_jw_kint(&w, "schema", 1);
    ft_jw_kstr(&w, "dir", dir);
    ft_jw_key(&w, "checkpoints");
    ft_jw_array(&w);
    for (size_t i = 0; i < names.n; i++) {
        if (names.v[i].kind != FT_CKPT_STEP) continue;
        n++;
        struct ft_manifest *m = NULL;
        struct ft_buf text = {0};
        ft_buf_clear(&path);
        ft_buf_addf(&path, "%s/%s", dir, names.v[i].name);
        enum ft_code rc = ft_ckpt_cmd_open(ft_buf_str(&path), &text, &m, &err);
        if (!rc) rc = ft_manifest_check_files(m, ft_buf_str(&path), &err);
        const struct line l = {.name = names.v[i].name,
                               .m = m,
                               .latest = latest.n && !strcmp(ft_buf_str(&latest), names.v[i].name),
                               .best = best.n && !strcmp(ft_buf_str(&best), names.v[i].name),
                               .why = rc ? err.text : NULL};
        if (c->json) ls_json(&w, &l);
        else ls_text(c->out, &l);
        ft_manifest_destroy(m);
        ft_buf_fini(&text);
    }
    ft_jw_end(&w);
    ft_jw_end(&w);
    if (c->json) fprintf(c->out, "%s\n", ft_buf_str(&json));
    else if (!n) fprintf(c->out, "no checkpoints in %s\n", dir);
    ft_ckpt_names_fini(&names);
    ft_buf_fini(&latest);
    ft_buf_fini(&best);
    ft_buf_fini(&path);
    ft_buf_fini(&json);
    return 0;
}

/* --- prune ---------------------------------------------------------------------------------------------------------------------- */

/* The lineage that LATEST belongs to, or the only one. */
static enum ft_code find_lineage(const char *dir, struct ft_buf *lineage, struct ft_err *err)
{
    struct ft_buf name = {0}, other = {0};
    struct ft_ckpt_names names = {0};
    enum ft_code rc = FT_OK;
    ft_ckpt_hint_read(dir, "LATEST", &name);
    if (!name.n || !ft_ckpt_lineage(dir, ft_buf_str(&name), lineage, NULL)) {
        ft_buf_clear(lineage);
        rc = ft_ckpt_names_read(dir, &names, err);
        for (size_t i = 0; i < names.n && !rc; i++) {
            if (names.v[i].kind != FT_CKPT_STEP || !ft_ckpt_lineage(dir, names.v[i].name, &other, NULL)) continue;
            if (lineage->n && strcmp(ft_buf_str(lineage), ft_buf_str(&other)) != 0)
                rc = ft_fail(err, FT_CONFIG, "%s has checkpoints of several runs (%s, %s) and no LATEST", dir, ft_buf_str(lineage),
                             ft_buf_str(&other));
            ft_buf_clear(lineage);
            ft_buf_adds(lineage, ft_buf_str(&other));
        }
    }
    if (!rc && !lineage->n) rc = ft_fail(err, FT_CONFIG, "%s has no valid checkpoint", dir);
    ft_ckpt_names_fini(&names);
    ft_buf_fini(&name);
    ft_buf_fini(&other);
    return rc;
}

/* Of the best evaluation that the newest state knows; 0: of none. */
static int64_t best_step(const char *dir, const char *latest)
{
    struct ft_buf path = {0}, text = {0};
    struct ft_manifest *m = NULL;
    ft_buf_addf(&path, "%s/%s", dir, latest);
    const bool ok = *latest && !ft_manifest_read(ft_buf_str(&path), &text, NULL) &&
                    !ft_manifest_parse(ft_buf_str(&path), text.data, text.n, &m, NULL);
    const int64_t step = ok && m->scalars.has_eval ? m->scalars.best_step : 0;
    ft_manifest_destroy(m);
    ft_buf_fini(&path);
    ft_buf_fini(&text);
    return step;
}

static int prune(struct ft_ckpt_call *c)
{
    const char *dir = c->words[0];
    char me[64];
    struct ft_err err = {0};
    struct ft_fio fio = {0};
    struct ft_ckpt_lock lock = {.fd = -1};
    struct ft_buf lineage = {0}, latest = {0}, best = {0}, removed = {0}, taken = {0};
    snprintf(me, sizeof me, "prune-%d", (int)getpid());
    enum ft_code rc = c->keep < 0      ? ft_fail(&err, FT_USAGE, "prune wants --keep N")
                      : ft_is_dir(dir) ? FT_OK
                                       : ft_fail(&err, FT_USAGE, "%s is no folder", dir);
    if (!rc && !c->dry_run)
        rc = ft_ckpt_lock_take(&lock, &fio, dir, (struct ft_ckpt_owner){.run_id = me, .lineage = me}, &taken, &err);
    if (!rc) rc = find_lineage(dir, &lineage, &err);
    ft_ckpt_hint_read(dir, "LATEST", &latest);
    ft_ckpt_hint_read(dir, "BEST", &best);
    const struct ft_ckpt_retention r = {
        .dir = dir,
        .lineage = ft_buf_str(&lineage),
        .run_id = me,
        .keep = c->keep,
        .best_step = best_step(dir, ft_buf_str(&latest)),
        .dry_run = c->dry_run,
        .kept = {latest.n ? ft_buf_str(&latest) : NULL, best.n ? ft_buf_str(&best) : NULL, NULL, NULL}};
    if (!rc) rc = ft_ckpt_retain(&fio, &r, &removed, &err);
    ft_ckpt_lock_drop(&lock, dir);
    if (!rc && c->json) {
        struct ft_buf json = {0};
        struct ft_jw w = ft_jw_begin(&json);
        ft_jw_object(&w);
        ft_jw_kint(&w, "schema", 1);
        ft_jw_kbool(&w, "dry_run", c->dry_run);
        ft_jw_key(&w, "removed");
        ft_jw_array(&w);
        char *rest = removed.data;
        for (char *one; (one = strsep(&rest, " "));) ft_jw_str(&w, one);
        ft_jw_end(&w);
        ft_jw_end(&w);
        fprintf(c->out, "%s\n", ft_buf_str(&json));
        ft_buf_fini(&json);
    } else if (!rc) {
        fprintf(c->out, "%s: %s\n", c->dry_run ? "would remove" : "removed", removed.n ? ft_buf_str(&removed) : "nothing");
    }
    ft_buf_fini(&lineage);
    ft_buf_fini(&latest);
    ft_buf_fini(&best);
    ft_buf_fini(&removed);
    ft_buf_fini(&taken);
    if (!rc) return 0;
    usage(c->err, &err);
    return rc == FT_IO || rc == FT_DATA ? 1 : 2;
}
