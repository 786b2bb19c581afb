/* make_folder DIR [LAYERS [HEADS KV_HEADS]]: a model folder of SmolLM2-135M's sizes (or fewer layers, or other heads) with random bf16
 * weights, for measurements. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/bits/mix64.h"
#include "base/fd.h"
#include "runtime/arch/config.h"
#include "runtime/ckpt/safetensors.h"

static const char config_text[] =
    "{\n  \"architectures\": [\"LlamaForCausalLM\"],\n  \"model_type\": \"llama\",\n  \"hidden_size\": 576,\n  "
    "\"intermediate_size\": 1536,\n"
    "  \"num_hidden_layers\": %d,\n  \"num_attention_heads\": %d,\n  \"num_key_value_heads\": %d,\n  \"max_position_embeddings\": "
    "2048,\n"
    "  \"rms_norm_eps\": 1e-05,\n  \"rope_theta\": 100000,\n  \"tie_word_embeddings\": true,\n  \"hidden_act\": \"silu\",\n"
    "  \"torch_dtype\": \"bfloat16\",\n  \"vocab_size\": 49152\n}\n";

static enum ft_code put(struct ft_st_writer *w, const struct ft_param *p, size_t i, struct ft_err *err)
{
    const int64_t n = ft_param_count(p);
    float *x = ft_xcalloc((size_t)n, sizeof *x);
    for (int64_t e = 0; e < n; e++) /* norms 1, the rest uniform in +-0.07: a deviation of 0.04 */
        x[e] = p->n_dims == 1
                   ? 1
                   : (float)(((double)(ft_mix64((uint64_t)i << 40 ^ (uint64_t)e) >> 11) / 9007199254740992.0 - 0.5) * 0.14);
    enum ft_code code = ft_st_writer_put_f32(w, i, 0, x, n, err);
    free(x);
    return code;
}

static enum ft_code make(const char *dir, const int *sizes, struct ft_err *err)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    struct ft_buf text = {0}, path = {0};
    struct ft_arena *arena = ft_arena_create();
    struct ft_model_config c;
    size_t n = 0;
    ft_buf_addf(&text, config_text, sizes[0], sizes[1], sizes[2]);
    ft_buf_addf(&path, "%s/config.json", dir);
    enum ft_code code = ft_mkdirs(dir, 0777, err);
    if (!code) code = ft_write_file(path.data, text.data, text.n, 0666, err);
    if (!code) code = ft_model_config_read(dir, arena, &c, err);
    const struct ft_param *p = code ? NULL : ft_model_config_rows(&c, 1, 0, 1, 0, 1, arena, &n, NULL);
    struct ft_st_out *out = ft_arena_array(arena, n + 1, sizeof *out);
    for (size_t i = 0; i < n; i++) out[i] = (struct ft_st_out){p[i].name, FT_BF16, p[i].n_dims, {p[i].dims[0], p[i].dims[1]}};
    ft_buf_clear(&path);
    ft_buf_addf(&path, "%s/model.safetensors", dir);
    const struct ft_st_writer_options o = {.metadata = metadata};
    struct ft_st_writer *w = NULL;
    if (!code) code = ft_st_writer_create(path.data, out, n, &o, &w, err);
    for (size_t i = 0; !code && i < n; i++) code = put(w, &p[i], i, err);
    if (!code) code = ft_st_writer_commit(w, err);
    ft_st_writer_destroy(w);
    ft_buf_fini(&text);
    ft_buf_fini(&path);
    ft_arena_destroy(arena);
    return code;
}

int main(int argc, char **argv)
{
    struct ft_err err;
    int64_t value;
    int sizes[] = {30, 9, 3}; /* layers, heads, kv heads */
    bool good = argc >= 2 && argc <= 5;
    for (int i = 2; good && i < argc; i++) {
        good = ft_parse_i64(argv[i], 1, 1000, &value);
        sizes[i - 2] = (int)value;
    }
    if (!good) {
        fprintf(stderr, "usage: make_folder DIR [LAYERS [HEADS KV_HEADS]]\n");
        return 2;
    }
    if (!make(argv[1], sizes, &err)) return 0;
    ft_err_print(stderr, "make_folder", &err);
    return 1;
}
