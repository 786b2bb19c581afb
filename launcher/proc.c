#include "launcher/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/mempolicy.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

const char *ft_step_name(enum ft_step s)
{
    switch (s) {
    case FT_STEP_FORK: return "fork";
    case FT_STEP_SESSION: return "new session";
    case FT_STEP_LIMITS: return "raising the limit of open files";
    case FT_STEP_BIND: return "binding to cores";
    case FT_STEP_CHDIR: return "changing to the working directory";
    case FT_STEP_FILES: return "connecting its descriptors";
    case FT_STEP_EXEC: return "execve";
    case FT_STEP_NONE: break;
    }
    return "start";
}

int ft_step_status(enum ft_step s, int error)
{
    if (s != FT_STEP_EXEC) return 125;
    return error == ENOENT || error == ENOTDIR ? 127 : error == ENOMEM || error == E2BIG || error == EAGAIN ? 125 : 126;
}

int ft_pidfd_open(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }
int ft_pidfd_signal(int pidfd, int number) { return (int)syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0); }

static const char *env_get(char *const *env, const char *name)
{
    size_t n = strlen(name);
    const char *found = NULL;
    for (; env && *env; env++)
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=') found = *env + n + 1;
    return found;
}

/* 0 when path (relative: to workdir) is a file that may be executed. */
static int executable(const char *path, const char *workdir)
{
    struct ft_buf full = {0};
    if (path[0] != '/' && workdir) ft_buf_addf(&full, "%s/", workdir);
    ft_buf_adds(&full, path);
    struct stat st;
    int e = 0;
    if (stat(full.data, &st) < 0) e = errno;
    else if (S_ISDIR(st.st_mode)) e = EACCES;
    else if (faccessat(AT_FDCWD, full.data, X_OK, AT_EACCESS) < 0) e = errno;
    ft_buf_fini(&full);
    return e;
}

int ft_proc_find(const char *name, const char *workdir, char *const *env, struct ft_buf *out)
{
    ft_buf_clear(out);
    if (!name[0]) return ENOENT;
    if (strchr(name, '/')) {
        ft_buf_adds(out, name);
        return executable(name, workdir);
    }
    const char *path = env_get(env, "PATH");
    if (!path) path = "/usr/local/bin:/usr/bin:/bin";
    int seen = ENOENT;
    for (const char *p = path;; p++) {
        const char *end = strchrnul(p, ':');
        ft_buf_clear(out);
        if (end > p) {
            ft_buf_add(out, p, (size_t)(end - p));
            ft_buf_addc(out, '/');
        } else ft_buf_adds(out, "./");
        ft_buf_adds(out, name);
        int e = executable(out->data, workdir);
        if (e == 0) return 0;
        if (e == EACCES) seen = EACCES;
        p = end;
        if (!*p) break;
    }
    ft_buf_clear(out);
    ft_buf_adds(out, name);
    return seen;
}

struct report {
    int step, error;
};

static _Noreturn void give_up(int fd, enum ft_step step)
{
    struct report r = {(int)step, errno};
    if (write(fd, &r, sizeof r) < 0) _exit(126); /* the reader is gone, so nobody needs the reason */
    _exit(127);
}

/* Moves fd to a number above every target, close-on-exec. */
static int lift(int fd) { return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3 + FT_PROC_KEPT + 8); }

static int place_files(const struct ft_proc_spec *s)
{
    int high[3 + FT_PROC_KEPT], n = 3 + s->n_kept;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return -1;
    for (int i = 0; i < n; i++) {
        int from = i < 3 ? s->std[i] : s->kept[i - 3];
        high[i] = lift(from < 0 ? null : from);
        if (high[i] < 0) return -1;
    }
    for (int i = 0; i < n; i++)
        if (dup2(high[i], i) < 0) return -1;
    return 0;
}

/* In the child. Only async-signal-safe calls. */
static _Noreturn void child(const struct ft_proc_spec *s, int exec_fd, pid_t parent)
{
    int report = lift(exec_fd);
    if (report < 0) give_up(exec_fd, FT_STEP_FILES);
    if (setsid() < 0) give_up(report, FT_STEP_SESSION);
    if (s->death_signal) {
        if (prctl(PR_SET_PDEATHSIG, s->death_signal) < 0) give_up(report, FT_STEP_SESSION);
        errno = ESRCH;
        if (getppid() != parent) give_up(report, FT_STEP_SESSION);
    }
    for (int i = 1; i < NSIG; i++) signal(i, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    struct rlimit lim;
    if (s->nice_nofile && getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur != lim.rlim_max) {
        lim.rlim_cur = lim.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &lim) < 0) give_up(report, FT_STEP_LIMITS);
    }
    if (s->mark && getrlimit(RLIMIT_LOCKS, &lim) == 0 && lim.rlim_max >= s->mark) {
        lim.rlim_cur = s->mark;
        if (setrlimit(RLIMIT_LOCKS, &lim) < 0) errno = 0; /* one way less to find it again; no reason not to start */
    }
    if (s->cpus && sched_setaffinity(0, s->cpus_bytes, s->cpus) < 0) give_up(report, FT_STEP_BIND);
    if (s->memory_node) { /* a preference: a kernel without NUMA says ENOSYS, which harms nothing */
        unsigned long mask[16] = {0};
        unsigned node = (unsigned)s->memory_node - 1;
        mask[node / 64 % 16] = 1UL << node % 64;
        if (syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask, 16 * 64) < 0 && errno != ENOSYS && errno != EPERM)
            give_up(report, FT_STEP_BIND);
    }
    if (s->workdir && chdir(s->workdir) < 0) give_up(report, FT_STEP_CHDIR);
    if (place_files(s) < 0) give_up(report, FT_STEP_FILES);
    unsigned first = 3 + (unsigned)s->n_kept;
    if (syscall(SYS_close_range, first, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
        for (int fd = (int)first; fd < 4096; fd++) fcntl(fd, F_SETFD, FD_CLOEXEC);
    execve(s->path, s->argv, s->env);
    give_up(report, FT_STEP_EXEC);
}

/* fork with a pidfd, straight into a cgroup when one is given and the kernel can (5.7). */
static pid_t fork_into(int cgroup, int *pidfd)
{
    struct clone_args a;
    memset(&a, 0, sizeof a);
    int fd = -1;
    a.flags = CLONE_PIDFD | (cgroup >= 0 ? CLONE_INTO_CGROUP : 0);
    a.pidfd = (uint64_t)(uintptr_t)&fd;
    a.exit_signal = SIGCHLD;
    a.cgroup = cgroup >= 0 ? (uint64_t)cgroup : 0;
    pid_t pid = (pid_t)syscall(SYS_clone3, &a, sizeof a);
    if (pid < 0 && cgroup >= 0 && errno != EAGAIN && errno != ENOMEM)
        return fork_into(-1, pidfd); /* containment by the tree remains */
    if (pid < 0 && (errno == ENOSYS || errno == EPERM)) {
        pid = fork();
        if (pid > 0) fd = ft_pidfd_open(pid);
    }
    *pidfd = fd;
    return pid;
}

enum ft_code ft_proc_start(const struct ft_proc_spec *s, struct ft_proc *out, struct ft_err *err)
{
    int p[2];
    enum ft_code c = ft_pipe(p, err);
    if (c) return c;
    pid_t parent = getpid();
    sigset_t all, old;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old); /* no handler of ours runs in the child */
    int pidfd = -1;
    pid_t pid = fork_into(s->cgroup, &pidfd);
    int e = errno;
    if (pid == 0) child(s, p[1], parent);
    sigprocmask(SIG_SETMASK, &old, NULL);
    ft_close(&p[1]);
    if (pid < 0) {
        ft_close(&p[0]);
        char why[200];
        return ft_fail(err, FT_IO, "cannot start a process: %s", ft_errno_text(e, why));
    }
    if (fcntl(p[0], F_SETFL, O_NONBLOCK) < 0) FT_BUG("F_SETFL on a pipe of ours: %s", strerror(errno));
    *out = (struct ft_proc){.pid = pid, .pidfd = pidfd, .exec_fd = p[0]};
    return FT_OK;
}

enum ft_proc_state ft_proc_poll(struct ft_proc *p)
{
    if (p->decided || p->exec_fd < 0) return p->step ? FT_PROC_FAILED : FT_PROC_STARTED;
    struct report r;
    ssize_t n;
    do n = read(p->exec_fd, &r, sizeof r);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) return FT_PROC_PENDING;
    p->decided = true;
    if (n != sizeof r) return FT_PROC_STARTED;
    p->step = (enum ft_step)r.step;
    p->error = r.error;
    return FT_PROC_FAILED;
}
