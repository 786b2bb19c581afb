#include "runtime/chat/spans.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits/mix64.h"
#include "runtime/chat/ast.h"

enum { MARK = 18 }; /* decimal digits: they survive trim, upper and tojson */
enum placement { OUTER, INNER, THINK, N_PLACEMENTS };

const char *ft_span_how_name(enum ft_span_how how)
{
    static const char *const names[] = {NULL, "generation", "outer", "inner", "think", "prefix", "start"};
    return names[how];
}

void ft_spans_fini(struct ft_spans *s)
{
    ft_buf_fini(&s->text);
    free(s->v);
    memset(s, 0, sizeof *s);
}

struct search {
    const struct ft_template *t;
    struct ft_var *vars; /* a copy: messages and add_generation_prompt are replaced */
    size_t n_vars, at_messages, at_prompt;
    struct ft_jval messages;
    const char *date;
    struct ft_render *r;
    const struct ft_buf *clean;
};

static bool search_begin(struct search *s, const struct ft_template *t, const struct ft_var *vars, size_t n, const char *date,
                         struct ft_render *r)
{
    *s = (struct search){.t = t, .date = date, .r = r, .n_vars = n, .at_messages = SIZE_MAX, .at_prompt = SIZE_MAX};
    s->vars = ft_xcalloc(n + 2, sizeof *s->vars);
    for (size_t i = 0; i < n; i++) {
        s->vars[i] = vars[i];
        if (!strcmp(vars[i].name, "messages")) s->at_messages = i;
        if (!strcmp(vars[i].name, "add_generation_prompt")) s->at_prompt = i;
    }
    if (s->at_prompt == SIZE_MAX) s->at_prompt = s->n_vars++, s->vars[s->at_prompt].name = "add_generation_prompt";
    if (s->at_messages == SIZE_MAX || vars[s->at_messages].value.type != FT_V_LIST) {
        snprintf(r->error, sizeof r->error, "no list of messages");
        return false;
    }
    s->messages = vars[s->at_messages].value;
    return true;
}

static bool render(struct search *s, struct ft_jval messages, bool prompt)
{
    s->vars[s->at_messages].value = messages;
    s->vars[s->at_prompt].value = ft_v_bool(prompt);
    return ft_template_render(s->t, s->vars, s->n_vars, s->date, s->r);
}

static struct ft_jval first_messages(struct search *s, size_t n)
{
    const struct ft_jval list = ft_v_list(&s->r->heap, FT_V_LIST, n);
    for (size_t i = 0; i < n; i++) ft_v_push(&s->r->heap, list, s->messages.u.list->v[i]);
    return list;
}

static struct ft_jval field(struct ft_jval message, const char *name)
{
    struct ft_jval v;
    return ft_v_get_str(message, name, strlen(name), &v) ? v : ft_v_undefined(name);
}

/* The message's text: its content, or its one text part. false: it has none. */
static bool text_of(struct ft_jval message, struct ft_jval *text)
{
    const struct ft_jval c = field(message, "content");
    *text = c;
    if (c.type == FT_V_LIST && c.u.list->n == 1) *text = field(c.u.list->v[0], "text");
    return text->type == FT_V_STRING;
}

static bool has_text(struct ft_jval message)
{
    struct ft_jval t;
    return text_of(message, &t) && ft_py_space_front(t.u.s, t.n) < t.n;
}

static bool is_role(struct ft_jval message, const char *role)
{
    const struct ft_jval r = field(message, "role");
    return r.type == FT_V_STRING && r.n == strlen(role) && !memcmp(r.u.s, role, r.n);
}

static bool calls_tools(struct ft_jval message)
{
    const struct ft_jval c = field(message, "tool_calls");
    return c.type == FT_V_LIST && c.u.list->n > 0;
}

/* A dict like d with one member replaced. */
static struct ft_jval with(struct ft_vheap *h, struct ft_jval d, const char *name, struct ft_jval value)
{
    const struct ft_jval copy = ft_v_dict(h);
    for (size_t i = 0; i < d.u.dict->n; i++) {
        const struct ft_jval k = d.u.dict->key[i];
        const bool it = k.type == FT_V_STRING && k.n == strlen(name) && !memcmp(k.u.s, name, k.n);
        ft_v_set(h, copy, k, it ? value : d.u.dict->value[i]);
    }
    return copy;
}

/* ---- marks ---- */

struct mark {
    char text[2][MARK + 1];
    size_t found[2]; /* position in clean; SIZE_MAX: not exactly once */
};

static bool contains(const char *s, size_t n, const char *mark) { return n >= MARK && memmem(s, n, mark, MARK); }

static bool is_free(const struct search *s, const char *mark)
{
    if (contains(ft_buf_str(s->clean), s->clean->n, mark)) return false;
    for (size_t i = 0; i < s->messages.u.list->n; i++) {
        struct ft_jval t;
        if (text_of(s->messages.u.list->v[i], &t) && contains(t.u.s, t.n, mark)) return false;
    }
    return true;
}

static void choose(const struct search *s, uint64_t *counter, char mark[MARK + 1])
{
    do {
        const uint64_t x = ft_mix64(++*counter * 0x9E3779B97F4A7C15ull) % 900000000000000000ull + 100000000000000000ull;
        snprintf(mark, MARK + 1, "%018" PRIu64, x);
    } while (!is_free(s, mark));
}

/* Where the two marks of a text go. */
static void place(enum placement p, struct ft_jval t, size_t *a, size_t *b)
{
    *a = 0, *b = t.n;
    if (p == OUTER) return;
    *a = ft_py_space_front(t.u.s, t.n);
    *b = *a < t.n ? t.n - ft_py_space_back(t.u.s, t.n) : t.n;
    if (p != THINK) return;
    static const char end[] = "</think>";
    for (size_t i = t.n >= 8 ? t.n - 8 + 1 : 0; i-- > 0;)
        if (!memcmp(t.u.s + i, end, 8)) {
            *a = i + 8 + ft_py_space_front(t.u.s + i + 8, t.n - i - 8);
            if (*b < *a) *b = *a;
            return;
        }
}

static struct ft_jval marked_message(struct search *s, struct ft_jval m, const struct mark *k, enum placement p)
{
    struct ft_vheap *h = &s->r->heap;
    struct ft_jval t;
    struct ft_buf text = {0};
    size_t a, b;
    (void)text_of(m, &t);
    place(p, t, &a, &b);
    ft_buf_add(&text, t.u.s, a);
    ft_buf_adds(&text, k->text[0]);
    ft_buf_add(&text, t.u.s + a, b - a);
    ft_buf_adds(&text, k->text[1]);
    ft_buf_add(&text, t.u.s + b, t.n - b);
    struct ft_jval v = ft_v_copy(h, text.data, text.n);
    ft_buf_fini(&text);
    const struct ft_jval content = field(m, "content");
    if (content.type == FT_V_LIST) {
        const struct ft_jval parts = ft_v_list(h, FT_V_LIST, 1);
        ft_v_push(h, parts, with(h, content.u.list->v[0], "text", v));
        v = parts;
    }
    return with(h, m, "content", v);
}

struct hit {
    size_t at; /* in the marked text */
    size_t message;
    int which;
};
struct hits {
    struct hit *v;
    size_t n, cap;
};

static int by_place(const void *pa, const void *pb)
{
    const struct hit *a = pa, *b = pb;
    return (a->at > b->at) - (a->at < b->at);
}

static void find_marks(const struct ft_buf *text, struct mark *marks, const bool *wanted, size_t n, struct hits *hits)
{
    for (size_t i = 0; i < n; i++)
        for (int w = 0; w < 2 && wanted[i]; w++)
            for (const char *s = text->data, *p = s; s && (p = memmem(p, text->n - (size_t)(p - s), marks[i].text[w], MARK));
                 p += MARK) {
                ft_grow(&hits->v, &hits->cap, hits->n + 1, sizeof *hits->v);
                hits->v[hits->n++] = (struct hit){(size_t)(p - s), i, w};
            }
    if (hits->n) qsort(hits->v, hits->n, sizeof *hits->v, by_place);
}

/* One placement for all wanted messages: fills marks[i].found. false: the placement does not count. */
static bool try_placement(struct search *s, enum placement p, struct mark *marks, const bool *wanted)
{
    const size_t n = s->messages.u.list->n;
    const struct ft_jval list = ft_v_list(&s->r->heap, FT_V_LIST, n);
    struct hits hits = {0};
    for (size_t i = 0; i < n; i++) {
        const struct ft_jval m = s->messages.u.list->v[i];
        ft_v_push(&s->r->heap, list, wanted[i] ? marked_message(s, m, &marks[i], p) : m);
        marks[i].found[0] = marks[i].found[1] = SIZE_MAX;
    }
    if (!render(s, list, false)) return false;
    const struct ft_buf *text = &s->r->out;
    find_marks(text, marks, wanted, n, &hits);
    /* Without the marks it must be clean, byte for byte. */
    bool same = text->n == s->clean->n + hits.n * MARK;
    size_t at = 0, to = 0;
    for (size_t i = 0; same && i <= hits.n; i++) {
        const size_t end = i < hits.n ? hits.v[i].at : text->n;
        same = end >= at && !memcmp(ft_buf_str(text) + at, ft_buf_str(s->clean) + to, end - at);
        to += end - at;
        at = end + MARK;
    }
    /* In order, each message's own pair once. */
    size_t last = 0;
    for (size_t i = 0; same && i < hits.n; i++) {
        const struct hit *h = &hits.v[i];
        struct mark *m = &marks[h->message];
        same = h->message >= last;
        last = h->message;
        m->found[h->which] = m->found[h->which] == SIZE_MAX ? h->at - i * MARK : SIZE_MAX - 1;
    }
    for (size_t i = 0; i < n; i++)
        for (int w = 0; w < 2; w++)
            if (marks[i].found[w] == SIZE_MAX - 1 || !same) marks[i].found[w] = SIZE_MAX;
    free(hits.v);
    return same;
}

/* Tries the placements until every wanted message has its range. got[i]: which one found message i, N_PLACEMENTS: none. */
static void find_contents(struct search *s, const bool *wanted, enum placement *got, size_t (*range)[2])
{
    const size_t n = s->messages.u.list->n;
    struct mark *marks = ft_xcalloc(n + 1, sizeof *marks);
    uint64_t counter = 0;
    size_t open = 0;
    for (size_t i = 0; i < n; i++) {
        got[i] = N_PLACEMENTS;
        if (!wanted[i]) continue;
        choose(s, &counter, marks[i].text[0]);
        choose(s, &counter, marks[i].text[1]);
        open++;
    }
    for (enum placement p = OUTER; p < N_PLACEMENTS && open; p++) {
        if (!try_placement(s, p, marks, wanted)) continue;
        for (size_t i = 0; i < n; i++) {
            const size_t a = marks[i].found[0], b = marks[i].found[1];
            if (!wanted[i] || got[i] != N_PLACEMENTS || a == SIZE_MAX || b == SIZE_MAX || b < a) continue;
            got[i] = p, range[i][0] = a, range[i][1] = b;
            open--;
        }
    }
    free(marks);
}

/* ---- spans ---- */

static bool is_prefix(const struct ft_buf *a, const struct ft_buf *of)
{
    return a->n <= of->n && (!a->n || !memcmp(a->data, of->data, a->n));
}

/* Length of the text before message i with a generation prompt, when clean begins with it; SIZE_MAX otherwise. */
static size_t prompt_before(struct search *s, size_t i)
{
    if (!render(s, first_messages(s, i), true)) return SIZE_MAX;
    return is_prefix(&s->r->out, s->clean) ? s->r->out.n : SIZE_MAX;
}

static bool ends_with_text(const struct search *s, size_t end, struct ft_jval text)
{
    const char *c = ft_buf_str(s->clean);
    const size_t tail = end - ft_py_space_back(c, end), front = ft_py_space_front(text.u.s, text.n);
    const size_t n = text.n - front - ft_py_space_back(text.u.s + front, text.n - front);
    return tail >= n && !memcmp(c + tail - n, text.u.s + front, n);
}

/* The first function that a turn calls and whose name does not stand in the span; undefined: all are there. */
static struct ft_jval missing_call(const struct search *s, const struct ft_span *x)
{
    const struct ft_jval calls = field(s->messages.u.list->v[x->message], "tool_calls");
    for (size_t i = 0; calls.type == FT_V_LIST && i < calls.u.list->n; i++) {
        const struct ft_jval call = calls.u.list->v[i], f = field(call, "function"),
                             name = field(f.type == FT_V_DICT ? f : call, "name");
        const size_t end = x->has_end ? x->end : s->clean->n;
        if (name.type == FT_V_STRING && (end <= x->begin || !memmem(s->clean->data + x->begin, end - x->begin, name.u.s, name.n)))
            return name;
    }
    return ft_v_undefined("");
}

static void drop(struct ft_span *x, const char *why) { *x = (struct ft_span){.message = x->message, .dropped = true, .why = why}; }

/* (c): between two renderings. */
static void between_renderings(struct search *s, struct ft_span *x)
{
    static const char no_method[] = "no method gives its place in the text";
    const size_t a = prompt_before(s, x->message);
    x->why = no_method;
    if (a == SIZE_MAX) return;
    x->how = FT_SPAN_START, x->begin = a;
    if (render(s, first_messages(s, x->message + 1), false) && is_prefix(&s->r->out, s->clean) && s->r->out.n >= a)
        x->how = FT_SPAN_PREFIX, x->has_end = true, x->end = s->r->out.n;
    if (missing_call(s, x).type == FT_V_UNDEFINED) x->why = NULL;
    else if (x->has_end) drop(x, "the template does not render the tool call");
    else *x = (struct ft_span){.message = x->message, .why = no_method};
}

static void from_content(struct search *s, struct ft_span *x, enum placement p, const size_t range[2])
{
    struct ft_jval text;
    (void)text_of(s->messages.u.list->v[x->message], &text);
    x->how = p == OUTER ? FT_SPAN_OUTER : p == INNER ? FT_SPAN_INNER : FT_SPAN_THINK;
    x->has_content = true, x->content_begin = range[0], x->content_end = range[1];
    const size_t a = prompt_before(s, x->message);
    x->prompt_differs = a == SIZE_MAX || a > range[0];
    x->begin = x->prompt_differs ? range[0] : a;
    x->rewritten = !ends_with_text(s, range[1], text);
}

/* (a): the k-th block is the k-th answer. What the block must hold: the calls, and at least the last word of the text. */
static bool from_blocks(struct search *s, struct ft_spans *out)
{
    const struct ft_render *r = s->r;
    if (!r->n_gen || r->n_gen != out->n) return false;
    for (size_t i = 0; i < r->n_gen; i++) {
        struct ft_span *x = &out->v[i];
        struct ft_jval text;
        x->how = FT_SPAN_GENERATION;
        x->begin = r->gen[i].begin, x->end = r->gen[i].end, x->has_end = true;
        if (missing_call(s, x).type != FT_V_UNDEFINED) drop(x, "the template does not render the tool call");
        const struct ft_jval m = s->messages.u.list->v[x->message];
        if (x->dropped || !has_text(m) || !text_of(m, &text)) continue;
        size_t n = text.n - ft_py_space_back(text.u.s, text.n), from = n;
        while (from > 0 && text.u.s[from - 1] != ' ' && text.u.s[from - 1] != '\n') from--;
        const char *block = s->clean->data + x->begin;
        if (x->end == x->begin || !memmem(block, x->end - x->begin, text.u.s + from, n - from))
            drop(x, "the template does not render the answer");
        else
            x->rewritten = !memmem(block, x->end - x->begin, text.u.s + ft_py_space_front(text.u.s, text.n),
                                   n - ft_py_space_front(text.u.s, text.n));
    }
    return true;
}

static void find_answers(struct search *s, struct ft_spans *out)
{
    const size_t n = s->messages.u.list->n;
    bool *wanted = ft_xcalloc(n + 1, sizeof *wanted);
    enum placement *got = ft_xcalloc(n + 1, sizeof *got);
    size_t(*range)[2] = ft_xcalloc(n + 1, sizeof *range);
    for (size_t i = 0; i < out->n; i++) {
        const struct ft_jval m = s->messages.u.list->v[out->v[i].message];
        wanted[out->v[i].message] = has_text(m) && !calls_tools(m);
    }
    find_contents(s, wanted, got, range);
    for (size_t i = 0; i < out->n; i++) {
        struct ft_span *x = &out->v[i];
        if (!wanted[x->message]) between_renderings(s, x);
        else if (got[x->message] != N_PLACEMENTS) from_content(s, x, got[x->message], range[x->message]);
        else x->why = "no method gives its place in the text";
    }
    free(wanted);
    free(got);
    free(range);
}

bool ft_spans_find(const struct ft_template *t, const struct ft_var *vars, size_t n_vars, const char *date, struct ft_render *r,
                   struct ft_spans *out)
{
    struct search s;
    bool good = search_begin(&s, t, vars, n_vars, date, r) && render(&s, s.messages, false);
    out->n = 0;
    ft_buf_clear(&out->text);
    if (good) {
        ft_buf_add(&out->text, ft_buf_str(&r->out), r->out.n);
        s.clean = &out->text;
        for (size_t i = 0; i < s.messages.u.list->n; i++) {
            if (!is_role(s.messages.u.list->v[i], "assistant")) continue;
            ft_grow(&out->v, &out->cap, out->n + 1, sizeof *out->v);
            out->v[out->n++] = (struct ft_span){.message = i};
        }
        if (!from_blocks(&s, out)) find_answers(&s, out);
    }
    free(s.vars);
    return good;
}

size_t ft_contents_find(const struct ft_template *t, const struct ft_var *vars, size_t n_vars, const char *date,
                        struct ft_render *r, const struct ft_buf *clean, struct ft_content *out, size_t *n_missing,
                        size_t *first_missing)
{
    struct search s;
    size_t found = 0;
    *n_missing = 0, *first_missing = 0;
    if (search_begin(&s, t, vars, n_vars, date, r)) {
        const size_t n = s.messages.u.list->n;
        bool *wanted = ft_xcalloc(n + 1, sizeof *wanted);
        enum placement *got = ft_xcalloc(n + 1, sizeof *got);
        size_t(*range)[2] = ft_xcalloc(n + 1, sizeof *range);
        s.clean = clean;
        for (size_t i = 0; i < n; i++) wanted[i] = has_text(s.messages.u.list->v[i]);
        find_contents(&s, wanted, got, range);
        for (size_t i = 0; i < n; i++) {
            if (!wanted[i]) continue;
            if (got[i] != N_PLACEMENTS) out[found++] = (struct ft_content){i, range[i][0], range[i][1]};
            else if (!(*n_missing)++) *first_missing = i;
        }
        free(wanted);
        free(got);
        free(range);
    }
    free(s.vars);
    return found;
}
