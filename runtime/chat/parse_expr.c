/* Tokens to a tree: expressions. */
#include <stdlib.h>
#include <string.h>

#include "runtime/chat/parser.h"

struct ft_node *ft_parse_bad(struct parser *p, int line, const char *fmt, ...)
{
    if (p->failed) return NULL;
    struct ft_buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    ft_buf_vaddf(&text, fmt, ap);
    va_end(ap);
    (void)ft_fail(p->err, FT_DATA, "template '%s', line %d: %s", p->t->name, line, ft_buf_str(&text));
    ft_buf_fini(&text);
    p->failed = true;
    return NULL;
}

struct ft_node *ft_parse_node(struct parser *p, enum ft_node_kind kind, int line)
{
    struct ft_node *x = ft_arena_alloc(p->t->arena, sizeof *x);
    x->kind = (uint8_t)kind, x->line = line;
    return x;
}

void ft_parse_push(struct parser *p, struct ft_node *list, size_t *cap, struct ft_node *x, const char *name)
{
    if (list->n == *cap) {
        const size_t more = *cap ? 2 * *cap : 4;
        struct ft_node **v = ft_arena_array(p->t->arena, more, sizeof *v);
        const char **names = ft_arena_array(p->t->arena, more, sizeof *names);
        if (list->n) memcpy(v, list->v, list->n * sizeof(struct ft_node *)), memcpy(names, list->names, list->n * sizeof *names);
        list->v = v, list->names = names, *cap = more;
    }
    list->v[list->n] = x, list->names[list->n++] = name;
}

const char *ft_parse_shown(const struct ft_tok *t)
{
    switch ((enum ft_tok_kind)t->kind) {
    case FT_T_NAME: return t->s;
    case FT_T_STRING: return "a string";
    case FT_T_INT:
    case FT_T_FLOAT: return "a number";
    case FT_T_OP:
        return t->n == 1 ? (t->s[0] == '('   ? "("
                            : t->s[0] == ')' ? ")"
                            : t->s[0] == '.' ? "."
                            : t->s[0] == ',' ? ","
                                             : "an operator")
                         : "an operator";
    case FT_T_VAR_END: return "}}";
    case FT_T_BLOCK_END: return "%}";
    case FT_T_TEXT:
    case FT_T_VAR_BEGIN:
    case FT_T_BLOCK_BEGIN: return "text";
    case FT_T_END: return "the end of the template";
    }
    return "?";
}

void ft_parse_expect(struct parser *p, const char *op)
{
    if (!take_op(p, op)) ft_parse_bad(p, cur(p)->line, "expected '%s', found %s", op, ft_parse_shown(cur(p)));
}

static struct ft_node *or_expression(struct parser *p);
static struct ft_node *unary(struct parser *p, bool with_filter);

bool ft_parse_deeper(struct parser *p)
{
    if (p->depth < NESTING) {
        p->depth++;
        return true;
    }
    ft_parse_bad(p, cur(p)->line, "the template nests more than %d levels", NESTING);
    return false;
}

/* ---- primaries ---- */

static struct ft_node *constant(struct parser *p, struct ft_jval v, int line)
{
    struct ft_node *x = ft_parse_node(p, FT_N_CONST, line);
    x->value = v;
    return x;
}

static struct ft_node *name_or_constant(struct parser *p)
{
    const struct ft_tok *t = cur(p);
    next(p);
    if (!strcmp(t->s, "true") || !strcmp(t->s, "True")) return constant(p, ft_v_bool(true), t->line);
    if (!strcmp(t->s, "false") || !strcmp(t->s, "False")) return constant(p, ft_v_bool(false), t->line);
    if (!strcmp(t->s, "none") || !strcmp(t->s, "None")) return constant(p, ft_v_none(), t->line);
    struct ft_node *x = ft_parse_node(p, FT_N_NAME, t->line);
    x->name = t->s;
    return x;
}

static struct ft_node *string(struct parser *p)
{
    const int line = cur(p)->line;
    struct ft_buf text = {0};
    for (; cur(p)->kind == FT_T_STRING; next(p)) ft_buf_add(&text, cur(p)->s, cur(p)->n);
    struct ft_node *x = constant(p, ft_v_str(ft_arena_strndup(p->t->arena, ft_buf_str(&text), text.n), text.n), line);
    ft_buf_fini(&text);
    return x;
}

static struct ft_node *list(struct parser *p)
{
    struct ft_node *x = ft_parse_node(p, FT_N_LIST, cur(p)->line);
    size_t cap = 0;
    next(p);
    while (!p->failed && !is_op(cur(p), "]")) {
        if (x->n) ft_parse_expect(p, ",");
        if (is_op(cur(p), "]")) break;
        ft_parse_push(p, x, &cap, ft_parse_expression(p), NULL);
    }
    ft_parse_expect(p, "]");
    return x;
}

static struct ft_node *dict(struct parser *p)
{
    struct ft_node *x = ft_parse_node(p, FT_N_DICT, cur(p)->line);
    size_t cap = 0;
    next(p);
    while (!p->failed && !is_op(cur(p), "}")) {
        if (x->n) ft_parse_expect(p, ",");
        if (is_op(cur(p), "}")) break;
        ft_parse_push(p, x, &cap, ft_parse_expression(p), NULL);
        ft_parse_expect(p, ":");
        ft_parse_push(p, x, &cap, ft_parse_expression(p), NULL);
    }
    ft_parse_expect(p, "}");
    return x;
}

static struct ft_node *parenthesised(struct parser *p)
{
    const int line = cur(p)->line;
    size_t cap = 0;
    next(p);
    struct ft_node *tuple = ft_parse_node(p, FT_N_TUPLE, line);
    bool comma = is_op(cur(p), ")");
    while (!p->failed && !is_op(cur(p), ")")) {
        ft_parse_push(p, tuple, &cap, ft_parse_expression(p), NULL);
        if (!take_op(p, ",")) break;
        comma = true;
    }
    ft_parse_expect(p, ")");
    return comma || p->failed ? tuple : tuple->v[0];
}

static struct ft_node *primary(struct parser *p)
{
    const struct ft_tok *t = cur(p);
    if (t->kind == FT_T_NAME) return name_or_constant(p);
    if (t->kind == FT_T_STRING) return string(p);
    if (t->kind == FT_T_INT || t->kind == FT_T_FLOAT) {
        next(p);
        return constant(p, t->kind == FT_T_INT ? ft_v_int(t->i) : ft_v_float(t->f), t->line);
    }
    if (is_op(t, "(")) return parenthesised(p);
    if (is_op(t, "[")) return list(p);
    if (is_op(t, "{")) return dict(p);
    return ft_parse_bad(p, t->line, "unexpected %s", ft_parse_shown(t));
}

/* ---- postfixes ---- */

static void arguments(struct parser *p, struct ft_node *call)
{
    size_t cap = 0;
    bool named = false;
    next(p);
    while (!p->failed && !is_op(cur(p), ")")) {
        if (call->n) ft_parse_expect(p, ",");
        if (is_op(cur(p), ")")) break;
        if (is_op(cur(p), "*") || is_op(cur(p), "**")) {
            ft_parse_bad(p, cur(p)->line, "argument lists with * are not supported");
            return;
        }
        const char *name = NULL;
        if (cur(p)->kind == FT_T_NAME && is_op(peek(p), "=")) name = cur(p)->s, next(p), next(p);
        if (named && !name) {
            ft_parse_bad(p, cur(p)->line, "a positional argument stands behind a named one");
            return;
        }
        named = name != NULL;
        ft_parse_push(p, call, &cap, ft_parse_expression(p), name);
    }
    ft_parse_expect(p, ")");
}

static struct ft_node *subscript(struct parser *p, struct ft_node *of)
{
    const int line = cur(p)->line;
    struct ft_node *part[3] = {NULL, NULL, NULL};
    bool slice = false;
    next(p);
    for (int k = 0; k < 3 && !p->failed; k++) {
        if (!is_op(cur(p), ":") && !is_op(cur(p), "]")) part[k] = ft_parse_expression(p);
        if (k == 2 || !take_op(p, ":")) break;
        slice = true;
    }
    if (!p->failed && is_op(cur(p), ",")) ft_parse_bad(p, line, "a subscript with a comma is not supported");
    ft_parse_expect(p, "]");
    if (!slice && !part[0]) return ft_parse_bad(p, line, "an empty subscript");
    struct ft_node *x = ft_parse_node(p, slice ? FT_N_SLICE : FT_N_GETITEM, line);
    x->a = of, x->b = part[0], x->c = part[1], x->d = part[2];
    return x;
}

static struct ft_node *call(struct parser *p, struct ft_node *of)
{
    struct ft_node *x = ft_parse_node(p, FT_N_CALL, cur(p)->line);
    x->a = of;
    if (of->kind == FT_N_GETATTR && ft_method_id(of->name, strlen(of->name)) < 0 && strcmp(of->name, "cycle") != 0)
        return ft_parse_bad(p, x->line, "the method '.%s()' is not supported", of->name);
    if (of->kind == FT_N_NAME && !strcmp(of->name, "strftime_now")) p->t->dated = true;
    arguments(p, x);
    return x;
}

static struct ft_node *postfix(struct parser *p, struct ft_node *x)
{
    for (int k = 0; !p->failed; k++) {
        if (k > NESTING) return ft_parse_bad(p, cur(p)->line, "the template nests more than %d levels", NESTING);
        if (is_op(cur(p), ".")) {
            const int line = cur(p)->line;
            next(p);
            const struct ft_tok *t = cur(p);
            struct ft_node *get = ft_parse_node(p, t->kind == FT_T_INT ? FT_N_GETITEM : FT_N_GETATTR, line);
            get->a = x;
            if (t->kind == FT_T_INT) get->b = constant(p, ft_v_int(t->i), line);
            else if (t->kind == FT_T_NAME) get->name = t->s;
            else return ft_parse_bad(p, line, "expected a name behind '.', found %s", ft_parse_shown(t));
            next(p);
            x = get;
        } else if (is_op(cur(p), "[")) x = subscript(p, x);
        else if (is_op(cur(p), "(")) x = call(p, x);
        else break;
    }
    return x;
}

struct ft_node *ft_parse_filter(struct parser *p, struct ft_node *of)
{
    const struct ft_tok *t = cur(p);
    if (t->kind != FT_T_NAME) return ft_parse_bad(p, t->line, "expected the name of a filter, found %s", ft_parse_shown(t));
    struct ft_node *x = ft_parse_node(p, FT_N_FILTER, t->line);
    x->a = of, x->name = t->s, x->id = ft_filter_id(t->s);
    if (x->id < 0) return ft_parse_bad(p, t->line, "the filter '%s' is not supported", t->s);
    next(p);
    if (is_op(cur(p), "(")) arguments(p, x);
    return x;
}

static struct ft_node *test(struct parser *p, struct ft_node *of)
{
    struct ft_node *x = ft_parse_node(p, FT_N_TEST, cur(p)->line);
    x->a = of;
    x->negate = take_name(p, "not");
    const struct ft_tok *t = cur(p);
    if (t->kind != FT_T_NAME) return ft_parse_bad(p, t->line, "expected the name of a test, found %s", ft_parse_shown(t));
    x->name = t->s, x->id = ft_test_id(t->s);
    if (x->id < 0) return ft_parse_bad(p, t->line, "the test '%s' is not supported", t->s);
    next(p);
    t = cur(p);
    const bool word = t->kind == FT_T_NAME && !is_name(t, "else") && !is_name(t, "or") && !is_name(t, "and") && !is_name(t, "if");
    if (is_op(t, "(")) arguments(p, x);
    else if (word && is_name(t, "is")) return ft_parse_bad(p, t->line, "tests cannot be chained with 'is'");
    else if (word || t->kind == FT_T_STRING || t->kind == FT_T_INT || t->kind == FT_T_FLOAT || is_op(t, "[") || is_op(t, "{")) {
        size_t cap = 0;
        struct ft_node *argument = primary(p);
        ft_parse_push(p, x, &cap, p->failed ? NULL : postfix(p, argument), NULL);
    }
    return x;
}

static struct ft_node *filters(struct parser *p, struct ft_node *x)
{
    for (int k = 0; !p->failed; k++) {
        if (k > NESTING) return ft_parse_bad(p, cur(p)->line, "the template nests more than %d levels", NESTING);
        if (take_op(p, "|")) x = ft_parse_filter(p, x);
        else if (take_name(p, "is")) x = test(p, x);
        else if (is_op(cur(p), "(")) x = call(p, x);
        else break;
    }
    return x;
}

/* ---- operators ---- */

static struct ft_node *unary(struct parser *p, bool with_filter)
{
    struct ft_node *x;
    const int line = cur(p)->line;
    if (!ft_parse_deeper(p)) return NULL;
    if (is_op(cur(p), "-") || is_op(cur(p), "+")) {
        x = ft_parse_node(p, is_op(cur(p), "-") ? FT_N_NEG : FT_N_POS, line);
        next(p);
        x->a = unary(p, false);
    } else {
        x = primary(p);
    }
    if (!p->failed) x = postfix(p, x);
    if (!p->failed && with_filter) x = filters(p, x);
    p->depth--;
    return x;
}

static struct ft_node *binary(struct parser *p, enum ft_op op, struct ft_node *a, struct ft_node *b, int line)
{
    struct ft_node *x = ft_parse_node(p, FT_N_BINARY, line);
    x->op = (uint8_t)op, x->a = a, x->b = b;
    return x;
}

static bool one_of(struct parser *p, const char *const *ops, const enum ft_op *ids, size_t n, enum ft_op *out)
{
    for (size_t i = 0; i < n; i++)
        if (take_op(p, ops[i])) {
            *out = ids[i];
            return true;
        }
    return false;
}

static struct ft_node *power(struct parser *p)
{
    struct ft_node *x = unary(p, true);
    for (int line = cur(p)->line; !p->failed && take_op(p, "**"); line = cur(p)->line)
        x = binary(p, FT_OP_POW, x, unary(p, true), line);
    return x;
}

static struct ft_node *product(struct parser *p)
{
    static const char *const ops[] = {"*", "//", "/", "%"};
    static const enum ft_op ids[] = {FT_OP_MUL, FT_OP_FLOORDIV, FT_OP_DIV, FT_OP_MOD};
    struct ft_node *x = power(p);
    enum ft_op op;
    for (int line = cur(p)->line; !p->failed && one_of(p, ops, ids, 4, &op); line = cur(p)->line)
        x = binary(p, op, x, power(p), line);
    return x;
}

static struct ft_node *concatenation(struct parser *p)
{
    struct ft_node *x = product(p), *all = NULL;
    size_t cap = 0;
    while (!p->failed && is_op(cur(p), "~")) {
        if (!all) {
            all = ft_parse_node(p, FT_N_CONCAT, cur(p)->line);
            ft_parse_push(p, all, &cap, x, NULL);
        }
        next(p);
        ft_parse_push(p, all, &cap, product(p), NULL);
    }
    return all ? all : x;
}

static struct ft_node *sum(struct parser *p)
{
    static const char *const ops[] = {"+", "-"};
    static const enum ft_op ids[] = {FT_OP_ADD, FT_OP_SUB};
    struct ft_node *x = concatenation(p);
    enum ft_op op;
    for (int line = cur(p)->line; !p->failed && one_of(p, ops, ids, 2, &op); line = cur(p)->line)
        x = binary(p, op, x, concatenation(p), line);
    return x;
}

static struct ft_node *comparison(struct parser *p)
{
    static const char *const ops[] = {"==", "!=", "<=", ">=", "<", ">"};
    static const enum ft_op ids[] = {FT_OP_EQ, FT_OP_NE, FT_OP_LE, FT_OP_GE, FT_OP_LT, FT_OP_GT};
    struct ft_node *x = sum(p), *all = NULL;
    size_t cap = 0, ops_cap = 0;
    while (!p->failed) {
        enum ft_op op;
        const int line = cur(p)->line;
        if (one_of(p, ops, ids, 6, &op)) {
        } else if (take_name(p, "in")) op = FT_OP_IN;
        else if (is_name(cur(p), "not") && is_name(peek(p), "in")) op = FT_OP_NOT_IN, next(p), next(p);
        else break;
        if (!all) all = ft_parse_node(p, FT_N_COMPARE, line), all->a = x;
        if (all->n == ops_cap) {
            ops_cap = ops_cap ? 2 * ops_cap : 4;
            uint8_t *more = ft_arena_array(p->t->arena, ops_cap, 1);
            if (all->n) memcpy(more, all->ops, all->n);
            all->ops = more;
        }
        all->ops[all->n] = (uint8_t)op;
        ft_parse_push(p, all, &cap, sum(p), NULL);
    }
    return all ? all : x;
}

static struct ft_node *negation(struct parser *p)
{
    if (!is_name(cur(p), "not")) return comparison(p);
    struct ft_node *x = ft_parse_node(p, FT_N_NOT, cur(p)->line);
    next(p);
    if (!ft_parse_deeper(p)) return NULL;
    x->a = negation(p);
    p->depth--;
    return x;
}

static struct ft_node *and_expression(struct parser *p)
{
    struct ft_node *x = negation(p);
    while (!p->failed && is_name(cur(p), "and")) {
        struct ft_node *both = ft_parse_node(p, FT_N_AND, cur(p)->line);
        next(p);
        both->a = x, both->b = negation(p);
        x = both;
    }
    return x;
}

static struct ft_node *or_expression(struct parser *p)
{
    struct ft_node *x = and_expression(p);
    while (!p->failed && is_name(cur(p), "or")) {
        struct ft_node *both = ft_parse_node(p, FT_N_OR, cur(p)->line);
        next(p);
        both->a = x, both->b = and_expression(p);
        x = both;
    }
    return x;
}

struct ft_node *ft_parse_expression(struct parser *p)
{
    if (!ft_parse_deeper(p)) return NULL;
    struct ft_node *x = or_expression(p);
    while (!p->failed && is_name(cur(p), "if")) {
        struct ft_node *cond = ft_parse_node(p, FT_N_COND, cur(p)->line);
        next(p);
        cond->a = x, cond->b = or_expression(p);
        if (!p->failed && take_name(p, "else")) cond->c = ft_parse_expression(p);
        x = cond;
    }
    p->depth--;
    return x;
}

/* One expression, or a tuple of several without brackets. */
struct ft_node *ft_parse_tuple(struct parser *p, bool with_cond)
{
    const int line = cur(p)->line;
    struct ft_node *x = with_cond ? ft_parse_expression(p) : or_expression(p), *all = NULL;
    size_t cap = 0;
    while (!p->failed && is_op(cur(p), ",")) {
        if (!all) {
            all = ft_parse_node(p, FT_N_TUPLE, line);
            ft_parse_push(p, all, &cap, x, NULL);
        }
        next(p);
        if (cur(p)->kind == FT_T_VAR_END || cur(p)->kind == FT_T_BLOCK_END) break;
        ft_parse_push(p, all, &cap, with_cond ? ft_parse_expression(p) : or_expression(p), NULL);
    }
    return all ? all : x;
}
