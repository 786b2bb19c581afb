#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/token/tok.h"

void ft_text_fini(struct ft_text *t)
{
    ft_buf_fini(&t->own);
    free(t->from);
    free(t->to);
    memset(t, 0, sizeof *t);
}

void ft_text_borrow(struct ft_text *t, const char *s, size_t n, uint32_t base)
{
    t->s = s, t->n = n, t->base = base, t->aligned = false;
}

void ft_text_clear(struct ft_text *t)
{
    ft_buf_clear(&t->own);
    t->s = "", t->n = 0, t->aligned = true;
}

static void reserve(struct ft_text *t, size_t more)
{
    ft_grow(&t->from, &t->from_cap, t->n + more, sizeof *t->from);
    ft_grow(&t->to, &t->to_cap, t->n + more, sizeof *t->to);
}

void ft_text_put(struct ft_text *t, const char *s, size_t n, uint32_t from, uint32_t to)
{
    if (!n) return;
    reserve(t, n);
    for (size_t i = 0; i < n; i++) t->from[t->n + i] = from, t->to[t->n + i] = to;
    ft_buf_add(&t->own, s, n);
    t->s = t->own.data, t->n += n;
}

void ft_text_copy(struct ft_text *t, const struct ft_text *src, size_t a, size_t b)
{
    if (a >= b) return;
    reserve(t, b - a);
    for (size_t i = a; i < b; i++) t->from[t->n + i - a] = ft_text_from(src, i), t->to[t->n + i - a] = ft_text_to(src, i);
    ft_buf_add(&t->own, src->s + a, b - a);
    t->s = t->own.data, t->n += b - a;
}
