/* The inside of a trainer, shared by its files: prepare.c, trainer.c (life and loop), update.c (one update), evaluation.c,
 * saving.c. */
#ifndef FT_RUNTIME_TRAIN_TRAINER_STATE_H
#define FT_RUNTIME_TRAIN_TRAINER_STATE_H

#include "runtime/train/batch.h"
#include "runtime/train/gradsync.h"
#include "runtime/train/metrics.h"
#include "runtime/train/optimizer.h"
#include "runtime/train/pipeline.h"
#include "runtime/train/trainer.h"
#include "runtime/train/watch.h"

struct ft_trainer {
    struct ft_trainer_options o;
    struct ft_setup *s;
    struct ft_model *model;
    struct ft_pipeline pipeline;
    void *weights; /* pools, from the device: buckets.total elements of the compute type */
    float *grads;
    float *master, *m, *v; /* state_total each; master NULL in fp32 */
    float *staging;        /* for saves while training goes on: room for master, m and v; NULL: saves wait */
    int64_t *offsets;      /* of the parameters in the pools */
    struct ft_gradsync sync;
    struct ft_optimizer optim;
    struct ft_batcher batch;
    struct ft_position at;
    int64_t k, skipped; /* applied updates; updates without a target */
    int64_t skipped_running;
    struct {
        int64_t samples, tokens, trained; /* since the start of the run */
    } total;
    struct ft_saving *saving; /* NULL: nothing is saved */
    struct ft_watch watch;
    struct ft_best judge;
    bool best_is_now;                /* the weights are those of the best evaluation */
    int64_t evaluated_at;            /* step of the last evaluation; -1: none */
    struct ft_metrics metrics;       /* rank 0 */
    int64_t memory_before, mem_plan; /* resident bytes at the start; planned ones of the worst rank */
    double ckpt_ms;                  /* spent on saves since the last line of metrics */
    bool resumed;                    /* from a checkpoint: what came before update 1 is not done again */
};

/* What one update did. */
struct ft_update_done {
    bool skipped; /* no target in its rows: nothing was applied */
    bool term;    /* some rank was asked to end */
    bool save;    /* rank 0 says that a checkpoint is due */
    bool written; /* no rank works on the save that is on its way, if there is one */
    double loss, norm, coef, lr;
    int64_t rows, tokens, trained, samples;
    double sum_len2; /* of its samples */
    double step_ms, data_ms, comm_ms;
    int64_t mem;
};

/* Model, pools and the weights of the folder: this rank's own pieces, the rest is not yet gathered. No collective. */
enum ft_code ft_trainer_prepare(struct ft_trainer *t, struct ft_err *err) FT_MUST_CHECK;
/* The first start of a run with packing proves on its model and device that packing changes nothing. Result: RUN_DIR/packing.json */
enum ft_code ft_trainer_test_packing(struct ft_trainer *t, struct ft_err *err) FT_MUST_CHECK;

/* The next update of this rank's part of the rows. FT_END_WATCH in *end and an error when loss or norm is not finite: nothing was
 * applied then. */
enum ft_code ft_trainer_update(struct ft_trainer *t, struct ft_update_done *u, enum ft_train_end *end,
                               struct ft_err *err) FT_MUST_CHECK;

/* Evaluates valid and general at the present weights, writes and prints the lines, judges. *stop: patience is at its end; *best: this
 * is the best so far. */
enum ft_code ft_trainer_evaluate(struct ft_trainer *t, bool *stop, bool *best, struct ft_err *err) FT_MUST_CHECK;
/* The weights of the best evaluation come back from its checkpoint, when they are not the present ones. */
enum ft_code ft_trainer_restore_best(struct ft_trainer *t, struct ft_err *err) FT_MUST_CHECK;

/* The launcher's sign of life, one a line: the number of an update, or with "saved " that of a published checkpoint. */
void ft_trainer_tell(const struct ft_trainer *t, const char *what, int64_t step);

/* Losses are known on the last stage, and the same on all ranks of a tensor group: the first of them counts in sums over the world. */
static inline bool ft_trainer_counts(const struct ft_trainer *t)
{
    return t->s->options.tensor_rank == 0 && t->s->options.stage == t->s->options.pipeline - 1;
}

static inline bool ft_trainer_speaks(const struct ft_trainer *t) { return ft_comm_rank(t->o.comm, FT_GROUP_WORLD) == 0; }

#endif
