/* What every rank is doing, before a hanging run is killed: at once a state letter and where it waits; then, within the limit
 * and for all ranks side by side, per thread: state, wait channel, system call, CPU time over a second, kernel stack (root), and
 * the user stacks by py-spy, eu-stack or gdb when one is on PATH.
 *   1. ft_agent_stacks: quick STACK frames; the helpers start
 *   2. after a second the facts of all threads are read
 *   3. when every helper has ended, or at the limit: one STACK per rank in pieces, then STACK of the node */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "launcher/agent/agent.h"

enum { MAX_TEXT = 1024 * 1024, CPU_THREADS = 256 };
extern char **environ;

struct helper {
    struct ft_stacks *all;
    struct ft_slot *slot;
    pid_t pid; /* looked at */
    struct ft_proc proc;
    struct ft_watch watch;
    int fd;
    struct ft_buf text;    /* its output */
    struct ft_buf threads; /* facts of the threads */
    pid_t tid[CPU_THREADS];
    uint64_t cpu[CPU_THREADS]; /* ticks at the start */
    int n_tid;
    const char *why_not;
};
struct ft_stacks {
    struct ft_agent *agent;
    struct helper *v;
    int n;
    struct ft_timer second, limit;
    bool have_threads;
};

static const char *syscall_name(long n)
{
    static const struct {
        long n;
        const char *name;
    } names[] = {
        {SYS_read, "read"},
        {SYS_write, "write"},
        {SYS_readv, "readv"},
        {SYS_writev, "writev"},
        {SYS_recvfrom, "recv"},
        {SYS_recvmsg, "recvmsg"},
        {SYS_sendto, "send"},
        {SYS_sendmsg, "sendmsg"},
        {SYS_connect, "connect"},
        {SYS_accept, "accept"},
        {SYS_accept4, "accept"},
        {SYS_futex, "futex"},
        {SYS_nanosleep, "sleep"},
        {SYS_clock_nanosleep, "sleep"},
        {SYS_wait4, "wait"},
        {SYS_waitid, "wait"},
        {SYS_ppoll, "poll"},
        {SYS_pselect6, "select"},
        {SYS_epoll_pwait, "epoll"},
        {SYS_ioctl, "ioctl"},
        {SYS_fsync, "fsync"},
        {SYS_flock, "flock"},
        {SYS_openat, "open"},
        {SYS_rt_sigtimedwait, "sigwait"},
        {SYS_restart_syscall, "sleep"},
#ifdef SYS_poll
        {SYS_poll, "poll"},
        {SYS_select, "select"},
        {SYS_epoll_wait, "epoll"},
        {SYS_pause, "pause"},
        {SYS_open, "open"},
#endif
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].n == n) return names[i].name;
    return NULL;
}

static bool read_small(const char *path, char *out, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, cap - 1);
    ft_close(&fd);
    out[n > 0 ? n : 0] = 0;
    return n > 0;
}

/* Where a thread waits: the name of its system call, else the kernel's wait channel, else "". */
static void where_it_waits(pid_t pid, pid_t tid, char *out, size_t cap)
{
    char path[80], text[256];
    snprintf(path, sizeof path, "/proc/%d/task/%d/syscall", (int)pid, (int)tid);
    out[0] = 0;
    if (read_small(path, text, sizeof text) && text[0] >= '0' && text[0] <= '9') {
        long n = strtol(text, NULL, 10);
        const char *name = syscall_name(n);
        if (name) snprintf(out, cap, "%s", name);
        else snprintf(out, cap, "syscall %ld", n);
        return;
    }
    snprintf(path, sizeof path, "/proc/%d/task/%d/wchan", (int)pid, (int)tid);
    if (read_small(path, text, sizeof text) && strcmp(text, "0") != 0) snprintf(out, cap, "%.60s", text);
}

/* Behind wrappers (a shell that waits for its only child) the program itself. */
static pid_t innermost(const struct ft_process *rows, size_t n, pid_t pid)
{
    for (int depth = 0; depth < 16; depth++) {
        pid_t only = 0;
        int children = 0;
        for (size_t i = 0; i < n; i++)
            if (rows[i].ppid == pid && rows[i].state != 'Z') {
                only = rows[i].pid;
                children++;
            }
        char where[64];
        where_it_waits(pid, pid, where, sizeof where);
        if (children != 1 || strcmp(where, "wait") != 0) break;
        pid = only;
    }
    return pid;
}

static void send_quick(struct ft_agent *a, const struct ft_slot *s, pid_t pid)
{
    struct ft_process p;
    char where[64], line[80];
    where_it_waits(pid, pid, where, sizeof where);
    snprintf(line, sizeof line, "%c %s", ft_process_read(pid, &p) ? p.state : '?', where);
    struct ft_msg m = ft_msg_make(FT_MSG_STACK, (unsigned)s->index);
    ft_msg_text(&m, 0, line);
    ft_wire_send(&a->wire, &m);
}

/* ---- helpers ---- */

static bool is_python(pid_t pid)
{
    char path[48], exe[512];
    snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    ssize_t n = readlink(path, exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = 0;
    return strstr(exe, "/python") != NULL;
}

static void on_helper(void *self, short revents)
{
    (void)revents;
    struct helper *h = self;
    char bytes[8192];
    ssize_t n = read(h->fd, bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n > 0) {
        if (h->text.n < MAX_TEXT) ft_buf_add(&h->text, bytes, (size_t)n);
        return;
    }
    ft_watch_remove(&h->all->agent->loop, &h->watch);
    ft_close(&h->fd);
}

static void start_helper(struct helper *h)
{
    char pid[16], attach[] = "-p", batch[] = "-batch", ex[] = "-ex", all[] = "thread apply all bt", quiet[] = "-nx",
                  dump[] = "dump", pyspy[] = "py-spy", gdb[] = "gdb", eu[] = "eu-stack", off[] = "set confirm off";
    snprintf(pid, sizeof pid, "%d", (int)h->pid);
    char *const by_pyspy[] = {pyspy, dump, attach, pid, NULL}, *const by_eu[] = {eu, attach, pid, NULL},
                *const by_gdb[] = {gdb, quiet, batch, ex, off, ex, all, attach, pid, NULL};
    char *const *argv = NULL;
    struct ft_buf path = {0};
    if (is_python(h->pid) && !ft_proc_find("py-spy", NULL, environ, &path)) argv = by_pyspy;
    else if (!ft_proc_find("eu-stack", NULL, environ, &path)) argv = by_eu;
    else if (!ft_proc_find("gdb", NULL, environ, &path)) argv = by_gdb;
    int p[2];
    h->fd = -1;
    h->proc.pidfd = h->proc.exec_fd = -1;
    if (!argv) {
        h->why_not = "none of py-spy, eu-stack and gdb is on PATH";
    } else if (ft_pipe(p, NULL) == FT_OK) {
        struct ft_proc_spec spec = {
            .path = path.data, .argv = argv, .env = environ, .std = {-1, p[1], p[1]}, .cgroup = -1, .death_signal = SIGKILL};
        if (ft_proc_start(&spec, &h->proc, NULL)) {
            close(p[0]);
            h->why_not = "the helper could not be started";
        } else {
            h->fd = p[0];
            if (ft_nonblock(h->fd, NULL)) h->why_not = "its pipe failed";
            ft_watch_add(&h->all->agent->loop, &h->watch, h->fd, POLLIN, on_helper, h);
        }
        close(p[1]);
    }
    ft_buf_fini(&path);
}

/* ---- threads ---- */

static uint64_t cpu_ticks(pid_t pid, pid_t tid, char *state)
{
    char path[80], text[1024];
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", (int)pid, (int)tid);
    *state = '?';
    if (!read_small(path, text, sizeof text)) return 0;
    const char *p = strrchr(text, ')');
    unsigned long long user = 0, sys = 0;
    if (p && sscanf(p + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", state, &user, &sys) != 3) return 0;
    return user + sys;
}

static void list_threads(struct helper *h)
{
    char path[48], state;
    snprintf(path, sizeof path, "/proc/%d/task", (int)h->pid);
    DIR *d = opendir(path);
    for (struct dirent *e; d && h->n_tid < CPU_THREADS && (e = readdir(d));) {
        int64_t tid;
        if (!ft_parse_i64(e->d_name, 1, INT32_MAX, &tid)) continue;
        h->tid[h->n_tid] = (pid_t)tid;
        h->cpu[h->n_tid++] = cpu_ticks(h->pid, (pid_t)tid, &state);
    }
    if (d) closedir(d);
}

static void describe_threads(struct helper *h)
{
    long hz = sysconf(_SC_CLK_TCK);
    for (int i = 0; i < h->n_tid; i++) {
        char path[80], where[64], wchan[128], stack[4096], state;
        uint64_t now = cpu_ticks(h->pid, h->tid[i], &state);
        where_it_waits(h->pid, h->tid[i], where, sizeof where);
        snprintf(path, sizeof path, "/proc/%d/task/%d/wchan", (int)h->pid, (int)h->tid[i]);
        if (!read_small(path, wchan, sizeof wchan)) wchan[0] = 0;
        ft_buf_addf(&h->threads, "thread %d: state %c, in %s, wchan %s, CPU %.2f s in the last second\n", (int)h->tid[i], state,
                    where[0] ? where : "user code", wchan[0] ? wchan : "?", (double)(now - h->cpu[i]) / (double)hz);
        snprintf(path, sizeof path, "/proc/%d/task/%d/stack", (int)h->pid, (int)h->tid[i]);
        if (read_small(path, stack, sizeof stack)) ft_buf_addf(&h->threads, "  kernel stack:\n%s", stack);
    }
}

/* ---- the end ---- */

static void finish(struct ft_stacks *s)
{
    struct ft_agent *a = s->agent;
    ft_timer_cancel(&s->second);
    ft_timer_cancel(&s->limit);
    for (int i = 0; i < s->n; i++) {
        struct helper *h = &s->v[i];
        if (h->fd >= 0) {
            ft_watch_remove(&a->loop, &h->watch);
            ft_close(&h->fd);
            ft_buf_adds(&h->text, "\n(the helper did not end in time)\n");
        }
        if (h->proc.pidfd >= 0) {
            siginfo_t info;
            ft_pidfd_signal(h->proc.pidfd, SIGKILL);
            waitid(P_PIDFD, (id_t)h->proc.pidfd, &info, WEXITED);
            ft_close(&h->proc.pidfd);
        }
        ft_close(&h->proc.exec_fd);
        struct ft_buf b = {0};
        char command[300];
        ft_process_command(h->pid, command, sizeof command);
        ft_buf_addf(&b, "rank %d on %s, pid %d: %s\n", h->slot->rank, a->node, (int)h->pid, command);
        if (h->threads.n) ft_buf_add(&b, h->threads.data, h->threads.n);
        if (h->why_not) {
            char scope[16];
            ft_buf_addf(&b, "no user stacks: %s", h->why_not);
            if (read_small("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof scope))
                ft_buf_addf(&b, " (ptrace_scope %.1s)", scope);
            ft_buf_addc(&b, '\n');
        }
        if (h->text.n) ft_buf_add(&b, h->text.data, h->text.n);
        struct ft_msg m = ft_msg_make(FT_MSG_STACK, (unsigned)h->slot->index);
        if (!a->head_gone) ft_wire_send_pieces(&a->wire, m, 1, b.data, b.n);
        ft_buf_fini(&b);
        ft_buf_fini(&h->text);
        ft_buf_fini(&h->threads);
    }
    struct ft_msg m = ft_msg_make(FT_MSG_STACK, FT_WIRE_NODE);
    if (!a->head_gone) ft_wire_send(&a->wire, &m);
    a->stacks = NULL;
    free(s->v);
    free(s);
    ft_agent_flush(a);
}

static void on_limit(void *self, int64_t now)
{
    (void)now;
    finish(self);
}

/* Every 100 ms after the first second: are all helpers done? */
static void on_second(void *self, int64_t now)
{
    struct ft_stacks *s = self;
    bool busy = false;
    for (int i = 0; i < s->n; i++) {
        if (!s->have_threads) describe_threads(&s->v[i]);
        busy = busy || s->v[i].fd >= 0;
    }
    s->have_threads = true;
    if (busy) ft_timer_set(&s->agent->loop, &s->second, now + 100 * FT_MS, on_second, s);
    else finish(s);
}

void ft_agent_stacks(struct ft_agent *a, int64_t limit_ns)
{
    if (a->stacks) return;
    struct ft_stacks *s = ft_xcalloc(1, sizeof *s);
    *s = (struct ft_stacks){.agent = a, .v = ft_xcalloc((size_t)a->n_slots + 1, sizeof *s->v)};
    a->stacks = s;
    struct ft_process *rows;
    size_t n = ft_processes_all(&rows, getpid());
    for (int i = 0; i < a->n_slots; i++) {
        struct ft_slot *slot = &a->slots[i];
        if (slot->state != FT_SLOT_RUNNING) continue;
        struct helper *h = &s->v[s->n++];
        *h = (struct helper){.all = s, .slot = slot, .pid = innermost(rows, n, slot->proc.pid)};
        send_quick(a, slot, h->pid);
    }
    free(rows);
    ft_agent_flush(a); /* the message comes at once; what follows takes a while */
    for (int i = 0; i < s->n; i++) list_threads(&s->v[i]);
    for (int i = 0; i < s->n; i++) start_helper(&s->v[i]);
    int64_t now = ft_clock_now(ft_clock_real());
    ft_timer_set(&a->loop, &s->limit, now + limit_ns - 500 * FT_MS, on_limit, s);
    ft_timer_set(&a->loop, &s->second, now + FT_SEC, on_second, s);
}

void ft_agent_stacks_stop(struct ft_agent *a)
{
    if (a->stacks) finish(a->stacks);
}
