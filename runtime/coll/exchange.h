/* One step of a collective: messages to some ranks and messages from some ranks, all under way at once, so that no order of
 * posting can lock up; several messages between two ranks in one direction follow each other in the order of the list. What comes
 * in is stored, or combined in ascending order with a piece of our own as it arrives.
 *
 * A message is 16 bytes (what, number, payload bytes), the payload, zeros up to a multiple of 16. number counts the group's
 * collectives; of a send/recv it is the tag. A rank that is in another collective than its peer is told so instead of waiting
 * for ever. */
#ifndef FT_RUNTIME_COLL_EXCHANGE_H
#define FT_RUNTIME_COLL_EXCHANGE_H

#include "runtime/coll/engine.h"
#include "runtime/coll/reduce.h"

struct ft_xsend {
    int peer;
    const void *p;
    size_t n;
    uint32_t number;              /* as the other end's */
    size_t at;                    /* 0 at the start: bytes of head, payload and fill that have gone */
    const struct ft_xsend *after; /* an earlier message to the same peer, NULL: none */
};

struct ft_xrecv {
    int peer;
    void *p; /* where the payload goes; NULL when it is combined */
    size_t n;
    uint32_t number;              /* as the other end's */
    size_t at;                    /* 0 at the start: bytes of head, payload and fill that have come */
    size_t have;                  /* bytes that lay in the channel at the last look */
    const struct ft_xrecv *after; /* an earlier message from the same peer, NULL: none */
};

/* Combining: all recvs have the same n; recvs stand in ascending order of their members, own stands before recvs[own_index]. */
struct ft_xreduce {
    const void *own;
    void *out;
    int own_index;
    enum ft_dtype dtype;
    enum ft_reduce op;
};

struct ft_exchange {
    const struct ft_coll_ops *ops;
    void *self;
    uint32_t what; /* equal on both ends of every message */
    struct ft_xsend *sends;
    size_t n_sends;
    struct ft_xrecv *recvs;
    size_t n_recvs;
    const struct ft_xreduce *reduce; /* NULL: store */
    int64_t timeout_ns;              /* without any progress */
};

/* FT_TIMEOUT: nothing moved for timeout_ns; *missing is then a list (heap, the caller's) of the ranks waited for.
 * FT_COLL: a rank ended. FT_BUG_FOUND: a peer is in another collective. */
enum ft_code ft_exchange_run(struct ft_exchange *x, int **missing, size_t *n_missing, struct ft_err *err) FT_MUST_CHECK;

/* Name of a collective inside `what` (operation in the high half, group in the low one). */
enum ft_xop { FT_XOP_ALL_REDUCE = 1, FT_XOP_REDUCE_SCATTER, FT_XOP_ALL_GATHER, FT_XOP_BROADCAST, FT_XOP_EXCHANGE, FT_XOP_BARRIER };
const char *ft_xop_name(uint32_t what);
const char *ft_group_name(uint32_t what);

#endif
