/* Proof on the real model that packing is invisible (Hermes 2024, trl#1230: a broken mask does not show in the loss curve): the
 * losses of every token of a few short samples alone, packed, and packed in another order must agree; with the borders taken away
 * they must not, else the test would prove nothing. Evaluation only: nothing of the run changes. All ranks of a pipeline take part and
 * get the same result. */
#ifndef FT_RUNTIME_TRAIN_SELFTEST_H
#define FT_RUNTIME_TRAIN_SELFTEST_H

#include <stdbool.h>

#include "runtime/train/pipeline.h"

enum { FT_SELFTEST_SAMPLES = 4 };

struct ft_sample {
    const int32_t *ids;
    int64_t n; /* >= 2 */
};

struct ft_selftest {
    double packed, reordered; /* largest difference of a token's loss from the sample alone */
    double control;           /* the same with the borders taken away */
    bool proves;              /* control > 1e-2 */
};

/* n of 2 to FT_SELFTEST_SAMPLES samples that fit the model's max_tokens together. FT_DATA: packing changes losses by more than tol. */
enum ft_code ft_packing_selftest(const struct ft_pipeline *m, const struct ft_sample *samples, size_t n, double tol,
                                 struct ft_selftest *out, struct ft_err *err) FT_MUST_CHECK;

#endif
