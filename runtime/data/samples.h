/* Samples of one split in memory: ids and labels one after another, one index entry a sample. */
#ifndef FT_RUNTIME_DATA_SAMPLES_H
#define FT_RUNTIME_DATA_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

enum { FT_NOT_TRAINED = -100 };

struct ft_sample {
    int64_t at;      /* first token in ids and labels */
    int32_t n;       /* tokens */
    int32_t trained; /* labels that are not -100 */
    int32_t file;
    int64_t line;
};

/* {0} is empty; ft_samples_fini() frees. */
struct ft_samples {
    int32_t *ids, *labels; /* (n_tokens) */
    size_t n_tokens, ids_cap, labels_cap;
    struct ft_sample *v;
    size_t n, cap;
    int64_t trained, longest;
    struct ft_hash128 hash; /* of all ids, labels and lengths so far */
};

void ft_samples_fini(struct ft_samples *s);
/* Copies n ids and labels; the first label becomes -100 (the first token of a sample is never a target). Returns trained tokens. */
int32_t ft_samples_add(struct ft_samples *s, const int32_t *ids, const int32_t *labels, int32_t n, int32_t file, int64_t line);

/* Chains p into h: xxh3-128 over (h, xxh3-128(p)). */
struct ft_hash128 ft_hash_chain(struct ft_hash128 h, const void *p, size_t n);

/* A set of 128-bit keys. {0} is empty. */
struct ft_keyset {
    struct ft_hash128 *v;
    size_t n, cap;
};
void ft_keyset_fini(struct ft_keyset *k);
bool ft_keyset_add(struct ft_keyset *k, struct ft_hash128 key); /* false: was there already */
bool ft_keyset_has(const struct ft_keyset *k, struct ft_hash128 key);

#endif
