/* The files that a list of paths and shell globs names: in the order of the list, the matches of one glob sorted bytewise. */
#ifndef FT_RUNTIME_DATA_FILES_H
#define FT_RUNTIME_DATA_FILES_H

#include "base/field.h"

struct ft_files {
    char **v;
    size_t n, cap;
};
/* key stands in messages ("train"). A pattern without a match, a missing file and a file named twice are errors. */
enum ft_code ft_files_find(const struct ft_list *list, const char *key, struct ft_files *out, struct ft_err *err) FT_MUST_CHECK;
void ft_files_fini(struct ft_files *f);

#endif
