/* Ending ranks and what they left: signals, PF_EXITING, leftovers, the walk of the tree. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "launcher/agent/agent.h"

#define LOOK_AGAIN (100 * FT_MS)

static bool lives(const struct ft_slot *s) { return s->state == FT_SLOT_STARTING || s->state == FT_SLOT_RUNNING; }

static struct ft_slot *slot_of(struct ft_agent *a, pid_t pid)
{
    for (int i = 0; i < a->n_slots; i++)
        if (a->slots[i].proc.pid == pid && lives(&a->slots[i])) return &a->slots[i];
    return NULL;
}

static bool is_exiting(const struct ft_process *p)
{
    return p->state == 'Z' || p->state == 'X' || p->flags & (FT_PF_EXITING | FT_PF_DUMPCORE | FT_PF_SIGNALED);
}

/* Is this process a living rank or below one? With children = keep nothing else is touched. */
static bool is_touched(struct ft_agent *a, const struct ft_process *rows, size_t n, const struct ft_process *p)
{
    if (!p->ours) return false;
    if (!a->job.keep_children || a->head_gone || a->keeper_gone) return true;
    for (int depth = 0; p && depth < 4096; depth++) {
        if (slot_of(a, p->pid)) return true;
        p = ft_process_find(rows, n, p->ppid);
    }
    return false;
}

void ft_ending_signal(struct ft_agent *a, struct ft_slot *only, int number)
{
    struct ft_process *rows;
    size_t n = ft_processes_all(&rows, getpid());
    for (int i = 0; i < a->n_slots; i++) {
        struct ft_slot *s = &a->slots[i];
        if (!lives(s) || (only && only != s)) continue;
        bool caught = false; /* exactly once per process that catches it, else once to the first */
        for (size_t k = 0; k < n; k++) {
            if (!rows[k].ours || rows[k].pgid != s->proc.pid || rows[k].state == 'Z') continue;
            if (!ft_process_mask(rows[k].pid, "SigCgt", number)) continue;
            caught = true;
            kill(rows[k].pid, number);
        }
        if (!caught) ft_pidfd_signal(s->proc.pidfd, number);
    }
    free(rows);
}

void ft_ending_pause(struct ft_agent *a, bool pause)
{
    a->paused = pause;
    for (int i = 0; i < a->n_slots; i++)
        if (lives(&a->slots[i])) kill(-a->slots[i].proc.pid, pause ? SIGSTOP : SIGCONT);
}

/* One pass of TERM over the tree; pids[0..n) had it already. Returns how many processes were new. */
static unsigned term_pass(struct ft_agent *a, struct ft_buf *seen)
{
    struct ft_process *rows;
    size_t n = ft_processes_all(&rows, getpid());
    unsigned new = 0;
    for (size_t i = 0; i < n; i++) {
        struct ft_process *p = &rows[i];
        bool had = false;
        for (size_t at = 0; at < seen->n && !had; at += sizeof p->pid) had = memcmp(seen->data + at, &p->pid, sizeof p->pid) == 0;
        if (had || !is_touched(a, rows, n, p)) continue;
        new ++;
        ft_buf_add(seen, &p->pid, sizeof p->pid);
        struct ft_slot *s = slot_of(a, p->pid);
        if (s) {
            struct ft_process fresh;
            if (!ft_process_read(p->pid, &fresh) || is_exiting(&fresh)) continue; /* dies by itself: its end will be judged */
            s->after_stop = true;
            a->n_signalled++;
        }
        if (p->state == 'Z') continue;
        kill(p->pid, SIGTERM);
        kill(p->pid, SIGCONT); /* a stopped process must be able to die */
    }
    free(rows);
    return new;
}

void ft_ending_stop(struct ft_agent *a)
{
    enum { PASSES = 5 };
    ft_ranks_reap(a); /* whoever is dead already died by itself */
    a->n_signalled = 0;
    a->said_stopped = false;
    struct ft_buf seen = {0};
    for (int i = 0; i < PASSES && term_pass(a, &seen); i++) {} /* what was being forked during a walk is seen by the next */
    ft_buf_fini(&seen);
}

void ft_ending_kill(struct ft_agent *a)
{
    ft_ranks_reap(a);
    for (int i = 0; i < a->n_slots; i++) {
        struct ft_process p;
        struct ft_slot *s = &a->slots[i];
        if (lives(s) && ft_process_read(s->proc.pid, &p) && !is_exiting(&p)) s->after_stop = true;
    }
    ft_contain_kill(&a->contain);
    struct ft_process *rows;
    size_t n = ft_processes_all(&rows, getpid());
    for (size_t i = 0; i < n; i++)
        if (is_touched(a, rows, n, &rows[i]) && rows[i].state != 'Z' && kill(rows[i].pid, SIGKILL) == 0 && !slot_of(a, rows[i].pid))
            a->n_killed++;
    free(rows);
}

/* Does this process belong to the ended rank? By its sub-cgroup; else by session, group, mark or the variables it began with. */
static bool belongs(struct ft_agent *a, const struct ft_slot *s, const struct ft_process *p, const pid_t *group, size_t n_group)
{
    for (size_t i = 0; i < n_group; i++)
        if (group[i] == p->pid) return true; /* whatever the tree looked like at that instant */
    if (s->cgroup >= 0 || !p->ours) return false;
    if (p->sid == s->proc.pid || p->pgid == s->proc.pid) return true;
    char run[128], rank[16];
    uint64_t mark;
    if (ft_mark_read(p->pid, &mark)) return mark == ft_mark(a->run, s->index);
    return ft_process_env(p->pid, "FT_RUN_ID", run, sizeof run) && strcmp(run, a->run) == 0 &&
           ft_process_env(p->pid, "RANK", rank, sizeof rank) && strtol(rank, NULL, 10) == s->rank;
}

/* The processes that one ended rank left: TERM once, then KILL when its time is over. false: there are none. */
static bool end_leftovers(struct ft_agent *a, struct ft_slot *s, const struct ft_process *rows, size_t n, bool last, int64_t now)
{
    enum { GROUP = 1024 };
    pid_t group[GROUP];
    size_t n_group = ft_contain_pids(s->cgroup, group, GROUP);
    bool any = false, due = now >= s->leftovers_kill_at;
    for (size_t i = 0; i < n; i++) {
        const struct ft_process *p = &rows[i];
        if (p->state == 'Z' || slot_of(a, p->pid)) continue;
        if (!belongs(a, s, p, group, n_group) && !(last && p->ours)) continue;
        any = true;
        /* While everything is being stopped a process that handles TERM keeps the rest of the grace: it may be saving. */
        bool keeps = a->mode == FT_AGENT_STOPPING && s->marks & FT_EXIT_AFTER_STOP && !ft_process_mask(p->pid, "SigIgn", SIGTERM);
        if (due && !keeps) {
            if (kill(p->pid, SIGKILL) == 0) a->n_killed++;
        } else if (!s->termed) {
            kill(p->pid, SIGTERM);
            kill(p->pid, SIGCONT);
        }
    }
    s->termed = true;
    return any;
}

void ft_ending_leftovers(struct ft_agent *a, int64_t now)
{
    bool pending = false, living = false;
    for (int i = 0; i < a->n_slots; i++) {
        living = living || lives(&a->slots[i]) || a->slots[i].state == FT_SLOT_DEAD;
        pending = pending || (a->slots[i].leftovers && a->slots[i].state == FT_SLOT_ENDED);
    }
    if (!pending || a->killing) return;
    struct ft_process *rows = NULL; /* looked at only when something can be there: it costs a walk over /proc */
    size_t n = 0;
    bool looked = false, nothing = !living && ft_ending_nothing_left(a);
    for (int i = 0; i < a->n_slots; i++) {
        struct ft_slot *s = &a->slots[i];
        if (!s->leftovers || s->state != FT_SLOT_ENDED) continue;
        pid_t one;
        bool empty = nothing || (s->cgroup >= 0 && ft_contain_pids(s->cgroup, &one, 1) == 0);
        if (empty) s->leftovers = false;
        if (empty || now < s->leftovers_look_at) continue;
        s->leftovers_look_at = now + (s->termed ? LOOK_AGAIN : FT_LOOK_MS * FT_MS);
        if (!looked) n = ft_processes_all(&rows, getpid());
        looked = true;
        /* A walk may miss a process whose parent ends meanwhile: not found is believed only when the time is over. */
        if (!end_leftovers(a, s, rows, n, !living, now) && now >= s->leftovers_kill_at && s->cgroup < 0) s->leftovers = false;
    }
    free(rows);
}

bool ft_ending_nothing_left(struct ft_agent *a)
{
    for (;;) { /* orphans that ended are ours to reap; ranks are reaped by their pidfd */
        siginfo_t info = {.si_pid = 0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0) return errno == ECHILD && !ft_contain_populated(&a->contain);
        if (info.si_pid == 0) return false;
        if (slot_of(a, info.si_pid)) return false;
        if (waitpid(info.si_pid, NULL, WNOHANG) <= 0) return false;
    }
}

void ft_ending_list_kept(struct ft_agent *a)
{
    struct ft_process *rows;
    size_t n = ft_processes_all(&rows, getpid());
    for (size_t i = 0; i < n; i++) {
        if (!rows[i].ours || rows[i].state == 'Z' || ft_agent_is_drain(a, rows[i].pid)) continue;
        char command[256];
        ft_process_command(rows[i].pid, command, sizeof command);
        struct ft_msg m = ft_msg_make(FT_MSG_LEFT, FT_WIRE_NODE);
        ft_msg_u(&m, 0, (uint64_t)rows[i].pid);
        ft_msg_u(&m, 1, FT_LEFT_KEPT);
        ft_msg_text(&m, 2, a->run);
        ft_msg_text(&m, 3, command);
        if (!a->head_gone) ft_wire_send(&a->wire, &m);
    }
    free(rows);
}
