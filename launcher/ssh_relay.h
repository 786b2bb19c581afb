/* TCP connections through one bastion: its session belongs to the loop; each connection is a channel of it, joined to a
 * socketpair whose other end a login takes as its socket.
 *
 *   1. ft_ssh_relay_create with a session that has been authenticated (taken over)
 *   2. ft_ssh_relay_connect: done() gives the socket (or why not), never from inside the call
 *   3. a connection ends when both its ends have; a full socket stops the reading of its channel, a full channel that of its
 *      socket, so nothing is stored beyond one piece each way
 *   4. lost(): the session is gone; every connection with it. ft_ssh_relay_destroy */
#ifndef FT_LAUNCHER_SSH_RELAY_H
#define FT_LAUNCHER_SSH_RELAY_H

#include "launcher/loop.h"
#include "launcher/ssh_login.h"

struct ft_ssh_relay_user {
    void *self;
    /* fd >= 0: connected (the receiver's now). Else fate and reason; phase is resolve or tcp. */
    void (*done)(void *self, int tag, int fd, enum ft_ssh_fate fate, enum ft_ssh_phase phase, const char *reason);
    void (*lost)(void *self, const char *reason);
};

struct ft_ssh_relay;
struct ft_ssh_relay *ft_ssh_relay_create(struct ft_loop *loop, struct ft_ssh *ssh, struct ft_ssh_relay_user user);
void ft_ssh_relay_destroy(struct ft_ssh_relay *r); /* NULL is fine */
void ft_ssh_relay_connect(struct ft_ssh_relay *r, const char *host, int port, int64_t deadline, int tag);
void ft_ssh_relay_drop(struct ft_ssh_relay *r, int tag); /* a connection that is not done is not wanted any more */

#endif
