/* What goes wrong between ranks, each within bounds: who is dead, late, different or silent is named; nothing hangs or stays. */
#include "ranks.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "runtime/coll/inside.h"

enum act { ACT_WORK, ACT_STAY_AWAY, ACT_DIE, ACT_DIE_IN_IT, ACT_ABORT, ACT_LEAVE, ACT_OTHER_CALL, ACT_OTHER_TAG, ACT_OTHER_SIZE };

struct script {
    int actor;
    enum act act;
    double timeout_s; /* deadline of the collectives in which it happens; those before have a minute */
    double join_s;
    const char *fingerprint, *actors_fingerprint;
    int actors_world, actors_rank; /* -1: its own */
    const char *engine;
    bool messages; /* exchanges instead of all_reduce */
    /* Of the barrier, which is over for one rank before it is for another: the others pass, the actor waits for them. */
    struct gate outside;
};

/* Each rank to its next, from its previous one, and back the other way: 800,000 bytes each. */
static enum ft_code ring(struct ft_comm *c, const struct script *s, bool actor, float *x, struct ft_err *err)
{
    const int n = ft_comm_size(c, FT_GROUP_DP), me = ft_comm_rank(c, FT_GROUP_DP), next = (me + 1) % n, before = (me + n - 1) % n;
    const int64_t bytes = 800000, back = actor && s->act == ACT_OTHER_SIZE ? 799999 : bytes;
    const uint32_t tag = actor && s->act == ACT_OTHER_TAG ? 43 : 42;
    char *b = (char *)x;
    const struct ft_message m[] = {{.way = FT_WAY_SEND, .peer = next, .tag = 41, .bytes = bytes, .out = b},
                                   {.way = FT_WAY_SEND, .peer = before, .tag = tag, .bytes = back, .out = b},
                                   {.way = FT_WAY_RECV, .peer = before, .tag = 41, .bytes = bytes, .in = b + bytes},
                                   {.way = FT_WAY_RECV, .peer = next, .tag = 42, .bytes = bytes, .in = b + 2 * bytes}};
    return ft_comm_exchange(c, FT_GROUP_DP, m, 4, err);
}

/* Opens and makes collectives until something happens; the error is said and its code is the exit status + 10. */
static int run(const struct ft_place *place, void *arg)
{
    const struct script *s = arg;
    struct ft_err err = {0};
    struct ft_comm *c = NULL;
    struct ft_place p = *place;
    const bool actor = place->rank == s->actor;
    if (actor && s->actors_world) p.world = s->actors_world;
    if (actor && s->actors_rank >= 0) p.rank = s->actors_rank;
    ft_log_set((struct ft_log_sink){.fd = -1, .also_fd = -1});
    const struct ft_comm_options o = {.engine = s->engine ? s->engine : "auto",
                                      .timeout_ns = 60 * FT_SEC,
                                      .join_ns = (int64_t)(s->join_s * FT_SEC),
                                      .fingerprint = actor && s->actors_fingerprint ? s->actors_fingerprint : s->fingerprint};
    enum ft_code rc = ft_comm_open(&p, ft_mesh_make(1, 1, p.world, 1), &o, &c, &err);
    if (rc) return say_err(rc, &err), 10 + (int)rc;
    const int64_t n = 200000;
    float *x = calloc((size_t)n * 4, sizeof *x);
    ft_comm_note(c, "update 12");
    rc = ft_comm_barrier(c, FT_GROUP_WORLD, &err);
    c->timeout_ns = (int64_t)(s->timeout_s * FT_SEC);
    if (!rc && !actor) gate_pass(&s->outside);
    if (!rc && actor) {
        gate_wait(&s->outside, p.world - 1);
        if (s->act == ACT_STAY_AWAY) {
            signal(SIGTERM, SIG_DFL);
            pause(); /* until it is killed */
        }
        if (s->act == ACT_DIE) raise(SIGKILL);
        if (s->act == ACT_ABORT) ft_comm_abort(c, "loss is NaN at update 12");
        if (s->act == ACT_OTHER_CALL) rc = ft_comm_all_gather(c, FT_GROUP_WORLD, x, x, 10, FT_F32, &err);
        if (s->act == ACT_DIE_IN_IT) ualarm(300000, 0); /* SIGALRM kills while it works */
    }
    const bool out = actor && (s->act == ACT_STAY_AWAY || s->act == ACT_ABORT || s->act == ACT_LEAVE || s->act == ACT_OTHER_CALL);
    for (int k = 0; !rc && !out && (s->act == ACT_DIE_IN_IT || k < 3); k++)
        rc = s->messages ? ring(c, s, actor, x, &err) : ft_comm_all_reduce(c, FT_GROUP_DP, x, n, FT_F32, FT_SUM, &err);
    if (rc) say_err(rc, &err);
    free(x);
    ft_comm_close(c);
    return rc ? 10 + (int)rc : 0;
}

static int code_of(const struct ranks *r, int rank)
{
    return WIFEXITED(r->status[rank]) && WEXITSTATUS(r->status[rank]) >= 10 ? WEXITSTATUS(r->status[rank]) - 10
           : WIFEXITED(r->status[rank])                                     ? 0
                                                                            : -1;
}

static void expect_error(const struct ranks *r, int rank, enum ft_code code, const char *text)
{
    if (r->late[rank]) fail_msg("rank %d did not end by itself", rank);
    if (code_of(r, rank) != (int)code || !strstr(r->text[rank], text))
        fail_msg("rank %d: code %d, not %d (%s); said: %s", rank, code_of(r, rank), (int)code, text, r->text[rank]);
}

/* Some rank of those says this, the others of them that or that a rank ended, which may be all that they hear of it. */
static void expect_told(const struct ranks *r, const int *of, int n, enum ft_code code, const char *text)
{
    int told = 0;
    for (int i = 0; i < n; i++) {
        if (code_of(r, of[i]) == (int)code) expect_error(r, of[i], code, text);
        else expect_error(r, of[i], FT_COLL, " ended");
        told += code_of(r, of[i]) == (int)code;
    }
    if (!told) fail_msg("no rank said %s", text);
}

static void play(struct script *s, struct ranks *r)
{
    gate_open(&s->outside, NULL);
    ranks_run(r);
    gate_close(&s->outside);
}

static const int nodes_2[] = {0, 0, 1, 1};
static struct script script(int actor, enum act act)
{
    return (struct script){
        .actor = actor, .act = act, .timeout_s = 60, .join_s = 60, .actors_rank = -1, .fingerprint = "model=llama\nseed=1\n"};
}

static void test_R1_deadline(void **state)
{
    (void)state;
    for (int apart = 0; apart < 2; apart++) {
        struct script s = script(1, ACT_STAY_AWAY);
        s.timeout_s = 3;
        struct ranks r = {.n = 4, .node_of = apart ? nodes_2 : NULL, .stays = 2, .run = run, .arg = &s, .limit_s = 120};
        play(&s, &r);
        int named = 0;
        for (int i = 0; i < 4; i++) {
            if (i == 1) continue;
            /* the first to give up names the missing one; the others may hear of the first before their own time is up */
            assert_true(code_of(&r, i) == FT_TIMEOUT || code_of(&r, i) == FT_COLL);
            named += code_of(&r, i) == FT_TIMEOUT;
            if (code_of(&r, i) != FT_TIMEOUT) continue;
            expect_error(&r, i, FT_TIMEOUT,
                         "all_reduce over dp (4 ranks) at update 12 made no progress for 3 s: rank 1 is missing");
        }
        assert_true(named >= 1);
    }
}

static void killed(int actor, enum act act, const int *nodes)
{
    struct script s = script(actor, act);
    struct ranks r = {.n = 4, .node_of = nodes, .run = run, .arg = &s, .limit_s = 120};
    char want[64];
    snprintf(want, sizeof want, "rank %d on ", actor);
    s.timeout_s = 3600; /* it is the end of the rank that they hear of */
    play(&s, &r);
    assert_true(WIFSIGNALED(r.status[actor]));
    for (int i = 0; i < 4; i++) {
        if (i == actor) continue;
        expect_error(&r, i, FT_COLL, want);
        expect_error(&r, i, FT_COLL, " ended");
        expect_error(&r, i, FT_COLL, "all_reduce over dp at update 12");
    }
}

static void test_R1_killed(void **state)
{
    (void)state;
    killed(1, ACT_DIE, NULL);
}
static void test_R1_killed_apart(void **state)
{
    (void)state;
    killed(2, ACT_DIE, nodes_2);
}
static void test_R1_killed_rank_0(void **state)
{
    (void)state;
    killed(0, ACT_DIE, NULL);
}
static void test_R1_killed_rank_0_apart(void **state)
{
    (void)state;
    killed(0, ACT_DIE, nodes_2);
}
static void test_R1_killed_inside(void **state)
{
    (void)state;
    killed(3, ACT_DIE_IN_IT, NULL);
}
static void test_R1_killed_inside_apart(void **state)
{
    (void)state;
    killed(1, ACT_DIE_IN_IT, nodes_2);
}

static void test_R1_abort_tells_why(void **state)
{
    (void)state;
    for (int actor = 0; actor < 4; actor += 3)
        for (int apart = 0; apart < 2; apart++) {
            struct script s = script(actor, ACT_ABORT);
            struct ranks r = {.n = 4, .node_of = apart ? nodes_2 : NULL, .run = run, .arg = &s, .limit_s = 90};
            char want[64];
            snprintf(want, sizeof want, "rank %d on ", actor);
            play(&s, &r);
            for (int i = 0; i < 4; i++) {
                if (i == actor) continue;
                expect_error(&r, i, FT_COLL, want);
                expect_error(&r, i, FT_COLL, " ended: loss is NaN at update 12");
            }
        }
}

static void test_orderly_end_is_seen(void **state)
{
    (void)state;
    struct script s = script(2, ACT_LEAVE);
    struct ranks r = {.n = 4, .node_of = nodes_2, .run = run, .arg = &s, .limit_s = 90};
    play(&s, &r);
    assert_int_equal(code_of(&r, 2), 0);
    for (int i = 0; i < 4; i++)
        if (i != 2) expect_error(&r, i, FT_COLL, " ended");
}

static void test_other_collective(void **state)
{
    (void)state;
    struct script s = script(1, ACT_OTHER_CALL);
    struct ranks r = {.n = 2, .run = run, .arg = &s, .limit_s = 90};
    play(&s, &r);
    expect_error(&r, 0, FT_BUG_FOUND, "rank 1 is in all_gather over world (number 3, 40 bytes), this rank in all_reduce over dp");
}

/* What a peer that fails looks like inside an exchange of messages. */
static void test_R1_messages_killed(void **state)
{
    (void)state;
    for (int apart = 0; apart < 2; apart++) {
        struct script s = script(2, ACT_DIE);
        struct ranks r = {.n = 4, .node_of = apart ? nodes_2 : NULL, .run = run, .arg = &s, .limit_s = 90};
        s.messages = true;
        play(&s, &r);
        for (int i = 0; i < 4; i++) {
            if (i == 2) continue;
            expect_error(&r, i, FT_COLL, "rank 2 on ");
            expect_error(&r, i, FT_COLL, "send/recv over dp at update 12");
        }
    }
}

static void test_R1_messages_deadline(void **state)
{
    (void)state;
    struct script s = script(1, ACT_STAY_AWAY);
    struct ranks r = {.n = 2, .stays = 2, .run = run, .arg = &s, .limit_s = 60};
    s.messages = true;
    s.timeout_s = 2;
    play(&s, &r);
    expect_error(&r, 0, FT_TIMEOUT, "send/recv over dp (2 ranks) at update 12 made no progress for 2 s: rank 1 is missing");
}

static void test_messages_differ(void **state)
{
    (void)state;
    for (int apart = 0; apart < 2; apart++) {
        struct script s = script(1, ACT_OTHER_TAG);
        struct ranks r = {.n = 3, .node_of = apart ? nodes_2 : NULL, .run = run, .arg = &s, .limit_s = 90};
        s.messages = true;
        play(&s, &r);
        expect_error(
            &r, 0, FT_BUG_FOUND,
            "rank 1 is in send/recv over dp (tag 43, 800000 bytes), this rank in send/recv over dp (tag 42, 800000 bytes)");
        s.act = ACT_OTHER_SIZE;
        play(&s, &r);
        expect_error(
            &r, 0, FT_BUG_FOUND,
            "rank 1 is in send/recv over dp (tag 42, 799999 bytes), this rank in send/recv over dp (tag 42, 800000 bytes)");
        s.act = ACT_OTHER_CALL; /* seen by both others, unless one of them is gone before the other has looked */
        play(&s, &r);
        expect_told(&r, (const int[]){0, 2}, 2, FT_BUG_FOUND,
                    "rank 1 is in all_gather over world (number 3, 40 bytes), this rank in send/recv over dp");
    }
}

static void test_messages_out_of_range(void **state)
{
    (void)state;
    struct ft_err err = {0};
    struct ft_comm *c = NULL;
    const struct ft_place p = {.rank = 0, .world = 1};
    const struct ft_comm_options o = {.engine = "auto"};
    char b = 0;
    assert_int_equal(ft_comm_open(&p, ft_mesh_make(1, 1, 1, 1), &o, &c, &err), FT_OK);
    const struct ft_message wrong[] = {{.way = FT_WAY_SEND, .peer = 0, .bytes = 1, .out = &b},
                                       {.way = FT_WAY_RECV, .peer = 1, .bytes = 1, .in = &b},
                                       {.way = FT_WAY_RECV, .peer = -1, .bytes = 1, .in = &b}};
    for (size_t i = 0; i < 3; i++) assert_int_equal(ft_comm_exchange(c, FT_GROUP_PP, &wrong[i], 1, &err), FT_BUG_FOUND);
    assert_non_null(strstr(err.text, "a message of 1 bytes between members 0 and -1 of 1"));
    ft_comm_close(c);
}

static void test_token(void **state)
{
    (void)state;
    struct script s = script(-1, ACT_WORK);
    struct ranks r = {.n = 4, .node_of = nodes_2, .run = run, .arg = &s, .limit_s = 90};
    for (int i = 0; i < 4; i++) r.tokens[i] = "sesame-0123456789";
    play(&s, &r);
    ranks_all_ok(&r);

    s.join_s = 3;
    r.tokens[2] = "sesame-0123456780";
    play(&s, &r);
    expect_error(&r, 2, FT_AUTH, "has another FT_TOKEN than this rank");
    expect_error(&r, 0, FT_TIMEOUT, "rank 2 has not come after 3 s: 3 of 4 met at 127.0.0.1:");

    r.tokens[2] = NULL;
    play(&s, &r);
    expect_error(&r, 2, FT_AUTH, "has FT_TOKEN, this rank has none");
    expect_error(&r, 3, FT_TIMEOUT, "rank 2 has not come");
    expect_error(&r, 3, FT_TIMEOUT, "1 connection(s) without FT_TOKEN");

    r.tokens[0] = r.tokens[1] = r.tokens[3] = NULL;
    r.tokens[2] = "sesame-0123456789";
    play(&s, &r);
    expect_error(&r, 2, FT_AUTH, "this rank has FT_TOKEN, rank 0 at 127.0.0.1:");
    expect_error(&r, 0, FT_AUTH, "some ranks have FT_TOKEN, rank 0 at 127.0.0.1:");
}

static void test_differences(void **state)
{
    (void)state;
    struct script s = script(2, ACT_WORK);
    s.actors_fingerprint = "model=qwen2\nseed=2\n";
    struct ranks r = {.n = 4, .run = run, .arg = &s, .limit_s = 90};
    play(&s, &r);
    for (int i = 0; i < 4; i++)
        expect_error(&r, i, FT_CONFIG, "the ranks of this run do not agree on model: llama on ranks 0, 1, 3; qwen2 on rank 2");

    s.actors_fingerprint = NULL;
    s.actors_world = 8;
    play(&s, &r);
    for (int i = 0; i < 4; i++) expect_error(&r, i, FT_CONFIG, "do not agree on world: 4 on ranks 0, 1, 3; 8 on rank 2");

    s.actors_world = 0;
    s.actors_rank = 1;
    play(&s, &r);
    for (int i = 0; i < 4; i++) expect_error(&r, i, FT_CONFIG, "two processes are rank 1: pid ");
}

static void test_late_rank(void **state)
{
    (void)state;
    struct script s = script(-1, ACT_WORK);
    s.join_s = 3;
    struct ranks r = {.n = 2, .world = 5, .run = run, .arg = &s, .limit_s = 90};
    play(&s, &r);
    for (int i = 0; i < 2; i++) { expect_error(&r, i, FT_TIMEOUT, "ranks 2-4 have not come after 3 s: 2 of 5 met at 127.0.0.1:"); }
}

static void test_no_rank_0(void **state)
{
    (void)state;
    struct script s = script(-1, ACT_WORK);
    s.join_s = 0.7;
    struct ranks r = {.n = 3, .only_from = 1, .run = run, .arg = &s, .limit_s = 90};
    play(&s, &r);
    for (int i = 1; i < 3; i++) {
        char want[80];
        snprintf(want, sizeof want, "rank %d does not reach rank 0 at 127.0.0.1:", i);
        expect_error(&r, i, FT_NET, want);
        expect_error(&r, i, FT_NET, "after 0.7 s: Connection refused");
    }
}

static int listen_on(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a) && !listen(fd, 8));
    return fd;
}

static void test_taken_port(void **state)
{
    (void)state;
    struct script s = script(-1, ACT_WORK);
    s.join_s = 3;
    struct ranks r = {.n = 2, .port = free_port(), .run = run, .arg = &s, .limit_s = 90};
    const int fd = listen_on(r.port);
    play(&s, &r);
    close(fd);
    char want[128];
    snprintf(want, sizeof want, "rank 0 cannot listen on 127.0.0.1:%d: Address already in use", r.port);
    expect_error(&r, 0, FT_NET, want);
    snprintf(want, sizeof want, "end the program that listens on port %d, or give another MASTER_PORT", r.port);
    expect_error(&r, 0, FT_NET, want);
    assert_int_equal(code_of(&r, 1), FT_TIMEOUT); /* what listens there never answers */
}

/* Strangers at the door of a run: one sends rubbish, one says nothing, one hangs up. The ranks meet all the same. */
static int run_with_strangers(const struct ft_place *place, void *arg)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)place->master_port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (place->rank != 1) return run(place, arg);
    int fds[3];
    for (int k = 0; k < 3; k++) {
        fds[k] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        while (connect(fds[k], (struct sockaddr *)&a, sizeof a) < 0) usleep(10000); /* rank 0 may come later */
    }
    char rubbish[300];
    memset(rubbish, 'x', sizeof rubbish);
    if (send(fds[0], rubbish, sizeof rubbish, MSG_NOSIGNAL) < 0) return 9;
    close(fds[1]);
    return run(place, arg);
}

static void test_strangers(void **state)
{
    (void)state;
    struct script s = script(-1, ACT_WORK);
    struct ranks r = {.n = 3, .run = run_with_strangers, .arg = &s, .limit_s = 90};
    for (int i = 0; i < 3; i++) r.tokens[i] = "sesame";
    play(&s, &r);
    ranks_all_ok(&r);
}

static void test_engine_names(void **state)
{
    (void)state;
    struct script s = script(-1, ACT_WORK);
    struct ranks r = {.n = 2, .run = run, .arg = &s, .limit_s = 90};
    s.engine = "nccl";
    play(&s, &r);
    expect_error(&r, 0, FT_UNSUPPORTED, "collectives = nccl is not built yet | set collectives = tcp");
    s.engine = "ncll";
    play(&s, &r);
    expect_error(&r, 1, FT_CONFIG, "collectives = ncll is not known; this build has auto, tcp");
    s.engine = "self";
    play(&s, &r);
    expect_error(&r, 1, FT_CONFIG, "collectives = self is for one rank, this run has 2");
}

static void test_no_master(void **state)
{
    (void)state;
    struct ft_err err = {0};
    struct ft_comm *c = NULL;
    const struct ft_place p = {.rank = 0, .world = 2};
    const struct ft_comm_options o = {.engine = "auto"};
    assert_int_equal(ft_comm_open(&p, ft_mesh_make(1, 1, 2, 1), &o, &c, &err), FT_CONFIG);
    assert_non_null(strstr(err.text, "rank 0 of 2 has no MASTER_ADDR"));
    assert_non_null(strstr(err.fix, "use ftlaunch run, or set MASTER_ADDR"));
}

/* test_coll_faults ENGINE ACT ACTOR SECONDS FIFO: one rank of it, started by mpirun; SECONDS: deadline of the collective in which it
 * happens; FIFO: the gate. mpirun's SIGTERM, which it sends when a rank has ended, must not come before this rank's own word. */
static int one_rank(char **argv)
{
    static const char *const acts[] = {"work",  "stay-away",  "die",       "die-in-it", "abort",
                                       "leave", "other-call", "other-tag", "other-size"};
    struct script s = script((int)strtol(argv[3], NULL, 10), ACT_WORK);
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (!strcmp(acts[i], argv[2])) s.act = (enum act)i;
    s.engine = argv[1];
    s.timeout_s = strtod(argv[4], NULL);
    signal(SIGTERM, SIG_IGN);
    gate_open(&s.outside, argv[5]);
    const int status = rank_here(run, &s);
    gate_close(&s.outside);
    return status;
}

int main(int argc, char **argv)
{
    if (argc == 6) return one_rank(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_R1_deadline),
        cmocka_unit_test(test_R1_killed),
        cmocka_unit_test(test_R1_killed_apart),
        cmocka_unit_test(test_R1_killed_rank_0),
        cmocka_unit_test(test_R1_killed_rank_0_apart),
        cmocka_unit_test(test_R1_killed_inside),
        cmocka_unit_test(test_R1_killed_inside_apart),
        cmocka_unit_test(test_R1_abort_tells_why),
        cmocka_unit_test(test_orderly_end_is_seen),
        cmocka_unit_test(test_other_collective),
        cmocka_unit_test(test_R1_messages_killed),
        cmocka_unit_test(test_R1_messages_deadline),
        cmocka_unit_test(test_messages_differ),
        cmocka_unit_test(test_messages_out_of_range),
        cmocka_unit_test(test_token),
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_late_rank),
        cmocka_unit_test(test_no_rank_0),
        cmocka_unit_test(test_taken_port),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_engine_names),
        cmocka_unit_test(test_no_master),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
