/* The launcher's sections, read, merged and checked: [cluster] [nodes] [ssh] [mpi] [slurm] [env] [env RANGE] [launch] and the
 * shared [parallel]. Sections of fttrain are not looked at (only their names are known, topology/sections.h).
 *
 *   1. read all files and --set into a struct ft_ini
 *   2. ft_config_read(ini, env, arena, faults): every fault of every section in one run; NULL when there is any error
 *   3. the value is immutable and lives in the arena
 *
 * Each value keeps the place it came from. Nothing is contacted; the only files read are the ones named by hostfile. */
#ifndef FT_LAUNCHER_CONFIG_H
#define FT_LAUNCHER_CONFIG_H

#include "base/field.h"
#include "topology/hostlist.h"
#include "topology/parallel_fields.h"

enum ft_transport_choice { FT_TRANSPORT_LOCAL, FT_TRANSPORT_SSH, FT_TRANSPORT_MPI, FT_TRANSPORT_SLURM };
enum ft_output { FT_OUTPUT_PREFIX, FT_OUTPUT_FILES, FT_OUTPUT_BOTH, FT_OUTPUT_QUIET };
enum ft_bind { FT_BIND_AUTO, FT_BIND_NONE, FT_BIND_CORE, FT_BIND_NUMA, FT_BIND_GPU };
enum ft_host_keys { FT_HOST_KEYS_STRICT, FT_HOST_KEYS_ACCEPT_NEW, FT_HOST_KEYS_OFF };
enum ft_slow_output { FT_SLOW_WAIT, FT_SLOW_DROP };
enum ft_children { FT_CHILDREN_END, FT_CHILDREN_KEEP };
enum ft_end { FT_END_ALL, FT_END_RANK0 };
enum ft_wireup { FT_WIREUP_NO, FT_WIREUP_PMI2, FT_WIREUP_PMIX };
enum { FT_STDIN_NONE = -1, FT_STDIN_ALL = -2 }; /* else a rank */

struct ft_cluster_fields {
    const char *name;              /* NULL: the job file's name */
    int transport;                 /* enum ft_transport_choice */
    const char *master_addr;       /* "auto" or a name or address */
    int64_t master_port;           /* 0: auto */
    const char *interface;         /* "auto", a name or a CIDR */
    const char *hostfile;          /* NULL: none; "-": standard input */
    int64_t slots;                 /* 0: not given */
    const char *include, *exclude; /* sets of nodes; NULL: all, none */
};
struct ft_ssh_fields {
    const char *user; /* NULL: this user */
    int64_t port;     /* 0: not given (22, or ssh_config's) */
    struct ft_list identity;
    const char *config, *known_hosts; /* NULL: the user's, then the system's */
    int host_keys;                    /* enum ft_host_keys */
    const char *jump;                 /* NULL or "none": none */
    int64_t timeout;                  /* ns, for all nodes together */
    int64_t parallel;
    const char *agent; /* "auto" or a path */
    int64_t keep;      /* ns */
};
struct ft_mpi_fields {
    const char *mpirun, *args;
    int wireup; /* enum ft_wireup */
};
struct ft_slurm_fields {
    const char *partition, *account, *qos, *time;
    int64_t nodes, gpus_per_node, cpus_per_task; /* 0: not given */
    const char *mem, *constraint, *exclude, *array, *dependency;
    bool requeue;
    const char *signal, *container;
    struct ft_list modules;
    const char *setup;
    struct ft_list extra;
};
struct ft_launch_fields {
    const char *workdir; /* NULL: the head's current directory */
    const char *run_dir;
    int output;                             /* enum ft_output */
    int64_t grace, heartbeat, hang_timeout; /* ns; hang_timeout 0: off */
    int64_t restarts, restart_window;       /* restart_window ns; 0: the whole run */
    int64_t spare_nodes;
    int64_t min_nodes; /* 0: all */
    int bind;          /* enum ft_bind */
    bool stage;
    struct ft_list forward; /* names, "LC_*" patterns */
    int64_t stdin_rank;     /* FT_STDIN_NONE, FT_STDIN_ALL or a rank */
    const char *show;       /* "all" or ranks */
    bool gather;
    int slow_output, children, end; /* enums above */
    int64_t deadline;               /* ns; 0: none */
    int64_t cooldown;               /* ns; 0: faults of nodes are not remembered */
    struct ft_list secrets;         /* names masked besides the rule */
};
extern const struct ft_section ft_cluster_section, ft_ssh_section, ft_mpi_section, ft_slurm_section, ft_launch_section;
/* All sections that are tables of fields, in the order of the page: cluster ssh mpi slurm launch parallel. NULL at the end. */
extern const struct ft_section *const ft_launcher_sections[];

/* One node of [nodes] or of a host list, after merging. */
struct ft_node_conf {
    const char *name, *host, *user, *identity, *jump; /* NULL: not given */
    int slots, port;                                  /* 0: not given */
    struct ft_list tags;
    struct ft_source at; /* where it was first named */
    const char *from;    /* the same as text, kept over resolving: "job.ini:4:1" (attribute from= of a resolved job) */
};

struct ft_env {
    const char *name, *value; /* value: bytes without NUL */
    bool secret;              /* masked wherever it is shown */
    const char *raw;          /* as written in the file, before ${NAME} was replaced */
    struct ft_source at;
};
struct ft_env_list {
    struct ft_env *v;
    size_t n;
};
/* [env RANGE]: for the ranks on these nodes, over [env]. */
struct ft_env_range {
    const char *range;
    struct ft_names nodes;
    struct ft_name_index index; /* of nodes */
    struct ft_env_list env;
    struct ft_source at;
};

struct ft_launcher_config {
    const struct ft_ini *ini;
    struct ft_cluster_fields cluster;
    struct ft_ssh_fields ssh;
    struct ft_mpi_fields mpi;
    struct ft_slurm_fields slurm;
    struct ft_launch_fields launch;
    struct ft_parallel_fields parallel;
    struct ft_value *values[6]; /* provenance, parallel to ft_launcher_sections and its fields */
    struct ft_node_conf *nodes;
    size_t n_nodes;
    struct ft_env_list env;
    struct ft_env_range *env_ranges;
    size_t n_env_ranges;
};

/* Without any file all values are the defaults ("ftlaunch run -n 4 -- ./prog").
 * environ_: "NAME=VALUE" strings that ${NAME} is taken from, NULL terminated. */
const struct ft_launcher_config *ft_config_read(const struct ft_ini *ini, char *const *environ_, struct ft_arena *arena,
                                                struct ft_faults *faults);

/* Place of the value of a key for messages: file NULL when it is a default. */
struct ft_source ft_config_at(const struct ft_launcher_config *c, const char *section, const char *key);
/* Names containing TOKEN KEY SECRET PASS CRED, and those of [launch] secrets. */
bool ft_config_is_secret(const struct ft_launcher_config *c, const char *name);
/* SECTION.KEY=VALUE of a --set as it may be shown: "***" for the value of a secret variable; else set itself. */
const char *ft_config_mask_set(const struct ft_launcher_config *c, const char *set, struct ft_arena *arena);

/* Text of a place for people: "job.ini:4:1", "--set", "default". */
const char *ft_source_text(struct ft_source at, struct ft_arena *arena);

#endif
