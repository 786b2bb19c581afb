/* Shared memory between the ranks of one node: a byte ring per ordered pair, and a doorbell (eventfd) per rank.
 *
 *  1. ft_shm_open(): the node's lowest rank makes anonymous memory (memfd) and the doorbells and hands them to the others over an
 *     abstract unix socket whose random name it leaves in the store. Nothing has a name in a file system: whoever dies whenever,
 *     nothing is left behind.
 *  2. ft_shm_push / peek / consume on rings: one writer and one reader each, no locks.
 *  3. Before sleeping a rank raises its flag (ft_shm_arm), looks once more, and polls its doorbell; whoever moved a ring of a
 *     rank whose flag is up rings.
 *
 * i, j: indices inside the node. Ring of (i, j): written by i, read by j. */
#ifndef FT_RUNTIME_COLL_SHM_H
#define FT_RUNTIME_COLL_SHM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct ft_store;
struct ft_shm;

/* ranks: the node's ranks, ascending; me: my index. */
enum ft_code ft_shm_open(struct ft_store *store, int node_rank, const int *ranks, int n, int me, int64_t deadline,
                         struct ft_shm **out, struct ft_err *err) FT_MUST_CHECK;
void ft_shm_close(struct ft_shm *s); /* NULL is fine */

size_t ft_shm_push(struct ft_shm *s, int j, const void *p, size_t n);
size_t ft_shm_peek(struct ft_shm *s, int i, const void **p);
void ft_shm_consume(struct ft_shm *s, int i, size_t n);
size_t ft_shm_available(const struct ft_shm *s, int i); /* bytes in the ring from i to me */
size_t ft_shm_room(const struct ft_shm *s, int j);      /* free bytes in the ring from me to j */

void ft_shm_arm(struct ft_shm *s);
void ft_shm_disarm(struct ft_shm *s);
int ft_shm_bell(const struct ft_shm *s); /* poll for POLLIN */

#endif
