#include "runtime/nn/memory.h"

#include <string.h>

#include "topology/shard.h"

enum { ALIGN = 256, CHUNK_ROWS = 128 };

/* Runtime maths, section 7. */
static int live(const struct ft_model_options *o, int chunks)
{
    const int64_t m = (o->micro_batches > 0 ? o->micro_batches : 1) * chunks, behind = o->pipeline - 1 - o->stage;
    const int64_t most = chunks == 1 ? behind + 1 : 2 * behind + (int64_t)(chunks - 1) * o->pipeline + 1;
    return (int)(most < m ? most : m);
}

struct ft_nn_sizes ft_nn_sizes(const struct ft_model_options *o)
{
    const struct ft_model_config *c = o->config;
    const int64_t t = o->tensor;
    struct ft_nn_sizes s = {.T = o->max_tokens, .S = o->seq_len > 0 ? o->seq_len : o->max_tokens, .h = c->h, .D = c->D};
    const struct ft_heads heads = ft_heads_of(c->H, c->K, o->tensor, o->tensor_rank);
    s.split = o->sequence ? o->tensor : 1;
    s.N = (s.T + s.split - 1) / s.split;
    s.H = heads.q.end - heads.q.first;
    s.K = heads.kv.end - heads.kv.first;
    s.q = s.H * s.D;
    s.kv = s.K * s.D;
    s.f = c->f / t;
    s.Vp = ft_vocab_padded(c->V, o->tensor, 1) / t;
    s.chunks = o->chunks > 1 ? o->chunks : 1;
    const struct ft_range layers = ft_layers_of(c->L, o->pipeline, s.chunks, o->stage, 0);
    s.layers = layers.end - layers.first;
    s.live = live(o, s.chunks);
    /* a function of model and t only, so that recompute modes and batch sizes see the same chunks */
    const int64_t bytes = o->logits_chunk_bytes > 0 ? o->logits_chunk_bytes : (int64_t)256 << 20;
    s.chunk = bytes / (4 * s.Vp) / CHUNK_ROWS * CHUNK_ROWS;
    if (s.chunk < CHUNK_ROWS) s.chunk = CHUNK_ROWS;
    return s;
}

static int64_t take(int64_t *at, int64_t bytes)
{
    const int64_t here = *at;
    *at += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return here;
}

static int64_t act_bytes(const struct ft_model_options *o, const struct ft_nn_sizes *s, enum ft_act a)
{
    const struct ft_model_config *c = o->config;
    const int64_t size = (int64_t)ft_dtype_bytes(o->compute);
    switch (a) {
    case FT_ACT_X:
    case FT_ACT_Y1:
    case FT_ACT_X2:
    case FT_ACT_Y2: return s->N * s->h * size;
    case FT_ACT_QKV: return s->T * (s->q + 2 * s->kv) * size;
    case FT_ACT_PRE: return c->qk_norm ? s->T * (s->q + s->kv) * size : 0;
    case FT_ACT_AO: return s->T * s->q * size;
    case FT_ACT_GATE: return c->gelu ? 0 : s->T * s->f * size;
    case FT_ACT_UP:
    case FT_ACT_A: return s->T * s->f * size;
    case FT_ACT_LSE: return s->T * s->H * 4;
    case FT_ACT_STAT1:
    case FT_ACT_STAT2: return s->N * (c->layernorm ? 2 : 1) * 4;
    case FT_ACT_QSTAT: return c->qk_norm ? s->T * (s->H + s->K) * 4 : 0;
    case FT_N_ACTS: break;
    }
    FT_BUG("activation %d", (int)a);
}

static bool is_kept(int recompute, enum ft_act a)
{
    if (recompute == 2) return a == FT_ACT_X;
    if (recompute == 1) return a != FT_ACT_Y1 && a != FT_ACT_Y2 && a != FT_ACT_A;
    return true;
}

static int64_t buffer_bytes(const struct ft_model_options *o, const struct ft_nn_sizes *s, enum ft_buffer b)
{
    const int64_t size = (int64_t)ft_dtype_bytes(o->compute), rows = s->chunk < s->T ? s->chunk : s->T;
    const bool has_head = o->stage == o->pipeline - 1;
    switch (b) {
    case FT_BUF_OUT:
    case FT_BUF_DELTA:
    case FT_BUF_DX: return s->N * s->h * size;
    case FT_BUF_NEXT: return s->chunks > 1 ? s->N * s->h * size : 0;
    case FT_BUF_WIDE: return s->split > 1 ? s->split * s->N * s->h * size : 0;
    case FT_BUF_HX:
    case FT_BUF_HY: return has_head ? s->T * s->h * size : 0;
    case FT_BUF_DQKV: return s->T * (s->q + 2 * s->kv) * size;
    case FT_BUF_DAO: return s->T * s->q * size;
    case FT_BUF_DA: return s->T * s->f * size;
    case FT_BUF_HSTAT: return has_head ? s->T * 2 * 4 : 0;
    case FT_BUF_LOGITS: return has_head ? rows * s->Vp * 4 : 0;
    case FT_BUF_CE: return has_head ? 3 * rows * 4 : 0;
    case FT_BUF_COS:
    case FT_BUF_SIN: return o->config->learned_positions ? 0 : s->S * (s->D / 2) * 4;
    case FT_BUF_INTS: return 8 * (s->T + 2) * 4;
    case FT_N_BUFFERS: break;
    }
    FT_BUG("buffer %d", (int)b);
}

/* Workspace that the device's kernels take for themselves: attention's backward sums dk and dv per query head. */
static int64_t workspace_bytes(const struct ft_nn_sizes *s) { return 2 * s->T * s->q * 4; }

struct ft_nn_layout ft_nn_layout(const struct ft_model_options *o)
{
    const struct ft_nn_sizes s = ft_nn_sizes(o);
    struct ft_nn_layout l = {0};
    int64_t shared = 0, at = 0;
    for (int a = 0; a < FT_N_ACTS; a++) {
        const int64_t bytes = act_bytes(o, &s, a);
        l.kept[a] = is_kept(o->recompute, a);
        l.act[a] = bytes ? take(l.kept[a] ? &l.layer_bytes : &shared, bytes) : -1;
    }
    l.layer_at = take(&at, l.layer_bytes * s.layers * s.live);
    l.parts.activations = at;
    l.shared = take(&at, shared);
    for (int b = 0; b < FT_N_BUFFERS; b++) {
        const int64_t bytes = buffer_bytes(o, &s, b);
        l.buffer[b] = bytes ? take(&at, bytes) : -1;
        if (b == FT_BUF_LOGITS) l.parts.logits = bytes;
    }
    l.total = at;
    l.parts.buffers = at - l.parts.activations - l.parts.logits + workspace_bytes(&s);
    return l;
}

struct ft_model_memory ft_model_memory(const struct ft_model_options *o) { return ft_nn_layout(o).parts; }

const struct ft_param *ft_nn_rows(const struct ft_model_options *o, struct ft_arena *a, size_t *n, const enum ft_slot **slots)
{
    const struct ft_model_part p = {o->tensor, o->tensor_rank, o->pipeline, o->stage, o->chunks > 1 ? o->chunks : 1,
                                    1,         o->sequence};
    return ft_model_config_part_rows(o->config, &p, a, n, slots);
}

const struct ft_param *ft_model_rows(const struct ft_model_options *o, struct ft_arena *a, size_t *n)
{
    return ft_nn_rows(o, a, n, NULL);
}
