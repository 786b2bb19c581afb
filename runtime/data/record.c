#include "runtime/data/record.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/token/unicode.h"

struct reader {
    const struct ft_line *line;
    const struct ft_json *record;
    const struct ft_list *columns;
    struct ft_convo *c;
    struct ft_line_fault *fault;
};

/* ---- names ---- */

const char *ft_format_name(enum ft_data_format format)
{
    static const char *const names[] = {"auto", "messages", "sharegpt", "alpaca", "io", "prompt", "text", "tokens", "transcript"};
    return names[format];
}

/* The record's own name of a field: columns = prompt:question. canonical may have two names ("input", or "prompt" for columns). */
static const char *own_name(const struct ft_list *columns, const char *canonical, const char *alias)
{
    for (size_t i = 0; columns && i < columns->n; i++) {
        const char *colon = strchr(columns->v[i], ':');
        const size_t n = colon ? (size_t)(colon - columns->v[i]) : 0;
        if (!colon) continue;
        if (n == strlen(canonical) && !memcmp(columns->v[i], canonical, n)) return colon + 1;
        if (alias && n == strlen(alias) && !memcmp(columns->v[i], alias, n)) return colon + 1;
    }
    return canonical;
}

static const struct ft_json *member(const struct reader *r, const char *canonical, const char *alias)
{
    return ft_json_get(r->record, own_name(r->columns, canonical, alias));
}

enum ft_data_format ft_record_shape(const struct ft_json *v, const struct ft_list *columns)
{
    static const struct {
        const char *canonical, *alias;
        enum ft_data_format format;
    } shapes[] = {{"messages", NULL, FT_FORMAT_MESSAGES},  {"conversations", NULL, FT_FORMAT_SHAREGPT},
                  {"instruction", NULL, FT_FORMAT_ALPACA}, {"completion", NULL, FT_FORMAT_PROMPT},
                  {"prompt", NULL, FT_FORMAT_PROMPT},      {"output", "response", FT_FORMAT_IO},
                  {"input", "prompt", FT_FORMAT_IO},       {"input_ids", NULL, FT_FORMAT_TOKENS},
                  {"text", NULL, FT_FORMAT_TEXT}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (ft_json_get(v, own_name(columns, shapes[i].canonical, shapes[i].alias))) return shapes[i].format;
    return FT_FORMAT_AUTO;
}

/* ---- faults ---- */

static FT_PRINTF(4, 5) bool bad(const struct reader *r, enum ft_fault_kind kind, const char *const *path, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->fault->text, sizeof r->fault->text, fmt, ap);
    va_end(ap);
    r->fault->text[ft_utf8_valid(r->fault->text, strlen(r->fault->text))] = 0;
    r->fault->kind = kind;
    r->fault->column = ft_line_column(r->line, path);
    return false;
}

/* A place inside the list of turns. */
struct turn_path {
    char number[24];
    const char *v[4];
};
/* "found: a, b, c": the names that the object has, for a field that it lacks. */
static const char *found(const struct ft_json *v, char *out, size_t room)
{
    size_t n = 0;
    int k = 0;
    for (void *it = ft_json_iter(v); it && k < 6 && n < room; it = ft_json_iter_next(v, it), k++)
        n += (size_t)snprintf(out + n, room - n, "%s%.*s",
                              k ? ", " : "found: ", (int)ft_utf8_valid(ft_json_iter_key(it), strnlen(ft_json_iter_key(it), 30)),
                              ft_json_iter_key(it));
    if (!k) (void)snprintf(out, room, "it is empty");
    return out;
}

static bool missing(const struct reader *r, const struct ft_json *in, const char *const *path, const char *where, const char *name)
{
    char names[240];
    return bad(r, FT_KIND_MISSING_FIELD, path, "%s%sno field %s (%s)", where, *where ? " has " : "", name,
               found(in, names, sizeof names));
}

static struct turn_path *turn_path(struct turn_path *p, const char *list, size_t i, const char *field)
{
    snprintf(p->number, sizeof p->number, "%zu", i);
    p->v[0] = list, p->v[1] = p->number, p->v[2] = field, p->v[3] = NULL;
    return p;
}

static bool blank(struct ft_jval t)
{
    for (size_t i = 0; i < t.n;) {
        uint32_t cp;
        const size_t k = (size_t)ft_utf8_decode(t.u.s + i, t.n - i, &cp);
        if (!ft_is_space(cp) && !(cp >= 0x1C && cp <= 0x1F)) return false;
        i += k;
    }
    return true;
}

/* ---- messages ---- */

static struct ft_jval field(struct ft_jval message, const char *name)
{
    struct ft_jval v;
    return ft_v_get_str(message, name, strlen(name), &v) ? v : ft_v_undefined(name);
}

bool ft_message_is(struct ft_jval message, const char *role)
{
    const struct ft_jval r = field(message, "role");
    return r.type == FT_V_STRING && r.n == strlen(role) && !memcmp(r.u.s, role, r.n);
}

bool ft_message_calls(struct ft_jval message)
{
    const struct ft_jval c = field(message, "tool_calls");
    return c.type == FT_V_LIST && c.u.list->n > 0;
}

bool ft_message_text(struct ft_vheap *heap, struct ft_jval message, struct ft_jval *text)
{
    const struct ft_jval c = field(message, "content");
    *text = c;
    if (c.type == FT_V_STRING) return true;
    if (c.type != FT_V_LIST) return false;
    if (c.u.list->n == 1) {
        *text = field(c.u.list->v[0], "text");
        return text->type == FT_V_STRING;
    }
    struct ft_buf all = {0};
    for (size_t i = 0; i < c.u.list->n; i++) {
        const struct ft_jval t = field(c.u.list->v[i], "text");
        if (t.type == FT_V_STRING) ft_buf_add(&all, t.u.s, t.n);
    }
    *text = ft_v_copy(heap, ft_buf_str(&all), all.n);
    ft_buf_fini(&all);
    return true;
}

static struct ft_jval new_message(struct ft_convo *c, const char *role, struct ft_jval content)
{
    struct ft_vheap *h = &c->render.heap;
    const struct ft_jval m = ft_v_dict(h);
    ft_v_set(h, m, ft_v_cstr("role"), ft_v_cstr(role));
    ft_v_set(h, m, ft_v_cstr("content"), content);
    return m;
}

static void add_message(struct ft_convo *c, struct ft_jval m, bool trained)
{
    ft_grow(&c->trained, &c->trained_cap, c->n + 1, sizeof *c->trained);
    c->trained[c->n++] = trained;
    ft_v_push(&c->render.heap, c->messages, m);
}

/* A message of the record without what is only for us. */
static struct ft_jval clean_message(struct ft_convo *c, const struct ft_json *m)
{
    struct ft_vheap *h = &c->render.heap;
    const struct ft_jval d = ft_v_dict(h);
    for (void *it = ft_json_iter(m); it; it = ft_json_iter_next(m, it)) {
        const char *key = ft_json_iter_key(it);
        if (ft_str_eq(key, "weight") || ft_str_eq(key, "train")) continue;
        ft_v_set(h, d, ft_v_cstr(key), ft_v_json(h, ft_json_iter_value(it)));
    }
    return d;
}

static bool missing_of_turn(const struct reader *r, const char *list, size_t i, const struct ft_json *m, const char *name)
{
    struct turn_path p;
    char where[160];
    (void)snprintf(where, sizeof where, "%.100s[%zu]", list, i);
    return missing(r, m, turn_path(&p, list, i, NULL)->v, where, name);
}

static bool check_content(const struct reader *r, const char *list, size_t i, const struct ft_json *m, const char *role)
{
    struct turn_path p;
    const struct ft_json *c = ft_json_get(m, "content"), *calls = ft_json_get(m, "tool_calls");
    const bool calling = ft_json_is(calls, FT_JSON_ARRAY) && ft_json_count(calls);
    if (calls && !ft_json_is(calls, FT_JSON_ARRAY) && !ft_json_is(calls, FT_JSON_NULL))
        return bad(r, FT_KIND_WRONG_TYPE, turn_path(&p, list, i, "tool_calls")->v,
                   "%s[%zu].tool_calls must be an array, this is %s", list, i, ft_json_type_name(calls));
    if (!c && !calling) return missing_of_turn(r, list, i, m, "content");
    if (!c || (ft_json_is(c, FT_JSON_NULL) && calling)) return true;
    if (ft_json_is(c, FT_JSON_NULL))
        return bad(r, ft_str_eq(role, "assistant") ? FT_KIND_NULL_OUTPUT : FT_KIND_WRONG_TYPE, turn_path(&p, list, i, "content")->v,
                   "%s[%zu].content is null", list, i);
    if (ft_json_is(c, FT_JSON_STRING)) return true;
    if (!ft_json_is(c, FT_JSON_ARRAY))
        return bad(r, FT_KIND_WRONG_TYPE, turn_path(&p, list, i, "content")->v,
                   "%s[%zu].content must be a string or a list of text parts, this is %s", list, i, ft_json_type_name(c));
    for (size_t k = 0; k < ft_json_count(c); k++) {
        const struct ft_json *part = ft_json_at(c, k);
        if (!ft_str_eq(ft_json_str(ft_json_get(part, "type")), "text") || !ft_json_is(ft_json_get(part, "text"), FT_JSON_STRING))
            return bad(r, FT_KIND_WRONG_TYPE, turn_path(&p, list, i, "content")->v,
                       "%s[%zu].content[%zu] is no {\"type\":\"text\",\"text\":…}", list, i, k);
    }
    return true;
}

/* "weight" 0 (1: as usual) and "train": false (true) leave a turn out. Any other value would be trained as if it were not there. */
static bool read_switches(const struct reader *r, const char *list, size_t i, const struct ft_json *m, bool *off)
{
    struct turn_path p;
    const struct ft_json *weight = ft_json_get(m, "weight"), *train = ft_json_get(m, "train");
    const bool number = ft_json_is_number(weight);
    const double w = number ? ft_json_real(weight, 1) : 1;
    if (weight && !ft_json_is(weight, FT_JSON_NULL) && (!number || (w != 0 && w != 1)))
        return bad(r, FT_KIND_WRONG_TYPE, turn_path(&p, list, i, "weight")->v, "%s[%zu].weight must be 0 or 1, this is %s", list, i,
                   number ? "another number" : ft_json_type_name(weight));
    if (train && !ft_json_is(train, FT_JSON_NULL) && !ft_json_is(train, FT_JSON_TRUE) && !ft_json_is(train, FT_JSON_FALSE))
        return bad(r, FT_KIND_WRONG_TYPE, turn_path(&p, list, i, "train")->v, "%s[%zu].train must be true or false, this is %s",
                   list, i, ft_json_type_name(train));
    *off = w == 0 || ft_json_is(train, FT_JSON_FALSE);
    return true;
}

static bool read_messages(const struct reader *r, const char *list, const struct ft_json *v, bool may_train)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    struct turn_path p;
    for (size_t i = 0; i < ft_json_count(v); i++) {
        const struct ft_json *m = ft_json_at(v, i), *role = ft_json_get(m, "role");
        if (!ft_json_is(m, FT_JSON_OBJECT))
            return bad(r, FT_KIND_WRONG_TYPE, turn_path(&p, list, i, NULL)->v, "%s[%zu] must be an object, this is %s", list, i,
                       ft_json_type_name(m));
        if (!role && ft_json_get(m, "from"))
            return bad(r, FT_KIND_OTHER_SHAPE, turn_path(&p, list, i, NULL)->v, "%s[%zu] is a from/value turn (sharegpt)", list, i);
        if (!role) return missing_of_turn(r, list, i, m, "role");
        if (!ft_json_is(role, FT_JSON_STRING))
            return bad(r, FT_KIND_WRONG_TYPE, turn_path(&p, list, i, "role")->v, "%s[%zu].role must be a string, this is %s", list,
                       i, ft_json_type_name(role));
        bool known = false;
        for (size_t k = 0; k < 5; k++) known = known || ft_str_eq(ft_json_str(role), roles[k]);
        if (!known)
            return bad(r, FT_KIND_UNKNOWN_ROLE, turn_path(&p, list, i, "role")->v,
                       "%s[%zu].role is '%s' (known: system, developer, user, assistant, tool)", list, i, ft_json_str(role));
        if (!check_content(r, list, i, m, ft_json_str(role))) return false;
        bool off = false;
        if (!read_switches(r, list, i, m, &off)) return false;
        add_message(r->c, clean_message(r->c, m), may_train && !off && ft_str_eq(ft_json_str(role), "assistant"));
    }
    return true;
}

/* JSON inside a string of the record; it lives as long as the conversation. NULL: no JSON. */
static const struct ft_json *own_json(struct ft_convo *c, const char *text, size_t n)
{
    struct ft_json *v = NULL;
    if (ft_json_parse(text, n, 0, &v, NULL, NULL) != FT_OK) return NULL;
    ft_grow(&c->owned, &c->owned_cap, c->n_owned + 1, sizeof(struct ft_json *));
    c->owned[c->n_owned++] = v;
    return v;
}

static void empty(struct ft_convo *c)
{
    for (size_t i = 0; i < c->n_owned; i++) ft_json_destroy(c->owned[i]);
    c->n_owned = 0;
    if (c->render.heap.arena) ft_render_end(&c->render);
}

static bool take_tools(const struct reader *r, const struct ft_json *tools)
{
    static const char *const path[] = {"tools", NULL};
    if (!tools || ft_json_is(tools, FT_JSON_NULL)) return true;
    if (ft_json_is(tools, FT_JSON_STRING)) {
        const struct ft_json *inner = ft_json_str_len(tools) ? own_json(r->c, ft_json_str(tools), ft_json_str_len(tools)) : NULL;
        if (!ft_json_str_len(tools)) return true;
        if (inner) tools = inner;
    }
    if (!ft_json_is(tools, FT_JSON_ARRAY))
        return bad(r, FT_KIND_WRONG_TYPE, path, "tools must be an array, this is %s", ft_json_type_name(tools));
    if (ft_json_count(tools)) r->c->tools = ft_v_json(&r->c->render.heap, tools);
    return true;
}

static bool from_messages(const struct reader *r)
{
    const char *name = own_name(r->columns, "messages", NULL);
    const char *const path[] = {name, NULL};
    const struct ft_json *v = ft_json_get(r->record, name);
    if (!v) return missing(r, r->record, path, "", name);
    if (!ft_json_is(v, FT_JSON_ARRAY))
        return bad(r, FT_KIND_WRONG_TYPE, path, "%s must be an array, this is %s", name, ft_json_type_name(v));
    if (!ft_json_count(v)) return bad(r, FT_KIND_EMPTY_MESSAGES, path, "%s is empty", name);
    return read_messages(r, name, v, true) && take_tools(r, ft_json_get(r->record, "tools"));
}

/* ---- sharegpt ---- */

static bool function_call(const struct reader *r, size_t i, const char *text, size_t n)
{
    struct ft_vheap *h = &r->c->render.heap;
    struct turn_path p;
    const struct ft_json *v = own_json(r->c, text, n);
    if (!ft_json_is(ft_json_get(v, "name"), FT_JSON_STRING))
        return bad(r, FT_KIND_WRONG_TYPE, turn_path(&p, "conversations", i, "value")->v,
                   "conversations[%zu].value is no call {\"name\":…,\"arguments\":…}", i);
    const struct ft_jval call = ft_v_dict(h), calls = ft_v_list(h, FT_V_LIST, 1), m = new_message(r->c, "assistant", ft_v_cstr(""));
    ft_v_set(h, call, ft_v_cstr("type"), ft_v_cstr("function"));
    ft_v_set(h, call, ft_v_cstr("function"), ft_v_json(h, v));
    ft_v_push(h, calls, call);
    ft_v_set(h, m, ft_v_cstr("tool_calls"), calls);
    add_message(r->c, m, true);
    return true;
}

static bool from_sharegpt(const struct reader *r)
{
    static const char *const names[][2] = {{"human", "user"},          {"user", "user"},         {"gpt", "assistant"},
                                           {"assistant", "assistant"}, {"system", "system"},     {"observation", "tool"},
                                           {"tool", "tool"},           {"function_call", "call"}};
    const char *list = own_name(r->columns, "conversations", NULL), *const path[] = {list, NULL};
    const struct ft_json *v = ft_json_get(r->record, list), *system = member(r, "system", NULL);
    struct turn_path p;
    if (!v) return missing(r, r->record, path, "", list);
    if (!ft_json_is(v, FT_JSON_ARRAY))
        return bad(r, FT_KIND_WRONG_TYPE, path, "%s must be an array, this is %s", list, ft_json_type_name(v));
    if (!ft_json_count(v)) return bad(r, FT_KIND_EMPTY_MESSAGES, path, "%s is empty", list);
    if (ft_json_is(system, FT_JSON_STRING) && ft_json_str_len(system))
        add_message(r->c, new_message(r->c, "system", ft_v_str(ft_json_str(system), ft_json_str_len(system))), false);
    for (size_t i = 0; i < ft_json_count(v); i++) {
        const struct ft_json *m = ft_json_at(v, i), *from = ft_json_get(m, "from"), *value = ft_json_get(m, "value");
        const char *role = NULL;
        if (!ft_json_is(m, FT_JSON_OBJECT))
            return bad(r, FT_KIND_WRONG_TYPE, turn_path(&p, list, i, NULL)->v, "%s[%zu] must be an object, this is %s", list, i,
                       ft_json_type_name(m));
        if (!from && ft_json_get(m, "role"))
            return bad(r, FT_KIND_OTHER_SHAPE, turn_path(&p, list, i, NULL)->v, "%s[%zu] is a role/content turn (messages)", list,
                       i);
        if (!from) return missing_of_turn(r, list, i, m, "from");
        if (!ft_json_is(from, FT_JSON_STRING))
            return bad(r, FT_KIND_WRONG_TYPE, turn_path(&p, list, i, "from")->v, "%s[%zu].from must be a string, this is %s", list,
                       i, ft_json_type_name(from));
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (ft_str_eq(ft_json_str(from), names[k][0])) role = names[k][1];
        if (!role)
            return bad(r, FT_KIND_UNKNOWN_ROLE, turn_path(&p, list, i, "from")->v,
                       "%s[%zu].from is '%s' (known: human, gpt, system, observation, tool, function_call)", list, i,
                       ft_json_str(from));
        const bool answer = ft_str_eq(role, "assistant");
        if (!value) return missing_of_turn(r, list, i, m, "value");
        if (!ft_json_is(value, FT_JSON_STRING))
            return bad(r, answer && ft_json_is(value, FT_JSON_NULL) ? FT_KIND_NULL_OUTPUT : FT_KIND_WRONG_TYPE,
                       turn_path(&p, list, i, "value")->v, "%s[%zu].value must be a string, this is %s", list, i,
                       ft_json_type_name(value));
        if (ft_str_eq(role, "call")) {
            if (!function_call(r, i, ft_json_str(value), ft_json_str_len(value))) return false;
        } else {
            add_message(r->c, new_message(r->c, role, ft_v_str(ft_json_str(value), ft_json_str_len(value))), answer);
        }
    }
    return take_tools(r, ft_json_get(r->record, "tools"));
}

/* ---- pairs ---- */

static bool text_member(const struct reader *r, const char *canonical, const char *alias, bool output, bool must,
                        struct ft_jval *out)
{
    const char *name = own_name(r->columns, canonical, alias), *const path[] = {name, NULL};
    const struct ft_json *v = ft_json_get(r->record, name);
    *out = ft_v_str("", 0);
    if (!v && !must) return true;
    if (!v) return missing(r, r->record, path, "", name);
    if (ft_json_is(v, FT_JSON_NULL) && !must) return true;
    if (ft_json_is(v, FT_JSON_NULL) && output) return bad(r, FT_KIND_NULL_OUTPUT, path, "%s is null", name);
    if (!ft_json_is(v, FT_JSON_STRING))
        return bad(r, FT_KIND_WRONG_TYPE, path, "%s must be a string, this is %s", name, ft_json_type_name(v));
    *out = ft_v_str(ft_json_str(v), ft_json_str_len(v));
    if (output && blank(*out)) return bad(r, FT_KIND_EMPTY_OUTPUT, path, "%s is empty", name);
    return true;
}

static bool add_pair(const struct reader *r, struct ft_jval user, struct ft_jval assistant, const char *prompt_name)
{
    const char *const path[] = {prompt_name, NULL};
    if (blank(user)) return bad(r, FT_KIND_EMPTY_PROMPT, path, "%s is empty", prompt_name);
    add_message(r->c, new_message(r->c, "user", user), false);
    add_message(r->c, new_message(r->c, "assistant", assistant), true);
    return true;
}

static bool add_system(const struct reader *r)
{
    struct ft_jval system;
    if (!text_member(r, "system", NULL, false, false, &system)) return false;
    if (system.n) add_message(r->c, new_message(r->c, "system", system), false);
    return true;
}

static bool from_io(const struct reader *r)
{
    struct ft_jval input, output;
    if (!text_member(r, "input", "prompt", false, true, &input) || !text_member(r, "output", "response", true, true, &output))
        return false;
    return add_system(r) && add_pair(r, input, output, own_name(r->columns, "input", "prompt"));
}

static bool history(const struct reader *r)
{
    static const char *const path[] = {"history", NULL};
    const struct ft_json *v = ft_json_get(r->record, "history");
    if (!v || ft_json_is(v, FT_JSON_NULL)) return true;
    for (size_t i = 0; ft_json_is(v, FT_JSON_ARRAY) && i < ft_json_count(v); i++) {
        const struct ft_json *pair = ft_json_at(v, i), *q = ft_json_at(pair, 0), *a = ft_json_at(pair, 1);
        if (!ft_json_is(pair, FT_JSON_ARRAY) || ft_json_count(pair) != 2 || !ft_json_is(q, FT_JSON_STRING) ||
            !ft_json_is(a, FT_JSON_STRING))
            return bad(r, FT_KIND_WRONG_TYPE, path, "history[%zu] is no [question, answer]", i);
        const struct ft_jval answer = ft_v_str(ft_json_str(a), ft_json_str_len(a));
        if (blank(answer)) return bad(r, FT_KIND_EMPTY_OUTPUT, path, "the answer of history[%zu] is empty", i);
        if (!add_pair(r, ft_v_str(ft_json_str(q), ft_json_str_len(q)), answer, "history")) return false;
    }
    return ft_json_is(v, FT_JSON_ARRAY) ||
           bad(r, FT_KIND_WRONG_TYPE, path, "history must be an array, this is %s", ft_json_type_name(v));
}

static bool from_alpaca(const struct reader *r)
{
    struct ft_jval instruction, input, output;
    if (!text_member(r, "instruction", "prompt", false, true, &instruction) ||
        !text_member(r, "input", NULL, false, false, &input) || !text_member(r, "output", "response", true, true, &output) ||
        !add_system(r) || !history(r))
        return false;
    if (!blank(input)) {
        struct ft_buf both = {0};
        ft_buf_add(&both, instruction.u.s, instruction.n);
        ft_buf_addc(&both, '\n');
        ft_buf_add(&both, input.u.s, input.n);
        instruction = ft_v_copy(&r->c->render.heap, both.data, both.n);
        ft_buf_fini(&both);
    }
    return add_pair(r, instruction, output, own_name(r->columns, "instruction", "prompt"));
}

static bool from_prompt(const struct reader *r)
{
    const char *names[2] = {own_name(r->columns, "prompt", NULL), own_name(r->columns, "completion", "response")};
    const struct ft_json *v[2] = {ft_json_get(r->record, names[0]), ft_json_get(r->record, names[1])};
    struct ft_jval prompt, completion;
    if (!ft_json_is(v[0], FT_JSON_ARRAY) && !ft_json_is(v[1], FT_JSON_ARRAY))
        return text_member(r, "prompt", NULL, false, true, &prompt) &&
               text_member(r, "completion", "response", true, true, &completion) && add_system(r) &&
               add_pair(r, prompt, completion, names[0]);
    for (int i = 0; i < 2; i++) {
        const char *const path[] = {names[i], NULL};
        if (!v[i]) return missing(r, r->record, path, "", names[i]);
        if (ft_json_is(v[i], FT_JSON_STRING)) {
            const struct ft_jval text = ft_v_str(ft_json_str(v[i]), ft_json_str_len(v[i]));
            add_message(r->c, new_message(r->c, i ? "assistant" : "user", text), i);
        } else if (!ft_json_is(v[i], FT_JSON_ARRAY)) {
            return bad(r, i && ft_json_is(v[i], FT_JSON_NULL) ? FT_KIND_NULL_OUTPUT : FT_KIND_WRONG_TYPE, path,
                       "%s must be a string or a list of messages, this is %s", names[i], ft_json_type_name(v[i]));
        } else if (!ft_json_count(v[i])) {
            return bad(r, FT_KIND_EMPTY_MESSAGES, path, "%s is empty", names[i]);
        } else if (!read_messages(r, names[i], v[i], i)) {
            return false;
        }
    }
    return take_tools(r, ft_json_get(r->record, "tools"));
}

static bool from_text(const struct reader *r)
{
    const char *name = own_name(r->columns, "text", NULL), *const path[] = {name, NULL};
    struct ft_jval text;
    if (!text_member(r, "text", NULL, false, true, &text)) return false;
    if (blank(text)) return bad(r, FT_KIND_EMPTY_OUTPUT, path, "%s is empty", name);
    r->c->text = text.u.s, r->c->text_n = text.n;
    return true;
}

/* ---- rules ---- */

static bool check_rules(const struct reader *r)
{
    struct ft_convo *c = r->c;
    const bool list = c->format == FT_FORMAT_MESSAGES || c->format == FT_FORMAT_SHAREGPT;
    const char *name = c->format == FT_FORMAT_SHAREGPT ? own_name(r->columns, "conversations", NULL)
                                                       : own_name(r->columns, "messages", NULL);
    struct turn_path p;
    size_t n_trained = 0;
    bool prompt = false, asked = false;
    const char *const none[] = {NULL};
    if (!c->n) return bad(r, FT_KIND_EMPTY_MESSAGES, none, "no messages");
    for (size_t i = 0; i < c->n; i++) {
        const struct ft_jval m = c->messages.u.list->v[i];
        struct ft_jval text;
        const bool has = ft_message_text(&c->render.heap, m, &text) && !blank(text);
        const char *const *path = list ? turn_path(&p, name, i, "content")->v : none;
        if (!ft_message_is(m, "assistant")) prompt = prompt || has;
        if (!c->trained[i]) continue;
        n_trained++;
        if (!has && !ft_message_calls(m)) return bad(r, FT_KIND_EMPTY_OUTPUT, path, "the answer of message %zu is empty", i);
        if (!asked && !prompt) return bad(r, FT_KIND_EMPTY_PROMPT, path, "nothing stands before the answer of message %zu", i);
        asked = true;
    }
    if (!ft_message_is(c->messages.u.list->v[c->n - 1], "assistant"))
        return bad(r, FT_KIND_LAST_NOT_ASSISTANT, list ? turn_path(&p, name, c->n - 1, "role")->v : none,
                   "the last message (%zu) is not the assistant's", c->n - 1);
    return n_trained || bad(r, FT_KIND_NO_TRAINED_TURN, none, "no turn is trained");
}

void ft_convo_fini(struct ft_convo *c)
{
    empty(c);
    free(c->owned);
    free(c->trained);
    memset(c, 0, sizeof *c);
}

bool ft_record_read(enum ft_data_format format, const struct ft_list *columns, const struct ft_line *line,
                    const struct ft_json *record, struct ft_convo *c, struct ft_line_fault *fault)
{
    const struct reader r = {line, record, columns, c, fault};
    empty(c);
    ft_render_begin(&c->render);
    c->format = format, c->n = 0, c->text = NULL, c->text_n = 0;
    c->tools = ft_v_none();
    c->messages = ft_v_list(&c->render.heap, FT_V_LIST, 4);
    const enum ft_data_format shape = ft_record_shape(record, columns);
    const bool pair = format == FT_FORMAT_IO && shape == FT_FORMAT_PROMPT; /* columns may name any two fields */
    if (shape != format && shape != FT_FORMAT_AUTO && !pair && !(format == FT_FORMAT_ALPACA && shape == FT_FORMAT_IO) &&
        !(format == FT_FORMAT_TEXT && ft_json_get(record, own_name(columns, "text", NULL)))) {
        const char *const none[] = {NULL};
        return bad(&r, FT_KIND_OTHER_SHAPE, none, "the shape of this record is %s, that of its file is %s", ft_format_name(shape),
                   ft_format_name(format));
    }
    switch (format) {
    case FT_FORMAT_MESSAGES: return from_messages(&r) && check_rules(&r);
    case FT_FORMAT_SHAREGPT: return from_sharegpt(&r) && check_rules(&r);
    case FT_FORMAT_ALPACA: return from_alpaca(&r) && check_rules(&r);
    case FT_FORMAT_IO: return from_io(&r) && check_rules(&r);
    case FT_FORMAT_PROMPT: return from_prompt(&r) && check_rules(&r);
    case FT_FORMAT_TEXT: return from_text(&r);
    case FT_FORMAT_AUTO:
    case FT_FORMAT_TOKENS:
    case FT_FORMAT_TRANSCRIPT: break;
    }
    FT_BUG("format %d is no conversation", (int)format);
}
