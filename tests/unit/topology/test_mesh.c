/* Every process group of golden/groups (Megatron-Core), in its order of groups and members. */
#include "topology/mesh.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "golden.h"

static size_t n_kinds, n_failed;

static int size_of(const struct ft_json *v, const char *key) { return (int)ft_json_int(ft_json_get(v, key), 0); }

/* "tp-dp" -> bits */
static unsigned axes_of(const char *kind)
{
    unsigned axes = 0;
    for (int a = 0; a < FT_N_AXES; a++) {
        const char *at = strstr(kind, ft_axis_name((enum ft_axis)a));
        if (at) axes |= 1u << a;
    }
    return axes;
}

static bool same_group(const struct ft_json *want, const int *got, int n)
{
    if ((int)ft_json_count(want) != n) return false;
    for (int i = 0; i < n; i++)
        if (ft_json_int(ft_json_at(want, (size_t)i), -1) != got[i]) return false;
    return true;
}

static bool same_kind(struct ft_mesh m, const char *kind, const struct ft_json *want)
{
    bool embedding = !strcmp(kind, "embedding");
    unsigned axes = axes_of(kind);
    int groups = embedding ? ft_mesh_n_embedding_groups(m) : ft_mesh_n_groups(m, axes);
    int members[64];
    if ((int)ft_json_count(want) != groups) return false;
    for (int g = 0; g < groups; g++) {
        int n = embedding ? ft_mesh_embedding_group(m, g, members) : ft_mesh_group_size(m, axes);
        for (int i = 0; i < n && !embedding; i++) {
            members[i] = ft_mesh_group_member(m, axes, g, i);
            if (ft_mesh_group_of(m, axes, members[i]) != g || ft_mesh_group_index(m, axes, members[i]) != i) return false;
        }
        if (!same_group(ft_json_at(want, (size_t)g), members, n)) return false;
    }
    return true;
}

static void check_case(const struct ft_json *v, const char *name)
{
    struct ft_mesh m = ft_mesh_make(size_of(v, "tp"), size_of(v, "cp"), size_of(v, "dp"), size_of(v, "pp"));
    struct ft_err err;
    if (ft_mesh_parse_order(ft_json_str(ft_json_get(v, "axes")), &m, &err) || ft_mesh_world(m) != size_of(v, "world")) {
        print_error("%s: order or world\n", name);
        n_failed++;
        return;
    }
    const struct ft_json *groups = ft_json_get(v, "groups");
    for (void *it = ft_json_iter(groups); it; it = ft_json_iter_next(groups, it)) {
        n_kinds++;
        if (same_kind(m, ft_json_iter_key(it), ft_json_iter_value(it))) continue;
        n_failed++;
        print_error("%s: %s\n", name, ft_json_iter_key(it));
    }
}

static void test_golden(void **state)
{
    (void)state;
    size_t n = golden_each(FT_GOLDEN "/groups/groups.jsonl", check_case);
    print_message("%zu meshes, %zu kinds of groups, %zu wrong\n", n, n_kinds, n_failed);
    assert_int_equal(n, 284);
    assert_true(n_kinds >= 284 * 7);
    assert_int_equal(n_failed, 0);
}

/* Groups of every set of axes partition the ranks; my positions in the groups of single axes are my coordinates. */
static void test_property(void **state)
{
    (void)state;
    static const char *const orders[] = {"tp-dp-pp", "tp-pp-dp", "dp-tp-pp", "pp-dp-tp", "tp-cp-pp-dp", "dp-cp-pp-tp"};
    unsigned seed = 20261130;
    print_message("seed %u\n", seed);
    for (int round = 0; round < 200; round++) {
        int size[FT_N_AXES];
        for (int a = 0; a < FT_N_AXES; a++) size[a] = 1 + (int)((seed = seed * 1103515245u + 12345u) >> 16) % 4;
        struct ft_mesh m = ft_mesh_make(size[0], size[1], size[2], size[3]);
        struct ft_err err;
        assert_int_equal(ft_mesh_parse_order(orders[round % 6], &m, &err), FT_OK);
        int world = ft_mesh_world(m);
        for (int r = 0; r < world; r++) {
            struct ft_coord c = ft_mesh_coord(m, r);
            assert_int_equal(ft_mesh_rank(m, c), r);
            for (int a = 0; a < FT_N_AXES; a++) assert_int_equal(ft_mesh_group_index(m, 1u << a, r), c.c[a]);
        }
        for (unsigned axes = 0; axes < 1u << FT_N_AXES; axes++) {
            int seen[256] = {0};
            assert_int_equal(ft_mesh_n_groups(m, axes) * ft_mesh_group_size(m, axes), world);
            for (int g = 0; g < ft_mesh_n_groups(m, axes); g++)
                for (int i = 0; i < ft_mesh_group_size(m, axes); i++) seen[ft_mesh_group_member(m, axes, g, i)]++;
            for (int r = 0; r < world; r++) assert_int_equal(seen[r], 1);
        }
    }
}

/* "[0,2][1,3]" of a set of axes. */
static void text_of(struct ft_mesh m, unsigned axes, struct ft_buf *out)
{
    ft_buf_clear(out);
    for (int g = 0; g < ft_mesh_n_groups(m, axes); g++) {
        ft_buf_addc(out, '[');
        for (int i = 0; i < ft_mesh_group_size(m, axes); i++)
            ft_buf_addf(out, i ? ",%d" : "%d", ft_mesh_group_member(m, axes, g, i));
        ft_buf_addc(out, ']');
    }
}

static void test_RT01_groups(void **state)
{
    (void)state;
    enum { TP = 1 << FT_AXIS_TP, CP = 1 << FT_AXIS_CP, DP = 1 << FT_AXIS_DP, PP = 1 << FT_AXIS_PP };
    static const struct {
        int tp, cp, dp, pp;
        const char *order;
        unsigned axes;
        const char *groups;
    } cases[] = {
        {2, 1, 2, 4, "tp-dp-pp", TP, "[0,1][2,3][4,5][6,7][8,9][10,11][12,13][14,15]"},
        {2, 1, 2, 4, "tp-dp-pp", DP, "[0,2][1,3][4,6][5,7][8,10][9,11][12,14][13,15]"},
        {2, 1, 2, 4, "tp-dp-pp", PP, "[0,4,8,12][1,5,9,13][2,6,10,14][3,7,11,15]"},
        {2, 1, 2, 4, "tp-dp-pp", TP | PP, "[0,1,4,5,8,9,12,13][2,3,6,7,10,11,14,15]"},
        {2, 1, 2, 4, "tp-pp-dp", PP, "[0,2,4,6][1,3,5,7][8,10,12,14][9,11,13,15]"},
        {2, 1, 2, 4, "tp-pp-dp", DP, "[0,8][1,9][2,10][3,11][4,12][5,13][6,14][7,15]"},
        {2, 2, 2, 2, "tp-cp-dp-pp", DP, "[0,4][1,5][2,6][3,7][8,12][9,13][10,14][11,15]"},
        {2, 2, 2, 2, "tp-cp-dp-pp", PP, "[0,8][1,9][2,10][3,11][4,12][5,13][6,14][7,15]"},
        {2, 2, 2, 2, "tp-cp-dp-pp", CP | DP, "[0,2,4,6][1,3,5,7][8,10,12,14][9,11,13,15]"},
        {2, 2, 2, 2, "tp-cp-dp-pp", CP, "[0,2][1,3][4,6][5,7][8,10][9,11][12,14][13,15]"},
        {4, 1, 3, 1, "tp-dp-pp", DP, "[0,4,8][1,5,9][2,6,10][3,7,11]"},
    };
    struct ft_buf text = {0};
    struct ft_err err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ft_mesh m = ft_mesh_make(cases[i].tp, cases[i].cp, cases[i].dp, cases[i].pp);
        assert_int_equal(ft_mesh_parse_order(cases[i].order, &m, &err), FT_OK);
        text_of(m, cases[i].axes, &text);
        assert_string_equal(text.data, cases[i].groups);
    }
    ft_buf_fini(&text);
    const struct ft_mesh m = ft_mesh_make(2, 1, 2, 4);
    for (int g = 0; g < 4; g++) {
        int two[2];
        assert_int_equal(ft_mesh_embedding_group(m, g, two), 2);
        assert_int_equal(two[0], g);
        assert_int_equal(two[1], 12 + g);
    }
}

static void test_order(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",         "tp",       "tp-dp",    "tp-dp-pp-tp",    "tp-dp-pp-", "-tp-dp-pp",
                                        "tp-dp-xx", "TP-dp-pp", "tp dp pp", "tp-dp-pp-cp-cp", "tp--dp-pp"};
    struct ft_err err;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct ft_mesh m = ft_mesh_make(1, 1, 1, 1);
        if (ft_mesh_parse_order(wrong[i], &m, &err) != FT_CONFIG) fail_msg("'%s' was taken", wrong[i]);
        assert_non_null(strstr(err.text, wrong[i]));
        assert_true(err.fix[0]);
    }
    struct ft_mesh m = ft_mesh_make(1, 1, 1, 1);
    assert_int_equal(ft_mesh_parse_order("dp-tp-pp", &m, &err), FT_OK);
    assert_int_equal(m.order[2], FT_AXIS_CP); /* cp stands behind tp */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_property),
                                       cmocka_unit_test(test_RT01_groups), cmocka_unit_test(test_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
