/* Command lines from option tables: parsing, --help, man pages and shell completion come from the same rows.
 *
 *   struct ft_argv a = ft_argv_begin(cmd, argc, argv);
 *   for (int id; (id = ft_argv_next(&a, &value, err)) != FT_ARG_END;) switch (id) { case FT_ARG_WORD: …; case FT_ARG_BAD: return 2; … }
 *   a.rest, a.n_rest: everything behind "--" (when the command takes a program)
 */
#ifndef FT_BASE_ARGV_H
#define FT_BASE_ARGV_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

enum { FT_ARG_END = -1, FT_ARG_BAD = -2, FT_ARG_WORD = 0, FT_ARG_HELP = -3 };

struct ft_option {
    const char *name; /* "set" for --set */
    char letter;      /* 'n' for -n; 0: none */
    const char *arg;  /* "SECTION.KEY=VALUE"; NULL: a flag */
    const char *help; /* one line */
    int id;           /* > 0, what ft_argv_next returns */
};

struct ft_command {
    const char *name;    /* "run" */
    const char *usage;   /* "[JOB.ini…] [-- PROGRAM ARGS…]" */
    const char *summary; /* one line */
    const char *text;    /* paragraphs for the man page; NULL */
    const struct ft_option *options;
    size_t n_options;
    bool takes_rest; /* "--" begins a program; without it "--" only ends options */
    int (*main)(const struct ft_command *self, int argc, char **argv); /* argv[0] is the command's own name */
};

struct ft_argv {
    const struct ft_command *cmd;
    char **argv;
    int argc, i;
    const char *cluster; /* rest of -abc */
    char **rest;         /* behind "--"; NULL when there was none */
    int n_rest;
    bool only_words;
};

struct ft_argv ft_argv_begin(const struct ft_command *cmd, int argc, char **argv);
/* Next option's id (value set when it takes one), FT_ARG_WORD (value = the word), FT_ARG_HELP (--help, -h), FT_ARG_END, or
 * FT_ARG_BAD with err filled (unknown option with the nearest name, missing or surplus value). --x=v, --x v, -xv, -x v. */
int ft_argv_next(struct ft_argv *a, const char **value, struct ft_err *err);

void ft_command_help(const char *prog, const struct ft_command *c, struct ft_buf *out); /* text for --help */
void ft_command_man(const char *prog, const struct ft_command *c, struct ft_buf *out);  /* a .SH/.TP part of a man page */
/* Text for roff: what would be a request or an escape is made plain. */
void ft_roff(struct ft_buf *out, const char *s);

#endif
