#include "runtime/train/saving.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "runtime/train/saving_state.h"

static struct ft_arena *arena_of(const struct ft_trainer *t) { return t->s->arena; }

static void list_pieces(struct ft_trainer *t)
{
    struct ft_saving *s = t->saving;
    const struct ft_buckets *b = &t->s->buckets;
    s->n_pieces = b->n_pieces;
    s->pieces = ft_arena_array(arena_of(t), b->n_pieces + 1, sizeof *s->pieces);
    for (size_t i = 0; i < b->n_pieces; i++) {
        const struct ft_piece *p = &b->pieces[i];
        s->pieces[i] = (struct ft_ckpt_piece){p->param,        p->from,        p->to, ft_optimizer_masters(&t->optim, p),
                                              t->m + p->state, t->v + p->state};
    }
}

/* ---- what changes ---- */

static void write_scalars(const struct ft_trainer *t, struct ft_ckpt_scalars *x)
{
    const struct ft_watch *w = &t->watch;
    const struct ft_best *b = &t->judge;
    *x = (struct ft_ckpt_scalars){.step = t->k,
                                  .t = t->optim.t,
                                  .epoch = t->at.epoch,
                                  .row_in_epoch = t->at.in_epoch,
                                  .rows = t->at.rows,
                                  .samples = t->total.samples,
                                  .tokens = t->total.tokens,
                                  .trained_tokens = t->total.trained,
                                  .skipped_steps = t->skipped,
                                  .has_eval = t->s->valid != NULL || t->s->general != NULL,
                                  .has_general = b->has_general,
                                  .best = b->best,
                                  .general0 = b->general0,
                                  .best_step = b->best_step,
                                  .bad = b->bad,
                                  .count = b->count,
                                  .general_bad = b->general_bad,
                                  .loss1 = w->loss1,
                                  .best20 = w->best20,
                                  .above = w->above,
                                  .seen = w->n,
                                  .last_spike = w->last_spike};
    x->n_window = (int)(w->n < FT_WATCH_N ? w->n : FT_WATCH_N);
    for (int i = 0; i < x->n_window; i++) {
        const int64_t k = w->n - x->n_window + i;
        x->losses[i] = w->losses[k % FT_WATCH_N];
        x->norms[i] = w->norms[k % FT_WATCH_N];
    }
}

static void read_scalars(struct ft_trainer *t, const struct ft_ckpt_scalars *x, bool fresh_position)
{
    t->k = x->step;
    t->optim.t = x->t;
    t->at = (struct ft_position){x->epoch, x->row_in_epoch, x->rows};
    if (fresh_position) {
        t->at.epoch += x->row_in_epoch > 0;
        t->at.in_epoch = 0;
    }
    t->total.samples = x->samples;
    t->total.tokens = x->tokens;
    t->total.trained = x->trained_tokens;
    t->skipped = x->skipped_steps;
    t->judge = (struct ft_best){x->best, x->best_step, x->bad, x->count, x->general0, x->has_general, x->general_bad};
    t->watch = (struct ft_watch){
        .loss1 = x->loss1, .best20 = x->best20, .above = (int)x->above, .n = x->seen, .last_spike = x->last_spike};
    for (int i = 0; i < x->n_window; i++) {
        const int64_t k = x->seen - x->n_window + i;
        if (k < 0) continue;
        t->watch.losses[k % FT_WATCH_N] = x->losses[i];
        t->watch.norms[k % FT_WATCH_N] = x->norms[i];
    }
}

/* ---- life ---- */

static void say(void *self, const char *line)
{
    const struct ft_trainer *t = self;
    if (t->o.quiet) return;
    printf("%s\n", line);
    fflush(stdout);
}

static enum ft_code resume(struct ft_trainer *t, struct ft_err *err)
{
    struct ft_saving *s = t->saving;
    struct ft_ckpt_scalars x;
    int64_t step = 0;
    bool fresh = false;
    enum ft_code code = ft_ckpt_resume(s->ckpt, s->pieces, s->n_pieces, &x, &step, &fresh, err);
    if (code || !step) return code;
    read_scalars(t, &x, fresh);
    for (size_t i = 0; i < t->s->buckets.n_pieces; i++) ft_optimizer_round(&t->optim, &t->s->buckets.pieces[i]);
    s->saved = s->told = step;
    t->resumed = true;
    size_t odd;
    code = ft_gradsync_gather(&t->sync, err);
    return code ? code : ft_gradsync_check_replicas(&t->sync, &odd, err); /* working copies are the rounded masters on all ranks */
}

enum ft_code ft_saving_open(struct ft_trainer *t, struct ft_err *err)
{
    const struct ft_checkpoint_fields *f = &t->s->job->checkpoint;
    struct ft_saving *s = t->saving = ft_xcalloc(1, sizeof *s);
    s->saved = -1;
    enum ft_code code = ft_saving_name_run(t, err);
    if (code) return code;
    ft_saving_describe(t);
    list_pieces(t);
    (void)ft_checkpoint_every(f->every, &s->every_updates, &s->every_ns);
    size_t n_model;
    const struct ft_param *model = ft_import_params(t->s->import, &n_model);
    const struct ft_ckpt_options o = {
        .dir = f->dir ? f->dir : ft_arena_printf(arena_of(t), "%s/checkpoints", t->o.place->run_dir ? t->o.place->run_dir : "."),
        .keep = f->keep,
        .resume = f->resume,
        .accept = f->accept.v,
        .n_accept = f->accept.n,
        .comm = t->o.comm,
        .run = &s->run,
        .model = model,
        .n_model = n_model,
        .params = t->s->rows,
        .n_params = t->s->n_rows,
        .tensor_rank = t->s->options.tensor_rank,
        .copy = t->staging,
        .say = say,
        .self = t};
    code = ft_ckpt_open(&o, &s->ckpt, err);
    if (!code) code = resume(t, err);
    s->last_ns = ft_clock_now(ft_clock_real());
    return code;
}

bool ft_saving_wanted(const struct ft_trainer *t, int64_t step)
{
    const struct ft_saving *s = t->saving;
    if (!s || !ft_trainer_speaks(t)) return false;
    if (s->every_updates) return step % s->every_updates == 0;
    return s->every_ns && ft_clock_now(ft_clock_real()) - s->last_ns >= s->every_ns;
}

/* A save has ended, or could not begin: what becomes of it. */
static enum ft_code settle(struct ft_trainer *t, int64_t step, enum ft_code code, struct ft_err *err)
{
    struct ft_saving *s = t->saving;
    s->failed = code != FT_OK;
    if (s->is_best) s->best_lost = s->failed;
    if (!code) {
        if (s->told != step && ft_trainer_speaks(t)) ft_trainer_tell(t, "saved ", step);
        s->told = step;
        return FT_OK;
    }
    s->saved = -1;
    /* Values that are not finite, or not the same on all their holders: it is not the disk that failed. */
    if (code == FT_DATA || code == FT_BUG_FOUND || code == FT_COLL || code == FT_TIMEOUT) return code;
    if (t->s->job->checkpoint.on_error == 1) return code;
    if (ft_trainer_speaks(t))
        ft_log(FT_LOG_WARN, "checkpoint", "no checkpoint of step %lld: %s", (long long)step, err ? err->text : "");
    return FT_OK;
}

static int64_t now(void) { return ft_clock_now(ft_clock_real()); }

/* The save on its way comes nearer to its end; how: by one agreement, or all the way. */
static enum ft_code advance(struct ft_trainer *t, enum ft_code (*how)(struct ft_ckpt *c, struct ft_err *err), struct ft_err *err)
{
    struct ft_saving *s = t->saving;
    if (!s || !ft_ckpt_saving(s->ckpt)) return FT_OK;
    const int64_t start = now();
    ft_comm_note(t->o.comm, "checkpoint");
    const enum ft_code code = how(s->ckpt, err);
    t->ckpt_ms += (double)(now() - start) / FT_MS;
    return ft_ckpt_saving(s->ckpt) ? code : settle(t, s->saved, code, err);
}

bool ft_saving_busy(const struct ft_trainer *t) { return t->saving && ft_ckpt_busy(t->saving->ckpt); }
enum ft_code ft_saving_go_on(struct ft_trainer *t, struct ft_err *err) { return advance(t, ft_ckpt_go_on, err); }
enum ft_code ft_saving_drain(struct ft_trainer *t, struct ft_err *err) { return advance(t, ft_ckpt_drain, err); }

enum ft_code ft_saving_save(struct ft_trainer *t, bool best, struct ft_err *err)
{
    struct ft_saving *s = t->saving;
    const bool beside = t->s->job->checkpoint.async;
    enum ft_code code = ft_saving_drain(t, err);
    if (code || !s || (s->saved == t->k && !best)) return code;
    const int64_t start = now();
    struct ft_ckpt_scalars x;
    write_scalars(t, &x);
    s->is_best = best;
    ft_comm_note(t->o.comm, "checkpoint");
    code = beside ? ft_ckpt_begin(s->ckpt, s->pieces, s->n_pieces, &x, best, err)
                  : ft_ckpt_save(s->ckpt, s->pieces, s->n_pieces, &x, best, err);
    s->saved = t->k;
    s->last_ns = now();
    t->ckpt_ms += (double)(s->last_ns - start) / FT_MS;
    return beside && !code ? FT_OK : settle(t, t->k, code, err);
}

enum ft_code ft_saving_load_best(struct ft_trainer *t, bool *there, struct ft_err *err)
{
    struct ft_saving *s = t->saving;
    *there = false;
    if (!s || s->best_lost) return FT_OK;
    return ft_ckpt_load_weights(s->ckpt, t->judge.best_step, s->pieces, s->n_pieces, there, err);
}

enum ft_code ft_saving_export(struct ft_trainer *t, const struct ft_export *e, struct ft_err *err)
{
    return ft_ckpt_export(t->saving->ckpt, t->saving->pieces, t->saving->n_pieces, e, err);
}

void ft_saving_tick(struct ft_trainer *t)
{
    if (t->saving) ft_ckpt_tick(t->saving->ckpt);
}

void ft_saving_close(struct ft_trainer *t)
{
    if (!t->saving) return;
    ft_ckpt_close(t->saving->ckpt);
    free(t->saving);
    t->saving = NULL;
}

bool ft_saving_failed(const struct ft_trainer *t) { return t->saving && t->saving->failed; }

int64_t ft_saving_last_step(const struct ft_trainer *t) { return t->saving ? ft_ckpt_last_step(t->saving->ckpt) : 0; }
