/* The inside of the trainer's side of checkpoints, shared by saving.c (life) and saving_run.c (what the run is). */
#ifndef FT_RUNTIME_TRAIN_SAVING_STATE_H
#define FT_RUNTIME_TRAIN_SAVING_STATE_H

#include "runtime/ckpt/ckpt.h"
#include "runtime/train/saving.h"
#include "runtime/train/trainer_state.h"

enum { FT_SAVING_MATHS = 40, FT_SAVING_RUN_ID = 64 };

struct ft_saving {
    struct ft_ckpt *ckpt;
    struct ft_ckpt_run run;
    struct ft_ckpt_fact maths[FT_SAVING_MATHS], dropout[3];
    struct ft_ckpt_piece *pieces;
    size_t n_pieces;
    char run_id[FT_SAVING_RUN_ID];
    int64_t every_updates, every_ns, last_ns;
    int64_t saved;  /* step of the last save of this run that has not failed, on its way or published; -1: none */
    int64_t told;   /* step of the last one whose publication the launcher knows of */
    bool failed;    /* the last one that has ended */
    bool is_best;   /* the last one that has begun: of the best evaluation so far */
    bool best_lost; /* the last one of those failed: what stands under its step, if anything, is older */
};

/* The launcher's id, else one of our own: the same on every rank. */
enum ft_code ft_saving_name_run(struct ft_trainer *t, struct ft_err *err) FT_MUST_CHECK;
/* Fills t->saving->run; texts are of the setup's arena. */
void ft_saving_describe(struct ft_trainer *t);

#endif
