/* The real agent on a socketpair with a scripted head: orders, exec errors, output within credit, the end of the stream, a lease
 * that runs out, streams that make no sense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/hash.h"
#include "launcher/wire.h"

#define LIMIT (60 * FT_SEC)

struct head {
    int fd;
    pid_t pid;
    struct ft_wire wire;
    char run[64];
    struct ft_buf out; /* bytes of OUT so far */
    uint64_t order;
};

static int64_t now(void) { return ft_clock_now(ft_clock_real()); }

static void flush(struct head *h)
{
    while (h->wire.out.n) {
        ssize_t n = send(h->fd, h->wire.out.data, h->wire.out.n, MSG_NOSIGNAL);
        if (n <= 0) break; /* it has gone: the test will see that */
        ft_buf_drop(&h->wire.out, (size_t)n);
    }
}

static void send_msg(struct head *h, const struct ft_msg *m)
{
    ft_wire_send(&h->wire, m);
    flush(h);
}

static void send_number(struct head *h, enum ft_msg_type type, uint64_t x)
{
    struct ft_msg m = ft_msg_make(type, FT_WIRE_NODE);
    ft_msg_u(&m, 0, x);
    send_msg(h, &m);
}

static void start(struct head *h)
{
    static int count;
    int pair[2];
    memset(h, 0, sizeof *h);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    h->pid = fork();
    assert_true(h->pid >= 0);
    if (h->pid == 0) {
        dup2(pair[1], 0);
        dup2(pair[1], 1);
        execl(FT_BIN "/ftlaunch-agent", "ftlaunch-agent", (char *)NULL);
        _exit(127);
    }
    close(pair[1]);
    h->fd = pair[0];
    ft_wire_init(&h->wire, FT_WIRE_HEAD);
    snprintf(h->run, sizeof h->run, "test-20260101-000000-%04x", (unsigned)(getpid() * 16 + count++) & 0xFFFF);
}

/* The next message of that type; OUT is collected on the way. false: the stream ended or the limit passed. */
static bool next(struct head *h, enum ft_msg_type type, struct ft_msg *m)
{
    int64_t until = now() + LIMIT;
    for (;;) {
        int r;
        while ((r = ft_wire_next(&h->wire, m)) == 1) {
            if (m->type == FT_MSG_OUT) ft_buf_add(&h->out, m->f[1].n ? m->f[1].p : "", m->f[1].n);
            if (m->type == type) return true;
        }
        if (r < 0) fail_msg("the agent's stream is broken: %s", h->wire.why);
        struct pollfd p = {.fd = h->fd, .events = POLLIN};
        if (now() > until || poll(&p, 1, 1000) < 0) return false;
        char bytes[65536];
        ssize_t n = p.revents ? read(h->fd, bytes, sizeof bytes) : -1;
        if (n == 0 || (n < 0 && p.revents && errno == ECONNRESET)) return false;
        if (n > 0) ft_wire_feed(&h->wire, bytes, (size_t)n);
    }
}

static void welcome(struct head *h, unsigned lease_ms)
{
    struct ft_msg m;
    assert_true(next(h, FT_MSG_HELLO, &m));
    assert_int_equal(m.f[1].u, FT_WIRE_NUMBER);
    m = ft_msg_make(FT_MSG_WELCOME, FT_WIRE_NODE);
    ft_msg_text(&m, 0, h->run);
    ft_msg_text(&m, 2, "testnode");
    ft_msg_u(&m, 3, lease_ms);
    ft_msg_u(&m, 4, 2000);
    send_msg(h, &m);
}

static void part(struct head *h, enum ft_job_part what, unsigned slot, const char *bytes, size_t n)
{
    struct ft_msg m = ft_msg_make(FT_MSG_JOB, slot);
    ft_msg_u(&m, 0, what);
    ft_msg_bytes(&m, 1, bytes, n);
    ft_msg_u(&m, 2, ft_xxh3_64(bytes, n));
    send_msg(h, &m);
}

static void job(struct head *h, const char *script)
{
    static const char settings[] = "slots=2\0first_rank=4\0children=end\0stdin=-\0bind=none";
    char run[100], argv[1000], *p = argv;
    int n = snprintf(run, sizeof run, "FT_RUN_ID=%s", h->run);
    const char *const words[] = {"sh", "-c", script};
    for (int i = 0; i < 3; i++) {
        memcpy(p, words[i], strlen(words[i]) + 1);
        p += strlen(words[i]) + 1;
    }
    part(h, FT_PART_SETTINGS, FT_WIRE_NODE, settings, sizeof settings);
    part(h, FT_PART_WORKDIR, FT_WIRE_NODE, "/", 1);
    part(h, FT_PART_ARGV, FT_WIRE_NODE, argv, (size_t)(p - argv));
    part(h, FT_PART_RANK_ENV, 0, "RANK=4", 7);
    part(h, FT_PART_RANK_ENV, 1, "RANK=5", 7);
    part(h, FT_PART_ENV, FT_WIRE_NODE, run, (size_t)n + 1);
    part(h, FT_PART_END, FT_WIRE_NODE, "", 0);
}

static void ready(struct head *h, int code)
{
    struct ft_msg m;
    assert_true(next(h, FT_MSG_READY, &m));
    assert_int_equal(m.f[0].u, code);
}

/* The keeper is our child; it ends when all is clean. */
static int keeper_status(struct head *h)
{
    int status = -1;
    int64_t until = now() + LIMIT;
    while (waitpid(h->pid, &status, WNOHANG) == 0 && now() < until) poll(NULL, 0, 5);
    return status;
}

static void finish(struct head *h, bool bye)
{
    if (bye) {
        struct ft_msg m = ft_msg_make(FT_MSG_BYE, FT_WIRE_NODE);
        send_msg(h, &m);
        assert_int_equal(keeper_status(h), 0);
    }
    close(h->fd);
    ft_wire_fini(&h->wire);
    ft_buf_fini(&h->out);
}

static void a_run_from_hello_to_bye(void **state)
{
    (void)state;
    struct head h;
    struct ft_msg m;
    start(&h);
    welcome(&h, 60000);
    send_number(&h, FT_MSG_CREDIT, 1 << 20);
    for (int attempt = 0; attempt < 2; attempt++) { /* a kept agent */
        job(&h, "echo out $RANK; echo err >&2; exit $RANK");
        ready(&h, 0);
        send_number(&h, FT_MSG_GO, 0);
        for (int i = 0; i < 2; i++) {
            assert_true(next(&h, FT_MSG_EXIT, &m));
            assert_int_equal(m.f[0].u, 4 + m.slot);
            assert_int_equal(m.f[1].u, 0);
            assert_int_equal(m.f[2].u, 0);
            assert_int_equal(m.f[4].u, i + 1);
            assert_int_equal(m.f[6].n, 4);
            assert_memory_equal(m.f[6].p, "err\n", 4);
        }
        send_number(&h, FT_MSG_STOP, 1000);
        assert_true(next(&h, FT_MSG_GONE, &m));
    }
    assert_int_equal(h.out.n, 2 * 2 * (6 + 4));
    finish(&h, true);
}

static void exec_errors(void **state)
{
    (void)state;
    struct head h;
    start(&h);
    welcome(&h, 60000);
    static const char settings[] = "slots=1\0first_rank=0\0children=end\0stdin=-\0bind=none";
    part(&h, FT_PART_SETTINGS, FT_WIRE_NODE, settings, sizeof settings);
    part(&h, FT_PART_ARGV, FT_WIRE_NODE, "/no/such/program", 17);
    part(&h, FT_PART_END, FT_WIRE_NODE, "", 0);
    ready(&h, 127);
    finish(&h, true);
    start(&h);
    welcome(&h, 60000);
    part(&h, FT_PART_SETTINGS, FT_WIRE_NODE, settings, sizeof settings);
    part(&h, FT_PART_ARGV, FT_WIRE_NODE, "/etc/passwd", 12);
    part(&h, FT_PART_END, FT_WIRE_NODE, "", 0);
    ready(&h, 126);
    finish(&h, true);
}

static void output_stays_within_credit(void **state)
{
    (void)state;
    struct head h;
    struct ft_msg m;
    start(&h);
    welcome(&h, 60000);
    send_number(&h, FT_MSG_CREDIT, 10000);
    char mark[] = "/tmp/test_agent-XXXXXX", text[256];
    assert_non_null(mkdtemp(mark));
    snprintf(text, sizeof text, "[ $RANK = 4 ] && { head -c 1000000 /dev/zero; exit 0; }; while [ -d %s ]; do sleep 0.02; done",
             mark);
    job(&h, text);
    ready(&h, 0);
    send_number(&h, FT_MSG_GO, 0);
    while (h.out.n < 10000) assert_true(next(&h, FT_MSG_OUT, &m));
    assert_int_equal(rmdir(mark), 0);
    assert_true(next(&h, FT_MSG_EXIT, &m)); /* rank 5 */
    assert_int_equal(m.slot, 1);
    assert_int_equal(h.out.n, 10000); /* not one byte more, and rank 4 waits */
    send_number(&h, FT_MSG_CREDIT, 2000000);
    assert_true(next(&h, FT_MSG_EXIT, &m));
    assert_int_equal(m.slot, 0);
    send_number(&h, FT_MSG_STOP, 1000);
    assert_true(next(&h, FT_MSG_GONE, &m));
    assert_int_equal(h.out.n, 1000000); /* asked here: a head that is slow for 2 s hears of the exit before the last bytes */
    finish(&h, true);
}

static void stop_marks_and_kills(void **state)
{
    (void)state;
    struct head h;
    struct ft_msg m;
    start(&h);
    welcome(&h, 60000);
    send_number(&h, FT_MSG_CREDIT, 1 << 20);
    job(&h, "[ $RANK = 5 ] && trap '' TERM; echo up; while :; do sleep 0.05; done");
    ready(&h, 0);
    send_number(&h, FT_MSG_GO, 0);
    while (h.out.n < 6) assert_true(next(&h, FT_MSG_OUT, &m));
    send_number(&h, FT_MSG_STOP, 5000);
    assert_true(next(&h, FT_MSG_STOPPED, &m));
    assert_int_equal(m.f[0].u, 2);
    assert_true(next(&h, FT_MSG_EXIT, &m));
    assert_int_equal(m.slot, 0);
    assert_int_equal(m.f[1].u, SIGTERM);
    assert_int_equal(m.f[2].u & FT_EXIT_AFTER_STOP, FT_EXIT_AFTER_STOP);
    assert_true(next(&h, FT_MSG_EXIT, &m));
    assert_int_equal(m.f[1].u, SIGKILL);
    assert_int_equal(m.f[2].u & FT_EXIT_AFTER_STOP, FT_EXIT_AFTER_STOP);
    assert_true(next(&h, FT_MSG_GONE, &m));
    finish(&h, true);
}

static int started_pid(struct head *h)
{
    struct ft_msg m;
    assert_true(next(h, FT_MSG_STARTED, &m));
    return (int)m.f[0].u;
}

static bool gone(int pid)
{
    int64_t until = now() + LIMIT;
    while (kill(pid, 0) == 0 && now() < until) poll(NULL, 0, 10);
    return kill(pid, 0) < 0;
}

/* The end of the stream, and silence: both end the ranks. */
static void the_lifeline(void **state)
{
    (void)state;
    for (int silent = 0; silent < 2; silent++) {
        struct head h;
        start(&h);
        welcome(&h, silent ? 5000 : 60000);
        job(&h, "setsid sleep 600 & sleep 600");
        ready(&h, 0);
        send_number(&h, FT_MSG_GO, 0);
        int a = started_pid(&h), b = started_pid(&h);
        if (!silent) shutdown(h.fd, SHUT_RDWR);
        assert_true(gone(a));
        assert_true(gone(b));
        assert_int_equal(keeper_status(&h), 0);
        finish(&h, false);
    }
}

/* Frames that make no sense end the stream, and with it everything. */
static void nonsense_ends_the_stream(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct head h;
        struct ft_msg m;
        start(&h);
        if (kind == 0) { /* an order before WELCOME */
            assert_true(next(&h, FT_MSG_HELLO, &m));
            send_number(&h, FT_MSG_GO, 0);
        } else {
            welcome(&h, 60000);
            if (kind == 1) { /* a piece whose hash is wrong */
                m = ft_msg_make(FT_MSG_JOB, FT_WIRE_NODE);
                ft_msg_u(&m, 0, FT_PART_WORKDIR);
                ft_msg_text(&m, 1, "/");
                ft_msg_u(&m, 2, 1);
                send_msg(&h, &m);
            } else if (kind == 2) { /* a slot that the node does not have */
                static const char settings[] = "slots=1\0first_rank=0";
                part(&h, FT_PART_SETTINGS, FT_WIRE_NODE, settings, sizeof settings);
                part(&h, FT_PART_RANK_ENV, 7, "A=1", 4);
            } else { /* not a frame at all */
                static const char junk[64] = "junk";
                assert_true(send(h.fd, junk, sizeof junk, MSG_NOSIGNAL) == sizeof junk);
            }
        }
        assert_true(next(&h, FT_MSG_NOTE, &m));
        assert_int_equal(keeper_status(&h), 0);
        finish(&h, false);
    }
}

static int parent_of(int pid)
{
    int parent = 0;
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    fclose(f);
    assert_int_equal(sscanf(strrchr(text, ')') + 1, " %*c %d", &parent), 1);
    return parent;
}

/* SIGKILL of agent and keeper: the other one cleans up. */
static void who_cleans_up(void **state)
{
    (void)state;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (int keeper = 0; keeper < 2; keeper++) {
        struct head h;
        start(&h);
        welcome(&h, 60000);
        job(&h, "setsid sleep 600 & sleep 600");
        ready(&h, 0);
        send_number(&h, FT_MSG_CREDIT, 1 << 20); /* as every head does: without it the agent waits for it, up to its lease */
        send_number(&h, FT_MSG_GO, 0);
        int a = started_pid(&h), b = started_pid(&h), agent = parent_of(a);
        kill(keeper ? h.pid : agent, SIGKILL);
        assert_true(gone(a));
        assert_true(gone(b));
        int status = keeper_status(&h);
        assert_true(keeper ? WIFSIGNALED(status) : status == 0);
        assert_true(!keeper || waitpid(agent, &status, 0) == agent);
        finish(&h, false);
    }
}

/* Two numbers on lines of their own: the pids that the ranks print. */
static void printed_pids(struct head *h, int pid[2])
{
    struct ft_msg m;
    for (;;) {
        ft_buf_addc(&h->out, 0);
        h->out.n--;
        char end;
        if (sscanf(h->out.data, "%d %d%c", &pid[0], &pid[1], &end) == 3) return;
        assert_true(next(h, FT_MSG_OUT, &m));
    }
}

/* Agent and keeper killed at the same instant: a child without environment, in a session of its own, is found by its mark; by the
 * head's SWEEP, and by the agent of the next run. */
static void marks_find_orphans(void **state)
{
    (void)state;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (int next_run = 0; next_run < 2; next_run++) {
        struct head h, other;
        struct ft_msg m;
        start(&h);
        welcome(&h, 60000);
        job(&h, "env -i setsid sleep 60 & echo $!; exec sleep 60");
        ready(&h, 0);
        send_number(&h, FT_MSG_CREDIT, 1 << 20);
        send_number(&h, FT_MSG_GO, 0);
        int a = started_pid(&h), b = started_pid(&h), bare[2], agent = parent_of(a), status;
        printed_pids(&h, bare);
        kill(h.pid, SIGSTOP); /* none of the two may do anything any more */
        kill(agent, SIGKILL);
        kill(h.pid, SIGKILL);
        assert_true(WIFSIGNALED(keeper_status(&h)));
        assert_int_equal(waitpid(agent, &status, 0), agent);
        assert_int_equal(waitpid(a, &status, 0), a);
        assert_int_equal(waitpid(b, &status, 0), b);
        assert_int_equal(kill(bare[0], 0) | kill(bare[1], 0), 0);
        start(&other);
        welcome(&other, 60000);
        if (next_run) {
            job(&other, "true");
            for (int i = 0; i < 2; i++) {
                assert_true(next(&other, FT_MSG_LEFT, &m));
                assert_true((int)m.f[0].u == bare[0] || (int)m.f[0].u == bare[1]);
            }
            ready(&other, 0);
        } else {
            m = ft_msg_make(FT_MSG_SWEEP, FT_WIRE_NODE);
            ft_msg_text(&m, 0, h.run);
            send_msg(&other, &m);
            assert_true(next(&other, FT_MSG_GONE, &m));
            assert_int_equal(m.f[0].u, 2);
        }
        for (int i = 0; i < 2; i++) assert_int_equal(waitpid(bare[i], &status, 0), bare[i]);
        finish(&other, true);
        finish(&h, false);
    }
}

int main(void)
{
    /* The agents of tests that run beside this one end what dead runs left in their network, and would be first now and then. */
    if (unshare(CLONE_NEWNET) < 0) print_message("in the network of others: %s\n", strerror(errno));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_from_hello_to_bye),
        cmocka_unit_test(exec_errors),
        cmocka_unit_test(output_stays_within_credit),
        cmocka_unit_test(stop_marks_and_kills),
        cmocka_unit_test(the_lifeline),
        cmocka_unit_test(nonsense_ends_the_stream),
        cmocka_unit_test(who_cleans_up),
        cmocka_unit_test(marks_find_orphans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
