#include <string.h>

#include "runtime/chat/eval.h"

enum test {
    DEFINED,
    UNDEFINED,
    NONE,
    IS_STRING,
    ITERABLE,
    MAPPING,
    IS_TRUE,
    IS_FALSE,
    BOOLEAN,
    INTEGER,
    REAL,
    NUMBER,
    SEQUENCE,
    ODD,
    EVEN,
    EQ,
    NE,
    LT,
    LE,
    GT,
    GE,
    IN
};

static const struct {
    const char *name;
    enum test id;
} names[] = {{"defined", DEFINED},
             {"undefined", UNDEFINED},
             {"none", NONE},
             {"string", IS_STRING},
             {"iterable", ITERABLE},
             {"mapping", MAPPING},
             {"true", IS_TRUE},
             {"false", IS_FALSE},
             {"boolean", BOOLEAN},
             {"integer", INTEGER},
             {"float", REAL},
             {"number", NUMBER},
             {"sequence", SEQUENCE},
             {"odd", ODD},
             {"even", EVEN},
             {"eq", EQ},
             {"equalto", EQ},
             {"==", EQ},
             {"ne", NE},
             {"!=", NE},
             {"lt", LT},
             {"lessthan", LT},
             {"<", LT},
             {"le", LE},
             {"<=", LE},
             {"gt", GT},
             {"greaterthan", GT},
             {">", GT},
             {"ge", GE},
             {">=", GE},
             {"in", IN}};

int ft_test_id(const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i].name, name)) return (int)names[i].id;
    return -1;
}

static bool is_odd(struct ft_eval *e, struct ft_jval v, int line)
{
    const struct ft_jval m = ft_binary(e, FT_OP_MOD, v, ft_v_int(2), line);
    return !e->failed && ft_v_truth(m);
}

static bool compared(struct ft_eval *e, enum ft_op op, struct ft_jval v, const struct ft_args *a)
{
    if (a->n == 1) return ft_compare(e, op, v, a->v[0], a->line);
    ft_fail_eval(e, a->line, "the test needs one argument");
    return false;
}

bool ft_test_value(struct ft_eval *e, int id, struct ft_jval v, const struct ft_args *a)
{
    const enum ft_vtype t = (enum ft_vtype)v.type;
    switch ((enum test)id) {
    case DEFINED: return t != FT_V_UNDEFINED;
    case UNDEFINED: return t == FT_V_UNDEFINED;
    case NONE: return t == FT_V_NONE;
    case IS_STRING: return t == FT_V_STRING;
    case ITERABLE:
        return t == FT_V_STRING || t == FT_V_LIST || t == FT_V_TUPLE || t == FT_V_DICT || t == FT_V_UNDEFINED || t == FT_V_LOOP;
    case MAPPING: return t == FT_V_DICT;
    case IS_TRUE: return t == FT_V_BOOL && v.u.b;
    case IS_FALSE: return t == FT_V_BOOL && !v.u.b;
    case BOOLEAN: return t == FT_V_BOOL;
    case INTEGER: return t == FT_V_INT;
    case REAL: return t == FT_V_FLOAT;
    case NUMBER: return ft_v_is_number(v);
    case SEQUENCE: return t == FT_V_STRING || t == FT_V_LIST || t == FT_V_TUPLE || t == FT_V_DICT;
    case ODD: return is_odd(e, v, a->line);
    case EVEN: return !is_odd(e, v, a->line) && !e->failed;
    case EQ: return compared(e, FT_OP_EQ, v, a);
    case NE: return compared(e, FT_OP_NE, v, a);
    case LT: return compared(e, FT_OP_LT, v, a);
    case LE: return compared(e, FT_OP_LE, v, a);
    case GT: return compared(e, FT_OP_GT, v, a);
    case GE: return compared(e, FT_OP_GE, v, a);
    case IN: return compared(e, FT_OP_IN, v, a);
    }
    return false;
}
