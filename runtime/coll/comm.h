/* Collectives between the ranks of a run, in process groups over mesh axes. Knows ranks, not models.
 * Engines only move bytes: sums are made here, in ascending rank order in fp32 (fp64 for FT_F64), so the result does not
 * depend on engine, host map or timing. Every call has the deadline of the comm; a peer that ends is FT_COLL with its rank.
 * One thread at a time per comm. Members of a group must make the same calls in the same order.
 *
 *  1. ft_comm_open()   all ranks meet and compare what must be equal
 *  2. collectives over groups
 *  3. ft_comm_close(); before a failing end ft_comm_abort(why) first
 *
 * What a failing call tells: FT_COLL "rank R on HOST ended[: why]": a peer ended, this rank is a victim (fttrain exits 69);
 * FT_TIMEOUT: no progress within the deadline, with the group, the operation, the note and the missing ranks; FT_BUG_FOUND: a
 * peer is in another collective. From ft_comm_open also FT_CONFIG (the ranks differ: exit 2), FT_AUTH (token), FT_NET (address,
 * port), FT_TIMEOUT (ranks that did not come), FT_UNSUPPORTED (engine not built). After a failure only abort and close. */
#ifndef FT_RUNTIME_COLL_COMM_H
#define FT_RUNTIME_COLL_COMM_H

#include "base/bits/dtype.h"
#include "base/err.h"
#include "topology/mesh.h"

struct ft_comm;
struct ft_place;

enum ft_group { FT_GROUP_WORLD, FT_GROUP_TP, FT_GROUP_PP, FT_GROUP_DP, FT_GROUP_EMBEDDING, FT_N_GROUPS };
enum ft_reduce { FT_SUM, FT_MIN, FT_MAX };

struct ft_comm_options {
    const char *engine;      /* "auto", "tcp", "mpi", "nccl"; one rank is always "self" */
    int64_t timeout_ns;      /* deadline of one collective (collective_timeout) */
    int64_t join_ns;         /* how long to wait for all ranks at the start (2 min) */
    const char *fingerprint; /* text that must be equal on all ranks: lines "NAME=VALUE"; the first difference is named */
};

/* Is this engine ("auto" or a name) in this build? FT_UNSUPPORTED: known, but not; FT_CONFIG: not known. */
enum ft_code ft_coll_built(const char *engine, struct ft_err *err) FT_MUST_CHECK;

/* Meets all ranks at place's MASTER_ADDR:MASTER_PORT (store served by rank 0), builds all groups of the mesh. Without them an
 * engine that reaches the ranks by itself (mpi) tells where rank 0 is. */
enum ft_code ft_comm_open(const struct ft_place *place, struct ft_mesh mesh, const struct ft_comm_options *o, struct ft_comm **out,
                          struct ft_err *err) FT_MUST_CHECK;
/* Orderly end: peers that are still inside a collective get FT_COLL "rank R ended". NULL is fine. */
void ft_comm_close(struct ft_comm *c);
/* Tells every peer why this rank ends (the abort word), so that their message can name the cause. Never blocks > 1 s. */
void ft_comm_abort(struct ft_comm *c, const char *why);

int ft_comm_rank(const struct ft_comm *c, enum ft_group g); /* my index in the group */
int ft_comm_size(const struct ft_comm *c, enum ft_group g);
const char *ft_comm_engine(const struct ft_comm *c);

/* dtypes: FT_F32 FT_F64 FT_BF16 (summed in fp32, one rounding) FT_I64 (as u64 for SUM) FT_U8 (MIN, MAX only). n: elements. */
enum ft_code ft_comm_all_reduce(struct ft_comm *c, enum ft_group g, void *buf, int64_t n, enum ft_dtype t, enum ft_reduce op,
                                struct ft_err *err) FT_MUST_CHECK;
/* in: size*n_each elements; rank r of the group gets the reduced piece r in out (may be in + r*n_each). */
enum ft_code ft_comm_reduce_scatter(struct ft_comm *c, enum ft_group g, const void *in, void *out, int64_t n_each, enum ft_dtype t,
                                    enum ft_reduce op, struct ft_err *err) FT_MUST_CHECK;
/* out: size*n_each elements; in may be out + rank*n_each. */
enum ft_code ft_comm_all_gather(struct ft_comm *c, enum ft_group g, const void *in, void *out, int64_t n_each, enum ft_dtype t,
                                struct ft_err *err) FT_MUST_CHECK;
enum ft_code ft_comm_broadcast(struct ft_comm *c, enum ft_group g, int root, void *buf, int64_t bytes,
                               struct ft_err *err) FT_MUST_CHECK;
/* One message of an exchange. Both ends say the same tag (what is sent: the caller's number) and bytes. */
enum ft_way { FT_WAY_SEND, FT_WAY_RECV };
struct ft_message {
    enum ft_way way;
    int peer; /* member of the group, not this rank */
    uint32_t tag;
    int64_t bytes;   /* 0 is a message too */
    const void *out; /* FT_WAY_SEND: what goes; stays unchanged until the call is over */
    void *in;        /* FT_WAY_RECV: where it goes */
};
/* Messages between single members, all under way at once: whatever the sizes, ranks that send to each other do not wait for each
 * other. Messages from one rank to another arrive in the order in which both ends list them, over all calls; the order of
 * messages of different peers or ways means nothing. Returns when all are through. A peer that sends
 * another tag or size than this rank expects, or is in another collective, is FT_BUG_FOUND with both. */
enum ft_code ft_comm_exchange(struct ft_comm *c, enum ft_group g, const struct ft_message *m, size_t n,
                              struct ft_err *err) FT_MUST_CHECK;
/* An exchange of one message with tag 0. */
enum ft_code ft_comm_send(struct ft_comm *c, enum ft_group g, int to, const void *buf, int64_t bytes,
                          struct ft_err *err) FT_MUST_CHECK;
enum ft_code ft_comm_recv(struct ft_comm *c, enum ft_group g, int from, void *buf, int64_t bytes, struct ft_err *err) FT_MUST_CHECK;
enum ft_code ft_comm_barrier(struct ft_comm *c, enum ft_group g, struct ft_err *err) FT_MUST_CHECK;

/* Time spent inside collectives since the comm was opened, ns (metrics: comm_ms). */
int64_t ft_comm_busy_ns(const struct ft_comm *c);
/* "update 12", stands in the message of a missed deadline. Copied. */
void ft_comm_note(struct ft_comm *c, const char *note);

#endif
