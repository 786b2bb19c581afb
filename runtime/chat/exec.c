/* Statements, macros and the rendering itself. */
#include <stdlib.h>
#include <string.h>

#include "runtime/chat/eval.h"

enum { HEAP = 512 << 20, MESSAGE = 400 };
enum flow { GO_ON, BREAK, CONTINUE };

static enum flow run(struct ft_eval *e, const struct ft_node *n);

void ft_scope_set(struct ft_eval *e, struct ft_scope *s, const char *name, struct ft_jval v)
{
    for (size_t i = 0; i < s->n; i++)
        if (!strcmp(s->v[i].name, name)) {
            s->v[i].value = v;
            return;
        }
    if (s->n == s->cap) {
        const size_t cap = s->cap ? 2 * s->cap : 8;
        struct ft_binding *more = ft_vheap_alloc(e->heap, cap * sizeof *more);
        if (!more) return;
        if (s->n) memcpy(more, s->v, s->n * sizeof *more);
        s->v = more, s->cap = cap;
    }
    s->v[s->n++] = (struct ft_binding){name, v};
}

static bool open_scope(struct ft_eval *e, struct ft_scope *outer)
{
    struct ft_scope *s = ft_vheap_alloc(e->heap, sizeof *s);
    if (!s) return false;
    s->outer = outer;
    e->scope = s;
    return true;
}

static void write_value(struct ft_eval *e, struct ft_jval v, int line)
{
    if (v.type == FT_V_STRING) {
        if (v.n) ft_buf_add(e->out, v.u.s, v.n);
    } else if (!ft_v_print(v, e->out)) {
        ft_fail_eval(e, line, "a value nests too deeply to be printed");
    }
    if (e->out->n > FT_RENDER_OUTPUT) ft_fail_eval(e, line, "the text is longer than 64 MiB");
}

/* target: a name, ns.attribute, or a tuple of names. */
static void assign(struct ft_eval *e, const struct ft_node *target, struct ft_jval v)
{
    if (target->kind == FT_N_NAME) {
        ft_scope_set(e, e->scope, target->name, v);
    } else if (target->kind == FT_N_GETATTR) {
        const struct ft_jval ns = ft_eval(e, target->a);
        if (e->failed) return;
        if (ns.type == FT_V_NAMESPACE) ft_v_set(e->heap, ns, ft_v_cstr(target->name), v);
        else ft_fail_eval(e, target->line, "cannot assign attribute on non-namespace object");
    } else {
        struct ft_jval list;
        if (!ft_items_of(e, v, target->line, &list)) return;
        if (list.u.list->n != target->n) {
            ft_fail_eval(e, target->line, "%zu values for %zu names", list.u.list->n, target->n);
            return;
        }
        for (size_t i = 0; i < target->n && !e->failed; i++) assign(e, target->v[i], list.u.list->v[i]);
    }
}

/* The items for which the loop's own condition holds. */
static struct ft_jval select_items(struct ft_eval *e, const struct ft_node *n, struct ft_jval items)
{
    struct ft_jval kept = ft_v_list(e->heap, FT_V_LIST, items.u.list->n);
    struct ft_scope *outer = e->scope;
    for (size_t i = 0; i < items.u.list->n && !e->failed; i++) {
        if (!open_scope(e, outer) || !ft_eval_step(e, n->line, 0)) break;
        assign(e, n->a, items.u.list->v[i]);
        if (!e->failed && ft_v_truth(ft_eval(e, n->c))) ft_v_push(e->heap, kept, items.u.list->v[i]);
    }
    e->scope = outer;
    return kept;
}

static void run_for(struct ft_eval *e, const struct ft_node *n)
{
    struct ft_jval items;
    struct ft_scope *outer = e->scope;
    bool completed = false; /* some round reached its end */
    const struct ft_jval over = ft_eval(e, n->b);
    if (e->failed || !ft_items_of(e, over, n->line, &items)) return;
    if (n->c) items = select_items(e, n, items);
    struct ft_vloop *loop = ft_vheap_alloc(e->heap, sizeof *loop);
    if (!loop || e->failed) return;
    *loop = (struct ft_vloop){.items = items.u.list, .depth = ++e->loop_depth};
    const struct ft_jval loop_value = {.type = FT_V_LOOP, .u.loop = loop};
    for (size_t i = 0; i < items.u.list->n && !e->failed; i++) {
        if (!open_scope(e, outer) || !ft_eval_step(e, n->line, 0)) break;
        loop->index = i;
        ft_scope_set(e, e->scope, "loop", loop_value);
        assign(e, n->a, items.u.list->v[i]);
        const enum flow f = e->failed ? BREAK : run(e, n->d);
        if (f == BREAK) break;
        if (f == GO_ON) completed = true;
    }
    e->loop_depth--;
    e->scope = outer;
    if (!completed && n->e && !e->failed) { /* as jinja2: also when break or continue cut every round short */
        if (open_scope(e, outer)) (void)run(e, n->e);
        e->scope = outer;
    }
}

/* The text that a body writes. */
static struct ft_jval capture(struct ft_eval *e, const struct ft_node *body)
{
    struct ft_buf text = {0}, *before = e->out;
    e->out = &text;
    (void)run(e, body);
    e->out = before;
    const struct ft_jval v = e->failed ? ft_v_undefined("") : ft_eval_text(e, &text, body->line);
    ft_buf_fini(&text);
    return v;
}

static struct ft_jval capture_in_scope(struct ft_eval *e, const struct ft_node *body)
{
    struct ft_scope *outer = e->scope;
    if (!open_scope(e, outer)) return ft_v_undefined("");
    const struct ft_jval v = capture(e, body);
    e->scope = outer;
    return v;
}

/* A chain of filters whose innermost value is the text of a block. */
static struct ft_jval filtered(struct ft_eval *e, const struct ft_node *chain, struct ft_jval text)
{
    if (!chain) return text;
    ft_scope_set(e, e->scope, "\1block", text);
    return ft_eval(e, chain);
}

static void run_generation(struct ft_eval *e, const struct ft_node *n)
{
    struct ft_scope *outer = e->scope;
    const size_t begin = e->out->n;
    if (!open_scope(e, outer)) return;
    (void)run(e, n->a);
    e->scope = outer;
    if (e->failed) return;
    if (e->out != &e->r->out) {
        ft_fail_eval(e, n->line, "a generation block inside a macro or a set block has no place in the text");
        return;
    }
    ft_grow(&e->r->gen, &e->r->gen_cap, e->r->n_gen + 1, sizeof *e->r->gen);
    e->r->gen[e->r->n_gen++] = (struct ft_gen){begin, e->out->n};
}

static void run_macro_definition(struct ft_eval *e, const struct ft_node *n)
{
    struct ft_vmacro *m = ft_vheap_alloc(e->heap, sizeof *m);
    if (!m) return;
    *m = (struct ft_vmacro){n, e->scope};
    ft_scope_set(e, e->scope, n->name, (struct ft_jval){.type = FT_V_MACRO, .u.macro = m});
}

struct ft_jval ft_call_macro(struct ft_eval *e, const struct ft_vmacro *m, const struct ft_args *a)
{
    const struct ft_node *n = m->node;
    struct ft_scope *before = e->scope;
    size_t positional = 0;
    if (!open_scope(e, m->scope)) return ft_v_undefined("");
    for (size_t i = 0; i < a->n; i++) {
        bool known = false;
        positional += !a->names[i];
        for (size_t k = 0; a->names[i] && k < n->n; k++) known = known || !strcmp(n->names[k], a->names[i]);
        if (a->names[i] && !known)
            return ft_fail_eval(e, a->line, "macro '%s' takes no keyword argument '%s'", n->name, a->names[i]);
    }
    if (positional > n->n) return ft_fail_eval(e, a->line, "macro '%s' takes not more than %zu argument(s)", n->name, n->n);
    for (size_t k = 0; k < n->n && !e->failed; k++) {
        struct ft_jval v;
        if (!ft_arg(a, k, n->names[k], &v)) v = n->v[k] ? ft_eval(e, n->v[k]) : ft_v_undefined(n->names[k]);
        ft_scope_set(e, e->scope, n->names[k], v);
    }
    const int loop_depth = e->loop_depth;
    e->loop_depth = 0;
    const struct ft_jval text = e->failed ? ft_v_undefined("") : capture(e, n->a);
    e->loop_depth = loop_depth;
    e->scope = before;
    return text;
}

static enum flow run_if(struct ft_eval *e, const struct ft_node *n)
{
    for (; n && !e->failed; n = n->c) {
        if (n->kind != FT_N_IF) return run(e, n); /* else */
        const bool yes = ft_v_truth(ft_eval(e, n->a));
        if (e->failed) break;
        if (yes) return run(e, n->b);
    }
    return GO_ON;
}

static enum flow run_one(struct ft_eval *e, const struct ft_node *n)
{
    struct ft_jval v;
    switch ((enum ft_node_kind)n->kind) {
    case FT_N_TEXT: write_value(e, n->value, n->line); break;
    case FT_N_OUTPUT:
        v = ft_eval(e, n->a);
        if (!e->failed) write_value(e, v, n->line);
        break;
    case FT_N_BLOCK:
        for (size_t i = 0; i < n->n && !e->failed; i++) {
            const enum flow f = run(e, n->v[i]);
            if (f != GO_ON) return f;
        }
        break;
    case FT_N_FOR: run_for(e, n); break;
    case FT_N_IF: return run_if(e, n);
    case FT_N_SET:
        v = ft_eval(e, n->b);
        if (!e->failed) assign(e, n->a, v);
        break;
    case FT_N_SETBLOCK:
        v = filtered(e, n->b, capture_in_scope(e, n->c));
        if (!e->failed) assign(e, n->a, v);
        break;
    case FT_N_FILTERBLOCK:
        v = filtered(e, n->a, capture_in_scope(e, n->b));
        if (!e->failed) write_value(e, v, n->line);
        break;
    case FT_N_MACRO: run_macro_definition(e, n); break;
    case FT_N_GENERATION: run_generation(e, n); break;
    case FT_N_BREAK: return BREAK;
    case FT_N_CONTINUE: return CONTINUE;
    case FT_N_CONST:
    case FT_N_NAME:
    case FT_N_GETATTR:
    case FT_N_GETITEM:
    case FT_N_SLICE:
    case FT_N_CALL:
    case FT_N_FILTER:
    case FT_N_TEST:
    case FT_N_BINARY:
    case FT_N_AND:
    case FT_N_OR:
    case FT_N_NOT:
    case FT_N_NEG:
    case FT_N_POS:
    case FT_N_COMPARE:
    case FT_N_COND:
    case FT_N_LIST:
    case FT_N_TUPLE:
    case FT_N_DICT:
    case FT_N_CONCAT: FT_BUG("an expression where a statement belongs");
    }
    return GO_ON;
}

static enum flow run(struct ft_eval *e, const struct ft_node *n)
{
    if (!ft_eval_step(e, n->line, 0)) return GO_ON;
    if (++e->depth > FT_RENDER_DEPTH) ft_fail_eval(e, n->line, "the template nests more than %d levels", FT_RENDER_DEPTH);
    const enum flow f = e->failed ? GO_ON : run_one(e, n);
    e->depth--;
    return f;
}

void ft_exec(struct ft_eval *e, const struct ft_node *n) { (void)run(e, n); }

/* ---- the whole ---- */

enum ft_code ft_template_compile(const char *name, const char *text, size_t n, struct ft_template **out, struct ft_err *err)
{
    struct ft_template *t = ft_xcalloc(1, sizeof *t);
    struct ft_toks toks = {0};
    t->arena = ft_arena_create();
    t->name = ft_xstrdup(name);
    enum ft_code rc = n > (1 << 24) ? ft_fail(err, FT_DATA, "template '%s' has %zu bytes: too long", name, n)
                                    : ft_template_lex(t->arena, name, text, n, &toks, err);
    if (rc == FT_OK) rc = ft_template_parse(t, &toks, err);
    free(toks.v);
    if (rc == FT_OK) *out = t;
    else ft_template_destroy(t);
    return rc;
}

void ft_template_destroy(struct ft_template *t)
{
    if (!t) return;
    ft_arena_destroy(t->arena);
    free(t->name);
    free(t);
}

const char *ft_template_name(const struct ft_template *t) { return t->name; }
bool ft_template_has_generation(const struct ft_template *t) { return t->generation; }
bool ft_template_is_dated(const struct ft_template *t) { return t->dated; }

void ft_render_begin(struct ft_render *r)
{
    memset(r, 0, sizeof *r);
    r->heap.arena = ft_arena_create();
    r->heap.limit = HEAP;
}

void ft_render_end(struct ft_render *r)
{
    ft_arena_destroy(r->heap.arena);
    ft_buf_fini(&r->out);
    free(r->gen);
    memset(r, 0, sizeof *r);
}

bool ft_template_render(const struct ft_template *t, const struct ft_var *vars, size_t n_vars, const char *date,
                        struct ft_render *r)
{
    struct ft_eval e = {.t = t, .r = r, .heap = &r->heap, .out = &r->out, .date = date};
    ft_buf_clear(&r->out);
    r->n_gen = 0, r->error[0] = 0, r->error_line = 0, r->needs_date = false;
    if (open_scope(&e, NULL)) {
        for (size_t i = 0; i < n_vars; i++)
            if (vars[i].value.type != FT_V_UNDEFINED) ft_scope_set(&e, e.scope, vars[i].name, vars[i].value);
        ft_exec(&e, t->root);
    }
    if (r->heap.failed && !e.failed) ft_fail_eval(&e, 0, "the rendering needs more than 512 MiB");
    return !e.failed;
}
