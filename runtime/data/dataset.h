/* Rows to train on: ids and labels, in the order of an epoch. How they came to be (formats, templates, masks) is behind this.
 *
 *  1. ft_dataset_open()   reads, checks and tokenises everything [data] names; ALL faults of the records are reported
 *  2. ft_dataset_epoch()  puts the rows into the order of an epoch (train); without it they stand in file order (evaluation)
 *  3. ft_dataset_n_rows(), ft_dataset_row()
 *  4. ft_dataset_close()
 * Between two calls of ft_dataset_epoch() it does not change; many threads may read. */
#ifndef FT_RUNTIME_DATA_DATASET_H
#define FT_RUNTIME_DATA_DATASET_H

#include "base/fault.h"
#include "runtime/data/data_fields.h"

struct ft_dataset;

/* One row: n segments (samples) one after another; one segment unless packed. Pointers live until
 * FT_ROWS_ALIVE further rows were asked for or ft_dataset_epoch() is called: copy what is needed at once. */
enum { FT_ROWS_ALIVE = 64 };
struct ft_row {
    int64_t n_tokens;
    const int32_t *ids;    /* (n_tokens) */
    const int32_t *labels; /* (n_tokens) label at the token's own place; -100: not trained; first token of a segment: -100 */
    int64_t n_segments;
    const int32_t *cu_seqlens; /* (n_segments+1) */
    int64_t n_trained;         /* labels != -100 */
};

enum ft_split { FT_SPLIT_TRAIN, FT_SPLIT_VALID, FT_SPLIT_GENERAL };

struct ft_dataset_options {
    const struct ft_data_fields *fields;
    const char *model_dir; /* tokenizer.json, tokenizer_config.json, generation_config.json, config.json */
    int64_t vocab_rows;    /* rows of the embedding; ids must be below; 0: not known (read config.json) */
    int64_t seq_len;       /* resolved */
    uint64_t seed;
    size_t max_faults;     /* faults of records that are kept (all are counted); 0: 20 */
    const char *cache_dir; /* prepared data are kept there; NULL: [data] cache, and without that key in memory only */
};

/* Opens the split; a split that [data] does not name gives *out = NULL and FT_OK. Faults of records go to faults (printed by the
 * caller as FILE:LINE:COLUMN: kind: text); with any that is not allowed the code is FT_DATA. */
enum ft_code ft_dataset_open(const struct ft_dataset_options *o, enum ft_split split, struct ft_faults *faults,
                             struct ft_dataset **out, struct ft_err *err) FT_MUST_CHECK;
void ft_dataset_close(struct ft_dataset *d);

/* Rows in the order of epoch e (from 0): keyed permutation of (seed, e) unless shuffle = no; with packing also which samples share a
 * row. A function of (data, seed, e, seq_len) only. Rows handed out before are gone. */
void ft_dataset_epoch(struct ft_dataset *d, int64_t epoch);
/* Rows that epoch e has (the same for every e without packing), without changing anything. */
int64_t ft_dataset_rows_of(const struct ft_dataset *d, int64_t epoch);

int64_t ft_dataset_n_rows(const struct ft_dataset *d);
struct ft_row ft_dataset_row(const struct ft_dataset *d, int64_t i);
/* Which file (index into names) row i came from: several files of valid are reported one by one (rows never mix files there). */
int ft_dataset_row_file(const struct ft_dataset *d, int64_t i);
size_t ft_dataset_n_files(const struct ft_dataset *d);
const char *ft_dataset_file_name(const struct ft_dataset *d,
                                 size_t file); /* "valid" part of valid/NAME: base name without ending */

/* Totals of the split (all rows once). */
struct ft_dataset_facts {
    int64_t records; /* JSON objects read (blank lines are not records) */
    int64_t kept;    /* samples that stayed */
    int64_t faulty;  /* left out by bad_records = skip:N */
    int64_t duplicates, overlong, truncated, tokens_lost, untrained, blank;
    int64_t samples, rows, tokens, trained_tokens, longest;
    uint64_t fingerprint_hi, fingerprint_lo; /* key of the prepared data */
    int terminator_id;                       /* trained turn terminator; -1: none or not known (format = tokens) */
    char terminator[64];
};
struct ft_dataset_facts ft_dataset_facts(const struct ft_dataset *d);

/* Remarks that a user should see once (sentences, no final stop); valid as long as the data set. */
size_t ft_dataset_n_notes(const struct ft_dataset *d);
const char *ft_dataset_note(const struct ft_dataset *d, size_t i);

/* Order of epoch e: perm (n) receives the keyed permutation of 0..n-1 (runtime maths, section 13); shuffle off: identity. */
void ft_epoch_order(uint64_t seed, int64_t epoch, bool shuffle, int64_t n, int64_t *perm);

#endif
