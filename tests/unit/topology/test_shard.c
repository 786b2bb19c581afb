/* golden/groups/shards.jsonl: who holds which rows, heads, layers. */
#include "topology/shard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "golden.h"

static size_t n_checked[4], n_skipped[3], n_failed;
static const char *const kinds[] = {"vocab", "divide", "heads", "layers"};
static const char *const skipped[] = {"layers-uneven", "buffer", "schedule"};

static int64_t in(const struct ft_json *v, const char *key) { return ft_json_int(ft_json_get(ft_json_get(v, "in"), key), 0); }
static const struct ft_json *out(const struct ft_json *v, const char *key) { return ft_json_get(ft_json_get(v, "out"), key); }
static bool is(const struct ft_json *pair, struct ft_range r)
{
    return ft_json_count(pair) == 2 && ft_json_int(ft_json_at(pair, 0), -1) == r.first &&
           ft_json_int(ft_json_at(pair, 1), -1) == r.end;
}

static bool vocab(const struct ft_json *v)
{
    int tp = (int)in(v, "tp"), multiple = (int)in(v, "multiple");
    bool ok = ft_vocab_padded(in(v, "vocab"), tp, multiple) == ft_json_int(out(v, "padded"), -1);
    for (int r = 0; r < tp; r++)
        ok = ok && is(ft_json_at(out(v, "ranges"), (size_t)r), ft_vocab_rows(in(v, "vocab"), tp, multiple, r));
    return ok && (int)ft_json_count(out(v, "ranges")) == tp;
}
static bool divide(const struct ft_json *v)
{
    int64_t each;
    struct ft_err err;
    if (ft_divide(in(v, "n"), (int)in(v, "by"), "things", &each, &err)) return out(v, "refused") && strstr(err.text, "works: 1");
    return ft_json_int(out(v, "each"), -1) == each;
}
static bool heads(const struct ft_json *v)
{
    int tp = (int)in(v, "tp");
    struct ft_err err;
    if (ft_heads_check(in(v, "heads"), in(v, "kv_heads"), tp, &err)) return out(v, "refused") && strstr(err.text, "works");
    bool ok = (int)ft_json_count(out(v, "q")) == tp && (int)ft_json_count(out(v, "kv")) == tp;
    for (int r = 0; r < tp; r++) {
        struct ft_heads h = ft_heads_of(in(v, "heads"), in(v, "kv_heads"), tp, r);
        ok = ok && is(ft_json_at(out(v, "q"), (size_t)r), h.q) && is(ft_json_at(out(v, "kv"), (size_t)r), h.kv);
    }
    return ok;
}
static bool layers(const struct ft_json *v)
{
    int pp = (int)in(v, "pp"), vpp = (int)in(v, "vpp");
    struct ft_err err;
    if (ft_layers_check(in(v, "layers"), pp, vpp, &err)) return out(v, "refused") != NULL;
    bool ok = (int)ft_json_count(out(v, "stages")) == pp;
    for (int s = 0; s < pp; s++) {
        const struct ft_json *stage = ft_json_at(out(v, "stages"), (size_t)s);
        ok = ok && (int)ft_json_count(stage) == vpp;
        for (int c = 0; c < vpp; c++) ok = ok && is(ft_json_at(stage, (size_t)c), ft_layers_of(in(v, "layers"), pp, vpp, s, c));
    }
    return ok;
}

static void check_case(const struct ft_json *v, const char *name)
{
    static bool (*const checks[])(const struct ft_json *) = {vocab, divide, heads, layers};
    const char *kind = ft_json_str(ft_json_get(v, "kind"));
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(kind, kinds[i]) != 0) continue;
        n_checked[i]++;
        if (checks[i](v)) return;
        n_failed++;
        print_error("%s\n", name);
        return;
    }
    for (size_t i = 0; i < 3; i++)
        if (!strcmp(kind, skipped[i])) {
            n_skipped[i]++;
            return;
        }
    n_failed++;
    print_error("unknown kind %s\n", kind);
}

static void test_golden(void **state)
{
    (void)state;
    assert_int_equal(golden_each(FT_GOLDEN "/groups/shards.jsonl", check_case), 163);
    static const size_t want[] = {34, 8, 26, 24};
    for (size_t i = 0; i < 4; i++) assert_int_equal(n_checked[i], want[i]);
    print_message(
        "skipped: %zu layers-uneven (uneven splits are refused), %zu buffer (its test is the runtime's), %zu schedule (its "
        "test is the runtime's)\n",
        n_skipped[0], n_skipped[1], n_skipped[2]);
    assert_int_equal(n_skipped[0] + n_skipped[1] + n_skipped[2] + 92, 163);
    assert_int_equal(n_failed, 0);
}

/* What a refusal says. */
static void test_texts(void **state)
{
    (void)state;
    struct ft_err err;
    assert_int_equal(ft_heads_check(12, 12, 8, &err), FT_CONFIG);
    assert_string_equal(err.text, "12 heads do not divide by 8; works: 1,2,3,4,6,12");
    assert_int_equal(ft_heads_check(40, 10, 4, &err), FT_CONFIG);
    assert_string_equal(err.text, "10 kv heads and tp 4: neither divides the other; works (by heads and kv heads): 1,2,5,10,20,40");
    assert_int_equal(ft_heads_check(6, 2, 4, &err), FT_CONFIG);
    assert_string_equal(err.text, "6 heads do not divide by 4; works: 1,2,3,6 (with 2 kv heads: 1,2,6)");
    assert_int_equal(ft_heads_check(12, 3, 8, &err), FT_CONFIG);
    assert_string_equal(err.text,
                        "12 heads do not divide by 8; works: 1,2,3,4,6,12; 3 kv heads and tp 8: neither divides the other; works "
                        "(by heads and kv heads): 1,3,6,12");
    assert_int_equal(ft_heads_check(14, 2, 7, &err), FT_CONFIG);
    assert_non_null(strstr(err.text, "2 kv heads"));
    assert_int_equal(ft_heads_check(4, 2, 4, &err), FT_OK);
    assert_int_equal(ft_layers_check(10, 4, 1, &err), FT_CONFIG);
    assert_string_equal(err.text, "10 layers over 4 stages; works: 1,2,5,10");
    assert_int_equal(ft_heads_check(8, 8, 0, &err), FT_CONFIG);
    struct ft_heads h = ft_heads_of(16, 8, 16, 5);
    assert_int_equal(h.kv.first, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
