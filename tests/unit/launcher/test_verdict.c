/* Who failed first: order of death on a node, clocks across nodes, weights when undecided, 69 never the cause. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/verdict.h"

#define MS       1000000LL
#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static struct ft_end_of end(int rank, int node, int status, int signal, int64_t t_ms, uint64_t order)
{
    return (struct ft_end_of){.rank = rank, .node = node, .status = status, .signal = signal, .t_ns = t_ms * MS, .order = order};
}

static void nobody(void **state)
{
    (void)state;
    struct ft_end_of e[] = {end(0, 0, 0, 0, 1, 1), end(1, 0, 0, SIGTERM, 2, 2)};
    e[1].after_stop = true;
    struct ft_verdict v = ft_verdict_find(e, COUNT(e));
    assert_int_equal(v.first, -1);
    assert_int_equal(v.n_failures, 0);
    assert_int_equal(ft_verdict_find(e, 0).first, -1);
}

static void order_decides_on_one_node(void **state)
{
    (void)state;
    struct ft_end_of e[] = {end(0, 0, 9, 0, 5, 2), end(2, 0, 3, 0, 5, 1), end(3, 0, 0, SIGABRT, 5, 3)}; /* same time */
    struct ft_verdict v = ft_verdict_find(e, COUNT(e));
    assert_int_equal(v.first, 1);
    assert_int_equal(v.n_failures, 3);
    assert_false(v.undecided);
    assert_true(v.gap_ns == 0);
}

static void peers_end_is_never_the_cause(void **state)
{
    (void)state;
    struct ft_end_of e[] = {end(0, 0, 69, 0, 1, 1), end(1, 1, 69, 0, 1, 1), end(2, 2, 3, 0, 500, 1)};
    assert_int_equal(ft_verdict_find(e, 3).first, 2);
    assert_int_equal(ft_verdict_find(e, 2).first, 0); /* alone it is all there is */
    e[2].after_stop = true;                           /* it told the others before it was gone, and our stop met it alive */
    assert_int_equal(ft_verdict_find(e, 3).first, 2);
    assert_int_equal(ft_verdict_find(e, 3).n_failures, 3);
    e[2].status = 128 + SIGTERM;
    assert_int_equal(ft_verdict_find(e, 3).first, 0);
    e[2].status = 0;
    e[2].signal = SIGKILL;
    assert_int_equal(ft_verdict_find(e, 3).first, 0);
    assert_int_equal(ft_verdict_find(e, 3).n_failures, 2);
    e[2] = end(2, 2, 3, 0, 500, 1);
    e[0].status = 7; /* a failure of its own: what was told to end is a consequence */
    e[2].after_stop = true;
    assert_int_equal(ft_verdict_find(e, 3).first, 0);
}

static void clocks_decide_across_nodes(void **state)
{
    (void)state;
    struct ft_end_of e[] = {end(0, 0, 9, 0, 20, 1), end(5, 1, 3, 0, 10, 1)};
    e[0].error_ns = e[1].error_ns = 2 * MS;
    struct ft_verdict v = ft_verdict_find(e, 2);
    assert_int_equal(v.first, 1);
    assert_false(v.undecided);
    assert_true(v.gap_ns == 10 * MS);
}

static void undecided_is_weighed(void **state)
{
    (void)state;
    struct ft_end_of e[] = {end(0, 0, 0, SIGABRT, 10, 1), end(5, 1, 3, 0, 11, 1), end(7, 2, 0, SIGSEGV, 12, 1)};
    for (int i = 0; i < 3; i++) e[i].error_ns = 2 * MS;
    struct ft_verdict v = ft_verdict_find(e, 3);
    assert_int_equal(v.first, 2); /* SEGV before plain status before ABRT */
    assert_true(v.undecided);
    v = ft_verdict_find(e, 2);
    assert_int_equal(v.first, 1);
    e[0].oom = true;
    assert_int_equal(ft_verdict_find(e, 2).first, 0);
    struct ft_end_of same[] = {end(4, 1, 3, 0, 10, 1), end(2, 0, 3, 0, 10, 1)};
    same[0].error_ns = same[1].error_ns = MS;
    assert_int_equal(ft_verdict_find(same, 2).first, 1); /* the lower rank */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody),
        cmocka_unit_test(order_decides_on_one_node),
        cmocka_unit_test(peers_end_is_never_the_cause),
        cmocka_unit_test(clocks_decide_across_nodes),
        cmocka_unit_test(undecided_is_weighed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
