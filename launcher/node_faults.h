/* Nodes that failed lately, remembered per cluster name in ~/.local/state/ftlaunch/faults.jsonl (or below $XDG_STATE_HOME): one object a
 * line, {"t","at","cluster","node","boot","kind":"loss"|"start","run"}. Only a hint: a file that is missing, damaged or not ours is empty,
 * and what cannot be written is not remembered. Several launchers may write at once. */
#ifndef FT_LAUNCHER_NODE_FAULTS_H
#define FT_LAUNCHER_NODE_FAULTS_H

#include "base/fault.h"
#include "launcher/config.h"

/* Nodes with a loss or two failed starts within cooldown: *late are their names; a note for each goes to faults. */
void ft_node_faults_read(const struct ft_launcher_config *c, struct ft_arena *arena, struct ft_names *late,
                         struct ft_faults *faults);

struct ft_node_fault {
    const char *node, *boot, *kind, *run;
};
void ft_node_faults_add(const struct ft_launcher_config *c, const struct ft_node_fault *f);

#endif
