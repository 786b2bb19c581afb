/* Parameter rows: names from the family's table, shapes and shard axes from the slot. */
#include <string.h>

#include "runtime/arch/arch.h"
#include "topology/shard.h"

struct shape {
    int64_t out, in; /* in 0: a vector of out elements */
    enum { SPLIT_NONE, SPLIT_OUT, SPLIT_IN } split;
    int64_t granule; /* of the split axis */
    bool norm, heads, kv, vocab;
};

static struct shape shape_of(const struct ft_model_config *c, enum ft_slot s)
{
    const int64_t q = c->H * c->D, kv = c->K * c->D;
    switch (s) {
    case FT_SLOT_EMBED:
    case FT_SLOT_HEAD: return (struct shape){c->V, c->h, SPLIT_OUT, 1, .vocab = true};
    case FT_SLOT_POS: return (struct shape){c->max_positions, c->h, SPLIT_NONE, 1, .norm = false};
    case FT_SLOT_NORM1:
    case FT_SLOT_NORM2:
    case FT_SLOT_NORM: return (struct shape){c->h, 0, SPLIT_NONE, 1, .norm = true};
    case FT_SLOT_NORM1_B:
    case FT_SLOT_NORM2_B:
    case FT_SLOT_NORM_B:
    case FT_SLOT_O_B:
    case FT_SLOT_DOWN_B: return (struct shape){c->h, 0, SPLIT_NONE, 1, .norm = false};
    case FT_SLOT_Q: return (struct shape){q, c->h, SPLIT_OUT, c->D, .heads = true};
    case FT_SLOT_K:
    case FT_SLOT_V: return (struct shape){kv, c->h, SPLIT_OUT, c->D, .kv = true};
    case FT_SLOT_Q_B: return (struct shape){q, 0, SPLIT_OUT, c->D, .heads = true};
    case FT_SLOT_K_B:
    case FT_SLOT_V_B: return (struct shape){kv, 0, SPLIT_OUT, c->D, .kv = true};
    case FT_SLOT_Q_NORM:
    case FT_SLOT_K_NORM: return (struct shape){c->D, 0, SPLIT_NONE, 1, .norm = true};
    case FT_SLOT_O: return (struct shape){c->h, q, SPLIT_IN, c->D, .heads = true};
    case FT_SLOT_GATE:
    case FT_SLOT_UP: return (struct shape){c->f, c->h, SPLIT_OUT, 1, .norm = false};
    case FT_SLOT_GATE_B:
    case FT_SLOT_UP_B: return (struct shape){c->f, 0, SPLIT_OUT, 1, .norm = false};
    case FT_SLOT_DOWN: return (struct shape){c->h, c->f, SPLIT_IN, 1, .norm = false};
    case FT_N_SLOTS: break;
    }
    FT_BUG("slot %d", (int)s);
}

/* Does this model have the slot at all? */
static bool has_slot(const struct ft_model_config *c, enum ft_slot s)
{
    switch (s) {
    case FT_SLOT_POS: return c->learned_positions;
    case FT_SLOT_NORM1_B:
    case FT_SLOT_NORM2_B:
    case FT_SLOT_NORM_B: return c->layernorm;
    case FT_SLOT_Q_B:
    case FT_SLOT_K_B:
    case FT_SLOT_V_B: return c->q_bias;
    case FT_SLOT_O_B: return c->o_bias;
    case FT_SLOT_Q_NORM:
    case FT_SLOT_K_NORM: return c->qk_norm;
    case FT_SLOT_GATE: return !c->gelu;
    case FT_SLOT_GATE_B: return !c->gelu && c->mlp_bias;
    case FT_SLOT_UP_B:
    case FT_SLOT_DOWN_B: return c->mlp_bias;
    case FT_SLOT_HEAD: return !c->tied;
    case FT_SLOT_EMBED:
    case FT_SLOT_NORM1:
    case FT_SLOT_Q:
    case FT_SLOT_K:
    case FT_SLOT_V:
    case FT_SLOT_O:
    case FT_SLOT_NORM2:
    case FT_SLOT_UP:
    case FT_SLOT_DOWN:
    case FT_SLOT_NORM: return true;
    case FT_N_SLOTS: break;
    }
    FT_BUG("slot %d", (int)s);
}

static bool in_layer(enum ft_slot s) { return s >= FT_SLOT_NORM1 && s <= FT_SLOT_DOWN_B; }

/* Elements of the split axis on this rank. */
static struct ft_range cut_of(const struct ft_model_config *c, const struct shape *x, const struct ft_model_part *p)
{
    const struct ft_heads heads = ft_heads_of(c->H, c->K, p->tensor, p->tensor_rank);
    if (x->vocab) return ft_vocab_rows(c->V, p->tensor, (int)p->vocab_multiple, p->tensor_rank);
    if (x->kv) return (struct ft_range){heads.kv.first * c->D, heads.kv.end * c->D};
    if (x->heads) return (struct ft_range){heads.q.first * c->D, heads.q.end * c->D};
    return ft_shard(x->split == SPLIT_IN ? x->in : x->out, p->tensor, p->tensor_rank);
}

/* Is its gradient a sum over the tensor group? Each rank has only its heads, or only its tokens. The other parameters that work outside
 * of the linears see all tokens: biases of row-parallel linears and learned positions in the gradient that is gathered for their
 * linear and for the embedding, the final norm in the trained positions. */
static bool is_partial(enum ft_slot s, const struct ft_model_part *p)
{
    const bool heads = s == FT_SLOT_Q_NORM || s == FT_SLOT_K_NORM;
    const bool tokens = s == FT_SLOT_NORM1 || s == FT_SLOT_NORM1_B || s == FT_SLOT_NORM2 || s == FT_SLOT_NORM2_B;
    return p->tensor > 1 && (heads || (tokens && p->sequence));
}

static struct ft_param make_row(const struct ft_model_config *c, enum ft_slot s, int layer, const struct ft_model_part *p)
{
    const struct shape x = shape_of(c, s);
    struct ft_param row = {.n_dims = x.in ? 2 : 1, .granule = x.granule, .layer = layer, .decay = x.in != 0};
    row.init_std = x.norm || !x.in ? 0 : c->init_std;
    const struct ft_range cut = x.split == SPLIT_NONE ? (struct ft_range){0, x.out} : cut_of(c, &x, p);
    const int64_t part = cut.end - cut.first, from = cut.first;
    if (x.kv && c->K < p->tensor) { /* t/K ranks hold the same head; the first of them counts */
        row.replica = p->tensor_rank % (p->tensor / c->K) != 0;
        row.partial = FT_PARTIAL_REPLICAS;
    }
    if (is_partial(s, p)) row.partial = FT_PARTIAL_TENSOR;
    const int64_t out_l = x.split == SPLIT_OUT ? part : x.out, in_l = x.split == SPLIT_IN ? part : x.in;
    const int64_t out_0 = x.split == SPLIT_OUT ? from : 0, in_0 = x.split == SPLIT_IN ? from : 0;
    const bool turned = c->conv1d && x.in && !x.vocab && s != FT_SLOT_POS; /* [in, out] */
    row.dims[0] = turned ? x.in : x.out;
    row.dims[1] = !x.in ? 1 : turned ? x.out : x.in;
    row.local[0] = turned ? in_l : out_l;
    row.local[1] = !x.in ? 1 : turned ? out_l : in_l;
    row.origin[0] = turned ? in_0 : out_0;
    row.origin[1] = turned ? out_0 : in_0;
    row.shard = x.split == SPLIT_NONE ? FT_SHARD_NONE : (x.split == SPLIT_OUT) != turned ? FT_SHARD_DIM0 : FT_SHARD_DIM1;
    return row;
}

struct list {
    struct ft_arena *a;
    struct ft_param *rows;
    enum ft_slot *slots;
    size_t n;
};

static void append(struct list *l, struct ft_param row, enum ft_slot s, const char *format)
{
    const char *mark = strstr(format, "%d");
    row.name = mark ? ft_arena_printf(l->a, "%.*s%d%s", (int)(mark - format), format, row.layer, mark + 2) : format;
    l->rows[l->n] = row;
    l->slots[l->n++] = s;
}

const struct ft_param *ft_model_config_part_rows(const struct ft_model_config *c, const struct ft_model_part *p, struct ft_arena *a,
                                                 size_t *n, const enum ft_slot **slots)
{
    const int pipeline = p->pipeline, stage = p->stage;
    const struct ft_arch_name *names = c->arch->names;
    const size_t most = (size_t)(FT_N_SLOTS * (c->L / pipeline + 1));
    struct list l = {a, ft_arena_array(a, most, sizeof(struct ft_param)), ft_arena_array(a, most, sizeof(enum ft_slot)), 0};
    const struct ft_arch_name *at = names, *layer_begin, *layer_end;
    for (; !in_layer(at->slot); at++)
        if (stage == 0 && has_slot(c, at->slot)) {
            struct ft_param row = make_row(c, at->slot, -1, p);
            row.tied_copy = at->slot == FT_SLOT_EMBED && c->tied && pipeline > 1;
            append(&l, row, at->slot, at->format);
        }
    layer_begin = at;
    while (at->format && in_layer(at->slot)) at++;
    layer_end = at;
    for (int chunk = 0; chunk < p->chunks; chunk++) {
        const struct ft_range layers = ft_layers_of(c->L, pipeline, p->chunks, stage, chunk);
        for (int64_t i = layers.first; i < layers.end; i++)
            for (at = layer_begin; at < layer_end; at++)
                if (has_slot(c, at->slot)) append(&l, make_row(c, at->slot, (int)i, p), at->slot, at->format);
    }
    for (at = layer_end; at->format; at++)
        if (stage == pipeline - 1 && has_slot(c, at->slot)) append(&l, make_row(c, at->slot, -1, p), at->slot, at->format);
    if (c->tied && pipeline > 1 && stage == pipeline - 1) { /* the head's copy of the embedding */
        struct ft_param row = make_row(c, FT_SLOT_EMBED, -1, p);
        row.replica = row.tied_copy = true;
        append(&l, row, FT_SLOT_EMBED, names[0].format);
    }
    *n = l.n;
    if (slots) *slots = l.slots;
    return l.rows;
}

const struct ft_param *ft_model_config_rows(const struct ft_model_config *c, int tensor, int tensor_rank, int pipeline, int stage,
                                            int64_t vocab_multiple, struct ft_arena *a, size_t *n, const enum ft_slot **slots)
{
    const struct ft_model_part p = {tensor, tensor_rank, pipeline, stage, 1, vocab_multiple, false};
    return ft_model_config_part_rows(c, &p, a, n, slots);
}

int64_t ft_model_config_params(const struct ft_model_config *c)
{
    struct ft_arena *a = ft_arena_create();
    size_t n;
    const struct ft_param *rows = ft_model_config_rows(c, 1, 0, 1, 0, 1, a, &n, NULL);
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += ft_param_count(&rows[i]);
    ft_arena_destroy(a);
    return sum;
}

/* ---- layouts ---- */

bool ft_model_config_cuts(const struct ft_model_config *c, int tensor)
{
    return ft_heads_fit(c->H, c->K, tensor) && c->f % tensor == 0;
}

/* "1,2": the sizes that heads, kv heads and f can all be cut into. */
static void works(struct ft_buf *out, const struct ft_model_config *c)
{
    const char *comma = "";
    for (int t = 1; t <= c->H; t++)
        if (ft_model_config_cuts(c, t)) {
            ft_buf_addf(out, "%s%d", comma, t);
            comma = ",";
        }
}

size_t ft_model_config_layout(const struct ft_model_config *c, int tensor, int pipeline, struct ft_buf *out)
{
    size_t problems = 0;
    struct ft_err err;
    if (ft_heads_check(c->H, c->K, tensor, &err)) {
        ft_buf_addf(out, "%s\n", err.text);
        problems++;
    }
    if (c->f % tensor) {
        ft_buf_addf(out, "intermediate size (f) %lld does not divide by %d; works: ", (long long)c->f, tensor);
        works(out, c);
        ft_buf_addc(out, '\n');
        problems++;
    }
    if (ft_layers_check(c->L, pipeline, 1, &err)) {
        ft_buf_addf(out, "%s\n", err.text);
        problems++;
    }
    return problems;
}
