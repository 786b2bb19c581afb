/* Rectangles, hashes, keys: known answers of the format. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "runtime/ckpt/manifest.h"
#include "runtime/ckpt/rects.h"

static struct ft_param matrix(int64_t rows, int64_t columns)
{
    return (struct ft_param){.name = "a", .n_dims = 2, .dims = {rows, columns}, .local = {rows, columns}};
}

static void rect_is(const struct ft_rect *r, int64_t r0, int64_t r1, int64_t c0, int64_t c1)
{
    assert_int_equal(r->at[0], r0);
    assert_int_equal(r->at[0] + r->n[0], r1);
    assert_int_equal(r->at[1], c0);
    assert_int_equal(r->at[1] + r->n[1], c1);
}

static void test_RT05_rectangles(void **state)
{
    (void)state;
    const struct ft_param p = matrix(4, 6);
    struct ft_rect r[3];
    assert_int_equal(ft_rects(&p, 5, 23, r), 3);
    rect_is(&r[0], 0, 1, 5, 6);
    rect_is(&r[1], 1, 3, 0, 6);
    rect_is(&r[2], 3, 4, 0, 5);
    assert_int_equal(ft_rects(&p, 0, 12, r), 1);
    rect_is(&r[0], 0, 2, 0, 6);
    assert_int_equal(ft_rects(&p, 7, 9, r), 1);
    rect_is(&r[0], 1, 2, 1, 3);
    assert_int_equal(ft_rects(&p, 4, 8, r), 2);
    rect_is(&r[0], 0, 1, 4, 6);
    rect_is(&r[1], 1, 2, 0, 2);
    assert_int_equal(ft_rects(&p, 9, 9, r), 0);
    const struct ft_param v = {.name = "b", .n_dims = 1, .dims = {10, 1}, .local = {10, 1}};
    assert_int_equal(ft_rects(&v, 3, 8, r), 1);
    rect_is(&r[0], 3, 8, 0, 1);
}

/* Element (65537, 7) of [rows, 128256] is number 8,405,513,479: in rectangles and in their hashes (that of a value at an index has a
 * test of its own). */
static void test_R5_indices_beyond_32_bits(void **state)
{
    (void)state;
    const int64_t columns = 128256, at = 65537 * columns + 7;
    const struct ft_param p = matrix(200000, columns);
    struct ft_rect r[3];
    assert_true(at == 8405513479);
    assert_int_equal(ft_rects(&p, at, at + 2, r), 1);
    rect_is(&r[0], 65537, 65538, 7, 9);
    assert_int_equal(ft_rects(&p, at, p.dims[0] * columns, r), 2);
    rect_is(&r[0], 65537, 65538, 7, columns);
    rect_is(&r[1], 65538, 200000, 0, columns);
    assert_true(ft_rect_count(&r[1]) == 134462 * columns);
    const float x[2] = {1.5f, -2};
    const struct ft_rect two = {.at = {65537, 7}, .n = {1, 2}};
    assert_true(ft_rect_sums(&two, columns, x, false).hash == ft_logical_hash(x, 2, 4, (uint64_t)at));
}

/* Shards: rows 4..8 of 8 with a padded vocabulary of 7; columns 3..6 of 6. */
static void test_shards(void **state)
{
    (void)state;
    struct ft_param rows = matrix(7, 6), columns = matrix(4, 6);
    struct ft_rect r[3];
    rows.local[0] = 4;
    rows.origin[0] = 4;
    assert_int_equal(ft_rects(&rows, 0, 24, r), 1); /* the last local row is padding */
    rect_is(&r[0], 4, 7, 0, 6);
    assert_int_equal(ft_rects(&rows, 18, 24, r), 0);
    assert_int_equal(ft_rects(&rows, 17, 20, r), 1);
    rect_is(&r[0], 6, 7, 5, 6);
    columns.local[1] = 3;
    columns.origin[1] = 3;
    assert_int_equal(ft_rects(&columns, 2, 7, r), 3);
    rect_is(&r[0], 0, 1, 5, 6);
    rect_is(&r[1], 1, 2, 3, 6);
    rect_is(&r[2], 2, 3, 3, 4);
    assert_int_equal(r[1].from, 3);
    struct ft_rect a = {.at = {0, 2}, .n = {3, 3}}, b = {.at = {2, 4}, .n = {5, 5}}, both;
    assert_true(ft_rect_meet(&a, &b, &both));
    rect_is(&both, 2, 3, 4, 5);
    b.at[0] = 3;
    assert_false(ft_rect_meet(&a, &b, &both));
}

/* Any cut of any shard of any size covers each element exactly once. Fixed seed. */
static void test_cuts_cover(void **state)
{
    (void)state;
    srandom(1);
    int tried = 0;
    for (int round = 0; round < 300; round++) {
        const int64_t R = 1 + random() % 9, C = 1 + random() % 9;
        const struct ft_param p = matrix(R, C);
        int *seen = calloc((size_t)(R * C), sizeof *seen);
        for (int64_t a = 0; a < R * C;) {
            const int64_t b = a + 1 + random() % 20 < R * C ? a + 1 + random() % 3 : R * C;
            struct ft_rect r[3];
            const int n = ft_rects(&p, a, b, r);
            int64_t flat = a;
            for (int i = 0; i < n; i++) {
                assert_int_equal(r[i].from, flat); /* contiguous, in order */
                flat += ft_rect_count(&r[i]);
                for (int64_t y = 0; y < r[i].n[0]; y++)
                    for (int64_t x = 0; x < r[i].n[1]; x++) seen[(r[i].at[0] + y) * C + r[i].at[1] + x]++;
            }
            assert_int_equal(flat, b);
            a = b;
            tried++;
        }
        for (int64_t i = 0; i < R * C; i++) assert_int_equal(seen[i], 1);
        free(seen);
    }
    assert_true(tried > 1000);
}

static uint64_t h(int64_t r0, int64_t r1, int64_t c0, int64_t c1, const float *all, int64_t C)
{
    float x[64];
    int n = 0;
    for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++) x[n++] = all[r * C + c];
    const struct ft_rect rect = {.at = {r0, c0}, .n = {r1 - r0, c1 - c0}};
    return ft_rect_sums(&rect, C, x, false).hash;
}

static void test_logical_hash(void **state)
{
    (void)state;
    const float x[6] = {1, 2, 3, 4, 5, 6}, swapped[6] = {4, 5, 6, 1, 2, 3}, transposed[6] = {1, 4, 2, 5, 3, 6}, zero = 0,
                zeros[6] = {0};
    const uint64_t H = 0x0c4ef18d86200144;
    const struct ft_rect one = {.n = {1, 1}}, whole = {.n = {2, 3}};
    assert_true(ft_rect_sums(&one, 1, &zero, false).hash == 0xe220a8397b1dcdaf);
    assert_true(h(0, 2, 0, 3, x, 3) == H);
    assert_true(h(0, 1, 0, 3, x, 3) == 0xa205a39bc348a9b3 && h(1, 2, 0, 3, x, 3) == 0x6a494df1c2d75791);
    assert_true(h(0, 2, 0, 1, x, 3) == 0x84726b40242b3a97 && h(0, 2, 1, 3, x, 3) == 0x87dc864d61f4c6ad);
    assert_true(h(0, 1, 1, 3, x, 3) + h(1, 2, 0, 2, x, 3) + h(0, 1, 0, 1, x, 3) + h(1, 2, 2, 3, x, 3) == H);
    assert_true(h(0, 1, 1, 3, x, 3) == 0x2215f85b3cbe930f && h(1, 2, 0, 2, x, 3) == 0x3713704aab612e0d);
    assert_true(h(0, 2, 0, 3, swapped, 3) == 0xa738dc93107e4638);
    assert_true(h(0, 2, 0, 3, transposed, 3) == 0x5d482f716d575dbc);
    assert_true(h(0, 2, 0, 3, zeros, 3) == 0xbeee84dbd5541263);
    assert_true(ft_rect_sums(&whole, 3, x, true).hash_bf16 == 0x4e2e90f76fb8ebc3);
    assert_int_equal(ft_crc32c(0, x, sizeof x), 0x805104b9);
    assert_int_equal(ft_crc32c(0, x, 12), 0x384de783);
    assert_int_equal(ft_crc32c(0, x + 3, 12), 0x6bbf0d40);
    const float bad[6] = {1, 2, NAN, 4, INFINITY, 6};
    const struct ft_rect_sums s = ft_rect_sums(&whole, 3, bad, false);
    assert_int_equal(s.nonfinite, 2);
    assert_int_equal(s.first_nonfinite, 2);
    struct ft_mf_tensor t = {.name = "a", .hash = H};
    const struct ft_mf_list l = {.v = &t, .n = 1}, none = {0};
    assert_true(ft_mf_state_hash(&l, &none) == 0x92e35313ca8c6908);
    /* element (65537, 7) of a matrix with 128256 columns: index 8,405,513,479 */
    const struct ft_rect far = {.at = {65537, 7}, .n = {1, 1}};
    assert_true(ft_rect_sums(&far, 128256, x, false).hash == ft_logical_hash(x, 1, 4, 8405513479u));
}

static void test_keys(void **state)
{
    (void)state;
    struct ft_buf b = {0};
    const int64_t dims[2] = {16, 64}, one[2] = {9, 1};
    const struct ft_rect part = {.at = {8, 0}, .n = {8, 64}}, all = {.n = {16, 64}}, some = {.at = {2, 0}, .n = {3, 1}};
    ft_mf_key(&b, "w", 2, dims, &part);
    assert_string_equal(ft_buf_str(&b), "w[8:16,0:64]");
    ft_buf_clear(&b);
    ft_mf_key(&b, "w", 2, dims, &all);
    assert_string_equal(ft_buf_str(&b), "w");
    ft_buf_clear(&b);
    ft_mf_key(&b, "n", 1, one, &some);
    assert_string_equal(ft_buf_str(&b), "n[2:5]");
    ft_buf_fini(&b);
}

static void test_self_crc_example(void **state)
{
    (void)state;
    static const char text[] = "{\"format\":\"ftckpt\",\"version\":1,\"self_crc32c\":\"";
    assert_int_equal(ft_crc32c(0, text, sizeof text - 1), 0xa4e2a4cf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_R5_indices_beyond_32_bits),
        cmocka_unit_test(test_RT05_rectangles),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_cuts_cover),
        cmocka_unit_test(test_logical_hash),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_self_crc_example),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
