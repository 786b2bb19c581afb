/* A collective engine moves bytes between ranks, nothing else: one first-in first-out byte channel per ordered pair of ranks.
 * Sums, groups, deadlines and messages are made above it (exchange.c, comm.c), the same for every engine.
 * Registry: word in FT_COLLS (runtime/coll/CMakeLists.txt) + runtime/coll/NAME.c that defines ft_coll_NAME. */
#ifndef FT_RUNTIME_COLL_ENGINE_H
#define FT_RUNTIME_COLL_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct ft_place;
struct ft_store;

struct ft_coll_env {
    const struct ft_place *place;
    struct ft_store *store; /* all ranks have met; outlives the engine; NULL in prepare */
    int64_t deadline;       /* for prepare, tell, open: all ranks must have come through by then */
};

/* What the caller cannot go on without. */
struct ft_coll_want {
    int peer;
    bool in, out; /* bytes from peer beyond the `have` that it has seen / room for bytes to peer */
    size_t have;
};

/* In the order in which they are called. Those marked may be NULL. */
struct ft_coll_ops {
    const char *name;
    /* NULL: ranks may be started anyhow. FT_OK: started as place says, on this machine, this engine works, and `auto` takes it. */
    enum ft_code (*suits)(const struct ft_place *place, struct ft_err *err);
    /* NULL: nothing. Before the ranks have met; makes *self. */
    enum ft_code (*prepare)(const struct ft_coll_env *env, void **self, struct ft_err *err);
    /* NULL: not without a store. Rank 0's bytes to all, before the ranks have met: where the store is, when nobody else says it. */
    enum ft_code (*tell)(void *self, void *p, size_t n, int64_t deadline, struct ft_err *err);
    enum ft_code (*open)(const struct ft_coll_env *env, void **self, struct ft_err *err);
    /* None of these three blocks; a broken channel moves nothing and is reported by wait(). */
    size_t (*push)(void *self, int peer, const void *p, size_t n); /* bytes taken */
    void (*flush)(void *self);                                     /* NULL: pushed bytes go by themselves; else: they go now */
    size_t (*peek)(void *self, int peer, const void **p);          /* contiguous bytes that have come; they stay until consumed */
    void (*consume)(void *self, int peer, size_t n);               /* n <= the last peek */
    int (*spins)(const void *self);                                /* how often to look again before wait() */
    /* At most one want per peer and direction. Sleeps until one of wants may have come true. FT_TIMEOUT at the deadline; FT_COLL: a rank ended. */
    enum ft_code (*wait)(void *self, const struct ft_coll_want *wants, size_t n, int64_t deadline, struct ft_err *err);
    /* NULL: nothing. An orderly end, for an engine whose ranks must end together: says ft_store_bye() and hears of the others. */
    void (*end)(void *self, int64_t deadline);
    void (*close)(void *self); /* NULL is fine */
};

struct ft_coll_entry {
    const char *name;
    const struct ft_coll_ops *ops; /* NULL: known, not in this build */
    const char *hint;              /* how a build gets it; NULL: not at all yet */
};
extern const struct ft_coll_entry ft_coll_table[]; /* ends with {NULL} */

/* Channel positions are multiples of this at the start of every message, so that no element straddles a channel's end. */
enum { FT_COLL_ALIGN = 16 };

#endif
