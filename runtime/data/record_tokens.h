/* A record of `format = tokens`: {"input_ids", "labels"?, "attention_mask"?}. */
#ifndef FT_RUNTIME_DATA_RECORD_TOKENS_H
#define FT_RUNTIME_DATA_RECORD_TOKENS_H

#include "runtime/data/jsonl.h"

/* Growable ids and labels of one sample, reused from record to record. */
struct ft_ids {
    int32_t *ids, *labels;
    size_t n, ids_cap, labels_cap;
};
void ft_ids_fini(struct ft_ids *s);
void ft_ids_add(struct ft_ids *s, int32_t id, int32_t label);

/* Fills s (replaced); false with the fault. vocab_rows 0: not known. Padding (attention_mask 0 at either end) is cut off. */
bool ft_record_tokens(const struct ft_line *line, const struct ft_json *record, int64_t vocab_rows, bool train_all,
                      struct ft_ids *s, struct ft_line_fault *fault);

#endif
