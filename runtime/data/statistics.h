/* What a set looks like: patterns of roles, how prompts and answers begin, whether one prompt pattern rules. For `data check`. */
#ifndef FT_RUNTIME_DATA_STATISTICS_H
#define FT_RUNTIME_DATA_STATISTICS_H

#include "runtime/data/record.h"
#include "runtime/data/tally.h"

struct ft_statistics {                            /* {0} is empty */
    struct ft_tally patterns;                     /* "system user assistant", "tools: user call tool assistant" */
    struct ft_tally prompts;                      /* the last user's text with digits and quoted parts masked */
    struct ft_tally prompt_starts, answer_starts; /* first four words */
};
void ft_statistics_add(struct ft_statistics *s, struct ft_convo *c);
void ft_statistics_fini(struct ft_statistics *s);
/* Sentences: warnings about rare patterns and a ruling prompt, remarks about diversity. */
void ft_statistics_notes(const struct ft_statistics *s, void (*note)(void *ctx, const char *text), void *ctx);

#endif
