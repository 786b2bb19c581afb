/* Binding of ranks to cores and memory (launcher rules, "Starting ranks", step 8). The inherited set of cores is respected; parts
 * are equal, disjoint and whole physical cores. Reads sysfs and procfs below given roots, so that a recorded tree can be tested. */
#ifndef FT_LAUNCHER_AGENT_BIND_H
#define FT_LAUNCHER_AGENT_BIND_H

#include <sched.h>
#include <stdbool.h>

#include "base/str.h"

enum { FT_BIND_CPUS = 4096 }; /* CPU numbers below this */

struct ft_cpus {
    unsigned char has[FT_BIND_CPUS];
};
struct ft_binding {
    bool bound;
    struct ft_cpus cpus;
    int numa; /* preferred memory node; -1: none */
    int gpu;  /* index in order of PCI address; -1: none */
};

struct ft_bind_request {
    const char *how; /* "none", "core", "numa", "gpu", "auto" */
    int n_ranks;
    const struct ft_cpus *allowed;
    const char *sys, *proc; /* "/sys", "/proc" */
    const char *visible;    /* CUDA_VISIBLE_DEVICES of the ranks; NULL: not set */
};
/* Fills out[n_ranks]. false: it cannot be done, why says it with the numbers. note: something worth a line (may stay empty). */
bool ft_bind_plan(const struct ft_bind_request *q, struct ft_binding *out, struct ft_buf *why, struct ft_buf *note);
void ft_bind_allowed(struct ft_cpus *out);                       /* of this process */
void ft_bind_print(const struct ft_cpus *c, struct ft_buf *out); /* "0-3,8" */

#endif
