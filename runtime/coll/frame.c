#include "runtime/coll/frame.h"

#include <string.h>

#include "base/arena.h"

static void put(unsigned char *p, uint64_t x, int n)
{
    for (int i = 0; i < n; i++) p[i] = (unsigned char)(x >> (8 * i));
}

static uint64_t get(const unsigned char *p, int n)
{
    uint64_t x = 0;
    for (int i = 0; i < n; i++) x |= (uint64_t)p[i] << (8 * i);
    return x;
}

void ft_frame_u32(struct ft_buf *b, uint32_t x)
{
    unsigned char c[4];
    put(c, x, 4);
    ft_buf_add(b, c, 4);
}

void ft_frame_u64(struct ft_buf *b, uint64_t x)
{
    unsigned char c[8];
    put(c, x, 8);
    ft_buf_add(b, c, 8);
}

void ft_frame_bytes(struct ft_buf *b, const void *p, size_t n)
{
    ft_frame_u32(b, (uint32_t)n);
    ft_buf_add(b, p, n);
}

void ft_frame_text(struct ft_buf *b, const char *s) { ft_frame_bytes(b, s ? s : "", s ? strlen(s) : 0); }

size_t ft_frame_begin(struct ft_buf *b, enum ft_frame type)
{
    const size_t at = b->n;
    ft_frame_u32(b, 0);
    ft_frame_u32(b, (uint32_t)type);
    return at;
}

void ft_frame_end(struct ft_buf *b, size_t begin)
{
    unsigned char c[4];
    put(c, b->n - begin - FT_FRAME_HEAD, 4);
    memcpy(b->data + begin, c, 4);
}

uint32_t ft_frame_get_u32(struct ft_frame_reader *r)
{
    if (r->n < 4) {
        r->bad = true;
        r->n = 0;
        return 0;
    }
    const uint32_t x = (uint32_t)get(r->p, 4);
    r->p += 4;
    r->n -= 4;
    return x;
}

uint64_t ft_frame_get_u64(struct ft_frame_reader *r)
{
    const uint64_t lo = ft_frame_get_u32(r), hi = ft_frame_get_u32(r);
    return lo | hi << 32;
}

const unsigned char *ft_frame_get_bytes(struct ft_frame_reader *r, size_t *n)
{
    static const unsigned char nothing[1] = {0};
    const uint32_t len = ft_frame_get_u32(r);
    if (r->bad || len > r->n) {
        r->bad = true;
        *n = 0;
        return nothing;
    }
    const unsigned char *p = r->p;
    r->p += len;
    r->n -= len;
    *n = len;
    return p;
}

char *ft_frame_get_text(struct ft_frame_reader *r)
{
    size_t n;
    const unsigned char *p = ft_frame_get_bytes(r, &n);
    char *s = ft_xcalloc(n + 1, 1);
    memcpy(s, p, n);
    return s;
}

int ft_frame_parse(const struct ft_buf *buf, enum ft_frame *type, struct ft_frame_reader *r, size_t *whole)
{
    if (buf->n < FT_FRAME_HEAD) return 0;
    const unsigned char *p = (const unsigned char *)buf->data;
    const uint64_t n = get(p, 4);
    if (n > FT_FRAME_MAX) return -1;
    if (buf->n < FT_FRAME_HEAD + n) return 0;
    *type = (enum ft_frame)p[4];
    *r = (struct ft_frame_reader){.p = p + FT_FRAME_HEAD, .n = (size_t)n};
    *whole = FT_FRAME_HEAD + (size_t)n;
    return 1;
}
