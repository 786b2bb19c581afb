/* Which rank computes which rows: the accepted values of runtime maths, section 13 (RT-18), and properties over many splits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/train/rows.h"

/* Rows of update 3 of 8 rows: 16..23. */
static void check_rank(int64_t d, int64_t b, int64_t rank, const int64_t *want)
{
    const struct ft_deal deal = {.global_batch = 8, .micro = b, .data = d};
    const struct ft_position at = {.epoch = 0, .in_epoch = 16, .rows = 16};
    const struct ft_update_rows u = ft_update_rows(&deal, &at, 100);
    assert_int_equal(u.n_micro, 8 / (b * d));
    int64_t k = 0;
    for (int64_t j = 0; j < u.n_micro; j++)
        for (int64_t i = 0; i < b; i++) assert_int_equal(ft_deal_row(&deal, &u, j, rank, i), want[k++]);
}

static void rt18_rows_16_to_23(void **state)
{
    (void)state;
    check_rank(2, 1, 0, (const int64_t[]){16, 18, 20, 22});
    check_rank(2, 1, 1, (const int64_t[]){17, 19, 21, 23});
    check_rank(4, 1, 0, (const int64_t[]){16, 20});
    check_rank(4, 1, 1, (const int64_t[]){17, 21});
    check_rank(4, 1, 2, (const int64_t[]){18, 22});
    check_rank(4, 1, 3, (const int64_t[]){19, 23});
    check_rank(2, 2, 0, (const int64_t[]){16, 17, 20, 21});
    check_rank(2, 2, 1, (const int64_t[]){18, 19, 22, 23});
}

/* Over any d and b whose product divides the batch: each update has the same set of rows, each row once in an epoch. */
static void any_split_takes_each_row_once(void **state)
{
    (void)state;
    for (int64_t n_rows = 1; n_rows <= 29; n_rows++) {
        for (int64_t d = 1; d <= 4; d++) {
            for (int64_t b = 1; b <= 3; b++) {
                const struct ft_deal deal = {.global_batch = 12 * d * b, .micro = b, .data = d};
                const struct ft_deal plain = {.global_batch = 12 * d * b, .micro = 1, .data = 1};
                struct ft_position p = {0}, q = {0};
                int *seen = calloc((size_t)n_rows, sizeof *seen);
                while (p.epoch == 0) {
                    const struct ft_update_rows u = ft_update_rows(&deal, &p, n_rows), v = ft_update_rows(&plain, &q, n_rows);
                    assert_int_equal(u.base, v.base);
                    assert_int_equal(u.n, v.n);
                    int64_t taken = 0;
                    for (int64_t j = 0; j < u.n_micro; j++)
                        for (int64_t r = 0; r < d; r++)
                            for (int64_t i = 0; i < b; i++) {
                                const int64_t row = ft_deal_row(&deal, &u, j, r, i);
                                if (row < 0) continue;
                                assert_true(row >= u.base && row < u.base + u.n);
                                seen[row]++;
                                taken++;
                            }
                    assert_int_equal(taken, u.n);
                    ft_position_advance(&p, &u, n_rows);
                    ft_position_advance(&q, &v, n_rows);
                }
                for (int64_t i = 0; i < n_rows; i++) assert_int_equal(seen[i], 1);
                assert_int_equal(p.rows, n_rows);
                assert_int_equal(p.in_epoch, 0);
                free(seen);
            }
        }
    }
}

/* The last update of an epoch, with interleaved chunks over 4 stages: 5 rows of 2 data ranks are 3 micro-batches, and one of fillers. */
static void chunks_take_micro_batches_in_groups(void **state)
{
    (void)state;
    const struct ft_deal deal = {.global_batch = 16, .micro = 1, .data = 2, .group = 4};
    const struct ft_position at = {.epoch = 0, .in_epoch = 16, .rows = 16};
    const struct ft_update_rows u = ft_update_rows(&deal, &at, 21);
    assert_int_equal(u.n, 5);
    assert_int_equal(u.n_micro, 4);
    assert_int_equal(ft_deal_row(&deal, &u, 2, 0, 0), 20);
    assert_int_equal(ft_deal_row(&deal, &u, 2, 1, 0), -1);
    for (int64_t r = 0; r < 2; r++) assert_int_equal(ft_deal_row(&deal, &u, 3, r, 0), -1);
    assert_int_equal(ft_update_rows(&deal, &(struct ft_position){0}, 21).n_micro, 8);
}

static void batch_that_does_not_divide(void **state)
{
    (void)state;
    int64_t lower, upper;
    assert_false(ft_deal_ok(&(struct ft_deal){10, 2, 4, 0}, &lower, &upper));
    assert_int_equal(lower, 8);
    assert_int_equal(upper, 16);
    assert_true(ft_deal_ok(&(struct ft_deal){16, 2, 4, 0}, &lower, &upper));
    assert_false(ft_deal_ok(&(struct ft_deal){3, 2, 4, 0}, &lower, &upper));
    assert_int_equal(lower, 0);
    assert_int_equal(upper, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rt18_rows_16_to_23),
        cmocka_unit_test(any_split_takes_each_row_once),
        cmocka_unit_test(chunks_take_micro_batches_in_groups),
        cmocka_unit_test(batch_that_does_not_divide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
