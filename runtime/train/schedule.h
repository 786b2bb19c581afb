/* The learning rate of update k and the number of updates of a run: pure functions of values (runtime maths, section 10).
 * Updates count from k = 1, so the first one moves the weights. */
#ifndef FT_RUNTIME_TRAIN_SCHEDULE_H
#define FT_RUNTIME_TRAIN_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

enum ft_lr_style { FT_LR_CONSTANT, FT_LR_LINEAR, FT_LR_COSINE };

struct ft_schedule {
    enum ft_lr_style style;
    double hi, lo;  /* peak and floor; constant never goes to lo */
    int64_t warmup; /* W updates, the rate of update k <= W is hi*k/W */
    int64_t n;      /* N, all updates */
};

/* k <= W: hi*k/W. Then constant: hi; linear: lo+(hi-lo)(N-k)/(N-W); cosine: lo+(hi-lo)/2 (1+cos pi(k-W)/(N-W)); k >= N: lo. */
double ft_lr_at(const struct ft_schedule *s, int64_t k);

/* "3%" (a share of N, rounded up) or "100" (updates). ft_warmup_check is the rule of the field table. */
int64_t ft_warmup_updates(const char *text, int64_t n);
bool ft_warmup_check(const char *text, struct ft_buf *why);

/* Updates in `epochs` passes over n_rows rows, global_batch rows each; the last of a pass takes what is left. */
int64_t ft_updates_of_epochs(int64_t epochs, int64_t n_rows, int64_t global_batch);

#endif
