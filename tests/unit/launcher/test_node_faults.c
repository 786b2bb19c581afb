/* What is remembered of nodes that failed: who is used last, for how long, and that a bad file harms nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "launcher/node_faults.h"

struct bed {
    char home[64];
    struct ft_arena *arena;
    struct ft_node_conf nodes[3];
    struct ft_launcher_config config;
    struct ft_faults faults;
    struct ft_names late;
};

static const char *path_of(const struct bed *b) { return ft_arena_printf(b->arena, "%s/ftlaunch/faults.jsonl", b->home); }

static struct bed open_bed(void)
{
    struct bed b = {.home = "/tmp/ftfaults-XXXXXX", .arena = ft_arena_create()};
    assert_non_null(mkdtemp(b.home));
    assert_int_equal(setenv("XDG_STATE_HOME", b.home, 1), 0);
    static const char *const names[] = {"gpu01", "gpu02", "gpu03"};
    for (int i = 0; i < 3; i++) b.nodes[i].name = names[i];
    b.config.cluster.name = "lab";
    b.config.launch.cooldown = 1800 * FT_SEC;
    return b;
}

static void close_bed(struct bed *b)
{
    unlink(path_of(b));
    rmdir(ft_arena_printf(b->arena, "%s/ftlaunch", b->home));
    assert_int_equal(rmdir(b->home), 0);
    ft_arena_destroy(b->arena);
}

static void add(struct bed *b, const char *node, const char *kind)
{
    const struct ft_node_fault f = {.node = node, .boot = "boot", .kind = kind, .run = "lab-1"};
    ft_node_faults_add(&b->config, &f);
}

/* Who is used last, as "gpu01,gpu03". */
static const char *late_of(struct bed *b)
{
    struct ft_buf text = {0};
    b->config.nodes = b->nodes;
    b->config.n_nodes = 3;
    b->faults = (struct ft_faults){.arena = b->arena};
    ft_node_faults_read(&b->config, b->arena, &b->late, &b->faults);
    for (size_t i = 0; i < b->late.n; i++) ft_buf_addf(&text, "%s%s", i ? "," : "", b->late.v[i]);
    const char *s = ft_arena_strdup(b->arena, ft_buf_str(&text));
    ft_buf_fini(&text);
    assert_int_equal(b->faults.n, b->late.n); /* each has its note */
    return s;
}

static void write_lines(struct bed *b, const char *text, mode_t mode)
{
    struct ft_err err;
    assert_int_equal(ft_mkdirs(ft_arena_printf(b->arena, "%s/ftlaunch", b->home), 0700, &err), FT_OK);
    assert_int_equal(ft_write_file(path_of(b), text, strlen(text), 0600, &err), FT_OK);
    assert_int_equal(chmod(path_of(b), mode), 0);
}

static const char *line(struct bed *b, const char *cluster, const char *node, const char *kind, int64_t age)
{
    return ft_arena_printf(b->arena, "{\"at\":%lld,\"cluster\":\"%s\",\"node\":\"%s\",\"kind\":\"%s\",\"run\":\"r\"}\n",
                           (long long)(ft_wall_ns() - age), cluster, node, kind);
}

static void a_loss_and_two_starts_count(void **state)
{
    (void)state;
    struct bed b = open_bed();
    assert_string_equal(late_of(&b), ""); /* no file yet */
    add(&b, "gpu01", "loss");
    add(&b, "gpu02", "start");
    assert_string_equal(late_of(&b), "gpu01");
    assert_non_null(strstr(b.faults.v[0].text, "node gpu01 is used last: it was lost 0 min ago in run lab-1"));
    assert_int_equal(b.faults.v[0].severity, FT_SEV_NOTE);
    add(&b, "GPU02", "start"); /* a name is a name whatever its case */
    assert_string_equal(late_of(&b), "gpu01,gpu02");
    assert_non_null(strstr(b.faults.v[1].text, "could not be started twice"));
    add(&b, "gpu99", "loss"); /* no node of this job */
    assert_string_equal(late_of(&b), "gpu01,gpu02");
    struct stat st;
    assert_int_equal(stat(path_of(&b), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    close_bed(&b);
}

static void clusters_and_times_are_kept_apart(void **state)
{
    (void)state;
    struct bed b = open_bed();
    const char *text = ft_arena_printf(
        b.arena, "%s%s%s%s", line(&b, "other", "gpu01", "loss", 0), line(&b, "lab", "gpu02", "loss", 1801 * FT_SEC),
        line(&b, "lab", "gpu03", "start", 1801 * FT_SEC), line(&b, "lab", "gpu03", "start", 60 * FT_SEC));
    write_lines(&b, text, 0600);
    assert_string_equal(late_of(&b), "");
    b.config.launch.cooldown = 7200 * FT_SEC;
    assert_string_equal(late_of(&b), "gpu02,gpu03");
    assert_non_null(strstr(b.faults.v[0].text, "30 min ago"));
    assert_non_null(strstr(b.faults.v[1].text, " 1 min ago")); /* the last one */
    b.config.cluster.name = "other";
    assert_string_equal(late_of(&b), "gpu01");
    b.config.cluster.name = NULL;
    assert_string_equal(late_of(&b), "");
    b.config.cluster.name = "lab";
    b.config.launch.cooldown = 0; /* off: neither read nor written */
    assert_string_equal(late_of(&b), "");
    add(&b, "gpu01", "loss");
    b.config.launch.cooldown = 1800 * FT_SEC;
    assert_string_equal(late_of(&b), "");
    close_bed(&b);
}

static void a_damaged_file_is_a_hint_less(void **state)
{
    (void)state;
    struct bed b = open_bed();
    const char *loss = line(&b, "lab", "gpu01", "loss", 0);
    write_lines(&b, ft_arena_printf(b.arena, "{\"at\":\nnonsense\n[]\n{\"node\":7,\"kind\":null}\n\n%s{\"at\":1", loss), 0600);
    assert_string_equal(late_of(&b), "gpu01");
    write_lines(&b, loss, 0622); /* others may write it: not to be believed, nor written to */
    assert_string_equal(late_of(&b), "");
    struct stat before, after;
    assert_int_equal(stat(path_of(&b), &before), 0);
    add(&b, "gpu02", "loss");
    assert_int_equal(stat(path_of(&b), &after), 0);
    assert_int_equal(before.st_size, after.st_size);
    const char *elsewhere = ft_arena_printf(b.arena, "%s/elsewhere", b.home);
    assert_int_equal(chmod(path_of(&b), 0600), 0);
    assert_int_equal(rename(path_of(&b), elsewhere), 0);
    assert_int_equal(symlink(elsewhere, path_of(&b)), 0);
    assert_string_equal(late_of(&b), "");
    add(&b, "gpu02", "loss");
    assert_int_equal(stat(elsewhere, &after), 0);
    assert_int_equal(before.st_size, after.st_size);
    unlink(elsewhere);
    close_bed(&b);
}

static void the_newer_half_stays(void **state)
{
    (void)state;
    struct bed b = open_bed();
    struct ft_buf text = {0};
    ft_buf_adds(&text, line(&b, "lab", "gpu01", "loss", 0));
    const char *filler = line(&b, "lab", "gpu99", "start", 0);
    while (text.n <= 1 << 20) ft_buf_adds(&text, filler);
    ft_buf_adds(&text, line(&b, "lab", "gpu02", "loss", 0));
    write_lines(&b, text.data, 0600);
    assert_string_equal(late_of(&b), "gpu01,gpu02");
    add(&b, "gpu03", "loss");
    assert_string_equal(late_of(&b), "gpu02,gpu03");
    struct ft_buf now = {0};
    struct ft_err err;
    assert_int_equal(ft_read_file(path_of(&b), 1 << 24, &now, &err), FT_OK);
    assert_true(now.n > text.n / 3 && now.n < text.n * 2 / 3);
    assert_int_equal(now.data[0], '{'); /* whole lines */
    assert_int_equal(now.data[now.n - 1], '\n');
    ft_buf_fini(&now);
    ft_buf_fini(&text);
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loss_and_two_starts_count),
        cmocka_unit_test(clusters_and_times_are_kept_apart),
        cmocka_unit_test(a_damaged_file_is_a_hint_less),
        cmocka_unit_test(the_newer_half_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
