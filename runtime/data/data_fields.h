/* The [data] section of a job: every key of it, as plain values. The table behind it (ft_data_section) parses, documents and
 * refuses; nobody else knows the names. What the keys mean: docs of `ftlaunch data`, "Keys". */
#ifndef FT_RUNTIME_DATA_DATA_FIELDS_H
#define FT_RUNTIME_DATA_DATA_FIELDS_H

#include "base/field.h"

enum ft_data_format {
    FT_FORMAT_AUTO,
    FT_FORMAT_MESSAGES,
    FT_FORMAT_SHAREGPT,
    FT_FORMAT_ALPACA,
    FT_FORMAT_IO,
    FT_FORMAT_PROMPT,
    FT_FORMAT_TEXT,
    FT_FORMAT_TOKENS,
    FT_FORMAT_TRANSCRIPT
};
enum ft_train_on { FT_TRAIN_ON_ASSISTANT, FT_TRAIN_ON_LAST, FT_TRAIN_ON_ALL };
enum ft_boundary { FT_BOUNDARY_AUTO, FT_BOUNDARY_SPLIT, FT_BOUNDARY_JOINT };
enum ft_special { FT_SPECIAL_TEXT, FT_SPECIAL_PARSE };
enum ft_overlong { FT_OVERLONG_DROP, FT_OVERLONG_TRUNCATE, FT_OVERLONG_REFUSE };
enum ft_packing { FT_PACKING_YES, FT_PACKING_NO, FT_PACKING_SPLIT };
enum ft_dedupe { FT_DEDUPE_EXACT, FT_DEDUPE_REPORT, FT_DEDUPE_NO };
enum ft_overlap { FT_OVERLAP_REFUSE, FT_OVERLAP_ALLOW };

/* seq_len when the file says "auto": 2048, or the model's limit when that is smaller (resolved by who knows the model). */
enum { FT_SEQ_LEN_AUTO = -1, FT_SEQ_LEN_DEFAULT = 2048 };

struct ft_data_fields {
    struct ft_list train, valid, general; /* paths and globs; valid may be one share ("2%") */
    struct ft_list weights;               /* one per train entry; empty: all 1 */
    int format;                           /* enum ft_data_format */
    struct ft_list columns, roles;        /* "prompt:question" */
    const char *prompts;                  /* file of patterns; NULL */
    const char *bad_records;              /* "refuse" or "skip:N" */
    const char *template_;                /* "auto", "none", a PATH or a NAME */
    struct ft_list template_vars;         /* "enable_thinking:no" */
    const char *template_date;            /* "YYYY-MM-DD"; NULL: a template that asks for the date is refused */
    int64_t seq_len;                      /* tokens, or FT_SEQ_LEN_AUTO */
    int packing, train_on, boundary, special, overlong, dedupe, overlap;
    const char *terminator; /* "auto", "none" or a token */
    bool shuffle;
    const char *cache; /* folder; NULL: data-cache in the run folder */
};

extern const struct ft_section ft_data_section;

/* What no single value tells: keys that have no effect with the format (warnings), a share beside files, a name given twice, no template
 * for conversations. values: as ft_section_read() filled them (one per field). */
void ft_data_fields_check(const struct ft_data_fields *f, const struct ft_value *values, struct ft_faults *faults);

/* N of "skip:N"; 0 for "refuse" (the field's own check has seen the text). */
int64_t ft_data_skip(const struct ft_data_fields *f);
/* weights = 1, 0.25: one per file of train, not all 0. *out: n_files numbers (the caller frees), NULL when the key is not given. */
enum ft_code ft_data_weights(const struct ft_data_fields *f, size_t n_files, double **out, struct ft_err *err) FT_MUST_CHECK;
/* The share of "valid = 2%", 0 when valid names files. */
double ft_data_valid_share(const struct ft_data_fields *f);

#endif
