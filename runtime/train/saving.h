/* The trainer's side of checkpoints: what a run is, what changes, when to save.
 *
 *  1. ft_saving_open()    folder and lock; resumes when there is something to resume: weights, moments, counters, position
 *  2. ft_saving_wanted()  rank 0's clock or the number of the update says that a save is due (carried by the update's reduction)
 *  3. ft_saving_save()    between two updates, on all ranks: published when it returns, or with [checkpoint] async = yes copied and on
 *                         its way. Then
 *     ft_saving_busy()    this rank still writes (carried by the update's reduction)
 *     ft_saving_go_on()   no rank does: on all of them, behind that update
 *     ft_saving_drain()   on all ranks, before the run ends
 *  4. ft_saving_export()  after the last update, when no save is on its way
 *  5. ft_saving_close() */
#ifndef FT_RUNTIME_TRAIN_SAVING_H
#define FT_RUNTIME_TRAIN_SAVING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct ft_export;
struct ft_trainer;
struct ft_saving;

enum ft_code ft_saving_open(struct ft_trainer *t, struct ft_err *err) FT_MUST_CHECK;
bool ft_saving_wanted(const struct ft_trainer *t, int64_t step); /* step: the update that is being made */
/* A failure of the disk is said and training goes on unless [checkpoint] on_error = stop; a wrong state ends the run. best: this step
 * is the best so far. One that is on its way is waited for first; each of the three calls tells what became of it. */
enum ft_code ft_saving_save(struct ft_trainer *t, bool best, struct ft_err *err) FT_MUST_CHECK;
bool ft_saving_busy(const struct ft_trainer *t);
enum ft_code ft_saving_go_on(struct ft_trainer *t, struct ft_err *err) FT_MUST_CHECK; /* nothing to do when none is on its way */
enum ft_code ft_saving_drain(struct ft_trainer *t, struct ft_err *err) FT_MUST_CHECK;
/* Masters of the best checkpoint come back into the pieces (the caller rounds and gathers). false in *there: no best was saved. */
enum ft_code ft_saving_load_best(struct ft_trainer *t, bool *there, struct ft_err *err) FT_MUST_CHECK;
/* Writes the model of the present masters as a Hugging Face folder, from all ranks (e->fetch is not read). */
enum ft_code ft_saving_export(struct ft_trainer *t, const struct ft_export *e, struct ft_err *err) FT_MUST_CHECK;
void ft_saving_tick(struct ft_trainer *t);
void ft_saving_close(struct ft_trainer *t);
/* The last save of the run failed: its exit status is not 0. */
bool ft_saving_failed(const struct ft_trainer *t);
int64_t ft_saving_last_step(const struct ft_trainer *t); /* of the last good checkpoint; 0: none */

#endif
