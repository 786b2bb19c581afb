/* Which command was our agent of this build the last time, per login: ~/.local/state/ftlaunch/agents/BUILD (or below
 * $XDG_STATE_HOME), lines "USER@HOST:PORT PATH". Only a hint: a file that is missing, damaged or not ours is empty. */
#ifndef FT_LAUNCHER_SSH_MEMORY_H
#define FT_LAUNCHER_SSH_MEMORY_H

#include "launcher/ssh_config.h"

struct ft_ssh_memory {
    struct ft_arena *arena;
    const char *path;
    struct ft_ssh_remembered {
        const char *login, *command;
    } * v;
    size_t n, cap;
    bool changed;
};
void ft_ssh_memory_read(struct ft_ssh_memory *m, const struct ft_ssh_me *me, const char *build, struct ft_arena *arena);
const char *ft_ssh_memory_get(const struct ft_ssh_memory *m, const char *user, const char *host, int port); /* NULL: not known */
void ft_ssh_memory_put(struct ft_ssh_memory *m, const char *user, const char *host, int port, const char *command);
void ft_ssh_memory_write(struct ft_ssh_memory *m); /* when it has changed; failures are silent */

#endif
