/* children = keep: what a rank left behind goes on writing to the pipes of an agent that ends. A process of ours takes them over: it reads
 * until the last writer is gone and appends to the rank's file of the run folder when this node has it, else drops, so that nothing of
 * the kept dies of SIGPIPE or waits for a reader. It holds nothing but those pipes, and ends with them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/fd.h"
#include "launcher/agent/agent.h"

struct drain {
    int from, to; /* to: -1: dropped */
};

/* The file of a rank, in the run folder that its environment names; -1: this node has none. */
static int open_file(const struct ft_slot *s)
{
    static const char name[] = "FT_RUN_DIR=";
    char path[1024];
    for (size_t at = 0; at < s->rank_env.n; at += strlen(s->rank_env.data + at) + 1) {
        if (!ft_str_starts(s->rank_env.data + at, name)) continue;
        const int n = snprintf(path, sizeof path, "%s/ranks/%04d.log", s->rank_env.data + at + sizeof name - 1, s->rank);
        return n < (int)sizeof path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
    }
    return -1;
}

static int by_number(const void *a, const void *b)
{
    const int *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Closes every descriptor but 0 to 2 and those of v. */
static void close_others(const struct drain *v, size_t n)
{
    int *keep = ft_xcalloc(2 * n + 1, sizeof *keep);
    size_t n_keep = 0;
    for (size_t i = 0; i < n; i++) {
        keep[n_keep++] = v[i].from;
        if (v[i].to >= 0) keep[n_keep++] = v[i].to;
    }
    qsort(keep, n_keep, sizeof *keep, by_number);
    unsigned from = 3;
    for (size_t i = 0; i < n_keep; i++) {
        if ((unsigned)keep[i] > from) close_range(from, (unsigned)keep[i] - 1, 0);
        from = (unsigned)keep[i] + 1;
    }
    close_range(from, ~0u, 0);
    free(keep);
}

/* Takes what is there; false: the last writer has gone. */
static bool move_some(struct drain *d)
{
    char bytes[16384];
    const ssize_t n = read(d->from, bytes, sizeof bytes);
    if (n < 0) return errno == EINTR || errno == EAGAIN;
    if (n > 0 && d->to >= 0 && ft_write_all(d->to, bytes, (size_t)n, NULL))
        ft_close(&d->to); /* a full disk is no reason to stop the writer */
    return n > 0;
}

_Noreturn static void drain_all(struct drain *v, size_t n)
{
    struct pollfd *p = ft_xcalloc(n, sizeof *p);
    for (size_t left = n; left;) {
        for (size_t i = 0; i < n; i++) p[i] = (struct pollfd){.fd = v[i].from, .events = POLLIN};
        if (poll(p, n, -1) < 0 && errno != EINTR) break;
        for (size_t i = 0; i < n; i++) {
            if (v[i].from < 0 || !p[i].revents || move_some(&v[i])) continue;
            ft_close(&v[i].from);
            left--;
        }
    }
    _exit(0);
}

_Noreturn static void become_drain(struct drain *v, size_t n)
{
    sigset_t none;
    sigemptyset(&none);
    prctl(PR_SET_NAME, "ftlaunch-drain");
    setsid();
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3 && null >= 0; i++) dup2(null, i);
    close_others(v, n);
    if (chdir("/") < 0) errno = 0; /* it must not hold a folder that somebody removes */
    sigprocmask(SIG_SETMASK, &none, NULL);
    drain_all(v, n);
}

void ft_agent_drain_kept(struct ft_agent *a)
{
    struct drain *v = ft_xcalloc((size_t)a->n_slots * 3 + 1, sizeof *v);
    size_t n = 0;
    for (int i = 0; i < a->n_slots; i++)
        for (int k = 0; k < 3; k++) {
            const struct ft_pump *p = &a->slots[i].pump[k];
            if (p->fd >= 0) v[n++] = (struct drain){p->fd, p->stream == 3 || !a->job.files ? -1 : open_file(&a->slots[i])};
        }
    const pid_t pid = n ? fork() : 0;
    if (n && pid == 0) become_drain(v, n);
    if (pid < 0)
        ft_agent_note(a, 1, "what is left running gets SIGPIPE when it writes: no process could be made to read it: %s",
                      strerror(errno));
    if (pid > 0) {
        a->drains = ft_xrealloc(a->drains, a->n_drains + 1, sizeof *a->drains);
        a->drains[a->n_drains++] = pid;
    }
    for (size_t i = 0; i < n; i++) ft_close(&v[i].to);
    free(v);
}

bool ft_agent_is_drain(const struct ft_agent *a, pid_t pid)
{
    for (size_t i = 0; i < a->n_drains; i++)
        if (a->drains[i] == pid) return true;
    return false;
}
