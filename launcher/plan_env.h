/* The environment of all ranks at once: which variables are equal everywhere, which differ by node, which by rank. For printing:
 * what is known only at the start of a run has no value here. Only the files plan_*.c include this. */
#ifndef FT_LAUNCHER_PLAN_ENV_H
#define FT_LAUNCHER_PLAN_ENV_H

#include <stdlib.h>

#include "launcher/plan.h"

struct ft_plan_var {
    const char *name;
    bool secret, at_start;
    bool per_rank; /* values[rank]; else value. per_node besides: equal on each node */
    bool per_node;
    const char *value;
    const char **values; /* NULL where the rank does not get it */
};
struct ft_plan_vars {
    struct ft_plan_var *v;
    size_t n;
};
struct ft_plan_vars ft_plan_vars_make(const struct ft_plan *p, struct ft_arena *arena);
const char *ft_plan_var_value(const struct ft_plan_var *v, int rank); /* NULL: none, or at start */

/* "slots=8 host=… from=…": the words of a node in [nodes]. */
void ft_plan_node_words(const struct ft_plan_node *n, bool from, struct ft_buf *out);

#endif
