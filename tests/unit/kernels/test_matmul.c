#include "oracle.h"

static void one(const struct ft_kernels *o, struct ft_kctx *k, enum ft_dtype t, enum ft_dtype ct, int64_t m, int64_t n, int64_t kk,
                int form, bool add, bool bias, int terms)
{
    double *c0 = doubles(m * n), *want = doubles(m * n), *b0 = doubles(n);
    void *c = operand(ct, m * n, 3, 1, c0), *bi = operand(t, n, 4, 1, b0), *a[3] = {0}, *b[3] = {0};
    struct ft_gemm g = {
        .m = m, .n = n, .ldc = n, .ab_type = t, .c_type = ct, .add = add, .bias = bias ? bi : NULL, .c = c, .n_terms = terms};
    for (int64_t i = 0; i < m * n; i++) want[i] = (add ? c0[i] : 0) + (bias ? b0[i % n] : 0);
    for (int s = 0; s < terms; s++) {
        const bool ta = form == 2, tb = form == 1;
        double *ea = doubles(m * kk), *eb = doubles(n * kk);
        a[s] = operand(t, m * kk, 10 + (uint64_t)s, 1, ea);
        b[s] = operand(t, n * kk, 20 + (uint64_t)s, 1, eb);
        g.term[s] = (struct ft_gemm_term){a[s], b[s], ta ? m : kk, tb ? kk : n, kk, ta, tb};
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++)
                for (int64_t x = 0; x < kk; x++)
                    want[i * n + j] += (ta ? ea[x * m + i] : ea[i * kk + x]) * (tb ? eb[j * kk + x] : eb[x * n + j]);
        free(ea);
        free(eb);
    }
    o->gemm(k, &g);
    close_all("gemm", ct, c, want, m * n, 2e-6, sqrt((double)kk));
    for (int s = 0; s < terms; s++) {
        free(a[s]);
        free(b[s]);
    }
    free(c);
    free(bi);
    free(c0);
    free(b0);
    free(want);
}

static void shapes(const struct ft_kernels *o, struct ft_kctx *k)
{
    static const int64_t s[][3] = {{1, 1, 1},     {3, 5, 7},    {17, 33, 6}, {64, 64, 64},
                                   {200, 391, 5}, {2, 800, 13}, {401, 3, 9}, {5, 37, 1100}};
    for (size_t i = 0; i < sizeof s / sizeof *s; i++)
        for (int form = 0; form < 3; form++) {
            one(o, k, FT_F32, FT_F32, s[i][0], s[i][1], s[i][2], form, i % 2, form == 1, 1);
            one(o, k, FT_BF16, FT_BF16, s[i][0], s[i][1], s[i][2], form, form == 0, i % 2, 1);
            one(o, k, FT_BF16, FT_F32, s[i][0], s[i][1], s[i][2], form, true, false, 1);
            one(o, k, FT_F32, FT_F32, s[i][0], s[i][1], s[i][2], form, false, false, 3);
            one(o, k, FT_BF16, FT_BF16, s[i][0], s[i][1], s[i][2], form, false, false, 2);
        }
}

static void gemm(void **state)
{
    (void)state;
    each_set(shapes);
}

/* The same bits with 1, 2, 3 and 5 threads. */
static void threads(void **state)
{
    (void)state;
    enum { M = 600, N = 900, K = 70 };
    float *a = operand(FT_F32, M * K, 1, 1, NULL), *b = operand(FT_F32, N * K, 2, 1, NULL), *c1 = calloc(M * N, 4),
          *c = calloc(M * N, 4);
    assert_true(c1 && c);
    static const int n[] = {1, 2, 3, 5};
    for (int i = 0; i < 4; i++) {
        char why[256];
        struct ft_kctx *k = ft_cpu_kctx_create(n[i], why, sizeof why);
        if (!k) fail_msg("%s", why);
        assert_int_equal(ft_cpu_kctx_threads(k), n[i]);
        const struct ft_gemm g = {.m = M, .n = N, .ldc = N, .c = i ? c : c1, .n_terms = 1, .term = {{a, b, K, K, K, false, true}}};
        ft_cpu_kernels()->gemm(k, &g);
        if (i) assert_memory_equal(c, c1, M * N * 4);
        ft_cpu_kctx_destroy(k);
    }
    free(a);
    free(b);
    free(c);
    free(c1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gemm), cmocka_unit_test(threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
