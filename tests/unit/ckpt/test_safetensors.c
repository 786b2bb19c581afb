/* The strict reader: every rule of the header is broken once; folders and indices; the writer reads back bit for bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/fd.h"
#include "base/str.h"
#include "runtime/ckpt/safetensors.h"

static int make_dir(void **state)
{
    char *dir = ft_xstrdup("/tmp/ft-st-XXXXXX");
    *state = mkdtemp(dir);
    return *state ? 0 : -1;
}

static int drop_dir(void **state)
{
    static const char *const names[] = {"x.safetensors", "model.safetensors", "model.safetensors.index.json", "a.safetensors",
                                        "b.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *p = NULL;
        assert_true(asprintf(&p, "%s/%s", (char *)*state, names[i]) > 0);
        unlink(p);
        free(p);
    }
    assert_int_equal(rmdir(*state), 0); /* nothing else was left behind */
    free(*state);
    return 0;
}

static void write_text(const char *dir, const char *name, const void *p, size_t n)
{
    struct ft_err err;
    char *path = NULL;
    assert_true(asprintf(&path, "%s/%s", dir, name) > 0);
    assert_int_equal(ft_write_file(path, p, n, 0644, &err), FT_OK);
    free(path);
}

/* A header in memory with 16 bytes of data. */
static void refuse(const char *json, int64_t data, const char *part)
{
    struct ft_st_file *f = NULL;
    struct ft_err err = {0};
    const enum ft_code code = ft_st_parse("m.safetensors", json, strlen(json), data, &f, &err);
    if (code == FT_OK) fail_msg("accepted: %s", json);
    if (!strstr(err.text, part)) fail_msg("%s: message '%s' lacks '%s'", json, err.text, part);
    assert_null(f);
}

static void headers(void **state)
{
    (void)state;
    refuse("", 0, "does not begin with '{'");
    refuse(" {}", 0, "does not begin with '{'");
    refuse("{\"a\":", 0, "");
    refuse("{\"a\":1}", 0, "'a' is an integer, not an object");
    refuse("{\"a\":{\"dtype\":\"F33\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, "unknown dtype 'F33'");
    refuse("{\"a\":{\"shape\":[],\"data_offsets\":[0,4]}}", 4, "has no dtype");
    refuse("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "shape is nothing");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "not a number >= 0");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "not a number >= 0");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}", 4, "overflows");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,4]}}", 4, "do not fill");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, "9 dimensions");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets is not a pair");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, "data_offsets is not a pair");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "outside the 4 bytes");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "outside");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, "outside");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "do not fill its 4 bytes");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, "unknown member 'x'");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_"
           "offsets\":[2,6]}}",
           6, "overlap at byte 2");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "a hole of 4 bytes before tensor 'a'");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 8, "tensors end at 4");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_"
           "offsets\":[4,8]}}",
           8, "");
    refuse("{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ 'a' is not text");
    refuse("{\"__metadata__\":[]}", 0, "__metadata__ is an array");
    struct ft_st_file *f = NULL;
    struct ft_err err;
    const char *ok = "{\"__metadata__\":{\"format\":\"pt\"},\"z\":{\"dtype\":\"BF16\",\"shape\":[0,7],\"data_offsets\":[4,4]},"
                     "\"b\":{\"dtype\":\"U16\",\"shape\":[2],\"data_offsets\":[4,8]},\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_"
                     "offsets\":[0,4]}}   ";
    assert_int_equal(ft_st_parse("ok", ok, strlen(ok), 8, &f, &err), FT_OK);
    assert_int_equal(ft_st_count(f), 3);
    assert_string_equal(ft_st_at(f, 0)->name, "a");
    assert_string_equal(ft_st_at(f, 1)->name, "z");
    assert_int_equal(ft_st_find(f, "a")->n_dims, 0);
    assert_int_equal(ft_st_find(f, "b")->type, FT_N_DTYPES);
    assert_string_equal(ft_st_metadata(f, "format"), "pt");
    assert_null(ft_st_find(f, "c"));
    ft_st_close(f);
}

static void damaged_files(void **state)
{
    const char *dir = *state;
    struct ft_err err;
    struct ft_st_file *f = NULL;
    char *path = NULL;
    assert_true(asprintf(&path, "%s/x.safetensors", dir) > 0);
    assert_int_equal(ft_st_open(path, &f, &err), FT_IO);
    static const struct {
        const char *bytes;
        size_t n;
        const char *part;
    } cases[] = {{"", 0, "0 bytes"},
                 {"\2\0\0\0\0\0\0", 7, "7 bytes"},
                 {"\377\377\377\377\377\377\377\377{}", 10, "a header of 18446744073709551615 bytes"},
                 {"\3\0\0\0\0\0\0\0{}", 10, "a header of 3 bytes in a file of 10"},
                 {"\0\0\0\0\0\0\0\0{}", 10, "does not begin with '{'"},
                 {"\2\0\0\0\0\0\0\0{}x", 11, "1 bytes of data, but its tensors end at 0"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(dir, "x.safetensors", cases[i].bytes, cases[i].n);
        assert_int_equal(ft_st_open(path, &f, &err), FT_DATA);
        if (!strstr(err.text, cases[i].part) || !strstr(err.text, path)) fail_msg("case %zu: '%s'", i, err.text);
    }
    assert_int_equal(ft_st_open(dir, &f, &err), FT_IO);
    free(path);
}

static void write_pair(const char *dir, const char *file, const char *a, const char *b, enum ft_dtype type)
{
    struct ft_err err;
    char *path = NULL;
    assert_true(asprintf(&path, "%s/%s", dir, file) > 0);
    const struct ft_st_out rows[] = {{a, type, 2, {2, 3}}, {b, FT_F32, 1, {2}}};
    const char *const meta[] = {"format", "pt", NULL};
    const struct ft_st_writer_options o = {meta, 8, true};
    struct ft_st_writer *w = NULL;
    assert_int_equal(ft_st_writer_create(path, rows, b ? 2 : 1, &o, &w, &err), FT_OK);
    const float x[6] = {1, -2, 0.5f, 3.1415927f, 1e-3f, 65504}, y[2] = {7, 8};
    if (b) assert_int_equal(ft_st_writer_put_f32(w, 1, 0, y, 2, &err), FT_OK);
    assert_int_equal(ft_st_writer_put_f32(w, 0, 4, x + 4, 2, &err), FT_OK);
    assert_int_equal(ft_st_writer_put_f32(w, 0, 0, x, 4, &err), FT_OK);
    assert_int_equal(ft_st_writer_commit(w, &err), FT_OK);
    ft_st_writer_destroy(w);
    free(path);
}

static void write_and_read(void **state)
{
    const char *dir = *state;
    struct ft_err err;
    static const enum ft_dtype types[] = {FT_F32, FT_F16, FT_BF16};
    for (int i = 0; i < 3; i++) {
        write_pair(dir, "model.safetensors", "w", "y", types[i]);
        struct ft_st_folder *f = NULL;
        assert_int_equal(ft_st_folder_open(dir, "model", &f, &err), FT_OK);
        assert_int_equal(ft_st_folder_count(f), 2);
        assert_string_equal(ft_st_folder_metadata(f, "format"), "pt");
        const struct ft_st_tensor *t = ft_st_folder_find(f, "w");
        assert_non_null(t);
        assert_int_equal(t->type, types[i]);
        const float x[6] = {1, -2, 0.5f, 3.1415927f, 1e-3f, 65504};
        float got[6] = {0}, part[4] = {0};
        assert_int_equal(ft_st_read_f32(t, 0, 6, got, &err), FT_OK);
        for (int j = 0; j < 6; j++) {
            const float want = i == 0 ? x[j] : i == 1 ? ft_f16_to_f32(ft_f32_to_f16(x[j])) : ft_bf16_to_f32(ft_f32_to_bf16(x[j]));
            assert_int_equal(ft_f32_bits(got[j]), ft_f32_bits(want));
        }
        assert_int_equal(ft_st_read_rect_f32(t, 0, 2, 1, 2, part, 2, &err), FT_OK);
        assert_true(part[0] == got[1] && part[1] == got[2] && part[2] == got[4] && part[3] == got[5]);
        ft_st_folder_close(f);
    }
    /* what was not committed leaves nothing */
    char *path = NULL;
    assert_true(asprintf(&path, "%s/a.safetensors", dir) > 0);
    const struct ft_st_out row = {"w", FT_F32, 1, {2}};
    const struct ft_st_writer_options o = {NULL, 4096, false};
    struct ft_st_writer *w = NULL;
    assert_int_equal(ft_st_writer_create(path, &row, 1, &o, &w, &err), FT_OK);
    ft_st_writer_destroy(w);
    assert_int_not_equal(access(path, F_OK), 0);
    free(path);
}

/* What 16 bits cannot hold is refused by name and element; what rounds to the largest value is not. */
static void infinity_is_not_written_for_a_number(void **state)
{
    const char *dir = *state;
    static const struct {
        enum ft_dtype type;
        float largest, beyond;
        const char *part;
    } cases[] = {{FT_F16, 65519, -65520, "w: element 4 is -65520, F16 ends at 65504"},
                 {FT_BF16, 3.39e38f, 3.4e38f, "w: element 4 is 3.4e+38, BF16 ends at 3.38953e+38"}};
    char *path = NULL;
    assert_true(asprintf(&path, "%s/large.safetensors", dir) > 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ft_st_out row = {"w", cases[i].type, 1, {6}};
        const struct ft_st_writer_options o = {NULL, 8, false};
        struct ft_st_writer *w = NULL;
        struct ft_err err;
        const float fits[] = {cases[i].largest, -cases[i].largest, INFINITY}, large[] = {1, cases[i].beyond};
        assert_int_equal(ft_st_writer_create(path, &row, 1, &o, &w, &err), FT_OK);
        assert_int_equal(ft_st_writer_put_f32(w, 0, 0, fits, 3, &err), FT_OK);
        assert_int_equal(ft_st_writer_put_f32(w, 0, 3, large, 2, &err), FT_DATA);
        assert_string_equal(err.text, cases[i].part);
        ft_st_writer_destroy(w);
        assert_int_not_equal(access(path, F_OK), 0);
    }
    free(path);
}

static void refuse_folder(const char *dir, const char *part)
{
    struct ft_err err;
    struct ft_st_folder *f = NULL;
    assert_int_not_equal(ft_st_folder_open(dir, "model", &f, &err), FT_OK);
    if (!strstr(err.text, part)) fail_msg("message '%s' lacks '%s'", err.text, part);
}

static void indices(void **state)
{
    const char *dir = *state;
    struct ft_err err;
    refuse_folder(dir, "cannot open");
    write_pair(dir, "a.safetensors", "w1", "y1", FT_BF16);
    write_pair(dir, "b.safetensors", "w2", "y2", FT_F32);
    static const struct {
        const char *json, *part;
    } bad[] = {
        {"{}", "no weight_map"},
        {"{\"weight_map\":{}}", "no weight_map"},
        {"{\"weight_map\":{\"w1\":3}}", "not the name of a .safetensors file"},
        {"{\"weight_map\":{\"w1\":\"../a.safetensors\"}}", "not the name of a .safetensors file"},
        {"{\"weight_map\":{\"w1\":\"c.safetensors\"}}", "cannot open"},
        {"{\"weight_map\":{\"w1\":\"a.safetensors\"}}", "tensor 'y1'"},
        {"{\"weight_map\":{\"w1\":\"a.safetensors\",\"y1\":\"a.safetensors\",\"z\":\"a.safetensors\"}}",
         "tensor 'z' is in 'a.safetensors'; it is not"},
        {"{\"weight_map\":{\"w1\":\"b.safetensors\",\"y1\":\"a.safetensors\",\"w2\":\"b.safetensors\",\"y2\":\"b.safetensors\"}}",
         "tensor 'w1' is in 'b.safetensors'; it is in 'a.safetensors'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_text(dir, "model.safetensors.index.json", bad[i].json, strlen(bad[i].json));
        refuse_folder(dir, bad[i].part);
    }
    const char *good = "{\"metadata\":{\"total_size\":52},\"weight_map\":{\"w1\":\"a.safetensors\",\"y1\":\"a.safetensors\",\"w2\":"
                       "\"b.safetensors\",\"y2\":\"b.safetensors\"}}";
    write_text(dir, "model.safetensors.index.json", good, strlen(good));
    struct ft_st_folder *f = NULL;
    assert_int_equal(ft_st_folder_open(dir, "model", &f, &err), FT_OK);
    assert_int_equal(ft_st_folder_count(f), 4);
    assert_int_equal(ft_st_folder_n_files(f), 2);
    assert_int_equal(ft_st_folder_find(f, "w2")->type, FT_F32);
    ft_st_folder_close(f);
    write_pair(dir, "model.safetensors", "w1", "y1", FT_F32);
    refuse_folder(dir, "has both");
    char *path = NULL;
    assert_true(asprintf(&path, "%s/model.safetensors", dir) > 0);
    unlink(path);
    free(path);
    write_pair(dir, "b.safetensors", "w2", "y1", FT_F32);
    refuse_folder(dir, "tensor 'y1' is in two files");
}

static void golden(void **state)
{
    (void)state;
    struct ft_err err;
    struct ft_st_folder *f = NULL;
    assert_int_equal(ft_st_folder_open(FT_GOLDEN "/hf/llama31", "model", &f, &err), FT_OK);
    assert_int_equal(ft_st_folder_n_files(f), 3);
    assert_int_equal(ft_st_folder_count(f), 4 * 9 + 2);
    ft_st_folder_close(f);
    assert_int_equal(ft_st_folder_open(FT_GOLDEN "/hf/gpt2", "model", &f, &err), FT_OK);
    const struct ft_st_tensor *mask = ft_st_folder_find(f, "h.0.attn.bias");
    assert_non_null(mask);
    assert_int_equal(mask->n_dims, 4);
    ft_st_folder_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers),
        cmocka_unit_test_setup_teardown(damaged_files, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(write_and_read, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(infinity_is_not_written_for_a_number, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(indices, make_dir, drop_dir),
        cmocka_unit_test(golden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
