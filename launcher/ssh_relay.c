#include "launcher/ssh_relay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

enum { PIECE = 64 * 1024 };

/* One connection. */
struct wire_pair {
    struct ft_ssh_relay *relay;
    struct ft_ssh_channel *channel;
    char *host;
    int port, tag, fd; /* fd: our end; -1 while it is being opened */
    int64_t deadline;
    bool dropped, in_ended, out_ended; /* in: from the channel; out: from the socket */
    struct ft_buf in, out;             /* waiting for the socket; for the channel */
    struct ft_watch watch;
    struct wire_pair *next;
};

struct ft_ssh_relay {
    struct ft_loop *loop;
    struct ft_ssh *ssh;
    struct ft_ssh_relay_user user;
    struct ft_watch watch;
    struct ft_timer again, tick;
    struct wire_pair *pairs;
    bool pumping;
};

static void pump_all(struct ft_ssh_relay *r);

static void free_pair(struct wire_pair *p)
{
    ft_watch_remove(p->relay->loop, &p->watch);
    ft_ssh_channel_destroy(p->channel);
    ft_close(&p->fd);
    ft_buf_fini(&p->in);
    ft_buf_fini(&p->out);
    free(p->host);
    free(p);
}

static void on_again(void *self, int64_t now)
{
    (void)now;
    pump_all(self);
}

static void on_session(void *self, short revents)
{
    (void)revents;
    pump_all(self);
}

static void on_tick(void *self, int64_t now)
{
    struct ft_ssh_relay *r = self;
    pump_all(r);
    ft_timer_set(r->loop, &r->tick, now + 250 * FT_MS, on_tick, r);
}

static void on_socket(void *self, short revents)
{
    (void)revents;
    struct wire_pair *p = self;
    pump_all(p->relay);
}

/* ---- opening ---- */

static void judge_refusal(struct wire_pair *p, enum ft_ssh_fate *fate, enum ft_ssh_phase *phase, char *reason, size_t cap)
{
    char text[300];
    ft_ssh_why(p->relay->ssh, text, sizeof text);
    const char *tail = strstr(text, ") ");
    snprintf(reason, cap, "%s", tail ? tail + 2 : text);
    if (strstr(text, "error (1) ")) /* administratively prohibited */
        snprintf(reason, cap, "the jump host lets nobody connect to %s port %d (AllowTcpForwarding, PermitOpen of its sshd)",
                 p->host, p->port);
    *phase = FT_PHASE_TCP;
    *fate = FT_FATE_FINAL;
    if (strstr(text, "refused")) *fate = FT_FATE_LATER;
    else if (strstr(text, "No route") || strstr(text, "unreachable")) *fate = FT_FATE_NO_ROUTE;
    else if (strstr(text, "not known") || strstr(text, "resolution") || strstr(text, "nodename")) {
        *fate = FT_FATE_LATER;
        *phase = FT_PHASE_RESOLVE;
    } else if (strstr(text, "timed out")) *fate = FT_FATE_NO_ANSWER;
}

/* true: it is over with this pair (the caller takes it out). */
static bool open_pair(struct wire_pair *p)
{
    struct ft_ssh_relay_user *u = &p->relay->user;
    char reason[FT_SSH_REASON] = "";
    enum ft_ssh_fate fate = FT_FATE_FINAL;
    enum ft_ssh_phase phase = FT_PHASE_TCP;
    const enum ft_ssh_rc rc = ft_ssh_channel_connect(p->channel, p->host, p->port);
    if (rc == FT_SSH_AGAIN && !p->dropped && ft_clock_now(ft_clock_real()) < p->deadline) return false;
    int pair[2] = {-1, -1};
    if (rc == FT_SSH_OK && !p->dropped && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0) {
        p->fd = pair[0];
        ft_watch_add(p->relay->loop, &p->watch, p->fd, POLLIN, on_socket, p);
        u->done(u->self, p->tag, pair[1], FT_FATE_UP, phase, "");
        return false;
    }
    if (rc == FT_SSH_AGAIN) {
        fate = FT_FATE_NO_ANSWER;
        snprintf(reason, sizeof reason, "no answer");
    } else if (rc == FT_SSH_DENIED) judge_refusal(p, &fate, &phase, reason, sizeof reason);
    else if (rc == FT_SSH_OK) snprintf(reason, sizeof reason, "%s", strerror(errno));
    else return false; /* the session is gone: pump_all says so */
    if (!p->dropped) u->done(u->self, p->tag, -1, fate, phase, reason);
    return true;
}

/* ---- moving bytes ---- */

static bool send_in(struct wire_pair *p)
{
    bool moved = false;
    while (p->in.n) {
        const ssize_t k = send(p->fd, p->in.data, p->in.n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0 && errno != EAGAIN) { /* nobody is there any more */
            ft_buf_clear(&p->in);
            p->in_ended = true;
        }
        if (k <= 0) break;
        ft_buf_drop(&p->in, (size_t)k);
        moved = true;
    }
    return moved;
}

/* From the channel to the socket. 1: moved; 0: nothing; -1: the session is gone. */
static int move_in(struct wire_pair *p)
{
    int moved = send_in(p);
    char bytes[PIECE];
    while (!p->in.n && !p->in_ended) {
        size_t n;
        const enum ft_ssh_rc rc = ft_ssh_channel_read(p->channel, 1, bytes, sizeof bytes, &n);
        if (rc == FT_SSH_ERROR) return -1;
        if (rc == FT_SSH_END) {
            p->in_ended = true;
            shutdown(p->fd, SHUT_WR);
            return 1;
        }
        if (rc != FT_SSH_OK) break;
        ft_buf_add(&p->in, bytes, n);
        moved = 1;
        (void)send_in(p);
    }
    return moved;
}

static int move_out(struct wire_pair *p)
{
    int moved = 0;
    char bytes[PIECE];
    for (;;) {
        while (p->out.n) {
            size_t n;
            const enum ft_ssh_rc rc = ft_ssh_channel_write(p->channel, p->out.data, p->out.n, &n);
            if (rc == FT_SSH_ERROR) {
                if (!p->in_ended) return -1;
                ft_buf_clear(&p->out); /* the other side has closed */
                p->out_ended = true;
                return 1;
            }
            if (!n) return moved;
            ft_buf_drop(&p->out, n);
            moved = 1;
        }
        if (p->out_ended) return moved;
        const ssize_t k = recv(p->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0 && errno == EAGAIN) return moved;
        if (k <= 0) {
            p->out_ended = true;
            ft_ssh_channel_end(p->channel);
            return 1;
        }
        ft_buf_add(&p->out, bytes, (size_t)k);
    }
}

/* 1: something moved; 0: nothing; -1: the session is gone. *over: the pair is done with. */
static int pump(struct wire_pair *p, bool *over)
{
    *over = false;
    if (p->fd < 0) {
        *over = open_pair(p);
        if (p->fd < 0) return 0;
    }
    const int in = move_in(p), out = in < 0 ? -1 : move_out(p);
    if (out < 0) return -1;
    ft_watch_want(p->relay->loop, &p->watch, (short)((p->out.n || p->out_ended ? 0 : POLLIN) | (p->in.n ? POLLOUT : 0)));
    *over = p->out_ended && !p->out.n; /* the login's end was closed: nobody reads either */
    return in || out;
}

static void say_lost(struct ft_ssh_relay *r)
{
    char why[300];
    ft_ssh_why(r->ssh, why, sizeof why);
    ft_watch_remove(r->loop, &r->watch);
    ft_timer_cancel(&r->again);
    ft_timer_cancel(&r->tick);
    r->user.lost(r->user.self, *why ? why : "connection closed");
}

static void pump_all(struct ft_ssh_relay *r)
{
    if (r->pumping) return;
    r->pumping = true;
    bool moved = false, gone = !ft_ssh_alive(r->ssh);
    for (struct wire_pair **at = &r->pairs; *at && !gone;) {
        struct wire_pair *p = *at;
        bool over;
        const int rc = pump(p, &over);
        if (rc < 0 || !ft_ssh_alive(r->ssh)) gone = true;
        else if (over) {
            *at = p->next;
            free_pair(p);
        } else at = &p->next;
        moved |= rc > 0;
    }
    r->pumping = false;
    if (gone) {
        say_lost(r);
        return;
    }
    ft_watch_want(r->loop, &r->watch, ft_ssh_events(r->ssh));
    /* what libssh read meanwhile for others does not show in poll */
    if (moved) ft_timer_set(r->loop, &r->again, 0, on_again, r);
}

struct ft_ssh_relay *ft_ssh_relay_create(struct ft_loop *loop, struct ft_ssh *ssh, struct ft_ssh_relay_user user)
{
    struct ft_ssh_relay *r = ft_xcalloc(1, sizeof *r);
    r->loop = loop;
    r->ssh = ssh;
    r->user = user;
    ft_watch_add(loop, &r->watch, ft_ssh_fd(ssh), ft_ssh_events(ssh), on_session, r);
    ft_timer_set(loop, &r->tick, ft_clock_now(ft_clock_real()) + 250 * FT_MS, on_tick, r);
    return r;
}

void ft_ssh_relay_connect(struct ft_ssh_relay *r, const char *host, int port, int64_t deadline, int tag)
{
    struct wire_pair *p = ft_xcalloc(1, sizeof *p);
    p->relay = r;
    p->host = ft_xstrdup(host);
    p->port = port;
    p->tag = tag;
    p->fd = -1;
    p->deadline = deadline;
    p->channel = ft_ssh_channel_create(r->ssh);
    p->next = r->pairs;
    r->pairs = p;
    ft_timer_set(r->loop, &r->again, 0, on_again, r);
}

void ft_ssh_relay_drop(struct ft_ssh_relay *r, int tag)
{
    for (struct wire_pair *p = r->pairs; p; p = p->next)
        if (p->tag == tag && p->fd < 0) p->dropped = true;
}

void ft_ssh_relay_destroy(struct ft_ssh_relay *r)
{
    if (!r) return;
    for (struct wire_pair *p = r->pairs, *next; p; p = next) {
        next = p->next;
        free_pair(p);
    }
    ft_watch_remove(r->loop, &r->watch);
    ft_timer_cancel(&r->again);
    ft_timer_cancel(&r->tick);
    ft_ssh_destroy(r->ssh);
    free(r);
}
