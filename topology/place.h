/* "Who am I": one rank's place in the run, to and from the environment. The only file that writes or reads those names.
 *
 * The reader understands, in this order: ftlaunch's own (FT_RUN_ID), torchrun's (TORCHELASTIC_RUN_ID), a bare RANK and
 * WORLD_SIZE, Open MPI's OMPI_COMM_WORLD_*, Hydra's and Intel's PMI_* with MPI_LOCALRANKID, a step of srun (told by
 * SLURM_STEP_ID and SLURM_STEP_NUM_TASKS: a batch script has SLURM_PROCID too), and PMI_RANK/PMI_SIZE alone; else one single
 * rank. SLURM_STEP_* comes before SLURM_JOB_* because a step may use fewer nodes.
 * Refused: one name of a pair without the other, numbers that are none, RANK >= WORLD_SIZE, LOCAL_RANK >= LOCAL_WORLD_SIZE, and
 * a WORLD_SIZE that is smaller than the number of processes that mpirun, mpiexec or srun started (else each of them would
 * be a world of its own). */
#ifndef FT_TOPOLOGY_PLACE_H
#define FT_TOPOLOGY_PLACE_H

#include "base/arena.h"
#include "base/err.h"
#include "topology/mesh.h"

/* The process manager that started this process, when it is one by which an MPI library finds the other ranks of this world. */
enum ft_pmi {
    FT_PMI_NONE = 0,
    FT_PMI_OPENMPI = 1, /* Open MPI's mpirun */
    FT_PMI_PMIX = 2,    /* srun --mpi=pmix */
    FT_PMI_1 = 4        /* Hydra, Intel's mpirun, srun --mpi=pmi2 */
};

struct ft_place {
    int rank, world;
    int local_rank, local_world; /* 0 of 1 when nobody says */
    int node_rank; /* rank's own number when nobody says: then no two ranks count as neighbours; never compare host names */
    int n_nodes;   /* 0: not known */
    const char *master_addr;                           /* NULL: none */
    int master_port;                                   /* 0: none */
    const char *run_id, *run_dir, *job, *token, *node; /* FT_*; NULL when not given */
    int restart;
    int progress_fd;     /* FT_PROGRESS; -1: none */
    const char *dialect; /* "ftlaunch", "torchrun", "slurm", "openmpi", "pmi", "bare", "single" */
    enum ft_pmi pmi;
    int tp_rank, tp_size, pp_rank, pp_size, dp_rank, dp_size; /* FT_TP_RANK …; sizes 0: not given */
};

/* Reads environ-like text ("NAME=VALUE" strings, NULL terminated; of two equal names the first counts). Everything lives in
 * the arena. Contradictions (RANK >= WORLD_SIZE …) are FT_CONFIG. */
enum ft_code ft_place_from_env(char *const *env, struct ft_arena *arena, struct ft_place *out, struct ft_err *err) FT_MUST_CHECK;

struct ft_place_var {
    const char *name, *value;
};
/* The variables of one rank in a fixed order; members that are NULL (0 for the port, -1 for the descriptor) are left out.
 * Reading them back gives the same place. */
struct ft_place_var *ft_place_to_env(const struct ft_place *p, struct ft_arena *arena, size_t *out_n);
/* Fills tp, pp and dp from the mesh and p->rank. */
void ft_place_set_mesh(struct ft_place *p, struct ft_mesh m);

/* All names that ft_place_to_env can write, NULL at the end: what an outer run may have left in an environment. */
extern const char *const ft_place_names[];

/* SLURM_TASKS_PER_NODE "2(x3),1" is 2 2 2 1: the number of node i, or -1 (no such node, or not of this form). */
int ft_slurm_tasks_of(const char *text, int node);

#endif
