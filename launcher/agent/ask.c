/* A question to the job's program on this node (fttrain check, fttrain plan): it runs with the job's working directory and
 * environment, reads the job file from its stdin, and its stdout goes to the head. One at a time; a deadline; nothing on disk. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "launcher/agent/agent.h"

enum { MAX_ANSWER = 16 << 20, MAX_SAID = 2048, MAX_WORDS = 64 };

struct ft_asking {
    struct ft_agent *agent;
    uint32_t id;
    struct ft_proc proc;
    int fd[2]; /* its stdout and stderr */
    struct ft_watch watch[2], end;
    struct ft_buf out, said;
    struct ft_timer limit;
};

/* What is there now; false: no more for the time being. */
static bool take(struct ft_asking *q, int k)
{
    char bytes[16384];
    struct ft_buf *to = k ? &q->said : &q->out;
    const ssize_t n = q->fd[k] < 0 ? 0 : read(q->fd[k], bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return false;
    if (n > 0) {
        if (to->n < MAX_ANSWER) ft_buf_add(to, bytes, (size_t)n);
        if (k && to->n > MAX_SAID) ft_buf_drop(to, to->n - MAX_SAID);
        return true;
    }
    ft_watch_remove(&q->agent->loop, &q->watch[k]);
    ft_close(&q->fd[k]);
    return false;
}

static void on_out(void *self, short revents)
{
    (void)revents;
    (void)take(self, 0);
}

static void on_said(void *self, short revents)
{
    (void)revents;
    (void)take(self, 1);
}

/* Ends what still runs; its status, 128+N for a signal. */
static int reap(struct ft_asking *q, bool in_time)
{
    siginfo_t info = {.si_pid = 0};
    if (!in_time) ft_pidfd_signal(q->proc.pidfd, SIGKILL);
    while (waitid(P_PIDFD, (id_t)q->proc.pidfd, &info, WEXITED) < 0 && errno == EINTR) {}
    return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

static void drop(struct ft_asking *q)
{
    for (int k = 0; k < 2; k++) {
        ft_watch_remove(&q->agent->loop, &q->watch[k]);
        ft_close(&q->fd[k]);
    }
    ft_watch_remove(&q->agent->loop, &q->end);
    ft_timer_cancel(&q->limit);
    ft_close(&q->proc.pidfd);
    ft_close(&q->proc.exec_fd);
    ft_buf_fini(&q->out);
    ft_buf_fini(&q->said);
    q->agent->asking = NULL;
    free(q);
}

void ft_agent_ask_end(struct ft_agent *a)
{
    if (!a->asking) return;
    (void)reap(a->asking, false);
    drop(a->asking);
}

/* It has ended, or the time is up. */
static void over(struct ft_asking *q, bool in_time)
{
    struct ft_agent *a = q->agent;
    const int status = reap(q, in_time);
    for (int k = 0; k < 2; k++)
        while (take(q, k)) {}
    const char *said = ft_buf_str(&q->said);
    if (!in_time) {
        static const char late[] = "it gave no answer in time";
        ft_agent_answer(a, q->id, false, 0, late, sizeof late - 1);
    } else if (!q->out.n) {
        struct ft_buf why = {0};
        size_t n = strlen(said);
        while (n && said[n - 1] == '\n') n--;
        ft_buf_addf(&why, "it gave no answer: exit status %d%s%.*s", status, n ? ": " : "", (int)n, said);
        ft_agent_answer(a, q->id, false, 0, why.data, why.n);
        ft_buf_fini(&why);
    } else ft_agent_answer(a, q->id, true, (uint64_t)status, q->out.data, q->out.n);
    drop(q);
}

static void on_end(void *self, short revents)
{
    (void)revents;
    over(self, true);
}

static void on_limit(void *self, int64_t now)
{
    (void)now;
    over(self, false);
}

/* The job file as a file of its own that has no name; -1: it cannot be made. */
static int job_file(const struct ft_agent *a)
{
    const size_t n = a->job.job_file.n ? a->job.job_file.n - 1 : 0; /* without the NUL that ends lists */
    int fd = memfd_create("job.ini", MFD_CLOEXEC);
    if (fd >= 0 && (ft_write_all(fd, n ? a->job.job_file.data : "", n, NULL) || lseek(fd, 0, SEEK_SET) < 0)) ft_close(&fd);
    return fd;
}

static int start(struct ft_asking *q, char *const *argv)
{
    struct ft_agent *a = q->agent;
    const struct ft_buf none = {0};
    struct ft_buf path = {0};
    int out[2] = {-1, -1}, said[2] = {-1, -1}, in = job_file(a), e = in < 0 ? errno : 0;
    char **env = ft_environ_make(&a->job.forward, a->n_slots ? &a->slots[0].rank_env : &none, &a->job.env, NULL);
    if (!e) e = ft_proc_find(argv[0], ft_ranks_workdir(a), env, &path);
    if (!e && (ft_pipe(out, NULL) || ft_pipe(said, NULL))) e = errno;
    struct ft_proc_spec spec = {.path = path.data,
                                .argv = argv,
                                .env = env,
                                .workdir = ft_ranks_workdir(a),
                                .std = {in, out[1], said[1]},
                                .cgroup = -1,
                                .death_signal = SIGKILL};
    if (!e && ft_proc_start(&spec, &q->proc, NULL)) e = EAGAIN;
    ft_close(&in);
    ft_close(&out[1]);
    ft_close(&said[1]);
    q->fd[0] = out[0];
    q->fd[1] = said[0];
    ft_buf_fini(&path);
    free(env);
    return e;
}

void ft_agent_probe_ask(struct ft_agent *a, uint32_t id, int64_t limit_ms, const char *words, size_t words_n)
{
    char program[4096], *argv[MAX_WORDS + 2];
    size_t n = 0;
    ft_agent_ask_end(a);
    ft_agent_else_path(a);
    snprintf(program, sizeof program, "%s", a->job.argv.n ? a->job.argv.data : "");
    argv[n++] = program;
    char *copy = ft_xcalloc(words_n + 1, 1);
    memcpy(copy, words, words_n);
    for (size_t at = 0; at < words_n && n <= MAX_WORDS; at += strlen(copy + at) + 1) argv[n++] = copy + at;
    argv[n] = NULL;
    struct ft_asking *q = ft_xcalloc(1, sizeof *q);
    *q = (struct ft_asking){.agent = a, .id = id, .fd = {-1, -1}};
    q->proc.pidfd = q->proc.exec_fd = -1;
    const int e = start(q, argv);
    a->asking = q;
    free(copy);
    if (e) {
        char why[4300];
        const int len = snprintf(why, sizeof why, "cannot start '%.4000s': %s", program, strerror(e));
        drop(q);
        ft_agent_answer(a, id, false, 0, why, (size_t)len);
        return;
    }
    for (int k = 0; k < 2; k++) {
        if (ft_nonblock(q->fd[k], NULL)) FT_BUG("O_NONBLOCK on a pipe of ours: %s", strerror(errno));
        ft_watch_add(&a->loop, &q->watch[k], q->fd[k], POLLIN, k ? on_said : on_out, q);
    }
    ft_timer_set(&a->loop, &q->limit, ft_clock_now(ft_clock_real()) + limit_ms * FT_MS, on_limit, q);
    ft_watch_add(&a->loop, &q->end, q->proc.pidfd, POLLIN, on_end, q);
}
