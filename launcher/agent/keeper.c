/* The keeper: the parent of the agent. Single-purpose: it allocates nothing, keeps no copy of the stream, and waits for the
 * agent's word, silence or death. Then it kills everything of the run that is left in its tree, its cgroup, or carries its id.
 *
 * Messages of the agent (SOCK_SEQPACKET): 'B' alive · 'R' + run id (with the lease as a descriptor) · 'C' + folder of the
 * cgroup (empty: none any more) · 'K' children are kept: an orderly end leaves them · 'D' done, end quietly. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "launcher/agent/agent.h"

enum { KEEPER_END_MS = 20000, GOODBYE_MS = 2000 };

struct keeper {
    pid_t agent;
    int fd, lease;
    char run[128];
    struct ft_contain contain;
    bool done;
};

static void take_message(struct keeper *k, char *text, size_t n, int passed)
{
    text[n] = 0;
    switch (n ? text[0] : 0) {
    case 'R':
        snprintf(k->run, sizeof k->run, "%.127s", text + 1);
        k->lease = passed; /* held, never used */
        break;
    case 'C':
        if (k->contain.fd >= 0) ft_close(&k->contain.fd);
        snprintf(k->contain.path, sizeof k->contain.path, "%.511s", text + 1);
        if (text[1]) k->contain.fd = open(k->contain.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        break;
    case 'D': k->done = true; break;
    default: break; /* 'B' */
    }
}

/* false: the agent's end is closed. */
static bool receive(struct keeper *k)
{
    char text[600];
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {text, sizeof text - 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(k->fd, &m, MSG_CMSG_CLOEXEC);
    if (n < 0) return errno == EINTR || errno == EAGAIN;
    if (n == 0) return false;
    int passed = -1;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) memcpy(&passed, CMSG_DATA(c), sizeof passed);
    take_message(k, text, (size_t)n, passed);
    return true;
}

/* Is this process below us? Asked of /proc alone: a table of all processes of a big machine would not fit here. */
static bool is_descendant(pid_t pid, char *state)
{
    struct ft_process p;
    *state = 'Z';
    for (int depth = 0; pid > 1 && depth < 4096 && ft_process_read(pid, &p); depth++) {
        if (depth == 0) *state = p.state;
        if (p.ppid == getpid()) return true;
        pid = p.ppid;
    }
    return false;
}

static void kill_descendants(void)
{
    DIR *d = opendir("/proc");
    char state;
    for (struct dirent *e; d && (e = readdir(d));) {
        long pid = strtol(e->d_name, NULL, 10);
        if (pid > 1 && is_descendant((pid_t)pid, &state) && state != 'Z') kill((pid_t)pid, SIGKILL);
    }
    if (d) closedir(d);
}

/* Kills until no child is left: every descendant becomes ours when its parent ends. */
static void end_everything(struct keeper *k)
{
    static const struct timespec pause = {0, 5000000};
    int64_t until = ft_clock_now(ft_clock_real()) + KEEPER_END_MS * FT_MS;
    kill(k->agent, SIGKILL);
    for (int round = 0; ft_clock_now(ft_clock_real()) < until; round++) {
        ft_contain_kill(&k->contain);
        kill_descendants();
        if (k->run[0] && round % 8 == 0) ft_sweep_run(k->run, 0);
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {}
        if (pid < 0 && errno == ECHILD && !ft_contain_populated(&k->contain)) break;
        nanosleep(&pause, NULL);
    }
    if (k->run[0]) ft_sweep_run(k->run, 0);
    ft_contain_remove(&k->contain);
}

/* It has said goodbye and needs an instant to exit. */
static void see_off(const struct keeper *k)
{
    struct pollfd p = {.fd = ft_pidfd_open(k->agent), .events = POLLIN};
    if (p.fd >= 0 && poll(&p, 1, GOODBYE_MS) > 0) waitpid(k->agent, NULL, WNOHANG);
}

static int watch(struct keeper *k)
{
    int64_t heard = ft_clock_now(ft_clock_real());
    for (bool open = true; open;) {
        struct pollfd p = {.fd = k->fd, .events = POLLIN};
        int64_t left = heard + FT_KEEPER_LIMIT_MS * FT_MS - ft_clock_now(ft_clock_real());
        int r = left > 0 ? poll(&p, 1, (int)(left / FT_MS) + 1) : 0;
        if (r < 0 && errno == EINTR) continue;
        if (r == 0) break; /* silent for too long */
        open = receive(k);
        heard = ft_clock_now(ft_clock_real());
    }
    if (k->done) see_off(k);
    else end_everything(k);
    return 0;
}

int ft_keeper_main(void)
{
    struct keeper k = {.lease = -1};
    ft_contain_init(&k.contain);
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) return 125;
    setsid(); /* fails when we lead a session already, which is as good */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    static const int quiet[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGPIPE, SIGTTIN, SIGTTOU, SIGTSTP, SIGALRM};
    for (size_t i = 0; i < sizeof quiet / sizeof quiet[0]; i++) signal(quiet[i], SIG_IGN);
    k.agent = fork();
    if (k.agent < 0) return 125;
    if (k.agent == 0) {
        close(pair[0]);
        return ft_agent_main(pair[1]);
    }
    close(pair[1]);
    k.fd = pair[0];
    prctl(PR_SET_NAME, "ftlaunch-keeper");
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3 && null >= 0; i++) dup2(null, i);
    return watch(&k);
}
