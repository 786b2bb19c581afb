/* One transformer block, pre-norm: x2 = x + o(attn(norm1 x)), out = x2 + mlp(norm2 x2). The last sum is left to the norm that
 * follows (x2 and delta in, their sum and its norm out). Shapes: runtime maths, section 3. */
#include <math.h>

#include "base/bits/philox.h"
#include "runtime/nn/internal.h"
#include "topology/shard.h"

enum { SITE_ATTENTION = 2, SITE_AFTER_O = 3, SITE_AFTER_MLP = 4 };

/* Logical number of local layer 0. */
static int64_t first_layer(const struct ft_model *m)
{
    return ft_layers_of(m->o.config->L, m->o.pipeline, m->s.chunks, m->o.stage, m->chunk).first;
}

static struct ft_dropout site(const struct ft_run *r, int64_t layer, uint64_t number, double p)
{
    const struct ft_dropout d = {r->drops ? p : 0, ft_philox_key(r->m->o.seed, number, (uint64_t)(first_layer(r->m) + layer))};
    return d;
}

/* Residual dropout of y (n,h); the same call masks its gradient. */
static void *drop(struct ft_run *r, int64_t layer, uint64_t number, void *y, void *out)
{
    const struct ft_model *m = r->m;
    const struct ft_dropout d = site(r, layer, number, m->o.config->resid_drop);
    if (d.p <= 0) return y;
    m->k->dropout(m->kc, m->o.compute, &d, &r->own, m->s.h, m->s.h, 0, y, out);
    return out;
}

/* ---- norms ---- */

static float *stat_of(const struct ft_model *m, int64_t layer, enum ft_slot w)
{
    if (w == FT_SLOT_NORM) return ft_nn_buffer(m, FT_BUF_HSTAT);
    return ft_nn_act(m, layer, w == FT_SLOT_NORM1 ? FT_ACT_STAT1 : FT_ACT_STAT2);
}

static int64_t stat_rows(const struct ft_model *m, enum ft_slot w) { return w == FT_SLOT_NORM ? m->s.T : m->s.N; }

void ft_nn_norm(struct ft_run *r, int64_t layer, enum ft_slot w, const void *x, const void *delta, void *s, void *y)
{
    const struct ft_model *m = r->m;
    float *stat = stat_of(m, layer, w);
    const float eps = (float)m->o.config->eps;
    const int64_t rows = w == FT_SLOT_NORM ? r->n_trained : r->n;
    if (m->o.config->layernorm)
        m->k->layernorm_fwd(m->kc, m->o.compute, rows, m->s.h, eps, x, delta, ft_nn_weight(m, layer, w),
                            ft_nn_weight(m, layer, w + 1), s, y, stat + stat_rows(m, w), stat);
    else m->k->rmsnorm_fwd(m->kc, m->o.compute, rows, m->s.h, eps, x, delta, ft_nn_weight(m, layer, w), s, y, stat);
}

void ft_nn_norm_bwd(struct ft_run *r, int64_t layer, enum ft_slot w, const void *dy, const void *x, const void *dres, void *dx)
{
    const struct ft_model *m = r->m;
    float *stat = stat_of(m, layer, w), *dw = ft_nn_grad(m, layer, w);
    const int64_t rows = w == FT_SLOT_NORM ? r->n_trained : r->n;
    if (m->o.config->layernorm)
        m->k->layernorm_bwd(m->kc, m->o.compute, rows, m->s.h, dy, x, stat + stat_rows(m, w), stat, ft_nn_weight(m, layer, w), dres,
                            dx, dw, ft_nn_grad(m, layer, w + 1));
    else m->k->rmsnorm_bwd(m->kc, m->o.compute, rows, m->s.h, dy, x, stat, ft_nn_weight(m, layer, w), dres, dx, dw);
}

/* ---- attention ---- */

static struct ft_attn attention(const struct ft_run *r, int64_t layer)
{
    const struct ft_model *m = r->m;
    const struct ft_model_config *c = m->o.config;
    const int64_t ld = m->s.q + 2 * m->s.kv;
    return (struct ft_attn){.T = r->T,
                            .H = m->s.H,
                            .K = m->s.K,
                            .D = m->s.D,
                            .ld_q = ld,
                            .ld_kv = ld,
                            .ld_out = m->s.q,
                            .scale = (float)(1.0 / sqrt((double)m->s.D)),
                            .window = c->window && first_layer(m) + layer >= c->window_first ? c->window : 0,
                            .seg = r->seg,
                            .drop = site(r, layer, SITE_ATTENTION, c->attn_drop),
                            .head0 = m->s.H * m->o.tensor_rank,
                            .S = m->s.S};
}

/* q, k and v inside a fused row. */
struct parts {
    char *q, *k, *v;
};
static struct parts parts_of(const struct ft_model *m, void *qkv)
{
    const size_t size = ft_nn_size(m);
    char *p = qkv;
    return (struct parts){p, p + (size_t)m->s.q * size, p + (size_t)(m->s.q + m->s.kv) * size};
}

struct rope_of {
    const float *cos, *sin;
};
static struct rope_of rope(const struct ft_model *m)
{
    if (m->o.config->learned_positions) return (struct rope_of){NULL, NULL};
    return (struct rope_of){ft_nn_buffer(m, FT_BUF_COS), ft_nn_buffer(m, FT_BUF_SIN)};
}

/* QK-norm and RoPE of q and of k, each with its own statistics: q first in PRE and QSTAT, k behind it. */
static void heads_fwd(struct ft_run *r, int64_t layer, const struct parts *p)
{
    const struct ft_model *m = r->m;
    const int64_t ld = m->s.q + 2 * m->s.kv;
    const struct rope_of t = rope(m);
    char *pre = ft_nn_act(m, layer, FT_ACT_PRE);
    float *stat = ft_nn_act(m, layer, FT_ACT_QSTAT);
    const float eps = (float)m->o.config->eps;
    m->k->heads_fwd(m->kc, m->o.compute, r->T, m->s.H, m->s.D, ld, p->q, r->positions, t.cos, t.sin,
                    ft_nn_weight(m, layer, FT_SLOT_Q_NORM), eps, pre, stat);
    m->k->heads_fwd(m->kc, m->o.compute, r->T, m->s.K, m->s.D, ld, p->k, r->positions, t.cos, t.sin,
                    ft_nn_weight(m, layer, FT_SLOT_K_NORM), eps, pre ? pre + (size_t)(m->s.T * m->s.q) * ft_nn_size(m) : NULL,
                    stat ? stat + m->s.T * m->s.H : NULL);
}

static void heads_bwd(struct ft_run *r, int64_t layer, const struct parts *p)
{
    const struct ft_model *m = r->m;
    const int64_t ld = m->s.q + 2 * m->s.kv;
    const struct rope_of t = rope(m);
    const char *pre = ft_nn_act(m, layer, FT_ACT_PRE);
    const float *stat = ft_nn_act(m, layer, FT_ACT_QSTAT);
    m->k->heads_bwd(m->kc, m->o.compute, r->T, m->s.H, m->s.D, ld, p->q, r->positions, t.cos, t.sin,
                    ft_nn_weight(m, layer, FT_SLOT_Q_NORM), pre, stat, ft_nn_grad(m, layer, FT_SLOT_Q_NORM));
    m->k->heads_bwd(m->kc, m->o.compute, r->T, m->s.K, m->s.D, ld, p->k, r->positions, t.cos, t.sin,
                    ft_nn_weight(m, layer, FT_SLOT_K_NORM), pre ? pre + (size_t)(m->s.T * m->s.q) * ft_nn_size(m) : NULL,
                    stat ? stat + m->s.T * m->s.H : NULL, ft_nn_grad(m, layer, FT_SLOT_K_NORM));
}

/* norm1 out -> delta = o(attention), summed over the tensor group, dropped. */
static enum ft_code attention_fwd(struct ft_run *r, int64_t layer, void *delta, struct ft_err *err)
{
    const struct ft_model *m = r->m;
    const void *y1;
    void *ao = ft_nn_act(m, layer, FT_ACT_AO);
    const struct parts p = parts_of(m, ft_nn_act(m, layer, FT_ACT_QKV));
    const int64_t ld = m->s.q + 2 * m->s.kv;
    const struct ft_linear q = ft_nn_linear(m, layer, FT_SLOT_Q), k = ft_nn_linear(m, layer, FT_SLOT_K),
                           v = ft_nn_linear(m, layer, FT_SLOT_V), o = ft_nn_linear(m, layer, FT_SLOT_O);
    enum ft_code code = ft_nn_gather(r, ft_nn_act(m, layer, FT_ACT_Y1), &y1, err);
    if (code) return code;
    ft_nn_linear_fwd(r, &q, y1, p.q, ld);
    ft_nn_linear_fwd(r, &k, y1, p.k, ld);
    ft_nn_linear_fwd(r, &v, y1, p.v, ld);
    heads_fwd(r, layer, &p);
    const struct ft_attn a = attention(r, layer);
    m->k->attn_fwd(m->kc, m->o.compute, &a, p.q, p.k, p.v, ao, ft_nn_act(m, layer, FT_ACT_LSE));
    ft_nn_linear_fwd(r, &o, ao, ft_nn_partial(r, delta), m->s.h);
    code = ft_nn_sum(r, delta, err);
    if (!code) drop(r, layer, SITE_AFTER_O, delta, delta);
    return code;
}

/* d_o (n,h): gradient of o's output. Leaves the gradient of norm1's output in FT_BUF_DELTA. */
static enum ft_code attention_bwd(struct ft_run *r, int64_t layer, void *d_o, struct ft_err *err)
{
    const struct ft_model *m = r->m;
    const void *y1, *dy_o, *ao = ft_nn_act(m, layer, FT_ACT_AO);
    void *dao = ft_nn_buffer(m, FT_BUF_DAO), *dy1 = ft_nn_buffer(m, FT_BUF_DELTA);
    const struct parts p = parts_of(m, ft_nn_act(m, layer, FT_ACT_QKV)), d = parts_of(m, ft_nn_buffer(m, FT_BUF_DQKV));
    const int64_t ld = m->s.q + 2 * m->s.kv;
    const struct ft_linear o = ft_nn_linear(m, layer, FT_SLOT_O);
    enum ft_code code = ft_nn_gather(r, d_o, &dy_o, err);
    if (code) return code;
    ft_nn_linear_dx(r, 1, &o, &dy_o, m->s.h, dao);
    ft_nn_linear_dw(r, &o, dy_o, m->s.h, ao);
    const struct ft_attn a = attention(r, layer);
    m->k->attn_bwd(m->kc, m->o.compute, &a, p.q, p.k, p.v, ao, ft_nn_act(m, layer, FT_ACT_LSE), dao, d.q, d.k, d.v);
    heads_bwd(r, layer, &d);
    const struct ft_linear qkv[3] = {ft_nn_linear(m, layer, FT_SLOT_Q), ft_nn_linear(m, layer, FT_SLOT_K),
                                     ft_nn_linear(m, layer, FT_SLOT_V)};
    const void *const dy[3] = {d.q, d.k, d.v};
    code = ft_nn_gather(r, ft_nn_act(m, layer, FT_ACT_Y1), &y1, err); /* again: kept gathered it would be t times as large */
    if (code) return code;
    for (int i = 0; i < 3; i++) ft_nn_linear_dw(r, &qkv[i], dy[i], ld, y1);
    ft_nn_linear_dx(r, 3, qkv, dy, ld, ft_nn_partial(r, dy1));
    return ft_nn_sum(r, dy1, err);
}

/* ---- MLP ---- */

static void activation(struct ft_run *r, int64_t layer)
{
    const struct ft_model *m = r->m;
    void *gate = ft_nn_act(m, layer, FT_ACT_GATE), *up = ft_nn_act(m, layer, FT_ACT_UP), *a = ft_nn_act(m, layer, FT_ACT_A);
    if (m->o.config->gelu) m->k->gelu_fwd(m->kc, m->o.compute, r->T * m->s.f, up, a);
    else m->k->swiglu_fwd(m->kc, m->o.compute, r->T * m->s.f, gate, up, a);
}

/* norm2 out -> gate, up, a. */
static enum ft_code mlp_inner(struct ft_run *r, int64_t layer, struct ft_err *err)
{
    const struct ft_model *m = r->m;
    const void *y2;
    const struct ft_linear up = ft_nn_linear(m, layer, FT_SLOT_UP);
    const enum ft_code code = ft_nn_gather(r, ft_nn_act(m, layer, FT_ACT_Y2), &y2, err);
    if (code) return code;
    if (!m->o.config->gelu) {
        const struct ft_linear gate = ft_nn_linear(m, layer, FT_SLOT_GATE);
        ft_nn_linear_fwd(r, &gate, y2, ft_nn_act(m, layer, FT_ACT_GATE), m->s.f);
    }
    ft_nn_linear_fwd(r, &up, y2, ft_nn_act(m, layer, FT_ACT_UP), m->s.f);
    activation(r, layer);
    return FT_OK;
}

/* d (n,h): gradient of down's output. Leaves the gradient of norm2's output in FT_BUF_DELTA. gate and up are overwritten. */
static enum ft_code mlp_bwd(struct ft_run *r, int64_t layer, void *d, struct ft_err *err)
{
    const struct ft_model *m = r->m;
    const void *y2, *dy_down, *a = ft_nn_act(m, layer, FT_ACT_A);
    void *gate = ft_nn_act(m, layer, FT_ACT_GATE), *up = ft_nn_act(m, layer, FT_ACT_UP), *da = ft_nn_buffer(m, FT_BUF_DA),
         *dy2 = ft_nn_buffer(m, FT_BUF_DELTA);
    const struct ft_linear down = ft_nn_linear(m, layer, FT_SLOT_DOWN);
    struct ft_linear in[2];
    const void *dy[2];
    int n = 0;
    const int64_t f = m->s.f;
    enum ft_code code = ft_nn_gather(r, d, &dy_down, err);
    if (code) return code;
    ft_nn_linear_dx(r, 1, &down, &dy_down, m->s.h, da);
    ft_nn_linear_dw(r, &down, dy_down, m->s.h, a);
    if (m->o.config->gelu) {
        m->k->gelu_bwd(m->kc, m->o.compute, r->T * f, up, da, up);
    } else {
        m->k->swiglu_bwd(m->kc, m->o.compute, r->T * f, gate, up, da, gate, up);
        in[n] = ft_nn_linear(m, layer, FT_SLOT_GATE);
        dy[n++] = gate;
    }
    in[n] = ft_nn_linear(m, layer, FT_SLOT_UP);
    dy[n++] = up;
    code = ft_nn_gather(r, ft_nn_act(m, layer, FT_ACT_Y2), &y2, err);
    if (code) return code;
    for (int i = 0; i < n; i++) ft_nn_linear_dw(r, &in[i], dy[i], f, y2);
    ft_nn_linear_dx(r, n, in, dy, f, ft_nn_partial(r, dy2));
    return ft_nn_sum(r, dy2, err);
}

/* ---- the block ---- */

/* Everything up to the MLP's inner activation: what the backward reads. */
static enum ft_code inner_fwd(struct ft_run *r, int64_t layer, void *delta, struct ft_err *err)
{
    const struct ft_model *m = r->m;
    const enum ft_code code = attention_fwd(r, layer, delta, err);
    if (code) return code;
    ft_nn_norm(r, layer, FT_SLOT_NORM2, ft_nn_act(m, layer, FT_ACT_X), delta, ft_nn_act(m, layer, FT_ACT_X2),
               ft_nn_act(m, layer, FT_ACT_Y2));
    return mlp_inner(r, layer, err);
}

enum ft_code ft_nn_layer_fwd(struct ft_run *r, int64_t layer, void *delta, struct ft_err *err)
{
    const struct ft_model *m = r->m;
    enum ft_code code = inner_fwd(r, layer, delta, err);
    if (code) return code;
    const struct ft_linear down = ft_nn_linear(m, layer, FT_SLOT_DOWN);
    ft_nn_linear_fwd(r, &down, ft_nn_act(m, layer, FT_ACT_A), ft_nn_partial(r, delta), m->s.h);
    code = ft_nn_sum(r, delta, err);
    if (!code) drop(r, layer, SITE_AFTER_MLP, delta, delta);
    return code;
}

/* Makes again what this layer did not keep: the same kernels on the same shapes. */
static enum ft_code recompute(struct ft_run *r, int64_t layer, struct ft_err *err)
{
    const struct ft_model *m = r->m;
    if (m->o.recompute == 0) return FT_OK;
    ft_nn_norm(r, layer, FT_SLOT_NORM1, ft_nn_act(m, layer, FT_ACT_X), NULL, NULL, ft_nn_act(m, layer, FT_ACT_Y1));
    if (m->o.recompute == 2) return inner_fwd(r, layer, ft_nn_buffer(m, FT_BUF_DELTA), err);
    ft_nn_norm(r, layer, FT_SLOT_NORM2, ft_nn_act(m, layer, FT_ACT_X2), NULL, NULL, ft_nn_act(m, layer, FT_ACT_Y2));
    activation(r, layer);
    return FT_OK;
}

enum ft_code ft_nn_layer_bwd(struct ft_run *r, int64_t layer, struct ft_err *err)
{
    const struct ft_model *m = r->m;
    void *dx = ft_nn_buffer(m, FT_BUF_DX), *delta = ft_nn_buffer(m, FT_BUF_DELTA);
    enum ft_code code = recompute(r, layer, err);
    if (!code) code = mlp_bwd(r, layer, drop(r, layer, SITE_AFTER_MLP, dx, delta), err);
    if (code) return code;
    ft_nn_norm_bwd(r, layer, FT_SLOT_NORM2, delta, ft_nn_act(m, layer, FT_ACT_X2), dx, dx);
    code = attention_bwd(r, layer, drop(r, layer, SITE_AFTER_O, dx, delta), err);
    if (code) return code;
    ft_nn_norm_bwd(r, layer, FT_SLOT_NORM1, delta, ft_nn_act(m, layer, FT_ACT_X), dx, dx);
    return FT_OK;
}
