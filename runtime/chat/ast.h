/* The tree of a compiled template (only for files of this folder). */
#ifndef FT_RUNTIME_CHAT_AST_H
#define FT_RUNTIME_CHAT_AST_H

#include "runtime/chat/value.h"

enum ft_node_kind {
    /* expressions */
    FT_N_CONST,   /* value */
    FT_N_NAME,    /* name */
    FT_N_GETATTR, /* a . name */
    FT_N_GETITEM, /* a [ b ] */
    FT_N_SLICE,   /* a [ b : c : d ], each NULL when left out */
    FT_N_CALL,    /* a ( v…, names ) */
    FT_N_FILTER,  /* a | id ( v…, names ); a NULL: the body of a filter block */
    FT_N_TEST,    /* a is [not] id ( v… ); negate */
    FT_N_BINARY,  /* a op b */
    FT_N_AND,
    FT_N_OR,
    FT_N_NOT,
    FT_N_NEG,
    FT_N_POS,
    FT_N_COMPARE, /* a, then ops[i] v[i] */
    FT_N_COND,    /* a if b else c (c may be NULL) */
    FT_N_LIST,
    FT_N_TUPLE,
    FT_N_DICT,   /* v: key, value, key, value … */
    FT_N_CONCAT, /* v[0] ~ v[1] ~ … */
    /* statements */
    FT_N_TEXT,        /* value */
    FT_N_OUTPUT,      /* a */
    FT_N_BLOCK,       /* v */
    FT_N_FOR,         /* for a in b [if c]: d, else e */
    FT_N_IF,          /* if a: b, else c */
    FT_N_SET,         /* a = b */
    FT_N_SETBLOCK,    /* a = filters b (NULL) of body c */
    FT_N_MACRO,       /* name, names[i] = v[i] (NULL: no default), body a */
    FT_N_FILTERBLOCK, /* filters a of body b */
    FT_N_GENERATION,  /* body a */
    FT_N_BREAK,
    FT_N_CONTINUE
};

enum ft_op {
    FT_OP_ADD,
    FT_OP_SUB,
    FT_OP_MUL,
    FT_OP_DIV,
    FT_OP_FLOORDIV,
    FT_OP_MOD,
    FT_OP_POW,
    FT_OP_EQ,
    FT_OP_NE,
    FT_OP_LT,
    FT_OP_LE,
    FT_OP_GT,
    FT_OP_GE,
    FT_OP_IN,
    FT_OP_NOT_IN
};

struct ft_node {
    uint8_t kind, op;
    bool negate;
    int id; /* filter, test */
    int line;
    const char *name; /* NUL terminated */
    struct ft_jval value;
    struct ft_node *a, *b, *c, *d, *e;
    struct ft_node **v;
    const char **names; /* of keyword arguments, NULL for positional ones; same length as v */
    uint8_t *ops;
    size_t n;
};

struct ft_template {
    struct ft_arena *arena;
    char *name;
    struct ft_node *root;
    bool generation; /* has {% generation %} */
    bool dated;      /* calls strftime_now */
};

/* ---- lex.c ---- */
enum ft_tok_kind {
    FT_T_TEXT,
    FT_T_VAR_BEGIN,
    FT_T_VAR_END,
    FT_T_BLOCK_BEGIN,
    FT_T_BLOCK_END,
    FT_T_NAME,
    FT_T_STRING,
    FT_T_INT,
    FT_T_FLOAT,
    FT_T_OP, /* s, n: one of + - * / // % ** ~ ( ) [ ] { } == != < <= > >= = . , : | */
    FT_T_END
};
struct ft_tok {
    uint8_t kind;
    int line;
    const char *s;
    size_t n;
    int64_t i;
    double f;
};
struct ft_toks {
    struct ft_tok *v;
    size_t n, cap;
};
/* Tokens of a template; strings live in arena. */
enum ft_code ft_template_lex(struct ft_arena *arena, const char *name, const char *text, size_t n, struct ft_toks *out,
                             struct ft_err *err) FT_MUST_CHECK;

/* ---- parse.c ---- */
enum ft_code ft_template_parse(struct ft_template *t, const struct ft_toks *toks, struct ft_err *err) FT_MUST_CHECK;

/* ---- names known to the language: -1 when not ---- */
int ft_filter_id(const char *name);
int ft_test_id(const char *name);
int ft_method_id(const char *name, size_t n);
int ft_function_id(const char *name, size_t n);

/* Python's white space: White_Space and U+001C..1F. */
bool ft_py_space(uint32_t cp);
/* Bytes of white space at the front / at the end of s. */
size_t ft_py_space_front(const char *s, size_t n);
size_t ft_py_space_back(const char *s, size_t n);

#endif
