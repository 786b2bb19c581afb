/* Llama 2/3.x, SmolLM2. Defaults: transformers' LlamaConfig. */
#include "runtime/arch/arch.h"

extern const struct ft_arch_ops ft_arch_llama;

const struct ft_arch_name ft_arch_llama_names[] = {
    {FT_SLOT_EMBED, "model.embed_tokens.weight"},
    {FT_SLOT_Q, "model.layers.%d.self_attn.q_proj.weight"},
    {FT_SLOT_Q_B, "model.layers.%d.self_attn.q_proj.bias"},
    {FT_SLOT_K, "model.layers.%d.self_attn.k_proj.weight"},
    {FT_SLOT_K_B, "model.layers.%d.self_attn.k_proj.bias"},
    {FT_SLOT_V, "model.layers.%d.self_attn.v_proj.weight"},
    {FT_SLOT_V_B, "model.layers.%d.self_attn.v_proj.bias"},
    {FT_SLOT_O, "model.layers.%d.self_attn.o_proj.weight"},
    {FT_SLOT_O_B, "model.layers.%d.self_attn.o_proj.bias"},
    {FT_SLOT_Q_NORM, "model.layers.%d.self_attn.q_norm.weight"},
    {FT_SLOT_K_NORM, "model.layers.%d.self_attn.k_norm.weight"},
    {FT_SLOT_GATE, "model.layers.%d.mlp.gate_proj.weight"},
    {FT_SLOT_GATE_B, "model.layers.%d.mlp.gate_proj.bias"},
    {FT_SLOT_UP, "model.layers.%d.mlp.up_proj.weight"},
    {FT_SLOT_UP_B, "model.layers.%d.mlp.up_proj.bias"},
    {FT_SLOT_DOWN, "model.layers.%d.mlp.down_proj.weight"},
    {FT_SLOT_DOWN_B, "model.layers.%d.mlp.down_proj.bias"},
    {FT_SLOT_NORM1, "model.layers.%d.input_layernorm.weight"},
    {FT_SLOT_NORM2, "model.layers.%d.post_attention_layernorm.weight"},
    {FT_SLOT_NORM, "model.norm.weight"},
    {FT_SLOT_HEAD, "lm_head.weight"},
    {FT_SLOT_HEAD, NULL},
};

static const struct ft_arch_key keys[] = {
    FT_A_KEY("vocab_size", FT_A_SIZE, V, 32000),
    FT_A_KEY("hidden_size", FT_A_SIZE, h, 4096),
    FT_A_KEY("intermediate_size", FT_A_SIZE, f, 11008),
    FT_A_KEY("num_hidden_layers", FT_A_SIZE, L, 32),
    FT_A_KEY("num_attention_heads", FT_A_SIZE, H, 32),
    FT_A_KEY("num_key_value_heads", FT_A_OPT_SIZE, K, 0),
    FT_A_KEY("head_dim", FT_A_OPT_SIZE, D, 0),
    FT_A_KEY("max_position_embeddings", FT_A_SIZE, max_positions, 2048),
    FT_A_KEY("rms_norm_eps", FT_A_REAL, eps, 1e-6),
    FT_A_KEY("rope_theta", FT_A_REAL, theta, 10000),
    FT_A_KEY("initializer_range", FT_A_REAL, init_std, 0.02),
    FT_A_KEY("attention_bias", FT_A_OPT_BOOL, attention_bias, 0),
    FT_A_KEY("mlp_bias", FT_A_OPT_BOOL, mlp_bias, 0),
    FT_A_KEY("attention_dropout", FT_A_RATE, attn_drop, 0),
    FT_A_KEY("tie_word_embeddings", FT_A_OPT_BOOL, tied, 0),
    FT_A_MUST("hidden_act", "silu"),
};

static void finish(const struct ft_arch_values *v, struct ft_model_config *c)
{
    c->q_bias = c->o_bias = v->attention_bias;
    c->mlp_bias = v->mlp_bias;
}

const struct ft_arch_ops ft_arch_llama = {
    "llama", "LlamaForCausalLM", keys, sizeof keys / sizeof *keys, true, ft_arch_llama_names, finish,
};
