/* Longer than most: one model in parts serves all these cases. A model on real tensor ranks against itself on one: which rows a rank holds (RT-06), cross-entropy over a vocabulary in parts (RT-07),
 * gradients, norms and replicas over five updates (RT-15). Every rank computes both and compares what it holds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/hash.h"
#include "runtime/arch/config.h"
#include "runtime/device/device.h"
#include "runtime/nn/model.h"
#include "runtime/train/gradsync.h"
#include "runtime/train/optimizer.h"
#include "tests/unit/coll/ranks.h"

#define WANT(cond)                                                                                                                 \
    do {                                                                                                                           \
        if (cond) break;                                                                                                           \
        say("rank %d, line %d: %s\n", place->rank, __LINE__, #cond);                                                               \
        return 1;                                                                                                                  \
    } while (0)
#define OK(call)                                                                                                                   \
    do {                                                                                                                           \
        struct ft_err err_ = {0}, *err = &err_;                                                                                    \
        const enum ft_code code_ = (call);                                                                                         \
        if (!code_) break;                                                                                                         \
        say("rank %d, line %d: ", place->rank, __LINE__);                                                                          \
        say_err(code_, err);                                                                                                       \
        return 1;                                                                                                                  \
    } while (0)

/* One rank's part of a model, ready to be trained. */
struct part {
    bool sequence; /* before open_part(): the model's options */
    int recompute;
    struct ft_comm *of; /* the comm of another part of the same ranks; NULL: a comm of its own */
    struct ft_arena *arena;
    struct ft_model_config config;
    struct ft_device *device;
    struct ft_comm *comm;
    struct ft_model *model;
    const struct ft_param *rows;
    size_t n;
    struct ft_buckets b;
    int64_t *offsets;
    float *weights, *grads;
    struct ft_gradsync sync;
    struct ft_optimizer optim;
};

/* Weight of a logical element: a function of its name and place alone. */
typedef float (*fill_fn)(const char *name, const struct ft_param *p, int64_t i, int64_t j);

static float noise(const char *name, const struct ft_param *p, int64_t i, int64_t j)
{
    const int64_t e[2] = {i * p->dims[1] + j, (int64_t)strlen(name)};
    const uint64_t x = ft_logical_hash(e, 4, 4, 0) ^ ft_logical_hash(name, strlen(name), 1, 0);
    const float u = (float)(x >> 40) / (float)(1 << 24) - 0.5f;
    return p->n_dims == 1 && strstr(name, "weight") ? 1 + 0.2f * u : 0.6f * u;
}
static float zero_head(const char *name, const struct ft_param *p, int64_t i, int64_t j)
{
    return strstr(name, "lm_head") ? 0 : noise(name, p, i, j);
}

static int open_part(const struct ft_place *place, const char *json, int t, int64_t T, fill_fn fill, struct part *x)
{
    const struct ft_place alone = {.world = 1, .local_world = 1, .progress_fd = -1, .dialect = "bare"};
    const struct ft_comm_options co = {
        .engine = "auto", .timeout_ns = 60000000000, .join_ns = 60000000000, .fingerprint = "test=1"};
    const struct ft_coord at = {{[FT_AXIS_TP] = t > 1 ? place->rank : 0}};
    x->arena = ft_arena_create();
    OK(ft_model_config_parse("test", json, strlen(json), x->arena, &x->config, err));
    OK(ft_device_open("cpu", 0, 1, &x->device, err));
    x->comm = x->of;
    if (!x->of) OK(ft_comm_open(t > 1 ? place : &alone, ft_mesh_make(t, 1, 1, 1), &co, &x->comm, err));
    const struct ft_model_options o = {.config = &x->config,
                                       .device = x->device,
                                       .comm = x->comm,
                                       .tensor = t,
                                       .tensor_rank = at.c[FT_AXIS_TP],
                                       .pipeline = 1,
                                       .sequence = x->sequence,
                                       .recompute = x->recompute,
                                       .compute = FT_F32,
                                       .max_tokens = T,
                                       .seq_len = T,
                                       .logits_chunk_bytes = 1, /* as few rows at once as there are */
                                       .seed = 7};
    OK(ft_model_create(&o, &x->model, err));
    x->rows = ft_model_params(x->model, &x->n);
    struct ft_bucket_param *sizes = ft_arena_array(x->arena, x->n, sizeof *sizes);
    for (size_t i = 0; i < x->n; i++) sizes[i].n = ft_param_local(&x->rows[i]);
    x->b = ft_buckets_make(sizes, x->n, 1, 0, FT_BUCKET_LIMIT, x->arena);
    x->weights = ft_xcalloc((size_t)(4 * x->b.total), sizeof(float));
    x->grads = x->weights + x->b.total;
    x->offsets = ft_arena_array(x->arena, x->n, sizeof *x->offsets);
    for (size_t k = 0; k < x->n; k++) {
        const struct ft_param *p = &x->rows[k];
        x->offsets[k] = x->b.place[k].start;
        for (int64_t i = 0; i < p->local[0]; i++)
            for (int64_t j = 0; j < p->local[1]; j++)
                if (p->origin[0] + i < p->dims[0] && p->origin[1] + j < p->dims[1])
                    x->weights[x->offsets[k] + i * p->local[1] + j] = fill(p->name, p, p->origin[0] + i, p->origin[1] + j);
    }
    ft_model_bind(x->model, x->weights, x->grads, x->offsets);
    x->sync = (struct ft_gradsync){
        .buckets = &x->b, .params = x->rows, .comm = x->comm, .weights = x->weights, .weight_type = FT_F32, .grads = x->grads};
    x->optim = (struct ft_optimizer){.kernels = x->device->kernels,
                                     .kctx = x->device->kctx,
                                     .buckets = &x->b,
                                     .params = x->rows,
                                     .tensor_rank = o.tensor_rank,
                                     .beta1 = 0.9,
                                     .beta2 = 0.99,
                                     .eps = 1e-3,
                                     .weight_decay = 0.1,
                                     .weights = x->weights,
                                     .weight_type = FT_F32,
                                     .grads = x->grads,
                                     .m = x->grads + x->b.total,
                                     .v = x->grads + 2 * x->b.total};
    return 0;
}

static void close_part(struct part *x)
{
    ft_model_destroy(x->model);
    if (!x->of) ft_comm_close(x->comm);
    ft_device_close(x->device);
    free(x->weights);
    ft_arena_destroy(x->arena);
}

static const struct ft_param *row_of(const struct part *x, const char *name, const float **grad)
{
    for (size_t i = 0; i < x->n; i++) {
        if (strcmp(x->rows[i].name, name) != 0) continue;
        if (grad) *grad = x->grads + x->offsets[i];
        return &x->rows[i];
    }
    return NULL;
}

/* Two segments with rows (dropout), one of them without a target in front. */
enum { TOKENS = 12 };
struct micro {
    int32_t ids[TOKENS], positions[TOKENS], targets[TOKENS], cu[3];
    int64_t rows[2];
    struct ft_batch b;
};
static void make_micro(struct micro *m, int64_t V, int k)
{
    for (int i = 0; i < TOKENS; i++) {
        m->ids[i] = (int32_t)((i * 7 + k * 3 + i * i) % V);
        m->positions[i] = i < 7 ? i : i - 7;
        m->targets[i] = i == 6 || i == 11 || i < 2 ? -100 : (int32_t)((i * 5 + k) % V);
    }
    m->targets[3] = (int32_t)(V - 1); /* in the last shard that has a real row */
    m->cu[0] = 0;
    m->cu[1] = 7;
    m->cu[2] = TOKENS;
    m->rows[0] = 2 * k;
    m->rows[1] = 2 * k + 1;
    m->b = (struct ft_batch){TOKENS, m->ids, m->positions, m->targets, 2, m->cu, m->rows, NULL};
}

/* The first T tokens of it. */
static void shorten(struct micro *m, int T)
{
    m->cu[2] = T;
    m->b.T = T;
}

static int step_of(const struct ft_place *place, struct part *x, const struct ft_batch *b, double *ce, double *norm)
{
    ft_gradsync_zero(&x->sync);
    OK(ft_model_forward_backward(x->model, b, 1.0 / 9, ce, err));
    OK(ft_gradsync_finish(&x->sync, err));
    *norm = ft_optimizer_norm_sq(&x->optim);
    OK(ft_comm_all_reduce(x->comm, FT_GROUP_WORLD, norm, 1, FT_F64, FT_SUM, err));
    *norm = sqrt(*norm);
    return 0;
}

/* What this rank holds of each gradient is that part of the whole one; a pad row has none. */
static int same_gradients(const struct ft_place *place, const struct part *mine, const struct part *one, double norm)
{
    for (size_t k = 0; k < mine->n; k++) {
        const struct ft_param *p = &mine->rows[k];
        const float *g = mine->grads + mine->offsets[k], *whole = NULL;
        WANT(row_of(one, p->name, &whole));
        double diff = 0, size = 0;
        for (int64_t i = 0; i < p->local[0]; i++)
            for (int64_t j = 0; j < p->local[1]; j++) {
                const int64_t row = p->origin[0] + i, column = p->origin[1] + j;
                const double a = (double)g[i * p->local[1] + j];
                if (row >= p->dims[0] || column >= p->dims[1]) {
                    WANT(a == 0);
                    continue;
                }
                const double b = (double)whole[row * p->dims[1] + column];
                diff += (a - b) * (a - b);
                size += b * b;
            }
        if (sqrt(diff) <= 1e-5 * sqrt(size) + 1e-7 * norm) continue;
        say("rank %d: the gradient of %s is off by %.3g of %.3g\n", place->rank, p->name, sqrt(diff), sqrt(size));
        return 1;
    }
    return 0;
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-5 * fmax(fabs(a), fabs(b)); }

struct trial {
    const char *json;
    bool sequence;
};

static int five_updates(const struct ft_place *place, void *arg)
{
    const struct trial *trial = arg;
    struct part mine = {.sequence = trial->sequence}, one = {0};
    struct micro m;
    size_t param;
    double a, b, n, n1;
    if (open_part(place, trial->json, place->world, TOKENS, noise, &mine) || open_part(place, trial->json, 1, TOKENS, noise, &one))
        return 1;
    for (int k = 0; k < 5; k++) {
        make_micro(&m, mine.config.V, k);
        if (trial->sequence) shorten(&m, TOKENS - k); /* no longer a multiple of t: places without a token, ranks without any */
        if (k == 2) {                                 /* an evaluation on the way leaves nothing behind */
            OK(ft_model_evaluate(mine.model, &m.b, &a, NULL, err));
            OK(ft_model_evaluate(one.model, &m.b, &b, NULL, err));
            WANT(near(a, b));
        }
        if (step_of(place, &mine, &m.b, &a, &n) || step_of(place, &one, &m.b, &b, &n1)) return 1;
        if (!near(a, b) || !near(n, n1)) say("update %d: loss %.9g and %.9g, norm %.9g and %.9g\n", k, a, b, n, n1);
        WANT(near(a, b) && near(n, n1));
        if (same_gradients(place, &mine, &one, n1)) return 1;
        ft_optimizer_step(&mine.optim, 1e-2, ft_clip_coef(1, n));
        ft_optimizer_step(&one.optim, 1e-2, ft_clip_coef(1, n));
        OK(ft_gradsync_check_replicas(&mine.sync, &param, err));
    }
    close_part(&mine);
    close_part(&one);
    return 0;
}

#define LLAMA(type, class, sizes, more)                                                                                            \
    "{\"model_type\":\"" type                                                                                                      \
    "\",\"architectures\":[\"" class "ForCausalLM\"],\"num_hidden_layers\":2,\"max_position_embeddings\":64," sizes more "}"

/* t and a model: what is cut where. */
static const struct {
    int t;
    const char *what, *json;
} models[] = {
    {2, "q k v with biases, GQA, tied (RT-06)",
     LLAMA("qwen2", "Qwen2",
           "\"hidden_size\":8,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":4,\"vocab_size\":11",
           ",\"tie_word_embeddings\":true")},
    {4, "two kv heads on four ranks, with biases",
     LLAMA("qwen2", "Qwen2",
           "\"hidden_size\":16,\"num_attention_heads\":8,\"num_key_value_heads\":2,\"intermediate_size\":8,\"vocab_size\":21", "")},
    {8, "one kv head on eight ranks, biases everywhere",
     LLAMA("llama", "Llama",
           "\"hidden_size\":16,\"num_attention_heads\":8,\"num_key_value_heads\":1,\"intermediate_size\":8,\"vocab_size\":40",
           ",\"attention_bias\":true,\"mlp_bias\":true")},
    {2, "QK-norm",
     LLAMA("qwen3", "Qwen3",
           "\"hidden_size\":12,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":6,\"intermediate_size\":10,\"vocab_"
           "size\":19",
           "")},
    {4, "QK-norm and replicas (RT-15)",
     LLAMA("qwen3", "Qwen3",
           "\"hidden_size\":12,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":6,\"intermediate_size\":8,\"vocab_"
           "size\":19",
           ",\"attention_bias\":true,\"attention_dropout\":0.1")},
    {4, "a rank with pad rows only",
     LLAMA("llama", "Llama", "\"hidden_size\":8,\"num_attention_heads\":4,\"intermediate_size\":8,\"vocab_size\":5", "")},
    {4, "the same, tied",
     LLAMA("llama", "Llama", "\"hidden_size\":8,\"num_attention_heads\":4,\"intermediate_size\":8,\"vocab_size\":5",
           ",\"tie_word_embeddings\":true")},
    {3, "three ranks",
     LLAMA("llama", "Llama", "\"hidden_size\":12,\"num_attention_heads\":3,\"intermediate_size\":9,\"vocab_size\":20", "")},
    {4, "GPT-2: fused parts, biases, dropout",
     "{\"model_type\":\"gpt2\",\"n_embd\":16,\"n_head\":4,\"n_layer\":2,\"n_positions\":32,\"vocab_size\":23}"},
};

static void rt15_five_updates_at_many_cuts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        for (int sequence = 0; sequence < 2; sequence++) {
            struct trial trial = {models[i].json, sequence == 1};
            struct ranks r = {.n = models[i].t, .run = five_updates, .arg = &trial};
            ranks_run(&r);
            print_message("t=%d, %s%s\n", models[i].t, models[i].what, sequence ? ", sequence" : "");
            ranks_all_ok(&r);
        }
    }
}

/* ---- sequence parallelism against the same ranks without it, and recomputing: to the bit, but for the norms' order of summing ---- */

static bool same_bits(const struct part *x, const struct part *y, size_t k)
{
    return !memcmp(x->grads + x->offsets[k], y->grads + y->offsets[k], (size_t)ft_param_local(&x->rows[k]) * sizeof(float));
}

/* Rows whose gradient each rank has of its own tokens only: the two norms of each layer, and nothing else. */
static int check_partial_rows(const struct ft_place *place, const struct part *plain, const struct part *seq)
{
    const int64_t each = plain->config.layernorm ? 4 : 2;
    int64_t more = 0;
    WANT(plain->n == seq->n);
    for (size_t k = 0; k < plain->n; k++) {
        const bool partial = plain->rows[k].partial != seq->rows[k].partial;
        if (partial)
            WANT(seq->rows[k].partial == FT_PARTIAL_TENSOR && seq->rows[k].layer >= 0 && seq->rows[k].shard == FT_SHARD_NONE);
        more += partial;
    }
    WANT(more == each * plain->config.L);
    return 0;
}

static int same_as_without(const struct ft_place *place, void *arg)
{
    const struct trial *trial = arg;
    struct part plain = {0}, seq[3];
    struct micro m;
    double a, b, n, n1;
    if (open_part(place, trial->json, place->world, TOKENS, noise, &plain)) return 1;
    for (int i = 0; i < 3; i++) {
        seq[i] = (struct part){.sequence = true, .recompute = i, .of = plain.comm};
        if (open_part(place, trial->json, place->world, TOKENS, noise, &seq[i])) return 1;
    }
    if (check_partial_rows(place, &plain, &seq[0])) return 1;
    for (int k = 0; k < 5; k++) {
        make_micro(&m, plain.config.V, k);
        shorten(&m, TOKENS - k);
        if (step_of(place, &plain, &m.b, &a, &n)) return 1;
        for (int i = 0; i < 3; i++) {
            memcpy(seq[i].weights, plain.weights, (size_t)plain.b.total * sizeof(float));
            if (step_of(place, &seq[i], &m.b, &b, &n1)) return 1;
            WANT(a == b && near(n, n1));
            for (size_t p = 0; p < plain.n; p++) {
                if (i == 0 && plain.rows[p].partial != seq[0].rows[p].partial) continue;
                if (same_bits(&seq[i], i ? &seq[0] : &plain, p)) continue;
                say("rank %d, recompute %d: the gradient of %s has other bits\n", place->rank, i, plain.rows[p].name);
                return 1;
            }
        }
        OK(ft_model_evaluate(plain.model, &m.b, &a, NULL, err));
        OK(ft_model_evaluate(seq[0].model, &m.b, &b, NULL, err));
        WANT(a == b);
        ft_optimizer_step(&plain.optim, 1e-2, ft_clip_coef(1, n));
    }
    for (int i = 0; i < 3; i++) close_part(&seq[i]);
    close_part(&plain);
    return 0;
}

static void rt13_sequence_changes_no_bit_but_the_norms(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct trial trial = {models[i].json, true};
        struct ranks r = {.n = models[i].t, .run = same_as_without, .arg = &trial};
        ranks_run(&r);
        print_message("t=%d, %s\n", models[i].t, models[i].what);
        ranks_all_ok(&r);
    }
}

/* ---- RT-06: gate rows g0..g3 and up rows u0..u3 at t=2: g0 g1 u0 u1 and g2 g3 u2 u3; q (4 heads) k v (2 heads) of D=2 with biases ---- */

static void rt06_rows_of_a_rank(void **state)
{
    (void)state;
    struct ft_arena *a = ft_arena_create();
    struct ft_model_config c;
    struct ft_err err;
    assert_int_equal(ft_model_config_parse("test", models[0].json, strlen(models[0].json), a, &c, &err), FT_OK);
    static const struct {
        const char *name;
        int axis;
        int64_t each; /* rows (or columns) of one rank of two */
    } cuts[] = {{"mlp.gate_proj.weight", 0, 2},    {"mlp.up_proj.weight", 0, 2},      {"mlp.down_proj.weight", 1, 2},
                {"self_attn.q_proj.weight", 0, 4}, {"self_attn.k_proj.weight", 0, 2}, {"self_attn.v_proj.weight", 0, 2},
                {"self_attn.q_proj.bias", 0, 4},   {"self_attn.k_proj.bias", 0, 2},   {"self_attn.v_proj.bias", 0, 2},
                {"self_attn.o_proj.weight", 1, 4}, {"embed_tokens.weight", 0, 6}};
    for (int rank = 0; rank < 2; rank++) {
        size_t n, found = 0;
        const struct ft_param *rows = ft_model_config_rows(&c, 2, rank, 1, 0, 1, a, &n, NULL);
        for (size_t k = 0; k < sizeof cuts / sizeof *cuts; k++)
            for (size_t i = 0; i < n; i++) {
                if (!strstr(rows[i].name, cuts[k].name)) continue;
                found++;
                assert_int_equal(rows[i].local[cuts[k].axis], cuts[k].each);
                assert_int_equal(rows[i].origin[cuts[k].axis], rank * cuts[k].each);
                assert_int_equal(rows[i].origin[!cuts[k].axis], 0);
                assert_int_equal(rows[i].partial, FT_PARTIAL_NO);
            }
        assert_int_equal(found, 10 * 2 + 1);
    }
    ft_arena_destroy(a);
}

/* ---- RT-07 ---- */

/* Embedding rows of 1024 make the final norm exactly 1 (o and down are 0): logit v is the sum of row v of the head, and the gradient of
 * that row is dz of v. */
static float known_logits(const char *name, const struct ft_param *p, int64_t i, int64_t j)
{
    static const float z[] = {2, 1, 0.5f, -1, 3};
    (void)j;
    if (strstr(name, "lm_head")) return z[i] / 2;
    if (strstr(name, "embed_tokens")) return 1024;
    return p->n_dims == 1 ? 1 : 0;
}
static float known_logits_shifted(const char *name, const struct ft_param *p, int64_t i, int64_t j)
{
    return known_logits(name, p, i, j) + (strstr(name, "lm_head") ? 500.0f : 0);
}

static int known_losses(const struct ft_place *place, void *arg)
{
    static const char json[] = LLAMA(
        "llama", "Llama", "\"hidden_size\":2,\"num_attention_heads\":2,\"head_dim\":2,\"intermediate_size\":2,\"vocab_size\":5",
        "");
    static const double dz[] = {0.229406, 0.084394, 0.051187, 0.011421, -0.376409};
    const int32_t id = 2, position = 0, cu[2] = {0, 1};
    const bool *shifted = arg;
    struct part x = {0};
    const float *g = NULL;
    double ce, other;
    if (open_part(place, json, place->world, 1, *shifted ? known_logits_shifted : known_logits, &x)) return 1;
    int32_t target = 4; /* in the second shard */
    const struct ft_batch b = {1, &id, &position, &target, 1, cu, NULL, NULL};
    OK(ft_model_forward_backward(x.model, &b, 1, &ce, err));
    WANT(fabs(ce - 0.472261) < 1e-6);
    const struct ft_param *p = row_of(&x, "lm_head.weight", &g);
    for (int64_t i = 0; i < p->local[0]; i++) {
        const int64_t v = p->origin[0] + i;
        WANT(v < 5 ? fabs((double)g[2 * i] - dz[v]) < 1e-6 : g[2 * i] == 0 && g[2 * i + 1] == 0);
    }
    target = 1; /* in the first */
    OK(ft_model_evaluate(x.model, &b, &other, NULL, err));
    WANT(fabs(other - (0.472261 + 2)) < 1e-6);
    close_part(&x);
    return 0;
}

static void rt07_known_losses_and_gradients(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool shifted = i == 1; /* by 1000 each: changes nothing */
        struct ranks r = {.n = 2, .run = known_losses, .arg = &shifted};
        ranks_run(&r);
        ranks_all_ok(&r);
    }
}

static int first_loss(const struct ft_place *place, void *arg)
{
    static const char json[] = LLAMA(
        "llama", "Llama", "\"hidden_size\":16,\"num_attention_heads\":8,\"intermediate_size\":8,\"vocab_size\":50257", "");
    struct part x = {0};
    struct micro m;
    double ce;
    (void)arg;
    if (open_part(place, json, place->world, TOKENS, zero_head, &x)) return 1;
    make_micro(&m, 50257, 1);
    OK(ft_model_evaluate(x.model, &m.b, &ce, NULL, err));
    WANT(fabs(ce / 8 - 10.824905) < 2e-6);
    close_part(&x);
    return 0;
}

static void rt07_a_zero_head_loses_ln_V(void **state)
{
    (void)state;
    for (int t = 1; t <= 8; t *= 2) {
        struct ranks r = {.n = t, .run = first_loss};
        ranks_run(&r);
        ranks_all_ok(&r);
    }
}

static void rt07_a_vocabulary_of_65535_on_four_ranks(void **state)
{
    (void)state;
    struct trial trial = {
        LLAMA("llama", "Llama", "\"hidden_size\":8,\"num_attention_heads\":4,\"intermediate_size\":8,\"vocab_size\":65535", ""),
        false};
    struct ranks r = {.n = 4, .run = five_updates, .arg = &trial};
    ranks_run(&r);
    ranks_all_ok(&r);
}

/* More tensor ranks never plan more, for any micro-batch and recompute mode (the logits of a chunk are of one size whatever t is);
 * sequence parallelism plans less again, by what norms and residuals of a layer take: (1-1/t) of 4h a token, of h where all else is
 * recomputed, and of the norms' statistics. */
static void a_plan_falls_with_tensor_ranks(void **state)
{
    (void)state;
    static const char json[] = LLAMA(
        "llama", "Llama",
        "\"hidden_size\":512,\"num_attention_heads\":8,\"num_key_value_heads\":2,\"intermediate_size\":1024,\"vocab_size\":50257",
        "");
    struct ft_arena *a = ft_arena_create();
    struct ft_model_config c;
    struct ft_err err;
    assert_int_equal(ft_model_config_parse("test", json, strlen(json), a, &c, &err), FT_OK);
    for (int recompute = 0; recompute < 3; recompute++)
        for (int64_t T = 64; T <= 16384; T *= 4) {
            int64_t before = INT64_MAX, before_split = INT64_MAX;
            for (int t = 1; t <= 8; t *= 2) {
                struct ft_model_options o = {.config = &c,
                                             .tensor = t,
                                             .pipeline = 1,
                                             .compute = FT_BF16,
                                             .recompute = recompute,
                                             .max_tokens = T,
                                             .seq_len = 64};
                const struct ft_model_memory m = ft_model_memory(&o);
                const int64_t sum = m.activations + m.logits + m.buffers;
                if (sum >= before)
                    fail_msg("t %d, %lld tokens, recompute %d: %lld bytes, not less than %lld", t, (long long)T, recompute,
                             (long long)sum, (long long)before);
                before = sum;
                o.sequence = true;
                const struct ft_model_memory split = ft_model_memory(&o);
                const int64_t kept = recompute == 2 ? c.h * 2 : recompute == 1 ? 2 * c.h * 2 + 8 : 4 * c.h * 2 + 8;
                const int64_t less = (T - T / t) * kept * c.L, off = m.activations - split.activations - less;
                assert_true(off <= 0 && off >= -c.L * 2 * 256); /* the statistics start at multiples of 256 */
                assert_true(t == 1 ? split.buffers == m.buffers : split.buffers < m.buffers);
                assert_true(split.activations + split.logits + split.buffers < before_split);
                before_split = split.activations + split.logits + split.buffers;
            }
        }
    ft_arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rt06_rows_of_a_rank),
        cmocka_unit_test(rt15_five_updates_at_many_cuts),
        cmocka_unit_test(rt13_sequence_changes_no_bit_but_the_norms),
        cmocka_unit_test(rt07_known_losses_and_gradients),
        cmocka_unit_test(rt07_a_zero_head_loses_ln_V),
        cmocka_unit_test(rt07_a_vocabulary_of_65535_on_four_ranks),
        cmocka_unit_test(a_plan_falls_with_tensor_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
