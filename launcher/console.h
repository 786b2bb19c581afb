/* stdout and stderr of the head: whole lines are queued and written as the reader takes them; nothing ever blocks the loop.
 * When both lead to the same place they share one queue, so that no line is torn between them. */
#ifndef FT_LAUNCHER_CONSOLE_H
#define FT_LAUNCHER_CONSOLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "launcher/loop.h"

enum { FT_CONSOLE_ROOM = 256 * 1024 }; /* less than this waiting: more may come */

struct ft_console_out {
    struct ft_console *console;
    int fd;   /* written to */
    bool own; /* fd is ours (reopened without blocking): write as much as it takes */
    bool is_socket;
    bool closed; /* the reader is gone */
    int last_errno;
    struct ft_buf q;
    size_t at; /* written bytes of q */
    struct ft_watch watch;
};
struct ft_console {
    struct ft_loop *loop;
    struct ft_console_out out[2]; /* [0] stdout, [1] stderr */
    bool shared;                  /* out[0] takes both */
    bool off;                     /* nothing more is written */
    bool tty[2];                  /* is a terminal */
    bool epipe;                   /* stdout's reader has gone (said once by the head) */
    int64_t moved_at;             /* when a byte was last taken, or the queue was last empty */
    void (*room)(void *self);     /* the queue fell below FT_CONSOLE_ROOM */
    void *self;
};
/* A text of ours for a terminal: control bytes shown, "ftlaunch: error:" and the like at the front of a line in colour when wished. */
void ft_console_paint(const char *text, bool color, struct ft_buf *out);
/* Output of a rank for a terminal: colours pass, every other control byte but tab is shown. */
void ft_console_add_visible(struct ft_buf *q, const char *p, size_t n);
void ft_console_open(struct ft_console *c, struct ft_loop *loop, void (*room)(void *), void *self);
void ft_console_close(struct ft_console *c);
/* stream 1 or 2. The bytes are whole lines. */
void ft_console_add(struct ft_console *c, int stream, const void *p, size_t n);
struct ft_buf *ft_console_queue(struct ft_console *c, int stream); /* to append whole lines to; then ft_console_flush */
void ft_console_flush(struct ft_console *c);
size_t ft_console_waiting(const struct ft_console *c);
void ft_console_drop(struct ft_console *c); /* forgets what waits; nothing more is written */

#endif
