/* fttrain ckpt ls, verify, diff, prune on folders that real runs wrote. */
#include "drive.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"

static char said[65536];

/* Runs "VERB ARGS…"; words are cut at blanks. Output and messages stand in `said`. */
static int __attribute__((format(printf, 1, 2))) call(const char *line, ...)
{
    char text[2048], *words[16], *rest = text;
    int n = 0;
    va_list ap;
    va_start(ap, line);
    vsnprintf(text, sizeof text, line, ap);
    va_end(ap);
    for (char *w; (w = strsep(&rest, " ")) && n < 15;) words[n++] = w;
    words[n] = NULL;
    memset(said, 0, sizeof said);
    FILE *f = fmemopen(said, sizeof said - 1, "w");
    assert_non_null(f);
    const int rc = ft_ckpt_command(n, words, f, f);
    fclose(f);
    return rc;
}

static void has(const char *text)
{
    if (!strstr(said, text)) fail_msg("no '%s' in: %s", text, said);
}

static char *dir;
static int setup(void **state)
{
    (void)state;
    struct ranks r;
    dir = make_dir();
    struct job j = {.dir = dir, .run_id = "run-a", .precision = FT_CKPT_BF16, .saves = {1, 2, 3, 4}, .keep = -1, .best = 1};
    drive(&j, 2, &r);
    went_well(&r, 0);
    return 0;
}
static int teardown(void **state)
{
    (void)state;
    remove_dir(dir);
    return 0;
}

static void test_ls(void **state)
{
    (void)state;
    struct ft_json *v = NULL;
    struct ft_err err;
    assert_int_equal(call("ls %s", dir), 0);
    has("step_00000001");
    has("LATEST");
    has("BEST");
    assert_int_equal(call("ls %s --json", dir), 0);
    assert_int_equal(ft_json_parse(said, strlen(said), 0, &v, NULL, &err), FT_OK);
    const struct ft_json *list = ft_json_get(v, "checkpoints"), *four = ft_json_at(list, 3);
    assert_int_equal(ft_json_count(list), 4);
    assert_int_equal(ft_json_int(ft_json_get(four, "step"), 0), 4);
    assert_true(ft_json_bool(ft_json_get(four, "latest"), false) && ft_json_bool(ft_json_get(four, "valid"), false));
    assert_true(ft_json_bool(ft_json_get(ft_json_at(list, 0), "best"), false));
    assert_string_equal(ft_json_str(ft_json_get(four, "lineage")), "run-a");
    ft_json_destroy(v);
    /* a run's folder will do */
    char run[] = "/tmp/ftckpt-run-XXXXXX", link[64];
    assert_non_null(mkdtemp(run));
    assert_int_equal(call("ls %s", run), 0);
    has("no checkpoints in ");
    snprintf(link, sizeof link, "%s/checkpoints", run);
    assert_int_equal(symlink(dir, link), 0);
    assert_int_equal(call("ls %s", run), 0);
    has("step_00000001");
    assert_int_equal(call("verify %s", run), 0);
    assert_int_equal(call("prune %s --keep 1 --dry-run", run), 0);
    has("would remove: step_00000003");
    assert_int_equal(unlink(link), 0);
    assert_int_equal(rmdir(run), 0);
    assert_int_equal(call("ls %s/LATEST", dir), 2);
    has("Not a directory");
    assert_int_equal(call("ls /nowhere"), 2);
    has("cannot list /nowhere: No such file or directory");
}

static void test_verify(void **state)
{
    (void)state;
    char three[600];
    assert_int_equal(call("verify %s", dir), 0);
    has("step_00000004: step 4, 15 tensors");
    has("all right");
    snprintf(three, sizeof three, "%s/step_00000003", dir);
    flip_byte(three, "w-00000-of-00002.safetensors", -5);
    flip_byte(three, "w-00001-of-00002.safetensors", -5);
    assert_int_equal(call("verify %s", three), 1); /* both are listed */
    has("w-00000-of-00002.safetensors, bytes");
    has("w-00001-of-00002.safetensors, bytes");
    assert_int_equal(call("verify --json %s/step_00000002 %s", dir, three), 1);
    has("\"valid\":true");
    has("\"valid\":false");
    assert_int_equal(call("ls %s", dir), 0); /* no data is read there */
    assert_null(strstr(said, "not valid"));
    flip_byte(three, "w-00000-of-00002.safetensors", -5);
    flip_byte(three, "w-00001-of-00002.safetensors", -5);
    assert_int_equal(call("verify %s", three), 0);
    assert_int_equal(call("verify /tmp"), 2);
    has("/tmp is no checkpoint and has none");
}

static void test_diff(void **state)
{
    (void)state;
    assert_int_equal(call("diff %s/step_00000002 %s/step_00000002", dir, dir), 0);
    has("no difference");
    assert_int_equal(call("diff -v %s/step_00000001 %s/step_00000002", dir, dir), 1);
    has("step: 1 | 2");
    has("optimizer.t: 1 | 2");
    has("optim.master/model.norm.weight: another content, max |a-b| 0.");
    assert_int_equal(call("diff --json %s/step_00000001 %s/step_00000002", dir, dir), 1);
    struct ft_json *v = NULL;
    struct ft_err err;
    assert_int_equal(ft_json_parse(said, strlen(said), 0, &v, NULL, &err), FT_OK);
    assert_int_equal(ft_json_count(ft_json_get(v, "tensors")), 15);
    ft_json_destroy(v);
    assert_int_equal(call("diff %s/step_00000001 /nowhere", dir), 2);
    assert_int_equal(call("diff %s/step_00000001 %s/LATEST", dir, dir), 2);
}

static void test_prune(void **state)
{
    (void)state;
    char names[512];
    assert_int_equal(call("prune %s --keep 1 --dry-run", dir), 0);
    has("would remove: step_00000003 step_00000002"); /* 1 is BEST */
    list_dir(dir, names, sizeof names);
    assert_string_equal(names, "BEST LATEST step_00000001 step_00000002 step_00000003 step_00000004");
    assert_int_equal(call("prune %s --keep 2 --json", dir), 0);
    has("\"removed\":[\"step_00000002\"]");
    list_dir(dir, names, sizeof names);
    assert_string_equal(names, "BEST LATEST step_00000001 step_00000003 step_00000004");
    assert_int_equal(call("prune %s --keep 0", dir), 2);
    assert_int_equal(call("prune %s", dir), 2);
    has("prune wants --keep N");
}

static void test_words(void **state)
{
    (void)state;
    assert_int_equal(call("list x"), 2);
    has("'list' is no verb of fttrain ckpt");
    assert_int_equal(call("ls"), 2);
    assert_int_equal(call("diff a"), 2);
    assert_int_equal(call("ls --jsn x"), 2);
    assert_int_equal(call("ls --help"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ls, setup, teardown),
        cmocka_unit_test_setup_teardown(test_verify, setup, teardown),
        cmocka_unit_test_setup_teardown(test_diff, setup, teardown),
        cmocka_unit_test_setup_teardown(test_prune, setup, teardown),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
