#include "ranks.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"

static int say_fd(int set)
{
    static int fd = 2; /* of the child; a test program is allowed one */
    if (set >= 0) fd = set;
    return fd;
}

void say(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vdprintf(say_fd(-1), fmt, ap);
    va_end(ap);
}

void say_err(enum ft_code code, const struct ft_err *err)
{
    say("[%s] %s | %s | %s\n", ft_code_name(code), err->text, err->fix, err->n_chain ? err->chain[0] : "");
}

int free_port(void)
{
    static unsigned next;
    for (int i = 0; i < 2000; i++) {
        const int port = 20000 + (int)(((unsigned)getpid() * 131u + next++ * 7u) % 9000u);
        struct sockaddr_in a = {
            .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const bool ok = fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a) && !listen(fd, 1);
        if (fd >= 0) close(fd);
        if (ok) return port;
    }
    fail_msg("no free port");
    return 0;
}

static void child(struct ranks *r, int rank, int port, int fd)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    say_fd(fd);
    struct ft_place p = {.rank = rank,
                         .world = r->world ? r->world : r->n,
                         .local_rank = rank,
                         .local_world = r->n,
                         .node_rank = r->node_of ? r->node_of[rank] : 0,
                         .master_addr = "127.0.0.1",
                         .master_port = port,
                         .token = r->tokens[rank],
                         .progress_fd = -1,
                         .dialect = "bare"};
    exit(r->run(&p, r->arg)); /* exit: the leak check of the sanitizers runs */
}

int rank_here(int (*run)(const struct ft_place *place, void *arg), void *arg)
{
    struct ft_arena *arena = ft_arena_create();
    struct ft_place place;
    struct ft_err err = {0};
    const enum ft_code rc = ft_place_from_env(environ, arena, &place, &err);
    if (rc) say_err(rc, &err);
    const int status = rc ? 10 + (int)rc : run(&place, arg);
    ft_arena_destroy(arena);
    return status;
}

static void drain(struct ranks *r, const int *fds, int wait_ms)
{
    struct pollfd p[RANKS_MAX];
    for (int i = 0; i < r->n; i++) p[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    if (poll(p, (nfds_t)r->n, wait_ms) <= 0) return;
    for (int i = 0; i < r->n; i++) {
        const size_t used = strlen(r->text[i]);
        if (!(p[i].revents & POLLIN)) continue;
        char more[1024];
        const ssize_t k = read(fds[i], more, sizeof more);
        if (k > 0 && used + (size_t)k < sizeof r->text[i]) memcpy(r->text[i] + used, more, (size_t)k);
    }
}

void ranks_run(struct ranks *r)
{
    pid_t pids[RANKS_MAX];
    int fds[RANKS_MAX], left = 0;
    const int port = r->port ? r->port : free_port();
    const int64_t start = ft_clock_now(ft_clock_real()), limit = start + (int64_t)((r->limit_s > 0 ? r->limit_s : 60) * FT_SEC);
    fflush(NULL);
    for (int i = 0; i < r->n; i++) {
        int pair[2];
        pids[i] = -1;
        fds[i] = -1;
        r->status[i] = -1;
        r->late[i] = false;
        memset(r->text[i], 0, sizeof r->text[i]);
        if (i < r->only_from) continue;
        assert_int_equal(pipe(pair), 0);
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            close(pair[0]);
            child(r, i, port, pair[1]);
        }
        close(pair[1]);
        fds[i] = pair[0];
        left++;
    }
    while (left) {
        drain(r, fds, 2);
        const int64_t now = ft_clock_now(ft_clock_real());
        for (int i = 0; i < r->n; i++) {
            if (pids[i] < 0) continue;
            if (now > limit && !r->late[i]) {
                r->late[i] = true;
                kill(pids[i], SIGKILL);
            }
            if (left == 1 && i == r->stays - 1) kill(pids[i], SIGKILL);
            if (waitpid(pids[i], &r->status[i], WNOHANG) != pids[i]) continue;
            r->seconds[i] = (double)(ft_clock_now(ft_clock_real()) - start) / FT_SEC;
            pids[i] = -1;
            left--;
        }
    }
    for (int k = 0; k < 8; k++) drain(r, fds, 0);
    for (int i = 0; i < r->n; i++)
        if (fds[i] >= 0) close(fds[i]);
    nothing_left();
}

void ranks_all_ok(const struct ranks *r)
{
    bool ok = true;
    for (int i = 0; i < r->n; i++) {
        if (r->status[i] == 0 && !r->late[i]) continue;
        ok = false;
        print_error("rank %d: status %#x%s: %s\n", i, (unsigned)r->status[i], r->late[i] ? " (killed after the limit)" : "",
                    r->text[i]);
    }
    assert_true(ok);
}

/* Does this process hold the socket with that inode? Its children are gone, and theirs with them; others' sockets are not ours. */
static bool holds(const char *inode)
{
    char link[64], at[64], want[64];
    bool found = false;
    (void)snprintf(want, sizeof want, "socket:[%s]", inode);
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    for (const struct dirent *e; !found && (e = readdir(d));) {
        (void)snprintf(link, sizeof link, "/proc/self/fd/%.20s", e->d_name);
        const ssize_t n = readlink(link, at, sizeof at - 1);
        at[n > 0 ? n : 0] = 0;
        found = !strcmp(at, want);
    }
    closedir(d);
    return found;
}

static bool sockets_left(void)
{
    char line[512], inode[32];
    bool ours = false;
    FILE *f = fopen("/proc/net/unix", "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (strstr(line, "@ftlaunch/coll/") && sscanf(line, "%*s %*s %*s %*s %*s %*s %31s", inode) == 1) ours |= holds(inode);
    fclose(f);
    return ours;
}

void nothing_left(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    assert_false(sockets_left());
}
