#include "runtime/train/fields.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "runtime/ckpt/ckpt.h"
#include "runtime/train/schedule.h"

#define N(rows) (sizeof(rows) / sizeof *(rows))

static const char *const precisions[] = {"fp32", "bf16", "fp8", NULL};
static const char *const attentions[] = {"auto", "reference", "flash", "cudnn", NULL};
static const char *const recomputes[] = {"off", "selective", "full", NULL};
static const char *const methods[] = {"full", "lora", "qlora", NULL};
static const char *const schedules[] = {"constant", "linear", "cosine", "wsd", NULL};
static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
const char *const ft_train_collectives[] = {"auto", "tcp", "mpi", "nccl", NULL};
static const char *const stop_or_warn[] = {"stop", "warn", NULL};
static const char *const embeddings[] = {"no", "new", "all", NULL};
static const char *const on_errors[] = {"continue", "stop", NULL};
static const char *const whats[] = {"adapter", "merged", "full", "none", NULL};
static const char *const dtypes[] = {"base", "fp32", "bf16", "fp16", NULL};
static const char *const rsloras[] = {"fold", "keep", NULL};
static const char *const merge_bases[] = {"file", "dequant", NULL};

/* What the pages specify and this build lacks. */
static const struct ft_unbuilt no_fp8[] = {{"fp8", "set precision = bf16"}, {NULL, NULL}};
static const struct ft_unbuilt no_cudnn[] = {{"cudnn", "set attention = auto"}, {NULL, NULL}};
static const struct ft_unbuilt no_tokens[] = {{"*", "leave add_tokens out"}, {NULL, NULL}};
static const struct ft_unbuilt no_lora[] = {{"lora", "set method = full"}, {"qlora", "set method = full"}, {NULL, NULL}};
static const struct ft_unbuilt no_wsd[] = {{"wsd", "set schedule = cosine"}, {NULL, NULL}};
static const struct ft_unbuilt no_cuda[] = {{"cuda", "set device = cpu"}, {NULL, NULL}};
static const struct ft_unbuilt no_adapter[] = {{"adapter", "set what = full"}, {"merged", "set what = full"}, {NULL, NULL}};
static const struct ft_unbuilt no_lora_key[] = {{"*", "set [train] method = full and leave [lora] out"}, {NULL, NULL}};

#define AT(member) offsetof(struct ft_model_fields, member)
static const struct ft_field model_rows[] = {
    {.name = "path",
     .type = FT_F_PATH,
     .at = AT(path),
     .help = "folder of the model to train: config.json, safetensors, tokenizer files"},
    {.name = "precision",
     .type = FT_F_ENUM,
     .values = precisions,
     .def = "bf16",
     .at = AT(precision),
     .unbuilt = no_fp8,
     .help = "number format of weights and activations; gradients and optimizer state are always fp32"},
    {.name = "attention",
     .type = FT_F_ENUM,
     .values = attentions,
     .def = "auto",
     .at = AT(attention),
     .unbuilt = no_cudnn,
     .help = "attention kernel; on the CPU auto, reference and flash are the same one"},
    {.name = "recompute",
     .type = FT_F_ENUM,
     .values = recomputes,
     .def = "off",
     .at = AT(recompute),
     .help = "what the backward pass computes again instead of keeping it: less memory, more time, the same bits"},
    {.name = "add_tokens",
     .type = FT_F_TEXT,
     .list = true,
     .at = AT(add_tokens),
     .unbuilt = no_tokens,
     .help = "new special tokens"},
};
#undef AT
const struct ft_section ft_model_section = {"model", "the model to train", model_rows, N(model_rows),
                                            sizeof(struct ft_model_fields)};

#define AT(member) offsetof(struct ft_train_fields, member)
static const struct ft_field train_rows[] = {
    {.name = "method",
     .type = FT_F_ENUM,
     .values = methods,
     .def = "full",
     .at = AT(method),
     .unbuilt = no_lora,
     .help = "full: all weights; lora: small adapters; qlora: adapters over a 4-bit base"},
    {.name = "steps",
     .type = FT_F_INT,
     .unit = "updates",
     .min = 1,
     .max = 1e15,
     .at = AT(steps),
     .help = "how many optimizer updates; or give epochs"},
    {.name = "epochs",
     .type = FT_F_INT,
     .unit = "passes",
     .min = 1,
     .max = 1e9,
     .at = AT(epochs),
     .help = "how many passes over the training rows; 1 if neither steps nor epochs is given"},
    {.name = "global_batch",
     .type = FT_F_INT,
     .unit = "rows",
     .def = "16",
     .min = 1,
     .max = 1e9,
     .at = AT(global_batch),
     .help = "rows of one update over all ranks"},
    {.name = "micro_batch",
     .type = FT_F_INT,
     .unit = "rows",
     .def = "1",
     .min = 1,
     .max = 1e6,
     .at = AT(micro_batch),
     .help = "rows that one rank computes at once; changes memory and speed, not the result"},
    {.name = "lr",
     .type = FT_F_REAL,
     .def = "1e-5",
     .min = 0,
     .max = INFINITY,
     .at = AT(lr),
     .help = "peak learning rate (lora, qlora: 2e-4)"},
    {.name = "min_lr",
     .type = FT_F_REAL,
     .def = "0",
     .min = 0,
     .max = INFINITY,
     .at = AT(min_lr),
     .help = "learning rate at the end"},
    {.name = "schedule",
     .type = FT_F_ENUM,
     .values = schedules,
     .def = "cosine",
     .at = AT(schedule),
     .unbuilt = no_wsd,
     .help = "how the learning rate goes from lr to min_lr after the warm-up"},
    {.name = "warmup",
     .type = FT_F_TEXT,
     .def = "3%",
     .at = AT(warmup),
     .check = ft_warmup_check,
     .help = "updates of linear warm-up: a number, or a share of all updates"},
    {.name = "weight_decay",
     .type = FT_F_REAL,
     .def = "0.01",
     .min = 0,
     .max = INFINITY,
     .at = AT(weight_decay),
     .help = "AdamW decay of tensors with two or more dims"},
    {.name = "beta1",
     .type = FT_F_REAL,
     .def = "0.9",
     .min = 0,
     .max = 0.999999999,
     .at = AT(beta1),
     .help = "AdamW, first moment"},
    {.name = "beta2",
     .type = FT_F_REAL,
     .def = "0.999",
     .min = 0,
     .max = 0.999999999,
     .at = AT(beta2),
     .help = "AdamW, second moment"},
    {.name = "eps", .type = FT_F_REAL, .def = "1e-8", .min = 0, .max = 1, .at = AT(eps), .help = "AdamW, added to the divisor"},
    {.name = "clip",
     .type = FT_F_REAL,
     .def = "1",
     .min = 0,
     .max = INFINITY,
     .at = AT(clip),
     .help = "largest norm of the gradient; 0: no clipping (the norm is still logged)"},
    {.name = "seed",
     .type = FT_F_INT,
     .def = "1",
     .min = 0,
     .max = 9e15,
     .at = AT(seed),
     .help = "of the order of the rows and of dropout"},
    {.name = "deterministic",
     .type = FT_F_BOOL,
     .def = "no",
     .at = AT(deterministic),
     .help = "the same bits on every run with the same layout; on the CPU always so"},
    {.name = "device",
     .type = FT_F_ENUM,
     .values = devices,
     .def = "auto",
     .at = AT(device),
     .unbuilt = no_cuda,
     .help = "where to compute"},
    {.name = "collectives",
     .type = FT_F_ENUM,
     .values = ft_train_collectives,
     .def = "auto",
     .at = AT(collectives),
     .help = "what moves bytes between ranks; auto: mpi when mpirun or srun --mpi started them and it is built, else tcp"},
    {.name = "collective_timeout",
     .type = FT_F_DURATION,
     .def = "10m",
     .min = 1e9,
     .max = 8.64e13,
     .at = AT(collective_timeout),
     .help = "a collective without progress for this long ends the run and names the missing ranks"},
    {.name = "on_divergence",
     .type = FT_F_ENUM,
     .values = stop_or_warn,
     .def = "stop",
     .at = AT(on_divergence),
     .help = "what to do when the loss runs away"},
};
#undef AT
const struct ft_section ft_train_section = {"train", "how to train", train_rows, N(train_rows), sizeof(struct ft_train_fields)};

#define AT(member) offsetof(struct ft_lora_fields, member)
static const struct ft_field lora_rows[] = {
    {.name = "rank",
     .type = FT_F_INT,
     .def = "16",
     .min = 1,
     .max = 65536,
     .at = AT(rank),
     .unbuilt = no_lora_key,
     .help = "rank of the adapters"},
    {.name = "alpha",
     .type = FT_F_INT,
     .min = 1,
     .max = 1e9,
     .at = AT(alpha),
     .unbuilt = no_lora_key,
     .help = "scale is alpha/rank; 2*rank if not given"},
    {.name = "dropout",
     .type = FT_F_REAL,
     .def = "0",
     .min = 0,
     .max = 0.999,
     .at = AT(dropout),
     .unbuilt = no_lora_key,
     .help = "on the adapter's input"},
    {.name = "targets",
     .type = FT_F_TEXT,
     .list = true,
     .def = "all-linear",
     .at = AT(targets),
     .unbuilt = no_lora_key,
     .help = "attn, attn+o, all-linear, or module names"},
    {.name = "rslora", .type = FT_F_BOOL, .def = "no", .at = AT(rslora), .unbuilt = no_lora_key, .help = "scale alpha/sqrt(rank)"},
    {.name = "rank_pattern",
     .type = FT_F_TEXT,
     .list = true,
     .at = AT(rank_pattern),
     .unbuilt = no_lora_key,
     .help = "PATTERN:RANK of some modules"},
    {.name = "alpha_pattern",
     .type = FT_F_TEXT,
     .list = true,
     .at = AT(alpha_pattern),
     .unbuilt = no_lora_key,
     .help = "PATTERN:ALPHA of some modules"},
    {.name = "weight_decay",
     .type = FT_F_REAL,
     .def = "0",
     .min = 0,
     .max = INFINITY,
     .at = AT(weight_decay),
     .unbuilt = no_lora_key,
     .help = "decay of the adapters"},
    {.name = "plus",
     .type = FT_F_REAL,
     .def = "1",
     .min = 0,
     .max = INFINITY,
     .at = AT(plus),
     .unbuilt = no_lora_key,
     .help = "learning rate of B over that of A"},
    {.name = "embeddings",
     .type = FT_F_ENUM,
     .values = embeddings,
     .def = "no",
     .at = AT(embeddings),
     .unbuilt = no_lora_key,
     .help = "train embedding rows too"},
    {.name = "double_quant",
     .type = FT_F_BOOL,
     .def = "yes",
     .at = AT(double_quant),
     .unbuilt = no_lora_key,
     .help = "qlora: quantise the scales too"},
};
#undef AT
const struct ft_section ft_lora_section = {"lora", "adapters", lora_rows, N(lora_rows), sizeof(struct ft_lora_fields)};

#define AT(member) offsetof(struct ft_eval_fields, member)
static const struct ft_field eval_rows[] = {
    {.name = "every",
     .type = FT_F_INT,
     .unit = "updates",
     .def = "0",
     .min = 0,
     .max = 1e15,
     .at = AT(every),
     .help = "evaluate after so many updates; 0: before update 1 and at the end only"},
    {.name = "patience",
     .type = FT_F_INT,
     .unit = "evaluations",
     .def = "0",
     .min = 0,
     .max = 1e9,
     .at = AT(patience),
     .help = "stop after so many evaluations running that are not better; 0: never"},
    {.name = "min_delta",
     .type = FT_F_REAL,
     .def = "0",
     .min = 0,
     .max = INFINITY,
     .at = AT(min_delta),
     .help = "a loss must fall by more than this to count as better"},
    {.name = "restore_best",
     .type = FT_F_BOOL,
     .def = "yes",
     .at = AT(restore_best),
     .help = "export the weights of the best evaluation"},
    {.name = "general_limit",
     .type = FT_F_SHARE,
     .def = "5%",
     .min = 0,
     .max = 100,
     .at = AT(general_limit),
     .help = "warn when the loss on [data] general rises by more than this share"},
};
#undef AT
const struct ft_section ft_eval_section = {"eval", "evaluation on [data] valid and general", eval_rows, N(eval_rows),
                                           sizeof(struct ft_eval_fields)};

bool ft_checkpoint_every(const char *text, int64_t *updates, int64_t *ns)
{
    static const struct ft_field duration = {.name = "every", .type = FT_F_DURATION, .min = 0, .max = 8.64e15};
    *updates = *ns = 0;
    if (ft_parse_i64(text, 0, INT64_MAX / 2, updates)) return true;
    struct ft_arena *arena = ft_arena_create();
    struct ft_buf why = {0};
    const bool ok = ft_field_parse(&duration, text, ns, arena, &why);
    ft_buf_fini(&why);
    ft_arena_destroy(arena);
    return ok;
}

static bool check_every(const char *value, struct ft_buf *why)
{
    int64_t updates, ns;
    if (ft_checkpoint_every(value, &updates, &ns)) return true;
    ft_buf_adds(why, "neither a number of updates (500) nor a duration (30m)");
    return false;
}

static bool check_accept(const char *value, struct ft_buf *why)
{
    if (ft_ckpt_accepts(value)) return true;
    ft_buf_addf(why, "'%s' is no key that may differ from a checkpoint's (like train.lr, train.steps, data.seq_len or data)",
                value);
    return false;
}

#define AT(member) offsetof(struct ft_checkpoint_fields, member)
static const struct ft_field checkpoint_rows[] = {
    {.name = "dir", .type = FT_F_PATH, .at = AT(dir), .help = "where checkpoints are written (RUN_DIR/checkpoints)"},
    {.name = "every",
     .type = FT_F_TEXT,
     .def = "30m",
     .at = AT(every),
     .check = check_every,
     .help = "save after so many updates, or so much time (30m)"},
    {.name = "keep",
     .type = FT_F_INT,
     .def = "2",
     .min = 0,
     .max = 1e9,
     .at = AT(keep),
     .help = "how many checkpoints stay; 0: all"},
    {.name = "resume",
     .type = FT_F_TEXT,
     .def = "auto",
     .at = AT(resume),
     .help = "auto: the newest valid one; never; a step; a path"},
    {.name = "async",
     .type = FT_F_BOOL,
     .def = "no",
     .at = AT(async),
     .help = "write from a copy in memory while training goes on"},
    {.name = "on_error",
     .type = FT_F_ENUM,
     .values = on_errors,
     .def = "continue",
     .at = AT(on_error),
     .help = "when a save fails"},
    {.name = "accept",
     .type = FT_F_TEXT,
     .list = true,
     .at = AT(accept),
     .check = check_accept,
     .help = "keys that may differ from the checkpoint's (train.lr, data, …)"},
};
#undef AT
const struct ft_section ft_checkpoint_section = {"checkpoint", "saving and resuming", checkpoint_rows, N(checkpoint_rows),
                                                 sizeof(struct ft_checkpoint_fields)};

#define AT(member) offsetof(struct ft_export_fields, member)
static const struct ft_field export_rows[] = {
    {.name = "dir", .type = FT_F_PATH, .at = AT(dir), .help = "folder to make at the end (RUN_DIR/export); it must not exist"},
    {.name = "what",
     .type = FT_F_ENUM,
     .values = whats,
     .def = "full",
     .at = AT(what),
     .unbuilt = no_adapter,
     .help = "full: a model folder; adapter, merged: with lora; none: nothing"},
    {.name = "dtype",
     .type = FT_F_ENUM,
     .values = dtypes,
     .def = "base",
     .at = AT(dtype),
     .help = "number format on disk; base: that of the model folder"},
    {.name = "rslora",
     .type = FT_F_ENUM,
     .values = rsloras,
     .def = "fold",
     .at = AT(rslora),
     .unbuilt = no_lora_key,
     .help = "how an rsLoRA scale is written"},
    {.name = "merge_base",
     .type = FT_F_ENUM,
     .values = merge_bases,
     .def = "file",
     .at = AT(merge_base),
     .unbuilt = no_lora_key,
     .help = "what a QLoRA adapter is merged into"},
};
#undef AT
const struct ft_section ft_export_section = {"export", "the model folder that is written", export_rows, N(export_rows),
                                             sizeof(struct ft_export_fields)};
