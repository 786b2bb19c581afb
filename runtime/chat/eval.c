/* Expressions. */
#include <stdlib.h>
#include <string.h>

#include "runtime/chat/eval.h"

struct ft_jval ft_fail_eval(struct ft_eval *e, int line, const char *fmt, ...)
{
    if (!e->failed) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(e->r->error, sizeof e->r->error, fmt, ap);
        va_end(ap);
        /* A text cut inside a character would be no UTF-8. */
        e->r->error[ft_utf8_valid(e->r->error, strlen(e->r->error))] = 0;
        e->r->error_line = line;
        e->failed = true;
    }
    return ft_v_undefined("");
}

bool ft_eval_step(struct ft_eval *e, int line, size_t cost)
{
    if (e->failed) return false;
    e->steps += 1 + (int64_t)(cost / 256);
    if (e->steps > FT_RENDER_STEPS) ft_fail_eval(e, line, "the template takes more than %d steps", FT_RENDER_STEPS);
    if (e->heap->failed) ft_fail_eval(e, line, "the rendering needs more than 512 MiB");
    return !e->failed;
}

struct ft_jval ft_eval_text(struct ft_eval *e, const struct ft_buf *b, int line)
{
    if (b->n > FT_RENDER_OUTPUT) return ft_fail_eval(e, line, "a text is longer than 64 MiB");
    return ft_v_copy(e->heap, ft_buf_str(b), b->n);
}

static struct ft_jval lookup(struct ft_eval *e, const struct ft_node *n)
{
    for (const struct ft_scope *s = e->scope; s; s = s->outer)
        for (size_t i = 0; i < s->n; i++)
            if (!strcmp(s->v[i].name, n->name)) return s->v[i].value;
    const int id = ft_function_id(n->name, strlen(n->name));
    if (id >= 0) return (struct ft_jval){.type = FT_V_FUNCTION, .n = (uint32_t)id};
    return ft_v_undefined(n->name);
}

bool ft_arg(const struct ft_args *a, size_t i, const char *name, struct ft_jval *out)
{
    if (i < a->n && !a->names[i]) {
        *out = a->v[i];
        return true;
    }
    for (size_t k = 0; k < a->n; k++)
        if (a->names[k] && !strcmp(a->names[k], name)) {
            *out = a->v[k];
            return true;
        }
    return false;
}

/* Evaluates n->v into a (storage of the heap). */
static bool arguments(struct ft_eval *e, const struct ft_node *n, struct ft_args *a)
{
    struct ft_jval *v = ft_vheap_alloc(e->heap, (n->n + 1) * sizeof *v);
    if (!v) return false;
    for (size_t i = 0; i < n->n && !e->failed; i++) v[i] = ft_eval(e, n->v[i]);
    *a = (struct ft_args){.v = v, .names = n->names, .n = n->n, .line = n->line};
    return !e->failed;
}

static struct ft_jval call(struct ft_eval *e, const struct ft_node *n)
{
    struct ft_args a;
    const struct ft_jval f = ft_eval(e, n->a);
    if (e->failed || !arguments(e, n, &a)) return f;
    if (f.type == FT_V_FUNCTION) return ft_call_function(e, (int)f.n, &a);
    if (f.type == FT_V_METHOD) return ft_call_method(e, f.u.method, &a);
    if (f.type == FT_V_MACRO) return ft_call_macro(e, f.u.macro, &a);
    if (f.type == FT_V_UNDEFINED) return ft_fail_eval(e, n->line, "'%.*s' is undefined", (int)f.n, f.u.s);
    return ft_fail_eval(e, n->line, "'%s' object is not callable", ft_v_type_name(f));
}

static struct ft_jval filter(struct ft_eval *e, const struct ft_node *n)
{
    static const struct ft_node block = {.kind = FT_N_NAME, .name = "\1block"};
    struct ft_args a;
    const struct ft_jval v = ft_eval(e, n->a ? n->a : &block);
    if (e->failed || !arguments(e, n, &a)) return v;
    return ft_filter(e, n->id, v, &a);
}

static struct ft_jval test(struct ft_eval *e, const struct ft_node *n)
{
    struct ft_args a;
    const struct ft_jval v = ft_eval(e, n->a);
    if (e->failed || !arguments(e, n, &a)) return v;
    return ft_v_bool(ft_test_value(e, n->id, v, &a) != n->negate);
}

static struct ft_jval compare(struct ft_eval *e, const struct ft_node *n)
{
    struct ft_jval a = ft_eval(e, n->a);
    for (size_t i = 0; i < n->n && !e->failed; i++) {
        const struct ft_jval b = ft_eval(e, n->v[i]);
        if (e->failed) break;
        if (!ft_compare(e, (enum ft_op)n->ops[i], a, b, n->line)) return ft_v_bool(false);
        a = b;
    }
    return ft_v_bool(true);
}

static struct ft_jval sign(struct ft_eval *e, const struct ft_node *n)
{
    const struct ft_jval v = ft_eval(e, n->a);
    if (e->failed) return v;
    if (!ft_v_is_number(v))
        return ft_fail_eval(e, n->line, "bad operand type for unary %c: '%s'", n->kind == FT_N_NEG ? '-' : '+', ft_v_type_name(v));
    if (v.type == FT_V_FLOAT) return n->kind == FT_N_NEG ? ft_v_float(-v.u.f) : v;
    return ft_binary(e, n->kind == FT_N_NEG ? FT_OP_SUB : FT_OP_ADD, ft_v_int(0), v, n->line);
}

static struct ft_jval sequence(struct ft_eval *e, const struct ft_node *n)
{
    const struct ft_jval list = ft_v_list(e->heap, n->kind == FT_N_LIST ? FT_V_LIST : FT_V_TUPLE, n->n);
    for (size_t i = 0; i < n->n && !e->failed; i++) ft_v_push(e->heap, list, ft_eval(e, n->v[i]));
    return list;
}

static struct ft_jval dict(struct ft_eval *e, const struct ft_node *n)
{
    const struct ft_jval d = ft_v_dict(e->heap);
    for (size_t i = 0; i + 1 < n->n && !e->failed; i += 2) {
        const struct ft_jval k = ft_eval(e, n->v[i]), v = ft_eval(e, n->v[i + 1]);
        if (k.type == FT_V_LIST || k.type == FT_V_DICT) return ft_fail_eval(e, n->line, "unhashable type: '%s'", ft_v_type_name(k));
        if (!e->failed && ft_eval_step(e, n->line, d.u.dict->n * 16)) ft_v_set(e->heap, d, k, v);
    }
    return d;
}

static struct ft_jval concatenate(struct ft_eval *e, const struct ft_node *n)
{
    struct ft_buf text = {0};
    for (size_t i = 0; i < n->n && !e->failed; i++) {
        const struct ft_jval v = ft_eval(e, n->v[i]);
        if (!e->failed && !ft_v_print(v, &text)) ft_fail_eval(e, n->line, "a value nests too deeply to be printed");
        if (text.n > FT_RENDER_OUTPUT) ft_fail_eval(e, n->line, "a text is longer than 64 MiB");
    }
    const struct ft_jval v = e->failed ? ft_v_undefined("") : ft_eval_text(e, &text, n->line);
    ft_buf_fini(&text);
    return v;
}

static struct ft_jval slice(struct ft_eval *e, const struct ft_node *n)
{
    const struct ft_jval of = ft_eval(e, n->a);
    const struct ft_node *parts[3] = {n->b, n->c, n->d};
    struct ft_jval v[3];
    for (int i = 0; i < 3; i++) v[i] = parts[i] && !e->failed ? ft_eval(e, parts[i]) : ft_v_none();
    return e->failed ? of : ft_slice(e, of, v, n->line);
}

static struct ft_jval eval_one(struct ft_eval *e, const struct ft_node *n)
{
    struct ft_jval a, b;
    switch ((enum ft_node_kind)n->kind) {
    case FT_N_CONST: return n->value;
    case FT_N_NAME: return lookup(e, n);
    case FT_N_GETATTR: a = ft_eval(e, n->a); return e->failed ? a : ft_get_attr(e, a, n->name, strlen(n->name), n->line);
    case FT_N_GETITEM: a = ft_eval(e, n->a), b = ft_eval(e, n->b); return e->failed ? a : ft_get_item(e, a, b, n->line);
    case FT_N_SLICE: return slice(e, n);
    case FT_N_CALL: return call(e, n);
    case FT_N_FILTER: return filter(e, n);
    case FT_N_TEST: return test(e, n);
    case FT_N_BINARY:
        a = ft_eval(e, n->a), b = ft_eval(e, n->b);
        return e->failed ? a : ft_binary(e, (enum ft_op)n->op, a, b, n->line);
    case FT_N_AND: a = ft_eval(e, n->a); return e->failed || !ft_v_truth(a) ? a : ft_eval(e, n->b);
    case FT_N_OR: a = ft_eval(e, n->a); return e->failed || ft_v_truth(a) ? a : ft_eval(e, n->b);
    case FT_N_NOT: return ft_v_bool(!ft_v_truth(ft_eval(e, n->a)));
    case FT_N_NEG:
    case FT_N_POS: return sign(e, n);
    case FT_N_COMPARE: return compare(e, n);
    case FT_N_COND:
        a = ft_eval(e, n->b);
        if (e->failed) return a;
        if (ft_v_truth(a)) return ft_eval(e, n->a);
        return n->c ? ft_eval(e, n->c)
                    : ft_v_undefined("the inline if-expression evaluated to false and no else section was defined");
    case FT_N_LIST:
    case FT_N_TUPLE: return sequence(e, n);
    case FT_N_DICT: return dict(e, n);
    case FT_N_CONCAT: return concatenate(e, n);
    case FT_N_TEXT:
    case FT_N_OUTPUT:
    case FT_N_BLOCK:
    case FT_N_FOR:
    case FT_N_IF:
    case FT_N_SET:
    case FT_N_SETBLOCK:
    case FT_N_MACRO:
    case FT_N_FILTERBLOCK:
    case FT_N_GENERATION:
    case FT_N_BREAK:
    case FT_N_CONTINUE: break;
    }
    FT_BUG("a statement where an expression belongs");
}

struct ft_jval ft_eval(struct ft_eval *e, const struct ft_node *n)
{
    if (!ft_eval_step(e, n->line, 0)) return ft_v_undefined("");
    if (++e->depth > FT_RENDER_DEPTH) ft_fail_eval(e, n->line, "the template nests more than %d levels", FT_RENDER_DEPTH);
    const struct ft_jval v = e->failed ? ft_v_undefined("") : eval_one(e, n);
    e->depth--;
    return v;
}
