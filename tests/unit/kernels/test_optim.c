#include "oracle.h"

/* RT-05: p 1, lr 0.01, wd 0.1, gradients 0.1 -0.2 0.3. */
static void known(const struct ft_kernels *o, struct ft_kctx *k)
{
    float p = 1, m = 0, v = 0;
    static const float g[] = {0.1f, -0.2f, 0.3f};
    static const double wp[] = {0.989000001, 0.991672036, 0.987247953}, wm[] = {0.01, -0.011, 0.0201},
                        wv[] = {1e-5, 4.999e-5, 1.3994e-4};
    for (int t = 1; t <= 3; t++) {
        const struct ft_adamw a = {.lr = 0.01,
                                   .beta1 = 0.9,
                                   .beta2 = 0.999,
                                   .eps = 1e-8,
                                   .weight_decay = 0.1,
                                   .coef = 1,
                                   .inv_correction1 = 1 / (1 - pow(0.9, t)),
                                   .inv_correction2 = 1 / (1 - pow(0.999, t))};
        o->adamw(k, &a, 1, &p, &m, &v, &g[t - 1], NULL, FT_F32);
        assert_true(fabs((double)p - wp[t - 1]) < 2e-7);
        assert_true(fabs((double)m - wm[t - 1]) < 1e-8);
        assert_true(fabs((double)v - wv[t - 1]) < 1e-4 * wv[t - 1]);
    }
}

static void against_double(const struct ft_kernels *o, struct ft_kctx *k)
{
    static const int64_t sizes[] = {0, 1, 17, 1000, 70003};
    for (int s = 0; s < 5; s++) {
        const int64_t n = sizes[s];
        double *p = doubles(n), *m = doubles(n), *v = doubles(n), *g = doubles(n);
        float *fp = operand(FT_F32, n, 1, 1, p), *fm = operand(FT_F32, n, 2, 1, m), *fv = operand(FT_F32, n, 3, 1, v),
              *fg = operand(FT_F32, n, 4, 1, g);
        uint16_t *w = calloc((size_t)n + 1, 2);
        float *copy = calloc((size_t)n + 1, 4);
        for (int64_t i = 0; i < n; i++) {
            fv[i] = fabsf(fv[i]);
            v[i] = fabs(v[i]);
        }
        const struct ft_adamw a = {1e-3, 0.9, 0.95, 1e-8, 0.01, 0.5, 1.7, 3.1};
        o->adamw(k, &a, n, fp, fm, fv, fg, w, FT_BF16);
        for (int64_t i = 0; i < n; i++) {
            const double d = 0.5 * g[i];
            m[i] = 0.9 * m[i] + 0.1 * d;
            v[i] = 0.95 * v[i] + 0.05 * d * d;
            p[i] = p[i] * (1 - 1e-5) - 1.7e-3 * m[i] / (sqrt(v[i] * 3.1) + 1e-8);
            assert_int_equal(w[i], ft_f32_to_bf16(fp[i])); /* the working copy is the rounded master */
        }
        close_all("p", FT_F32, fp, p, n, 1e-6, 0.1);
        close_all("m", FT_F32, fm, m, n, 1e-6, 0.1);
        close_all("v", FT_F32, fv, v, n, 1e-6, 0.1);
        o->adamw(k, &a, n, fp, fm, fv, fg, copy, FT_F32);
        assert_memory_equal(copy, fp, (size_t)n * 4);
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += (double)fp[i] * (double)fp[i];
        assert_true(fabs(o->sum_squares(k, n, fp) - sum) <= 1e-6 * sum);
        assert_int_equal(o->count_nonfinite(k, n, fp), 0);
        assert_int_equal(o->find_nonfinite(k, n, fp), -1);
        if (n > 10) {
            fp[n - 1] = NAN;
            fp[n - 3] = -INFINITY;
            fp[7] = INFINITY;
            assert_int_equal(o->count_nonfinite(k, n, fp), 3);
            assert_int_equal(o->find_nonfinite(k, n, fp), 7);
            assert_false(isfinite(o->sum_squares(k, n, fp)));
        }
        void *all[] = {p, m, v, g, fp, fm, fv, fg, w, copy};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    }
}

/* RT-16: 100 updates of w = 1 by -1e-3 with a master: bf16 0.8984375. */
static void masters(const struct ft_kernels *o, struct ft_kctx *k)
{
    float p = 1, m = 1, v = 1;
    const float g = 1;
    uint16_t w = 0;
    /* beta1 = beta2 = 1 keep m = v = 1: each update moves p by -lr exactly */
    const struct ft_adamw a = {1e-3, 1, 1, 0, 0, 1, 1, 1};
    for (int i = 0; i < 100; i++) o->adamw(k, &a, 1, &p, &m, &v, &g, &w, FT_BF16);
    assert_true(ft_bf16_to_f32(w) == 0.8984375f);
}

static void optim(void **state)
{
    (void)state;
    each_set(known);
    each_set(against_double);
    each_set(masters);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(optim)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
