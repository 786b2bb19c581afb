#include "runtime/arch/config.h"

#include <math.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "runtime/arch/arch.h"

/* ---- the three lists: used (the family's keys and these), refused unless at the value given, harmless ---- */

static const char *const used[] = {"model_type", "architectures", "layer_types", "rope_scaling", "rope_parameters"};

/* A key that changes the maths: only `want` is built ("false" "true" "1" "absent": any value is refused). */
static const struct {
    const char *name, *want;
} refused[] = {
    {"rope_interleaved", "false"},       {"partial_rotary_factor", "1"},
    {"scale_attn_weights", "true"},      {"scale_attn_by_inverse_layer_idx", "false"},
    {"add_cross_attention", "false"},    {"is_encoder_decoder", "false"},
    {"quantization_config", "absent"},   {"hidden_act", "silu"},
    {"activation_function", "gelu_new"},
};

/* A name that ends with '*' is a prefix. */
static const char *const harmless[] = {
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "sep_token_id",
    "use_cache",
    "torch_dtype",
    "dtype",
    "transformers_version",
    "initializer_range",
    "pretraining_tp",
    "is_llama_config",
    "summary_*",
    "reorder_and_upcast_attn",
    "n_ctx",
    "_attn_implementation*",
    "attn_implementation",
    "_name_or_path",
    "_commit_hash",
    "task_specific_params",
    "gradient_checkpointing",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "return_dict_in_generate",
    "torchscript",
    "id2label",
    "label2id",
    "problem_type",
    "decoder_start_token_id",
    "is_decoder",
    "tokenizer_class",
    "prefix",
    "finetuning_task",
    "unsloth_*",
    "transformers.js_config",
    "chunk_size_feed_forward",
    "name_or_path",
};

/* In no list: refused when the name has one of these in it and the value is not null or false. */
static const char *const telling[] = {"rope", "rotary",    "norm",   "scal", "softcap",    "window",   "activation", "bias",
                                      "attn", "attention", "expert", "moe",  "multiplier", "residual", "alibi",      "position"};

static bool in_list(const char *key, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const size_t len = strlen(list[i]);
        if (list[i][len - 1] == '*' ? strncmp(key, list[i], len - 1) == 0 : strcmp(key, list[i]) == 0) return true;
    }
    return false;
}
#define IN(key, list) in_list(key, list, sizeof(list) / sizeof *(list))

static void describe(const struct ft_json *v, struct ft_buf *out)
{
    struct ft_jw w = ft_jw_begin(out);
    ft_jw_value(&w, v);
    if (out->n > 60) {
        out->n = 57;
        while (out->n && ((unsigned char)out->data[out->n] & 0xC0) == 0x80) out->n--;
        ft_buf_adds(out, "...");
    }
}

static bool is_value(const struct ft_json *v, const char *want)
{
    if (strcmp(want, "true") == 0) return ft_json_is(v, FT_JSON_TRUE);
    if (strcmp(want, "false") == 0) return ft_json_is(v, FT_JSON_FALSE);
    if (strcmp(want, "1") == 0) return ft_json_is_number(v) && ft_json_real(v, 0) == 1;
    return ft_str_eq(ft_json_str(v), want);
}

struct reader {
    const char *path;
    const struct ft_json *root;
    struct ft_arena *a;
    struct ft_err *err;
};

static enum ft_code refuse_value(const struct reader *r, const char *key, const struct ft_json *v, const char *want)
{
    struct ft_buf text = {0};
    describe(v, &text);
    ft_fail(r->err, FT_UNSUPPORTED, "'%s': %s = %s changes what the model computes and is not built (only %s is)", r->path, key,
            text.data, strcmp(want, "absent") == 0 ? "a file without it" : want);
    ft_buf_fini(&text);
    return FT_UNSUPPORTED;
}

/* ---- values ---- */

static enum ft_code wrong_value(const struct reader *r, const char *key, const struct ft_json *v, const char *wanted)
{
    struct ft_buf text = {0};
    describe(v, &text);
    ft_fail(r->err, FT_CONFIG, "'%s': %s = %s is not %s", r->path, key, text.data, wanted);
    ft_buf_fini(&text);
    return FT_CONFIG;
}

static enum ft_code read_int(const struct reader *r, const struct ft_arch_key *k, const struct ft_json *v, int64_t *out)
{
    const int64_t least = k->type == FT_A_COUNT ? 0 : 1;
    if (!v) {
        *out = (int64_t)k->def;
        return FT_OK;
    }
    if (k->type == FT_A_OPT_SIZE && ft_json_is(v, FT_JSON_NULL)) {
        *out = 0;
        return FT_OK;
    }
    *out = ft_json_int(v, -1);
    if (!ft_json_is(v, FT_JSON_INT) || *out < least || *out > INT32_MAX)
        return wrong_value(r, k->name, v, least ? "a size of 1 to 2147483647" : "a count of 0 to 2147483647");
    return FT_OK;
}

static enum ft_code read_key(const struct reader *r, const struct ft_arch_key *k, struct ft_arch_values *values)
{
    const struct ft_json *v = ft_json_get(r->root, k->name);
    void *at = (char *)values + k->at;
    double *real = at;
    switch (k->type) {
    case FT_A_SIZE:
    case FT_A_OPT_SIZE:
    case FT_A_COUNT: return read_int(r, k, v, at);
    case FT_A_REAL:
    case FT_A_RATE:
        *real = v ? ft_json_real(v, NAN) : k->def;
        if (v && (!ft_json_is_number(v) || !isfinite(*real))) return wrong_value(r, k->name, v, "a number");
        if (*real < 0 || (k->type == FT_A_RATE && *real >= 1))
            return wrong_value(r, k->name, v, k->type == FT_A_RATE ? "in [0, 1)" : "at least 0");
        return FT_OK;
    case FT_A_BOOL:
    case FT_A_OPT_BOOL:
        *(bool *)at = v && !ft_json_is(v, FT_JSON_NULL) ? ft_json_bool(v, false) : v ? false : k->def != 0;
        if (v && !ft_json_is_bool(v) && !(k->type == FT_A_OPT_BOOL && ft_json_is(v, FT_JSON_NULL)))
            return wrong_value(r, k->name, v, "true or false");
        return FT_OK;
    case FT_A_WORD: return v && !ft_str_eq(ft_json_str(v), k->word) ? refuse_value(r, k->name, v, k->word) : FT_OK;
    }
    FT_BUG("key type %d", (int)k->type);
}

/* ---- which family ---- */

static enum ft_code find_family(const struct reader *r, const struct ft_arch_ops **out)
{
    struct ft_buf built = {0};
    for (const struct ft_arch_entry *e = ft_arch_table; e->name; e++)
        if (e->ops) ft_buf_addf(&built, "%s%s", built.n ? ", " : "", e->name);
    const struct ft_json *t = ft_json_get(r->root, "model_type");
    const char *name = ft_json_str(t);
    enum ft_code code = FT_OK;
    *out = NULL;
    if (!name) code = ft_fail(r->err, FT_CONFIG, "'%s' has no model_type (built: %s)", r->path, built.data);
    for (const struct ft_arch_entry *e = ft_arch_table; e->name && !code; e++)
        if (ft_str_eq(e->name, name)) *out = e->ops;
    if (!code && !*out)
        code = ft_fail(r->err, FT_UNSUPPORTED, "'%s': model_type '%s' is not in this build (built: %s)", r->path, name, built.data);
    ft_buf_fini(&built);
    if (code) return code;
    const struct ft_json *classes = ft_json_get(r->root, "architectures");
    if (!classes || ft_json_is(classes, FT_JSON_NULL)) return FT_OK;
    if (ft_json_count(classes) != 1 || !ft_str_eq(ft_json_str(ft_json_at(classes, 0)), (*out)->architecture)) {
        struct ft_buf text = {0};
        describe(classes, &text);
        code = ft_fail(r->err, FT_UNSUPPORTED, "'%s': architectures = %s; only [\"%s\"] is built for model_type '%s'", r->path,
                       text.data, (*out)->architecture, (*out)->name);
        ft_buf_fini(&text);
    }
    return code;
}

/* ---- everything else in the file ---- */

static bool is_own_key(const struct ft_arch_ops *arch, const char *key)
{
    for (size_t i = 0; i < arch->n_keys; i++)
        if (strcmp(arch->keys[i].name, key) == 0) return true;
    return false;
}

static enum ft_code check_auto_map(const struct reader *r, const struct ft_json *v)
{
    if (ft_json_get(v, "AutoModelForCausalLM"))
        return ft_fail(r->err, FT_UNSUPPORTED,
                       "'%s': auto_map names own code for AutoModelForCausalLM; code of a model folder is never run", r->path);
    return FT_OK;
}

/* layer_types, when given, must say what the other keys say. */
static enum ft_code check_layer_types(const struct reader *r, const struct ft_model_config *c)
{
    const struct ft_json *list = ft_json_get(r->root, "layer_types");
    if (!list || ft_json_is(list, FT_JSON_NULL)) return FT_OK;
    if (!ft_json_is(list, FT_JSON_ARRAY) || ft_json_count(list) != (size_t)c->L)
        return ft_fail(r->err, FT_CONFIG, "'%s': layer_types is not a list of %lld layers", r->path, (long long)c->L);
    for (int64_t i = 0; i < c->L; i++) {
        const char *want = c->window && i >= c->window_first ? "sliding_attention" : "full_attention";
        const char *got = ft_json_str(ft_json_at(list, (size_t)i));
        if (!ft_str_eq(got, want))
            return ft_fail(r->err, FT_UNSUPPORTED, "'%s': layer_types[%lld] is '%s'; by the other keys it is '%s'", r->path,
                           (long long)i, got ? got : "(not text)", want);
    }
    return FT_OK;
}

static enum ft_code check_unknown(const struct reader *r, const struct ft_arch_ops *arch, struct ft_buf *unknown)
{
    for (void *it = ft_json_iter(r->root); it; it = ft_json_iter_next(r->root, it)) {
        const char *key = ft_json_iter_key(it);
        const struct ft_json *v = ft_json_iter_value(it);
        if (is_own_key(arch, key) || (IN(key, used) && (arch->rope || strncmp(key, "rope", 4) != 0))) continue;
        if (strcmp(key, "auto_map") == 0) {
            if (check_auto_map(r, v)) return FT_UNSUPPORTED;
            continue;
        }
        bool listed = false;
        for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
            if (strcmp(refused[i].name, key) != 0) continue;
            listed = true;
            if (!ft_json_is(v, FT_JSON_NULL) && !is_value(v, refused[i].want)) return refuse_value(r, key, v, refused[i].want);
        }
        if (listed || IN(key, harmless) || ft_json_is(v, FT_JSON_NULL) || ft_json_is(v, FT_JSON_FALSE)) continue;
        for (size_t i = 0; i < sizeof telling / sizeof *telling; i++)
            if (strstr(key, telling[i])) {
                struct ft_buf text = {0};
                describe(v, &text);
                ft_fail(r->err, FT_UNSUPPORTED,
                        "'%s': %s = %s is not known for model_type '%s' and may change what the model computes", r->path, key,
                        text.data, arch->name);
                ft_buf_fini(&text);
                return FT_UNSUPPORTED;
            }
        ft_buf_addf(unknown, "%s%s", unknown->n ? ", " : "", key);
    }
    return FT_OK;
}

/* ---- together ---- */

enum { MAX_LAYERS = 65536 }; /* one table row per parameter and layer is kept in small memory, which never fails */

static enum ft_code check_sizes(const struct reader *r, const struct ft_model_config *c)
{
    if (c->H % c->K)
        return ft_fail(r->err, FT_CONFIG, "'%s': %lld heads are not a multiple of %lld kv heads", r->path, (long long)c->H,
                       (long long)c->K);
    if (c->D == 0)
        return ft_fail(r->err, FT_CONFIG, "'%s': hidden size %lld is not a multiple of %lld heads, and head_dim is not given",
                       r->path, (long long)c->h, (long long)c->H);
    const double q = (double)c->H * (double)c->D, kv = (double)c->K * (double)c->D;
    const double params = (double)c->h *
                          (2.0 * (double)c->V + (double)c->max_positions + (double)c->L * (2 * q + 2 * kv + 3.0 * (double)c->f));
    if (params > 1e15 || q > 1e9) /* products of sizes stay far inside 64 bit */
        return ft_fail(r->err, FT_CONFIG, "'%s': these sizes make a model of %.3g parameters", r->path, params);
    if (c->L > MAX_LAYERS)
        return ft_fail(r->err, FT_CONFIG, "'%s': %lld layers, at most %d are taken", r->path, (long long)c->L, MAX_LAYERS);
    if (c->eps <= 0) return ft_fail(r->err, FT_CONFIG, "'%s': the epsilon of the norms is 0", r->path);
    return FT_OK;
}

/* The Llama-like classes make their input embedding with padding_idx = pad_token_id: that row gets no gradient from the input (a
 * negative one counts from the end), GPT-2's class does not. A fine-tune whose end of turn is the pad token shows it (SmolLM2). */
static int64_t read_pad(const struct reader *r, const struct ft_model_config *c)
{
    const struct ft_json *v = ft_json_get(r->root, "pad_token_id");
    int64_t id = ft_json_int(v, INT64_MIN);
    if (!c->arch->rope || !ft_json_is(v, FT_JSON_INT)) return -1;
    if (id < 0) id += c->V;
    return id >= 0 && id < c->V ? id : -1;
}

static enum ft_code read_root(const struct reader *r, struct ft_model_config *c)
{
    struct ft_arch_values v = {0};
    enum ft_code code = find_family(r, &c->arch);
    if (code) return code;
    for (size_t i = 0; i < c->arch->n_keys; i++)
        if ((code = read_key(r, &c->arch->keys[i], &v)) != FT_OK) return code;
    c->model_type = c->arch->name;
    c->V = v.V;
    c->h = v.h;
    c->L = v.L;
    c->H = v.H;
    c->K = v.K ? v.K : v.H;
    c->D = v.D ? v.D : v.h % v.H ? 0 : v.h / v.H;
    c->f = v.f;
    c->max_positions = v.max_positions;
    c->eps = v.eps;
    c->tied = v.tied;
    c->pad_id = read_pad(r, c);
    c->init_std = v.init_std;
    c->embd_drop = v.embd_drop;
    c->resid_drop = v.resid_drop;
    c->attn_drop = v.attn_drop;
    c->arch->finish(&v, c);
    if ((code = check_sizes(r, c)) != FT_OK) return code;
    if (c->arch->rope && (code = ft_arch_read_rope(r->path, r->root, v.theta, c->max_positions, c->D, &c->rope, r->err)) != FT_OK)
        return code;
    struct ft_buf unknown = {0};
    code = check_unknown(r, c->arch, &unknown);
    if (!code) code = check_layer_types(r, c);
    if (!code && unknown.n) {
        const char **w = ft_arena_array(r->a, 1, sizeof *w);
        w[0] = ft_arena_printf(r->a, "'%s': keys that are not known are ignored: %s", r->path, unknown.data);
        c->warnings = w;
        c->n_warnings = 1;
    }
    ft_buf_fini(&unknown);
    return code;
}

enum ft_code ft_model_config_parse(const char *path, const char *text, size_t n, struct ft_arena *a, struct ft_model_config *out,
                                   struct ft_err *err)
{
    struct ft_json *root = NULL;
    struct ft_json_where where;
    enum ft_code code = ft_json_parse(text, n, 0, &root, &where, err);
    if (code)
        return ft_fail(err, FT_DATA, "'%s' is not valid JSON: line %d, column %d: %s", path, where.line, where.column, where.text);
    struct ft_model_config c = {0};
    const struct reader r = {path, root, a, err};
    if (!ft_json_is(root, FT_JSON_OBJECT)) code = ft_fail(err, FT_CONFIG, "'%s' is not an object", path);
    else code = read_root(&r, &c);
    ft_json_destroy(root);
    if (!code) *out = c;
    return code;
}

enum ft_code ft_model_config_read(const char *dir, struct ft_arena *a, struct ft_model_config *out, struct ft_err *err)
{
    const char *path = ft_arena_printf(a, "%s/config.json", dir);
    struct ft_buf text = {0};
    enum ft_code code = ft_read_file(path, 16 << 20, &text, err);
    if (code) {
        ft_wrap(err, "reading the model folder '%s'", dir);
        ft_fix(err, "a model folder has config.json, *.safetensors and, for texts, tokenizer.json");
    } else code = ft_model_config_parse(path, ft_buf_str(&text), text.n, a, out, err);
    ft_buf_fini(&text);
    return code;
}

enum ft_code ft_model_config_seq_len(const struct ft_model_config *c, int64_t seq_len, struct ft_arena *a, const char **warning,
                                     struct ft_err *err)
{
    *warning = NULL;
    if (c->learned_positions && seq_len > c->max_positions) {
        ft_fail(err, FT_CONFIG, "seq_len %lld is beyond the model's %lld learned positions (n_positions)", (long long)seq_len,
                (long long)c->max_positions);
        return ft_fix(err, "set [data] seq_len = %lld", (long long)c->max_positions);
    }
    if (seq_len > c->max_positions)
        *warning = ft_arena_printf(a, "seq_len %lld is beyond max_position_embeddings %lld of the model", (long long)seq_len,
                                   (long long)c->max_positions);
    return FT_OK;
}
