/* How often texts occur: a bounded count of distinct texts (beyond FT_TALLY_MAX new ones are not entered). {0} is empty. */
#ifndef FT_RUNTIME_DATA_TALLY_H
#define FT_RUNTIME_DATA_TALLY_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

enum { FT_TALLY_MAX = 1 << 16, FT_TALLY_TEXT = 80 };

struct ft_tally_entry {
    struct ft_hash128 key;
    int64_t n; /* 0: empty slot */
    char text[FT_TALLY_TEXT];
};
struct ft_tally {
    struct ft_tally_entry *slot;
    size_t n, cap;
    int64_t total;
};
void ft_tally_add(struct ft_tally *t, const char *text, size_t n);
/* The commonest first; NULL when empty. */
const struct ft_tally_entry *ft_tally_top(const struct ft_tally *t);
/* Entries with at most share of the total, rarest first is not promised; calls visit for each. */
void ft_tally_rare(const struct ft_tally *t, double share, void (*visit)(void *ctx, const struct ft_tally_entry *e), void *ctx);
void ft_tally_fini(struct ft_tally *t);

#endif
