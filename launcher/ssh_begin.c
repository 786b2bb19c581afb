/* Commands are tried until one says the magic of the wire and a HELLO of our build; else the file is staged and tried. */
#include "launcher/ssh_begin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "launcher/ssh_session.h"
#include "launcher/wire.h"

#define NEWLINE_EVERY (500 * FT_MS)
#define SLOW          (2 * FT_SEC)
enum { MAX_SAID = 16 * 1024, MAX_BYTES = 1 << 20 };

enum ending {
    AGENT,       /* it is running */
    ENDED,       /* the command ended before its magic */
    OTHER_BUILD, /* an agent, but not ours; it is running */
    BROKEN       /* reason and fate are set */
};

struct command {
    struct ft_wire wire;
    int status;
    char build[40], version[40], answer[300]; /* answer: what was printed instead of the magic, one line */
    int64_t slow_ns;
};

static int64_t now_ns(void) { return ft_clock_now(ft_clock_real()); }

static bool lost(struct ft_ssh_trial *t)
{
    char text[300];
    ft_ssh_why(t->out->ssh, text, sizeof text);
    return ft_ssh_login_fail(t->out, FT_FATE_FINAL, "connection lost (%s)", text);
}

static bool open_channel(struct ft_ssh_trial *t, const char *command)
{
    struct ft_ssh_login *out = t->out;
    enum ft_ssh_rc rc;
    char text[300];
    enum ft_ssh_fate fate = FT_FATE_UP;
    rc = ft_ssh_session_open(out->ssh, t->limits, &out->channel, &fate);
    if (rc == FT_SSH_AGAIN)
        return ft_ssh_login_fail(out, fate == FT_FATE_CANCELLED ? fate : FT_FATE_NO_ANSWER, "%s",
                                 fate == FT_FATE_CANCELLED ? "interrupted" : "the server opens no channel");
    if (rc == FT_SSH_OK)
        while ((rc = ft_ssh_channel_exec(out->channel, command)) == FT_SSH_AGAIN)
            if (!ft_ssh_login_pause(t, INT64_MAX, "the server starts no command")) return false;
    if (rc == FT_SSH_OK) return true;
    if (rc != FT_SSH_DENIED) return lost(t);
    ft_ssh_why(out->ssh, text, sizeof text);
    out->phase = FT_PHASE_CHANNEL;
    return ft_ssh_login_fail(out, FT_FATE_FINAL, "the server refuses to run a command (%s)", text);
}

static void close_channel(struct ft_ssh_trial *t)
{
    ft_ssh_channel_destroy(t->out->channel);
    t->out->channel = NULL;
    ft_buf_clear(&t->out->bytes);
    ft_buf_clear(&t->out->said);
}

/* Appends bytes as one printable line behind what out holds, at most cap - 1 bytes in all. */
static void one_line(char *out, size_t cap, const struct ft_buf *b)
{
    size_t n = strlen(out);
    bool gap = n > 0;
    for (size_t i = 0; i < b->n && n + 2 < cap; i++) {
        const unsigned char c = (unsigned char)b->data[i];
        if (c <= 0x20 || c == 0x7F) {
            gap = n > 0;
            continue;
        }
        if (gap) out[n++] = ' ';
        gap = false;
        out[n++] = (char)c;
    }
    out[n] = 0;
}

static void take_answer(struct ft_ssh_trial *t, struct command *c)
{
    c->answer[0] = 0;
    one_line(c->answer, sizeof c->answer, &t->out->said);
    one_line(c->answer, sizeof c->answer, &t->out->bytes);
}

/* Reads both streams to "again". END: the command is over. */
static enum ft_ssh_rc drain(struct ft_ssh_trial *t, struct command *c)
{
    struct ft_ssh_login *out = t->out;
    char bytes[16384];
    size_t n;
    enum ft_ssh_rc rc;
    while ((rc = ft_ssh_channel_read(out->channel, 2, bytes, sizeof bytes, &n)) == FT_SSH_OK)
        ft_buf_add(&out->said, bytes, n < MAX_SAID - out->said.n ? n : MAX_SAID - out->said.n);
    while ((rc = ft_ssh_channel_read(out->channel, 1, bytes, sizeof bytes, &n)) == FT_SSH_OK) {
        ft_wire_feed(&c->wire, bytes, n);
        if (out->bytes.n + n > MAX_BYTES) return FT_SSH_DENIED;
        ft_buf_add(&out->bytes, bytes, n);
    }
    return rc;
}

static enum ending judge_hello(struct ft_ssh_trial *t, struct command *c, const struct ft_msg *m)
{
    ft_msg_copy_text(m, 0, c->version, sizeof c->version);
    ft_msg_copy_text(m, 2, c->build, sizeof c->build);
    return !*t->target->build || strcmp(c->build, t->target->build) == 0 ? AGENT : OTHER_BUILD;
}

/* Until HELLO, the end of the command, or the deadline. While the magic is awaited a newline goes out every 0.5 s, so that an rc
 * file with `read` goes on. */
static enum ending wait_for_hello(struct ft_ssh_trial *t, struct command *c)
{
    struct ft_ssh_login *out = t->out;
    const int64_t begin = now_ns();
    int64_t newline_at = begin + NEWLINE_EVERY;
    for (;;) {
        const enum ft_ssh_rc rc = drain(t, c);
        struct ft_msg m;
        const int got = ft_wire_next(&c->wire, &m);
        if (c->wire.have_magic && !c->slow_ns) c->slow_ns = now_ns() - begin;
        if (got > 0 && m.type == FT_MSG_HELLO) return judge_hello(t, c, &m);
        if (got != 0) {
            take_answer(t, c);
            snprintf(c->answer, sizeof c->answer, "%s", got < 0 ? c->wire.why : "it does not begin with HELLO");
            return OTHER_BUILD;
        }
        if (rc == FT_SSH_END) {
            c->status = ft_ssh_channel_status(out->channel);
            take_answer(t, c);
            return ENDED;
        }
        if (rc == FT_SSH_DENIED) {
            (void)ft_ssh_login_fail(out, FT_FATE_FINAL, "the login prints more than %d bytes before the agent begins", MAX_BYTES);
            return BROKEN;
        }
        if (rc != FT_SSH_AGAIN) {
            (void)lost(t);
            return BROKEN;
        }
        if (now_ns() >= newline_at && !c->wire.have_magic) {
            size_t n;
            (void)ft_ssh_channel_write(out->channel, "\n", 1, &n);
            newline_at = now_ns() + NEWLINE_EVERY;
        }
        if (!ft_ssh_login_pause(t, c->wire.have_magic ? INT64_MAX : newline_at, "the agent does not begin")) {
            take_answer(t, c);
            if (out->fate == FT_FATE_NO_ANSWER && *c->answer)
                (void)ft_ssh_login_fail(out, FT_FATE_NO_ANSWER, "the agent does not begin; the login says: %s", c->answer);
            return BROKEN;
        }
    }
}

static enum ending try_command(struct ft_ssh_trial *t, const char *command, struct command *c)
{
    *c = (struct command){.status = -1};
    ft_wire_init(&c->wire, FT_WIRE_HEAD);
    snprintf(t->out->command, sizeof t->out->command, "%s", command);
    enum ending e = open_channel(t, command) ? wait_for_hello(t, c) : BROKEN;
    ft_wire_fini(&c->wire);
    if (e == AGENT && c->slow_ns > SLOW) snprintf(t->out->note, sizeof t->out->note, "slow login %.1f s", (double)c->slow_ns / 1e9);
    if (e == OTHER_BUILD && *c->build && t->any_build) {
        snprintf(t->out->note, sizeof t->out->note, "its agent is another build (%s of %s, ours %s)", c->build, c->version,
                 t->target->build);
        return AGENT;
    }
    if (e == ENDED || e == OTHER_BUILD) close_channel(t);
    return e;
}

static void say_ended(char *out, size_t cap, const char *command, const struct command *c)
{
    if (c->status >= 0)
        snprintf(out, cap, "'%.160s' ended with status %d: %.190s", command, c->status,
                 *c->answer ? c->answer : "it printed nothing");
    else snprintf(out, cap, "'%.160s' ended: %.200s", command, *c->answer ? c->answer : "it printed nothing");
}

/* The file, into one folder after the other until it starts. first: what the last command printed. */
static bool stage(struct ft_ssh_trial *t, const struct command *first, const char *before)
{
    struct ft_ssh_login *out = t->out;
    struct ft_buf path = {0};
    struct ft_err err = {0};
    char last[400] = "";
    bool rewrite = false, done = false;
    for (int k = 0; !done && k < FT_SSH_STAGE_FOLDERS;) {
        bool written = false;
        const enum ft_code code = ft_ssh_stage(out->ssh, t->limits, t->target->file, &k, rewrite, &path, &written, &err);
        if (code == FT_INTERRUPTED || code == FT_TIMEOUT || code == FT_NET) {
            (void)ft_ssh_login_fail(out,
                                    code == FT_INTERRUPTED ? FT_FATE_CANCELLED
                                    : code == FT_TIMEOUT   ? FT_FATE_NO_ANSWER
                                                           : FT_FATE_FINAL,
                                    "%s; sending the agent: %s", *last ? last : before, err.text);
            break;
        }
        if (code != FT_OK) {
            (void)ft_ssh_login_fail(out, FT_FATE_FINAL, "%s; it cannot be sent: %s. Install ftlaunch-agent there",
                                    *last ? last : before, err.text);
            break;
        }
        struct command c;
        out->staged = written;
        const enum ending e = try_command(t, path.data, &c);
        if (e == AGENT || e == BROKEN) {
            done = e == AGENT;
            break;
        }
        say_ended(last, sizeof last, path.data, &c);
        if (e == ENDED && *c.answer && strcmp(c.answer, first->answer) == 0 &&
            c.status == first->status) { /* every command is answered so */
            (void)ft_ssh_login_fail(out, FT_FATE_FINAL, "the login runs no command: %s", c.answer);
            break;
        }
        if (written) {
            k++;
            rewrite = false;
        } else rewrite = true; /* what was there does not start: once more with a fresh one */
        if (k == FT_SSH_STAGE_FOLDERS)
            (void)ft_ssh_login_fail(out, FT_FATE_FINAL, "the agent was sent, but does not start: %s", last);
    }
    ft_buf_fini(&path);
    return done;
}

bool ft_ssh_begin_agent(struct ft_ssh_trial *t)
{
    const struct ft_ssh_target *target = t->target;
    struct ft_ssh_login *out = t->out;
    struct command c = {.status = -1};
    const char *other = NULL; /* an agent of another build that speaks our wire */
    char before[400] = "no agent is there";
    t->any_build = !target->file;
    for (size_t i = 0; i < target->n_commands; i++) {
        const char *command = target->commands[i];
        const enum ending e = try_command(t, command, &c);
        if (e == AGENT) return true;
        if (e == BROKEN) return false;
        if (e == ENDED) say_ended(before, sizeof before, command, &c);
        else snprintf(before, sizeof before, "'%.160s' is another build (%.200s)", command, *c.build ? c.build : c.answer);
        if (e == OTHER_BUILD && *c.build) other = command;
    }
    if (!target->file)
        return ft_ssh_login_fail(out, FT_FATE_FINAL, "%s. Install ftlaunch-agent there, or set [launch] stage = yes", before);
    if (stage(t, &c, before)) return true;
    if (out->fate != FT_FATE_FINAL || !other) return false;
    t->any_build = true; /* ours does not run there */
    return try_command(t, other, &c) == AGENT;
}
