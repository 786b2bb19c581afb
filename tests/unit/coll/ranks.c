#include "ranks.h"

#include <arpa/inet.h>
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
#include <sys/un.h>
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

/* A probed port is closed again until rank 0 listens: meanwhile the name by which ftlaunch leases its ports keeps other tests and runs of
 * this machine from it. The kernel gives none of this range to outgoing connections. */
int free_port(void)
{
    static unsigned next;
    for (int i = 0; i < 2000; i++) {
        const int port = 20000 + (int)(((unsigned)getpid() * 131u + next++ * 7u) % 9000u);
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        const int n = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "ftlaunch/port/%d", port);
        const int lease = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(lease >= 0);
        if (bind(lease, (struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) < 0) {
            close(lease);
            continue;
        }
        struct sockaddr_in a = {
            .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const bool ok = fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a) && !listen(fd, 1);
        if (fd >= 0) close(fd);
        if (ok) return port; /* leased until this process ends */
        close(lease);
    }
    fail_msg("no free port");
    return 0;
}

void gate_open(struct gate *g, const char *fifo)
{
    if (fifo) g->fd[0] = g->fd[1] = open(fifo, O_RDWR | O_CLOEXEC);
    if (fifo ? g->fd[0] < 0 : pipe2(g->fd, O_CLOEXEC) < 0) fail_msg("a gate: %s", strerror(errno));
}

void gate_close(struct gate *g)
{
    if (g->fd[1] != g->fd[0]) close(g->fd[1]);
    close(g->fd[0]);
}

void gate_pass(const struct gate *g)
{
    if (write(g->fd[1], "", 1) != 1) _exit(96);
}

void gate_wait(const struct gate *g, int n)
{
    char c;
    while (n-- > 0)
        if (read(g->fd[0], &c, 1) != 1) _exit(97);
}

/* All ranks are there before the first begins: how long a slow machine takes to make them is in no deadline of theirs. */
struct line {
    int here[2], go[2]; /* pipes: a byte from each rank; closed when all may begin */
};

static void wait_at(const struct line *l)
{
    char c;
    close(l->go[1]);
    if (write(l->here[1], "", 1) != 1) _exit(98);
    close(l->here[0]);
    close(l->here[1]);
    while (read(l->go[0], &c, 1) < 0 && errno == EINTR) continue;
    close(l->go[0]);
}

/* A rank that has ended before is not waited for. */
static void begin_all(const struct line *l, int n)
{
    char c;
    close(l->here[1]);
    close(l->go[0]);
    while (n > 0 && read(l->here[0], &c, 1) == 1) n--;
    close(l->here[0]);
    close(l->go[1]);
}

static void child(struct ranks *r, int rank, int port, int fd, const struct line *line)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    wait_at(line);
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

/* Takes what ranks say; the end of a rank closes its pipe: fds[i] becomes -1. */
static void drain(struct ranks *r, int *fds, int wait_ms)
{
    struct pollfd p[RANKS_MAX];
    for (int i = 0; i < r->n; i++) p[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    if (poll(p, (nfds_t)r->n, wait_ms) <= 0) return;
    for (int i = 0; i < r->n; i++) {
        const size_t used = strlen(r->text[i]);
        if (!p[i].revents) continue;
        char more[1024];
        const ssize_t k = read(fds[i], more, sizeof more);
        if (k == 0) {
            close(fds[i]);
            fds[i] = -1;
        }
        if (k > 0 && used + (size_t)k < sizeof r->text[i]) memcpy(r->text[i] + used, more, (size_t)k);
    }
}

/* All but the one that stays have ended or said why they do: rank 0 serves a while longer for one that has not left. */
static bool others_done(const struct ranks *r, const pid_t *pids)
{
    for (int i = 0; i < r->n; i++)
        if (i != r->stays - 1 && pids[i] >= 0 && !*r->text[i]) return false;
    return true;
}

void ranks_run(struct ranks *r)
{
    pid_t pids[RANKS_MAX];
    int fds[RANKS_MAX], left = 0;
    struct line line;
    const int port = r->port ? r->port : free_port();
    const int64_t limit = ft_clock_now(ft_clock_real()) + (int64_t)((r->limit_s > 0 ? r->limit_s : 60) * FT_SEC);
    assert_true(!pipe(line.here) && !pipe(line.go));
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
            child(r, i, port, pair[1], &line);
        }
        close(pair[1]);
        fds[i] = pair[0];
        left++;
    }
    begin_all(&line, left);
    for (int wait_ms = 0; left;) {
        drain(r, fds, wait_ms);
        wait_ms = 200; /* for the limit; what happens is seen by the pipes */
        const int64_t now = ft_clock_now(ft_clock_real());
        for (int i = 0; i < r->n; i++) {
            if (pids[i] < 0) continue;
            if (now > limit && !r->late[i]) {
                r->late[i] = true;
                kill(pids[i], SIGKILL);
            }
            if (i == r->stays - 1 && others_done(r, pids)) kill(pids[i], SIGKILL);
            if (fds[i] < 0) wait_ms = 1; /* it is ending */
            if (waitpid(pids[i], &r->status[i], WNOHANG) != pids[i]) continue;
            pids[i] = -1;
            left--;
        }
    }
    for (int k = 0; k < 8; k++) drain(r, fds, 0); /* of a rank whose own child still holds the pipe */
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
