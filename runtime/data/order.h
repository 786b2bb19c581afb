/* Keyed permutations: the order of an epoch is a pure function of (seed, epoch); nothing is stored (runtime maths, sections 11, 13). */
#ifndef FT_RUNTIME_DATA_ORDER_H
#define FT_RUNTIME_DATA_ORDER_H

#include <stdint.h>

enum { FT_SITE_SAMPLES = 34, FT_SITE_PACKS = 35 };

/* perm (n): indices 0..n-1 sorted by (w_i, i); w_i = words 2i (high half) and 2i+1 (low half) of the site in "layer" epoch, row 0. */
void ft_keyed_order(uint64_t seed, uint64_t site, int64_t epoch, int64_t n, int64_t *perm);

#endif
