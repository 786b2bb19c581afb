/* The head of a run: the thin shell around the job machine. It turns frames, signals and timers into events and carries the
 * machine's actions out through the transport; it writes output, events and the summary.
 *
 *   head.c        loop, timers, signals, start and end
 *   head_link.c   streams: frames of the agents, heartbeats, clocks, credit
 *   head_job.c    what is sent: JOB, GO, STOP …; the machine's actions
 *   head_meet.c   where the ranks meet
 *   head_seats.c  which node has which ranks: spares, fewer nodes, nodes that come back
 *   head_ask.c    questions to fttrain on a node
 *   head_check.c  ftlaunch check: the same agents, nothing started
 *   head_say.c    what people and events.jsonl are told
 *   head_end.c    the failure block and the last lines
 *   head_timing.c how long the phases took
 *   head_input.c  stdin of ranks
 *   ctl.c         the socket for ps and stop */
#ifndef FT_LAUNCHER_HEAD_H
#define FT_LAUNCHER_HEAD_H

#include "base/log.h"
#include "launcher/console.h"
#include "launcher/ctl.h"
#include "launcher/events.h"
#include "launcher/job.h"
#include "launcher/mux.h"
#include "launcher/rundir.h"
#include "launcher/transport/transport.h"
#include "launcher/wire.h"

struct ft_head_request {
    const struct ft_plan *plan;
    char **argv; /* of the ranks, resolved; NULL terminated */
    struct ft_rundir dir;
    int attempt;                            /* FT_RESTART of the first attempt */
    const char *continued;                  /* what changed (--set …), for run_start; NULL: a new run */
    char **command;                         /* ftlaunch's own command line, for run_start */
    const struct ft_plan_request *planning; /* how the plan was made, for other ones of the same job */
    const struct ft_json *facts;            /* of `fttrain check` at the head; NULL: none */
    /* Keeps another plan of the same run in its folder. */
    enum ft_code (*keep_plan)(void *self, const struct ft_plan *plan, struct ft_err *err);
    void *self;
    bool timing; /* at the end, how long the phases took */
    int verbose; /* -1 -q, 0, 1 -v, 2 -vv */
    bool color;
    const char *program_dir;
};

/* Runs the job to its end. Returns the exit status; everything has been said. */
int ft_head_run(const struct ft_head_request *q, struct ft_arena *arena);

/* ftlaunch check: every node is reached and made ready, ranks could meet, fttrain is asked on one node of each kind; no folder, no
 * rank, nothing left. Everything that is wrong goes to faults. *facts: "nodes":[{"name":…, "facts":{…}}] and "differ":[…] as the
 * members of an object; *text: lines for people (the caller frees both). */
/* 0, or 128+N when signal N ended it. */
int ft_head_check(const struct ft_head_request *q, struct ft_faults *faults, struct ft_buf *facts, struct ft_buf *text,
                  struct ft_arena *arena);

/* ---- between the files of the head ---- */

struct ft_clock_sample {
    int64_t offset, rtt; /* node - head; ns */
};
enum { FT_CLOCK_SAMPLES = 16 };

struct ft_head_fact {
    char *name, *value; /* heap */
};

/* A node that the run may use: those of the first plan, then its spares. */
struct ft_head_node {
    int index;
    const char *name;
    const struct ft_plan_node *conf; /* as first planned */
    int seat;                        /* its place among the nodes of the plan in force; -1: it waits */
    struct ft_head_fact *facts;
    size_t n_facts, facts_cap;
    bool asked; /* fttrain is asked here before it is ready */
    struct ft_wire wire;
    bool open, greeted, up, sweeping, silent, kept_said;
    int64_t reached_at, up_at, heard_at;
    uint64_t owed; /* credit that waits for the console */
    struct ft_clock_sample clock[FT_CLOCK_SAMPLES];
    int n_clock;
    int64_t pinged_at;
    char hostname[256], boot[64], build[32];
    uint64_t netns;
    struct ft_transport_times times; /* of reaching it */
    int64_t prepared_at, ready_at;   /* JOB sent, READY; 0: not yet */
    int64_t started_ns, gone_ns;     /* GO to its last STARTED, the stop to GONE; 0: not yet */
    const char *fail_phase;          /* not reached: where, and why (heap) */
    char *fail_reason;
};

struct ft_head_rank {
    int pid;
    char *last;           /* tail of stderr of a failed rank; heap */
    char *evidence;       /* heap */
    char exec_error[256]; /* of EXECFAIL */
    bool core, undrained;
    struct {
        int status, signal;
        double seconds; /* since its start */
        int64_t t_node; /* head's clock */
        bool oom, held; /* held: a failure that is written when it is known which one was first */
    } exit;
    uint64_t in_sent; /* stdin bytes that it has not taken */
    bool in_closed;
};

struct ft_head {
    const struct ft_head_request *q;
    const struct ft_plan *plan; /* in force: which ranks on how many seats */
    const struct ft_launcher_config *config;
    struct ft_arena *arena;
    struct ft_check *check; /* ftlaunch check is the machine; NULL: the job is */
    struct ft_loop loop;
    struct ft_console console;
    struct ft_mux mux;
    struct ft_events events;
    struct ft_job job;
    struct ft_job_actions actions;
    bool acting; /* actions are being carried out: new events queue their actions behind */
    const struct ft_transport_ops *ops;
    void *transport;
    struct ft_head_node *nodes; /* (n_nodes) */
    int n_nodes;
    int *seats; /* (plan->n_nodes) node of each seat */
    struct ft_head_rank *ranks;
    int *rank_node;             /* (plan->world) */
    struct ft_seating *seating; /* a smaller layout is being looked for; NULL */
    struct ft_head_ask *asks;   /* questions under way */
    uint32_t ask_id;
    uint32_t job_number;    /* of the JOB that was sent last: READYs of others are late */
    struct ft_buf job_file; /* job.ini as that JOB sends it, with a NUL; empty: not read yet */
    char *why_no_seats;     /* heap */
    struct ft_ctl ctl;
    struct ft_watch signals;
    int signal_fd;
    struct ft_timer tick, beat, mux_timer, progress_timer, console_timer;
    int64_t attempt_at, all_up_at, address_at, go_at; /* of this attempt; 0: not yet */
    int64_t start_at, beat_ns, beat_at;               /* beat_at: when the next one is due */
    uint64_t credit;                                  /* window per node */
    unsigned char secret[32];
    char token[65];
    char master_addr[64];
    int master_port;
    bool finished, quiet, epipe_said, killed_said, dumping, file_error_said, progress_shown;
    int status;
    char folder_nonce[65]; /* in the run folder's file .head while the run lives */
    struct ft_meet *meet;  /* finding the address; NULL before */
    int n_lost;            /* nodes lost in this attempt; refused has the reason of the first */
    char refused[4096];    /* reasons why nodes are not ready */
    int refused_status;
    unsigned n_killed, n_kept;
    int64_t stopped_at; /* when the last rank ended while stopping */
    /* stdin */
    struct ft_watch in_watch;
    struct ft_timer in_timer;
    bool in_open, in_end_sent;
};

int64_t ft_head_now(void);
void ft_head_event(struct ft_head *h, struct ft_job_event e); /* steps the machine and carries its actions out */
void ft_head_set_timers(struct ft_head *h);
void ft_head_open_ctl(struct ft_head *h);

/* head_link.c */
struct ft_transport_user ft_head_user(struct ft_head *h);
void ft_head_reach(struct ft_head *h, int node, bool sweep);
void ft_head_send(struct ft_head *h, int node, const struct ft_msg *m);
void ft_head_send_all(struct ft_head *h, const struct ft_msg *m);
void ft_head_flush(struct ft_head *h, int node);
/* Returns when the next one is due: soon while ranks run and a node's clock is not known well. */
int64_t ft_head_beat(struct ft_head *h);
void ft_head_not_ready(struct ft_head *h, int node, const char *text); /* remembers and records why */
void ft_head_credit(struct ft_head *h);                                /* gives back what the console took */
/* Time of a node on the head's clock, and how far it may be off. */
int64_t ft_head_time(const struct ft_head *h, int node, int64_t t_node, int64_t *error);

/* head_job.c */
void ft_head_act(struct ft_head *h, const struct ft_job_action *a);
void ft_head_prepare(struct ft_head *h, int node); /* sends the job to a node with a seat */
void ft_head_send_context(struct ft_head *h,
                          int node); /* what a question to fttrain needs, without a rank; goes with the next send */

/* head_seats.c */
const struct ft_plan_node *ft_head_seat(const struct ft_head *h, int node); /* its ranks and slots; NULL: it waits */
void ft_head_seat_first(struct ft_head *h);                                 /* as planned */
void ft_head_seat_all(struct ft_head *h); /* FT_DO_SEAT: answers SEATED or NO_SEATS, maybe later */
void ft_head_seating_end(struct ft_head *h);

/* head_ask.c */
struct ft_head_answer {
    bool ok;
    int status;
    const char *text; /* stdout, or why there is no answer */
    size_t n;
};
typedef void ft_head_answered(struct ft_head *h, int node, const struct ft_head_answer *a);
/* `fttrain WORDS…` on a node whose JOB or context has been sent; done is called once, also when the node is lost. */
void ft_head_ask(struct ft_head *h, int node, const char *const *words, size_t n, ft_head_answered *done);
/* The same for any kind of probe; text may hold NULs. */
void ft_head_probe(struct ft_head *h, int node, enum ft_probe kind, uint64_t number, const char *text, size_t n,
                   ft_head_answered *done);
bool ft_head_ask_result(struct ft_head *h, int node, const struct ft_msg *m); /* false: it belongs to no question */
void ft_head_ask_lost(struct ft_head *h, int node);
void ft_head_ask_end(struct ft_head *h);
/* The deep check on one node of each kind: marks those nodes (asked). */
void ft_head_choose_asked(struct ft_head *h, const int *nodes, int n);
/* Asks `fttrain check` there. */
void ft_head_ask_check(struct ft_head *h, int node, ft_head_answered *done);
/* The faults of such an answer, at the places of the job's own files. */
void ft_head_take_check(struct ft_head *h, int node, const struct ft_head_answer *a, struct ft_faults *faults);

/* head_facts.c */
void ft_head_take_fact(struct ft_head_node *n, const struct ft_msg *m);
void ft_head_drop_facts(struct ft_head_node *n);
const char *ft_head_fact(const struct ft_head_node *n, const char *name); /* "" when not known */

/* head_check.c */
struct ft_check *ft_check_create(struct ft_faults *faults, int n_nodes);
void ft_check_destroy(struct ft_check *c);
void ft_head_check_start(struct ft_head *h);
void ft_head_check_event(struct ft_head *h, const struct ft_job_event *e);
void ft_head_check_report(struct ft_head *h, struct ft_buf *facts, struct ft_buf *text);

/* head_meet.c: MASTER_ADDR and MASTER_PORT, by evidence */
void ft_head_meet_start(struct ft_head *h);
void ft_head_meet_result(struct ft_head *h, int node, const struct ft_msg *m);
void ft_head_meet_end(struct ft_head *h);

/* head_say.c */
void ft_head_say(struct ft_head *h, enum ft_level level, const char *fmt, ...) FT_PRINTF(3, 4);
struct ft_jw *ft_head_record(struct ft_head *h, const char *ev);
void ft_head_recorded(struct ft_head *h);
void ft_head_record_start(struct ft_head *h);
void ft_head_record_replan(struct ft_head *h, const char *reason);
/* A failure is kept until ft_head_record_failures says which rank's was the cause (-1: none's). */
void ft_head_record_exit(struct ft_head *h, int rank, const struct ft_msg *m, int64_t t_node);
void ft_head_record_failures(struct ft_head *h, int cause);
void ft_head_record_stop(struct ft_head *h);
void ft_head_record_killed(struct ft_head *h); /* head_job.c; once per attempt: the head's clock or an agent's may be the first */
void ft_head_dump(struct ft_head *h);          /* SIGQUIT: states and stacks of all ranks, nothing ends */
void ft_head_say_hang(struct ft_head *h, int rank, int64_t step);
void ft_head_progress_line(struct ft_head *h);
void ft_head_clear_progress(struct ft_head *h);
void ft_head_stack(struct ft_head *h, int rank, const struct ft_msg *m);
void ft_head_ranks_json(struct ft_jw *w, const char *key, const int *ranks, size_t n);

/* head_end.c */
void ft_head_summary(struct ft_head *h);
bool ft_head_add_not_reached(struct ft_head *h, struct ft_buf *b);  /* the table of nodes that were not; false: there is none */
void ft_head_show(struct ft_head *h, const struct ft_buf *b);       /* lines as they are, to console and log */
void ft_fold_ranks(const int *ranks, size_t n, struct ft_buf *out); /* "0-2,5" */
void ft_signal_text(int number, struct ft_buf *out);                /* "SIGSEGV" */

/* head_timing.c */
void ft_head_timing(struct ft_head *h); /* the table of --timing */

/* head_input.c */
void ft_head_input_start(struct ft_head *h);
void ft_head_input_taken(struct ft_head *h, int rank, uint64_t n);
void ft_head_input_rank_over(struct ft_head *h, int rank);
void ft_head_input_stop(struct ft_head *h);

#endif
