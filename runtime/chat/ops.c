/* Arithmetic and comparison, as in Python. */
#include <math.h>
#include <string.h>

#include "runtime/chat/eval.h"

static double real_of(struct ft_jval v) { return v.type == FT_V_FLOAT ? v.u.f : v.type == FT_V_INT ? (double)v.u.i : v.u.b; }
static int64_t int_of(struct ft_jval v) { return v.type == FT_V_INT ? v.u.i : v.u.b; }
static bool is_list(struct ft_jval v) { return v.type == FT_V_LIST || v.type == FT_V_TUPLE; }

static struct ft_jval real_binary(struct ft_eval *e, enum ft_op op, double a, double b, int line)
{
    if ((op == FT_OP_DIV || op == FT_OP_FLOORDIV || op == FT_OP_MOD) && b == 0) return ft_fail_eval(e, line, "division by zero");
    if (op == FT_OP_ADD) return ft_v_float(a + b);
    if (op == FT_OP_SUB) return ft_v_float(a - b);
    if (op == FT_OP_MUL) return ft_v_float(a * b);
    if (op == FT_OP_DIV) return ft_v_float(a / b);
    if (op == FT_OP_FLOORDIV) return ft_v_float(floor(a / b));
    if (op == FT_OP_POW) return ft_v_float(pow(a, b));
    const double m = fmod(a, b);
    return ft_v_float(m != 0 && (m < 0) != (b < 0) ? m + b : m);
}

static struct ft_jval int_power(struct ft_eval *e, int64_t a, int64_t b, int line)
{
    int64_t x = 1;
    if (b < 0)
        return a == 0 ? ft_fail_eval(e, line, "0 cannot be raised to a negative power") : ft_v_float(pow((double)a, (double)b));
    if (a == 0 || a == 1) return ft_v_int(b == 0 ? 1 : a);
    if (a == -1) return ft_v_int(b % 2 ? -1 : 1);
    for (; b > 0; b--)
        if (__builtin_mul_overflow(x, a, &x)) return ft_fail_eval(e, line, "an integer is out of range");
    return ft_v_int(x);
}

static struct ft_jval int_binary(struct ft_eval *e, enum ft_op op, int64_t a, int64_t b, int line)
{
    int64_t x = 0;
    bool over = false;
    if ((op == FT_OP_DIV || op == FT_OP_FLOORDIV || op == FT_OP_MOD) && b == 0) return ft_fail_eval(e, line, "division by zero");
    if (op == FT_OP_DIV) return ft_v_float((double)a / (double)b);
    if (op == FT_OP_POW) return int_power(e, a, b, line);
    if (op == FT_OP_ADD) over = __builtin_add_overflow(a, b, &x);
    else if (op == FT_OP_SUB) over = __builtin_sub_overflow(a, b, &x);
    else if (op == FT_OP_MUL) over = __builtin_mul_overflow(a, b, &x);
    else if (b == -1) over = op == FT_OP_FLOORDIV && __builtin_sub_overflow((int64_t)0, a, &x);
    else if (op == FT_OP_FLOORDIV) x = a / b - (a % b != 0 && (a < 0) != (b < 0));
    else x = a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
    return over ? ft_fail_eval(e, line, "an integer is out of range") : ft_v_int(x);
}

static struct ft_jval repeat(struct ft_eval *e, struct ft_jval what, int64_t times, int line)
{
    if (times < 0) times = 0;
    const size_t n = what.type == FT_V_STRING ? what.n : what.u.list->n;
    if (n && times > FT_RENDER_OUTPUT / (int64_t)n) return ft_fail_eval(e, line, "a value is repeated too often");
    if (what.type == FT_V_STRING) {
        char *s = ft_vheap_alloc(e->heap, n * (size_t)times + 1);
        for (int64_t i = 0; s && i < times; i++) memcpy(s + (size_t)i * n, what.u.s, n);
        return s ? ft_v_str(s, n * (size_t)times) : ft_v_undefined("");
    }
    const struct ft_jval out = ft_v_list(e->heap, (enum ft_vtype)what.type, 0);
    for (int64_t i = 0; i < times; i++)
        for (size_t k = 0; k < n && ft_eval_step(e, line, 0); k++) ft_v_push(e->heap, out, what.u.list->v[k]);
    return out;
}

static struct ft_jval add_texts(struct ft_eval *e, struct ft_jval a, struct ft_jval b, int line)
{
    const size_t n = (size_t)a.n + b.n;
    if (n > FT_RENDER_OUTPUT) return ft_fail_eval(e, line, "a text is longer than 64 MiB");
    if (!a.n) return b;
    if (!b.n) return a;
    char *s = ft_vheap_alloc(e->heap, n + 1);
    if (!s) return ft_v_undefined("");
    memcpy(s, a.u.s, a.n);
    memcpy(s + a.n, b.u.s, b.n);
    return ft_v_str(s, n);
}

static struct ft_jval add_lists(struct ft_eval *e, struct ft_jval a, struct ft_jval b, int line)
{
    const struct ft_jval out = ft_v_list(e->heap, (enum ft_vtype)a.type, a.u.list->n + b.u.list->n);
    if (!ft_eval_step(e, line, (a.u.list->n + b.u.list->n) * 16)) return out;
    for (size_t i = 0; i < a.u.list->n; i++) ft_v_push(e->heap, out, a.u.list->v[i]);
    for (size_t i = 0; i < b.u.list->n; i++) ft_v_push(e->heap, out, b.u.list->v[i]);
    return out;
}

static const char *sign_of(enum ft_op op)
{
    static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
    return signs[op];
}

struct ft_jval ft_binary(struct ft_eval *e, enum ft_op op, struct ft_jval a, struct ft_jval b, int line)
{
    if (a.type == FT_V_UNDEFINED) return ft_fail_eval(e, line, "'%.*s' is undefined", (int)a.n, a.u.s);
    if (b.type == FT_V_UNDEFINED) return ft_fail_eval(e, line, "'%.*s' is undefined", (int)b.n, b.u.s);
    if (ft_v_is_number(a) && ft_v_is_number(b)) {
        if (a.type == FT_V_FLOAT || b.type == FT_V_FLOAT) return real_binary(e, op, real_of(a), real_of(b), line);
        return int_binary(e, op, int_of(a), int_of(b), line);
    }
    if (op == FT_OP_ADD && a.type == FT_V_STRING && b.type == FT_V_STRING) return add_texts(e, a, b, line);
    if (op == FT_OP_ADD && is_list(a) && a.type == b.type) return add_lists(e, a, b, line);
    if (op == FT_OP_MUL && (a.type == FT_V_STRING || is_list(a)) && (b.type == FT_V_INT || b.type == FT_V_BOOL))
        return repeat(e, a, int_of(b), line);
    if (op == FT_OP_MUL && (b.type == FT_V_STRING || is_list(b)) && (a.type == FT_V_INT || a.type == FT_V_BOOL))
        return repeat(e, b, int_of(a), line);
    return ft_fail_eval(e, line, "unsupported operand types for %s: '%s' and '%s'", sign_of(op), ft_v_type_name(a),
                        ft_v_type_name(b));
}

/* -1, 0, 1; 2: not ordered (not a number); 3: failed */
static int order(struct ft_eval *e, enum ft_op op, struct ft_jval a, struct ft_jval b, int line, int depth)
{
    if (ft_v_is_number(a) && ft_v_is_number(b)) {
        if (a.type != FT_V_FLOAT && b.type != FT_V_FLOAT) return (int_of(a) > int_of(b)) - (int_of(a) < int_of(b));
        const double x = real_of(a), y = real_of(b);
        return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
    }
    if (a.type == FT_V_STRING && b.type == FT_V_STRING) {
        const size_t n = a.n < b.n ? a.n : b.n;
        const int c = n ? memcmp(a.u.s, b.u.s, n) : 0;
        return c ? (c > 0) - (c < 0) : (a.n > b.n) - (a.n < b.n);
    }
    if (is_list(a) && a.type == b.type && depth < 64) {
        for (size_t i = 0; i < a.u.list->n && i < b.u.list->n; i++) {
            if (!ft_eval_step(e, line, 0)) return 3;
            if (!ft_v_equal(a.u.list->v[i], b.u.list->v[i])) return order(e, op, a.u.list->v[i], b.u.list->v[i], line, depth + 1);
        }
        return (a.u.list->n > b.u.list->n) - (a.u.list->n < b.u.list->n);
    }
    const struct ft_jval *u = a.type == FT_V_UNDEFINED ? &a : b.type == FT_V_UNDEFINED ? &b : NULL;
    if (u) ft_fail_eval(e, line, "'%.*s' is undefined", (int)u->n, u->u.s);
    else
        ft_fail_eval(e, line, "'%s' not supported between instances of '%s' and '%s'", sign_of(op), ft_v_type_name(a),
                     ft_v_type_name(b));
    return 3;
}

static bool contains(struct ft_eval *e, struct ft_jval what, struct ft_jval in, int line)
{
    struct ft_jval v;
    if (in.type == FT_V_STRING) {
        if (what.type == FT_V_STRING)
            return ft_eval_step(e, line, in.n / 16) && (!what.n || (in.n && memmem(in.u.s, in.n, what.u.s, what.n)));
        ft_fail_eval(e, line, "'in <string>' requires string as left operand, not %s", ft_v_type_name(what));
        return false;
    }
    if (in.type == FT_V_DICT) return ft_eval_step(e, line, in.u.dict->n * 16) && ft_v_get(in, what, &v);
    if (in.type == FT_V_UNDEFINED) return false;
    if (is_list(in)) {
        if (!ft_eval_step(e, line, in.u.list->n * 16)) return false;
        for (size_t i = 0; i < in.u.list->n; i++)
            if (ft_v_equal(in.u.list->v[i], what)) return true;
        return false;
    }
    ft_fail_eval(e, line, "argument of type '%s' is not iterable", ft_v_type_name(in));
    return false;
}

bool ft_compare(struct ft_eval *e, enum ft_op op, struct ft_jval a, struct ft_jval b, int line)
{
    if (op == FT_OP_EQ) return ft_v_equal(a, b);
    if (op == FT_OP_NE) return !ft_v_equal(a, b);
    if (op == FT_OP_IN) return contains(e, a, b, line);
    if (op == FT_OP_NOT_IN) return !contains(e, a, b, line) && !e->failed;
    const int c = order(e, op, a, b, line, 0);
    if (c > 1) return false;
    return op == FT_OP_LT ? c < 0 : op == FT_OP_LE ? c <= 0 : op == FT_OP_GT ? c > 0 : c >= 0;
}
