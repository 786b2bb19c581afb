#include "launcher/plan.h"

#include <string.h>

#include "launcher/plan_nodes.h"
#include "topology/place.h"
#include "topology/placement.h"

static const char *const transports[] = {"local", "ssh", "mpi", "slurm"};

/* A name for run folders: what a file's name holds, the rest as '_'. */
static const char *clean_name(const char *text, struct ft_arena *arena)
{
    char *name = ft_arena_strndup(arena, text, strnlen(text, 64));
    for (char *c = name; *c; c++) {
        bool fine = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '_' ||
                    ((*c == '.' || *c == '-') && c > name);
        if (!fine) *c = '_';
    }
    return *name ? name : "job";
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static const char *job_name(const struct ft_plan_request *q, struct ft_arena *arena)
{
    if (q->config->cluster.name) return q->config->cluster.name;
    if (q->job_name) return clean_name(q->job_name, arena);
    return clean_name(q->program ? base_name(q->program[0]) : "fttrain", arena);
}

/* The placement's error belongs to the key that asks for too much. */
static void place_fault(const struct ft_plan_request *q, const struct ft_err *err, struct ft_faults *faults)
{
    static const char *const keys[] = {"data", "tensor", "pipeline", "order"};
    struct ft_source at = {0};
    const char *key = NULL;
    bool order = !strncmp(err->text, "tp group", 8), wide = !strncmp(err->text, "tensor =", 8);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct ft_source here = ft_config_at(q->config, "parallel", keys[i]);
        if (!here.file || (order && i < 3) || (wide && i != 1) || (!order && i == 3)) continue;
        at = here;
        key = keys[i];
        break;
    }
    ft_faults_add(faults, FT_SEV_ERROR, at, key ? "parallel" : NULL, key, "%s", err->text);
    if (err->fix[0]) ft_fault_fix(faults, "%s", err->fix);
}

/* Puts ranks onto the used nodes; nodes without one move to unused. */
static bool place(const struct ft_plan_request *q, const struct ft_node_choice *nodes, struct ft_arena *arena,
                  struct ft_faults *faults, struct ft_plan *p)
{
    const struct ft_parallel_fields *par = &q->config->parallel;
    const char **names = ft_arena_array(arena, nodes->n_used, sizeof *names);
    int *slots = ft_arena_array(arena, nodes->n_used, sizeof *slots);
    for (size_t i = 0; i < nodes->n_used; i++) {
        names[i] = nodes->used[i].name;
        slots[i] = nodes->used[i].slots;
    }
    struct ft_placement_request r = {.names = names,
                                     .slots = slots,
                                     .n_nodes = nodes->n_used,
                                     .tensor = par->tensor,
                                     .pipeline = par->pipeline,
                                     .data = par->data,
                                     .world = q->n_ranks,
                                     .order = ft_mesh_make(1, 1, 1, 1)};
    struct ft_placement placed;
    struct ft_err err = {0};
    if (ft_mesh_parse_order(par->order, &r.order, &err) || ft_placement_make(&r, arena, &placed, &err)) {
        place_fault(q, &err, faults);
        return false;
    }
    p->mesh = placed.mesh;
    p->world = placed.world;
    p->nodes = ft_arena_array(arena, nodes->n_used, sizeof *p->nodes);
    p->unused = ft_arena_array(arena, nodes->n_used, sizeof *p->unused);
    p->ranks = ft_arena_array(arena, (size_t)placed.world, sizeof *p->ranks);
    for (size_t i = 0; i < nodes->n_used; i++) {
        struct ft_plan_node node = nodes->used[i];
        if (!placed.count[i]) {
            p->unused[p->n_unused++] = node;
            continue;
        }
        node.index = (int)p->n_nodes;
        node.first_rank = placed.first[i];
        node.n_ranks = placed.count[i];
        for (int k = 0; k < node.n_ranks; k++) {
            int rank = node.first_rank + k;
            p->ranks[rank] = (struct ft_plan_rank){rank, node.index, k, ft_mesh_coord(p->mesh, rank)};
        }
        p->nodes[p->n_nodes++] = node;
    }
    return true;
}

/* argv and [env] must fit into a quarter of the stack (execve). */
static bool check_size(const struct ft_plan_request *q, const struct ft_plan *p, struct ft_faults *faults)
{
    size_t limit = (q->stack_bytes ? q->stack_bytes : 8u << 20) / 4, total = 0, most = 0;
    const struct ft_env *largest = NULL;
    for (size_t i = 0; i < p->n_argv; i++) total += strlen(p->argv[i]) + 1 + sizeof(char *);
    for (size_t i = 0; i < p->n_env; i++) {
        size_t n = strlen(p->env[i].name) + 1 + strlen(p->env[i].value) + 1 + sizeof(char *);
        total += n;
        if (n <= most) continue;
        most = n;
        largest = &p->env[i];
    }
    if (total <= limit) return true;
    ft_faults_add(faults, FT_SEV_ERROR, largest ? largest->at : (struct ft_source){0}, largest ? "env" : NULL, NULL,
                  "[env] and the command line have %zu bytes together; %zu fit (a quarter of the stack limit)", total, limit);
    ft_fault_fix(faults, "put long texts into a file and pass its path, or raise the stack limit (ulimit -s)");
    return false;
}

const struct ft_plan *ft_plan_make(const struct ft_plan_request *q, struct ft_arena *arena, struct ft_faults *faults)
{
    struct ft_plan *p = ft_arena_alloc(arena, sizeof *p);
    struct ft_node_choice nodes;
    p->config = q->config;
    p->name = job_name(q, arena);
    p->transport = transports[q->config->cluster.transport];
    p->is_fttrain = !q->program;
    p->world_given = q->n_ranks > 0;
    p->n_argv = q->program ? (size_t)q->n_program : q->fttrain ? 1 : 0;
    p->argv = ft_arena_array(arena, p->n_argv + 1, sizeof *p->argv);
    for (size_t i = 0; i < p->n_argv; i++) p->argv[i] = ft_arena_strdup(arena, q->program ? q->program[i] : q->fttrain);
    p->env = q->config->env.v;
    p->n_env = q->config->env.n;
    bool ok = check_size(q, p, faults);
    if (!ft_plan_choose_nodes(q, arena, faults, &nodes) || !place(q, &nodes, arena, faults, p) || !ok) return NULL;
    if (q->config->launch.stdin_rank >= p->world) {
        ft_faults_add(faults, FT_SEV_ERROR, ft_config_at(q->config, "launch", "stdin"), "launch", "stdin",
                      "stdin = %lld, but the ranks are 0 to %d", (long long)q->config->launch.stdin_rank, p->world - 1);
        return NULL;
    }
    p->spares = nodes.spares;
    p->n_spares = nodes.n_spares;
    return p;
}

struct ft_env *ft_plan_rank_env(const struct ft_plan *p, int rank, const struct ft_run_facts *f, struct ft_arena *arena, size_t *n)
{
    const struct ft_plan_rank *r = &p->ranks[rank];
    const struct ft_plan_node *node = &p->nodes[r->node];
    struct ft_place place = {.rank = rank,
                             .world = p->world,
                             .local_rank = r->local,
                             .local_world = node->n_ranks,
                             .node_rank = r->node,
                             .n_nodes = (int)p->n_nodes,
                             .master_addr = f->master_addr,
                             .master_port = f->master_port,
                             .run_id = f->run_id,
                             .run_dir = f->run_dir,
                             .job = f->job_file,
                             .token = f->token,
                             .node = node->name,
                             .restart = f->restart,
                             .progress_fd = -1};
    ft_place_set_mesh(&place, p->mesh);
    struct ft_place_var *v = ft_place_to_env(&place, arena, n);
    struct ft_env *env = ft_arena_array(arena, *n + 1, sizeof *env);
    for (size_t i = 0; i < *n; i++)
        env[i] = (struct ft_env){.name = v[i].name, .value = v[i].value, .secret = !strcmp(v[i].name, "FT_TOKEN")};
    return env;
}

struct ft_env *ft_plan_node_env(const struct ft_plan *p, const struct ft_plan_node *node, struct ft_arena *arena, size_t *n)
{
    const struct ft_launcher_config *c = p->config;
    size_t most = p->n_env;
    for (size_t r = 0; r < c->n_env_ranges; r++) most += c->env_ranges[r].env.n;
    struct ft_env *env = ft_arena_array(arena, most + 1, sizeof *env);
    *n = p->n_env;
    if (p->n_env) memcpy(env, p->env, p->n_env * sizeof *env);
    for (size_t r = 0; r < c->n_env_ranges; r++) {
        const struct ft_env_range *range = &c->env_ranges[r];
        if (ft_name_index_find(&range->index, node->name) < 0) continue;
        for (size_t i = 0; i < range->env.n; i++) {
            size_t k = 0;
            while (k < *n && strcmp(env[k].name, range->env.v[i].name) != 0) k++;
            env[k] = range->env.v[i];
            if (k == *n) ++*n;
        }
    }
    return env;
}
