/* The matrix product: against double precision with the a-priori bound of a sum of k products (Higham, "Accuracy and Stability of
 * Numerical Algorithms", 3.1), at the borders of mapped memory, and bit for bit under every cut. */
#include <sys/mman.h>
#include <unistd.h>

#include "oracle.h"

#include "kernels/cpu/isa_list.h"

/* sgemm in the calling thread, per set (kernels/cpu/ops.h). */
typedef void sgemm_fn(struct ft_kctx *k, bool ta, bool tb, int64_t m, int64_t n, int64_t kk, float alpha, const float *a,
                      int64_t lda, const float *b, int64_t ldb, bool add, float *c, int64_t ldc);
#define DECLARE(name) extern sgemm_fn ft_cpu_sgemm_##name;
FT_CPU_ISAS(DECLARE)
#define ROW(name) {#name, ft_cpu_sgemm_##name},
static const struct set {
    const char *name;
    sgemm_fn *sgemm;
} sets[] = {FT_CPU_ISAS(ROW)};
enum { N_SETS = sizeof sets / sizeof *sets };

static struct ft_kctx *context(int threads)
{
    char why[256];
    struct ft_kctx *k = ft_cpu_kctx_create(threads, why, sizeof why);
    if (!k) fail_msg("%s", why);
    return k;
}

/* Runs fn over the sets of this CPU; fails when none ran. */
static void each(void (*fn)(const struct set *, const struct ft_kernels *, struct ft_kctx *))
{
    int ran = 0;
    struct ft_kctx *k = context(1);
    for (int s = 0; s < N_SETS; s++) {
        const struct ft_kernels *o = ft_cpu_kernels_isa(sets[s].name);
        if (!o) continue;
        fn(&sets[s], o, k);
        ran++;
    }
    ft_cpu_kctx_destroy(k);
    assert_true(ran >= 1);
}

static int64_t pick_size(uint64_t *seed, int64_t most)
{
    *seed = ft_mix64(*seed + 1);
    return (int64_t)(*seed % (uint64_t)(most + 1));
}

/* ---- values, at the borders ---- */

/* Memory whose first byte follows, or whose last byte precedes, a page that must not be touched. */
struct fenced {
    char *map;
    size_t bytes;
    float *p;
};
static struct fenced fence(int64_t floats, bool at_end)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), need = (size_t)floats * 4, body = (need + page - 1) / page * page;
    struct fenced f = {NULL, body + 2 * page, NULL};
    f.map = mmap(NULL, f.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(f.map != MAP_FAILED);
    if (body) assert_int_equal(mprotect(f.map + page, body, PROT_READ | PROT_WRITE), 0);
    f.p = (float *)(void *)(f.map + page + (at_end ? body - need : 0));
    return f;
}
static void unfence(struct fenced *f) { munmap(f->map, f->bytes); }

struct problem {
    bool ta, tb, add;
    int64_t m, n, k, lda, ldb, ldc;
    float alpha;
    const float *a, *b, *c0;
};

static int64_t span(int64_t rows, int64_t cols, int64_t ld) { return rows > 0 && cols > 0 ? (rows - 1) * ld + cols : 0; }

/* |got - exact| <= (k+2) u / (1 - (k+2) u) times the sum of absolute values; gaps between rows keep their bits. */
static void check(const char *what, const struct problem *x, const float *c)
{
    const double e = (double)(x->k + 3) * 0x1p-24, bound = e / (1 - e);
    for (int64_t i = 0; i < x->m && x->n > 0; i++)
        for (int64_t j = 0; j < (i + 1 < x->m ? x->ldc : x->n); j++) {
            const int64_t at = i * x->ldc + j;
            const double old = (double)x->c0[at];
            if (j >= x->n) {
                if (memcmp(&c[at], &x->c0[at], 4) != 0) fail_msg("%s: gap (%lld,%lld) changed", what, (long long)i, (long long)j);
                continue;
            }
            double s = 0, size = 0;
            for (int64_t t = 0; t < x->k; t++) {
                const double p = (double)(x->ta ? x->a[t * x->lda + i] : x->a[i * x->lda + t]) *
                                 (double)(x->tb ? x->b[j * x->ldb + t] : x->b[t * x->ldb + j]);
                s += p;
                size += fabs(p);
            }
            const double want = (x->add ? old : 0) + (double)x->alpha * s,
                         room = bound * ((x->add ? fabs(old) : 0) + fabs((double)x->alpha) * size);
            if (!(fabs((double)c[at] - want) <= room))
                fail_msg("%s: T%d%d m %lld n %lld k %lld: (%lld,%lld) is %.9g, not %.9g +- %.2g", what, x->ta, x->tb,
                         (long long)x->m, (long long)x->n, (long long)x->k, (long long)i, (long long)j, (double)c[at], want, room);
        }
}

static void values_at(const struct set *s, const struct ft_kernels *o, struct ft_kctx *k, struct problem x, bool at_end,
                      uint64_t seed)
{
    const int64_t na = x.ta ? span(x.k, x.m, x.lda) : span(x.m, x.k, x.lda),
                  nb = x.tb ? span(x.n, x.k, x.ldb) : span(x.k, x.n, x.ldb), nc = span(x.m, x.n, x.ldc);
    struct fenced a = fence(na, at_end), b = fence(nb, at_end), c = fence(nc, at_end);
    float *c0 = calloc((size_t)nc + 1, 4);
    assert_non_null(c0);
    for (int64_t i = 0; i < na; i++) a.p[i] = (float)noise(seed, i);
    for (int64_t i = 0; i < nb; i++) b.p[i] = (float)noise(seed + 1, i);
    for (int64_t i = 0; i < nc; i++) c0[i] = x.add ? (float)noise(seed + 2, i) : (float)NAN;
    x.a = a.p;
    x.b = b.p;
    x.c0 = c0;
    memcpy(c.p, c0, (size_t)nc * 4);
    s->sgemm(k, x.ta, x.tb, x.m, x.n, x.k, x.alpha, x.a, x.lda, x.b, x.ldb, x.add, c.p, x.ldc);
    check(s->name, &x, c.p);
    memcpy(c.p, c0, (size_t)nc * 4);
    x.alpha = 1;
    const struct ft_gemm g = {.m = x.m,
                              .n = x.n,
                              .ldc = x.ldc,
                              .add = x.add,
                              .c = c.p,
                              .n_terms = 1,
                              .term = {{x.a, x.b, x.lda, x.ldb, x.k, x.ta, x.tb}}};
    o->gemm(k, &g);
    check(s->name, &x, c.p);
    unfence(&a);
    unfence(&b);
    unfence(&c);
    free(c0);
}

static void values_set(const struct set *s, const struct ft_kernels *o, struct ft_kctx *k)
{
    static const int64_t edge[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 47, 48, 49, 64, 65};
    enum { N_EDGE = sizeof edge / sizeof *edge };
    uint64_t seed = 7;
    for (int i = 0; i < 600; i++) {
        struct problem x = {.ta = i & 1, .tb = i & 2, .add = i & 4, .alpha = i % 5 ? 1.0f : -0.37f};
        x.m = i % 3 ? edge[pick_size(&seed, N_EDGE - 1)] : pick_size(&seed, 200);
        x.n = i % 4 ? edge[pick_size(&seed, N_EDGE - 1)] : pick_size(&seed, 330);
        x.k = i % 7 ? edge[pick_size(&seed, N_EDGE - 1)] : pick_size(&seed, 900);
        const int64_t gap = i % 2 ? 0 : pick_size(&seed, 9);
        x.lda = (x.ta ? x.m : x.k) + gap;
        x.ldb = (x.tb ? x.k : x.n) + gap;
        x.ldc = x.n + gap;
        values_at(s, o, k, x, (i & 8) != 0, (uint64_t)i * 3 + 100);
    }
}
static void values(void **state)
{
    (void)state;
    each(values_set);
}

/* ---- bits ---- */

enum { M = 331, N = 670, K = 811 };

struct whole {
    enum ft_dtype t;
    bool ta, tb;
    const void *a, *b, *bias;
    const float *c0;
    float *c; /* (M,N) */
};

static const void *element(enum ft_dtype t, const void *x, int64_t i) { return (const char *)x + (size_t)i * ft_dtype_bytes(t); }

/* Columns and rows of the whole as a product of its own, in memory of its own. */
static void part(const struct ft_kernels *o, struct ft_kctx *k, const struct whole *w, int64_t i0, int64_t m, int64_t j0, int64_t n,
                 float *c)
{
    for (int64_t i = 0; i < m; i++) memcpy(c + i * n, w->c0 + (i0 + i) * N + j0, (size_t)n * 4);
    const struct ft_gemm g = {.m = m,
                              .n = n,
                              .ldc = n,
                              .ab_type = w->t,
                              .add = !w->bias,
                              .bias = w->bias ? element(w->t, w->bias, j0) : NULL,
                              .c = c,
                              .n_terms = 1,
                              .term = {{element(w->t, w->a, w->ta ? i0 : i0 * K), element(w->t, w->b, w->tb ? j0 * K : j0),
                                        w->ta ? M : K, w->tb ? K : N, K, w->ta, w->tb}}};
    o->gemm(k, &g);
}

static void same_bits(const struct set *s, const struct whole *w, int64_t i0, int64_t m, int64_t j0, int64_t n, const float *c)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            if (memcmp(&c[i * n + j], &w->c[(i0 + i) * N + j0 + j], 4) != 0)
                fail_msg("%s T%d%d: (%lld,%lld) is %.9g in rows %lld+%lld, columns %lld+%lld and %.9g in the whole", s->name, w->ta,
                         w->tb, (long long)(i0 + i), (long long)(j0 + j), (double)c[i * n + j], (long long)i0, (long long)m,
                         (long long)j0, (long long)n, (double)w->c[(i0 + i) * N + j0 + j]);
}

static void bits_of(const struct set *s, const struct ft_kernels *o, struct ft_kctx *k, struct whole w, uint64_t seed)
{
    float *c = calloc(M * N, 4);
    assert_non_null(c);
    part(o, k, &w, 0, M, 0, N, w.c);
    static const int64_t few[] = {1, 2, 3, 5, 8, 15, 16, 17, 33, 48, 64};
    for (int i = 0; i < 24; i++) {
        int64_t m = i % 3 == 1 ? 1 + pick_size(&seed, M - 1) : few[pick_size(&seed, 10)],
                n = i % 3 == 2 ? 1 + pick_size(&seed, N - 1) : few[pick_size(&seed, 10)];
        if (i == 0) m = M;
        if (i == 1) n = N;
        const int64_t i0 = pick_size(&seed, M - m), j0 = pick_size(&seed, N - n);
        part(o, k, &w, i0, m, j0, n, c);
        same_bits(s, &w, i0, m, j0, n, c);
    }
    /* the single-threaded product has the same bits */
    if (w.t == FT_F32 && !w.bias) {
        memcpy(c, w.c0, M * N * 4);
        s->sgemm(k, w.ta, w.tb, M, N, K, 1, w.a, w.ta ? M : K, w.b, w.tb ? K : N, true, c, N);
        same_bits(s, &w, 0, M, 0, N, c);
    }
    free(c);
}

static void bits_set(const struct set *s, const struct ft_kernels *o, struct ft_kctx *k)
{
    (void)k;
    for (int i = 0; i < 2; i++) {
        struct whole w = {.t = both_types[i]};
        w.a = operand(w.t, M * K, 31, 1, NULL);
        w.b = operand(w.t, N * K, 32, 1, NULL);
        void *bias = operand(w.t, N, 33, 1, NULL);
        float *c0 = operand(FT_F32, M * N, 34, 1, NULL);
        w.c0 = c0;
        w.c = calloc(M * N, 4);
        assert_non_null(w.c);
        for (int form = 0; form < 5; form++) {
            w.ta = form & 1;
            w.tb = (form & 2) || form == 4;
            w.bias = form == 4 ? bias : NULL;
            struct ft_kctx *mine = context(1 + form % 3);
            bits_of(s, o, mine, w, 5 + (uint64_t)form);
            ft_cpu_kctx_destroy(mine);
        }
        free((void *)(uintptr_t)w.a);
        free((void *)(uintptr_t)w.b);
        free(bias);
        free(c0);
        free(w.c);
    }
}
static void bits(void **state)
{
    (void)state;
    each(bits_set);
}

/* The bits of a chain: one multiply-add after the other in ascending k inside a block, blocks added in order. Written out here once more
 * in plain C for a product of one block: what the header promises is what is computed. */
static void chain_set(const struct set *s, const struct ft_kernels *o, struct ft_kctx *k)
{
    (void)o;
    enum { m = 19, n = 53, kk = 300 };
    float *a = operand(FT_F32, m * kk, 41, 1, NULL), *b = operand(FT_F32, n * kk, 42, 1, NULL), *c = calloc(m * n, 4);
    assert_non_null(c);
    s->sgemm(k, false, true, m, n, kk, 1, a, kk, b, kk, false, c, n);
    const bool fused = strcmp(s->name, "generic") != 0;
    for (int i = 0; i < m && fused; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int t = 0; t < kk; t++) sum = fmaf(a[i * kk + t], b[j * kk + t], sum);
            if (memcmp(&sum, &c[i * n + j], 4) != 0)
                fail_msg("%s: (%d,%d) is %.9g, the chain %.9g", s->name, i, j, (double)c[i * n + j], (double)sum);
        }
    free(a);
    free(b);
    free(c);
}
static void chain(void **state)
{
    (void)state;
    each(chain_set);
}

/* ---- many chunks of columns and of k ---- */

/* fp32 operands: the op has the bits of the single-threaded product, and sampled elements those of double within the bound. bf16 operands:
 * the bits of the fp32 op on their values, and a bf16 result is those rounded once. */
static void chunks_of(const struct set *s, const struct ft_kernels *o, int64_t m, int64_t n, int64_t k, int form)
{
    struct ft_kctx *ctx = context(2);
    const bool ta = form == 2, tb = form == 1;
    double *ea = doubles(m * k), *eb = doubles(n * k);
    void *a = operand(FT_BF16, m * k, 51, 1, ea), *b = operand(FT_BF16, n * k, 52, 1, eb);
    float *fa = calloc((size_t)(m * k), 4), *fb = calloc((size_t)(n * k), 4), *c = calloc((size_t)(m * n), 4),
          *d = calloc((size_t)(m * n), 4);
    uint16_t *h = calloc((size_t)(m * n), 2);
    assert_true(fa && fb && c && d && h);
    for (int64_t i = 0; i < m * k; i++) fa[i] = (float)ea[i];
    for (int64_t i = 0; i < n * k; i++) fb[i] = (float)eb[i];
    const int64_t lda = ta ? m : k, ldb = tb ? k : n;
    struct ft_gemm g = {.m = m, .n = n, .ldc = n, .c = c, .n_terms = 1, .term = {{fa, fb, lda, ldb, k, ta, tb}}};
    o->gemm(ctx, &g);
    s->sgemm(ctx, ta, tb, m, n, k, 1, fa, lda, fb, ldb, false, d, n);
    assert_memory_equal(c, d, (size_t)(m * n) * 4);
    const double e = (double)(k + 3) * 0x1p-24;
    for (uint64_t x = 0; x < 200; x++) {
        const int64_t i = (int64_t)(ft_mix64(x) % (uint64_t)m), j = (int64_t)(ft_mix64(x + 999) % (uint64_t)n);
        double sum = 0, size = 0;
        for (int64_t t = 0; t < k; t++) {
            const double p = ea[ta ? t * m + i : i * k + t] * eb[tb ? j * k + t : t * n + j];
            sum += p;
            size += fabs(p);
        }
        if (!(fabs((double)c[i * n + j] - sum) <= e / (1 - e) * size))
            fail_msg("%s: (%lld,%lld)", s->name, (long long)i, (long long)j);
    }
    g.ab_type = FT_BF16;
    g.term[0].a = a;
    g.term[0].b = b;
    g.c = d;
    o->gemm(ctx, &g);
    assert_memory_equal(c, d, (size_t)(m * n) * 4);
    g.c_type = FT_BF16;
    g.c = h;
    o->gemm(ctx, &g);
    for (int64_t i = 0; i < m * n; i++) assert_int_equal(h[i], ft_f32_to_bf16(c[i]));
    ft_cpu_kctx_destroy(ctx);
    free(ea);
    free(eb);
    free(a);
    free(b);
    free(fa);
    free(fb);
    free(c);
    free(d);
    free(h);
}
static void chunks_set(const struct set *s, const struct ft_kernels *o, struct ft_kctx *k)
{
    (void)k;
    for (int form = 0; form < 3; form++) {
        chunks_of(s, o, 40, 300, 9000, form); /* k in chunks */
        chunks_of(s, o, 30, 5000, 900, form); /* columns in chunks */
        chunks_of(s, o, 5, 1300, 4000, form); /* both; few rows */
    }
    chunks_of(s, o, 4000, 600, 70, 1); /* columns of a bf16 result in chunks */
}
static void chunks(void **state)
{
    (void)state;
    each(chunks_set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(values), cmocka_unit_test(bits), cmocka_unit_test(chunks),
                                       cmocka_unit_test(chain)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
