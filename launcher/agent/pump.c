/* Pipes of a rank: output and progress to the head, input from it. Output is read only within the head's credit. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "launcher/agent/agent.h"

static void on_readable(void *self, short revents)
{
    (void)revents;
    struct ft_pump *p = self;
    ft_pump_read(p, false);
    if (p->fd < 0) ft_ranks_advance(p->agent);
}

void ft_pump_open(struct ft_pump *p, struct ft_slot *s, int stream, int fd)
{
    *p = (struct ft_pump){.agent = s->agent, .slot = s, .fd = fd, .stream = stream};
    if (fd < 0) return;
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0) FT_BUG("F_SETFL on a pipe of ours: %s", strerror(errno));
    int size = fcntl(fd, F_GETPIPE_SZ);
    p->capacity = size > 0 ? (size_t)size : 65536;
    ft_watch_add(&s->agent->loop, &p->watch, fd, POLLIN, on_readable, p);
}

void ft_pump_close(struct ft_pump *p)
{
    if (p->fd < 0) return;
    ft_watch_remove(&p->agent->loop, &p->watch);
    ft_close(&p->fd);
    p->dry = true;
}

static bool has_room(const struct ft_agent *a) { return a->head_gone || (a->credit > 0 && ft_agent_unsent(a) < FT_OUT_BACKLOG); }

static void keep_last(struct ft_slot *s, const char *p, size_t n)
{
    if (n >= FT_STDERR_KEPT) {
        p += n - FT_STDERR_KEPT;
        n = FT_STDERR_KEPT;
    }
    if (s->last.n + n > 2 * FT_STDERR_KEPT) ft_buf_drop(&s->last, s->last.n - FT_STDERR_KEPT);
    ft_buf_add(&s->last, p, n);
}

static void send_out(struct ft_pump *p, const char *bytes, size_t n)
{
    struct ft_agent *a = p->agent;
    if (p->stream == 2) keep_last(p->slot, bytes, n);
    if (a->head_gone) return; /* nobody to send it to: read on, so that nothing blocks while it is ended */
    struct ft_msg m = ft_msg_make(FT_MSG_OUT, (unsigned)p->slot->index);
    ft_msg_u(&m, 0, (uint64_t)p->stream);
    ft_msg_bytes(&m, 1, bytes, n);
    ft_wire_send(&a->wire, &m);
    a->credit -= n < a->credit ? n : a->credit;
    ft_agent_flush(a);
}

static void one_progress(struct ft_slot *s, const char *line, int64_t *step, int64_t *saved)
{
    int64_t x;
    (void)s;
    if (strncmp(line, "saved ", 6) == 0 && ft_parse_i64(line + 6, 0, INT64_MAX, &x)) *saved = x;
    else if (ft_parse_i64(line, 0, INT64_MAX, &x)) *step = x;
}

/* Whole lines; only the newest step of what was read goes to the head. */
static void take_progress(struct ft_slot *s, const char *bytes, size_t n)
{
    int64_t step = -1, saved = -1;
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != '\n') {
            if (s->word.n < 64) ft_buf_addc(&s->word, bytes[i]);
            continue;
        }
        one_progress(s, ft_buf_str(&s->word), &step, &saved);
        ft_buf_clear(&s->word);
    }
    if ((step < 0 && saved < 0) || s->agent->head_gone) return;
    struct ft_msg m = ft_msg_make(FT_MSG_PROGRESS, (unsigned)s->index);
    ft_msg_u(&m, 0, (uint64_t)step);
    ft_msg_u(&m, 1, (uint64_t)saved);
    ft_msg_u(&m, 2, (uint64_t)ft_clock_now(ft_clock_real()));
    ft_wire_send(&s->agent->wire, &m);
    ft_agent_flush(s->agent);
}

/* The pumps rest until credit or room comes; reading them without would spin. */
static void starve(struct ft_agent *a)
{
    if (a->starved) return;
    a->starved = true;
    for (int i = 0; i < a->n_slots; i++)
        for (int k = 0; k < 2; k++)
            if (a->slots[i].pump[k].fd >= 0) ft_watch_want(&a->loop, &a->slots[i].pump[k].watch, 0);
}

void ft_pumps_wake(struct ft_agent *a)
{
    if (!a->starved || !has_room(a)) return;
    a->starved = false;
    for (int i = 0; i < a->n_slots; i++)
        for (int k = 0; k < 2; k++)
            if (a->slots[i].pump[k].fd >= 0) ft_watch_want(&a->loop, &a->slots[i].pump[k].watch, POLLIN);
    ft_ranks_advance(a);
}

void ft_pump_read(struct ft_pump *p, bool all)
{
    char bytes[FT_WIRE_CHUNK];
    do {
        if (p->fd < 0) return;
        if (p->stream != 3 && !has_room(p->agent)) {
            starve(p->agent);
            return;
        }
        size_t want = sizeof bytes;
        if (p->stream != 3 && !p->agent->head_gone && p->agent->credit < want) want = (size_t)p->agent->credit;
        ssize_t n = read(p->fd, bytes, want);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) {
            if (p->slot->state >= FT_SLOT_DEAD) p->dry = true;
            return;
        }
        if (n <= 0) {
            ft_pump_close(p);
            return;
        }
        const bool over = p->slot->state == FT_SLOT_ENDED; /* what it left behind makes no progress of the rank */
        if (p->stream == 3 && !over) take_progress(p->slot, bytes, (size_t)n);
        else if (p->stream != 3) send_out(p, bytes, (size_t)n);
        if (p->slot->state < FT_SLOT_DEAD) continue;
        p->since_death += (size_t)n; /* a grandchild may write for ever: what the rank left in the pipe is in by now */
        if (p->since_death >= p->capacity) p->dry = true;
    } while (all && !p->dry);
}

static void taken(struct ft_slot *s, size_t n)
{
    if (!n || s->agent->head_gone) return;
    struct ft_msg m = ft_msg_make(FT_MSG_TAKEN, (unsigned)s->index);
    ft_msg_u(&m, 0, n);
    ft_wire_send(&s->agent->wire, &m);
    ft_agent_flush(s->agent);
}

void ft_slot_close_input(struct ft_slot *s)
{
    if (s->in_fd >= 0) {
        ft_watch_remove(&s->agent->loop, &s->in_watch);
        ft_close(&s->in_fd);
    }
    size_t n = s->in.n;
    ft_buf_fini(&s->in);
    taken(s, n); /* what it did not want is dropped */
}

static void on_input_room(void *self, short revents)
{
    struct ft_slot *s = self;
    if (revents & (POLLERR | POLLHUP | POLLNVAL) && !(revents & POLLOUT)) {
        ft_slot_close_input(s);
        return;
    }
    while (s->in.n) {
        ssize_t n = write(s->in_fd, s->in.data, s->in.n);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n < 0) { /* EPIPE: it stopped reading */
            ft_slot_close_input(s);
            return;
        }
        ft_buf_drop(&s->in, (size_t)n);
        taken(s, (size_t)n);
    }
    ft_watch_want(&s->agent->loop, &s->in_watch, 0);
    if (s->in_end) ft_slot_close_input(s);
}

void ft_slot_feed(struct ft_slot *s, const void *p, size_t n, bool end)
{
    if (s->in_fd < 0) {
        taken(s, n);
        return;
    }
    if (!s->in_watch.prev) ft_watch_add(&s->agent->loop, &s->in_watch, s->in_fd, 0, on_input_room, s);
    ft_buf_add(&s->in, p, n);
    s->in_end = s->in_end || end;
    ft_watch_want(&s->agent->loop, &s->in_watch, POLLOUT);
}
