#include "oracle.h"

/* RT-07: z over two shards, padded to 6; loss 0.472261; the pad takes no part; +1000 changes nothing. */
static void shards(const struct ft_kernels *o, struct ft_kctx *k)
{
    static const float z0[] = {2, 1, 0.5f, -1, 3, 77};
    static const double dz[] = {0.229406, 0.084394, 0.051187, 0.011421, -0.376409, 0};
    for (int shift = 0; shift < 2; shift++) {
        float z[6], max[2], sum[2], zy[2];
        for (int i = 0; i < 6; i++) z[i] = z0[i] + (shift ? 1000.0f : 0.0f);
        const int32_t y = 4;
        for (int r = 0; r < 2; r++) o->xent_max(k, 1, r ? 2 : 3, 3, z + 3 * r, &max[r]);
        const float top = max[0] > max[1] ? max[0] : max[1];
        for (int r = 0; r < 2; r++) o->xent_sum(k, 1, r ? 2 : 3, 3, z + 3 * r, &y, 3 * r, &top, &sum[r], &zy[r]);
        const float s = sum[0] + sum[1];
        assert_true(fabs((double)s - 1.603615) < 1e-6);
        assert_true(fabs(log((double)s) - (double)(zy[0] + zy[1]) - 0.472261) < 1e-6);
        for (int r = 0; r < 2; r++) o->xent_bwd(k, FT_F32, 1, r ? 2 : 3, 3, 3, z + 3 * r, &y, 3 * r, &top, &s, 1);
        for (int i = 0; i < 6; i++) assert_true(fabs((double)z[i] - dz[i]) < 1e-6);
        assert_true(z[5] == 0);
    }
}

struct ce {
    int64_t c, V;
    const int32_t *y;
};
static double ce_loss(const double *z, void *ctx)
{
    const struct ce *x = ctx;
    double loss = 0;
    for (int64_t i = 0; i < x->c; i++) {
        double top = -INFINITY, s = 0;
        for (int64_t v = 0; v < x->V; v++) top = fmax(top, z[i * x->V + v]);
        for (int64_t v = 0; v < x->V; v++) s += exp(z[i * x->V + v] - top);
        loss += log(s) + top - z[i * x->V + x->y[i]];
    }
    return loss;
}

static void oracle_case(const struct ft_kernels *o, struct ft_kctx *k, enum ft_dtype t, int64_t V, bool diff)
{
    enum { C = 3 };
    const int32_t y[C] = {0, (int32_t)(V / 2), (int32_t)(V - 1)};
    struct ce c = {C, V, y};
    double *z = doubles(C * V), *g = doubles(C * V), *mine = doubles(C * V);
    float *pz = operand(FT_F32, C * V, 1, 5, z), max[C], sum[C], zy[C];
    if (diff) differences(ce_loss, &c, z, C * V, g);
    o->xent_max(k, C, V, V, pz, max);
    o->xent_sum(k, C, V, V, pz, y, 0, max, sum, zy);
    double loss = 0;
    for (int i = 0; i < C; i++) loss += log((double)sum[i]) - (double)zy[i];
    if (!(fabs(loss - ce_loss(z, &c)) <= 1e-6 * fabs(loss) + 1e-6))
        fail_msg("V %lld: %.9g, not %.9g", (long long)V, loss, ce_loss(z, &c));
    o->xent_bwd(k, t, C, V, V, V, pz, y, 0, max, sum, 0.25f);
    for (int64_t i = 0; i < C; i++)
        for (int64_t v = 0; v < V; v++) mine[i * V + v] = 4 * get(t, (const float *)pz + i * V, v);
    double total = 0;
    for (int64_t i = 0; i < C * V; i++) {
        total += mine[i];
        if (diff && !(fabs(mine[i] - g[i]) <= (t == FT_F32 ? 1e-6 : 0x1p-7) * (fabs(g[i]) + 0.1)))
            fail_msg("dz %g, not %g", mine[i], g[i]);
    }
    assert_true(fabs(total) < (t == FT_F32 ? 1e-5 : 2e-2));
    void *all[] = {z, g, mine, pz};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void against_oracle(const struct ft_kernels *o, struct ft_kctx *k)
{
    static const int64_t V[] = {1, 2, 17, 199, 50257};
    for (int i = 0; i < 5; i++)
        for (int t = 0; t < 2; t++) oracle_case(o, k, both_types[t], V[i], V[i] < 1000);
}

/* A zero head: the first loss is ln V. */
static void zero_head(const struct ft_kernels *o, struct ft_kctx *k)
{
    enum { V = 50257 };
    float *z = calloc(V, 4), max, sum, zy;
    const int32_t y = 50256;
    o->xent_max(k, 1, V, V, z, &max);
    o->xent_sum(k, 1, V, V, z, &y, 0, &max, &sum, &zy);
    assert_true(fabs(log((double)sum) - (double)zy - 10.824905) < 1e-6);
    free(z);
}

static void xent(void **state)
{
    (void)state;
    each_set(shards);
    each_set(against_oracle);
    each_set(zero_head);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(xent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
