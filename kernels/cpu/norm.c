/* RMSNorm (Zhang, Sennrich 2019), residual sum fused in front. Row-wise, memory-bound. dw: the rows are cut into slices by T
 * alone; each slice sums its rows in order, then slices are added in order (add_slices). */
#include "kernels/cpu/ops.h"

struct fwd {
    enum ft_dtype t;
    int64_t T, h, per;
    float eps;
    const void *x, *delta, *w;
    void *s, *y;
    float *rstd;
};

static float sum_of_squares(const float *x, int64_t n)
{
    vf a = {0}, b = {0};
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        const vf u = ld(x + i), v = ld(x + i + LANES);
        a += u * u;
        b += v * v;
    }
    float s = hsum(a + b);
    for (; i < n; i++) s += x[i] * x[i];
    return s;
}

static void fwd_piece(void *arg, int64_t piece, void *scratch)
{
    const struct fwd *f = arg;
    const int64_t h = f->h;
    float *t0 = scratch, *t1 = t0 + h, *t2 = t1 + h;
    const float *w = row_in(f->t, f->w, 0, h, t2 + h);
    for (int64_t i = piece * f->per; i < min64(f->T, (piece + 1) * f->per); i++) {
        const float *x = row_in(f->t, f->x, i * h, h, t0);
        if (f->delta) {
            const float *d = row_in(f->t, f->delta, i * h, h, t1);
            float *s = row_out(f->t, f->s, i * h, t0);
            add_rows_of(x, d, h, s);
            row_end(f->t, f->s, i * h, h, s);
            x = row_in(f->t, f->s, i * h, h, t0);
        }
        const float r = 1.0f / sqrtf(sum_of_squares(x, h) / (float)h + f->eps);
        float *y = row_out(f->t, f->y, i * h, t2);
        IVDEP
        for (int64_t c = 0; c < h; c++) y[c] = x[c] * r * w[c];
        row_end(f->t, f->y, i * h, h, y);
        f->rstd[i] = r;
    }
}

void ISA(rmsnorm_fwd)(struct ft_kctx *k, enum ft_dtype t, int64_t T, int64_t h, float eps, const void *x, const void *delta,
                      const void *w, void *s, void *y, float *rstd)
{
    struct fwd f = {t, T, h, rows_per_piece(h), eps, x, delta, w, s, y, rstd};
    ft_cpu_parallel(k, ceil_div(T, f.per), 4 * h * (int64_t)sizeof(float), fwd_piece, &f);
}

struct bwd {
    enum ft_dtype t;
    int64_t T, h, per;
    const void *dy, *x, *w, *dres;
    const float *rstd;
    void *dx;
    float *partial; /* (slices, h) or NULL */
};

static void bwd_row(const struct bwd *b, int64_t i, const float *w, float *dw, float *tmp)
{
    const int64_t h = b->h;
    const float *dy = row_in(b->t, b->dy, i * h, h, tmp), *x = row_in(b->t, b->x, i * h, h, tmp + h);
    const float r = b->rstd[i];
    vf acc = {0};
    int64_t c = 0;
    for (; c + LANES <= h; c += LANES) acc += ld(dy + c) * ld(w + c) * ld(x + c);
    float dot = hsum(acc);
    for (; c < h; c++) dot += dy[c] * w[c] * x[c];
    const float mean = dot / (float)h * r * r * r;
    if (dw)
        for (c = 0; c < h; c++) dw[c] += dy[c] * (x[c] * r);
    float *dx = row_out(b->t, b->dx, i * h, tmp + 2 * h);
    if (b->dres) {
        const float *res = row_in(b->t, b->dres, i * h, h, tmp + 3 * h);
        IVDEP
        for (c = 0; c < h; c++) dx[c] = res[c] + (dy[c] * w[c] * r - x[c] * mean);
    } else {
        IVDEP
        for (c = 0; c < h; c++) dx[c] = dy[c] * w[c] * r - x[c] * mean;
    }
    row_end(b->t, b->dx, i * h, h, dx);
}

static void bwd_piece(void *arg, int64_t piece, void *scratch)
{
    const struct bwd *b = arg;
    float *tmp = scratch, *dw = b->partial ? b->partial + piece * b->h : NULL;
    const float *w = row_in(b->t, b->w, 0, b->h, tmp + 4 * b->h);
    if (dw) memset(dw, 0, (size_t)b->h * sizeof *dw);
    for (int64_t i = piece * b->per; i < min64(b->T, (piece + 1) * b->per); i++) bwd_row(b, i, w, dw, tmp);
}

void ISA(rmsnorm_bwd)(struct ft_kctx *k, enum ft_dtype t, int64_t T, int64_t h, const void *dy, const void *x, const float *rstd,
                      const void *w, const void *dres, void *dx, float *dw)
{
    if (T <= 0) return;
    struct bwd b = {t, T, h, max64(rows_per_piece(h), ceil_div(T, 256)), dy, x, w, dres, rstd, dx, NULL};
    const int64_t slices = ceil_div(T, b.per);
    if (dw) b.partial = ft_cpu_shared(k, slices * h * (int64_t)sizeof(float));
    ft_cpu_parallel(k, slices, 5 * h * (int64_t)sizeof(float), bwd_piece, &b);
    if (dw) ISA(add_slices)(k, slices, h, b.partial, dw);
}
