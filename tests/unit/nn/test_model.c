/* What must hold beyond the reference numbers: recomputation, threads, masks, packing, chunks, types, memory. */
#include "fixture.h"

static const char *const cases[] = {"gpt2", "llama", "llama31", "mistral", "qwen2", "qwen3", "smollm2"};
enum { N_CASES = sizeof cases / sizeof *cases };

struct result {
    double ce;
    float *grads;
    int64_t n;
};

struct setting {
    const char *name;
    struct ft_model_options o;
    int threads;
    double drop;
    int64_t micro;
    bool dirty; /* another batch went through the same memory before */
};

/* All rows of batch 0 through a new model. */
static struct result run(struct setting s)
{
    struct rows rows = read_rows(s.name);
    struct fixture f;
    if (!s.micro) s.micro = rows.n;
    s.o.max_tokens = s.micro * rows.T;
    s.o.seq_len = rows.T;
    open_case(&f, s.name, s.o, s.threads ? s.threads : 1, s.drop);
    struct result r = {.n = f.total};
    for (int pass = s.dirty ? 0 : 1; pass < 2; pass++)
        for (int64_t first = 0; first < rows.n; first += s.micro) {
            struct micro m = make_micro(&rows, pass ? first : rows.n - s.micro, s.micro);
            double ce = 0;
            OK(ft_model_forward_backward(f.model, &m.b, 1.0 / 64, &ce, err));
            if (pass) r.ce += ce;
            free_micro(&m);
            if (!pass) memset(f.grads, 0, (size_t)f.total * sizeof *f.grads);
        }
    r.grads = f.grads;
    f.grads = NULL;
    close_case(&f);
    free_rows(&rows);
    return r;
}

static void same_bits(const char *what, const char *name, const struct result *a, const struct result *b)
{
    if (a->ce != b->ce) fail_msg("%s: %s changes the loss: %.17g, %.17g", name, what, a->ce, b->ce);
    if (memcmp(a->grads, b->grads, (size_t)a->n * sizeof *a->grads) != 0) fail_msg("%s: %s changes gradients", name, what);
}
static void near(const char *what, const char *name, const struct result *a, const struct result *b, double tol)
{
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < a->n; i++) {
        const double d = (double)a->grads[i] - (double)b->grads[i];
        diff += d * d;
        norm += (double)b->grads[i] * (double)b->grads[i];
    }
    if (!(fabs(a->ce - b->ce) <= tol * fabs(b->ce))) fail_msg("%s: %s: loss %.9g, not %.9g", name, what, a->ce, b->ce);
    if (!(sqrt(diff) <= tol * sqrt(norm))) fail_msg("%s: %s: gradients are off by %.2e", name, what, sqrt(diff / norm));
}

/* RT-13, recompute: off, selective and full, fp32 and bf16, with and without dropout, with 1 to 3 threads, on used memory: the same bits. */
static void bitwise(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++)
        for (int t = 0; t < 2; t++)
            for (int d = 0; d < 2; d++) {
                const struct setting base = {
                    .name = cases[i], .o = {.compute = t ? FT_BF16 : FT_F32, .seed = 7}, .drop = d ? 0.1 : 0};
                struct result first = run(base);
                for (int v = 0; v < 5; v++) {
                    struct setting s = base;
                    if (v < 2) s.o.recompute = v + 1;
                    if (v == 2 || v == 3) s.threads = v;
                    if (v == 4) s.dirty = true;
                    struct result r = run(s);
                    same_bits(v < 2 ? "recompute" : v < 4 ? "the number of threads" : "what lay in memory", cases[i], &r, &first);
                    free(r.grads);
                }
                free(first.grads);
            }
}

/* Masks belong to the row: any split into micro-batches gives the same losses; rates and seeds change them. */
static void dropout(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt2", "llama"};
    for (int i = 0; i < 2; i++) {
        const struct setting base = {.name = names[i], .o = {.seed = 7}, .drop = 0.1, .micro = 1};
        struct setting s = base;
        struct result one = run(base);
        s.micro = 4;
        struct result four = run(s);
        near("four rows at once", names[i], &four, &one, 1e-5);
        s = base;
        s.o.seed = 8;
        struct result seed = run(s);
        s = base;
        s.drop = 0;
        struct result none = run(s);
        assert_true(fabs(seed.ce - one.ce) > 1e-4 * one.ce);
        assert_true(fabs(none.ce - one.ce) > 1e-4 * one.ce);
        free(one.grads);
        free(four.grads);
        free(seed.grads);
        free(none.grads);
    }
}

/* RT-16: bf16 is within 1e-2 of fp32, and is not fp32. */
static void bf16(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        struct result a = run((struct setting){.name = cases[i], .o = {.compute = FT_BF16}}),
                      b = run((struct setting){.name = cases[i]});
        if (!(fabs(a.ce - b.ce) <= 1e-2 * b.ce)) fail_msg("%s: bf16 loss %g, fp32 %g", cases[i], a.ce, b.ce);
        near("bf16", cases[i], &a, &b, 0.05);
        assert_true(a.ce != b.ce);
        free(a.grads);
        free(b.grads);
    }
}

/* Several chunks of logits: within tolerance of one. */
static void chunks(void **state)
{
    (void)state;
    struct result a = run((struct setting){.name = "llama31", .o = {.logits_chunk_bytes = 1}}),
                  b = run((struct setting){.name = "llama31"});
    near("chunks of logits", "llama31", &a, &b, 1e-5);
    assert_true(a.ce != b.ce || memcmp(a.grads, b.grads, (size_t)a.n * 4) != 0); /* there was more than one chunk */
    free(a.grads);
    free(b.grads);
}

/* RT-09: segments do not see each other; a micro-batch without targets changes nothing; odd lengths. */
static void segments(void **state)
{
    (void)state;
    struct fixture f;
    enum { A = 3, B = 5 };
    open_case(&f, "llama", (struct ft_model_options){.max_tokens = A + B, .seq_len = A + B}, 1, -1);
    const int64_t V = f.config.V;
    int32_t ids[A + B] = {5, 6, 7, 11, 12, 13, 14, 15}, none[A + B], targets[A + B] = {6, 7, -100, 12, 13, 14, 15, -100};
    const int32_t positions[A + B] = {0, 1, 2, 0, 1, 2, 3, 4}, cu[] = {0, A, A + B}, cu_b[] = {0, B};
    for (int i = 0; i < A + B; i++) none[i] = -100;
    struct ft_batch b = {A + B, ids, positions, targets, 2, cu, NULL, NULL};
    float *x = ft_xcalloc((size_t)((A + B) * V), 4), *y = ft_xcalloc((size_t)((A + B) * V), 4);
    OK(ft_model_logits(f.model, &b, x, err));
    ids[1] = 90;
    OK(ft_model_logits(f.model, &b, y, err));
    assert_memory_equal(x + A * V, y + A * V, (size_t)(B * V) * 4);
    assert_memory_equal(x, y, (size_t)V * 4); /* causal */
    assert_memory_not_equal(x + V, y + V, (size_t)V * 4);
    ids[1] = 6;
    /* CE adds up, alone and packed */
    double both, a_only, b_only, zero = 1;
    OK(ft_model_evaluate(f.model, &b, &both, NULL, err));
    const struct ft_batch only_a = {A, ids, positions, targets, 1, (const int32_t[]){0, A}, NULL, NULL};
    const struct ft_batch only_b = {B, ids + A, positions + A, targets + A, 1, cu_b, NULL, NULL};
    OK(ft_model_evaluate(f.model, &only_a, &a_only, NULL, err));
    OK(ft_model_evaluate(f.model, &only_b, &b_only, NULL, err));
    assert_true(fabs(both - a_only - b_only) <= 1e-5 * both);
    b.targets = none;
    OK(ft_model_forward_backward(f.model, &b, 1, &zero, err));
    assert_true(zero == 0);
    for (int64_t i = 0; i < f.total; i++) assert_true(f.grads[i] == 0);
    const struct ft_batch empty = {0, ids, positions, targets, 0, (const int32_t[]){0}, NULL, NULL};
    OK(ft_model_forward_backward(f.model, &empty, 1, &zero, err));
    assert_true(zero == 0);
    free(x);
    free(y);
    close_case(&f);
}

static void refused(void **state)
{
    (void)state;
    struct fixture f;
    open_case(&f, "llama", (struct ft_model_options){.max_tokens = 8}, 1, -1);
    struct ft_err err = {0};
    struct ft_model *m = NULL;
    struct ft_model_options o = {
        .config = &f.config, .device = f.device, .tensor = 1, .pipeline = 1, .compute = FT_F16, .max_tokens = 8};
    assert_int_equal(ft_model_create(&o, &m, &err), FT_UNSUPPORTED);
    assert_non_null(strstr(err.text, "only fp32 and bf16"));
    assert_null(m);
    /* an op that a device does not have is named with the device */
    struct ft_kernels lame = *f.device->kernels;
    struct ft_device d = *f.device;
    lame.attn_bwd = NULL;
    d.kernels = &lame;
    o.device = &d;
    o.compute = FT_F32;
    assert_int_equal(ft_model_create(&o, &m, &err), FT_UNSUPPORTED);
    assert_string_equal(err.text, "device 'cpu' has no kernel for op attn_bwd");
    assert_null(m);
    int32_t ids[2] = {1, 400}, targets[2] = {2, -100};
    const int32_t positions[2] = {0, 1}, cu[2] = {0, 2};
    const struct ft_batch b = {2, ids, positions, targets, 1, cu, NULL, NULL};
    double ce;
    assert_int_equal(ft_model_evaluate(f.model, &b, &ce, NULL, &err), FT_DATA);
    assert_non_null(strstr(err.text, "token id 400 is outside the model's vocabulary of 199"));
    ids[1] = 3;
    targets[0] = 199;
    assert_int_equal(ft_model_evaluate(f.model, &b, &ce, NULL, &err), FT_DATA);
    assert_non_null(strstr(err.text, "label 199"));
    close_case(&f);
}

/* The plan is the allocation, and the activations are those of runtime maths, section 16. */
static void memory(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++)
        for (int rec = 0; rec < 3; rec++)
            for (int t = 0; t < 2; t++) {
                struct fixture f;
                const int64_t T = 256; /* widths times 256 tokens are whole lines: no rounding */
                struct ft_model_options o = {.max_tokens = T, .seq_len = 64, .compute = t ? FT_BF16 : FT_F32, .recompute = rec};
                open_case(&f, cases[i], o, 1, -1);
                o.config = &f.config;
                o.tensor = o.pipeline = 1;
                const struct ft_model_memory p = ft_model_memory(&o);
                const struct ft_model_config *c = &f.config;
                const int64_t q = c->H * c->D, kv = c->K * c->D, workspace = 2 * T * q * 4;
                assert_int_equal(p.activations + p.logits + p.buffers, f.device->used + workspace);
                const int64_t mlp = c->gelu ? 2 : 3,
                              stats = (c->layernorm ? 16 : 8) + 4 * c->H + (c->qk_norm ? 4 * (c->H + c->K) : 0);
                const int64_t pre = c->qk_norm ? q + kv : 0;
                const int64_t width = rec == 0   ? 4 * c->h + 2 * q + 2 * kv + mlp * c->f + pre
                                      : rec == 1 ? 2 * c->h + 2 * q + 2 * kv + (mlp - 1) * c->f + pre
                                                 : c->h;
                assert_int_equal(p.activations, T * c->L * (width * (t ? 2 : 4) + (rec == 2 ? 0 : stats)));
                close_case(&f);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bitwise), cmocka_unit_test(dropout),  cmocka_unit_test(bf16),
                                       cmocka_unit_test(chunks),  cmocka_unit_test(segments), cmocka_unit_test(refused),
                                       cmocka_unit_test(memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
