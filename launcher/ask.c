#include "launcher/ask.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"

enum { MAX_ANSWER = 256 << 20, MAX_WORDS = 4096 };
static const int64_t DEADLINE = 120 * FT_SEC;

extern char **environ;

struct child {
    pid_t pid;
    int out, err; /* read ends; -1: ended */
    struct ft_buf answer, words;
};

static enum ft_code start(char *const *argv, struct child *c, struct ft_err *err)
{
    int out[2], words[2];
    posix_spawn_file_actions_t actions;
    if (ft_pipe(out, err)) return FT_IO;
    if (ft_pipe(words, err)) {
        ft_close(&out[0]);
        ft_close(&out[1]);
        return FT_IO;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_adddup2(&actions, words[1], 2);
    int e = posix_spawn(&c->pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    ft_close(&out[1]);
    ft_close(&words[1]);
    c->out = out[0];
    c->err = words[0];
    if (!e) return FT_OK;
    ft_close(&c->out);
    ft_close(&c->err);
    return ft_fail(err, FT_IO, "cannot start '%s': %s", argv[0], strerror(e));
}

/* Takes what is there; closes the descriptor at its end. Keeps at most max bytes (the last ones when tail). */
static void take(int *fd, struct ft_buf *into, size_t max, bool tail)
{
    char piece[65536];
    ssize_t n = read(*fd, piece, sizeof piece);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0) {
        ft_close(fd);
        return;
    }
    if (tail || into->n < max) ft_buf_add(into, piece, (size_t)n);
    if (tail && into->n > max) ft_buf_drop(into, into->n - max);
}

/* Reads both pipes until the child is done with them; false: the deadline passed. */
static bool listen_to(struct child *c, int64_t deadline)
{
    while (c->out >= 0 || c->err >= 0) {
        int64_t left = deadline - ft_clock_now(ft_clock_real());
        struct pollfd p[2] = {{c->out, POLLIN, 0}, {c->err, POLLIN, 0}};
        if (left <= 0) return false;
        int n = poll(p, 2, left / FT_MS > 1000 ? 1000 : (int)(left / FT_MS) + 1);
        if (n < 0 && errno != EINTR) return false;
        if (n <= 0) continue;
        if (p[0].revents) take(&c->out, &c->answer, MAX_ANSWER, false);
        if (p[1].revents) take(&c->err, &c->words, MAX_WORDS, true);
    }
    return true;
}

/* Its end; a child that goes on without its pipes is ended at the deadline. */
static int reap(pid_t pid, int64_t deadline, bool *late)
{
    int status = 0;
    for (;;) {
        pid_t got = waitpid(pid, &status, *late ? 0 : WNOHANG);
        if (got == pid) break;
        if (got < 0 && errno != EINTR) return 255;
        if (*late || got < 0) continue;
        if (ft_clock_now(ft_clock_real()) > deadline) {
            *late = true;
            kill(pid, SIGKILL);
        } else {
            poll(NULL, 0, 2);
        }
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* What the child answered, or why that is no answer. */
static enum ft_code judge(const char *program, struct child *c, int status, bool late, struct ft_json **out, struct ft_err *err)
{
    struct ft_err why;
    struct ft_json *v = NULL;
    while (c->words.n && c->words.data[c->words.n - 1] == '\n') c->words.data[--c->words.n] = '\0';
    const char *last = ft_buf_str(&c->words), *line = strrchr(last, '\n');
    if (late) return ft_fail(err, FT_TIMEOUT, "'%s' gave no answer in %lld s", program, (long long)(DEADLINE / FT_SEC));
    if (!c->answer.n || ft_json_parse(c->answer.data, c->answer.n, 0, &v, NULL, &why))
        return ft_fail(err, FT_DATA, "'%s' gave no answer: exit status %d%s%s", program, status, *last ? ": " : "",
                       line ? line + 1 : last);
    if (ft_json_int(ft_json_get(v, "schema"), 0) != 1) {
        ft_json_destroy(v);
        return ft_fail(err, FT_DATA, "the answer of '%s' has no schema 1: it is another build", program);
    }
    *out = v;
    return FT_OK;
}

enum ft_code ft_ask(char *const *argv, int64_t timeout_ns, struct ft_json **out, int *out_status, struct ft_err *err)
{
    struct child c = {.out = -1, .err = -1};
    if (start(argv, &c, err)) return FT_IO;
    int64_t deadline = ft_clock_now(ft_clock_real()) + timeout_ns;
    bool late = !listen_to(&c, deadline);
    if (late) kill(c.pid, SIGKILL);
    ft_close(&c.out);
    ft_close(&c.err);
    int status = reap(c.pid, deadline, &late);
    enum ft_code code = judge(argv[0], &c, status, late, out, err);
    if (!code) *out_status = status;
    ft_buf_fini(&c.answer);
    ft_buf_fini(&c.words);
    return code;
}

enum ft_code ft_ask_fttrain(const struct ft_question *q, struct ft_json **out, int *out_status, struct ft_err *err)
{
    const char **argv = ft_xcalloc(q->n_files + 2 * q->n_sets + 16, sizeof *argv);
    size_t n = 0;
    argv[n++] = q->fttrain;
    argv[n++] = q->word;
    argv[n++] = "--json";
    for (size_t i = 0; i < sizeof q->more / sizeof *q->more && q->more[i]; i++) argv[n++] = q->more[i];
    for (size_t i = 0; i < q->n_files; i++) argv[n++] = q->files[i];
    for (size_t i = 0; i < q->n_sets; i++) {
        /* [env] is the launcher's, and nothing of it may stand on a command line */
        if (ft_str_starts(q->sets[i], "env.") || ft_str_starts(q->sets[i], "env ")) continue;
        argv[n++] = "--set";
        argv[n++] = q->sets[i];
    }
    if (q->more_set) {
        argv[n++] = "--set";
        argv[n++] = q->more_set;
    }
    char *const *words;
    memcpy(&words, &argv, sizeof words); /* posix_spawn does not write to them */
    enum ft_code code = ft_ask(words, DEADLINE, out, out_status, err);
    free(argv);
    return code;
}

void ft_ask_take_faults(const struct ft_json *answer, struct ft_faults *faults)
{
    const struct ft_json *v = ft_json_get(answer, "faults");
    for (size_t i = 0; i < ft_json_count(v); i++) {
        const struct ft_json *f = ft_json_at(v, i);
        const char *severity = ft_json_str(ft_json_get(f, "severity")), *text = ft_json_str(ft_json_get(f, "text"));
        const char *fix = ft_json_str(ft_json_get(f, "fix"));
        enum ft_severity s = FT_SEV_ERROR;
        if (severity && !strcmp(severity, "warning")) s = FT_SEV_WARNING;
        if (severity && !strcmp(severity, "note")) s = FT_SEV_NOTE;
        struct ft_source at = {ft_json_str(ft_json_get(f, "file")), (int)ft_json_int(ft_json_get(f, "line"), 0),
                               (int)ft_json_int(ft_json_get(f, "column"), 0)};
        ft_faults_add(faults, s, at, ft_json_str(ft_json_get(f, "section")), ft_json_str(ft_json_get(f, "key")), "%s",
                      text ? text : "(no text)");
        if (fix) ft_fault_fix(faults, "%s", fix);
    }
}
