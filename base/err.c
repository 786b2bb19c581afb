#include "base/err.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

static void put(char *to, size_t cap, const char *fmt, va_list ap) __attribute__((format(printf, 3, 0)));
static void put(char *to, size_t cap, const char *fmt, va_list ap)
{
    const int n = vsnprintf(to, cap, fmt, ap);
    if (n >= 0 && (size_t)n >= cap) memcpy(to + cap - 4, "...", 4);
}

enum ft_code ft_fail(struct ft_err *err, enum ft_code code, const char *fmt, ...)
{
    if (!err) return code;
    va_list ap;
    char text[FT_ERR_TEXT]; /* arguments may point into *err */
    va_start(ap, fmt);
    put(text, sizeof text, fmt, ap);
    va_end(ap);
    err->code = code;
    memcpy(err->text, text, strlen(text) + 1);
    err->where[0] = err->fix[0] = 0;
    err->n_chain = 0;
    return code;
}

enum ft_code ft_wrap(struct ft_err *err, const char *fmt, ...)
{
    if (!err) return FT_BUG_FOUND;
    va_list ap;
    const unsigned slot = err->n_chain < FT_ERR_CHAIN ? err->n_chain++ : FT_ERR_CHAIN - 1;
    va_start(ap, fmt);
    put(err->chain[slot], sizeof err->chain[slot], fmt, ap);
    va_end(ap);
    return err->code;
}

enum ft_code ft_at(struct ft_err *err, const char *fmt, ...)
{
    if (!err) return FT_BUG_FOUND;
    va_list ap;
    va_start(ap, fmt);
    put(err->where, sizeof err->where, fmt, ap);
    va_end(ap);
    return err->code;
}

enum ft_code ft_fix(struct ft_err *err, const char *fmt, ...)
{
    if (!err) return FT_BUG_FOUND;
    va_list ap;
    va_start(ap, fmt);
    put(err->fix, sizeof err->fix, fmt, ap);
    va_end(ap);
    return err->code;
}

const char *ft_code_name(enum ft_code code)
{
    switch (code) {
    case FT_OK: return "ok";
    case FT_USAGE: return "usage";
    case FT_CONFIG: return "config";
    case FT_IO: return "io";
    case FT_NET: return "net";
    case FT_AUTH: return "auth";
    case FT_TIMEOUT: return "timeout";
    case FT_NODE_LOST: return "node lost";
    case FT_RANK_FAILED: return "rank failed";
    case FT_NOMEM: return "no memory";
    case FT_DEVICE: return "device";
    case FT_COLL: return "collective";
    case FT_DATA: return "data";
    case FT_UNSUPPORTED: return "unsupported";
    case FT_INTERRUPTED: return "interrupted";
    case FT_BUG_FOUND: return "bug";
    }
    return "unknown";
}

void ft_err_put(FILE *out, const char *head, const char *text)
{
    char one[8];
    fputs(head, out);
    for (size_t n = strlen(text); n;) {
        const bool line = *text == '\n';
        const size_t k = line ? 1 : ft_visible_next(text, n, one);
        fputs(line ? "\n" : one, out);
        text += k;
        n -= k;
    }
    fputc('\n', out);
}

void ft_err_print(FILE *out, const char *prog, const struct ft_err *err)
{
    fprintf(out, "%s: ", prog);
    ft_err_put(out, "error: ", err->text);
    if (err->where[0]) ft_err_put(out, "  where: ", err->where);
    for (unsigned i = 0; i < err->n_chain; i++) ft_err_put(out, "  while: ", err->chain[i]);
    if (err->fix[0]) ft_err_put(out, "  fix:   ", err->fix);
    fflush(out);
}

void ft_bug(const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    fprintf(stderr, "bug at %s:%d: ", file, line);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    abort();
}
