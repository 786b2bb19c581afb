/* Template text to tokens, with the rules of trim_blocks and lstrip_blocks. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/chat/ast.h"
#include "runtime/token/unicode.h"

bool ft_py_space(uint32_t cp) { return ft_is_space(cp) || (cp >= 0x1C && cp <= 0x1F); }

size_t ft_py_space_front(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint32_t cp;
        const size_t k = (size_t)ft_utf8_decode(s + i, n - i, &cp);
        if (!ft_py_space(cp)) break;
        i += k;
    }
    return i;
}

size_t ft_py_space_back(const char *s, size_t n)
{
    size_t end = n;
    while (end > 0) {
        size_t k = 1;
        uint32_t cp;
        while (k < 4 && k < end && ((unsigned char)s[end - k] & 0xC0) == 0x80) k++;
        (void)ft_utf8_decode(s + end - k, k, &cp);
        if (!ft_py_space(cp)) break;
        end -= k;
    }
    return n - end;
}

struct lexer {
    struct ft_arena *arena;
    const char *name, *s;
    size_t n, i;
    int line;
    bool line_starting; /* nothing but a block end stands before i on its line */
    struct ft_toks *out;
    struct ft_err *err;
};

static enum ft_code bad(struct lexer *x, const char *what)
{
    return ft_fail(x->err, FT_DATA, "template '%s', line %d: %s", x->name, x->line, what);
}

static void add(struct lexer *x, enum ft_tok_kind kind, const char *s, size_t n, int line)
{
    ft_grow(&x->out->v, &x->out->cap, x->out->n + 1, sizeof *x->out->v);
    x->out->v[x->out->n++] = (struct ft_tok){.kind = (uint8_t)kind, .line = line, .s = s, .n = n};
}

static void count_lines(struct lexer *x, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) x->line += x->s[i] == '\n';
}

static bool at(const struct lexer *x, const char *word)
{
    const size_t n = strlen(word);
    return x->n - x->i >= n && !memcmp(x->s + x->i, word, n);
}

/* Text up to the next opening brace pair, stripped as the sign and the options say. */
static void take_text(struct lexer *x)
{
    size_t end = x->i;
    while (end < x->n && !(x->s[end] == '{' && end + 1 < x->n && strchr("{%#", x->s[end + 1]) && x->s[end + 1])) end++;
    size_t n = end - x->i;
    const char *s = x->s + x->i;
    if (end < x->n) {
        const char sign = end + 2 < x->n ? x->s[end + 2] : 0;
        if (sign == '-') {
            n -= ft_py_space_back(s, n);
        } else if (sign != '+' && x->s[end + 1] != '{') { /* lstrip_blocks */
            size_t start = n;
            while (start > 0 && s[start - 1] != '\n') start--;
            if ((start > 0 || x->line_starting) && start < n && ft_py_space_front(s + start, n - start) == n - start) n = start;
        }
    }
    if (n) add(x, FT_T_TEXT, s, n, x->line);
    count_lines(x, x->i, end);
    x->i = end;
}

/* Behind a closing "%}" or "#}": minus takes all white space, otherwise one newline goes (trim_blocks) unless there is a plus. */
static void after_block(struct lexer *x, char sign)
{
    const size_t from = x->i;
    if (sign == '-') x->i += ft_py_space_front(x->s + x->i, x->n - x->i);
    else if (sign != '+' && x->i < x->n && x->s[x->i] == '\n') x->i++;
    count_lines(x, from, x->i);
    x->line_starting = x->i > from && x->s[x->i - 1] == '\n';
}

static enum ft_code take_comment(struct lexer *x)
{
    const char *end = x->n - x->i > 3 ? memmem(x->s + x->i + 2, x->n - x->i - 2, "#}", 2) : NULL;
    if (!end) return bad(x, "a comment '{#' is not closed");
    const size_t to = (size_t)(end - x->s);
    const char sign = to > x->i + 2 ? x->s[to - 1] : 0;
    count_lines(x, x->i, to);
    x->i = to + 2;
    after_block(x, sign);
    return FT_OK;
}

static bool name_start(unsigned char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80; }
static bool digit(unsigned char c) { return c >= '0' && c <= '9'; }

static enum ft_code take_number(struct lexer *x)
{
    char text[64];
    size_t n = 0, k = x->i;
    bool real = false;
    for (; k < x->n && (digit((unsigned char)x->s[k]) || x->s[k] == '_'); k++)
        if (x->s[k] != '_' && n < sizeof text - 1) text[n++] = x->s[k];
    if (k + 1 < x->n && x->s[k] == '.' && digit((unsigned char)x->s[k + 1])) {
        real = true;
        for (text[n < sizeof text - 1 ? n++ : n] = '.', k++; k < x->n && digit((unsigned char)x->s[k]); k++)
            if (n < sizeof text - 1) text[n++] = x->s[k];
    }
    if (k < x->n && (x->s[k] == 'e' || x->s[k] == 'E')) {
        size_t m = k + 1;
        if (m < x->n && (x->s[m] == '+' || x->s[m] == '-')) m++;
        if (m < x->n && digit((unsigned char)x->s[m])) {
            real = true;
            for (; k < m || (k < x->n && digit((unsigned char)x->s[k])); k++)
                if (n < sizeof text - 1) text[n++] = x->s[k];
        }
    }
    text[n] = 0;
    struct ft_tok t = {.kind = real ? FT_T_FLOAT : FT_T_INT, .line = x->line, .s = x->s + x->i, .n = k - x->i};
    if (n >= sizeof text - 1 || (real ? !ft_parse_real(text, &t.f) : !ft_parse_i64(text, INT64_MIN, INT64_MAX, &t.i)))
        return bad(x, "a number is out of range");
    ft_grow(&x->out->v, &x->out->cap, x->out->n + 1, sizeof *x->out->v);
    x->out->v[x->out->n++] = t;
    x->i = k;
    return FT_OK;
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static void put_cp(struct ft_buf *b, uint32_t cp)
{
    char u[4];
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF)) cp = 0xFFFD;
    ft_buf_add(b, u, (size_t)ft_utf8_encode(cp, u));
}

/* One escape of a string literal at s[0] == '\\'; returns its length. */
static size_t unescape(const char *s, size_t n, struct ft_buf *out)
{
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    const char c = n > 1 ? s[1] : 0, *simple = c ? strchr(from, c) : NULL;
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t cp = 0;
    if (simple) {
        ft_buf_addc(out, to[simple - from]);
        return 2;
    }
    if (c == '\n') return 2;
    if (digits && n >= 2 + digits) {
        bool good = true;
        for (size_t i = 0; i < digits && good; i++) good = hex_value(s[2 + i]) >= 0, cp = 16 * cp + (uint32_t)hex_value(s[2 + i]);
        if (good) {
            put_cp(out, cp);
            return 2 + digits;
        }
    }
    if (c >= '0' && c <= '7') {
        size_t k = 1;
        for (; k < 4 && k < n && s[k] >= '0' && s[k] <= '7'; k++) cp = 8 * cp + (uint32_t)(s[k] - '0');
        put_cp(out, cp);
        return k;
    }
    ft_buf_addc(out, '\\');
    return 1;
}

static enum ft_code take_string(struct lexer *x)
{
    const char quote = x->s[x->i];
    size_t k = x->i + 1;
    struct ft_buf text = {0};
    while (k < x->n && x->s[k] != quote) {
        if (x->s[k] == '\\') k += unescape(x->s + k, x->n - k, &text);
        else ft_buf_addc(&text, x->s[k++]);
    }
    if (k >= x->n) {
        ft_buf_fini(&text);
        return bad(x, "a string is not closed");
    }
    add(x, FT_T_STRING, ft_arena_strndup(x->arena, ft_buf_str(&text), text.n), text.n, x->line);
    count_lines(x, x->i, k);
    x->i = k + 1;
    ft_buf_fini(&text);
    return FT_OK;
}

static enum ft_code take_operator(struct lexer *x, int *depth)
{
    static const char *const two[] = {"//", "**", "==", "!=", "<=", ">="};
    for (size_t i = 0; i < 6; i++)
        if (at(x, two[i])) {
            add(x, FT_T_OP, two[i], 2, x->line);
            x->i += 2;
            return FT_OK;
        }
    const char c = x->s[x->i];
    if (!c || !strchr("+-*/%~()[]{}<>=.,:|", c)) return bad(x, "an unexpected character in an expression");
    if (strchr("([{", c)) ++*depth;
    if (strchr(")]}", c)) --*depth;
    if (*depth < 0 || *depth > 200)
        return bad(x, *depth < 0 ? "a bracket is closed that was not opened" : "brackets nest too deeply");
    add(x, FT_T_OP, x->s + x->i, 1, x->line);
    x->i++;
    return FT_OK;
}

/* Is this the end of the expression? Then its length, and the sign before it. */
static size_t closing(const struct lexer *x, bool block, char *sign)
{
    const char *end = block ? "%}" : "}}";
    *sign = 0;
    if (at(x, end)) return 2;
    const char c = x->s[x->i];
    if ((c == '-' || (c == '+' && block)) && x->n - x->i >= 3 && !memcmp(x->s + x->i + 1, end, 2)) {
        *sign = c;
        return 3;
    }
    return 0;
}

static enum ft_code take_expression(struct lexer *x, bool block)
{
    const int line = x->line;
    int depth = 0;
    enum ft_code rc = FT_OK;
    add(x, block ? FT_T_BLOCK_BEGIN : FT_T_VAR_BEGIN, "", 0, line);
    x->i += 2;
    if (x->i < x->n && (x->s[x->i] == '-' || x->s[x->i] == '+')) x->i++;
    while (rc == FT_OK) {
        const size_t from = x->i;
        x->i += ft_py_space_front(x->s + x->i, x->n - x->i);
        count_lines(x, from, x->i);
        if (x->i >= x->n) {
            x->line = line;
            return bad(x, block ? "a block '{%' is not closed" : "an expression '{{' is not closed");
        }
        char sign;
        const size_t end = depth == 0 ? closing(x, block, &sign) : 0;
        if (end) {
            add(x, block ? FT_T_BLOCK_END : FT_T_VAR_END, "", 0, x->line);
            x->i += end;
            x->line_starting = false;
            if (block) after_block(x, sign);
            else if (sign == '-') {
                const size_t to = x->i + ft_py_space_front(x->s + x->i, x->n - x->i);
                count_lines(x, x->i, to);
                x->line_starting = to > x->i && x->s[to - 1] == '\n';
                x->i = to;
            }
            return FT_OK;
        }
        const unsigned char c = (unsigned char)x->s[x->i];
        if (name_start(c)) {
            size_t k = x->i;
            while (k < x->n && (name_start((unsigned char)x->s[k]) || digit((unsigned char)x->s[k]))) k++;
            add(x, FT_T_NAME, ft_arena_strndup(x->arena, x->s + x->i, k - x->i), k - x->i, x->line);
            x->i = k;
        } else if (digit(c)) rc = take_number(x);
        else if (c == '"' || c == '\'') rc = take_string(x);
        else rc = take_operator(x, &depth);
    }
    return rc;
}

/* Line ends become "\n", one at the end is dropped. */
static char *normalise(struct ft_arena *arena, const char *text, size_t n, size_t *out_n)
{
    char *s = ft_arena_alloc(arena, n + 1);
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\r') {
            s[k++] = '\n';
            if (i + 1 < n && text[i + 1] == '\n') i++;
        } else {
            s[k++] = text[i];
        }
    }
    if (k && s[k - 1] == '\n') k--;
    *out_n = k;
    return s;
}

enum ft_code ft_template_lex(struct ft_arena *arena, const char *name, const char *text, size_t n, struct ft_toks *out,
                             struct ft_err *err)
{
    struct lexer x = {.arena = arena, .name = name, .line = 1, .line_starting = true, .out = out, .err = err};
    if (ft_utf8_valid(text, n) != n) return ft_fail(err, FT_DATA, "template '%s' is not UTF-8", name);
    x.s = normalise(arena, text, n, &x.n);
    enum ft_code rc = FT_OK;
    while (x.i < x.n && rc == FT_OK) {
        take_text(&x);
        if (x.i >= x.n) break;
        if (at(&x, "{#")) rc = take_comment(&x);
        else rc = take_expression(&x, at(&x, "{%"));
    }
    add(&x, FT_T_END, "", 0, x.line);
    return rc;
}
