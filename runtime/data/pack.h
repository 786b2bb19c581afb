/* Packing: several whole samples share one row. Best-fit decreasing inside windows of the epoch's order: O(n), a pure function of
 * lengths, order and row size. No sample is cut; one longer than the row is not allowed here.
 *
 *   struct ft_packs p = ft_pack(lengths, order, n, row, FT_PACK_WINDOW);   … p.sample[p.start[k] .. p.start[k+1]) …   ft_packs_fini(&p); */
#ifndef FT_RUNTIME_DATA_PACK_H
#define FT_RUNTIME_DATA_PACK_H

#include <stdint.h>

enum { FT_PACK_WINDOW = 50000 };

struct ft_packs {
    int64_t *sample; /* (n) samples, pack after pack; longest first in a pack */
    int64_t *start;  /* (n_packs+1) */
    int64_t n_packs, n;
};

/* lengths (by sample, 1..row tokens), order (n): samples in the order in which windows are cut. */
struct ft_packs ft_pack(const int32_t *lengths, const int64_t *order, int64_t n, int32_t row, int64_t window);
/* Puts pack perm[k] at place k. perm (n_packs) */
void ft_packs_reorder(struct ft_packs *p, const int64_t *perm);
void ft_packs_fini(struct ft_packs *p);

#endif
