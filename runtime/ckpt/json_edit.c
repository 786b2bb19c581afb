#include <string.h>

#include "base/json.h"
#include "runtime/ckpt/export.h"

/* A cursor over JSON that a parser has already accepted: only nesting and strings matter. */
struct scan {
    const char *s;
    size_t n, at;
};

static void blanks(struct scan *c)
{
    while (c->at < c->n && strchr(" \t\r\n", c->s[c->at])) c->at++;
}

static void string(struct scan *c)
{
    for (c->at++; c->at < c->n && c->s[c->at] != '"'; c->at++)
        if (c->s[c->at] == '\\') c->at++;
    c->at++;
}

static void value(struct scan *c)
{
    int depth = 0;
    while (c->at < c->n) {
        const char x = c->s[c->at];
        if (x == '"') {
            string(c);
            if (!depth) return;
            continue;
        }
        if (x == '{' || x == '[') depth++;
        if ((x == '}' || x == ']') && depth-- == 0) return; /* of the object around a plain value */
        if (x == ',' && !depth) return;
        c->at++;
        if ((x == '}' || x == ']') && !depth) return;
    }
}

/* Plain values run up to the comma or brace behind them: without the blanks in between. */
static size_t trimmed(const struct scan *c, size_t from, size_t to)
{
    while (to > from && strchr(" \t\r\n", c->s[to - 1])) to--;
    return to;
}

static void replace(const struct scan *c, size_t from, size_t to, const char *value_text, struct ft_buf *out)
{
    ft_buf_add(out, c->s, from);
    ft_buf_adds(out, value_text);
    ft_buf_add(out, c->s + to, c->n - to);
}

/* Behind the last member: with the indentation of the first. */
static void append(const struct scan *c, size_t first_key, size_t last_end, const char *key, const char *value_text,
                   struct ft_buf *out)
{
    size_t indent = first_key;
    while (indent > 0 && strchr(" \t", c->s[indent - 1])) indent--;
    const bool lines = indent > 0 && c->s[indent - 1] == '\n';
    ft_buf_add(out, c->s, last_end);
    if (first_key != last_end) ft_buf_addc(out, ',');
    if (lines) ft_buf_addc(out, '\n');
    if (lines) ft_buf_add(out, c->s + indent, first_key - indent);
    struct ft_jw w = ft_jw_begin(out);
    ft_jw_str(&w, key);
    ft_buf_adds(out, ": ");
    ft_buf_adds(out, value_text);
    ft_buf_add(out, c->s + last_end, c->n - last_end);
}

enum ft_code ft_json_edit(const char *text, size_t n, const char *key, const char *value_text, struct ft_buf *out,
                          struct ft_err *err)
{
    struct ft_json *v;
    enum ft_code code = ft_json_parse(text, n, FT_JSON_BIGINT_AS_REAL, &v, NULL, err);
    if (code) return code;
    const bool is_object = ft_json_is(v, FT_JSON_OBJECT);
    ft_json_destroy(v);
    if (!is_object) return ft_fail(err, FT_DATA, "not a JSON object");
    struct ft_buf quoted = {0};
    struct ft_jw w = ft_jw_begin(&quoted);
    ft_jw_str(&w, key);
    struct scan c = {text, n, 0};
    blanks(&c);
    c.at++;
    blanks(&c);
    const size_t first = c.at;
    size_t end = first;
    bool found = false;
    while (c.at < n && text[c.at] == '"') {
        const size_t name = c.at;
        string(&c);
        const bool mine = c.at - name == quoted.n && !memcmp(text + name, quoted.data, quoted.n);
        blanks(&c);
        c.at++; /* ':' */
        blanks(&c);
        const size_t from = c.at;
        value(&c);
        end = trimmed(&c, from, c.at);
        if (mine) {
            replace(&c, from, end, value_text, out);
            found = true;
            break;
        }
        blanks(&c);
        if (c.at < n && text[c.at] == ',') c.at++;
        blanks(&c);
    }
    if (!found) append(&c, first, end, key, value_text, out);
    ft_buf_fini(&quoted);
    return FT_OK;
}
