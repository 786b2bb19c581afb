/* The only collectives of the layers: sums over the tensor group. */
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
