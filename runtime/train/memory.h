/* The memory of one rank: what `plan` prints and what the trainer allocates are the same numbers (runtime maths, section 16). */
#ifndef FT_RUNTIME_TRAIN_MEMORY_H
#define FT_RUNTIME_TRAIN_MEMORY_H

#include "base/bits/dtype.h"
#include "base/json.h"
#include "runtime/nn/model.h"
#include "runtime/train/buckets.h"

struct ft_memory {
    int64_t weights, gradients, master, moments; /* pools; moments: m and v */
    int64_t activations, logits, buffers;        /* of the model */
    int64_t staging;                             /* copy that a save is written from while training goes on */
    int64_t library;                             /* constant: code, BLAS, thread stacks */
};

struct ft_memory ft_memory_plan(const struct ft_buckets *b, const struct ft_model_options *o);
int64_t ft_memory_total(const struct ft_memory *m);
void ft_memory_write_json(const struct ft_memory *m, struct ft_jw *w); /* {"weights":…, …} as interface "plan --json" */

/* Buckets of rows as a data rank of d holds them. */
struct ft_buckets ft_memory_buckets(const struct ft_param *rows, size_t n, int data, int rank, struct ft_arena *arena);

/* Memory of this machine that a new process may still take: MemAvailable, or less where a control group says so. 0: not known. */
int64_t ft_memory_available(void);
/* Resident bytes of this process now, and their peak. */
int64_t ft_memory_resident(void);
int64_t ft_memory_peak(void);

/* "36.1 GB", "812 MB": decimal, three digits. */
void ft_bytes_text(int64_t bytes, struct ft_buf *out);

#endif
