/* AdamW (Loshchilov, Hutter 2019) in one pass; sums and searches over gradients. Memory-bound. */
#include "kernels/cpu/ops.h"

enum { BLOCK = 1024, PIECE = 65536, RUN = 64 };

struct adam {
    int64_t n;
    float keep, b1, c1, b2, c2, coef, step, root, eps; /* keep = 1 - lr*wd, c = 1 - b, step = lr/(1-b1^t), root = 1/sqrt(1-b2^t) */
    float *p, *m, *v;
    const float *g;
    void *w;
    enum ft_dtype w_type;
};

static void adam_block(const struct adam *a, int64_t at, int64_t n)
{
    float *restrict p = a->p + at, *restrict m = a->m + at, *restrict v = a->v + at;
    const float *restrict g = a->g + at;
    for (int64_t i = 0; i < n; i++) {
        const float d = g[i] * a->coef, mi = a->b1 * m[i] + a->c1 * d, vi_ = a->b2 * v[i] + a->c2 * d * d;
        m[i] = mi;
        v[i] = vi_;
        p[i] = p[i] * a->keep - a->step * mi / (sqrtf(vi_) * a->root + a->eps);
    }
}

static void adam_piece(void *arg, int64_t piece, void *scratch)
{
    (void)scratch;
    const struct adam *a = arg;
    for (int64_t at = piece * PIECE; at < min64(a->n, (piece + 1) * PIECE); at += BLOCK) {
        const int64_t n = min64(BLOCK, a->n - at);
        adam_block(a, at, n);
        if (!a->w) continue;
        if (a->w_type == FT_BF16) narrow(a->p + at, n, (uint16_t *)a->w + at);
        else memcpy((float *)a->w + at, a->p + at, (size_t)n * sizeof(float));
    }
}

void ISA(adamw)(struct ft_kctx *k, const struct ft_adamw *o, int64_t n, float *p, float *m, float *v, const float *g, void *w,
                enum ft_dtype w_type)
{
    struct adam a = {.n = n,
                     .keep = (float)(1.0 - o->lr * o->weight_decay),
                     .b1 = (float)o->beta1,
                     .c1 = (float)(1.0 - o->beta1),
                     .b2 = (float)o->beta2,
                     .c2 = (float)(1.0 - o->beta2),
                     .coef = (float)o->coef,
                     .step = (float)(o->lr * o->inv_correction1),
                     .root = (float)sqrt(o->inv_correction2),
                     .eps = (float)o->eps,
                     .p = p,
                     .m = m,
                     .v = v,
                     .g = g,
                     .w = w,
                     .w_type = w_type};
    ft_cpu_parallel(k, ceil_div(n, PIECE), 0, adam_piece, &a);
}

struct reduce {
    int64_t n;
    const float *x;
    double *sums;
    int64_t *counts, *first;
};

/* Runs of 64 elements in fp32 (lane by lane, then lanes ascending), runs in fp64. */
static void squares_piece(void *arg, int64_t piece, void *scratch)
{
    (void)scratch;
    const struct reduce *r = arg;
    double s = 0;
    for (int64_t at = piece * PIECE; at < min64(r->n, (piece + 1) * PIECE); at += RUN) {
        const int64_t n = min64(RUN, r->n - at);
        const float *x = r->x + at;
        vf a = {0};
        int64_t i = 0;
        for (; i + LANES <= n; i += LANES) a += ld(x + i) * ld(x + i);
        float run = hsum(a);
        for (; i < n; i++) run += x[i] * x[i];
        s += (double)run;
    }
    r->sums[piece] = s;
}

double ISA(sum_squares)(struct ft_kctx *k, int64_t n, const float *x)
{
    if (n <= 0) return 0;
    struct reduce r = {.n = n, .x = x};
    const int64_t pieces = ceil_div(n, PIECE);
    r.sums = ft_cpu_shared(k, pieces * (int64_t)sizeof(double));
    ft_cpu_parallel(k, pieces, 0, squares_piece, &r);
    double s = 0;
    for (int64_t i = 0; i < pieces; i++) s += r.sums[i];
    return s;
}

static void count_piece(void *arg, int64_t piece, void *scratch)
{
    (void)scratch;
    const struct reduce *r = arg;
    int64_t n = 0, first = -1;
    for (int64_t i = piece * PIECE; i < min64(r->n, (piece + 1) * PIECE); i += BLOCK) {
        const int64_t end = min64(min64(r->n, (piece + 1) * PIECE), i + BLOCK);
        int32_t c = 0;
        for (int64_t j = i; j < end; j++) c += (ft_f32_bits(r->x[j]) & 0x7F800000u) == 0x7F800000u;
        n += c;
        if (c && first < 0)
            for (int64_t j = i; first < 0; j++)
                if ((ft_f32_bits(r->x[j]) & 0x7F800000u) == 0x7F800000u) first = j;
    }
    r->counts[piece] = n;
    r->first[piece] = first;
}

static int64_t scan(struct ft_kctx *k, int64_t n, const float *x, int64_t *first)
{
    *first = -1;
    if (n <= 0) return 0;
    struct reduce r = {.n = n, .x = x};
    const int64_t pieces = ceil_div(n, PIECE);
    r.counts = ft_cpu_shared(k, 2 * pieces * (int64_t)sizeof(int64_t));
    r.first = r.counts + pieces;
    ft_cpu_parallel(k, pieces, 0, count_piece, &r);
    int64_t count = 0;
    for (int64_t i = 0; i < pieces; i++) {
        count += r.counts[i];
        if (*first < 0) *first = r.first[i];
    }
    return count;
}

int64_t ISA(count_nonfinite)(struct ft_kctx *k, int64_t n, const float *x)
{
    int64_t first;
    return scan(k, n, x, &first);
}

int64_t ISA(find_nonfinite)(struct ft_kctx *k, int64_t n, const float *x)
{
    int64_t first;
    (void)scan(k, n, x, &first);
    return first;
}
