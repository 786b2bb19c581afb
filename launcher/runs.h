/* Runs as their folders tell: what `ps`, `logs`, `stop`, `report` and `run --continue` know about them. A run lives while its
 * head holds the lock on events.jsonl; one that neither lives nor has a run_end has died. */
#ifndef FT_LAUNCHER_RUNS_H
#define FT_LAUNCHER_RUNS_H

#include "base/json.h"
#include "launcher/rundir.h"

struct ft_run_info {
    struct ft_rundir dir;
    bool alive, ended;        /* neither: died */
    const char *state;        /* running …, "done", "failed", "died" */
    const char *host, *cause; /* cause: sentence of run_end; NULL */
    int status, ranks, nodes, last_attempt;
    int64_t step; /* of the slowest rank, from the head while it lives; else the last that metrics or events know; -1 */
    double seconds;
    const char *started; /* ISO time */
};
/* Reads a run. Missing or damaged pieces leave their fields at "unknown" (-1, NULL, ""). */
void ft_run_info_read(const struct ft_rundir *dir, struct ft_arena *arena, struct ft_run_info *out);
/* Names of all runs in a folder, oldest first. */
size_t ft_runs_list(const char *parent, struct ft_arena *arena, const char ***names);
/* The newest run of that NAME in parent that is not `but`, or NULL. */
const char *ft_runs_before(const char *parent, const char *name, const char *but, struct ft_arena *arena);
bool ft_run_is_alive(const struct ft_rundir *dir);

/* Lines of a JSON-lines file, one after another; damaged ones are skipped. */
struct ft_jsonl {
    struct ft_buf text;
    size_t at;
};
bool ft_jsonl_open(struct ft_jsonl *l, const char *path);
struct ft_json *ft_jsonl_next(struct ft_jsonl *l); /* NULL at the end; the caller destroys it */
void ft_jsonl_close(struct ft_jsonl *l);

#endif
