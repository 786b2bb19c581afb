#include "launcher/runs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/fd.h"
#include "launcher/ctl.h"

enum { MAX_FILE = 1 << 30, ASK_MS = 1000 };

bool ft_jsonl_open(struct ft_jsonl *l, const char *path)
{
    *l = (struct ft_jsonl){.at = 0};
    return ft_read_file(path, MAX_FILE, &l->text, NULL) == FT_OK;
}

struct ft_json *ft_jsonl_next(struct ft_jsonl *l)
{
    while (l->at < l->text.n) {
        const char *p = l->text.data + l->at, *end = memchr(p, '\n', l->text.n - l->at);
        size_t n = end ? (size_t)(end - p) : l->text.n - l->at;
        l->at += n + 1;
        struct ft_json *v = NULL;
        if (n && ft_json_parse(p, n, 0, &v, NULL, NULL) == FT_OK) return v;
    }
    return NULL;
}

void ft_jsonl_close(struct ft_jsonl *l) { ft_buf_fini(&l->text); }

bool ft_run_is_alive(const struct ft_rundir *dir)
{
    struct ft_buf path = {0};
    ft_buf_addf(&path, "%s/events.jsonl", dir->path);
    int fd = open(path.data, O_RDONLY | O_CLOEXEC);
    ft_buf_fini(&path);
    if (fd < 0) return false;
    bool alive = flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    close(fd);
    return alive;
}

static const char *copy(struct ft_arena *arena, const struct ft_json *v)
{
    return ft_json_str(v) ? ft_arena_strdup(arena, ft_json_str(v)) : NULL;
}

static void take_event(struct ft_run_info *r, const struct ft_json *e, struct ft_arena *arena)
{
    const char *ev = ft_json_str(ft_json_get(e, "ev"));
    r->last_attempt = (int)ft_json_int(ft_json_get(e, "attempt"), r->last_attempt);
    if (ft_str_eq(ev, "run_start")) {
        r->ranks = (int)ft_json_int(ft_json_get(e, "ranks"), -1);
        r->nodes = (int)ft_json_int(ft_json_get(e, "nodes"), -1);
        r->host = copy(arena, ft_json_get(e, "host"));
        if (!r->started) r->started = copy(arena, ft_json_get(e, "t"));
        r->ended = false;
    } else if (ft_str_eq(ev, "run_end")) {
        r->ended = true;
        r->status = (int)ft_json_int(ft_json_get(e, "status"), -1);
        r->seconds = ft_json_real(ft_json_get(e, "seconds"), 0);
        r->cause = copy(arena, ft_json_get(ft_json_get(e, "cause"), "text"));
    } else if (ft_str_eq(ev, "first_step") && r->step < 0) r->step = ft_json_int(ft_json_get(e, "step"), -1);
}

static void ask_head(struct ft_run_info *r, struct ft_arena *arena)
{
    struct ft_buf answer = {0};
    struct ft_json *v = NULL;
    if (ft_ctl_ask(r->dir.id, "ps", ASK_MS, &answer, NULL) == FT_OK &&
        ft_json_parse(ft_buf_str(&answer), answer.n, 0, &v, NULL, NULL) == FT_OK) {
        const char *state = copy(arena, ft_json_get(v, "state"));
        if (state) r->state = state;
        r->step = ft_json_int(ft_json_get(v, "step"), r->step);
        r->seconds = ft_json_real(ft_json_get(v, "seconds"), r->seconds);
    }
    ft_json_destroy(v);
    ft_buf_fini(&answer);
}

static int64_t last_metric_step(const struct ft_rundir *dir)
{
    struct ft_buf path = {0};
    struct ft_jsonl l;
    int64_t step = -1;
    ft_buf_addf(&path, "%s/metrics.jsonl", dir->path);
    if (ft_jsonl_open(&l, path.data))
        for (struct ft_json *v; (v = ft_jsonl_next(&l)); ft_json_destroy(v)) {
            int64_t s = ft_json_int(ft_json_get(v, "step"), -1);
            if (s > step) step = s;
        }
    ft_jsonl_close(&l);
    ft_buf_fini(&path);
    return step;
}

void ft_run_info_read(const struct ft_rundir *dir, struct ft_arena *arena, struct ft_run_info *out)
{
    *out = (struct ft_run_info){.dir = *dir, .status = -1, .ranks = -1, .nodes = -1, .step = -1, .state = "died"};
    struct ft_jsonl l;
    out->alive = ft_run_is_alive(dir);
    if (ft_jsonl_open(&l, ft_rundir_file(dir, "events.jsonl", arena)))
        for (struct ft_json *v; (v = ft_jsonl_next(&l)); ft_json_destroy(v)) take_event(out, v, arena);
    ft_jsonl_close(&l);
    int64_t step = last_metric_step(dir);
    if (step > out->step) out->step = step;
    if (out->alive) {
        out->state = "running";
        ask_head(out, arena);
    } else if (out->ended) out->state = out->status == 0 ? "done" : "failed";
}

/* A run and when it began: the second in its name, and inside that second what its first event says. */
struct begun {
    const char *name, *t;
};

static int by_start(const void *a, const void *b)
{
    enum { STAMP = 20 }; /* "YYYYMMDD-HHMMSS-xxxx", whose end is random */
    const struct begun *x = a, *y = b;
    int c = strncmp(x->name + strlen(x->name) - STAMP, y->name + strlen(y->name) - STAMP, STAMP - 5);
    if (!c && x->t && y->t) c = strcmp(x->t, y->t);
    else if (!c) c = (x->t != NULL) - (y->t != NULL);
    return c ? c : strcmp(x->name, y->name);
}

/* Time of the first event, "2026-11-30T17:41:00.123Z"; NULL: none. */
static const char *first_time(const char *parent, const char *name, struct ft_arena *arena)
{
    char line[512];
    FILE *f = fopen(ft_arena_printf(arena, "%s/%s/events.jsonl", parent, name), "re");
    static const char head[] = "{\"t\":\"";
    const char *t = NULL;
    if (f && fgets(line, sizeof line, f) && ft_str_starts(line, head))
        t = ft_arena_strndup(arena, line + sizeof head - 1, strcspn(line + sizeof head - 1, "\""));
    if (f) fclose(f);
    return t;
}

size_t ft_runs_list(const char *parent, struct ft_arena *arena, const char ***names)
{
    size_t n = 0, cap = 0;
    struct begun *v = NULL;
    DIR *d = opendir(parent);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!ft_rundir_is_run(e->d_name)) continue;
        ft_grow(&v, &cap, n + 1, sizeof *v);
        v[n++] = (struct begun){ft_arena_strdup(arena, e->d_name), first_time(parent, e->d_name, arena)};
    }
    if (d) closedir(d);
    if (n) qsort(v, n, sizeof *v, by_start);
    *names = ft_arena_array(arena, n + 1, sizeof **names);
    for (size_t i = 0; i < n; i++) (*names)[i] = v[i].name;
    free(v);
    return n;
}

const char *ft_runs_before(const char *parent, const char *name, const char *but, struct ft_arena *arena)
{
    const char **names;
    size_t n = ft_runs_list(parent, arena, &names), len = strlen(name);
    while (n-- > 0)
        if (ft_rundir_is_run(names[n]) == len && strncmp(names[n], name, len) == 0 && strcmp(names[n], but) != 0) return names[n];
    return NULL;
}
