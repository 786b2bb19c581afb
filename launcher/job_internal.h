/* Between the files of the job machine: job.c (states), job_progress.c (steps, hangs), job_restart.c. */
#ifndef FT_LAUNCHER_JOB_INTERNAL_H
#define FT_LAUNCHER_JOB_INTERNAL_H

#include "base/clock.h"
#include "launcher/job.h"

enum { FT_JOB_STEP_TIMES = 64 };
#define FT_JOB_DONE_GRACE   (2 * FT_SEC)   /* for what ended ranks left behind */
#define FT_JOB_KILL_LIMIT   (2 * FT_SEC)   /* KILL to GONE; later the node counts as lost */
#define FT_JOB_SEAT_LIMIT   (600 * FT_SEC) /* asking fttrain about smaller layouts; each question has its own deadline */
#define FT_JOB_SAME_SIGNAL  (50 * FT_MS)   /* two INTs this near are one: timeout(1) signals the child and its group */
#define FT_JOB_STACKS_LIMIT (11 * FT_SEC)  /* what the agents get to collect stacks, and a second */
#define FT_JOB_STATES_LIMIT FT_SEC         /* the quick look before the message */

/* Is there a node like that? The search goes on where the last one ended: while a phase waits for node after node, each is passed
 * over once. */
bool ft_job_any_node(struct ft_job *j, bool (*is)(const struct ft_job_node *));
void ft_job_do(struct ft_job_actions *out, struct ft_job_action a);
void ft_job_stop(struct ft_job *j, enum ft_stop_reason why, int64_t grace, int64_t t, struct ft_job_actions *out);
void ft_job_reset_attempt(struct ft_job *j);
void ft_job_begin_again(struct ft_job *j, int64_t t, struct ft_job_actions *out);
void ft_job_finish(struct ft_job *j, int status, struct ft_job_actions *out);

/* job_progress.c */
void ft_job_progress(struct ft_job *j, const struct ft_job_event *e, struct ft_job_actions *out);
void ft_job_check_hang(struct ft_job *j, int64_t t, struct ft_job_actions *out);
int64_t ft_job_hang_due(const struct ft_job *j);
void ft_job_rank_state(struct ft_job *j, const struct ft_job_event *e, struct ft_job_actions *out);
void ft_job_stacks(struct ft_job *j, const struct ft_job_event *e, struct ft_job_actions *out);

/* job_restart.c: the attempt has ended and nothing of it is left */
void ft_job_attempt_over(struct ft_job *j, int64_t t, struct ft_job_actions *out);

#endif
