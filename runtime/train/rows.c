#include "runtime/train/rows.h"

bool ft_deal_ok(const struct ft_deal *d, int64_t *lower, int64_t *upper)
{
    const int64_t step = d->micro * d->data;
    *lower = d->global_batch / step * step;
    *upper = *lower + step;
    return d->global_batch > 0 && d->global_batch % step == 0;
}

struct ft_update_rows ft_update_rows(const struct ft_deal *d, const struct ft_position *p, int64_t n_rows)
{
    const int64_t left = n_rows - p->in_epoch;
    struct ft_update_rows u = {.epoch = p->epoch, .base = p->in_epoch, .first_row = p->rows};
    u.n = left < d->global_batch ? left : d->global_batch;
    const int64_t step = d->micro * d->data;
    u.n_micro = (u.n + step - 1) / step;
    if (d->group > 1) u.n_micro = (u.n_micro + d->group - 1) / d->group * d->group;
    return u;
}

int64_t ft_deal_row(const struct ft_deal *d, const struct ft_update_rows *u, int64_t j, int64_t r, int64_t i)
{
    const int64_t at = (j * d->data + r) * d->micro + i;
    return at < u->n ? u->base + at : -1;
}

void ft_position_advance(struct ft_position *p, const struct ft_update_rows *u, int64_t n_rows)
{
    p->rows += u->n;
    p->in_epoch = u->base + u->n;
    if (p->in_epoch >= n_rows) {
        p->in_epoch = 0;
        p->epoch = u->epoch + 1;
    }
}
