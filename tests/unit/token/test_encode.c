/* What the golden sets do not show: no quadratic case, ranges under special = text, pieces, refusals by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/arena.h"
#include "runtime/token/tok.h"

#define LAPTOP FT_SOURCE "/examples/01_laptop/model/tokenizer.json"

static struct ft_tokenizer *laptop(void)
{
    struct ft_tokenizer *t = NULL;
    struct ft_err err = {0};
    if (ft_tokenizer_load(LAPTOP, &t, &err) != FT_OK) fail_msg("%s", err.text);
    return t;
}

/* Generous limits of this process's own time (sanitizers): a quadratic case needs minutes. */
static void long_runs(void **state)
{
    (void)state;
    enum { N = 400000 };
    static const char *const units[] = {"a", " ", "\n", "ab", "\xE4\xBD\xA0", "e\xCC\x81\xCC\xA7"};
    struct ft_tokenizer *t = laptop();
    struct ft_encoder *e = ft_encoder_create(t);
    struct ft_tokens out = {0};
    struct ft_err err = {0};
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        struct ft_buf text = {0};
        while (text.n < N) ft_buf_adds(&text, units[u]);
        const clock_t start = clock();
        const struct ft_encode_how how = {0};
        out.n = 0;
        assert_int_equal(ft_encode(e, text.data, text.n, &how, &out, &err), FT_OK);
        const double s = (double)(clock() - start) / CLOCKS_PER_SEC;
        if (s > 120) fail_msg("%d bytes of '%s' take %.1f s", N, units[u], s);
        assert_int_equal(out.v[0].begin, 0);
        assert_int_equal(out.v[out.n - 1].end, text.n);
        for (size_t i = 1; i < out.n; i++) assert_int_equal(out.v[i].begin, out.v[i - 1].end);
        ft_buf_fini(&text);
    }
    ft_tokens_fini(&out);
    ft_encoder_destroy(e);
    ft_tokenizer_destroy(t);
}

/* The heap and the array scan are the same function: a word just below and just above the border between them. */
static void both_ways_merge_alike(void **state)
{
    (void)state;
    struct ft_tokenizer *t = laptop();
    struct ft_bpe_work *w = ft_bpe_work_create();
    static const char word[] = "internationalizationinternationalization";
    for (size_t n = 1; n < sizeof word; n++) {
        const struct ft_piece_token *v;
        const size_t k = ft_bpe_piece(&t->bpe, w, word, n, &v);
        int32_t slow[64]; /* oracle: merge the leftmost pair of lowest rank until none is left */
        size_t m = n;
        for (size_t i = 0; i < n; i++) slow[i] = t->bpe.byte_id[(unsigned char)word[i]];
        while (true) {
            const struct ft_merge *best = NULL;
            size_t at = 0;
            for (size_t i = 0; i + 1 < m; i++)
                for (size_t s = 0; s < t->bpe.merges_cap; s++) {
                    const struct ft_merge *x = &t->bpe.merges[s];
                    if (x->pair == ((uint64_t)(uint32_t)slow[i] << 32 | (uint32_t)slow[i + 1]) && (!best || x->rank < best->rank))
                        best = x, at = i;
                }
            if (!best) break;
            slow[at] = (int32_t)best->id;
            memmove(slow + at + 1, slow + at + 2, (m - at - 2) * sizeof *slow);
            m--;
        }
        assert_int_equal(k, m);
        for (size_t i = 0; i < m; i++) assert_int_equal(v[i].id, slow[i]);
    }
    ft_bpe_work_destroy(w);
    ft_tokenizer_destroy(t);
}

static void special_as_text(void **state)
{
    (void)state;
    static const char text[] = "<|im_end|>a<|im_end|>";
    struct ft_tokenizer *t = laptop();
    struct ft_encoder *e = ft_encoder_create(t);
    struct ft_tokens out = {0};
    struct ft_err err = {0};
    const struct ft_byte_range plain = {0, 11};
    struct ft_encode_how how = {.plain = &plain, .n_plain = 1};
    assert_int_equal(ft_encode(e, text, sizeof text - 1, &how, &out, &err), FT_OK);
    assert_true(out.n > 3);
    assert_int_equal(out.v[out.n - 1].id, 2);
    for (size_t i = 0; i + 1 < out.n; i++) assert_int_not_equal(out.v[i].id, 2);
    how = (struct ft_encode_how){.plain = &plain, .n_plain = 1, .base = 11}; /* positions are those of the whole text */
    out.n = 0;
    assert_int_equal(ft_encode(e, text + 11, sizeof text - 12, &how, &out, &err), FT_OK);
    assert_int_equal(out.n, 1);
    assert_int_equal(out.v[0].begin, 11);
    assert_int_equal(out.v[0].end, sizeof text - 1);
    size_t at = 0;
    assert_int_equal(ft_tokenizer_find_special(t, text, sizeof text - 1, &at), 2);
    assert_int_equal(at, 0);
    at = 1;
    assert_int_equal(ft_tokenizer_find_special(t, text, sizeof text - 1, &at), 2);
    assert_int_equal(at, 11);
    assert_int_equal(ft_encode(e, "\xff", 1, &how, &out, &err), FT_DATA);
    ft_tokens_fini(&out);
    ft_encoder_destroy(e);
    ft_tokenizer_destroy(t);
}

/* A special token that is searched after normalising is text in a plain range too. */
static void normalized_special_as_text(void **state)
{
    (void)state;
    static const char json[] = "{\"normalizer\":{\"type\":\"Lowercase\"},\"added_tokens\":[{\"id\":4,\"content\":\"<X>\","
                               "\"special\":true,\"normalized\":true}],"
                               "\"model\":{\"type\":\"BPE\",\"vocab\":{\"<\":0,\"x\":1,\">\":2,\"a\":3},\"merges\":[]}}";
    struct ft_tokenizer *t = NULL;
    struct ft_err err = {0};
    assert_int_equal(ft_tokenizer_parse("x", json, sizeof json - 1, &t, &err), FT_OK);
    struct ft_encoder *e = ft_encoder_create(t);
    struct ft_tokens out = {0};
    const struct ft_byte_range plain = {0, 4};
    const struct ft_encode_how how = {.plain = &plain, .n_plain = 1}, all = {0};
    assert_int_equal(ft_encode(e, "<X>a<x>", 7, &how, &out, &err), FT_OK);
    assert_int_equal(out.n, 5);
    assert_int_equal(out.v[3].id, 3);
    assert_int_equal(out.v[4].id, 4);
    assert_int_equal(out.v[4].begin, 4);
    out.n = 0;
    assert_int_equal(ft_encode(e, "<X>a<x>", 7, &all, &out, &err), FT_OK);
    assert_int_equal(out.n, 3);
    ft_tokens_fini(&out);
    ft_encoder_destroy(e);
    ft_tokenizer_destroy(t);
}

static void refusals_name_the_part(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{}", "no model"},
        {"[]", "not a JSON object"},
        {"{\"model\":{\"type\":\"WordPiece\"}}", "model 'WordPiece' is not supported"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}",
         "merges[0] (\"a b\") names a token that is not in the vocabulary"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[[\"a\",\"b\"]]}}",
         "makes a token that is not in the vocabulary"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}", "merges[0] is neither"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "the id of 'a' is no token id"},
        {"{\"model\":{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{},\"merges\":[]}}", "with dropout is not supported"},
        {"{\"normalizer\":{\"type\":\"Precompiled\"},\"model\":{}}", "normalizer 'Precompiled' is not supported"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"},\"model\":{}}",
         "cannot compile the regular expression '('"},
        {"{\"decoder\":{\"type\":\"CTC\"},\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}",
         "decoder 'CTC' is not supported"},
        {"{\"post_processor\":{\"type\":\"BertProcessing\"},\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}",
         "post_processor 'BertProcessing' is not supported"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ft_tokenizer *t = NULL;
        struct ft_err err = {0};
        assert_int_not_equal(ft_tokenizer_parse("x", cases[i][0], strlen(cases[i][0]), &t, &err), FT_OK);
        if (!strstr(err.text, cases[i][1])) fail_msg("%s instead of %s", err.text, cases[i][1]);
        assert_null(t);
    }
    struct ft_tokenizer *t = NULL;
    struct ft_err err = {0};
    static const char truncated[] =
        "{\"truncation\":{\"max_length\":4},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}";
    assert_int_equal(ft_tokenizer_parse("x", truncated, sizeof truncated - 1, &t, &err), FT_OK);
    assert_string_equal(ft_tokenizer_remark(t), "x: 'truncation' is ignored");
    ft_tokenizer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(long_runs), cmocka_unit_test(both_ways_merge_alike),
                                       cmocka_unit_test(special_as_text), cmocka_unit_test(normalized_special_as_text),
                                       cmocka_unit_test(refusals_name_the_part)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
