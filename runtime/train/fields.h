/* The sections of the training runtime that this room owns: [model] [train] [lora] [eval] [checkpoint] [export]. One row per key
 * (base/field.h); [data] is runtime/data/data_fields.h, [parallel] is topology/parallel_fields.h. What is specified but not in
 * this build is refused by its name from the same rows. */
#ifndef FT_RUNTIME_TRAIN_FIELDS_H
#define FT_RUNTIME_TRAIN_FIELDS_H

#include "base/field.h"

enum ft_precision { FT_PRECISION_FP32, FT_PRECISION_BF16, FT_PRECISION_FP8 };
enum ft_attention { FT_ATTENTION_AUTO, FT_ATTENTION_REFERENCE, FT_ATTENTION_FLASH, FT_ATTENTION_CUDNN };
enum ft_recompute { FT_RECOMPUTE_OFF, FT_RECOMPUTE_SELECTIVE, FT_RECOMPUTE_FULL };
enum ft_method { FT_METHOD_FULL, FT_METHOD_LORA, FT_METHOD_QLORA };
enum ft_device_choice { FT_DEVICE_AUTO, FT_DEVICE_CPU, FT_DEVICE_CUDA };
enum ft_export_what { FT_EXPORT_ADAPTER, FT_EXPORT_MERGED, FT_EXPORT_FULL, FT_EXPORT_NONE };
enum ft_export_dtype { FT_EXPORT_BASE, FT_EXPORT_FP32, FT_EXPORT_BF16, FT_EXPORT_FP16 };

struct ft_model_fields {
    const char *path;
    int precision, attention, recompute;
    struct ft_list add_tokens;
};

struct ft_train_fields {
    int method, schedule, device, collectives;
    int64_t steps, epochs; /* 0: not given */
    int64_t global_batch, micro_batch;
    double lr, min_lr, weight_decay, beta1, beta2, eps, clip;
    const char *warmup; /* "3%" or updates */
    int64_t seed;
    bool deterministic;
    int64_t collective_timeout; /* ns */
    int on_divergence;          /* 0 stop, 1 warn */
};

struct ft_lora_fields {
    int64_t rank, alpha; /* alpha 0: 2*rank */
    double dropout, weight_decay, plus;
    struct ft_list targets, rank_pattern, alpha_pattern;
    bool rslora, double_quant;
    int embeddings;
};

struct ft_eval_fields {
    int64_t every, patience;
    double min_delta, general_limit;
    bool restore_best;
};

struct ft_checkpoint_fields {
    const char *dir, *every, *resume;
    int64_t keep;
    bool async;
    int on_error; /* 0 continue, 1 stop */
    struct ft_list accept;
};

struct ft_export_fields {
    const char *dir;
    int what, dtype, rslora, merge_base;
};

extern const char *const ft_train_collectives[]; /* words of `collectives`, as ft_comm_open takes them; NULL at the end */
extern const struct ft_section ft_model_section, ft_train_section, ft_lora_section, ft_eval_section, ft_checkpoint_section,
    ft_export_section;

/* "30m", "500" (updates) or "0" (never): exactly one of *updates, *ns is non-zero, or none. */
bool ft_checkpoint_every(const char *text, int64_t *updates, int64_t *ns);

#endif
