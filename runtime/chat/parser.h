/* What the two halves of the parser share (only for parse.c and parse_expr.c). */
#ifndef FT_RUNTIME_CHAT_PARSER_H
#define FT_RUNTIME_CHAT_PARSER_H

#include <string.h>

#include "runtime/chat/ast.h"

enum { NESTING = 200 };

struct parser {
    struct ft_template *t;
    const struct ft_tok *v;
    size_t i;
    int depth; /* nested expressions and blocks */
    int loops; /* enclosing loops, for break and continue */
    struct ft_err *err;
    bool failed;
};

static inline const struct ft_tok *cur(const struct parser *p) { return &p->v[p->i]; }
static inline const struct ft_tok *peek(const struct parser *p) { return &p->v[p->v[p->i].kind == FT_T_END ? p->i : p->i + 1]; }
static inline void next(struct parser *p) { p->i += p->v[p->i].kind != FT_T_END; }

static inline bool is_op(const struct ft_tok *t, const char *op)
{
    return t->kind == FT_T_OP && t->n == strlen(op) && !memcmp(t->s, op, t->n);
}
static inline bool is_name(const struct ft_tok *t, const char *name) { return t->kind == FT_T_NAME && !strcmp(t->s, name); }

static inline bool take_op(struct parser *p, const char *op)
{
    if (!is_op(cur(p), op)) return false;
    next(p);
    return true;
}

static inline bool take_name(struct parser *p, const char *name)
{
    if (!is_name(cur(p), name)) return false;
    next(p);
    return true;
}

struct ft_node *ft_parse_bad(struct parser *p, int line, const char *fmt, ...) FT_PRINTF(3, 4); /* NULL; the first one counts */
struct ft_node *ft_parse_node(struct parser *p, enum ft_node_kind kind, int line);
void ft_parse_push(struct parser *p, struct ft_node *list, size_t *cap, struct ft_node *x, const char *name);
const char *ft_parse_shown(const struct ft_tok *t);
void ft_parse_expect(struct parser *p, const char *op);
bool ft_parse_deeper(struct parser *p); /* one more level; false: too many. The caller takes it back with p->depth-- */
struct ft_node *ft_parse_expression(struct parser *p);
/* One expression, or a tuple of several without brackets; with_cond: "a if b else c" is allowed. */
struct ft_node *ft_parse_tuple(struct parser *p, bool with_cond);
struct ft_node *ft_parse_filter(struct parser *p, struct ft_node *of); /* the name and arguments behind '|' */

#endif
