#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/bits/mix64.h"
#include "runtime/data/order.h"
#include "runtime/data/pack.h"

static double uniform(uint64_t *state)
{
    return ((double)(ft_mix64(++*state * 0x9E3779B97F4A7C15ull) >> 11) + 0.5) / 9007199254740992.0;
}
static double normal(uint64_t *state) { return sqrt(-2 * log(uniform(state))) * cos(6.283185307179586 * uniform(state)); }

/* Packs lengths in file order; every sample is in exactly one pack and none overflows. Returns the fill. */
static double fill_of(const int32_t *lengths, int64_t n, int32_t row)
{
    int64_t *order = ft_xcalloc((size_t)n, sizeof *order), tokens = 0;
    char *seen = ft_xcalloc((size_t)n, 1);
    for (int64_t i = 0; i < n; i++) order[i] = i;
    struct ft_packs p = ft_pack(lengths, order, n, row, FT_PACK_WINDOW);
    assert_int_equal(p.start[p.n_packs], n);
    for (int64_t k = 0; k < p.n_packs; k++) {
        int64_t sum = 0;
        assert_true(p.start[k + 1] > p.start[k]);
        for (int64_t i = p.start[k]; i < p.start[k + 1]; i++) {
            assert_false(seen[p.sample[i]]);
            seen[p.sample[i]] = 1;
            sum += lengths[p.sample[i]];
        }
        assert_true(sum <= row);
        tokens += sum;
    }
    const double fill = (double)tokens / ((double)p.n_packs * row);
    ft_packs_fini(&p);
    free(order);
    free(seen);
    return fill;
}

static void fills_rows(void **state)
{
    (void)state;
    enum { N = 100000 };
    static const struct {
        double median, sigma;
        int32_t row;
        double least;
    } sets[] = {{120, 0.8, 2048, 0.9998}, {700, 0.6, 2048, 0.995}};
    int32_t *v = ft_xcalloc(N, sizeof *v);
    uint64_t seed = 5;
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++) {
        for (int i = 0; i < N; i++) {
            const double x = sets[s].median * exp(sets[s].sigma * normal(&seed));
            v[i] = x < 1 ? 1 : x > sets[s].row ? sets[s].row : (int32_t)x;
        }
        const double fill = fill_of(v, N, sets[s].row);
        printf("lognormal, median %g, row %d: %.2f %%\n", sets[s].median, sets[s].row, 100 * fill);
        assert_true(fill >= sets[s].least);
    }
    for (int i = 0; i < N; i++) v[i] = 1024 + (int32_t)(2049 * uniform(&seed));
    const double fill = fill_of(v, N, 8192);
    printf("uniform 1024-3072, row 8192: %.2f %%\n", 100 * fill);
    assert_true(fill >= 0.97);
    for (int i = 0; i < 3000; i++) {
        const double x = 4096 + 512 * normal(&seed);
        v[i] = x < 1 ? 1 : x > 8193 ? 8193 : (int32_t)x;
    }
    assert_true(fill_of(v, 3000, 8193) >= 0.95);
    free(v);
}

static void small_sets(void **state)
{
    (void)state;
    static const int32_t a[] = {2, 3, 1}, one[] = {7};
    assert_true(fill_of(a, 3, 4) > 0.74); /* 3+1 | 2 */
    assert_true(fill_of(one, 1, 8) > 0.8);
    assert_true(fill_of(one, 1, 1000000) > 0);
    for (int32_t row = 1; row < 300; row++) { /* every row size */
        int32_t v[200];
        for (int i = 0; i < 200; i++) v[i] = 1 + (i * 37) % row;
        (void)fill_of(v, 200, row);
    }
}

static void order_decides(void **state)
{
    (void)state;
    enum { N = 5000 };
    int32_t v[N];
    int64_t order[2][N], perm[N];
    for (int i = 0; i < N; i++) v[i] = 1 + (i * 7919) % 100;
    ft_keyed_order(1, FT_SITE_SAMPLES, 0, N, order[0]);
    ft_keyed_order(2, FT_SITE_SAMPLES, 0, N, order[1]);
    struct ft_packs a = ft_pack(v, order[0], N, 128, 1000), b = ft_pack(v, order[0], N, 128, 1000),
                    c = ft_pack(v, order[1], N, 128, 1000);
    assert_int_equal(a.n_packs, b.n_packs);
    assert_memory_equal(a.sample, b.sample, sizeof(int64_t) * N);
    assert_memory_not_equal(a.sample, c.sample, sizeof(int64_t) * N);
    ft_keyed_order(1, FT_SITE_PACKS, 0, a.n_packs, perm);
    ft_packs_reorder(&a, perm);
    for (int64_t k = 0; k < a.n_packs; k++) {
        const int64_t from = b.start[perm[k]], n = b.start[perm[k] + 1] - from;
        assert_int_equal(a.start[k + 1] - a.start[k], n);
        assert_memory_equal(a.sample + a.start[k], b.sample + from, (size_t)n * sizeof(int64_t));
    }
    ft_packs_fini(&a);
    ft_packs_fini(&b);
    ft_packs_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fills_rows), cmocka_unit_test(small_sets), cmocka_unit_test(order_decides)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
