/* The one table of all section names with their owner, so that a misspelt section is found by whoever reads the file. */
#ifndef FT_TOPOLOGY_SECTIONS_H
#define FT_TOPOLOGY_SECTIONS_H

#include "base/ini.h"

enum ft_owner { FT_OWNER_NONE, FT_OWNER_LAUNCHER, FT_OWNER_SHARED, FT_OWNER_TRAIN };

struct ft_section_name {
    const char *name;
    enum ft_owner owner;
    const char *help;
};
extern const struct ft_section_name ft_section_names[]; /* ends with {NULL} */

/* "env gpu[01-04]" is [env]'s. FT_OWNER_NONE: no such section. */
enum ft_owner ft_section_owner(const char *section);
/* One fault for each [header] and each --set whose section nobody owns, with the nearest name. */
void ft_sections_check(const struct ft_ini *ini, struct ft_faults *faults);

#endif
