#include "runtime/train/trainer.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "runtime/ckpt/export.h"
#include "runtime/train/saving.h"
#include "runtime/train/trainer_state.h"

enum ft_code ft_agree(struct ft_comm *comm, enum ft_code own, struct ft_err *err)
{
    const int n = ft_comm_size(comm, FT_GROUP_WORLD), me = ft_comm_rank(comm, FT_GROUP_WORLD);
    int64_t *codes = ft_xcalloc((size_t)n, sizeof *codes);
    codes[me] = own;
    struct ft_err lost;
    const enum ft_code code = ft_comm_all_gather(comm, FT_GROUP_WORLD, codes + me, codes, 1, FT_I64, &lost);
    int first = 0;
    while (!code && first < n && codes[first] == FT_OK) first++;
    free(codes);
    if (own && !code && first < me) return ft_fail(err, FT_RANK_FAILED, "rank %d was refused too and says why", first);
    if (own) return own;
    if (code && err) *err = lost;
    if (!code && first < n) return ft_fail(err, FT_RANK_FAILED, "rank %d was refused", first);
    return code;
}

/* ---- before the first update ---- */

static enum ft_code open_metrics(struct ft_trainer *t, struct ft_err *err)
{
    if (!ft_trainer_speaks(t)) return FT_OK;
    struct ft_buf path = {0};
    ft_buf_addf(&path, "%s/metrics.jsonl", t->o.place->run_dir ? t->o.place->run_dir : ".");
    enum ft_code code = ft_metrics_open(&t->metrics, path.data, t->resumed ? t->k : -1, err);
    ft_buf_fini(&path);
    return code;
}

enum ft_code ft_trainer_create(const struct ft_trainer_options *o, struct ft_trainer **out, struct ft_err *err)
{
    struct ft_trainer *t = ft_xcalloc(1, sizeof *t);
    t->o = *o;
    t->s = o->setup;
    t->metrics.fd = -1;
    t->evaluated_at = -1;
    t->memory_before = ft_memory_resident();
    const struct ft_settings settings = ft_setup_settings(t->s);
    const struct ft_memory worst = ft_setup_worst(t->s, &settings);
    t->mem_plan = ft_memory_total(&worst);
    enum ft_code code = ft_trainer_prepare(t, err);
    code = ft_agree(o->comm, code, err);
    if (!code) code = ft_gradsync_gather(&t->sync, err);
    if (!code) code = ft_agree(o->comm, ft_saving_open(t, err), err);
    if (!code) code = ft_agree(o->comm, ft_trainer_test_packing(t, err), err);
    if (!code) code = ft_agree(o->comm, open_metrics(t, err), err);
    if (code) {
        ft_trainer_destroy(t);
        return code;
    }
    *out = t;
    return FT_OK;
}

void ft_trainer_destroy(struct ft_trainer *t)
{
    if (!t) return;
    const struct ft_memory *m = &t->s->memory;
    ft_saving_close(t);
    ft_model_destroy(t->model);
    ft_device_free(t->o.device, t->weights, m->weights);
    ft_device_free(t->o.device, t->grads, m->gradients);
    ft_device_free(t->o.device, t->master, m->master);
    ft_device_free(t->o.device, t->m, m->moments / 2 ? m->moments / 2 : 1);
    ft_device_free(t->o.device, t->v, m->moments / 2 ? m->moments / 2 : 1);
    ft_device_free(t->o.device, t->staging, m->staging);
    ft_batcher_fini(&t->batch);
    ft_metrics_close(&t->metrics);
    free(t);
}

int64_t ft_trainer_step(const struct ft_trainer *t) { return t->k; }

/* ---- the loop ---- */

/* A launcher that is gone is found elsewhere. */
void ft_trainer_tell(const struct ft_trainer *t, const char *what, int64_t step)
{
    if (t->o.place->progress_fd < 0) return;
    char line[48];
    const int n = snprintf(line, sizeof line, "%s%lld\n", what, (long long)step);
    ssize_t done;
    do done = write(t->o.place->progress_fd, line, (size_t)n);
    while (done < 0 && errno == EINTR);
}

static enum ft_code emit_metrics(struct ft_trainer *t, const struct ft_update_done *u, struct ft_err *err)
{
    if (!ft_trainer_speaks(t)) return FT_OK;
    const struct ft_model_config *c = &t->s->config;
    const int64_t n_rows = ft_dataset_n_rows(t->s->train);
    const struct ft_update_line line = {
        .step = t->k,
        .rows = u->rows,
        .tokens = u->tokens,
        .trained_tokens = u->trained,
        .samples = u->samples,
        .skipped_steps = t->skipped,
        .epoch = (double)t->at.epoch + (double)t->at.in_epoch / (double)n_rows,
        .loss = u->loss,
        .lr = u->lr,
        .grad_norm = u->norm,
        .clip_coef = u->coef,
        .step_ms = u->step_ms,
        .data_ms = u->data_ms,
        .comm_ms = u->comm_ms,
        .ckpt_ms = t->ckpt_ms,
        .flops_per_token = ft_flops_per_token(t->s->n_mm, c->L, c->H * c->D, u->sum_len2 / (double)u->tokens),
        .n_ranks = ft_comm_size(t->o.comm, FT_GROUP_WORLD),
        .mem = u->mem,
        .mem_plan = t->mem_plan,
    };
    enum ft_code code = ft_metrics_update(&t->metrics, &line, err);
    t->ckpt_ms = 0;
    if (t->o.quiet) return code;
    struct ft_buf text = {0};
    ft_update_line_text(&line, t->s->n_updates, &text);
    fputs(text.data, stdout);
    fflush(stdout);
    ft_buf_fini(&text);
    return code;
}

/* Spikes are said; divergence ends the run unless the job wants to go on. */
static enum ft_code look(struct ft_trainer *t, const struct ft_update_done *u, enum ft_train_end *end, struct ft_err *err)
{
    struct ft_buf why = {0};
    const unsigned events = ft_watch_update(&t->watch, u->loss, u->norm, u->lr, &why);
    const bool stop = (events & FT_WATCH_DIVERGED) && t->s->job->train.on_divergence == 0;
    enum ft_code code = FT_OK;
    while (why.n && why.data[why.n - 1] == '\n') why.data[--why.n] = 0;
    if (stop) {
        *end = FT_END_WATCH;
        code = ft_fail(err, FT_DATA, "%s", why.data);
        ft_fix(err, "set [train] on_divergence = warn to go on all the same");
    } else if (events && ft_trainer_speaks(t)) {
        ft_log(FT_LOG_WARN, "watch", "%s", why.data);
    }
    ft_buf_fini(&why);
    return code;
}

static bool evaluates(const struct ft_trainer *t) { return t->s->valid || t->s->general; }

/* A pass in which not one update was applied will be followed by others like it. */
static enum ft_code check_moving(struct ft_trainer *t, const struct ft_update_done *u, struct ft_err *err)
{
    t->skipped_running = u->skipped ? t->skipped_running + u->rows : 0;
    if (t->skipped_running < 2 * ft_dataset_n_rows(t->s->train)) return FT_OK;
    return ft_fail(err, FT_DATA, "%lld rows running had no trained token", (long long)t->skipped_running);
}

static bool at_end(const struct ft_trainer *t)
{
    const int64_t epochs = t->s->job->train.steps ? 0 : t->s->job->train.epochs;
    return t->k >= t->s->n_updates || (epochs && t->at.epoch >= epochs);
}

/* A save that finds values that are not finite says what the loss of the next update would have said. */
static enum ft_code judge_save(enum ft_code code, enum ft_train_end *end)
{
    if (code == FT_DATA) *end = FT_END_WATCH;
    return code;
}

static enum ft_code one_update(struct ft_trainer *t, bool *stop, enum ft_train_end *end, struct ft_err *err)
{
    struct ft_update_done u;
    enum ft_code code = ft_trainer_update(t, &u, end, err);
    if (!code && u.written) code = judge_save(ft_saving_go_on(t, err), end);
    if (!code) code = check_moving(t, &u, err);
    if (code) return code;
    bool best = false;
    if (!u.skipped) {
        t->best_is_now = false;
        code = emit_metrics(t, &u, err);
        ft_trainer_tell(t, "", t->k);
        if (!code) code = look(t, &u, end, err);
        const int64_t every = t->s->job->eval.every;
        if (!code && !u.term && evaluates(t) && every && t->k % every == 0) code = ft_trainer_evaluate(t, stop, &best, err);
    }
    /* An update without a trained token may be the one that is asked to end: what the ones before it have learnt is saved. */
    if (!code && t->k > 0 && (u.save || u.term || best)) code = judge_save(ft_saving_save(t, best, err), end);
    ft_saving_tick(t);
    if (u.term) {
        *end = FT_END_TERMINATED;
        *stop = true;
    }
    return code;
}

/* ---- the end ---- */

static enum ft_code export_model(struct ft_trainer *t, struct ft_err *err)
{
    static const enum ft_dtype types[] = {
        [FT_EXPORT_BASE] = FT_N_DTYPES, [FT_EXPORT_FP32] = FT_F32, [FT_EXPORT_BF16] = FT_BF16, [FT_EXPORT_FP16] = FT_F16};
    const struct ft_export_fields *f = &t->s->job->export;
    const char *dir = ft_setup_export_dir(t->s, t->o.place->run_dir);
    const struct ft_export e = {.dir = dir,
                                .base_dir = t->s->job->model.path,
                                .base = t->s->import,
                                .dtype = types[f->dtype],
                                .terminator_id = ft_dataset_facts(t->s->train).terminator_id,
                                .chat_template = t->s->template_text};
    const enum ft_code code = ft_saving_export(t, &e, err);
    if (!code && ft_trainer_speaks(t) && !t->o.quiet) {
        printf("model of step %lld written to %s\n", (long long)(t->best_is_now ? t->judge.best_step : t->k), dir);
        fflush(stdout);
    }
    return code;
}

static enum ft_code finish(struct ft_trainer *t, enum ft_train_end *end, struct ft_err *err)
{
    bool ignored, best = false;
    enum ft_code code = FT_OK;
    if (evaluates(t) && t->evaluated_at != t->k) code = ft_trainer_evaluate(t, &ignored, &best, err);
    if (!code) code = judge_save(ft_saving_save(t, best, err), end);
    if (!code) code = judge_save(ft_saving_drain(t, err), end);
    if (!code) code = ft_trainer_restore_best(t, err);
    if (!code && t->s->job->export.what != FT_EXPORT_NONE) code = export_model(t, err);
    if (!code && ft_saving_failed(t)) {
        code = ft_fail(err, FT_IO, "the last checkpoint of this run, of step %lld, could not be written", (long long)t->k);
        ft_at(err, "said above");
    }
    return code;
}

/* All ranks have found the same reason to end; what was good some updates ago is still on its way to the disk. */
static void finish_save(struct ft_trainer *t)
{
    struct ft_err why = {0};
    if (ft_saving_drain(t, &why) && ft_trainer_speaks(t)) ft_log(FT_LOG_WARN, "checkpoint", "%s", why.text);
}

enum ft_code ft_trainer_run(struct ft_trainer *t, enum ft_train_end *end, struct ft_err *err)
{
    bool stop = false, ignored;
    enum ft_code code = FT_OK;
    *end = FT_END_DONE;
    ft_dataset_epoch(t->s->train, t->at.epoch);
    if (t->resumed) t->evaluated_at = t->k;
    if (at_end(t) && ft_trainer_speaks(t) && !t->o.quiet)
        printf("nothing left to train: step %lld of %lld\n", (long long)t->k, (long long)t->s->n_updates);
    if (evaluates(t) && !t->resumed) code = ft_trainer_evaluate(t, &ignored, &ignored, err);
    stop = !code && t->resumed && ft_best_stops(&t->judge, t->s->job->eval.patience);
    while (!code && !stop && !at_end(t)) code = one_update(t, &stop, end, err);
    if (code == FT_DATA && *end == FT_END_WATCH) finish_save(t);
    if (!code && *end == FT_END_TERMINATED) {
        code = judge_save(ft_saving_drain(t, err), end);
        if (ft_trainer_speaks(t))
            ft_log(FT_LOG_WARN, "train", "asked to end: stopped behind update %lld; nothing is exported", (long long)t->k);
        return code;
    }
    return code ? code : finish(t, end, err);
}
