#include <stdlib.h>

#include "base/bits/philox.h"
#include "runtime/nn/internal.h"

enum { SITE_EMBEDDING = 1 };

static struct ft_dropout site(const struct ft_run *r)
{
    const struct ft_dropout d = {r->drops ? r->m->o.config->embd_drop : 0, ft_philox_key(r->m->o.seed, SITE_EMBEDDING, 0)};
    return d;
}

static void drop(struct ft_run *r, void *x)
{
    const struct ft_model *m = r->m;
    const struct ft_dropout d = site(r);
    if (d.p > 0) m->k->dropout(m->kc, m->o.compute, &d, &r->own, m->s.h, m->s.h, 0, x, x);
}

enum ft_code ft_nn_embed_fwd(struct ft_run *r, void *x, struct ft_err *err)
{
    const struct ft_model *m = r->m;
    const struct ft_param *p = &m->params[ft_nn_row(m, m->s.layers, FT_SLOT_EMBED)];
    m->k->embed_fwd(m->kc, m->o.compute, r->T, m->s.h, r->ids, p->origin[0], p->local[0],
                    ft_nn_weight(m, m->s.layers, FT_SLOT_EMBED), ft_nn_partial(r, x));
    const enum ft_code code = ft_nn_sum(r, x, err);
    if (code) return code;
    if (m->o.config->learned_positions)
        m->k->add_rows(m->kc, m->o.compute, r->n, m->s.h, r->positions + r->first, ft_nn_weight(m, m->s.layers, FT_SLOT_POS), x);
    drop(r, x);
    return FT_OK;
}

static int ascending(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Gradient of the rows of a table that index (host, T) picks: lists of equal rows, tokens ascending in each. Row `without` gets none
 * (-1: each gets its own). */
static void table_grad(struct ft_run *r, const int32_t *index, int64_t first_row, int64_t n_rows, int64_t without, const void *dx,
                       float *grad)
{
    struct ft_model *m = r->m;
    uint64_t *keys = ft_xcalloc((size_t)r->T + 1, sizeof *keys);
    int64_t n = 0;
    for (int64_t i = 0; i < r->T; i++)
        if (index[i] >= first_row && index[i] < first_row + n_rows && index[i] != without)
            keys[n++] = (uint64_t)(index[i] - first_row) << 32 | (uint64_t)i;
    qsort(keys, (size_t)n, sizeof *keys, ascending);
    const int64_t line = m->s.T + 2;
    int32_t *row = m->host + 5 * line, *start = row + line, *token = start + line;
    int64_t n_lists = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || keys[i] >> 32 != keys[i - 1] >> 32) {
            row[n_lists] = (int32_t)(keys[i] >> 32);
            start[n_lists++] = (int32_t)i;
        }
        token[i] = (int32_t)(keys[i] & 0xFFFFFFFFu);
    }
    start[n_lists] = (int32_t)n;
    free(keys);
    int32_t *device = (int32_t *)ft_nn_buffer(m, FT_BUF_INTS) + 5 * line;
    ft_device_write(m->o.device, device, row, 3 * line * (int64_t)sizeof *row);
    const struct ft_lists l = {n_lists, device, device + line, device + 2 * line};
    m->k->embed_bwd(m->kc, m->o.compute, m->s.h, &l, dx, grad);
}

/* Every rank has its rows of the table, and needs the gradient of all tokens; positions then see the same. */
enum ft_code ft_nn_embed_bwd(struct ft_run *r, void *dx, struct ft_err *err)
{
    const struct ft_model *m = r->m;
    const void *all;
    if (!m->grads) return FT_OK;
    drop(r, dx);
    const enum ft_code code = ft_nn_gather(r, dx, &all, err);
    if (code) return code;
    const struct ft_param *p = &m->params[ft_nn_row(m, m->s.layers, FT_SLOT_EMBED)];
    table_grad(r, r->b->ids, p->origin[0], p->local[0], m->o.config->pad_id, all, ft_nn_grad(m, m->s.layers, FT_SLOT_EMBED));
    if (m->o.config->learned_positions)
        table_grad(r, r->b->positions, 0, m->o.config->max_positions, -1, all, ft_nn_grad(m, m->s.layers, FT_SLOT_POS));
    return FT_OK;
}
