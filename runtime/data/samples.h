/* Samples of one split: ids and labels one after another, one index entry a sample. In memory, or (prepared data) in files that are
 * written once and then mapped: tokens.bin (u16 or u32), spans.bin (trained ranges), index.bin. */
#ifndef FT_RUNTIME_DATA_SAMPLES_H
#define FT_RUNTIME_DATA_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"

enum { FT_NOT_TRAINED = -100 };

struct ft_sample {   /* an entry of index.bin, little endian */
    int64_t at;      /* first token */
    int32_t n;       /* tokens */
    int32_t trained; /* labels that are not -100 */
    int64_t line;
    int32_t file;
    int32_t n_spans; /* in files: trained ranges of equal id and label */
    int64_t span_at; /* first of them in spans.bin */
};

struct ft_trained_span { /* an entry of spans.bin: tokens [begin, end) of the sample */
    uint32_t begin, end;
};

/* {0} is empty, in memory; ft_samples_fini() frees. */
struct ft_samples {
    int32_t *ids, *labels; /* (n_tokens) in memory; NULL in files */
    size_t n_tokens, ids_cap, labels_cap;
    struct ft_sample *v;
    size_t n, cap;
    int64_t trained, longest;
    struct ft_hash128 hash;        /* of all ids, labels and lengths so far */
    struct ft_sample_files *files; /* NULL: in memory */
};

void ft_samples_fini(struct ft_samples *s);
/* Copies n ids and labels; the first label becomes -100 (the first token of a sample is never a target). Returns trained tokens. */
int32_t ft_samples_add(struct ft_samples *s, const int32_t *ids, int32_t *labels, int32_t n, int32_t file, int64_t line);
/* Sample i into ids and labels (n each). */
void ft_samples_read(const struct ft_samples *s, size_t i, int32_t *ids, int32_t *labels);

/* From now on samples go to new files in dir (s is empty). width: 2 or 4 bytes a token. */
enum ft_code ft_samples_to_files(struct ft_samples *s, const char *dir, int width, struct ft_err *err) FT_MUST_CHECK;
/* All written, on disk. */
enum ft_code ft_samples_finish_files(struct ft_samples *s, struct ft_err *err) FT_MUST_CHECK;
/* Maps the files of dir (n, tokens and width as they were when written; sizes are checked). */
enum ft_code ft_samples_map(struct ft_samples *s, const char *dir, int width, struct ft_err *err) FT_MUST_CHECK;

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
