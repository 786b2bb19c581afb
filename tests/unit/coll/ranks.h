/* Ranks for tests: forked processes of this program with places of their own, waited for with a limit and killed by pid after it. */
#ifndef FT_TESTS_COLL_RANKS_H
#define FT_TESTS_COLL_RANKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/coll/comm.h"
#include "topology/place.h"

enum { RANKS_MAX = 16 };

struct ranks {
    int n, world;       /* n processes are started; world is what they believe (0: n) */
    const int *node_of; /* n; NULL: all on node 0 */
    const char *tokens[RANKS_MAX];
    int stays;      /* number + 1 of a rank that is killed when all others have ended or said something; 0: none */
    int only_from;  /* ranks below are not started */
    int port;       /* 0: a free one is picked */
    double limit_s; /* 0: 60 */
    void *arg;
    /* Runs in the child; the return value becomes its exit status; say() goes to results. */
    int (*run)(const struct ft_place *place, void *arg);
    /* after ranks_run: */
    int status[RANKS_MAX]; /* wait status; -1: was not started */
    bool late[RANKS_MAX];  /* had to be killed */
    char text[RANKS_MAX][4096];
};

void ranks_run(struct ranks *r);

/* A place that ranks pass, and that one of them can wait at until so many others have: an event where a test would guess a time. Opened
 * before the ranks are forked, or by each of them at a FIFO that their starter made. */
struct gate {
    int fd[2];
};
void gate_open(struct gate *g, const char *fifo);
void gate_close(struct gate *g);
void gate_pass(const struct gate *g);
void gate_wait(const struct gate *g, int n);

/* This process is one rank that something else started (mpirun): its place is in the environment. Runs run; its exit status. */
int rank_here(int (*run)(const struct ft_place *place, void *arg), void *arg);
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void say_err(enum ft_code code, const struct ft_err *err);
int free_port(void); /* on 127.0.0.1; no other test process gets the same one while this one lives */
/* All exited with 0; prints what they said otherwise. */
void ranks_all_ok(const struct ranks *r);
/* No process and no socket of ours is left. */
void nothing_left(void);

#endif
