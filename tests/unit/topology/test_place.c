/* Who am I: every dialect, contradictions, and the way there and back. */
#include "topology/place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/str.h"

static struct ft_arena *arena;

/* "A=1 B=2" */
static char **env_of(const char *text)
{
    char *copy = ft_arena_strdup(arena, text), **env = ft_arena_array(arena, 64, sizeof *env);
    size_t n = 0;
    for (char *save = NULL, *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save)) env[n++] = w;
    return env;
}

/* what: "dialect rank/world local/local_world node/nodes addr:port"; "!words" for a refusal */
static const struct {
    const char *env, *want;
} cases[] = {
    {"", "single 0/1 0/1 0/1 -:0"},
    {"HOME=/x SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_NPROCS=8", "single 0/1 0/1 0/1 -:0"},
    {"RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 NODE_RANK=1 GROUP_RANK=1 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 "
     "FT_RUN_ID=r",
     "ftlaunch 3/4 1/2 1/0 10.0.0.1:29500"},
    {"RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 GROUP_WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1 "
     "TORCHELASTIC_RUN_ID=none "
     "SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1",
     "torchrun 3/4 1/2 1/2 h:1"},
    {"RANK=1 WORLD_SIZE=2", "bare 1/2 0/1 1/0 -:0"},
    {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2", "bare 1/2 1/2 0/1 -:0"},
    {"RANK=2 WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4", "bare 2/4 0/1 2/0 -:0"},
    {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 "
     "OMPI_COMM_WORLD_NODE_RANK=1",
     "openmpi 3/4 1/2 3/0 -:0"},
    {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=3 OMPI_COMM_WORLD_LOCAL_SIZE=4 SLURM_STEP_ID=0 "
     "SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0",
     "openmpi 3/4 3/4 0/1 -:0"},
    {"PMI_RANK=1 PMI_SIZE=4 PMI_FD=9 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", "pmi 1/4 1/2 1/0 -:0"},
    {"PMI_RANK=1 PMI_SIZE=4 PMI_FD=9 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0",
     "pmi 1/4 1/2 1/0 -:0"},
    {"PMI_RANK=1 PMI_SIZE=2", "pmi 1/2 0/1 1/0 -:0"},
    {"SLURM_STEP_ID=2 SLURM_STEP_NUM_TASKS=7 SLURM_PROCID=5 SLURM_LOCALID=1 SLURM_NODEID=2 SLURM_STEP_NUM_NODES=4 SLURM_NNODES=9 "
     "SLURM_STEP_TASKS_PER_NODE=2(x3),1 SLURM_STEP_NODELIST=node[02-05] SLURM_JOB_NODELIST=node[01-09] SLURM_JOB_ID=12345 "
     "SLURM_NTASKS=18",
     "slurm 5/7 1/2 2/4 node02:23039"},
    {"SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_STEP_NUM_NODES=2 "
     "SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_STEP_NODELIST=a,b SLURM_JOB_ID=7 PMI_RANK=1 PMI_SIZE=2 MASTER_ADDR=x MASTER_PORT=9",
     "slurm 1/2 0/1 1/2 x:9"},
    {"SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0", "slurm 0/1 0/1 0/0 -:0"},
    {"RANK=1", "!RANK is set WORLD_SIZE is not"},
    {"WORLD_SIZE=2", "!WORLD_SIZE is set"},
    {"RANK=2 WORLD_SIZE=2", "!RANK=2 WORLD_SIZE=2"},
    {"RANK=-1 WORLD_SIZE=2", "!RANK='-1'"},
    {"RANK=x WORLD_SIZE=2", "!'x'"},
    {"RANK=0 WORLD_SIZE=0", "!'0'"},
    {"RANK= WORLD_SIZE=2", "!''"},
    {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", "!LOCAL_RANK=2"},
    {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=4", "!world"},
    {"RANK=0 WORLD_SIZE=2 MASTER_PORT=99999", "!MASTER_PORT '99999'"},
    {"RANK=0 WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4", "!WORLD_SIZE=1 OMPI_COMM_WORLD_SIZE"},
    {"RANK=0 WORLD_SIZE=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=1", "!SLURM_STEP_NUM_TASKS"},
    {"OMPI_COMM_WORLD_RANK=3", "!OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK=3 PMI_SIZE=3", "!PMI_RANK=3"},
    {"SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4", "!SLURM_PROCID"},
    {"SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=3 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_STEP_TASKS_PER_NODE=3,1",
     "!SLURM_LOCALID=1"},
    {"SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 SLURM_STEP_NODELIST=n[1-", "!SLURM_STEP_NODELIST"},
    {"SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1", "!MASTER_ADDR"},
    {"SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=7 SLURM_PROCID=5 SLURM_LOCALID=9 SLURM_NODEID=2 SLURM_STEP_NODELIST=n1",
     "!SLURM_LOCALID=9"},
    {"FT_PROGRESS=x", "!FT_PROGRESS"},
    {"RANK=0 WORLD_SIZE=2 FT_TP_RANK=2 FT_TP_SIZE=2", "!FT_TP_RANK"},
};

static void test_dialects(void **state)
{
    (void)state;
    int failed = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ft_place p;
        struct ft_err err = {0};
        char got[512];
        bool ok = true;
        if (ft_place_from_env(env_of(cases[i].env), arena, &p, &err)) {
            snprintf(got, sizeof got, "!%.400s", err.text);
            ok = cases[i].want[0] == '!' && err.code == FT_CONFIG;
            char *copy = ft_arena_strdup(arena, cases[i].want + 1);
            for (char *save = NULL, *w = strtok_r(copy, " ", &save); w && ok; w = strtok_r(NULL, " ", &save)) ok = strstr(got, w);
        } else {
            snprintf(got, sizeof got, "%s %d/%d %d/%d %d/%d %s:%d", p.dialect, p.rank, p.world, p.local_rank, p.local_world,
                     p.node_rank, p.n_nodes, p.master_addr ? p.master_addr : "-", p.master_port);
            ok = !strcmp(got, cases[i].want);
        }
        if (ok) continue;
        failed++;
        print_error("case %zu (%s):\n  got    %s\n  wanted %s\n", i, cases[i].env, got, cases[i].want);
    }
    assert_int_equal(failed, 0);
}

/* By what an MPI library would find the other ranks. */
static void test_pmi(void **state)
{
    (void)state;
    static const struct {
        const char *env;
        enum ft_pmi want;
    } rows[] = {
        {"", FT_PMI_NONE},
        {"RANK=1 WORLD_SIZE=2", FT_PMI_NONE},
        {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PMIX_RANK=1 PMIX_NAMESPACE=n", FT_PMI_OPENMPI},
        {"RANK=1 WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", FT_PMI_OPENMPI},
        {"RANK=1 WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", FT_PMI_NONE}, /* mpirun started launchers */
        {"RANK=0 WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", FT_PMI_NONE},
        {"RANK=1 WORLD_SIZE=2 FT_RUN_ID=r OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", FT_PMI_NONE},
        {"RANK=1 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=r PMI_RANK=1 PMI_SIZE=2", FT_PMI_NONE},
        {"PMI_RANK=1 PMI_SIZE=4 PMI_FD=9 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", FT_PMI_1},
        {"SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 SLURM_STEP_NODELIST=a,b PMI_RANK=1 PMI_SIZE=2", FT_PMI_1},
        {"SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 SLURM_STEP_NODELIST=a,b PMIX_RANK=1 PMIX_NAMESPACE=slurm.pmix.1.0",
         FT_PMI_PMIX},
        {"SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 SLURM_STEP_NODELIST=a,b", FT_PMI_NONE},
        {"PMIX_RANK=4294967294 PMIX_NAMESPACE=n", FT_PMI_NONE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ft_place p;
        struct ft_err err;
        assert_int_equal(ft_place_from_env(env_of(rows[i].env), arena, &p, &err), FT_OK);
        if (p.pmi != rows[i].want) fail_msg("%s: %d, not %d", rows[i].env, (int)p.pmi, (int)rows[i].want);
    }
}

static void test_round_trip(void **state)
{
    (void)state;
    struct ft_mesh m = ft_mesh_make(2, 1, 3, 2);
    struct ft_err err;
    assert_int_equal(ft_mesh_parse_order("tp-dp-pp", &m, &err), FT_OK);
    for (int rank = 0; rank < 12; rank++) {
        struct ft_place p = {.rank = rank,
                             .world = 12,
                             .local_rank = rank % 4,
                             .local_world = 4,
                             .node_rank = rank / 4,
                             .n_nodes = 0,
                             .master_addr = "10.0.0.1",
                             .master_port = 29501,
                             .run_id = "lab-1",
                             .run_dir = "/runs/lab-1",
                             .job = "/runs/lab-1/job.ini",
                             .token = "abc",
                             .node = "gpu01",
                             .restart = 2,
                             .progress_fd = rank % 2 ? 7 : -1,
                             .dialect = "ftlaunch"};
        ft_place_set_mesh(&p, m);
        size_t n;
        struct ft_place_var *v = ft_place_to_env(&p, arena, &n);
        char **env = ft_arena_array(arena, n + 1, sizeof *env);
        for (size_t i = 0; i < n; i++) env[i] = ft_arena_printf(arena, "%s=%s", v[i].name, v[i].value);
        assert_int_equal(n, rank % 2 ? 21 : 20);
        assert_string_equal(v[0].name, "MASTER_ADDR");
        struct ft_place q;
        assert_int_equal(ft_place_from_env(env, arena, &q, &err), FT_OK);
        assert_int_equal(q.rank, rank);
        assert_int_equal(q.local_rank, p.local_rank);
        assert_int_equal(q.node_rank, p.node_rank);
        assert_int_equal(q.master_port, 29501);
        assert_string_equal(q.run_id, "lab-1");
        assert_string_equal(q.run_dir, p.run_dir);
        assert_string_equal(q.job, p.job);
        assert_string_equal(q.token, "abc");
        assert_string_equal(q.node, "gpu01");
        assert_int_equal(q.restart, 2);
        assert_int_equal(q.progress_fd, p.progress_fd);
        assert_string_equal(q.dialect, "ftlaunch");
        assert_int_equal(q.tp_rank + 2 * (q.dp_rank + 3 * q.pp_rank), rank);
        assert_int_equal(q.tp_size * q.dp_size * q.pp_size, 12);
    }
}

static void test_tasks(void **state)
{
    (void)state;
    assert_int_equal(ft_slurm_tasks_of("64(x2),8", 0), 64);
    assert_int_equal(ft_slurm_tasks_of("64(x2),8", 1), 64);
    assert_int_equal(ft_slurm_tasks_of("64(x2),8", 2), 8);
    assert_int_equal(ft_slurm_tasks_of("64(x2),8", 3), -1);
    assert_int_equal(ft_slurm_tasks_of("", 0), -1);
    assert_int_equal(ft_slurm_tasks_of("2(x", 0), -1);
    assert_int_equal(ft_slurm_tasks_of("2(x0)", 0), -1);
    assert_int_equal(ft_slurm_tasks_of("2;3", 1), -1);
    assert_int_equal(ft_slurm_tasks_of("99999999999999999999", 0), -1);
}

static int begin(void **state)
{
    (void)state;
    arena = ft_arena_create();
    return 0;
}
static int end(void **state)
{
    (void)state;
    ft_arena_destroy(arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dialects), cmocka_unit_test(test_pmi),
                                       cmocka_unit_test(test_round_trip), cmocka_unit_test(test_tasks)};
    return cmocka_run_group_tests(tests, begin, end);
}
