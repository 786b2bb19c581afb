/* pad_token_id: the Llama-like classes give the input embedding of that token no gradient (padding_idx); everything else is as without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/fd.h"
#include "runtime/arch/config.h"
#include "runtime/device/device.h"
#include "runtime/nn/model.h"

enum { ID = 5, MAX_PARAMS = 128 };

/* golden/hf/llama's configuration with another pad_token_id. */
static void parse(const char *pad, struct ft_arena *a, struct ft_model_config *c)
{
    struct ft_buf text = {0}, with = {0};
    struct ft_err err;
    assert_int_equal(ft_read_file(FT_GOLDEN "/hf/llama/config.json", 1 << 20, &text, &err), FT_OK);
    char *at = strstr(text.data, "\"pad_token_id\": null");
    assert_non_null(at);
    ft_buf_add(&with, text.data, (size_t)(at - text.data));
    ft_buf_addf(&with, "\"pad_token_id\": %s%s", pad, at + strlen("\"pad_token_id\": null"));
    assert_int_equal(ft_model_config_parse("config.json", with.data, with.n, a, c, &err), FT_OK);
    ft_buf_fini(&text);
    ft_buf_fini(&with);
}

/* Gradients of one row of eight tokens, two of them ID, for made-up weights. */
static float *gradients(const char *pad, int64_t *n_out, int64_t *h)
{
    struct ft_arena *a = ft_arena_create();
    struct ft_model_config c;
    struct ft_device *d = NULL;
    struct ft_model *m = NULL;
    struct ft_err err;
    parse(pad, a, &c);
    assert_int_equal(ft_device_open("cpu", 0, 1, &d, &err), FT_OK);
    const struct ft_model_options o = {
        .config = &c, .device = d, .tensor = 1, .pipeline = 1, .compute = FT_F32, .max_tokens = 8, .seq_len = 8};
    assert_int_equal(ft_model_create(&o, &m, &err), FT_OK);
    size_t n;
    const struct ft_param *p = ft_model_params(m, &n);
    int64_t offsets[MAX_PARAMS], total = 0;
    assert_true(n <= MAX_PARAMS);
    for (size_t i = 0; i < n; i++) {
        offsets[i] = total;
        total += ft_param_local(&p[i]);
    }
    assert_string_equal(p[0].name, "model.embed_tokens.weight");
    float *w = ft_xcalloc((size_t)total, sizeof *w), *g = ft_xcalloc((size_t)total, sizeof *g);
    for (int64_t i = 0; i < total; i++) w[i] = (float)((i * 37 % 101) - 50) / 300;
    ft_model_bind(m, w, g, offsets);
    static const int32_t ids[] = {9, ID, 3, 7, ID, 1, 2, 4}, positions[] = {0, 1, 2, 3, 4, 5, 6, 7},
                         targets[] = {ID, 3, 7, ID, 1, 2, 4, -100}, cu[] = {0, 8};
    const struct ft_batch b = {.T = 8, .ids = ids, .positions = positions, .targets = targets, .n_segments = 1, .cu_seqlens = cu};
    double ce;
    assert_int_equal(ft_model_forward_backward(m, &b, 1, &ce, &err), FT_OK);
    *n_out = total;
    *h = c.h;
    ft_model_destroy(m);
    ft_device_close(d);
    ft_arena_destroy(a);
    free(w);
    return g;
}

static void only_its_row_is_without_gradient(void **state)
{
    (void)state;
    int64_t n, h;
    float *without = gradients("null", &n, &h), *with = gradients("5", &n, &h);
    int moved = 0;
    for (int64_t i = 0; i < n; i++) {
        const bool row = i >= ID * h && i < (ID + 1) * h; /* the embedding is the first parameter */
        moved += row && without[i] != 0;
        if (with[i] != (row ? 0 : without[i])) fail_msg("element %lld", (long long)i);
    }
    assert_true(moved > 0);
    free(with);
    free(without);
}

static void which_ids_count(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t want;
    } cases[] = {{"null", -1}, {"0", 0}, {"198", 198}, {"199", -1}, {"-1", 198}, {"-200", -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ft_arena *a = ft_arena_create();
        struct ft_model_config c;
        parse(cases[i].text, a, &c);
        assert_int_equal(c.pad_id, cases[i].want);
        ft_arena_destroy(a);
    }
    struct ft_arena *a = ft_arena_create();
    struct ft_model_config c;
    struct ft_err err;
    static const char gpt2[] = "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"pad_token_id\": 7}";
    assert_int_equal(ft_model_config_parse("config.json", gpt2, sizeof gpt2 - 1, a, &c, &err), FT_OK);
    assert_int_equal(c.pad_id, -1);
    ft_arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_its_row_is_without_gradient),
        cmocka_unit_test(which_ids_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
