/* Placement of parameters and owned pieces: golden/groups/shards.jsonl, kind "buffer" (Megatron-Core), exactly, and RT-05. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "runtime/train/buckets.h"

static int64_t at(const struct ft_json *a, size_t i) { return ft_json_int(ft_json_at(a, i), -1); }

static bool same_place(const struct ft_buckets *b, const struct ft_json *out)
{
    const struct ft_json *place = ft_json_get(out, "place"), *buckets = ft_json_get(out, "buckets");
    if (ft_json_count(place) != b->n_params || ft_json_count(buckets) != b->n) return false;
    for (size_t i = 0; i < b->n_params; i++) {
        const struct ft_json *p = ft_json_at(place, i);
        if (at(p, 0) != b->place[i].start || at(p, 1) != b->place[i].end || at(p, 2) != (int64_t)b->place[i].bucket) return false;
    }
    for (size_t i = 0; i < b->n; i++) {
        const struct ft_json *k = ft_json_at(buckets, i);
        if (at(k, 0) != b->v[i].start || at(k, 1) != b->v[i].end) return false;
    }
    return true;
}

static bool same_owned(const struct ft_buckets *b, const struct ft_json *owned)
{
    if (ft_json_count(owned) != b->n_pieces) return false;
    for (size_t i = 0; i < b->n_pieces; i++) {
        const struct ft_json *p = ft_json_at(owned, i);
        if (at(p, 0) != (int64_t)b->pieces[i].param || at(p, 1) != b->pieces[i].from || at(p, 2) != b->pieces[i].to) return false;
    }
    return true;
}

/* What golden data does not say: addresses of pieces are those of their parameters, state offsets lie inside and ascend. */
static bool pieces_consistent(const struct ft_buckets *b)
{
    int64_t state = 0;
    for (size_t i = 0; i < b->n_pieces; i++) {
        const struct ft_piece *p = &b->pieces[i];
        if (p->at != b->place[p->param].start + p->from || p->state < state) return false;
        state = p->state + p->to - p->from;
    }
    return state <= b->state_total && b->state_total * b->data == b->total;
}

static bool run_case(const struct ft_json *c)
{
    const struct ft_json *in = ft_json_get(c, "in"), *out = ft_json_get(c, "out"), *list = ft_json_get(in, "params");
    const size_t n = ft_json_count(list);
    struct ft_bucket_param *params = calloc(n, sizeof *params);
    for (size_t i = 0; i < n; i++) {
        const struct ft_json *p = ft_json_at(list, i);
        params[i] = (struct ft_bucket_param){at(p, 1), at(p, 2) == 1};
    }
    const int data = (int)ft_json_int(ft_json_get(in, "dp"), 0);
    bool ok = data > 0 && n > 0;
    for (int r = 0; ok && r < data; r++) {
        struct ft_arena *arena = ft_arena_create();
        const struct ft_buckets b = ft_buckets_make(params, n, data, r, ft_json_int(ft_json_get(in, "limit"), 0), arena);
        ok = same_place(&b, out) && same_owned(&b, ft_json_at(ft_json_get(out, "owned"), (size_t)r)) && pieces_consistent(&b);
        if (!ok) fprintf(stderr, "FAIL %s rank %d\n", ft_json_str(ft_json_get(c, "name")), r);
        ft_arena_destroy(arena);
    }
    free(params);
    return ok;
}

static void golden_buffers_exactly(void **state)
{
    (void)state;
    FILE *f = fopen(FT_GOLDEN "/groups/shards.jsonl", "r");
    assert_non_null(f);
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    int passed = 0, failed = 0;
    while ((len = getline(&line, &cap, f)) > 0) {
        struct ft_json *c;
        struct ft_err err;
        assert_int_equal(ft_json_parse(line, (size_t)len, 0, &c, NULL, &err), FT_OK);
        if (!strcmp(ft_json_str(ft_json_get(c, "kind")), "buffer")) run_case(c) ? passed++ : failed++;
        ft_json_destroy(c);
    }
    free(line);
    fclose(f);
    fprintf(stderr, "golden buffers: %d passed, %d failed\n", passed, failed);
    assert_int_equal(failed, 0);
    assert_true(passed >= 21);
}

static void rt05_eight_ranks_two_own_nothing(void **state)
{
    (void)state;
    const struct ft_bucket_param p[] = {{100, false}, {10, false}, {70, false}};
    for (int r = 0; r < 8; r++) {
        struct ft_arena *arena = ft_arena_create();
        const struct ft_buckets b = ft_buckets_make(p, 3, 8, r, FT_BUCKET_LIMIT, arena);
        assert_int_equal(b.total, 384);
        assert_int_equal(b.state_total, 48);
        assert_int_equal(b.n_pieces == 0, r == 3 || r == 7);
        ft_arena_destroy(arena);
    }
}

static void no_parameters_no_buckets(void **state)
{
    (void)state;
    struct ft_arena *arena = ft_arena_create();
    const struct ft_buckets b = ft_buckets_make(NULL, 0, 4, 1, FT_BUCKET_LIMIT, arena);
    assert_int_equal(b.total, 0);
    assert_int_equal(b.n, 0);
    ft_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_buffers_exactly),
        cmocka_unit_test(rt05_eight_ranks_two_own_nothing),
        cmocka_unit_test(no_parameters_no_buckets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
