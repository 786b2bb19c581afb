/* A job as fttrain sees it: its sections as plain values, each with the place it came from, and the rules that hold between keys.
 * Pure but for reading the files.
 *
 *  1. ft_job_init(), then ft_job_read(): files from left to right, --set last; every fault goes to faults
 *  2. ft_job_layout() when the number of ranks is known: mesh and batch arithmetic
 *  3. ft_job_fini() */
#ifndef FT_RUNTIME_TRAIN_JOB_H
#define FT_RUNTIME_TRAIN_JOB_H

#include "base/fault.h"
#include "base/ini.h"
#include "runtime/data/data_fields.h"
#include "runtime/train/fields.h"
#include "runtime/train/rows.h"
#include "topology/mesh.h"
#include "topology/parallel_fields.h"

enum ft_job_part {
    FT_JOB_PARALLEL,
    FT_JOB_MODEL,
    FT_JOB_DATA,
    FT_JOB_TRAIN,
    FT_JOB_LORA,
    FT_JOB_EVAL,
    FT_JOB_CHECKPOINT,
    FT_JOB_EXPORT,
    FT_JOB_N_PARTS
};

struct ft_job_config {
    struct ft_arena *arena;
    struct ft_ini *ini;
    struct ft_parallel_fields parallel;
    struct ft_model_fields model;
    struct ft_data_fields data;
    struct ft_train_fields train;
    struct ft_lora_fields lora;
    struct ft_eval_fields eval;
    struct ft_checkpoint_fields checkpoint;
    struct ft_export_fields export;
    struct ft_value *values[FT_JOB_N_PARTS]; /* one per field of the section */
    bool readable;                           /* every value could be read: what the others lead to may be looked at too */
};

const struct ft_section *ft_job_section(enum ft_job_part part);

void ft_job_init(struct ft_job_config *j, struct ft_faults *faults); /* makes arena; faults->arena is set to it */
void ft_job_fini(struct ft_job_config *j);
void ft_job_read(struct ft_job_config *j, const char *const *files, size_t n_files, const char *const *sets, size_t n_sets,
                 struct ft_faults *faults);
/* Value and place of a key. */
struct ft_value ft_job_value(const struct ft_job_config *j, enum ft_job_part part, const char *key);
/* A fault at the key, where it was written. */
void ft_job_fault(const struct ft_job_config *j, struct ft_faults *faults, enum ft_severity sev, enum ft_job_part part,
                  const char *key, const char *fmt, ...) FT_PRINTF(6, 7);

/* Mesh of `world` ranks (0: not known; then data = auto counts as 1) and whether the batch divides. All problems are recorded; the
 * mesh has the job's tensor and pipeline whatever they are, so that the model can be held against them too. */
struct ft_job_layout {
    struct ft_mesh mesh;
    struct ft_deal deal;
    int64_t accumulation; /* 0: the batch does not divide, or the ranks do not */
    bool known;           /* the number of ranks is */
};
void ft_job_layout(const struct ft_job_config *j, int world, struct ft_job_layout *out, struct ft_faults *faults);

/* seq_len for a model whose positions end at limit (0: no limit known): what is written, else 2048 or the limit. */
int64_t ft_job_seq_len(const struct ft_job_config *j, int64_t limit);

#endif
