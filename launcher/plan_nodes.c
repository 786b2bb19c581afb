#include "launcher/plan_nodes.h"

#include <string.h>

#include "topology/place.h"

struct choosing {
    const struct ft_plan_request *q;
    const struct ft_launcher_config *c;
    struct ft_arena *arena;
    struct ft_faults *faults;
    struct ft_plan_node *v; /* all nodes in order */
    size_t n;
};

static bool bad(struct choosing *x, const char *section, const char *key, struct ft_source at, const char *fix, const char *text)
{
    ft_faults_add(x->faults, FT_SEV_ERROR, at, section, key, "%s", text);
    if (fix) ft_fault_fix(x->faults, "%s", fix);
    return false;
}

static bool bad_key(struct choosing *x, const char *section, const char *key, const char *fix, const char *text)
{
    return bad(x, section, key, ft_config_at(x->c, section, key), fix, text);
}

static const char *get(const struct choosing *x, const char *name)
{
    size_t n = strlen(name);
    for (char *const *e = x->q->environ_; e && *e; e++)
        if (!strncmp(*e, name, n) && (*e)[n] == '=') return *e + n + 1;
    return NULL;
}

static void fill(struct choosing *x, struct ft_plan_node *node, const char *name, const struct ft_node_conf *conf, int slots)
{
    static const struct ft_node_conf none = {0};
    const struct ft_node_conf *a = conf ? conf : &none;
    *node = (struct ft_plan_node){.name = name,
                                  .host = a->host ? a->host : name,
                                  .port = a->port ? a->port : (int)x->c->ssh.port,
                                  .user = a->user ? a->user : x->c->ssh.user,
                                  .slots = a->slots ? a->slots : slots,
                                  .index = -1,
                                  .at = a->at,
                                  .from = a->from,
                                  .conf = conf};
}

/* transport local without nodes: this machine. */
static bool one_node(struct choosing *x)
{
    if (x->q->n_ranks > FT_MAX_SLOTS)
        return bad(
            x, "nodes", NULL, (struct ft_source){0}, NULL,
            ft_arena_printf(x->arena, "%d ranks on this machine are too many: a node has 1..%d", x->q->n_ranks, FT_MAX_SLOTS));
    x->v = ft_arena_array(x->arena, 1, sizeof *x->v);
    x->n = 1;
    fill(x, &x->v[0], "localhost", NULL, x->q->n_ranks ? x->q->n_ranks : x->c->cluster.slots ? (int)x->c->cluster.slots : 1);
    x->v[0].from = "default";
    return true;
}

static void configured(struct choosing *x)
{
    x->v = ft_arena_array(x->arena, x->c->n_nodes, sizeof *x->v);
    x->n = x->c->n_nodes;
    for (size_t i = 0; i < x->n; i++)
        fill(x, &x->v[i], x->c->nodes[i].name, &x->c->nodes[i], x->c->cluster.slots ? (int)x->c->cluster.slots : 1);
}

/* Inside an allocation (SLURM_JOB_ID): its nodes. Slots: gpus_per_node, else tasks per node, else 1. */
static bool allocated(struct choosing *x)
{
    const char *list = get(x, "SLURM_JOB_NODELIST"), *tasks = get(x, "SLURM_TASKS_PER_NODE");
    struct ft_names names;
    struct ft_range_fault f;
    if (!list)
        return bad_key(x, "cluster", "transport", NULL,
                       "SLURM_JOB_ID is set, but SLURM_JOB_NODELIST is not: no allocation of Slurm");
    if (!ft_hostlist_expand(list, strlen(list), FT_MAX_NODES, x->arena, &names, NULL, &f))
        return bad_key(x, "cluster", "transport", NULL,
                       ft_arena_printf(x->arena, "SLURM_JOB_NODELIST=%s: %s", ft_quote(x->arena, list, strlen(list)), f.text));
    struct ft_name_index index = ft_name_index_make(x->arena);
    for (size_t i = 0; i < x->c->n_nodes; i++) ft_name_index_add(&index, x->c->nodes[i].name);
    x->v = ft_arena_array(x->arena, names.n, sizeof *x->v);
    x->n = names.n;
    for (size_t i = 0; i < names.n; i++) {
        long k = ft_name_index_find(&index, names.v[i]);
        int per_node = tasks ? ft_slurm_tasks_of(tasks, (int)i) : -1;
        int slots = x->c->slurm.gpus_per_node                  ? (int)x->c->slurm.gpus_per_node
                    : per_node > 0 && per_node <= FT_MAX_SLOTS ? per_node
                                                               : 1;
        fill(x, &x->v[i], names.v[i], k < 0 ? NULL : &x->c->nodes[k], slots);
        if (!x->v[i].from) x->v[i].from = "SLURM_JOB_NODELIST";
    }
    return true;
}

/* Outside an allocation the names are not known yet; the shape is. */
static bool asked_of_slurm(struct choosing *x)
{
    if (!x->c->slurm.nodes)
        return bad_key(x, "slurm", "nodes", "set [slurm] nodes and gpus_per_node, or name the nodes in [nodes]",
                       "no node: there is no allocation of Slurm here (SLURM_JOB_ID is not set) and [slurm] nodes is not given");
    x->n = (size_t)x->c->slurm.nodes;
    x->v = ft_arena_array(x->arena, x->n, sizeof *x->v);
    for (size_t i = 0; i < x->n; i++) {
        fill(x, &x->v[i], ft_arena_printf(x->arena, "slurm-%zu", i), NULL,
             x->c->slurm.gpus_per_node ? (int)x->c->slurm.gpus_per_node : 1);
        x->v[i].from = "[slurm] nodes";
    }
    return true;
}

static bool no_node(struct choosing *x)
{
    struct ft_source at = {0};
    const struct ft_ini *ini = x->c->ini;
    if (ini->n_files) at = (struct ft_source){ini->files[ini->n_files - 1], 1, 1};
    for (size_t i = 0; i < ini->n_headers; i++)
        if (!strcmp(ini->headers[i].section, "nodes")) at = ini->headers[i].bracket;
    return bad(x, "nodes", NULL, at, "name nodes in [nodes], like gpu[01-04] = slots=8, or set transport = local",
               "no node is named");
}

static bool find_nodes(struct choosing *x)
{
    bool named = x->c->n_nodes > 0;
    switch ((enum ft_transport_choice)x->c->cluster.transport) {
    case FT_TRANSPORT_LOCAL:
        if (!named) return one_node(x);
        configured(x);
        return true;
    case FT_TRANSPORT_SLURM:
        if (get(x, "SLURM_JOB_ID")) return allocated(x);
        if (!named) return asked_of_slurm(x);
        configured(x);
        return true;
    case FT_TRANSPORT_SSH:
    case FT_TRANSPORT_MPI:
        if (!named) return no_node(x);
        configured(x);
        return true;
    }
    return false;
}

/* Marks the nodes of a set; false: the set is wrong or names a node that is none. */
static bool mark(struct choosing *x, const struct ft_name_index *index, const char *key, const char *set, bool *marks)
{
    struct ft_names names;
    size_t *offsets;
    struct ft_range_fault f;
    struct ft_source at = ft_config_at(x->c, "cluster", key);
    if (!set) return true;
    if (!ft_hostlist_expand(set, strlen(set), FT_MAX_NODES, x->arena, &names, &offsets, &f)) {
        if (at.column) at.column += (int)f.offset;
        return bad(x, "cluster", key, at, f.fix, ft_arena_printf(x->arena, "%s: %s", key, f.text));
    }
    for (size_t i = 0; i < names.n; i++) {
        long k = ft_name_index_find(index, names.v[i]);
        struct ft_source here = at;
        if (here.column) here.column += (int)offsets[i];
        if (k < 0)
            return bad(x, "cluster", key, here, NULL,
                       ft_arena_printf(x->arena, "%s: %s is no node of this job", key,
                                       ft_quote(x->arena, names.v[i], strlen(names.v[i]))));
        marks[k] = true;
    }
    return true;
}

static bool has_tag(const struct ft_plan_node *node, const char *tag)
{
    for (size_t i = 0; node->conf && i < node->conf->tags.n; i++)
        if (!strcmp(node->conf->tags.v[i], tag)) return true;
    return false;
}

static bool is_late(const struct choosing *x, const struct ft_plan_node *node)
{
    for (size_t i = 0; i < x->q->late->n; i++)
        if (ft_str_case_eq(x->q->late->v[i], node->name)) return true;
    return false;
}

/* Every name of [env RANGE] is a node. */
static bool check_ranges(struct choosing *x, const struct ft_name_index *index)
{
    bool ok = true;
    for (size_t r = 0; r < x->c->n_env_ranges; r++) {
        const struct ft_env_range *range = &x->c->env_ranges[r];
        for (size_t i = 0; i < range->nodes.n; i++) {
            if (ft_name_index_find(index, range->nodes.v[i]) >= 0) continue;
            ok = bad(x, "env", NULL, range->at, NULL,
                     ft_arena_printf(x->arena, "[env %s]: %s is no node of this job", range->range,
                                     ft_quote(x->arena, range->nodes.v[i], strlen(range->nodes.v[i]))));
            break;
        }
    }
    return ok;
}

/* What is left of a run: nodes of the job, in the order given. */
static bool exactly(struct choosing *x, const struct ft_name_index *index, struct ft_node_choice *out)
{
    out->n_used = out->n_spares = 0;
    for (size_t i = 0; i < x->q->n_only; i++) {
        const long k = ft_name_index_find(index, x->q->only[i]);
        if (k >= 0) out->used[out->n_used++] = x->v[k];
    }
    return out->n_used > 0;
}

/* Nodes that failed lately change places with spares that did not and can hold as many ranks. */
static void use_late_last(const struct choosing *x, struct ft_node_choice *out)
{
    if (!x->q->late) return;
    for (size_t i = 0; i < out->n_used; i++)
        for (size_t k = 0; is_late(x, &out->used[i]) && k < out->n_spares; k++) {
            if (is_late(x, &out->spares[k]) || out->spares[k].slots < out->used[i].slots) continue;
            const struct ft_plan_node late = out->used[i];
            out->used[i] = out->spares[k];
            out->spares[k] = late;
        }
}

static bool divide(struct choosing *x, struct ft_node_choice *out)
{
    struct ft_name_index index = ft_name_index_make(x->arena);
    bool *in = ft_arena_array(x->arena, x->n, sizeof *in), *not_in = ft_arena_array(x->arena, x->n, sizeof *not_in);
    for (size_t i = 0; i < x->n; i++) ft_name_index_add(&index, x->v[i].name);
    bool ok = check_ranges(x, &index);
    ok = mark(x, &index, "include", x->c->cluster.include, in) && ok;
    ok = mark(x, &index, "exclude", x->c->cluster.exclude, not_in) && ok;
    if (!ok) return false;
    out->used = ft_arena_array(x->arena, x->n, sizeof *out->used);
    out->spares = ft_arena_array(x->arena, x->n, sizeof *out->spares);
    for (size_t i = 0; i < x->n; i++) {
        if (not_in[i] || (x->c->cluster.include && !in[i])) continue;
        if (has_tag(&x->v[i], "spare")) out->spares[out->n_spares++] = x->v[i];
        else out->used[out->n_used++] = x->v[i];
    }
    if (x->q->only) return exactly(x, &index, out);
    size_t hold = (size_t)x->c->launch.spare_nodes;
    if (hold && hold >= out->n_used)
        return bad_key(x, "launch", "spare_nodes", NULL,
                       ft_arena_printf(x->arena, "spare_nodes = %zu leaves none of %zu node%s for the job", hold, out->n_used,
                                       out->n_used == 1 ? "" : "s"));
    out->n_used -= hold;
    memcpy(out->spares + out->n_spares, out->used + out->n_used, hold * sizeof *out->spares);
    out->n_spares += hold;
    use_late_last(x, out);
    if (!out->n_used)
        return bad(
            x, "nodes", NULL, x->v[0].at, NULL,
            ft_arena_printf(x->arena, "none of %zu node%s is left for the job (excluded or spare)", x->n, x->n == 1 ? "" : "s"));
    return true;
}

bool ft_plan_choose_nodes(const struct ft_plan_request *q, struct ft_arena *arena, struct ft_faults *faults,
                          struct ft_node_choice *out)
{
    struct choosing x = {.q = q, .c = q->config, .arena = arena, .faults = faults};
    *out = (struct ft_node_choice){0};
    if (!find_nodes(&x) || !divide(&x, out)) return false;
    if (q->config->cluster.transport == FT_TRANSPORT_LOCAL && out->n_used + out->n_spares > 1) {
        const struct ft_plan_node *second = out->n_used > 1 ? &out->used[1] : &out->spares[0];
        return bad(&x, "nodes", NULL, second->at, "set transport = ssh",
                   ft_arena_printf(arena, "transport local is one node, but %zu are named: %s is the second",
                                   out->n_used + out->n_spares, ft_quote(arena, second->name, strlen(second->name))));
    }
    if (!q->only && q->config->launch.min_nodes > (int64_t)out->n_used)
        return bad_key(&x, "launch", "min_nodes", NULL,
                       ft_arena_printf(arena, "min_nodes = %lld, but there are only %zu nodes without spares",
                                       (long long)q->config->launch.min_nodes, out->n_used));
    return true;
}
