#include "runtime/nn/internal.h"

static enum ft_slot bias_of(enum ft_slot w)
{
    switch ((int)w) {
    case FT_SLOT_Q: return FT_SLOT_Q_B;
    case FT_SLOT_K: return FT_SLOT_K_B;
    case FT_SLOT_V: return FT_SLOT_V_B;
    case FT_SLOT_O: return FT_SLOT_O_B;
    case FT_SLOT_GATE: return FT_SLOT_GATE_B;
    case FT_SLOT_UP: return FT_SLOT_UP_B;
    case FT_SLOT_DOWN: return FT_SLOT_DOWN_B;
    default: return FT_N_SLOTS;
    }
}

struct ft_linear ft_nn_linear(const struct ft_model *m, int64_t layer, enum ft_slot w)
{
    const struct ft_param *p = &m->params[ft_nn_row(m, layer, w)];
    const bool turned = m->o.config->conv1d;
    struct ft_linear l = {layer, w, bias_of(w), turned ? p->local[1] : p->local[0], turned ? p->local[0] : p->local[1]};
    if (ft_nn_row(m, layer, l.b) < 0) l.b = FT_N_SLOTS;
    return l;
}

static bool is_row_parallel(enum ft_slot w) { return w == FT_SLOT_O || w == FT_SLOT_DOWN; }

/* W as the second factor of x Wᵀ (transposed: of dy W). */
static struct ft_gemm_term term(const struct ft_model *m, const struct ft_linear *l, const void *x, int64_t ldx, bool back)
{
    const bool turned = m->o.config->conv1d; /* stored [in, out] */
    return (struct ft_gemm_term){.a = x,
                                 .b = ft_nn_weight(m, l->layer, l->w),
                                 .lda = ldx,
                                 .ldb = turned ? l->out : l->in,
                                 .k = back ? l->out : l->in,
                                 .tb = back ? turned : !turned};
}

void ft_nn_linear_fwd(struct ft_run *r, const struct ft_linear *l, const void *x, void *y, int64_t ldy)
{
    const struct ft_model *m = r->m;
    const bool bias = l->b != FT_N_SLOTS && (m->o.tensor_rank == 0 || !is_row_parallel(l->w));
    const struct ft_gemm g = {.m = r->T,
                              .n = l->out,
                              .ldc = ldy,
                              .ab_type = m->o.compute,
                              .c_type = m->o.compute,
                              .bias = bias ? ft_nn_weight(m, l->layer, l->b) : NULL,
                              .c = y,
                              .n_terms = 1,
                              .term = {term(m, l, x, l->in, false)}};
    m->k->gemm(m->kc, &g);
}

void ft_nn_linear_dx(struct ft_run *r, int n, const struct ft_linear *l, const void *const *dy, int64_t ld, void *dx)
{
    const struct ft_model *m = r->m;
    struct ft_gemm g = {
        .m = r->T, .n = l[0].in, .ldc = l[0].in, .ab_type = m->o.compute, .c_type = m->o.compute, .c = dx, .n_terms = n};
    for (int i = 0; i < n; i++) g.term[i] = term(m, &l[i], dy[i], ld, true);
    m->k->gemm(m->kc, &g);
}

void ft_nn_linear_dw(struct ft_run *r, const struct ft_linear *l, const void *dy, int64_t ld, const void *x)
{
    const struct ft_model *m = r->m;
    float *dw = ft_nn_grad(m, l->layer, l->w), *db = l->b == FT_N_SLOTS ? NULL : ft_nn_grad(m, l->layer, l->b);
    if (dw) {
        const bool turned = m->o.config->conv1d;
        const struct ft_gemm g = {.m = turned ? l->in : l->out,
                                  .n = turned ? l->out : l->in,
                                  .ldc = turned ? l->out : l->in,
                                  .ab_type = m->o.compute,
                                  .c_type = FT_F32,
                                  .add = true,
                                  .c = dw,
                                  .n_terms = 1,
                                  .term = {{.a = turned ? x : dy,
                                            .b = turned ? dy : x,
                                            .lda = turned ? l->in : ld,
                                            .ldb = turned ? ld : l->in,
                                            .k = r->T,
                                            .ta = true}}};
        m->k->gemm(m->kc, &g);
    }
    if (db) m->k->bias_grad(m->kc, m->o.compute, r->T, l->out, dy, ld, db);
}
