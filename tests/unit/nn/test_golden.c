/* The reference cases: logits, loss, CE of every row and the gradient of every parameter, at several micro-batches. */
#include "base/json.h"
#include "fixture.h"

static const char *const cases[] = {"gpt2",
                                    "llama",
                                    "llama31",
                                    "mistral",
                                    "qwen2",
                                    "qwen3",
                                    "smollm2",
                                    "variants/gpt2-untied",
                                    "variants/llama-bias",
                                    "variants/llama-linear",
                                    "variants/llama-long",
                                    "variants/llama-yarn",
                                    "variants/mistral-tied",
                                    "variants/qwen2-window",
                                    "variants/qwen3-bias",
                                    "variants/mistral-window",
                                    "variants/qwen2-upper"};
enum { N_CASES = sizeof cases / sizeof *cases };

struct reference {
    struct rows rows;
    float *logits;
    int64_t V;
    struct ft_json *json;
    struct ft_st_file *grads;
};

static struct reference open_reference(const char *name)
{
    struct reference r = {.rows = read_rows(name)};
    char path[512];
    case_path(path, sizeof path, name, "/io.safetensors");
    struct ft_st_file *io = NULL;
    OK(ft_st_open(path, &io, err));
    const struct ft_st_tensor *logits = ft_st_find(io, "logits");
    assert_true(logits && logits->n_dims == 3);
    r.V = logits->dims[2];
    r.logits = ft_xcalloc((size_t)logits->count, 4);
    OK(ft_st_read(logits, 0, logits->count, r.logits, err));
    ft_st_close(io);
    case_path(path, sizeof path, name, "/ref.json");
    OK(ft_json_read_file(path, 0, &r.json, err));
    case_path(path, sizeof path, name, "/grads.safetensors");
    OK(ft_st_open(path, &r.grads, err));
    return r;
}

static void close_reference(struct reference *r)
{
    free_rows(&r->rows);
    free(r->logits);
    ft_json_destroy(r->json);
    ft_st_close(r->grads);
}

static void check_logits(const char *name, struct fixture *f, const struct reference *r, const struct micro *m, int64_t first)
{
    float *got = ft_xcalloc((size_t)(m->b.T * r->V), 4);
    OK(ft_model_logits(f->model, &m->b, got, err));
    for (int64_t s = 0; s < m->b.n_segments; s++)
        for (int64_t i = m->cu[s]; i < m->cu[s + 1]; i++)
            for (int64_t v = 0; v < r->V; v++) {
                const double a = (double)got[i * r->V + v],
                             b = (double)r->logits[((first + s) * r->rows.T + i - m->cu[s]) * r->V + v];
                if (!(fabs(a - b) <= 5e-5))
                    fail_msg("%s: row %lld token %lld logit %lld is %g, not %g", name, (long long)(first + s),
                             (long long)(i - m->cu[s]), (long long)v, a, b);
            }
    free(got);
}

/* The reference's per-row sums, whatever the key: a list of numbers. */
static double ref_row(const struct reference *r, const char *key, int64_t row)
{
    const struct ft_json *list = ft_json_get(r->json, key);
    if (!ft_json_is(list, FT_JSON_ARRAY)) fail_msg("ref.json has no list '%s'", key);
    return ft_json_real(ft_json_at(list, (size_t)row), NAN);
}

/* Each tensor of the reference as a whole: the three parts of a fused one together. */
static void check_gradients(const char *name, const struct fixture *f, const struct reference *r)
{
    size_t tensors = 0;
    double diff = 0, norm = 0;
    for (size_t i = 0; i < f->n; i++) {
        const int64_t n = ft_param_count(&f->params[i]);
        float *want = ft_xcalloc((size_t)n, 4);
        read_row(find_tensor(NULL, r->grads, f->params[i].name), &f->params[i], want);
        for (int64_t j = 0; j < n; j++) {
            const double g = (double)f->grads[f->offsets[i] + j], w = (double)want[j];
            diff += (g - w) * (g - w);
            norm += w * w;
        }
        free(want);
        const char *part = strchr(f->params[i].name, '#');
        if (part && strcmp(part, "#v") != 0) continue;
        if (!(sqrt(diff) <= 1e-5 * sqrt(norm)))
            fail_msg("%s: gradient of %s is off by %.2e", name, f->params[i].name, sqrt(diff / norm));
        diff = norm = 0;
        tensors++;
    }
    assert_int_equal(tensors, ft_st_count(r->grads));
}

static void one_case(const char *name, int64_t micro, int recompute, int threads)
{
    struct reference r = open_reference(name);
    struct fixture f;
    open_case(
        &f, name,
        (struct ft_model_options){.max_tokens = micro * r.rows.T, .seq_len = r.rows.T, .compute = FT_F32, .recompute = recompute},
        threads, -1);
    assert_int_equal(ft_model_config_params(&f.config), ft_json_int(ft_json_get(r.json, "parameters"), -1));
    const double tokens = (double)ft_json_int(ft_json_get(r.json, "tokens"), -1);
    double total = 0;
    for (int64_t first = 0; first < r.rows.n; first += micro) {
        const int64_t n = r.rows.n - first < micro ? r.rows.n - first : micro;
        struct micro m = make_micro(&r.rows, first, n);
        check_logits(name, &f, &r, &m, first);
        double ce = 0, again = 0;
        float *each = ft_xcalloc((size_t)m.b.T, 4);
        OK(ft_model_evaluate(f.model, &m.b, &again, each, err));
        OK(ft_model_forward_backward(f.model, &m.b, 1 / tokens, &ce, err));
        assert_true(ce == again);
        total += ce;
        for (int64_t s = 0; s < n; s++) {
            double sum = 0;
            for (int64_t i = m.cu[s]; i < m.cu[s + 1]; i++) sum += (double)each[i];
            const double want = ref_row(&r, "ce_sum_rows", first + s);
            if (!(fabs(sum - want) <= 1e-5 * fabs(want)))
                fail_msg("%s: CE of row %lld is %.8g, not %.8g", name, (long long)(first + s), sum, want);
        }
        free(each);
        free_micro(&m);
    }
    const double loss = ft_json_real(ft_json_get(r.json, "loss"), NAN);
    if (!(fabs(total / tokens - loss) <= 1e-5 * loss)) fail_msg("%s: loss %.8g, not %.8g", name, total / tokens, loss);
    check_gradients(name, &f, &r);
    close_case(&f);
    close_reference(&r);
}

/* Every case at micro-batches of 1, 2 and all rows, each with another recomputation. */
static void golden(void **state)
{
    (void)state;
    int ran = 0;
    for (int i = 0; i < N_CASES; i++)
        for (int m = 0; m < 3; m++) {
            struct rows rows = read_rows(cases[i]);
            one_case(cases[i], m < 2 ? m + 1 : rows.n, m, m + 1);
            free_rows(&rows);
            ran++;
        }
    assert_int_equal(ran, 3 * N_CASES);
    assert_int_equal(N_CASES, 17);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(golden)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
