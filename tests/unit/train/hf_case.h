/* A case of golden/hf as a job: its folder, its batches as a tokens file, its optimizer as an INI file; and the comparison of what a
 * run left behind with the reference's numbers. */
#ifndef FT_TESTS_TRAIN_HF_CASE_H
#define FT_TESTS_TRAIN_HF_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

struct hf_case {
    const char *name; /* folder below golden/hf */
    char dir[256];    /* a temporary folder: job.ini, train.jsonl, metrics.jsonl, out/ */
    int rows, n_updates, T;
};

/* Makes the temporary folder. extra: further lines for job.ini, NULL: none. */
void hf_case_open(struct hf_case *c, const char *name, int micro, const char *extra);
void hf_case_close(struct hf_case *c); /* removes the folder */
void hf_case_path(const struct hf_case *c, const char *file, struct ft_buf *out);

/* Every update's loss and norm (1e-5 relative), lr (1e-12), tokens (exact); every final tensor (1e-4 of its norm). Appends what
 * differs to why; true when all agrees. */
bool hf_case_same(const struct hf_case *c, struct ft_buf *why);
/* The same for losses and norms of the updates only (what = none was exported). */
bool hf_case_same_updates(const struct hf_case *c, struct ft_buf *why);

void remove_tree(const char *dir);

#endif
