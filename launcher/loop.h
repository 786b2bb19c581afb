/* One event loop: descriptors and timers with callbacks. Everything a watcher needs is its own storage; the loop keeps
 * pointers. No threads. Callbacks may add and remove watches and timers, their own too.
 *
 *   struct ft_loop loop = {0};
 *   ft_watch_add(&loop, &w, fd, POLLIN, on_ready, self);  ft_timer_set(&loop, &t, at_ns, on_time, self);
 *   ft_watch_want(&loop, &w, POLLIN | POLLOUT);
 *   while (!done) ft_loop_once(&loop, limit_ns);
 *   ft_loop_fini(&loop);
 *
 * A turn costs what is ready in it, however many descriptors are watched (epoll): a head has three of each node. One watch per
 * descriptor, removed before the descriptor is closed. One that was closed all the same (a library's own) is harmless: it is told
 * POLLNVAL when it is changed, and a descriptor that gets its number is another one. */
#ifndef FT_LAUNCHER_LOOP_H
#define FT_LAUNCHER_LOOP_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ft_watch {
    int fd;
    short events; /* POLLIN, POLLOUT or 0 (resting); changed by ft_watch_want */
    void (*ready)(void *self, short revents);
    void *self;
    /* the loop's */
    struct ft_watch *next;
    struct ft_watch **prev; /* NULL: not added */
    struct ft_watch *next_steady;
    uint32_t serial; /* of its registration with the kernel; 0: none */
    bool steady;     /* always ready: a regular file; with a serial: a descriptor that was closed */
};

struct ft_timer {
    int64_t at; /* CLOCK_MONOTONIC ns */
    void (*due)(void *self, int64_t now);
    void *self;
    struct ft_timer *next;
    struct ft_timer **prev; /* NULL: not set */
};

enum { FT_LOOP_BATCH = 64 };
struct ft_loop {
    struct ft_watch *watches, *steady;
    struct ft_timer *timers; /* sorted, earliest first; of equal ones the newest first */
    struct ft_watch **of;    /* (n_of) by descriptor: who is registered with the kernel */
    size_t n_of;
    int epoll; /* descriptor + 1 */
    uint32_t serial;
    struct ft_watch *batch[FT_LOOP_BATCH]; /* being told; NULL once removed */
    short told[FT_LOOP_BATCH];
    size_t n_batch;
    bool no_pwait2; /* a kernel before 5.11: timers are up to a millisecond late */
};

/* Not a must: opens now what the first watch would open, where a refusal (no descriptor is left) can still be said. 0, or errno. */
int ft_loop_open(struct ft_loop *l);
void ft_loop_fini(struct ft_loop *l);
void ft_watch_add(struct ft_loop *l, struct ft_watch *w, int fd, short events, void (*ready)(void *, short), void *self);
void ft_watch_want(struct ft_loop *l, struct ft_watch *w, short events); /* nothing when it is not added */
void ft_watch_remove(struct ft_loop *l, struct ft_watch *w);             /* does not close; fine when it was never added */
/* (Re)sets a timer. */
void ft_timer_set(struct ft_loop *l, struct ft_timer *t, int64_t at, void (*due)(void *, int64_t), void *self);
void ft_timer_cancel(struct ft_timer *t);
/* Waits for the first event, at most until the first timer or limit_at; runs what is due. false: waiting itself failed. */
bool ft_loop_once(struct ft_loop *l, int64_t limit_at);

#endif
