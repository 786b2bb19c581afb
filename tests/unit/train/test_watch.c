/* Watches and early stopping as functions of the losses they see. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/train/watch.h"

static unsigned feed(struct ft_watch *w, double loss, double norm)
{
    struct ft_buf why = {0};
    const unsigned events = ft_watch_update(w, loss, norm, 1e-3, &why);
    assert_int_equal(events != 0, why.n != 0);
    ft_buf_fini(&why);
    return events;
}

static void spike_is_said_once_in_fifty_updates(void **state)
{
    (void)state;
    struct ft_watch w = {0};
    for (int i = 0; i < 30; i++) assert_int_equal(feed(&w, 2, 1), 0);
    assert_int_equal(feed(&w, 2, 10), 0); /* ten times is not more than ten times */
    assert_int_equal(feed(&w, 2, 11), FT_WATCH_SPIKE);
    for (int i = 0; i < 49; i++) assert_int_equal(feed(&w, 2, i % 3 ? 1 : 50), 0);
    assert_int_equal(feed(&w, 2, 50), FT_WATCH_SPIKE);
}

static void first_updates_are_no_spike(void **state)
{
    (void)state;
    struct ft_watch w = {0};
    assert_int_equal(feed(&w, 2, 0.01), 0);
    assert_int_equal(feed(&w, 2, 5), 0);
}

static void rise_over_the_first_loss_diverges(void **state)
{
    (void)state;
    struct ft_watch w = {0};
    assert_int_equal(feed(&w, 2, 1), 0);
    int at = 0;
    for (int i = 2; i <= 40 && !at; i++)
        if (feed(&w, 3.5, 1)) at = i;
    assert_int_equal(at, 20); /* the first mean of 20 is 3.425 > 3.0 */
}

static void three_windows_above_the_best_diverge(void **state)
{
    (void)state;
    struct ft_watch w = {0};
    int at = 0;
    for (int i = 1; i <= 20; i++) assert_int_equal(feed(&w, i == 1 ? 3 : 1, 1), 0); /* best mean 1.1 */
    for (int i = 21; i <= 100 && !at; i++)
        if (feed(&w, 1.8, 1)) at = i;
    assert_int_equal(at, 80);
}

static void falling_or_noisy_losses_are_fine(void **state)
{
    (void)state;
    struct ft_watch w = {0};
    for (int i = 0; i < 1000; i++) assert_int_equal(feed(&w, 5.0 / (1 + i * 0.05) + (i % 7) * 0.02, 1 + (i % 5)), 0);
}

static void best_counts_only_finite_and_better(void **state)
{
    (void)state;
    struct ft_best b = {0};
    assert_false(ft_best_judge(&b, 0.1, 0, 0)); /* before update 1: reported, never best */
    assert_int_equal(b.best_step, 0);
    assert_true(ft_best_judge(&b, 3, 10, 0.1));
    assert_false(ft_best_judge(&b, 2.95, 20, 0.1));
    assert_int_equal(b.bad, 1);
    assert_true(ft_best_judge(&b, 2.5, 30, 0.1));
    assert_int_equal(b.bad, 0);
    assert_false(ft_best_judge(&b, NAN, 40, 0));
    assert_false(ft_best_judge(&b, 2.5, 50, 0));
    assert_int_equal(b.best_step, 30);
    assert_false(ft_best_stops(&b, 3));
    assert_false(ft_best_judge(&b, 4, 60, 0));
    assert_true(ft_best_stops(&b, 3));
    assert_false(ft_best_stops(&b, 0));
    assert_int_equal(b.count, 7);
    struct ft_best c = {0};
    assert_false(ft_best_judge(&c, INFINITY, 1, 0));
    assert_int_equal(c.best_step, 0);
}

static void general_rises(void **state)
{
    (void)state;
    struct ft_best b = {0};
    assert_false(ft_best_general(&b, 2, 0, 0.05));
    assert_false(ft_best_general(&b, 2.1, 10, 0.05));
    assert_true(ft_best_general(&b, 2.2, 20, 0.05));
    assert_true(ft_best_general(&b, NAN, 30, 0.05));
    assert_int_equal(b.general_bad, 2);
    assert_false(ft_best_general(&b, 1, 40, 0.05));
    assert_int_equal(b.general_bad, 0);
}

static void warnings_before_the_start(void **state)
{
    (void)state;
    struct ft_buf b = {0};
    const struct ft_watch_start good = {false, 1e-5, 3, 100, 1, 5000};
    assert_int_equal(ft_watch_before_start(&good, &b), 0);
    const struct ft_watch_start hot = {false, 1e-3, 0, 100, 1, 5000};
    assert_int_equal(ft_watch_before_start(&hot, &b), 1);
    const struct ft_watch_start lora = {true, 5e-3, 3, 100, 1, 5000};
    assert_int_equal(ft_watch_before_start(&lora, &b), 1);
    const struct ft_watch_start long_warmup = {false, 1e-5, 30, 100, 1, 5000};
    assert_int_equal(ft_watch_before_start(&long_warmup, &b), 1);
    const struct ft_watch_start tiny = {false, 1e-5, 1, 10, 6, 99};
    assert_int_equal(ft_watch_before_start(&tiny, &b), 2);
    ft_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spike_is_said_once_in_fifty_updates),
        cmocka_unit_test(first_updates_are_no_spike),
        cmocka_unit_test(rise_over_the_first_loss_diverges),
        cmocka_unit_test(three_windows_above_the_best_diverge),
        cmocka_unit_test(falling_or_noisy_losses_are_fine),
        cmocka_unit_test(best_counts_only_finite_and_better),
        cmocka_unit_test(general_rises),
        cmocka_unit_test(warnings_before_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
