/* Frames between a rank and the store: u32 payload bytes, u8 type, 3 zero bytes, payload; little-endian. Texts and values are
 * u32 length + bytes. A reader never runs over the end: it sets bad and gives zeros. */
#ifndef FT_RUNTIME_COLL_FRAME_H
#define FT_RUNTIME_COLL_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum { FT_FRAME_HEAD = 8, FT_FRAME_MAX = 64 << 20 };

enum ft_frame {
    /* rank -> store */
    FT_FRAME_JOIN = 1, /* rank, world, node rank, pid, host, boot id, text */
    FT_FRAME_SET,      /* name, value */
    FT_FRAME_GET,      /* request, name: answered when the name is there */
    FT_FRAME_ADD,      /* request, name, u64 delta: answered with the new u64 */
    FT_FRAME_BYE,      /* orderly end; answered with DONE */
    FT_FRAME_ABORT,    /* why; answered with DONE when all peers were told */
    /* store -> rank */
    FT_FRAME_WELCOME, /* world, then per rank: node rank, host */
    FT_FRAME_REFUSE,  /* code, text, fix */
    FT_FRAME_VALUE,   /* request, value */
    FT_FRAME_GONE,    /* rank, enum ft_gone, cause */
    FT_FRAME_DONE
};

struct ft_frame_reader {
    const unsigned char *p;
    size_t n;
    bool bad;
};

void ft_frame_u32(struct ft_buf *b, uint32_t x);
void ft_frame_u64(struct ft_buf *b, uint64_t x);
void ft_frame_bytes(struct ft_buf *b, const void *p, size_t n);
void ft_frame_text(struct ft_buf *b, const char *s); /* NULL: empty */

/* A frame is begun, its payload appended, then ended: the length is filled in. Returns where it began. */
size_t ft_frame_begin(struct ft_buf *b, enum ft_frame type);
void ft_frame_end(struct ft_buf *b, size_t begin);

uint32_t ft_frame_get_u32(struct ft_frame_reader *r);
uint64_t ft_frame_get_u64(struct ft_frame_reader *r);
const unsigned char *ft_frame_get_bytes(struct ft_frame_reader *r, size_t *n);
char *ft_frame_get_text(struct ft_frame_reader *r); /* malloc'ed copy, never NULL */

/* A whole frame at the front of buf? 1: yes (type and reader are set, *whole is its length with the head), 0: not yet,
 * -1: broken (too long). */
int ft_frame_parse(const struct ft_buf *buf, enum ft_frame *type, struct ft_frame_reader *r, size_t *whole);

#endif
