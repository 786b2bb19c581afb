#include "runtime/nn/model.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/nn/internal.h"
#include "topology/shard.h"

/* ---- life ---- */

static enum ft_code check_options(const struct ft_model_options *o, struct ft_err *err)
{
    if (o->compute != FT_F32 && o->compute != FT_BF16) return ft_fail(err, FT_UNSUPPORTED, "only fp32 and bf16 are computed with");
    if (o->max_tokens < 1 || o->max_tokens > INT32_MAX)
        return ft_fail(err, FT_CONFIG, "a micro-batch of %lld tokens", (long long)o->max_tokens);
    if (o->recompute < 0 || o->recompute > 2) FT_BUG("recompute %d", o->recompute);
    return FT_OK;
}

/* Ops that the layers call; a device may lack some (a NULL entry). */
#define OP(name)                                                                                                                   \
    {                                                                                                                              \
#name, offsetof(struct ft_kernels, name)                                                                                   \
    }
static const struct {
    const char *name;
    size_t at;
} needed[] = {
    OP(gemm),          OP(embed_fwd), OP(embed_bwd), OP(add_rows), OP(rmsnorm_fwd), OP(rmsnorm_bwd),  OP(layernorm_fwd),
    OP(layernorm_bwd), OP(heads_fwd), OP(heads_bwd), OP(attn_fwd), OP(attn_bwd),    OP(swiglu_fwd),   OP(swiglu_bwd),
    OP(gelu_fwd),      OP(gelu_bwd),  OP(bias_grad), OP(dropout),  OP(gather_rows), OP(scatter_rows), OP(xent_max),
    OP(xent_sum),      OP(xent_bwd),  OP(add),       OP(zero),
};
#undef OP

static enum ft_code check_ops(const struct ft_device *d, struct ft_err *err)
{
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        void (*entry)(void);
        memcpy(&entry, (const char *)d->kernels + needed[i].at, sizeof entry);
        if (entry) continue;
        ft_fail(err, FT_UNSUPPORTED, "device '%s' has no kernel for op %s", d->kernels->device, needed[i].name);
        return ft_fix(err, "set [train] device = cpu");
    }
    return FT_OK;
}

static void index_rows(struct ft_model *m, const enum ft_slot *slots)
{
    const int64_t lines = m->s.chunks * m->s.layers + 1, each = m->s.layers;
    m->row = ft_arena_array(m->arena, (size_t)(lines * FT_N_SLOTS + 1), sizeof *m->row);
    for (int64_t i = 0; i < lines * FT_N_SLOTS + 1; i++) m->row[i] = -1; /* the last one: slot FT_N_SLOTS of the last line */
    for (size_t i = 0; i < m->n_params; i++) {
        const int64_t l = m->params[i].layer, line = l < 0 ? lines - 1 : l / each / m->o.pipeline * each + l % each;
        m->row[line * FT_N_SLOTS + (int)slots[i]] = (int)i;
    }
}

static void write_tables(struct ft_model *m)
{
    if (m->o.config->learned_positions) return;
    const int64_t n = m->s.S * (m->s.D / 2);
    float *cs = ft_xcalloc((size_t)(2 * n), sizeof *cs);
    ft_rope_tables(&m->o.config->rope, m->s.D, m->s.S, cs, cs + n);
    ft_device_write(m->o.device, ft_nn_buffer(m, FT_BUF_COS), cs, n * (int64_t)sizeof *cs);
    ft_device_write(m->o.device, ft_nn_buffer(m, FT_BUF_SIN), cs + n, n * (int64_t)sizeof *cs);
    free(cs);
}

enum ft_code ft_model_create(const struct ft_model_options *o, struct ft_model **out, struct ft_err *err)
{
    enum ft_code code = check_options(o, err);
    if (!code) code = check_ops(o->device, err);
    if (code) return code;
    struct ft_model *m = ft_xcalloc(1, sizeof *m);
    m->o = *o;
    m->s = ft_nn_sizes(o);
    m->at = ft_nn_layout(o);
    m->k = o->device->kernels;
    m->kc = o->device->kctx;
    m->arena = ft_arena_create();
    const enum ft_slot *slots;
    m->params = ft_nn_rows(o, m->arena, &m->n_params, &slots);
    index_rows(m, slots);
    m->offsets = ft_arena_array(m->arena, m->n_params, sizeof *m->offsets);
    m->host = ft_xcalloc((size_t)(8 * (m->s.T + 2)), sizeof *m->host);
    if (m->s.split > 1) {
        m->cut = ft_arena_array(m->arena, (size_t)(2 * (m->s.N + 1)), sizeof *m->cut);
        m->cut_rows = ft_arena_array(m->arena, (size_t)m->s.N, sizeof *m->cut_rows);
    }
    m->host_ce = ft_xcalloc((size_t)(3 * (m->s.chunk < m->s.T ? m->s.chunk : m->s.T)), sizeof *m->host_ce);
    void *memory = NULL;
    code = ft_device_alloc(o->device, m->at.total, "activations", "[train] micro_batch", &memory, err);
    m->memory = memory;
    if (code) {
        ft_model_destroy(m);
        return code;
    }
    write_tables(m);
    *out = m;
    return FT_OK;
}

void ft_model_destroy(struct ft_model *m)
{
    if (!m) return;
    ft_device_free(m->o.device, m->memory, m->at.total);
    free(m->host);
    free(m->host_ce);
    ft_arena_destroy(m->arena);
    free(m);
}

const struct ft_param *ft_model_params(const struct ft_model *m, size_t *n)
{
    *n = m->n_params;
    return m->params;
}

void ft_model_bind(struct ft_model *m, void *weights, float *grads, const int64_t *offsets)
{
    m->weights = weights;
    m->grads = grads;
    memcpy(m->offsets, offsets, m->n_params * sizeof *offsets);
}

/* ---- a micro-batch ---- */

/* Numbers that would read outside of a table stop here: ids come from data files, positions and segments from our own code. */
static enum ft_code check_batch(const struct ft_model *m, const struct ft_batch *b, struct ft_err *err)
{
    const struct ft_model_config *c = m->o.config;
    if (b->T < 0 || b->T > m->s.T) FT_BUG("%lld tokens, %lld planned", (long long)b->T, (long long)m->s.T);
    if (b->n_segments < 0 || b->cu_seqlens[0] != 0 || b->cu_seqlens[b->n_segments] != b->T)
        FT_BUG("segments do not cover the tokens");
    const int64_t limit = c->learned_positions && c->max_positions < m->s.S ? c->max_positions : m->s.S;
    for (int64_t i = 0; i < b->T; i++) {
        if (b->ids[i] < 0 || b->ids[i] >= c->V)
            return ft_fail(err, FT_DATA, "token id %d is outside the model's vocabulary of %lld", b->ids[i], (long long)c->V);
        if (b->targets[i] != -100 && (b->targets[i] < 0 || b->targets[i] >= c->V))
            return ft_fail(err, FT_DATA, "label %d is outside the model's vocabulary of %lld", b->targets[i], (long long)c->V);
        if (b->positions[i] < 0 || b->positions[i] >= limit) FT_BUG("position %d of %lld", b->positions[i], (long long)limit);
    }
    return FT_OK;
}

/* Of T tokens those that this rank has outside of the linears. */
struct own {
    int64_t first, n, each;
};
static struct own own_of(const struct ft_model *m, int64_t T)
{
    const int64_t each = (T + m->s.split - 1) / m->s.split, at = m->s.split > 1 ? m->o.tensor_rank * each : 0;
    const int64_t first = at < T ? at : T;
    return (struct own){first, T - first < each ? T - first : each, each};
}

/* The parts of the segments that lie among the own tokens, for the masks of dropout: an element's number in its row stays. */
static struct ft_segments own_segments(struct ft_model *m, const struct ft_run *r)
{
    if (m->s.split == 1 || !r->drops) return r->seg;
    int32_t *cu = m->cut, *offset = cu + m->s.N + 1;
    struct ft_segments own = {0, cu, m->cut_rows, offset};
    cu[0] = 0;
    for (int64_t i = 0; i < r->seg.n; i++) {
        const int64_t start = r->seg.cu[i], from = start > r->first ? start : r->first, end = r->first + r->n;
        const int64_t to = r->seg.cu[i + 1] < end ? r->seg.cu[i + 1] : end;
        if (from >= to) continue;
        m->cut_rows[own.n] = r->seg.rows[i];
        offset[own.n] = (int32_t)((r->seg.row_offset ? r->seg.row_offset[i] : 0) + from - start);
        cu[++own.n] = (int32_t)(to - r->first);
    }
    return own;
}

/* Sends ids, positions, trained positions with their targets, and the own ones of them to the device. */
static struct ft_run begin(struct ft_model *m, const struct ft_batch *b, bool training)
{
    const int64_t line = m->s.T + 2;
    int32_t *ids = m->host, *positions = ids + line, *trained = positions + line, *targets = trained + line, *mine = targets + line;
    int32_t *device = ft_nn_buffer(m, FT_BUF_INTS);
    const struct own own = own_of(m, b->T);
    struct ft_run r = {.m = m, .b = b, .T = b->T, .first = own.first, .n = own.n, .each = own.each, .drops = training && b->rows};
    r.seg = (struct ft_segments){b->n_segments, b->cu_seqlens, b->rows, b->row_offset};
    r.own = own_segments(m, &r);
    r.ids = device;
    r.positions = device + line;
    r.trained = device + 2 * line;
    r.targets = device + 3 * line;
    r.own_trained = device + 4 * line;
    memcpy(ids, b->ids, (size_t)b->T * sizeof *ids);
    memcpy(positions, b->positions, (size_t)b->T * sizeof *ids);
    for (int64_t i = 0; i < b->T; i++) {
        if (b->targets[i] == -100) continue;
        if (i < r.first) r.first_trained++;
        else if (i < r.first + r.n) mine[r.n_own_trained++] = (int32_t)(i - r.first);
        trained[r.n_trained] = (int32_t)i;
        targets[r.n_trained++] = b->targets[i];
    }
    ft_device_write(m->o.device, device, m->host, 5 * line * (int64_t)sizeof *device);
    return r;
}

static bool is_first(const struct ft_model *m) { return m->o.stage == 0 && m->chunk == 0; }
static bool is_last(const struct ft_model *m) { return m->o.stage == m->o.pipeline - 1 && m->chunk == m->s.chunks - 1; }

/* Embedding and all layers of this chunk; the last layer's output in FT_BUF_OUT. */
static enum ft_code layers_fwd(struct ft_run *r, struct ft_err *err)
{
    const struct ft_model *m = r->m;
    void *delta = ft_nn_buffer(m, FT_BUF_DELTA), *out = ft_nn_buffer(m, FT_BUF_OUT);
    enum ft_code code = is_first(m) ? ft_nn_embed_fwd(r, ft_nn_act(m, 0, FT_ACT_X), err) : FT_OK;
    if (code) return code;
    ft_nn_norm(r, 0, FT_SLOT_NORM1, ft_nn_act(m, 0, FT_ACT_X), NULL, NULL, ft_nn_act(m, 0, FT_ACT_Y1));
    for (int64_t l = 0; l < m->s.layers; l++) {
        const bool last = l == m->s.layers - 1;
        code = ft_nn_layer_fwd(r, l, last ? out : delta, err);
        if (code) return code;
        if (last) m->k->add(m->kc, m->o.compute, r->n * m->s.h, ft_nn_act(m, l, FT_ACT_X2), out);
        else
            ft_nn_norm(r, l + 1, FT_SLOT_NORM1, ft_nn_act(m, l, FT_ACT_X2), delta, ft_nn_act(m, l + 1, FT_ACT_X),
                       ft_nn_act(m, l + 1, FT_ACT_Y1));
    }
    return FT_OK;
}

int ft_model_live(const struct ft_model *m) { return m->s.live; }

/* All ranks see the same targets: where there are none, nobody computes, sends or waits for a sum. */
static bool has_targets(const struct ft_batch *b)
{
    for (int64_t i = 0; i < b->T; i++)
        if (b->targets[i] != -100) return true;
    return false;
}

int64_t ft_model_stage_bytes(const struct ft_model *m, const struct ft_batch *b)
{
    return has_targets(b) ? own_of(m, b->T).n * m->s.h * (int64_t)ft_nn_size(m) : 0;
}

void *ft_model_stage_input(const struct ft_model *m, int slot)
{
    return (char *)ft_nn_act(m, 0, FT_ACT_X) + (slot - m->slot) * m->s.layers * m->at.layer_bytes;
}
const void *ft_model_stage_output(const struct ft_model *m) { return ft_nn_buffer(m, FT_BUF_OUT); }
void *ft_model_stage_gradient(const struct ft_model *m) { return ft_nn_buffer(m, FT_BUF_DX); }
void *ft_model_stage_gradient_next(const struct ft_model *m) { return ft_nn_buffer(m, FT_BUF_NEXT); }

void ft_model_stage_turn(struct ft_model *m)
{
    const int64_t dx = m->at.buffer[FT_BUF_DX];
    m->at.buffer[FT_BUF_DX] = m->at.buffer[FT_BUF_NEXT];
    m->at.buffer[FT_BUF_NEXT] = dx;
}

static void use(struct ft_model *m, int chunk, int slot)
{
    if (slot < 0 || slot >= m->s.live) FT_BUG("slot %d of %d", slot, m->s.live);
    if (chunk < 0 || chunk >= m->s.chunks) FT_BUG("chunk %d of %d", chunk, m->s.chunks);
    m->chunk = chunk;
    m->slot = slot;
}

enum ft_code ft_model_stage_forward(struct ft_model *m, const struct ft_batch *b, int chunk, int slot, double scale, double *ce_sum,
                                    struct ft_err *err)
{
    enum ft_code code = check_batch(m, b, err);
    if (code) return code;
    use(m, chunk, slot);
    struct ft_run r = begin(m, b, true);
    double ce = 0;
    if (r.n_trained) {
        code = layers_fwd(&r, err);
        if (!code && is_last(m)) code = ft_nn_head(&r, scale, &ce, NULL, err);
    }
    if (!code) *ce_sum = ce;
    return code;
}

enum ft_code ft_model_stage_backward(struct ft_model *m, const struct ft_batch *b, int chunk, int slot, struct ft_err *err)
{
    use(m, chunk, slot);
    struct ft_run r = begin(m, b, true);
    enum ft_code code = FT_OK;
    if (!r.n_trained) return code;
    for (int64_t l = m->s.layers - 1; l >= 0 && !code; l--) code = ft_nn_layer_bwd(&r, l, err);
    if (!code && is_first(m)) code = ft_nn_embed_bwd(&r, ft_nn_buffer(m, FT_BUF_DX), err);
    return code;
}

enum ft_code ft_model_stage_evaluate(struct ft_model *m, const struct ft_batch *b, int chunk, double *ce_sum, float *token_loss,
                                     struct ft_err *err)
{
    enum ft_code code = check_batch(m, b, err);
    if (code) return code;
    use(m, chunk, 0);
    struct ft_run r = begin(m, b, false);
    if (token_loss) memset(token_loss, 0, (size_t)b->T * sizeof *token_loss);
    double ce = 0;
    if (r.n_trained) {
        code = layers_fwd(&r, err);
        if (!code && is_last(m)) code = ft_nn_head(&r, 0, &ce, token_loss, err);
    }
    if (!code) *ce_sum = ce;
    return code;
}

static void want_whole(const struct ft_model *m)
{
    if (m->o.pipeline != 1) FT_BUG("stage %d of %d asked for the whole model", m->o.stage, m->o.pipeline);
}

enum ft_code ft_model_forward_backward(struct ft_model *m, const struct ft_batch *b, double scale, double *ce_sum,
                                       struct ft_err *err)
{
    want_whole(m);
    double ce = 0;
    enum ft_code code = ft_model_stage_forward(m, b, 0, 0, scale, &ce, err);
    if (!code) code = ft_model_stage_backward(m, b, 0, 0, err);
    if (!code) *ce_sum = ce;
    return code;
}

enum ft_code ft_model_evaluate(struct ft_model *m, const struct ft_batch *b, double *ce_sum, float *token_loss, struct ft_err *err)
{
    want_whole(m);
    return ft_model_stage_evaluate(m, b, 0, ce_sum, token_loss, err);
}

enum ft_code ft_model_logits(struct ft_model *m, const struct ft_batch *b, float *logits, struct ft_err *err)
{
    enum ft_code code = check_batch(m, b, err);
    if (code) return code;
    want_whole(m);
    struct ft_run r = begin(m, b, false);
    code = layers_fwd(&r, err);
    r.n_trained = r.T; /* the final norm of all tokens */
    return code ? code : ft_nn_head_logits(&r, logits, err);
}
