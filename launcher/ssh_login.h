/* One login, done by one thread of the pool from a name to an agent that has said HELLO (or, for a bastion, to a session):
 * resolve → tcp → banner → kex → hostkey → auth → channel → agent. Each wait ends at the deadline. Nothing is ever asked.
 * A target is made by one thread before and only read here, except for the table of host keys (own lock). */
#ifndef FT_LAUNCHER_SSH_LOGIN_H
#define FT_LAUNCHER_SSH_LOGIN_H

#include "launcher/ssh_dial.h"
#include "launcher/ssh_hosts.h"
#include "launcher/ssh_offers.h"
#include "launcher/ssh_stage.h"

enum ft_ssh_policy { FT_POLICY_STRICT, FT_POLICY_ACCEPT_NEW, FT_POLICY_OFF };

struct ft_ssh_target {
    const char *name;        /* in messages */
    const char *host, *user; /* where to, as whom */
    int port;
    char *const *proxy;                              /* ProxyCommand (ssh_proxy.h) instead of TCP; NULL: none */
    const char *kex, *ciphers, *host_key_algorithms; /* of ssh_config; NULL: ours */
    struct ft_ssh_hosts *hosts;
    struct ft_ssh_who who; /* under which name its key is known */
    enum ft_ssh_policy policy;
    const char *append; /* accept-new writes here */
    struct ft_ssh_offers offers;
    const char *mode_hint; /* what is wrong with modes of our own ~/.ssh; "" */
    /* the agent; no commands: only a session is wanted */
    const char *const *commands; /* tried in order: what worked last time, then the name on PATH */
    size_t n_commands;
    const struct ft_ssh_file *file; /* staged when no command is an agent of our build; NULL: never */
    const char *build;              /* of our own agent; "": not known, any is fine */
};

enum { FT_SSH_REASON = 480 };
enum ft_ssh_phase {
    FT_PHASE_RESOLVE,
    FT_PHASE_TCP,
    FT_PHASE_BANNER,
    FT_PHASE_KEX,
    FT_PHASE_HOSTKEY,
    FT_PHASE_AUTH,
    FT_PHASE_CHANNEL,
    FT_PHASE_AGENT,
    FT_N_PHASES
};
const char *ft_ssh_phase_name(enum ft_ssh_phase p);

struct ft_ssh_login {
    enum ft_ssh_fate fate;
    enum ft_ssh_phase phase; /* where it ended */
    char reason[FT_SSH_REASON];
    /* UP */
    struct ft_ssh *ssh;
    struct ft_ssh_channel *channel; /* NULL for a bastion */
    struct ft_buf bytes;            /* what the command has written so far, the magic and HELLO in it */
    struct ft_buf said;             /* its stderr, at most 16 KiB */
    char note[256];                 /* for people; "" */
    char command[256];              /* what is running */
    bool staged;                    /* the file was sent now */
    int64_t ns[FT_N_PHASES];        /* how long each phase took */
};
void ft_ssh_login_fini(struct ft_ssh_login *l); /* what has not been taken out is closed and freed */

struct ft_ssh_login_how {
    struct ft_ssh_limits limits;
    int fd;                                      /* a connection that is there already (through a bastion; taken over); -1: dial */
    bool (*resolved)(void *self);                /* ssh_dial.h */
    void (*at)(void *self, enum ft_ssh_phase p); /* a phase begins */
    void *self;
};
/* CANCELLED: out holds nothing. */
void ft_ssh_login(const struct ft_ssh_target *t, const struct ft_ssh_login_how *how, struct ft_ssh_login *out);

#endif
