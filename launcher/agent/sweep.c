/* Leases of runs and the sweeps: what outlived its keeper and agent. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "launcher/agent/contain.h"

size_t ft_lease_name(char name[FT_LEASE_NAME], uid_t uid, const char *run)
{
    int n = snprintf(name, FT_LEASE_NAME, "ftlaunch/run/%u/%s", (unsigned)uid, run);
    return n < FT_LEASE_NAME ? (size_t)n : FT_LEASE_NAME - 1;
}

static socklen_t lease_address(struct sockaddr_un *sa, uid_t uid, const char *run)
{
    memset(sa, 0, sizeof *sa);
    sa->sun_family = AF_UNIX; /* abstract: the first byte stays 0 */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + ft_lease_name(sa->sun_path + 1, uid, run));
}

int ft_lease_take(const char *run)
{
    struct sockaddr_un sa;
    socklen_t len = lease_address(&sa, getuid(), run);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (bind(fd, (struct sockaddr *)&sa, len) == 0 && listen(fd, 64) == 0) return fd;
    int e = errno;
    close(fd);
    errno = e;
    return -1;
}

/* A connection to the lease; -1 with errno (ECONNREFUSED: nobody holds it). */
static int lease_connect(uid_t uid, const char *run)
{
    struct sockaddr_un sa;
    socklen_t len = lease_address(&sa, uid, run);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (connect(fd, (struct sockaddr *)&sa, len) == 0) return fd;
    int e = errno;
    close(fd);
    errno = e;
    return -1;
}

bool ft_lease_held(uid_t uid, const char *run)
{
    int fd = lease_connect(uid, run);
    if (fd < 0) return errno != ECONNREFUSED; /* a full backlog (EAGAIN) is a holder too */
    close(fd);
    return true;
}

pid_t ft_lease_holder(const char *run)
{
    int fd = lease_connect(getuid(), run);
    if (fd < 0) return 0;
    struct ucred cred = {0, 0, 0};
    socklen_t len = sizeof cred;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0) cred.pid = 0;
    close(fd);
    return cred.pid;
}

static bool same_netns(pid_t pid)
{
    char name[48];
    struct stat mine, theirs;
    snprintf(name, sizeof name, "/proc/%d/ns/net", (int)pid);
    return stat("/proc/self/ns/net", &mine) == 0 && stat(name, &theirs) == 0 && mine.st_ino == theirs.st_ino;
}

static bool same_user(pid_t pid)
{
    char name[48];
    struct stat st;
    snprintf(name, sizeof name, "/proc/%d", (int)pid);
    return stat(name, &st) == 0 && st.st_uid == getuid();
}

static bool is_of_run(pid_t pid, const char *run, uint64_t mark)
{
    char value[128];
    uint64_t its;
    if (ft_mark_read(pid, &its) && ft_mark_same_run(its, mark)) return true;
    return ft_process_env(pid, "FT_RUN_ID", value, sizeof value) && strcmp(value, run) == 0;
}

unsigned ft_sweep_run(const char *run, pid_t not_this)
{
    DIR *d = opendir("/proc");
    unsigned killed = 0;
    const uint64_t mark = ft_mark(run, 0);
    struct ft_process row;
    for (struct dirent *e; d && (e = readdir(d));) {
        int64_t pid;
        if (!ft_parse_i64(e->d_name, 2, INT32_MAX, &pid) || pid == getpid() || pid == not_this || !same_user((pid_t)pid)) continue;
        if (!is_of_run((pid_t)pid, run, mark) || !same_netns((pid_t)pid)) continue;
        if (ft_process_read((pid_t)pid, &row) && row.state != 'Z' && kill((pid_t)pid, SIGKILL) == 0) killed++;
    }
    if (d) closedir(d);
    return killed;
}

/* Cgroups of dead runs: killed and removed. They lie beside the one that we would make; those of another network namespace have their
 * leases there and are left alone. */
static void sweep_cgroups(void)
{
    struct ft_contain c;
    ft_contain_init(&c);
    char probe[64], prefix[48];
    ft_contain_prefix(prefix, sizeof prefix);
    snprintf(probe, sizeof probe, "probe-%d", (int)getpid());
    if (!ft_contain_make(&c, probe)) return;
    char folder[sizeof c.path];
    memcpy(folder, c.path, sizeof folder);
    *strrchr(folder, '/') = 0;
    ft_contain_remove(&c);
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (!ft_str_starts(e->d_name, prefix) || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) continue;
        const char *run = e->d_name + strlen(prefix);
        if (ft_str_starts(run, "probe-") || st.st_uid != getuid() || ft_lease_held(st.st_uid, run)) continue;
        if (snprintf(c.path, sizeof c.path, "%s/%s", folder, e->d_name) >= (int)sizeof c.path) continue;
        c.fd = open(c.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        ft_contain_kill(&c);
        ft_contain_remove(&c);
    }
    if (d) closedir(d);
}

/* An ancestor of this process is never a leftover, whatever its environment says. */
static bool is_ancestor(pid_t pid)
{
    struct ft_process row;
    for (pid_t p = getppid(); p > 1 && ft_process_read(p, &row); p = row.ppid)
        if (p == pid) return true;
    return false;
}

/* Is it of a run that is dead? run: its id, or the mark when nothing else is known. */
static bool is_of_dead_run(pid_t pid, char *run, size_t cap)
{
    char keep[16];
    uint64_t mark;
    if (ft_process_env(pid, "FT_CHILDREN", keep, sizeof keep) && strcmp(keep, "keep") == 0) return false;
    if (ft_process_env(pid, "FT_RUN_ID", run, cap) && run[0]) return !ft_lease_held(getuid(), run);
    if (!ft_mark_read(pid, &mark) || ft_mark_held(mark)) return false;
    snprintf(run, cap, "(unknown, mark %llx)", (unsigned long long)mark);
    return true;
}

void ft_sweep_dead_runs(void (*said)(void *, pid_t, const char *, const char *), void *self)
{
    DIR *d = opendir("/proc");
    char run[128], command[256];
    struct ft_process row;
    for (struct dirent *e; d && (e = readdir(d));) {
        int64_t n;
        if (!ft_parse_i64(e->d_name, 2, INT32_MAX, &n) || n == getpid()) continue;
        pid_t pid = (pid_t)n;
        if (!same_user(pid) || !is_of_dead_run(pid, run, sizeof run) || !same_netns(pid) || is_ancestor(pid)) continue;
        ft_process_command(pid, command, sizeof command);
        if (!ft_process_read(pid, &row) || row.state == 'Z' || kill(pid, SIGKILL) < 0) continue;
        said(self, pid, run, command);
    }
    if (d) closedir(d);
    sweep_cgroups();
}
