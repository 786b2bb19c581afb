/* The job machine: event lists as text, one timed event a line and the actions expected behind "->"; then random orders with
 * the invariants. No sleeping: the time is in the events. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/str.h"
#include "launcher/job.h"

static const char *const action_names[] = {"reach",       "seat",           "address",  "prepare",   "go",       "signal",
                                           "pause",       "resume",         "stop",     "kill",      "stacks",   "sweep",
                                           "bye",         "say_stop",       "say_kill", "say_first", "say_slow", "say_hang",
                                           "say_restart", "say_no_restart", "finish"};

static void show_actions(const struct ft_job_actions *a, struct ft_buf *out)
{
    for (size_t i = 0; i < a->n; i++) {
        const struct ft_job_action *x = &a->v[i];
        ft_buf_addf(out, "%s%s", i ? " " : "", action_names[x->kind]);
        switch (x->kind) {
        case FT_DO_REACH:
        case FT_DO_SWEEP: ft_buf_addf(out, ":%d", x->node); break;
        case FT_DO_FINISH:
        case FT_DO_SIGNAL: ft_buf_addf(out, ":%d", x->number); break;
        case FT_DO_STOP: ft_buf_addf(out, ":%g", (double)x->ns / 1e9); break;
        case FT_DO_SAY_HANG: ft_buf_addf(out, ":%d", x->rank); break;
        case FT_DO_SEAT:
        case FT_DO_ADDRESS:
        case FT_DO_PREPARE:
        case FT_DO_GO:
        case FT_DO_PAUSE:
        case FT_DO_RESUME:
        case FT_DO_KILL:
        case FT_DO_STACKS:
        case FT_DO_BYE:
        case FT_DO_SAY_STOP:
        case FT_DO_SAY_KILL:
        case FT_DO_SAY_FIRST_STEP:
        case FT_DO_SAY_SLOW_STEP:
        case FT_DO_SAY_RESTART:
        case FT_DO_SAY_NO_RESTART: break;
        }
    }
}

static int option(const char *line, const char *name, int otherwise)
{
    char want[32];
    snprintf(want, sizeof want, " %s=", name);
    const char *p = strstr(line, want);
    return p ? (int)strtol(p + strlen(want), NULL, 10) : otherwise;
}

/* "seated RANKS on=NODE,NODE,…" of each rank. */
static void parse_seats(const char *line, int *rank_node, int n)
{
    const char *p = strstr(line, " on=");
    if (!p) fail_msg("no on= in '%s'", line);
    p += 4;
    for (int r = 0; r < n; r++) {
        char *end;
        rank_node[r] = (int)strtol(p, &end, 10);
        p = *end == ',' ? end + 1 : end;
    }
}

/* "exit R status=S sig=N after order=O", "up N", "tick" … */
static struct ft_job_event parse_event(const char *line)
{
    static const struct {
        const char *word;
        enum ft_job_event_kind kind;
    } words[] = {{"start", FT_EV_START},          {"up", FT_EV_NODE_UP},        {"failed", FT_EV_NODE_FAILED},
                 {"seated", FT_EV_SEATED},        {"noseats", FT_EV_NO_SEATS},  {"address", FT_EV_ADDRESS},
                 {"noaddress", FT_EV_NO_ADDRESS}, {"ready", FT_EV_NODE_READY},  {"started", FT_EV_STARTED},
                 {"execfail", FT_EV_EXEC_FAILED}, {"progress", FT_EV_PROGRESS}, {"exit", FT_EV_EXIT},
                 {"stopped", FT_EV_STOPPED},      {"gone", FT_EV_GONE},         {"lost", FT_EV_LOST},
                 {"swept", FT_EV_SWEPT},          {"signal", FT_EV_SIGNAL},     {"request", FT_EV_STOP_REQUEST},
                 {"state", FT_EV_RANK_STATE},     {"stacks", FT_EV_STACKS},     {"tick", FT_EV_TICK}};
    double t;
    char word[32], letter = 'S', where[32] = "";
    int number = 0;
    if (sscanf(line, "%lf %31s %d", &t, word, &number) < 2) fail_msg("cannot read '%s'", line);
    struct ft_job_event e = {.kind = FT_EV_TICK, .t = (int64_t)(t * 1e9 + 0.5), .node = number, .rank = number, .number = number};
    bool known = false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i].word, word) == 0) e.kind = words[i].kind, known = true;
    if (!known) fail_msg("unknown event in '%s'", line);
    e.status = option(line, "status", 0);
    e.signal = option(line, "sig", 0);
    e.step = option(line, "step", -1);
    e.saved = option(line, "saved", -1);
    e.order = (uint64_t)option(line, "order", 0);
    e.after_stop = strstr(line, " after") != NULL;
    e.t_node = e.t;
    if (e.kind == FT_EV_RANK_STATE && sscanf(line, "%*f state %*d %c %31s", &letter, where) >= 1) {
        e.number = letter;
        e.text = strcmp(where, "->") == 0 ? "" : where;
    }
    return e;
}

static void play(const char *const *lines)
{
    struct ft_job j;
    int rank_node[64], n_nodes = option(lines[0], "nodes", 1), n_ranks = option(lines[0], "ranks", 2);
    int seats[64];
    for (int r = 0; r < n_ranks; r++) rank_node[r] = r * n_nodes / n_ranks;
    struct ft_job_config c = {.n_nodes = n_nodes + option(lines[0], "spares", 0),
                              .n_seats = n_nodes,
                              .n_ranks = n_ranks,
                              .rank_node = rank_node,
                              .grace = option(lines[0], "grace", 30) * FT_SEC,
                              .reach_timeout = 30 * FT_SEC,
                              .ready_timeout = 30 * FT_SEC,
                              .sweep_limit = 10 * FT_SEC,
                              .hang_timeout = option(lines[0], "hang", 0) * FT_SEC,
                              .deadline = option(lines[0], "deadline", 0) * FT_SEC,
                              .restarts = option(lines[0], "restarts", 0),
                              .restart_window = option(lines[0], "window", 0) * FT_SEC,
                              .end_rank0 = strstr(lines[0], " rank0") != NULL,
                              .is_fttrain = strstr(lines[0], " fttrain") != NULL,
                              .seed = 1};
    ft_job_init(&j, &c);
    struct ft_job_actions out = {0};
    for (int i = 1; lines[i]; i++) {
        struct ft_job_event e = parse_event(lines[i]);
        out.n = 0;
        if (e.kind == FT_EV_SEATED) {
            parse_seats(lines[i], seats, e.number);
            e.rank_node = seats;
        }
        ft_job_step(&j, &e, &out);
        struct ft_buf got = {0};
        show_actions(&out, &got);
        const char *want = strstr(lines[i], "-> ");
        if (strcmp(ft_buf_str(&got), want ? want + 3 : "") != 0)
            fail_msg("%s\n   line %d: %s\n   did: %s", lines[0], i, lines[i], ft_buf_str(&got));
        ft_buf_fini(&got);
    }
    free(out.v);
    ft_job_fini(&j);
}

#define RISE                                                                                                                       \
    "0 start -> reach:0", "0.01 up 0 -> address", "0.02 address -> prepare", "0.03 ready 0 -> go", "0.04 started 0",               \
        "0.04 started 1"

#define RISE_TWO                                                                                                                   \
    "0 start -> reach:0 reach:1", "0 up 0", "0 up 1 -> address", "0 address -> prepare", "0 ready 0", "0 ready 1 -> go",           \
        "0.1 started 0", "0.1 started 1"
#define RISE_SPARE                                                                                                                 \
    "0 start -> reach:0 reach:1 reach:2", "0 up 0", "0 up 1", "0 up 2 -> address", "0 address -> prepare", "0 ready 0",            \
        "0 ready 1 -> go", "0.1 started 0", "0.1 started 1"
#define RISE_TWO_SPARES                                                                                                            \
    "0 start -> reach:0 reach:1 reach:2 reach:3", "0 up 0", "0 up 1", "0 up 2", "0 up 3 -> address", "0 address -> prepare",       \
        "0 ready 0", "0 ready 1 -> go", "0.1 started 0", "0.1 started 1"

static const char *const scripts[][48] = {
    {"all end with 0", RISE, "1 exit 0 order=1", "1.1 exit 1 order=2 -> say_stop stop:2", "1.2 stopped 0",
     "1.3 gone 0 -> bye finish:0"},
    {"first failure ends all", RISE, "1 exit 1 status=7 order=1 -> say_stop stop:30", "1.1 stopped 0",
     "1.2 exit 0 sig=15 after order=2", "1.3 gone 0 -> bye finish:7"},
    {"69 is not the cause", RISE, "1 exit 0 status=69 order=1 -> say_stop stop:30", "1.1 exit 1 status=3 order=2",
     "1.3 gone 0 -> bye finish:3"},
    {"order beats arrival", RISE, "1 exit 0 status=9 order=2 -> say_stop stop:30", "1.001 exit 1 status=3 order=1",
     "1.3 gone 0 -> bye finish:3"},
    {"signal of a rank", RISE, "1 exit 1 sig=11 order=1 -> say_stop stop:30", "1.2 exit 0 sig=15 after",
     "1.3 gone 0 -> bye finish:139"},
    {"grace, then KILL grace=3", RISE, "1 exit 1 status=7 -> say_stop stop:3", "3.9 tick", "4 tick -> say_kill kill",
     "4.1 exit 0 sig=9 after", "4.2 gone 0 -> bye finish:7"},
    {"an agent that does not answer to KILL grace=3", RISE, "1 exit 1 status=7 -> say_stop stop:3", "4 tick -> say_kill kill",
     "5.9 tick", "6 tick -> bye finish:7"},
    {"INT: 130 whatever the ranks return", RISE, "1 signal 2 -> say_stop stop:30", "1.1 exit 0 status=1 after", "1.1 exit 1 after",
     "1.2 gone 0 -> bye finish:130"},
    {"INT twice kills", RISE, "1 signal 2 -> say_stop stop:30", "1.01 signal 2", "1.5 signal 2 -> say_kill kill",
     "1.6 exit 0 sig=9 after", "1.6 exit 1 sig=9 after", "1.7 gone 0 -> bye finish:130"},
    {"TERM again within a second is the same one", RISE, "1 signal 15 -> say_stop stop:30", "1.5 signal 15",
     "2.1 signal 15 -> say_kill kill", "2.2 exit 0 sig=9 after", "2.2 exit 1 sig=9 after", "2.3 gone 0 -> bye finish:143"},
    {"HUP", RISE, "1 signal 1 -> say_stop stop:30", "1.1 exit 0 sig=15 after", "1.1 exit 1 sig=15 after",
     "1.2 gone 0 -> bye finish:129"},
    {"INT while a failure is cleaned up: the failure stays the cause", RISE, "1 exit 1 status=7 -> say_stop stop:30", "2 signal 2",
     "3 signal 2 -> say_kill kill", "3.1 exit 0 sig=9 after", "3.2 gone 0 -> bye finish:7"},
    {"USR1 is passed on, TSTP and CONT pause", RISE, "1 signal 10 -> signal:10", "2 signal 20 -> pause", "3 signal 18 -> resume"},
    {"INT before GO", "0 start -> reach:0", "0.1 signal 2 -> bye finish:130"},
    {"node failed before GO", "0 start -> reach:0", "0.1 failed 0 status=2 -> seat", "0.2 noseats 0 -> bye finish:2"},
    {"reaching takes too long", "0 start -> reach:0", "30 tick -> bye finish:2"},
    {"no address", "0 start -> reach:0", "0.01 up 0 -> address", "0.02 noaddress -> bye finish:2"},
    {"program not found", "0 start -> reach:0", "0.01 up 0 -> address", "0.02 address -> prepare",
     "0.03 ready 0 status=127 -> bye finish:127"},
    {"not found here, no folder there nodes=2", "0 start -> reach:0 reach:1", "0.01 up 0", "0.01 up 1 -> address",
     "0.02 address -> prepare", "0.03 ready 0 status=127", "0.04 ready 1 status=2 -> bye finish:2"},
    {"exec fails after GO", "0 start -> reach:0", "0.01 up 0 -> address", "0.02 address -> prepare", "0.03 ready 0 -> go",
     "0.04 execfail 0 status=126 -> say_stop stop:30", "0.05 execfail 1 status=126", "0.06 gone 0 -> bye finish:126"},
    {"agent lost nodes=2", "0 start -> reach:0 reach:1", "0 up 0", "0 up 1 -> address", "0 address -> prepare", "0 ready 0",
     "0 ready 1 -> go", "0.1 started 0", "0.1 started 1", "1 lost 1 -> sweep:1 say_stop stop:30", "1.1 exit 0 sig=15 after",
     "1.2 gone 0", "1.3 swept 1 -> bye finish:125"},
    {"events of a lost node are late nodes=2", "0 start -> reach:0 reach:1", "0 up 0", "0 up 1 -> address", "0 address -> prepare",
     "0 ready 0", "0 ready 1 -> go", "0.1 started 0", "0.1 started 1", "1 lost 1 -> sweep:1 say_stop stop:30",
     "1.1 exit 1 status=9", "1.2 gone 1", "1.3 swept 1", "1.4 exit 0 sig=15 after", "1.5 gone 0 -> bye finish:125"},
    {"an agent ends its ranks by itself (its keeper died)", RISE, "1 exit 0 sig=15 after", "1 exit 1 sig=15 after",
     "1.1 lost 0 -> sweep:0 say_stop stop:30", "1.2 swept 0 -> bye finish:125"},
    {"failure, then its agent is lost", RISE, "1 exit 1 status=7 -> say_stop stop:30", "1.1 lost 0 -> sweep:0",
     "1.2 swept 0 -> bye finish:7"},
    {"a sweep that never answers is given up", RISE, "1 lost 0 -> sweep:0 say_stop stop:30", "10.9 tick",
     "11 tick -> bye finish:125"},
    {"stop request", RISE, "1 request 0 -> say_stop stop:30", "2 exit 0 after", "2 exit 1 after", "2.1 gone 0 -> bye finish:143"},
    {"stop --now", RISE, "1 request 1 -> say_stop stop:0 say_kill kill", "1 exit 0 sig=9 after", "1 exit 1 sig=9 after",
     "1.1 gone 0 -> bye finish:143"},
    {"deadline deadline=5", RISE, "4.9 tick", "5 tick -> say_stop stop:30", "5.1 exit 0 sig=15 after", "5.1 exit 1 sig=15 after",
     "5.2 gone 0 -> bye finish:124"},
    {"rank 0 ends the rest rank0", RISE, "1 exit 0 order=1 -> say_stop stop:30", "1.1 exit 1 status=1 order=2",
     "1.2 gone 0 -> bye finish:0"},
    {"rank 0 ends the rest, but rank 1 had failed rank0", RISE, "1 exit 1 status=5 order=1 -> say_stop stop:30",
     "1.1 exit 0 order=2", "1.2 gone 0 -> bye finish:5"},
    {"hang: states, message, stacks, stop hang=10", RISE, "1 progress 0 step=1 -> say_first", "1 progress 1 step=1 -> say_first",
     "2 progress 0 step=2", "2 progress 1 step=2", "3 progress 0 step=3", "11.9 tick", "12 tick -> stacks", "12.01 state 0 S recv",
     "12.02 state 1 T nowhere -> say_hang:1", "14 stacks 0 -> say_stop stop:30", "14.1 exit 0 sig=15 after",
     "14.1 exit 1 sig=15 after", "14.2 gone 0 -> bye finish:124"},
    {"hang: nobody answers hang=10", RISE, "1 progress 0 step=1 -> say_first", "1 progress 1 step=1 -> say_first",
     "11 tick -> stacks", "12 tick -> say_hang:-1", "22 tick -> say_stop stop:30"},
    {"no hang before the first step of all hang=10", RISE, "1 progress 0 step=1 -> say_first", "100 tick"},
    {"no hang when a rank has ended hang=10", RISE, "1 progress 0 step=1 -> say_first", "1 progress 1 step=1 -> say_first",
     "2 exit 0", "100 tick"},
    {"restart after a failure restarts=2", RISE, "1 progress 0 step=4 -> say_first", "1 progress 1 step=4 -> say_first",
     "2 exit 1 status=7 -> say_stop stop:30", "2.1 exit 0 sig=15 after", "2.2 gone 0 -> say_restart", "4 tick -> address",
     "4 address -> prepare", "4 ready 0 -> go", "4 started 0", "4 started 1", "5 progress 0 step=9 -> say_first",
     "5 progress 1 step=9 -> say_first", "6 exit 0", "6 exit 1 -> say_stop stop:2", "6.1 gone 0 -> bye finish:0"},
    {"two attempts without a step restarts=5", RISE, "2 exit 1 status=7 -> say_stop stop:30", "2.1 exit 0 sig=15 after",
     "2.2 gone 0 -> say_restart", "4 tick -> address", "4 address -> prepare", "4 ready 0 -> go", "4 started 0", "4 started 1",
     "5 exit 0 status=8 -> say_stop stop:30", "5.1 exit 1 sig=15 after", "5.2 gone 0 -> say_no_restart bye finish:8"},
    {"status 2 is not tried again restarts=5", RISE, "2 exit 1 status=2 -> say_stop stop:30", "2.1 exit 0 sig=15 after",
     "2.2 gone 0 -> say_no_restart bye finish:2"},
    {"a watch of fttrain restarts=5 fttrain", RISE, "2 exit 1 status=3 -> say_stop stop:30", "2.1 exit 0 sig=15 after",
     "2.2 gone 0 -> say_no_restart bye finish:3"},
    {"status 3 of another program restarts=5", RISE, "2 exit 1 status=3 -> say_stop stop:30", "2.1 exit 0 sig=15 after",
     "2.2 gone 0 -> say_restart"},
    {"no restart after a signal restarts=5", RISE, "2 signal 15 -> say_stop stop:30", "2.1 exit 0 sig=15 after",
     "2.1 exit 1 sig=15 after", "2.2 gone 0 -> bye finish:143"},
    {"INT during the back-off restarts=5", RISE, "2 exit 1 status=7 -> say_stop stop:30", "2.1 exit 0 sig=15 after",
     "2.2 gone 0 -> say_restart", "2.5 signal 2 -> bye finish:130"},
    {"deadline during the back-off restarts=5 deadline=2", RISE, "1.5 exit 1 status=7 -> say_stop stop:30",
     "1.6 exit 0 sig=15 after", "1.7 gone 0 -> say_restart", "1.9 tick", "2 tick -> bye finish:124"},
    {"a lost agent is reached again restarts=1", RISE, "2 lost 0 -> sweep:0 say_stop stop:30", "2.1 swept 0 -> say_restart",
     "4 tick -> reach:0", "4.1 up 0 -> address", "4.2 address -> prepare", "4.3 ready 0 -> go"},
    {"a spare takes the seat of a lost node nodes=2 spares=1 restarts=3", RISE_SPARE, "2 lost 1 -> sweep:1 say_stop stop:30",
     "2.1 exit 0 sig=15 after", "2.2 gone 0", "2.3 swept 1 -> say_restart", "4 tick -> seat", "4.1 seated 2 on=0,2 -> address",
     "4.2 address -> prepare", "4.3 ready 0", "4.3 ready 2 -> go", "4.4 started 0", "4.4 started 1", "5 exit 0",
     "5 exit 1 -> say_stop stop:2", "5.1 gone 0", "5.1 gone 2 -> bye finish:0"},
    {"the spare was not reached: it is not missed nodes=2 spares=1", "0 start -> reach:0 reach:1 reach:2", "0.01 up 0", "0.01 up 1",
     "0.02 failed 2 status=2 -> address"},
    {"a spare for a node that is not reached nodes=2 spares=1", "0 start -> reach:0 reach:1 reach:2", "0.01 up 0",
     "0.02 failed 1 status=2", "0.03 up 2 -> seat", "0.04 seated 2 on=0,2 -> address"},
    {"no spare: the lost node is reached again, then fewer, then all nodes=2 restarts=9",
     RISE_TWO,
     "1 progress 0 step=1 -> say_first",
     "1 progress 1 step=1 -> say_first",
     "2 lost 1 -> sweep:1 say_stop stop:30",
     "2.1 exit 0 sig=15 after",
     "2.2 gone 0",
     "2.3 swept 1 -> say_restart",
     "4 tick -> reach:1",
     "5 failed 1 status=2 -> seat",
     "6 seated 1 on=0 -> address",
     "6.1 address -> prepare",
     "6.2 ready 0 -> go",
     "6.3 started 0",
     "6.5 progress 0 step=2 -> say_first",
     "7 exit 0 status=9 -> say_stop stop:30",
     "7.1 gone 0 -> say_restart",
     "9 tick -> reach:1",
     "9.1 up 1 -> seat",
     "9.2 seated 2 on=0,1 -> address",
     "9.3 address -> prepare",
     "9.4 ready 0",
     "9.4 ready 1 -> go"},
    {"no seats after a loss is 125 nodes=2 restarts=3", RISE_TWO, "2 lost 1 -> sweep:1 say_stop stop:30", "2.1 exit 0 sig=15 after",
     "2.2 gone 0", "2.3 swept 1 -> say_restart", "4 tick -> reach:1", "5 failed 1 status=2 -> seat",
     "6 noseats 0 -> bye finish:125"},
    {"a node that fails twice gives its seat away nodes=2 spares=1 restarts=9",
     RISE_SPARE,
     "1 progress 0 step=1 -> say_first",
     "1 progress 1 step=1 -> say_first",
     "2 exit 1 status=5 -> say_stop stop:30",
     "2.1 exit 0 sig=15 after",
     "2.2 gone 0",
     "2.2 gone 1 -> say_restart",
     "4 tick -> address",
     "4 address -> prepare",
     "4 ready 0",
     "4 ready 1 -> go",
     "4 started 0",
     "4 started 1",
     "5 progress 0 step=2 -> say_first",
     "5 progress 1 step=2 -> say_first",
     "6 exit 1 status=5 -> say_stop stop:30",
     "6.1 exit 0 sig=15 after",
     "6.2 gone 0",
     "6.2 gone 1 -> say_restart",
     "9 tick -> seat",
     "9.1 seated 2 on=0,2 -> address"},
    {"lost while it was given a seat nodes=2 spares=2 restarts=9", RISE_TWO_SPARES, "2 lost 1 -> sweep:1 say_stop stop:30",
     "2.1 exit 0 sig=15 after", "2.2 gone 0", "2.3 swept 1 -> say_restart", "4 tick -> seat", "4.1 lost 2",
     "4.2 seated 2 on=0,2 -> seat", "4.3 seated 2 on=0,3 -> address"},
    {"lost before GO of a later attempt nodes=2 spares=1 restarts=9", RISE_SPARE, "1 progress 0 step=1 -> say_first",
     "1 progress 1 step=1 -> say_first", "2 exit 1 status=5 -> say_stop stop:30", "2.1 exit 0 sig=15 after", "2.2 gone 0",
     "2.2 gone 1 -> say_restart", "4 tick -> address", "4 address -> prepare", "4.1 lost 1 -> say_restart", "9 tick -> seat",
     "9.1 seated 2 on=0,2 -> address"},
    {"a waiting spare that is lost harms nothing nodes=2 spares=1", RISE_SPARE, "2 lost 2", "3 exit 0",
     "3 exit 1 -> say_stop stop:2", "3.1 gone 0", "3.1 gone 1 -> bye finish:0"},
};

/* restart_window counts every restart within it, also the 65th and later ones. */
static void the_window_counts_beyond_64(void **state)
{
    (void)state;
    static const int rank_node[] = {0};
    struct ft_job j;
    struct ft_job_actions out = {0};
    struct ft_job_config c = {.n_nodes = 1,
                              .n_seats = 1,
                              .n_ranks = 1,
                              .rank_node = rank_node,
                              .grace = FT_SEC,
                              .reach_timeout = 30 * FT_SEC,
                              .ready_timeout = 30 * FT_SEC,
                              .sweep_limit = 10 * FT_SEC,
                              .restarts = 100,
                              .restart_window = 1000 * FT_SEC};
    ft_job_init(&j, &c);
    int64_t t = 0, step = 0;
    int restarts = 0;
#define EVENT(...) ft_job_step(&j, &(struct ft_job_event){.t = t, .t_node = t, .step = -1, .saved = -1, __VA_ARGS__}, &out)
    EVENT(.kind = FT_EV_START);
    EVENT(.kind = FT_EV_NODE_UP);
    for (;;) {
        EVENT(.kind = FT_EV_ADDRESS);
        EVENT(.kind = FT_EV_NODE_READY);
        EVENT(.kind = FT_EV_STARTED);
        ft_job_step(&j, &(struct ft_job_event){.kind = FT_EV_PROGRESS, .t = t, .step = ++step, .saved = -1}, &out);
        EVENT(.kind = FT_EV_EXIT, .status = 1);
        EVENT(.kind = FT_EV_GONE);
        if (j.state == FT_JOB_DONE) break;
        assert_int_equal(j.state, FT_JOB_RESTARTING);
        /* 150 restarts spread over time are fine; then one every 2 s: the 101st within the window is one too many */
        t += ++restarts <= 150 ? 11 * FT_SEC : 2 * FT_SEC;
        EVENT(.kind = FT_EV_TICK);
        assert_true(restarts < 1000);
    }
#undef EVENT
    /* in the last 1000 s: n of 2 s each and (1000 - 2n) / 11 before that */
    assert_in_range(restarts, 150, 170);
    free(out.v);
    ft_job_fini(&j);
}

static void scripts_play(void **state)
{
    (void)state;
    size_t n = sizeof scripts / sizeof scripts[0];
    for (size_t i = 0; i < n; i++) play(scripts[i]);
    assert_true(n >= 47);
}

/* ---- random orders ---- */

static unsigned dice(unsigned *seed, unsigned n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % n;
}

struct world {
    struct ft_job j;
    struct ft_job_actions out;
    int64_t t;
    int finished, stops, kills, attempt_stops;
    bool asked_to_kill, dead[8], seats_wanted;
    int rank_node[8];
    int64_t stop_t, grace;
};

static void carry_out(struct world *w)
{
    for (size_t i = 0; i < w->out.n; i++) {
        const struct ft_job_action *a = &w->out.v[i];
        if (w->finished) fail_msg("an action after FINISH");
        switch (a->kind) {
        case FT_DO_FINISH: w->finished++; break;
        case FT_DO_STOP:
            w->stops++;
            w->stop_t = w->t;
            w->grace = a->ns;
            break;
        case FT_DO_KILL:
            if (!w->stops) fail_msg("KILL before STOP");
            if (w->t < w->stop_t + w->grace && !w->asked_to_kill) fail_msg("KILL before the grace is over");
            w->kills++;
            break;
        case FT_DO_SAY_RESTART:
            w->stops = w->kills = 0;
            w->asked_to_kill = false;
            break;
        case FT_DO_SWEEP:
            if (!w->dead[a->node]) fail_msg("sweep of a node that lives");
            break;
        case FT_DO_SEAT: w->seats_wanted = true; break;
        case FT_DO_GO:
            for (int r = 0; r < w->j.c.n_ranks; r++)
                if (w->dead[w->j.c.rank_node[r]]) fail_msg("GO, but rank %d is on a node that is lost", r);
            break;
        case FT_DO_REACH:
        case FT_DO_ADDRESS:
        case FT_DO_PREPARE:
        case FT_DO_SIGNAL:
        case FT_DO_PAUSE:
        case FT_DO_RESUME:
        case FT_DO_STACKS:
        case FT_DO_BYE:
        case FT_DO_SAY_STOP:
        case FT_DO_SAY_KILL:
        case FT_DO_SAY_FIRST_STEP:
        case FT_DO_SAY_SLOW_STEP:
        case FT_DO_SAY_HANG:
        case FT_DO_SAY_NO_RESTART: break;
        }
    }
    w->out.n = 0;
}

/* What the machine counts as it goes is what a look at everybody finds. */
static void counts_are_right(const struct ft_job *j)
{
    int ended = 0, sweeping = 0, at_min = 0;
    int64_t min = INT64_MAX;
    for (int n = 0; n < j->c.n_nodes; n++) sweeping += j->nodes[n].sweeping;
    for (int r = 0; r < j->c.n_ranks; r++) {
        ended += j->ranks[r].state == FT_RANK_ENDED;
        if (j->ranks[r].step < min) min = j->ranks[r].step;
    }
    for (int r = 0; r < j->c.n_ranks; r++) at_min += j->ranks[r].step == min;
    if (ended != j->n_ended || sweeping != j->n_sweeping || min != j->min_step || at_min != j->n_at_min)
        fail_msg("%d ended, %d swept, %d at step %lld; counted %d, %d, %d at %lld", ended, sweeping, at_min, (long long)min,
                 j->n_ended, j->n_sweeping, j->n_at_min, (long long)j->min_step);
}

static void step(struct world *w, struct ft_job_event e)
{
    e.t = e.t_node = w->t;
    ft_job_step(&w->j, &e, &w->out);
    counts_are_right(&w->j);
    carry_out(w);
}

/* Seats for all ranks, two on each node that is up; fewer ranks when there are fewer nodes; none at all now and then. */
static void seat(struct world *w, unsigned *seed)
{
    int n = 0;
    w->seats_wanted = false;
    for (int k = 0; k < w->j.c.n_nodes && n < 6; k++) {
        if (w->j.nodes[k].state != FT_NODE_UP || (w->j.nodes[k].faulty && dice(seed, 2))) continue;
        w->rank_node[n] = w->rank_node[n + 1] = k;
        n += 2;
    }
    if (n && dice(seed, 10)) step(w, (struct ft_job_event){.kind = FT_EV_SEATED, .number = n, .rank_node = w->rank_node});
    else step(w, (struct ft_job_event){.kind = FT_EV_NO_SEATS});
}

/* Something that can happen now, chosen at random. */
static void something(struct world *w, unsigned *seed)
{
    struct ft_job *j = &w->j;
    int node = (int)dice(seed, (unsigned)j->c.n_nodes), rank = (int)dice(seed, (unsigned)j->c.n_ranks);
    struct ft_job_rank *r = &j->ranks[rank];
    switch (dice(seed, 16)) {
    case 0:
        if (j->nodes[node].state == FT_NODE_REACHING && dice(seed, 6) == 0) {
            step(w, (struct ft_job_event){.kind = FT_EV_NODE_FAILED, .node = node, .status = 2});
        } else if (j->nodes[node].state == FT_NODE_REACHING) {
            w->dead[node] = false;
            step(w, (struct ft_job_event){.kind = FT_EV_NODE_UP, .node = node});
        }
        break;
    case 1:
        if (w->seats_wanted && dice(seed, 2)) seat(w, seed);
        else if (j->state == FT_JOB_CHECKING && !j->nodes[node].ready) step(w, (struct ft_job_event){.kind = FT_EV_ADDRESS});
        break;
    case 2:
        if (j->state == FT_JOB_CHECKING && j->nodes[node].seated && !j->nodes[node].ready && j->nodes[node].state == FT_NODE_UP)
            step(w, (struct ft_job_event){.kind = FT_EV_NODE_READY, .node = node});
        break;
    case 3:
    case 4:
        if (r->state == FT_RANK_STARTING) step(w, (struct ft_job_event){.kind = FT_EV_STARTED, .rank = rank});
        break;
    case 5:
    case 6:
    case 7:
        if (r->state == FT_RANK_RUNNING || r->state == FT_RANK_STARTING)
            step(w, (struct ft_job_event){.kind = FT_EV_EXIT,
                                          .rank = rank,
                                          .status = (int)dice(seed, 3),
                                          .signal = dice(seed, 4) == 0 ? 11 : 0,
                                          .after_stop = j->state == FT_JOB_STOPPING && dice(seed, 2)});
        break;
    case 8: {
        bool all = j->state == FT_JOB_STOPPING && j->nodes[node].seated && j->nodes[node].state == FT_NODE_UP;
        for (int k = 0; k < j->c.n_ranks && all; k++)
            if (j->ranks[k].node == node && j->ranks[k].state != FT_RANK_ENDED) all = false;
        if (all) step(w, (struct ft_job_event){.kind = FT_EV_GONE, .node = node});
        break;
    }
    case 9:
        if (dice(seed, 8) == 0 && j->nodes[node].state == FT_NODE_UP) {
            w->dead[node] = true;
            step(w, (struct ft_job_event){.kind = FT_EV_LOST, .node = node});
        }
        break;
    case 10:
        if (j->nodes[node].sweeping) step(w, (struct ft_job_event){.kind = FT_EV_SWEPT, .node = node});
        break;
    case 11:
        if (dice(seed, 20) == 0) {
            w->asked_to_kill = j->state == FT_JOB_STOPPING;
            step(w, (struct ft_job_event){.kind = FT_EV_SIGNAL, .number = dice(seed, 2) ? SIGINT : SIGTERM});
        }
        break;
    case 12:
        if (r->state == FT_RANK_RUNNING)
            step(w, (struct ft_job_event){
                        .kind = FT_EV_PROGRESS, .rank = rank, .step = (int64_t)dice(seed, 12) + r->step / 2, .saved = -1});
        break;
    case 13: step(w, (struct ft_job_event){.kind = FT_EV_SIGNAL, .number = SIGUSR1}); break;
    default: w->t += (int64_t)dice(seed, 3000) * FT_MS; break;
    }
}

static void random_orders_keep_the_invariants(void **state)
{
    (void)state;
    print_message("seeds 1 … 3000\n");
    int statuses[256] = {0};
    for (unsigned s = 1; s <= 3000; s++) {
        unsigned seed = s * 2654435761u;
        static const int rank_node[] = {0, 0, 1, 1, 2, 2};
        struct world w = {.t = FT_SEC};
        struct ft_job_config c = {.n_nodes = 3 + (int)(s % 4),
                                  .n_seats = 3,
                                  .n_ranks = 6,
                                  .rank_node = rank_node,
                                  .grace = 3 * FT_SEC,
                                  .reach_timeout = 300 * FT_SEC,
                                  .ready_timeout = 300 * FT_SEC,
                                  .sweep_limit = 10 * FT_SEC,
                                  .hang_timeout = s % 2 ? 60 * FT_SEC : 0,
                                  .restarts = (int)(s % 3),
                                  .deadline = s % 5 ? 0 : 200 * FT_SEC,
                                  .seed = s};
        ft_job_init(&w.j, &c);
        step(&w, (struct ft_job_event){.kind = FT_EV_START});
        for (int i = 0; i < 20000 && !w.finished; i++) {
            if (w.j.tick_at <= w.t) step(&w, (struct ft_job_event){.kind = FT_EV_TICK});
            else something(&w, &seed);
        }
        if (w.finished != 1) fail_msg("seed %u: %d FINISH, state %s", s, w.finished, ft_job_state_name(w.j.state));
        statuses[ft_job_status(&w.j) & 255]++;
        free(w.out.v);
        ft_job_fini(&w.j);
    }
    print_message("status 1: %d, 125: %d, 2: %d, 130: %d, 143: %d\n", statuses[1], statuses[125], statuses[2], statuses[130],
                  statuses[143]);
    assert_true(statuses[1] > 50 && statuses[125] > 50 && statuses[130] + statuses[143] > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scripts_play),
        cmocka_unit_test(the_window_counts_beyond_64),
        cmocka_unit_test(random_orders_keep_the_invariants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
