/* The socket by which `ps` and `stop` speak to a running head: $XDG_RUNTIME_DIR/ftlaunch/RUN.sock (else /tmp/ftlaunch-UID),
 * folder 0700, peer's uid checked. A request is one line ("ps", "stop", "stop now"), the answer one JSON object or "ok". */
#ifndef FT_LAUNCHER_CTL_H
#define FT_LAUNCHER_CTL_H

#include "base/err.h"
#include "base/str.h"
#include "launcher/loop.h"

enum { FT_CTL_PEERS = 8 };
struct ft_ctl_peer {
    struct ft_ctl *ctl;
    int fd;
    struct ft_watch watch;
    struct ft_buf in;
};
struct ft_ctl {
    struct ft_loop *loop;
    int fd;
    char path[256]; /* empty: none */
    struct ft_watch watch;
    struct ft_ctl_peer peers[FT_CTL_PEERS];
    void (*asked)(void *self, const char *request, struct ft_buf *answer);
    void *self;
};
/* The folder of the sockets, checked (owner, mode, not a link); made when wished. */
enum ft_code ft_ctl_folder(bool make, struct ft_buf *out, struct ft_err *err) FT_MUST_CHECK;
/* Name of the socket of a run (the folder is made). */
enum ft_code ft_ctl_path(const char *run, struct ft_buf *out, struct ft_err *err) FT_MUST_CHECK;
/* A head without a socket still runs: the reason is in err. */
enum ft_code ft_ctl_open(struct ft_ctl *c, struct ft_loop *loop, const char *run,
                         void (*asked)(void *, const char *, struct ft_buf *), void *self, struct ft_err *err) FT_MUST_CHECK;
void ft_ctl_close(struct ft_ctl *c);
/* One request to the head of that run, at most limit_ms. FT_NET: nobody is there. */
enum ft_code ft_ctl_ask(const char *run, const char *request, int limit_ms, struct ft_buf *answer,
                        struct ft_err *err) FT_MUST_CHECK;

#endif
