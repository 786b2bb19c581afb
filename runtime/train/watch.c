#include "runtime/train/watch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SPIKE_AFTER = 10, SPIKE_PAUSE = 50 };
static const double spike_factor = 10, diverged_factor = 1.5, diverged_rise = 1.0;

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(const double *v, int64_t n)
{
    double s[FT_WATCH_N];
    memcpy(s, v, (size_t)n * sizeof *s);
    qsort(s, (size_t)n, sizeof *s, by_value);
    return n % 2 ? s[n / 2] : (s[n / 2 - 1] + s[n / 2]) / 2;
}

double ft_watch_mean20(const struct ft_watch *w)
{
    if (w->n < FT_WATCH_WINDOW) return NAN;
    double sum = 0;
    for (int64_t k = w->n - FT_WATCH_WINDOW; k < w->n; k++) sum += w->losses[k % FT_WATCH_N];
    return sum / FT_WATCH_WINDOW;
}

static bool spikes(struct ft_watch *w, double norm, struct ft_buf *why)
{
    const int64_t n = w->n < FT_WATCH_N ? w->n : FT_WATCH_N;
    if (n < SPIKE_AFTER) return false;
    const double usual = median(w->norms, n);
    if (!(norm > spike_factor * usual) || (w->last_spike && w->n + 1 - w->last_spike < SPIKE_PAUSE)) return false;
    w->last_spike = w->n + 1;
    ft_buf_addf(why,
                "gradient norm %.6g at update %lld is more than %g times the median of the last %lld updates (%.6g); a lower lr "
                "(1e-5) or a longer warm-up helps\n",
                norm, (long long)w->n + 1, spike_factor, (long long)n, usual);
    return true;
}

static bool diverges(struct ft_watch *w, double lr, struct ft_buf *why)
{
    const double mean = ft_watch_mean20(w);
    if (isnan(mean)) return false;
    if (w->n % FT_WATCH_WINDOW == 0) {
        w->above = w->n > FT_WATCH_WINDOW && mean > diverged_factor * w->best20 ? w->above + 1 : 0;
        if (w->n == FT_WATCH_WINDOW || mean < w->best20) w->best20 = mean;
    }
    const bool risen = mean > w->loss1 + diverged_rise, apart = w->above >= FT_WATCH_WINDOWS;
    if (!risen && !apart) return false;
    if (risen)
        ft_buf_addf(why, "the loss diverges: mean of the last %d updates %.6g, loss of update 1 %.6g", FT_WATCH_WINDOW, mean,
                    w->loss1);
    else
        ft_buf_addf(why, "the loss diverges: mean of the last %d updates %.6g, best mean %.6g, %d windows running", FT_WATCH_WINDOW,
                    mean, w->best20, w->above);
    ft_buf_addf(why, "; lr is %g: try a fifth of it (full training: 1e-5), warm-up of at least 3%% of the updates, clip = 1.0\n",
                lr);
    return true;
}

unsigned ft_watch_update(struct ft_watch *w, double loss, double norm, double lr, struct ft_buf *why)
{
    unsigned events = spikes(w, norm, why) ? FT_WATCH_SPIKE : FT_WATCH_NONE;
    if (w->n == 0) w->loss1 = loss;
    w->losses[w->n % FT_WATCH_N] = loss;
    w->norms[w->n % FT_WATCH_N] = norm;
    w->n++;
    if (diverges(w, lr, why)) events |= FT_WATCH_DIVERGED;
    return events;
}

size_t ft_watch_before_start(const struct ft_watch_start *s, struct ft_buf *out)
{
    size_t n = 0;
    if (!s->adapters && s->warmup == 0 && s->lr > 5e-5) {
        ft_buf_addf(
            out,
            "lr: full training with lr = %g and no warm-up: the first updates may undo what the model knows (warmup = 3%%, lr "
            "= 1e-5)\n",
            s->lr);
        n++;
    }
    if (s->adapters && (s->lr > 1e-3 || s->lr < 1e-5)) {
        ft_buf_addf(out, "lr: adapters with lr = %g: usual is 1e-4 to 1e-3\n", s->lr);
        n++;
    }
    if (s->warmup * 5 > s->n_updates) {
        ft_buf_addf(out, "warmup: the warm-up takes %lld of %lld updates, more than 20%%\n", (long long)s->warmup,
                    (long long)s->n_updates);
        n++;
    }
    if (s->n_updates < 20) {
        ft_buf_addf(out, "steps: only %lld updates in all: a smaller global_batch or more epochs give the model more of them\n",
                    (long long)s->n_updates);
        n++;
    }
    if (s->epochs > 5 && s->records < 1000) {
        ft_buf_addf(out, "epochs: %lld epochs over %lld records: the model is likely to learn them by heart\n",
                    (long long)s->epochs, (long long)s->records);
        n++;
    }
    return n;
}

bool ft_best_judge(struct ft_best *b, double v, int64_t step, double min_delta)
{
    b->count++;
    if (step == 0) return false;
    if (isfinite(v) && (!b->best_step || v < b->best - min_delta)) {
        b->best = v;
        b->best_step = step;
        b->bad = 0;
        return true;
    }
    b->bad++;
    return false;
}

bool ft_best_stops(const struct ft_best *b, int64_t patience) { return patience > 0 && b->bad >= patience; }

bool ft_best_general(struct ft_best *b, double v, int64_t step, double limit)
{
    if (step == 0 || !b->has_general) {
        b->general0 = v;
        b->has_general = true;
        b->general_bad = 0;
        return false;
    }
    const bool risen = !(v <= b->general0 * (1 + limit));
    b->general_bad = risen ? b->general_bad + 1 : 0;
    return risen;
}
