/* Ten updates of every folder of golden/hf against PyTorch and transformers, at every split of its rows over data ranks and
 * micro-batches: losses, norms, rates, token counts and the exported weights. Also what must be the same bits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "runtime/train/cli.h"
#include "tests/unit/coll/ranks.h"
#include "tests/unit/train/hf_case.h"

struct run {
    const struct hf_case *c;
    const char *const *sets;
    size_t n_sets;
};

static int one_rank(const struct ft_place *place, void *arg)
{
    const struct run *run = arg;
    struct ft_buf job = {0};
    hf_case_path(run->c, "job.ini", &job);
    struct ft_place p = *place;
    p.run_dir = run->c->dir;
    const char *words[] = {job.data}, *sets[8];
    for (size_t i = 0; i < run->n_sets; i++) sets[i] = run->sets[i];
    const struct ft_cli cli = {.words = words, .n_words = 1, .sets = sets, .n_sets = run->n_sets, .quiet = true};
    const int status = ft_train_rank(&cli, &p);
    ft_buf_fini(&job);
    return status;
}

static bool run_case(const char *name, int data, int micro, const char *extra)
{
    struct hf_case c;
    struct ft_buf why = {0};
    hf_case_open(&c, name, micro, extra);
    struct run run = {.c = &c};
    struct ranks r = {.n = data, .run = one_rank, .arg = &run, .limit_s = 100};
    ranks_run(&r);
    bool ok = true;
    for (int i = 0; i < data; i++)
        if (r.status[i]) {
            ok = false;
            ft_buf_addf(&why, "rank %d ended with status %#x; ", i, (unsigned)r.status[i]);
        }
    ok = ok && hf_case_same(&c, &why);
    if (!ok) print_error("FAIL %s data %d micro %d: %s\n", name, data, micro, ft_buf_str(&why));
    ft_buf_fini(&why);
    hf_case_close(&c);
    return ok;
}

static const char *const folders[] = {"llama", "smollm2", "llama31", "gpt2", "mistral", "qwen2", "qwen3"};

static void ten_updates_of_every_folder_at_every_split(void **state)
{
    (void)state;
    static const int splits[][2] = {{1, 1}, {1, 2}, {2, 1}, {1, 4}, {2, 2}, {4, 1}};
    int passed = 0, failed = 0;
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++)
        for (size_t s = 0; s < sizeof splits / sizeof *splits; s++)
            run_case(folders[f], splits[s][0], splits[s][1], NULL) ? passed++ : failed++;
    print_message("golden updates: %d passed, %d failed\n", passed, failed);
    assert_int_equal(failed, 0);
    assert_int_equal(passed, 42);
}

static void ten_updates_with_recomputation(void **state)
{
    (void)state;
    int failed = 0;
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        failed += !run_case(folders[f], 1, 2, "[model]\nrecompute = selective\n");
        failed += !run_case(folders[f], 2, 1, "[model]\nrecompute = full\n");
    }
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_updates_of_every_folder_at_every_split),
        cmocka_unit_test(ten_updates_with_recomputation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
