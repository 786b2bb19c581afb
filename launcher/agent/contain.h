/* Containment: everything of a run on one node, however it was started, found and ended. Never by name.
 *
 * The strongest that is allowed: a cgroup v2 of the run (made under our own; cgroup.kill); else, and besides, the tree of
 * children: keeper and agent are subreapers, so that every orphan stays in it, after setsid and `env -i` too; besides, for
 * what outlived both, processes of this user in this network namespace that carry the run's mark, or whose environment holds
 * its FT_RUN_ID.
 *
 * The mark is a number in the soft limit of file locks (RLIMIT_LOCKS, which no kernel has enforced since 2.4.25). Whatever a
 * rank starts inherits it, after `env -i`, setsid, a double fork and closed descriptors too; a program that overwrites its own
 * environment (setproctitle) keeps it; anyone may read it. It names run and slot. Lost only by a process that sets this very
 * limit. Ranks get none with children = keep, nor where an administrator has lowered the hard limit.
 *
 * The snapshot functions use storage of the caller, because the keeper allocates nothing. */
#ifndef FT_LAUNCHER_CONTAIN_H
#define FT_LAUNCHER_CONTAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ft_contain {
    char path[512]; /* folder of the run's cgroup; empty: none */
    int fd;         /* -1: none */
};
void ft_contain_init(struct ft_contain *c);
/* How the names of the cgroups of this network namespace begin; the run's follows. Only here is a lease seen that says whether it lives. */
void ft_contain_prefix(char *out, size_t cap);
/* Makes the cgroup of the run where that is allowed. false: the tree alone contains it. */
bool ft_contain_make(struct ft_contain *c, const char *run);
int ft_contain_rank(struct ft_contain *c, int index); /* descriptor of a sub-group; -1: none */
void ft_contain_kill(const struct ft_contain *c);
bool ft_contain_populated(const struct ft_contain *c);
void ft_contain_remove(struct ft_contain *c); /* sub-groups too; what is still populated stays */
/* oom_kill count of the cgroup we run in (memory.events); 0 when it cannot be read. */
uint64_t ft_contain_oom_kills(void);
/* Adds the processes of a rank's sub-group to pids; returns how many there are (at most cap are stored). */
size_t ft_contain_pids(int rank_fd, pid_t *pids, size_t cap);

/* One process, from /proc/PID/stat. */
struct ft_process {
    pid_t pid, ppid, pgid, sid;
    char state;
    bool ours; /* in the tree that was asked for */
    unsigned flags;
};
enum { FT_PF_EXITING = 0x4, FT_PF_DUMPCORE = 0x200, FT_PF_SIGNALED = 0x400 };

/* All processes of the machine that can be seen, in order of pid; .ours is set for the descendants of root (not for root itself).
 * Returns how many; *rows is a heap array that the caller frees. */
size_t ft_processes_all(struct ft_process **rows, pid_t root);
const struct ft_process *ft_process_find(const struct ft_process *rows, size_t n, pid_t pid); /* NULL: not among them */
bool ft_process_read(pid_t pid, struct ft_process *out);

/* Bit SIG of a mask line ("SigCgt", "SigIgn") of /proc/PID/status. */
bool ft_process_mask(pid_t pid, const char *line, int number);
/* Value of NAME in the environment that the process started with. false: none or not readable. */
bool ft_process_env(pid_t pid, const char *name, char *out, size_t cap);
/* Command line for people: arguments joined by blanks, cut; control bytes as '?'. */
void ft_process_command(pid_t pid, char *out, size_t cap);

/* Marks: of a slot of a run of this user; that of a process (false: none of ours); is the run alive (its lease is held in this
 * network namespace, or that cannot be told)? */
uint64_t ft_mark(const char *run, int slot);
bool ft_mark_read(pid_t pid, uint64_t *out);
bool ft_mark_same_run(uint64_t a, uint64_t b);
int ft_mark_slot(uint64_t mark);
bool ft_mark_held(uint64_t mark);

/* Kills processes of this user in this network namespace that carry the run's mark or FT_RUN_ID = run. Returns how many. */
unsigned ft_sweep_run(const char *run, pid_t not_this);

/* The lease of a run: an abstract socket that lives as long as keeper or agent. */
enum { FT_LEASE_NAME = 107 };                                               /* what an abstract address holds */
size_t ft_lease_name(char name[FT_LEASE_NAME], uid_t uid, const char *run); /* its length; a longer one is cut */
int ft_lease_take(const char *run);                                         /* descriptor; -1 with errno (EADDRINUSE: alive) */
bool ft_lease_held(uid_t uid, const char *run);                             /* also true when that cannot be told */
pid_t ft_lease_holder(const char *run);                                     /* the agent, by its credentials; 0: none */

/* Ends what dead runs of this user left here: processes whose mark or FT_RUN_ID has no lease, and cgroups. Calls said() for
 * each process. Runs that keep their children (FT_CHILDREN=keep) are left alone. */
void ft_sweep_dead_runs(void (*said)(void *self, pid_t pid, const char *run, const char *command), void *self);

#endif
