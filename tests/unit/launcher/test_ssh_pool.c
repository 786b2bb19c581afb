/* The retry table, and the pool against listeners of this process: what it says of each, when, and that it ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "launcher/ssh_pool.h"
#include "launcher/ssh_retry.h"

#define S FT_SEC
static int64_t now_ns(void) { return ft_clock_now(ft_clock_real()); }

static void retry_table(void **state)
{
    (void)state;
    struct ft_ssh_retry r = {0};
    const uint32_t half = 0x80000000u;
    assert_int_equal(ft_ssh_retry_at(&r, FT_FATE_LATER, 10 * S, 30 * S, half), 10 * S + S / 2);
    assert_int_equal(ft_ssh_retry_at(&r, FT_FATE_LATER, 29 * S + S / 2, 30 * S, half), -1);
    for (int k = 0; k < 8; k++) { /* 0.2 s * 2^k, at most 6.4 s; with jitter of half to one and a half */
        const int64_t whole = (S / 5) << (k < 5 ? k : 5);
        struct ft_ssh_retry low = r, high = r;
        assert_int_equal(ft_ssh_retry_at(&low, FT_FATE_DROPPED, 0, 100 * S, 0), whole / 2);
        assert_true(ft_ssh_retry_at(&high, FT_FATE_DROPPED, 0, 100 * S, UINT32_MAX) <= whole / 2 + whole);
        assert_int_equal(ft_ssh_retry_at(&r, FT_FATE_DROPPED, 0, 100 * S, half), whole);
    }
    assert_int_equal(ft_ssh_retry_at(&r, FT_FATE_NO_ROUTE, 0, 30 * S, 0), S);
    assert_int_equal(ft_ssh_retry_at(&r, FT_FATE_NO_ROUTE, 0, 30 * S, 0), S);
    assert_int_equal(ft_ssh_retry_at(&r, FT_FATE_NO_ROUTE, 0, 30 * S, 0), -1);
    assert_int_equal(ft_ssh_retry_at(&r, FT_FATE_FINAL, 0, 30 * S, 0), -1);
    assert_int_equal(ft_ssh_retry_at(&r, FT_FATE_NO_ANSWER, 0, 30 * S, 0), -1);
    unsigned gate = FT_SSH_GATE;
    gate = ft_ssh_gate_after(gate, FT_FATE_UP);
    assert_int_equal(gate, 8);
    for (int i = 0; i < 6; i++) gate = ft_ssh_gate_after(gate, FT_FATE_DROPPED);
    assert_int_equal(gate, 1);
}

/* ---- a listener ---- */

struct listener {
    int fd, port, close_at_once;
    const char *greeting;
    _Atomic int accepted, ending;
    pthread_t thread;
};

static void *accept_all(void *self)
{
    struct listener *l = self;
    int kept[64], n = 0;
    while (!atomic_load(&l->ending)) {
        struct pollfd p = {l->fd, POLLIN, 0};
        if (poll(&p, 1, 20) <= 0) continue;
        const int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) continue;
        atomic_fetch_add(&l->accepted, 1);
        if (l->greeting) (void)!write(fd, l->greeting, strlen(l->greeting));
        if (l->close_at_once || n == 64) close(fd);
        else kept[n++] = fd;
    }
    while (n) close(kept[--n]);
    return NULL;
}

static void open_listener(struct listener *l)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    l->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(l->fd, (struct sockaddr *)&a, len), 0);
    assert_int_equal(listen(l->fd, 64), 0);
    assert_int_equal(getsockname(l->fd, (struct sockaddr *)&a, &len), 0);
    l->port = ntohs(a.sin_port);
    assert_int_equal(pthread_create(&l->thread, NULL, accept_all, l), 0);
}

static void close_listener(struct listener *l)
{
    atomic_store(&l->ending, 1);
    pthread_join(l->thread, NULL);
    close(l->fd);
}

/* ---- the pool ---- */

static struct ft_ssh_target target(struct ft_ssh_hosts *h, const char *host, int port)
{
    return (struct ft_ssh_target){.name = host,
                                  .host = host,
                                  .user = "nobody",
                                  .port = port,
                                  .hosts = h,
                                  .who = {.name = host, .port = port},
                                  .mode_hint = ""};
}

static bool next_result(struct ft_ssh_pool *p, struct ft_ssh_login *l, int *tag, int64_t until)
{
    for (;;) {
        if (ft_ssh_pool_take(p, l, tag)) return true;
        if (now_ns() >= until) return false;
        struct pollfd f = {ft_ssh_pool_fd(p), POLLIN, 0};
        (void)poll(&f, 1, 50);
        ft_ssh_pool_tick(p, now_ns());
    }
}

static void every_failure(void **state)
{
    (void)state;
    struct listener silent = {0}, closes = {.close_at_once = 1},
                    web = {.greeting = "HTTP/1.1 400 Bad Request\r\n\r\n", .close_at_once = 1};
    open_listener(&silent);
    open_listener(&closes);
    open_listener(&web);
    struct ft_ssh_hosts *h = ft_ssh_hosts_create();
    struct listener gone = {0};
    open_listener(&gone);
    close_listener(&gone);
    struct ft_ssh_target t[5] = {target(h, "127.0.0.1", gone.port), target(h, "127.0.0.1", silent.port),
                                 target(h, "127.0.0.1", closes.port), target(h, "127.0.0.1", web.port),
                                 target(h, "nowhere.invalid", 22)};
    struct ft_ssh_pool *p;
    struct ft_err err = {0};
    assert_int_equal(ft_ssh_pool_create(4, &p, &err), FT_OK);
    const int64_t begin = now_ns();
    for (int i = 0; i < 5; i++) ft_ssh_pool_add(p, &t[i], -1, begin + 4 * S, i);
    bool seen[5] = {0};
    for (int i = 0; i < 5; i++) {
        struct ft_ssh_login l;
        int tag;
        if (!next_result(p, &l, &tag, begin + 60 * S)) fail_msg("only %d of 5 came back", i);
        assert_true(tag >= 0 && tag < 5 && !seen[tag]);
        seen[tag] = true;
        static const struct {
            enum ft_ssh_phase phase;
            const char *word;
        } want[5] = {{FT_PHASE_TCP, "refused"},
                     {FT_PHASE_BANNER, "no banner"},
                     {FT_PHASE_BANNER, "closed"},
                     {FT_PHASE_BANNER, ""},
                     {FT_PHASE_RESOLVE, "nowhere.invalid"}};
        if (l.phase != want[tag].phase || !strstr(l.reason, want[tag].word))
            fail_msg("%d: %s: %s", tag, ft_ssh_phase_name(l.phase), l.reason);
        assert_true(l.fate != FT_FATE_UP);
        ft_ssh_login_fini(&l);
    }
    const int64_t took = now_ns() - begin;
    assert_true(took < 15 * S); /* one deadline for all, no sum: that would be 20 s */
    assert_int_equal(ft_ssh_pool_busy(p), 0);
    assert_int_equal(atomic_load(&silent.accepted), 1); /* never tried again */
    assert_true(atomic_load(&closes.accepted) >= 3);    /* tried again, ever later */
    ft_ssh_pool_destroy(p);
    close_listener(&silent);
    close_listener(&closes);
    close_listener(&web);
    ft_ssh_hosts_destroy(h);
}

/* Peers that say nothing must not keep the others from their turn. */
static void silence_does_not_block(void **state)
{
    (void)state;
    struct listener silent = {0}, gone = {0};
    open_listener(&silent);
    open_listener(&gone);
    close_listener(&gone);
    struct ft_ssh_hosts *h = ft_ssh_hosts_create();
    struct ft_ssh_target quiet = target(h, "127.0.0.1", silent.port), shut = target(h, "127.0.0.1", gone.port);
    struct ft_ssh_pool *p;
    struct ft_err err = {0};
    assert_int_equal(ft_ssh_pool_create(2, &p, &err), FT_OK);
    const int64_t begin = now_ns();
    for (int i = 0; i < 6; i++) ft_ssh_pool_add(p, &quiet, -1, begin + 300 * S, i);
    ft_ssh_pool_add(p, &shut, -1, begin + 300 * S, 6);
    enum ft_ssh_phase phase;
    char reason[FT_SSH_REASON] = "";
    while (!*reason && now_ns() < begin + 60 * S) {
        struct ft_ssh_login l;
        int tag;
        assert_false(next_result(p, &l, &tag, now_ns() + S / 10));
        assert_true(ft_ssh_pool_look(p, 6, &phase, reason));
    }
    assert_non_null(strstr(reason, "refused"));
    assert_int_equal(phase, FT_PHASE_TCP);
    ft_ssh_pool_drop(p, 0);
    assert_false(ft_ssh_pool_look(p, 0, &phase, reason));
    const int64_t end = now_ns();
    ft_ssh_pool_destroy(p);               /* in the middle of everything */
    assert_true(now_ns() - end < 60 * S); /* not their deadlines */
    close_listener(&silent);
    ft_ssh_hosts_destroy(h);
}

static void many_times(void **state)
{
    (void)state;
    struct listener gone = {0};
    open_listener(&gone);
    close_listener(&gone);
    struct ft_ssh_hosts *h = ft_ssh_hosts_create();
    struct ft_ssh_target t = target(h, "localhost", gone.port);
    for (int round = 0; round < 20; round++) {
        struct ft_ssh_pool *p;
        struct ft_err err = {0};
        assert_int_equal(ft_ssh_pool_create(8, &p, &err), FT_OK);
        for (int i = 0; i < 30; i++) ft_ssh_pool_add(p, &t, -1, now_ns() + S / 20, i);
        int n = 0;
        struct ft_ssh_login l;
        for (int tag; (round & 1 || n < 30) && next_result(p, &l, &tag, now_ns() + (round & 1 ? S / 50 : 60 * S)); n++) {
            assert_true(l.phase == FT_PHASE_TCP || l.phase == FT_PHASE_RESOLVE); /* how far it comes in 50 ms */
            ft_ssh_login_fini(&l);
        }
        if (!(round & 1)) assert_int_equal(n, 30);
        ft_ssh_pool_destroy(p);
    }
    ft_ssh_hosts_destroy(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(retry_table),
        cmocka_unit_test(every_failure),
        cmocka_unit_test(silence_does_not_block),
        cmocka_unit_test(many_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
