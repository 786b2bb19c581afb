/* A list of everything that is wrong, for commands that report ALL problems in one run (ini, check, data). */
#ifndef FT_BASE_FAULT_H
#define FT_BASE_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/err.h"

/* A place in a file. line and column count from 1 (column in bytes); 0: not known. file "--set" for the command line. */
struct ft_source {
    const char *file;
    int line, column;
};

enum ft_severity { FT_SEV_ERROR, FT_SEV_WARNING, FT_SEV_NOTE };

struct ft_fault {
    enum ft_severity severity;
    struct ft_source at;
    const char *section, *key; /* NULL: none */
    const char *text;          /* what is wrong, with the value */
    const char *fix;           /* NULL: none that is certain */
    unsigned order;            /* file order, then arrival: set by ft_faults_add */
};

/* {.arena = a} is an empty list; everything lives in the arena. */
struct ft_faults {
    struct ft_arena *arena;
    struct ft_fault *v;
    size_t n, cap;
    size_t n_errors, n_warnings;
};

/* Copies all texts. Returns the stored fault (valid until the next add), so that .fix can be set. */
struct ft_fault *ft_faults_add(struct ft_faults *f, enum ft_severity sev, struct ft_source at, const char *section, const char *key,
                               const char *fmt, ...) FT_PRINTF(6, 7);
void ft_fault_fix(struct ft_faults *f, const char *fmt, ...) FT_PRINTF(2, 3); /* remedy of the last one added */
/* By file (first mention first), line, column, arrival. Exact repeats are removed. */
void ft_faults_sort(struct ft_faults *f);
/* "PROG: error: TEXT\n  where: FILE:LINE:COL, [SECTION] KEY\n  fix:   …\n" each; warnings and notes likewise. */
void ft_faults_print(FILE *out, const char *prog, const struct ft_faults *f);

#endif
