/* Checksums and hashes: xxh3 (keys), CRC32C (files), SHA-256 and HMAC (secrets, builds), the logical tensor hash.
 * SHA-256, HMAC, CRC32C, FNV and the logical hash are our own (the agent links nothing but libc); xxhash is used by its header. */
#ifndef FT_BASE_HASH_H
#define FT_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t ft_xxh3_64(const void *p, size_t n);
struct ft_hash128 {
    uint64_t hi, lo;
};
struct ft_hash128 ft_xxh3_128(const void *p, size_t n);

/* CRC32C (Castagnoli, reflected 0x82F63B78, initial and final XOR ~0). crc = 0 at the start; feed pieces in order. */
uint32_t ft_crc32c(uint32_t crc, const void *p, size_t n);

uint64_t ft_fnv1a64(const void *p, size_t n);

/* FIPS 180-4 */
struct ft_sha256 {
    uint32_t h[8];
    uint64_t n;
    unsigned char block[64];
};
void ft_sha256_begin(struct ft_sha256 *s);
void ft_sha256_add(struct ft_sha256 *s, const void *p, size_t n);
void ft_sha256_end(struct ft_sha256 *s, unsigned char out[32]);
void ft_sha256(const void *p, size_t n, unsigned char out[32]);
/* RFC 2104 */
void ft_hmac_sha256(const void *key, size_t key_bytes, const void *p, size_t n, unsigned char out[32]);
/* Equal in constant time. */
int ft_secret_equal(const void *a, const void *b, size_t n);

void ft_hex(const void *p, size_t n, char *out_2n_plus_1);         /* lower case, NUL terminated */
int ft_unhex(const char *hex, size_t n_bytes, unsigned char *out); /* 1: exactly 2*n_bytes hex digits; 0: not */

/* Logical hash H (checkpoint format, section 5): sum over elements of mix64(bits ^ (i+1)*0x9E3779B97F4A7C15), mod 2^64;
 * first: row-major index in the logical tensor of element 0 of p, n consecutive elements of width bytes (1, 2 or 4). */
uint64_t ft_logical_hash(const void *p, size_t n, int width, uint64_t first);

#endif
