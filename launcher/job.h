/* The job machine: (state, event) -> (state, actions). Pure: no descriptor, no clock, no transport name; the time is a field
 * of the event. The head (head.h) turns frames, ends and timers into events and carries the actions out.
 *
 * Nodes have seats or wait: the ranks of a seat run on the node that has it. A node that is lost, or to blame twice, gives its seat
 * to one that waits; the owner decides who sits where (action SEAT, event SEATED), also with fewer seats and ranks.
 *
 *   run   REACHING -> CHECKING -> READY -> RUNNING -> STOPPING -> DONE, and STOPPING -> RESTARTING -> REACHING
 *   node  OFF -> REACHING -> UP -> DONE, or FAILED (before the first rank), or LOST (after)
 *   rank  WAITING -> STARTING -> RUNNING -> ENDED
 *
 * Life: ft_job_init; ft_job_step(START) and then one step per event, carrying out out->v[0..n) after each (the caller clears
 * the list); a TICK when job.tick_at has come; until an action FINISH. ft_job_fini.
 * An event that makes no sense in a state is a bug of the caller (FT_BUG); events of nodes that are already lost or failed are
 * ignored, because they may be on the way when that is decided. */
#ifndef FT_LAUNCHER_JOB_H
#define FT_LAUNCHER_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launcher/verdict.h"

enum ft_job_state {
    FT_JOB_OFF,
    FT_JOB_REACHING,
    FT_JOB_CHECKING,
    FT_JOB_READY,
    FT_JOB_RUNNING,
    FT_JOB_STOPPING,
    FT_JOB_RESTARTING,
    FT_JOB_DONE
};
enum ft_node_state { FT_NODE_OFF, FT_NODE_REACHING, FT_NODE_UP, FT_NODE_EMPTY, FT_NODE_DONE, FT_NODE_BAD, FT_NODE_DARK };
enum ft_rank_state { FT_RANK_WAITING, FT_RANK_STARTING, FT_RANK_RUNNING, FT_RANK_ENDED };

enum ft_job_event_kind {
    FT_EV_START,
    FT_EV_NODE_UP,      /* node */
    FT_EV_SEATED,       /* rank_node, number of ranks: who has which ranks from now on */
    FT_EV_NO_SEATS,     /* the nodes that are up cannot have all ranks, nor fewer */
    FT_EV_NODE_FAILED,  /* node, status (what the run would end with), text */
    FT_EV_ADDRESS,      /* the address and port of the meeting place are known */
    FT_EV_NO_ADDRESS,   /* text */
    FT_EV_NODE_READY,   /* node, status 0, or 126, 127, 2 with text */
    FT_EV_STARTED,      /* rank */
    FT_EV_EXEC_FAILED,  /* rank, status 126, 127, 125, text */
    FT_EV_PROGRESS,     /* rank, step, saved (-1: none) */
    FT_EV_EXIT,         /* rank, status, signal, after_stop, oom, t_node, order, error_ns */
    FT_EV_STOPPED,      /* node acknowledged the STOP */
    FT_EV_GONE,         /* node: nothing of the attempt is left there */
    FT_EV_SILENT,       /* node missed a beat */
    FT_EV_HEARD,        /* a silent node spoke again */
    FT_EV_LOST,         /* node, text: its stream ended or its silence lasted */
    FT_EV_SWEPT,        /* a lost node was cleaned, or that failed */
    FT_EV_SIGNAL,       /* number: sent to the launcher */
    FT_EV_STOP_REQUEST, /* number 0: as the grace says; 1: now */
    FT_EV_RANK_STATE,   /* rank, number = state letter, text = where it waits: the quick answer to STACKS */
    FT_EV_STACKS,       /* node: all its stacks are in */
    FT_EV_TICK
};

struct ft_job_event {
    enum ft_job_event_kind kind;
    int64_t t; /* now, head's monotonic ns */
    int node, rank, number;
    int status, signal;
    bool after_stop, oom;
    int64_t t_node, error_ns, step, saved;
    uint64_t order;
    const int *rank_node; /* SEATED: node of each rank, the owner's, kept until the next SEATED */
    const char *text;     /* lives during the call; NULL: none */
};

enum ft_job_action_kind {
    FT_DO_REACH,   /* node */
    FT_DO_SEAT,    /* decide who sits where: SEATED or NO_SEATS follows */
    FT_DO_ADDRESS, /* find address and port of the meeting place */
    FT_DO_PREPARE, /* send the job to every node that is up */
    FT_DO_GO,
    FT_DO_SIGNAL, /* number, to every rank */
    FT_DO_PAUSE,
    FT_DO_RESUME,
    FT_DO_STOP, /* ns = grace */
    FT_DO_KILL,
    FT_DO_STACKS,
    FT_DO_SWEEP,          /* node */
    FT_DO_BYE,            /* all nodes that are up: the run is over for them */
    FT_DO_SAY_STOP,       /* record: stopping began (job.stop) */
    FT_DO_SAY_KILL,       /* record: the grace is over */
    FT_DO_SAY_FIRST_STEP, /* rank, step = its number */
    FT_DO_SAY_SLOW_STEP,  /* rank, step, ns = how long */
    FT_DO_SAY_HANG,       /* rank (-1: no one is odd), step */
    FT_DO_SAY_RESTART,    /* ns = wait before it; job.attempt is the new one */
    FT_DO_SAY_NO_RESTART, /* text: why not */
    FT_DO_FINISH          /* number = exit status */
};
struct ft_job_action {
    enum ft_job_action_kind kind;
    int node, rank, number;
    int64_t ns, step;
    const char *text; /* static storage */
};
struct ft_job_actions {
    struct ft_job_action *v;
    size_t n, cap;
};

enum ft_stop_reason {
    FT_STOP_NONE,
    FT_STOP_DONE,    /* every rank ended well */
    FT_STOP_RANK0,   /* end = rank0 */
    FT_STOP_FAILURE, /* a rank failed */
    FT_STOP_NODE,    /* a node was lost */
    FT_STOP_HANG,
    FT_STOP_DEADLINE,
    FT_STOP_SIGNAL,  /* to the launcher */
    FT_STOP_REQUEST, /* ftlaunch stop */
    FT_STOP_CONFIG,  /* before GO: a node or the address failed */
    FT_STOP_SEATS    /* after a loss: too few nodes are left */
};

struct ft_job_node {
    enum ft_node_state state;
    bool ready, stopped, sweeping, silent, stacks;
    bool seated; /* it has ranks */
    bool faulty; /* to blame twice: its seat goes to another one if there is any */
    int n_blamed;
    int64_t heard_at, lost_at; /* last sign of life as the machine was told */
};
struct ft_job_rank {
    enum ft_rank_state state;
    int node;
    struct ft_end_of end;         /* when ENDED */
    int64_t started_at, ended_at; /* head's time */
    int64_t step, saved, step_at; /* -1: none yet */
    char letter;                  /* state at a hang */
    bool same_wait;               /* waits where most others wait */
    char wait[48];
};

struct ft_job_config {
    int n_nodes, n_seats, n_ranks; /* the first n_seats nodes have ranks at first, the others wait */
    const int *rank_node;          /* (n_ranks) */
    int64_t grace, reach_timeout, ready_timeout, hang_timeout, restart_window, deadline; /* ns; 0: off (hang, window, deadline) */
    int restarts, first_attempt; /* first_attempt: FT_RESTART of the first one */
    int64_t sweep_limit;         /* ns: reaching a lost node again to clean it; then its lease has ended what is there */
    bool end_rank0, is_fttrain;
    uint64_t seed; /* of the jitter */
};

struct ft_job {
    struct ft_job_config c;
    enum ft_job_state state;
    struct ft_job_node *nodes;
    struct ft_job_rank *ranks;
    /* So that an event costs the same however many nodes and ranks there are: */
    int node_at, rank_at;         /* where a search for a node or rank that is waited for goes on */
    int n_ended, n_sweeping;      /* ranks that have ended; nodes that are being swept */
    int64_t min_step;             /* of the slowest rank, -1: none yet */
    int n_at_min;                 /* ranks that stand there */
    int attempt;                  /* = FT_RESTART */
    int64_t begin_at, attempt_at; /* START, GO */
    int64_t tick_at;              /* when the next TICK is wanted; INT64_MAX: never */
    enum ft_stop_reason stop;
    int stop_signal;   /* number for FT_STOP_SIGNAL */
    int config_status; /* for FT_STOP_CONFIG */
    int64_t stop_at, kill_at, killed_at, phase_limit;
    int last_signal_n; /* INT or TERM seen while stopping */
    int64_t first_signal_at;
    bool began; /* ranks have run, in any attempt */
    bool killed, bye, seating;
    int lost_node; /* first lost node; -1 */
    bool hanging, hang_said;
    int hang_rank;
    int64_t hang_step, hang_at;
    /* steps */
    bool all_stepped;
    int64_t *step_times; /* last durations of the slowest rank's steps */
    int n_steps;
    int64_t last_min_step, last_min_at;
    /* restarts */
    int n_restarts;
    int64_t *restart_at; /* (n_restarts) */
    size_t restart_cap;
    int64_t best_step; /* reached by any attempt so far; -1 */
    bool last_without_progress;
    int last_rank, last_status;
    int64_t backoff;
};

void ft_job_init(struct ft_job *j, const struct ft_job_config *c);
void ft_job_fini(struct ft_job *j);
void ft_job_step(struct ft_job *j, const struct ft_job_event *e, struct ft_job_actions *out);
/* The ends of all ranks that ended, in order of rank, for the verdict; returns how many (ends has n_ranks elements). */
size_t ft_job_ends(const struct ft_job *j, struct ft_end_of *ends);
/* Exit status of the attempt as it stands. */
int ft_job_status(const struct ft_job *j);
const char *ft_job_state_name(enum ft_job_state s);
const char *
ft_stop_reason_name(enum ft_stop_reason r); /* cause kinds of events.jsonl: rank node hang deadline signal stop config */

#endif
