/* Ranks on nodes: worlds, blocks, tp groups inside one node, errors with numbers. */
#include "topology/placement.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[] = {"gpu01", "gpu02", "gpu03", "gpu04"};

static const struct {
    const char *slots; /* "8 8" */
    int t, p, d, n;
    const char *order;
    int world;        /* 0: refused */
    const char *want; /* counts, or words of the message; "text|fix" */
} cases[] = {
    {"8 8", 2, 1, 0, 0, "tp-dp-pp", 16, "8 8"},
    {"8 8", 1, 1, 0, 0, "tp-dp-pp", 16, "8 8"},
    {"8 4", 8, 1, 0, 0, "tp-dp-pp", 8, "8 0"},
    {"3 3", 2, 1, 0, 0, "tp-dp-pp", 4, "2 2"},
    {"8 8 8", 2, 5, 0, 0, "tp-dp-pp", 20, "8 8 4"},
    {"8 8", 2, 1, 3, 0, "tp-dp-pp", 6, "6 0"},
    {"8 8", 1, 1, 0, 4, "tp-dp-pp", 4, "4 0"},
    {"1 1 1 1", 1, 4, 0, 0, "tp-dp-pp", 4, "1 1 1 1"},
    {"4 4", 2, 1, 0, 0, "dp-tp-pp", 0,
     "tp group 0 is divided between nodes: rank 0 is on 'gpu01', rank 4 on 'gpu02'|order = tp-dp-pp"},
    {"4 4", 2, 2, 0, 0, "dp-tp-pp", 8, "4 4"},
    {"4 4", 2, 2, 0, 0, "pp-tp-dp", 8, "4 4"},
    {"4 4", 4, 1, 0, 0, "pp-tp-dp", 8, "4 4"},
    {"4 4", 2, 1, 0, 0, "pp-dp-tp", 0, "tp group 0|order"},
    {"4 4", 8, 1, 0, 0, "tp-dp-pp", 0, "tensor = 8 does not fit into one node: the largest, 'gpu01', has 4 slots|4 or less"},
    {"1 1", 1, 4, 0, 0, "tp-dp-pp", 0, "needs 4 ranks, but 2 nodes have room for 2|pipeline = 2 or less works, or name more nodes"},
    {"8 8", 2, 1, 16, 0, "tp-dp-pp", 0, "needs 32 ranks, but 2 nodes have room for 16|data = 8 or less"},
    {"8 8", 2, 2, 0, 6, "tp-dp-pp", 0, "world size 6 is not divisible by tp·pp = 4|4, 8"},
    {"8 8", 2, 2, 0, 3, "tp-dp-pp", 0, "not divisible|nearest size: 4"},
    {"8 8", 2, 1, 2, 8, "tp-dp-pp", 0, "-n 8 is not tensor 2 x pipeline 1 x data 2 = 4|leave out -n"},
    {"8 8", 2, 1, 2, 4, "tp-dp-pp", 4, "4 0"},
    {"4096 4096 1048576", 1, 1, 0, 0, "tp-dp-pp", 0, "1056768 ranks are more than the 1048576|fewer"},
    {"8", 1, 1, 0, 9, "tp-dp-pp", 0, "9 ranks are asked for (-n), but 1 node has room for 8|-n 8"},
};

static void test_cases(void **state)
{
    (void)state;
    int failed = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ft_arena *arena = ft_arena_create();
        int slots[4], n = 0;
        for (const char *s = cases[i].slots; *s; s += strcspn(s, " "), s += *s == ' ') slots[n++] = (int)strtol(s, NULL, 10);
        struct ft_placement_request q = {.names = names,
                                         .slots = slots,
                                         .n_nodes = (size_t)n,
                                         .tensor = cases[i].t,
                                         .pipeline = cases[i].p,
                                         .data = cases[i].d,
                                         .world = cases[i].n,
                                         .order = ft_mesh_make(1, 1, 1, 1)};
        struct ft_placement p;
        struct ft_err err = {0};
        char got[512] = "";
        assert_int_equal(ft_mesh_parse_order(cases[i].order, &q.order, &err), FT_OK);
        bool ok;
        if (ft_placement_make(&q, arena, &p, &err)) {
            const char *bar = strchr(cases[i].want, '|');
            ok = !cases[i].world && bar &&
                 strstr(err.text, ft_arena_strndup(arena, cases[i].want, (size_t)(bar - cases[i].want))) &&
                 strstr(err.fix, bar + 1);
            snprintf(got, sizeof got, "%.200s|%.200s", err.text, err.fix);
        } else {
            int at = 0;
            for (int k = 0; k < n; k++) {
                snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d", k ? " " : "", p.count[k]);
                if (p.count[k]) assert_int_equal(p.first[k], at);
                at += p.count[k];
            }
            ok = p.world == cases[i].world && at == p.world && ft_mesh_world(p.mesh) == p.world && !strcmp(got, cases[i].want);
        }
        if (!ok) {
            failed++;
            print_error("case %zu: %s\n", i, got);
        }
        ft_arena_destroy(arena);
    }
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
