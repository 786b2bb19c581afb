/* One rank of a training run.
 *
 *  1. ft_trainer_create()  model, pools, weights of the folder, collective engine: everything before the first update
 *  2. ft_trainer_run()     updates: data_next -> forward and backward of the micro-batches -> gradsync_finish -> norm, clip ->
 *                          optimizer step at lr(k) -> gather -> metrics -> evaluation; then the export
 *  3. ft_trainer_destroy()
 * After every update replicas are bitwise equal on all ranks and weights, m and v are finite (checked in debug builds). All ranks
 * make the same collectives in the same order. One thread. */
#ifndef FT_RUNTIME_TRAIN_TRAINER_H
#define FT_RUNTIME_TRAIN_TRAINER_H

#include "runtime/coll/comm.h"
#include "runtime/device/device.h"
#include "runtime/train/setup.h"
#include "topology/place.h"

struct ft_trainer;

struct ft_trainer_options {
    struct ft_setup *setup; /* all three steps done, without errors; outlives the trainer */
    const struct ft_place *place;
    struct ft_comm *comm; /* the mesh's groups */
    struct ft_device *device;
    int term_fd; /* readable once somebody asked this rank to end (SIGTERM); -1: nobody can */
    bool quiet;  /* no lines for people */
};

enum ft_train_end {
    FT_END_DONE,       /* all updates, or the run stopped early as asked */
    FT_END_TERMINATED, /* asked to end: the update was finished */
    FT_END_WATCH       /* a watch stopped it: trying again would end the same way */
};

enum ft_code ft_trainer_create(const struct ft_trainer_options *o, struct ft_trainer **out, struct ft_err *err) FT_MUST_CHECK;
/* *end is set also on failure. FT_END_WATCH comes with an error that says why. */
enum ft_code ft_trainer_run(struct ft_trainer *t, enum ft_train_end *end, struct ft_err *err) FT_MUST_CHECK;
void ft_trainer_destroy(struct ft_trainer *t); /* NULL is fine */
/* Updates applied so far: an error before the first is a refusal. */
int64_t ft_trainer_step(const struct ft_trainer *t);

/* All ranks learn whether one of them failed; every rank must call it with its own code (err: its own error). Returns own when this
 * rank is the first that failed: it speaks. FT_RANK_FAILED on all others: they end because a peer ended. */
enum ft_code ft_agree(struct ft_comm *comm, enum ft_code own, struct ft_err *err) FT_MUST_CHECK;

#endif
