/* Mistral: Llama with a window on every layer. Defaults: transformers' MistralConfig. */
#include "runtime/arch/arch.h"

extern const struct ft_arch_ops ft_arch_mistral;

static const struct ft_arch_key keys[] = {
    FT_A_KEY("vocab_size", FT_A_SIZE, V, 32000),
    FT_A_KEY("hidden_size", FT_A_SIZE, h, 4096),
    FT_A_KEY("intermediate_size", FT_A_SIZE, f, 14336),
    FT_A_KEY("num_hidden_layers", FT_A_SIZE, L, 32),
    FT_A_KEY("num_attention_heads", FT_A_SIZE, H, 32),
    FT_A_KEY("num_key_value_heads", FT_A_OPT_SIZE, K, 8),
    FT_A_KEY("head_dim", FT_A_OPT_SIZE, D, 0),
    FT_A_KEY("max_position_embeddings", FT_A_SIZE, max_positions, 131072),
    FT_A_KEY("rms_norm_eps", FT_A_REAL, eps, 1e-6),
    FT_A_KEY("rope_theta", FT_A_REAL, theta, 10000),
    FT_A_KEY("initializer_range", FT_A_REAL, init_std, 0.02),
    FT_A_KEY("sliding_window", FT_A_OPT_SIZE, window, 4096),
    FT_A_KEY("attention_dropout", FT_A_RATE, attn_drop, 0),
    FT_A_KEY("tie_word_embeddings", FT_A_OPT_BOOL, tied, 0),
    FT_A_MUST("hidden_act", "silu"),
};

static void finish(const struct ft_arch_values *v, struct ft_model_config *c)
{
    c->window = v->window;
    c->window_first = 0;
}

const struct ft_arch_ops ft_arch_mistral = {
    "mistral", "MistralForCausalLM", keys, sizeof keys / sizeof *keys, true, ft_arch_llama_names, finish,
};
