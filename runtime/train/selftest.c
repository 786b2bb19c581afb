#include "runtime/train/selftest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/coll/comm.h"

static const double control_least = 1e-2;

/* Several samples in a row; every position but the last of a sample predicts the next token. */
struct pack {
    int32_t *ids, *positions, *targets, *cu;
    float *losses;
    int64_t T, n_segments;
};

static void open_pack(struct pack *p, int64_t tokens, size_t n)
{
    memset(p, 0, sizeof *p);
    p->ids = ft_xcalloc((size_t)tokens, sizeof *p->ids);
    p->positions = ft_xcalloc((size_t)tokens, sizeof *p->positions);
    p->targets = ft_xcalloc((size_t)tokens, sizeof *p->targets);
    p->losses = ft_xcalloc((size_t)tokens, sizeof *p->losses);
    p->cu = ft_xcalloc(n + 1, sizeof *p->cu);
}

static void close_pack(struct pack *p)
{
    free(p->ids);
    free(p->positions);
    free(p->targets);
    free(p->losses);
    free(p->cu);
}

static void add(struct pack *p, const struct ft_sample *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        p->ids[p->T + i] = s->ids[i];
        p->positions[p->T + i] = (int32_t)i;
        p->targets[p->T + i] = i + 1 < s->n ? s->ids[i + 1] : -100;
    }
    p->T += s->n;
    p->cu[++p->n_segments] = (int32_t)p->T;
}

/* One segment, positions running on: what a pack without a mask would compute. */
static void take_borders_away(struct pack *p)
{
    p->n_segments = 1;
    p->cu[1] = (int32_t)p->T;
    for (int64_t i = 0; i < p->T; i++) p->positions[i] = (int32_t)i;
}

static enum ft_code measure(const struct ft_pipeline *m, struct pack *p, struct ft_err *err)
{
    const struct ft_batch b = {.T = p->T,
                               .ids = p->ids,
                               .positions = p->positions,
                               .targets = p->targets,
                               .n_segments = p->n_segments,
                               .cu_seqlens = p->cu};
    double sum;
    enum ft_code code = ft_pipeline_evaluate(m, &b, &sum, p->losses, err);
    if (code || m->stages == 1) return code;
    return ft_comm_all_reduce(m->comm, FT_GROUP_PP, p->losses, p->T, FT_F32, FT_SUM, err); /* 0 but on the last stage */
}

/* Losses of each sample alone, one after another in the order given. */
static enum ft_code alone(const struct ft_pipeline *m, const struct ft_sample *s, size_t n, float *losses, struct ft_err *err)
{
    enum ft_code code = FT_OK;
    for (size_t i = 0; !code && i < n; i++) {
        struct pack p;
        open_pack(&p, s[i].n, 1);
        add(&p, &s[i]);
        code = measure(m, &p, err);
        memcpy(losses, p.losses, (size_t)s[i].n * sizeof *losses);
        losses += s[i].n;
        close_pack(&p);
    }
    return code;
}

/* NaN counts as infinitely far. */
static double furthest(const float *a, const float *b, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - b[i]);
        if (!(d <= most)) most = isnan(d) ? INFINITY : d;
    }
    return most;
}

/* Samples in the order given: how far their losses in one pack are from those alone. */
static enum ft_code compare(const struct ft_pipeline *m, const struct ft_sample *s, size_t n, bool borders, double *out,
                            struct ft_err *err)
{
    int64_t tokens = 0;
    for (size_t i = 0; i < n; i++) tokens += s[i].n;
    float *want = ft_xcalloc((size_t)tokens, sizeof *want);
    struct pack p;
    open_pack(&p, tokens, n);
    for (size_t i = 0; i < n; i++) add(&p, &s[i]);
    if (!borders) take_borders_away(&p);
    enum ft_code code = alone(m, s, n, want, err);
    if (!code) code = measure(m, &p, err);
    if (!code) *out = furthest(p.losses, want, tokens);
    close_pack(&p);
    free(want);
    return code;
}

enum ft_code ft_packing_selftest(const struct ft_pipeline *m, const struct ft_sample *samples, size_t n, double tol,
                                 struct ft_selftest *out, struct ft_err *err)
{
    struct ft_sample other[FT_SELFTEST_SAMPLES];
    for (size_t i = 0; i < n; i++) other[i] = samples[n - 1 - i];
    enum ft_code code = compare(m, samples, n, true, &out->packed, err);
    if (!code) code = compare(m, other, n, true, &out->reordered, err);
    if (!code) code = compare(m, samples, n, false, &out->control, err);
    if (code) return ft_wrap(err, "testing that packing changes nothing");
    out->proves = out->control > control_least;
    if (out->packed <= tol && out->reordered <= tol) return FT_OK;
    ft_fail(err, FT_DATA, "packing changes the loss of a token by %.3g (in another order %.3g); %.0e is allowed", out->packed,
            out->reordered, tol);
    return ft_fix(err, "set [data] packing = no");
}
