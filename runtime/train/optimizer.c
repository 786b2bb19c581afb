#include "runtime/train/optimizer.h"

#include <math.h>

static bool counts(const struct ft_optimizer *o, const struct ft_param *p)
{
    return !p->replica && (p->shard != FT_SHARD_NONE || o->tensor_rank == 0);
}

double ft_optimizer_norm_sq(const struct ft_optimizer *o)
{
    double sum = 0;
    for (size_t i = 0; i < o->buckets->n_pieces; i++) {
        const struct ft_piece *p = &o->buckets->pieces[i];
        if (counts(o, &o->params[p->param])) sum += o->kernels->sum_squares(o->kctx, p->to - p->from, o->grads + p->at);
    }
    return sum;
}

double ft_clip_coef(double clip, double norm)
{
    const double coef = clip / (norm + 1e-6);
    return clip > 0 && coef < 1 ? coef : 1;
}

float *ft_optimizer_masters(const struct ft_optimizer *o, const struct ft_piece *p)
{
    return o->weight_type == FT_F32 ? (float *)o->weights + p->at : o->master + p->state;
}

void ft_optimizer_round(const struct ft_optimizer *o, const struct ft_piece *p)
{
    if (o->weight_type != FT_BF16) return;
    uint16_t *w = (uint16_t *)o->weights + p->at;
    const float *x = o->master + p->state;
    for (int64_t i = 0; i < p->to - p->from; i++) w[i] = ft_f32_to_bf16(x[i]);
}

void ft_optimizer_step(struct ft_optimizer *o, double lr, double coef)
{
    o->t++;
    struct ft_adamw a = {.lr = lr,
                         .beta1 = o->beta1,
                         .beta2 = o->beta2,
                         .eps = o->eps,
                         .coef = coef,
                         .inv_correction1 = 1 / (1 - pow(o->beta1, (double)o->t)),
                         .inv_correction2 = 1 / (1 - pow(o->beta2, (double)o->t))};
    for (size_t i = 0; i < o->buckets->n_pieces; i++) {
        const struct ft_piece *p = &o->buckets->pieces[i];
        a.weight_decay = o->params[p->param].decay ? o->weight_decay : 0;
        void *working = o->weight_type == FT_F32 ? NULL : (void *)((uint16_t *)o->weights + p->at);
        o->kernels->adamw(o->kctx, &a, p->to - p->from, ft_optimizer_masters(o, p), o->m + p->state, o->v + p->state,
                          o->grads + p->at, working, o->weight_type);
    }
}
