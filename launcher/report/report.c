#include "launcher/report/report.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/fd.h"

enum { LAST_LINES = 20, TAIL_BYTES = 16384, MOST_EVENTS = 200 };

void ft_html(const char *s, size_t n, struct ft_buf *out)
{
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        size_t valid = c < 0x80 ? 1 : ft_utf8_valid(s + i, n - i < 4 ? n - i : 4);
        if (c == '&') ft_buf_adds(out, "&amp;");
        else if (c == '<') ft_buf_adds(out, "&lt;");
        else if (c == '>') ft_buf_adds(out, "&gt;");
        else if (c == '"') ft_buf_adds(out, "&quot;");
        else if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7F || !valid) ft_buf_adds(out, "\xEF\xBF\xBD");
        else if (c < 0x80) ft_buf_addc(out, (char)c);
        else {
            uint32_t cp;
            size_t k = (size_t)ft_utf8_decode(s + i, n - i, &cp);
            ft_buf_add(out, s + i, k);
            i += k;
            continue;
        }
        i++;
    }
}

static void text(const char *s, struct ft_buf *out)
{
    if (s) ft_html(s, strlen(s), out);
}

static void row(const char *name, const char *value, struct ft_buf *out)
{
    if (!value) return;
    ft_buf_addf(out, "<dt>%s</dt><dd>", name);
    text(value, out);
    ft_buf_adds(out, "</dd>\n");
}

/* ---- events as tables ---- */

struct rank_row {
    int64_t pid, status, signal;
    const char *node;
    double seconds;
    bool started, ended, consequence, core, oom;
};
struct facts {
    struct rank_row *ranks;
    size_t n_ranks, cap;
    struct ft_buf events, nodes;
    size_t n_events;
    int64_t culprit;
    const char *command;
};

static struct rank_row *rank_of(struct facts *f, int64_t rank)
{
    if (rank < 0 || rank > 1 << 20) return NULL;
    size_t need = (size_t)rank + 1, before = f->n_ranks;
    if (need > before) {
        ft_grow(&f->ranks, &f->cap, need, sizeof *f->ranks);
        memset(f->ranks + before, 0, (need - before) * sizeof *f->ranks);
        f->n_ranks = need;
    }
    return &f->ranks[rank];
}

static const char *copy(struct ft_arena *arena, const struct ft_json *v)
{
    return ft_json_str(v) ? ft_arena_strdup(arena, ft_json_str(v)) : NULL;
}

static void take_rank(struct facts *f, const struct ft_json *e, bool start, struct ft_arena *arena)
{
    struct rank_row *r = rank_of(f, ft_json_int(ft_json_get(e, "rank"), -1));
    if (!r) return;
    if (start) {
        *r = (struct rank_row){.started = true, .pid = ft_json_int(ft_json_get(e, "pid"), 0)};
        r->node = copy(arena, ft_json_get(e, "node"));
        return;
    }
    r->ended = true;
    r->status = ft_json_int(ft_json_get(e, "status"), 0);
    r->signal = ft_json_int(ft_json_get(e, "signal"), 0);
    r->seconds = ft_json_real(ft_json_get(e, "seconds"), 0);
    r->consequence = ft_json_bool(ft_json_get(e, "consequence"), false);
    r->core = ft_json_bool(ft_json_get(e, "core"), false);
    r->oom = ft_json_bool(ft_json_get(e, "oom"), false);
}

static void take_node(struct facts *f, const struct ft_json *e)
{
    ft_buf_adds(&f->nodes, "<tr><td>");
    text(ft_json_str(ft_json_get(e, "node")), &f->nodes);
    const struct ft_json *ms = ft_json_get(e, "ms");
    ft_buf_adds(&f->nodes, "</td><td>");
    for (void *it = ft_json_iter(ms); it; it = ft_json_iter_next(ms, it))
        ft_buf_addf(&f->nodes, "%s %.1f ms ", ft_json_iter_key(it), ft_json_real(ft_json_iter_value(it), 0));
    ft_buf_addf(&f->nodes, "</td><td>%lld</td></tr>\n", (long long)ft_json_int(ft_json_get(e, "attempt"), 0));
}

static void join_command(struct facts *f, const struct ft_json *argv, struct ft_arena *arena)
{
    struct ft_buf b = {0};
    for (size_t i = 0; i < ft_json_count(argv); i++) ft_buf_addf(&b, "%s%s", i ? " " : "", ft_json_str(ft_json_at(argv, i)));
    f->command = ft_arena_strdup(arena, ft_buf_str(&b));
    ft_buf_fini(&b);
}

static void take_event(struct facts *f, const struct ft_json *e, struct ft_arena *arena)
{
    const char *ev = ft_json_str(ft_json_get(e, "ev"));
    if (!ev) return;
    if (ft_str_eq(ev, "run_start")) join_command(f, ft_json_get(e, "argv"), arena);
    if (ft_str_eq(ev, "rank_started")) take_rank(f, e, true, arena);
    if (ft_str_eq(ev, "rank_exit")) take_rank(f, e, false, arena);
    if (ft_str_eq(ev, "node_up")) take_node(f, e);
    if (ft_str_eq(ev, "run_end")) f->culprit = ft_json_int(ft_json_get(ft_json_get(e, "cause"), "rank"), -1);
    bool dull = ft_str_eq(ev, "rank_started") || ft_str_eq(ev, "rank_exit") || ft_str_eq(ev, "first_step");
    if (dull || f->n_events++ >= MOST_EVENTS) return;
    ft_buf_adds(&f->events, "<tr><td>");
    text(ft_json_str(ft_json_get(e, "t")), &f->events);
    ft_buf_adds(&f->events, "</td><td>");
    text(ev, &f->events);
    ft_buf_addf(&f->events, "</td><td>%lld</td><td class=\"wide\">", (long long)ft_json_int(ft_json_get(e, "attempt"), 0));
    struct ft_buf rest = {0};
    struct ft_jw w = ft_jw_begin(&rest);
    ft_jw_object(&w);
    for (void *it = ft_json_iter(e); it; it = ft_json_iter_next(e, it)) {
        const char *key = ft_json_iter_key(it);
        if (ft_str_eq(key, "t") || ft_str_eq(key, "ev") || ft_str_eq(key, "attempt")) continue;
        ft_jw_key(&w, key);
        ft_jw_value(&w, ft_json_iter_value(it));
    }
    ft_jw_end(&w);
    text(ft_buf_str(&rest), &f->events);
    ft_buf_fini(&rest);
    ft_buf_adds(&f->events, "</td></tr>\n");
}

static void rank_table(const struct facts *f, struct ft_buf *out)
{
    if (!f->n_ranks) return;
    ft_buf_adds(out,
                "<h2>Ranks</h2>\n<div "
                "class=\"scroll\"><table><tr><th>rank</th><th>node</th><th>pid</th><th>end</th><th>seconds</th><th></th></tr>\n");
    for (size_t i = 0; i < f->n_ranks; i++) {
        const struct rank_row *r = &f->ranks[i];
        bool first = (int64_t)i == f->culprit;
        ft_buf_addf(out, "<tr%s><td>%zu</td><td>", first ? " class=\"bad\"" : "", i);
        text(r->node, out);
        ft_buf_addf(out, "</td><td>%lld</td><td>", (long long)r->pid);
        if (!r->ended) ft_buf_adds(out, "-");
        else if (r->signal) ft_buf_addf(out, "signal %lld", (long long)r->signal);
        else ft_buf_addf(out, "%lld", (long long)r->status);
        ft_buf_addf(out, "</td><td>%.1f</td><td>%s%s%s%s</td></tr>\n", r->seconds, first ? "first failure " : "",
                    r->consequence ? "ended as a consequence " : "", r->core ? "core " : "", r->oom ? "out of memory" : "");
    }
    ft_buf_adds(out, "</table></div>\n");
}

/* The last lines that the first failing rank wrote. */
static void last_words(const struct ft_run_info *r, int64_t rank, struct ft_buf *out)
{
    struct ft_buf path = {0}, all = {0};
    ft_buf_addf(&path, "%s/ranks/%04lld.log", r->dir.path, (long long)rank);
    if (rank >= 0 && ft_read_file(path.data, 1 << 30, &all, NULL) == FT_OK && all.n) {
        size_t from = all.n > TAIL_BYTES ? all.n - TAIL_BYTES : 0, lines = 0, at = all.n;
        while (at > from && (all.data[at - 1] != '\n' || at == all.n || ++lines < LAST_LINES)) at--;
        ft_buf_addf(out, "<p class=\"sub\">Last output of rank %lld:</p>\n<pre>", (long long)rank);
        ft_html(all.data + at, all.n - at, out);
        ft_buf_adds(out, "</pre>\n");
    }
    ft_buf_fini(&path);
    ft_buf_fini(&all);
}

static void one_run(const struct ft_run_info *r, struct ft_arena *arena, struct ft_buf *out)
{
    struct facts f = {.culprit = -1};
    struct ft_jsonl l;
    if (ft_jsonl_open(&l, ft_rundir_file(&r->dir, "events.jsonl", arena)))
        for (struct ft_json *v; (v = ft_jsonl_next(&l)); ft_json_destroy(v)) take_event(&f, v, arena);
    ft_jsonl_close(&l);
    ft_buf_adds(out, "<h1>");
    text(r->dir.id, out);
    bool good = r->ended && r->status == 0;
    ft_buf_addf(out, "</h1>\n<p class=\"sub\"><span class=\"%s\">%s", good ? "good" : r->alive ? "" : "bad", r->state);
    if (r->ended && r->status) ft_buf_addf(out, ", status %d", r->status);
    ft_buf_addf(out, "</span> · %d ranks on %d node%s · %.1f s</p>\n<dl>\n", r->ranks, r->nodes, r->nodes == 1 ? "" : "s",
                r->seconds);
    row("started", r->started, out);
    row("head", r->host, out);
    row("command", f.command, out);
    row("folder", r->dir.path, out);
    ft_buf_addf(out, "<dt>attempts</dt><dd>%d</dd>\n</dl>\n", r->last_attempt + 1);
    if (r->ended && r->status) {
        ft_buf_adds(out, "<h2>Why it ended</h2>\n<pre class=\"bad\">");
        text(r->cause ? r->cause : "not known", out);
        ft_buf_adds(out, "</pre>\n");
        last_words(r, f.culprit, out);
    }
    rank_table(&f, out);
    if (f.nodes.n) {
        ft_buf_adds(out, "<h2>Nodes</h2>\n<div class=\"scroll\"><table><tr><th>node</th><th>phases</th><th>attempt</th></tr>\n");
        ft_buf_add(out, f.nodes.data, f.nodes.n);
        ft_buf_adds(out, "</table></div>\n");
    }
    if (f.events.n) {
        ft_buf_adds(
            out, "<h2>Events</h2>\n<div class=\"scroll\"><table><tr><th>time</th><th>event</th><th>attempt</th><th></th></tr>\n");
        ft_buf_add(out, f.events.data, f.events.n);
        ft_buf_adds(out, "</table></div>\n");
        if (f.n_events > MOST_EVENTS)
            ft_buf_addf(out, "<p class=\"sub\">%zu more are in events.jsonl.</p>\n", f.n_events - MOST_EVENTS);
    }
    free(f.ranks);
    ft_buf_fini(&f.events);
    ft_buf_fini(&f.nodes);
}

void ft_report_page(const struct ft_run_info *runs, size_t n, struct ft_arena *arena, struct ft_buf *out)
{
    struct ft_buf body = {0};
    if (n > 1) ft_report_curves(runs, n, arena, &body);
    for (size_t i = 0; i < n; i++) {
        struct ft_buf run = {0};
        one_run(&runs[i], arena, &run);
        const char *rest = strstr(ft_buf_str(&run), "<h2>Ranks");
        size_t head = rest ? (size_t)(rest - run.data) : run.n;
        ft_buf_add(&body, ft_buf_str(&run), head);
        if (n == 1) ft_report_curves(runs, n, arena, &body); /* curves before tables */
        ft_buf_adds(&body, ft_buf_str(&run) + head);
        ft_buf_fini(&run);
    }
    for (const char *p = ft_report_report; *p;) {
        if (ft_str_starts(p, "@TITLE@")) {
            ft_html(runs[0].dir.id, strlen(runs[0].dir.id), out);
            if (n > 1) ft_buf_addf(out, " and %zu more", n - 1);
            p += 7;
        } else if (ft_str_starts(p, "@BODY@")) {
            ft_buf_adds(out, ft_buf_str(&body));
            p += 6;
        } else if (ft_str_starts(p, "@VERSION@")) {
            ft_buf_adds(out, FT_VERSION);
            p += 9;
        } else ft_buf_addc(out, *p++);
    }
    ft_buf_fini(&body);
}
