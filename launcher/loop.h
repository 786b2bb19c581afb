/* One poll loop: descriptors and timers with callbacks. Everything a watcher needs is its own storage; the loop keeps
 * pointers. No threads. Callbacks may add and remove watches and timers, their own too.
 *
 *   struct ft_loop loop = {0};
 *   ft_watch_add(&loop, &w, fd, POLLIN, on_ready, self);  ft_timer_set(&loop, &t, at_ns, on_time, self);
 *   while (!done) ft_loop_once(&loop, limit_ns);
 *   ft_loop_fini(&loop);
 */
#ifndef FT_LAUNCHER_LOOP_H
#define FT_LAUNCHER_LOOP_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ft_watch {
    int fd;
    short events; /* POLLIN, POLLOUT or 0 (resting) */
    void (*ready)(void *self, short revents);
    void *self;
    struct ft_watch *next; /* the loop's */
    struct ft_watch **prev;
};

struct ft_timer {
    int64_t at; /* CLOCK_MONOTONIC ns */
    void (*due)(void *self, int64_t now);
    void *self;
    struct ft_timer *next;
    struct ft_timer **prev; /* NULL: not set */
};

struct ft_loop {
    struct ft_watch *watches;
    struct ft_timer *timers; /* sorted, earliest first */
    struct pollfd *fds;
    struct ft_watch **of; /* of[i] belongs to fds[i]; NULL once removed */
    size_t n, cap;
};

void ft_loop_fini(struct ft_loop *l);
void ft_watch_add(struct ft_loop *l, struct ft_watch *w, int fd, short events, void (*ready)(void *, short), void *self);
void ft_watch_remove(struct ft_loop *l, struct ft_watch *w); /* does not close; fine when it was never added */
/* (Re)sets a timer. */
void ft_timer_set(struct ft_loop *l, struct ft_timer *t, int64_t at, void (*due)(void *, int64_t), void *self);
void ft_timer_cancel(struct ft_timer *t);
/* Waits for the first event, at most until the first timer or limit_at; runs what is due. false: poll itself failed. */
bool ft_loop_once(struct ft_loop *l, int64_t limit_at);

#endif
