/* Values of the template language. Small structs passed by value; strings, lists and dicts live in the heap of one rendering (or in
 * the compiled template) and die with it. Nothing is changed after it was made but namespaces. */
#ifndef FT_RUNTIME_CHAT_VALUE_H
#define FT_RUNTIME_CHAT_VALUE_H

#include "base/arena.h"
#include "base/json.h"

enum ft_vtype {
    FT_V_UNDEFINED, /* s/n: the name that was not found */
    FT_V_NONE,
    FT_V_BOOL,
    FT_V_INT,
    FT_V_FLOAT,
    FT_V_STRING,
    FT_V_LIST,
    FT_V_TUPLE,
    FT_V_DICT,
    FT_V_NAMESPACE,
    FT_V_FUNCTION, /* a global function: n is its number */
    FT_V_METHOD,   /* bound: method->self */
    FT_V_MACRO,
    FT_V_LOOP
};

struct ft_jval {
    uint8_t type; /* enum ft_vtype */
    uint32_t n;   /* STRING, UNDEFINED: bytes */
    union {
        bool b;
        int64_t i;
        double f;
        const char *s; /* UTF-8, not NUL terminated */
        struct ft_vlist *list;
        struct ft_vdict *dict; /* DICT and NAMESPACE */
        const struct ft_vmethod *method;
        struct ft_vmacro *macro;
        struct ft_vloop *loop;
    } u;
};

struct ft_vlist {
    struct ft_jval *v;
    size_t n, cap;
};
struct ft_vdict { /* in order of insertion */
    struct ft_jval *key, *value;
    size_t n, cap;
};
struct ft_vmethod {
    struct ft_jval self;
    int id;
};

/* Memory of a rendering, with a limit: when it is passed, failed is set, the makers give empty values and the
 * rendering ends with an error. */
struct ft_vheap {
    struct ft_arena *arena;
    size_t used, limit;
    bool failed;
    struct ft_vlist spare_list; /* what is handed out when the limit is passed; stays empty */
    struct ft_vdict spare_dict;
};
void *ft_vheap_alloc(struct ft_vheap *h, size_t bytes);

struct ft_jval ft_v_none(void);
struct ft_jval ft_v_bool(bool b);
struct ft_jval ft_v_int(int64_t i);
struct ft_jval ft_v_float(double f);
struct ft_jval ft_v_str(const char *s, size_t n); /* borrows s */
struct ft_jval ft_v_cstr(const char *s);          /* borrows s */
struct ft_jval ft_v_undefined(const char *name);
struct ft_jval ft_v_copy(struct ft_vheap *h, const char *s, size_t n); /* copies */
struct ft_jval ft_v_list(struct ft_vheap *h, enum ft_vtype list_or_tuple, size_t room);
void ft_v_push(struct ft_vheap *h, struct ft_jval list, struct ft_jval x);
struct ft_jval ft_v_dict(struct ft_vheap *h);
void ft_v_set(struct ft_vheap *h, struct ft_jval dict, struct ft_jval key, struct ft_jval value);
bool ft_v_get(struct ft_jval dict, struct ft_jval key, struct ft_jval *out);
bool ft_v_get_str(struct ft_jval dict, const char *key, size_t n, struct ft_jval *out);
/* A JSON value; integers stay integers, order of keys is kept. Strings are borrowed from v. */
struct ft_jval ft_v_json(struct ft_vheap *h, const struct ft_json *v);

bool ft_v_is_number(struct ft_jval v); /* int, float, bool */
bool ft_v_truth(struct ft_jval v);
bool ft_v_equal(struct ft_jval a, struct ft_jval b);
const char *ft_v_type_name(struct ft_jval v); /* Python's */
/* str(v) and repr(v). false: the value nests too deeply. */
bool ft_v_print(struct ft_jval v, struct ft_buf *out);
bool ft_v_repr(struct ft_jval v, struct ft_buf *out);
void ft_v_float_text(double f, struct ft_buf *out); /* Python's repr of a float */

struct ft_dumps { /* options of json.dumps */
    bool ensure_ascii, sort_keys;
    int indent;               /* -1: one line */
    struct ft_jval item, key; /* separators; undefined: the usual ones */
};
/* false with why: a value that JSON has not. */
bool ft_v_dumps(struct ft_jval v, const struct ft_dumps *how, struct ft_buf *out, const char **why);

#endif
