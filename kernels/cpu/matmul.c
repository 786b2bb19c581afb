/* gemm: C in chunks of columns, each sum in chunks of k. A chunk of op(B) is packed once by all threads into shared memory; then
 * pieces of C (SG_MC rows by at most SG_NC columns) take it, each with its own block of A. Compute-bound. bf16 operands are widened
 * while they are packed; a bf16 result is summed in fp32 in shared memory and rounded once. What is cut where changes no bit
 * (cpu/sgemm.h). */
#include "kernels/cpu/sgemm.h"

/* Floats of a packed chunk of B, and of the sums of a chunk of a bf16 result: 4 MiB, of the last-level cache. */
enum { CHUNK = 1 << 20 };

struct chunks {
    int64_t n, k; /* columns, rows of a chunk of op(B) */
};

/* k first, so that C stays in cache while it is summed; then n. */
static struct chunks chunks_of(const struct sg_product *p)
{
    const int64_t kb = sg_k_block(p->k), n = min64(round_up(p->n, SG_NC), 2 * SG_NC), fit = max64(1, CHUNK / n / kb) * kb;
    const int64_t k = min64(max64(p->k, 1), fit), more = max64(1, CHUNK / k / SG_NC) * SG_NC;
    const struct chunks c = {min64(p->n, more), k};
    return c;
}

struct job {
    struct sg_product p;  /* columns of this chunk */
    int64_t parts, width; /* its columns are packed and computed in parts */
    int64_t k0, k1;       /* this chunk of k */
    int64_t rows;         /* of a piece */
    float *packed;
};

static float *part_of_b(const struct job *w, int64_t j0) { return w->packed + j0 * (w->k1 - w->k0); }

static void pack(void *arg, int64_t piece, void *scratch)
{
    (void)scratch;
    const struct job *w = arg;
    const int64_t kb = sg_k_block(w->p.k), j0 = piece % w->parts * w->width, n = min64(w->width, w->p.n - j0),
                  k = w->k0 + piece / w->parts * kb;
    ISA(sg_pack_part)(&w->p, j0, n, k, min64(k + kb, w->k1), part_of_b(w, j0) + sg_b_floats(k - w->k0, n));
}

static void multiply(void *arg, int64_t piece, void *scratch)
{
    const struct job *w = arg;
    const int64_t i0 = piece / w->parts * w->rows, j0 = piece % w->parts * w->width;
    ISA(sg_piece)
    (&w->p, i0, min64(w->rows, w->p.m - i0), j0, min64(w->width, w->p.n - j0), w->k0, w->k1, part_of_b(w, j0), scratch);
}

/* The size of the parts of n, even, a multiple of `step`, at most `most`; *parts their number. */
static int64_t even(int64_t n, int64_t most, int64_t step, int64_t *parts)
{
    const int64_t size = round_up(ceil_div(n, ceil_div(n, most)), step);
    *parts = ceil_div(n, size);
    return size;
}

static void move_columns(struct sg_product *p, int64_t j0, int64_t n)
{
    p->b = (const char *)p->b + (size_t)(p->tb ? j0 * p->ldb : j0) * ft_dtype_bytes(p->t);
    p->n = n;
    p->c.c += p->c.turned ? j0 * p->c.ld : j0;
    if (p->c.from) p->c.from += p->c.turned ? j0 * p->c.ld_from : j0;
}

static void product(struct ft_kctx *k, const struct sg_product *p, float *packed)
{
    const struct chunks size = chunks_of(p);
    for (int64_t at = 0; at < p->n; at += size.n) {
        struct job w = {.p = *p, .packed = packed};
        move_columns(&w.p, at, min64(size.n, p->n - at));
        w.width = even(w.p.n, SG_NC, SG_NR, &w.parts);
        int64_t n_rows;
        w.rows = even(w.p.m, SG_MC, SG_MR, &n_rows);
        for (w.k0 = 0; w.k0 < max64(p->k, 1); w.k0 += size.k) {
            w.k1 = min64(w.k0 + size.k, p->k);
            if (!w.p.b_direct) ft_cpu_parallel(k, ceil_div(w.k1 - w.k0, sg_k_block(p->k)) * w.parts, 0, pack, &w);
            ft_cpu_parallel(k, n_rows * w.parts, SG_SPACE * (int64_t)sizeof(float), multiply, &w);
        }
    }
}

/* Columns [j0,j0+n) of the whole into c. */
static struct sg_product term(const struct ft_gemm *g, int t, int64_t j0, int64_t n, struct sg_c c)
{
    const struct ft_gemm_term *x = &g->term[t];
    struct sg_product p = {g->ab_type, x->ta, x->tb, g->m, g->n, max64(x->k, 0), x->a, x->b, x->lda, x->ldb, {0}, false};
    move_columns(&p, j0, n);
    p.c = c;
    return ISA(sg_plan)(p);
}

static void all_terms(struct ft_kctx *k, const struct ft_gemm *g, int64_t j0, int64_t n, struct sg_c c, float *packed)
{
    for (int t = 0; t < g->n_terms; t++) {
        if (g->term[t].k <= 0 && (t > 0 || c.from == c.c)) continue;
        const struct sg_product p = term(g, t, j0, n, c);
        product(k, &p, packed);
        c.from = c.c;
        c.ld_from = c.ld;
    }
}

/* ---- results in bf16, and C with a bias besides ---- */

struct rows {
    const struct ft_gemm *g;
    int64_t j0, n, ld, step;
    float *sums; /* C itself when it is fp32 */
    const float *bias;
};

/* sums (m,n) = C [+ bias] */
static void begin_rows(void *arg, int64_t piece, void *scratch)
{
    (void)scratch;
    const struct rows *w = arg;
    for (int64_t i = piece * w->step; i < min64((piece + 1) * w->step, w->g->m); i++) {
        float *s = w->sums + i * w->ld;
        if (w->g->c_type != FT_F32) widen((const uint16_t *)w->g->c + i * w->g->ldc + w->j0, w->n, s);
        for (int64_t j = 0; w->bias && j < w->n; j++) s[j] += w->bias[j];
    }
}

static void end_rows(void *arg, int64_t piece, void *scratch)
{
    (void)scratch;
    const struct rows *w = arg;
    for (int64_t i = piece * w->step; i < min64((piece + 1) * w->step, w->g->m); i++)
        narrow(w->sums + i * w->ld, w->n, (uint16_t *)w->g->c + i * w->g->ldc + w->j0);
}

static void some_columns(struct ft_kctx *k, const struct ft_gemm *g, int64_t j0, int64_t n, float *packed, float *sums,
                         const float *bias)
{
    const bool own = g->c_type != FT_F32, both = g->add && (bias || own);
    struct rows w = {g, j0, n, own ? n : g->ldc, rows_per_piece(n), own ? sums : (float *)g->c + j0, bias ? bias + j0 : NULL};
    struct sg_c c = {w.sums, NULL, w.ld, w.ld, 1.0f, false};
    if (both) ft_cpu_parallel(k, ceil_div(g->m, w.step), 0, begin_rows, &w);
    if (g->add) c.from = c.c;
    else if (bias) {
        c.from = w.bias;
        c.ld_from = 0;
    }
    all_terms(k, g, j0, n, c, packed);
    if (own) ft_cpu_parallel(k, ceil_div(g->m, w.step), 0, end_rows, &w);
}

void ISA(gemm)(struct ft_kctx *k, const struct ft_gemm *g)
{
    if (g->m <= 0 || g->n <= 0) return;
    const bool own = g->c_type != FT_F32, wide_bias = g->bias && g->ab_type != FT_F32;
    const int64_t columns = own ? min64(g->n, max64(1, CHUNK / g->m / SG_NC) * SG_NC) : g->n;
    int64_t packed = 0;
    for (int t = 0; t < g->n_terms; t++) {
        const struct sg_product p = term(g, t, 0, columns, (struct sg_c){0});
        const struct chunks c = chunks_of(&p);
        if (!p.b_direct) packed = max64(packed, c.k * (round_up(c.n, SG_NR) + SG_NR));
    }
    packed = round_up(packed, 16);
    const int64_t sums = own ? round_up(g->m * columns, 16) : 0;
    float *space = ft_cpu_shared(k, (packed + sums + (wide_bias ? g->n : 0) + 16) * (int64_t)sizeof(float)),
          *wide = space + packed + sums;
    if (wide_bias) widen(g->bias, g->n, wide);
    const float *bias = wide_bias ? wide : g->bias;
    for (int64_t j0 = 0; j0 < g->n; j0 += columns) some_columns(k, g, j0, min64(columns, g->n - j0), space, space + packed, bias);
}
