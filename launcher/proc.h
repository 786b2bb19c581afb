/* Starting one program exactly (launcher rules, "Starting ranks", step 5): no shell, no inherited descriptor, every failing
 * step reported with its errno through a close-on-exec pipe. Used by the agent for ranks and by the head for its agent.
 *
 *   1. ft_proc_find: which file the program's name means, with the PATH of the planned environment
 *   2. ft_proc_start: forks (into a cgroup when given)
 *   3. ft_proc_poll until it is not PENDING: started, or the step and errno that failed
 *   4. wait on pidfd, reap with waitid(P_PIDFD)
 */
#ifndef FT_LAUNCHER_PROC_H
#define FT_LAUNCHER_PROC_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/str.h"

enum ft_step {
    FT_STEP_NONE,
    FT_STEP_FORK,
    FT_STEP_SESSION, /* setsid, PDEATHSIG and the check that the parent is still there */
    FT_STEP_LIMITS,
    FT_STEP_BIND,
    FT_STEP_CHDIR,
    FT_STEP_FILES, /* descriptors */
    FT_STEP_EXEC
};
const char *ft_step_name(enum ft_step s); /* "chdir to the working directory" */
/* 127 not found, 126 not executable, else 125. */
int ft_step_status(enum ft_step s, int error);

enum { FT_PROC_KEPT = 4 };
struct ft_proc_spec {
    const char *path; /* what execve gets; relative: to workdir */
    char *const *argv;
    char *const *env;
    const char *workdir;    /* NULL: stay */
    int std[3];             /* -1: /dev/null */
    int kept[FT_PROC_KEPT]; /* become 3, 4, … */
    int n_kept;
    int cgroup;            /* descriptor of a cgroup v2 folder; -1: none */
    int death_signal;      /* when the parent ends; 0: none */
    int nice_nofile;       /* 1: soft limit of open files becomes the hard one */
    uint64_t mark;         /* soft limit of file locks, where the hard one allows it (agent/contain.h); 0: as inherited */
    const cpu_set_t *cpus; /* NULL: as inherited */
    size_t cpus_bytes;
    int memory_node; /* preferred NUMA node + 1; 0: the default policy */
};

struct ft_proc {
    pid_t pid;
    int pidfd;
    int exec_fd;  /* readable when the exec is decided; the owner's to close, after its watch is removed */
    bool decided; /* poll said so */
    enum ft_step step;
    int error;
};
enum ft_proc_state { FT_PROC_PENDING, FT_PROC_STARTED, FT_PROC_FAILED };

/* Finds the program: a name with '/' as it is (relative to workdir), else the first executable file in PATH of env. 0, or
 * the errno that execve would give (ENOENT, EACCES); out is then the name looked for. */
int ft_proc_find(const char *name, const char *workdir, char *const *env, struct ft_buf *out);
enum ft_code ft_proc_start(const struct ft_proc_spec *s, struct ft_proc *out, struct ft_err *err) FT_MUST_CHECK;
/* Reads the exec pipe without waiting. After FAILED the process has been reaped by nobody: it is a zombie of status 127. */
enum ft_proc_state ft_proc_poll(struct ft_proc *p);
int ft_pidfd_open(pid_t pid);
int ft_pidfd_signal(int pidfd, int number);

#endif
