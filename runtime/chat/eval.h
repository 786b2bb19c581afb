/* Inside of a rendering (only for files of this folder). */
#ifndef FT_RUNTIME_CHAT_EVAL_H
#define FT_RUNTIME_CHAT_EVAL_H

#include "runtime/chat/ast.h"
#include "runtime/chat/template.h"

/* Names of one scope; lookups go outwards. */
struct ft_scope {
    struct ft_scope *outer;
    struct ft_binding {
        const char *name;
        struct ft_jval value;
    } * v;
    size_t n, cap;
};

struct ft_vmacro {
    const struct ft_node *node;
    struct ft_scope *scope; /* where it was defined */
};

struct ft_vloop {
    const struct ft_vlist *items;
    size_t index; /* from 0 */
    int depth;    /* from 1 */
};

struct ft_eval {
    const struct ft_template *t;
    struct ft_render *r;
    struct ft_vheap *heap;
    struct ft_buf *out; /* r->out, or a capture */
    struct ft_scope *scope;
    const char *date;
    int64_t steps;
    int depth, loop_depth;
    bool failed;
};

/* Evaluated arguments; names NULL for positional ones. */
struct ft_args {
    const struct ft_jval *v;
    const char *const *names;
    size_t n;
    int line;
};

struct ft_jval ft_fail_eval(struct ft_eval *e, int line, const char *fmt, ...) FT_PRINTF(3, 4); /* undefined */
bool ft_eval_step(struct ft_eval *e, int line, size_t cost); /* false: the limit is passed (or it failed before) */
struct ft_jval ft_eval(struct ft_eval *e, const struct ft_node *n);
struct ft_jval ft_eval_text(struct ft_eval *e, const struct ft_buf *b, int line); /* a string of the heap; b is emptied */
void ft_scope_set(struct ft_eval *e, struct ft_scope *s, const char *name, struct ft_jval v);

/* Argument i (positional) or by name; false: not given. */
bool ft_arg(const struct ft_args *a, size_t i, const char *name, struct ft_jval *out);

/* exec.c */
void ft_exec(struct ft_eval *e, const struct ft_node *n);
struct ft_jval ft_call_macro(struct ft_eval *e, const struct ft_vmacro *m, const struct ft_args *a);

/* access.c */
struct ft_jval ft_get_attr(struct ft_eval *e, struct ft_jval of, const char *name, size_t n, int line);
struct ft_jval ft_get_item(struct ft_eval *e, struct ft_jval of, struct ft_jval key, int line);
struct ft_jval ft_slice(struct ft_eval *e, struct ft_jval of, const struct ft_jval part[3],
                        int line); /* parts none when left out */
/* The items that a for loop goes over; false: not iterable (failed). */
bool ft_items_of(struct ft_eval *e, struct ft_jval v, int line, struct ft_jval *list);
int64_t ft_length_of(struct ft_jval v); /* -1: has none */

/* ops.c */
struct ft_jval ft_binary(struct ft_eval *e, enum ft_op op, struct ft_jval a, struct ft_jval b, int line);
bool ft_compare(struct ft_eval *e, enum ft_op op, struct ft_jval a, struct ft_jval b, int line);

/* filters.c, methods.c, tests.c */
struct ft_jval ft_filter(struct ft_eval *e, int id, struct ft_jval v, const struct ft_args *a);
bool ft_test_value(struct ft_eval *e, int id, struct ft_jval v, const struct ft_args *a);
struct ft_jval ft_call_method(struct ft_eval *e, const struct ft_vmethod *m, const struct ft_args *a);
struct ft_jval ft_call_function(struct ft_eval *e, int id, const struct ft_args *a);
/* Has this type the method? */
bool ft_has_method(struct ft_jval of, int id);

/* strings.c: Python's str methods, on UTF-8 */
struct ft_jval ft_str_strip(struct ft_eval *e, struct ft_jval s, struct ft_jval chars, bool left, bool right, int line);
struct ft_jval ft_str_replace(struct ft_eval *e, struct ft_jval s, struct ft_jval from, struct ft_jval to, int64_t count, int line);
struct ft_jval ft_str_split(struct ft_eval *e, struct ft_jval s, struct ft_jval sep, int64_t max, int line);
enum ft_case { FT_CASE_UPPER, FT_CASE_LOWER, FT_CASE_TITLE, FT_CASE_CAPITAL, FT_CASE_TITLE_FILTER };
struct ft_jval ft_str_case(struct ft_eval *e, struct ft_jval s, enum ft_case how, int line);
struct ft_jval ft_str_lines(struct ft_eval *e, struct ft_jval s, int line);
struct ft_jval ft_str_join(struct ft_eval *e, struct ft_jval list, struct ft_jval sep, int line);
struct ft_jval ft_as_text(struct ft_eval *e, struct ft_jval v, int line); /* str(v) */

#endif
