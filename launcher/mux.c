#include "launcher/mux.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"

#define HOLD       (2200 * FT_MS) /* an incomplete line */
#define BAR_EVERY  FT_SEC
#define TICK_LEAST (20 * FT_MS) /* a tick looks at all ranks: those that are due one soon after the other share one */
enum { DROP_ABOVE = 1024 * 1024, KEPT_ROOM = 4096 };

void ft_mux_open(struct ft_mux *m, int n_ranks)
{
    m->n_ranks = n_ranks;
    m->ranks = ft_xcalloc((size_t)n_ranks, sizeof *m->ranks);
    m->tick_at = INT64_MAX;
    for (int r = 0; r < n_ranks; r++) m->ranks[r] = (struct ft_mux_rank){.rank = r, .node = "", .fd = -1};
}

static void close_file(struct ft_mux *m, struct ft_mux_rank *r)
{
    m->n_open -= r->fd >= 0;
    ft_close(&r->fd);
}

static void drop_rank(struct ft_mux *m, struct ft_mux_rank *r)
{
    close_file(m, r);
    for (int k = 0; k < 2; k++) ft_buf_fini(&r->line[k].b);
}

void ft_mux_resize(struct ft_mux *m, int n_ranks)
{
    for (int r = n_ranks; r < m->n_ranks; r++) drop_rank(m, &m->ranks[r]);
    m->ranks = ft_xrealloc(m->ranks, (size_t)n_ranks, sizeof *m->ranks);
    for (int r = m->n_ranks; r < n_ranks; r++) m->ranks[r] = (struct ft_mux_rank){.rank = r, .node = "", .fd = -1};
    m->n_ranks = n_ranks;
}

void ft_mux_close(struct ft_mux *m)
{
    for (int r = 0; r < m->n_ranks; r++) drop_rank(m, &m->ranks[r]);
    free(m->ranks);
    m->ranks = NULL;
    m->n_ranks = 0;
}

/* ---- files ---- */

static void close_least_used(struct ft_mux *m)
{
    struct ft_mux_rank *least = NULL;
    for (int r = 0; r < m->n_ranks; r++)
        if (m->ranks[r].fd >= 0 && (!least || m->ranks[r].used < least->used)) least = &m->ranks[r];
    if (least) close_file(m, least);
}

static void file_name(const struct ft_mux *m, int rank, char *out, size_t cap)
{
    snprintf(out, cap, "%s/%04d.log", m->folder, rank);
}

static int open_file(struct ft_mux *m, struct ft_mux_rank *r)
{
    char name[512];
    file_name(m, r->rank, name, sizeof name);
    if (m->max_open && m->n_open >= m->max_open) close_least_used(m);
    for (int i = 0; i < 2; i++) {
        r->fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (r->fd >= 0 || (errno != EMFILE && errno != ENFILE)) break;
        close_least_used(m);
    }
    m->n_open += r->fd >= 0;
    return r->fd;
}

static void file_error(struct ft_mux *m, int rank)
{
    if (m->file_failed) return;
    m->file_failed = true;
    m->file_errno = errno;
    file_name(m, rank, m->file_name, sizeof m->file_name);
}

static void to_file(struct ft_mux *m, struct ft_mux_rank *r, const char *p, size_t n)
{
    r->used = ++m->clock;
    if (r->fd < 0 && open_file(m, r) < 0) {
        file_error(m, r->rank);
        return;
    }
    while (n) {
        ssize_t k = write(r->fd, p, n);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) {
            file_error(m, r->rank);
            return;
        }
        r->bytes += (uint64_t)k;
        p += k;
        n -= (size_t)k;
    }
}

int64_t ft_mux_offset(struct ft_mux *m, int rank)
{
    char name[512];
    struct stat st;
    if (!m->folder) return 0;
    file_name(m, rank, name, sizeof name);
    return stat(name, &st) == 0 ? (int64_t)st.st_size : 0;
}

/* ---- console ---- */

static bool is_off(const struct ft_mux *m, int stream)
{
    const struct ft_console *c = m->console;
    return !m->show || c->off || c->out[c->shared ? 0 : stream - 1].closed;
}

static void show(struct ft_mux *m, struct ft_mux_rank *r, int stream, const char *p, size_t n, bool continued)
{
    struct ft_console *c = m->console;
    if (is_off(m, stream)) return;
    if (m->drop && ft_console_waiting(c) > DROP_ABOVE) {
        r->dropped += n + 1;
        m->n_dropped++;
        return;
    }
    struct ft_buf *q = ft_console_queue(c, stream);
    char prefix[300];
    int k = snprintf(prefix, sizeof prefix, "[%d %.250s]%s ", r->rank, r->node, continued ? "+" : "");
    ft_buf_reserve(q, (size_t)k + n + 1);
    ft_buf_add(q, prefix, (size_t)k);
    if (c->tty[stream - 1]) ft_console_add_visible(q, p, n);
    else ft_buf_add(q, p, n);
    ft_buf_addc(q, '\n');
}

/* Where a piece of at most FT_MUX_LINE bytes may end: not inside a UTF-8 sequence. */
static size_t piece_end(const char *p, size_t n)
{
    size_t k = FT_MUX_LINE;
    if (n <= k) return n;
    for (size_t back = 1; back <= 3; back++) {
        unsigned char c = (unsigned char)p[k - back];
        if ((c & 0xC0) == 0x80) continue; /* inside: look for its first byte */
        size_t length = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
        return length > back ? k - back : k;
    }
    return k;
}

/* The newest non-empty text of a bar: what stands behind the last "\r" that has something behind it. */
static const char *bar_text(const struct ft_buf *b, size_t *n)
{
    size_t end = b->n;
    while (end && b->data[end - 1] == '\r') end--;
    const char *cr = memrchr(b->data, '\r', end);
    size_t start = cr ? (size_t)(cr - b->data) + 1 : 0;
    *n = end - start;
    return b->data + start;
}

/* A "\r" with something behind it: at the very end it may be half of CR LF. */
static bool has_bar(const struct ft_buf *b) { return b->n > 1 && memchr(b->data, '\r', b->n - 1); }

static void show_bar(struct ft_mux *m, struct ft_mux_rank *r, int stream, struct ft_mux_line *l, int64_t now)
{
    size_t n;
    const char *p = bar_text(&l->b, &n);
    if (n) show(m, r, stream, p, n < FT_MUX_LINE ? n : FT_MUX_LINE, false);
    l->bar = true;
    l->shown = now;
    ft_buf_clear(&l->b);
}

/* A whole line: what is held, and p[0..n). */
static void whole_line(struct ft_mux *m, struct ft_mux_rank *r, int stream, struct ft_mux_line *l, const char *p, size_t n)
{
    if (l->b.n) {
        ft_buf_add(&l->b, p, n);
        p = l->b.data;
        n = l->b.n;
    }
    if (n && p[n - 1] == '\r' && (l->bar || m->console->tty[stream - 1])) n--;
    if (l->bar || (m->console->tty[stream - 1] && n && memchr(p, '\r', n))) { /* only the newest state of a bar */
        const char *cr = n ? memrchr(p, '\r', n) : NULL;
        if (cr) {
            n -= (size_t)(cr + 1 - p);
            p = cr + 1;
        }
        if (n) show(m, r, stream, p, n, false);
    } else if (n || !l->continued) { /* the newline of a line that was shown whole says nothing new */
        bool continued = l->continued;
        while (n > FT_MUX_LINE) {
            size_t k = piece_end(p, n);
            show(m, r, stream, p, k, continued);
            continued = true;
            p += k;
            n -= k;
        }
        show(m, r, stream, p, n, continued);
    }
    if (l->b.cap > KEPT_ROOM) ft_buf_fini(&l->b);
    ft_buf_clear(&l->b);
    *l = (struct ft_mux_line){.b = l->b};
}

static void set_tick(struct ft_mux *m, const struct ft_mux_line *l)
{
    int64_t at = has_bar(&l->b) ? (l->shown ? l->shown : l->since) + BAR_EVERY : l->since + HOLD;
    if (at < m->ticked_at + TICK_LEAST) at = m->ticked_at + TICK_LEAST;
    if (at < m->tick_at) m->tick_at = at;
}

static void hold(struct ft_mux *m, struct ft_mux_rank *r, int stream, struct ft_mux_line *l, const char *p, size_t n, int64_t now)
{
    if (!l->b.n) l->since = now;
    ft_buf_add(&l->b, p, n);
    if (has_bar(&l->b)) {
        if (l->b.n > FT_MUX_LINE) { /* only its newest state is of interest */
            size_t k;
            const char *text = bar_text(&l->b, &k);
            ft_buf_drop(&l->b, (size_t)(text - l->b.data) ? (size_t)(text - l->b.data) - 1 : 0);
        }
    }
    while (l->b.n > FT_MUX_LINE) {
        size_t k = piece_end(l->b.data, l->b.n);
        show(m, r, stream, l->b.data, k, l->continued);
        l->continued = true;
        ft_buf_drop(&l->b, k);
    }
    set_tick(m, l);
}

/* Most of all output: whole lines to a file or a pipe while nothing is held. They are shown as they are, so the prefix is made once for
 * all of them. Returns the bytes that were taken; the first line that needs more care ends it. */
static size_t plain_lines(struct ft_mux *m, struct ft_mux_rank *r, int stream, const char *p, size_t n)
{
    const struct ft_mux_line *l = &r->line[stream - 1];
    if (l->b.n || l->bar || l->continued || m->console->tty[stream - 1] || m->drop || is_off(m, stream)) return 0;
    struct ft_buf *q = ft_console_queue(m->console, stream);
    char prefix[300];
    const size_t k = (size_t)snprintf(prefix, sizeof prefix, "[%d %.250s] ", r->rank, r->node);
    size_t at = 0;
    for (const char *end; at < n && (end = memchr(p + at, '\n', n - at)); at = (size_t)(end - p) + 1) {
        const size_t line = (size_t)(end - p) + 1 - at;
        if (line > FT_MUX_LINE) break;
        ft_buf_reserve(q, k + line);
        memcpy(q->data + q->n, prefix, k);
        memcpy(q->data + q->n + k, p + at, line);
        q->n += k + line;
        q->data[q->n] = 0;
    }
    return at;
}

void ft_mux_bytes(struct ft_mux *m, int rank, int stream, const char *p, size_t n, int64_t now)
{
    struct ft_mux_rank *r = &m->ranks[rank];
    if (m->folder) to_file(m, r, p, n);
    if (!m->show) return;
    struct ft_mux_line *l = &r->line[stream - 1];
    while (n) {
        const size_t plain = plain_lines(m, r, stream, p, n);
        p += plain;
        n -= plain;
        if (!n) break;
        const char *end = memchr(p, '\n', n);
        if (!end) {
            hold(m, r, stream, l, p, n, now);
            break;
        }
        whole_line(m, r, stream, l, p, (size_t)(end - p));
        n -= (size_t)(end + 1 - p);
        p = end + 1;
    }
    ft_console_flush(m->console);
}

void ft_mux_end(struct ft_mux *m, int rank)
{
    struct ft_mux_rank *r = &m->ranks[rank];
    for (int k = 0; k < 2; k++)
        if (r->line[k].b.n) whole_line(m, r, k + 1, &r->line[k], "", 0);
    ft_console_flush(m->console);
}

void ft_mux_tick(struct ft_mux *m, int64_t now)
{
    m->tick_at = INT64_MAX;
    m->ticked_at = now;
    for (int i = 0; i < m->n_ranks; i++)
        for (int k = 0; k < 2; k++) {
            struct ft_mux_rank *r = &m->ranks[i];
            struct ft_mux_line *l = &r->line[k];
            if (!l->b.n) continue;
            if (has_bar(&l->b)) {
                if (now >= (l->shown ? l->shown : l->since) + BAR_EVERY) show_bar(m, r, k + 1, l, now);
            } else if (now >= l->since + HOLD) { /* a prompt, or a line whose end is late */
                if (l->bar) show_bar(m, r, k + 1, l, now);
                else {
                    show(m, r, k + 1, l->b.data, l->b.n, l->continued);
                    l->continued = true;
                    ft_buf_clear(&l->b);
                }
            }
            if (l->b.n) set_tick(m, l);
        }
    ft_console_flush(m->console);
}
