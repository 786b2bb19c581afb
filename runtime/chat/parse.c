/* Tokens to a tree: statements, refusing everything that is not of the subset with its line. */
#include <stdlib.h>
#include <string.h>

#include "runtime/chat/parser.h"

static struct ft_node *body(struct parser *p, const char *const *ends);

static void block_end(struct parser *p)
{
    if (cur(p)->kind == FT_T_BLOCK_END) next(p);
    else ft_parse_bad(p, cur(p)->line, "expected '%%}', found %s", ft_parse_shown(cur(p)));
}

static struct ft_node *target(struct parser *p, bool attribute)
{
    const int line = cur(p)->line;
    struct ft_node *all = NULL, *x = NULL;
    size_t cap = 0;
    const bool bracket = take_op(p, "(");
    while (!p->failed) {
        const struct ft_tok *t = cur(p);
        if (t->kind != FT_T_NAME) return ft_parse_bad(p, t->line, "expected a name to assign to, found %s", ft_parse_shown(t));
        x = ft_parse_node(p, FT_N_NAME, t->line);
        x->name = t->s;
        next(p);
        if (attribute && take_op(p, ".")) {
            struct ft_node *get = ft_parse_node(p, FT_N_GETATTR, t->line);
            if (cur(p)->kind != FT_T_NAME)
                return ft_parse_bad(p, t->line, "expected a name behind '.', found %s", ft_parse_shown(cur(p)));
            get->a = x, get->name = cur(p)->s;
            next(p);
            x = get;
        }
        if (!all && !is_op(cur(p), ",")) break;
        if (!all) all = ft_parse_node(p, FT_N_TUPLE, line);
        ft_parse_push(p, all, &cap, x, NULL);
        if (!take_op(p, ",")) break;
    }
    if (bracket) ft_parse_expect(p, ")");
    return all ? all : x;
}

static struct ft_node *for_statement(struct parser *p, int line)
{
    static const char *const ends[] = {"endfor", "else", NULL}, *const last[] = {"endfor", NULL};
    struct ft_node *x = ft_parse_node(p, FT_N_FOR, line);
    x->a = target(p, false);
    if (!p->failed && !take_name(p, "in")) return ft_parse_bad(p, cur(p)->line, "expected 'in', found %s", ft_parse_shown(cur(p)));
    if (!p->failed) x->b = ft_parse_tuple(p, false);
    if (!p->failed && take_name(p, "if")) x->c = ft_parse_expression(p);
    if (!p->failed && is_name(cur(p), "recursive")) return ft_parse_bad(p, line, "a recursive loop is not supported");
    block_end(p);
    p->loops++;
    x->d = body(p, ends);
    p->loops--;
    if (!p->failed && take_name(p, "else")) block_end(p), x->e = body(p, last);
    if (!p->failed) next(p), block_end(p);
    return x;
}

static struct ft_node *if_statement(struct parser *p, int line)
{
    static const char *const ends[] = {"endif", "else", "elif", NULL}, *const last[] = {"endif", NULL};
    struct ft_node *first = NULL, **link = &first;
    while (!p->failed) {
        struct ft_node *x = ft_parse_node(p, FT_N_IF, line);
        *link = x, link = &x->c;
        x->a = ft_parse_tuple(p, false);
        block_end(p);
        x->b = body(p, ends);
        if (p->failed) break;
        line = cur(p)->line;
        if (take_name(p, "elif")) continue;
        if (take_name(p, "else")) {
            block_end(p);
            x->c = body(p, last);
        }
        if (!p->failed) next(p), block_end(p);
        break;
    }
    return first;
}

static struct ft_node *set_statement(struct parser *p, int line)
{
    static const char *const ends[] = {"endset", NULL};
    struct ft_node *x = ft_parse_node(p, FT_N_SET, line);
    x->a = target(p, true);
    if (p->failed) return NULL;
    if (take_op(p, "=")) {
        x->b = ft_parse_tuple(p, true);
        block_end(p);
        return x;
    }
    x->kind = FT_N_SETBLOCK;
    while (!p->failed && take_op(p, "|")) x->b = ft_parse_filter(p, x->b);
    block_end(p);
    x->c = body(p, ends);
    if (!p->failed) next(p), block_end(p);
    return x;
}

static struct ft_node *macro_statement(struct parser *p, int line)
{
    static const char *const ends[] = {"endmacro", NULL};
    struct ft_node *x = ft_parse_node(p, FT_N_MACRO, line);
    size_t cap = 0;
    if (cur(p)->kind != FT_T_NAME) return ft_parse_bad(p, line, "a macro has no name");
    x->name = cur(p)->s;
    next(p);
    ft_parse_expect(p, "(");
    while (!p->failed && !is_op(cur(p), ")")) {
        if (x->n) ft_parse_expect(p, ",");
        if (cur(p)->kind != FT_T_NAME)
            return ft_parse_bad(p, cur(p)->line, "expected the name of an argument, found %s", ft_parse_shown(cur(p)));
        const char *name = cur(p)->s;
        next(p);
        ft_parse_push(p, x, &cap, take_op(p, "=") ? ft_parse_expression(p) : NULL, name);
    }
    ft_parse_expect(p, ")");
    block_end(p);
    const int loops = p->loops;
    p->loops = 0;
    x->a = body(p, ends);
    p->loops = loops;
    if (!p->failed) next(p), block_end(p);
    return x;
}

static struct ft_node *filter_statement(struct parser *p, int line)
{
    static const char *const ends[] = {"endfilter", NULL};
    struct ft_node *x = ft_parse_node(p, FT_N_FILTERBLOCK, line);
    x->a = ft_parse_filter(p, NULL);
    while (!p->failed && take_op(p, "|")) x->a = ft_parse_filter(p, x->a);
    block_end(p);
    x->b = body(p, ends);
    if (!p->failed) next(p), block_end(p);
    return x;
}

static struct ft_node *generation_statement(struct parser *p, int line)
{
    static const char *const ends[] = {"endgeneration", NULL};
    struct ft_node *x = ft_parse_node(p, FT_N_GENERATION, line);
    p->t->generation = true;
    block_end(p);
    x->a = body(p, ends);
    if (!p->failed) next(p), block_end(p);
    return x;
}

static struct ft_node *jump_statement(struct parser *p, enum ft_node_kind kind, int line)
{
    if (!p->loops) return ft_parse_bad(p, line, "'%s' stands outside a loop", kind == FT_N_BREAK ? "break" : "continue");
    block_end(p);
    return ft_parse_node(p, kind, line);
}

static struct ft_node *statement(struct parser *p)
{
    const struct ft_tok *t = cur(p);
    if (t->kind != FT_T_NAME) return ft_parse_bad(p, t->line, "expected a statement, found %s", ft_parse_shown(t));
    next(p);
    if (!strcmp(t->s, "for")) return for_statement(p, t->line);
    if (!strcmp(t->s, "if")) return if_statement(p, t->line);
    if (!strcmp(t->s, "set")) return set_statement(p, t->line);
    if (!strcmp(t->s, "macro")) return macro_statement(p, t->line);
    if (!strcmp(t->s, "filter")) return filter_statement(p, t->line);
    if (!strcmp(t->s, "generation")) return generation_statement(p, t->line);
    if (!strcmp(t->s, "break")) return jump_statement(p, FT_N_BREAK, t->line);
    if (!strcmp(t->s, "continue")) return jump_statement(p, FT_N_CONTINUE, t->line);
    return ft_parse_bad(p, t->line, "the statement '%s' is not supported", t->s);
}

static bool ends_here(const struct parser *p, const char *const *ends)
{
    if (cur(p)->kind != FT_T_BLOCK_BEGIN || peek(p)->kind != FT_T_NAME) return false;
    for (size_t i = 0; ends && ends[i]; i++)
        if (is_name(peek(p), ends[i])) return true;
    return false;
}

/* Statements up to one of the end words (which stays the current token, its "{%" consumed), or to the end of the template. */
static struct ft_node *body(struct parser *p, const char *const *ends)
{
    struct ft_node *all = ft_parse_node(p, FT_N_BLOCK, cur(p)->line);
    size_t cap = 0;
    if (!ft_parse_deeper(p)) return NULL;
    while (!p->failed) {
        const struct ft_tok *t = cur(p);
        if (t->kind == FT_T_END) {
            if (ends) ft_parse_bad(p, all->line, "a block is not closed: '{%% %s %%}' is missing", ends[0]);
            break;
        }
        if (ends_here(p, ends)) {
            next(p);
            break;
        }
        next(p);
        struct ft_node *x = NULL;
        if (t->kind == FT_T_TEXT) {
            x = ft_parse_node(p, FT_N_TEXT, t->line);
            x->value = ft_v_str(t->s, t->n);
        } else if (t->kind == FT_T_VAR_BEGIN) {
            x = ft_parse_node(p, FT_N_OUTPUT, t->line);
            x->a = ft_parse_tuple(p, true);
            if (cur(p)->kind == FT_T_VAR_END) next(p);
            else ft_parse_bad(p, cur(p)->line, "expected '}}', found %s", ft_parse_shown(cur(p)));
        } else {
            x = statement(p);
        }
        ft_parse_push(p, all, &cap, x, NULL);
    }
    p->depth--;
    return all;
}

enum ft_code ft_template_parse(struct ft_template *t, const struct ft_toks *toks, struct ft_err *err)
{
    struct parser p = {.t = t, .v = toks->v, .err = err};
    t->root = body(&p, NULL);
    return p.failed ? (err ? err->code : FT_DATA) : FT_OK;
}
