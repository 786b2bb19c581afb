/* config.json: counts of published models, the three lists, defaults, both RoPE spellings, layouts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/arch/config.h"

static enum ft_code parse(const char *text, struct ft_arena *a, struct ft_model_config *c, struct ft_err *err)
{
    return ft_model_config_parse("config.json", text, strlen(text), a, c, err);
}

/* The published config.json files, shortened to what they say about sizes. */
static const struct {
    const char *name;
    int64_t params;
    const char *text;
} published[] = {
    {"GPT-2", 124439808,
     "{\"activation_function\":\"gelu_new\",\"architectures\":[\"GPT2LMHeadModel\"],\"attn_pdrop\":0.1,\"bos_token_id\":50256,"
     "\"embd_pdrop\":0.1,"
     "\"eos_token_id\":50256,\"initializer_range\":0.02,\"layer_norm_epsilon\":1e-05,\"model_type\":\"gpt2\",\"n_ctx\":1024,\"n_"
     "embd\":768,\"n_head\":12,"
     "\"n_layer\":12,\"n_positions\":1024,\"resid_pdrop\":0.1,\"summary_activation\":null,\"summary_first_dropout\":0.1,\"summary_"
     "proj_to_labels\":true,"
     "\"summary_type\":\"cls_index\",\"summary_use_proj\":true,\"task_specific_params\":{\"text-generation\":{\"do_sample\":true,"
     "\"max_length\":50}},"
     "\"vocab_size\":50257}"},
    {"SmolLM2-135M", 134515008,
     "{\"architectures\":[\"LlamaForCausalLM\"],\"attention_bias\":false,\"attention_dropout\":0.0,\"bos_token_id\":0,\"eos_token_"
     "id\":0,\"hidden_act\":\"silu\","
     "\"hidden_size\":576,\"initializer_range\":0.041666666666666664,\"intermediate_size\":1536,\"is_llama_config\":true,\"max_"
     "position_embeddings\":8192,"
     "\"model_type\":\"llama\",\"num_attention_heads\":9,\"num_hidden_layers\":30,\"num_key_value_heads\":3,\"pretraining_tp\":1,"
     "\"rms_norm_eps\":1e-05,"
     "\"rope_interleaved\":false,\"rope_scaling\":null,\"rope_theta\":100000,\"tie_word_embeddings\":true,\"torch_dtype\":"
     "\"bfloat16\","
     "\"transformers_version\":\"4.40.1\",\"use_cache\":true,\"vocab_size\":49152}"},
    {"Qwen2.5-0.5B", 494032768,
     "{\"architectures\":[\"Qwen2ForCausalLM\"],\"attention_dropout\":0.0,\"bos_token_id\":151643,\"eos_token_id\":151643,\"hidden_"
     "act\":\"silu\",\"hidden_size\":896,"
     "\"initializer_range\":0.02,\"intermediate_size\":4864,\"max_position_embeddings\":32768,\"max_window_layers\":24,\"model_"
     "type\":\"qwen2\","
     "\"num_attention_heads\":14,\"num_hidden_layers\":24,\"num_key_value_heads\":2,\"rms_norm_eps\":1e-06,\"rope_theta\":1000000."
     "0,\"sliding_window\":32768,"
     "\"tie_word_embeddings\":true,\"torch_dtype\":\"bfloat16\",\"use_cache\":true,\"use_mrope\":false,\"use_sliding_window\":"
     "false,\"vocab_size\":151936}"},
    {"Qwen3-0.6B", 596049920,
     "{\"architectures\":[\"Qwen3ForCausalLM\"],\"attention_bias\":false,\"attention_dropout\":0.0,\"head_dim\":128,\"hidden_act\":"
     "\"silu\",\"hidden_size\":1024,"
     "\"intermediate_size\":3072,\"max_position_embeddings\":40960,\"max_window_layers\":28,\"model_type\":\"qwen3\",\"num_"
     "attention_heads\":16,"
     "\"num_hidden_layers\":28,\"num_key_value_heads\":8,\"rms_norm_eps\":1e-06,\"rope_scaling\":null,\"rope_theta\":1000000,"
     "\"sliding_window\":null,"
     "\"tie_word_embeddings\":true,\"use_sliding_window\":false,\"vocab_size\":151936}"},
    {"Llama-3.2-1B", 1235814400,
     "{\"architectures\":[\"LlamaForCausalLM\"],\"attention_bias\":false,\"attention_dropout\":0.0,\"head_dim\":64,\"hidden_act\":"
     "\"silu\",\"hidden_size\":2048,"
     "\"intermediate_size\":8192,\"max_position_embeddings\":131072,\"mlp_bias\":false,\"model_type\":\"llama\",\"num_attention_"
     "heads\":32,"
     "\"num_hidden_layers\":16,\"num_key_value_heads\":8,\"rms_norm_eps\":1e-05,\"rope_scaling\":{\"factor\":32.0,\"high_freq_"
     "factor\":4.0,"
     "\"low_freq_factor\":1.0,\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"},\"rope_theta\":500000.0,\"tie_"
     "word_embeddings\":true,"
     "\"vocab_size\":128256}"},
    {"Llama-2-7B", 6738415616,
     "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_act\":\"silu\",\"hidden_size\":4096,\"intermediate_size\":11008,\"max_"
     "position_embeddings\":4096,"
     "\"model_type\":\"llama\",\"num_attention_heads\":32,\"num_hidden_layers\":32,\"num_key_value_heads\":32,\"rms_norm_eps\":1e-"
     "05,\"vocab_size\":32000}"},
    {"Mistral-7B", 7241732096,
     "{\"architectures\":[\"MistralForCausalLM\"],\"hidden_act\":\"silu\",\"hidden_size\":4096,\"intermediate_size\":14336,\"max_"
     "position_embeddings\":32768,"
     "\"model_type\":\"mistral\",\"num_attention_heads\":32,\"num_hidden_layers\":32,\"num_key_value_heads\":8,\"rms_norm_eps\":1e-"
     "05,\"rope_theta\":10000.0,"
     "\"sliding_window\":4096,\"vocab_size\":32000}"},
    {"Qwen2.5-7B", 7615616512,
     "{\"architectures\":[\"Qwen2ForCausalLM\"],\"hidden_act\":\"silu\",\"hidden_size\":3584,\"intermediate_size\":18944,\"max_"
     "position_embeddings\":131072,"
     "\"model_type\":\"qwen2\",\"num_attention_heads\":28,\"num_hidden_layers\":28,\"num_key_value_heads\":4,\"rms_norm_eps\":1e-"
     "06,\"rope_theta\":1000000.0,"
     "\"tie_word_embeddings\":false,\"use_mrope\":false,\"vocab_size\":152064}"},
    {"Llama-3.1-8B", 8030261248,
     "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_act\":\"silu\",\"hidden_size\":4096,\"intermediate_size\":14336,\"max_"
     "position_embeddings\":131072,"
     "\"model_type\":\"llama\",\"num_attention_heads\":32,\"num_hidden_layers\":32,\"num_key_value_heads\":8,\"rms_norm_eps\":1e-"
     "05,\"rope_scaling\":{"
     "\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192,\"rope_type\":"
     "\"llama3\"},"
     "\"rope_theta\":500000.0,\"vocab_size\":128256}"},
    {"Qwen3-8B", 8190735360,
     "{\"architectures\":[\"Qwen3ForCausalLM\"],\"attention_bias\":false,\"head_dim\":128,\"hidden_act\":\"silu\",\"hidden_size\":"
     "4096,\"intermediate_size\":12288,"
     "\"max_position_embeddings\":40960,\"model_type\":\"qwen3\",\"num_attention_heads\":32,\"num_hidden_layers\":36,\"num_key_"
     "value_heads\":8,"
     "\"rms_norm_eps\":1e-06,\"rope_theta\":1000000,\"tie_word_embeddings\":false,\"vocab_size\":151936}"},
};

static void counts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        struct ft_arena *a = ft_arena_create();
        struct ft_model_config c;
        struct ft_err err;
        if (parse(published[i].text, a, &c, &err)) fail_msg("%s: %s", published[i].name, err.text);
        if (c.n_warnings) fail_msg("%s: %s", published[i].name, c.warnings[0]);
        if (ft_model_config_params(&c) != published[i].params)
            fail_msg("%s has %lld parameters", published[i].name, (long long)ft_model_config_params(&c));
        ft_arena_destroy(a);
    }
}

/* ---- refusals: "{" BASE "," extra "}" ---- */

#define LLAMA                                                                                                                      \
    "\"model_type\":\"llama\",\"hidden_size\":48,\"num_attention_heads\":8,\"num_hidden_layers\":2,\"intermediate_size\":96,"      \
    "\"vocab_size\":99"
#define GPT2 "\"model_type\":\"gpt2\",\"n_embd\":48,\"n_head\":4,\"n_layer\":2,\"vocab_size\":99"
#define QWEN2                                                                                                                      \
    "\"model_type\":\"qwen2\",\"hidden_size\":48,\"num_attention_heads\":6,\"num_key_value_heads\":2,\"num_hidden_layers\":4,"     \
    "\"vocab_size\":99"

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum ft_code code;
        const char *part;
    } cases[] = {
        {"[]", FT_CONFIG, "is not an object"},
        {"{}", FT_CONFIG, "has no model_type"},
        {"{\"model_type\":\"llama\",\"hidden_size\":8,\"num_attention_heads\":2,\"num_hidden_layers\":1000000000,"
         "\"intermediate_size\":8,\"vocab_size\":8}",
         FT_CONFIG, "1000000000 layers, at most 65536"},
        {"{\"model_type\":\"gemma2\"}", FT_UNSUPPORTED,
         "model_type 'gemma2' is not in this build (built: gpt2, llama, mistral, qwen2, qwen3)"},
        {"{" LLAMA ",\"architectures\":[\"LlamaForSequenceClassification\"]}", FT_UNSUPPORTED,
         "architectures = [\"LlamaForSequenceClassification\"]"},
        {"{" LLAMA ",\"rope_interleaved\":true}", FT_UNSUPPORTED, "rope_interleaved = true"},
        {"{" LLAMA ",\"partial_rotary_factor\":0.5}", FT_UNSUPPORTED, "partial_rotary_factor = 0.5"},
        {"{" LLAMA ",\"hidden_act\":\"gelu\"}", FT_UNSUPPORTED, "hidden_act = \"gelu\""},
        {"{" GPT2 ",\"activation_function\":\"relu\"}", FT_UNSUPPORTED, "activation_function = \"relu\""},
        {"{" GPT2 ",\"scale_attn_weights\":false}", FT_UNSUPPORTED, "scale_attn_weights = false"},
        {"{" GPT2 ",\"scale_attn_by_inverse_layer_idx\":true}", FT_UNSUPPORTED, "scale_attn_by_inverse_layer_idx = true"},
        {"{" GPT2 ",\"add_cross_attention\":true}", FT_UNSUPPORTED, "add_cross_attention = true"},
        {"{" GPT2 ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}", FT_UNSUPPORTED, "rope_scaling"},
        {"{" LLAMA ",\"layer_types\":[\"full_attention\",\"sliding_attention\"]}", FT_UNSUPPORTED,
         "layer_types[1] is 'sliding_attention'"},
        {"{" LLAMA ",\"layer_types\":[\"full_attention\"]}", FT_CONFIG, "layer_types is not a list of 2 layers"},
        {"{" LLAMA ",\"quantization_config\":{\"bits\":4}}", FT_UNSUPPORTED, "quantization_config = {\"bits\":4}"},
        {"{" LLAMA ",\"auto_map\":{\"AutoModelForCausalLM\":\"m.M\"}}", FT_UNSUPPORTED, "auto_map"},
        {"{" LLAMA ",\"attn_logit_softcapping\":50}", FT_UNSUPPORTED, "attn_logit_softcapping = 50"},
        {"{" LLAMA ",\"num_local_experts\":8}", FT_UNSUPPORTED, "num_local_experts = 8"},
        {"{" LLAMA ",\"embedding_multiplier\":12.0}", FT_UNSUPPORTED, "embedding_multiplier = 12.0"},
        {"{" LLAMA ",\"residual_x\":1}", FT_UNSUPPORTED, "residual_x = 1"},
        {"{" LLAMA ",\"use_alibi\":true}", FT_UNSUPPORTED, "use_alibi = true"},
        {"{" LLAMA ",\"sliding_window\":64}", FT_UNSUPPORTED, "sliding_window = 64"},
        {"{" LLAMA ",\"logit_scale\":0.5}", FT_UNSUPPORTED, "logit_scale = 0.5"},
        {"{" LLAMA ",\"position_embedding_type\":\"x\"}", FT_UNSUPPORTED, "position_embedding_type"},
        {"{" LLAMA ",\"hidden_size\":\"x\"}", FT_DATA, "duplicate"},
        {"{" LLAMA ",\"rms_norm_eps\":\"x\"}", FT_CONFIG, "rms_norm_eps = \"x\" is not a number"},
        {"{" LLAMA ",\"head_dim\":0}", FT_CONFIG, "head_dim = 0 is not a size"},
        {"{" LLAMA ",\"num_key_value_heads\":3}", FT_CONFIG, "8 heads are not a multiple of 3 kv heads"},
        {"{\"model_type\":\"llama\",\"hidden_size\":2147483646,\"num_attention_heads\":2147483646,\"head_dim\":2147483646}",
         FT_CONFIG, "these sizes make a model of"},
        {"{" LLAMA ",\"head_dim\":5}", FT_CONFIG, "even head size"},
        {"{" LLAMA ",\"attention_dropout\":1}", FT_CONFIG, "attention_dropout = 1 is not in [0, 1)"},
        {"{" LLAMA ",\"tie_word_embeddings\":1}", FT_CONFIG, "tie_word_embeddings = 1 is not true or false"},
        {"{\"model_type\":\"llama\",\"hidden_size\":50,\"num_attention_heads\":8}", FT_CONFIG, "50 is not a multiple of 8 heads"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":2}}", FT_UNSUPPORTED, "rope_type 'dynamic'"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"longrope\",\"factor\":2}}", FT_UNSUPPORTED, "rope_type 'longrope'"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\"}}", FT_CONFIG, "needs a factor"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}}", FT_CONFIG, "low_freq_factor"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"odd\":1}}", FT_UNSUPPORTED, "rope_scaling.odd"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"rope_type\":\"yarn\",\"factor\":2}}", FT_CONFIG,
         "rope_type 'yarn' and type 'linear'"},
        {"{" LLAMA ",\"rope_theta\":10000,\"rope_parameters\":{\"rope_theta\":20000,\"rope_type\":\"default\"}}", FT_CONFIG,
         "rope_theta is 10000"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},\"rope_parameters\":{\"rope_type\":\"default\"}}",
         FT_CONFIG, "different things"},
        {"{" LLAMA ",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"}}}", FT_UNSUPPORTED,
         "rope_parameters.full_attention"},
        {"{" QWEN2 ",\"use_sliding_window\":true,\"max_window_layers\":2,\"layer_types\":[\"full_attention\",\"full_attention\","
         "\"full_attention\",\"full_attention\"]}",
         FT_UNSUPPORTED, "layer_types[2] is 'full_attention'; by the other keys it is 'sliding_attention'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ft_arena *a = ft_arena_create();
        struct ft_model_config c;
        struct ft_err err = {0};
        const enum ft_code code = parse(cases[i].text, a, &c, &err);
        if (code != cases[i].code) fail_msg("%s: code %d (%s)", cases[i].text, (int)code, err.text);
        if (!strstr(err.text, cases[i].part)) fail_msg("%s: '%s' lacks '%s'", cases[i].text, err.text, cases[i].part);
        ft_arena_destroy(a);
    }
}

static void accepted(void **state)
{
    (void)state;
    struct ft_arena *a = ft_arena_create();
    struct ft_model_config c;
    struct ft_err err;
    assert_int_equal(parse("{\"model_type\":\"llama\"}", a, &c, &err), FT_OK);
    assert_true(c.V == 32000 && c.h == 4096 && c.f == 11008 && c.L == 32 && c.H == 32 && c.K == 32 && c.D == 128 && !c.tied);
    assert_true(c.eps == 1e-6 && c.rope.theta == 10000 && c.rope.type == FT_ROPE_DEFAULT && c.max_positions == 2048);
    assert_int_equal(parse("{\"model_type\":\"gpt2\"}", a, &c, &err), FT_OK);
    assert_true(c.V == 50257 && c.f == 3072 && c.tied && c.embd_drop == 0.1 && c.resid_drop == 0.1 && c.attn_drop == 0.1 &&
                c.eps == 1e-5);
    assert_int_equal(parse("{\"model_type\":\"mistral\"}", a, &c, &err), FT_OK);
    assert_true(c.K == 8 && c.window == 4096 && c.window_first == 0 && c.f == 14336);
    assert_int_equal(parse("{\"model_type\":\"mistral\",\"sliding_window\":null}", a, &c, &err), FT_OK);
    assert_true(c.window == 0);
    assert_int_equal(parse("{\"model_type\":\"qwen2\"}", a, &c, &err), FT_OK);
    assert_true(c.q_bias && !c.o_bias && c.K == 32 && c.window == 0);
    assert_int_equal(parse("{\"model_type\":\"qwen2\",\"use_sliding_window\":true}", a, &c, &err), FT_OK);
    assert_true(c.window == 4096 && c.window_first == 28);
    assert_int_equal(parse("{\"model_type\":\"qwen3\"}", a, &c, &err), FT_OK);
    assert_true(c.D == 128 && c.qk_norm && !c.q_bias);
    assert_int_equal(parse("{" LLAMA ",\"attention_bias\":true,\"mlp_bias\":true}", a, &c, &err), FT_OK);
    assert_true(c.q_bias && c.o_bias && c.mlp_bias);
    assert_int_equal(
        parse("{" LLAMA
              ",\"hello\":1,\"world\":\"x\",\"auto_map\":{\"AutoTokenizer\":\"t\"},\"rope_ratio\":null,\"new_norm\":false}",
              a, &c, &err),
        FT_OK);
    assert_int_equal(c.n_warnings, 1);
    assert_non_null(strstr(c.warnings[0], "ignored: hello, world"));
    assert_int_equal(parse("{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":500000.0,\"factor\":8,\"low_"
                           "freq_factor\":1,\"high_freq_factor\":4,"
                           "\"original_max_position_embeddings\":64}}",
                           a, &c, &err),
                     FT_OK);
    assert_true(c.rope.type == FT_ROPE_LLAMA3 && c.rope.theta == 500000 && c.rope.factor == 8 && c.rope.original_max == 64);
    ft_arena_destroy(a);
}

static void seq_len(void **state)
{
    (void)state;
    struct ft_arena *a = ft_arena_create();
    struct ft_model_config c;
    struct ft_err err;
    const char *w;
    assert_int_equal(parse("{\"model_type\":\"gpt2\",\"n_positions\":64}", a, &c, &err), FT_OK);
    assert_int_equal(ft_model_config_seq_len(&c, 64, a, &w, &err), FT_OK);
    assert_null(w);
    assert_int_equal(ft_model_config_seq_len(&c, 65, a, &w, &err), FT_CONFIG);
    assert_non_null(strstr(err.text, "seq_len 65") && strstr(err.text, "n_positions") ? err.text : NULL);
    assert_int_equal(parse("{\"model_type\":\"mistral\",\"sliding_window\":64}", a, &c, &err), FT_OK);
    assert_int_equal(ft_model_config_seq_len(&c, 64, a, &w, &err), FT_OK);
    assert_int_equal(ft_model_config_seq_len(&c, 65, a, &w, &err), FT_OK); /* the mask is built */
    assert_int_equal(parse("{\"model_type\":\"llama\"}", a, &c, &err), FT_OK);
    assert_int_equal(ft_model_config_seq_len(&c, 2049, a, &w, &err), FT_OK);
    assert_non_null(w);
    ft_arena_destroy(a);
}

/* RT-02, the part that the model decides. */
static void layouts(void **state)
{
    (void)state;
    static const struct {
        int64_t H, K, f, L;
        int t, p;
        size_t problems;
        const char *part[2];
    } cases[] = {
        {12, 12, 24, 4, 8, 1, 1, {"12 heads do not divide by 8; works: 1,2,3,4,6,12\n", ""}},
        {12,
         3,
         24,
         4,
         8,
         1,
         1,
         {"12 heads do not divide by 8; works: 1,2,3,4,6,12; 3 kv heads and tp 8: neither", "heads): 1,3,6,12\n"}},
        {6, 2, 24, 4, 4, 1, 1, {"6 heads do not divide by 4; works: 1,2,3,6 (with 2 kv heads: 1,2,6)\n", ""}},
        {40,
         10,
         80,
         4,
         4,
         1,
         1,
         {"10 kv heads and tp 4: neither divides the other; works (by heads and kv heads): 1,2,5,10,20,40\n", ""}},
        {8, 2, 64, 4, 4, 1, 0, {"", ""}},
        {14, 2, 4864, 24, 7, 1, 2, {"2 kv heads and tp 7", "intermediate size (f) 4864 does not divide by 7; works: 1,2\n"}},
        {8, 8, 64, 10, 1, 4, 1, {"10 layers over 4 stages; works: 1,2,5,10\n", ""}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ft_model_config c = {.H = cases[i].H, .K = cases[i].K, .f = cases[i].f, .L = cases[i].L};
        struct ft_buf out = {0};
        const size_t n = ft_model_config_layout(&c, cases[i].t, cases[i].p, &out);
        if (n != cases[i].problems || !strstr(ft_buf_str(&out), cases[i].part[0]) || !strstr(ft_buf_str(&out), cases[i].part[1]))
            fail_msg("case %zu: %zu problems: %s", i, n, ft_buf_str(&out));
        ft_buf_fini(&out);
    }
}

/* Rows of all ranks tile the logical tensors; replicas apart. Padding of the vocabulary: 99 rows over 2 ranks are 50 and 50. */
static void tiling(void **state)
{
    (void)state;
    static const int layouts_of[][2] = {{1, 1}, {2, 1}, {4, 1}, {1, 2}, {2, 4}};
    static const char *const models[] = {
        "{\"model_type\":\"qwen2\",\"hidden_size\":64,\"num_attention_heads\":8,\"num_key_value_heads\":2,"
        "\"num_hidden_layers\":4,\"vocab_size\":96,\"intermediate_size\":96}",
        "{\"model_type\":\"gpt2\",\"n_embd\":48,\"n_head\":4,\"n_layer\":4,\"vocab_size\":96}"};
    for (int m = 0; m < 2; m++)
        for (size_t l = 0; l < sizeof layouts_of / sizeof *layouts_of; l++) {
            struct ft_arena *a = ft_arena_create();
            struct ft_model_config c;
            struct ft_err err;
            assert_int_equal(parse(models[m], a, &c, &err), FT_OK);
            const int t = layouts_of[l][0], p = layouts_of[l][1];
            int64_t sum = 0;
            for (int rank = 0; rank < t * p; rank++) {
                size_t n;
                const struct ft_param *rows = ft_model_config_rows(&c, t, rank % t, p, rank / t, 1, a, &n, NULL);
                for (size_t i = 0; i < n; i++) {
                    assert_true(rows[i].origin[0] + rows[i].local[0] <= rows[i].dims[0]);
                    assert_true(rows[i].origin[1] + rows[i].local[1] <= rows[i].dims[1]);
                    if (!rows[i].replica && (rows[i].shard != FT_SHARD_NONE || rank % t == 0)) sum += ft_param_local(&rows[i]);
                }
            }
            if (sum != ft_model_config_params(&c)) fail_msg("t %d p %d: %lld parameters", t, p, (long long)sum);
            ft_arena_destroy(a);
        }
    struct ft_arena *a = ft_arena_create();
    struct ft_model_config c;
    struct ft_err err;
    size_t n;
    assert_int_equal(parse("{" GPT2 "}", a, &c, &err), FT_OK);
    const struct ft_param *rows = ft_model_config_rows(&c, 2, 1, 1, 0, 1, a, &n, NULL);
    assert_string_equal(rows[0].name, "wte.weight");
    assert_true(rows[0].dims[0] == 99 && rows[0].local[0] == 50 && rows[0].origin[0] == 50);
    assert_string_equal(rows[4].name, "h.0.attn.c_attn.weight#q"); /* [in, out part], split on the output axis */
    assert_true(rows[4].shard == FT_SHARD_DIM1 && rows[4].local[0] == 48 && rows[4].local[1] == 24 && rows[4].origin[1] == 24);
    assert_int_equal(ft_model_config_rows(&c, 1, 0, 1, 0, 64, a, &n, NULL)[0].local[0], 128);
    for (int t = 1; t <= 2; t++) { /* sequence parallelism: the layers' norms see a part of the tokens */
        const struct ft_model_part part = {.tensor = t, .pipeline = 1, .chunks = 1, .vocab_multiple = 1, .sequence = true};
        rows = ft_model_config_part_rows(&c, &part, a, &n, NULL);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(rows[i].partial, t > 1 && strstr(rows[i].name, ".ln_") ? FT_PARTIAL_TENSOR : FT_PARTIAL_NO);
    }
    ft_arena_destroy(a);
}

/* llama3, linear and yarn frequencies against the formulas, by hand at chosen places. */
static void rope(void **state)
{
    (void)state;
    float cs[3 * 2], sn[3 * 2];
    struct ft_rope r = {.type = FT_ROPE_DEFAULT, .theta = 100, .attention_factor = 1, .original_max = 64};
    ft_rope_tables(&r, 4, 3, cs, sn);
    assert_true(cs[0] == 1 && sn[0] == 0 && fabsf(cs[2] - cosf(1)) < 1e-7f && fabsf(sn[5] - sinf(0.2f)) < 1e-7f);
    r.type = FT_ROPE_LINEAR;
    r.factor = 4;
    ft_rope_tables(&r, 4, 3, cs, sn);
    assert_true(fabsf(sn[2] - sinf(0.25f)) < 1e-7f && fabsf(sn[3] - sinf(0.025f)) < 1e-7f);
    r.type = FT_ROPE_LLAMA3; /* wavelengths 6.28 (below 64/4: kept) and 62.8 (between 16 and 64) */
    r.factor = 8;
    r.low_freq = 1;
    r.high_freq = 4;
    ft_rope_tables(&r, 4, 3, cs, sn);
    const double w = 2 * 3.14159265358979323846 / 0.1, g = (64 / w - 1) / 3, inv = (1 - g) * 0.1 / 8 + g * 0.1;
    assert_true(fabsf(sn[2] - sinf(1)) < 1e-7f && fabs((double)sn[3] - sin(inv)) < 1e-7);
    r.type = FT_ROPE_YARN; /* c(32) < 0 -> 0, c(1) = 4 ln(64/2pi)/(2 ln 100) = 1.008 -> 2: ramp 0, 1/2 */
    r.factor = 4;
    r.beta_fast = 32;
    r.beta_slow = 1;
    r.truncate = true;
    r.attention_factor = 0.1 * log(4) + 1;
    ft_rope_tables(&r, 4, 3, cs, sn);
    assert_true(fabs((double)sn[2] - sin(1) * r.attention_factor) < 2e-7);
    assert_true(fabs((double)sn[3] - sin(0.5 * 0.025 + 0.5 * 0.1) * r.attention_factor) < 2e-7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts),  cmocka_unit_test(refusals), cmocka_unit_test(accepted),
                                       cmocka_unit_test(seq_len), cmocka_unit_test(layouts),  cmocka_unit_test(tiling),
                                       cmocka_unit_test(rope)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
