#include "runtime/coll/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

struct ft_name *ft_names_find(const struct ft_names *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++)
        if (!strcmp(t->v[i].name, name)) return &t->v[i];
    return NULL;
}

struct ft_name *ft_names_make(struct ft_names *t, const char *name)
{
    struct ft_name *e = ft_names_find(t, name);
    if (e) return e;
    ft_grow(&t->v, &t->cap, t->n + 1, sizeof *t->v);
    e = &t->v[t->n++];
    *e = (struct ft_name){.name = ft_xstrdup(name)};
    return e;
}

void ft_names_fini(struct ft_names *t)
{
    for (size_t i = 0; i < t->n; i++) {
        free(t->v[i].name);
        ft_buf_fini(&t->v[i].value);
    }
    free(t->v);
    *t = (struct ft_names){0};
}
