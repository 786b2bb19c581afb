/* Where every trainable parameter lies in the pools of weights and gradients, and which part of it a data rank owns
 * (distributed optimizer, ZeRO-1: Rajbhandari et al. 2020; layout as in Megatron-LM; runtime maths, section 8). Pure.
 *
 * One contiguous buffer in REVERSE declaration order (about the order in which gradients become ready). A parameter starts at
 * a multiple of 64 elements; a bucket closes when it has reached `limit` elements and ends at a multiple of lcm(d, 128); a
 * tied copy has a bucket of its own. Data rank r owns elements [r*S, (r+1)*S) of every bucket, S = bucket/d: a cut may pass
 * through a parameter, a rank may own many or none. What lies between parameters is padding: zero, never stored. */
#ifndef FT_RUNTIME_TRAIN_BUCKETS_H
#define FT_RUNTIME_TRAIN_BUCKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

enum { FT_BUCKET_LIMIT = 32 * 1024 * 1024, FT_BUCKET_ALIGN = 64 };

struct ft_bucket_param {
    int64_t n; /* elements on this rank */
    bool tied_copy;
};
struct ft_bucket {
    int64_t start, end; /* elements of the buffer, padding included */
};
struct ft_place_in_buffer {
    int64_t start, end;
    size_t bucket;
};
/* A stretch of one parameter that this rank owns, in order of address. */
struct ft_piece {
    size_t param;
    int64_t from, to; /* elements of the parameter */
    int64_t at;       /* element of the buffer where `from` lies */
    int64_t state;    /* element of this rank's optimizer state (its shards one after another) where `from` lies */
};

struct ft_buckets {
    int data, rank;
    struct ft_place_in_buffer *place; /* [n_params], as declared */
    size_t n_params;
    struct ft_bucket *v;
    size_t n;
    int64_t total; /* elements of the buffer */
    struct ft_piece *pieces;
    size_t n_pieces;
    int64_t state_total; /* total/d: elements of this rank's state */
};

/* Elements of the buffer: what the memory plan needs, without laying anything out. */
struct ft_buckets ft_buckets_make(const struct ft_bucket_param *params, size_t n, int data, int rank, int64_t limit,
                                  struct ft_arena *arena);
/* This rank's shard of bucket b: elements of the buffer. */
struct ft_bucket ft_buckets_shard(const struct ft_buckets *b, size_t bucket);

#endif
