#include "base/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 64 * 1024, ALIGN = 16 };

struct block {
    struct block *next;
    size_t used, cap;
    _Alignas(16) unsigned char data[];
};

struct ft_arena {
    struct block *head; /* the block that is being filled */
};

void ft_die_nomem(size_t bytes)
{
    char text[96];
    const int n = snprintf(text, sizeof text, "out of memory: %zu bytes for bookkeeping were refused\n", bytes);
    if (write(2, text, (size_t)n) < 0) abort();
    abort();
}

static size_t product(size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) ft_die_nomem(SIZE_MAX);
    return bytes;
}

struct ft_arena *ft_arena_create(void) { return ft_xcalloc(1, sizeof(struct ft_arena)); }

void ft_arena_destroy(struct ft_arena *a)
{
    if (!a) return;
    for (struct block *b = a->head, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(a);
}

void *ft_arena_alloc(struct ft_arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX - BLOCK) ft_die_nomem(bytes);
    const size_t need = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    struct block *b = a->head;
    if (!b || b->cap - b->used < need) {
        const size_t cap = need > BLOCK / 4 ? need : BLOCK;
        struct block *fresh = calloc(1, sizeof *fresh + cap);
        if (!fresh) ft_die_nomem(cap);
        fresh->cap = cap;
        if (b && cap == need && b->cap - b->used > 0) { /* a big one goes behind the block that still has room */
            fresh->next = b->next;
            b->next = fresh;
        } else {
            fresh->next = b;
            a->head = fresh;
        }
        b = fresh;
    }
    void *p = b->data + b->used;
    b->used += need;
    return p;
}

void *ft_arena_array(struct ft_arena *a, size_t n, size_t size) { return ft_arena_alloc(a, product(n, size)); }

char *ft_arena_strndup(struct ft_arena *a, const char *s, size_t n)
{
    char *p = ft_arena_alloc(a, n + 1);
    if (n) memcpy(p, s, n);
    return p;
}

char *ft_arena_strdup(struct ft_arena *a, const char *s) { return ft_arena_strndup(a, s, strlen(s)); }

char *ft_arena_vprintf(struct ft_arena *a, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    const int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    char *p = ft_arena_alloc(a, (size_t)(n < 0 ? 0 : n) + 1);
    if (n > 0) vsnprintf(p, (size_t)n + 1, fmt, ap);
    return p;
}

char *ft_arena_printf(struct ft_arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *p = ft_arena_vprintf(a, fmt, ap);
    va_end(ap);
    return p;
}

void *ft_xcalloc(size_t n, size_t size)
{
    const size_t bytes = product(n, size);
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p) ft_die_nomem(bytes);
    return p;
}

void *ft_xrealloc(void *p, size_t n, size_t size)
{
    const size_t bytes = product(n, size);
    void *q = realloc(p, bytes ? bytes : 1);
    if (!q) ft_die_nomem(bytes);
    return q;
}

char *ft_xstrdup(const char *s)
{
    const size_t n = strlen(s) + 1;
    return memcpy(ft_xcalloc(n, 1), s, n);
}

void ft_grow(void *p, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap) return;
    size_t fresh = *cap ? *cap : 8;
    while (fresh < need) fresh = fresh > SIZE_MAX / 2 ? need : fresh * 2;
    void *old;
    memcpy(&old, p, sizeof old); /* p is the address of a pointer of any type */
    old = ft_xrealloc(old, fresh, size);
    memcpy(p, &old, sizeof old);
    *cap = fresh;
}
