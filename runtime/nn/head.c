/* Final norm, head and cross-entropy. Only trained positions take part: their residuals are gathered (with sequence parallelism from all
 * ranks of the tensor group: it ends in front of the final norm), the three GEMMs of the head run on them, logits exist for one chunk of
 * tokens, and the chunk's gradient overwrites them. */
#include <math.h>

#include "runtime/nn/internal.h"

struct head {
    struct ft_run *r;
    const void *w; /* (Vp, h) */
    float *dw;     /* NULL: frozen, or no gradients asked */
    char *x, *y;   /* (n,h) */
    float *z, *max, *sum, *zy;
    int64_t Vp, valid, first; /* rows here, of them real, number of the first */
};

static struct head head_of(struct ft_run *r)
{
    const struct ft_model *m = r->m;
    const enum ft_slot slot = m->o.config->tied ? FT_SLOT_EMBED : FT_SLOT_HEAD;
    const struct ft_param *p = &m->params[ft_nn_row(m, m->s.layers, slot)];
    struct head h = {.r = r, .w = ft_nn_weight(m, m->s.layers, slot), .dw = ft_nn_grad(m, m->s.layers, slot)};
    h.x = ft_nn_buffer(m, FT_BUF_HX);
    h.y = ft_nn_buffer(m, FT_BUF_HY);
    h.z = ft_nn_buffer(m, FT_BUF_LOGITS);
    const int64_t rows = m->s.chunk < m->s.T ? m->s.chunk : m->s.T;
    h.max = ft_nn_buffer(m, FT_BUF_CE);
    h.sum = h.max + rows;
    h.zy = h.sum + rows;
    h.Vp = p->local[0];
    h.first = p->origin[0];
    h.valid = p->dims[0] - p->origin[0] < h.Vp ? p->dims[0] - p->origin[0] : h.Vp;
    if (h.valid < 0) h.valid = 0;
    return h;
}

static void logits_of(const struct head *h, int64_t at, int64_t n)
{
    const struct ft_model *m = h->r->m;
    const struct ft_gemm g = {.m = n,
                              .n = h->Vp,
                              .ldc = h->Vp,
                              .ab_type = m->o.compute,
                              .c_type = FT_F32,
                              .c = h->z,
                              .n_terms = 1,
                              .term = {{h->y + at * m->s.h * (int64_t)ft_nn_size(m), h->w, m->s.h, m->s.h, m->s.h, false, true}}};
    m->k->gemm(m->kc, &g);
}

/* The chunk's gradient: dz over its logits, dW, and dy over its rows of y (read for dW before they are overwritten). */
static void chunk_bwd(const struct head *h, int64_t at, int64_t n, float scale)
{
    const struct ft_model *m = h->r->m;
    const enum ft_dtype t = m->o.compute;
    char *y = h->y + at * m->s.h * (int64_t)ft_nn_size(m);
    const int64_t ld = h->Vp * 4 / (int64_t)ft_nn_size(m);
    m->k->xent_bwd(m->kc, t, n, h->valid, h->Vp, h->Vp, h->z, h->r->targets + at, h->first, h->max, h->sum, scale);
    if (h->dw) {
        const struct ft_gemm g = {.m = h->Vp,
                                  .n = m->s.h,
                                  .ldc = m->s.h,
                                  .ab_type = t,
                                  .c_type = FT_F32,
                                  .add = true,
                                  .c = h->dw,
                                  .n_terms = 1,
                                  .term = {{h->z, y, ld, m->s.h, n, true, false}}};
        m->k->gemm(m->kc, &g);
    }
    const struct ft_gemm g = {.m = n,
                              .n = m->s.h,
                              .ldc = m->s.h,
                              .ab_type = t,
                              .c_type = t,
                              .c = y,
                              .n_terms = 1,
                              .term = {{h->z, h->w, ld, m->s.h, h->Vp, false, false}}};
    m->k->gemm(m->kc, &g);
}

/* Adds the chunk's losses, ln s - p, in ascending order. */
static void add_losses(const struct head *h, int64_t at, int64_t n, double *ce, float *token_loss)
{
    struct ft_model *m = h->r->m;
    const int64_t rows = m->s.chunk < m->s.T ? m->s.chunk : m->s.T;
    float *sum = m->host_ce, *zy = sum + rows;
    ft_device_read(m->o.device, sum, h->sum, n * (int64_t)sizeof *sum);
    ft_device_read(m->o.device, zy, h->zy, n * (int64_t)sizeof *zy);
    const int32_t *trained = m->host + 2 * (m->s.T + 2);
    for (int64_t i = 0; i < n; i++) {
        const double loss = log((double)sum[i]) - (double)zy[i];
        *ce += loss;
        if (token_loss) token_loss[trained[at + i]] = (float)loss;
    }
}

static enum ft_code chunk_fwd(const struct head *h, int64_t at, int64_t n, struct ft_err *err)
{
    const struct ft_model *m = h->r->m;
    logits_of(h, at, n);
    m->k->xent_max(m->kc, n, h->valid, h->Vp, h->z, h->max);
    enum ft_code code = ft_nn_tp_reduce(h->r, h->max, n, true, err);
    if (code) return code;
    m->k->xent_sum(m->kc, n, h->valid, h->Vp, h->z, h->r->targets + at, h->first, h->max, h->sum, h->zy);
    const int64_t rows = m->s.chunk < m->s.T ? m->s.chunk : m->s.T;
    if (n == rows) return ft_nn_tp_reduce(h->r, h->sum, 2 * n, false, err); /* sum and zy lie side by side */
    code = ft_nn_tp_reduce(h->r, h->sum, n, false, err);
    return code ? code : ft_nn_tp_reduce(h->r, h->zy, n, false, err);
}

enum ft_code ft_nn_head(struct ft_run *r, double scale, double *ce_sum, float *token_loss, struct ft_err *err)
{
    const struct ft_model *m = r->m;
    const struct head h = head_of(r);
    const int64_t n = r->n_trained, width = m->s.h;
    const int64_t rows = m->s.chunk < m->s.T ? m->s.chunk : m->s.T;
    void *dx = ft_nn_buffer(m, FT_BUF_DX);
    const void *out;
    *ce_sum = 0;
    enum ft_code code = ft_nn_gather(r, ft_nn_buffer(m, FT_BUF_OUT), &out, err);
    if (code) return code;
    m->k->gather_rows(m->kc, m->o.compute, n, width, r->trained, out, h.x);
    ft_nn_norm(r, m->s.layers, FT_SLOT_NORM, h.x, NULL, NULL, h.y);
    for (int64_t at = 0; at < n; at += rows) {
        const int64_t c = n - at < rows ? n - at : rows;
        code = chunk_fwd(&h, at, c, err);
        if (code) return code;
        add_losses(&h, at, c, ce_sum, token_loss);
        if (scale != 0) chunk_bwd(&h, at, c, (float)scale);
    }
    if (scale == 0) return FT_OK;
    code = ft_nn_tp_sum(r, h.y, n * width, err);
    if (code) return code;
    ft_nn_norm_bwd(r, m->s.layers, FT_SLOT_NORM, h.y, h.x, NULL, h.y);
    m->k->scatter_rows(m->kc, m->o.compute, r->n, r->n_own_trained, width, r->own_trained,
                       h.y + r->first_trained * width * (int64_t)ft_nn_size(m), dx);
    return FT_OK;
}

enum ft_code ft_nn_head_logits(struct ft_run *r, float *logits, struct ft_err *err)
{
    const struct ft_model *m = r->m;
    const struct head h = head_of(r);
    const int64_t rows = m->s.chunk < m->s.T ? m->s.chunk : m->s.T, V = m->o.config->V;
    if (m->o.tensor > 1) return ft_fail(err, FT_UNSUPPORTED, "all logits at once are for one tensor rank");
    ft_nn_norm(r, m->s.layers, FT_SLOT_NORM, ft_nn_buffer(m, FT_BUF_OUT), NULL, NULL, h.y);
    for (int64_t at = 0; at < r->T; at += rows) {
        const int64_t c = r->T - at < rows ? r->T - at : rows;
        logits_of(&h, at, c);
        for (int64_t i = 0; i < c; i++)
            ft_device_read(m->o.device, logits + (at + i) * V, h.z + i * h.Vp, V * (int64_t)sizeof(float));
    }
    return FT_OK;
}
