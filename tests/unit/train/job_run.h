/* Small jobs of golden/hf/llama over made-up rows, run with real ranks, and what they leave behind. */
#ifndef FT_TESTS_TRAIN_JOB_RUN_H
#define FT_TESTS_TRAIN_JOB_RUN_H

#include <signal.h>

#include "base/str.h"
#include "tests/unit/coll/ranks.h"

enum { MAX_UPDATES = 64, MAX_SETS = 8 };

struct job {
    char dir[128];
    const char *sets[MAX_SETS];
    size_t n_sets;
    int data;
    int term_after; /* > 0: rank 0 gets term_signal once so many lines of metrics are written */
    int term_signal;
    int gate_fd;        /* > 0: instead of the signal a byte is written there */
    const char *absent; /* below dir: if that is there before, a file "early" is made */
};

/* What a run left behind. */
struct result {
    int status[RANKS_MAX];
    int n;
    double loss[MAX_UPDATES], norm[MAX_UPDATES];
    int64_t step[MAX_UPDATES], rows[MAX_UPDATES], trained[MAX_UPDATES];
    struct ft_buf evals; /* lines of evaluation */
    float *weights;
    int64_t n_weights;
};

/* A process beside this one that sends it the signal once metrics.jsonl in dir has so many lines, and then empties the pipe `progress`
 * (-1: none). It ends with this one. signal_end: it is no longer needed (-1 is fine). */
pid_t signal_start(const char *dir, int after_lines, int number, int progress);
void signal_end(pid_t pid);

/* Rows of very different lengths and masks: from one trained token to all of them. */
void write_data(const char *path, int n_rows, uint32_t seed);
/* A folder with train.jsonl (n_rows), valid.jsonl (7) and job.ini; more: lines of [train]. */
void open_job(struct job *j, int data, int n_rows, const char *more);
void run_job(struct job *j, struct result *x); /* statuses only */
void read_metrics(const struct job *j, struct result *x);
void run_good(struct job *j, struct result *x); /* all ranks end with 0; metrics and exported weights */
void free_result(struct result *x);
char *text_of(const struct job *j, const char *name); /* of a file below dir; the caller frees it */
/* Both have a checkpoint of that step, its manifest says so, and it is the same state: weights, masters, moments, to the bit. */
void same_checkpoint(const struct job *a, const struct job *b, int step);
bool near_to(double a, double b); /* 1e-5 relative */
bool same_within_tol(const struct result *a, const struct result *b, const char *what);
bool same_bits(const struct result *a, const struct result *b);

#endif
