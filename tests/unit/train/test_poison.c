/* Device memory that is full of NaN when it is handed out changes nothing (RT-18): nobody counts on zeros that the system happens to
 * give. The linker puts the function below in front of the device's. */
#include <string.h>

#include "runtime/device/device.h"
#include "tests/unit/train/hf_case.h"
#include "tests/unit/train/job_run.h"

enum ft_code __real_ft_device_alloc(struct ft_device *d, int64_t bytes, const char *what, const char *key, void **out,
                                    struct ft_err *err);
enum ft_code __wrap_ft_device_alloc(struct ft_device *d, int64_t bytes, const char *what, const char *key, void **out,
                                    struct ft_err *err);

static bool poisons; /* set before ranks are started */
static int64_t poisoned;

enum ft_code __wrap_ft_device_alloc(struct ft_device *d, int64_t bytes, const char *what, const char *key, void **out,
                                    struct ft_err *err)
{
    const enum ft_code code = __real_ft_device_alloc(d, bytes, what, key, out, err);
    if (code || !poisons) return code;
    memset(*out, 0xFF, (size_t)bytes); /* NaN in fp32 and in bf16 */
    poisoned += bytes;
    return code;
}

static void rt18_poisoned_memory_changes_nothing(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *layout, *precision, *recompute;
    } cases[] = {{1, "parallel.tensor=1", "model.precision=fp32", "model.recompute=off"},
                 {2, "parallel.tensor=1", "model.precision=bf16", "model.recompute=selective"},
                 {2, "parallel.tensor=2", "model.precision=fp32", "model.recompute=full"},
                 {2, "parallel.pipeline=2", "model.precision=fp32", "model.recompute=off"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct result x[2];
        for (int k = 0; k < 2; k++) {
            struct job j;
            char valid[256];
            open_job(&j, cases[i].ranks, 19, "steps = 4\nmicro_batch = 2\n[eval]\nevery = 2\n[checkpoint]\nevery = 2\nasync = yes");
            (void)snprintf(valid, sizeof valid, "data.valid=%s/valid.jsonl", j.dir);
            const char *const sets[] = {valid, cases[i].layout, cases[i].precision, cases[i].recompute};
            for (size_t s = 0; s < sizeof sets / sizeof *sets; s++) j.sets[j.n_sets++] = sets[s];
            poisons = k == 1;
            run_good(&j, &x[k]);
            poisons = false;
            remove_tree(j.dir);
        }
        assert_int_equal(x[0].n, 4);
        assert_true(same_bits(&x[0], &x[1]));
        assert_string_equal(x[0].evals.data, x[1].evals.data);
        for (int k = 0; k < 2; k++) free_result(&x[k]);
    }
}

/* It is in force. */
static void memory_is_poisoned(void **state)
{
    (void)state;
    struct ft_device *d = NULL;
    struct ft_err err;
    void *p = NULL;
    float x;
    assert_int_equal(ft_device_open("cpu", 0, 1, &d, &err), FT_OK);
    poisons = true;
    assert_int_equal(ft_device_alloc(d, 4096, "a test", NULL, &p, &err), FT_OK);
    memcpy(&x, p, sizeof x);
    assert_true(x != x);
    assert_int_equal(poisoned, 4096);
    ft_device_free(d, p, 4096);
    poisons = false;
    ft_device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_poisoned),
        cmocka_unit_test(rt18_poisoned_memory_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
