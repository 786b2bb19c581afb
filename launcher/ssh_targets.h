/* From the plan and the files of ssh to what each login needs: made once, before anything is contacted; every fault of the
 * configuration is found here. Order of a value: attribute of the node, [ssh], ssh_config, built-in.
 *
 * A chain of jump hosts is a list of bastions; equal chains are one (struct ft_ssh_bastion), each reached through the one
 * before it. */
#ifndef FT_LAUNCHER_SSH_TARGETS_H
#define FT_LAUNCHER_SSH_TARGETS_H

#include "launcher/plan.h"
#include "launcher/ssh_login.h"
#include "launcher/ssh_memory.h"

struct ft_ssh_bastion {
    struct ft_ssh_target target; /* no commands: a session only */
    int through;                 /* index of the bastion before it; -1: none */
};
struct ft_ssh_node {
    struct ft_ssh_target target;
    int through; /* index of the last bastion of its chain; -1: none */
};
struct ft_ssh_targets {
    struct ft_arena *arena;
    struct ft_ssh_me me;
    struct ft_ssh_conf *conf;
    struct ft_ssh_hosts *hosts;
    struct ft_ssh_keyring *keys;
    struct ft_faults notes;
    struct ft_ssh_memory memory;
    struct ft_buf agent_bytes;
    struct ft_ssh_file agent;
    char build[24];
    struct ft_ssh_node *nodes; /* as in the plan */
    size_t n_nodes;
    struct ft_ssh_bastion **bastions;
    size_t n_bastions, bastions_cap;
};
/* program_dir: where our ftlaunch-agent lies. *t is filled as far as it came; ft_ssh_targets_fini in any case. */
enum ft_code ft_ssh_targets_make(const struct ft_plan *plan, const char *program_dir, struct ft_ssh_targets *t,
                                 struct ft_err *err) FT_MUST_CHECK;
void ft_ssh_targets_fini(struct ft_ssh_targets *t);

#endif
