/* The last lines: the failure block with the first cause, once; victims counted, not listed. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "launcher/head.h"

enum { LAST_LINES = 20 };

void ft_signal_text(int number, struct ft_buf *out)
{
    const char *name = sigabbrev_np(number);
    if (name) ft_buf_addf(out, "SIG%s", name);
    else ft_buf_addf(out, "signal %d", number);
}

void ft_fold_ranks(const int *ranks, size_t n, struct ft_buf *out)
{
    for (size_t i = 0; i < n;) {
        size_t k = i;
        while (k + 1 < n && ranks[k + 1] == ranks[k] + 1) k++;
        ft_buf_addf(out, "%s%d", i ? "," : "", ranks[i]);
        if (k > i) ft_buf_addf(out, "%c%d", k > i + 1 ? '-' : ',', ranks[k]);
        i = k + 1;
    }
}

/* The deadline counts from the start of the run, everything else from the start of the attempt. */
static double until_stop(const struct ft_head *h)
{
    int64_t from = h->job.stop == FT_STOP_DEADLINE ? h->job.begin_at : h->job.attempt_at;
    return (double)(h->job.stop_at - from) / 1e9;
}

static double since_go(const struct ft_head *h, int64_t t) { return (double)(t - h->job.attempt_at) / 1e9; }

static void add_duration(struct ft_buf *b, int64_t ns)
{
    if (ns < FT_SEC) ft_buf_addf(b, "%.3g ms", (double)ns / 1e6);
    else ft_buf_addf(b, "%.1f s", (double)ns / 1e9);
}

static void add_how(const struct ft_head *h, const struct ft_end_of *e, struct ft_buf *b)
{
    const struct ft_head_rank *r = &h->ranks[e->rank];
    if (r->exec_error[0]) {
        ft_buf_addf(b, "could not be started: %s (status %d)", r->exec_error, e->status);
        return;
    }
    if (!e->signal) {
        ft_buf_addf(b, "failed with exit status %d", e->status);
        return;
    }
    if (e->signal == SIGKILL) {
        if (e->oom) ft_buf_adds(b, "was killed by the kernel: out of memory (SIGKILL)");
        else
            ft_buf_addf(b, "was killed from outside (SIGKILL; if nobody did that, likely: out of memory%s%s)",
                        r->evidence ? ", " : "", r->evidence ? r->evidence : "");
        return;
    }
    ft_buf_adds(b, "was ended by ");
    ft_signal_text(e->signal, b);
    if (sigdescr_np(e->signal)) ft_buf_addf(b, " (%s)", sigdescr_np(e->signal));
}

static void add_command(const struct ft_head *h, struct ft_buf *b)
{
    size_t from = b->n;
    for (char **a = h->q->argv; *a && b->n < 300; a++) ft_buf_addf(b, "%s%.200s", a == h->q->argv ? "" : " ", *a);
    for (char *c = b->data + from; c < b->data + b->n; c++) /* one line, whatever the words hold */
        if ((unsigned char)*c < 0x20 || *c == 0x7F) *c = *c == '\n' || *c == '\t' ? ' ' : '?';
}

/* The last lines of its stderr, each behind the indent; control bytes are not passed on. */
static void add_last(const struct ft_head *h, int rank, struct ft_buf *b)
{
    const char *s = h->ranks[rank].last;
    if (!s) return;
    size_t n = strlen(s);
    while (n && (s[n - 1] == '\n' || s[n - 1] == ' ')) n--;
    const char *from = s + n;
    for (int lines = 0; from > s; from--)
        if (from[-1] == '\n' && ++lines == LAST_LINES) break;
    if (!n) return;
    ft_buf_adds(b, "  last:  ");
    for (const char *p = from; p < s + n; p++) {
        if (*p == '\n') ft_buf_adds(b, "\n         ");
        else ft_buf_addc(b, (unsigned char)*p < 0x20 && *p != '\t' ? '?' : *p == 0x7F ? '?' : *p);
    }
    ft_buf_addc(b, '\n');
}

/* "13 ranks ended by the launcher in 0.4 s", and who had to be cut. cause: the rank the others were ended for; -1: none. */
static void add_then(const struct ft_head *h, struct ft_buf *b, bool alone, int cause)
{
    int *cut = ft_xcalloc((size_t)h->job.c.n_ranks, sizeof *cut);
    size_t n_cut = 0, n = 0;
    int64_t last = 0;
    for (int r = 0; r < h->job.c.n_ranks; r++) {
        const struct ft_job_rank *k = &h->job.ranks[r];
        if (k->state != FT_RANK_ENDED || !k->end.after_stop || r == cause) continue;
        if (k->ended_at < h->job.stop_at) continue; /* of the attempt before: stopped while waiting for the next */
        n++;
        if (k->ended_at > last) last = k->ended_at;
        if (k->end.signal == SIGKILL) cut[n_cut++] = r;
    }
    if (n) {
        ft_buf_addf(b, "  then:  %zu rank%s ended %s", n, n == 1 ? "" : "s",
                    alone ? "after TERM, last after " : "by the launcher in ");
        ft_buf_addf(b, "%.1f s", (double)(last - h->job.stop_at) / 1e9);
        if (n_cut) {
            ft_buf_addf(b, "; rank%s ", n_cut == 1 ? "" : "s");
            ft_fold_ranks(cut, n_cut, b);
            ft_buf_adds(b, " cut by KILL");
        }
        ft_buf_addc(b, '\n');
    }
    free(cut);
}

static void add_finished_before(const struct ft_head *h, const struct ft_end_of *first, struct ft_buf *b)
{
    for (int r = 0; r < h->job.c.n_ranks; r++) {
        const struct ft_end_of *e = &h->job.ranks[r].end;
        if (h->job.ranks[r].state != FT_RANK_ENDED || e->status || e->signal || !ft_end_before(e, first)) continue;
        ft_buf_addf(b, "  note:  rank %d had finished ", r);
        add_duration(b, first->t_ns - e->t_ns);
        ft_buf_adds(b, " before\n");
        return;
    }
}

static void failure_block(struct ft_head *h, const struct ft_end_of *ends, const struct ft_verdict *v, struct ft_buf *b)
{
    const struct ft_end_of *e = &ends[v->first];
    ft_buf_addf(b, "ftlaunch: error: rank %d on %s ", e->rank, h->nodes[e->node].name);
    add_how(h, e, b);
    ft_buf_addf(b, " after %.1f s\n  where: ", since_go(h, h->job.ranks[e->rank].ended_at));
    if (h->ranks[e->rank].pid > 0) ft_buf_addf(b, "pid %d, ", h->ranks[e->rank].pid); /* one that was started */
    add_command(h, b);
    if (v->n_failures > 1) {
        ft_buf_addf(b, "; first of %d failures, ", v->n_failures);
        if (v->undecided) ft_buf_adds(b, "undecided, ");
        add_duration(b, v->gap_ns < 0 ? 0 : v->gap_ns);
        ft_buf_adds(b, v->undecided ? " apart" : " before the next");
    }
    if (e->signal != SIGKILL && h->ranks[e->rank].evidence) ft_buf_addf(b, "; %s", h->ranks[e->rank].evidence);
    ft_buf_addc(b, '\n');
    add_last(h, e->rank, b);
    add_finished_before(h, e, b);
    add_then(h, b, false, e->rank);
}

static void record_cause(struct ft_head *h, struct ft_jw *w, const struct ft_end_of *e, const char *kind, const char *text)
{
    ft_jw_key(w, "cause");
    ft_jw_object(w);
    ft_jw_kstr(w, "kind", kind);
    if (e) {
        ft_jw_kint(w, "rank", e->rank);
        ft_jw_kstr(w, "node", h->nodes[e->node].name);
        ft_jw_kint(w, "status", e->signal ? 128 + e->signal : e->status);
    } else if (h->job.lost_node >= 0) ft_jw_kstr(w, "node", h->nodes[h->job.lost_node].name);
    ft_jw_kstr(w, "text", text);
    ft_jw_end(w);
}

void ft_head_show(struct ft_head *h, const struct ft_buf *b)
{
    ft_head_clear_progress(h);
    for (const char *p = b->data; p && *p;) { /* launch.log has it too */
        static const char head[] = "ftlaunch: error: ";
        bool first = ft_str_starts(p, head);
        if (first) p += sizeof head - 1;
        size_t n = strcspn(p, "\n");
        ft_log(first ? FT_LOG_ERROR : FT_LOG_INFO, "run", "%.*s", (int)n, p);
        p += n + (p[n] == '\n');
    }
    struct ft_buf seen = {0};
    ft_console_paint(ft_buf_str(b), h->q->color, &seen);
    ft_console_add(&h->console, 2, seen.data, seen.n);
    ft_buf_fini(&seen);
    int64_t until = ft_head_now() + FT_SEC;
    while (ft_console_waiting(&h->console) && ft_head_now() < until && ft_loop_once(&h->loop, until)) {}
}

/* The table of nodes that were not reached, folded over equal reasons. false: there is none. */
bool ft_head_add_not_reached(struct ft_head *h, struct ft_buf *b)
{
    const int n = h->job.c.n_nodes;
    int failed = 0;
    for (int i = 0; i < n; i++) failed += h->nodes[i].fail_reason != NULL;
    if (!failed) return false;
    ft_buf_addf(b, "%d of %d node%s not reached", failed, n, n == 1 ? "" : "s");
    bool *told = ft_xcalloc((size_t)n, sizeof *told);
    const char **names = ft_xcalloc((size_t)n, sizeof *names);
    struct ft_buf folded = {0};
    for (int i = 0; i < n; i++) {
        const struct ft_head_node *first = &h->nodes[i];
        if (!first->fail_reason || told[i]) continue;
        struct ft_names set = {names, 0};
        for (int k = i; k < n; k++) {
            const struct ft_head_node *other = &h->nodes[k];
            if (!other->fail_reason || strcmp(other->fail_reason, first->fail_reason) != 0 ||
                !ft_str_eq(other->fail_phase, first->fail_phase))
                continue;
            told[k] = true;
            names[set.n++] = other->name;
        }
        ft_buf_clear(&folded);
        ft_hostlist_fold(&set, &folded);
        ft_buf_addf(b, "\n  %-16s  %-7s  %s", folded.data, first->fail_phase, first->fail_reason);
    }
    ft_buf_fini(&folded);
    free(names);
    free(told);
    return true;
}

/* Stops that no rank is to blame for. */
static const char *describe_stop(struct ft_head *h, struct ft_buf *b)
{
    ft_buf_adds(b, "ftlaunch: error: ");
    switch (h->job.stop) {
    case FT_STOP_SIGNAL:
        ft_buf_adds(b, "stopped by ");
        ft_signal_text(h->job.stop_signal, b);
        break;
    case FT_STOP_REQUEST: ft_buf_adds(b, "stopped by ftlaunch stop"); break;
    case FT_STOP_DEADLINE: ft_buf_addf(b, "the deadline of %.10g s passed", (double)h->job.c.deadline / 1e9); break;
    case FT_STOP_HANG:
        ft_buf_addf(b, "no progress for %.10g s: the run hangs at step %lld", (double)h->job.c.hang_timeout / 1e9,
                    (long long)h->job.hang_step);
        break;
    case FT_STOP_NODE:
    case FT_STOP_NONE:
    case FT_STOP_DONE:
    case FT_STOP_RANK0:
    case FT_STOP_FAILURE:
        ft_buf_addf(b, "lost agent on %s", h->job.lost_node >= 0 ? h->nodes[h->job.lost_node].name : "?");
        if (h->n_lost > 1) ft_buf_addf(b, " and %d more", h->n_lost - 1); /* one event: a switch, a jump host */
        ft_buf_addf(b, " (%s)", h->refused);
        break;
    case FT_STOP_SEATS: ft_buf_addf(b, "no node is left for some ranks: %s", h->why_no_seats ? h->why_no_seats : ""); break;
    case FT_STOP_CONFIG:
        if (h->job.began) ft_buf_addf(b, "attempt %d could not be started: ", h->job.attempt);
        else ft_buf_adds(b, "nothing was started: ");
        if (ft_head_add_not_reached(h, b)) break;
        ft_buf_adds(b, h->refused[0] ? h->refused : "no reason is known");
        break;
    }
    return ft_stop_reason_name(h->job.stop);
}

static void good_end(struct ft_head *h)
{
    double s = (double)(ft_head_now() - h->start_at) / 1e9;
    if (h->n_killed) ft_head_say(h, FT_LOG_INFO, "%u leftover process%s killed", h->n_killed, h->n_killed == 1 ? "" : "es");
    ft_head_say(h, FT_LOG_INFO, "done: %d rank%s ended with 0 after %.1f s", h->job.c.n_ranks, h->job.c.n_ranks == 1 ? "" : "s", s);
}

void ft_head_summary(struct ft_head *h)
{
    struct ft_end_of *ends = ft_xcalloc((size_t)h->job.c.n_ranks, sizeof *ends);
    size_t n = ft_job_ends(&h->job, ends);
    if (h->job.stop == FT_STOP_RANK0)
        for (size_t i = 0; i < n; i++) ends[i].after_stop = ends[i].after_stop || !ft_end_before(&ends[i], &h->job.ranks[0].end);
    struct ft_verdict v = ft_verdict_find(ends, n);
    bool over = h->job.state == FT_JOB_DONE;
    int status = over ? h->status : ft_job_status(&h->job);
    bool rank = v.first >= 0 && (h->job.stop == FT_STOP_FAILURE || h->job.stop == FT_STOP_RANK0);
    ft_head_record_failures(h, rank ? ends[v.first].rank : -1);
    struct ft_buf b = {0}, first = {0};
    const char *kind = rank ? "rank" : ft_stop_reason_name(h->job.stop);
    if (status == 0) good_end(h);
    else if (rank) failure_block(h, ends, &v, &b);
    else {
        struct ft_buf text = {0}; /* a table of nodes may follow its first line */
        describe_stop(h, &text);
        const char *table = strchrnul(ft_buf_str(&text), '\n');
        ft_buf_add(&b, ft_buf_str(&text), (size_t)(table - ft_buf_str(&text)));
        if (h->job.began) ft_buf_addf(&b, " after %.1f s", until_stop(h));
        ft_buf_addf(&b, "%s\n", table);
        ft_buf_fini(&text);
        add_then(h, &b, true, -1);
    }
    if (b.n) ft_head_show(h, &b);
    if (h->mux.n_dropped) {
        for (int r = 0; r < h->plan->world; r++) {
            if (!h->mux.ranks[r].dropped) continue;
            struct ft_jw *w = ft_head_record(h, "output_dropped");
            ft_jw_kint(w, "rank", r);
            ft_jw_kint(w, "bytes", (int64_t)h->mux.ranks[r].dropped);
            ft_head_recorded(h);
        }
        if (over)
            ft_head_say(h, FT_LOG_WARN, "%llu console lines were dropped (slow_output = drop); the files have them",
                        (unsigned long long)h->mux.n_dropped);
    }
    if (over && h->q->timing) ft_head_timing(h);
    if (over) {
        ft_buf_add(&first, b.data, b.data ? strcspn(b.data, "\n") : 0);
        struct ft_jw *w = ft_head_record(h, "run_end");
        ft_jw_kint(w, "status", status);
        if (status)
            record_cause(h, w, rank ? &ends[v.first] : NULL, kind,
                         ft_str_starts(ft_buf_str(&first), "ftlaunch: error: ") ? first.data + 17 : "");
        else {
            ft_jw_key(w, "cause");
            ft_jw_null(w);
        }
        ft_jw_kreal(w, "seconds", (double)(ft_head_now() - h->start_at) / 1e9);
        ft_head_recorded(h);
    }
    ft_buf_fini(&b);
    ft_buf_fini(&first);
    free(ends);
}
