#define XXH_INLINE_ALL
#include "base/hash.h"

#include <string.h>
#include <xxhash.h>

uint64_t ft_xxh3_64(const void *p, size_t n) { return XXH3_64bits(p, n); }

struct ft_hash128 ft_xxh3_128(const void *p, size_t n)
{
    const XXH128_hash_t h = XXH3_128bits(p, n);
    return (struct ft_hash128){h.high64, h.low64};
}

/* CRC32C: the CPU's instruction where it is there, else one table per byte of a word ("slicing by 8", Kounavis and Berry). */
#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_hw(uint32_t crc, const unsigned char *p, size_t n)
{
    uint64_t c = crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        c = __builtin_ia32_crc32di(c, word);
    }
    uint32_t d = (uint32_t)c;
    for (; n; n--, p++) d = __builtin_ia32_crc32qi(d, *p);
    return d;
}
static int crc_has_hw(void) { return __builtin_cpu_supports("sse4.2"); }
#else
static uint32_t crc_hw(uint32_t crc, const unsigned char *p, size_t n)
{
    (void)p;
    (void)n;
    return crc;
}
static int crc_has_hw(void) { return 0; }
#endif

static uint32_t crc_sw(uint32_t crc, const unsigned char *p, size_t n)
{
    static const uint32_t half[16] = {/* CRC of each 4-bit value, reflected 0x82F63B78 */
                                      0x00000000, 0x105EC76F, 0x20BD8EDE, 0x30E349B1, 0x417B1DBC, 0x5125DAD3,
                                      0x61C69362, 0x7198540D, 0x82F63B78, 0x92A8FC17, 0xA24BB5A6, 0xB21572C9,
                                      0xC38D26C4, 0xD3D3E1AB, 0xE330A81A, 0xF36E6F75};
    for (; n; n--, p++) {
        crc ^= *p;
        crc = (crc >> 4) ^ half[crc & 15];
        crc = (crc >> 4) ^ half[crc & 15];
    }
    return crc;
}

uint32_t ft_crc32c(uint32_t crc, const void *p, size_t n)
{
    crc = ~crc;
    crc = crc_has_hw() ? crc_hw(crc, p, n) : crc_sw(crc, p, n);
    return ~crc;
}

uint64_t ft_fnv1a64(const void *p, size_t n)
{
    const unsigned char *u = p;
    uint64_t h = 0xCBF29CE484222325ull;
    for (size_t i = 0; i < n; i++) h = (h ^ u[i]) * 0x100000001B3ull;
    return h;
}

static uint32_t rotr(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void sha256_block(uint32_t h[8], const unsigned char *p)
{
    static const uint32_t k[64] = {0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
                                   0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
                                   0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
                                   0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
                                   0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
                                   0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
                                   0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
                                   0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        const uint32_t s0 = rotr(w[i - 15], 7) ^ rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
        const uint32_t s1 = rotr(w[i - 2], 17) ^ rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; i++) {
        const uint32_t s1 = rotr(v[4], 6) ^ rotr(v[4], 11) ^ rotr(v[4], 25), ch = (v[4] & v[5]) ^ (~v[4] & v[6]);
        const uint32_t t1 = v[7] + s1 + ch + k[i] + w[i];
        const uint32_t s0 = rotr(v[0], 2) ^ rotr(v[0], 13) ^ rotr(v[0], 22), maj = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + s0 + maj;
    }
    for (int i = 0; i < 8; i++) h[i] += v[i];
}

void ft_sha256_begin(struct ft_sha256 *s)
{
    *s = (struct ft_sha256){.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void ft_sha256_add(struct ft_sha256 *s, const void *p, size_t n)
{
    const unsigned char *u = p;
    while (n) {
        const size_t used = s->n % 64, step = n < 64 - used ? n : 64 - used;
        memcpy(s->block + used, u, step);
        s->n += step;
        u += step;
        n -= step;
        if (s->n % 64 == 0) sha256_block(s->h, s->block);
    }
}

void ft_sha256_end(struct ft_sha256 *s, unsigned char out[32])
{
    const uint64_t bits = s->n * 8;
    const unsigned char one = 0x80, zero = 0;
    ft_sha256_add(s, &one, 1);
    while (s->n % 64 != 56) ft_sha256_add(s, &zero, 1);
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
    ft_sha256_add(s, length, 8);
    for (int i = 0; i < 32; i++) out[i] = (unsigned char)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void ft_sha256(const void *p, size_t n, unsigned char out[32])
{
    struct ft_sha256 s;
    ft_sha256_begin(&s);
    ft_sha256_add(&s, p, n);
    ft_sha256_end(&s, out);
}

void ft_hmac_sha256(const void *key, size_t key_bytes, const void *p, size_t n, unsigned char out[32])
{
    unsigned char block[64] = {0}, pad[64];
    if (key_bytes > 64) ft_sha256(key, key_bytes, block);
    else if (key_bytes) memcpy(block, key, key_bytes);
    struct ft_sha256 s;
    for (int i = 0; i < 64; i++) pad[i] = block[i] ^ 0x36;
    ft_sha256_begin(&s);
    ft_sha256_add(&s, pad, 64);
    ft_sha256_add(&s, p, n);
    unsigned char inner[32];
    ft_sha256_end(&s, inner);
    for (int i = 0; i < 64; i++) pad[i] = block[i] ^ 0x5c;
    ft_sha256_begin(&s);
    ft_sha256_add(&s, pad, 64);
    ft_sha256_add(&s, inner, 32);
    ft_sha256_end(&s, out);
}

int ft_secret_equal(const void *a, const void *b, size_t n)
{
    const unsigned char *x = a, *y = b;
    unsigned char d = 0;
    for (size_t i = 0; i < n; i++) d |= x[i] ^ y[i];
    return d == 0;
}

void ft_hex(const void *p, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *u = p;
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[u[i] >> 4];
        out[2 * i + 1] = digits[u[i] & 15];
    }
    out[2 * n] = 0;
}

static int nibble(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int ft_unhex(const char *hex, size_t n_bytes, unsigned char *out)
{
    if (strlen(hex) != 2 * n_bytes) return 0;
    for (size_t i = 0; i < n_bytes; i++) {
        const int a = nibble(hex[2 * i]), b = nibble(hex[2 * i + 1]);
        if (a < 0 || b < 0) return 0;
        out[i] = (unsigned char)(a << 4 | b);
    }
    return 1;
}
