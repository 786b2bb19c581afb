#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/str.h"
#include "runtime/ckpt/import.h"

static const char help[] = "export it to Hugging Face format (config.json + safetensors) with the tool that wrote it";

/* What the names in a folder say; sizes come from the numbers in them. */
struct seen {
    bool megatron, distributed, deepspeed, meta, vllm, pickle, gguf;
    int tensor, pipeline, data, meta_parts, vllm_tensor;
    char example[256];
};

/* "PREFIXnn": the number, or -1. */
static int number_behind(const char *name, const char *prefix)
{
    const size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0 || name[n] < '0' || name[n] > '9') return -1;
    return (int)strtol(name + n, NULL, 10);
}

static void keep_max(int *max, int x)
{
    if (x > *max) *max = x;
}

static void example(struct seen *s, const char *name)
{
    if (!s->example[0]) (void)snprintf(s->example, sizeof s->example, "%s", name);
}

static bool pickle_name(const char *name)
{
    return (ft_str_starts(name, "pytorch_model") && ft_str_ends(name, ".bin")) || ft_str_ends(name, ".pt") ||
           ft_str_ends(name, ".pth") || ft_str_ends(name, ".nemo");
}

/* "mp_rank_TT[_PPP]" inside iter_* folders, "mp_rank_TT_model_states.pt" beside zero_pp_rank_*. */
static void look_at_ranks(const char *dir, struct seen *s)
{
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        const int t = number_behind(e->d_name, "mp_rank_"), z = number_behind(e->d_name, "zero_pp_rank_");
        if (t < 0 && z < 0) continue;
        if (t >= 0) keep_max(&s->tensor, t + 1);
        if (z >= 0) keep_max(&s->data, z + 1);
        const char *under = t >= 0 ? strchr(e->d_name + strlen("mp_rank_"), '_') : NULL;
        if (under && under[1] >= '0' && under[1] <= '9') keep_max(&s->pipeline, (int)strtol(under + 1, NULL, 10) + 1);
        if (z >= 0 || ft_str_ends(e->d_name, "_model_states.pt")) s->deepspeed = true;
    }
    if (d) closedir(d);
}

static void look_at(const char *dir, const char *name, struct seen *s)
{
    struct ft_buf sub = {0};
    ft_buf_addf(&sub, "%s/%s", dir, name);
    const bool iter = number_behind(name, "iter_") >= 0, step = number_behind(name, "global_step") >= 0;
    if ((iter || step) && ft_is_dir(sub.data)) {
        s->megatron |= iter;
        s->deepspeed |= step;
        look_at_ranks(sub.data, s);
        example(s, name);
    }
    ft_buf_fini(&sub);
    int part = -1;
    if (!strcmp(name, "latest_checkpointed_iteration.txt")) s->megatron = true;
    else if (ft_str_ends(name, ".distcp") || !strcmp(name, ".metadata")) s->distributed = true;
    else if (number_behind(name, "zero_pp_rank_") >= 0 || ft_str_ends(name, "_model_states.pt")) s->deepspeed = true;
    else if ((part = number_behind(name, "consolidated.")) >= 0 && ft_str_ends(name, ".pth")) s->meta = true;
    else if (number_behind(name, "model-rank-") >= 0 && ft_str_ends(name, ".safetensors")) {
        s->vllm = true;
        keep_max(&s->vllm_tensor, number_behind(name, "model-rank-") + 1);
    } else if (ft_str_ends(name, ".gguf")) s->gguf = true;
    else if (pickle_name(name)) s->pickle = true;
    else return;
    if (part >= 0) keep_max(&s->meta_parts, part + 1);
    example(s, name);
}

static enum ft_code say(const char *dir, const struct seen *s, struct ft_err *err)
{
    if (s->deepspeed)
        ft_fail(err, FT_UNSUPPORTED, "'%s' is a DeepSpeed checkpoint for %d data ranks, tensor size %d (%s)", dir,
                s->data > 1 ? s->data : 1, s->tensor > 1 ? s->tensor : 1, s->example);
    else if (s->megatron)
        ft_fail(err, FT_UNSUPPORTED, "'%s' is a Megatron-LM checkpoint: pickled slices for tensor size %d, pipeline size %d (%s)",
                dir, s->tensor > 1 ? s->tensor : 1, s->pipeline > 1 ? s->pipeline : 1, s->example);
    else if (s->distributed)
        ft_fail(err, FT_UNSUPPORTED, "'%s' is a PyTorch/Megatron distributed checkpoint: pickled metadata (%s)", dir, s->example);
    else if (s->meta)
        ft_fail(err, FT_UNSUPPORTED, "'%s' is an original Meta release: slices for tensor size %d (%s)", dir, s->meta_parts,
                s->example);
    else if (s->vllm)
        ft_fail(err, FT_UNSUPPORTED, "'%s' is vLLM/SGLang sharded state: slices for tensor size %d (%s)", dir, s->vllm_tensor,
                s->example);
    else if (s->gguf) ft_fail(err, FT_UNSUPPORTED, "'%s' holds a quantised single file, not a training base (%s)", dir, s->example);
    else if (s->pickle)
        ft_fail(err, FT_UNSUPPORTED, "'%s' holds pickled or archived weights, which are never executed (%s)", dir, s->example);
    else return FT_OK;
    return ft_fix(err, "%s", help);
}

/* A file by itself ("model.gguf"): its folder and its name. */
static void look_at_file(const char *path, struct seen *s)
{
    struct ft_buf dir = {0};
    const char *slash = strrchr(path, '/');
    if (slash) ft_buf_add(&dir, path, (size_t)(slash - path) + 1);
    else ft_buf_adds(&dir, ".");
    look_at(dir.data, slash ? slash + 1 : path, s);
    if (s->deepspeed) look_at_ranks(dir.data, s); /* the others stand beside it */
    ft_buf_fini(&dir);
}

enum ft_code ft_import_foreign(const char *dir, struct ft_err *err)
{
    struct seen s = {0};
    if (ft_is_file(dir)) {
        look_at_file(dir, &s);
        return say(dir, &s, err);
    }
    look_at_ranks(dir, &s);
    if (s.tensor && !s.deepspeed) s.megatron = true;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) look_at(dir, e->d_name, &s);
    if (d) closedir(d);
    return say(dir, &s, err);
}
