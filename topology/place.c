#include "topology/place.h"

#include <string.h>

#include "base/ini.h"
#include "base/str.h"
#include "topology/hostlist.h"

enum { MAX_WORLD = FT_MAX_NODES * FT_MAX_SLOTS };

const char *const ft_place_names[] = {"MASTER_ADDR", "MASTER_PORT", "RANK",        "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                      "NODE_RANK",   "GROUP_RANK",  "FT_RUN_ID",   "FT_RUN_DIR", "FT_RESTART", "FT_NODE",
                                      "FT_JOB",      "FT_TP_RANK",  "FT_TP_SIZE",  "FT_PP_RANK", "FT_PP_SIZE", "FT_DP_RANK",
                                      "FT_DP_SIZE",  "FT_TOKEN",    "FT_PROGRESS", NULL};

static const char *get(char *const *env, const char *name)
{
    size_t n = strlen(name);
    for (; *env; env++)
        if (!strncmp(*env, name, n) && (*env)[n] == '=') return *env + n + 1;
    return NULL;
}

/* What is being read and the first thing that was wrong with it. */
struct reading {
    char *const *env;
    struct ft_arena *arena;
    struct ft_err *err;
    enum ft_code code;
};

/* The whole number NAME in [min,max]; otherwise when it is not set. */
static int number(struct reading *r, const char *name, int min, int max, int otherwise)
{
    const char *text = get(r->env, name);
    int64_t x;
    if (!text || r->code) return otherwise;
    if (ft_parse_i64(text, min, max, &x)) return (int)x;
    r->code = ft_fail(r->err, FT_CONFIG, "%s=%s in the environment is not a whole number in %d..%d", name,
                      ft_quote(r->arena, text, strlen(text)), min, max);
    return otherwise;
}

/* A rank and a world size that come as a pair. false: neither is set, or code says what is wrong. */
static bool pair(struct reading *r, const char *rank, const char *size, int *out_rank, int *out_size)
{
    *out_rank = number(r, rank, 0, MAX_WORLD, -1);
    *out_size = number(r, size, 1, MAX_WORLD, 0);
    if (r->code || (*out_rank < 0 && !*out_size)) return false;
    if (*out_rank < 0 || !*out_size) {
        bool have_rank = *out_rank >= 0;
        r->code = ft_fail(r->err, FT_CONFIG, "%s is set in the environment, but %s is not", have_rank ? rank : size,
                          have_rank ? size : rank);
        ft_fix(r->err, "set both or neither");
        return false;
    }
    if (*out_rank < *out_size) return true;
    r->code = ft_fail(r->err, FT_CONFIG, "%s=%d in the environment is not below %s=%d", rank, *out_rank, size, *out_size);
    return false;
}

/* LOCAL_RANK and LOCAL_WORLD_SIZE; the rank alone is enough for a process that runs by itself. */
static void read_local(struct reading *r, const char *rank, const char *size, struct ft_place *p)
{
    p->local_rank = number(r, rank, 0, FT_MAX_SLOTS - 1, 0);
    p->local_world = number(r, size, 1, FT_MAX_SLOTS, 0);
    if (r->code) return;
    if (p->local_world && p->local_rank >= p->local_world)
        r->code = ft_fail(r->err, FT_CONFIG, "%s=%d in the environment is not below %s=%d", rank, p->local_rank, size,
                          p->local_world);
    else if (p->local_world > p->world || p->local_rank >= p->world)
        r->code = ft_fail(r->err, FT_CONFIG, "%s=%d of %s=%d on this node are more than the world of %d", rank, p->local_rank, size,
                          p->local_world, p->world);
    if (!p->local_world) p->local_world = p->local_rank + 1;
}

/* The node's number from a name, else from what follows of the sizes, else a number of its own for each rank. */
static void read_node(struct reading *r, const char *name, const char *name2, struct ft_place *p)
{
    p->node_rank = number(r, name, 0, MAX_WORLD - 1, -1); /* a rank's own number when a place without nodes is handed on */
    if (p->node_rank < 0 && name2) p->node_rank = number(r, name2, 0, MAX_WORLD - 1, -1);
    if (p->node_rank >= 0) return;
    bool all_here = p->local_world == p->world;
    p->node_rank = all_here ? 0 : p->rank;
    p->n_nodes = all_here ? 1 : 0;
}

static bool in_step(char *const *env) { return get(env, "SLURM_STEP_ID") && get(env, "SLURM_STEP_NUM_TASKS"); }

/* How many processes an mpirun, mpiexec or srun says that it started; 0: none did. */
static int started(struct reading *r, const char **by)
{
    if (get(r->env, "OMPI_COMM_WORLD_SIZE")) return (*by = "OMPI_COMM_WORLD_SIZE", number(r, *by, 1, MAX_WORLD, 0));
    if (get(r->env, "PMI_SIZE")) return (*by = "PMI_SIZE", number(r, *by, 1, MAX_WORLD, 0));
    if (in_step(r->env)) return (*by = "SLURM_STEP_NUM_TASKS", number(r, *by, 1, MAX_WORLD, 0));
    return 0;
}

static void from_names(struct reading *r, struct ft_place *p)
{
    p->dialect = get(r->env, "FT_RUN_ID") ? "ftlaunch" : get(r->env, "TORCHELASTIC_RUN_ID") ? "torchrun" : "bare";
    read_local(r, "LOCAL_RANK", "LOCAL_WORLD_SIZE", p);
    p->n_nodes = number(r, "GROUP_WORLD_SIZE", 1, FT_MAX_NODES, 0);
    read_node(r, "NODE_RANK", "GROUP_RANK", p);
    const char *by = NULL;
    int n = !strcmp(p->dialect, "ftlaunch") ? 0 : started(r, &by);
    if (r->code || n <= p->world) return;
    r->code = ft_fail(r->err, FT_CONFIG, "WORLD_SIZE=%d in the environment, but %s says that %d processes were started", p->world,
                      by, n);
    ft_fix(r->err, "unset RANK and WORLD_SIZE");
}

/* srun tells the first node; the port follows from job and step, outside the range that systems give out by themselves. */
static void slurm_master(struct reading *r, struct ft_place *p)
{
    const char *list = get(r->env, "SLURM_STEP_NODELIST");
    if (p->world == 1 || p->master_addr || r->code) return;
    if (!list) list = get(r->env, "SLURM_JOB_NODELIST");
    struct ft_names names;
    struct ft_range_fault why;
    if (!list) {
        r->code = ft_fail(r->err, FT_CONFIG, "neither MASTER_ADDR nor SLURM_STEP_NODELIST is set in this step of srun");
    } else if (!ft_hostlist_expand(list, strlen(list), FT_MAX_NODES, r->arena, &names, NULL, &why)) {
        r->code = ft_fail(r->err, FT_CONFIG, "SLURM_STEP_NODELIST=%s: %s", ft_quote(r->arena, list, strlen(list)), why.text);
    } else {
        p->master_addr = names.v[0];
        if (p->master_port) return;
        int64_t job = 0, step = 0;
        const char *text = get(r->env, "SLURM_JOB_ID");
        if (text) (void)ft_parse_i64(text, 0, INT64_MAX / 2, &job);
        text = get(r->env, "SLURM_STEP_ID");
        if (text) (void)ft_parse_i64(text, 0, 1 << 30, &step);
        p->master_port = (int)(20000 + (job % 9500 + step * 97 % 9500) % 9500);
    }
}

int ft_slurm_tasks_of(const char *text, int node)
{
    for (const char *p = text; *p;) {
        int64_t tasks = 0, times = 1;
        char digits[16];
        size_t n = strspn(p, "0123456789");
        if (!n || n >= sizeof digits) return -1;
        memcpy(digits, p, n);
        digits[n] = '\0';
        if (!ft_parse_i64(digits, 0, INT32_MAX, &tasks)) return -1;
        p += n;
        if (!strncmp(p, "(x", 2)) {
            n = strspn(p + 2, "0123456789");
            if (!n || n >= sizeof digits || p[2 + n] != ')') return -1;
            memcpy(digits, p + 2, n);
            digits[n] = '\0';
            if (!ft_parse_i64(digits, 1, INT32_MAX, &times)) return -1;
            p += n + 3;
        }
        if (node < times) return (int)tasks;
        node -= (int)times;
        if (*p == ',') p++;
        else if (*p) return -1;
    }
    return -1;
}

static void from_slurm(struct reading *r, struct ft_place *p)
{
    p->dialect = "slurm";
    const char *tasks = get(r->env, "SLURM_STEP_TASKS_PER_NODE");
    if (!tasks) tasks = get(r->env, "SLURM_TASKS_PER_NODE");
    p->n_nodes = number(r, get(r->env, "SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_JOB_NUM_NODES", 1, FT_MAX_NODES,
                        0);
    int node = number(r, "SLURM_NODEID", 0, FT_MAX_NODES - 1, -1);
    p->local_rank = number(r, "SLURM_LOCALID", 0, FT_MAX_SLOTS - 1, 0);
    if (r->code) return;
    p->local_world = tasks && node >= 0 ? ft_slurm_tasks_of(tasks, node) : p->local_rank + 1;
    if (p->local_rank >= p->local_world || p->local_world > p->world) {
        r->code = ft_fail(r->err, FT_CONFIG, "SLURM_LOCALID=%d does not fit SLURM_STEP_TASKS_PER_NODE=%s on node %d of %d tasks",
                          p->local_rank, tasks ? ft_quote(r->arena, tasks, strlen(tasks)) : "''", node, p->world);
        return;
    }
    p->node_rank = node >= 0 ? node : p->rank;
    slurm_master(r, p);
}

/* Which dialect tells rank and world; the rest of the place follows from it. */
static void read_who(struct reading *r, struct ft_place *p)
{
    bool mpi = get(r->env, "OMPI_COMM_WORLD_RANK") || get(r->env, "PMI_RANK") || in_step(r->env);
    bool both = get(r->env, "RANK") && get(r->env, "WORLD_SIZE");
    if ((both || !mpi) && pair(r, "RANK", "WORLD_SIZE", &p->rank, &p->world)) {
        from_names(r, p);
    } else if (r->code) {
        return;
    } else if (pair(r, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", &p->rank, &p->world)) {
        p->dialect = "openmpi"; /* OMPI_COMM_WORLD_NODE_RANK is a rank on the node, not the node's number */
        read_local(r, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", p);
        read_node(r, "NODE_RANK", NULL, p);
    } else if (r->code) {
        return;
    } else if (in_step(r->env) && !get(r->env, "MPI_LOCALRANKID")) {
        if (pair(r, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", &p->rank, &p->world)) from_slurm(r, p);
    } else if (pair(r, "PMI_RANK", "PMI_SIZE", &p->rank, &p->world)) {
        p->dialect = "pmi";
        read_local(r, "MPI_LOCALRANKID", "MPI_LOCALNRANKS", p);
        read_node(r, "NODE_RANK", NULL, p);
    } else if (!r->code) {
        *p = (struct ft_place){.world = 1,
                               .local_world = 1,
                               .n_nodes = 1,
                               .dialect = "single",
                               .master_addr = p->master_addr,
                               .master_port = p->master_port};
    }
}

static bool says(char *const *env, const char *name, int x)
{
    const char *text = get(env, name);
    int64_t y;
    return text && ft_parse_i64(text, 0, INT32_MAX, &y) && y == x;
}

/* ftlaunch and torchrun start the ranks themselves: what an mpirun around them left is not for these. Names that tell another
 * rank or size are not of this world either. */
static enum ft_pmi read_pmi(struct reading *r, const struct ft_place *p)
{
    static const struct {
        enum ft_pmi pmi;
        const char *rank, *size, *besides;
    } rows[] = {{FT_PMI_OPENMPI, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL},
                {FT_PMI_PMIX, "PMIX_RANK", NULL, "PMIX_NAMESPACE"},
                {FT_PMI_1, "PMI_RANK", "PMI_SIZE", NULL}};
    if (r->code || get(r->env, "FT_RUN_ID") || get(r->env, "TORCHELASTIC_RUN_ID")) return FT_PMI_NONE;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].besides && !get(r->env, rows[i].besides)) continue;
        if (says(r->env, rows[i].rank, p->rank) && (!rows[i].size || says(r->env, rows[i].size, p->world))) return rows[i].pmi;
    }
    return FT_PMI_NONE;
}

static void read_axis(struct reading *r, const char *rank, const char *size, int *out_rank, int *out_size)
{
    int a, n;
    if (r->code || !pair(r, rank, size, &a, &n)) return;
    *out_rank = a;
    *out_size = n;
}

static const char *copy(const struct reading *r, const char *name)
{
    const char *text = get(r->env, name);
    return text && *text ? ft_arena_strdup(r->arena, text) : NULL;
}

enum ft_code ft_place_from_env(char *const *env, struct ft_arena *arena, struct ft_place *out, struct ft_err *err)
{
    struct reading r = {env, arena, err, FT_OK};
    struct ft_place p = {.master_addr = copy(&r, "MASTER_ADDR"), .master_port = number(&r, "MASTER_PORT", 1, 65535, 0)};
    if (!r.code) read_who(&r, &p);
    p.pmi = read_pmi(&r, &p);
    p.run_id = copy(&r, "FT_RUN_ID");
    p.run_dir = copy(&r, "FT_RUN_DIR");
    p.job = copy(&r, "FT_JOB");
    p.token = copy(&r, "FT_TOKEN");
    p.node = copy(&r, "FT_NODE");
    p.restart = number(&r, "FT_RESTART", 0, INT32_MAX, 0);
    p.progress_fd = number(&r, "FT_PROGRESS", 0, INT32_MAX, -1);
    read_axis(&r, "FT_TP_RANK", "FT_TP_SIZE", &p.tp_rank, &p.tp_size);
    read_axis(&r, "FT_PP_RANK", "FT_PP_SIZE", &p.pp_rank, &p.pp_size);
    read_axis(&r, "FT_DP_RANK", "FT_DP_SIZE", &p.dp_rank, &p.dp_size);
    if (!r.code) *out = p;
    return r.code;
}

void ft_place_set_mesh(struct ft_place *p, struct ft_mesh m)
{
    struct ft_coord c = ft_mesh_coord(m, p->rank);
    p->tp_rank = c.c[FT_AXIS_TP];
    p->tp_size = m.size[FT_AXIS_TP];
    p->pp_rank = c.c[FT_AXIS_PP];
    p->pp_size = m.size[FT_AXIS_PP];
    p->dp_rank = c.c[FT_AXIS_DP];
    p->dp_size = m.size[FT_AXIS_DP];
}

struct ft_place_var *ft_place_to_env(const struct ft_place *p, struct ft_arena *arena, size_t *out_n)
{
    enum { N = sizeof ft_place_names / sizeof *ft_place_names - 1 };
    const struct {
        const char *text;
        int number;
        bool given; /* the number counts */
    } v[N] = {
        {p->master_addr, 0, false},
        {NULL, p->master_port, p->master_port != 0},
        {NULL, p->rank, true},
        {NULL, p->world, true},
        {NULL, p->local_rank, true},
        {NULL, p->local_world, true},
        {NULL, p->node_rank, true},
        {NULL, p->node_rank, true},
        {p->run_id, 0, false},
        {p->run_dir, 0, false},
        {NULL, p->restart, true},
        {p->node, 0, false},
        {p->job, 0, false},
        {NULL, p->tp_rank, p->tp_size != 0},
        {NULL, p->tp_size, p->tp_size != 0},
        {NULL, p->pp_rank, p->pp_size != 0},
        {NULL, p->pp_size, p->pp_size != 0},
        {NULL, p->dp_rank, p->dp_size != 0},
        {NULL, p->dp_size, p->dp_size != 0},
        {p->token, 0, false},
        {NULL, p->progress_fd, p->progress_fd >= 0},
    };
    struct ft_place_var *out = ft_arena_array(arena, N, sizeof *out);
    size_t n = 0;
    for (size_t i = 0; i < N; i++) {
        if (!v[i].text && !v[i].given) continue;
        out[n].name = ft_place_names[i];
        out[n++].value = v[i].text ? v[i].text : ft_arena_printf(arena, "%d", v[i].number);
    }
    *out_n = n;
    return out;
}
