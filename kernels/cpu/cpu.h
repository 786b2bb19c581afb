/* The CPU device's kernels: one op table per instruction set, a pool of threads, a matrix product of our own (cpu/sgemm.h).
 *
 *  1. ft_cpu_kctx_create(n_threads)   threads
 *  2. ft_cpu_kernels()                the best table that this CPU runs; ft_cpu_kernels_isa() for tests
 *  3. ft_cpu_kctx_destroy()
 *
 * The number of threads never changes a bit: ops cut their work by shape alone into pieces; a piece writes what no other piece
 * writes; sums over pieces are made in ascending order of pieces by one owner. */
#ifndef FT_KERNELS_CPU_CPU_H
#define FT_KERNELS_CPU_CPU_H

#include <stddef.h>
#include <stdint.h>

struct ft_kernels;
struct ft_kctx;

/* NULL: no context; why receives the reason (no threads). */
struct ft_kctx *ft_cpu_kctx_create(int n_threads, char *why, size_t why_bytes);
void ft_cpu_kctx_destroy(struct ft_kctx *k); /* NULL is fine */
int ft_cpu_kctx_threads(const struct ft_kctx *k);

const struct ft_kernels *ft_cpu_kernels(void);
/* "generic", "avx2", "avx512"; NULL: not in this build or not on this CPU. */
const struct ft_kernels *ft_cpu_kernels_isa(const char *isa);

/* ---- for the ops ---- */

/* Runs fn for pieces 0..n-1 on all threads. scratch: scratch_bytes of this worker's own memory, not cleared, aligned to 64. */
typedef void ft_cpu_piece(void *arg, int64_t piece, void *scratch);
void ft_cpu_parallel(struct ft_kctx *k, int64_t n, int64_t scratch_bytes, ft_cpu_piece *fn, void *arg);
/* Memory shared by all pieces of one op, valid until the next call. */
void *ft_cpu_shared(struct ft_kctx *k, int64_t bytes);

/* The running worker's own memory besides the scratch of its piece; not cleared, aligned to 64, valid until its next call. */
void *ft_cpu_worker_space(struct ft_kctx *k, int64_t bytes);

#endif
