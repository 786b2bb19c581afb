/* The table of adapters beside split linears (runtime maths, section 14): shards, sums, and by numbers that the gradients of the ranks, finished
 * as their rows say, are those of one rank. */
#include "runtime/nn/adapter.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/arch/config.h"

enum { T = 4, OUT = 8, IN = 12, R = 3 };

static struct ft_param base_of(enum ft_linear_split split, int t, int rank, bool turned)
{
    const int out = turned ? 1 : 0, in = 1 - out;
    struct ft_param p = {.name = "w", .n_dims = 2, .granule = 1};
    p.dims[out] = p.local[out] = OUT;
    p.dims[in] = p.local[in] = IN;
    if (split == FT_LINEAR_WHOLE || t == 1) return p;
    const int axis = split == FT_LINEAR_OUT ? out : in;
    p.local[axis] = p.dims[axis] / t;
    p.origin[axis] = p.local[axis] * rank;
    p.shard = axis ? FT_SHARD_DIM1 : FT_SHARD_DIM0;
    return p;
}

static void the_table(void **state)
{
    (void)state;
    static const struct {
        enum ft_linear_split base;
        enum ft_adapter_way way;
        enum ft_shard a, b;
        enum ft_partial da, db;
        enum ft_adapter_z z;
    } rows[] = {
        {FT_LINEAR_OUT, FT_ADAPTER_PLAIN, FT_SHARD_NONE, FT_SHARD_DIM0, FT_PARTIAL_TENSOR, FT_PARTIAL_NO, FT_Z_LOCAL},
        {FT_LINEAR_OUT, FT_ADAPTER_SEQUENCE, FT_SHARD_NONE, FT_SHARD_DIM0, FT_PARTIAL_TENSOR, FT_PARTIAL_NO, FT_Z_GATHER},
        {FT_LINEAR_IN, FT_ADAPTER_PLAIN, FT_SHARD_DIM1, FT_SHARD_NONE, FT_PARTIAL_NO, FT_PARTIAL_NO, FT_Z_SUM},
        {FT_LINEAR_IN, FT_ADAPTER_FUSED, FT_SHARD_DIM1, FT_SHARD_NONE, FT_PARTIAL_NO, FT_PARTIAL_TENSOR, FT_Z_LOCAL},
        {FT_LINEAR_IN, FT_ADAPTER_SEQUENCE, FT_SHARD_DIM1, FT_SHARD_NONE, FT_PARTIAL_NO, FT_PARTIAL_TENSOR, FT_Z_SCATTER},
        {FT_LINEAR_WHOLE, FT_ADAPTER_PLAIN, FT_SHARD_NONE, FT_SHARD_NONE, FT_PARTIAL_NO, FT_PARTIAL_NO, FT_Z_LOCAL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int turned = 0; turned < 2; turned++) { /* GPT-2 stores [in, out] */
            const struct ft_param base = base_of(rows[i].base, 2, 1, turned);
            const struct ft_adapter x = ft_adapter_rows(&base, turned ? 0 : 1, R, rows[i].way);
            assert_int_equal(ft_adapter_split(&base, turned ? 0 : 1), rows[i].base);
            assert_int_equal(x.a.shard, rows[i].a);
            assert_int_equal(x.b.shard, rows[i].b);
            assert_int_equal(x.a.partial, rows[i].da);
            assert_int_equal(x.b.partial, rows[i].db);
            assert_int_equal(x.z, rows[i].z);
            assert_true(x.a.dims[0] == R && x.a.dims[1] == IN && x.b.dims[0] == OUT && x.b.dims[1] == R);
            assert_int_equal(x.b.local[0], rows[i].base == FT_LINEAR_OUT ? OUT / 2 : OUT);
            assert_int_equal(x.b.origin[0], rows[i].base == FT_LINEAR_OUT ? OUT / 2 : 0);
            assert_int_equal(x.a.local[1], rows[i].base == FT_LINEAR_IN ? IN / 2 : IN);
            assert_int_equal(x.a.origin[1], rows[i].base == FT_LINEAR_IN ? IN / 2 : 0);
        }
}

/* ---- numbers ---- */

static double x_at(int t, int i) { return sin(1 + t * 3.1 + i); }
static double a_at(int r, int i) { return cos(2 + r * 1.7 + i); }
static double b_at(int o, int r) { return sin(3 + o * 0.9 + r * 2); }
static double dy_at(int t, int o) { return cos(4 + t + o * 1.3); }

/* z over inputs [i0,i1). */
static double z_at(int t, int r, int i0, int i1)
{
    double z = 0;
    for (int i = i0; i < i1; i++) z += a_at(r, i) * x_at(t, i);
    return z;
}
/* dz from outputs [o0,o1). */
static double dz_at(int t, int r, int o0, int o1)
{
    double dz = 0;
    for (int o = o0; o < o1; o++) dz += b_at(o, r) * dy_at(t, o);
    return dz;
}

/* This rank's gradients, element (r,i) of A and (o,r) of B: what it can compute from what it has. */
static double da_of(const struct ft_adapter *x, int r, int i)
{
    const int o0 = (int)x->b.origin[0], o1 = o0 + (int)x->b.local[0];
    double g = 0;
    for (int t = 0; t < T; t++) g += dz_at(t, r, o0, o1) * x_at(t, i);
    return g;
}
static double db_of(const struct ft_adapter *x, int rank, int t_size, int o, int r)
{
    const int i0 = (int)x->a.origin[1], i1 = i0 + (int)x->a.local[1];
    const bool scattered = x->z == FT_Z_SCATTER, partial = x->z == FT_Z_LOCAL;
    const int t0 = scattered ? rank * T / t_size : 0, t1 = scattered ? (rank + 1) * T / t_size : T;
    double g = 0;
    for (int t = t0; t < t1; t++) g += dy_at(t, o) * (partial ? z_at(t, r, i0, i1) : z_at(t, r, 0, IN));
    return g;
}

/* Adds a rank's gradient to the logical one as its row says: a part, a shard, or one of equal copies (the first counts). */
static void finish(const struct ft_param *p, int rank, int64_t row, int64_t column, double g, double *sum)
{
    if (p->partial == FT_PARTIAL_TENSOR || p->shard != FT_SHARD_NONE || rank == 0) sum[row * p->dims[1] + column] += g;
}

static void gradients_are_those_of_one_rank(void **state)
{
    (void)state;
    static const struct {
        enum ft_linear_split base;
        enum ft_adapter_way way;
    } kinds[] = {{FT_LINEAR_OUT, FT_ADAPTER_PLAIN},
                 {FT_LINEAR_OUT, FT_ADAPTER_SEQUENCE},
                 {FT_LINEAR_IN, FT_ADAPTER_PLAIN},
                 {FT_LINEAR_IN, FT_ADAPTER_FUSED},
                 {FT_LINEAR_IN, FT_ADAPTER_SEQUENCE}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int t_size = 2; t_size <= 4; t_size *= 2) {
            double da[R * IN] = {0}, db[OUT * R] = {0};
            for (int rank = 0; rank < t_size; rank++) {
                const struct ft_param base = base_of(kinds[k].base, t_size, rank, false);
                const struct ft_adapter x = ft_adapter_rows(&base, 1, R, kinds[k].way);
                for (int r = 0; r < R; r++)
                    for (int64_t i = x.a.origin[1]; i < x.a.origin[1] + x.a.local[1]; i++)
                        finish(&x.a, rank, r, i, da_of(&x, r, (int)i), da);
                for (int64_t o = x.b.origin[0]; o < x.b.origin[0] + x.b.local[0]; o++)
                    for (int r = 0; r < R; r++) finish(&x.b, rank, o, r, db_of(&x, rank, t_size, (int)o, r), db);
            }
            for (int r = 0; r < R; r++)
                for (int i = 0; i < IN; i++) {
                    double want = 0;
                    for (int t = 0; t < T; t++) want += dz_at(t, r, 0, OUT) * x_at(t, i);
                    if (fabs(da[r * IN + i] - want) > 1e-12) fail_msg("kind %zu, t = %d: dA", k, t_size);
                }
            for (int o = 0; o < OUT; o++)
                for (int r = 0; r < R; r++) {
                    double want = 0;
                    for (int t = 0; t < T; t++) want += dy_at(t, o) * z_at(t, r, 0, IN);
                    if (fabs(db[o * R + r] - want) > 1e-12) fail_msg("kind %zu, t = %d: dB", k, t_size);
                }
        }
}

/* Beside the rows of a real family: K/V replicas share B's rows too. */
static void rows_of_a_model(void **state)
{
    (void)state;
    static const char json[] =
        "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":32,\"hidden_size\":32,"
        "\"intermediate_size\":48,\"num_hidden_layers\":1,\"num_attention_heads\":8,\"num_key_value_heads\":2,"
        "\"tie_word_embeddings\":false}";
    struct ft_arena *arena = ft_arena_create();
    struct ft_model_config c;
    struct ft_err err;
    size_t n, checked = 0;
    assert_int_equal(ft_model_config_parse("test", json, strlen(json), arena, &c, &err), FT_OK);
    const struct ft_param *rows = ft_model_config_rows(&c, 4, 1, 1, 0, 1, arena, &n, NULL);
    for (size_t i = 0; i < n; i++) {
        if (!strstr(rows[i].name, "_proj")) continue;
        const struct ft_adapter x = ft_adapter_rows(&rows[i], 1, 4, FT_ADAPTER_PLAIN);
        checked++;
        if (!strstr(rows[i].name, "k_proj") && !strstr(rows[i].name, "v_proj")) continue;
        assert_int_equal(x.b.partial, FT_PARTIAL_REPLICAS);
        assert_true(x.b.replica); /* rank 1 of four has the same head as rank 0 */
        assert_int_equal(ft_param_sets(&x.b), 2);
        assert_int_equal(ft_param_set(&x.b), 0);
        assert_int_equal(x.a.partial, FT_PARTIAL_TENSOR);
    }
    assert_int_equal(checked, 7);
    ft_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_table), cmocka_unit_test(gradients_are_those_of_one_rank),
                                       cmocka_unit_test(rows_of_a_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
