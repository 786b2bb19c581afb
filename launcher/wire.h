/* The wire between ftlaunch (the head) and ftlaunch-agent (one per node): one table of messages that encodes, decodes,
 * prints and fuzzes. Links nothing but base core.
 *
 * Stream, both directions: 16 bytes (`00 FF "ftwire" 0D 0A 1A 0A`, u16 wire number, u16 0); then frames, little-endian:
 *     u32 length · u8 type · u8 flags · u16 slot (0xFFFF = the node) · u64 seq        then `length` bytes of payload
 * length <= 65,536 (longer things come in pieces, flag MORE on all but the last); seq counts from 0 without gaps.
 * A text or bytes field is u32 length + bytes; numbers are little-endian. A bad length, type, field or seq is the end of
 * the stream: ft_wire_next says why, costs at most one payload, and says the same ever after.
 *
 * Life of one end:
 *   1. ft_wire_init(&w, FT_WIRE_HEAD or _AGENT): the magic is already in w.out
 *   2. ft_wire_send(&w, &msg) appends to w.out; the owner writes w.out to the stream and drops what was taken
 *   3. the owner reads the stream into ft_wire_feed(); ft_wire_next() gives one message after the other. Its texts point into
 *      w.in and are valid until the next call of ft_wire_feed or ft_wire_next
 *   4. ft_wire_fini
 * Not thread safe. */
#ifndef FT_LAUNCHER_WIRE_H
#define FT_LAUNCHER_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum {
    FT_WIRE_NUMBER = 1,
    FT_WIRE_MAGIC = 16,
    FT_WIRE_HEADER = 16,
    FT_WIRE_MAX = 65536,
    FT_WIRE_FIELDS = 10,
    FT_WIRE_NODE = 0xFFFF
};
enum { FT_WIRE_MORE = 1 };          /* flags */
enum { FT_WIRE_CHUNK = 60 * 1024 }; /* bytes that surely fit a message beside its other fields */
enum { FT_WIRE_NOISE = 4096 };      /* bytes before the magic that are kept (banners of a login) */

/* Messages. The comment gives the fields in the order of their index (FT_F_… below). */
enum ft_msg_type {
    /* agent -> head */
    FT_MSG_HELLO = 1, /* version, wire, build, hostname, boot id, netns, uid, cores, monotonic ns, nonce */
    FT_MSG_PROOF,     /* proof (TCP streams) */
    FT_MSG_FACT,      /* name, value: one fact of the node's inventory */
    FT_MSG_RESULT,    /* id, ok, number, text: answer to PROBE */
    FT_MSG_READY,     /* code (0; 126 127: the program; 2: anything else), text, number of the JOB */
    FT_MSG_STARTED,   /* pid, time ns */
    FT_MSG_EXECFAIL,  /* step, errno, text */
    FT_MSG_OUT,       /* stream (1 or 2), bytes */
    FT_MSG_EXIT,      /* status, signal, marks, time ns, order, evidence text, last bytes of stderr */
    FT_MSG_PROGRESS,  /* step, saved (-1: none), time ns */
    FT_MSG_STACK,     /* state line, text */
    FT_MSG_NOTE,      /* level, text */
    FT_MSG_LEFT,      /* pid, what (enum ft_left), run id, command: a process that was left behind */
    FT_MSG_STOPPED,   /* n ranks signalled: every exit before the STOP has been sent */
    FT_MSG_TAKEN,     /* bytes of STDIN that the rank took (or that were dropped) */
    FT_MSG_GONE,      /* killed: nothing of this attempt is left here */
    FT_MSG_PONG,      /* t1, t2, t3 */
    /* head -> agent */
    FT_MSG_WELCOME = 64, /* run id, node index, node name, lease ms, beat ms, log level, nonce, proof */
    FT_MSG_PROBE,        /* id, kind (enum ft_probe), number, start, text */
    FT_MSG_JOB,          /* part (enum ft_job_part), bytes, xxh3 of the bytes; slot = rank's slot for PART_RANK_ENV */
    FT_MSG_GO,           /* */
    FT_MSG_SIGNAL,       /* number; slot or the node */
    FT_MSG_STOP,         /* grace ms */
    FT_MSG_KILL,         /* */
    FT_MSG_SWEEP,        /* run id */
    FT_MSG_CREDIT,       /* bytes */
    FT_MSG_STDIN,        /* bytes, end */
    FT_MSG_STACKS,       /* limit ms */
    FT_MSG_PAUSE,        /* */
    FT_MSG_RESUME,       /* */
    FT_MSG_PING,         /* t1 */
    FT_MSG_BYE           /* */
};

enum ft_left { FT_LEFT_SWEPT = 1, FT_LEFT_KEPT = 2 };
/* PORT: number = port wished, 0: any; start = hash; text = address. RESULT number = the port, leased.
 * LISTEN: number = ms, text = lines: nonce, interface (auto, a name or a CIDR), address ("" or the only one). The agent listens on
 *   its own addresses; RESULT text = lines "ADDRESS PORT INTERFACE", the one that the login used first.
 * CONNECT: number = ms, text = lines: nonce, then "ADDRESS PORT" each. RESULT text = one digit per address: 1 reached with the
 *   nonce, 0 not.
 * ASK: number = ms, text = NUL-terminated words behind the job's program, which reads the job file as /dev/stdin in the job's working
 *   directory and environment. RESULT number = its exit status (128+N: signal), text = its stdout, in pieces; not ok: text = why
 *   there is none. */
enum ft_probe { FT_PROBE_PORT = 1, FT_PROBE_LISTEN, FT_PROBE_CONNECT, FT_PROBE_ASK };
/* Pieces of a JOB. Lists are NUL-terminated strings one after another. END is the last one. */
enum ft_job_part {
    FT_PART_SETTINGS =
        1, /* NAME=VALUE…: job (number), slots, first_rank, children (end|keep), stdin (-, all or a rank), bind, interface, files, check
                             (yes: nothing is swept or made). Begins a JOB: parts that came before are forgotten */
    FT_PART_WORKDIR, /* the path */
    FT_PART_ARGV,
    FT_PART_FORWARD,  /* NAME=VALUE… from the head, over the node's own environment */
    FT_PART_RANK_ENV, /* NAME=VALUE… of one rank */
    FT_PART_ENV,      /* NAME=VALUE… of [env]: wins */
    FT_PART_RUN_DIR,  /* its path and the nonce in its file .head: a node that sees that one shares the folder */
    FT_PART_JOB_FILE, /* job.ini, for nodes that do not */
    FT_PART_END
};
enum { FT_EXIT_CORE = 1, FT_EXIT_OOM = 2, FT_EXIT_AFTER_STOP = 4, FT_EXIT_UNDRAINED = 8 }; /* marks of EXIT */

enum ft_wire_kind { FT_WIRE_END, FT_WIRE_U8, FT_WIRE_U16, FT_WIRE_U32, FT_WIRE_U64, FT_WIRE_I64, FT_WIRE_TEXT };

struct ft_wire_field {
    const char *name;
    enum ft_wire_kind kind;
};
struct ft_wire_row {
    uint8_t type;
    bool to_head;
    const char *name;
    struct ft_wire_field fields[FT_WIRE_FIELDS + 1]; /* ends with kind FT_WIRE_END */
};
extern const struct ft_wire_row ft_wire_rows[];
extern const size_t ft_wire_n_rows;
const struct ft_wire_row *ft_wire_row(unsigned type); /* NULL: unknown */

/* One field: a number (I64 as its bits) or bytes. */
struct ft_wire_value {
    uint64_t u;
    const char *p;
    size_t n;
};
struct ft_msg {
    uint8_t type, flags;
    uint16_t slot;
    uint64_t seq; /* set by the receiver */
    struct ft_wire_value f[FT_WIRE_FIELDS];
};
struct ft_msg ft_msg_make(enum ft_msg_type type, unsigned slot); /* all fields 0 or empty */
void ft_msg_u(struct ft_msg *m, unsigned field, uint64_t x);
void ft_msg_text(struct ft_msg *m, unsigned field, const char *s);
void ft_msg_bytes(struct ft_msg *m, unsigned field, const void *p, size_t n);
int64_t ft_msg_i64(const struct ft_msg *m, unsigned field);
/* Copies a text field with a NUL; bytes that are control characters become '?' (texts of a node are shown to people). */
void ft_msg_copy_text(const struct ft_msg *m, unsigned field, char *out, size_t cap);
/* "EXIT slot 3 status=7 signal=0 …" for -vv; bytes are shown as lengths and their first few characters. */
void ft_msg_print(const struct ft_msg *m, struct ft_buf *out);

enum ft_wire_end { FT_WIRE_HEAD, FT_WIRE_AGENT };

struct ft_wire {
    enum ft_wire_end end; /* who we are */
    struct ft_buf in, out;
    size_t in_at; /* consumed bytes of in */
    uint64_t seq_in, seq_out;
    bool have_magic, broken;
    struct ft_buf noise; /* what came before the magic */
    char why[256];       /* reason when broken */
};
void ft_wire_init(struct ft_wire *w, enum ft_wire_end end);
void ft_wire_fini(struct ft_wire *w);
/* Appends one frame to w->out. A payload above FT_WIRE_MAX is a bug of the caller. */
void ft_wire_send(struct ft_wire *w, const struct ft_msg *m);
void ft_wire_feed(struct ft_wire *w, const void *p, size_t n);
/* 1: *m is the next message; 0: more bytes are needed; -1: the stream is broken (w->why). */
int ft_wire_next(struct ft_wire *w, struct ft_msg *m);
/* Sends bytes of any length as pieces of message m (its field `field`), at least one; all but the last carry FT_WIRE_MORE. */
void ft_wire_send_pieces(struct ft_wire *w, struct ft_msg m, unsigned field, const void *p, size_t n);

#endif
