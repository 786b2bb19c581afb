/* What must be equal on all ranks before the first collective, as a pure function of what each rank said about itself. */
#ifndef FT_RUNTIME_COLL_MEETING_H
#define FT_RUNTIME_COLL_MEETING_H

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

struct ft_member {
    int rank, world, node_rank, pid;
    char *host, *boot; /* boot id of the machine's kernel: equal NODE_RANKs must have the same one */
    char *text;        /* lines "NAME=VALUE" */
};

/* "rank 2", "ranks 0-2, 5". Sorts v. */
void ft_ranks_text(struct ft_buf *b, int *v, size_t n);
/* Names the first thing that differs, with its values and ranks: FT_CONFIG. Members in any order, not all need be there.
 * Checked in this order: a rank number that two processes have, the lines of text in the order of the lowest rank, machines. */
enum ft_code ft_meeting_compare(const struct ft_member *m, size_t n, struct ft_err *err) FT_MUST_CHECK;
/* The error for ranks of 0..world-1 that are not in m: FT_TIMEOUT. */
enum ft_code ft_meeting_late(const struct ft_member *m, size_t n, int world, double seconds, const char *where, struct ft_err *err);

#endif
