/* One save on its way, shared by save.c (its parts, its threads, what the ranks agree on) and publish.c (rank 0's part). */
#ifndef FT_RUNTIME_CKPT_SAVE_H
#define FT_RUNTIME_CKPT_SAVE_H

#include <pthread.h>
#include <stdatomic.h>

#include "runtime/ckpt/state.h"

/* What a rank does between two agreements. */
enum ft_ckpt_part { FT_CKPT_WRITING, FT_CKPT_PUBLISHING /* rank 0 */ };

/* What goes to rank 0: one head per rank, then its items. */
struct ft_ckpt_wire_head {
    struct ft_ckpt_written file;
    int64_t n;
};
struct ft_ckpt_wire_item {
    int64_t model, slot, at[2], n[2], begin, bytes;
    uint32_t crc, pad;
};

struct ft_ckpt_save {
    struct ft_ckpt *c;
    struct ft_ckpt_scalars scalars; /* by value: the run goes on */
    bool best, beside;              /* beside: parts are done by a thread, and `items` are copies */
    struct ft_ckpt_item *items;
    size_t n_items;
    uint64_t *hashes; /* n_model * FT_CKPT_SLOTS */
    uint64_t nonfinite;
    size_t bad_item;
    uint64_t bad_element;
    char *tmp; /* path of the folder that is being written */
    struct ft_ckpt_written file;
    struct ft_buf all;    /* rank 0: the lists of all ranks */
    struct ft_manifest m; /* rank 0, for writing */
    struct ft_buf text;
    char *name; /* of the published folder */

    /* The present part. The thread that does it owns all of the above, and c->fio, until `ended`; then the main thread does. */
    enum ft_ckpt_part part;
    enum ft_code own; /* its result */
    struct ft_err err;
    pthread_t thread;
    bool threaded;
    atomic_bool ended;
    atomic_bool cancelled; /* by the main thread: nobody waits for it any more */
};

/* Steps 6 to 8 without the agreement, and retention: on rank 0, when the lists of all ranks are in `all`. */
enum ft_code ft_ckpt_publish(struct ft_ckpt_save *s, struct ft_err *err) FT_MUST_CHECK;

#endif
