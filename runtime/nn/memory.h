/* Where every activation of a model lies: ONE function for the memory plan and for the allocation; its rows likewise. Internal to nn/.
 *
 * All tensors are (T, width) for T = max_tokens rows of the micro-batches, or (N, width) for the N = ceil(T/t) tokens of one tensor rank
 * (sequence parallelism; without it N = T). A layer keeps what `recompute` says, for each live micro-batch; what it does not keep lies
 * once, shared by all layers, and is made again in the backward. */
#ifndef FT_RUNTIME_NN_MEMORY_H
#define FT_RUNTIME_NN_MEMORY_H

#include "runtime/arch/config.h"
#include "runtime/nn/model.h"

/* Tensors of a layer. Working type, but for the statistics. */
enum ft_act {
    FT_ACT_X,     /* (N,h)        the layer's input */
    FT_ACT_Y1,    /* (N,h)        norm1 out */
    FT_ACT_QKV,   /* (T,q+2kv)    after QK-norm and RoPE */
    FT_ACT_PRE,   /* (T,q+kv)     q, k before QK-norm */
    FT_ACT_AO,    /* (T,q)        attention out */
    FT_ACT_X2,    /* (N,h)        x after attention */
    FT_ACT_Y2,    /* (N,h)        norm2 out */
    FT_ACT_GATE,  /* (T,f) */
    FT_ACT_UP,    /* (T,f)        GELU: its input */
    FT_ACT_A,     /* (T,f)        silu(gate)*up, or GELU out */
    FT_ACT_LSE,   /* (T,H)        fp32 */
    FT_ACT_STAT1, /* (N,2)        fp32: rstd, mean of norm1 */
    FT_ACT_STAT2, /* (N,2)        fp32 */
    FT_ACT_QSTAT, /* (T,H+K)      fp32: rstd of QK-norm */
    FT_N_ACTS
};

/* Tensors that the whole model has once; those from HX to CE only where the head is. */
enum ft_buffer {
    FT_BUF_OUT,    /* (N,h)     output of the last layer */
    FT_BUF_DELTA,  /* (N,h)     what is added to the residual; gradients of it */
    FT_BUF_DX,     /* (N,h)     gradient of the residual */
    FT_BUF_NEXT,   /* (N,h)     with chunks: the next one, which comes while that one is sent */
    FT_BUF_WIDE,   /* (t*N,h)   with sequence: what is gathered for a linear, or leaves one as a partial sum */
    FT_BUF_DQKV,   /* (T,q+2kv) */
    FT_BUF_DAO,    /* (T,q) */
    FT_BUF_DA,     /* (T,f) */
    FT_BUF_HX,     /* (T,h)     residual of the trained positions; its gradient */
    FT_BUF_HY,     /* (T,h)     their final norm; its gradient */
    FT_BUF_HSTAT,  /* (T,2)     fp32 */
    FT_BUF_LOGITS, /* (chunk, Vp) fp32 */
    FT_BUF_CE,     /* (3,chunk) fp32: max, sum, zy */
    FT_BUF_COS,    /* (S,D/2)   fp32 */
    FT_BUF_SIN,
    FT_BUF_INTS, /* (8,T+2)   int32: ids, positions, trained positions, targets, own trained positions, lists */
    FT_N_BUFFERS
};

struct ft_nn_sizes {
    int64_t T, S;                     /* max_tokens; seq_len */
    int64_t N;                        /* most tokens of this rank outside of the linears: T, with sequence ceil(T/t) */
    int split;                        /* ranks that share those tokens: 1, with sequence t */
    int64_t h, H, K, D, q, kv, f, Vp; /* local: H, K, q, kv, f, Vp of this rank */
    int64_t layers, chunk;            /* of this stage's chunk; tokens of logits at once */
    int chunks, live;                 /* of layers on this stage; micro-batches (of a chunk each) that it keeps at once */
};

struct ft_nn_layout {
    int64_t act[FT_N_ACTS];       /* bytes from the layer's block (slot, layer), or from `shared`; -1: not in this model */
    bool kept[FT_N_ACTS];         /* in the layer's block */
    int64_t buffer[FT_N_BUFFERS]; /* bytes from the start; -1: not in this model */
    int64_t layer_at, layer_bytes, shared, total;
    struct ft_model_memory parts;
};

struct ft_nn_sizes ft_nn_sizes(const struct ft_model_options *o);
struct ft_nn_layout ft_nn_layout(const struct ft_model_options *o);
const struct ft_param *ft_nn_rows(const struct ft_model_options *o, struct ft_arena *a, size_t *n, const enum ft_slot **slots);

#endif
