/* A part of a program that needs a library which not every node has: a shared object of our own, opened only when it is chosen. It
 * exports one function, `const void *NAME(void)`, that gives a constant table beginning with struct ft_plugin_head; everything else
 * in it is hidden.
 *
 *  1. ft_plugin_open(): looks in DIR/../FT_PLUGIN_DIR, DIR being the folder of the running program: so it is in a build tree and
 *     where it is installed
 *  2. the table is valid until the process ends: a plugin is never closed (MPI and CUDA cannot be) */
#ifndef FT_BASE_PLUGIN_H
#define FT_BASE_PLUGIN_H

#include <stdint.h>

#include "base/err.h"

struct ft_plugin_head {
    uint32_t abi;        /* number of the table's layout, raised with every change of it */
    uint32_t bytes;      /* of the whole table */
    const char *version; /* FT_VERSION of the build that made it */
};

/* Where the names of a plugin's libraries are looked up from: GLOBAL for those whose own plugins want their symbols. */
enum ft_plugin_scope { FT_PLUGIN_LOCAL, FT_PLUGIN_GLOBAL };

/* file: "libft_mpi.so". FT_UNSUPPORTED: it is not there, a library that it needs is not, or it is of another build. */
enum ft_code ft_plugin_open(const char *file, const char *function, const struct ft_plugin_head *want, enum ft_plugin_scope scope,
                            const void **table, struct ft_err *err) FT_MUST_CHECK;

#endif
