/* The plan: what runs where with which environment. Pure: made from the resolved job, no clock, no network, no process.
 * Immutable; printable (text and JSON), diffable, golden-tested. Lives in the arena it was made in.
 *
 * Nodes: those of [nodes] or the host list in their order; in a Slurm allocation those of the allocation; transport local without
 * nodes: one. Minus exclude (or all but include), minus spares (tag `spare`, then the last spare_nodes). Ranks fill them in
 * blocks (topology/placement.h). Nodes that get no rank are not started; they are listed as unused.
 * ft_plan_write_job() writes the job file of the run; planning from that file gives the same JSON, byte for byte. */
#ifndef FT_LAUNCHER_PLAN_H
#define FT_LAUNCHER_PLAN_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/fault.h"
#include "base/json.h"
#include "launcher/config.h"
#include "topology/mesh.h"

struct ft_plan_node {
    const char *name; /* as in [nodes] */
    const char *host; /* address to connect to (name when not given) */
    int port;         /* 0: default */
    const char *user; /* NULL: default */
    int slots;
    int index; /* among used nodes; -1: spare */
    int first_rank, n_ranks;
    struct ft_source at;
    const char *from;                /* where it was named: "job.ini:4:1" */
    const struct ft_node_conf *conf; /* all attributes as given; NULL: transport local without [nodes] */
};

struct ft_plan_rank {
    int rank, node, local; /* global rank, node index, LOCAL_RANK */
    struct ft_coord coord; /* tp, pp, dp */
};

struct ft_plan {
    const char *name;      /* [cluster] name or the job file's base name */
    const char *transport; /* "local" … */
    struct ft_mesh mesh;
    int world;
    struct ft_plan_node *nodes; /* used nodes in rank order */
    size_t n_nodes;
    struct ft_plan_node *spares;
    size_t n_spares;
    struct ft_plan_node *unused; /* nodes without a rank */
    size_t n_unused;
    struct ft_plan_rank *ranks; /* (world) */
    char **argv;                /* program and arguments, NULL terminated; argv[0] NULL when fttrain is to be started */
    size_t n_argv;
    bool is_fttrain;
    struct ft_env *env; /* [env], in order; [env RANGE] is in config */
    size_t n_env;
    bool world_given;                        /* -n */
    const struct ft_launcher_config *config; /* resolved launcher sections */
};

struct ft_plan_request {
    const struct ft_launcher_config *config;
    int n_ranks;    /* -n; 0: not given */
    char **program; /* behind "--"; NULL: fttrain */
    int n_program;
    const char *fttrain;     /* path of fttrain that would be started */
    const char *job_name;    /* base name of the last job file without .ini; NULL: none */
    char *const *environ_;   /* the head's, for a Slurm allocation; NULL: none */
    const char *const *only; /* these nodes, in this order, and no spares: what is left of a run; NULL: all */
    size_t n_only;
    const struct ft_names *late; /* nodes that failed lately: used last; NULL: none */
    size_t stack_bytes;          /* limit of the stack, for the size of [env]; 0: 8 MiB */
};

/* All faults go to faults. Returns NULL when there is any error. */
const struct ft_plan *ft_plan_make(const struct ft_plan_request *q, struct ft_arena *arena, struct ft_faults *faults);

/* The facts of one attempt that the environment of a rank needs. */
struct ft_run_facts {
    const char *run_id, *run_dir, *job_file; /* FT_RUN_ID FT_RUN_DIR FT_JOB */
    const char *master_addr;
    int master_port;
    int restart;       /* FT_RESTART */
    const char *token; /* FT_TOKEN, hex */
};
/* Variables set by us for this rank (interface: "The environment of a rank"), in a fixed order, without [env]. */
struct ft_env *ft_plan_rank_env(const struct ft_plan *p, int rank, const struct ft_run_facts *f, struct ft_arena *arena, size_t *n);

/* [env] and the [env RANGE] of a node merged, in order: what wins over all. */
struct ft_env *ft_plan_node_env(const struct ft_plan *p, const struct ft_plan_node *node, struct ft_arena *arena, size_t *n);

void ft_plan_print(const struct ft_plan *p, struct ft_buf *out); /* the table for people */
/* What each rank will get (plan --env); differences between ranks once, secrets masked. */
void ft_plan_print_env(const struct ft_plan *p, struct ft_buf *out);
/* The members of plan.json in an object that the caller has begun (and ends); secrets masked. */
void ft_plan_write_members(const struct ft_plan *p, struct ft_jw *w);
/* plan.json: one object and a newline. */
void ft_plan_write_json(const struct ft_plan *p, struct ft_buf *out);

/* The resolved job as one INI file (job.ini of the run folder): every value in force with the defaults included, [nodes] (equal ones
 * together as a range), [env] with secrets as ${NAME} when they came from one, fttrain's entries as merged. resolved: "resolved" of the facts of
 * `fttrain check --json` (adds its defaults); NULL: none. workdir: absolute, used when the
 * job names none; NULL: leave it out. Reading the file again plans the same. */
void ft_plan_write_job(const struct ft_plan *p, const char *workdir, const struct ft_json *resolved, struct ft_buf *out);

#endif
