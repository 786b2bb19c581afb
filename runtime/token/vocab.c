#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/hash.h"
#include "runtime/token/tok.h"

void ft_vocab_fini(struct ft_vocab *v)
{
    ft_buf_fini(&v->blob);
    free(v->by_id);
    free(v->slot);
    memset(v, 0, sizeof *v);
}

static size_t slot_of(const struct ft_vocab *v, const char *s, size_t n)
{
    size_t i = (size_t)ft_xxh3_64(s, n) & (v->cap - 1);
    while (v->slot[i]) {
        const struct ft_vocab_at *a = &v->by_id[v->slot[i] - 1];
        if (a->n == n && !memcmp(v->blob.data + a->at, s, n)) break;
        i = (i + 1) & (v->cap - 1);
    }
    return i;
}

static void grow(struct ft_vocab *v)
{
    struct ft_vocab big = *v;
    big.cap = v->cap ? 2 * v->cap : 256;
    big.slot = ft_xcalloc(big.cap, sizeof *big.slot);
    for (size_t i = 0; i < v->cap; i++) {
        if (!v->slot[i]) continue;
        const struct ft_vocab_at *a = &v->by_id[v->slot[i] - 1];
        big.slot[slot_of(&big, v->blob.data + a->at, a->n)] = v->slot[i];
    }
    free(v->slot);
    *v = big;
}

void ft_vocab_add(struct ft_vocab *v, const char *s, size_t n, int32_t id)
{
    FT_ASSERT(id >= 0 && id <= FT_MAX_ID);
    if (2 * (v->n + 1) > v->cap) grow(v);
    if ((size_t)id >= v->n_ids) {
        ft_grow(&v->by_id, &v->ids_cap, (size_t)id + 1, sizeof *v->by_id);
        for (; v->n_ids <= (size_t)id; v->n_ids++) v->by_id[v->n_ids] = (struct ft_vocab_at){0, UINT32_MAX};
    }
    struct ft_vocab_at *a = &v->by_id[id];
    if (a->n == n && (!n || !memcmp(v->blob.data + a->at, s, n))) return;
    const size_t i = slot_of(v, s, n);
    if (a->n == UINT32_MAX) {
        *a = (struct ft_vocab_at){(uint32_t)v->blob.n, (uint32_t)n};
        ft_buf_add(&v->blob, s, n);
    } else {
        return; /* two strings with one id: the first names it, and nothing else can reach it */
    }
    if (!v->slot[i]) v->n++;
    v->slot[i] = (uint32_t)id + 1;
}

int32_t ft_vocab_find(const struct ft_vocab *v, const char *s, size_t n)
{
    if (!v->cap) return -1;
    const size_t i = slot_of(v, s, n);
    return v->slot[i] ? (int32_t)v->slot[i] - 1 : -1;
}

const char *ft_vocab_text(const struct ft_vocab *v, int32_t id, size_t *n)
{
    if (id < 0 || (size_t)id >= v->n_ids || v->by_id[id].n == UINT32_MAX) return NULL;
    *n = v->by_id[id].n;
    return v->blob.data ? v->blob.data + v->by_id[id].at : "";
}

/* Printable Latin-1 stands for itself; the other 68 bytes become U+0100, U+0101, … in order (GPT-2's encoder). */
static bool stands_for_itself(unsigned b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255); }

uint32_t ft_byte_to_char(unsigned char byte)
{
    if (stands_for_itself(byte)) return byte;
    uint32_t k = 0;
    for (unsigned b = 0; b < byte; b++) k += !stands_for_itself(b);
    return 256 + k;
}

int ft_char_to_byte(uint32_t cp)
{
    if (cp < 256) return stands_for_itself(cp) ? (int)cp : -1;
    if (cp >= 256 + 68) return -1;
    const uint32_t k = cp - 256; /* 0..32 -> 0..32, 33..66 -> 127..160, 67 -> 173 */
    return k <= 32 ? (int)k : k <= 66 ? (int)(127 + k - 33) : 173;
}
