/* stdin of ranks: `stdin = RANK | all`. Forwarded byte for byte with its end; read only while every taker has room, and from a
 * terminal only while we are in the foreground. A rank that stops reading gets the rest dropped. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "launcher/head.h"

enum { WINDOW = 256 * 1024, PIECE = 32 * 1024 };
#define FOREGROUND_EVERY (300 * FT_MS)
#define STUCK_LIMIT      (2 * FT_SEC) /* with `all`: one rank that reads nothing must not starve the others */

static bool takes(const struct ft_head *h, int rank)
{
    int64_t who = h->config->launch.stdin_rank;
    return (who == FT_STDIN_ALL || who == rank) && !h->ranks[rank].in_closed;
}

static void send_input(struct ft_head *h, const char *p, size_t n, bool end)
{
    for (int r = 0; r < h->job.c.n_ranks; r++) {
        if (!takes(h, r)) continue;
        struct ft_msg m = ft_msg_make(FT_MSG_STDIN, (unsigned)(r - ft_head_seat(h, h->rank_node[r])->first_rank));
        ft_msg_bytes(&m, 0, p, n);
        ft_msg_u(&m, 1, end);
        ft_head_send(h, h->rank_node[r], &m);
        h->ranks[r].in_sent += n;
    }
}

/* The loop reads only when somebody wants it and everybody has room. */
static void update(struct ft_head *h)
{
    if (!h->in_open) return;
    bool any = false, room = true;
    for (int r = 0; r < h->job.c.n_ranks; r++) {
        if (!takes(h, r)) continue;
        any = true;
        room = room && h->ranks[r].in_sent < WINDOW;
    }
    ft_watch_want(&h->loop, &h->in_watch, any && room ? POLLIN : 0);
}

static void on_stuck(void *self, int64_t now)
{
    (void)now;
    struct ft_head *h = self;
    bool others = false;
    for (int r = 0; r < h->job.c.n_ranks; r++) others = others || (takes(h, r) && h->ranks[r].in_sent < WINDOW);
    for (int r = 0; r < h->job.c.n_ranks && others; r++)
        if (takes(h, r) && h->ranks[r].in_sent >= WINDOW) h->ranks[r].in_closed = true;
    update(h);
}

static void on_foreground(void *self, int64_t now)
{
    struct ft_head *h = self;
    bool fore = tcgetpgrp(0) == getpgrp();
    if (fore) update(h);
    else ft_watch_want(&h->loop, &h->in_watch, 0);
    if (h->in_open) ft_timer_set(&h->loop, &h->in_timer, now + FOREGROUND_EVERY, on_foreground, h);
}

static void end_input(struct ft_head *h)
{
    if (!h->in_end_sent) send_input(h, "", 0, true);
    h->in_end_sent = true;
    ft_head_input_stop(h);
}

static void on_input(void *self, short revents)
{
    (void)revents;
    struct ft_head *h = self;
    if (isatty(0) && tcgetpgrp(0) != getpgrp()) {
        ft_watch_want(&h->loop, &h->in_watch, 0);
        return;
    }
    char bytes[PIECE];
    ssize_t n = read(0, bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0) {
        end_input(h);
        return;
    }
    send_input(h, bytes, (size_t)n, false);
    update(h);
    if (!h->in_watch.events && h->config->launch.stdin_rank == FT_STDIN_ALL)
        ft_timer_set(&h->loop, &h->in_timer, ft_head_now() + STUCK_LIMIT, on_stuck, h);
}

void ft_head_input_start(struct ft_head *h)
{
    if (h->config->launch.stdin_rank == FT_STDIN_NONE) return;
    if (h->in_end_sent) { /* a restart: what was read is gone */
        h->in_end_sent = false;
        send_input(h, "", 0, true);
        h->in_end_sent = true;
        return;
    }
    if (!h->in_open) ft_watch_add(&h->loop, &h->in_watch, 0, 0, on_input, h);
    h->in_open = true;
    if (isatty(0)) on_foreground(h, ft_head_now());
    else update(h);
}

void ft_head_input_taken(struct ft_head *h, int rank, uint64_t n)
{
    uint64_t *sent = &h->ranks[rank].in_sent;
    *sent -= n < *sent ? n : *sent;
    update(h);
}

void ft_head_input_rank_over(struct ft_head *h, int rank)
{
    h->ranks[rank].in_closed = true;
    update(h);
}

void ft_head_input_stop(struct ft_head *h)
{
    if (!h->in_open) return;
    ft_watch_remove(&h->loop, &h->in_watch);
    ft_timer_cancel(&h->in_timer);
    h->in_open = false;
}
