/* GPT-2: learned positions, LayerNorm, biases everywhere, Conv1D weights [in, out]. The fused c_attn is three logical tensors (#q #k
 * #v), cut on its output axis. Defaults: transformers' GPT2Config. */
#include "runtime/arch/arch.h"

extern const struct ft_arch_ops ft_arch_gpt2;

static const struct ft_arch_name names[] = {
    {FT_SLOT_EMBED, "wte.weight"},
    {FT_SLOT_POS, "wpe.weight"},
    {FT_SLOT_NORM1, "h.%d.ln_1.weight"},
    {FT_SLOT_NORM1_B, "h.%d.ln_1.bias"},
    {FT_SLOT_Q, "h.%d.attn.c_attn.weight#q"},
    {FT_SLOT_K, "h.%d.attn.c_attn.weight#k"},
    {FT_SLOT_V, "h.%d.attn.c_attn.weight#v"},
    {FT_SLOT_Q_B, "h.%d.attn.c_attn.bias#q"},
    {FT_SLOT_K_B, "h.%d.attn.c_attn.bias#k"},
    {FT_SLOT_V_B, "h.%d.attn.c_attn.bias#v"},
    {FT_SLOT_O, "h.%d.attn.c_proj.weight"},
    {FT_SLOT_O_B, "h.%d.attn.c_proj.bias"},
    {FT_SLOT_NORM2, "h.%d.ln_2.weight"},
    {FT_SLOT_NORM2_B, "h.%d.ln_2.bias"},
    {FT_SLOT_UP, "h.%d.mlp.c_fc.weight"},
    {FT_SLOT_UP_B, "h.%d.mlp.c_fc.bias"},
    {FT_SLOT_DOWN, "h.%d.mlp.c_proj.weight"},
    {FT_SLOT_DOWN_B, "h.%d.mlp.c_proj.bias"},
    {FT_SLOT_NORM, "ln_f.weight"},
    {FT_SLOT_NORM_B, "ln_f.bias"},
    {FT_SLOT_HEAD, "lm_head.weight"},
    {FT_SLOT_HEAD, NULL},
};

static const struct ft_arch_key keys[] = {
    FT_A_KEY("vocab_size", FT_A_SIZE, V, 50257),
    FT_A_KEY("n_positions", FT_A_SIZE, max_positions, 1024),
    FT_A_KEY("n_embd", FT_A_SIZE, h, 768),
    FT_A_KEY("n_layer", FT_A_SIZE, L, 12),
    FT_A_KEY("n_head", FT_A_SIZE, H, 12),
    FT_A_KEY("n_inner", FT_A_OPT_SIZE, f, 0),
    FT_A_KEY("layer_norm_epsilon", FT_A_REAL, eps, 1e-5),
    FT_A_KEY("initializer_range", FT_A_REAL, init_std, 0.02),
    FT_A_KEY("embd_pdrop", FT_A_RATE, embd_drop, 0.1),
    FT_A_KEY("resid_pdrop", FT_A_RATE, resid_drop, 0.1),
    FT_A_KEY("attn_pdrop", FT_A_RATE, attn_drop, 0.1),
    FT_A_KEY("tie_word_embeddings", FT_A_BOOL, tied, 1),
    FT_A_MUST("activation_function", "gelu_new"),
};

static void finish(const struct ft_arch_values *v, struct ft_model_config *c)
{
    c->K = c->H;
    c->f = v->f ? v->f : 4 * v->h;
    c->layernorm = c->learned_positions = c->gelu = c->conv1d = true;
    c->q_bias = c->o_bias = c->mlp_bias = true;
}

const struct ft_arch_ops ft_arch_gpt2 = {
    "gpt2", "GPT2LMHeadModel", keys, sizeof keys / sizeof *keys, false, names, finish,
};
