/* Reads a split: files, lines, records, samples; every fault, count and remark. Only for files of this folder; the rest of the
 * runtime sees dataset.h. */
#ifndef FT_RUNTIME_DATA_LOADER_H
#define FT_RUNTIME_DATA_LOADER_H

#include "runtime/data/dataset.h"
#include "runtime/data/sampler.h"
#include "runtime/data/samples.h"
#include "runtime/data/statistics.h"

struct ft_loaded {
    struct ft_arena *arena;
    struct ft_samples samples;
    struct ft_dataset_facts facts;
    struct ft_sample_counts counts;
    const char **names, **paths; /* (n_files) */
    size_t n_files;
    enum ft_data_format *formats; /* (n_files) */
    const char **notes;
    size_t n_notes, notes_cap;
    int32_t *lengths; /* of every sample before overlong, for histograms */
    size_t n_lengths, lengths_cap;
    struct ft_statistics statistics;
    int64_t same_prompt;     /* records that ask what an earlier one asks, with another answer */
    int64_t prompt_too_long; /* overlong samples whose first trained token lies beyond seq_len */
    char *template_origin, *template_sha;
    bool template_generation;
    int32_t bos;
    bool wants_bos, terminator_is_stop;
};

/* Called for every good sample, in order, before overlong: for `show`. false: stop reading. */
typedef bool ft_sample_visitor(void *ctx, const char *path, int64_t line, const struct ft_ids *ids,
                               const struct ft_sample_view *view, const struct ft_sampler *s);

struct ft_load_how {
    const struct ft_dataset_options *o;
    enum ft_split split;
    struct ft_faults *faults;
    ft_sample_visitor *visit; /* NULL: none */
    void *ctx;
    bool check_overlap;
    bool statistics;       /* fills same_prompt (16 bytes a record more) and statistics */
    const char *files_dir; /* samples are written to files there (prepared.h); NULL: kept in memory */
    int *width_used;       /* with files_dir: bytes a token */
};

/* NULL files of the split: *named false and FT_OK. On an error out is empty but the faults stay. */
enum ft_code ft_load(const struct ft_load_how *how, bool *named, struct ft_loaded *out, struct ft_err *err) FT_MUST_CHECK;
void ft_loaded_fini(struct ft_loaded *l);
/* The shape that most of the first 100 records of a file have (format = auto); plain text and token ids are refused: never guessed. */
enum ft_code ft_peek_format(const struct ft_data_fields *fields, const char *path, enum ft_data_format *out,
                            struct ft_err *err) FT_MUST_CHECK;
const char *ft_split_name(enum ft_split split);

#endif
