/* The engine of one rank: there is nobody to talk to. */
#include "runtime/coll/engine.h"

static enum ft_code open_self(const struct ft_coll_env *env, void **self, struct ft_err *err)
{
    (void)env;
    (void)err;
    *self = NULL;
    return FT_OK;
}

static void close_self(void *self) { (void)self; }

static size_t push(void *self, int peer, const void *p, size_t n)
{
    (void)self;
    (void)p;
    (void)n;
    FT_BUG("engine self has no peer %d", peer);
}

static size_t peek(void *self, int peer, const void **p)
{
    (void)self;
    *p = NULL;
    FT_BUG("engine self has no peer %d", peer);
}

static void consume(void *self, int peer, size_t n)
{
    (void)self;
    (void)n;
    FT_BUG("engine self has no peer %d", peer);
}

static int spins(const void *self)
{
    (void)self;
    return 0;
}

static enum ft_code wait_self(void *self, const struct ft_coll_want *wants, size_t n, int64_t deadline, struct ft_err *err)
{
    (void)self;
    (void)wants;
    (void)deadline;
    return ft_fail(err, FT_BUG_FOUND, "engine self waits for %zu peers", n);
}

extern const struct ft_coll_ops ft_coll_self;
const struct ft_coll_ops ft_coll_self = {.name = "self",
                                         .open = open_self,
                                         .close = close_self,
                                         .push = push,
                                         .peek = peek,
                                         .consume = consume,
                                         .spins = spins,
                                         .wait = wait_self};
