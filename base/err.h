/* Errors: one value on the caller's stack, decided once where the fact is known, printed once in main().
 *
 *   enum ft_code f(…, struct ft_err *err) {
 *       if (open fails) return ft_fail(err, FT_IO, "cannot open '%s': %s", path, strerror(errno));
 *       if (g(err)) return ft_wrap(err, "reading the model folder");     // on the way up
 *   }
 *
 * Nothing here allocates. Texts that do not fit are cut and end in "...". All functions accept err == NULL. */
#ifndef FT_BASE_ERR_H
#define FT_BASE_ERR_H

#include <stdio.h>

/* What is dead and who must act. */
enum ft_code {
    FT_OK = 0,
    FT_USAGE,       /* the command line is wrong: the user, exit 2 */
    FT_CONFIG,      /* a file or key is wrong: the user, exit 2 */
    FT_IO,          /* a file system or pipe failed */
    FT_NET,         /* a connection failed */
    FT_AUTH,        /* a peer did not prove who it is */
    FT_TIMEOUT,     /* a deadline passed */
    FT_NODE_LOST,   /* a node went silent */
    FT_RANK_FAILED, /* a rank ended badly */
    FT_NOMEM,       /* big memory was refused */
    FT_DEVICE,      /* a device failed */
    FT_COLL,        /* a collective failed or a peer of it ended */
    FT_DATA,        /* training data, model or checkpoint bytes are wrong */
    FT_UNSUPPORTED, /* specified, but not in this build */
    FT_INTERRUPTED, /* a signal asked us to stop */
    FT_BUG_FOUND    /* an invariant of ours is broken */
};

enum { FT_ERR_TEXT = 2048, FT_ERR_WHERE = 1024, FT_ERR_FIX = 1024, FT_ERR_WHILE = 512, FT_ERR_CHAIN = 4 };

struct ft_err {
    enum ft_code code;
    char text[FT_ERR_TEXT];                 /* what happened, with the value; no final stop */
    char where[FT_ERR_WHERE];               /* "job.ini:14:9, [nodes] gpu01"; empty: not known */
    char fix[FT_ERR_FIX];                   /* a certain (or "likely: ") remedy; empty: none */
    char chain[FT_ERR_CHAIN][FT_ERR_WHILE]; /* innermost first; the last slot is overwritten when full */
    unsigned n_chain;
};

#define FT_MUST_CHECK   __attribute__((warn_unused_result))
#define FT_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* Makes err a fresh error (chain, where and fix are cleared) and returns code. */
enum ft_code ft_fail(struct ft_err *err, enum ft_code code, const char *fmt, ...) FT_PRINTF(3, 4);
/* Adds "while: …" and returns err->code (FT_BUG_FOUND when err is NULL). */
enum ft_code ft_wrap(struct ft_err *err, const char *fmt, ...) FT_PRINTF(2, 3);
/* Sets the place / the remedy of the last ft_fail; returns err->code like ft_wrap. */
enum ft_code ft_at(struct ft_err *err, const char *fmt, ...) FT_PRINTF(2, 3);
enum ft_code ft_fix(struct ft_err *err, const char *fmt, ...) FT_PRINTF(2, 3);

const char *ft_code_name(enum ft_code code); /* "config", "io", … never NULL */
/* "PROG: error: TEXT\n  where: …\n  while: …\n  fix:   …\n" */
void ft_err_print(FILE *out, const char *prog, const struct ft_err *err);

/* One line "HEADtext": text may come from files and nodes, so control bytes are shown, not sent; its own newlines stay. */
void ft_err_put(FILE *out, const char *head, const char *text);

/* Programmer errors: message with place, then abort(). */
#define FT_BUG(...)     ft_bug(__FILE__, __LINE__, __VA_ARGS__)
#define FT_ASSERT(cond) ((cond) ? (void)0 : FT_BUG("broken invariant: %s", #cond))
_Noreturn void ft_bug(const char *file, int line, const char *fmt, ...) FT_PRINTF(3, 4);

#endif
