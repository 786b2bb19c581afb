/* Rows of a low-rank adapter beside a base linear: y = W x + s B A x, A [r,in], B [out,r] (Hu et al. 2021; runtime maths, section 14).
 * The rule: an adapter's output is in the same parallel state (replicated, sharded, partial) as the base's output when the two are added.
 * From it follow the shards of A and B and which of their gradients are partial; gradient finish, memory, checkpoints read them from the
 * rows as they do for any parameter. Pure. */
#ifndef FT_RUNTIME_NN_ADAPTER_H
#define FT_RUNTIME_NN_ADAPTER_H

#include "runtime/nn/param.h"

/* Which dimension of the base is split over the tensor group. */
enum ft_linear_split {
    FT_LINEAR_WHOLE, /* one tensor rank */
    FT_LINEAR_OUT,   /* column-parallel: q k v gate up */
    FT_LINEAR_IN     /* row-parallel: o down */
};
enum ft_adapter_way {
    FT_ADAPTER_PLAIN,
    FT_ADAPTER_SEQUENCE, /* tokens are sharded outside of the linear (sequence parallelism) */
    FT_ADAPTER_FUSED     /* row-parallel: B(A x) joins the base's partial sum before its one reduction */
};
/* What happens to z = A x (T,r) between A and B. */
enum ft_adapter_z {
    FT_Z_LOCAL,  /* complete on every rank, or left partial (fused) */
    FT_Z_GATHER, /* x, or z itself, is gathered over the tokens */
    FT_Z_SUM,    /* SUM over the tensor group; B z is added once, after the base's own sum */
    FT_Z_SCATTER /* SUM, scattered over the tokens */
};

struct ft_adapter {
    struct ft_param a, b; /* name NULL: the caller's */
    enum ft_adapter_z z;
};

/* base: a linear of this rank, [out,in] or, when the family stores it turned, [in,out] with FT_SHARD_ on the stored axes; in_axis: which
 * of its dims are the inputs (1, turned: 0). way FUSED only with a row-parallel base. */
struct ft_adapter ft_adapter_rows(const struct ft_param *base, int in_axis, int64_t r, enum ft_adapter_way way);
enum ft_linear_split ft_adapter_split(const struct ft_param *base, int in_axis);

#endif
