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
    int through;        /* index of the last bastion of its chain; -1: none */
    const char *origin; /* its settings and what set each: "port 2222 (job.ini:4), user ml (default), …" */
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
    struct ft_ssh_node *nodes; /* as given */
    size_t n_nodes;
    struct ft_ssh_bastion **bastions;
    size_t n_bastions, bastions_cap;
};
struct ft_ssh_request {
    const struct ft_launcher_config *config;
    const struct ft_plan_node *const *nodes;
    size_t n_nodes;
    const char *program_dir; /* where our ftlaunch-agent lies */
    bool explain;            /* origin of each node is wanted */
};
/* *t is filled as far as it came; ft_ssh_targets_fini in any case. */
enum ft_code ft_ssh_targets_make(const struct ft_ssh_request *q, struct ft_ssh_targets *t, struct ft_err *err) FT_MUST_CHECK;
void ft_ssh_targets_fini(struct ft_ssh_targets *t);

#endif
