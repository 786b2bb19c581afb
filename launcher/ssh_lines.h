/* Between ssh_config.c (reads files into lines) and ssh_lookup.c (judges lines for one host). Nobody else includes this. */
#ifndef FT_LAUNCHER_SSH_LINES_H
#define FT_LAUNCHER_SSH_LINES_H

#include "launcher/ssh_config.h"

enum ft_ssh_key {
    FT_SK_OTHER, /* a key that is not looked at */
    FT_SK_FILE,  /* a file begins that is no include */
    FT_SK_PUSH,  /* an included file begins / ends */
    FT_SK_POP,
    FT_SK_HOST,
    FT_SK_MATCH,
    FT_SK_INCLUDE,
    FT_SK_HOSTNAME,
    FT_SK_PORT,
    FT_SK_USER,
    FT_SK_IDENTITY,
    FT_SK_IDENTITIES_ONLY,
    FT_SK_IDENTITY_AGENT,
    FT_SK_CERTIFICATE,
    FT_SK_PROXY_JUMP,
    FT_SK_PROXY_COMMAND,
    FT_SK_USER_HOSTS,
    FT_SK_GLOBAL_HOSTS,
    FT_SK_HOST_KEY_ALIAS,
    FT_SK_STRICT,
    FT_SK_KEX,
    FT_SK_CIPHERS,
    FT_SK_HOST_KEY_ALGORITHMS
};

enum ft_ssh_criterion {
    FT_SM_ALL,
    FT_SM_HOST,
    FT_SM_ORIGINALHOST,
    FT_SM_USER,
    FT_SM_LOCALUSER,
    FT_SM_FINAL, /* canonical too: both mean the second reading */
    FT_SM_CANONICAL,
    FT_SM_NEVER /* exec, and words that this build does not know */
};
struct ft_ssh_match {
    enum ft_ssh_criterion what;
    bool negated;
    const char *arg;
};

struct ft_ssh_line {
    enum ft_ssh_key key;
    struct ft_source at;
    char **argv;
    size_t argc;
    const char *rest; /* ProxyJump, ProxyCommand: everything behind the key */
    struct ft_ssh_match *match;
    size_t n_match;
};

struct ft_ssh_conf {
    struct ft_arena *arena;
    const struct ft_ssh_me *me;
    struct ft_ssh_line *v;
    size_t n, cap;
    bool wants_final; /* some Match says final: a second reading */
};

/* An array in an arena that doubles; old ones stay where they are. Returns the place of the new last element. */
void *ft_ssh_push(struct ft_arena *arena, void *array, size_t *n, size_t *cap, size_t size);

#endif
