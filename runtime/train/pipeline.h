/* Micro-batches through the stages of a pipeline: the schedule, a pure function, and what carries it out. One forward, one backward
 * (1F1B: Narayanan et al. 2021; order as in Megatron-LM): stage i runs w = min(p-1-i, m) forwards, then m-w pairs of a forward and a
 * backward, then w backwards, so it never keeps more than min(p-i, m) micro-batches. p = 1 is the plain loop.
 *
 * With v > 1 chunks of layers on each stage (interleaved) chunk c of stage i is virtual stage c*p + i; micro-batches go in groups of p
 * through all chunks, w = min(2(p-1-i) + (v-1)p, m v).
 *
 * Between stages go activations (forward) and their gradients (backward), tagged with way, chunk and micro-batch; with p = 2 the next
 * and the previous stage are the same rank. What leaves is under way together with what the next action waits for. */
#ifndef FT_RUNTIME_TRAIN_PIPELINE_H
#define FT_RUNTIME_TRAIN_PIPELINE_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "runtime/nn/model.h"

/* ---- the schedule ---- */

enum ft_pass { FT_PASS_FORWARD, FT_PASS_BACKWARD };

struct ft_action {
    enum ft_pass pass;
    int chunk;     /* 0 … v-1 */
    int64_t micro; /* 0 … m-1 */
};

struct ft_pipeline_schedule {
    const struct ft_action *actions; /* 2 m v of them, in order */
    size_t n;
    int64_t warmup; /* forwards before the first pair */
    int64_t peak;   /* most micro-batches kept at once, each with the layers of one chunk */
};

/* 0 <= stage < stages, m >= 1; chunks > 1: m is a multiple of stages, or 1. The list lives in the arena. */
struct ft_pipeline_schedule ft_pipeline_schedule(int stages, int stage, int chunks, int64_t m, struct ft_arena *a);
/* Idle share of a stage's working time, (p-1)/(v m). */
double ft_pipeline_bubble(int stages, int chunks, int64_t m);
/* "F0 F1 B0 F2 B1 B2"; with chunks "F0.0 F1.0 F0.1", micro-batch and chunk */
void ft_pipeline_print(const struct ft_pipeline_schedule *s, struct ft_buf *out);

/* ---- carrying it out ---- */

struct ft_pipeline {
    struct ft_model *model;
    struct ft_comm *comm; /* the stages are FT_GROUP_PP; NULL: one stage */
    int stage, stages, chunks;
};

/* Where micro-batches come from: the same on every stage, since shapes are never sent. Asked for before each pass of it; with
 * chunks once more before its messages. */
struct ft_micro_batches {
    struct ft_batch (*get)(void *ctx, int64_t micro); /* valid until the next call */
    void *ctx;
    int64_t first, n; /* micro-batches [first, first+n) */
};

/* Gradients of scale * cross-entropy are added to the model's pool. *ce_sum: over the micro-batches, on the last stage; 0 on the
 * others. */
enum ft_code ft_pipeline_train(const struct ft_pipeline *p, const struct ft_micro_batches *b, double scale, double *ce_sum,
                               struct ft_err *err) FT_MUST_CHECK;
/* Forward of one batch, no dropout. ce_sum and token_loss (T, may be NULL): on the last stage, 0 on the others. */
enum ft_code ft_pipeline_evaluate(const struct ft_pipeline *p, const struct ft_batch *b, double *ce_sum, float *token_loss,
                                  struct ft_err *err) FT_MUST_CHECK;

#endif
