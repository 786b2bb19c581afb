#include "oracle.h"

/* s = x + delta; y = norm(s)*w (+b): forward in double; packs x|w|b so that one difference run gives all gradients. */
struct norm {
    int64_t T, h;
    double eps;
    bool layer;
    const double *dy;
};
static double norm_row(const struct norm *c, const double *x, const double *w, const double *b, double *y)
{
    double mean = 0, var = 0;
    for (int64_t i = 0; c->layer && i < c->h; i++) mean += x[i] / (double)c->h;
    for (int64_t i = 0; i < c->h; i++) var += (x[i] - mean) * (x[i] - mean) / (double)c->h;
    const double r = 1 / sqrt(var + c->eps);
    for (int64_t i = 0; i < c->h; i++) y[i] = (x[i] - mean) * r * w[i] + (c->layer ? b[i] : 0);
    return r;
}
static double norm_loss(const double *p, void *ctx)
{
    const struct norm *c = ctx;
    double *y = doubles(c->h), loss = 0;
    for (int64_t t = 0; t < c->T; t++) {
        norm_row(c, p + t * c->h, p + c->T * c->h, p + (c->T + 1) * c->h, y);
        for (int64_t i = 0; i < c->h; i++) loss += y[i] * c->dy[t * c->h + i];
    }
    free(y);
    return loss;
}

static void forward(const struct ft_kernels *o, struct ft_kctx *k, enum ft_dtype t, int64_t T, int64_t h, bool layer, bool delta)
{
    double *x = doubles(T * h), *d = doubles(T * h), *w = doubles(h), *b = doubles(h), *s = doubles(T * h), *y = doubles(T * h),
           *rr = doubles(T);
    void *px = operand(t, T * h, 1, 2, x), *pd = operand(t, T * h, 2, 2, d), *pw = operand(t, h, 3, 1, w),
         *pb = operand(t, h, 4, 1, b);
    void *ps = calloc((size_t)(T * h), 4), *py = calloc((size_t)(T * h), 4);
    float *mean = calloc((size_t)T, 4), *rstd = calloc((size_t)T, 4);
    assert_true(ps && py && mean && rstd);
    if (layer) o->layernorm_fwd(k, t, T, h, 1e-5f, px, delta ? pd : NULL, pw, pb, ps, py, mean, rstd);
    else o->rmsnorm_fwd(k, t, T, h, 1e-5f, px, delta ? pd : NULL, pw, ps, py, rstd);
    const struct norm c = {T, h, 1e-5, layer, NULL};
    for (int64_t i = 0; i < T * h; i++) { /* the sum is rounded before the statistics */
        const float sum = (float)x[i] + (float)(delta ? d[i] : 0);
        s[i] = (double)(t == FT_F32 ? sum : ft_bf16_to_f32(ft_f32_to_bf16(sum)));
    }
    for (int64_t i = 0; i < T; i++) rr[i] = norm_row(&c, s + i * h, w, b, y + i * h);
    if (delta) close_all("sum", t, ps, s, T * h, 1e-7, 0);
    close_all("norm", t, py, y, T * h, 2e-6, 0.5);
    close_all("rstd", FT_F32, rstd, rr, T, 2e-6, 0);
    void *all[] = {x, d, w, b, s, y, rr, px, pd, pw, pb, ps, py, mean, rstd};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void backward(const struct ft_kernels *o, struct ft_kctx *k, int64_t T, int64_t h, bool layer)
{
    double *p = doubles((T + 2) * h), *dy = doubles(T * h), *res = doubles(T * h), *want = doubles((T + 2) * h);
    float *x = operand(FT_F32, T * h, 1, 2, p), *w = operand(FT_F32, h, 3, 1, p + T * h),
          *b = operand(FT_F32, h, 4, 1, p + (T + 1) * h);
    float *g = operand(FT_F32, T * h, 5, 1, dy), *r = operand(FT_F32, T * h, 6, 1, res), *y = calloc((size_t)(T * h), 4);
    float *mean = calloc((size_t)T, 4), *rstd = calloc((size_t)T, 4), *dw = calloc((size_t)h, 4), *db = calloc((size_t)h, 4);
    assert_true(y && mean && rstd && dw && db);
    struct norm c = {T, h, 1e-5, layer, dy};
    differences(norm_loss, &c, p, (T + 2) * h, want);
    for (int64_t i = 0; i < T * h; i++) want[i] += res[i];
    for (int64_t i = 0; i < h; i++) {
        dw[i] = 2; /* gradients are added to */
        want[T * h + i] += 2;
    }
    if (layer) {
        o->layernorm_fwd(k, FT_F32, T, h, 1e-5f, x, NULL, w, b, NULL, y, mean, rstd);
        o->layernorm_bwd(k, FT_F32, T, h, g, x, mean, rstd, w, r, r, dw, db); /* in place on the residual's gradient */
        close_all("db", FT_F32, db, want + (T + 1) * h, h, 1e-5, 1);
    } else {
        o->rmsnorm_fwd(k, FT_F32, T, h, 1e-5f, x, NULL, w, NULL, y, rstd);
        o->rmsnorm_bwd(k, FT_F32, T, h, g, x, rstd, w, r, r, dw);
    }
    close_all("dx", FT_F32, r, want, T * h, 1e-5, 1);
    close_all("dw", FT_F32, dw, want + T * h, h, 1e-5, 1);
    void *all[] = {p, dy, res, want, x, w, b, g, r, y, mean, rstd, dw, db};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void norms_of(const struct ft_kernels *o, struct ft_kctx *k)
{
    static const int64_t s[][2] = {{1, 1}, {3, 7}, {5, 48}, {2, 130}, {70, 1000}};
    for (size_t i = 0; i < sizeof s / sizeof *s; i++)
        for (int layer = 0; layer < 2; layer++)
            for (int delta = 0; delta < 2; delta++)
                for (int t = 0; t < 2; t++) forward(o, k, both_types[t], s[i][0], s[i][1], layer, delta);
    for (int layer = 0; layer < 2; layer++) {
        backward(o, k, 3, 7, layer);
        backward(o, k, 5, 48, layer);
        backward(o, k, 41, 3, layer);
    }
}

static void norms(void **state)
{
    (void)state;
    each_set(norms_of);
}

/* ---- heads: QK-norm and RoPE ---- */

struct heads {
    int64_t T, n, D, ld;
    const int32_t *pos;
    const float *cos, *sin;
    bool norm;
    const double *dy;
};
static void heads_row(const struct heads *c, int64_t t, const double *x, const double *w, double *y)
{
    const int64_t half = c->D / 2;
    double tmp[64], var = 0;
    for (int64_t i = 0; i < c->D; i++) var += x[i] * x[i] / (double)c->D;
    for (int64_t i = 0; i < c->D; i++) tmp[i] = c->norm ? x[i] / sqrt(var + 1e-6) * w[i] : x[i];
    for (int64_t i = 0; i < half; i++) {
        const double co = c->cos ? (double)c->cos[c->pos[t] * half + i] : 1, si = c->cos ? (double)c->sin[c->pos[t] * half + i] : 0;
        y[i] = tmp[i] * co - tmp[i + half] * si;
        y[i + half] = tmp[i + half] * co + tmp[i] * si;
    }
}
static double heads_loss(const double *p, void *ctx)
{
    const struct heads *c = ctx;
    double loss = 0, y[64];
    for (int64_t t = 0; t < c->T; t++)
        for (int64_t h = 0; h < c->n; h++) {
            heads_row(c, t, p + t * c->ld + h * c->D, p + c->T * c->ld, y);
            for (int64_t i = 0; i < c->D; i++) loss += y[i] * c->dy[t * c->ld + h * c->D + i];
        }
    return loss;
}

static void heads_case(const struct ft_kernels *o, struct ft_kctx *k, enum ft_dtype t, int64_t n, int64_t D, bool norm, bool rope)
{
    enum { T = 5, POS = 9 };
    const int64_t ld = n * D + 3;
    const int32_t pos[T] = {0, 1, 8, 0, 5};
    float cs[POS * 32], sn[POS * 32];
    for (int64_t i = 0; i < POS * D / 2; i++) {
        cs[i] = (float)cos(0.3 * (double)i);
        sn[i] = (float)sin(0.3 * (double)i);
    }
    double *p = doubles(T * ld + D), *dy = doubles(T * ld), *want = doubles(T * ld + D);
    void *x = operand(t, T * ld, 1, 2, p), *w = operand(t, D, 2, 1, p + T * ld), *g = operand(t, T * ld, 3, 1, dy);
    void *pre = calloc((size_t)(T * n * D), 4);
    float *rstd = calloc((size_t)(T * n), 4), *dw = calloc((size_t)D, 4);
    assert_true(pre && rstd && dw);
    struct heads c = {T, n, D, ld, pos, rope ? cs : NULL, sn, norm, dy};
    o->heads_fwd(k, t, T, n, D, ld, x, pos, c.cos, rope ? sn : NULL, norm ? w : NULL, 1e-6f, norm ? pre : NULL, norm ? rstd : NULL);
    memcpy(want, p, (size_t)(T * ld) * sizeof *p);
    for (int64_t i = 0; i < T; i++)
        for (int64_t h = 0; h < n; h++) heads_row(&c, i, p + i * ld + h * D, p + T * ld, want + i * ld + h * D);
    close_all("heads", t, x, want, T * ld, t == FT_F32 ? 2e-6 : 0x1p-7, 0.5);
    if (norm)
        for (int64_t i = 0; i < T * n * D; i++) assert_true(get(t, pre, i) == p[i / (n * D) * ld + i % (n * D)]);
    if (t == FT_F32) {
        differences(heads_loss, &c, p, T * ld + D, want);
        for (int64_t i = 0; i < T; i++)
            for (int64_t j = n * D; j < ld; j++) want[i * ld + j] = dy[i * ld + j]; /* not ours: untouched */
        o->heads_bwd(k, t, T, n, D, ld, g, pos, c.cos, rope ? sn : NULL, norm ? w : NULL, pre, rstd, norm ? dw : NULL);
        close_all("heads dx", t, g, want, T * ld, 1e-5, 1);
        if (norm) close_all("heads dw", FT_F32, dw, want + T * ld, D, 1e-5, 1);
    }
    void *all[] = {p, dy, want, x, w, g, pre, rstd, dw};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void heads_of(const struct ft_kernels *o, struct ft_kctx *k)
{
    static const int64_t D[] = {2, 6, 16, 64};
    for (int i = 0; i < 4; i++)
        for (int64_t n = 1; n <= 3; n++)
            for (int form = 1; form < 4; form++)
                for (int t = 0; t < 2; t++) heads_case(o, k, both_types[t], n, D[i], form & 1, form & 2);
}

static void heads(void **state)
{
    (void)state;
    each_set(heads_of);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(norms), cmocka_unit_test(heads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
