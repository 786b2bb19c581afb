/* What a job opens before its first update: the model folder, the data, the plan of memory and updates. check, plan and train read
 * the same three steps; each records every fault at the key that led to it.
 *
 *  1. ft_setup_model()    config.json, seq_len, rows of this rank, memory plan (no weights are read)
 *  2. ft_setup_weights()  tensors of the folder, by name and shape
 *  3. ft_setup_data()     train, valid and general; number of updates, schedule
 *  4. ft_setup_fini() */
#ifndef FT_RUNTIME_TRAIN_SETUP_H
#define FT_RUNTIME_TRAIN_SETUP_H

#include "runtime/arch/config.h"
#include "runtime/ckpt/import.h"
#include "runtime/data/dataset.h"
#include "runtime/train/job.h"
#include "runtime/train/memory.h"
#include "runtime/train/schedule.h"

struct ft_setup {
    struct ft_arena *arena;
    const struct ft_job_config *job;
    struct ft_job_layout layout;
    struct ft_coord coord; /* of this rank */

    struct ft_model_config config;
    int64_t n_parameters, n_mm; /* all; without the input embedding (a tied one counts as head) */
    int64_t seq_len;
    struct ft_model_options options; /* device and comm not yet set */
    const struct ft_param *rows;     /* this rank's */
    size_t n_rows;
    struct ft_buckets buckets;
    struct ft_memory memory;
    bool has_model;

    struct ft_import *import;

    struct ft_dataset *train, *valid, *general;  /* NULL: not named */
    const char *template_text, *template_sha256; /* the chat template that records go through; NULL: none */
    int64_t n_updates;
    struct ft_schedule schedule;
};

/* rank: of the world; layout: from ft_job_layout(), without errors. */
void ft_setup_init(struct ft_setup *s, const struct ft_job_config *job, const struct ft_job_layout *layout, int rank);
void ft_setup_fini(struct ft_setup *s);
void ft_setup_model(struct ft_setup *s, struct ft_faults *faults);
void ft_setup_weights(struct ft_setup *s, struct ft_faults *faults);
void ft_setup_data(struct ft_setup *s, struct ft_faults *faults);
/* ---- memory of other ranks, and with other settings of the same global batch (fit.c) ---- */

struct ft_settings {
    int64_t micro_batch;
    int recompute; /* enum ft_recompute */
    int tensor, data;
    bool sequence;
};
struct ft_settings ft_setup_settings(const struct ft_setup *s); /* those of the job */
struct ft_need {
    int64_t parameters; /* elements of the model that the rank holds, pads not counted */
    struct ft_memory memory;
};
/* Of a tensor rank of a stage (data ranks are alike). Needs has_model. */
struct ft_need ft_setup_need(const struct ft_setup *s, const struct ft_settings *x, int tensor_rank, int stage);
/* Of the stage that needs most. */
struct ft_memory ft_setup_worst(const struct ft_setup *s, const struct ft_settings *x);

/* Of a rank with these buckets: pools, model, and what saves need. */
struct ft_memory ft_setup_memory(const struct ft_setup *s, const struct ft_buckets *b, const struct ft_model_options *o);

/* Does a rank that needs so much fit? available: bytes that it may take; 0: not known. A fault with the numbers and with settings that
 * keep the global batch, when it does not. */
void ft_setup_check_memory(const struct ft_setup *s, const struct ft_memory *need, int64_t available, struct ft_faults *faults);
/* The first of micro_batch / 2, / 4, … 1 (accumulation grows, the global batch stays) and then recompute selective, full with which
 * every stage fits; the job's own settings when it fits as it is. false: nothing of this is enough. */
bool ft_setup_fit(const struct ft_setup *s, int64_t available, struct ft_settings *out);
/* Goes on with them; the job keeps what was written, so that the difference can be told. */
void ft_setup_use(struct ft_setup *s, const struct ft_settings *x);

/* A sentence for each thing worth a warning before update 1 (rates, warm-up, number of updates), as warnings. */
void ft_setup_warn(const struct ft_setup *s, struct ft_faults *faults);

/* [export] dir and the folder of this run: RUN_DIR is run_dir, or "." when NULL. */
const char *ft_setup_export_dir(const struct ft_setup *s, const char *run_dir);

#endif
