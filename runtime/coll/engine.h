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
    struct ft_store *store; /* all ranks have met; outlives the engine */
    int64_t deadline;       /* for open: all ranks must have come through by then */
};

/* What the caller cannot go on without. */
struct ft_coll_want {
    int peer;
    bool in, out; /* bytes from peer beyond the `have` that it has seen / room for bytes to peer */
    size_t have;
};

struct ft_coll_ops {
    const char *name;
    enum ft_code (*open)(const struct ft_coll_env *env, void **self, struct ft_err *err);
    void (*close)(void *self); /* NULL is fine */
    /* None of these three blocks; a broken channel moves nothing and is reported by wait(). */
    size_t (*push)(void *self, int peer, const void *p, size_t n); /* bytes taken */
    size_t (*peek)(void *self, int peer, const void **p);          /* contiguous bytes that have come; they stay until consumed */
    void (*consume)(void *self, int peer, size_t n);               /* n <= the last peek */
    int (*spins)(const void *self);                                /* how often to look again before wait() */
    /* At most one want per peer and direction. Sleeps until one of wants may have come true. FT_TIMEOUT at the deadline; FT_COLL: a rank ended. */
    enum ft_code (*wait)(void *self, const struct ft_coll_want *wants, size_t n, int64_t deadline, struct ft_err *err);
};

struct ft_coll_entry {
    const char *name;
    const struct ft_coll_ops *ops; /* NULL: known, not in this build */
};
extern const struct ft_coll_entry ft_coll_table[]; /* ends with {NULL} */

/* Channel positions are multiples of this at the start of every message, so that no element straddles a channel's end. */
enum { FT_COLL_ALIGN = 16 };

#endif
