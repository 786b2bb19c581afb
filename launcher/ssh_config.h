/* ssh_config read by ourselves, judged as `ssh -G HOST` judges it (that is the oracle of its tests). libssh's own reader is
 * not used: it turns ProxyJump into a forked `ssh -W` per node and skips Match words it does not know.
 *
 *   1. ft_ssh_conf_read: all files once, Includes in their places, each line kept with its file and number
 *   2. ft_ssh_conf_lookup: the settings of one host; the first value of a key wins, IdentityFile and CertificateFile add up
 *   3. values live in the arena; each says which line set it
 *
 * Keys: Host, Match (all host originalhost user localuser final canonical; `exec` never matches and is noted once with its
 * line), Include, HostName, Port, User, IdentityFile, IdentitiesOnly, IdentityAgent, CertificateFile, ProxyJump,
 * ProxyCommand, UserKnownHostsFile, GlobalKnownHostsFile, HostKeyAlias, StrictHostKeyChecking, KexAlgorithms, Ciphers,
 * HostKeyAlgorithms. Other keys are not looked at. The reading is done before any thread; lookups only read. */
#ifndef FT_LAUNCHER_SSH_CONFIG_H
#define FT_LAUNCHER_SSH_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fault.h"

struct ft_ssh_conf;

/* Facts of this machine that files may ask for. */
struct ft_ssh_me {
    const char *user, *home; /* of the passwd entry; home for "~" and %d */
    unsigned uid;
    const char *host; /* %l; %L is its first label */
};
struct ft_ssh_me ft_ssh_me(struct ft_arena *arena);

/* config NULL: HOME/.ssh/config, then /etc/ssh/ssh_config, either may be missing; "none": nothing; else that file alone.
 * notes gets what a person should know (Match exec). Other faults are errors with file and line. */
enum ft_code ft_ssh_conf_read(const char *config, const struct ft_ssh_me *me, struct ft_arena *arena, struct ft_faults *notes,
                              struct ft_ssh_conf **out_conf, struct ft_err *err) FT_MUST_CHECK;
/* The same from memory, as if it were the user's file; Include of files is still followed unless no_include. */
enum ft_code ft_ssh_conf_read_text(const char *name, const char *text, size_t n, bool no_include, const struct ft_ssh_me *me,
                                   struct ft_arena *arena, struct ft_faults *notes, struct ft_ssh_conf **out_conf,
                                   struct ft_err *err) FT_MUST_CHECK;

struct ft_ssh_value {
    const char *raw;     /* as written; NULL: not set */
    const char *text;    /* with "~", %-tokens and ${NAME} replaced where the key has them */
    struct ft_source at; /* file NULL: it came with the question */
};
struct ft_ssh_values {
    struct ft_ssh_value *v;
    size_t n, cap;
};

struct ft_ssh_settings {
    struct ft_ssh_value hostname, port, user, identities_only, identity_agent, proxy_jump, proxy_command, host_key_alias, strict,
        kex, ciphers, host_key_algorithms;
    struct ft_ssh_values identity, certificate, user_known_hosts, global_known_hosts;
};

/* host: the name in [nodes] (what one would give to ssh). hostname, user, port: given values, which win; NULL: none. */
struct ft_ssh_query {
    const char *host, *hostname, *user, *port;
};
/* hostname and user of *out are always set; port is "22" when nothing says otherwise. */
enum ft_code ft_ssh_conf_lookup(const struct ft_ssh_conf *conf, const struct ft_ssh_query *q, struct ft_arena *arena,
                                struct ft_ssh_settings *out, struct ft_err *err) FT_MUST_CHECK;

/* One hop of ProxyJump or of `jump`: [user@]host[:port], [ipv6]:port, ssh://[user@]host[:port]. */
struct ft_ssh_hop {
    const char *user, *host, *port; /* user, port NULL: not given */
};
/* "A,B" in order of connection. "none" or "": n = 0. */
enum ft_code ft_ssh_hops(const char *text, struct ft_arena *arena, struct ft_ssh_hop **out_hops, size_t *out_n,
                         struct ft_err *err) FT_MUST_CHECK;

#endif
