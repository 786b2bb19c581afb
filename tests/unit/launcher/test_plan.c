/* The plan as a value: environments of ranks, resolved jobs with fttrain's facts. Printed forms are golden (tests/cli/plan-golden). */
#include "launcher/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/ini.h"
#include "topology/place.h"

static struct ft_arena *arena;
static struct ft_faults faults;

static const struct ft_plan *make(const char *text, int n, char **program)
{
    static char token[] = "TOK=hunter2", *const env[] = {token, NULL};
    faults = (struct ft_faults){.arena = arena};
    struct ft_ini *ini = ft_ini_create(arena);
    ft_ini_read_text(ini, "job.ini", text, strlen(text), &faults);
    const struct ft_launcher_config *c = ft_config_read(ini, env, arena, &faults);
    if (!c) return NULL;
    struct ft_plan_request q = {.config = c, .n_ranks = n, .program = program, .n_program = program ? 1 : 0, .job_name = "my job"};
    return ft_plan_make(&q, arena, &faults);
}

static const char *value(const struct ft_env *env, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(env[i].name, name)) return env[i].value;
    return NULL;
}

static void test_rank_env(void **state)
{
    (void)state;
    const struct ft_plan *p = make("[cluster]\ntransport = ssh\n[nodes]\na,b = slots=4\n[parallel]\ntensor = 2\npipeline = 2\n", 0,
                                   NULL);
    assert_non_null(p);
    struct ft_run_facts f = {.run_id = "id",
                             .run_dir = "/runs/id",
                             .job_file = "/runs/id/job.ini",
                             .master_addr = "10.0.0.1",
                             .master_port = 29500,
                             .restart = 2,
                             .token = "abcd"};
    for (int r = 0; r < p->world; r++) {
        size_t n;
        struct ft_env *env = ft_plan_rank_env(p, r, &f, arena, &n);
        char **words = ft_arena_array(arena, n + 1, sizeof *words);
        for (size_t i = 0; i < n; i++) {
            words[i] = ft_arena_printf(arena, "%s=%s", env[i].name, env[i].value);
            assert_int_equal(env[i].secret, !strcmp(env[i].name, "FT_TOKEN"));
        }
        struct ft_place place;
        struct ft_err err;
        assert_int_equal(ft_place_from_env(words, arena, &place, &err), FT_OK);
        assert_int_equal(place.rank, r);
        assert_int_equal(place.world, 8);
        assert_int_equal(place.local_rank, r % 4);
        assert_int_equal(place.local_world, 4);
        assert_int_equal(place.node_rank, r / 4);
        assert_string_equal(place.node, r < 4 ? "a" : "b");
        assert_string_equal(place.dialect, "ftlaunch");
        assert_int_equal(place.restart, 2);
        assert_int_equal(place.tp_rank, r % 2);
        assert_int_equal(place.dp_rank, r / 2 % 2);
        assert_int_equal(place.pp_rank, r / 4);
        assert_string_equal(value(env, n, "GROUP_RANK"), value(env, n, "NODE_RANK"));
    }
    assert_string_equal(p->name, "my_job");
    assert_true(p->is_fttrain);
}

static void test_node_env(void **state)
{
    (void)state;
    char prog[] = "./prog", *program[] = {prog, NULL};
    const struct ft_plan *p = make(
        "[cluster]\ntransport = ssh\n[nodes]\na,b = slots=1\n[env]\nX = 1\nY = 1\n[env B]\nY = 2\nZ = 3\n[env a,b]\nW = 4\n", 0,
        program);
    assert_non_null(p);
    size_t n;
    struct ft_env *env = ft_plan_node_env(p, &p->nodes[0], arena, &n);
    assert_int_equal(n, 3);
    assert_string_equal(value(env, n, "Y"), "1");
    assert_string_equal(value(env, n, "W"), "4");
    env = ft_plan_node_env(p, &p->nodes[1], arena, &n);
    assert_int_equal(n, 4);
    assert_string_equal(value(env, n, "Y"), "2");
    assert_string_equal(value(env, n, "Z"), "3");
    assert_false(p->is_fttrain);
    assert_string_equal(p->argv[0], "./prog");
}

static void test_job_file(void **state)
{
    (void)state;
    const struct ft_plan *p = make("[env]\nA_TOKEN = ${TOK}\nB = ${TOK}\n[train]\nlr = 1e-5 ; c\nsteps = 3\n[model]\npath = m\n", 3,
                                   NULL);
    assert_non_null(p);
    static const char facts[] =
        "{\"model.path\":{\"value\":\"m\",\"from\":\"job.ini:7\"},\"train.lr\":{\"value\":\"1e-05\",\"from\":\"job.ini:5\"},"
        "\"train.seed\":{\"value\":\"1\",\"from\":\"default\"},\"train.none\":{\"value\":null,\"from\":\"default\"}}";
    struct ft_json *resolved = NULL;
    struct ft_err err;
    assert_int_equal(ft_json_parse(facts, strlen(facts), 0, &resolved, NULL, &err), FT_OK);
    struct ft_buf out = {0};
    ft_plan_write_job(p, "/work dir", resolved, &out);
    ft_json_destroy(resolved);
    static const char *const has[] = {"\nname = my_job\n",
                                      "\nworkdir = /work dir\n",
                                      "\ndata = 3\n",
                                      "\nlocalhost = slots=3 from=default\n",
                                      "\nA_TOKEN = ${TOK}\n",
                                      "\nB = hunter2\n",
                                      "\n[train]\nlr = 1e-05\nseed = 1\nsteps = 3\n",
                                      "\n[model]\npath = m\n",
                                      "\ngrace = 30s\n"};
    for (size_t i = 0; i < sizeof has / sizeof *has; i++)
        if (!strstr(out.data, has[i])) fail_msg("not in the job file: %s\n%s", has[i], out.data);
    assert_null(strstr(out.data, "[data]"));
    assert_null(strstr(out.data, "none ="));
    ft_buf_fini(&out);
}

/* execve takes a quarter of the stack limit. */
static void test_size(void **state)
{
    (void)state;
    struct ft_buf text = {0};
    ft_buf_adds(&text, "[env]\n");
    for (int i = 0; i < 20; i++) {
        ft_buf_addf(&text, "V%d = ", i);
        for (int k = 0; k < 110000; k++) ft_buf_addc(&text, 'x');
        ft_buf_addc(&text, '\n');
    }
    assert_null(make(text.data, 1, NULL)); /* 2.2 MB, limit 8 MiB / 4 */
    assert_int_equal(faults.n_errors, 1);
    assert_non_null(strstr(faults.v[0].text, "2097152"));
    ft_buf_fini(&text);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rank_env), cmocka_unit_test(test_node_env),
                                       cmocka_unit_test(test_job_file), cmocka_unit_test(test_size)};
    return cmocka_run_group_tests(tests, begin, end);
}
