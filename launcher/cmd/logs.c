/* ftlaunch logs RUN: the output of its ranks, from their files. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "launcher/cmd/cmd.h"
#include "launcher/console.h"
#include "launcher/runs.h"

enum { OPT_RANK = 1, OPT_FOLLOW, PIECE = 1 << 16, POLL_MS = 200 };

struct reader {
    struct ft_cmd c;
    struct ft_rundir dir;
    int64_t rank; /* -1: all */
    bool follow, tty;
    int n_ranks;
    off_t *at;           /* read so far */
    struct ft_buf *line; /* incomplete last line, with prefixes only */
    bool failed;
};

static int count_ranks(const struct ft_rundir *dir)
{
    struct ft_buf path = {0};
    ft_buf_addf(&path, "%s/ranks", dir->path);
    DIR *d = opendir(path.data);
    int64_t n = 0, rank;
    for (struct dirent *e; d && (e = readdir(d));) {
        char name[64];
        snprintf(name, sizeof name, "%.60s", e->d_name);
        if (!ft_str_ends(name, ".log")) continue;
        name[strlen(name) - 4] = 0;
        if (ft_parse_i64(name, 0, 1 << 28, &rank) && rank + 1 > n) n = rank + 1;
    }
    if (d) closedir(d);
    ft_buf_fini(&path);
    return (int)n;
}

/* To a file or pipe: bytes as they are; a terminal obeys none of them but newline, tab and colours. */
static void write_out(const struct reader *r, const char *p, size_t n)
{
    if (!r->tty) {
        fwrite(p, 1, n, stdout);
        return;
    }
    struct ft_buf seen = {0};
    for (const char *end; n && (end = memchr(p, '\n', n)); n -= (size_t)(end + 1 - p), p = end + 1) {
        ft_console_add_visible(&seen, p, (size_t)(end - p));
        ft_buf_addc(&seen, '\n');
    }
    ft_console_add_visible(&seen, p, n);
    fwrite(ft_buf_str(&seen), 1, seen.n, stdout);
    ft_buf_fini(&seen);
}

static void put(struct reader *r, int rank, const char *p, size_t n)
{
    if (r->rank >= 0) { /* one rank: exactly what it wrote */
        write_out(r, p, n);
        return;
    }
    struct ft_buf *l = &r->line[rank];
    for (const char *end; n && (end = memchr(p, '\n', n)); n -= (size_t)(end + 1 - p), p = end + 1) {
        printf("[%d] ", rank);
        write_out(r, ft_buf_str(l), l->n);
        write_out(r, p, (size_t)(end + 1 - p));
        ft_buf_clear(l);
    }
    if (n) ft_buf_add(l, p, n);
}

/* What is new in the file of one rank; true when there was something. */
static bool read_more(struct reader *r, int rank)
{
    char path[600], piece[PIECE];
    snprintf(path, sizeof path, "%s/ranks/%04d.log", r->dir.path, rank);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool any = false;
    for (ssize_t n; (n = pread(fd, piece, sizeof piece, r->at[rank])) > 0; any = true) {
        put(r, rank, piece, (size_t)n);
        r->at[rank] += n;
    }
    close(fd);
    return any;
}

static bool read_all(struct reader *r)
{
    int n = count_ranks(&r->dir);
    if (n > r->n_ranks) {
        r->at = ft_xrealloc(r->at, (size_t)n, sizeof *r->at);
        r->line = ft_xrealloc(r->line, (size_t)n, sizeof *r->line);
        for (; r->n_ranks < n; r->n_ranks++) {
            r->at[r->n_ranks] = 0;
            r->line[r->n_ranks] = (struct ft_buf){0};
        }
    }
    bool any = false;
    for (int k = 0; k < n; k++)
        if (r->rank < 0 || r->rank == k) any = read_more(r, k) || any;
    return any;
}

static void show(struct reader *r)
{
    for (;;) {
        bool alive = r->follow && ft_run_is_alive(&r->dir); /* asked before reading: nothing written later is missed */
        bool any = read_all(r);
        if (fflush(stdout) || ferror(stdout)) return; /* the reader is gone */
        if (!alive) break;
        if (!any) poll(NULL, 0, POLL_MS);
    }
    for (int k = 0; k < r->n_ranks; k++) {
        if (r->line[k].n) {
            printf("[%d] ", k);
            write_out(r, r->line[k].data, r->line[k].n);
            putchar('\n');
        }
        ft_buf_fini(&r->line[k]);
    }
    if (r->rank >= r->n_ranks) {
        struct ft_err err;
        ft_fail(&err, FT_USAGE, "run '%s' has no output of rank %lld", r->dir.id, (long long)r->rank);
        ft_cmd_fail(&r->c, &err);
    }
    free(r->at);
    free(r->line);
}

static int run(const struct ft_command *self, int argc, char **argv)
{
    struct reader r = {.rank = -1, .tty = isatty(1) == 1};
    struct ft_err err = {.code = FT_OK};
    const char *value;
    ft_cmd_begin(&r.c, self, argc, argv);
    for (int id; (id = ft_cmd_next(&r.c, &value)) > 0;) {
        if (id == OPT_FOLLOW) r.follow = true;
        else if (!ft_parse_i64(value, 0, 1 << 28, &r.rank)) {
            ft_fail(&err, FT_USAGE, "--rank %s is not a rank", value);
            ft_cmd_fail(&r.c, &err);
        }
    }
    if (!r.c.done && r.c.n_words != 1) {
        ft_fail(&err, FT_USAGE, "logs: one run is wanted");
        ft_fix(&err, "ftlaunch ps lists them");
        ft_cmd_fail(&r.c, &err);
    }
    size_t n = r.c.n_words;
    r.c.n_words = 0;
    bool ok = !r.c.done && ft_cmd_read_job(&r.c);
    r.c.n_words = n;
    if (!ok) return ft_cmd_end(&r.c);
    if (ft_rundir_find(r.c.config->launch.run_dir, r.c.words[0], r.c.arena, &r.dir, &err)) ft_cmd_fail(&r.c, &err);
    else show(&r);
    return ft_cmd_end(&r.c);
}

static const struct ft_option options[] = {
    {"rank", 0, "R", "only this rank, byte for byte (a terminal is shown control bytes as \\xHH)", OPT_RANK},
    {"follow", 'f', NULL, "go on until the run is over", OPT_FOLLOW},
    FT_OPTION_SET,
    FT_OPTIONS_SHARED,
};
static const struct ft_command command = {
    .name = "logs",
    .usage = "RUN [--rank R] [-f]",
    .summary = "the output of a run's ranks",
    .text = "Without --rank the lines of all ranks, rank after rank, each behind [RANK].",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .main = run,
};
const struct ft_cmd_ops ft_cmd_logs = {&command, false};
