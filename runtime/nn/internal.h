/* The inside of a model, shared by the files of nn/. */
#ifndef FT_RUNTIME_NN_INTERNAL_H
#define FT_RUNTIME_NN_INTERNAL_H

#include "base/arena.h"
#include "kernels/kernels.h"
#include "runtime/device/device.h"
#include "runtime/nn/memory.h"

struct ft_model {
    struct ft_model_options o;
    struct ft_nn_sizes s;
    struct ft_nn_layout at;
    const struct ft_kernels *k;
    struct ft_kctx *kc;
    struct ft_arena *arena;
    const struct ft_param *params;
    size_t n_params;
    int *row;         /* (chunks*layers+1, FT_N_SLOTS): row of a slot in a layer, the last line: outside of layers; -1: none */
    int64_t *offsets; /* (n_params) elements in the caller's pools */
    char *weights;
    float *grads;      /* NULL: frozen */
    char *memory;      /* at.total bytes of the device */
    int chunk, slot;   /* of the micro-batch that is being computed */
    int32_t *host;     /* (8,T+2) what goes to FT_BUF_INTS */
    int32_t *cut;      /* (2,N+1) with sequence: cu and row_offset of the segments' parts among this rank's own tokens */
    int64_t *cut_rows; /* (N) their row numbers */
    float *host_ce;    /* (3,chunk) */
};

/* One micro-batch on its way. This rank's own tokens, those that it has outside of the linears, are [first, first+n), of each = ceil(T/t)
 * places; without sequence they are all. What is (n,h) has room for `each` rows, so that pieces of one size travel. */
struct ft_run {
    struct ft_model *m;
    const struct ft_batch *b;
    int64_t T;
    int64_t first, n, each;
    bool drops;                                   /* training, with row numbers */
    struct ft_segments seg, own;                  /* of all tokens; of the own ones, counted from the first of them */
    int32_t *ids, *positions, *trained, *targets; /* device; (T), (T), (n_trained), (n_trained) */
    int64_t n_trained;
    int32_t *own_trained; /* device; (n_own_trained): trained positions among the own tokens, counted from the first of them */
    int64_t n_own_trained;
    int64_t first_trained; /* number of the first of them among `trained` */
};

static inline size_t ft_nn_size(const struct ft_model *m) { return ft_dtype_bytes(m->o.compute); }
static inline void *ft_nn_buffer(const struct ft_model *m, enum ft_buffer b) { return m->memory + m->at.buffer[b]; }
static inline void *ft_nn_act(const struct ft_model *m, int64_t layer, enum ft_act a)
{
    if (m->at.act[a] < 0) return NULL;
    const int64_t block = m->at.layer_at + (m->slot * m->s.layers + layer) * m->at.layer_bytes;
    return m->memory + (m->at.kept[a] ? block : m->at.shared) + m->at.act[a];
}
/* layer m->s.layers: outside of layers. */
static inline int ft_nn_row(const struct ft_model *m, int64_t layer, enum ft_slot s)
{
    const int64_t line = layer == m->s.layers ? m->s.chunks * layer : m->chunk * m->s.layers + layer;
    return m->row[line * FT_N_SLOTS + (int)s];
}
static inline const void *ft_nn_weight(const struct ft_model *m, int64_t layer, enum ft_slot s)
{
    const int i = ft_nn_row(m, layer, s);
    return i < 0 ? NULL : m->weights + m->offsets[i] * (int64_t)ft_nn_size(m);
}
static inline float *ft_nn_grad(const struct ft_model *m, int64_t layer, enum ft_slot s)
{
    const int i = ft_nn_row(m, layer, s);
    return i < 0 || !m->grads ? NULL : m->grads + m->offsets[i];
}

/* linear.c: a linear of the family's weight layout. dim: outputs and inputs on this rank. */
struct ft_linear {
    int64_t layer;
    enum ft_slot w, b; /* b: FT_N_SLOTS: none */
    int64_t out, in;
};
struct ft_linear ft_nn_linear(const struct ft_model *m, int64_t layer, enum ft_slot w);
/* y (T, ldy) = x (T, in) Wᵀ + bias; row-parallel ones give a partial sum (their bias on the first rank of the group). */
void ft_nn_linear_fwd(struct ft_run *r, const struct ft_linear *l, const void *x, void *y, int64_t ldy);
/* dx (T, in) = sum over the n linears of dy (T, ld) W: one rounding. */
void ft_nn_linear_dx(struct ft_run *r, int n, const struct ft_linear *l, const void *const *dy, int64_t ld, void *dx);
/* dW += dyᵀ x, db += column sums of dy (T, ld); nothing when frozen. */
void ft_nn_linear_dw(struct ft_run *r, const struct ft_linear *l, const void *dy, int64_t ld, const void *x);

/* tp.c: sum of x (n) in the working type over the tensor group. */
enum ft_code ft_nn_tp_sum(struct ft_run *r, void *x, int64_t n, struct ft_err *err) FT_MUST_CHECK;
/* Where a partial sum (T,h) is to be left whose own tokens shall be `own` (n,h) in the end: own itself, with sequence FT_BUF_WIDE. */
void *ft_nn_partial(const struct ft_run *r, void *own);
/* own (n,h) = this rank's tokens of the SUM over the tensor group of what was left there. */
enum ft_code ft_nn_sum(struct ft_run *r, void *own, struct ft_err *err) FT_MUST_CHECK;
/* *all (T,h): the tokens of all ranks of the tensor group whose own ones are own (n,h): own itself, with sequence in FT_BUF_WIDE. */
enum ft_code ft_nn_gather(struct ft_run *r, void *own, const void **all, struct ft_err *err) FT_MUST_CHECK;
/* MAX or SUM of fp32. */
enum ft_code ft_nn_tp_reduce(struct ft_run *r, float *x, int64_t n, bool max, struct ft_err *err) FT_MUST_CHECK;

/* layer.c: FT_ACT_X and FT_ACT_Y1 of the layer are there. Leaves the layer's last summand in `delta` (FT_ACT_X2 holds the rest). */
enum ft_code ft_nn_layer_fwd(struct ft_run *r, int64_t layer, void *delta, struct ft_err *err) FT_MUST_CHECK;
/* FT_BUF_DX: in the gradient of the layer's output, out of its input. */
enum ft_code ft_nn_layer_bwd(struct ft_run *r, int64_t layer, struct ft_err *err) FT_MUST_CHECK;
/* y = norm1 or norm2 of `layer` of s = x + delta (delta NULL: of x), statistics kept. */
void ft_nn_norm(struct ft_run *r, int64_t layer, enum ft_slot w, const void *x, const void *delta, void *s, void *y);

/* dx = dres (NULL: 0) + gradient through that norm of x; FT_SLOT_NORM works on the trained positions. */
void ft_nn_norm_bwd(struct ft_run *r, int64_t layer, enum ft_slot w, const void *dy, const void *x, const void *dres, void *dx);

/* head.c: final norm, head and cross-entropy of the trained positions in chunks. scale 0: no gradients. token_loss (host, T) or
 * NULL. With gradients FT_BUF_DX receives the gradient of FT_BUF_OUT. */
enum ft_code ft_nn_head(struct ft_run *r, double scale, double *ce_sum, float *token_loss, struct ft_err *err) FT_MUST_CHECK;
enum ft_code ft_nn_head_logits(struct ft_run *r, float *logits, struct ft_err *err) FT_MUST_CHECK;

/* embed.c */
enum ft_code ft_nn_embed_fwd(struct ft_run *r, void *x, struct ft_err *err) FT_MUST_CHECK;
enum ft_code ft_nn_embed_bwd(struct ft_run *r, void *dx, struct ft_err *err) FT_MUST_CHECK;

#endif
