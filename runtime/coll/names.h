/* Names -> bytes: the table of the store. Pointers to entries are valid until the next ft_names_make(). */
#ifndef FT_RUNTIME_COLL_NAMES_H
#define FT_RUNTIME_COLL_NAMES_H

#include "base/str.h"

struct ft_name {
    char *name;
    struct ft_buf value;
};
struct ft_names { /* {0} is empty */
    struct ft_name *v;
    size_t n, cap;
};

struct ft_name *ft_names_find(const struct ft_names *t, const char *name); /* NULL: not there */
struct ft_name *ft_names_make(struct ft_names *t, const char *name);       /* there, or made with an empty value */
void ft_names_fini(struct ft_names *t);

#endif
