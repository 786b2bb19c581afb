#include "launcher/ssh_pool.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "launcher/ssh_retry.h"

#define WAITS_LONG FT_SEC        /* a login in resolve, tcp or banner for so long does not count against the bound */
#define RESOLVER   (100 * FT_MS) /* beyond the deadline a thread in the resolver is given so long */
enum { STACK_BYTES = 512 * 1024 };

enum step { RESOLVING, WORKING, ABANDONED };

/* Handshakes to one address at a time. */
struct gate {
    const char *host;
    int port;
    unsigned n, allowed;
};

enum state { QUEUED, RUNNING, DONE };

/* Owned by the pool; by its thread once it is abandoned. */
struct job {
    struct ft_ssh_pool *pool;
    const struct ft_ssh_target *target;
    int fd, tag;
    size_t gate;
    int64_t deadline, at; /* at: not before */
    enum state state;
    bool dropped; /* nobody wants the result */
    struct ft_ssh_retry retry;
    struct ft_ssh_login login;
    char last_reason[FT_SSH_REASON];
    enum ft_ssh_phase last_phase;
    _Atomic int step, phase;
    _Atomic int64_t phase_at;
    struct job *next;
};

struct ft_ssh_pool {
    pthread_mutex_t lock;
    pthread_cond_t more, fewer; /* work to look at; a thread has ended */
    struct job *jobs;
    struct gate *gates;
    size_t n_gates, gates_cap;
    unsigned parallel, n_threads, n_idle;
    int done_fd, cancel_fd;
    bool ending;
    uint64_t seed;
};

static int64_t now_ns(void) { return ft_clock_now(ft_clock_real()); }

static void wake(int fd)
{
    const uint64_t one = 1;
    while (write(fd, &one, sizeof one) < 0 && errno == EINTR) {}
}

enum ft_code ft_ssh_pool_create(unsigned parallel, struct ft_ssh_pool **out, struct ft_err *err)
{
    struct ft_ssh_pool *p = ft_xcalloc(1, sizeof *p);
    p->parallel = parallel ? parallel : 1;
    p->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    p->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->done_fd < 0 || p->cancel_fd < 0 || !ft_random(&p->seed, sizeof p->seed)) {
        const enum ft_code c = ft_fail(err, FT_IO, "eventfd: %s", strerror(errno));
        ft_close(&p->done_fd);
        ft_close(&p->cancel_fd);
        free(p);
        return c;
    }
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->more, &attr);
    pthread_cond_init(&p->fewer, &attr);
    pthread_condattr_destroy(&attr);
    *out = p;
    return FT_OK;
}

int ft_ssh_pool_fd(const struct ft_ssh_pool *p) { return p->done_fd; }

static void free_job(struct job *j)
{
    ft_ssh_login_fini(&j->login);
    ft_close(&j->fd);
    free(j);
}

/* ---- a thread ---- */

static bool resolved(void *self)
{
    struct job *j = self;
    int expected = RESOLVING;
    return atomic_compare_exchange_strong(&j->step, &expected, WORKING);
}

static void at_phase(void *self, enum ft_ssh_phase phase)
{
    struct job *j = self;
    atomic_store(&j->phase, (int)phase);
    atomic_store(&j->phase_at, now_ns());
}

static struct job *next_job(struct ft_ssh_pool *p, int64_t now, int64_t *out_at)
{
    struct job *best = NULL;
    *out_at = INT64_MAX;
    for (struct job *j = p->jobs; j; j = j->next) {
        if (j->state != QUEUED) continue;
        if (j->at > now) {
            if (j->at < *out_at) *out_at = j->at;
        } else if (p->gates[j->gate].n < p->gates[j->gate].allowed && (!best || j->at < best->at)) best = j;
    }
    return best;
}

static bool any_queued(const struct ft_ssh_pool *p)
{
    for (const struct job *j = p->jobs; j; j = j->next)
        if (j->state == QUEUED) return true;
    return false;
}

/* Called with the lock. */
static void ended(struct ft_ssh_pool *p, struct job *j)
{
    struct gate *g = &p->gates[j->gate];
    const int64_t now = now_ns();
    g->n--;
    g->allowed = ft_ssh_gate_after(g->allowed, j->login.fate);
    p->seed = p->seed * 6364136223846793005u + 1442695040888963407u;
    const int64_t at = p->ending || j->dropped
                           ? -1
                           : ft_ssh_retry_at(&j->retry, j->login.fate, now, j->deadline, (uint32_t)(p->seed >> 32));
    memcpy(j->last_reason, j->login.reason, sizeof j->last_reason);
    j->last_phase = j->login.phase;
    if (at >= 0 && j->fd == -1) { /* a connection through a bastion is tried again by its owner */
        j->at = at;
        j->state = QUEUED;
        pthread_cond_signal(&p->more);
        return;
    }
    j->state = DONE;
    wake(p->done_fd);
    pthread_cond_broadcast(&p->more);
}

/* false: the thread was abandoned; the pool may be gone. */
static bool run(struct ft_ssh_pool *p, struct job *j)
{
    const struct ft_ssh_login_how how = {
        .limits = {j->deadline, p->cancel_fd}, .fd = j->fd, .resolved = resolved, .at = at_phase, .self = j};
    const bool given = j->fd >= 0;
    pthread_mutex_unlock(&p->lock);
    ft_ssh_login(j->target, &how, &j->login);
    if (atomic_load(&j->step) == ABANDONED) {
        j->fd = -1;
        free_job(j);
        return false;
    }
    pthread_mutex_lock(&p->lock);
    j->fd = given ? -2 : -1; /* it was taken over */
    ended(p, j);
    return true;
}

static void *thread_main(void *self)
{
    struct ft_ssh_pool *p = self;
    pthread_mutex_lock(&p->lock);
    while (!p->ending) {
        int64_t at;
        struct job *j = next_job(p, now_ns(), &at);
        if (j) {
            j->state = RUNNING;
            p->gates[j->gate].n++;
            atomic_store(&j->step, j->fd < 0 ? RESOLVING : WORKING);
            at_phase(j, FT_PHASE_RESOLVE);
            if (!run(p, j)) return NULL;
            continue;
        }
        if (!any_queued(p)) break;
        p->n_idle++;
        if (at == INT64_MAX) at = now_ns() + FT_SEC;
        const struct timespec until = {.tv_sec = (time_t)(at / FT_SEC), .tv_nsec = (long)(at % FT_SEC)};
        pthread_cond_timedwait(&p->more, &p->lock, &until);
        p->n_idle--;
    }
    p->n_threads--;
    pthread_cond_signal(&p->fewer);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- the owner ---- */

static bool waits_long(const struct job *j, int64_t now)
{
    return j->state == RUNNING && atomic_load(&j->phase) <= (int)FT_PHASE_BANNER && now - atomic_load(&j->phase_at) > WAITS_LONG;
}

/* Starts threads for what is due, within the bound. Called with the lock. */
static void staff(struct ft_ssh_pool *p, int64_t now)
{
    unsigned due = 0, waiting = 0;
    for (const struct job *j = p->jobs; j; j = j->next) {
        due += j->state == QUEUED;
        waiting += waits_long(j, now);
    }
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigset_t all, old;
    sigfillset(&all); /* signals are for the loop's thread */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (unsigned n = p->n_idle; n < due && p->n_threads < p->parallel + waiting; n++) {
        pthread_t t;
        if (pthread_create(&t, &attr, thread_main, p)) break; /* those that run go on with what is queued */
        p->n_threads++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
}

static size_t gate_of(struct ft_ssh_pool *p, const struct ft_ssh_target *t, bool given)
{
    for (size_t i = 0; !given && i < p->n_gates; i++)
        if (p->gates[i].port == t->port && strcmp(p->gates[i].host, t->host) == 0) return i;
    ft_grow(&p->gates, &p->gates_cap, p->n_gates + 1, sizeof *p->gates);
    p->gates[p->n_gates] = (struct gate){.host = given ? "" : t->host, .port = given ? -1 : t->port, .allowed = FT_SSH_GATE};
    return p->n_gates++;
}

void ft_ssh_pool_add(struct ft_ssh_pool *p, const struct ft_ssh_target *t, int fd, int64_t deadline, int tag)
{
    struct job *j = ft_xcalloc(1, sizeof *j);
    j->pool = p;
    j->target = t;
    j->fd = fd >= 0 ? fd : -1;
    j->tag = tag;
    j->deadline = deadline;
    pthread_mutex_lock(&p->lock);
    j->gate = gate_of(p, t, fd >= 0);
    j->next = p->jobs;
    p->jobs = j;
    staff(p, now_ns());
    pthread_cond_signal(&p->more);
    pthread_mutex_unlock(&p->lock);
}

bool ft_ssh_pool_take(struct ft_ssh_pool *p, struct ft_ssh_login *out, int *out_tag)
{
    struct job *found = NULL;
    pthread_mutex_lock(&p->lock);
    for (struct job **at = &p->jobs; *at && !found;) {
        struct job *j = *at;
        if (j->state != DONE) {
            at = &j->next;
            continue;
        }
        *at = j->next;
        if (j->dropped) free_job(j);
        else found = j;
    }
    uint64_t n;
    if (!found && read(p->done_fd, &n, sizeof n) < 0 && errno != EAGAIN) FT_BUG("eventfd: %s", strerror(errno));
    pthread_mutex_unlock(&p->lock);
    if (!found) return false;
    *out = found->login;
    *out_tag = found->tag;
    found->login = (struct ft_ssh_login){0};
    free_job(found);
    return true;
}

void ft_ssh_pool_drop(struct ft_ssh_pool *p, int tag)
{
    pthread_mutex_lock(&p->lock);
    for (struct job *j = p->jobs; j; j = j->next) {
        if (j->tag != tag || j->dropped) continue;
        j->dropped = true;
        if (j->state == QUEUED) {
            j->state = DONE;
            wake(p->done_fd);
        }
    }
    pthread_mutex_unlock(&p->lock);
}

/* A thread that the resolver does not give back: the job stays with it. Called with the lock. */
static void abandon(struct ft_ssh_pool *p, struct job **at)
{
    struct job *j = *at;
    int expected = RESOLVING;
    struct job *stand_in = ft_xcalloc(1, sizeof *stand_in);
    stand_in->pool = p;
    stand_in->target = j->target;
    stand_in->fd = -1;
    stand_in->tag = j->tag;
    stand_in->gate = j->gate;
    stand_in->deadline = j->deadline;
    stand_in->dropped = j->dropped;
    stand_in->state = DONE;
    stand_in->next = j->next;
    stand_in->login = (struct ft_ssh_login){.fate = FT_FATE_NO_ANSWER, .phase = FT_PHASE_RESOLVE};
    (void)snprintf(stand_in->login.reason, sizeof stand_in->login.reason, "'%.200s': the resolver does not answer",
                   j->target->host);
    if (!atomic_compare_exchange_strong(&j->step, &expected, ABANDONED)) { /* just came back */
        free(stand_in);
        return;
    }
    *at = stand_in;
    p->gates[j->gate].n--;
    p->n_threads--;
    wake(p->done_fd);
}

/* Its time passed while it waited for a thread or for its next try. Called with the lock. */
static void expire(struct ft_ssh_pool *p, struct job *j)
{
    if (!*j->login.reason) {
        j->login.fate = FT_FATE_NO_ANSWER;
        (void)snprintf(j->login.reason, sizeof j->login.reason, "not tried in time: %u logins were under way", p->parallel);
    }
    j->state = DONE;
    wake(p->done_fd);
}

void ft_ssh_pool_tick(struct ft_ssh_pool *p, int64_t now)
{
    pthread_mutex_lock(&p->lock);
    for (struct job **at = &p->jobs; *at; at = &(*at)->next)
        if ((*at)->state == RUNNING && atomic_load(&(*at)->step) == RESOLVING && now > (*at)->deadline + RESOLVER) abandon(p, at);
    for (struct job *j = p->jobs; j; j = j->next)
        if (j->state == QUEUED && now >= j->deadline) expire(p, j);
    staff(p, now);
    pthread_mutex_unlock(&p->lock);
}

bool ft_ssh_pool_look(struct ft_ssh_pool *p, int tag, enum ft_ssh_phase *phase, char reason[FT_SSH_REASON])
{
    bool found = false;
    pthread_mutex_lock(&p->lock);
    for (const struct job *j = p->jobs; j && !found; j = j->next) {
        if (j->tag != tag || j->state == DONE || j->dropped) continue;
        found = true;
        *phase = *j->last_reason ? j->last_phase : (enum ft_ssh_phase)atomic_load(&j->phase);
        memcpy(reason, j->last_reason, FT_SSH_REASON);
    }
    pthread_mutex_unlock(&p->lock);
    return found;
}

size_t ft_ssh_pool_busy(struct ft_ssh_pool *p)
{
    size_t n = 0;
    pthread_mutex_lock(&p->lock);
    for (const struct job *j = p->jobs; j; j = j->next) n += !(j->dropped && j->state == DONE);
    pthread_mutex_unlock(&p->lock);
    return n;
}

void ft_ssh_pool_destroy(struct ft_ssh_pool *p)
{
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->ending = true;
    wake(p->cancel_fd);
    pthread_cond_broadcast(&p->more);
    for (struct job **at = &p->jobs; *at; at = &(*at)->next)
        if ((*at)->state == RUNNING && atomic_load(&(*at)->step) == RESOLVING) abandon(p, at);
    while (p->n_threads) pthread_cond_wait(&p->fewer, &p->lock); /* every wait of theirs looks at cancel_fd */
    pthread_mutex_unlock(&p->lock);
    for (struct job *j = p->jobs, *next; j; j = next) {
        next = j->next;
        free_job(j);
    }
    pthread_cond_destroy(&p->more);
    pthread_cond_destroy(&p->fewer);
    pthread_mutex_destroy(&p->lock);
    ft_close(&p->done_fd);
    ft_close(&p->cancel_fd);
    free(p->gates);
    free(p);
}
