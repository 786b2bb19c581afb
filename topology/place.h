/* "Who am I": one rank's place in the run, to and from the environment. The only file that writes or reads those names.
 * The reader understands ftlaunch's own, torchrun's, SLURM_*, OMPI_COMM_WORLD_*, PMI_* and a bare RANK/WORLD_SIZE. */
#ifndef FT_TOPOLOGY_PLACE_H
#define FT_TOPOLOGY_PLACE_H

#include "base/arena.h"
#include "base/err.h"

struct ft_place {
    int rank, world, local_rank, local_world, node_rank, n_nodes; /* n_nodes 0: not known */
    const char *master_addr;                                      /* NULL: none */
    int master_port;                                              /* 0: none */
    const char *run_id, *run_dir, *job, *token, *node;            /* FT_*; NULL when not started by ftlaunch */
    int restart;
    int progress_fd;     /* FT_PROGRESS; -1: none */
    const char *dialect; /* "ftlaunch", "torchrun", "slurm", "openmpi", "pmi", "bare", "single" */
};

/* Reads environ-like text ("NAME=VALUE" strings, NULL terminated). Contradictions (RANK >= WORLD_SIZE …) are FT_CONFIG. */
enum ft_code ft_place_from_env(char *const *env, struct ft_arena *arena, struct ft_place *out, struct ft_err *err) FT_MUST_CHECK;

#endif
