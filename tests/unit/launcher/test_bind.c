/* Binding, from recorded trees: two sockets with two NUMA nodes, eight cores with two threads each, four GPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "launcher/agent/bind.h"

struct tree {
    char root[64], sys[80], proc[80];
    struct ft_cpus allowed;
};

static void put(const char *root, const char *path, const char *text)
{
    char full[400], folder[400];
    struct ft_err err;
    snprintf(full, sizeof full, "%s/%s", root, path);
    snprintf(folder, sizeof folder, "%s", full);
    *strrchr(folder, '/') = 0;
    assert_int_equal(ft_mkdirs(folder, 0700, &err), FT_OK);
    FILE *f = fopen(full, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* CPUs 0-7 are the first threads of cores 0-7, CPUs 8-15 the second ones; cores 0-3 on socket and node 0. */
static int record(void **state)
{
    static struct tree t;
    snprintf(t.root, sizeof t.root, "/tmp/ftbind-XXXXXX");
    assert_non_null(mkdtemp(t.root));
    snprintf(t.sys, sizeof t.sys, "%s/sys", t.root);
    snprintf(t.proc, sizeof t.proc, "%s/proc", t.root);
    char path[200], text[32];
    for (int cpu = 0; cpu < 16; cpu++) {
        snprintf(path, sizeof path, "devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
        put(t.sys, path, cpu % 8 < 4 ? "0\n" : "1\n");
        snprintf(path, sizeof path, "devices/system/cpu/cpu%d/topology/core_id", cpu);
        snprintf(text, sizeof text, "%d\n", cpu % 4);
        put(t.sys, path, text);
        t.allowed.has[cpu] = 1;
    }
    put(t.sys, "devices/system/node/node0/cpulist", "0-3,8-11\n");
    put(t.sys, "devices/system/node/node1/cpulist", "4-7,12-15\n");
    for (int gpu = 0; gpu < 4; gpu++) {
        snprintf(path, sizeof path, "driver/nvidia/gpus/0000:%02x:00.0/information", 0x10 + gpu * 0x20);
        put(t.proc, path, "Model: test\n");
        snprintf(path, sizeof path, "bus/pci/devices/0000:%02x:00.0/numa_node", 0x10 + gpu * 0x20);
        put(t.sys, path, gpu < 2 ? "1\n" : "0\n"); /* crossed on purpose */
    }
    *state = &t;
    return 0;
}

static int forget(void **state)
{
    struct tree *t = *state;
    char *const argv[] = {(char[]){"rm"}, (char[]){"-rf"}, t->root, NULL};
    pid_t pid = fork();
    if (pid == 0) {
        execvp("rm", argv);
        _exit(127);
    }
    int status = 0;
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 ? 0 : -1;
}

/* "0-1,8-9 mem 0 gpu -1; …" or "refused: …" */
static void expect(struct tree *t, const char *how, int n, const char *visible, const char *want)
{
    struct ft_binding v[16];
    struct ft_bind_request q = {
        .how = how, .n_ranks = n, .allowed = &t->allowed, .sys = t->sys, .proc = t->proc, .visible = visible};
    struct ft_buf why = {0}, note = {0}, got = {0};
    if (!ft_bind_plan(&q, v, &why, &note)) ft_buf_addf(&got, "refused: %s", ft_buf_str(&why));
    else
        for (int r = 0; r < n; r++) {
            if (r) ft_buf_adds(&got, "; ");
            if (v[r].bound) ft_bind_print(&v[r].cpus, &got);
            else ft_buf_adds(&got, "free");
            ft_buf_addf(&got, " %d %d", v[r].numa, v[r].gpu);
        }
    if (note.n) ft_buf_addf(&got, " note: %s", note.data);
    assert_string_equal(ft_buf_str(&got), want);
    ft_buf_fini(&why);
    ft_buf_fini(&note);
    ft_buf_fini(&got);
}

static void none_and_core(void **state)
{
    struct tree *t = *state;
    expect(t, "none", 2, NULL, "free -1 -1; free -1 -1");
    expect(t, "core", 4, NULL, "0-1,8-9 -1 -1; 2-3,10-11 -1 -1; 4-5,12-13 -1 -1; 6-7,14-15 -1 -1");
    expect(t, "core", 3, NULL, "0-1,8-9 -1 -1; 2-3,10-11 -1 -1; 4-5,12-13 -1 -1"); /* equal: two cores stay free */
    expect(t, "core", 9, NULL, "refused: bind = core: 9 ranks, but only 8 physical cores may be used");
}

static void numa(void **state)
{
    struct tree *t = *state;
    expect(t, "numa", 2, NULL, "0-3,8-11 0 -1; 4-7,12-15 1 -1");
    expect(t, "numa", 4, NULL, "0-1,8-9 0 -1; 2-3,10-11 0 -1; 4-5,12-13 1 -1; 6-7,14-15 1 -1");
    expect(t, "numa", 12, NULL, "refused: bind = numa: 6 ranks on NUMA node 0, which has 4 free physical cores");
}

static void the_inherited_set_is_respected(void **state)
{
    struct tree t = **(struct tree **)state;
    for (int c = 0; c < 4; c++) t.allowed.has[c] = t.allowed.has[c + 8] = 0;
    t.allowed.has[15] = 0;
    expect(&t, "core", 2, NULL, "4-5,12-13 -1 -1; 6-7,14 -1 -1");
    expect(&t, "numa", 2, NULL, "4-5,12-13 1 -1; 6-7,14 1 -1");
}

static void gpus(void **state)
{
    struct tree *t = *state;
    expect(t, "gpu", 4, NULL, "4-5,12-13 1 0; 6-7,14-15 1 1; 0-1,8-9 0 2; 2-3,10-11 0 3");
    expect(t, "auto", 2, "3,0", "0-3,8-11 0 3; 4-7,12-15 1 0");
    expect(t, "gpu", 5, NULL, "refused: 5 ranks, 4 devices: bind = gpu needs one for each");
    expect(t, "auto", 5, NULL,
           "free -1 -1; free -1 -1; free -1 -1; free -1 -1; free -1 -1 note: 5 ranks, 4 devices: ranks are not bound");
    struct tree bare = *t;
    snprintf(bare.proc, sizeof bare.proc, "/nonexistent");
    expect(&bare, "auto", 2, NULL, "free -1 -1; free -1 -1");
    expect(&bare, "gpu", 1, NULL, "refused: 1 rank, 0 devices: bind = gpu needs one for each");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none_and_core),
        cmocka_unit_test(numa),
        cmocka_unit_test(the_inherited_set_is_respected),
        cmocka_unit_test(gpus),
    };
    return cmocka_run_group_tests(tests, record, forget);
}
