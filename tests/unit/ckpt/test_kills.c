/* RT-19: a writer is killed, or one of its calls fails, at every site and every call. Whatever happens, the next start finds the
 * previous or the new checkpoint complete, cleans up, and can save again. */
#include "drive.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* After a fault: a run without faults finds step 2 or 3, whole, and saves step 4; nothing half is left. */
static int64_t recover(const char *dir)
{
    struct ranks r;
    char names[512];
    struct job j = {.dir = dir, .run_id = "run-a", .saves = {4}};
    drive(&j, 3, &r);
    ranks_all_ok(&r);
    long long step = -1;
    assert_int_equal(sscanf(r.text[0], "resumed %lld", &step), 1);
    assert_true(step == 2 || step == 3);
    list_dir(dir, names, sizeof names);
    if (strstr(names, ".tmp-") || strstr(names, ".old-") || strstr(names, ".del-") || strstr(names, "LOCK") ||
        strstr(names, ".part"))
        fail_msg("left behind: %s", names);
    assert_non_null(strstr(names, "step_00000004"));
    return step;
}

/* Steps 1 and 2 of two ranks; made once, copied for each fault. */
static char made[64];
static int make(void **state)
{
    (void)state;
    struct ranks r;
    snprintf(made, sizeof made, "%s", make_dir());
    struct job j = {.dir = made, .run_id = "run-a", .saves = {1, 2}, .keep = -1};
    drive(&j, 2, &r);
    went_well(&r, 0);
    return 0;
}
static int unmake(void **state)
{
    (void)state;
    remove_dir(made);
    return 0;
}

static void prepare(char **dir)
{
    *dir = make_dir();
    copy_dir(made, *dir);
}

/* A kill while step 3 is saved twice (the first is set aside; keep = 1, so retention deletes step 1), beside the run or not. True: it
 * happened. */
static bool with_fault(const char *fault, bool beside)
{
    char *dir;
    struct ranks r;
    prepare(&dir);
    struct job j = {.dir = dir, .run_id = "run-a", .saves = {3, 3}, .keep = 1, .beside = beside, .fault = fault};
    drive(&j, 2, &r);
    bool hit = false;
    for (int i = 0; i < 2; i++) {
        assert_false(r.late[i]);
        hit |= WIFSIGNALED(r.status[i]) || WEXITSTATUS(r.status[i]) != 0;
    }
    if (hit)
        assert_true((WIFSIGNALED(r.status[0]) && WTERMSIG(r.status[0]) == SIGKILL) ||
                    (WIFSIGNALED(r.status[1]) && WTERMSIG(r.status[1]) == SIGKILL));
    recover(dir);
    remove_dir(dir);
    return hit;
}

/* Every call of a site on a rank (every step-th), until a call number is not reached any more. */
static int kill_everywhere(const char *site, int rank, int most, int step, bool beside)
{
    int hits = 0;
    for (int n = 1; n <= most; n += step) {
        char fault[64];
        snprintf(fault, sizeof fault, "%s@%d:%d:kill", site, rank, n);
        if (!with_fault(fault, beside)) break;
        hits++;
    }
    return hits;
}

static void test_RT19_kill_rank_0(void **state)
{
    (void)state;
    static const struct {
        const char *site;
        int most, step, least; /* step: calls of one kind, one after another, are sampled here and all of them by tests/campaign */
    } sites[] = {{"lock", 3, 1, 1},    {"mkdir", 4, 1, 2},  {"open", 20, 1, 7},   {"fallocate", 4, 1, 2}, {"write", 60, 4, 9},
                 {"fsync", 12, 1, 7},  {"close", 12, 1, 6}, {"rename", 12, 1, 6}, {"fsyncdir", 12, 1, 6}, {"latest", 4, 1, 2},
                 {"unlink", 12, 1, 5}, {"rmdir", 5, 1, 2},  {"pread", 60, 3, 4}};
    for (size_t i = 0; i < sizeof sites / sizeof *sites; i++) {
        const int hits = kill_everywhere(sites[i].site, 0, sites[i].most, sites[i].step, false);
        print_message("           %s: %d\n", sites[i].site, hits);
        if (hits < sites[i].least) fail_msg("%s: only %d calls were hit, %d expected", sites[i].site, hits, sites[i].least);
    }
}

static void test_RT19_kill_rank_1(void **state)
{
    (void)state;
    static const char *const sites[] = {"open", "fallocate", "write", "fsync", "close"};
    for (size_t i = 0; i < sizeof sites / sizeof *sites; i++) assert_true(kill_everywhere(sites[i], 1, 3, 1, false) >= 1);
}

/* The same in the threads that write and publish while the run goes on. */
static void test_RT19_kill_beside(void **state)
{
    (void)state;
    static const struct {
        const char *site;
        int rank, most, step, least;
    } sites[] = {{"write", 0, 60, 13, 3}, {"fsync", 0, 12, 3, 2}, {"rename", 0, 12, 2, 2}, {"latest", 0, 4, 1, 2},
                 {"unlink", 0, 12, 4, 1}, {"write", 1, 9, 4, 1},  {"close", 1, 2, 1, 1}};
    for (size_t i = 0; i < sizeof sites / sizeof *sites; i++) {
        const int hits = kill_everywhere(sites[i].site, sites[i].rank, sites[i].most, sites[i].step, true);
        if (hits < sites[i].least) fail_msg("%s: only %d calls were hit, %d expected", sites[i].site, hits, sites[i].least);
    }
}

/* A call fails: nothing is published, or (after publication) only a warning; the run goes on and the next save works. */
struct failing {
    const char *fault;
    enum ft_code code; /* FT_OK: the save works all the same */
    const char *text;
    bool both; /* beside the run too */
};

static void save_with(const struct failing *f, bool beside)
{
    char *dir;
    struct ranks r;
    prepare(&dir);
    struct job j = {.dir = dir, .run_id = "run-a", .saves = {3, 4}, .keep = 1, .fault = f->fault, .go_on = true, .beside = beside};
    drive(&j, 2, &r);
    print_message("           %s%s\n", f->fault, beside ? ", beside" : "");
    for (int k = 0; k < 2; k++) {
        if (r.status[k] != 0 || !strstr(r.text[k], "saved 4")) fail_msg("%s: rank %d: %s", f->fault, k, r.text[k]);
        if ((strstr(r.text[k], "saved 3") != NULL) != (f->code == FT_OK)) fail_msg("%s: rank %d: %s", f->fault, k, r.text[k]);
        if (!strstr(r.text[k], f->text)) fail_msg("%s: rank %d did not say '%s': %s", f->fault, k, f->text, r.text[k]);
    }
    struct job next = {.dir = dir, .run_id = "run-b"};
    drive(&next, 1, &r);
    went_well(&r, 4);
    remove_dir(dir);
}

static void test_failing_calls(void **state)
{
    (void)state;
    static const struct failing rows[] = {
        {"fallocate@1:1:enospc", FT_IO, "fallocate failed: No space left on device (", true},
        {"write@0:5:enospc", FT_IO, "No space left on device", true},
        {"fsync@1:1:enospc", FT_IO, "fsync failed: No space left on device", false},
        {"mkdir@0:1:enospc", FT_IO, "No space left on device", true},
        {"open@1:2:eio", FT_OK, "", true}, /* again in a new file */
        {"write@1:3:eio", FT_OK, "", false},
        {"fsync@1:1:eio", FT_OK, "", false},
        {"close@1:1:eio", FT_OK, "", false},
        {"write@1:2:estale;write@1:5:estale", FT_OK, "", false},
        {"write@1:3:short", FT_OK, "", true},
        {"write@1:2:delay=300", FT_OK, "", false},
        {"fsync@1:1:eio;fsync@1:2:eio;fsync@1:3:eio", FT_IO, "fsync failed: Input/output error", false},
        {"rename@0:1:eio", FT_IO, "Input/output error", true},
        {"rename@0:2:eio", FT_IO, "Input/output error", true},
        {"fsyncdir@0:1:eio", FT_IO, "Input/output error", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        save_with(&rows[i], false);
        if (rows[i].both) save_with(&rows[i], true);
    }
}

/* A disk that lies: the bit is found at the load, by CRC, with file and rows; the older one is taken. */
static void test_flipped_write(void **state)
{
    (void)state;
    char *dir;
    struct ranks r;
    prepare(&dir);
    struct job j = {.dir = dir, .run_id = "run-a", .saves = {3}, .fault = "write@1:4:flip"};
    drive(&j, 2, &r);
    went_well(&r, 2);
    struct job next = {.dir = dir, .run_id = "run-b"};
    drive(&next, 2, &r);
    went_well(&r, 2);
    assert_non_null(strstr(r.text[0], "step_00000003 is damaged and is passed over: "));
    assert_non_null(strstr(r.text[0], "(w-00001-of-00002.safetensors, bytes "));
    struct job lying = {.dir = dir, .run_id = "run-b", .fault = "pread@1:2:flip", .resume = "2"};
    drive(&lying, 2, &r);
    refused(&r, FT_DATA, "cannot resume from 'step_00000002'");
    remove_dir(dir);
}

/* Ranks of a tensor group that do not hold the same norm: nothing is written. */
static void test_replicas_differ(void **state)
{
    (void)state;
    char *dir, names[512];
    struct ranks r;
    prepare(&dir);
    struct job j = {.dir = dir, .run_id = "run-a", .layout = {.tensor = 2}, .saves = {3}, .fault = "replica@1:2:flip"};
    drive(&j, 4, &r);
    refused(&r, FT_DATA,
            "step 3 is not saved, the state is wrong: optim.v/model.norm.weight is not the same on ranks 1, 3 as on ranks 0, 2");
    list_dir(dir, names, sizeof names);
    assert_string_equal(names, "LATEST step_00000001 step_00000002");
    /* the same right after loading: that checkpoint is passed over */
    j.fault = "replica@1:1:flip";
    drive(&j, 4, &r);
    went_well(&r, 1);
    assert_non_null(strstr(r.text[0], "what was loaded is wrong: optim.v/model.norm.weight is not the same on ranks 1, 3"));
    j.fault = NULL;
    drive(&j, 4, &r);
    went_well(&r, 3);
    remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failing_calls),    cmocka_unit_test(test_flipped_write),    cmocka_unit_test(test_replicas_differ),
        cmocka_unit_test(test_RT19_kill_rank_0), cmocka_unit_test(test_RT19_kill_rank_1), cmocka_unit_test(test_RT19_kill_beside),
    };
    return cmocka_run_group_tests(tests, make, unmake);
}
