/* What people, launch.log and events.jsonl are told while a run lives. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "launcher/head.h"

/* One line for people (through the console's queue, so that it tears nothing) and for launch.log. */
void ft_head_say(struct ft_head *h, enum ft_level level, const char *fmt, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ft_log(level, "run", "%s", text);
    if (level > FT_LOG_WARN && (h->quiet || (level > FT_LOG_INFO && h->q->verbose < 1))) return;
    if (level == FT_LOG_WARN && h->quiet) return;
    ft_head_clear_progress(h);
    struct ft_buf plain = {0}, line = {0};
    ft_buf_addf(&plain, "ftlaunch: %s", level == FT_LOG_ERROR ? "error: " : "");
    ft_buf_add_visible(&plain, text, strlen(text), ""); /* one line: newlines too */
    ft_console_paint(plain.data, h->q->color, &line);
    ft_buf_addc(&line, '\n');
    ft_buf_fini(&plain);
    ft_console_add(&h->console, 2, line.data, line.n);
    ft_buf_fini(&line);
}

struct ft_jw *ft_head_record(struct ft_head *h, const char *ev) { return ft_events_begin(&h->events, ev); }

void ft_head_recorded(struct ft_head *h)
{
    if (!ft_events_end(&h->events))
        ft_head_say(h, FT_LOG_ERROR, "cannot write '%s/events.jsonl': %s; the job goes on", h->q->dir.path, strerror(errno));
}

void ft_head_ranks_json(struct ft_jw *w, const char *key, const int *ranks, size_t n)
{
    ft_jw_key(w, key);
    ft_jw_array(w);
    for (size_t i = 0; i < n; i++) ft_jw_int(w, ranks[i]);
    ft_jw_end(w);
}

/* The launcher's own line; secrets that came with --set do not show. */
static void write_command(const struct ft_head *h, struct ft_jw *w)
{
    bool own = true, value = false;
    for (char **a = h->q->command; a && *a; a++) {
        const char *word = *a;
        if (own && value) word = ft_config_mask_set(h->config, word, h->arena);
        else if (own && ft_str_starts(word, "--set="))
            word = ft_arena_printf(h->arena, "--set=%s", ft_config_mask_set(h->config, word + 6, h->arena));
        value = own && !value && !strcmp(*a, "--set");
        own = own && (value || strcmp(*a, "--") != 0);
        ft_jw_str(w, word);
    }
}

void ft_head_record_start(struct ft_head *h)
{
    struct ft_jw *w = ft_head_record(h, "run_start");
    ft_jw_kstr(w, "run", h->q->dir.id);
    ft_jw_key(w, "argv");
    ft_jw_array(w);
    write_command(h, w);
    ft_jw_end(w);
    ft_jw_kstr(w, "version", FT_VERSION);
    ft_jw_kint(w, "ranks", h->plan->world);
    ft_jw_kint(w, "nodes", (int64_t)h->plan->n_nodes);
    ft_jw_kint(w, "pid", getpid());
    char host[256] = "";
    if (gethostname(host, sizeof host - 1) < 0) host[0] = 0;
    ft_jw_kstr(w, "host", host);
    if (h->q->continued) ft_jw_kstr(w, "changed", h->q->continued);
    ft_head_recorded(h);
    ft_head_say(h, FT_LOG_INFO, "%s: %d rank%s on %zu node%s, %s", h->q->dir.id, h->plan->world, h->plan->world == 1 ? "" : "s",
                h->plan->n_nodes, h->plan->n_nodes == 1 ? "" : "s", h->q->dir.path);
}

void ft_head_record_replan(struct ft_head *h, const char *reason)
{
    static const char *const names[] = {"tp", "pp", "dp"};
    static const enum ft_axis axes[] = {FT_AXIS_TP, FT_AXIS_PP, FT_AXIS_DP};
    struct ft_jw *w = ft_head_record(h, "replan");
    ft_jw_kstr(w, "reason", reason);
    ft_jw_key(w, "nodes");
    ft_jw_array(w);
    for (size_t n = 0; n < h->plan->n_nodes; n++) ft_jw_str(w, h->nodes[h->seats[n]].name);
    ft_jw_end(w);
    ft_jw_key(w, "mesh");
    ft_jw_object(w);
    for (int i = 0; i < 3; i++) ft_jw_kint(w, names[i], h->plan->mesh.size[axes[i]]);
    ft_jw_end(w);
    ft_jw_key(w, "step");
    if (h->job.best_step >= 0) ft_jw_int(w, h->job.best_step);
    else ft_jw_null(w);
    ft_head_recorded(h);
}

enum ft_exit_role { FT_EXIT_OWN, FT_EXIT_CONSEQUENCE };

static void write_exit(struct ft_head *h, int rank, enum ft_exit_role role)
{
    struct ft_head_rank *r = &h->ranks[rank];
    struct ft_jw *w = ft_head_record(h, "rank_exit");
    ft_jw_kint(w, "rank", rank);
    ft_jw_kstr(w, "node", h->nodes[h->rank_node[rank]].name);
    if (r->exit.signal) ft_jw_kint(w, "signal", r->exit.signal);
    else ft_jw_kint(w, "status", r->exit.status);
    ft_jw_kbool(w, "core", r->core);
    ft_jw_kbool(w, "oom", r->exit.oom);
    ft_jw_kreal(w, "seconds", r->exit.seconds);
    ft_jw_kbool(w, "consequence", role == FT_EXIT_CONSEQUENCE);
    ft_jw_kreal(w, "t_node", (double)r->exit.t_node / 1e9);
    if (r->evidence && *r->evidence) ft_jw_kstr(w, "evidence", r->evidence);
    ft_head_recorded(h);
    r->exit.held = false;
}

void ft_head_record_exit(struct ft_head *h, int rank, const struct ft_msg *m, int64_t t_node)
{
    const unsigned marks = (unsigned)m->f[2].u;
    const bool running = h->job.state == FT_JOB_RUNNING || h->job.state == FT_JOB_STOPPING;
    struct ft_head_rank *r = &h->ranks[rank];
    r->exit.status = (int)m->f[0].u;
    r->exit.signal = (int)m->f[1].u;
    r->exit.oom = marks & FT_EXIT_OOM;
    r->exit.seconds = (double)(ft_head_now() - h->job.ranks[rank].started_at) / 1e9;
    r->exit.t_node = t_node;
    const bool failure = (r->exit.status || r->exit.signal) && !(marks & FT_EXIT_AFTER_STOP);
    if (failure && running) r->exit.held = true;
    else write_exit(h, rank, marks & FT_EXIT_AFTER_STOP ? FT_EXIT_CONSEQUENCE : FT_EXIT_OWN);
}

void ft_head_record_failures(struct ft_head *h, int cause)
{
    for (int r = 0; r < h->job.c.n_ranks; r++)
        if (h->ranks[r].exit.held) write_exit(h, r, r == cause ? FT_EXIT_OWN : FT_EXIT_CONSEQUENCE);
}

void ft_head_record_stop(struct ft_head *h)
{
    if (h->job.stop == FT_STOP_DONE) return; /* nobody is stopped: all have ended */
    struct ft_jw *w = ft_head_record(h, "stop");
    ft_jw_kstr(w, "reason", ft_stop_reason_name(h->job.stop));
    int n = 0;
    for (int r = 0; r < h->job.c.n_ranks; r++) n += h->job.ranks[r].state != FT_RANK_ENDED;
    ft_jw_kint(w, "wished", n);
    ft_head_recorded(h);
}

/* ---- hangs ---- */

void ft_head_say_hang(struct ft_head *h, int rank, int64_t step)
{
    struct ft_jw *w = ft_head_record(h, "hang");
    ft_jw_key(w, "rank");
    if (rank >= 0) ft_jw_int(w, rank);
    else ft_jw_null(w);
    ft_jw_kint(w, "step", step);
    ft_jw_kreal(w, "limit", (double)h->job.c.hang_timeout / 1e9);
    ft_jw_kbool(w, "odd", rank >= 0);
    ft_head_recorded(h);
    int wait = 0;
    const char *where = "";
    for (int r = 0; r < h->job.c.n_ranks; r++) {
        if (r == rank || !h->job.ranks[r].same_wait) continue;
        where = h->job.ranks[r].wait;
        wait++;
    }
    double age = (double)(ft_head_now() - h->job.last_min_at) / 1e9;
    if (rank >= 0)
        ft_head_say(h, FT_LOG_ERROR, "rank %d on %s stopped at step %lld (state %c), %d ranks wait in %s; no progress for %.1f s",
                    rank, h->nodes[h->rank_node[rank]].name, (long long)step,
                    h->job.ranks[rank].letter ? h->job.ranks[rank].letter : '?', wait, where[0] ? where : "user code", age);
    else
        ft_head_say(h, FT_LOG_ERROR, "no rank went on for %.1f s: all %d stand at step %lld, no one is odd; stacks in %s/stacks",
                    age, h->job.c.n_ranks, (long long)step, h->q->dir.path);
}

static const char *rank_state(enum ft_rank_state s)
{
    switch (s) {
    case FT_RANK_WAITING: return "waiting";
    case FT_RANK_STARTING: return "starting";
    case FT_RANK_RUNNING: return "running";
    case FT_RANK_ENDED: return "ended";
    }
    return "?";
}

void ft_head_dump(struct ft_head *h)
{
    const struct ft_job *j = &h->job;
    const int64_t now = ft_head_now();
    ft_head_say(h, FT_LOG_WARN, "%s after %.1f s, attempt %d", ft_job_state_name(j->state), (double)(now - h->start_at) / 1e9,
                j->attempt);
    for (int n = 0; n < j->c.n_nodes; n++)
        ft_head_say(h, FT_LOG_WARN, "node %s: %s, heard %.1f s ago", h->nodes[n].name, h->nodes[n].open ? "open" : "not reached",
                    h->nodes[n].heard_at ? (double)(now - h->nodes[n].heard_at) / 1e9 : 0.0);
    for (int r = 0; r < j->c.n_ranks; r++)
        ft_head_say(h, FT_LOG_WARN, "rank %d on %s: %s, pid %d, step %lld", r, h->nodes[h->rank_node[r]].name,
                    rank_state(j->ranks[r].state), h->ranks[r].pid, (long long)j->ranks[r].step);
    if (j->state != FT_JOB_RUNNING || j->hanging) return; /* a hang is asked about already */
    h->dumping = true;
    ft_head_say(h, FT_LOG_WARN, "stacks follow in %s/stacks", h->q->dir.path);
    ft_head_act(h, &(struct ft_job_action){.kind = FT_DO_STACKS});
}

/* The quick look has no text; the long one is a file, in pieces. */
void ft_head_stack(struct ft_head *h, int rank, const struct ft_msg *m)
{
    char state[64], path[600];
    ft_msg_copy_text(m, 0, state, sizeof state);
    if (!m->f[1].n) {
        const char *where = strchr(state, ' ');
        if (h->dumping && !h->job.hanging) {
            ft_head_say(h, FT_LOG_WARN, "rank %d: state %c%s%s", rank, state[0], where ? ", waits in" : "", where ? where : "");
            return;
        }
        ft_head_event(
            h, (struct ft_job_event){.kind = FT_EV_RANK_STATE, .rank = rank, .number = state[0], .text = where ? where + 1 : ""});
        return;
    }
    snprintf(path, sizeof path, "%s/stacks", h->q->dir.path);
    if (mkdir(path, 0700) < 0 && errno != EEXIST) return;
    snprintf(path, sizeof path, "%s/stacks/%d.txt", h->q->dir.path, rank);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return;
    if (ft_write_all(fd, m->f[1].p, m->f[1].n, NULL)) ft_head_say(h, FT_LOG_WARN, "cannot write '%s': %s", path, strerror(errno));
    close(fd);
}

/* ---- the line on a terminal ---- */

void ft_head_clear_progress(struct ft_head *h)
{
    if (!h->progress_shown) return;
    h->progress_shown = false;
    static const char clear[] = "\r\033[K";
    ft_console_add(&h->console, 2, clear, sizeof clear - 1);
}

void ft_head_progress_line(struct ft_head *h)
{
    struct ft_buf b = {0};
    int up = 0, started = 0, ended = 0;
    for (int n = 0; n < h->job.c.n_nodes; n++) up += h->job.nodes[n].state == FT_NODE_UP;
    int64_t step = INT64_MAX;
    for (int r = 0; r < h->job.c.n_ranks; r++) {
        started += h->job.ranks[r].state == FT_RANK_RUNNING;
        ended += h->job.ranks[r].state == FT_RANK_ENDED;
        if (h->job.ranks[r].step < step) step = h->job.ranks[r].step;
    }
    double age = (double)(ft_head_now() - h->start_at) / 1e9;
    if (age < 0.5 || ft_console_waiting(&h->console)) return; /* short runs need no line; lines of ranks come first */
    ft_buf_addf(&b, "\r\033[K%d node%s: %d up · %d rank%s: %d running", h->job.c.n_nodes, h->job.c.n_nodes == 1 ? "" : "s", up,
                h->job.c.n_ranks, h->job.c.n_ranks == 1 ? "" : "s", started);
    if (ended) ft_buf_addf(&b, ", %d ended", ended);
    if (h->job.state == FT_JOB_STOPPING && !h->job.killed)
        ft_buf_addf(&b, " · stopping, %.0f s left", (double)(h->job.kill_at - ft_head_now()) / 1e9);
    else if (step >= 0 && step != INT64_MAX) ft_buf_addf(&b, " · step %lld", (long long)step);
    ft_buf_addf(&b, " · %.0f s", age);
    ft_console_add(&h->console, 2, b.data, b.n);
    h->progress_shown = true;
    ft_buf_fini(&b);
}
