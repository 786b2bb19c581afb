/* What a model family provides (runtime/arch/NAME.c): its keys with the defaults of its Hugging Face configuration class, what it
 * derives from them, and the names of its parameters. Everything else (unknown keys, RoPE, rows, counts) is common. */
#ifndef FT_RUNTIME_ARCH_ARCH_H
#define FT_RUNTIME_ARCH_ARCH_H

#include "base/json.h"
#include "runtime/arch/config.h"

enum ft_arch_type {
    FT_A_SIZE,     /* int64_t >= 1 */
    FT_A_OPT_SIZE, /* int64_t >= 1; null and absent: 0 unless there is a default */
    FT_A_COUNT,    /* int64_t >= 0 */
    FT_A_REAL,     /* double, finite */
    FT_A_RATE,     /* double in [0,1) */
    FT_A_BOOL,     /* bool */
    FT_A_OPT_BOOL, /* bool, null: false */
    FT_A_WORD      /* a text that must be `word` */
};

struct ft_arch_key {
    const char *name;
    enum ft_arch_type type;
    size_t at;        /* offsetof into struct ft_arch_values */
    double def;       /* when the key is absent */
    const char *word; /* FT_A_WORD */
};

/* Raw values of a config.json, before a family makes a model of them. */
struct ft_arch_values {
    int64_t V, h, L, H, K, D, f, max_positions;
    int64_t window, max_window_layers;
    double eps, theta, init_std;
    double embd_drop, resid_drop, attn_drop;
    bool tied, attention_bias, mlp_bias, use_window;
};

struct ft_arch_name {
    enum ft_slot slot;
    const char *format; /* with %d for the layer when the slot is in a layer; order of the table = declaration order */
};

struct ft_arch_ops {
    const char *name;         /* model_type */
    const char *architecture; /* the class in "architectures" */
    const struct ft_arch_key *keys;
    size_t n_keys;
    bool rope;
    const struct ft_arch_name *names; /* order of declaration; ends with format NULL */
    /* Fills what the family decides: norms, biases, windows. v has all defaults. */
    void (*finish)(const struct ft_arch_values *v, struct ft_model_config *c);
};
struct ft_arch_entry {
    const char *name;
    const struct ft_arch_ops *ops;
};
extern const struct ft_arch_entry ft_arch_table[];

#define FT_A_KEY(n, t, member, d)                                                                                                  \
    {                                                                                                                              \
        .name = (n), .type = (t), .at = offsetof(struct ft_arch_values, member), .def = (d)                                        \
    }
#define FT_A_MUST(n, w)                                                                                                            \
    {                                                                                                                              \
        .name = (n), .type = FT_A_WORD, .word = (w)                                                                                \
    }

/* Names that the Llama-like families share. */
extern const struct ft_arch_name ft_arch_llama_names[];

/* rope_theta, rope_scaling, rope_parameters -> out. path is for messages. */
enum ft_code ft_arch_read_rope(const char *path, const struct ft_json *root, double theta, int64_t max_positions, int64_t D,
                               struct ft_rope *out, struct ft_err *err) FT_MUST_CHECK;

#endif
