#include <math.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "runtime/train/saving.h"
#include "runtime/train/trainer_state.h"

#ifndef FT_DEBUG_CHECKS
#define FT_DEBUG_CHECKS 0
#endif

static double ms_since(int64_t from) { return (double)(ft_clock_now(ft_clock_real()) - from) / FT_MS; }

static bool asked_to_end(const struct ft_trainer *t)
{
    struct pollfd p = {.fd = t->o.term_fd, .events = POLLIN};
    return t->o.term_fd >= 0 && poll(&p, 1, 0) > 0;
}

/* Counts of the rows of an update: every rank knows them all from the data index. */
static void count_rows(const struct ft_trainer *t, const struct ft_update_rows *rows, struct ft_update_done *u)
{
    for (int64_t i = rows->base; i < rows->base + rows->n; i++) {
        const struct ft_row r = ft_dataset_row(t->s->train, i);
        u->tokens += r.n_tokens;
        u->trained += r.n_trained;
        u->samples += r.n_segments;
        for (int64_t s = 0; s < r.n_segments; s++) {
            const double len = r.cu_seqlens[s + 1] - r.cu_seqlens[s];
            u->sum_len2 += len * len;
        }
    }
    u->rows = rows->n;
}

/* The micro-batches of this data rank in one update, for the pipeline. */
struct dealt {
    struct ft_trainer *t;
    const struct ft_update_rows *rows;
    double ms; /* spent here */
};

static struct ft_batch micro_batch(void *ctx, int64_t j)
{
    struct dealt *x = ctx;
    struct ft_trainer *t = x->t;
    const struct ft_update_rows *rows = x->rows;
    const struct ft_deal *d = &t->s->layout.deal;
    const int64_t start = ft_clock_now(ft_clock_real());
    ft_batch_begin(&t->batch);
    for (int64_t i = 0; i < d->micro; i++) {
        const int64_t row = ft_deal_row(d, rows, j, t->s->coord.c[FT_AXIS_DP], i);
        if (row < 0) {
            if (i == 0) ft_batch_add_filler(&t->batch, rows->first_row + rows->n); /* later ones would add nothing */
            break;
        }
        const struct ft_row r = ft_dataset_row(t->s->train, row);
        ft_batch_add(&t->batch, &r, rows->first_row + row - rows->base);
    }
    x->ms += ms_since(start);
    return ft_batch_view(&t->batch);
}

/* All micro-batches of this rank: gradients of the mean over `trained` targets add up in the pool; *ce is this rank's sum. */
static enum ft_code forward_backward(struct ft_trainer *t, const struct ft_update_rows *rows, struct ft_update_done *u, double *ce,
                                     struct ft_err *err)
{
    struct dealt x = {t, rows, 0};
    const struct ft_micro_batches b = {micro_batch, &x, 0, rows->n_micro};
    ft_gradsync_zero(&t->sync);
    const enum ft_code code = ft_pipeline_train(&t->pipeline, &b, 1 / (double)u->trained, ce, err);
    u->data_ms += x.ms;
    return code;
}

/* Does this rank's gradient of parameter i hold NaN or infinity? */
static bool bad_gradient(const struct ft_trainer *t, size_t i)
{
    const struct ft_place_in_buffer *p = &t->s->buckets.place[i];
    return t->o.device->kernels->count_nonfinite(t->o.device->kctx, p->end - p->start, t->grads + p->start) > 0;
}

/* The first tensor, in the declaration order of the whole model, whose gradient on this rank is not finite: its index among rows;
 * n_rows: none. */
static size_t first_bad(const struct ft_trainer *t, const struct ft_param *rows, size_t n_rows)
{
    size_t i = 0, first = 0;
    while (i < t->s->n_rows && !bad_gradient(t, i)) i++;
    if (i == t->s->n_rows) return n_rows;
    while (strcmp(rows[first].name, t->s->rows[i].name) != 0) first++;
    return first;
}

/* Finds where it began: the update is computed once more, micro-batch by micro-batch, and the first tensor in declaration order is
 * taken from the first micro-batch that has one. Every rank goes through all of them, since its neighbours do. The result is the
 * same on every rank. */
static enum ft_code not_finite(struct ft_trainer *t, const struct ft_update_rows *rows, struct ft_update_done *u,
                               struct ft_err *err)
{
    const int64_t none = INT64_MAX, d = t->s->layout.deal.data, rank = t->s->coord.c[FT_AXIS_DP];
    size_t n_whole;
    const struct ft_param *whole = ft_model_config_rows(&t->s->config, 1, 0, 1, 0, 1, t->s->arena, &n_whole, NULL);
    int64_t found = none; /* micro-batch and data rank, earliest first, then the parameter; n - 1: the loss only */
    const int64_t n = (int64_t)n_whole + 1;
    struct dealt x = {t, rows, 0};
    ft_gradsync_zero(&t->sync);
    enum ft_code code = FT_OK;
    for (int64_t j = 0; !code && j < rows->n_micro; j++) {
        const struct ft_micro_batches one = {micro_batch, &x, j, 1};
        double ce = 0;
        code = ft_pipeline_train(&t->pipeline, &one, 1 / (double)u->trained, &ce, err);
        if (code || found != none) continue;
        const int64_t param = (int64_t)first_bad(t, whole, n_whole);
        if (!isfinite(ce) || param < n - 1) found = (j * d + rank) * n + param;
    }
    if (!code) code = ft_comm_all_reduce(t->o.comm, FT_GROUP_WORLD, &found, 1, FT_I64, FT_MIN, err);
    if (!code) code = ft_saving_drain(t, err); /* it is a good one: of weights from which the last update was still finite */
    if (code) return code;
    struct ft_buf b = {0};
    ft_buf_addf(&b, "%s is not finite at update %lld", isfinite(u->loss) ? "the gradient norm" : "the loss", (long long)t->k + 1);
    if (found != none) {
        const int64_t param = found % n, where = found / n;
        if (param < n - 1) ft_buf_addf(&b, ": first in the gradient of %s", whole[param].name);
        ft_buf_addf(&b, ", data rank %lld, micro-batch %lld", (long long)(where % d), (long long)(where / d + 1));
    } else {
        ft_buf_adds(&b, ": each micro-batch alone is finite, their sum is not");
    }
    ft_buf_adds(&b, "; lr was ");
    ft_buf_add_real(&b, ft_lr_at(&t->s->schedule, t->k));
    const int64_t good = ft_saving_last_step(t);
    if (good) ft_buf_addf(&b, "; the last checkpoint is of step %lld", (long long)good);
    else ft_buf_adds(&b, "; there is no checkpoint");
    ft_fail(err, FT_DATA, "%s", b.data);
    ft_buf_fini(&b);
    return ft_fix(err, "likely: a lower lr, a warm-up of at least 3%% of the updates, clip = 1");
}

/* What is always true after an update: weights and moments are finite, bf16 copies are round(master), replicas are equal. */
static enum ft_code check_invariants(struct ft_trainer *t, struct ft_err *err)
{
    const struct ft_kernels *k = t->o.device->kernels;
    for (size_t i = 0; i < t->s->buckets.n_pieces; i++) {
        const struct ft_piece *p = &t->s->buckets.pieces[i];
        const float *w = ft_optimizer_masters(&t->optim, p);
        const int64_t n = p->to - p->from;
        const int64_t bad = k->count_nonfinite(t->o.device->kctx, n, w) +
                            k->count_nonfinite(t->o.device->kctx, n, t->m + p->state) +
                            k->count_nonfinite(t->o.device->kctx, n, t->v + p->state);
        int64_t odd = 0;
        for (int64_t e = 0; t->master && !bad && e < n; e++)
            odd += ((const uint16_t *)t->weights)[p->at + e] != ft_f32_to_bf16(w[e]);
        if (bad) /* no bug: a rate that is too large is enough */
            return ft_fail(err, FT_DATA, "%s: %lld weights or moments are not finite after update %lld: the run has diverged",
                           t->s->rows[p->param].name, (long long)bad, (long long)t->k);
        if (odd)
            return ft_fail(err, FT_BUG_FOUND, "%s: %lld weights are not rounded from their masters after update %lld",
                           t->s->rows[p->param].name, (long long)odd, (long long)t->k);
    }
    size_t param = 0;
    enum ft_code code = ft_gradsync_check_replicas(&t->sync, &param, err);
    if (code == FT_BUG_FOUND) return ft_wrap(err, "checking %s after update %lld", t->s->rows[param].name, (long long)t->k);
    return code;
}

/* The sums that every rank needs, in one reduction: loss, norm, whether somebody was asked to end, whether to save, and how many still
 * write. */
static enum ft_code reduce_scalars(struct ft_trainer *t, double ce, struct ft_update_done *u, struct ft_err *err)
{
    double sums[5] = {ft_trainer_counts(t) ? ce : 0, ft_optimizer_norm_sq(&t->optim), asked_to_end(t),
                      ft_saving_wanted(t, t->k + 1), ft_saving_busy(t)};
    double most[1] = {(double)(ft_memory_peak() - t->memory_before)};
    ft_log(FT_LOG_DEBUG, "memory", "update %lld: stage %d has taken %.0f bytes, %lld planned", (long long)t->k + 1,
           t->s->options.stage, most[0], (long long)ft_memory_total(&t->s->memory));
    enum ft_code code = ft_comm_all_reduce(t->o.comm, FT_GROUP_WORLD, sums, 5, FT_F64, FT_SUM, err);
    if (!code) code = ft_comm_all_reduce(t->o.comm, FT_GROUP_WORLD, most, 1, FT_F64, FT_MAX, err);
    if (code) return code;
    u->loss = sums[0] / (double)u->trained;
    u->norm = sqrt(sums[1]);
    u->term = sums[2] > 0;
    u->save = sums[3] > 0;
    u->written = sums[4] == 0;
    u->mem = (int64_t)most[0];
    return FT_OK;
}

/* Nothing to learn in these rows: weights, moments, t, k and rate stay; the position moves. */
static enum ft_code skip(struct ft_trainer *t, struct ft_update_done *u, struct ft_err *err)
{
    double term = asked_to_end(t);
    enum ft_code code = ft_comm_all_reduce(t->o.comm, FT_GROUP_WORLD, &term, 1, FT_F64, FT_SUM, err);
    if (code) return code;
    u->skipped = true;
    u->term = term > 0;
    t->skipped++;
    if (ft_trainer_speaks(t))
        ft_log(FT_LOG_WARN, "train", "the %lld rows behind row %lld have no trained token: no update", (long long)u->rows,
               (long long)t->at.rows);
    return FT_OK;
}

enum ft_code ft_trainer_update(struct ft_trainer *t, struct ft_update_done *u, enum ft_train_end *end, struct ft_err *err)
{
    const int64_t start = ft_clock_now(ft_clock_real()), busy = ft_comm_busy_ns(t->o.comm), n_rows = ft_dataset_n_rows(t->s->train);
    memset(u, 0, sizeof *u);
    const struct ft_update_rows rows = ft_update_rows(&t->s->layout.deal, &t->at, n_rows);
    count_rows(t, &rows, u);
    enum ft_code code = FT_OK;
    if (!u->trained) {
        code = skip(t, u, err);
    } else {
        char note[64];
        (void)snprintf(note, sizeof note, "update %lld", (long long)t->k + 1);
        ft_comm_note(t->o.comm, note);
        double ce;
        code = forward_backward(t, &rows, u, &ce, err);
        if (!code) code = ft_gradsync_finish(&t->sync, err);
        if (!code) code = reduce_scalars(t, ce, u, err);
        if (!code && (!isfinite(u->loss) || !isfinite(u->norm))) {
            code = not_finite(t, &rows, u, err);
            *end = FT_END_WATCH;
        }
        if (code) return code;
        u->coef = ft_clip_coef(t->s->job->train.clip, u->norm);
        u->lr = ft_lr_at(&t->s->schedule, t->k + 1);
        ft_optimizer_step(&t->optim, u->lr, u->coef);
        t->k++;
        code = ft_gradsync_gather(&t->sync, err);
        if (!code && FT_DEBUG_CHECKS) code = check_invariants(t, err);
        if (code == FT_DATA) *end = FT_END_WATCH;
    }
    if (code) return code;
    t->total.samples += u->samples;
    t->total.tokens += u->tokens;
    t->total.trained += u->trained;
    ft_position_advance(&t->at, &rows, n_rows);
    if (t->at.in_epoch == 0) ft_dataset_epoch(t->s->train, t->at.epoch);
    u->comm_ms = (double)(ft_comm_busy_ns(t->o.comm) - busy) / FT_MS;
    u->step_ms = ms_since(start);
    return FT_OK;
}
