/* Five updates of the real SmolLM2-135M on its chat records, from the records as text, against PyTorch and transformers
 * (golden/smollm2/ref.json). Needs the model folder that tests/golden/smollm2/make-folder.py makes, in FT_SMOLLM2; skips without. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "runtime/train/cli.h"
#include "tests/unit/coll/ranks.h"
#include "tests/unit/train/hf_case.h"

static char dir[64];

struct layout {
    int ranks;
    const char *micro, *parallel;
};

static int one_rank(const struct ft_place *place, void *arg)
{
    struct ft_place p = *place;
    p.run_dir = dir;
    char path[128];
    (void)snprintf(path, sizeof path, "%s/job.ini", dir);
    const struct layout *l = arg;
    const char *words[] = {path}, *sets[] = {l->micro, l->parallel};
    const struct ft_cli cli = {.words = words, .n_words = 1, .sets = sets, .n_sets = 2, .quiet = true};
    return ft_train_rank(&cli, &p);
}

static void write_job(const struct ft_json *o, const char *model)
{
    static const char *const reals[] = {"lr", "min_lr", "weight_decay", "beta1", "beta2", "eps", "clip"};
    struct ft_buf b = {0}, path = {0};
    struct ft_err err;
    ft_buf_addf(&b, "[model]\npath = %s\nprecision = fp32\n", model);
    ft_buf_adds(&b, "[data]\ntrain = " FT_GOLDEN "/smollm2/chats.jsonl\npacking = no\nshuffle = no\ndedupe = no\nseq_len = 512\n");
    ft_buf_addf(&b, "[train]\nsteps = 5\nglobal_batch = 4\nschedule = %s\nwarmup = %lld\n", ft_json_str(ft_json_get(o, "schedule")),
                (long long)ft_json_int(ft_json_get(o, "warmup"), -1));
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        ft_buf_addf(&b, "%s = ", reals[i]);
        ft_buf_add_real(&b, ft_json_real(ft_json_get(o, reals[i]), NAN));
        ft_buf_addc(&b, '\n');
    }
    ft_buf_adds(&b, "[checkpoint]\nevery = 0\nkeep = 1\n[export]\nwhat = none\n");
    ft_buf_addf(&path, "%s/job.ini", dir);
    assert_int_equal(ft_write_file(path.data, b.data, b.n, 0600, &err), FT_OK);
    ft_buf_fini(&b);
    ft_buf_fini(&path);
}

static bool near(double a, double b, double rel) { return fabs(a - b) <= rel * fmax(fabs(a), fabs(b)); }

static void compare(const struct ft_json *updates)
{
    struct ft_buf text = {0}, path = {0};
    struct ft_err err;
    size_t n = 0;
    ft_buf_addf(&path, "%s/metrics.jsonl", dir);
    assert_int_equal(ft_read_file(path.data, 1 << 20, &text, &err), FT_OK);
    for (char *line = text.data; line && *line; line = strchr(line, '\n') + 1) {
        struct ft_json *v = NULL;
        assert_int_equal(ft_json_parse(line, strcspn(line, "\n"), 0, &v, NULL, &err), FT_OK);
        const struct ft_json *u = ft_json_at(updates, n++);
        const double loss = ft_json_real(ft_json_get(v, "loss"), NAN), want = ft_json_real(ft_json_get(u, "loss"), NAN);
        const double norm = ft_json_real(ft_json_get(v, "grad_norm"), NAN),
                     want_norm = ft_json_real(ft_json_get(u, "grad_norm"), NAN);
        if (!near(loss, want, 1e-5) || !near(norm, want_norm, 1e-4))
            fail_msg("update %zu: loss %.9g, not %.9g; norm %.9g, not %.9g", n, loss, want, norm, want_norm);
        assert_int_equal(ft_json_int(ft_json_get(v, "trained_tokens"), -1), ft_json_int(ft_json_get(u, "tokens"), -2));
        ft_json_destroy(v);
    }
    assert_int_equal(n, 5);
    ft_buf_fini(&text);
    ft_buf_fini(&path);
}

static void five_updates_of_smollm2(void **state)
{
    (void)state;
    const char *model = getenv("FT_SMOLLM2");
    if (!model) {
        print_message("skipped: FT_SMOLLM2 does not name the folder that tests/golden/smollm2/make-folder.py makes\n");
        skip();
    }
    struct ft_json *ref = NULL;
    struct ft_err err;
    assert_int_equal(ft_json_read_file(FT_GOLDEN "/smollm2/ref.json", 0, &ref, &err), FT_OK);
    const struct ft_json *full = ft_json_get(ref, "full");
    struct layout layouts[] = {{1, "train.micro_batch=2", "parallel.tensor=1"},
                               {2, "train.micro_batch=1", "parallel.tensor=1"},
                               {3, "train.micro_batch=2", "parallel.tensor=3"}, /* 9 heads, 3 kv heads */
                               {2, "train.micro_batch=1", "parallel.pipeline=2"}};
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
        (void)snprintf(dir, sizeof dir, "/tmp/ft-smollm2-XXXXXX");
        assert_non_null(mkdtemp(dir));
        write_job(ft_json_get(full, "optimizer"), model);
        struct ranks r = {.n = layouts[l].ranks, .run = one_rank, .arg = &layouts[l], .limit_s = 280};
        ranks_run(&r);
        for (int i = 0; i < layouts[l].ranks; i++) assert_int_equal(r.status[i], 0);
        compare(ft_json_get(full, "updates"));
        remove_tree(dir);
    }
    ft_json_destroy(ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(five_updates_of_smollm2)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
