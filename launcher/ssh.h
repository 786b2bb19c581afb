/* libssh in the words of the launcher; ssh.c is the only file that sees it. A session never waits: each call does what can be
 * done now and says AGAIN; the owner polls ft_ssh_fd for ft_ssh_events.
 *
 *   1. ft_ssh_create on a connected socket (taken over); nothing of libssh's own configuration is read
 *   2. ft_ssh_connect until OK: greeting and key exchange; then ft_ssh_host_key and the judgement of the owner
 *   3. ft_ssh_auth_none, ft_ssh_auth_key, ft_ssh_auth_agent until OK
 *   4. ft_ssh_channel_*: a command, the sftp subsystem, or a TCP connection at the other side
 *   5. ft_ssh_destroy: channels first
 *
 * One thread owns a session at a time; it may be handed over between calls. Keys (struct ft_ssh_pair) only read, so threads may
 * share them. */
#ifndef FT_LAUNCHER_SSH_H
#define FT_LAUNCHER_SSH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/err.h"

enum ft_ssh_rc {
    FT_SSH_OK,
    FT_SSH_AGAIN,   /* poll, then call again */
    FT_SSH_DENIED,  /* the other side said no */
    FT_SSH_PARTIAL, /* this was right, but more is asked for */
    FT_SSH_END,     /* the channel has ended */
    FT_SSH_ERROR    /* the connection is gone or broken: ft_ssh_why */
};

struct ft_ssh;
struct ft_ssh_channel;
struct ft_ssh_pair;
struct ft_ssh_proxy;

struct ft_ssh_spec {
    const char *user;
    int fd;                                          /* connected, non-blocking */
    const char *known_types;                         /* "ssh-ed25519,ssh-rsa": asked for first; "": none */
    const char *host_key_algorithms, *kex, *ciphers; /* as in ssh_config ("+x", "-x", "^x" too); NULL: ours */
    const struct ft_ssh_proxy *proxy;                /* the process at the other end of fd (taken over); NULL: none */
};
/* On failure the socket is closed, and the proxy is ended. */
enum ft_code ft_ssh_create(const struct ft_ssh_spec *spec, struct ft_ssh **out, struct ft_err *err) FT_MUST_CHECK;
void ft_ssh_destroy(struct ft_ssh *s);

int ft_ssh_fd(const struct ft_ssh *s);
short ft_ssh_events(const struct ft_ssh *s); /* POLLIN, and POLLOUT when something waits to be written */
bool ft_ssh_alive(const struct ft_ssh *s);
/* What libssh says about the last failure: one line. */
void ft_ssh_why(const struct ft_ssh *s, char *out, size_t cap);

enum ft_ssh_rc ft_ssh_connect(struct ft_ssh *s);
bool ft_ssh_greeted(const struct ft_ssh *s);                               /* the other side has said "SSH-…" */
void ft_ssh_proxy_words_of(const struct ft_ssh *s, char *out, size_t cap); /* last line of the proxy's standard error; "": none */
bool ft_ssh_no_common(const struct ft_ssh *s);                             /* key exchange failed because no algorithm is common */

struct ft_ssh_host_key {
    char type[64];
    char key64[4096];
    char fingerprint[128]; /* "SHA256:…" */
};
enum ft_code ft_ssh_host_key(struct ft_ssh *s, struct ft_ssh_host_key *out, struct ft_err *err) FT_MUST_CHECK;

/* none: the answer is the list of methods. */
enum ft_ssh_rc ft_ssh_auth_none(struct ft_ssh *s);
bool ft_ssh_offers_keys(struct ft_ssh *s);
void ft_ssh_methods(struct ft_ssh *s, char *out, size_t cap); /* "password, keyboard-interactive" */
enum ft_ssh_rc ft_ssh_auth_key(struct ft_ssh *s, const struct ft_ssh_pair *pair);
/* Every key that the agent on this socket shows is offered (so it must show one only). The socket is taken over. */
enum ft_ssh_rc ft_ssh_auth_agent(struct ft_ssh *s, int agent_fd); /* -1: goes on with the same socket */

/* ---- keys ---- */

enum ft_ssh_pair_state { FT_PAIR_OK, FT_PAIR_MISSING, FT_PAIR_PASSPHRASE, FT_PAIR_UNREADABLE };
/* A private key, with a certificate when cert_path is given and belongs to it (else UNREADABLE). Never asks for anything. */
enum ft_ssh_pair_state ft_ssh_pair_load(const char *path, const char *cert_path, struct ft_ssh_pair **out_pair);
void ft_ssh_pair_destroy(struct ft_ssh_pair *p);
/* Public key in base64, of PATH.pub or of the private key (OpenSSH's form shows it without the passphrase); NULL: not known. */
char *ft_ssh_public64(const char *path, struct ft_arena *arena);

/* ---- channels ---- */

struct ft_ssh_channel *ft_ssh_channel_create(struct ft_ssh *s);
void ft_ssh_channel_destroy(struct ft_ssh_channel *c); /* closes it */
enum ft_ssh_rc ft_ssh_channel_open(struct ft_ssh_channel *c);
enum ft_ssh_rc ft_ssh_channel_connect(struct ft_ssh_channel *c, const char *host, int port); /* a TCP connection from there */
enum ft_ssh_rc ft_ssh_channel_exec(struct ft_ssh_channel *c, const char *command);
enum ft_ssh_rc ft_ssh_channel_sftp(struct ft_ssh_channel *c);
/* OK with *out_n > 0, AGAIN, END (command over and everything read), ERROR. stream 1 or 2. */
enum ft_ssh_rc ft_ssh_channel_read(struct ft_ssh_channel *c, int stream, void *p, size_t cap, size_t *out_n);
/* Takes what fits now (0 with AGAIN). */
enum ft_ssh_rc ft_ssh_channel_write(struct ft_ssh_channel *c, const void *p, size_t n, size_t *out_n);
void ft_ssh_channel_end(struct ft_ssh_channel *c);   /* no more will be written */
int ft_ssh_channel_status(struct ft_ssh_channel *c); /* exit status of the command; -1: none was told */

#endif
