/* transport = ssh: one libssh session per node, with an agent at the end of its exec channel. Logins are done by a pool of
 * threads; a session that is up belongs to the loop. Nodes behind bastions are reached over channels of one session each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "launcher/ssh_pool.h"
#include "launcher/ssh_relay.h"
#include "launcher/ssh_retry.h"
#include "launcher/ssh_targets.h"
#include "launcher/transport/transport.h"
#include "topology/hostlist.h"

#define SAY_MISSING (2 * FT_SEC)
#define TICK        (250 * FT_MS)
enum { READ_BYTES = 64 * 1024, SAID_MAX = 16 * 1024 };

struct ssh;

struct link {
    struct ssh *t;
    int node;
    bool open, up, was_up, wants_room, reading;
    bool cut; /* its bastion was lost: why says so */
    struct ft_ssh *ssh;
    struct ft_ssh_channel *channel;
    struct ft_watch watch;
    struct ft_timer again, retry_timer, fail_timer;
    struct ft_ssh_retry retry; /* through a bastion */
    struct ft_link_error why;
    size_t said;
    int64_t ns[FT_N_PHASES]; /* of its login */
};

enum bastion_state { BASTION_OFF, BASTION_REACHING, BASTION_UP, BASTION_FAILED };
struct bastion {
    struct ssh *t;
    int index;
    enum bastion_state state;
    struct ft_ssh_relay *relay;
    struct ft_timer end_timer;
    struct ft_link_error why;
};

struct ssh {
    struct ft_transport_request q;
    struct ft_ssh_targets targets;
    struct ft_ssh_pool *pool;
    struct link *links;
    struct bastion *bastions;
    struct ft_watch pool_watch;
    struct ft_timer tick, missing;
    int64_t timeout, deadline;
    uint32_t random;
    size_t n_reaching, n_up; /* links that are open and not up yet; that are up */
};

static int64_t now_ns(void) { return ft_clock_now(ft_clock_real()); }
static int tag_of_bastion(const struct bastion *b) { return (int)b->t->targets.n_nodes + b->index; }

static uint32_t next_random(struct ssh *t)
{
    t->random = t->random * 1664525u + 1013904223u;
    return t->random;
}

static void start_link(struct link *k);
static void start_bastion(struct bastion *b);

static void note(struct ssh *t, int node, const char *text) { t->q.user.note(t->q.user.self, node, text); }

/* ---- a link ends ---- */

static void close_link(struct link *k)
{
    k->t->n_up -= k->up;
    k->t->n_reaching -= k->open && !k->up;
    k->open = k->up = k->wants_room = false;
    ft_watch_remove(k->t->q.loop, &k->watch);
    ft_timer_cancel(&k->again);
    ft_timer_cancel(&k->retry_timer);
    ft_timer_cancel(&k->fail_timer);
    ft_ssh_channel_destroy(k->channel);
    ft_ssh_destroy(k->ssh);
    k->channel = NULL;
    k->ssh = NULL;
}

static void report(struct link *k, const char *phase, const char *reason)
{
    struct ft_transport_user *u = &k->t->q.user;
    struct ft_link_error why = {.phase = phase, .status = 2};
    snprintf(why.reason, sizeof why.reason, "%s", reason);
    close_link(k);
    u->closed(u->self, k->node, &why);
}

static void on_fail(void *self, int64_t now)
{
    (void)now;
    struct link *k = self;
    const struct ft_link_error why = k->why;
    report(k, why.phase, why.reason);
}

/* Never from inside reach() or write(). */
static void fail_later(struct link *k, const char *phase, const char *reason)
{
    k->why.phase = phase;
    snprintf(k->why.reason, sizeof k->why.reason, "%s", reason);
    ft_timer_set(k->t->q.loop, &k->fail_timer, 0, on_fail, k);
}

/* ---- a link is up ---- */

static void said(struct link *k, const char *p, size_t n)
{
    if (n > SAID_MAX - k->said) n = SAID_MAX - k->said;
    if (n) k->t->q.user.said(k->t->q.user.self, k->node, p, n);
    k->said += n;
}

static void on_link(void *self, short revents);
static void on_again(void *self, int64_t now)
{
    (void)now;
    on_link(self, 0);
}

/* Everything that can be read now: decrypted data does not show in poll. */
static void on_link(void *self, short revents)
{
    (void)revents;
    struct link *k = self;
    struct ft_transport_user *u = &k->t->q.user;
    char bytes[READ_BYTES], why[300];
    size_t n;
    enum ft_ssh_rc rc = FT_SSH_AGAIN;
    k->reading = true;
    while (k->up && ft_ssh_channel_read(k->channel, 2, bytes, sizeof bytes, &n) == FT_SSH_OK) said(k, bytes, n);
    while (k->up && (rc = ft_ssh_channel_read(k->channel, 1, bytes, sizeof bytes, &n)) == FT_SSH_OK)
        u->data(u->self, k->node, bytes, n);
    k->reading = false;
    if (!k->up) return;
    if (rc == FT_SSH_END) {
        report(k, "stream", k->cut ? k->why.reason : "the agent ended");
        return;
    }
    if (rc == FT_SSH_ERROR || !ft_ssh_alive(k->ssh)) {
        ft_ssh_why(k->ssh, why, sizeof why);
        report(k, "stream", k->cut ? k->why.reason : *why ? why : "connection lost");
        return;
    }
    if (k->wants_room) {
        k->wants_room = false;
        u->room(u->self, k->node);
        if (!k->up) return;
    }
    ft_watch_want(k->t->q.loop, &k->watch, ft_ssh_events(k->ssh));
}

static void link_up(struct link *k, struct ft_ssh_login *l)
{
    struct ssh *t = k->t;
    const struct ft_ssh_target *target = &t->targets.nodes[k->node].target;
    t->n_reaching--;
    t->n_up++;
    k->up = k->was_up = true;
    k->said = 0;
    memcpy(k->ns, l->ns, sizeof k->ns);
    k->ssh = l->ssh;
    k->channel = l->channel;
    l->ssh = NULL;
    l->channel = NULL;
    ft_watch_add(t->q.loop, &k->watch, ft_ssh_fd(k->ssh), ft_ssh_events(k->ssh), on_link, k);
    if (target->file) ft_ssh_memory_put(&t->targets.memory, target->user, target->host, target->port, l->command);
    if (*l->note) note(t, k->node, l->note);
    if (l->said.n) said(k, l->said.data, l->said.n);
    ft_timer_set(t->q.loop, &k->again, 0, on_again, k);
    t->q.user.data(t->q.user.self, k->node, l->bytes.data, l->bytes.n);
}

/* ---- logins ---- */

static void on_tick(void *self, int64_t now)
{
    struct ssh *t = self;
    ft_ssh_pool_tick(t->pool, now);
    if (ft_ssh_pool_busy(t->pool)) ft_timer_set(t->q.loop, &t->tick, now + TICK, on_tick, t);
}

static void submit(struct ssh *t, const struct ft_ssh_target *target, int fd, int tag)
{
    ft_ssh_pool_add(t->pool, target, fd, t->deadline, tag);
    if (!t->tick.prev) ft_timer_set(t->q.loop, &t->tick, now_ns() + TICK, on_tick, t);
}

static void on_link_retry(void *self, int64_t now)
{
    (void)now;
    start_link(self);
}

/* A login of a node did not come up: tried again (through a bastion; the pool does it for the others) or told. */
static void link_failed(struct link *k, enum ft_ssh_fate fate, enum ft_ssh_phase phase, const char *reason)
{
    struct ssh *t = k->t;
    const int through = t->targets.nodes[k->node].through;
    int64_t at = -1;
    if (through >= 0 && t->bastions[through].state == BASTION_UP)
        at = ft_ssh_retry_at(&k->retry, fate, now_ns(), t->deadline, next_random(t));
    if (at < 0) {
        fail_later(k, ft_ssh_phase_name(phase), reason);
        return;
    }
    k->why.phase = ft_ssh_phase_name(phase);
    snprintf(k->why.reason, sizeof k->why.reason, "%s", reason);
    ft_timer_set(t->q.loop, &k->retry_timer, at, on_link_retry, k);
}

static void start_link(struct link *k)
{
    struct ssh *t = k->t;
    const struct ft_ssh_node *n = &t->targets.nodes[k->node];
    if (n->through < 0) {
        submit(t, &n->target, -1, k->node);
        return;
    }
    struct bastion *b = &t->bastions[n->through];
    if (b->state == BASTION_UP) ft_ssh_relay_connect(b->relay, n->target.host, n->target.port, t->deadline, k->node);
    else if (b->state == BASTION_FAILED) fail_later(k, b->why.phase, b->why.reason);
    else if (b->state == BASTION_OFF) start_bastion(b); /* it starts its links when it is up */
}

/* ---- bastions ---- */

/* Everything that waits for this bastion goes on, or fails with its reason. */
static void tell_waiting(struct bastion *b)
{
    struct ssh *t = b->t;
    for (size_t i = 0; i < t->targets.n_nodes; i++)
        if (t->links[i].open && !t->links[i].up && t->targets.nodes[i].through == b->index) start_link(&t->links[i]);
    for (size_t i = 0; i < t->targets.n_bastions; i++)
        if (t->bastions[i].state == BASTION_REACHING && t->targets.bastions[i]->through == b->index) {
            t->bastions[i].state = BASTION_OFF;
            start_bastion(&t->bastions[i]);
        }
}

static void fail_bastion(struct bastion *b, const char *phase, const char *reason)
{
    b->state = BASTION_FAILED;
    b->why.phase = phase;
    snprintf(b->why.reason, sizeof b->why.reason, "jump host %.120s: %.370s", b->t->targets.bastions[b->index]->target.name,
             reason);
    tell_waiting(b);
}

static void on_bastion_end(void *self, int64_t now)
{
    (void)now;
    struct bastion *b = self;
    struct ft_ssh_relay *r = b->relay;
    b->relay = NULL;
    ft_ssh_relay_destroy(r); /* the sockets of its nodes end: their links say so */
    tell_waiting(b);
}

/* One event and one message, whatever hangs on it. */
static void on_bastion_lost(void *self, const char *reason)
{
    struct bastion *b = self;
    struct ssh *t = b->t;
    const int before = t->targets.bastions[b->index]->through;
    char text[600];
    b->state = BASTION_FAILED;
    b->why.phase = "stream";
    snprintf(b->why.reason, sizeof b->why.reason, "jump host %.120s was lost: %.300s", t->targets.bastions[b->index]->target.name,
             reason);
    if (before >= 0 && t->bastions[before].state == BASTION_FAILED) b->why = t->bastions[before].why;
    else {
        snprintf(text, sizeof text, "%s; every node behind it is lost with it", b->why.reason);
        note(t, -1, text);
    }
    for (size_t i = 0; i < t->targets.n_nodes; i++) {
        struct link *k = &t->links[i];
        if (t->targets.nodes[i].through != b->index || !k->up) continue;
        k->cut = true;
        k->why = b->why;
    }
    ft_timer_set(t->q.loop, &b->end_timer, 0, on_bastion_end, b);
}

/* A connection through bastion `self` is there: it belongs to a node, or to the next bastion of a chain. */
static void on_connected(void *self, int tag, int fd, enum ft_ssh_fate fate, enum ft_ssh_phase phase, const char *reason)
{
    struct bastion *b = self;
    struct ssh *t = b->t;
    const int n = (int)t->targets.n_nodes;
    if (tag < n) {
        struct link *k = &t->links[tag];
        if (fd >= 0 && k->open && !k->up) submit(t, &t->targets.nodes[tag].target, fd, tag);
        else if (fd >= 0) close(fd);
        else if (k->open) link_failed(k, fate, phase, reason);
        return;
    }
    if (fd >= 0) submit(t, &t->targets.bastions[tag - n]->target, fd, tag);
    else fail_bastion(&t->bastions[tag - n], ft_ssh_phase_name(phase), reason);
}

static void start_bastion(struct bastion *b)
{
    struct ssh *t = b->t;
    const struct ft_ssh_bastion *conf = t->targets.bastions[b->index];
    b->state = BASTION_REACHING;
    if (conf->through < 0) {
        submit(t, &conf->target, -1, tag_of_bastion(b));
        return;
    }
    struct bastion *before = &t->bastions[conf->through];
    if (before->state == BASTION_UP)
        ft_ssh_relay_connect(before->relay, conf->target.host, conf->target.port, t->deadline, tag_of_bastion(b));
    else if (before->state == BASTION_FAILED) fail_bastion(b, before->why.phase, before->why.reason);
    else if (before->state == BASTION_OFF) start_bastion(before);
}

static void bastion_done(struct bastion *b, struct ft_ssh_login *l)
{
    if (l->fate != FT_FATE_UP) {
        fail_bastion(b, ft_ssh_phase_name(l->phase), l->reason);
        return;
    }
    b->state = BASTION_UP;
    b->relay = ft_ssh_relay_create(b->t->q.loop, l->ssh, (struct ft_ssh_relay_user){b, on_connected, on_bastion_lost});
    l->ssh = NULL;
    tell_waiting(b);
}

static void on_pool(void *self, short revents)
{
    (void)revents;
    struct ssh *t = self;
    struct ft_ssh_login l;
    int tag;
    while (ft_ssh_pool_take(t->pool, &l, &tag)) {
        const int n = (int)t->targets.n_nodes;
        struct link *k = tag < n ? &t->links[tag] : NULL;
        if (!k) bastion_done(&t->bastions[tag - n], &l);
        else if (k->open && l.fate == FT_FATE_UP) link_up(k, &l);
        else if (k->open) link_failed(k, l.fate, l.phase, l.reason);
        ft_ssh_login_fini(&l);
    }
}

/* ---- who is missing ---- */

static void why_missing(const struct link *k, struct ft_buf *out)
{
    const struct ft_ssh_node *n = &k->t->targets.nodes[k->node];
    char reason[FT_SSH_REASON] = "";
    enum ft_ssh_phase phase = FT_PHASE_TCP;
    if (ft_ssh_pool_look(k->t->pool, k->node, &phase, reason))
        ft_buf_addf(out, "%s: %s", ft_ssh_phase_name(phase), *reason ? reason : "no answer yet");
    else if (k->retry_timer.prev) ft_buf_addf(out, "%s: %s", k->why.phase, k->why.reason);
    else if (n->through >= 0) {
        struct bastion *b = &k->t->bastions[n->through];
        const bool known = ft_ssh_pool_look(k->t->pool, tag_of_bastion(b), &phase, reason);
        ft_buf_addf(out, "%s: %s (jump host %s)", ft_ssh_phase_name(phase), known && *reason ? reason : "no answer yet",
                    k->t->targets.bastions[n->through]->target.name);
    } else ft_buf_adds(out, "tcp: no answer yet");
}

struct missing {
    size_t node;
    char *why;
};

/* By reason, those of one in the order of the nodes. */
static int by_why(const void *a, const void *b)
{
    const struct missing *x = a, *y = b;
    const int c = strcmp(x->why, y->why);
    return c ? c : (x->node > y->node) - (x->node < y->node);
}

/* One line for each reason. v is sorted by_why. */
static void say_missing(struct ssh *t, const struct missing *v, size_t n)
{
    const char **names = ft_xcalloc(n, sizeof *names);
    struct ft_buf line = {0};
    for (size_t i = 0; i < n;) {
        struct ft_names set = {names, 0};
        const char *why = v[i].why;
        for (; i < n && !strcmp(v[i].why, why); i++) names[set.n++] = t->targets.nodes[v[i].node].target.name;
        ft_buf_clear(&line);
        ft_buf_adds(&line, "still waiting for ");
        ft_hostlist_fold(&set, &line);
        ft_buf_addf(&line, ": %s", why);
        note(t, -1, line.data);
    }
    ft_buf_fini(&line);
    free(names);
}

/* Once, with the reason, so that a typing error needs no deadline to be seen; equal reasons in one line. */
static void on_missing(void *self, int64_t now)
{
    (void)now;
    struct ssh *t = self;
    struct missing *v = ft_xcalloc(t->targets.n_nodes, sizeof *v);
    size_t n = 0;
    for (size_t i = 0; i < t->targets.n_nodes; i++) {
        struct ft_buf why = {0};
        if (!t->links[i].open || t->links[i].up || t->links[i].was_up) continue; /* a lost one is known to be missing */
        why_missing(&t->links[i], &why);
        v[n++] = (struct missing){i, why.data};
    }
    qsort(v, n, sizeof *v, by_why);
    if (n) say_missing(t, v, n);
    for (size_t i = 0; i < n; i++) free(v[i].why);
    free(v);
}

/* ---- the operations ---- */

static void close_ssh(void *self)
{
    struct ssh *t = self;
    if (!t) return;
    ft_timer_cancel(&t->tick);
    ft_timer_cancel(&t->missing);
    for (size_t i = 0; t->links && i < t->targets.n_nodes; i++) close_link(&t->links[i]);
    ft_ssh_pool_destroy(t->pool); /* logins through bastions end with it, so before them */
    ft_watch_remove(t->q.loop, &t->pool_watch);
    for (size_t i = t->targets.n_bastions; t->bastions && i-- > 0;) { /* a chain from its far end */
        ft_timer_cancel(&t->bastions[i].end_timer);
        ft_ssh_relay_destroy(t->bastions[i].relay);
    }
    ft_ssh_memory_write(&t->targets.memory);
    free(t->links);
    free(t->bastions);
    ft_ssh_targets_fini(&t->targets);
    free(t);
}

static enum ft_code open_ssh(const struct ft_transport_request *q, void **out, struct ft_err *err)
{
    struct ssh *t = ft_xcalloc(1, sizeof *t);
    t->q = *q;
    t->timeout = q->config->ssh.timeout;
    const struct ft_ssh_request r = {q->config, q->nodes, q->n_nodes, q->program_dir, q->explain};
    enum ft_code c = ft_ssh_targets_make(&r, &t->targets, err);
    if (c == FT_OK) c = ft_ssh_pool_create((unsigned)q->config->ssh.parallel, &t->pool, err);
    if (c == FT_OK && !ft_random(&t->random, sizeof t->random)) c = ft_fail(err, FT_IO, "getrandom failed");
    if (c != FT_OK) {
        close_ssh(t);
        return c;
    }
    t->links = ft_xcalloc(t->targets.n_nodes, sizeof *t->links);
    t->bastions = ft_xcalloc(t->targets.n_bastions + 1, sizeof *t->bastions);
    for (size_t i = 0; i < t->targets.n_nodes; i++) t->links[i] = (struct link){.t = t, .node = (int)i};
    for (size_t i = 0; i < t->targets.n_bastions; i++) t->bastions[i] = (struct bastion){.t = t, .index = (int)i};
    ft_watch_add(q->loop, &t->pool_watch, ft_ssh_pool_fd(t->pool), POLLIN, on_pool, t);
    for (size_t i = 0; i < t->targets.notes.n; i++) {
        const struct ft_fault *f = &t->targets.notes.v[i];
        char text[600];
        snprintf(text, sizeof text, "%.300s:%d: %.250s", f->at.file, f->at.line, f->text);
        note(t, -1, text);
    }
    if (q->config->ssh.host_keys == FT_HOST_KEYS_OFF) note(t, -1, "host_keys = off: unknown host keys are not checked in this run");
    *out = t;
    return FT_OK;
}

static bool is_used(const struct ssh *t, int bastion)
{
    for (size_t i = 0; i < t->targets.n_nodes; i++)
        if (t->links[i].up && t->targets.nodes[i].through == bastion) return true;
    for (size_t i = 0; i < t->targets.n_bastions; i++)
        if (t->targets.bastions[i]->through == bastion && t->bastions[i].state == BASTION_UP) return true;
    return false;
}

/* Before a new round: those that failed are tried again. A session behind which nobody is left may be dead without saying so (the way to
 * it is cut, or the bastion was started anew): another login tells. */
static void renew_bastions(struct ssh *t)
{
    for (size_t i = t->targets.n_bastions; i-- > 0;) { /* a chain from its far end */
        struct bastion *b = &t->bastions[i];
        const int before = t->targets.bastions[i]->through;
        if (b->state == BASTION_FAILED && b->relay) continue; /* it is being ended */
        if (b->state == BASTION_UP && is_used(t, (int)i)) continue;
        if (b->state == BASTION_REACHING) { /* for a round that is over, with the deadline of that */
            ft_ssh_pool_drop(t->pool, tag_of_bastion(b));
            if (before >= 0 && t->bastions[before].relay) ft_ssh_relay_drop(t->bastions[before].relay, tag_of_bastion(b));
        }
        ft_ssh_relay_destroy(b->relay);
        b->relay = NULL;
        b->state = BASTION_OFF;
    }
}

static void reach(void *self, int node)
{
    struct ssh *t = self;
    struct link *k = &t->links[node];
    if (!t->n_reaching) { /* nodes reached together have one deadline */
        t->deadline = now_ns() + t->timeout;
        ft_timer_set(t->q.loop, &t->missing, now_ns() + SAY_MISSING, on_missing, t);
        renew_bastions(t);
    }
    t->n_up -= k->up;
    t->n_reaching += !k->open || k->up;
    k->open = true;
    k->up = k->wants_room = k->cut = false;
    k->retry = (struct ft_ssh_retry){0};
    start_link(k);
}

static size_t write_ssh(void *self, int node, const void *p, size_t n)
{
    struct ssh *t = self;
    struct link *k = &t->links[node];
    size_t done = 0;
    enum ft_ssh_rc rc = FT_SSH_AGAIN;
    while (k->up && done < n) {
        size_t took;
        rc = ft_ssh_channel_write(k->channel, (const char *)p + done, n - done, &took);
        done += took;
        if (rc != FT_SSH_OK) break; /* full, or broken: then reading says so */
    }
    k->wants_room = k->open && done < n;
    if (k->up) {
        ft_watch_want(t->q.loop, &k->watch, ft_ssh_events(k->ssh));
        /* writing may have read; without a window nothing was done, and the socket will say when there is one */
        if (!k->reading && (done || rc == FT_SSH_ERROR)) ft_timer_set(t->q.loop, &k->again, 0, on_again, k);
    }
    return done;
}

static void shut(void *self, int node)
{
    struct ssh *t = self;
    struct link *k = &t->links[node];
    const int through = t->targets.nodes[node].through;
    if (k->open && !k->up) {
        ft_ssh_pool_drop(t->pool, node);
        if (through >= 0 && t->bastions[through].relay) ft_ssh_relay_drop(t->bastions[through].relay, node);
    }
    close_link(k);
}

/* An agent that has been told BYE ends its channel. */
static bool busy(void *self) { return ((const struct ssh *)self)->n_up > 0; }

static void times(void *self, int node, struct ft_transport_times *out)
{
    const struct ssh *t = self;
    const int64_t *ns = t->links[node].ns;
    *out = (struct ft_transport_times){.v = {{"resolve", ns[FT_PHASE_RESOLVE]},
                                             {"tcp", ns[FT_PHASE_TCP] + ns[FT_PHASE_BANNER]},
                                             {"kex", ns[FT_PHASE_KEX] + ns[FT_PHASE_HOSTKEY]},
                                             {"auth", ns[FT_PHASE_AUTH]},
                                             {"agent", ns[FT_PHASE_CHANNEL] + ns[FT_PHASE_AGENT]}},
                                       .n = FT_TRANSPORT_PHASES};
}

static const char *explain(void *self, int node)
{
    const struct ssh *t = self;
    return t->targets.nodes[node].origin;
}

/* A session each, and behind a bastion the two ends of what joins it to that one's channel; keys and the like while logins are made. */
static size_t descriptors(void *self)
{
    const struct ssh *t = self;
    const size_t logins = t->q.config->ssh.parallel < (int64_t)t->targets.n_nodes ? (size_t)t->q.config->ssh.parallel
                                                                                  : t->targets.n_nodes;
    size_t n = 2 * t->targets.n_bastions + 2 * logins;
    for (size_t i = 0; i < t->targets.n_nodes; i++) n += t->targets.nodes[i].through < 0 ? 1 : 2;
    return n;
}

extern const struct ft_transport_ops ft_transport_ssh;
const struct ft_transport_ops ft_transport_ssh = {.name = "ssh",
                                                  .open = open_ssh,
                                                  .reach = reach,
                                                  .write = write_ssh,
                                                  .shut = shut,
                                                  .busy = busy,
                                                  .close = close_ssh,
                                                  .times = times,
                                                  .explain = explain,
                                                  .descriptors = descriptors};
