/* Checkpoints over tensor ranks, stages and data ranks at once: what one layout saves every other loads, bit for bit, and saves as the
 * same state. Rows, shards and replicas are those of real models; values are known functions of the logical element. */
#include "drive.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "runtime/ckpt/manifest.h"

/* GQA (2 kv heads), SwiGLU, a head of its own, an odd vocabulary. */
static const char llama[] =
    "{\"model_type\":\"llama\",\"vocab_size\":37,\"hidden_size\":16,\"num_hidden_layers\":4,\"num_attention_heads\":8,"
    "\"num_key_value_heads\":2,\"head_dim\":2,\"intermediate_size\":24,\"max_position_embeddings\":32,\"tie_word_embeddings\":"
    "false}";
/* Fused q k v with biases, learned positions, a tied head. */
static const char gpt2[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":53,\"n_positions\":12,\"n_embd\":16,\"n_layer\":4,\"n_head\":8}";
static const char qwen3[] =
    "{\"model_type\":\"qwen3\",\"vocab_size\":31,\"hidden_size\":16,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":1,\"head_dim\":4,\"intermediate_size\":16,\"max_position_embeddings\":32,\"tie_word_embeddings\":"
    "true}";

struct layout {
    int tensor, pipeline, data;
};
static int world(struct layout l) { return l.tensor * l.pipeline * l.data; }

static struct ft_manifest *read_manifest(const char *dir, const char *name)
{
    char path[512];
    struct ft_buf text = {0};
    struct ft_manifest *m = NULL;
    struct ft_err err;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (ft_manifest_read(path, &text, &err) || ft_manifest_parse(path, text.data, text.n, &m, &err)) fail_msg("%s", err.text);
    ft_buf_fini(&text);
    return m;
}

/* The same tensors with the same hashes, each logical byte once. */
static void same_state(const struct ft_manifest *a, const struct ft_manifest *b)
{
    assert_int_equal(a->tensors.n, b->tensors.n);
    assert_int_equal(a->derived.n, b->derived.n);
    for (size_t i = 0; i < a->tensors.n; i++) {
        const struct ft_mf_tensor *x = &a->tensors.v[i], *y = ft_mf_find(&b->tensors, x->name);
        if (!y || x->hash != y->hash || !x->hash || x->dims[0] != y->dims[0] || x->dims[1] != y->dims[1])
            fail_msg("%s is another tensor", x->name);
    }
    for (size_t i = 0; i < a->derived.n; i++)
        if (a->derived.v[i].hash != b->derived.v[i].hash) fail_msg("%s is another tensor", a->derived.v[i].name);
    assert_int_equal(a->bytes, b->bytes);
    assert_true(a->state_hash == b->state_hash);
    int64_t written = 0;
    for (size_t i = 0; i < b->n_files; i++) written += b->files[i].size - b->files[i].header_bytes;
    assert_int_equal(written, b->bytes);
    assert_true(scalars_equal(&a->scalars, &b->scalars));
}

/* All that one process can check of a checkpoint on the disk. */
static void verify(const char *dir, const char *name)
{
    char path[512], word[] = "verify", said[4096] = "";
    snprintf(path, sizeof path, "%s/%s", dir, name);
    char *words[] = {word, path, NULL};
    FILE *f = fmemopen(said, sizeof said - 1, "w");
    assert_non_null(f);
    const int rc = ft_ckpt_command(2, words, f, f);
    fclose(f);
    if (rc) fail_msg("%s", said);
}

static void save_at(struct layout l, const char *dir, const char *config, enum ft_ckpt_precision precision)
{
    struct ranks r;
    struct job j = {.dir = dir, .run_id = "run-a", .precision = precision, .layout = {l.tensor, l.pipeline, config}, .saves = {3}};
    drive(&j, world(l), &r);
    went_well(&r, 0);
    verify(dir, "step_00000003");
}

/* Loads what `from` has at a layout and saves it at once, elsewhere, as it came. */
static void load_and_save(struct layout l, const char *from, const char *dir, const char *config, enum ft_ckpt_precision precision)
{
    struct ranks r;
    char path[512], want[96];
    snprintf(path, sizeof path, "%s/step_00000003", from);
    struct job j = {.dir = dir,
                    .run_id = "run-b",
                    .resume = path,
                    .precision = precision,
                    .layout = {l.tensor, l.pipeline, config},
                    .loaded = true,
                    .saves = {3}};
    drive(&j, world(l), &r);
    went_well(&r, 3);
    snprintf(want, sizeof want, "now tp=%d pp=%d dp=%d)", l.tensor, l.pipeline, l.data);
    if (!strstr(r.text[0], want)) fail_msg("no '%s' in: %s", want, r.text[0]);
    verify(dir, "step_00000003");
}

static void reshard(const char *config, enum ft_ckpt_precision precision, struct layout first, const struct layout *then, size_t n)
{
    char *from = make_dir();
    save_at(first, from, config, precision);
    struct ft_manifest *a = read_manifest(from, "step_00000003");
    for (size_t i = 0; i < n; i++) {
        char *dir = make_dir();
        print_message("           (%d,%d,%d) -> (%d,%d,%d)\n", first.tensor, first.pipeline, first.data, then[i].tensor,
                      then[i].pipeline, then[i].data);
        load_and_save(then[i], from, dir, config, precision);
        struct ft_manifest *b = read_manifest(dir, "step_00000003");
        same_state(a, b);
        ft_manifest_destroy(b);
        remove_dir(dir);
    }
    ft_manifest_destroy(a);
    remove_dir(from);
}

static const struct layout grid[] = {{1, 1, 1}, {2, 2, 2}, {8, 1, 1}, {1, 4, 1}, {4, 1, 1}, {2, 1, 3}};

static void test_RT03_llama(void **state)
{
    (void)state;
    reshard(llama, FT_CKPT_BF16, (struct layout){4, 1, 2}, grid, sizeof grid / sizeof *grid);
}

static void test_RT03_gpt2(void **state)
{
    (void)state;
    reshard(gpt2, FT_CKPT_FP32, (struct layout){4, 1, 2}, grid, sizeof grid / sizeof *grid);
}

/* The other precision of each, and stages as the first layout. */
static void test_RT03_from_stages(void **state)
{
    (void)state;
    static const struct layout few[] = {{4, 1, 2}, {1, 1, 3}};
    reshard(gpt2, FT_CKPT_BF16, (struct layout){2, 2, 2}, few, 2);
    reshard(llama, FT_CKPT_FP32, (struct layout){1, 4, 2}, few, 2);
}

/* d = 2 -> 3 -> 4 -> 8 -> 1: cuts through rows of column shards, ranks without anything. */
static void test_RT05_odd_shards(void **state)
{
    (void)state;
    static const struct layout chain[] = {{2, 1, 3}, {2, 1, 4}, {1, 1, 8}, {1, 1, 1}};
    char *from = make_dir();
    save_at((struct layout){2, 1, 2}, from, qwen3, FT_CKPT_BF16);
    struct ft_manifest *first = read_manifest(from, "step_00000003");
    for (size_t i = 0; i < sizeof chain / sizeof *chain; i++) {
        char *dir = make_dir();
        load_and_save(chain[i], from, dir, qwen3, FT_CKPT_BF16);
        struct ft_manifest *m = read_manifest(dir, "step_00000003");
        same_state(first, m);
        ft_manifest_destroy(m);
        remove_dir(from);
        from = dir;
    }
    ft_manifest_destroy(first);
    remove_dir(from);
}

/* The bytes of a logical tensor as they lie in a checkpoint of one rank (one entry). */
static void read_whole(const char *dir, const char *name, float *x, size_t n)
{
    struct ft_manifest *m = read_manifest(dir, "step_00000003");
    const struct ft_mf_tensor *t = ft_mf_find(&m->tensors, name);
    char path[512];
    assert_non_null(t);
    assert_int_equal(t->n_entries, 1);
    assert_int_equal(t->entries[0].bytes, n * sizeof *x);
    snprintf(path, sizeof path, "%s/step_00000003/%s", dir, m->files[0].name);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)t->entries[0].begin, SEEK_SET), 0);
    assert_int_equal(fread(x, sizeof *x, n, f), n);
    fclose(f);
    ft_manifest_destroy(m);
}

/* Parts of fused products keep their own rows: gate g0..g3 and up u0..u3 of two ranks are g0 g1 g2 g3 and u0 u1 u2 u3, never
 * g0 g1 u0 u1; so are q, k, v and their biases. Compared as bytes with those of one rank. */
static void test_RT06_fused(void **state)
{
    (void)state;
    static const struct {
        const char *config, *name;
        size_t n;
    } rows[] = {{llama, "model.layers.1.mlp.gate_proj.weight", 24 * 16},
                {llama, "model.layers.1.mlp.up_proj.weight", 24 * 16},
                {llama, "model.layers.1.mlp.down_proj.weight", 16 * 24},
                {gpt2, "h.2.attn.c_attn.weight#q", 16 * 16},
                {gpt2, "h.2.attn.c_attn.weight#k", 16 * 16},
                {gpt2, "h.2.attn.c_attn.bias#v", 16},
                {gpt2, "h.2.mlp.c_proj.weight", 64 * 16}};
    static float one[1024], two[1024];
    const char *config = NULL;
    char *a = NULL, *b = NULL, *c = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].config != config) {
            if (config) remove_dir(a), remove_dir(b), remove_dir(c);
            config = rows[i].config;
            a = make_dir(), b = make_dir(), c = make_dir();
            save_at((struct layout){1, 1, 1}, a, config, FT_CKPT_FP32);
            save_at((struct layout){2, 1, 1}, b, config, FT_CKPT_FP32);
            load_and_save((struct layout){1, 1, 1}, b, c, config, FT_CKPT_FP32);
        }
        read_whole(a, rows[i].name, one, rows[i].n);
        read_whole(c, rows[i].name, two, rows[i].n);
        if (memcmp(one, two, rows[i].n * sizeof *one) != 0) fail_msg("%s is not what it was", rows[i].name);
    }
    remove_dir(a), remove_dir(b), remove_dir(c);
}

/* Rows that only fill up the last shards are not stored: [V,h] on disk, t = 2 -> 8 -> 1 bitwise. */
static void test_RT07_vocabulary(void **state)
{
    (void)state;
    static const struct {
        const char *config, *name;
        int64_t V;
    } rows[] = {
        {"{\"model_type\":\"llama\",\"vocab_size\":65535,\"hidden_size\":16,\"num_hidden_layers\":1,\"num_attention_heads\":8,"
         "\"num_key_value_heads\":8,\"head_dim\":2,\"intermediate_size\":8,\"max_position_embeddings\":8,"
         "\"tie_word_embeddings\":true}",
         "model.embed_tokens.weight", 65535},
        {"{\"model_type\":\"gpt2\",\"vocab_size\":50257,\"n_positions\":8,\"n_embd\":16,\"n_layer\":1,\"n_head\":8}", "wte.weight",
         50257}};
    for (size_t i = 0; i < 2; i++) {
        char *two = make_dir(), *eight = make_dir(), *one = make_dir();
        save_at((struct layout){2, 1, 1}, two, rows[i].config, FT_CKPT_FP32);
        load_and_save((struct layout){8, 1, 1}, two, eight, rows[i].config, FT_CKPT_FP32);
        load_and_save((struct layout){1, 1, 1}, eight, one, rows[i].config, FT_CKPT_FP32);
        struct ft_manifest *a = read_manifest(two, "step_00000003"), *b = read_manifest(eight, "step_00000003"),
                           *c = read_manifest(one, "step_00000003");
        same_state(a, b);
        same_state(a, c);
        const struct ft_mf_tensor *t = ft_mf_find(&b->tensors, rows[i].name);
        assert_non_null(t);
        assert_int_equal(t->dims[0], rows[i].V);
        assert_int_equal(t->dims[1], 16);
        ft_manifest_destroy(a);
        ft_manifest_destroy(b);
        ft_manifest_destroy(c);
        remove_dir(two);
        remove_dir(eight);
        remove_dir(one);
    }
}

/* A tensor that is nearly everything beside many of a few elements, over data ranks that cut it and own none or dozens of the others. */
static void test_one_huge_and_many_tiny(void **state)
{
    (void)state;
    static const char config[] =
        "{\"model_type\":\"gpt2\",\"vocab_size\":50257,\"n_positions\":8,\"n_embd\":8,\"n_layer\":12,\"n_head\":4}";
    static const struct layout then[] = {{1, 1, 3}, {1, 1, 1}};
    reshard(config, FT_CKPT_FP32, (struct layout){1, 1, 4}, then, 2);
}

/* One bit of a copy that is not stored, on the last rank that holds one. */
static void flip_first(struct fake *f, const char *name)
{
    for (size_t i = 0; i < f->buckets.n_pieces; i++)
        if (strstr(f->params[f->pieces[i].param].name, name)) {
            f->pieces[i].m[0] = nextafterf(f->pieces[i].m[0], 2);
            return;
        }
}
static void spoil_kv(struct fake *f, int rank, int n)
{
    (void)n;
    if (rank == 1) flip_first(f, "layers.0.self_attn.k_proj.weight");
}
static void spoil_embedding(struct fake *f, int rank, int n)
{
    if (rank == n - 1) flip_first(f, "embed_tokens");
}
static void spoil_norm(struct fake *f, int rank, int n)
{
    (void)n;
    if (rank == 3) flip_first(f, "layers.0.self_attn.k_norm");
}

/* Nothing is written, all ranks stop with the same sentence; the state as it should be is saved. */
static void copies_differ(const char *config, struct layout l, void (*spoil)(struct fake *f, int rank, int n), const char *text)
{
    char *dir = make_dir(), names[256];
    struct ranks r;
    struct job j = {.dir = dir, .run_id = "run-a", .layout = {l.tensor, l.pipeline, config}, .saves = {3}, .spoil = spoil};
    drive(&j, world(l), &r);
    refused(&r, FT_DATA, text);
    for (int i = 0; i < r.n; i++)
        if (!strstr(r.text[i], text)) fail_msg("rank %d did not say '%s': %s", i, text, r.text[i]);
    list_dir(dir, names, sizeof names);
    assert_string_equal(names, "");
    j.spoil = NULL;
    drive(&j, world(l), &r);
    went_well(&r, 0);
    remove_dir(dir);
}

/* The tied embedding of stages lies in the checkpoint once, is loaded into both of them, and must be the same on both. */
static void test_RT12_tied_copy(void **state)
{
    (void)state;
    static const struct layout two_stages[] = {{2, 2, 2}, {1, 2, 1}};
    reshard(qwen3, FT_CKPT_BF16, (struct layout){1, 2, 2}, two_stages, 2);
    copies_differ(qwen3, (struct layout){1, 2, 2}, spoil_embedding,
                  "optim.m/model.embed_tokens.weight is not the same on ranks 2, 3 as on ranks 0, 1");
}

/* K/V heads of more ranks than heads are stored once and must be the same on all that hold them; so must what is not cut at all. */
static void test_RT15_replicas(void **state)
{
    (void)state;
    static const struct layout then[] = {{1, 1, 1}, {2, 1, 1}};
    reshard(llama, FT_CKPT_FP32, (struct layout){4, 1, 1}, then, 2);
    reshard(qwen3, FT_CKPT_FP32, (struct layout){4, 1, 2}, then, 2);
    copies_differ(llama, (struct layout){4, 1, 1}, spoil_kv,
                  "optim.m/model.layers.0.self_attn.k_proj.weight is not the same on ranks 1, 3 as on ranks 0, 2");
    copies_differ(qwen3, (struct layout){4, 1, 1}, spoil_norm,
                  "optim.m/model.layers.0.self_attn.k_norm.weight is not the same on rank 3 as on rank 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_RT03_llama),
        cmocka_unit_test(test_RT03_gpt2),
        cmocka_unit_test(test_RT03_from_stages),
        cmocka_unit_test(test_RT05_odd_shards),
        cmocka_unit_test(test_RT06_fused),
        cmocka_unit_test(test_RT07_vocabulary),
        cmocka_unit_test(test_one_huge_and_many_tiny),
        cmocka_unit_test(test_RT12_tied_copy),
        cmocka_unit_test(test_RT15_replicas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
