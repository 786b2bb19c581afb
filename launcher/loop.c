#include "launcher/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/clock.h"

void ft_loop_fini(struct ft_loop *l)
{
    free(l->fds);
    free(l->of);
    memset(l, 0, sizeof *l);
}

void ft_watch_add(struct ft_loop *l, struct ft_watch *w, int fd, short events, void (*ready)(void *, short), void *self)
{
    *w = (struct ft_watch){.fd = fd, .events = events, .ready = ready, .self = self, .next = l->watches, .prev = &l->watches};
    if (l->watches) l->watches->prev = &w->next;
    l->watches = w;
}

void ft_watch_remove(struct ft_loop *l, struct ft_watch *w)
{
    if (!w->prev) return;
    *w->prev = w->next;
    if (w->next) w->next->prev = w->prev;
    w->prev = NULL;
    w->next = NULL;
    for (size_t i = 0; i < l->n; i++)
        if (l->of[i] == w) l->of[i] = NULL;
}

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
    while (*p && (*p)->at <= at) p = &(*p)->next;
    t->next = *p;
    t->prev = p;
    if (*p) (*p)->prev = &t->next;
    *p = t;
}

static void collect(struct ft_loop *l)
{
    l->n = 0;
    for (struct ft_watch *w = l->watches; w; w = w->next) {
        if (!w->events) continue;
        if (l->n == l->cap) {
            l->cap = l->cap ? 2 * l->cap : 16;
            l->fds = ft_xrealloc(l->fds, l->cap, sizeof *l->fds);
            l->of = ft_xrealloc(l->of, l->cap, sizeof *l->of);
        }
        l->fds[l->n] = (struct pollfd){.fd = w->fd, .events = w->events};
        l->of[l->n++] = w;
    }
}

bool ft_loop_once(struct ft_loop *l, int64_t limit_at)
{
    collect(l);
    int64_t until = l->timers && l->timers->at < limit_at ? l->timers->at : limit_at;
    int64_t wait = until - ft_clock_now(ft_clock_real());
    struct timespec ts = {wait > 0 ? wait / FT_SEC : 0, wait > 0 ? wait % FT_SEC : 0};
    int r = ppoll(l->fds, (nfds_t)l->n, &ts, NULL);
    if (r < 0 && errno != EINTR) return false;
    size_t n = l->n;
    for (size_t i = 0; i < n && r > 0; i++) {
        if (!l->fds[i].revents) continue;
        r--;
        if (l->of[i]) l->of[i]->ready(l->of[i]->self, l->fds[i].revents);
    }
    l->n = 0;
    int64_t now = ft_clock_now(ft_clock_real());
    while (l->timers && l->timers->at <= now) {
        struct ft_timer *t = l->timers;
        ft_timer_cancel(t);
        t->due(t->self, now);
    }
    return true;
}
