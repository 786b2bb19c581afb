#include "launcher/loop.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"

enum { BATCH_WATCHED = FT_LOOP_BATCH - 16 }; /* the rest is for those that are always ready */
_Static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLERR == POLLERR && EPOLLHUP == POLLHUP, "events are those of poll");

void ft_loop_fini(struct ft_loop *l)
{
    int fd = l->epoll - 1;
    if (l->epoll) ft_close(&fd);
    free(l->of);
    memset(l, 0, sizeof *l);
}

/* ---- what the kernel watches ---- */

int ft_loop_open(struct ft_loop *l)
{
    if (l->epoll) return 0;
    const int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0) return errno;
    l->epoll = fd + 1;
    return 0;
}

static int epoll_of(struct ft_loop *l)
{
    const int e = ft_loop_open(l);
    if (e) FT_BUG("epoll_create1: %s", strerror(e));
    return l->epoll - 1;
}

static void make_steady(struct ft_loop *l, struct ft_watch *w)
{
    if (w->steady) return;
    w->steady = true;
    w->next_steady = l->steady;
    l->steady = w;
}

static void drop_steady(struct ft_loop *l, struct ft_watch *w)
{
    struct ft_watch **p = &l->steady;
    if (!w->steady) return;
    while (*p != w) p = &(*p)->next_steady;
    *p = w->next_steady;
    w->steady = false;
}

static bool is_registered(const struct ft_loop *l, const struct ft_watch *w)
{
    return w->serial && (size_t)w->fd < l->n_of && l->of[w->fd] == w;
}

static void unregister(struct ft_loop *l, struct ft_watch *w)
{
    if (is_registered(l, w)) {
        if (epoll_ctl(epoll_of(l), EPOLL_CTL_DEL, w->fd, NULL)) errno = 0; /* closed before */
        l->of[w->fd] = NULL;
    }
    w->serial = 0;
}

/* Tells the kernel what is wanted. What it does not watch (a regular file) or does not know (it was closed) is always ready; the
 * latter keeps its serial, and nobody asks for its descriptor, which may be another's by now. */
static void put(struct ft_loop *l, struct ft_watch *w, int how)
{
    struct epoll_event e = {.events = (uint32_t)w->events, .data.u64 = (uint64_t)w->serial << 32 | (uint32_t)w->fd};
    if (epoll_ctl(epoll_of(l), how, w->fd, &e) == 0) return;
    if (errno != EPERM && errno != EBADF && errno != ENOENT) FT_BUG("epoll_ctl on descriptor %d: %s", w->fd, strerror(errno));
    l->of[w->fd] = NULL;
    if (errno == EPERM) w->serial = 0;
    make_steady(l, w);
}

static void enlist(struct ft_loop *l, struct ft_watch *w)
{
    while ((size_t)w->fd >= l->n_of) {
        const size_t n = l->n_of ? 2 * l->n_of : 64;
        l->of = ft_xrealloc(l->of, n, sizeof *l->of);
        memset(l->of + l->n_of, 0, (n - l->n_of) * sizeof *l->of);
        l->n_of = n;
    }
    if (!++l->serial) l->serial = 1;
    w->serial = l->serial;
    l->of[w->fd] = w; /* whoever had that number was closed */
    put(l, w, EPOLL_CTL_ADD);
}

/* A description lives on in a child that has not exec'ed yet although ours was closed: only a new set forgets it. */
static void renew(struct ft_loop *l)
{
    int fd = l->epoll - 1;
    ft_close(&fd);
    l->epoll = 0;
    for (struct ft_watch *w = l->watches; w; w = w->next)
        if (is_registered(l, w)) put(l, w, EPOLL_CTL_ADD);
}

/* ---- watches ---- */

void ft_watch_add(struct ft_loop *l, struct ft_watch *w, int fd, short events, void (*ready)(void *, short), void *self)
{
    *w = (struct ft_watch){.fd = fd, .ready = ready, .self = self, .next = l->watches, .prev = &l->watches};
    if (l->watches) l->watches->prev = &w->next;
    l->watches = w;
    ft_watch_want(l, w, events);
}

void ft_watch_want(struct ft_loop *l, struct ft_watch *w, short events)
{
    if (!w->prev || w->events == events) return;
    w->events = events;
    if (w->steady) return;
    if (!events) unregister(l, w);
    else if (is_registered(l, w)) put(l, w, EPOLL_CTL_MOD);
    else if (w->serial) make_steady(l, w); /* closed, and its number has another owner */
    else if (w->fd >= 0) enlist(l, w);
}

void ft_watch_remove(struct ft_loop *l, struct ft_watch *w)
{
    if (!w->prev) return;
    unregister(l, w);
    drop_steady(l, w);
    *w->prev = w->next;
    if (w->next) w->next->prev = w->prev;
    w->prev = NULL;
    w->next = NULL;
    for (size_t i = 0; i < l->n_batch; i++)
        if (l->batch[i] == w) l->batch[i] = NULL;
}

/* ---- timers ---- */

void ft_timer_cancel(struct ft_timer *t)
{
    if (!t->prev) return;
    *t->prev = t->next;
    if (t->next) t->next->prev = t->prev;
    t->prev = NULL;
    t->next = NULL;
}

void ft_timer_set(struct ft_loop *l, struct ft_timer *t, int64_t at, void (*due)(void *, int64_t), void *self)
{
    ft_timer_cancel(t);
    t->at = at;
    t->due = due;
    t->self = self;
    struct ft_timer **p = &l->timers;
    while (*p && (*p)->at < at) p = &(*p)->next; /* those of "at once" are many, and none waits for another */
    t->next = *p;
    t->prev = p;
    if (*p) (*p)->prev = &t->next;
    *p = t;
}

/* ---- one turn ---- */

static int wait_for(struct ft_loop *l, struct epoll_event *e, int64_t ns)
{
    const struct timespec ts = {ns / FT_SEC, ns % FT_SEC};
    if (!l->no_pwait2) {
        const int r = (int)syscall(SYS_epoll_pwait2, epoll_of(l), e, BATCH_WATCHED, &ts, NULL, 0);
        if (r >= 0 || errno != ENOSYS) return r;
        l->no_pwait2 = true;
    }
    const int64_t ms = ns / FT_MS + (ns % FT_MS != 0);
    return epoll_wait(epoll_of(l), e, BATCH_WATCHED, ms < INT_MAX ? (int)ms : INT_MAX);
}

/* Who is ready, into the batch; false: something that is watched no more is. */
static bool collect(struct ft_loop *l, const struct epoll_event *e, int n)
{
    bool known = true;
    l->n_batch = 0;
    for (int i = 0; i < n; i++) {
        const size_t fd = (uint32_t)e[i].data.u64;
        struct ft_watch *w = fd < l->n_of ? l->of[fd] : NULL;
        if (!w || w->serial != e[i].data.u64 >> 32) {
            known = false;
            continue;
        }
        l->batch[l->n_batch] = w;
        l->told[l->n_batch++] = (short)e[i].events;
    }
    for (struct ft_watch *w = l->steady; w && l->n_batch < FT_LOOP_BATCH; w = w->next_steady) {
        if (!w->events) continue;
        l->batch[l->n_batch] = w;
        l->told[l->n_batch++] = w->serial ? POLLNVAL : w->events;
    }
    return known;
}

static bool any_steady(const struct ft_loop *l)
{
    for (const struct ft_watch *w = l->steady; w; w = w->next_steady)
        if (w->events) return true;
    return false;
}

/* Those that are due now; what they set has its turn after the descriptors had theirs, or a timer that sets itself to "at once" would
 * keep everything else from its turn. */
static void run_timers(struct ft_loop *l, int64_t now)
{
    struct ft_timer *due = l->timers, **end = &due;
    while (*end && (*end)->at <= now) end = &(*end)->next;
    l->timers = *end;
    if (l->timers) l->timers->prev = &l->timers;
    *end = NULL;
    if (due) due->prev = &due;
    while (due) {
        struct ft_timer *t = due;
        ft_timer_cancel(t);
        t->due(t->self, now);
    }
}

bool ft_loop_once(struct ft_loop *l, int64_t limit_at)
{
    struct epoll_event e[BATCH_WATCHED];
    const int64_t until = l->timers && l->timers->at < limit_at ? l->timers->at : limit_at;
    const int64_t left = until - ft_clock_now(ft_clock_real());
    const int n = wait_for(l, e, left <= 0 || any_steady(l) ? 0 : left);
    if (n < 0 && errno != EINTR) return false;
    const bool known = collect(l, e, n);
    for (size_t i = 0; i < l->n_batch; i++)
        if (l->batch[i]) l->batch[i]->ready(l->batch[i]->self, l->told[i]);
    l->n_batch = 0;
    if (!known) renew(l);
    run_timers(l, ft_clock_now(ft_clock_real()));
    return true;
}
