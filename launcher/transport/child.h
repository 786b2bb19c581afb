/* A program of this machine at the other end of a socketpair (its descriptors 0 and 1; 2 is a pipe): the stream to an agent, or to
 * what leads to one. It leads a session of its own, so that the terminal's signals reach the head only.
 *
 *   1. ft_child_start: whatever fails is told later, through user.closed (phase "agent")
 *   2. bytes come through user.data and user.said; ft_child_write; user.room when more may be written
 *   3. the stream ends (user.closed) or is closed by the owner (ft_child_close; nothing is told then)
 *   4. over: its stream and the process have both ended, in whichever order; when the stream ended last, before user.closed
 *   5. ft_child_fini: nothing is told any more; a process that still runs is left to itself */
#ifndef FT_LAUNCHER_TRANSPORT_CHILD_H
#define FT_LAUNCHER_TRANSPORT_CHILD_H

#include "launcher/proc.h"
#include "launcher/transport/transport.h"

enum { FT_CHILD_DESCRIPTORS = 4 }; /* of one that runs: the stream, its stderr, the process, and while it starts the exec's pipe */

struct ft_child {
    struct ft_loop *loop;
    struct ft_transport_user user;
    int node;
    void (*over)(void *self, struct ft_child *c);
    void *self;
    bool open, killed; /* killed: it was ended by a signal */
    struct ft_proc proc;
    int fd, err_fd;
    struct ft_watch watch, err_watch, exec_watch, end_watch;
    struct ft_timer fail_timer;
    struct ft_link_error why;
};

struct ft_child_spec {
    struct ft_loop *loop;
    struct ft_transport_user user;
    int node;
    const char *path;
    char *const *argv;
    void (*over)(void *self, struct ft_child *c);
    void *self;
};

void ft_child_start(struct ft_child *c, const struct ft_child_spec *s);
size_t ft_child_write(struct ft_child *c, const void *p, size_t n);
void ft_child_close(struct ft_child *c); /* fine when it is closed */
void ft_child_fini(struct ft_child *c);

#endif
