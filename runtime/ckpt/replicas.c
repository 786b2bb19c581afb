/* Before anything is written: what several ranks hold must be the same on all of them (on-disk formats, section 4). Each whole copy of a
 * parameter is hashed as the logical tensor it is, summed over the ranks that share it, so that it does not matter where a layout cuts
 * it. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/ckpt/state.h"
#include "runtime/coll/comm.h"

/* Sums over the ranks that hold a part of one copy of one parameter. */
struct copy {
    uint64_t elements, hash[FT_CKPT_STORED];
};

/* Which copy of the row this rank has a part of; -1: there is only one. Copy 0 is the one that is stored. */
static int copy_of(const struct ft_ckpt *c, const struct ft_param *p)
{
    const int t = ft_comm_size(c->o.comm, FT_GROUP_TP);
    if (p->tied_copy) return p->replica;
    if (p->partial == FT_PARTIAL_REPLICAS) return c->o.tensor_rank % (t / (int)ft_param_sets(p));
    if (p->shard == FT_SHARD_NONE && t > 1) return c->o.tensor_rank;
    return -1;
}

static void sum_piece(const struct ft_ckpt *c, const struct ft_ckpt_piece *q, struct copy *out)
{
    const struct ft_param *p = &c->o.params[q->param];
    const float *values[FT_CKPT_STORED] = {q->master, q->m, q->v};
    struct ft_rect r[3];
    const int n = ft_rects(p, q->from, q->to, r);
    for (int j = 0; j < n; j++) {
        out->elements += (uint64_t)ft_rect_count(&r[j]);
        for (int k = 0; k < FT_CKPT_STORED; k++)
            out->hash[k] += ft_rect_sums(&r[j], p->dims[1], values[k] + (r[j].from - q->from), false).hash;
    }
}

/* "rank 3", "ranks 0, 2, 4": those whose flag is `which`. */
static void list_ranks(struct ft_buf *b, const int64_t *flags, int n, int64_t which)
{
    int many = 0;
    for (int r = 0; r < n; r++) many += flags[r] == which;
    ft_buf_adds(b, many > 1 ? "ranks" : "rank");
    for (int r = 0, k = 0; r < n; r++)
        if (flags[r] == which) ft_buf_addf(b, "%s%d", k++ ? ", " : " ", r);
}

/* Copy k of parameter i is not copy 0: who holds them? */
static enum ft_code differs(struct ft_ckpt *c, size_t i, enum ft_ckpt_slot slot, int k, const char *refusal, struct ft_err *err)
{
    int64_t *flags = ft_xcalloc((size_t)c->world, sizeof *flags);
    struct ft_buf name = {0}, good = {0}, odd = {0};
    flags[c->rank] = -1;
    for (size_t j = 0; j < c->o.n_params; j++)
        if (c->model_of[j] == i) flags[c->rank] = copy_of(c, &c->o.params[j]);
    enum ft_code rc = ft_comm_all_gather(c->o.comm, FT_GROUP_WORLD, &flags[c->rank], flags, 1, FT_I64, err);
    list_ranks(&good, flags, c->world, 0);
    list_ranks(&odd, flags, c->world, k);
    ft_ckpt_tensor_name(&name, c->kind, slot, c->o.model[i].name);
    if (!rc)
        rc = ft_fail(err, FT_DATA, "%s: %s is not the same on %s as on %s", refusal, ft_buf_str(&name), ft_buf_str(&odd),
                     ft_buf_str(&good));
    ft_buf_fini(&name);
    ft_buf_fini(&good);
    ft_buf_fini(&odd);
    free(flags);
    return rc;
}

/* All ranks have the same sums, so they stop at the same place. */
static enum ft_code compare(struct ft_ckpt *c, const struct copy *sums, int n_copies, const char *refusal, struct ft_err *err)
{
    for (size_t i = 0; i < c->o.n_model; i++)
        for (int k = 1; k < n_copies; k++) {
            const struct copy *first = &sums[i * (size_t)n_copies], *x = first + k;
            if (!x->elements) continue;
            if (x->elements != first->elements)
                return ft_fail(err, FT_BUG_FOUND, "copy %d of %s has %llu elements, the first has %llu", k, c->o.model[i].name,
                               (unsigned long long)x->elements, (unsigned long long)first->elements);
            for (int slot = 0; slot < FT_CKPT_STORED; slot++)
                if (x->hash[slot] != first->hash[slot]) return differs(c, i, (enum ft_ckpt_slot)slot, k, refusal, err);
        }
    return FT_OK;
}

enum ft_code ft_ckpt_check_replicas(struct ft_ckpt *c, const struct ft_ckpt_piece *pieces, size_t n, const char *refusal,
                                    struct ft_err *err)
{
    const int t = ft_comm_size(c->o.comm, FT_GROUP_TP), n_copies = t > 2 ? t : 2;
    if (t == 1 && ft_comm_size(c->o.comm, FT_GROUP_PP) == 1) return FT_OK;
    const size_t all = c->o.n_model * (size_t)n_copies;
    struct copy *sums = ft_xcalloc(all + 1, sizeof *sums), *last = NULL;
    for (size_t i = 0; i < n; i++) {
        const int k = copy_of(c, &c->o.params[pieces[i].param]);
        if (k >= 0) sum_piece(c, &pieces[i], last = &sums[c->model_of[pieces[i].param] * (size_t)n_copies + (size_t)k]);
    }
    if (ft_fio_next(&c->fio, FT_FIO_REPLICA).action == FT_FIO_FLIP && last) last->hash[FT_CKPT_V] ^= 1;
    enum ft_code rc = ft_comm_all_reduce(c->o.comm, FT_GROUP_WORLD, sums, (int64_t)(all * sizeof *sums / sizeof(uint64_t)), FT_I64,
                                         FT_SUM, err);
    if (!rc) rc = compare(c, sums, n_copies, refusal, err);
    free(sums);
    return rc;
}
