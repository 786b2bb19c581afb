/* The store: names -> bytes at MASTER_ADDR:MASTER_PORT, served by rank 0 on that address only. It is where ranks meet, compare
 * what must be equal, exchange addresses, and learn at once that a peer ended and why.
 *
 *  1. rank 0: ft_store_serve()    a thread that answers all ranks (signals blocked; the only thread of this room)
 *  2. every rank: ft_store_join() connects (retried until join_ns), proves FT_TOKEN, says who it is; returns when all ranks have
 *                                 come and agree, else with the reason, the same on all ranks
 *  3. set, get, add; ft_store_pump() reads what the store sent: which ranks have gone
 *  4. ft_store_abort(why) before a failing end; ft_store_leave() at an orderly one; rank 0: ft_store_stop() last
 *
 * A rank whose connection closes without a word has died: all others get that within milliseconds. One thread per handle. */
#ifndef FT_RUNTIME_COLL_STORE_H
#define FT_RUNTIME_COLL_STORE_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct ft_place;
struct ft_store;
struct ft_store_server;

enum ft_gone { FT_GONE_NO, FT_GONE_LEFT, FT_GONE_ABORTED, FT_GONE_DIED };

struct ft_store_peer {
    int node_rank;
    char *host;
    enum ft_gone gone;
    char *cause; /* what it said when it aborted; NULL: nothing */
};

/* Listens and starts the thread; master_port 0: on any free port. A taken port is FT_NET with rank, address, port and errno text. */
enum ft_code ft_store_serve(const struct ft_place *place, int64_t join_ns, struct ft_store_server **out,
                            struct ft_err *err) FT_MUST_CHECK;
int ft_store_port(const struct ft_store_server *s);
/* Serves until all ranks have left, at most linger_ns, then ends the thread. NULL is fine. */
void ft_store_stop(struct ft_store_server *s, int64_t linger_ns);

/* text: lines "NAME=VALUE" that must be equal on all ranks. */
enum ft_code ft_store_join(const struct ft_place *place, const char *text, int64_t join_ns, struct ft_store **out,
                           struct ft_err *err) FT_MUST_CHECK;
void ft_store_bye(struct ft_store *s);                    /* says the orderly end, and still hears of the others' ends */
void ft_store_leave(struct ft_store *s);                  /* orderly; frees. NULL is fine */
void ft_store_abort(struct ft_store *s, const char *why); /* at most 1 s; the handle stays until ft_store_leave() */

enum ft_code ft_store_set(struct ft_store *s, const char *name, const void *p, size_t n, struct ft_err *err) FT_MUST_CHECK;
/* Waits until the name is there. FT_TIMEOUT at the deadline, FT_COLL when a rank ended meanwhile. */
enum ft_code ft_store_get(struct ft_store *s, const char *name, int64_t deadline, struct ft_buf *out,
                          struct ft_err *err) FT_MUST_CHECK;
/* Adds to a counter that begins at 0; out: the new value. */
enum ft_code ft_store_add(struct ft_store *s, const char *name, int64_t delta, int64_t *out, struct ft_err *err) FT_MUST_CHECK;

int ft_store_fd(const struct ft_store *s);     /* readable: call ft_store_pump(); -1: nothing more will come */
int ft_store_own_fd(const struct ft_store *s); /* the connected socket, for its own address */
void ft_store_pump(struct ft_store *s);        /* never blocks */
int ft_store_world(const struct ft_store *s);
const struct ft_store_peer *ft_store_peer(const struct ft_store *s, int rank);
/* FT_COLL naming the first rank that ended other than orderly; FT_OK: none has. */
enum ft_code ft_store_check(const struct ft_store *s, struct ft_err *err) FT_MUST_CHECK;
/* FT_COLL "rank R (host) ended" for that rank, naming the first cause if another rank ended before. */
enum ft_code ft_store_ended(const struct ft_store *s, int rank, struct ft_err *err);
/* Polls fd for events together with the store. FT_OK: fd is ready. FT_COLL: a rank ended. FT_TIMEOUT: the deadline passed. */
enum ft_code ft_store_wait(struct ft_store *s, int fd, short events, int64_t deadline, struct ft_err *err) FT_MUST_CHECK;

#endif
