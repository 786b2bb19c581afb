/* Collectives beside memcpy: bench_coll RANKS [MiB] [apart]. apart: every rank on a node of its own (TCP on the loopback), else shared
 * memory. Rates are bytes of the whole buffer per second; medians of 9. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "runtime/coll/comm.h"
#include "topology/place.h"

enum { RUNS = 9, SMALL = 2000 };

static double now(void) { return (double)ft_clock_now(ft_clock_real()) / FT_SEC; }
static int by_value(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static void check(enum ft_code rc, const struct ft_err *err)
{
    if (!rc) return;
    ft_err_print(stderr, "bench_coll", err);
    _exit(1);
}

static void run(int rank, int n, int64_t bytes, bool apart, int port)
{
    const struct ft_place place = {
        .rank = rank, .world = n, .node_rank = apart ? rank : 0, .master_addr = "127.0.0.1", .master_port = port};
    const struct ft_comm_options o = {.engine = "auto"};
    struct ft_err err;
    struct ft_comm *c;
    const int64_t each = bytes / 4 / n, all = each * n;
    float *x = ft_xcalloc((size_t)all, 4), *y = ft_xcalloc((size_t)all, 4), tiny[4] = {0};
    double t[5][RUNS];
    check(ft_comm_open(&place, ft_mesh_make(1, 1, n, 1), &o, &c, &err), &err);
    for (int64_t i = 0; i < all; i++) x[i] = y[i] = (float)i;
    for (int k = 0; k < RUNS; k++) {
        double at[6];
        check(ft_comm_barrier(c, FT_GROUP_WORLD, &err), &err);
        at[0] = now();
        check(ft_comm_reduce_scatter(c, FT_GROUP_WORLD, x, y, each, FT_F32, FT_SUM, &err), &err);
        at[1] = now();
        check(ft_comm_all_gather(c, FT_GROUP_WORLD, y, x, each, FT_F32, &err), &err);
        at[2] = now();
        check(ft_comm_all_reduce(c, FT_GROUP_WORLD, x, all, FT_F32, FT_MAX, &err), &err);
        at[3] = now();
        memcpy(y, x, (size_t)all * 4);
        at[4] = now();
        for (int i = 0; i < SMALL; i++) check(ft_comm_all_reduce(c, FT_GROUP_WORLD, tiny, 4, FT_F32, FT_MAX, &err), &err);
        at[5] = now();
        for (int i = 0; i < 5; i++) t[i][k] = at[i + 1] - at[i];
    }
    for (int i = 0; i < 5; i++) qsort(t[i], RUNS, sizeof(double), by_value);
    const double gb = (double)all * 4e-9;
    if (rank == 0)
        printf("%d ranks%s, %.0f MB: reduce_scatter %.2f GB/s, all_gather %.2f, all_reduce %.2f, memcpy %.2f; all_reduce of 16 "
               "bytes %.1f us\n",
               n, apart ? " apart" : "", gb * 1000, gb / t[0][RUNS / 2], gb / t[1][RUNS / 2], gb / t[2][RUNS / 2],
               gb / t[3][RUNS / 2], t[4][RUNS / 2] / SMALL * 1e6);
    ft_comm_close(c);
    free(x);
    free(y);
}

int main(int argc, char **argv)
{
    const int n = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 2;
    const int64_t mib = argc > 2 ? strtoll(argv[2], NULL, 10) : 128;
    const int port = 20000 + (int)(getpid() % 9000);
    if (n < 1 || n > 64 || mib < 1) {
        fprintf(stderr, "usage: bench_coll RANKS [MiB] [apart]\n");
        return 2;
    }
    for (int r = 1; r < n; r++)
        if (fork() == 0) {
            run(r, n, mib << 20, argc > 3, port);
            return 0;
        }
    run(0, n, mib << 20, argc > 3, port);
    int bad = 0;
    for (int status; wait(&status) > 0;) bad |= status;
    return bad ? 1 : 0;
}
