/* config.json of a Hugging Face model folder -> values. The file is the source of truth; model names are never looked at.
 * A missing key takes the default of that family's configuration class. Whatever would change the maths and is not built is
 * refused with its key; unknown harmless keys give one warning.
 *
 *  1. ft_model_config_read(dir) or ft_model_config_parse(text)
 *  2. read the values; ft_model_config_rows() lists the parameters (runtime/nn/param.h)
 *  3. the arena owns all texts */
#ifndef FT_RUNTIME_ARCH_CONFIG_H
#define FT_RUNTIME_ARCH_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "runtime/nn/param.h"

struct ft_arch_ops;

enum ft_rope_type { FT_ROPE_NONE, FT_ROPE_DEFAULT, FT_ROPE_LLAMA3, FT_ROPE_LINEAR, FT_ROPE_YARN };
struct ft_rope {
    enum ft_rope_type type;
    double theta, factor;
    double low_freq, high_freq;                    /* llama3 */
    double beta_fast, beta_slow, attention_factor; /* yarn; attention_factor is resolved */
    bool truncate;
    double original_max; /* L0 */
};

struct ft_model_config {
    const struct ft_arch_ops *arch;
    const char *model_type; /* "llama" */
    int64_t V, h, L, H, K, D, f;
    int64_t max_positions;         /* max_position_embeddings, n_positions */
    double eps;                    /* of the norms */
    bool layernorm;                /* else RMSNorm */
    bool learned_positions;        /* wpe */
    bool gelu;                     /* GELU MLP with two linears; else SwiGLU with three */
    bool conv1d;                   /* weights [in, out] */
    bool q_bias, o_bias, mlp_bias; /* q_bias: q, k and v */
    bool qk_norm;
    bool tied;      /* the head is the embedding */
    int64_t pad_id; /* its input embedding gets no gradient (pad_token_id; as nn.Embedding's padding_idx); -1: none */
    struct ft_rope rope;
    int64_t window;       /* sliding window in tokens of the windowed layers; 0: none */
    int64_t window_first; /* layers >= this have the window */
    double embd_drop, resid_drop, attn_drop;
    double init_std;
    const char *const *warnings; /* sentences */
    size_t n_warnings;
};

/* Reads DIR/config.json. FT_CONFIG: wrong; FT_UNSUPPORTED: understood and not built. */
enum ft_code ft_model_config_read(const char *dir, struct ft_arena *a, struct ft_model_config *out,
                                  struct ft_err *err) FT_MUST_CHECK;
/* The same from n bytes of text; path is for messages. */
enum ft_code ft_model_config_parse(const char *path, const char *text, size_t n, struct ft_arena *a, struct ft_model_config *out,
                                   struct ft_err *err) FT_MUST_CHECK;
/* What a job asks of the model: learned positions end at max_positions (refused); RoPE beyond max_positions: *warning is set (borrowed
 * from a), else NULL. A window that is shorter than seq_len is a mask of the attention kernels. */
enum ft_code ft_model_config_seq_len(const struct ft_model_config *c, int64_t seq_len, struct ft_arena *a, const char **warning,
                                     struct ft_err *err) FT_MUST_CHECK;
/* Tensor size t of pipeline size p over this model: all problems, one sentence a line, appended to out; 0 when it fits. */
size_t ft_model_config_layout(const struct ft_model_config *c, int tensor, int pipeline, struct ft_buf *out);

/* Can heads, kv heads and f be cut into tensor parts? */
bool ft_model_config_cuts(const struct ft_model_config *c, int tensor);

/* Parameters of the whole model, a tied head counted once. */
int64_t ft_model_config_params(const struct ft_model_config *c);

/* Where a parameter is used. */
enum ft_slot {
    FT_SLOT_EMBED,
    FT_SLOT_POS,
    FT_SLOT_NORM1,
    FT_SLOT_NORM1_B,
    FT_SLOT_Q,
    FT_SLOT_K,
    FT_SLOT_V,
    FT_SLOT_Q_B,
    FT_SLOT_K_B,
    FT_SLOT_V_B,
    FT_SLOT_Q_NORM,
    FT_SLOT_K_NORM,
    FT_SLOT_O,
    FT_SLOT_O_B,
    FT_SLOT_NORM2,
    FT_SLOT_NORM2_B,
    FT_SLOT_GATE,
    FT_SLOT_UP,
    FT_SLOT_GATE_B,
    FT_SLOT_UP_B,
    FT_SLOT_DOWN,
    FT_SLOT_DOWN_B,
    FT_SLOT_NORM,
    FT_SLOT_NORM_B,
    FT_SLOT_HEAD,
    FT_N_SLOTS
};
/* Rows of this rank in declaration order (arena); slots[i] (when slots is given) is where row i is used. tensor and pipeline as in
 * struct ft_model_options; the layout must be legal. vocab_multiple: rows of embedding and head are padded to a multiple of
 * tensor * vocab_multiple per group (1 on the CPU); dims stay unpadded, local[0] counts the padded shard. */
const struct ft_param *ft_model_config_rows(const struct ft_model_config *c, int tensor, int tensor_rank, int pipeline, int stage,
                                            int64_t vocab_multiple, struct ft_arena *a, size_t *n, const enum ft_slot **slots);
/* What a rank holds and sees of a model. */
struct ft_model_part {
    int tensor, tensor_rank, pipeline, stage;
    int chunks; /* of layers on each stage, one behind another */
    int64_t vocab_multiple;
    bool sequence; /* tokens are split over the tensor group outside of the linears */
};
/* The same of any part. */
const struct ft_param *ft_model_config_part_rows(const struct ft_model_config *c, const struct ft_model_part *p, struct ft_arena *a,
                                                 size_t *n, const enum ft_slot **slots);

/* RoPE tables, (n_positions, D/2) fp32 each: frequencies in fp64 rounded to fp32, angle = fp32 product, cosine and sine in fp64 of it rounded to fp32. */
void ft_rope_tables(const struct ft_rope *r, int64_t D, int64_t n_positions, float *cos_out, float *sin_out);

#endif
