/* Which rows an update takes and which rank computes them (runtime maths, section 13). Pure.
 * The rows of an epoch are dealt in their order, `global_batch` an update; micro-batch j of data rank r takes
 * base + (j*d + r)*b + [0,b). The last update of an epoch takes what is left; places beyond its rows are fillers: one-token
 * rows without target, so that every rank makes the same number of micro-batches, with chunks a multiple of the stages. The position
 * is counted in rows, so any d and b continue exactly. */
#ifndef FT_RUNTIME_TRAIN_ROWS_H
#define FT_RUNTIME_TRAIN_ROWS_H

#include <stdbool.h>
#include <stdint.h>

struct ft_deal {
    int64_t global_batch, micro; /* rows of an update; rows of a micro-batch (b) */
    int64_t data;                /* d */
    int64_t group;               /* micro-batches of a rank come in multiples of it: p with interleaved chunks; 0: any number */
};

/* Where a run stands: rows [0, in_epoch) of the epoch's order are done. */
struct ft_position {
    int64_t epoch, in_epoch;
    int64_t rows; /* all rows since the start of the run: the number of the next row */
};

/* One update: rows [base, base+n) of the order of its epoch; first_row is the run's number of row base. */
struct ft_update_rows {
    int64_t epoch, base, n, first_row;
    int64_t n_micro; /* micro-batches of every rank */
};

bool ft_deal_ok(const struct ft_deal *d, int64_t *lower,
                int64_t *upper); /* global_batch % (b*d) == 0; else the nearest that work (lower 0: none) */
struct ft_update_rows ft_update_rows(const struct ft_deal *d, const struct ft_position *p, int64_t n_rows);
/* Index into the epoch's order of row i of micro-batch j of data rank r; -1: a filler. */
int64_t ft_deal_row(const struct ft_deal *d, const struct ft_update_rows *u, int64_t j, int64_t r, int64_t i);
/* Moves behind the update; at the end of an epoch the next one begins. */
void ft_position_advance(struct ft_position *p, const struct ft_update_rows *u, int64_t n_rows);

#endif
