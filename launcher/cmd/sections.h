/* All sections of the schema as tables of fields: the launcher's own, [nodes] and [env] (free keys, no rows), and those that
 * `fttrain fields --json` tells. For init --all, the man page and completion. */
#ifndef FT_LAUNCHER_CMD_SECTIONS_H
#define FT_LAUNCHER_CMD_SECTIONS_H

#include "base/field.h"
#include "launcher/cmd/cmd.h"

struct ft_cmd_sections {
    const struct ft_section **v; /* in the order of topology/sections.c */
    size_t n;
};
/* A line on stderr (not with -q) says why fttrain's sections are missing, when they are. */
struct ft_cmd_sections ft_cmd_sections(struct ft_cmd *c);

#endif
