/* Which nodes a job uses, which it holds back. Only plan.c and plan_nodes.c include this. */
#ifndef FT_LAUNCHER_PLAN_NODES_H
#define FT_LAUNCHER_PLAN_NODES_H

#include "launcher/plan.h"

struct ft_node_choice {
    struct ft_plan_node *used, *spares;
    size_t n_used, n_spares;
};
/* false: faults say why. */
bool ft_plan_choose_nodes(const struct ft_plan_request *q, struct ft_arena *arena, struct ft_faults *faults,
                          struct ft_node_choice *out);

#endif
