/* Saves that go on while training does: what is on the disk is the step that was saved, whatever became of the memory meanwhile; the
 * ranks agree only when all have written; a failure is told where the ranks agree. No clock: a writer waits at a gate until it is opened. */
#include "drive.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

/* One run of some ranks with a writer at a gate. */
struct gated {
    const char *dir;
    const char *site; /* the call that waits at the gate */
    const char *more; /* further faults, ";" in front; NULL: none */
    int gate[2];
    int (*then)(struct gated *g, struct fake *f, struct ft_ckpt *c); /* the save of step 3 has begun; exit status */
    int before;                                                      /* agreements before the gate is reached */
    bool poison;
};

static int run_gated(const struct ft_place *place, void *arg)
{
    struct gated *g = arg;
    struct ft_err err = {0};
    struct fake f;
    struct ft_ckpt *c = NULL;
    struct ft_ckpt_scalars s;
    char fault[64];
    int64_t step;
    bool fresh;
    ft_log_set((struct ft_log_sink){.fd = -1, .also_fd = -1});
    snprintf(fault, sizeof fault, "%s:gate=%d%s", g->site, g->gate[0], g->more ? g->more : "");
    setenv("FT_FAULT", fault, 1);
    enum ft_code rc = fake_begin(&f, place, g->dir, "run-a", FT_CKPT_FP32, &(struct fake_layout){0}, &err);
    if (!rc) rc = ft_ckpt_open(&f.o, &c, &err);
    if (!rc) rc = ft_ckpt_resume(c, f.pieces, f.buckets.n_pieces, &s, &step, &fresh, &err);
    fake_fill(&f, 3);
    if (g->poison && place->rank) f.pieces[0].v[0] = INFINITY;
    s = fake_scalars(3);
    if (!rc) rc = ft_ckpt_begin(c, f.pieces, f.buckets.n_pieces, &s, false, &err);
    fake_fill(&f, 77);
    if (rc) say_err(rc, &err);
    const int status = rc ? 10 + (int)rc : g->then(g, &f, c);
    ft_ckpt_close(c);
    fake_end(&f);
    return status;
}

static void run_ranks(struct gated *g, int n, struct ranks *r)
{
    assert_int_equal(pipe(g->gate), 0);
    *r = (struct ranks){.n = n, .run = run_gated, .arg = g, .limit_s = 90};
    ranks_run(r);
    close(g->gate[0]);
    close(g->gate[1]);
}

/* Steps 1 and 2 of two ranks. */
static char *prepared(void)
{
    char *dir = make_dir();
    struct ranks r;
    struct job j = {.dir = dir, .run_id = "run-a", .saves = {1, 2}, .keep = -1};
    drive(&j, 2, &r);
    went_well(&r, 0);
    return dir;
}

static void open_gate(const struct gated *g) { assert_int_equal(write(g->gate[1], "x", 1), 1); }

/* As the trainer does: the sum of those that are busy, over all ranks. */
static int64_t busy_ranks(struct fake *f, const struct ft_ckpt *c)
{
    struct ft_err err;
    int64_t n = ft_ckpt_busy(c);
    if (ft_comm_all_reduce(f->comm, FT_GROUP_WORLD, &n, 1, FT_I64, FT_SUM, &err)) return -1;
    return n;
}

/* Agreements whenever nobody is busy, `most` at most, until the save has ended. The number of agreements. */
static int follow(struct fake *f, struct ft_ckpt *c, int most, enum ft_code *rc, struct ft_err *err)
{
    int n = 0;
    for (*rc = FT_OK; !*rc && n < most && ft_ckpt_saving(c);) {
        const int64_t busy = busy_ranks(f, c);
        if (busy < 0) return -1;
        if (busy) continue;
        *rc = ft_ckpt_go_on(c, err);
        n++;
    }
    return n;
}

static int ten_updates_pass(struct gated *g, struct fake *f, struct ft_ckpt *c)
{
    char names[512];
    struct ft_err err = {0};
    enum ft_code rc;
    if (follow(f, c, g->before, &rc, &err) != g->before || rc) return 19;
    for (int k = 0; k < 10; k++) {
        fake_fill(f, 100 + k);
        if (busy_ranks(f, c) < 1 || !ft_ckpt_saving(c)) return say("update %d: nobody writes\n", k), 20;
    }
    list_dir(g->dir, names, sizeof names);
    if (strstr(names, " step_00000003")) return say("there already: %s\n", names), 21;
    if (busy_ranks(f, c) < 1) return 22; /* all have looked */
    if (ft_comm_rank(f->comm, FT_GROUP_WORLD) == 0) open_gate(g);
    const int n = g->before + follow(f, c, 9, &rc, &err);
    if (rc) say_err(rc, &err);
    if (rc || n != 2) return say("%d agreements\n", n), 23;
    if (ft_ckpt_last_step(c) != 3) return 24;
    /* the next one: nothing of the first is in its way */
    fake_fill(f, 4);
    const struct ft_ckpt_scalars s = fake_scalars(4);
    rc = ft_ckpt_begin(c, f->pieces, f->buckets.n_pieces, &s, true, &err);
    fake_fill(f, 78);
    if (!rc) rc = ft_ckpt_drain(c, &err);
    if (rc) say_err(rc, &err);
    return rc || ft_ckpt_saving(c) ? 25 : 0;
}

static void test_RT19_content_is_that_of_the_step(void **state)
{
    (void)state;
    static const struct {
        const char *site;
        int before;
    } gates[] = {{"write@1:1", 0}, {"fallocate@0:1", 0}, {"rename@0:1", 1 /* rank 0 publishes */}};
    for (size_t i = 0; i < sizeof gates / sizeof *gates; i++) {
        char *dir = prepared(), names[512];
        struct ranks r;
        struct gated g = {.dir = dir, .site = gates[i].site, .before = gates[i].before, .then = ten_updates_pass};
        run_ranks(&g, 2, &r);
        ranks_all_ok(&r);
        list_dir(dir, names, sizeof names);
        assert_string_equal(names, "BEST LATEST step_00000002 step_00000003 step_00000004"); /* 2: resumed from; keep = 2 */
        struct job old = {.dir = dir, .run_id = "run-b", .resume = "3"}, next = {.dir = dir, .run_id = "run-b"};
        drive(&old, 3, &r);
        went_well(&r, 3); /* values and scalars */
        drive(&next, 2, &r);
        went_well(&r, 4);
        remove_dir(dir);
    }
}

static int fails_later(struct gated *g, struct fake *f, struct ft_ckpt *c)
{
    struct ft_err err = {0};
    enum ft_code rc;
    if (ft_comm_rank(f->comm, FT_GROUP_WORLD) == 0) open_gate(g);
    const int n = follow(f, c, 9, &rc, &err);
    if (rc) say_err(rc, &err);
    if (!rc || n != 1 || ft_ckpt_last_step(c) != 2) return say("%d agreements\n", n), 20;
    return 10 + (int)rc;
}

/* Known when the ranks agree, on all of them; step 2 is untouched and its folder is all that stays. */
static void test_a_failure_is_agreed(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        bool poison;
        enum ft_code code;
        const char *text;
    } rows[] = {{";write@1:3:enospc", false, FT_IO, "write failed: No space left on device"},
                {NULL, true, FT_DATA, "step 3 is not saved: 1 values are not finite, the first in optim.v/"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *dir = prepared(), names[512];
        struct ranks r;
        struct gated g = {.dir = dir, .site = "write@1:1", .more = rows[i].more, .then = fails_later, .poison = rows[i].poison};
        run_ranks(&g, 2, &r);
        refused(&r, rows[i].code, rows[i].text);
        list_dir(dir, names, sizeof names);
        assert_string_equal(names, "LATEST step_00000001 step_00000002");
        remove_dir(dir);
    }
}

static int leaves(struct gated *g, struct fake *f, struct ft_ckpt *c)
{
    (void)c;
    if (ft_comm_rank(f->comm, FT_GROUP_WORLD) == 0) open_gate(g);
    return 0; /* and closes */
}

/* A run that ends without waiting: its writer stops, the checkpoint does not exist, the next start cleans up. */
static void test_closing_gives_it_up(void **state)
{
    (void)state;
    char *dir = prepared(), names[512];
    struct ranks r;
    struct gated g = {.dir = dir, .site = "write@1:1", .then = leaves};
    run_ranks(&g, 2, &r);
    ranks_all_ok(&r);
    struct job next = {.dir = dir, .run_id = "run-b", .saves = {3}, .keep = -1};
    drive(&next, 2, &r);
    went_well(&r, 2);
    list_dir(dir, names, sizeof names);
    assert_string_equal(names, "LATEST step_00000001 step_00000002 step_00000003");
    remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_RT19_content_is_that_of_the_step),
        cmocka_unit_test(test_a_failure_is_agreed),
        cmocka_unit_test(test_closing_gives_it_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
