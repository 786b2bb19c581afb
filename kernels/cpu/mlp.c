/* SwiGLU (Shazeer 2020), GELU in its tanh form, bias gradients. Element-wise, memory-bound; blocks of BLOCK elements pass
 * through buffers on the stack when the working type is bf16. */
#include "kernels/cpu/ops.h"

enum { BLOCK = 1024, PIECE = 32768 };

struct job {
    enum ft_dtype t;
    int64_t n;
    const void *a, *b, *c;
    void *y, *z;
};

static inline vf sigmoid(vf x) { return 1.0f / (1.0f + vexp(-x)); }

static inline vf swiglu(vf gate, vf up) { return gate * sigmoid(gate) * up; }

static void swiglu_fwd_piece(void *arg, int64_t piece, void *scratch)
{
    (void)scratch;
    const struct job *w = arg;
    float ta[BLOCK], tb[BLOCK], ty[BLOCK];
    for (int64_t at = piece * PIECE; at < min64(w->n, (piece + 1) * PIECE); at += BLOCK) {
        const int64_t n = min64(BLOCK, w->n - at);
        const float *g = row_in(w->t, w->a, at, n, ta), *u = row_in(w->t, w->b, at, n, tb);
        float *y = row_out(w->t, w->y, at, ty);
        int64_t i = 0;
        for (; i + LANES <= n; i += LANES) st(y + i, swiglu(ld(g + i), ld(u + i)));
        if (i < n) st_part(y + i, swiglu(ld_part(g + i, n - i, 0), ld_part(u + i, n - i, 0)), n - i);
        row_end(w->t, w->y, at, n, y);
    }
}

void ISA(swiglu_fwd)(struct ft_kctx *k, enum ft_dtype t, int64_t n, const void *gate, const void *up, void *a)
{
    struct job w = {t, n, gate, up, NULL, a, NULL};
    ft_cpu_parallel(k, ceil_div(n, PIECE), 0, swiglu_fwd_piece, &w);
}

/* d(silu(g) u)/dg = s (1 + g (1 - s)) u with s = sigmoid(g). */
static inline void swiglu_grad(vf g, vf u, vf da, vf *dg, vf *du)
{
    const vf s = sigmoid(g), silu = g * s;
    *du = da * silu;
    *dg = da * u * (s + silu * (1.0f - s));
}

static void swiglu_bwd_piece(void *arg, int64_t piece, void *scratch)
{
    (void)scratch;
    const struct job *w = arg;
    float ta[BLOCK], tb[BLOCK], tc[BLOCK], ty[BLOCK], tz[BLOCK];
    for (int64_t at = piece * PIECE; at < min64(w->n, (piece + 1) * PIECE); at += BLOCK) {
        const int64_t n = min64(BLOCK, w->n - at);
        const float *g = row_in(w->t, w->a, at, n, ta), *u = row_in(w->t, w->b, at, n, tb), *d = row_in(w->t, w->c, at, n, tc);
        float *dg = row_out(w->t, w->y, at, ty), *du = row_out(w->t, w->z, at, tz);
        vf x, y;
        int64_t i = 0;
        for (; i + LANES <= n; i += LANES) {
            swiglu_grad(ld(g + i), ld(u + i), ld(d + i), &x, &y);
            st(dg + i, x);
            st(du + i, y);
        }
        if (i < n) {
            swiglu_grad(ld_part(g + i, n - i, 0), ld_part(u + i, n - i, 0), ld_part(d + i, n - i, 0), &x, &y);
            st_part(dg + i, x, n - i);
            st_part(du + i, y, n - i);
        }
        row_end(w->t, w->y, at, n, dg);
        row_end(w->t, w->z, at, n, du);
    }
}

void ISA(swiglu_bwd)(struct ft_kctx *k, enum ft_dtype t, int64_t n, const void *gate, const void *up, const void *da, void *dgate,
                     void *dup)
{
    struct job w = {t, n, gate, up, da, dgate, dup};
    ft_cpu_parallel(k, ceil_div(n, PIECE), 0, swiglu_bwd_piece, &w);
}

#define GELU_A 0.7978845608028654f /* sqrt(2/pi) */
#define GELU_B 0.044715f

/* 0.5 (1 + tanh u) = sigmoid(2u): no cancellation where x is negative. */
static inline vf gelu(vf x) { return x * sigmoid(2.0f * GELU_A * (x + GELU_B * x * x * x)); }

static inline vf gelu_grad(vf x)
{
    const vf e = vexp(-2.0f * GELU_A * (x + GELU_B * x * x * x)), s = 1.0f / (1.0f + e);
    return s + x * s * (e * s) * (2.0f * GELU_A * (1.0f + 3.0f * GELU_B * x * x));
}

static void gelu_piece(void *arg, int64_t piece, void *scratch)
{
    (void)scratch;
    const struct job *w = arg;
    float ta[BLOCK], tb[BLOCK], ty[BLOCK];
    for (int64_t at = piece * PIECE; at < min64(w->n, (piece + 1) * PIECE); at += BLOCK) {
        const int64_t n = min64(BLOCK, w->n - at);
        const float *x = row_in(w->t, w->a, at, n, ta), *d = w->b ? row_in(w->t, w->b, at, n, tb) : NULL;
        float *y = row_out(w->t, w->y, at, ty);
        for (int64_t i = 0; i < n; i += LANES) {
            const int64_t m = min64(LANES, n - i);
            const vf v = m == LANES ? ld(x + i) : ld_part(x + i, m, 0);
            const vf r = d ? (m == LANES ? ld(d + i) : ld_part(d + i, m, 0)) * gelu_grad(v) : gelu(v);
            if (m == LANES) st(y + i, r);
            else st_part(y + i, r, m);
        }
        row_end(w->t, w->y, at, n, y);
    }
}

void ISA(gelu_fwd)(struct ft_kctx *k, enum ft_dtype t, int64_t n, const void *x, void *y)
{
    struct job w = {t, n, x, NULL, NULL, y, NULL};
    ft_cpu_parallel(k, ceil_div(n, PIECE), 0, gelu_piece, &w);
}

void ISA(gelu_bwd)(struct ft_kctx *k, enum ft_dtype t, int64_t n, const void *x, const void *dy, void *dx)
{
    struct job w = {t, n, x, dy, NULL, dx, NULL};
    ft_cpu_parallel(k, ceil_div(n, PIECE), 0, gelu_piece, &w);
}

/* ---- sums over tokens ---- */

struct slices {
    int64_t n_slices, n;
    const float *partial;
    float *y;
};
enum { COLUMNS = 2048 };

static void slices_piece(void *arg, int64_t piece, void *scratch)
{
    (void)scratch;
    const struct slices *s = arg;
    const int64_t c0 = piece * COLUMNS, c1 = min64(s->n, c0 + COLUMNS);
    for (int64_t i = 0; i < s->n_slices; i++) add_rows_of(s->y + c0, s->partial + i * s->n + c0, c1 - c0, s->y + c0);
}

void ISA(add_slices)(struct ft_kctx *k, int64_t n_slices, int64_t n, const float *partial, float *y)
{
    struct slices s = {n_slices, n, partial, y};
    ft_cpu_parallel(k, ceil_div(n, COLUMNS), 0, slices_piece, &s);
}

struct bias_job {
    enum ft_dtype t;
    int64_t T, n, ld, per;
    const void *dy;
    float *partial;
};

static void bias_piece(void *arg, int64_t piece, void *scratch)
{
    const struct bias_job *w = arg;
    float *sum = w->partial + piece * w->n;
    memset(sum, 0, (size_t)w->n * sizeof *sum);
    for (int64_t i = piece * w->per; i < min64(w->T, (piece + 1) * w->per); i++) {
        const float *d = row_in(w->t, w->dy, i * w->ld, w->n, scratch);
        add_rows_of(sum, d, w->n, sum);
    }
}

void ISA(bias_grad)(struct ft_kctx *k, enum ft_dtype t, int64_t T, int64_t n, const void *dy, int64_t ld, float *db)
{
    if (T <= 0) return;
    struct bias_job w = {t, T, n, ld, max64(rows_per_piece(n), ceil_div(T, 256)), dy, NULL};
    const int64_t slices = ceil_div(T, w.per);
    w.partial = ft_cpu_shared(k, slices * n * (int64_t)sizeof(float));
    ft_cpu_parallel(k, slices, n * (int64_t)sizeof(float), bias_piece, &w);
    ISA(add_slices)(k, slices, n, w.partial, db);
}
