/* Cross-entropy of rows of fp32 logits: maximum, sum of exponentials, gradient in place. One row a piece; memory-bound. Sums:
 * RUN vectors in fp32, runs in fp64. */
#include "kernels/cpu/ops.h"

enum { RUN = 64 };

struct job {
    enum ft_dtype t;
    int64_t n_valid, n_cols, ldz, first;
    float *z;
    const int32_t *targets;
    const float *max_in, *sum_in;
    float *max, *sum, *zy;
    float scale;
};

static void max_piece(void *arg, int64_t i, void *scratch)
{
    (void)scratch;
    const struct job *w = arg;
    const float *z = w->z + i * w->ldz;
    const int64_t n = w->n_valid;
    vf m = all(-INFINITY);
    int64_t c = 0;
    for (; c + LANES <= n; c += LANES) m = vmax(ld(z + c), m); /* a NaN logit is skipped here and shows in the sum */
    if (c < n) m = vmax(ld_part(z + c, n - c, -INFINITY), m);
    w->max[i] = hmax(m);
}

void ISA(xent_max)(struct ft_kctx *k, int64_t c, int64_t n_valid, int64_t ldz, const float *z, float *max)
{
    struct job w = {.n_valid = n_valid, .ldz = ldz, .max = max};
    memcpy(&w.z, &z, sizeof z);
    ft_cpu_parallel(k, c, 0, max_piece, &w);
}

static void sum_piece(void *arg, int64_t i, void *scratch)
{
    (void)scratch;
    const struct job *w = arg;
    const float *z = w->z + i * w->ldz, m = w->max_in[i];
    const int64_t n = w->n_valid;
    double s = 0;
    int64_t c = 0;
    while (c + LANES <= n) {
        vf a = {0};
        for (int r = 0; r < RUN && c + LANES <= n; r++, c += LANES) a += vexp(ld(z + c) - m);
        for (int l = 0; l < LANES; l++) s += (double)a[l];
    }
    if (c < n) {
        const vf a = vexp(ld_part(z + c, n - c, -INFINITY) - m);
        for (int64_t l = 0; l < n - c; l++) s += (double)a[l];
    }
    const int64_t y = w->targets[i] - w->first;
    w->sum[i] = (float)s;
    w->zy[i] = y >= 0 && y < n ? z[y] - m : 0.0f;
}

void ISA(xent_sum)(struct ft_kctx *k, int64_t c, int64_t n_valid, int64_t ldz, const float *z, const int32_t *targets,
                   int64_t first, const float *max, float *sum, float *zy)
{
    struct job w = {.n_valid = n_valid, .ldz = ldz, .targets = targets, .first = first, .max_in = max, .sum = sum, .zy = zy};
    memcpy(&w.z, &z, sizeof z);
    ft_cpu_parallel(k, c, 0, sum_piece, &w);
}

/* bf16: the gradient overwrites the front half of its own row, never beyond what was read. */
static void bwd_piece(void *arg, int64_t i, void *scratch)
{
    (void)scratch;
    const struct job *w = arg;
    float *z = w->z + i * w->ldz;
    const float m = w->max_in[i], f = w->scale / w->sum_in[i];
    const int64_t n = w->n_valid, y = w->targets[i] - w->first;
    const float at_y = y >= 0 && y < n ? vexp(all(z[y] - m))[0] * f - w->scale : 0;
    uint16_t *half = (uint16_t *)z;
    float tmp[LANES];
    for (int64_t c = 0; c < n; c += LANES) {
        const int64_t l = min64(LANES, n - c);
        const vf d = vexp((l == LANES ? ld(z + c) : ld_part(z + c, l, -INFINITY)) - m) * f;
        if (w->t == FT_F32 && l == LANES) {
            st(z + c, d);
            continue;
        }
        st(tmp, d);
        if (w->t == FT_F32) memcpy(z + c, tmp, (size_t)l * sizeof *z);
        else narrow(tmp, l, half + c);
    }
    if (w->t == FT_F32) {
        for (int64_t c = n; c < w->n_cols; c++) z[c] = 0;
        if (y >= 0 && y < n) z[y] = at_y;
    } else {
        for (int64_t c = n; c < w->n_cols; c++) half[c] = 0;
        if (y >= 0 && y < n) half[y] = ft_f32_to_bf16(at_y);
    }
}

void ISA(xent_bwd)(struct ft_kctx *k, enum ft_dtype t, int64_t c, int64_t n_valid, int64_t n_cols, int64_t ldz, float *z,
                   const int32_t *targets, int64_t first, const float *max, const float *sum, float scale)
{
    struct job w = {.t = t,
                    .n_valid = n_valid,
                    .n_cols = n_cols,
                    .ldz = ldz,
                    .first = first,
                    .z = z,
                    .targets = targets,
                    .max_in = max,
                    .sum_in = sum,
                    .scale = scale};
    ft_cpu_parallel(k, c, 0, bwd_piece, &w);
}
