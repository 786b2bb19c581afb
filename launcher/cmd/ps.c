/* ftlaunch ps: runs of this user on this host. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "launcher/cmd/cmd.h"
#include "launcher/ctl.h"
#include "launcher/runs.h"

enum { OPT_ALL = 1 };

struct list {
    struct ft_cmd c;
    struct ft_run_info *v;
    size_t n, cap;
};

static void add(struct list *l, const struct ft_rundir *dir)
{
    for (size_t i = 0; i < l->n; i++)
        if (ft_str_eq(l->v[i].dir.id, dir->id)) return;
    ft_grow(&l->v, &l->cap, l->n + 1, sizeof *l->v);
    ft_run_info_read(dir, l->c.arena, &l->v[l->n++]);
}

/* Runs of other folders are known by the sockets of their heads. */
static void add_by_sockets(struct list *l)
{
    struct ft_buf folder = {0};
    DIR *d = ft_ctl_folder(false, &folder, NULL) == FT_OK ? opendir(folder.data) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (!ft_str_ends(e->d_name, ".sock")) continue;
        const char *id = ft_arena_strndup(l->c.arena, e->d_name, n - 5);
        struct ft_buf answer = {0};
        struct ft_json *v = NULL;
        if (ft_ctl_ask(id, "ps", 1000, &answer, NULL) == FT_OK &&
            ft_json_parse(ft_buf_str(&answer), answer.n, 0, &v, NULL, NULL) == FT_OK) {
            const char *path = ft_json_str(ft_json_get(v, "folder"));
            if (path) add(l, &(struct ft_rundir){id, ft_arena_strdup(l->c.arena, path)});
        }
        ft_json_destroy(v);
        ft_buf_fini(&answer);
    }
    if (d) closedir(d);
    ft_buf_fini(&folder);
}

static void print_json(const struct list *l)
{
    struct ft_buf b = {0};
    struct ft_jw w = ft_jw_begin(&b);
    ft_jw_array(&w);
    for (size_t i = 0; i < l->n; i++) {
        const struct ft_run_info *r = &l->v[i];
        ft_jw_object(&w);
        ft_jw_kstr(&w, "run", r->dir.id);
        ft_jw_kstr(&w, "state", r->state);
        ft_jw_kbool(&w, "alive", r->alive);
        ft_jw_key(&w, "status");
        if (r->ended && !r->alive) ft_jw_int(&w, r->status);
        else ft_jw_null(&w);
        ft_jw_kint(&w, "ranks", r->ranks);
        ft_jw_kint(&w, "nodes", r->nodes);
        ft_jw_kint(&w, "step", r->step);
        ft_jw_kint(&w, "attempt", r->last_attempt);
        ft_jw_kreal(&w, "seconds", r->seconds);
        ft_jw_kstr(&w, "started", r->started);
        ft_jw_kstr(&w, "host", r->host);
        ft_jw_kstr(&w, "folder", r->dir.path);
        ft_jw_end(&w);
    }
    ft_jw_end(&w);
    printf("%s\n", b.data);
    ft_buf_fini(&b);
}

static void print_table(const struct list *l)
{
    char host[256] = "";
    if (gethostname(host, sizeof host - 1) < 0) host[0] = 0;
    printf("%-40s %-12s %6s %6s %8s %10s\n", "RUN", "STATE", "RANKS", "NODES", "STEP", "SECONDS");
    for (size_t i = 0; i < l->n; i++) {
        const struct ft_run_info *r = &l->v[i];
        char state[64], step[24], ranks[16], nodes[16];
        snprintf(state, sizeof state, r->alive || strcmp(r->state, "failed") != 0 ? "%s" : "%s %d", r->state, r->status);
        snprintf(step, sizeof step, "%lld", (long long)r->step);
        snprintf(ranks, sizeof ranks, "%d", r->ranks);
        snprintf(nodes, sizeof nodes, "%d", r->nodes);
        printf("%-40s %-12s %6s %6s %8s %10.1f", r->dir.id, state, r->ranks < 0 ? "-" : ranks, r->nodes < 0 ? "-" : nodes,
               r->step < 0 ? "-" : step, r->seconds);
        if (r->host && !ft_str_eq(r->host, host)) { /* as a file says it */
            struct ft_buf seen = {0};
            ft_buf_add_visible(&seen, r->host, strlen(r->host), "");
            printf("  on %s", seen.data);
            ft_buf_fini(&seen);
        }
        putchar('\n');
    }
    if (!l->n) ft_cmd_say(&l->c, ft_arena_printf(l->c.arena, "ftlaunch: no runs in '%s'\n", l->c.config->launch.run_dir));
}

static int run(const struct ft_command *self, int argc, char **argv)
{
    struct list l = {.n = 0};
    const char *value;
    bool all = false;
    ft_cmd_begin(&l.c, self, argc, argv);
    for (int id; (id = ft_cmd_next(&l.c, &value)) > 0;) all = all || id == OPT_ALL;
    if (!l.c.done && l.c.n_words) {
        struct ft_err err;
        ft_fail(&err, FT_UNSUPPORTED, "ps %s: asking the nodes of a job file is not built yet", l.c.words[0]);
        ft_fix(&err, "ftlaunch ps, without a file, lists the runs of this host");
        ft_cmd_fail(&l.c, &err);
    }
    if (l.c.done || !ft_cmd_read_job(&l.c)) return ft_cmd_end(&l.c);
    const char **names;
    const char *parent = l.c.config->launch.run_dir;
    size_t n = ft_runs_list(parent, l.c.arena, &names), from = all || n < 20 ? 0 : n - 20;
    for (size_t i = from; i < n; i++) {
        struct ft_rundir dir;
        if (ft_rundir_find(parent, names[i], l.c.arena, &dir, NULL) == FT_OK) add(&l, &dir);
    }
    add_by_sockets(&l);
    if (l.c.json) print_json(&l);
    else print_table(&l);
    free(l.v);
    return ft_cmd_end(&l.c);
}

static const struct ft_option options[] = {
    {"all", 'a', NULL, "every run of the folder, not only the newest 20", OPT_ALL},
    FT_OPTION_SET,
    FT_OPTION_JSON,
    FT_OPTIONS_SHARED,
};
static const struct ft_command command = {
    .name = "ps",
    .usage = "[--all] [--set launch.run_dir=FOLDER] [--json]",
    .summary = "runs that live or have lived here: state, ranks, step",
    .text =
        "Lists the runs of [launch] run_dir and those of this user whose launcher answers. A run whose launcher is gone without a\n"
        "last word reads 'died': it was killed, or it ran inside another run that ended it with SIGKILL.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .main = run,
};
const struct ft_cmd_ops ft_cmd_ps = {&command, false};
