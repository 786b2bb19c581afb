/* The parts of reading a configuration; only config.c, nodes.c and env.c include this. */
#ifndef FT_LAUNCHER_CONFIG_PARTS_H
#define FT_LAUNCHER_CONFIG_PARTS_H

#include "launcher/config.h"

struct ft_config_parts {
    struct ft_launcher_config *c;
    const struct ft_ini *ini;
    char *const *environ_;
    struct ft_arena *arena;
    struct ft_faults *faults;
};
void ft_config_read_nodes(struct ft_config_parts *p); /* nodes.c: [nodes] and [cluster] hostfile */
void ft_config_read_env(struct ft_config_parts *p);   /* env.c: [env], [env RANGE] */

/* The place `offset` bytes behind at (a place on the command line has no columns). */
static inline struct ft_source ft_source_behind(struct ft_source at, size_t offset)
{
    if (at.column) at.column += (int)offset;
    return at;
}

#endif
