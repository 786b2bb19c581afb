/* metrics.jsonl: one object per update and per evaluation, written by rank 0, flushed line by line (runtime maths, section 17).
 * Numbers that are not finite are null, with "nonfinite" saying what they were.
 *
 *  1. ft_metrics_open(path, keep)  lines with step > keep are cut (a resumed run writes them again); keep -1: a new file
 *  2. ft_metrics_update(), ft_metrics_eval()
 *  3. ft_metrics_close() */
#ifndef FT_RUNTIME_TRAIN_METRICS_H
#define FT_RUNTIME_TRAIN_METRICS_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct ft_metrics {
    int fd; /* -1: closed */
    char *path;
};

/* One update. Times in ms; counts are of this update over all ranks. */
struct ft_update_line {
    int64_t step, rows, tokens, trained_tokens, samples, skipped_steps;
    double epoch; /* passes done, 1.5 = in the middle of the second */
    double loss, lr, grad_norm, clip_coef;
    double step_ms, data_ms, comm_ms, ckpt_ms;
    double flops_per_token; /* of the whole model, forward and backward */
    int n_ranks;
    double peak_flops;     /* of one device; 0: not known */
    int64_t mem, mem_plan; /* bytes, worst rank */
};

struct ft_eval_line {
    int64_t step, tokens, best_step, bad; /* best_step 0: none yet */
    const char *name;                     /* "valid", "valid/NAME", "general" */
    double loss, best;
};

enum ft_code ft_metrics_open(struct ft_metrics *m, const char *path, int64_t keep, struct ft_err *err) FT_MUST_CHECK;
enum ft_code ft_metrics_update(struct ft_metrics *m, const struct ft_update_line *u, struct ft_err *err) FT_MUST_CHECK;
enum ft_code ft_metrics_eval(struct ft_metrics *m, const struct ft_eval_line *e, struct ft_err *err) FT_MUST_CHECK;
void ft_metrics_close(struct ft_metrics *m);

/* The lines themselves (with their newline), for tests. */
void ft_update_line_json(const struct ft_update_line *u, int64_t wall_ns, struct ft_buf *out);
void ft_eval_line_json(const struct ft_eval_line *e, struct ft_buf *out);
/* "step 12 of 234  loss 0.649  …": what people see; numbers have the digits of the file. */
void ft_update_line_text(const struct ft_update_line *u, int64_t n_updates, struct ft_buf *out);

/* 6 N_mm + 12 L q s per token (PaLM's count; runtime maths, section 17): N_mm parameters without the input embedding (a tied one
 * counts as head), s the mean length a token attends in. */
double ft_flops_per_token(int64_t n_mm, int64_t layers, int64_t q, double s);

#endif
