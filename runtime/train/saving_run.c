/* What a run is, for its checkpoints: everything of a manifest that does not change from save to save. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"
#include "runtime/train/saving_state.h"

enum { SMALL_FILE_MAX = 1 << 28 };

static struct ft_arena *arena_of(const struct ft_trainer *t) { return t->s->arena; }

static void add_fact(struct ft_trainer *t, const char *name, const char *fmt, ...) FT_PRINTF(3, 4);
static void add_fact(struct ft_trainer *t, const char *name, const char *fmt, ...)
{
    struct ft_saving *s = t->saving;
    va_list ap;
    va_start(ap, fmt);
    FT_ASSERT(s->run.n_maths < FT_SAVING_MATHS);
    s->maths[s->run.n_maths++] = (struct ft_ckpt_fact){name, ft_arena_vprintf(arena_of(t), fmt, ap)};
    va_end(ap);
}

static const char *real_text(struct ft_trainer *t, double x)
{
    struct ft_buf b = {0};
    struct ft_jw w = ft_jw_begin(&b);
    ft_jw_real(&w, x);
    const char *text = ft_arena_strdup(arena_of(t), b.data);
    ft_buf_fini(&b);
    return text;
}

static void add_number(struct ft_trainer *t, const char *name, double x) { add_fact(t, name, "%s", real_text(t, x)); }
static void add_flag(struct ft_trainer *t, const char *name, bool x) { add_fact(t, name, "%s", x ? "true" : "false"); }

static void add_rope(struct ft_trainer *t, const struct ft_rope *r)
{
    static const char *const types[] = {"none", "default", "llama3", "linear", "yarn"};
    add_fact(t, "rope_type", "\"%s\"", types[r->type]);
    add_number(t, "rope_theta", r->theta);
    if (r->type == FT_ROPE_NONE || r->type == FT_ROPE_DEFAULT) return;
    add_number(t, "rope_factor", r->factor);
    add_number(t, "rope_original_max", r->original_max);
    if (r->type == FT_ROPE_LLAMA3) {
        add_number(t, "rope_low_freq", r->low_freq);
        add_number(t, "rope_high_freq", r->high_freq);
    }
    if (r->type == FT_ROPE_YARN) {
        add_number(t, "rope_beta_fast", r->beta_fast);
        add_number(t, "rope_beta_slow", r->beta_slow);
        add_number(t, "rope_attention_factor", r->attention_factor);
        add_flag(t, "rope_truncate", r->truncate);
    }
}

/* Named as in config.json where there is such a key. */
static void add_maths(struct ft_trainer *t)
{
    const struct ft_model_config *c = &t->s->config;
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"vocab_size", c->V},          {"hidden_size", c->h},         {"num_hidden_layers", c->L},
                 {"num_attention_heads", c->H}, {"num_key_value_heads", c->K}, {"head_dim", c->D},
                 {"intermediate_size", c->f},   {"sliding_window", c->window}, {"window_first", c->window_first},
                 {"pad_token_id", c->pad_id}};
    const struct {
        const char *name;
        bool value;
    } flags[] = {{"layernorm", c->layernorm}, {"learned_positions", c->learned_positions},
                 {"gelu", c->gelu},           {"q_bias", c->q_bias},
                 {"o_bias", c->o_bias},       {"mlp_bias", c->mlp_bias},
                 {"qk_norm", c->qk_norm},     {"tie_word_embeddings", c->tied}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) add_fact(t, sizes[i].name, "%lld", (long long)sizes[i].value);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) add_flag(t, flags[i].name, flags[i].value);
    add_number(t, "norm_eps", c->eps);
    add_rope(t, &c->rope);
}

/* SHA-256 of a file of the model folder in hex; NULL: not there. */
static const char *hash_of(struct ft_trainer *t, const char *name)
{
    struct ft_buf path = {0}, bytes = {0};
    unsigned char sum[32];
    char *hex = NULL;
    ft_buf_addf(&path, "%s/%s", t->s->job->model.path, name);
    if (!ft_read_file(path.data, SMALL_FILE_MAX, &bytes, NULL)) {
        hex = ft_arena_alloc(arena_of(t), 65);
        ft_sha256(bytes.data, bytes.n, sum);
        ft_hex(sum, sizeof sum, hex);
    }
    ft_buf_fini(&path);
    ft_buf_fini(&bytes);
    return hex;
}

static const char *config_text(struct ft_trainer *t)
{
    struct ft_buf path = {0}, bytes = {0};
    const char *text = "{}";
    ft_buf_addf(&path, "%s/config.json", t->s->job->model.path);
    if (!ft_read_file(path.data, SMALL_FILE_MAX, &bytes, NULL)) text = ft_arena_strdup(arena_of(t), ft_buf_str(&bytes));
    ft_buf_fini(&path);
    ft_buf_fini(&bytes);
    return text;
}

static const char *const *no_decay(struct ft_trainer *t, size_t *n)
{
    size_t n_model;
    const struct ft_param *model = ft_import_params(t->s->import, &n_model);
    const char **v = ft_arena_array(arena_of(t), n_model + 1, sizeof *v);
    *n = 0;
    for (size_t i = 0; i < n_model; i++)
        if (!model[i].decay) v[(*n)++] = model[i].name;
    return v;
}

enum ft_code ft_saving_name_run(struct ft_trainer *t, struct ft_err *err)
{
    char *id = t->saving->run_id;
    char now[32];
    uint32_t salt = 0;
    ft_wall_compact(ft_wall_ns(), now);
    (void)ft_random(&salt, sizeof salt);
    if (t->o.place->run_id) (void)snprintf(id, FT_SAVING_RUN_ID, "%s", t->o.place->run_id);
    else (void)snprintf(id, FT_SAVING_RUN_ID, "fttrain-%s-%08x", now, salt);
    return ft_comm_broadcast(t->o.comm, FT_GROUP_WORLD, 0, id, FT_SAVING_RUN_ID, err);
}

void ft_saving_describe(struct ft_trainer *t)
{
    static const char *const styles[] = {"constant", "linear", "cosine"}, *const methods[] = {"full", "lora", "qlora"};
    struct ft_saving *s = t->saving;
    const struct ft_setup *u = t->s;
    const struct ft_job_config *j = u->job;
    const struct ft_dataset_facts f = ft_dataset_facts(u->train);
    add_maths(t);
    const struct ft_model_config *c = &u->config;
    s->dropout[0] = (struct ft_ckpt_fact){"embedding", real_text(t, c->embd_drop)};
    s->dropout[1] = (struct ft_ckpt_fact){"residual", real_text(t, c->resid_drop)};
    s->dropout[2] = (struct ft_ckpt_fact){"attention", real_text(t, c->attn_drop)};
    struct ft_ckpt_run *r = &s->run;
    r->run_id = s->run_id;
    r->backend = t->o.device->kernels->device;
    r->tensor = u->layout.mesh.size[FT_AXIS_TP];
    r->pipeline = u->layout.mesh.size[FT_AXIS_PP];
    r->data = u->layout.mesh.size[FT_AXIS_DP];
    r->virtual_pipeline = (int)j->parallel.virtual_pipeline;
    r->sequence = j->parallel.sequence;
    r->order = j->parallel.order;
    r->method = methods[j->train.method];
    r->precision = j->model.precision == FT_PRECISION_FP32   ? FT_CKPT_FP32
                   : j->model.precision == FT_PRECISION_BF16 ? FT_CKPT_BF16
                                                             : FT_CKPT_FP8;
    r->family = c->model_type;
    r->config_json = config_text(t);
    r->maths = s->maths;
    r->tied = c->tied;
    r->vocab = c->V;
    r->base_path = j->model.path;
    r->config_sha256 = hash_of(t, "config.json");
    r->tokenizer_sha256 = hash_of(t, "tokenizer.json");
    r->template_sha256 = u->template_sha256;
    r->template_text = u->template_text;
    r->terminator_id = f.terminator_id;
    r->dropout = s->dropout;
    r->n_dropout = 3;
    r->beta1 = j->train.beta1;
    r->beta2 = j->train.beta2;
    r->eps = j->train.eps;
    r->weight_decay = j->train.weight_decay;
    r->clip = j->train.clip;
    r->no_decay = no_decay(t, &r->n_no_decay);
    r->schedule = styles[u->schedule.style];
    r->hi = u->schedule.hi;
    r->lo = u->schedule.lo;
    r->warmup = u->schedule.warmup;
    r->n = u->schedule.n;
    r->seed = (uint64_t)j->train.seed;
    r->data_fingerprint = ft_arena_printf(arena_of(t), "%016llx%016llx", (unsigned long long)f.fingerprint_hi,
                                          (unsigned long long)f.fingerprint_lo);
    r->seq_len = u->seq_len;
    r->packing = j->data.packing != FT_PACKING_NO;
    r->shuffle = j->data.shuffle;
    r->global_batch = j->train.global_batch;
}
