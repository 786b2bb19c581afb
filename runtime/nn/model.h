/* A model on one rank: rows of parameters, activations, forward and backward of micro-batches. Knows nothing of optimizers,
 * data files or processes. fp32 and bf16 working types are its business; gradients are fp32.
 *
 *  1. ft_model_config_read()      config.json -> values (runtime/arch/config.h)
 *  2. ft_model_create()           rows, activation memory for max_tokens, from the device
 *  3. ft_model_bind()             working weights and gradients live in the caller's pools (laid out by runtime/train/buckets.h)
 *  4. per micro-batch             ft_model_forward_backward() adds to the gradients; ft_model_evaluate() touches none.
 *                                 A model that is cut into stages: the ft_model_stage_ calls, in the order of a pipeline's schedule
 *  5. ft_model_destroy()
 * Threads: one caller at a time; inside, the kernels' own workers. Results never depend on the number of workers. */
#ifndef FT_RUNTIME_NN_MODEL_H
#define FT_RUNTIME_NN_MODEL_H

#include "base/bits/dtype.h"
#include "base/err.h"
#include "runtime/nn/param.h"

struct ft_model;
struct ft_model_config;
struct ft_device;
struct ft_comm;
struct ft_arena;

/* A micro-batch: its rows one after another, no pads. Owner: the caller, unchanged during the call. */
struct ft_batch {
    int64_t T;                /* tokens */
    const int32_t *ids;       /* (T) */
    const int32_t *positions; /* (T) restart at 0 in each segment */
    const int32_t *targets;   /* (T) id to be predicted AT this position (already shifted); -100: none */
    int64_t n_segments;
    const int32_t *cu_seqlens; /* (n_segments+1) first 0, last T: attention never crosses a border */
    const int64_t *rows;       /* (n_segments) row number since the start of the run, for dropout; NULL: no dropout */
    const int32_t *row_offset; /* (n_segments) first token's index inside its row; NULL: 0 */
};

struct ft_model_options {
    const struct ft_model_config *config; /* must outlive the model */
    struct ft_device *device;             /* runtime/device/device.h: op table, threads or stream, memory; must outlive the model */
    struct ft_comm *comm;                 /* tensor and pipeline groups; NULL: one rank */
    int tensor, tensor_rank, pipeline, stage;
    int chunks;                 /* of layers on each stage (interleaved: chunk c is virtual stage c*pipeline + stage); 0: one */
    int64_t micro_batches;      /* of an update: how many of them a stage keeps at once (runtime maths, section 7); 0: one */
    bool sequence;              /* outside of the linears a tensor rank has its part of the tokens (runtime maths, section 6) */
    enum ft_dtype compute;      /* FT_F32 or FT_BF16 */
    int recompute;              /* 0 off, 1 selective, 2 full */
    int64_t max_tokens;         /* micro_batch * seq_len */
    int64_t seq_len;            /* longest row; S of attention dropout, length of the RoPE tables */
    int64_t logits_chunk_bytes; /* <= this many bytes of logits at once; 0: 256 MiB */
    uint64_t seed;              /* dropout */
};

enum ft_code ft_model_create(const struct ft_model_options *o, struct ft_model **out, struct ft_err *err) FT_MUST_CHECK;
void ft_model_destroy(struct ft_model *m);
const struct ft_param *ft_model_params(const struct ft_model *m, size_t *n);
/* The rows that a model of these options has, in a. Needs neither device nor weights. */
const struct ft_param *ft_model_rows(const struct ft_model_options *o, struct ft_arena *a, size_t *n);

/* weights: pool of the compute type, grads: pool of fp32 (may be NULL: frozen/evaluation only); offsets[i]: element index of
 * parameter i in both pools. */
void ft_model_bind(struct ft_model *m, void *weights, float *grads, const int64_t *offsets);

/* ce_sum: sum of cross-entropies (nats) over the targets of this micro-batch, fp64, not scaled. Gradients of
 * scale * ce_sum are ADDED to the bound gradient pool. No targets: exact zeros, every collective still made. */
enum ft_code ft_model_forward_backward(struct ft_model *m, const struct ft_batch *b, double scale, double *ce_sum,
                                       struct ft_err *err) FT_MUST_CHECK;
/* token_loss (T) may be NULL; 0 where there is no target. No dropout. */
enum ft_code ft_model_evaluate(struct ft_model *m, const struct ft_batch *b, double *ce_sum, float *token_loss,
                               struct ft_err *err) FT_MUST_CHECK;
/* ---- one stage of a pipeline (runtime maths, section 7); with pipeline = 1 the whole model ----
 * A micro-batch lives in a slot from its forward to its backward, once for each chunk that it is in. Messages between stages are (T,h) in
 * the compute type (with sequence: of this rank's tokens only), of as many bytes as both ends find in the batch: shapes are never sent.
 * Pointers belong to the model. */
int ft_model_live(const struct ft_model *m); /* number of slots */
/* 0 for a batch without targets, nothing is computed for it on any stage, and where this rank has none of its tokens (sequence). */
int64_t ft_model_stage_bytes(const struct ft_model *m, const struct ft_batch *b);
void *ft_model_stage_input(const struct ft_model *m, int slot); /* what the stage before computed goes here before the forward */
const void *ft_model_stage_output(const struct ft_model *m);    /* after a forward, until the next: what the stage behind needs */
/* Gradient of the output before a backward (the last stage's forward leaves it here itself), of the input behind it. */
void *ft_model_stage_gradient(const struct ft_model *m);
/* With chunks > 1 the gradient of the next backward may come here while the other one is sent; the turn changes their places. */
void *ft_model_stage_gradient_next(const struct ft_model *m);
void ft_model_stage_turn(struct ft_model *m);
/* ce_sum: as above on the last chunk of the last stage, 0 elsewhere. scale: of the gradients. */
enum ft_code ft_model_stage_forward(struct ft_model *m, const struct ft_batch *b, int chunk, int slot, double scale, double *ce_sum,
                                    struct ft_err *err) FT_MUST_CHECK;
/* The one of the last chunk of the last stage comes right behind its forward of the same batch. */
enum ft_code ft_model_stage_backward(struct ft_model *m, const struct ft_batch *b, int chunk, int slot,
                                     struct ft_err *err) FT_MUST_CHECK;
/* Forward in slot 0 without dropout and gradients; token_loss as above, on the last stage. */
enum ft_code ft_model_stage_evaluate(struct ft_model *m, const struct ft_batch *b, int chunk, double *ce_sum, float *token_loss,
                                     struct ft_err *err) FT_MUST_CHECK;

/* All logits (T, V) fp32, for tests and small models. */
enum ft_code ft_model_logits(struct ft_model *m, const struct ft_batch *b, float *logits, struct ft_err *err) FT_MUST_CHECK;

/* Bytes of the memory that ft_model_create allocates for these options, by part: plan and allocation are this one function. Needs
 * neither device nor weights (o->device may be NULL). */
struct ft_model_memory {
    int64_t activations; /* kept per layer and live micro-batch */
    int64_t logits;      /* one chunk */
    int64_t buffers;     /* gradients of one layer, stage messages, recomputed tensors, tables, workspaces */
};
struct ft_model_memory ft_model_memory(const struct ft_model_options *o);

#endif
