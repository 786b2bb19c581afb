#include "base/bits/philox.h"
#include "oracle.h"

/* Slow attention in double over q|k|v packed in one array (T, (H+2K)D); dropped with the same words. */
struct att {
    const struct ft_attn *a;
    const double *dout;
    double *out, *lse;
};
static double att_loss(const double *x, void *ctx)
{
    const struct att *c = ctx;
    const struct ft_attn *a = c->a;
    const int64_t D = a->D, ld = (a->H + 2 * a->K) * D;
    double loss = 0, *p = doubles(a->T), *y = doubles(D);
    for (int64_t s = 0; s < a->seg.n; s++)
        for (int64_t i = a->seg.cu[s]; i < a->seg.cu[s + 1]; i++)
            for (int64_t h = 0; h < a->H; h++) {
                const int64_t kv = h * a->K / a->H, t0 = a->seg.cu[s];
                double top = -INFINITY, sum = 0;
                memset(y, 0, (size_t)D * sizeof *y);
                for (int64_t j = t0; j <= i; j++) {
                    p[j] = 0;
                    for (int64_t d = 0; d < D; d++) p[j] += x[i * ld + h * D + d] * x[j * ld + (a->H + kv) * D + d];
                    p[j] = a->window && j <= i - a->window ? -INFINITY : p[j] * (double)a->scale;
                    top = fmax(top, p[j]);
                }
                for (int64_t j = t0; j <= i; j++) sum += exp(p[j] - top);
                for (int64_t j = t0; j <= i; j++) {
                    double w = exp(p[j] - top) / sum;
                    if (a->drop.p > 0) {
                        const int64_t off = (a->seg.row_offset ? a->seg.row_offset[s] : 0) - t0;
                        const uint64_t e = (uint64_t)(((a->head0 + h) * a->S + i + off) * a->S + j + off);
                        const uint32_t word = ft_philox_word(a->drop.key, (uint64_t)a->seg.rows[s], e);
                        w = word < (uint64_t)(a->drop.p * 4294967296.0) ? 0 : w / (1 - a->drop.p);
                    }
                    for (int64_t d = 0; d < D; d++) y[d] += w * x[j * ld + (a->H + a->K + kv) * D + d];
                }
                for (int64_t d = 0; d < D; d++) {
                    if (c->out) c->out[(i * a->H + h) * D + d] = y[d];
                    if (c->dout) loss += y[d] * c->dout[(i * a->H + h) * D + d];
                }
                if (c->lse) c->lse[i * a->H + h] = top + log(sum);
            }
    free(p);
    free(y);
    return loss;
}

static void check(const struct ft_kernels *o, struct ft_kctx *k, enum ft_dtype t, struct ft_attn a, bool backward)
{
    const int64_t D = a.D, ld = (a.H + 2 * a.K) * D, q = a.H * D, kv = a.K * D;
    a.ld_q = a.ld_kv = ld;
    a.ld_out = q;
    a.scale = 1 / sqrtf((float)D);
    a.S = 512;
    double *x = doubles(a.T * ld), *dout = doubles(a.T * q), *out = doubles(a.T * q), *lse = doubles(a.T * a.H),
           *want = doubles(a.T * ld);
    char *px = operand(t, a.T * ld, 1, 2, x), *pg = operand(t, a.T * q, 2, 1, dout), *po = calloc((size_t)(a.T * q), 4),
         *pd = calloc((size_t)(a.T * ld), 4);
    float *pl = calloc((size_t)(a.T * a.H), 4);
    assert_true(po && pd && pl);
    const int64_t size = (int64_t)ft_dtype_bytes(t);
    o->attn_fwd(k, t, &a, px, px + q * size, px + (q + kv) * size, po, pl);
    struct att c = {&a, dout, out, lse};
    for (int64_t i = a.seg.cu[a.seg.n] * a.H; i < a.T * a.H; i++) lse[i] = -INFINITY; /* tokens of no segment: out is 0 */
    att_loss(x, &c);
    close_all("attention", t, po, out, a.T * q, 3e-6, 0.3);
    for (int64_t i = 0; i < a.T * a.H; i++)
        if (!(fabs((double)pl[i] - lse[i]) <= 3e-6 * (1 + fabs(lse[i]))) && (double)pl[i] != lse[i])
            fail_msg("lse %g, not %g", (double)pl[i], lse[i]);
    if (backward) {
        c.out = NULL;
        c.lse = NULL;
        differences(att_loss, &c, x, a.T * ld, want);
        o->attn_bwd(k, t, &a, px, px + q * size, px + (q + kv) * size, po, pl, pg, pd, pd + q * size, pd + (q + kv) * size);
        close_all("attention dqkv", t, pd, want, a.T * ld, t == FT_F32 ? 1e-5 : 0x1p-6, 1);
    }
    void *all[] = {x, dout, out, lse, want, px, pg, po, pd, pl};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void cases(const struct ft_kernels *o, struct ft_kctx *k)
{
    static const int32_t three[] = {0, 3, 4, 11}, one[] = {0, 330}, two[] = {0, 70, 77}, gap[] = {0, 0, 5};
    static const int64_t rows[] = {7, 9, (int64_t)1 << 33};
    static const int32_t offset[] = {0, 5, 0};
    const struct ft_segments s3 = {3, three, rows, offset}, s1 = {1, one, NULL, NULL}, s2 = {2, two, rows, NULL},
                             sg = {2, gap, NULL, NULL};
    for (int t = 0; t < 2; t++) {
        check(o, k, both_types[t], (struct ft_attn){.T = 11, .H = 4, .K = 2, .D = 6, .seg = s3}, true);
        check(o, k, both_types[t], (struct ft_attn){.T = 11, .H = 3, .K = 3, .D = 1, .seg = s3}, true);
        check(o, k, both_types[t], (struct ft_attn){.T = 11, .H = 6, .K = 1, .D = 5, .window = 3, .seg = s3}, true);
        check(o, k, both_types[t], (struct ft_attn){.T = 11, .H = 2, .K = 1, .D = 4, .drop = {0.3, 99}, .head0 = 2, .seg = s3},
              true);
        check(o, k, both_types[t], (struct ft_attn){.T = 330, .H = 3, .K = 1, .D = 8, .seg = s1}, false);
        check(o, k, both_types[t], (struct ft_attn){.T = 330, .H = 1, .K = 1, .D = 33, .window = 300, .seg = s1}, false);
        check(o, k, both_types[t], (struct ft_attn){.T = 9, .H = 2, .K = 2, .D = 4, .seg = sg}, true);
    }
    check(o, k, FT_F32, (struct ft_attn){.T = 77, .H = 2, .K = 1, .D = 4, .seg = s2}, true);
    check(o, k, FT_F32, (struct ft_attn){.T = 77, .H = 2, .K = 1, .D = 3, .drop = {0.1, 5}, .seg = s2}, true);
}

static void attention(void **state)
{
    (void)state;
    each_set(cases);
}

/* A row of several key blocks: the oracle is slow there, so every 97th element is compared. */
static void long_row(void **state)
{
    (void)state;
    enum { T = 300, D = 4 };
    static const int32_t cu[] = {0, T};
    struct ft_attn a = {
        .T = T, .H = 1, .K = 1, .D = D, .ld_q = 3 * D, .ld_kv = 3 * D, .ld_out = D, .scale = 0.5f, .seg = {1, cu, NULL, NULL}};
    double *x = doubles(T * 3 * D), *dout = doubles(T * D);
    float *px = operand(FT_F32, T * 3 * D, 1, 2, x), *pg = operand(FT_F32, T * D, 2, 1, dout), *po = calloc(T * D, 4),
          *pd = calloc(T * 3 * D, 4), *pl = calloc(T, 4);
    assert_true(po && pd && pl);
    char why[256];
    struct ft_kctx *k = ft_cpu_kctx_create(2, why, sizeof why);
    if (!k) fail_msg("%s", why);
    ft_cpu_kernels()->attn_fwd(k, FT_F32, &a, px, px + D, px + 2 * D, po, pl);
    ft_cpu_kernels()->attn_bwd(k, FT_F32, &a, px, px + D, px + 2 * D, po, pl, pg, pd, pd + D, pd + 2 * D);
    struct att c = {&a, dout, NULL, NULL};
    for (int64_t i = 0; i < T * 3 * D; i += 97) {
        const double keep = x[i];
        x[i] = keep + 1e-5;
        const double up = att_loss(x, &c);
        x[i] = keep - 1e-5;
        const double g = (up - att_loss(x, &c)) / 2e-5;
        x[i] = keep;
        if (!(fabs((double)pd[i] - g) <= 1e-5 * (1 + fabs(g))))
            fail_msg("element %lld: %g, not %g", (long long)i, (double)pd[i], g);
    }
    ft_cpu_kctx_destroy(k);
    void *all[] = {x, dout, px, pg, po, pd, pl};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(attention), cmocka_unit_test(long_row)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
