/* Published vectors: FIPS 180-4, RFC 4231, RFC 3720 (CRC32C), SplitMix64, Philox (Random123 kat_vectors), checkpoint format. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits/dtype.h"
#include "base/bits/philox.h"
#include "base/hash.h"

static void hex_is(const void *p, size_t n, const char *want)
{
    char text[129];
    ft_hex(p, n, text);
    assert_string_equal(text, want);
}

static void sha256(void **state)
{
    (void)state;
    unsigned char d[32];
    ft_sha256("", 0, d);
    hex_is(d, 32, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    ft_sha256("abc", 3, d);
    hex_is(d, 32, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    struct ft_sha256 s;
    ft_sha256_begin(&s);
    for (int i = 0; i < 1000000; i++) ft_sha256_add(&s, "a", 1);
    ft_sha256_end(&s, d);
    hex_is(d, 32, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    ft_hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, d);
    hex_is(d, 32, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    unsigned char key[131], back[32];
    memset(key, 0xaa, sizeof key);
    ft_hmac_sha256(key, sizeof key, "Test Using Larger Than Block-Size Key - Hash Key First", 54, d);
    hex_is(d, 32, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    assert_true(ft_unhex("60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54", 32, back));
    assert_true(ft_secret_equal(back, d, 32));
    back[31] ^= 1;
    assert_false(ft_secret_equal(back, d, 32));
    assert_false(ft_unhex("0g", 1, back));
    assert_false(ft_unhex("000", 1, back));
}

static void crc32c(void **state)
{
    (void)state;
    assert_int_equal(ft_crc32c(0, "123456789", 9), 0xe3069283u);
    const float six[6] = {1, 2, 3, 4, 5, 6};
    assert_int_equal(ft_crc32c(0, six, sizeof six), 0x805104b9u);
    assert_int_equal(ft_crc32c(ft_crc32c(0, "1234", 4), "56789", 5), 0xe3069283u);
    const char *text = "{\"format\":\"ftckpt\",\"version\":1,\"self_crc32c\":\"";
    assert_int_equal(ft_crc32c(0, text, strlen(text)), 0xa4e2a4cfu);
}

static void logical_hash(void **state)
{
    (void)state;
    const float zero = 0, six[6] = {1, 2, 3, 4, 5, 6}, swapped[6] = {4, 5, 6, 1, 2, 3};
    assert_true(ft_logical_hash(&zero, 1, 4, 0) == 0xe220a8397b1dcdafull);
    assert_true(ft_logical_hash(six, 6, 4, 0) == 0x0c4ef18d86200144ull);
    assert_true(ft_logical_hash(six, 3, 4, 0) == 0xa205a39bc348a9b3ull);
    assert_true(ft_logical_hash(six + 3, 3, 4, 3) == 0x6a494df1c2d75791ull);
    assert_true(ft_logical_hash(swapped, 6, 4, 0) == 0xa738dc93107e4638ull);
    uint16_t half[6];
    for (int i = 0; i < 6; i++) half[i] = ft_f32_to_bf16(six[i]);
    assert_true(ft_logical_hash(half, 6, 2, 0) == 0x4e2e90f76fb8ebc3ull);
    /* R5: runs of any length, from any address and index, are the sum of their elements */
    unsigned char bytes[4 * 40 + 3];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 37 + 11);
    for (int width = 1; width <= 4; width *= 2)
        for (size_t n = 0; n <= 40; n++) {
            const unsigned char *p = bytes + n % 4;
            uint64_t sum = 0;
            for (size_t i = 0; i < n; i++) sum += ft_logical_hash(p + i * (size_t)width, 1, width, 8405513479u + i);
            assert_true(ft_logical_hash(p, n, width, 8405513479u) == sum);
        }
    const uint64_t h = 0x0c4ef18d86200144ull;
    assert_true(ft_mix64(h ^ ft_fnv1a64("a", 1)) == 0x92e35313ca8c6908ull);
}

static void philox(void **state)
{
    (void)state;
    const struct ft_philox_word4 a = ft_philox4x32(0, 0, 0, 0, 0, 0);
    const uint32_t wa[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    assert_memory_equal(a.v, wa, 16);
    const struct ft_philox_word4 b = ft_philox4x32(0xa4093822, 0x299f31d0, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344);
    const uint32_t wb[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
    assert_memory_equal(b.v, wb, 16);
    const uint64_t key = ft_philox_key(42, 3, 0);
    assert_true(key == 0xc9fd83c90b9f8d18ull);
    const uint32_t words[8] = {0x31974210, 0x6e80fb23, 0x647ace91, 0xe4f1bdac, 0x4079e7fd, 0xeb414bab, 0x2906891d, 0xfad11b77};
    for (unsigned e = 0; e < 8; e++) assert_int_equal(ft_philox_word(key, 16, e), words[e]);
    for (unsigned e = 0; e < 32; e++) assert_int_equal(ft_philox_word(key, 16, e) < 429496729u, e == 13 || e == 22 || e == 30);
}

static void half_types(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) { /* every value survives the way through fp32 */
        const bool nan16 = (h & 0x7FFF) > 0x7C00, nanb = (h & 0x7FFF) > 0x7F80;
        if (!nan16) assert_int_equal(ft_f32_to_f16(ft_f16_to_f32((uint16_t)h)), h);
        if (!nanb) assert_int_equal(ft_f32_to_bf16(ft_bf16_to_f32((uint16_t)h)), h);
    }
    assert_int_equal(ft_f32_to_f16(65519.0f), 0x7BFF);
    assert_int_equal(ft_f32_to_f16(65520.0f), 0x7C00);
    assert_int_equal(ft_f32_to_f16(ft_f32_from_bits(0x33000000)), 0); /* 2^-25 ties to even */
    assert_int_equal(ft_f32_to_f16(ft_f32_from_bits(0x33000001)), 1);
    assert_int_equal(ft_f32_to_bf16(ft_f32_from_bits(0x3F808000)), 0x3F80); /* ties to even */
    assert_int_equal(ft_f32_to_bf16(ft_f32_from_bits(0x3F818000)), 0x3F82);
    assert_int_equal(ft_f32_to_bf16(ft_f32_from_bits(0x7F800001)) & 0x7FFF, 0x7FC0);
}

static void xxh3(void **state)
{
    (void)state;
    assert_true(ft_xxh3_64("", 0) == 0x2d06800538d394c2ull);
    const struct ft_hash128 h = ft_xxh3_128("", 0);
    assert_true(h.hi == 0x99aa06d3014798d8ull && h.lo == 0x6001c324468d497full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sha256), cmocka_unit_test(crc32c),     cmocka_unit_test(logical_hash),
                                       cmocka_unit_test(philox), cmocka_unit_test(half_types), cmocka_unit_test(xxh3)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
