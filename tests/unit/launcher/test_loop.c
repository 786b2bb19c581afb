/* The loop: who is ready is told, whoever is removed or closed meanwhile is not, timers in their order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/clock.h"
#include "launcher/loop.h"

struct seen {
    struct ft_loop *loop;
    struct ft_watch watch, *victim; /* removed by the callback */
    int n, fd;
    short revents;
};

static int64_t now_ns(void) { return ft_clock_now(ft_clock_real()); }

static void on_ready(void *self, short revents)
{
    struct seen *s = self;
    s->n++;
    s->revents = revents;
    if (s->victim) ft_watch_remove(s->loop, s->victim);
}

static void make_pipe(int p[2]) { assert_int_equal(pipe(p), 0); }

static void close_pipe(const int p[2])
{
    close(p[0]);
    close(p[1]);
}

/* A turn that waits for nothing. */
static void turn(struct ft_loop *l) { assert_true(ft_loop_once(l, 0)); }

static void wants_are_obeyed(void **state)
{
    (void)state;
    struct ft_loop l = {0};
    struct seen s = {.loop = &l};
    int p[2];
    make_pipe(p);
    ft_watch_add(&l, &s.watch, p[0], POLLIN, on_ready, &s);
    turn(&l);
    assert_int_equal(s.n, 0);
    assert_int_equal(write(p[1], "x", 1), 1);
    turn(&l);
    turn(&l); /* still readable: told again */
    assert_int_equal(s.n, 2);
    assert_int_equal(s.revents, POLLIN);
    ft_watch_want(&l, &s.watch, 0);
    close(p[1]); /* a resting watch hears nothing of the other end's end either */
    turn(&l);
    assert_int_equal(s.n, 2);
    ft_watch_want(&l, &s.watch, POLLIN);
    turn(&l);
    assert_int_equal(s.n, 3);
    assert_int_equal(s.revents, POLLIN | POLLHUP);
    ft_watch_remove(&l, &s.watch);
    ft_watch_remove(&l, &s.watch);
    ft_watch_want(&l, &s.watch, POLLIN | POLLOUT); /* nobody's */
    turn(&l);
    assert_int_equal(s.n, 3);
    close(p[0]);
    ft_loop_fini(&l);
}

static void many_are_each_told(void **state)
{
    (void)state;
    enum { N = 300 };
    struct ft_loop l = {0};
    struct seen *s = ft_xcalloc(N, sizeof *s);
    int(*p)[2] = ft_xcalloc(N, sizeof *p);
    for (int i = 0; i < N; i++) {
        make_pipe(p[i]);
        ft_watch_add(&l, &s[i].watch, p[i][0], POLLIN, on_ready, &s[i]);
        assert_int_equal(write(p[i][1], "x", 1), 1);
    }
    for (int i = 0; i < 2 * N; i++) turn(&l);
    for (int i = 0; i < N; i++) { /* nobody is passed over for those before it */
        assert_true(s[i].n > 0);
        ft_watch_remove(&l, &s[i].watch);
        close_pipe(p[i]);
    }
    ft_loop_fini(&l);
    free(s);
    free(p);
}

static void the_removed_are_not_told(void **state)
{
    (void)state;
    struct ft_loop l = {0};
    struct seen a = {.loop = &l}, b = {.loop = &l};
    int p[2], q[2];
    make_pipe(p);
    make_pipe(q);
    a.victim = &b.watch;
    b.victim = &a.watch;
    ft_watch_add(&l, &a.watch, p[0], POLLIN, on_ready, &a);
    ft_watch_add(&l, &b.watch, q[0], POLLIN, on_ready, &b);
    assert_int_equal(write(p[1], "x", 1), 1);
    assert_int_equal(write(q[1], "x", 1), 1);
    turn(&l);
    assert_int_equal(a.n + b.n, 1); /* both were ready in that turn; the first removed the other */
    ft_watch_remove(&l, &a.watch);
    ft_watch_remove(&l, &b.watch);
    close_pipe(p);
    close_pipe(q);
    ft_loop_fini(&l);
}

/* libssh closes its sockets itself: the watch is told so, and the next owner of the number is not harmed. */
static void a_closed_descriptor_is_told(void **state)
{
    (void)state;
    struct ft_loop l = {0};
    struct seen old = {.loop = &l}, new = {.loop = &l};
    int p[2], q[2];
    make_pipe(p);
    ft_watch_add(&l, &old.watch, p[0], POLLIN, on_ready, &old);
    close_pipe(p);
    make_pipe(q);
    assert_int_equal(q[0], p[0]);
    ft_watch_add(&l, &new.watch, q[0], POLLIN, on_ready, &new);
    ft_watch_want(&l, &old.watch, POLLIN | POLLOUT);
    turn(&l);
    assert_int_equal(old.n, 1);
    assert_int_equal(old.revents, POLLNVAL);
    assert_int_equal(new.n, 0);
    ft_watch_remove(&l, &old.watch);
    assert_int_equal(write(q[1], "x", 1), 1);
    turn(&l);
    assert_int_equal(new.n, 1);
    ft_watch_remove(&l, &new.watch);
    close(q[0]);
    ft_watch_add(&l, &old.watch, q[0], POLLIN, on_ready, &old); /* closed from the start */
    turn(&l);
    assert_int_equal(old.n, 2);
    assert_int_equal(old.revents, POLLNVAL);
    ft_watch_remove(&l, &old.watch);
    close(q[1]);
    ft_loop_fini(&l);
}

/* A description that another process (here: another number) holds is ready for ever although its watch is gone. */
static void what_outlives_its_watch_is_forgotten(void **state)
{
    (void)state;
    struct ft_loop l = {0};
    struct seen s = {.loop = &l}, other = {.loop = &l};
    int p[2], q[2], turns = 0;
    make_pipe(p);
    make_pipe(q);
    ft_watch_add(&l, &s.watch, p[0], POLLIN, on_ready, &s);
    ft_watch_add(&l, &other.watch, q[0], POLLIN, on_ready, &other);
    const int held = dup(p[0]);
    close_pipe(p); /* the held end reads end-of-file */
    ft_watch_remove(&l, &s.watch);
    for (const int64_t until = now_ns() + 100 * FT_MS; now_ns() < until; turns++) assert_true(ft_loop_once(&l, until));
    assert_int_equal(s.n, 0);
    assert_true(turns < 20); /* it waited: nothing is ready */
    assert_int_equal(write(q[1], "x", 1), 1);
    turn(&l);
    assert_int_equal(other.n, 1);
    ft_watch_remove(&l, &other.watch);
    close(held);
    close_pipe(q);
    ft_loop_fini(&l);
}

static void a_regular_file_is_always_ready(void **state)
{
    (void)state;
    struct ft_loop l = {0};
    struct seen s = {.loop = &l}, p_seen = {.loop = &l};
    FILE *f = tmpfile();
    int p[2];
    assert_non_null(f);
    make_pipe(p);
    ft_watch_add(&l, &s.watch, fileno(f), POLLIN, on_ready, &s);
    ft_watch_add(&l, &p_seen.watch, p[0], POLLIN, on_ready, &p_seen);
    assert_int_equal(write(p[1], "x", 1), 1);
    assert_true(ft_loop_once(&l, INT64_MAX));
    assert_int_equal(s.n, 1);
    assert_int_equal(s.revents, POLLIN);
    assert_int_equal(p_seen.n, 1);
    ft_watch_want(&l, &s.watch, 0);
    turn(&l);
    assert_int_equal(s.n, 1);
    ft_watch_want(&l, &s.watch, POLLIN);
    turn(&l);
    assert_int_equal(s.n, 2);
    ft_watch_remove(&l, &s.watch);
    ft_watch_remove(&l, &p_seen.watch);
    fclose(f);
    close_pipe(p);
    ft_loop_fini(&l);
}

struct order {
    int *next, at;
};
static void on_time(void *self, int64_t now)
{
    (void)now;
    struct order *o = self;
    o->at = ++*o->next;
}

static void timers_run_in_order(void **state)
{
    (void)state;
    struct ft_loop l = {0};
    struct ft_timer t[4] = {{0}};
    int next = 0;
    struct order o[4] = {{&next, 0}, {&next, 0}, {&next, 0}, {&next, 0}};
    const int64_t now = now_ns();
    ft_timer_set(&l, &t[0], now + 2, on_time, &o[0]);
    ft_timer_set(&l, &t[1], now + 1, on_time, &o[1]);
    ft_timer_set(&l, &t[2], now + 3600 * FT_SEC, on_time, &o[2]);
    ft_timer_set(&l, &t[3], now + 1, on_time, &o[3]);
    ft_timer_cancel(&t[3]);
    while (o[0].at == 0) assert_true(ft_loop_once(&l, INT64_MAX));
    assert_int_equal(o[1].at, 1);
    assert_int_equal(o[0].at, 2);
    assert_int_equal(o[2].at, 0);
    assert_int_equal(o[3].at, 0);
    assert_null(t[0].prev);
    ft_timer_cancel(&t[2]);
    ft_loop_fini(&l);
}

struct restless {
    struct ft_loop *loop;
    struct ft_timer timer;
    int n;
};

static void on_restless(void *self, int64_t now)
{
    (void)now;
    struct restless *r = self;
    if (++r->n < 1000) ft_timer_set(r->loop, &r->timer, 0, on_restless, r);
}

/* A timer that sets itself to "at once" has one turn like everyone. */
static void a_timer_that_sets_itself_keeps_nobody_waiting(void **state)
{
    (void)state;
    struct ft_loop l = {0};
    struct restless r = {.loop = &l}, other = {.loop = &l, .n = 999};
    struct seen s = {.loop = &l};
    int p[2];
    make_pipe(p);
    ft_watch_add(&l, &s.watch, p[0], POLLIN, on_ready, &s);
    ft_timer_set(&l, &r.timer, 0, on_restless, &r);
    ft_timer_set(&l, &other.timer, now_ns(), on_restless, &other);
    assert_int_equal(write(p[1], "x", 1), 1);
    turn(&l);
    assert_int_equal(r.n, 1);
    assert_int_equal(other.n, 1000);
    assert_int_equal(s.n, 1);
    turn(&l);
    assert_int_equal(r.n, 2);
    assert_int_equal(s.n, 2);
    ft_timer_cancel(&r.timer);
    turn(&l);
    assert_int_equal(r.n, 2);
    ft_watch_remove(&l, &s.watch);
    close_pipe(p);
    ft_loop_fini(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wants_are_obeyed),
        cmocka_unit_test(many_are_each_told),
        cmocka_unit_test(the_removed_are_not_told),
        cmocka_unit_test(a_closed_descriptor_is_told),
        cmocka_unit_test(what_outlives_its_watch_is_forgotten),
        cmocka_unit_test(a_regular_file_is_always_ready),
        cmocka_unit_test(timers_run_in_order),
        cmocka_unit_test(a_timer_that_sets_itself_keeps_nobody_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
