#include <sys/mman.h>

#include "base/bits/philox.h"
#include "oracle.h"

static const int64_t sizes[] = {0, 1, 5, 16, 1000, 1025, 70001};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static double silu(double x) { return x / (1 + exp(-x)); }
static double gelu_new(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x))); }
static double swiglu_loss(const double *x, void *dy) { return silu(x[0]) * x[1] * *(const double *)dy; }
static double gelu_loss(const double *x, void *dy) { return gelu_new(x[0]) * *(const double *)dy; }

static void mlp_case(const struct ft_kernels *o, struct ft_kctx *k, enum ft_dtype t, int64_t n)
{
    double *g = doubles(n), *u = doubles(n), *d = doubles(n), *y = doubles(n), *y2 = doubles(n), *wg = doubles(n), *wu = doubles(n),
           *wx = doubles(n);
    void *pg = operand(t, n, 1, 12, g), *pu = operand(t, n, 2, 3, u), *pd = operand(t, n, 3, 1, d), *py = operand(t, n, 4, 1, NULL),
         *pz = operand(t, n, 5, 1, NULL);
    for (int64_t i = 0; i < n; i++) {
        double x[2] = {g[i], u[i]}, grad[2];
        y[i] = silu(g[i]) * u[i];
        y2[i] = gelu_new(g[i]);
        if (i % 7 && n > 2000) { /* differences are dear: every seventh of the long ones */
            const double s = 1 / (1 + exp(-g[i]));
            wg[i] = d[i] * u[i] * s * (1 + g[i] * (1 - s));
            wu[i] = d[i] * silu(g[i]);
            wx[i] = NAN;
            continue;
        }
        differences(swiglu_loss, &d[i], x, 2, grad);
        wg[i] = grad[0];
        wu[i] = grad[1];
        differences(gelu_loss, &d[i], x, 1, &wx[i]);
    }
    o->swiglu_fwd(k, t, n, pg, pu, py);
    close_all("swiglu", t, py, y, n, 1e-6, 0.1);
    o->gelu_fwd(k, t, n, pg, py);
    close_all("gelu", t, py, y2, n, 1e-6, 1);
    o->gelu_bwd(k, t, n, pg, pd, py);
    for (int64_t i = 0; i < n; i++)
        if (!isnan(wx[i]))
            close_all("gelu dx", FT_F32, &(float){(float)get(t, py, i)}, &wx[i], 1, t == FT_F32 ? 1e-5 : 0x1p-7, 0.1);
    o->swiglu_bwd(k, t, n, pg, pu, pd, py, pz);
    close_all("swiglu dgate", t, py, wg, n, 1e-5, 0.1);
    close_all("swiglu dup", t, pz, wu, n, 1e-5, 0.1);
    void *saved = operand(t, n, 4, 1, NULL);
    o->swiglu_bwd(k, t, n, pg, pu, pd, pg, pu); /* in place: the same bits */
    assert_memory_equal(pg, py, (size_t)n * ft_dtype_bytes(t));
    assert_memory_equal(pu, pz, (size_t)n * ft_dtype_bytes(t));
    void *all[] = {g, u, d, y, y2, wg, wu, wx, pg, pu, pd, py, pz, saved};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void mlps(const struct ft_kernels *o, struct ft_kctx *k)
{
    for (int i = 0; i < N_SIZES; i++)
        for (int t = 0; t < 2; t++) mlp_case(o, k, both_types[t], sizes[i]);
}

static void embed_case(const struct ft_kernels *o, struct ft_kctx *k, enum ft_dtype t)
{
    enum { T = 6, H = 37, V = 9 };
    const int32_t ids[T] = {3, 8, 3, 0, 4, 3}, row[] = {0, 1, 2}, start[] = {0, 1, 4, 5}, token[] = {3, 0, 2, 5, 4};
    double *e = doubles(V * H), *dx = doubles(T * H), *want = doubles(T * H), *grad = doubles(V * H);
    void *pe = operand(t, V * H, 1, 1, e), *px = operand(t, T * H, 2, 1, dx), *y = operand(t, T * H, 3, 1, NULL);
    float *dE = calloc(V * H, 4);
    o->embed_fwd(k, t, T, H, ids, 2, 5, pe, y); /* this rank holds ids 2..6 */
    for (int64_t i = 0; i < T * H; i++) want[i] = ids[i / H] >= 2 && ids[i / H] < 7 ? e[(ids[i / H] - 2) * H + i % H] : 0;
    close_all("embed", t, y, want, T * H, 0, 0);
    o->add_rows(k, t, T, H, ids, pe, y);
    for (int64_t i = 0; i < T * H; i++) want[i] += e[ids[i / H] * H + i % H];
    close_all("add_rows", t, y, want, T * H, 1e-7, 0);
    const struct ft_lists l = {3, row, start, token};
    for (int64_t r = 0; r < 3; r++)
        for (int32_t j = start[r]; j < start[r + 1]; j++)
            for (int64_t c = 0; c < H; c++) grad[row[r] * H + c] += dx[token[j] * H + c];
    o->embed_bwd(k, t, H, &l, px, dE);
    close_all("embed dE", FT_F32, dE, grad, V * H, 1e-6, 0.1);
    void *all[] = {e, dx, want, grad, pe, px, y, dE};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void rows_case(const struct ft_kernels *o, struct ft_kctx *k, enum ft_dtype t)
{
    enum { T = 9, H = 21, N = 4 };
    const int32_t index[N] = {1, 2, 5, 8};
    double *x = doubles(T * H), *want = doubles(T * H), *sums = doubles(H), *cast = doubles(T * H);
    void *px = operand(t, T * H, 1, 1, x), *py = operand(t, N * H, 2, 1, NULL), *pz = operand(t, T * H, 3, 1, NULL);
    o->gather_rows(k, t, N, H, index, px, py);
    for (int64_t i = 0; i < N; i++)
        for (int64_t c = 0; c < H; c++) want[index[i] * H + c] = x[index[i] * H + c];
    o->scatter_rows(k, t, T, N, H, index, py, pz);
    close_all("gather, scatter", t, pz, want, T * H, 0, 0);
    o->add(k, t, T * H, px, pz);
    for (int64_t i = 0; i < T * H; i++) want[i] += x[i];
    close_all("add", t, pz, want, T * H, 1e-7, 0);
    float db[H];
    for (int64_t c = 0; c < H; c++) db[c] = 1;
    for (int64_t c = 0; c < H; c++) sums[c] = 1;
    for (int64_t i = 0; i < T * (H - 3); i++) sums[i % (H - 3)] += x[i / (H - 3) * H + i % (H - 3)];
    o->bias_grad(k, t, T, H - 3, px, H, db);
    close_all("bias_grad", FT_F32, db, sums, H, 1e-6, 1);
    uint16_t half[T * H];
    float back[T * H];
    o->cast(k, T * H, t, px, FT_F16, half);
    o->cast(k, T * H, FT_F16, half, FT_F32, back);
    for (int64_t i = 0; i < T * H; i++) cast[i] = (double)ft_f16_to_f32(ft_f32_to_f16((float)x[i]));
    close_all("cast", FT_F32, back, cast, T * H, 0, 0);
    o->zero(k, T * H * (int64_t)ft_dtype_bytes(t), pz);
    memset(want, 0, T * H * sizeof *want);
    close_all("zero", FT_F32, pz, want, T * H * (int64_t)ft_dtype_bytes(t) / 4, 0, 0);
    void *all[] = {x, want, sums, cast, px, py, pz};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void rows_of(const struct ft_kernels *o, struct ft_kctx *k)
{
    for (int t = 0; t < 2; t++) {
        embed_case(o, k, both_types[t]);
        rows_case(o, k, both_types[t]);
    }
}

/* Known answers of the counter generator: seed 42, site 3, layer 0, row 16, p = 0.1. */
static void drops(const struct ft_kernels *o, struct ft_kctx *k)
{
    const uint64_t key = ft_philox_key(42, 3, 0);
    assert_true(key == 0xc9fd83c90b9f8d18ull);
    enum { C = 8, T = 5 };
    const int32_t cu[] = {0, 1, 5}, offset[] = {9, 0};
    const int64_t rows[] = {3, 16};
    const struct ft_segments s = {2, cu, rows, offset};
    const struct ft_dropout d = {0.1, key};
    float x[T * C];
    for (int i = 0; i < T * C; i++) x[i] = 1;
    o->dropout(k, FT_F32, &d, &s, C, C, 0, x, x);
    for (int e = 0; e < 32; e++) { /* row 16 is the second segment: tokens 1..4 */
        const float want = e == 13 || e == 22 || e == 30 ? 0.0f : (float)(1 / 0.9);
        if (x[C + e] != want) fail_msg("element %d is %g", e, (double)x[C + e]);
    }
    for (int e = 0; e < 8; e++) {
        const float want = ft_philox_word(key, 3, (uint64_t)(9 * C + e)) < 429496729u ? 0.0f : (float)(1 / 0.9);
        assert_true(x[e] == want);
    }
    float half[4 * 3]; /* channels 5..7 of the same row: the same decisions */
    for (int i = 0; i < 12; i++) half[i] = 1;
    const struct ft_segments one = {1, (const int32_t[]){0, 4}, rows + 1, NULL};
    o->dropout(k, FT_F32, &d, &one, 3, C, 5, half, half);
    for (int i = 0; i < 12; i++) assert_true(half[i] == x[C + i / 3 * C + 5 + i % 3]);
}

/* Long rows take the words many at a time: every element is still a function of its own number. */
static void long_drops(const struct ft_kernels *o, struct ft_kctx *k)
{
    enum { C = 333, T = 7 };
    const uint64_t key = ft_philox_key(9, 4, 2);
    const int32_t cu[] = {0, 2, 2, T};
    const int64_t rows[] = {5, 6, ((int64_t)1 << 40) + 3};
    const int32_t offset[] = {1 << 20, 0, 3};
    const struct ft_segments s = {3, cu, rows, offset};
    const struct ft_dropout d = {0.37, key};
    float *x = calloc(T * C, 4);
    for (int i = 0; i < T * C; i++) x[i] = 2;
    o->dropout(k, FT_F32, &d, &s, C, 70000, 11, x, x);
    int64_t dropped = 0;
    for (int i = 0; i < T * C; i++) {
        const int seg = i / C < 2 ? 0 : 2;
        const uint64_t e = (uint64_t)(offset[seg] + i / C - cu[seg]) * 70000 + 11 + (uint64_t)(i % C);
        const bool gone = ft_philox_word(key, (uint64_t)rows[seg], e) < (uint64_t)(0.37 * 4294967296.0);
        dropped += gone;
        if (x[i] != (gone ? 0.0f : 2 * (float)(1 / (1 - 0.37)))) fail_msg("element %d is %g", i, (double)x[i]);
    }
    assert_true(dropped > T * C * 0.3 && dropped < T * C * 0.44);
    free(x);
}

/* R5: element (65537, 7) of a [rows, 128256] matrix is number 8,405,513,479: tables that are reserved, not filled. */
static void far_rows(const struct ft_kernels *o, struct ft_kctx *k)
{
    enum { W = 128256, ROW = 65537 };
    const int64_t at = (int64_t)ROW * W + 7;
    assert_true(at == 8405513479);
    const size_t bytes = (size_t)(at + W) * 4;
    float *big = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(big != MAP_FAILED);
    float *row = calloc(W, 4);
    const int32_t id = ROW, start[] = {0, 1}, token = 0;
    big[at] = 3;
    o->embed_fwd(k, FT_F32, 1, W, &id, 0, ROW + 1, big, row);
    assert_true(row[7] == 3);
    o->add_rows(k, FT_F32, 1, W, &id, big, row);
    assert_true(row[7] == 6);
    const struct ft_lists l = {1, &id, start, &token};
    o->embed_bwd(k, FT_F32, W, &l, row, big);
    assert_true(big[at] == 9);
    o->gather_rows(k, FT_F32, 1, W, &id, big, row);
    assert_true(row[7] == 9);
    munmap(big, bytes);
    free(row);
}

static void offsets(void **state)
{
    (void)state;
    each_set(far_rows);
}
static void mlp(void **state)
{
    (void)state;
    each_set(mlps);
}
static void rows(void **state)
{
    (void)state;
    each_set(rows_of);
}
static void dropout(void **state)
{
    (void)state;
    each_set(drops);
    each_set(long_drops);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(mlp), cmocka_unit_test(rows), cmocka_unit_test(dropout),
                                       cmocka_unit_test(offsets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
