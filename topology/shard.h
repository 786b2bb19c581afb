/* Who holds which rows, heads and layers. Pure arithmetic (runtime maths, sections 4, 5 and 7; layout as in Megatron-LM).
 * Ranges are [first, end). What does not divide is refused with the numbers and what would work. */
#ifndef FT_TOPOLOGY_SHARD_H
#define FT_TOPOLOGY_SHARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct ft_range {
    int64_t first, end;
};

/* Part i of n things in equal parts; n % parts == 0. */
struct ft_range ft_shard(int64_t n, int parts, int i);

/* n / by; what ("12 heads") stands in the message, which ends in "works: 1,2,3". */
enum ft_code ft_divide(int64_t n, int by, const char *what, int64_t *out_each, struct ft_err *err) FT_MUST_CHECK;
/* The divisors of n up to limit (n itself included when it is no greater), ascending, with commas. */
void ft_divisors(int64_t n, int64_t limit, struct ft_buf *out);

/* Rows of the embedding and the head: vocab rounded up to a multiple of multiple * tp (1 on the CPU, 64 on CUDA). A rank may
 * hold only pad rows. */
int64_t ft_vocab_padded(int64_t vocab, int tp, int multiple);
struct ft_range ft_vocab_rows(int64_t vocab, int tp, int multiple, int tp_rank);

/* Query heads and kv heads that a tp rank attends with. kv_heads < tp: tp % kv_heads == 0, rank r holds kv head r*kv_heads/tp,
 * so that tp/kv_heads ranks hold the same one. */
struct ft_heads {
    struct ft_range q, kv;
};
bool ft_heads_fit(int64_t heads, int64_t kv_heads, int64_t tp);
enum ft_code ft_heads_check(int64_t heads, int64_t kv_heads, int tp, struct ft_err *err) FT_MUST_CHECK;
struct ft_heads ft_heads_of(int64_t heads, int64_t kv_heads, int tp, int tp_rank); /* after ft_heads_check */
/* Sizes of tp that fit, ascending, with commas. */
void ft_heads_works(int64_t heads, int64_t kv_heads, struct ft_buf *out);

/* Layers of chunk c of stage i: virtual stage c*pp + i of pp*vpp equal ones. */
enum ft_code ft_layers_check(int64_t layers, int pp, int vpp, struct ft_err *err) FT_MUST_CHECK;
struct ft_range ft_layers_of(int64_t layers, int pp, int vpp, int stage, int chunk); /* after ft_layers_check */

#endif
