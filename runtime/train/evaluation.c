#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/train/saving.h"
#include "runtime/train/trainer_state.h"

/* Sum of cross-entropies and number of targets over some rows of a set, over all ranks. */
struct measured {
    double ce;
    int64_t targets;
};

static double mean(struct measured m) { return m.targets ? m.ce / (double)m.targets : NAN; }

/* Rows [first, first+n) of the set, dealt like training rows: fillers at the end, so every rank makes the same calls. */
static enum ft_code measure_rows(struct ft_trainer *t, const struct ft_dataset *set, int64_t first, int64_t n, struct measured *out,
                                 struct ft_err *err)
{
    const struct ft_deal d = {.global_batch = n, .micro = t->s->layout.deal.micro, .data = t->s->layout.deal.data};
    const struct ft_update_rows all = ft_update_rows(&d, &(struct ft_position){0}, n);
    double sums[2] = {0, 0};
    enum ft_code code = FT_OK;
    for (int64_t j = 0; !code && j < all.n_micro; j++) {
        ft_batch_begin(&t->batch);
        for (int64_t i = 0; i < d.micro; i++) {
            const int64_t row = ft_deal_row(&d, &all, j, t->s->coord.c[FT_AXIS_DP], i);
            if (row < 0) break;
            const struct ft_row r = ft_dataset_row(set, first + row);
            ft_batch_add(&t->batch, &r, 0);
        }
        if (!t->batch.n) ft_batch_add_filler(&t->batch, 0);
        const struct ft_batch b = ft_batch_view(&t->batch);
        double ce = 0;
        code = ft_pipeline_evaluate(&t->pipeline, &b, &ce, NULL, err);
        if (!ft_trainer_counts(t)) continue;
        sums[0] += ce;
        sums[1] += (double)t->batch.n_targets;
    }
    if (!code) code = ft_comm_all_reduce(t->o.comm, FT_GROUP_WORLD, sums, 2, FT_F64, FT_SUM, err);
    if (code) return code;
    *out = (struct measured){sums[0], (int64_t)sums[1]};
    return FT_OK;
}

static void say_value(const struct ft_trainer *t, const char *name, struct measured m)
{
    if (t->o.quiet) return;
    struct ft_buf b = {0};
    ft_buf_addf(&b, "step %lld  %s ", (long long)t->k, name);
    if (m.targets) {
        ft_buf_adds(&b, "loss ");
        ft_buf_add_real(&b, mean(m));
        ft_buf_addf(&b, " over %lld tokens\n", (long long)m.targets);
    } else {
        ft_buf_adds(&b, "no tokens\n");
    }
    fputs(b.data, stdout);
    fflush(stdout);
    ft_buf_fini(&b);
}

static enum ft_code write_value(struct ft_trainer *t, const char *name, struct measured m, struct ft_err *err)
{
    if (!ft_trainer_speaks(t)) return FT_OK;
    say_value(t, name, m);
    const struct ft_eval_line line = {.step = t->k,
                                      .name = name,
                                      .loss = mean(m),
                                      .tokens = m.targets,
                                      .best = t->judge.best,
                                      .best_step = t->judge.best_step,
                                      .bad = t->judge.bad};
    return ft_metrics_eval(&t->metrics, &line, err);
}

/* Each file of the set by itself (rows of a file stand together), and all of them. */
struct files {
    struct measured *each;
    size_t n;
    struct measured all;
};

static enum ft_code measure_set(struct ft_trainer *t, const struct ft_dataset *set, struct files *f, struct ft_err *err)
{
    const int64_t n_rows = ft_dataset_n_rows(set);
    f->n = ft_dataset_n_files(set);
    f->each = ft_xcalloc(f->n + 1, sizeof *f->each);
    f->all = (struct measured){0, 0};
    enum ft_code code = FT_OK;
    for (int64_t from = 0, to; !code && from < n_rows; from = to) {
        const int file = ft_dataset_row_file(set, from);
        for (to = from; to < n_rows && ft_dataset_row_file(set, to) == file; to++) {}
        struct measured m;
        code = measure_rows(t, set, from, to - from, &m, err);
        if (code) break;
        f->each[file].ce += m.ce;
        f->each[file].targets += m.targets;
        f->all.ce += m.ce;
        f->all.targets += m.targets;
    }
    return code;
}

static enum ft_code evaluate_valid(struct ft_trainer *t, bool *best, struct ft_err *err)
{
    struct files f = {0};
    enum ft_code code = measure_set(t, t->s->valid, &f, err);
    *best = !code && ft_best_judge(&t->judge, mean(f.all), t->k, t->s->job->eval.min_delta);
    if (*best) t->best_is_now = true;
    for (size_t i = 0; !code && f.n > 1 && i < f.n; i++) {
        struct ft_buf name = {0};
        ft_buf_addf(&name, "valid/%s", ft_dataset_file_name(t->s->valid, i));
        code = write_value(t, name.data, f.each[i], err);
        ft_buf_fini(&name);
    }
    if (!code) code = write_value(t, "valid", f.all, err);
    free(f.each);
    return code;
}

static enum ft_code evaluate_general(struct ft_trainer *t, struct ft_err *err)
{
    struct files f = {0};
    enum ft_code code = measure_set(t, t->s->general, &f, err);
    if (!code && ft_best_general(&t->judge, mean(f.all), t->k, t->s->job->eval.general_limit) && ft_trainer_speaks(t))
        ft_log(FT_LOG_WARN, "eval",
               "forgetting: the general set's loss is %.6g, %.6g before update 1; a lower lr, fewer epochs or replay ([data] "
               "weights) help",
               mean(f.all), t->judge.general0);
    if (!code) code = write_value(t, "general", f.all, err);
    free(f.each);
    return code;
}

/* Which of the two patience ran out for, and what it likely means. */
static void say_stop(const struct ft_trainer *t)
{
    const int64_t patience = t->s->job->eval.patience;
    if (!ft_trainer_speaks(t)) return;
    if (!ft_best_stops(&t->judge, patience)) {
        ft_log(FT_LOG_WARN, "eval", "forgetting: the general set was worse in %lld evaluations running: stopped",
               (long long)t->judge.general_bad);
        return;
    }
    const bool falls = !(ft_watch_mean20(&t->watch) > t->watch.loss1); /* fewer than 20 updates: taken as falling */
    ft_log(FT_LOG_WARN, "eval", "%s%lld evaluations running were not better than %.6g at step %lld: stopped%s",
           falls ? "overfitting: " : "", (long long)t->judge.bad, t->judge.best, (long long)t->judge.best_step,
           falls ? "; fewer epochs, more weight decay, dropout, a smaller rank, or more and more varied data help" : "");
}

enum ft_code ft_trainer_evaluate(struct ft_trainer *t, bool *stop, bool *best, struct ft_err *err)
{
    *stop = *best = false;
    t->evaluated_at = t->k;
    ft_comm_note(t->o.comm, "evaluation");
    const int64_t patience = t->s->job->eval.patience;
    enum ft_code code = t->s->valid ? evaluate_valid(t, best, err) : FT_OK;
    if (!code && t->s->general) code = evaluate_general(t, err);
    if (code) return code;
    /* every rank has the same sums, but rank 0 decides: all stop in the same step */
    int64_t verdict = ft_best_stops(&t->judge, patience) || (patience > 0 && t->judge.general_bad >= patience);
    code = ft_comm_broadcast(t->o.comm, FT_GROUP_WORLD, 0, &verdict, sizeof verdict, err);
    *stop = verdict != 0;
    if (!code && *stop) say_stop(t);
    return code;
}

enum ft_code ft_trainer_restore_best(struct ft_trainer *t, struct ft_err *err)
{
    if (!t->s->job->eval.restore_best || !t->judge.best_step || t->best_is_now) return FT_OK;
    bool there = false;
    enum ft_code code = ft_saving_load_best(t, &there, err);
    if (code) return ft_wrap(err, "bringing back the best weights, of step %lld", (long long)t->judge.best_step);
    if (!there) {
        if (ft_trainer_speaks(t))
            ft_log(FT_LOG_WARN, "eval", "the best weights, of step %lld, were not saved: those of step %lld are exported",
                   (long long)t->judge.best_step, (long long)t->k);
        return FT_OK;
    }
    for (size_t i = 0; i < t->s->buckets.n_pieces; i++) ft_optimizer_round(&t->optim, &t->s->buckets.pieces[i]);
    t->best_is_now = true;
    return ft_gradsync_gather(&t->sync, err);
}
