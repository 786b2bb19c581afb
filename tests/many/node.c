/* many-node NAME NUMBER FOLDER AGENT: one node of a test cluster on this machine. It has mounts, a host name, processes with a /proc and a
 * boot id of its own; its user is the caller under the number NUMBER, so that the leases of many nodes of one run do not meet in the one
 * network they share. No cgroup: what is contained is contained by the walk over the tree, which /proc keeps as small as a node's.
 *
 * Descriptors 0 to 2 are the stream to the head; AGENT gets them and nobody else keeps them. When the agent's keeper has ended, one line
 * "NAME LEFT" is added to FOLDER/ended: how many processes are still there, which end then. Root only. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "many-node: %s: %s\n", what, strerror(errno));
    _exit(125);
}

static void write_file(const char *path, const char *text, int flags)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0600);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) fail(path);
    close(fd);
}

static void let_go_of_stream(void)
{
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3; i++)
        if (dup2(null, i) < 0) fail("dup2");
}

/* A boot id made of the node's number, in a file that is mounted over the kernel's. */
static void make_boot_id(const char *folder, int number)
{
    char path[4096], id[64];
    snprintf(path, sizeof path, "%s/boot-%d", folder, number);
    snprintf(id, sizeof id, "%08x-0000-4000-8000-%012x\n", number, number);
    write_file(path, id, O_CREAT | O_TRUNC);
    if (mount(path, "/proc/sys/kernel/random/boot_id", NULL, MS_BIND, NULL)) fail("boot id");
}

/* Processes of this node but its init and what is dead. */
static int count_left(void)
{
    DIR *d = opendir("/proc");
    int n = 0;
    if (!d) fail("/proc");
    for (struct dirent *e; (e = readdir(d));) {
        const long pid = strtol(e->d_name, NULL, 10);
        char path[64], text[512] = "";
        if (pid <= 1) continue;
        snprintf(path, sizeof path, "/proc/%ld/stat", pid);
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || read(fd, text, sizeof text - 1) < 0) text[0] = 0;
        if (fd >= 0) close(fd);
        const char *state = strrchr(text, ')');
        n += state && state[1] && state[2] != 'Z' && state[2] != 'X';
    }
    closedir(d);
    return n;
}

/* The agent's keeper: the caller under another number. */
static _Noreturn void become_agent(const char *agent, int number)
{
    char map[64], name[] = "ftlaunch-agent", *argv[] = {name, NULL};
    const unsigned uid = geteuid(), gid = getegid();
    if (unshare(CLONE_NEWUSER)) fail("user namespace");
    snprintf(map, sizeof map, "%d %u 1", number, uid);
    write_file("/proc/self/uid_map", map, 0);
    write_file("/proc/self/setgroups", "deny", 0);
    snprintf(map, sizeof map, "%d %u 1", number, gid);
    write_file("/proc/self/gid_map", map, 0);
    execv(agent, argv);
    fail(agent);
}

static int be_init(const char *name, int number, const char *folder, const char *agent)
{
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL)) fail("/proc");
    make_boot_id(folder, number);
    const pid_t keeper = fork();
    if (keeper < 0) fail("fork");
    if (keeper == 0) become_agent(agent, number);
    let_go_of_stream();
    for (pid_t pid; (pid = wait(NULL)) != keeper;)
        if (pid < 0 && errno != EINTR) fail("wait");
    char path[4096], line[300];
    snprintf(path, sizeof path, "%s/ended", folder);
    snprintf(line, sizeof line, "%.200s %d\n", name, count_left());
    write_file(path, line, O_CREAT | O_APPEND);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 5) return 2;
    const char *name = argv[1], *folder = argv[3], *agent = argv[4];
    const int number = (int)strtol(argv[2], NULL, 10);
    if (unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWPID)) fail("namespaces");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) fail("private mounts");
    if (umount2("/sys/fs/cgroup", MNT_DETACH) && errno != EINVAL && errno != ENOENT) fail("/sys/fs/cgroup");
    if (sethostname(name, strlen(name))) fail("host name");
    const pid_t init = fork();
    if (init < 0) fail("fork");
    if (init == 0) return be_init(name, number, folder, agent);
    let_go_of_stream();
    int status = 0;
    while (waitpid(init, &status, 0) < 0 && errno == EINTR) {}
    return WIFEXITED(status) ? WEXITSTATUS(status) : 125;
}
