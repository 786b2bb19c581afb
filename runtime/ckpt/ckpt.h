/* Checkpoints: logical tensors on disk that any layout writes and any layout loads, bit for bit (on-disk formats, sections 1 to 13).
 *
 *  1. ft_ckpt_open()     all ranks: folder, lock, leftovers of earlier runs, room on the disk; before update 1
 *  2. ft_ckpt_resume()   chooses by `resume`, compares what must agree, loads masters, m and v into the pieces and verifies them;
 *                        *step is 0 when the run starts afresh. The caller then rounds masters into working copies and gathers them
 *  3. ft_ckpt_save()     between two updates: published whole on all ranks, or not at all; retention follows
 *     ft_ckpt_tick()     once per update: the sign of life in the lock
 *     ft_ckpt_export()   the model alone, as a Hugging Face folder
 *  4. ft_ckpt_close()    the lock goes
 *
 * Saving while training goes on, instead of 3:
 *
 *  a. ft_ckpt_begin()   between two updates: copies the pieces to options.copy; a thread of this rank writes from there
 *  b. ft_ckpt_busy()    does this rank still work on it? Its sum over the ranks travels with something that is reduced anyway
 *  c. ft_ckpt_go_on()   when no rank is busy: the ranks agree, then a thread of rank 0 publishes; again when no rank is busy: they
 *                       agree on that too, and the save has ended (ft_ckpt_saving() is false)
 *  d. ft_ckpt_drain()   waits for the save on its way, if there is one: before the next one, before an export, before the end
 *
 * All ranks call 1, 2, 3, 4, a, c and d together (the sign of life: rank 0 matters), in the same order. A failing call returns the same
 * error on all ranks. What is in the files never depends on the layout; a rank that owns nothing writes no file. Only between a and the
 * end of that save does a thread of this room run while no call does; it makes no collective and reads nothing of the caller's but the
 * copy, `run` and the rows. Closing then gives the save up: what earlier ones have published stays. */
#ifndef FT_RUNTIME_CKPT_CKPT_H
#define FT_RUNTIME_CKPT_CKPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "runtime/nn/param.h"

struct ft_comm;
struct ft_ckpt;
struct ft_export;

/* A stretch of one trainable parameter that this rank's optimizer owns: local elements [from,to). fp32 each; `master` is the working
 * weight itself when the precision is fp32. Storage: the caller's, unchanged during a call (written by ft_ckpt_resume). */
struct ft_ckpt_piece {
    size_t param; /* row of this rank */
    int64_t from, to;
    float *master, *m, *v; /* of element `from` */
};

/* One field that must agree on resume, or may differ when accepted: JSON text of its value. */
struct ft_ckpt_fact {
    const char *name;
    const char *json;
};

enum ft_ckpt_precision { FT_CKPT_FP32, FT_CKPT_BF16, FT_CKPT_FP8 };

/* What a run is: everything of a manifest that does not change from save to save. Texts are borrowed for the life of the handle. */
struct ft_ckpt_run {
    const char *run_id;  /* letters, digits, '.', '_', '-' */
    const char *backend; /* "cpu", "cuda" */
    int tensor, pipeline, data, virtual_pipeline;
    bool sequence;
    const char *order;  /* "tp-dp-pp" */
    const char *method; /* "full", "lora", "qlora" */
    enum ft_ckpt_precision precision;
    const char *family;               /* "llama" */
    const char *config_json;          /* the text of config.json */
    const struct ft_ckpt_fact *maths; /* every field that enters the maths, after defaults */
    size_t n_maths;
    bool tied;
    int64_t vocab;
    const char *base_path, *config_sha256, *tokenizer_sha256, *template_sha256; /* hex; NULL: none */
    const char *template_text;       /* of the chat template trained with, for exports; NULL: none */
    int64_t terminator_id;           /* trained end of an answer, for exports; -1: none */
    const struct ft_ckpt_fact *lora; /* rank, alpha, dropout, targets, rslora; NULL: not an adapter run */
    size_t n_lora;
    const struct ft_ckpt_fact *dropout; /* rates in force; may be empty */
    size_t n_dropout;
    double beta1, beta2, eps, weight_decay, clip;
    const char *const *no_decay; /* names of trainable tensors without decay */
    size_t n_no_decay;
    const char *schedule; /* "cosine", "linear", "constant" */
    double hi, lo;
    int64_t warmup, n; /* updates */
    uint64_t seed;
    const char *data_fingerprint; /* hex */
    int64_t seq_len;
    bool packing, shuffle;
    int64_t global_batch;
};

enum { FT_CKPT_WINDOW = 50 };

/* What changes from update to update. */
struct ft_ckpt_scalars {
    int64_t step, t;                               /* k: applied updates; Adam's t */
    int64_t epoch, row_in_epoch;                   /* position */
    int64_t rows, samples, tokens, trained_tokens; /* since the start of the run */
    int64_t skipped_steps;
    bool has_eval, has_general;
    double best, general0;
    int64_t best_step, bad, count, general_bad; /* best_step 0: none */
    double loss1, best20;
    int64_t above, seen, last_spike; /* updates seen by the watch */
    int n_window;                    /* <= FT_CKPT_WINDOW: how many of the next two are there, oldest first */
    double losses[FT_CKPT_WINDOW], norms[FT_CKPT_WINDOW];
};

struct ft_ckpt_options {
    const char *dir;
    int64_t keep;              /* newest ones that stay; 0: all */
    const char *resume;        /* "auto", "never", a step, a path */
    const char *const *accept; /* "train.lr", "data.seq_len", … */
    size_t n_accept;
    struct ft_comm *comm;
    const struct ft_ckpt_run *run;
    const struct ft_param *model; /* trainable parameters of the whole model, dims are read */
    size_t n_model;
    const struct ft_param *params; /* trainable rows of this rank; the same array when one rank holds them all */
    size_t n_params;
    int tensor_rank;
    float *copy; /* for ft_ckpt_begin: room for master, m and v of all pieces; the caller's. NULL: only ft_ckpt_save is called */
    void (*say)(void *self, const char *line); /* lines for people, rank 0 only; NULL: nobody listens */
    void *self;
};

/* Whether `accept` may hold this name: a key that ft_ckpt_resume compares and that may differ, or a section ("data"). */
bool ft_ckpt_accepts(const char *name);

/* Can checkpoints be kept there? Without opening anything (check); ft_ckpt_open asks too. */
enum ft_code ft_ckpt_check_dir(const char *dir, struct ft_err *err) FT_MUST_CHECK;
enum ft_code ft_ckpt_open(const struct ft_ckpt_options *o, struct ft_ckpt **out, struct ft_err *err) FT_MUST_CHECK;
/* pieces cover what this rank owns. Damage under `auto` falls back to the next older one. FT_CONFIG: it does not fit this job; FT_DATA,
 * FT_IO: it is damaged. *fresh_position: data, seq_len or packing changed with `accept`: the caller starts a fresh epoch. */
enum ft_code ft_ckpt_resume(struct ft_ckpt *c, const struct ft_ckpt_piece *pieces, size_t n, struct ft_ckpt_scalars *scalars,
                            int64_t *step, bool *fresh_position, struct ft_err *err) FT_MUST_CHECK;
/* best: this step is the best so far. Fails with the reason, the previous checkpoint untouched; whether the run goes on ([checkpoint]
 * on_error) is the caller's business. FT_DATA: values that are not finite. */
enum ft_code ft_ckpt_save(struct ft_ckpt *c, const struct ft_ckpt_piece *pieces, size_t n, const struct ft_ckpt_scalars *scalars,
                          bool best, struct ft_err *err) FT_MUST_CHECK;
/* As ft_ckpt_save; the pieces are the caller's again when it returns. No other save is on its way. */
enum ft_code ft_ckpt_begin(struct ft_ckpt *c, const struct ft_ckpt_piece *pieces, size_t n, const struct ft_ckpt_scalars *scalars,
                           bool best, struct ft_err *err) FT_MUST_CHECK;
bool ft_ckpt_saving(const struct ft_ckpt *c); /* one is on its way: the same on all ranks */
bool ft_ckpt_busy(const struct ft_ckpt *c);
/* Both fail as ft_ckpt_save does: the save has ended then. go_on: one is on its way. */
enum ft_code ft_ckpt_go_on(struct ft_ckpt *c, struct ft_err *err) FT_MUST_CHECK;
enum ft_code ft_ckpt_drain(struct ft_ckpt *c, struct ft_err *err) FT_MUST_CHECK;
void ft_ckpt_tick(struct ft_ckpt *c);
void ft_ckpt_close(struct ft_ckpt *c); /* NULL is fine */

int64_t ft_ckpt_last_step(const struct ft_ckpt *c); /* of the newest published one, or the one resumed from; 0: none */
/* Bytes of one checkpoint of these parameters (memory plan, free space). */
int64_t ft_ckpt_bytes(const struct ft_param *model, size_t n);

/* Loads the weights of one checkpoint for export or restore_best: masters only, no checks of the optimizer, no position. step 0: BEST.
 * false in *there: this lineage has no such checkpoint; nothing was changed. */
enum ft_code ft_ckpt_load_weights(struct ft_ckpt *c, int64_t step, const struct ft_ckpt_piece *pieces, size_t n, bool *there,
                                  struct ft_err *err) FT_MUST_CHECK;

/* Writes a Hugging Face folder from the masters in the pieces of all ranks; model[] is ft_import_params() of e->base. e is read on rank 0,
 * but for fetch. */
enum ft_code ft_ckpt_export(struct ft_ckpt *c, const struct ft_ckpt_piece *pieces, size_t n, const struct ft_export *e,
                            struct ft_err *err) FT_MUST_CHECK;

/* fttrain ckpt ls|verify|diff|prune ARGS (argv[0] is the verb). Prints to out; returns the exit status: 0 all right, 1 something is
 * wrong with a checkpoint, 2 the call is. */
int ft_ckpt_command(int argc, char **argv, FILE *out, FILE *err);

#endif
