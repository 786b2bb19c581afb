/* lr(k), warm-up texts, numbers of updates: the accepted values of runtime maths, section 10 (RT-18). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "runtime/train/schedule.h"

static void check_rates(enum ft_lr_style style, const double *want, int n)
{
    const struct ft_schedule s = {.style = style, .hi = 1, .lo = 0.1, .warmup = 2, .n = 10};
    for (int k = 1; k <= n; k++) assert_true(fabs(ft_lr_at(&s, k) - want[k - 1]) < 5e-7);
}

static void rt18_lr_of_the_accepted_schedules(void **state)
{
    (void)state;
    const double cosine[] = {0.5, 1.0, 0.965746, 0.868198, 0.722208, 0.55, 0.377792, 0.231802, 0.134254, 0.1, 0.1};
    const double linear[] = {0.5, 1.0, 0.8875, 0.775, 0.6625, 0.55, 0.4375, 0.325, 0.2125, 0.1, 0.1};
    const double constant[] = {0.5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    check_rates(FT_LR_COSINE, cosine, 11);
    check_rates(FT_LR_LINEAR, linear, 11);
    check_rates(FT_LR_CONSTANT, constant, 11);
}

static void without_warmup_and_with_nothing_else(void **state)
{
    (void)state;
    const struct ft_schedule none = {.style = FT_LR_COSINE, .hi = 1, .lo = 0, .warmup = 0, .n = 4};
    assert_true(ft_lr_at(&none, 1) > 0.85 && ft_lr_at(&none, 1) < 0.86);
    assert_true(fabs(ft_lr_at(&none, 2) - 0.5) < 1e-12);
    assert_true(ft_lr_at(&none, 4) == 0);
    const struct ft_schedule all = {.style = FT_LR_LINEAR, .hi = 1, .lo = 0, .warmup = 4, .n = 4};
    assert_true(ft_lr_at(&all, 1) == 0.25 && ft_lr_at(&all, 4) == 1 && ft_lr_at(&all, 5) == 0);
    const struct ft_schedule one = {.style = FT_LR_COSINE, .hi = 2, .lo = 1, .warmup = 0, .n = 1};
    assert_true(ft_lr_at(&one, 1) == 1);
}

static void warmup_is_a_number_or_a_share_rounded_up(void **state)
{
    (void)state;
    assert_int_equal(ft_warmup_updates("10", 234), 10);
    assert_int_equal(ft_warmup_updates("0", 234), 0);
    assert_int_equal(ft_warmup_updates("3%", 100), 3);
    assert_int_equal(ft_warmup_updates("3%", 101), 4);
    assert_int_equal(ft_warmup_updates("3%", 1), 1);
    assert_int_equal(ft_warmup_updates("0%", 500), 0);
    assert_int_equal(ft_warmup_updates("100%", 7), 7);
    assert_int_equal(ft_warmup_updates("2.5%", 1000), 25);
    for (int p = 1; p <= 100; p++) { /* exact shares are never rounded up by the text's own rounding */
        char text[16];
        (void)snprintf(text, sizeof text, "%d%%", p);
        assert_int_equal(ft_warmup_updates(text, 100), p);
        assert_int_equal(ft_warmup_updates(text, 700000), 7000 * p);
    }
    const char *const bad[] = {"", "-1", "3 %", "101%", "x", "1.5", "%", "3%%", "nan%"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ft_buf why = {0};
        assert_false(ft_warmup_check(bad[i], &why));
        assert_true(why.n > 0);
        ft_buf_fini(&why);
    }
}

static void updates_of_passes(void **state)
{
    (void)state;
    assert_int_equal(ft_updates_of_epochs(2, 1864, 16), 234);
    assert_int_equal(ft_updates_of_epochs(1, 1, 16), 1);
    assert_int_equal(ft_updates_of_epochs(3, 32, 16), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rt18_lr_of_the_accepted_schedules),
        cmocka_unit_test(without_warmup_and_with_nothing_else),
        cmocka_unit_test(warmup_is_a_number_or_a_share_rounded_up),
        cmocka_unit_test(updates_of_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
