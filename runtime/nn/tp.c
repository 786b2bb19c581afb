/* The only collectives of the layers, all over the tensor group. Without sequence parallelism a partial sum is reduced where it lies and
 * every rank has all tokens; with it (Korthikanti et al. 2022) a sum is scattered over the tokens, and gathered before the next linear.
 * Both add in the order of the ranks: the same bits. */
#include "runtime/coll/comm.h"
#include "runtime/nn/internal.h"

enum ft_code ft_nn_tp_sum(struct ft_run *r, void *x, int64_t n, struct ft_err *err)
{
    const struct ft_model_options *o = &r->m->o;
    if (o->tensor == 1) return FT_OK;
    return ft_comm_all_reduce(o->comm, FT_GROUP_TP, x, n, o->compute, FT_SUM, err);
}

enum ft_code ft_nn_tp_reduce(struct ft_run *r, float *x, int64_t n, bool max, struct ft_err *err)
{
    const struct ft_model_options *o = &r->m->o;
    if (o->tensor == 1) return FT_OK;
    return ft_comm_all_reduce(o->comm, FT_GROUP_TP, x, n, FT_F32, max ? FT_MAX : FT_SUM, err);
}

/* Places behind the last token, fewer than there are ranks, travel as zeros. */
static void zero_places(const struct ft_run *r, void *x, int64_t from, int64_t to)
{
    const int64_t row = r->m->s.h * (int64_t)ft_nn_size(r->m);
    if (from < to) r->m->k->zero(r->m->kc, (to - from) * row, (char *)x + from * row);
}

void *ft_nn_partial(const struct ft_run *r, void *own) { return r->m->s.split > 1 ? ft_nn_buffer(r->m, FT_BUF_WIDE) : own; }

enum ft_code ft_nn_sum(struct ft_run *r, void *own, struct ft_err *err)
{
    const struct ft_model *m = r->m;
    if (m->s.split == 1) return ft_nn_tp_sum(r, own, r->T * m->s.h, err);
    void *wide = ft_nn_buffer(m, FT_BUF_WIDE);
    zero_places(r, wide, r->T, m->s.split * r->each);
    return ft_comm_reduce_scatter(m->o.comm, FT_GROUP_TP, wide, own, r->each * m->s.h, m->o.compute, FT_SUM, err);
}

enum ft_code ft_nn_gather(struct ft_run *r, void *own, const void **all, struct ft_err *err)
{
    const struct ft_model *m = r->m;
    *all = own;
    if (m->s.split == 1) return FT_OK;
    *all = ft_nn_buffer(m, FT_BUF_WIDE);
    zero_places(r, own, r->n, r->each);
    return ft_comm_all_gather(m->o.comm, FT_GROUP_TP, own, ft_nn_buffer(m, FT_BUF_WIDE), r->each * m->s.h, m->o.compute, err);
}
