/* The launcher's sections: defaults, merging, places, nodes, [env]. Rows of the command line are in tests/cli. */
#include "launcher/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/ini.h"

static struct ft_arena *arena;
static struct ft_faults faults;

static const struct ft_launcher_config *read_files(const char *one, const char *two, const char *set)
{
    static char token[] = "TOK=secret", multi[] = "MULTI=a\nb", *const env[] = {token, multi, NULL};
    ft_arena_destroy(arena);
    arena = ft_arena_create();
    faults = (struct ft_faults){.arena = arena};
    struct ft_ini *ini = ft_ini_create(arena);
    if (one) ft_ini_read_text(ini, "one.ini", one, strlen(one), &faults);
    if (two) ft_ini_read_text(ini, "two.ini", two, strlen(two), &faults);
    if (set) ft_ini_set(ini, set, &faults);
    return ft_config_read(ini, env, arena, &faults);
}

static void test_defaults(void **state)
{
    (void)state;
    const struct ft_launcher_config *c = read_files(NULL, NULL, NULL);
    assert_non_null(c);
    assert_int_equal(c->cluster.transport, FT_TRANSPORT_LOCAL);
    assert_string_equal(c->cluster.master_addr, "auto");
    assert_int_equal(c->cluster.master_port, 0);
    assert_null(c->cluster.name);
    assert_null(c->launch.workdir);
    assert_string_equal(c->launch.run_dir, "runs");
    assert_int_equal(c->launch.output, FT_OUTPUT_BOTH);
    assert_true(c->launch.grace == 30 * FT_SEC);
    assert_true(c->launch.heartbeat == 2 * FT_SEC);
    assert_true(c->launch.hang_timeout == 900 * FT_SEC);
    assert_int_equal(c->launch.restarts, 0);
    assert_int_equal(c->launch.min_nodes, 0);
    assert_int_equal(c->launch.bind, FT_BIND_AUTO);
    assert_true(c->launch.stage);
    assert_int_equal(c->launch.forward.n, 21);
    assert_string_equal(c->launch.forward.v[7], "LC_*");
    assert_int_equal(c->launch.stdin_rank, FT_STDIN_NONE);
    assert_int_equal(c->launch.slow_output, FT_SLOW_WAIT);
    assert_int_equal(c->launch.children, FT_CHILDREN_END);
    assert_int_equal(c->launch.end, FT_END_ALL);
    assert_true(c->launch.deadline == 0);
    assert_true(c->launch.cooldown == 1800 * FT_SEC);
    assert_true(c->ssh.timeout == 30 * FT_SEC);
    assert_int_equal(c->ssh.parallel, 64);
    assert_int_equal(c->ssh.host_keys, FT_HOST_KEYS_STRICT);
    assert_int_equal(c->parallel.tensor, 1);
    assert_int_equal(c->parallel.data, 0);
    assert_int_equal(c->n_nodes, 0);
    assert_null(ft_config_at(c, "launch", "grace").file);
}

static void test_merging(void **state)
{
    (void)state;
    const struct ft_launcher_config *c = read_files(
        "[cluster]\nname = a\ntransport=ssh\n[nodes]\ngpu[01-03] = slots=8 user=ml\n[env]\nA = 1\nB = 1\n",
        "[nodes]\ngpu02 = slots=4 tags=x,y\nextra =\nGPU03 = port=7\n[env]\nB = 2\nC = ${MULTI}\n[launch]\nstdin = 3\ndeadline = "
        "2h\n",
        "launch.grace=1m");
    assert_non_null(c);
    assert_int_equal(c->n_nodes, 4);
    assert_string_equal(c->nodes[1].name, "gpu02");
    assert_int_equal(c->nodes[1].slots, 4);
    assert_string_equal(c->nodes[1].user, "ml");
    assert_int_equal(c->nodes[1].tags.n, 2);
    assert_string_equal(c->nodes[1].from, "one.ini:5:5");
    assert_int_equal(c->nodes[2].port, 7);
    assert_string_equal(c->nodes[3].name, "extra");
    assert_int_equal(c->nodes[3].slots, 0);
    assert_int_equal(c->env.n, 3);
    assert_string_equal(c->env.v[1].name, "B");
    assert_string_equal(c->env.v[1].value, "2");
    assert_string_equal(c->env.v[2].value, "a\nb");
    assert_string_equal(c->env.v[2].raw, "${MULTI}");
    assert_int_equal(c->launch.stdin_rank, 3);
    assert_true(c->launch.deadline == 7200 * FT_SEC);
    assert_string_equal(ft_config_at(c, "launch", "grace").file, "--set");
    assert_int_equal(ft_config_at(c, "cluster", "name").line, 2);
    assert_int_equal(ft_config_at(c, "cluster", "name").column, 8);
}

static void test_ranges_and_secrets(void **state)
{
    (void)state;
    const struct ft_launcher_config *c = read_files("[env]\nX_TOKEN = ${TOK}\nmy_password = 1\nPLAIN = 2\nMINE = 3\n[env "
                                                    "n[1-2]]\nA = 1\n[env n3]\nB = 2\n[env n[1-2]]\nC = 3\n",
                                                    "[launch]\nsecrets = MINE, OTHER\n[env n3]\nB = 4\n", "env n3.D=5");
    assert_non_null(c);
    static const bool secret[] = {true, true, false, true};
    for (size_t i = 0; i < 4; i++) assert_int_equal(c->env.v[i].secret, secret[i]);
    assert_int_equal(c->n_env_ranges, 2);
    assert_int_equal(c->env_ranges[0].nodes.n, 2);
    assert_int_equal(c->env_ranges[0].env.n, 2);
    assert_string_equal(c->env_ranges[1].range, "n3");
    assert_string_equal(c->env_ranges[1].env.v[0].value, "4");
    assert_string_equal(c->env_ranges[1].env.v[1].value, "5");
}

/* Sections of fttrain are not looked at; their names are known. */
static void test_foreign(void **state)
{
    (void)state;
    assert_non_null(read_files("[train]\nanything = goes\n[model]\nx = \xc3\xa4\n", NULL, "data.y=1"));
    assert_null(read_files("[trian]\nlr = 1\n", NULL, NULL));
    assert_int_equal(faults.n_errors, 1);
    assert_string_equal(faults.v[0].fix, "likely: [train]");
}

static int end(void **state)
{
    (void)state;
    ft_arena_destroy(arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_defaults), cmocka_unit_test(test_merging),
                                       cmocka_unit_test(test_ranges_and_secrets), cmocka_unit_test(test_foreign)};
    return cmocka_run_group_tests(tests, NULL, end);
}
