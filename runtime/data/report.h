/* What is wrong with records, counted by kind. All are counted; the first `limit` are kept with their place, so that a set with
 * millions of faults needs no memory for them.
 *
 *  1. {.faults = f, .limit = 20} is empty    2. ft_report_add() in order of files and lines    3. ft_report_summary() */
#ifndef FT_RUNTIME_DATA_REPORT_H
#define FT_RUNTIME_DATA_REPORT_H

#include <stdint.h>

#include "base/fault.h"
#include "base/str.h"

enum ft_fault_kind {
    FT_KIND_JSON,
    FT_KIND_NOT_OBJECT,
    FT_KIND_DUPLICATE_KEY,
    FT_KIND_LINE_TOO_LONG,
    FT_KIND_UTF8,
    FT_KIND_MISSING_FIELD,
    FT_KIND_WRONG_TYPE,
    FT_KIND_EMPTY_OUTPUT,
    FT_KIND_NULL_OUTPUT,
    FT_KIND_EMPTY_PROMPT,
    FT_KIND_EMPTY_MESSAGES,
    FT_KIND_LAST_NOT_ASSISTANT,
    FT_KIND_UNKNOWN_ROLE,
    FT_KIND_NO_TRAINED_TURN,
    FT_KIND_OTHER_SHAPE,
    FT_KIND_TEMPLATE,
    FT_KIND_NO_SPAN,
    FT_KIND_NO_TERMINATOR,
    FT_KIND_DROPPED_CONTENT,
    FT_KIND_BAD_ID,
    FT_KIND_IDS_LABELS_LENGTH,
    FT_KIND_OVERLONG,
    FT_KIND_SPECIAL_TOKEN,
    FT_KIND_FILE,
    FT_N_KINDS
};
const char *ft_fault_kind_name(enum ft_fault_kind kind);

enum { FT_REPORT_LIMIT = 20 };

struct ft_report {
    struct ft_faults *faults; /* the caller's; texts are "KIND: TEXT" */
    size_t limit;             /* faults kept; 0: FT_REPORT_LIMIT */
    int64_t n, by_kind[FT_N_KINDS];
    int64_t skip; /* records that may be left out: their faults become warnings */
    int64_t skipped;
};

/* One faulty record. file must live as long as faults' arena. Returns false when this fault makes the set unusable (more than skip). */
bool ft_report_add(struct ft_report *r, enum ft_fault_kind kind, const char *file, int64_t line, int64_t column, const char *fmt,
                   ...) FT_PRINTF(6, 7);
/* "3 faulty records (json 2, utf8 1)" */
void ft_report_summary(const struct ft_report *r, struct ft_buf *out);
/* Every fault as "FILE:LINE:COLUMN: KIND: TEXT", one a line, warnings with "warning: " before the kind. */
void ft_report_print(FILE *out, const struct ft_faults *f);

#endif
