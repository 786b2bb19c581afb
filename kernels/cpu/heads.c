/* QK-norm (RMSNorm over the head) and RoPE (Su et al. 2021, half-split form) in place on the heads of a fused row. Row-wise. */
#include "kernels/cpu/ops.h"

struct fwd {
    enum ft_dtype t;
    int64_t T, n_heads, D, ld, per;
    void *x, *pre;
    const int32_t *positions;
    const float *cos, *sin;
    const void *w;
    float eps;
    float *rstd;
};

/* y (D) = rotation of x by the angles at c, s (D/2); sign -1 turns back. */
static void rotate(const float *x, const float *c, const float *s, float sign, int64_t half, float *y)
{
    IVDEP
    for (int64_t i = 0; i < half; i++) {
        const float a = x[i], b = x[i + half], si = sign * s[i];
        y[i] = a * c[i] - b * si;
        y[i + half] = b * c[i] + a * si;
    }
}

static void fwd_head(const struct fwd *f, int64_t i, int64_t head, const float *w, float *tmp)
{
    const int64_t D = f->D, at = i * f->ld + head * D, half = D / 2;
    const float *x = row_in(f->t, f->x, at, D, tmp);
    float *y = row_out(f->t, f->x, at, tmp);
    if (w) {
        if (f->pre) {
            const size_t bytes = (size_t)D * ft_dtype_bytes(f->t);
            memcpy((char *)f->pre + (size_t)(i * f->n_heads + head) * bytes, (const char *)f->x + (size_t)at * ft_dtype_bytes(f->t),
                   bytes);
        }
        const float r = 1.0f / sqrtf(dot_of(x, x, D) / (float)D + f->eps);
        if (f->rstd) f->rstd[i * f->n_heads + head] = r;
        for (int64_t c = 0; c < D; c++) y[c] = x[c] * r * w[c];
        if (f->cos) { /* the norm's output is rounded to the working type, as when it is stored */
            row_end(f->t, f->x, at, D, y);
            x = row_in(f->t, f->x, at, D, tmp);
        }
    }
    if (f->cos) rotate(x, f->cos + f->positions[i] * half, f->sin + f->positions[i] * half, 1, half, y);
    row_end(f->t, f->x, at, D, y);
}

static void fwd_piece(void *arg, int64_t piece, void *scratch)
{
    const struct fwd *f = arg;
    float *tmp = scratch;
    const float *w = f->w ? row_in(f->t, f->w, 0, f->D, tmp + f->D) : NULL;
    for (int64_t i = piece * f->per; i < min64(f->T, (piece + 1) * f->per); i++)
        for (int64_t head = 0; head < f->n_heads; head++) fwd_head(f, i, head, w, tmp);
}

void ISA(heads_fwd)(struct ft_kctx *k, enum ft_dtype t, int64_t T, int64_t n_heads, int64_t D, int64_t ld, void *x,
                    const int32_t *positions, const float *cos, const float *sin, const void *w, float eps, void *pre, float *rstd)
{
    if (!w && !cos) return;
    struct fwd f = {t, T, n_heads, D, ld, rows_per_piece(n_heads * D), x, pre, positions, cos, sin, w, eps, rstd};
    ft_cpu_parallel(k, ceil_div(T, f.per), 2 * D * (int64_t)sizeof(float), fwd_piece, &f);
}

struct bwd {
    enum ft_dtype t;
    int64_t T, n_heads, D, ld, per;
    void *dx;
    const int32_t *positions;
    const float *cos, *sin;
    const void *w, *pre;
    const float *rstd;
    float *partial; /* (slices, D) or NULL */
};

static void bwd_head(const struct bwd *b, int64_t i, int64_t head, const float *w, float *dw, float *tmp)
{
    const int64_t D = b->D, at = i * b->ld + head * D, half = D / 2;
    const float *dy = row_in(b->t, b->dx, at, D, tmp);
    float *dx = row_out(b->t, b->dx, at, tmp);
    if (b->cos) {
        rotate(dy, b->cos + b->positions[i] * half, b->sin + b->positions[i] * half, -1, half, dx);
        dy = dx;
    }
    if (w) {
        const int64_t row = i * b->n_heads + head;
        const float *x = row_in(b->t, b->pre, row * D, D, tmp + D), r = b->rstd[row];
        float dot = 0;
        for (int64_t c = 0; c < D; c++) dot += dy[c] * w[c] * x[c];
        const float mean = dot / (float)D * r * r * r;
        for (int64_t c = 0; c < D; c++) {
            if (dw) dw[c] += dy[c] * (x[c] * r);
            dx[c] = dy[c] * w[c] * r - x[c] * mean;
        }
    }
    row_end(b->t, b->dx, at, D, dx);
}

static void bwd_piece(void *arg, int64_t piece, void *scratch)
{
    const struct bwd *b = arg;
    float *tmp = scratch, *dw = b->partial ? b->partial + piece * b->D : NULL;
    const float *w = b->w ? row_in(b->t, b->w, 0, b->D, tmp + 2 * b->D) : NULL;
    if (dw) memset(dw, 0, (size_t)b->D * sizeof *dw);
    for (int64_t i = piece * b->per; i < min64(b->T, (piece + 1) * b->per); i++)
        for (int64_t head = 0; head < b->n_heads; head++) bwd_head(b, i, head, w, dw, tmp);
}

void ISA(heads_bwd)(struct ft_kctx *k, enum ft_dtype t, int64_t T, int64_t n_heads, int64_t D, int64_t ld, void *dx,
                    const int32_t *positions, const float *cos, const float *sin, const void *w, const void *pre, const float *rstd,
                    float *dw)
{
    if ((!w && !cos) || T <= 0) return;
    struct bwd b = {t,   T, n_heads, D,    ld,  max64(rows_per_piece(n_heads * D), ceil_div(T, 256)), dx, positions, cos,
                    sin, w, pre,     rstd, NULL};
    const int64_t slices = ceil_div(T, b.per);
    if (w && dw) b.partial = ft_cpu_shared(k, slices * D * (int64_t)sizeof(float));
    ft_cpu_parallel(k, slices, 3 * D * (int64_t)sizeof(float), bwd_piece, &b);
    if (b.partial) ISA(add_slices)(k, slices, D, b.partial, dw);
}
