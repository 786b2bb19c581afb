/* Which rank runs on which node: blocks in the order of the nodes, the same at every restart. Pure arithmetic.
 * A node contributes floor(slots/tp)*tp ranks, so that with tp fastest every tp group lies inside one node; for other orders the
 * resulting map is checked and the group, its nodes and an order that works are named. */
#ifndef FT_TOPOLOGY_PLACEMENT_H
#define FT_TOPOLOGY_PLACEMENT_H

#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "topology/mesh.h"

enum { FT_MAX_WORLD = 1 << 20 };

struct ft_placement_request {
    const char *const *names; /* [n_nodes], for messages */
    const int *slots;         /* [n_nodes], >= 1 */
    size_t n_nodes;
    int64_t tensor, pipeline, data; /* data 0: as many as fit */
    int64_t world;                  /* -n; 0: not given */
    struct ft_mesh order;           /* only its order counts */
};
struct ft_placement {
    struct ft_mesh mesh;
    int world;
    int *first, *count; /* [n_nodes]: ranks first .. first+count-1 run there */
};

/* FT_CONFIG with need, have and the nearest sizes that work. */
enum ft_code ft_placement_make(const struct ft_placement_request *q, struct ft_arena *arena, struct ft_placement *out,
                               struct ft_err *err) FT_MUST_CHECK;

#endif
