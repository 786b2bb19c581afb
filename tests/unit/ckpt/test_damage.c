/* RT-04: one thing is wrong with the newest checkpoint. Named exactly when it was asked for by number; passed over for the older one
 * under auto (damage), refused at once (another model). Also hostile manifests: refused in bounded time and memory. */
#include "drive.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits/mix64.h"
#include "base/fd.h"
#include "base/hash.h"
#include "runtime/ckpt/manifest.h"

static const char w0[] = "w-00000-of-00002.safetensors", w1[] = "w-00001-of-00002.safetensors";

static void begin(char **dir, char two[600], enum ft_ckpt_precision precision)
{
    struct ranks r;
    *dir = make_dir();
    snprintf(two, 600, "%s/step_00000002", *dir);
    struct job j = {.dir = *dir, .run_id = "run-a", .precision = precision, .saves = {1, 2}};
    drive(&j, 2, &r);
    went_well(&r, 0);
}

static void delete_file(const char *two)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", two, w1);
    assert_int_equal(unlink(path), 0);
}

static void cut_byte(const char *two)
{
    size_t n;
    char *text = slurp(two, w1, &n);
    spill(two, w1, text, n - 1);
    free(text);
}

static void flip_data(const char *two) { flip_byte(two, w0, -9); }
static void flip_header(const char *two) { flip_byte(two, w0, 40); }
static void flip_manifest(const char *two) { flip_byte(two, "manifest.json", 300); }

static void cut_manifest(const char *two)
{
    size_t n;
    char *text = slurp(two, "manifest.json", &n);
    spill(two, "manifest.json", text, n / 2);
    free(text);
}

/* The first entry of the first tensor whose line begins with a name; the text up to the next one. */
static char *entry_of(const char *two, const char *name, int which)
{
    size_t n;
    char *text = slurp(two, "manifest.json", &n), key[200];
    snprintf(key, sizeof key, "{\"name\":\"%s\"", name);
    char *line = strstr(text, key), *at = line ? strstr(line, "{\"offset\"") : NULL;
    for (int i = 0; i < which && at; i++) at = strstr(at + 1, "{\"offset\"");
    assert_non_null(at);
    char *entry = strndup(at, (size_t)(strchr(at, '}') - at) + 1);
    free(text);
    return entry;
}

/* The embedding is cut between the two ranks: its m has entries of both. */
static const char embed_m[] = "optim.m/model.embed_tokens.weight";

static void remove_entry(const char *two)
{
    char *one = entry_of(two, embed_m, 1), with[1000];
    snprintf(with, sizeof with, ",%s", one);
    edit_manifest(two, with, "");
    free(one);
}

static void rename_key(const char *two) { edit_manifest(two, "\"optim.v/model.norm.weight\"", "\"optim.v/model.norm.weights\""); }

/* state_hash is the sum over names and hashes: makes it right again after one of them was changed. */
static void mend_state_hash(const char *two)
{
    size_t n;
    char *text = slurp(two, "manifest.json", &n), from[64], to[64];
    uint64_t hash = 0;
    for (char *p = strstr(text, "\"tensors\":["); (p = strstr(p, "{\"name\":\"")); p++) {
        const char *name = p + 9, *end = strchr(name, '"');
        hash += ft_mix64(strtoull(strstr(p, "\"hash\":\"") + 8, NULL, 16) ^ ft_fnv1a64(name, (size_t)(end - name)));
    }
    snprintf(from, sizeof from, "%.30s", strstr(text, "\"state_hash\":\""));
    snprintf(to, sizeof to, "\"state_hash\":\"%016llx", (unsigned long long)hash);
    free(text);
    edit_manifest(two, from, to);
}

static void rename_key_well(const char *two)
{
    rename_key(two);
    mend_state_hash(two);
}

static void duplicate_entry(const char *two)
{
    char *one = entry_of(two, embed_m, 0), with[1200], other[600];
    snprintf(other, sizeof other, "%s", one);
    char *crc = strstr(other, "\"crc32c\":\"") + 10;
    *crc = *crc == '0' ? '1' : '0';
    snprintf(with, sizeof with, "%s,%s", one, other);
    edit_manifest(two, one, with);
    free(one);
}

/* Two slices of the same size change places in the manifest, with their CRCs; headers then speak against it. */
static void exchange_slices(const char *two)
{
    char *q = entry_of(two, "model.layers.0.self_attn.q_proj.weight", 0),
         *m = entry_of(two, "optim.m/model.layers.0.self_attn.q_proj.weight", 0);
    edit_manifest(two, q, "@@1@@");
    edit_manifest(two, m, q);
    edit_manifest(two, "@@1@@", m);
    free(q);
    free(m);
}

static void swap_files(const char *two)
{
    char one[600], a[700], b[700], c[700];
    snprintf(one, sizeof one, "%.*s1", (int)strlen(two) - 1, two);
    snprintf(a, sizeof a, "%s/%s", one, w0);
    snprintf(b, sizeof b, "%s/%s", two, w0);
    snprintf(c, sizeof c, "%s/x", two);
    assert_true(!rename(a, c) && !rename(b, a) && !rename(c, b));
}

static void wrong_bytes(const char *two) { edit_manifest(two, "\"header_bytes\":4096", "\"header_bytes\":9096"); }
static void parent_name(const char *two) { edit_manifest(two, w1, "../00001-of-00002.safetensors"); }
static void huge(const char *two) { edit_manifest(two, "\"extent\":[", "\"extent\":[9223372036854775807,"); }
static void too_far(const char *two) { edit_manifest(two, "\"begin\":4096", "\"begin\":9007199254740992"); }
static void twice_the_key(const char *two) { edit_manifest(two, "\"step\":2,", "\"step\":2,\"step\":3,"); }
static void no_format(const char *two) { edit_manifest(two, "\"ftckpt\"", "\"other\""); }

static void test_RT04_damage(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        void (*damage)(const char *two);
        const char *text;
        bool both; /* the older one is damaged as well */
    } rows[] = {
        {"delete a file", delete_file, "w-00001-of-00002.safetensors is missing", false},
        {"cut one byte", cut_byte, "w-00001-of-00002.safetensors has ", false},
        {"flip a bit of data", flip_data, "(w-00000-of-00002.safetensors, bytes ", false},
        {"flip a bit of a header", flip_header, "w-00000-of-00002.safetensors has header CRC ", false},
        {"flip a bit of the manifest", flip_manifest, "manifest.json has CRC ", false},
        {"cut the manifest", cut_manifest, "manifest.json is cut off or no manifest of ours", false},
        {"remove an entry", remove_entry, "optim.m/model.embed_tokens.weight rows ", false},
        {"rename a key", rename_key, "state_hash does not belong to the hashes of the tensors", false},
        {"rename a key, all hashes right", rename_key_well,
         "unknown tensor 'optim.v/model.norm.weights' (nearest: optim.v/model.norm.weight)", false},
        {"duplicate an entry", duplicate_entry, "written twice, with different content", false},
        {"exchange slices", exchange_slices, "the header of w-0000", false},
        {"swap files of two steps", swap_files, "w-00000-of-00002.safetensors", true},
        {"a header that is longer than it is", wrong_bytes, "", false},
        {"a name that leaves the folder", parent_name, "../00001-of-00002.safetensors is not a name of a tensor file", false},
        {"a huge extent", huge, "has a broken entry", false},
        {"an offset behind the file", too_far, "bytes do not fit its extent or its file", false},
        {"a key twice", twice_the_key, "step", false},
        {"not our format", no_format, "format is not ftckpt", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *dir, two[600];
        struct ranks r;
        begin(&dir, two, i % 2 ? FT_CKPT_BF16 : FT_CKPT_FP32);
        if (!strcmp(rows[i].what, "exchange slices") && i % 2) fail_msg("this one needs the weights' own names");
        rows[i].damage(two);
        print_message("           %s\n", rows[i].what);
        struct job exact = {.dir = dir, .run_id = "run-b", .precision = i % 2 ? FT_CKPT_BF16 : FT_CKPT_FP32, .resume = "2"};
        drive(&exact, 2, &r);
        refused(&r, FT_DATA, "cannot resume from 'step_00000002'");
        refused(&r, FT_DATA, rows[i].text);
        struct job automatic = {.dir = dir, .run_id = "run-b", .precision = exact.precision};
        drive(&automatic, 3, &r);
        if (rows[i].both) {
            refused(&r, FT_DATA, "none of the 2 checkpoints is valid");
        } else {
            went_well(&r, 1);
            assert_non_null(strstr(r.text[0], "step_00000002 is damaged and is passed over: "));
        }
        remove_dir(dir);
    }
}

/* Values that hash to something else though every CRC is right: what the logical hash is for. */
static void test_hash_is_checked(void **state)
{
    (void)state;
    char *dir, two[600], from[64], to[64];
    struct ranks r;
    begin(&dir, two, FT_CKPT_FP32);
    size_t n;
    char *text = slurp(two, "manifest.json", &n),
         *at = strstr(strstr(text, "\"name\":\"optim.m/model.norm.weight\""), "\"hash\":\"");
    snprintf(from, sizeof from, "%.24s", at);
    snprintf(to, sizeof to, "\"hash\":\"0123456789abcdef");
    free(text);
    edit_manifest(two, from, to);
    mend_state_hash(two); /* so that only the load can find it */
    struct job exact = {.dir = dir, .run_id = "run-b", .resume = "2"};
    drive(&exact, 3, &r);
    refused(&r, FT_DATA, "manifest says 0123456789abcdef; all CRCs are right: slices exchanged or a reader fault");
    remove_dir(dir);
}

/* Everything is damaged: a fresh start would lose the run. */
static void test_none_valid(void **state)
{
    (void)state;
    char *dir, two[600], one[600];
    struct ranks r;
    begin(&dir, two, FT_CKPT_FP32);
    snprintf(one, sizeof one, "%s/step_00000001", dir);
    delete_file(two);
    delete_file(one);
    struct job j = {.dir = dir, .run_id = "run-b", .saves = {3}};
    drive(&j, 2, &r);
    refused(&r, FT_DATA, "none of the 2 checkpoints is valid");
    refused(&r, FT_DATA, "set [checkpoint] resume = never to mean it");
    j.resume = "never";
    drive(&j, 2, &r);
    went_well(&r, 0);
    remove_dir(dir);
}

/* Puts `count` lines in front of the first element of a list of the manifest; '#' becomes the number of the line. */
static void stuff_list(const char *two, const char *key, const char *line, int count)
{
    size_t n;
    char mark[64], item[512];
    char *text = slurp(two, "manifest.json", &n);
    struct ft_buf b = {0};
    snprintf(mark, sizeof mark, "\"%s\":[", key);
    const char *at = strstr(text, mark);
    assert_non_null(at);
    at += strlen(mark);
    ft_buf_add(&b, text, (size_t)(at - text));
    for (int i = 0; i < count; i++) {
        const char *number = strchr(line, '#');
        snprintf(item, sizeof item, "%.*s%05d%s,", (int)(number - line), line, i, number + 1);
        ft_buf_adds(&b, item);
    }
    ft_buf_adds(&b, at);
    b.n -= 11;
    ft_buf_addf(&b, "%08x\"}\n", ft_crc32c(0, b.data, b.n));
    spill(two, "manifest.json", b.data, b.n);
    ft_buf_fini(&b);
    free(text);
}

/* Lists of a length that no run writes: looked at once, not each against each. */
static void test_hostile_lists(void **state)
{
    (void)state;
    static const struct {
        const char *list, *line, *text;
    } rows[] = {
        {"files",
         "{\"name\":\"w-#-of-00002.safetensors\",\"size\":9,\"header_bytes\":9,\"header_crc32c\":\"00000000\",\"writer\":0}",
         "w-00000-of-00002.safetensors is listed twice"},
        {"tensors", "{\"name\":\"t#\",\"dtype\":\"F32\",\"shape\":[0],\"hash\":\"0000000000000000\",\"entries\":[]}",
         "state_hash does not belong to the hashes of the tensors"},
        {"tensors",
         "{\"name\":\"t#\",\"dtype\":\"F32\",\"shape\":[9223372036854775807],\"hash\":\"0000000000000000\",\"entries\":[]}",
         "t00000 has a broken dtype, shape or hash"},
        {"tensors",
         "{\"name\":\"t#\",\"dtype\":\"F32\",\"shape\":[4000000000,4000000000],\"hash\":\"0000000000000000\",\"entries\":[]}",
         "t00000 has a broken dtype, shape or hash"},
        {"derived", "{\"name\":\"../t#\",\"dtype\":\"BF16\",\"shape\":[4],\"from\":\"x\",\"hash\":\"0000000000000000\"}",
         "state_hash does not belong to the hashes of the tensors"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *dir, two[600];
        struct ranks r;
        begin(&dir, two, FT_CKPT_BF16);
        stuff_list(two, rows[i].list, rows[i].line, 20000);
        struct job exact = {.dir = dir, .run_id = "run-b", .precision = FT_CKPT_BF16, .resume = "2"};
        drive(&exact, 1, &r);
        refused(&r, FT_DATA, "cannot resume from 'step_00000002'");
        refused(&r, FT_DATA, rows[i].text);
        remove_dir(dir);
    }
}

/* 10^6 entries and the like: refused without reading them one by one. */
static void test_hostile_sizes(void **state)
{
    (void)state;
    struct ft_buf b = {0};
    struct ft_err err;
    struct ft_manifest *m = NULL;
    ft_buf_adds(&b, "{\"format\":\"ftckpt\",\"version\":1,\"tensors\":[{\"entries\":[");
    for (int i = 0; i < 1000000; i++) ft_buf_adds(&b, i ? ",{\"offset\":[0]}" : "{\"offset\":[0]}");
    ft_buf_adds(&b, "]}],\"self_crc32c\":\"");
    ft_buf_addf(&b, "%08x\"}\n", ft_crc32c(0, b.data, b.n));
    assert_int_equal(ft_manifest_parse("x/manifest.json", b.data, b.n, &m, &err), FT_DATA);
    assert_non_null(strstr(err.text, "has more than 500000 entries"));
    /* a list of nothing but numbers would take a hundred times its size to parse */
    ft_buf_clear(&b);
    ft_buf_adds(&b, "{\"format\":\"ftckpt\",\"version\":1,\"x\":[0");
    for (int i = 0; i < 12000000; i++) ft_buf_add(&b, ",0", 2);
    ft_buf_adds(&b, "],\"self_crc32c\":\"");
    ft_buf_addf(&b, "%08x\"}\n", ft_crc32c(0, b.data, b.n));
    assert_int_equal(ft_manifest_parse("x/manifest.json", b.data, b.n, &m, &err), FT_DATA);
    assert_non_null(strstr(err.text, "has more than 12000000 values"));
    static const char newer[] = "{\"format\":\"ftckpt\",\"version\":2,\"writer\":{\"version\":\"9.1\"},\"self_crc32c\":\"";
    ft_buf_clear(&b);
    ft_buf_adds(&b, newer);
    ft_buf_addf(&b, "%08x\"}\n", ft_crc32c(0, b.data, b.n));
    assert_int_equal(ft_manifest_parse("x/manifest.json", b.data, b.n, &m, &err), FT_UNSUPPORTED);
    assert_non_null(strstr(err.text, "written by a newer fttrain (9.1)"));
    for (size_t n = 0; n < b.n; n++) assert_int_not_equal(ft_manifest_parse("x", b.data, n, &m, &err), FT_OK);
    ft_buf_fini(&b);
}

/* Another tool's checkpoint is told by its kind: a folder, and a file named by itself. */
static void test_foreign(void **state)
{
    (void)state;
    static const struct {
        const char *folder, *file, *said;
        bool alone; /* the file's name is enough */
    } kinds[] = {
        {"", "latest_checkpointed_iteration.txt", "Megatron-LM checkpoint: pickled slices", false},
        {"iter_0000100/mp_rank_01_003", "x", "Megatron-LM checkpoint: pickled slices for tensor size 2, pipeline size 4", false},
        {"mp_rank_01", "x", "Megatron-LM checkpoint: pickled slices for tensor size 2", false}, /* inside of iter_* */
        {"", "__0_0.distcp", "PyTorch/Megatron distributed checkpoint", true},
        {"", ".metadata", "PyTorch/Megatron distributed checkpoint", true},
        {"global_step10", "zero_pp_rank_3_mp_rank_00_optim_states.pt", "DeepSpeed checkpoint for 4 data ranks", false},
        {"", "zero_pp_rank_1_mp_rank_00_optim_states.pt", "DeepSpeed checkpoint for 2 data ranks", true},
        {"", "mp_rank_03_model_states.pt", "DeepSpeed checkpoint for 1 data ranks, tensor size 4", true},
        {"", "consolidated.07.pth", "original Meta release: slices for tensor size 8", true},
        {"", "model-rank-1-part-0.safetensors", "vLLM/SGLang sharded state: slices for tensor size 2", true},
        {"", "pytorch_model-00001-of-00002.bin", "never executed", true},
        {"", "state.pt", "never executed", true},
        {"", "state.pth", "never executed", true},
        {"", "model.nemo", "never executed", true},
        {"", "tiny.Q4_0.gguf", "quantised single file", true},
        {"", "something.else", "it has no manifest.json, so it is no checkpoint", false},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char *dir = make_dir(), *other = make_dir(), sub[256], path[512];
        struct ranks r;
        struct ft_err err;
        snprintf(sub, sizeof sub, "%s/%s", other, kinds[i].folder);
        assert_int_equal(ft_mkdirs(sub, 0700, &err), FT_OK);
        spill(sub, kinds[i].file, "x", 1);
        struct job j = {.dir = dir, .run_id = "run-a", .resume = other};
        drive(&j, 1, &r);
        refused(&r, FT_CONFIG, kinds[i].said);
        snprintf(path, sizeof path, "%s/%s", sub, kinds[i].file);
        j.resume = path;
        if (kinds[i].alone) {
            drive(&j, 1, &r);
            refused(&r, FT_CONFIG, kinds[i].said);
        }
        remove_dir(dir);
        remove_dir(other);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_RT04_damage),   cmocka_unit_test(test_hash_is_checked), cmocka_unit_test(test_none_valid),
        cmocka_unit_test(test_hostile_sizes), cmocka_unit_test(test_hostile_lists),   cmocka_unit_test(test_foreign),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
