/* The environment of a rank: the node's own, without what logins and outer launchers left in it, then what the head sends. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "launcher/agent/agent.h"

extern char **environ;

/* A name that ends in '*' is a prefix. */
static const char *const dropped[] = {
    "SSH_*", "SUDO_*", "XDG_*", "DBUS_*", "PMI*", "OMPI_*", "PRTE_*", "HYDRA_*", "HYDI_*", "MPI_LOCAL*", "PALS_*",
    /* step facts of Slurm: frameworks believe them instead of RANK; job facts stay */
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE",
    "SLURM_STEP_*", "SLURM_STEPID", "SLURM_TASK_PID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_SRUN_*", "SLURM_LAUNCH_NODE_IPADDR",
    "SLURM_UMASK", "SLURM_DISTRIBUTION", "SLURM_CPU_BIND*", "SLURM_MPI_TYPE", "SLURM_PMI*", "SLURMD_*",
    /* what an outer run set */
    "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "TORCHELASTIC_*", "FT_RUN_ID", "FT_RUN_DIR", "FT_RESTART", "FT_NODE", "FT_JOB", "FT_TP_RANK", "FT_TP_SIZE",
    "FT_PP_RANK", "FT_PP_SIZE", "FT_DP_RANK", "FT_DP_SIZE", "FT_TOKEN", "FT_PROGRESS", "FT_CONNECT", "FT_CHILDREN"};

bool ft_environ_is_step(const char *s)
{
    if (strncmp(s, "OMPI_MCA_", 9) == 0) /* a user's settings of Open MPI; those of its launcher go */
        return strncmp(s + 9, "orte_", 5) == 0 || strncmp(s + 9, "ess", 3) == 0 || strncmp(s + 9, "pmix", 4) == 0;
    size_t len = strcspn(s, "=");
    for (size_t i = 0; i < sizeof dropped / sizeof dropped[0]; i++) {
        size_t n = strlen(dropped[i]);
        if (dropped[i][n - 1] == '*' ? strncmp(s, dropped[i], n - 1) == 0 : len == n && memcmp(s, dropped[i], n) == 0) return true;
    }
    return false;
}

struct table {
    const char **v;
    size_t n, cap;
    size_t *slots; /* open addressing over names: index + 1 */
    size_t n_slots;
};

static size_t hash_name(const char *s, size_t n)
{
    uint64_t h = 0xCBF29CE484222325ULL;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 0x100000001B3ULL;
    return (size_t)(h ^ h >> 29);
}

static void put(struct table *t, const char *s);

static void rehash(struct table *t)
{
    t->n_slots = t->n_slots ? 2 * t->n_slots : 256;
    t->slots = ft_xrealloc(t->slots, t->n_slots, sizeof *t->slots);
    memset(t->slots, 0, t->n_slots * sizeof *t->slots);
    size_t n = t->n;
    t->n = 0;
    for (size_t i = 0; i < n; i++) put(t, t->v[i]);
}

/* A later value of a name takes the place of the earlier one. */
static void put(struct table *t, const char *s)
{
    if (2 * (t->n + 1) > t->n_slots) rehash(t);
    size_t len = strcspn(s, "="), i = hash_name(s, len) & (t->n_slots - 1);
    for (; t->slots[i]; i = (i + 1) & (t->n_slots - 1)) {
        const char *old = t->v[t->slots[i] - 1];
        if (strncmp(old, s, len) == 0 && old[len] == '=') {
            t->v[t->slots[i] - 1] = s;
            return;
        }
    }
    ft_grow(&t->v, &t->cap, t->n + 2, sizeof *t->v);
    t->v[t->n++] = s;
    t->slots[i] = t->n;
}

static void put_list(struct table *t, const struct ft_buf *b)
{
    for (size_t at = 0; at < b->n; at += strlen(b->data + at) + 1)
        if (strchr(b->data + at, '=')) put(t, b->data + at);
}

char **ft_environ_make(const struct ft_buf *forward, const struct ft_buf *rank, const struct ft_buf *user, const char *progress)
{
    struct table t = {0};
    for (char **e = environ; *e; e++)
        if (!ft_environ_is_step(*e) && strchr(*e, '=')) put(&t, *e);
    put_list(&t, forward);
    put_list(&t, rank);
    if (progress) put(&t, progress);
    put_list(&t, user);
    ft_grow(&t.v, &t.cap, t.n + 1, sizeof *t.v);
    t.v[t.n] = NULL;
    free(t.slots);
    char **out;
    memcpy(&out, &t.v, sizeof out);
    return out;
}
