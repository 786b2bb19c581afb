/* The node side of the launcher: one keeper and one agent per node (two processes of one program), libc only.
 *
 * Life:
 *   1. the program starts as the keeper, becomes a subreaper and forks the agent; the keeper keeps no copy of the stream
 *   2. the agent says HELLO on its descriptor 1, reads the head's frames from descriptor 0
 *   3. WELCOME names the run: the agent takes the lease (an abstract socket that keeper and agent hold), sweeps what dead
 *      runs left here, takes PROBEs and the pieces of the JOB, answers READY
 *   4. GO starts the ranks; their output, progress and ends go to the head; leftovers of an ended rank are ended
 *   5. STOP ends everything (TERM, grace, KILL); GONE says that nothing of the attempt is left; a next JOB may follow
 *   6. BYE, or the end of the stream, or silence, or the keeper's death: everything is ended, then the agent ends
 *
 * Who dies with whom: ranks get KILL when the agent ends (PDEATHSIG); the keeper kills the whole tree when the agent ends
 * without having said so or does not answer for 10 s; the agent ends everything when the keeper ends.
 * One thread; one poll loop; deaths come from one epoll of pidfds, whose ready list is in order of death. */
#ifndef FT_LAUNCHER_AGENT_H
#define FT_LAUNCHER_AGENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/str.h"
#include "launcher/agent/bind.h"
#include "launcher/agent/contain.h"
#include "launcher/loop.h"
#include "launcher/proc.h"
#include "launcher/wire.h"

enum {
    FT_KEEPER_LIMIT_MS = 10000, /* silence after which the keeper takes the agent for dead */
    FT_KEEPER_BEAT_MS = 2000,
    FT_STDERR_KEPT = 16384,    /* bytes of each rank's stderr that go with its EXIT */
    FT_DRAIN_MS = 2000,        /* how long an exit waits for output that cannot be sent */
    FT_LOOK_MS = 20,           /* an end to the walk of the tree for what it left: ranks that end together need none */
    FT_LEFTOVER_MS = 2000,     /* TERM to KILL for what an ended rank left behind */
    FT_ORPHAN_GRACE_MS = 2000, /* TERM to KILL when the head or the keeper is gone */
    FT_OUT_BACKLOG = 64 * 1024 /* OUT is read only while less than this waits for the stream */
};

enum ft_slot_state { FT_SLOT_WAITING, FT_SLOT_STARTING, FT_SLOT_RUNNING, FT_SLOT_DEAD, FT_SLOT_ENDED };

struct ft_agent;

/* One pipe of a rank that the agent reads. */
struct ft_pump {
    struct ft_agent *agent;
    struct ft_slot *slot;
    int fd;     /* -1: closed */
    int stream; /* 1, 2; 3: progress */
    bool dry;   /* all that the rank itself wrote has been read: "again", the end, or a whole pipe since it died */
    size_t since_death, capacity; /* bytes read since it died; what the pipe can hold */
    struct ft_watch watch;
};

struct ft_slot {
    struct ft_agent *agent;
    int index, rank;
    enum ft_slot_state state;
    struct ft_proc proc;
    struct ft_watch exec_watch;
    struct ft_pump pump[3]; /* stdout, stderr, progress */
    char *env_bytes;        /* planned variables of this rank (NUL-terminated strings) */
    struct ft_buf rank_env;
    int cgroup; /* descriptor; -1 */
    struct ft_binding binding;
    bool after_stop;
    int status, signal; /* of the end */
    unsigned marks;
    int64_t ended_at;
    uint64_t order;
    struct ft_buf last; /* ring-less tail of stderr, at most 2 * FT_STDERR_KEPT */
    struct ft_buf word; /* unfinished line of progress */
    int in_fd;          /* its stdin; -1: /dev/null or closed */
    struct ft_watch in_watch;
    struct ft_buf in;
    bool in_end;
    bool leftovers; /* something of this rank may be left */
    bool termed;    /* its leftovers had their TERM */
    int64_t leftovers_kill_at, leftovers_look_at;
};

enum ft_agent_mode { FT_AGENT_IDLE, FT_AGENT_RUNNING, FT_AGENT_STOPPING, FT_AGENT_LEAVING };

struct ft_job_parts {
    int n_slots, first_rank;
    bool keep_children;
    char bind[16];      /* none core numa gpu auto */
    char interface[64]; /* auto, a name or a CIDR */
    bool files;         /* output of ranks goes to files of the run folder */
    char in[64];        /* "-", "all" or a rank */
    bool else_path;     /* a program that is not there is looked for on PATH by its last name */
    bool check;         /* ftlaunch check: nothing is swept, no folder is made, nothing is started */
    uint32_t number;
    struct ft_buf workdir, argv, forward, env;
    struct ft_buf run_dir, job_file; /* empty: the head's folder is ours */
};

struct ft_agent {
    struct ft_loop loop;
    struct ft_wire wire;
    size_t out_at; /* of wire.out: what the stream has taken */
    struct ft_watch in_watch, out_watch, death_watch, keeper_watch, signal_watch;
    struct ft_timer tick, beat;
    int in_fd, out_fd, keeper_fd, deaths, signal_fd, lease_fd, port_fd, kmsg_fd;
    bool head_gone, keeper_gone, paused, welcomed, leased, gone_sent, said_stopped, done;
    char run[128], node[256], host[256];
    int64_t lease_ns, heard_at;
    uint64_t credit;
    bool starved; /* pumps rest until credit or room comes */
    enum ft_agent_mode mode;
    int64_t kill_at; /* STOPPING: when KILL is due */
    bool killing;
    struct ft_meeting *meeting; /* addresses are being tried; NULL */
    struct ft_asking *asking;   /* the program is answering a question; NULL */
    struct ft_job_parts job;
    struct ft_slot *slots;
    int n_slots;
    uint64_t order; /* deaths seen so far */
    unsigned n_killed, n_signalled;
    int64_t attempt_at; /* when this attempt's ranks started */
    struct ft_contain contain;
    uint64_t oom_kills;       /* of our cgroup, as far as they are explained */
    struct ft_stacks *stacks; /* NULL: none are being collected */
    char socket[256];         /* the head's control socket: removed when the head dies without doing it; empty: none */
    struct ft_buf oom_pids;   /* that the kernel said it killed */
    pid_t *drains;            /* processes of ours that read for kept children of earlier attempts */
    size_t n_drains;
};

/* agent.c: frames and modes */
int ft_agent_main(int keeper_fd);
void ft_agent_note(struct ft_agent *a, int level, const char *fmt, ...) FT_PRINTF(3, 4);
void ft_agent_flush(struct ft_agent *a); /* writes what the stream takes now */
size_t ft_agent_unsent(const struct ft_agent *a);
void ft_agent_stop(struct ft_agent *a, int64_t grace_ns);
void ft_agent_check_gone(struct ft_agent *a); /* GONE, or the end, when nothing is left */
void ft_agent_head_gone(struct ft_agent *a);  /* the lifeline ended */

/* hello.c */
void ft_agent_hello(struct ft_agent *a);

/* ranks.c: starting, deaths, ends */
void ft_ranks_create(struct ft_agent *a);
void ft_ranks_destroy(struct ft_agent *a);
int ft_ranks_ready(struct ft_agent *a, struct ft_buf *why); /* 0, or the code of READY with the reason */
const char *ft_ranks_workdir(const struct ft_agent *a);     /* NULL: as the agent stands */
void ft_ranks_start(struct ft_agent *a);
void ft_ranks_reap(struct ft_agent *a);    /* takes every death that is in the epoll, in order */
void ft_ranks_deaths(struct ft_agent *a);  /* the same, and goes on: EXITs, leftovers, GONE */
void ft_ranks_advance(struct ft_agent *a); /* sends EXITs that are due */
bool ft_ranks_all_ended(const struct ft_agent *a);

/* pump.c: output, progress, input */
void ft_pump_open(struct ft_pump *p, struct ft_slot *s, int stream, int fd);
void ft_pump_close(struct ft_pump *p);
void ft_pump_read(struct ft_pump *p, bool all); /* once, or until "again" */
void ft_pumps_wake(struct ft_agent *a);
void ft_slot_feed(struct ft_slot *s, const void *p, size_t n, bool end);
void ft_slot_close_input(struct ft_slot *s);

/* ending.c: signals to ranks, leftovers, killing */
void ft_ending_signal(struct ft_agent *a, struct ft_slot *only, int number);
void ft_ending_pause(struct ft_agent *a, bool pause);
void ft_ending_stop(struct ft_agent *a); /* TERM to everything; counts and acknowledges */
void ft_ending_kill(struct ft_agent *a);
void ft_ending_leftovers(struct ft_agent *a, int64_t now);
bool ft_ending_nothing_left(struct ft_agent *a);
void ft_ending_list_kept(struct ft_agent *a);

/* drain.c: children = keep */
void ft_agent_drain_kept(struct ft_agent *a); /* hands the pipes that are still open to a process that outlives the agent */
bool ft_agent_is_drain(const struct ft_agent *a, pid_t pid);

/* folder.c */
bool ft_agent_make_folder(struct ft_agent *a, struct ft_buf *why); /* false: why not */
void ft_agent_else_path(struct ft_agent *a);

/* meet.c: text is lines (wire.h) and is changed */
void ft_agent_probe_listen(struct ft_agent *a, uint32_t id, int64_t limit_ms, char *text);
void ft_agent_probe_connect(struct ft_agent *a, uint32_t id, int64_t limit_ms, char *text);
void ft_agent_meet_end(struct ft_agent *a);
void ft_agent_answer(struct ft_agent *a, uint32_t id, bool ok, uint64_t number, const char *text, size_t n); /* a RESULT */

/* facts.c: the inventory of the node, as FACT frames */
void ft_agent_facts(struct ft_agent *a);
void ft_agent_facts_of_job(struct ft_agent *a, const char *program); /* what only a job asks for: its program, room */

/* ask.c: words are NUL-terminated, words_n bytes in all */
void ft_agent_probe_ask(struct ft_agent *a, uint32_t id, int64_t limit_ms, const char *words, size_t words_n);
void ft_agent_ask_end(struct ft_agent *a); /* what still runs is killed */

/* port.c */
socklen_t ft_agent_address(const char *addr, unsigned port, struct sockaddr_storage *out); /* 0: no address */
void ft_agent_probe_port(struct ft_agent *a, uint32_t id, const char *addr, unsigned wished, uint64_t start);

/* environ.c: base environment of a node for its ranks. Returns a malloc'ed NULL-terminated array; strings point into the
 * arguments, the agent's own environment and *extra. */
char **ft_environ_make(const struct ft_buf *forward, const struct ft_buf *rank, const struct ft_buf *user, const char *progress);
bool ft_environ_is_step(const char *name_value); /* set by an outer launcher or login: not for ranks */

/* stacks.c */
void ft_agent_stacks(struct ft_agent *a, int64_t limit_ns);
void ft_agent_stacks_stop(struct ft_agent *a); /* sends what is there and ends the helpers */

/* keeper.c */
int ft_keeper_main(void);

#endif
