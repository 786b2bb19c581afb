/* Model folders in and out: the folders of golden/hf come back bit for bit, damaged and foreign ones are refused by name. */
#include <dirent.h>
#include <ftw.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/json.h"
#include "runtime/ckpt/export.h"

static const char *const folders[] = {"llama", "smollm2", "llama31", "gpt2", "mistral", "qwen2", "qwen3", "base-en-3m"};
enum { N_FOLDERS = sizeof folders / sizeof *folders };

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}
static void remove_tree(const char *dir) { (void)nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

static const char *golden(const char *name)
{
    static char path[512];
    if (!strcmp(name, "base-en-3m")) (void)snprintf(path, sizeof path, FT_SOURCE "/examples/01_laptop/model");
    else (void)snprintf(path, sizeof path, FT_GOLDEN "/hf/%s", name);
    return path;
}

struct opened {
    struct ft_arena *arena;
    struct ft_model_config config;
    struct ft_import *m;
    const struct ft_param *params;
    size_t n;
};

static enum ft_code open_folder(struct opened *o, const char *dir, struct ft_err *err)
{
    memset(o, 0, sizeof *o);
    o->arena = ft_arena_create();
    enum ft_code code = ft_import_config(dir, o->arena, &o->config, err);
    if (!code) code = ft_import_open(dir, &o->config, &o->m, err);
    if (!code) o->params = ft_import_params(o->m, &o->n);
    return code;
}
static void close_folder(struct opened *o)
{
    ft_import_close(o->m);
    ft_arena_destroy(o->arena);
}

static enum ft_code fetch(void *ctx, size_t i, int64_t from, int64_t to, float *out, struct ft_err *err)
{
    const struct opened *o = ctx;
    return ft_import_read(o->m, &o->params[i], from, to, out, err);
}

static void same_file(const char *a_dir, const char *b_dir, const char *name)
{
    struct ft_buf a = {0}, b = {0}, path = {0};
    struct ft_err err;
    ft_buf_addf(&path, "%s/%s", a_dir, name);
    assert_int_equal(ft_read_file(path.data, 1 << 26, &a, &err), FT_OK);
    ft_buf_clear(&path);
    ft_buf_addf(&path, "%s/%s", b_dir, name);
    if (ft_read_file(path.data, 1 << 26, &b, &err)) fail_msg("%s", err.text);
    if (a.n != b.n || memcmp(a.data, b.data, a.n) != 0) fail_msg("%s differs", path.data);
    ft_buf_fini(&a);
    ft_buf_fini(&b);
    ft_buf_fini(&path);
}

/* Every tensor of the export is in the source with the same bytes; returns their number. */
static size_t same_tensors(const char *out_dir, const char *src_dir)
{
    struct ft_st_folder *a = NULL, *b = NULL;
    struct ft_err err;
    if (ft_st_folder_open(out_dir, "model", &a, &err) || ft_st_folder_open(src_dir, "model", &b, &err)) fail_msg("%s", err.text);
    const size_t n = ft_st_folder_count(a);
    for (size_t i = 0; i < n; i++) {
        const struct ft_st_tensor *x = ft_st_folder_at(a, i), *y = ft_st_folder_find(b, x->name);
        if (!y || x->type != y->type || x->count != y->count || x->n_dims != y->n_dims) fail_msg("%s is another tensor", x->name);
        const size_t bytes = (size_t)(x->end - x->begin);
        char *p = ft_xcalloc(bytes, 2), *q = p + bytes;
        assert_int_equal(ft_st_read(x, 0, x->count, p, &err), FT_OK);
        assert_int_equal(ft_st_read(y, 0, y->count, q, &err), FT_OK);
        if (memcmp(p, q, bytes) != 0) fail_msg("%s has other bytes", x->name);
        free(p);
    }
    assert_string_equal(ft_st_folder_metadata(a, "format"), "pt");
    ft_st_folder_close(a);
    ft_st_folder_close(b);
    return n;
}

static const char *temp_dir(void)
{
    static char dir[64];
    (void)snprintf(dir, sizeof dir, "/tmp/ft-hf-folder-XXXXXX");
    assert_non_null(mkdtemp(dir));
    return dir;
}

static void in_and_out_is_bit_for_bit(void **state)
{
    (void)state;
    const char *tmp = temp_dir();
    int done = 0;
    for (size_t f = 0; f < N_FOLDERS; f++)
        for (int shards = 0; shards < 2; shards++) {
            struct opened o;
            struct ft_err err;
            if (open_folder(&o, golden(folders[f]), &err)) fail_msg("%s: %s", folders[f], err.text);
            int64_t sum = 0;
            for (size_t i = 0; i < o.n; i++) sum += ft_param_count(&o.params[i]);
            assert_int_equal(sum, ft_model_config_params(&o.config));
            struct ft_buf out = {0};
            ft_buf_addf(&out, "%s/%s-%d", tmp, folders[f], shards);
            const struct ft_export e = {.dir = out.data,
                                        .base_dir = golden(folders[f]),
                                        .base = o.m,
                                        .dtype = FT_N_DTYPES,
                                        .terminator_id = -1,
                                        .max_file_bytes = shards ? 60000 : 0,
                                        .fetch = fetch,
                                        .ctx = &o};
            if (ft_export_full(&e, &err)) fail_msg("%s: %s", folders[f], err.text);
            size_t n;
            (void)ft_import_tensors(o.m, &n);
            assert_int_equal(same_tensors(out.data, golden(folders[f])), n);
            same_file(golden(folders[f]), out.data, "config.json");
            if (!strcmp(folders[f], "base-en-3m")) {
                static const char *const files[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                                    "generation_config.json"};
                for (size_t i = 0; i < 4; i++) same_file(golden(folders[f]), out.data, files[i]);
            }
            struct ft_buf one = {0};
            ft_buf_addf(&one, "%s/README.md", out.data);
            assert_false(ft_is_file(one.data));
            assert_int_equal(ft_export_full(&e, &err), FT_CONFIG); /* the target exists now */
            ft_buf_fini(&one);
            ft_buf_fini(&out);
            close_folder(&o);
            done++;
        }
    assert_int_equal(done, 2 * N_FOLDERS);
    remove_tree(tmp);
}

/* Any layout reads what the whole has: parameters of ranks of 2 and 4 put together. */
static void ranks_read_their_part(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "gpt2", "qwen2"};
    static const int tensors[] = {2, 4, 2};
    for (size_t f = 0; f < 3; f++) {
        struct opened o;
        struct ft_err err;
        if (open_folder(&o, golden(names[f]), &err)) fail_msg("%s", err.text);
        for (int r = 0; r < tensors[f]; r++) {
            size_t n;
            const struct ft_param *rows = ft_model_config_rows(&o.config, tensors[f], r, 1, 0, 1, o.arena, &n, NULL);
            assert_int_equal(n, o.n);
            for (size_t i = 0; i < n; i++) {
                const struct ft_param *p = &rows[i], *w = &o.params[i];
                const int64_t size = ft_param_local(p);
                float *part = ft_xcalloc((size_t)size + 1, sizeof *part),
                      *whole = ft_xcalloc((size_t)ft_param_count(w), sizeof *whole);
                /* in odd stretches, as ZeRO cuts them */
                for (int64_t from = 0, to; from < size; from = to) {
                    to = from + 37 < size ? from + 37 : size;
                    assert_int_equal(ft_import_read(o.m, p, from, to, part + from, &err), FT_OK);
                }
                assert_int_equal(ft_import_read(o.m, w, 0, ft_param_count(w), whole, &err), FT_OK);
                for (int64_t e = 0; e < size; e++) {
                    const int64_t row = p->origin[0] + e / p->local[1], col = p->origin[1] + e % p->local[1];
                    const float want = row < p->dims[0] ? whole[row * p->dims[1] + col] : 0;
                    if (part[e] != want) fail_msg("%s rank %d of %d element %lld", p->name, r, tensors[f], (long long)e);
                }
                free(part);
                free(whole);
            }
        }
        close_folder(&o);
    }
}

/* ---- folders that are made ---- */

struct tensor {
    const char *name;
    int64_t dims[2];
    int n_dims;
    float value; /* of all elements; the first is NaN when it is NaN */
};

static const char tiny[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 8, "
    "\"intermediate_size\": 12, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
    "\"vocab_size\": 10, \"max_position_embeddings\": 64, \"eos_token_id\": 2, \"tie_word_embeddings\": %s}";
static const struct tensor whole[] = {
    {"model.embed_tokens.weight", {10, 8}, 2, 1},
    {"model.layers.0.input_layernorm.weight", {8, 1}, 1, 1},
    {"model.layers.0.self_attn.q_proj.weight", {8, 8}, 2, 1},
    {"model.layers.0.self_attn.k_proj.weight", {4, 8}, 2, 1},
    {"model.layers.0.self_attn.v_proj.weight", {4, 8}, 2, 1},
    {"model.layers.0.self_attn.o_proj.weight", {8, 8}, 2, 1},
    {"model.layers.0.post_attention_layernorm.weight", {8, 1}, 1, 1},
    {"model.layers.0.mlp.gate_proj.weight", {12, 8}, 2, 1},
    {"model.layers.0.mlp.up_proj.weight", {12, 8}, 2, 1},
    {"model.layers.0.mlp.down_proj.weight", {8, 12}, 2, 1},
    {"model.norm.weight", {8, 1}, 1, 1},
    {"lm_head.weight", {10, 8}, 2, 1},
};
enum { N_WHOLE = sizeof whole / sizeof *whole };

static void put_text(const char *dir, const char *name, const char *text)
{
    struct ft_buf p = {0};
    struct ft_err err;
    ft_buf_addf(&p, "%s/%s", dir, name);
    assert_int_equal(ft_write_file(p.data, text, strlen(text), 0600, &err), FT_OK);
    ft_buf_fini(&p);
}

static void put_tensors(const char *dir, const struct tensor *t, size_t n, enum ft_dtype type, const char *const *metadata)
{
    struct ft_st_out out[N_WHOLE + 4];
    for (size_t i = 0; i < n; i++) out[i] = (struct ft_st_out){t[i].name, type, t[i].n_dims, {t[i].dims[0], t[i].dims[1]}};
    struct ft_buf p = {0};
    struct ft_err err;
    struct ft_st_writer *w = NULL;
    ft_buf_addf(&p, "%s/model.safetensors", dir);
    const struct ft_st_writer_options o = {.metadata = metadata};
    assert_int_equal(ft_st_writer_create(p.data, out, n, &o, &w, &err), FT_OK);
    for (size_t i = 0; i < n; i++)
        for (int64_t e = 0; e < t[i].dims[0] * t[i].dims[1]; e++) {
            const float x = isnan(t[i].value) && e ? 1 : t[i].value;
            if (type == FT_U8) assert_int_equal(ft_st_writer_put(w, i, e, "\1", 1, &err), FT_OK);
            else assert_int_equal(ft_st_writer_put_f32(w, i, e, &x, 1, &err), FT_OK);
        }
    assert_int_equal(ft_st_writer_commit(w, &err), FT_OK);
    ft_st_writer_destroy(w);
    ft_buf_fini(&p);
}

static void put_config(const char *dir, bool tied)
{
    struct ft_buf b = {0};
    ft_buf_addf(&b, tiny, tied ? "true" : "false");
    put_text(dir, "config.json", b.data);
    ft_buf_fini(&b);
}

static void expect(const char *dir, enum ft_code code, const char *text)
{
    struct opened o;
    struct ft_err err = {0};
    const enum ft_code got = open_folder(&o, dir, &err);
    if (got != code || !strstr(err.text, text)) fail_msg("%s: code %s, text: %s", text, ft_code_name(got), err.text);
    close_folder(&o);
}

static void refusals_name_the_tensor(void **state)
{
    (void)state;
    const char *dir = temp_dir();
    struct tensor t[N_WHOLE + 1];
    struct opened o;
    struct ft_err err;
    put_config(dir, false);
    put_tensors(dir, whole, N_WHOLE, FT_F32, NULL);
    assert_int_equal(open_folder(&o, dir, &err), FT_OK);
    close_folder(&o);
    put_tensors(dir, whole, N_WHOLE - 1, FT_F32, NULL);
    expect(dir, FT_DATA, "lm_head.weight");
    memcpy(t, whole, sizeof whole);
    t[2].dims[0] = 4;
    put_tensors(dir, t, N_WHOLE, FT_F32, NULL);
    expect(dir, FT_DATA, "q_proj.weight is [4,8]");
    expect(dir, FT_DATA, "slice of tensor size 2");
    t[2].dims[0] = 7;
    put_tensors(dir, t, N_WHOLE, FT_F32, NULL);
    expect(dir, FT_DATA, "config.json says [8,8]");
    memcpy(t, whole, sizeof whole);
    t[N_WHOLE] = (struct tensor){"model.layers.0.self_attn.q_proj.bias", {8, 1}, 1, 0};
    put_tensors(dir, t, N_WHOLE + 1, FT_F32, NULL);
    expect(dir, FT_DATA, "q_proj.bias");
    t[N_WHOLE] = (struct tensor){"model.layers.0.self_attn.rotary_emb.inv_freq", {2, 1}, 1, 0};
    put_tensors(dir, t, N_WHOLE + 1, FT_F32, NULL);
    assert_int_equal(open_folder(&o, dir, &err), FT_OK);
    close_folder(&o);
    put_tensors(dir, whole, N_WHOLE, FT_U8, NULL);
    expect(dir, FT_UNSUPPORTED, "U8");
    remove_tree(dir);
}

static void values_that_are_not_finite(void **state)
{
    (void)state;
    const char *dir = temp_dir();
    const float bad[] = {NAN, INFINITY};
    for (size_t i = 0; i < 2; i++) {
        struct tensor t[N_WHOLE];
        memcpy(t, whole, sizeof whole);
        t[7].value = bad[i];
        put_config(dir, false);
        put_tensors(dir, t, N_WHOLE, FT_F32, NULL);
        struct opened o;
        struct ft_err err;
        float x[96];
        assert_int_equal(open_folder(&o, dir, &err), FT_OK);
        assert_int_equal(ft_import_read(o.m, &o.params[2], 0, 64, x, &err), FT_OK);
        size_t gate = 0;
        while (!strstr(o.params[gate].name, "gate_proj")) gate++;
        assert_int_equal(ft_import_read(o.m, &o.params[gate], 0, 96, x, &err), FT_DATA);
        assert_non_null(strstr(err.text, i ? "infinity" : "NaN"));
        assert_non_null(strstr(err.text, "gate_proj.weight"));
        close_folder(&o);
    }
    remove_tree(dir);
}

static void rt12_tied_heads(void **state)
{
    (void)state;
    const char *dir = temp_dir();
    struct tensor t[N_WHOLE];
    struct opened o;
    struct ft_err err;
    size_t n;
    memcpy(t, whole, sizeof whole);
    put_config(dir, true);
    put_tensors(dir, whole, N_WHOLE, FT_BF16, NULL); /* present and equal */
    assert_int_equal(open_folder(&o, dir, &err), FT_OK);
    (void)ft_import_tensors(o.m, &n);
    assert_int_equal(n, N_WHOLE - 1);
    close_folder(&o);
    put_tensors(dir, whole, N_WHOLE - 1, FT_BF16, NULL); /* absent */
    assert_int_equal(open_folder(&o, dir, &err), FT_OK);
    close_folder(&o);
    t[N_WHOLE - 1].value = 2; /* present and different */
    put_tensors(dir, t, N_WHOLE, FT_BF16, NULL);
    expect(dir, FT_DATA, "lm_head.weight differs from model.embed_tokens.weight from row 0 on");
    static const char *const alias[] = {"format", "pt", "model.embed_tokens.weight", "lm_head.weight", NULL};
    put_tensors(dir, t + 1, N_WHOLE - 1, FT_F32, alias); /* only the head is stored, the embedding is its alias */
    assert_int_equal(open_folder(&o, dir, &err), FT_OK);
    float x;
    assert_int_equal(ft_import_read(o.m, &o.params[0], 5, 6, &x, &err), FT_OK);
    assert_true(x == 2);
    close_folder(&o);
    remove_tree(dir);
}

static void foreign_checkpoints_are_told_apart(void **state)
{
    (void)state;
    static const struct {
        const char *files[3], *said;
    } kinds[] = {
        {{"latest_checkpointed_iteration.txt", "iter_0000100/mp_rank_01_003/x"},
         "Megatron-LM checkpoint: pickled slices for tensor size 2, pipeline size 4"},
        {{"__0_0.distcp", ".metadata"}, "PyTorch/Megatron distributed checkpoint"},
        {{"global_step10/zero_pp_rank_3_mp_rank_00_optim_states.pt", "global_step10/mp_rank_01_model_states.pt"},
         "DeepSpeed checkpoint for 4 data ranks, tensor size 2"},
        {{"consolidated.00.pth", "consolidated.07.pth"}, "original Meta release: slices for tensor size 8"},
        {{"model-rank-1-part-0.safetensors"}, "vLLM/SGLang sharded state: slices for tensor size 2"},
        {{"mp_rank_01_model_states.pt"}, "DeepSpeed checkpoint for 1 data ranks, tensor size 2"},
        {{"pytorch_model-00001-of-00002.bin"}, "never executed"},
        {{"weights.pt"}, "never executed"},
        {{"weights.pth"}, "never executed"},
        {{"model.nemo"}, "never executed"},
        {{"tiny.Q4_0.gguf"}, "quantised single file"},
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const char *dir = temp_dir();
        for (size_t i = 0; i < 3 && kinds[k].files[i]; i++) {
            struct ft_buf p = {0};
            struct ft_err err;
            ft_buf_addf(&p, "%s/%s", dir, kinds[k].files[i]);
            *strrchr(p.data, '/') = 0;
            assert_int_equal(ft_mkdirs(p.data, 0700, &err), FT_OK);
            ft_buf_fini(&p);
            put_text(dir, kinds[k].files[i], "x");
        }
        expect(dir, FT_UNSUPPORTED, kinds[k].said);
        put_config(dir, false); /* with one, too */
        expect(dir, FT_UNSUPPORTED, kinds[k].said);
        remove_tree(dir);
    }
}

static void export_changes_only_what_it_must(void **state)
{
    (void)state;
    const char *dir = temp_dir();
    put_config(dir, false);
    put_tensors(dir, whole, N_WHOLE, FT_BF16, NULL);
    put_text(dir, "generation_config.json", "{\n  \"eos_token_id\": 7,\n  \"top_p\": 0.8\n}\n");
    put_text(dir, "tokenizer.json", "{\"any\": \"bytes\"}");
    put_text(dir, "LICENSE.txt", "mine");
    put_text(dir, "README.md", "not copied");
    put_text(dir, "tokenizer_config.json", "{\"a\": 1, \"chat_template\": \"{{ y }}\", \"b\": 2}");
    struct opened o;
    struct ft_err err;
    assert_int_equal(open_folder(&o, dir, &err), FT_OK);
    struct ft_buf out = {0}, b = {0}, p = {0};
    ft_buf_addf(&out, "%s/deep/er/out/", dir);
    struct ft_export e = {.dir = out.data,
                          .base_dir = dir,
                          .base = o.m,
                          .dtype = FT_F32,
                          .terminator_id = 5,
                          .chat_template = "{{ x }}",
                          .fetch = fetch,
                          .ctx = &o};
    if (ft_export_full(&e, &err)) fail_msg("%s", err.text);
    ft_buf_addf(&p, "%s/generation_config.json", out.data);
    assert_int_equal(ft_read_file(p.data, 1000, &b, &err), FT_OK);
    assert_string_equal(b.data, "{\n  \"eos_token_id\": [5, 7],\n  \"top_p\": 0.8\n}\n");
    ft_buf_clear(&p);
    ft_buf_addf(&p, "%s/config.json", out.data);
    assert_int_equal(ft_read_file(p.data, 10000, &b, &err), FT_OK);
    assert_non_null(strstr(b.data, "\"torch_dtype\": \"float32\""));
    ft_buf_clear(&p);
    ft_buf_addf(&p, "%s/chat_template.jinja", out.data);
    assert_int_equal(ft_read_file(p.data, 10000, &b, &err), FT_OK);
    assert_string_equal(b.data, "{{ x }}");
    ft_buf_clear(&p);
    ft_buf_addf(&p, "%s/tokenizer_config.json", out.data);
    assert_int_equal(ft_read_file(p.data, 10000, &b, &err), FT_OK);
    assert_string_equal(b.data, "{\"a\": 1, \"chat_template\": \"{{ x }}\", \"b\": 2}");
    same_file(dir, out.data, "tokenizer.json");
    same_file(dir, out.data, "LICENSE.txt");
    ft_buf_clear(&p);
    ft_buf_addf(&p, "%s/README.md", out.data);
    assert_false(ft_is_file(p.data));
    close_folder(&o);
    assert_int_equal(open_folder(&o, out.data, &err), FT_OK); /* our own reader takes it */
    close_folder(&o);
    ft_buf_fini(&out);
    ft_buf_fini(&b);
    ft_buf_fini(&p);
    remove_tree(dir);
}

static enum ft_code fails(void *ctx, size_t i, int64_t from, int64_t to, float *out, struct ft_err *err)
{
    (void)from;
    memset(out, 0, (size_t)(to - from) * sizeof *out);
    (void)ctx;
    return i == 3 ? ft_fail(err, FT_IO, "no bytes today") : FT_OK;
}

static void a_failed_export_leaves_nothing(void **state)
{
    (void)state;
    const char *dir = temp_dir();
    put_config(dir, false);
    put_tensors(dir, whole, N_WHOLE, FT_BF16, NULL);
    struct opened o;
    struct ft_err err;
    assert_int_equal(open_folder(&o, dir, &err), FT_OK);
    struct ft_buf out = {0};
    ft_buf_addf(&out, "%s/out", dir);
    const struct ft_export e = {
        .dir = out.data, .base_dir = dir, .base = o.m, .dtype = FT_N_DTYPES, .terminator_id = -1, .fetch = fails};
    assert_int_equal(ft_export_full(&e, &err), FT_IO);
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *x; (x = readdir(d));) n += x->d_name[0] != '.';
    closedir(d);
    assert_int_equal(n, 2); /* config.json, model.safetensors */
    ft_buf_fini(&out);
    close_folder(&o);
    remove_tree(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_and_out_is_bit_for_bit),
        cmocka_unit_test(ranks_read_their_part),
        cmocka_unit_test(refusals_name_the_tensor),
        cmocka_unit_test(values_that_are_not_finite),
        cmocka_unit_test(rt12_tied_heads),
        cmocka_unit_test(foreign_checkpoints_are_told_apart),
        cmocka_unit_test(export_changes_only_what_it_must),
        cmocka_unit_test(a_failed_export_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
