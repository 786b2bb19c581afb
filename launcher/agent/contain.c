#include "launcher/agent/contain.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/fd.h"
#include "base/str.h"

/* Reads a small file below an open folder (or the current one) into text; length, or -1. */
static ssize_t read_at(int dir, const char *name, char *text, size_t cap)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    size_t n = 0;
    while (n < cap - 1) {
        ssize_t k = read(fd, text + n, cap - 1 - n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) break;
        n += (size_t)k;
    }
    text[n] = 0;
    close(fd);
    return (ssize_t)n;
}

/* The mount point of cgroup v2 and what part of the hierarchy it shows: on hybrid systems it is not /sys/fs/cgroup. */
static bool find_cgroup2(char *mount, size_t cap, char *root, size_t root_cap)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    if (!f) return false;
    char *line = NULL;
    size_t n = 0;
    bool found = false;
    while (!found && getline(&line, &n, f) > 0) {
        const char *dash = strstr(line, " - ");
        if (!dash || strncmp(dash + 3, "cgroup2 ", 8) != 0) continue;
        FT_ASSERT(cap >= 256 && root_cap >= 256);
        if (sscanf(line, "%*s %*s %*s %255s %255s", root, mount) != 2) continue; /* id parent dev ROOT MOUNT */
        found = true;
    }
    free(line);
    fclose(f);
    return found;
}

/* The folder of the cgroup v2 that this process is in. */
static bool own_cgroup(char *out, size_t cap)
{
    char mount[256], root[256], text[4096];
    if (!find_cgroup2(mount, sizeof mount, root, sizeof root)) return false;
    if (read_at(AT_FDCWD, "/proc/self/cgroup", text, sizeof text) < 0) return false;
    const char *p = text;
    while (p && strncmp(p, "0::", 3) != 0) {
        p = strchr(p, '\n');
        if (p) p++;
    }
    if (!p) return false;
    p += 3;
    size_t n = strcspn(p, "\n"), r = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (r > n || strncmp(p, root, r) != 0) return false; /* our group is not below this mount */
    if (n - r == 1) n = r;                               /* "/" */
    return snprintf(out, cap, "%s%.*s", mount, (int)(n - r), p + r) < (int)cap;
}

void ft_contain_init(struct ft_contain *c)
{
    c->path[0] = 0;
    c->fd = -1;
}

void ft_contain_prefix(char *out, size_t cap)
{
    struct stat st;
    const bool known = stat("/proc/self/ns/net", &st) == 0;
    snprintf(out, cap, "ftlaunch.%llu-", known ? (unsigned long long)st.st_ino : 0);
}

bool ft_contain_make(struct ft_contain *c, const char *run)
{
    char own[384], prefix[48];
    if (!own_cgroup(own, sizeof own)) return false;
    ft_contain_prefix(prefix, sizeof prefix);
    if (snprintf(c->path, sizeof c->path, "%s/%s%s", own, prefix, run) >= (int)sizeof c->path) c->path[0] = 0;
    if (c->path[0] && (mkdir(c->path, 0755) == 0 || errno == EEXIST)) c->fd = open(c->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->fd >= 0 && faccessat(c->fd, "cgroup.procs", W_OK, 0) == 0) return true;
    if (c->fd >= 0) ft_close(&c->fd);
    if (c->path[0]) rmdir(c->path);
    c->path[0] = 0;
    return false;
}

int ft_contain_rank(struct ft_contain *c, int index)
{
    if (c->fd < 0) return -1;
    char name[32];
    snprintf(name, sizeof name, "r%d", index);
    if (mkdirat(c->fd, name, 0755) < 0 && errno != EEXIST) return -1;
    return openat(c->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static bool write_at(int dir, const char *name, const char *text)
{
    int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool ok = write(fd, text, strlen(text)) > 0;
    close(fd);
    return ok;
}

void ft_contain_kill(const struct ft_contain *c)
{
    if (c->fd >= 0) write_at(c->fd, "cgroup.kill", "1"); /* before 5.14 the tree alone does it */
}

bool ft_contain_populated(const struct ft_contain *c)
{
    char text[256];
    return c->fd >= 0 && read_at(c->fd, "cgroup.events", text, sizeof text) > 0 && strstr(text, "populated 1");
}

static void remove_group(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return;
    DIR *d = fdopendir(fd);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_type == DT_DIR && e->d_name[0] != '.') remove_group(fd, e->d_name);
    unlinkat(parent, name, AT_REMOVEDIR);
    if (d) closedir(d);
    else close(fd);
}

void ft_contain_remove(struct ft_contain *c)
{
    if (c->fd < 0) return;
    ft_close(&c->fd);
    for (int i = 0; i < 100; i++) { /* a group stays busy for an instant after its last process; at most 0.5 s */
        remove_group(AT_FDCWD, c->path);
        if (access(c->path, F_OK) < 0) break;
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
    c->path[0] = 0;
}

uint64_t ft_contain_oom_kills(void)
{
    char own[384], path[512], text[1024];
    if (!own_cgroup(own, sizeof own) || snprintf(path, sizeof path, "%s/memory.events", own) >= (int)sizeof path) return 0;
    if (read_at(AT_FDCWD, path, text, sizeof text) <= 0) return 0;
    const char *p = strstr(text, "oom_kill ");
    return p ? strtoull(p + 9, NULL, 10) : 0;
}

size_t ft_contain_pids(int rank_fd, pid_t *pids, size_t cap)
{
    char text[16384];
    size_t n = 0;
    if (rank_fd < 0 || read_at(rank_fd, "cgroup.procs", text, sizeof text) < 0) return 0;
    for (char *p = text, *end; (end = strchr(p, '\n')); p = end + 1) {
        long pid = strtol(p, NULL, 10);
        if (pid > 0 && n < cap) pids[n] = (pid_t)pid;
        n += pid > 0;
    }
    return n < cap ? n : cap;
}

bool ft_process_read(pid_t pid, struct ft_process *out)
{
    char name[48], text[1024];
    snprintf(name, sizeof name, "/proc/%d/stat", (int)pid);
    if (read_at(AT_FDCWD, name, text, sizeof text) <= 0) return false;
    const char *p = strrchr(text, ')'); /* a program's name may hold anything */
    int ppid, pgid, sid, tty, tpgid;
    unsigned flags;
    char state;
    if (!p || sscanf(p + 1, " %c %d %d %d %d %d %u", &state, &ppid, &pgid, &sid, &tty, &tpgid, &flags) != 7) return false;
    *out = (struct ft_process){.pid = pid, .ppid = ppid, .pgid = pgid, .sid = sid, .state = state, .flags = flags};
    return true;
}

static int by_pid(const void *a, const void *b)
{
    pid_t x = ((const struct ft_process *)a)->pid, y = ((const struct ft_process *)b)->pid;
    return x < y ? -1 : x > y;
}

static struct ft_process *find_pid(struct ft_process *rows, size_t n, pid_t pid)
{
    struct ft_process key = {.pid = pid};
    return bsearch(&key, rows, n, sizeof *rows, by_pid);
}

const struct ft_process *ft_process_find(const struct ft_process *rows, size_t n, pid_t pid)
{
    struct ft_process key = {.pid = pid};
    return bsearch(&key, rows, n, sizeof *rows, by_pid);
}

/* Walks up from every process; a chain that reaches root makes the whole way ours. */
static void mark_tree(struct ft_process *rows, size_t n, pid_t root)
{
    for (size_t i = 0; i < n; i++) {
        struct ft_process *p = &rows[i];
        for (int depth = 0; p && p->pid != root && p->ppid != root && !p->ours && depth < 4096; depth++)
            p = find_pid(rows, n, p->ppid);
        if (!p || p->pid == root || !(p->ours || p->ppid == root)) continue;
        struct ft_process *top = p;
        for (p = &rows[i]; p && p != top; p = find_pid(rows, n, p->ppid)) p->ours = true;
        top->ours = true;
    }
}

size_t ft_processes_all(struct ft_process **rows, pid_t root)
{
    DIR *d = opendir("/proc");
    size_t n = 0, cap = 0;
    *rows = NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        int64_t pid;
        struct ft_process p;
        if (!ft_parse_i64(e->d_name, 1, INT32_MAX, &pid) || !ft_process_read((pid_t)pid, &p)) continue;
        ft_grow(rows, &cap, n + 1, sizeof **rows);
        (*rows)[n++] = p;
    }
    if (d) closedir(d);
    if (n) qsort(*rows, n, sizeof **rows, by_pid);
    mark_tree(*rows, n, root);
    return n;
}

bool ft_process_mask(pid_t pid, const char *line, int number)
{
    char name[48], text[4096];
    snprintf(name, sizeof name, "/proc/%d/status", (int)pid);
    if (read_at(AT_FDCWD, name, text, sizeof text) <= 0) return false;
    char *p = strstr(text, line);
    if (!p || !(p = strchr(p, ':'))) return false;
    return strtoull(p + 1, NULL, 16) >> (number - 1) & 1;
}

bool ft_process_env(pid_t pid, const char *name, char *out, size_t cap)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    char block[8192 + 1];
    size_t want = strlen(name), have = 0, at = 0;
    bool found = false, at_start = true, ended = false;
    while (!found) { /* entries may be longer than the block: only their start is looked at */
        char *end = have > at ? memchr(block + at, 0, have - at) : NULL;
        if (!end && !ended) {
            bool full = at == 0 && have == sizeof block - 1;
            if (full) { /* one entry fills the block: forget what was looked at, its rest is no start */
                have = 0;
                at_start = false;
            }
            memmove(block, block + at, have - at);
            have -= at;
            at = 0;
            ssize_t k = read(fd, block + have, sizeof block - 1 - have);
            if (k < 0 && errno == EINTR) continue;
            if (k <= 0) ended = true;
            else have += (size_t)k;
            continue;
        }
        if (have <= at) break;
        size_t n = end ? (size_t)(end - block) - at : have - at;
        if (at_start && n > want && memcmp(block + at, name, want) == 0 && block[at + want] == '=') {
            found = n - want - 1 < cap;
            if (found) memcpy(out, block + at + want + 1, n - want - 1), out[n - want - 1] = 0;
            break;
        }
        at_start = end != NULL;
        at += n + 1;
    }
    close(fd);
    return found;
}

void ft_process_command(pid_t pid, char *out, size_t cap)
{
    char name[48];
    snprintf(name, sizeof name, "/proc/%d/cmdline", (int)pid);
    ssize_t n = read_at(AT_FDCWD, name, out, cap);
    if (n <= 0) {
        snprintf(name, sizeof name, "/proc/%d/comm", (int)pid);
        n = read_at(AT_FDCWD, name, out, cap);
    }
    if (n < 0) n = 0;
    while (n > 0 && (out[n - 1] == 0 || out[n - 1] == '\n')) n--;
    for (ssize_t i = 0; i < n; i++)
        if (out[i] == 0) out[i] = ' ';
        else if ((unsigned char)out[i] < 0x20 || out[i] == 0x7F) out[i] = '?';
    out[n] = 0;
}
