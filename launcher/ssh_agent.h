/* ssh-agent (the program that holds keys), its protocol as far as logins need it: which keys it holds, and a socket for libssh
 * behind which it seems to hold one key only (libssh offers everything that it is shown).
 *
 *   1. ft_ssh_agent_list once, before any thread
 *   2. ft_ssh_agent_begin: a thread of its own answers on the returned socket, until that socket is closed or the deadline
 *   3. ft_ssh_agent_end: joins it (give it the socket's end or the deadline first) */
#ifndef FT_LAUNCHER_SSH_AGENT_H
#define FT_LAUNCHER_SSH_AGENT_H

#include <pthread.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "launcher/ssh_dial.h"

struct ft_ssh_agent_key {
    const unsigned char *blob; /* public key or certificate, SSH wire form */
    size_t n;
    const char *type;    /* "ssh-ed25519" */
    const char *comment; /* bytes of the agent, control characters as '?' */
    const char *key64;   /* the blob in base64 */
};
struct ft_ssh_agent_keys {
    struct ft_ssh_agent_key *v;
    size_t n, cap;
};
/* path: its socket. An agent that does not answer within limit_ns is FT_TIMEOUT. */
enum ft_code ft_ssh_agent_list(const char *path, int64_t limit_ns, struct ft_arena *arena, struct ft_ssh_agent_keys *out,
                               struct ft_err *err) FT_MUST_CHECK;

struct ft_ssh_agent_door {
    const char *path;
    const struct ft_ssh_agent_key *key;
    struct ft_ssh_limits limits;
    int fd; /* our end */
    pthread_t thread;
};
/* *out_fd is libssh's end. door stays where it is until ft_ssh_agent_end. */
enum ft_code ft_ssh_agent_begin(struct ft_ssh_agent_door *door, int *out_fd, struct ft_err *err) FT_MUST_CHECK;
void ft_ssh_agent_end(struct ft_ssh_agent_door *door); /* hangs up our end and joins */

#endif
