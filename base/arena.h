/* Phase memory: everything allocated from an arena dies with it. Never freed singly.
 * Small allocations never fail: out of memory ends the process in ft_die_nomem() (the one place). Not thread safe. */
#ifndef FT_BASE_ARENA_H
#define FT_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

struct ft_arena;

struct ft_arena *ft_arena_create(void);
void ft_arena_destroy(struct ft_arena *a);                       /* NULL is fine */
void *ft_arena_alloc(struct ft_arena *a, size_t bytes);          /* zeroed, aligned to 16 */
void *ft_arena_array(struct ft_arena *a, size_t n, size_t size); /* n*size, overflow checked, zeroed */
char *ft_arena_strdup(struct ft_arena *a, const char *s);
char *ft_arena_strndup(struct ft_arena *a, const char *s, size_t n); /* copies n bytes (NULs too) and adds a NUL */
char *ft_arena_printf(struct ft_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char *ft_arena_vprintf(struct ft_arena *a, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

/* Heap memory that never returns NULL (freed with free()); n*size is overflow checked. */
void *ft_xcalloc(size_t n, size_t size);
void *ft_xrealloc(void *p, size_t n, size_t size);
char *ft_xstrdup(const char *s);
_Noreturn void ft_die_nomem(size_t bytes);

/* Grows a heap array *p (element size) so that it holds at least need elements; *cap is updated. Amortised O(1). */
void ft_grow(void *p, size_t *cap, size_t need, size_t size);

#endif
