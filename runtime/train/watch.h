/* What is looked at while training runs: gradient spikes, divergence, and what a job should be warned about before it starts
 * (Fine-tuning methods, section 10). Pure: the caller prints and stops. */
#ifndef FT_RUNTIME_TRAIN_WATCH_H
#define FT_RUNTIME_TRAIN_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum { FT_WATCH_N = 50, FT_WATCH_WINDOW = 20, FT_WATCH_WINDOWS = 3 };

/* Kept in checkpoints. {0} is a fresh start. */
struct ft_watch {
    double loss1;                                 /* loss of update 1 */
    double best20;                                /* smallest mean of 20 updates */
    int above;                                    /* windows of 20 updates in a row whose mean is > 1.5 best20 */
    int64_t n;                                    /* updates seen */
    int64_t last_spike;                           /* update of the last spike that was reported; 0: none */
    double losses[FT_WATCH_N], norms[FT_WATCH_N]; /* rings: update k stands at (k-1) % 50 */
};

enum ft_watch_event { FT_WATCH_NONE = 0, FT_WATCH_SPIKE = 1, FT_WATCH_DIVERGED = 2 };
/* After update n+1: a set of events; why receives a sentence each (a line per event). */
unsigned ft_watch_update(struct ft_watch *w, double loss, double norm, double lr, struct ft_buf *why);
/* Mean of the last 20 losses; NaN before update 20. */
double ft_watch_mean20(const struct ft_watch *w);

struct ft_watch_start {
    bool adapters; /* LoRA, QLoRA */
    double lr;
    int64_t warmup, n_updates, epochs, records; /* epochs 0: given by steps */
};
/* Sentences to warn with before update 1, one a line, appended to out, each behind the key of [train] it is about ("lr: …"); returns
 * their number. */
size_t ft_watch_before_start(const struct ft_watch_start *s, struct ft_buf *out);

/* Evaluation: what is best, when to stop (runtime maths, section 15). Kept in checkpoints. */
struct ft_best {
    double best;       /* meaningful when best_step > 0 */
    int64_t best_step; /* 0: none yet */
    int64_t bad;       /* evaluations running that were not better */
    int64_t count;     /* evaluations */
    double general0;   /* loss of the general set before update 1; 0 with has_general false */
    bool has_general;
    int64_t general_bad;
};
/* The value before update 1 is only counted. true: v is finite and v < best - min_delta: the new best. */
bool ft_best_judge(struct ft_best *b, double v, int64_t step, double min_delta);
bool ft_best_stops(const struct ft_best *b, int64_t patience);
/* The general set: true when v rose by more than limit over its value before update 1. */
bool ft_best_general(struct ft_best *b, double v, int64_t step, double limit);

#endif
