/* The store's thread: one poll loop over all connections. Longer than most files because greeting, meeting, names and ends of
 * ranks are one state machine over one set of connections; what can stand alone (proof, meeting, names, frames) does. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "runtime/coll/frame.h"
#include "runtime/coll/meeting.h"
#include "runtime/coll/names.h"
#include "runtime/coll/net.h"
#include "runtime/coll/proof.h"
#include "runtime/coll/store.h"
#include "topology/place.h"

#define PROOF_NS    (5 * FT_SEC) /* a stranger is closed after this */
#define DISAGREE_NS (3 * FT_SEC) /* how long a disagreement waits for the ranks that have not come, so that all are named */

enum state { IS_GREETING, IS_PROVING, IS_OPEN, IS_DEAD };

struct conn {
    int fd, rank; /* -1: has not joined */
    enum state state;
    int64_t since;
    struct ft_proof proof;
    struct ft_buf in, out;
    bool left;       /* said BYE or ABORT: its end is no news */
    char *waits_for; /* name of a GET that is not there yet */
    uint32_t request;
};

struct ft_store_server {
    int listen_fd, wake_fd, world, port;
    char *token, *where;
    int64_t join_ns, started, decide_at;
    pthread_t thread;
    atomic_llong stop_at; /* 0: go on; else leave at this time or when all ranks have left */

    /* The thread's own from here. Connections never move: proofs point into them. */
    struct conn **conns;
    size_t n_conns, conns_cap;
    struct ft_names names;
    struct ft_member *members;
    size_t n_members, members_cap;
    bool decided, refused;
    struct ft_err refusal;
    int without_token, wrong_token;
};

static void flush(struct conn *c)
{
    while (c->out.n && c->state != IS_DEAD) {
        const ssize_t k = send(c->fd, c->out.data, c->out.n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k > 0) ft_buf_drop(&c->out, (size_t)k);
        else if (k < 0 && errno == EINTR) continue;
        else if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        else c->state = IS_DEAD;
    }
}

static void broadcast_gone(struct ft_store_server *s, int rank, enum ft_gone how, const char *cause)
{
    for (size_t i = 0; i < s->n_conns; i++) {
        struct conn *c = s->conns[i];
        if (c->state != IS_OPEN || c->rank < 0 || c->rank == rank) continue;
        const size_t at = ft_frame_begin(&c->out, FT_FRAME_GONE);
        ft_frame_u32(&c->out, (uint32_t)rank);
        ft_frame_u32(&c->out, (uint32_t)how);
        ft_frame_text(&c->out, cause);
        ft_frame_end(&c->out, at);
        flush(c);
    }
}

/* --- meeting ----------------------------------------------------------------------------------------------------------- */

static void refuse_conn(struct ft_store_server *s, struct conn *c)
{
    const size_t at = ft_frame_begin(&c->out, FT_FRAME_REFUSE);
    ft_frame_u32(&c->out, (uint32_t)s->refusal.code);
    ft_frame_text(&c->out, s->refusal.text);
    ft_frame_text(&c->out, s->refusal.fix);
    ft_frame_end(&c->out, at);
    c->left = true;
    flush(c);
}

static void refuse_all(struct ft_store_server *s)
{
    s->decided = s->refused = true;
    for (size_t i = 0; i < s->n_conns; i++)
        if (s->conns[i]->state == IS_OPEN && s->conns[i]->rank >= 0) refuse_conn(s, s->conns[i]);
}

static void welcome_all(struct ft_store_server *s)
{
    s->decided = true;
    for (size_t i = 0; i < s->n_conns; i++) {
        struct conn *c = s->conns[i];
        if (c->state != IS_OPEN || c->rank < 0) continue;
        const size_t at = ft_frame_begin(&c->out, FT_FRAME_WELCOME);
        ft_frame_u32(&c->out, (uint32_t)s->world);
        for (int r = 0; r < s->world; r++)
            for (size_t j = 0; j < s->n_members; j++)
                if (s->members[j].rank == r) {
                    ft_frame_u32(&c->out, (uint32_t)s->members[j].node_rank);
                    ft_frame_text(&c->out, s->members[j].host);
                }
        ft_frame_end(&c->out, at);
        flush(c);
    }
}

static void note_strangers(struct ft_store_server *s)
{
    if (!s->without_token && !s->wrong_token) return;
    ft_fix(&s->refusal,
           "%d connection(s) without FT_TOKEN and %d with another one were turned away: start all ranks of a run the same way",
           s->without_token, s->wrong_token);
}

/* Called when a rank has joined and when the time is up. */
static void decide(struct ft_store_server *s)
{
    if (s->decided) return;
    const int64_t now = ft_net_now();
    int here = 0;
    for (int r = 0; r < s->world; r++)
        for (size_t j = 0; j < s->n_members; j++)
            if (s->members[j].rank == r) {
                here++;
                break;
            }
    const bool differ = ft_meeting_compare(s->members, s->n_members, &s->refusal) != FT_OK;
    if (here == s->world) {
        if (differ) refuse_all(s);
        else welcome_all(s);
    } else if (now >= s->decide_at) {
        if (!differ) {
            (void)ft_meeting_late(s->members, s->n_members, s->world, (double)s->join_ns / FT_SEC, s->where, &s->refusal);
            note_strangers(s);
        }
        refuse_all(s);
    } else if (differ && s->decide_at > now + DISAGREE_NS) {
        s->decide_at = now + DISAGREE_NS;
    }
}

static void join(struct ft_store_server *s, struct conn *c, struct ft_frame_reader *r)
{
    struct ft_member m = {.rank = (int)ft_frame_get_u32(r)};
    m.world = (int)ft_frame_get_u32(r);
    m.node_rank = (int)ft_frame_get_u32(r);
    m.pid = (int)ft_frame_get_u32(r);
    m.host = ft_frame_get_text(r);
    m.boot = ft_frame_get_text(r);
    m.text = ft_frame_get_text(r);
    if (r->bad || c->rank >= 0 || m.rank < 0) {
        free(m.host);
        free(m.boot);
        free(m.text);
        c->state = IS_DEAD;
        return;
    }
    c->rank = m.rank;
    if (s->decided) {
        if (!s->refused) {
            ft_fail(&s->refusal, FT_CONFIG, "rank %d came after all %d ranks of this run had met", m.rank, s->world);
            ft_fix(&s->refusal, "end what is left of an earlier run, or give another MASTER_PORT");
        }
        c->rank = -1;
        refuse_conn(s, c);
        free(m.host);
        free(m.boot);
        free(m.text);
        return;
    }
    ft_grow(&s->members, &s->members_cap, s->n_members + 1, sizeof *s->members);
    s->members[s->n_members++] = m;
    decide(s);
}

/* --- names ------------------------------------------------------------------------------------------------------------- */

static void answer(struct conn *c, uint32_t request, const struct ft_name *e)
{
    const size_t at = ft_frame_begin(&c->out, FT_FRAME_VALUE);
    ft_frame_u32(&c->out, request);
    ft_frame_bytes(&c->out, e->value.data, e->value.n);
    ft_frame_end(&c->out, at);
    flush(c);
}

static void serve_waiters(struct ft_store_server *s, const struct ft_name *e)
{
    for (size_t i = 0; i < s->n_conns; i++) {
        struct conn *c = s->conns[i];
        if (!c->waits_for || strcmp(c->waits_for, e->name) != 0) continue;
        free(c->waits_for);
        c->waits_for = NULL;
        answer(c, c->request, e);
    }
}

static void set(struct ft_store_server *s, struct ft_frame_reader *r)
{
    char *name = ft_frame_get_text(r);
    size_t n;
    const unsigned char *p = ft_frame_get_bytes(r, &n);
    if (!r->bad) {
        struct ft_name *e = ft_names_make(&s->names, name);
        ft_buf_clear(&e->value);
        ft_buf_add(&e->value, p, n);
        serve_waiters(s, e);
    }
    free(name);
}

static void get(struct ft_store_server *s, struct conn *c, struct ft_frame_reader *r)
{
    const uint32_t request = ft_frame_get_u32(r);
    char *name = ft_frame_get_text(r);
    const struct ft_name *e = ft_names_find(&s->names, name);
    free(c->waits_for);
    c->waits_for = NULL;
    if (e) {
        answer(c, request, e);
        free(name);
    } else {
        c->waits_for = name;
        c->request = request;
    }
}

static void add(struct ft_store_server *s, struct conn *c, struct ft_frame_reader *r)
{
    const uint32_t request = ft_frame_get_u32(r);
    char *name = ft_frame_get_text(r);
    const uint64_t delta = ft_frame_get_u64(r);
    if (!r->bad) {
        struct ft_name *e = ft_names_make(&s->names, name);
        struct ft_frame_reader old = {.p = (const unsigned char *)e->value.data, .n = e->value.n};
        const uint64_t x = (e->value.n == 8 ? ft_frame_get_u64(&old) : 0) + delta;
        ft_buf_clear(&e->value);
        ft_frame_u64(&e->value, x);
        answer(c, request, e);
    }
    free(name);
}

/* --- connections ------------------------------------------------------------------------------------------------------- */

static void done(struct conn *c)
{
    ft_frame_end(&c->out, ft_frame_begin(&c->out, FT_FRAME_DONE));
    flush(c);
}

static void leave(struct ft_store_server *s, struct conn *c, struct ft_frame_reader *r, enum ft_gone how)
{
    char *why = ft_frame_get_text(r);
    if (!c->left && c->rank >= 0 && s->decided) broadcast_gone(s, c->rank, how, why);
    c->left = true;
    free(why);
    done(c);
}

static void take(struct ft_store_server *s, struct conn *c, enum ft_frame type, struct ft_frame_reader r)
{
    switch (type) {
    case FT_FRAME_JOIN: join(s, c, &r); break;
    case FT_FRAME_SET: set(s, &r); break;
    case FT_FRAME_GET: get(s, c, &r); break;
    case FT_FRAME_ADD: add(s, c, &r); break;
    case FT_FRAME_BYE: leave(s, c, &r, FT_GONE_LEFT); break;
    case FT_FRAME_ABORT: leave(s, c, &r, FT_GONE_ABORTED); break;
    case FT_FRAME_WELCOME:
    case FT_FRAME_REFUSE:
    case FT_FRAME_VALUE:
    case FT_FRAME_GONE:
    case FT_FRAME_DONE: c->state = IS_DEAD; break;
    }
}

static void stranger(struct ft_store_server *s, struct conn *c, enum ft_proof_result r)
{
    s->without_token += r == FT_PROOF_NO_THEIRS;
    s->wrong_token += r == FT_PROOF_WRONG;
    if (r == FT_PROOF_NO_MINE && !s->decided) { /* nobody can prove anything here: say it to all at once */
        ft_fail(&s->refusal, FT_AUTH, "some ranks have FT_TOKEN, rank 0 at %s has none", s->where);
        ft_fix(&s->refusal, "start all ranks the same way: all with the run's FT_TOKEN or all without");
        refuse_all(s);
    }
    ft_log(FT_LOG_WARN, "store", "a connection to %s was closed: it %s", s->where,
           r == FT_PROOF_NO_THEIRS ? "has no FT_TOKEN"
           : r == FT_PROOF_WRONG   ? "has another FT_TOKEN"
           : r == FT_PROOF_NO_MINE ? "has FT_TOKEN and this rank has none"
                                   : "does not speak this protocol");
    flush(c);
    c->state = IS_DEAD;
}

/* What has come in, as far as it is whole. */
static void digest(struct ft_store_server *s, struct conn *c)
{
    if (c->state == IS_GREETING && c->in.n >= FT_PROOF_HELLO) {
        memcpy(c->proof.hello, c->in.data, FT_PROOF_HELLO);
        ft_buf_drop(&c->in, FT_PROOF_HELLO);
        const enum ft_proof_result r = ft_proof_answer(&c->proof, s->token);
        if (r != FT_PROOF_STRANGE) ft_buf_add(&c->out, c->proof.answer, FT_PROOF_ANSWER);
        if (r != FT_PROOF_OK) {
            stranger(s, c, r);
            return;
        }
        flush(c);
        if (c->state != IS_DEAD) c->state = IS_PROVING;
    }
    if (c->state == IS_PROVING && c->in.n >= FT_PROOF_LAST) {
        unsigned char last[FT_PROOF_LAST];
        memcpy(last, c->in.data, sizeof last);
        ft_buf_drop(&c->in, sizeof last);
        const enum ft_proof_result r = ft_proof_check_last(&c->proof, last);
        if (r != FT_PROOF_OK) {
            stranger(s, c, r);
            return;
        }
        c->state = IS_OPEN;
    }
    enum ft_frame type;
    struct ft_frame_reader r;
    size_t whole;
    int rc = 0;
    while (c->state == IS_OPEN && (rc = ft_frame_parse(&c->in, &type, &r, &whole)) == 1) {
        take(s, c, type, r);
        ft_buf_drop(&c->in, whole);
    }
    if (rc < 0) c->state = IS_DEAD;
}

static void receive(struct ft_store_server *s, struct conn *c)
{
    char piece[4096];
    while (c->state != IS_DEAD) {
        const ssize_t k = recv(c->fd, piece, sizeof piece, MSG_DONTWAIT);
        if (k > 0) {
            ft_buf_add(&c->in, piece, (size_t)k);
            digest(s, c);
        } else if (k < 0 && errno == EINTR) {
            continue;
        } else if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return;
        } else {
            c->state = IS_DEAD;
        }
    }
}

static void accept_all(struct ft_store_server *s)
{
    for (;;) {
        int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) return;
        size_t unproved = 0;
        for (size_t i = 0; i < s->n_conns; i++) unproved += s->conns[i]->state < IS_OPEN;
        if (unproved >= (size_t)s->world + 64) {
            ft_close(&fd);
            continue;
        }
        ft_net_tune(fd);
        struct conn *c = ft_xcalloc(1, sizeof *c);
        *c = (struct conn){.fd = fd, .rank = -1, .since = ft_net_now()};
        ft_grow(&s->conns, &s->conns_cap, s->n_conns + 1, sizeof(struct conn *));
        s->conns[s->n_conns++] = c;
    }
}

static void conn_destroy(struct conn *c)
{
    ft_close(&c->fd);
    ft_buf_fini(&c->in);
    ft_buf_fini(&c->out);
    free(c->waits_for);
    free(c);
}

/* A rank that is gone without a word has died; before the meeting is over that ends the meeting. */
static void died(struct ft_store_server *s, const struct conn *c)
{
    if (c->rank < 0 || c->left) return;
    if (s->decided) {
        broadcast_gone(s, c->rank, FT_GONE_DIED, "");
        return;
    }
    ft_fail(&s->refusal, FT_COLL, "rank %d ended before all ranks had come", c->rank);
    refuse_all(s);
}

static void sweep(struct ft_store_server *s)
{
    const int64_t now = ft_net_now();
    for (size_t i = 0; i < s->n_conns; i++)
        if (s->conns[i]->state < IS_OPEN && now - s->conns[i]->since > PROOF_NS) s->conns[i]->state = IS_DEAD;
    for (size_t i = 0; i < s->n_conns;) {
        struct conn *c = s->conns[i];
        if (c->state != IS_DEAD) {
            i++;
            continue;
        }
        memmove(&s->conns[i], &s->conns[i + 1], (s->n_conns - i - 1) * sizeof(struct conn *));
        s->n_conns--;
        died(s, c);
        conn_destroy(c);
        i = 0; /* telling the others may have found more dead ones */
    }
}

/* Milliseconds until something of ours is due. */
static int patience(const struct ft_store_server *s, int64_t stop_at)
{
    int64_t until = ft_net_now() + 3600 * FT_SEC;
    if (!s->decided && s->decide_at < until) until = s->decide_at;
    if (stop_at && stop_at < until) until = stop_at;
    for (size_t i = 0; i < s->n_conns; i++)
        if (s->conns[i]->state < IS_OPEN && s->conns[i]->since + PROOF_NS < until) until = s->conns[i]->since + PROOF_NS + FT_MS;
    return ft_net_ms(until);
}

static void turn(struct ft_store_server *s, struct pollfd *p, int64_t stop_at)
{
    const size_t n = s->n_conns;
    p[0] = (struct pollfd){.fd = s->listen_fd, .events = POLLIN};
    p[1] = (struct pollfd){.fd = s->wake_fd, .events = POLLIN};
    for (size_t i = 0; i < n; i++)
        p[2 + i] = (struct pollfd){.fd = s->conns[i]->fd, .events = (short)(POLLIN | (s->conns[i]->out.n ? POLLOUT : 0))};
    if (poll(p, (nfds_t)(2 + n), patience(s, stop_at)) > 0) {
        if (p[1].revents) {
            uint64_t x;
            if (read(s->wake_fd, &x, sizeof x) < 0) x = 0;
        }
        for (size_t i = 0; i < n; i++) {
            if (p[2 + i].revents & POLLOUT) flush(s->conns[i]);
            if (p[2 + i].revents & (POLLIN | POLLHUP | POLLERR)) receive(s, s->conns[i]);
        }
        if (p[0].revents) accept_all(s);
    }
    if (!s->decided && ft_net_now() >= s->decide_at) decide(s);
    sweep(s);
}

static void *serve(void *arg)
{
    struct ft_store_server *s = arg;
    struct pollfd *p = NULL;
    size_t cap = 0;
    for (;;) {
        const int64_t stop_at = atomic_load(&s->stop_at);
        if (stop_at && (s->n_conns == 0 || ft_net_now() >= stop_at)) break;
        ft_grow(&p, &cap, s->n_conns + 2, sizeof *p);
        turn(s, p, stop_at);
    }
    broadcast_gone(s, 0, FT_GONE_LEFT, "");
    free(p);
    return NULL;
}

static void destroy(struct ft_store_server *s)
{
    ft_close(&s->listen_fd);
    ft_close(&s->wake_fd);
    for (size_t i = 0; i < s->n_conns; i++) conn_destroy(s->conns[i]);
    ft_names_fini(&s->names);
    for (size_t i = 0; i < s->n_members; i++) {
        free(s->members[i].host);
        free(s->members[i].boot);
        free(s->members[i].text);
    }
    free(s->conns);
    free(s->members);
    free(s->token);
    free(s->where);
    free(s);
}

static enum ft_code start_thread(struct ft_store_server *s, struct ft_err *err)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int rc = pthread_create(&s->thread, NULL, serve, s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc ? ft_fail(err, FT_IO, "cannot start the store's thread: %s", strerror(rc)) : FT_OK;
}

enum ft_code ft_store_serve(const struct ft_place *place, int64_t join_ns, struct ft_store_server **out, struct ft_err *err)
{
    struct ft_addr a;
    int fd = -1, e = 0, port = 0;
    if (ft_net_resolve(place->master_addr, place->master_port, &a, err)) return ft_wrap(err, "looking up MASTER_ADDR");
    if (ft_net_listen(&a, place->world + 64, &fd, &port, &e, err)) {
        ft_fail(err, FT_NET, "rank 0 cannot listen on %s: %s", a.text, strerror(e));
        if (e == EADDRINUSE)
            return ft_fix(err, "end the program that listens on port %d, or give another MASTER_PORT ([cluster] master_port)",
                          place->master_port);
        if (e == EADDRNOTAVAIL) return ft_fix(err, "MASTER_ADDR must be an address of the node of rank 0 ([cluster] master_addr)");
        return FT_NET;
    }
    struct ft_store_server *s = ft_xcalloc(1, sizeof *s);
    s->listen_fd = fd;
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->world = place->world;
    s->port = port;
    s->token = place->token ? ft_xstrdup(place->token) : NULL;
    s->where = ft_xstrdup(a.text);
    s->join_ns = join_ns;
    s->started = ft_net_now();
    s->decide_at = s->started + join_ns;
    if ((!place->token || !*place->token) && !ft_net_is_loopback(&a))
        ft_log(FT_LOG_WARN, "store", "no FT_TOKEN: whoever reaches %s can join this run; ftlaunch run gives each run a token",
               a.text);
    if (s->wake_fd < 0) {
        destroy(s);
        return ft_fail(err, FT_IO, "eventfd: %s", strerror(errno));
    }
    if (start_thread(s, err)) {
        destroy(s);
        return err ? err->code : FT_IO;
    }
    *out = s;
    return FT_OK;
}

int ft_store_port(const struct ft_store_server *s) { return s->port; }

void ft_store_stop(struct ft_store_server *s, int64_t linger_ns)
{
    if (!s) return;
    const uint64_t one = 1;
    atomic_store(&s->stop_at, ft_net_now() + linger_ns + 1);
    if (write(s->wake_fd, &one, sizeof one) < 0) ft_log(FT_LOG_DEBUG, "store", "eventfd: %s", strerror(errno));
    pthread_join(s->thread, NULL);
    destroy(s);
}
