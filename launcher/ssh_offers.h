/* What is offered to a server to prove who we are, decided before anything is contacted and never by asking anyone.
 *
 *   named keys ([ssh] identity, identity=, IdentityFile): each by ssh-agent when that holds it, else from its file; nothing else
 *   none named: ssh-agent's keys (not with IdentitiesOnly), then ~/.ssh/id_ed25519, id_ecdsa, id_rsa
 *
 * With a key its certificate (KEY-cert.pub, CertificateFile) is offered first. A key with a passphrase that ssh-agent does not
 * hold is skipped and named. One struct ft_ssh_keyring per process: each file is read once, each agent asked once.
 * Filled by one thread before the others start; then only read. */
#ifndef FT_LAUNCHER_SSH_OFFERS_H
#define FT_LAUNCHER_SSH_OFFERS_H

#include "launcher/ssh.h"
#include "launcher/ssh_agent.h"
#include "launcher/ssh_config.h"

enum { FT_SSH_MAX_OFFERS = 5 }; /* a server counts refused keys (MaxAuthTries 6) */

struct ft_ssh_offer {
    const char *name;                   /* for people: the file, or "ssh-agent: comment" */
    const struct ft_ssh_pair *pair;     /* from a file */
    const char *agent;                  /* else: socket of ssh-agent */
    const struct ft_ssh_agent_key *key; /* and which of its keys */
};
struct ft_ssh_offers {
    struct ft_ssh_offer v[FT_SSH_MAX_OFFERS];
    size_t n;
    const char *skipped; /* "~/.ssh/id_rsa needs a passphrase and ssh-agent does not hold it; …"; "" */
    bool passphrase;     /* a key was skipped for that */
};

struct ft_ssh_keyring;
struct ft_ssh_keyring *ft_ssh_keyring_create(const struct ft_ssh_me *me);
void ft_ssh_keyring_destroy(struct ft_ssh_keyring *k);
/* identities: n paths that win over those of settings (0: none given). */
void ft_ssh_offers_make(struct ft_ssh_keyring *k, const char *const *identities, size_t n, const struct ft_ssh_settings *settings,
                        struct ft_ssh_offers *out);

#endif
