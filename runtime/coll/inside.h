/* What a comm is made of: for comm.c, which makes it, and collective.c, which uses it. */
#ifndef FT_RUNTIME_COLL_INSIDE_H
#define FT_RUNTIME_COLL_INSIDE_H

#include <stdbool.h>

#include "runtime/coll/comm.h"
#include "runtime/coll/engine.h"
#include "runtime/coll/store.h"

struct ft_comm_group {
    int size, index;
    int *ranks; /* size; ascending in the group's own order */
    uint32_t number;
};

struct ft_comm {
    const struct ft_coll_ops *ops;
    void *self;
    struct ft_store *store;
    struct ft_store_server *server;
    int rank, world;
    int64_t timeout_ns, busy_ns;
    bool failed; /* a collective failed or this rank aborts: no orderly end */
    struct ft_comm_group groups[FT_N_GROUPS];
    char note[128];
};

/* Which engine moves the bytes: wanted is "auto" or a name. What is not known, not in this build or not right for ranks that were
 * started so is refused. */
enum ft_code ft_coll_choose(const char *wanted, const struct ft_place *place, const struct ft_coll_ops **out,
                            struct ft_err *err) FT_MUST_CHECK;

#endif
