#include "topology/placement.h"

static int64_t room_of(int slots, int64_t tensor) { return slots / tensor * tensor; }

static int64_t capacity(const struct ft_placement_request *q, int64_t tensor)
{
    int64_t n = 0;
    for (size_t i = 0; i < q->n_nodes; i++) n += room_of(q->slots[i], tensor);
    return n;
}

/* No node has room for one tp group. */
static enum ft_code too_wide(const struct ft_placement_request *q, struct ft_err *err)
{
    int largest = 0;
    const char *name = "";
    for (size_t i = 0; i < q->n_nodes; i++) {
        if (q->slots[i] <= largest) continue;
        largest = q->slots[i];
        name = q->names[i];
    }
    ft_fail(err, FT_CONFIG, "tensor = %lld does not fit into one node: the largest, '%s', has %d slot%s", (long long)q->tensor,
            name, largest, largest == 1 ? "" : "s");
    return ft_fix(err, "set tensor to %d or less", largest);
}

static enum ft_code too_few(const struct ft_placement_request *q, int64_t need, int64_t have, struct ft_err *err)
{
    int64_t step = q->tensor * q->pipeline, most = have / step;
    if (q->world)
        ft_fail(err, FT_CONFIG, "%lld ranks are asked for (-n), but %zu node%s %s room for %lld", (long long)need, q->n_nodes,
                q->n_nodes == 1 ? "" : "s", q->n_nodes == 1 ? "has" : "have", (long long)have);
    else
        ft_fail(err, FT_CONFIG, "tensor %lld x pipeline %lld x data %lld needs %lld ranks, but %zu node%s %s room for %lld",
                (long long)q->tensor, (long long)q->pipeline, (long long)(q->data ? q->data : 1), (long long)need, q->n_nodes,
                q->n_nodes == 1 ? "" : "s", q->n_nodes == 1 ? "has" : "have", (long long)have);
    if (!most) return ft_fix(err, "pipeline = %lld or less works, or name more nodes or slots", (long long)(have / q->tensor));
    return ft_fix(err, "%s%lld or less works, or name more nodes or slots",
                  q->world ? "-n " : "data = ", (long long)(q->world ? most * step : most));
}

/* The world, checked against what fits. */
static enum ft_code choose_world(const struct ft_placement_request *q, int64_t *out, struct ft_err *err)
{
    int64_t step = q->tensor * q->pipeline, have = capacity(q, q->tensor);
    if (!have) return too_wide(q, err);
    if (q->world && q->data && q->world != step * q->data) {
        ft_fail(err, FT_CONFIG, "-n %lld is not tensor %lld x pipeline %lld x data %lld = %lld", (long long)q->world,
                (long long)q->tensor, (long long)q->pipeline, (long long)q->data, (long long)(step * q->data));
        return ft_fix(err, "leave out -n, or set data = auto");
    }
    if (q->world % step) {
        ft_fail(err, FT_CONFIG, "world size %lld is not divisible by tp·pp = %lld", (long long)q->world, (long long)step);
        int64_t below = q->world / step * step;
        if (below) return ft_fix(err, "nearest sizes: %lld, %lld", (long long)below, (long long)(below + step));
        return ft_fix(err, "nearest size: %lld", (long long)step);
    }
    int64_t world = q->world ? q->world : q->data ? step * q->data : have / step * step;
    if (world > FT_MAX_WORLD) {
        ft_fail(err, FT_CONFIG, "%lld ranks are more than the %d that one job can have", (long long)world, FT_MAX_WORLD);
        return ft_fix(err, "name fewer nodes or slots");
    }
    if (!world || world > have) return too_few(q, world ? world : step, have, err);
    *out = world;
    return FT_OK;
}

static size_t node_of(const struct ft_placement *p, int rank, size_t n_nodes)
{
    size_t low = 0, high = n_nodes; /* first[] grows; nodes without ranks share a value with the next */
    while (high - low > 1) {
        size_t mid = (low + high) / 2;
        if (p->first[mid] <= rank) low = mid;
        else high = mid;
    }
    while (!p->count[low]) low--;
    return low;
}

/* A tp group must lie inside one node. */
static enum ft_code check_groups(const struct ft_placement_request *q, const struct ft_placement *p, struct ft_err *err)
{
    const unsigned tp = 1u << FT_AXIS_TP;
    if (p->mesh.size[FT_AXIS_TP] == 1 || p->mesh.order[0] == FT_AXIS_TP) return FT_OK;
    for (int g = 0; g < ft_mesh_n_groups(p->mesh, tp); g++) {
        int a = ft_mesh_group_member(p->mesh, tp, g, 0);
        for (int i = 1; i < p->mesh.size[FT_AXIS_TP]; i++) {
            int b = ft_mesh_group_member(p->mesh, tp, g, i);
            size_t na = node_of(p, a, q->n_nodes), nb = node_of(p, b, q->n_nodes);
            if (na == nb) continue;
            ft_fail(err, FT_CONFIG, "tp group %d is divided between nodes: rank %d is on '%s', rank %d on '%s'", g, a, q->names[na],
                    b, q->names[nb]);
            return ft_fix(err, "set order = tp-dp-pp");
        }
    }
    return FT_OK;
}

enum ft_code ft_placement_make(const struct ft_placement_request *q, struct ft_arena *arena, struct ft_placement *out,
                               struct ft_err *err)
{
    struct ft_placement p = {.mesh = q->order,
                             .first = ft_arena_array(arena, q->n_nodes + 1, sizeof(int)),
                             .count = ft_arena_array(arena, q->n_nodes + 1, sizeof(int))};
    int64_t world = 0;
    if (choose_world(q, &world, err)) return FT_CONFIG;
    p.world = (int)world;
    p.mesh.size[FT_AXIS_TP] = (int)q->tensor;
    p.mesh.size[FT_AXIS_CP] = 1;
    p.mesh.size[FT_AXIS_PP] = (int)q->pipeline;
    p.mesh.size[FT_AXIS_DP] = (int)(world / (q->tensor * q->pipeline));
    int at = 0;
    for (size_t i = 0; i < q->n_nodes; i++) {
        int64_t n = room_of(q->slots[i], q->tensor);
        p.first[i] = at;
        p.count[i] = (int)(n < world - at ? n : world - at);
        at += p.count[i];
    }
    if (check_groups(q, &p, err)) return FT_CONFIG;
    *out = p;
    return FT_OK;
}
