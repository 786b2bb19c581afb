/* [parallel]: how ranks divide the work. Shared by the launcher (places ranks) and fttrain (builds groups). */
#ifndef FT_TOPOLOGY_PARALLEL_FIELDS_H
#define FT_TOPOLOGY_PARALLEL_FIELDS_H

#include "base/field.h"

struct ft_parallel_fields {
    int64_t tensor, pipeline;
    int64_t data; /* 0: auto */
    bool sequence;
    int64_t virtual_pipeline;
    const char *order;
};
extern const struct ft_section ft_parallel_section;

#endif
