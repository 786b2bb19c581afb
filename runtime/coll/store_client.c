#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "runtime/coll/frame.h"
#include "runtime/coll/net.h"
#include "runtime/coll/proof.h"
#include "runtime/coll/store.h"
#include "topology/place.h"

/* The store answers a meeting by its own clock; a rank gives it this much longer before it speaks for itself. */
#define ANSWER_SLACK (20 * FT_SEC)
#define SEND_NS      (30 * FT_SEC)

struct ft_store {
    int fd, rank, world;
    bool ended; /* the connection has closed */
    bool left;  /* the orderly end was said */
    struct ft_buf in;
    struct ft_store_peer *peers; /* world, once welcome */
    int first_gone;              /* -1: nobody ended other than orderly */
    bool welcome, refused, done;
    struct ft_err refusal;
    uint32_t request; /* number of the last request */
    bool have_value;
    struct ft_buf value;
};

static void gone(struct ft_store *s, int rank, enum ft_gone how, char *cause)
{
    if (rank < 0 || rank >= s->world || s->peers[rank].gone != FT_GONE_NO) {
        free(cause);
        return;
    }
    s->peers[rank].gone = how;
    s->peers[rank].cause = cause;
    if (how != FT_GONE_LEFT && s->first_gone < 0 && rank != s->rank) s->first_gone = rank;
}

static void take_welcome(struct ft_store *s, struct ft_frame_reader *r)
{
    const uint32_t world = ft_frame_get_u32(r);
    if (s->welcome || r->bad || world != (uint32_t)s->world) return;
    for (int i = 0; i < s->world; i++) {
        s->peers[i].node_rank = (int)ft_frame_get_u32(r);
        free(s->peers[i].host);
        s->peers[i].host = ft_frame_get_text(r);
    }
    s->welcome = !r->bad;
}

static void take_refusal(struct ft_store *s, struct ft_frame_reader *r)
{
    const uint32_t code = ft_frame_get_u32(r);
    char *text = ft_frame_get_text(r), *fix = ft_frame_get_text(r);
    ft_fail(&s->refusal, code > FT_OK && code <= FT_BUG_FOUND ? (enum ft_code)code : FT_CONFIG, "%s", text);
    if (*fix) ft_fix(&s->refusal, "%s", fix);
    s->refused = true;
    free(text);
    free(fix);
}

static void take(struct ft_store *s, enum ft_frame type, struct ft_frame_reader r)
{
    size_t n;
    const unsigned char *p;
    switch (type) {
    case FT_FRAME_WELCOME: take_welcome(s, &r); break;
    case FT_FRAME_REFUSE: take_refusal(s, &r); break;
    case FT_FRAME_VALUE:
        if (ft_frame_get_u32(&r) != s->request) break; /* the answer to a request that was given up */
        p = ft_frame_get_bytes(&r, &n);
        ft_buf_clear(&s->value);
        ft_buf_add(&s->value, p, n);
        s->have_value = !r.bad;
        break;
    case FT_FRAME_GONE: {
        const int rank = (int)ft_frame_get_u32(&r);
        const uint32_t how = ft_frame_get_u32(&r);
        gone(s, rank,
             how == FT_GONE_LEFT      ? FT_GONE_LEFT
             : how == FT_GONE_ABORTED ? FT_GONE_ABORTED
                                      : FT_GONE_DIED,
             ft_frame_get_text(&r));
        break;
    }
    case FT_FRAME_DONE: s->done = true; break;
    case FT_FRAME_JOIN:
    case FT_FRAME_SET:
    case FT_FRAME_GET:
    case FT_FRAME_ADD:
    case FT_FRAME_BYE:
    case FT_FRAME_ABORT: break;
    }
}

void ft_store_pump(struct ft_store *s)
{
    char piece[4096];
    while (!s->ended) {
        const ssize_t k = recv(s->fd, piece, sizeof piece, MSG_DONTWAIT);
        if (k > 0) {
            ft_buf_add(&s->in, piece, (size_t)k);
        } else if (k < 0 && errno == EINTR) {
            continue;
        } else if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            break;
        } else {
            s->ended = true;
        }
        enum ft_frame type;
        struct ft_frame_reader r;
        size_t whole;
        while (ft_frame_parse(&s->in, &type, &r, &whole) == 1) {
            take(s, type, r);
            ft_buf_drop(&s->in, whole);
        }
    }
    /* The store lives in rank 0: without a word of it, rank 0 has died. */
    if (s->ended && s->welcome && s->rank != 0) gone(s, 0, FT_GONE_DIED, ft_xstrdup(""));
}

int ft_store_fd(const struct ft_store *s) { return s->ended ? -1 : s->fd; }
int ft_store_own_fd(const struct ft_store *s) { return s->fd; }
int ft_store_world(const struct ft_store *s) { return s->world; }
const struct ft_store_peer *ft_store_peer(const struct ft_store *s, int rank) { return &s->peers[rank]; }

enum ft_code ft_store_ended(const struct ft_store *s, int rank, struct ft_err *err)
{
    const int r = s->first_gone >= 0 ? s->first_gone : rank;
    const struct ft_store_peer *p = &s->peers[r];
    const char *host = p->host && *p->host ? p->host : "its node";
    if (p->gone == FT_GONE_ABORTED && p->cause && *p->cause)
        return ft_fail(err, FT_COLL, "rank %d on %s ended: %s", r, host, p->cause);
    return ft_fail(err, FT_COLL, "rank %d on %s ended", r, host);
}

enum ft_code ft_store_check(const struct ft_store *s, struct ft_err *err)
{
    return s->first_gone < 0 ? FT_OK : ft_store_ended(s, s->first_gone, err);
}

enum ft_code ft_store_wait(struct ft_store *s, int fd, short events, int64_t deadline, struct ft_err *err)
{
    for (;;) {
        struct pollfd p[2] = {{.fd = fd, .events = events}, {.fd = ft_store_fd(s), .events = POLLIN}};
        const int rc = poll(p, 2, ft_net_ms(deadline));
        if (rc < 0 && errno != EINTR) return ft_fail(err, FT_NET, "poll: %s", strerror(errno));
        if (rc < 0) continue;
        if (p[0].revents) return FT_OK;
        if (p[1].revents) ft_store_pump(s);
        if (ft_store_check(s, err)) return FT_COLL;
        if (rc == 0) return ft_fail(err, FT_TIMEOUT, "no answer in time");
    }
}

/* Until *flag, which a frame of the store sets. */
static enum ft_code wait_answer(struct ft_store *s, const bool *flag, int64_t deadline, struct ft_err *err)
{
    for (;;) {
        ft_store_pump(s);
        if (*flag || s->refused) return FT_OK;
        if (s->welcome && ft_store_check(s, err)) return FT_COLL;
        if (s->ended) return ft_fail(err, FT_NET, "rank 0 closed the connection to the store");
        struct pollfd p = {.fd = s->fd, .events = POLLIN};
        const int rc = poll(&p, 1, ft_net_ms(deadline));
        if (rc == 0) return ft_fail(err, FT_TIMEOUT, "the store of rank 0 gave no answer in time");
        if (rc < 0 && errno != EINTR) return ft_fail(err, FT_NET, "poll: %s", strerror(errno));
    }
}

static enum ft_code send_frame(struct ft_store *s, struct ft_buf *b, size_t begin, int64_t deadline, struct ft_err *err)
{
    ft_frame_end(b, begin);
    const enum ft_code rc = ft_net_send_all(s->fd, b->data, b->n, deadline, err);
    ft_buf_fini(b);
    if (!rc) return FT_OK;
    ft_store_pump(s);
    if (s->welcome && ft_store_check(s, err)) return FT_COLL;
    return ft_wrap(err, "talking to the store of rank 0");
}

/* --- joining --------------------------------------------------------------------------------------------------------- */

static enum ft_code no_store(const struct ft_place *place, const struct ft_addr *a, int64_t join_ns, int e, struct ft_err *err)
{
    ft_fail(err, FT_NET, "rank %d does not reach rank 0 at %s after %.3g s: %s", place->rank, a->text, (double)join_ns / FT_SEC,
            strerror(e));
    if (e == ECONNREFUSED) return ft_fix(err, "likely: rank 0 was not started, or it has another MASTER_PORT");
    return ft_fix(err, "likely: MASTER_ADDR is not an address of rank 0's node, or a firewall is between (ftlaunch doctor tells)");
}

/* Rank 0 may come later than we: refused connections are tried again, at growing distances. */
static enum ft_code connect_until(const struct ft_place *place, const struct ft_addr *a, int64_t join_ns, int64_t deadline, int *fd,
                                  struct ft_err *err)
{
    for (int pause_ms = 5, known = 0;;) {
        int e = 0;
        if (!ft_net_connect(a, deadline, fd, &e, err)) return FT_OK;
        if (e == ETIMEDOUT && known) e = known; /* the deadline cut this attempt short: what the one before it met says more */
        known = e;
        const bool again = e == ECONNREFUSED || e == ECONNRESET || e == ETIMEDOUT || e == EHOSTUNREACH || e == ENETUNREACH;
        if (!again || ft_net_now() >= deadline) return no_store(place, a, join_ns, e, err);
        const int left = ft_net_ms(deadline);
        poll(NULL, 0, left < pause_ms ? left : pause_ms);
        if (pause_ms < 200) pause_ms *= 2;
    }
}

static void boot_id(struct ft_buf *b)
{
    if (ft_read_file("/proc/sys/kernel/random/boot_id", 256, b, NULL)) ft_buf_clear(b);
    while (b->n && b->data[b->n - 1] == '\n') b->data[--b->n] = 0;
}

static enum ft_code say_join(struct ft_store *s, const struct ft_place *place, const char *text, int64_t deadline,
                             struct ft_err *err)
{
    char host[256] = "";
    struct ft_buf b = {0}, boot = {0};
    if (gethostname(host, sizeof host - 1) < 0) host[0] = 0;
    boot_id(&boot);
    const size_t at = ft_frame_begin(&b, FT_FRAME_JOIN);
    ft_frame_u32(&b, (uint32_t)place->rank);
    ft_frame_u32(&b, (uint32_t)place->world);
    ft_frame_u32(&b, (uint32_t)place->node_rank);
    ft_frame_u32(&b, (uint32_t)getpid());
    ft_frame_text(&b, place->node ? place->node : host);
    ft_frame_text(&b, ft_buf_str(&boot));
    ft_frame_text(&b, text);
    ft_buf_fini(&boot);
    return send_frame(s, &b, at, deadline, err);
}

static enum ft_code meet(struct ft_store *s, const struct ft_place *place, const char *text, const char *who, int64_t deadline,
                         struct ft_err *err)
{
    if (ft_proof_client(s->fd, place->token, who, deadline, err)) return err ? err->code : FT_AUTH;
    if (say_join(s, place, text, deadline, err)) return err ? err->code : FT_NET;
    if (wait_answer(s, &s->welcome, deadline + ANSWER_SLACK, err)) return ft_wrap(err, "meeting the other ranks at %s", who);
    if (s->refused) {
        if (err) *err = s->refusal;
        return s->refusal.code;
    }
    return FT_OK;
}

static void destroy(struct ft_store *s)
{
    ft_close(&s->fd);
    for (int i = 0; i < s->world; i++) {
        free(s->peers[i].host);
        free(s->peers[i].cause);
    }
    free(s->peers);
    ft_buf_fini(&s->in);
    ft_buf_fini(&s->value);
    free(s);
}

enum ft_code ft_store_join(const struct ft_place *place, const char *text, int64_t join_ns, struct ft_store **out,
                           struct ft_err *err)
{
    struct ft_addr a;
    const int64_t deadline = ft_net_now() + join_ns;
    if (ft_net_resolve(place->master_addr, place->master_port, &a, err)) return ft_wrap(err, "looking up MASTER_ADDR");
    int fd = -1;
    if (connect_until(place, &a, join_ns, deadline, &fd, err)) return err ? err->code : FT_NET;

    struct ft_store *s = ft_xcalloc(1, sizeof *s);
    *s = (struct ft_store){.fd = fd, .rank = place->rank, .world = place->world, .first_gone = -1};
    s->peers = ft_xcalloc((size_t)s->world, sizeof *s->peers);
    struct ft_buf who = {0};
    ft_buf_addf(&who, "rank 0 at %s", a.text);
    const enum ft_code rc = meet(s, place, text, ft_buf_str(&who), deadline, err);
    ft_buf_fini(&who);
    if (rc) {
        destroy(s);
        return rc;
    }
    *out = s;
    return FT_OK;
}

/* --- after the meeting ------------------------------------------------------------------------------------------------ */

enum ft_code ft_store_set(struct ft_store *s, const char *name, const void *p, size_t n, struct ft_err *err)
{
    if (n > FT_FRAME_MAX / 2) return ft_fail(err, FT_BUG_FOUND, "'%s' has %zu bytes: too much for the store", name, n);
    struct ft_buf b = {0};
    const size_t at = ft_frame_begin(&b, FT_FRAME_SET);
    ft_frame_text(&b, name);
    ft_frame_bytes(&b, p, n);
    return send_frame(s, &b, at, ft_net_now() + SEND_NS, err);
}

static enum ft_code ask(struct ft_store *s, enum ft_frame type, const char *name, int64_t delta, int64_t deadline,
                        struct ft_err *err)
{
    struct ft_buf b = {0};
    const size_t at = ft_frame_begin(&b, type);
    ft_frame_u32(&b, ++s->request);
    ft_frame_text(&b, name);
    if (type == FT_FRAME_ADD) ft_frame_u64(&b, (uint64_t)delta);
    s->have_value = false;
    if (send_frame(s, &b, at, deadline, err)) return err ? err->code : FT_NET;
    if (wait_answer(s, &s->have_value, deadline, err)) return ft_wrap(err, "waiting for '%s' of the store", name);
    return FT_OK;
}

enum ft_code ft_store_get(struct ft_store *s, const char *name, int64_t deadline, struct ft_buf *out, struct ft_err *err)
{
    const enum ft_code rc = ask(s, FT_FRAME_GET, name, 0, deadline, err);
    if (rc) return rc;
    ft_buf_clear(out);
    ft_buf_add(out, s->value.data, s->value.n);
    return FT_OK;
}

enum ft_code ft_store_add(struct ft_store *s, const char *name, int64_t delta, int64_t *out, struct ft_err *err)
{
    const enum ft_code rc = ask(s, FT_FRAME_ADD, name, delta, ft_net_now() + SEND_NS, err);
    if (rc) return rc;
    struct ft_frame_reader r = {.p = (const unsigned char *)s->value.data, .n = s->value.n};
    *out = (int64_t)ft_frame_get_u64(&r);
    return r.bad ? ft_fail(err, FT_NET, "the store's answer for '%s' is broken", name) : FT_OK;
}

static void last_word(struct ft_store *s, enum ft_frame type, const char *why)
{
    struct ft_buf b = {0};
    const int64_t deadline = ft_net_now() + FT_SEC;
    const size_t at = ft_frame_begin(&b, type);
    ft_frame_text(&b, why);
    ft_frame_end(&b, at);
    s->done = false;
    if (!ft_net_send_all(s->fd, b.data, b.n, deadline, NULL))
        while (!s->done && !s->ended && ft_net_now() < deadline) {
            struct pollfd p = {.fd = s->fd, .events = POLLIN};
            poll(&p, 1, ft_net_ms(deadline));
            ft_store_pump(s);
        }
    ft_buf_fini(&b);
}

void ft_store_abort(struct ft_store *s, const char *why)
{
    if (!s->ended) last_word(s, FT_FRAME_ABORT, why);
}

void ft_store_bye(struct ft_store *s)
{
    if (!s->ended && !s->left) last_word(s, FT_FRAME_BYE, "");
    s->left = true;
}

void ft_store_leave(struct ft_store *s)
{
    if (!s) return;
    ft_store_bye(s);
    destroy(s);
}
