/* LayerNorm (Ba, Kiros, Hinton 2016), biased variance in two passes. Row-wise like norm.c. */
#include "kernels/cpu/ops.h"

struct fwd {
    enum ft_dtype t;
    int64_t T, h, per;
    float eps;
    const void *x, *delta, *w, *b;
    void *s, *y;
    float *mean, *rstd;
};

static float sum(const float *x, int64_t n)
{
    vf a = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) a += ld(x + i);
    float s = hsum(a);
    for (; i < n; i++) s += x[i];
    return s;
}

static float sum_of_squares_from(const float *x, float mean, int64_t n)
{
    vf a = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const vf d = ld(x + i) - mean;
        a += d * d;
    }
    float s = hsum(a);
    for (; i < n; i++) s += (x[i] - mean) * (x[i] - mean);
    return s;
}

static void fwd_piece(void *arg, int64_t piece, void *scratch)
{
    const struct fwd *f = arg;
    const int64_t h = f->h;
    float *t0 = scratch, *t1 = t0 + h, *t2 = t1 + h;
    const float *w = row_in(f->t, f->w, 0, h, t2 + h), *b = row_in(f->t, f->b, 0, h, t2 + 2 * h);
    for (int64_t i = piece * f->per; i < min64(f->T, (piece + 1) * f->per); i++) {
        const float *x = row_in(f->t, f->x, i * h, h, t0);
        if (f->delta) {
            const float *d = row_in(f->t, f->delta, i * h, h, t1);
            float *s = row_out(f->t, f->s, i * h, t0);
            add_rows_of(x, d, h, s);
            row_end(f->t, f->s, i * h, h, s);
            x = row_in(f->t, f->s, i * h, h, t0);
        }
        const float mean = sum(x, h) / (float)h, r = 1.0f / sqrtf(sum_of_squares_from(x, mean, h) / (float)h + f->eps);
        float *y = row_out(f->t, f->y, i * h, t2);
        IVDEP
        for (int64_t c = 0; c < h; c++) y[c] = (x[c] - mean) * r * w[c] + b[c];
        row_end(f->t, f->y, i * h, h, y);
        f->mean[i] = mean;
        f->rstd[i] = r;
    }
}

void ISA(layernorm_fwd)(struct ft_kctx *k, enum ft_dtype t, int64_t T, int64_t h, float eps, const void *x, const void *delta,
                        const void *w, const void *b, void *s, void *y, float *mean, float *rstd)
{
    struct fwd f = {t, T, h, rows_per_piece(h), eps, x, delta, w, b, s, y, mean, rstd};
    ft_cpu_parallel(k, ceil_div(T, f.per), 5 * h * (int64_t)sizeof(float), fwd_piece, &f);
}

struct bwd {
    enum ft_dtype t;
    int64_t T, h, per;
    const void *dy, *x, *w, *dres;
    const float *mean, *rstd;
    void *dx;
    float *partial; /* (slices, 2h): dw | db, or NULL */
};

static void bwd_row(const struct bwd *b, int64_t i, const float *w, float *dw, float *tmp)
{
    const int64_t h = b->h;
    const float *dy = row_in(b->t, b->dy, i * h, h, tmp), *x = row_in(b->t, b->x, i * h, h, tmp + h);
    const float r = b->rstd[i], mean = b->mean[i];
    vf a1 = {0}, a2 = {0};
    int64_t c = 0;
    for (; c + LANES <= h; c += LANES) {
        const vf g = ld(dy + c) * ld(w + c);
        a1 += g;
        a2 += g * (ld(x + c) - mean);
    }
    float s1 = hsum(a1), s2 = hsum(a2);
    for (; c < h; c++) {
        s1 += dy[c] * w[c];
        s2 += dy[c] * w[c] * (x[c] - mean);
    }
    const float m1 = s1 / (float)h, m2 = s2 / (float)h * r * r;
    if (dw)
        for (c = 0; c < h; c++) {
            dw[c] += dy[c] * ((x[c] - mean) * r);
            dw[h + c] += dy[c];
        }
    float *dx = row_out(b->t, b->dx, i * h, tmp + 2 * h);
    if (b->dres) {
        const float *res = row_in(b->t, b->dres, i * h, h, tmp + 3 * h);
        IVDEP
        for (c = 0; c < h; c++) dx[c] = res[c] + (dy[c] * w[c] - m1 - (x[c] - mean) * m2) * r;
    } else {
        IVDEP
        for (c = 0; c < h; c++) dx[c] = (dy[c] * w[c] - m1 - (x[c] - mean) * m2) * r;
    }
    row_end(b->t, b->dx, i * h, h, dx);
}

static void bwd_piece(void *arg, int64_t piece, void *scratch)
{
    const struct bwd *b = arg;
    float *tmp = scratch, *dw = b->partial ? b->partial + piece * 2 * b->h : NULL;
    const float *w = row_in(b->t, b->w, 0, b->h, tmp + 4 * b->h);
    if (dw) memset(dw, 0, 2 * (size_t)b->h * sizeof *dw);
    for (int64_t i = piece * b->per; i < min64(b->T, (piece + 1) * b->per); i++) bwd_row(b, i, w, dw, tmp);
}

void ISA(layernorm_bwd)(struct ft_kctx *k, enum ft_dtype t, int64_t T, int64_t h, const void *dy, const void *x, const float *mean,
                        const float *rstd, const void *w, const void *dres, void *dx, float *dw, float *db)
{
    if (T <= 0) return;
    struct bwd b = {t, T, h, max64(rows_per_piece(h), ceil_div(T, 256)), dy, x, w, dres, mean, rstd, dx, NULL};
    const int64_t slices = ceil_div(T, b.per);
    if (dw || db) b.partial = ft_cpu_shared(k, (slices + 1) * 2 * h * (int64_t)sizeof(float));
    ft_cpu_parallel(k, slices, 5 * h * (int64_t)sizeof(float), bwd_piece, &b);
    if (!b.partial) return;
    float *sum_wb = b.partial + slices * 2 * h;
    memset(sum_wb, 0, 2 * (size_t)h * sizeof *sum_wb);
    ISA(add_slices)(k, slices, 2 * h, b.partial, sum_wb);
    for (int64_t c = 0; c < h; c++) {
        if (dw) dw[c] += sum_wb[c];
        if (db) db[c] += sum_wb[h + c];
    }
}
