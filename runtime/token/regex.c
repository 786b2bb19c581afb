/* Regular expressions of tokenizer files through PCRE2. The files are written for Oniguruma; what differs is rewritten before
 * compiling:  \s \S are White_Space (PCRE2's hold U+180E), \w has marks and connectors, \h is a hexadecimal digit, ^ and $ match at
 * every line, \p{Han} is the script and not its extensions, and \p{L} and the like know the code points up to Unicode 16. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/token/tok.h"

enum { STACK_MIN = 32 << 10, STACK_MAX = 1 << 20, PATTERN_MAX = 1 << 16 };

struct ft_regex {
    pcre2_code *code;
    char *pattern;
    bool jit;
};

struct ft_regex_work {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

#define SPACES "\\x{9}-\\x{d}\\x{85}\\p{Z}"
/* with the letters and digits in small, in circles and squares that Oniguruma counts */
#define WORDS                                                                                                                      \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{" \
    "1f169}\\x{1f170}-\\x{1f189}"

static const struct {
    uint32_t first, last;
    char category[3];
} newer[] = {
#include "runtime/token/unicode16.inc"
};

/* The newer code points of a category ("L", "Lu"), as ranges of a class. */
static bool add_newer(struct ft_buf *out, const char *category, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < sizeof newer / sizeof *newer; i++) {
        if (newer[i].category[0] != category[0] || (n == 2 && newer[i].category[1] != category[1])) continue;
        ft_buf_addf(out, "\\x{%x}-\\x{%x}", newer[i].first, newer[i].last);
        any = true;
    }
    return any;
}

struct rewrite {
    const char *p;
    size_t n, i;
    struct ft_buf *out;
    const char *why; /* NULL; what has no counterpart in PCRE2 */
};

/* Long names of general categories, which PCRE2 does not know. */
static const char *short_category(const char *name, size_t n)
{
    static const char *const names[][2] = {{"Letter", "L"},
                                           {"Uppercase_Letter", "Lu"},
                                           {"Lowercase_Letter", "Ll"},
                                           {"Mark", "M"},
                                           {"Number", "N"},
                                           {"Decimal_Number", "Nd"},
                                           {"Punctuation", "P"},
                                           {"Symbol", "S"},
                                           {"Separator", "Z"},
                                           {"Other", "C"},
                                           {"Titlecase_Letter", "Lt"},
                                           {"Modifier_Letter", "Lm"},
                                           {"Other_Letter", "Lo"},
                                           {"Nonspacing_Mark", "Mn"},
                                           {"Space_Separator", "Zs"},
                                           {"Control", "Cc"},
                                           {"Connector_Punctuation", "Pc"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i][0]) == n && !memcmp(names[i][0], name, n)) return names[i][1];
    return NULL;
}

/* \p or \P at i; in_class: only the inside of a class may be written. */
static void property(struct rewrite *r, bool in_class)
{
    const char *p = r->p + r->i;
    bool negative = p[1] == 'P';
    size_t name = 3, end;
    if (r->i + 2 < r->n && p[2] != '{') { /* \pL */
        name = 2, end = 3;
    } else {
        const char *close = memchr(p, '}', r->n - r->i);
        if (!close) { /* PCRE2 will say what is wrong */
            ft_buf_add(r->out, p, 2);
            r->i += 2;
            return;
        }
        end = (size_t)(close - p);
        if (p[name] == '^') negative = !negative, name++;
    }
    size_t n = end - name;
    const char *text = p + name, *category = short_category(text, n);
    if (category) text = category, n = strlen(category);
    const bool general = n <= 2 && strchr("LMNPSZC", text[0]);
    struct ft_buf more = {0};
    if (general) add_newer(&more, text, n);
    const bool wrap = !in_class && more.n;
    if (wrap) ft_buf_adds(r->out, negative ? "[^" : "[");
    ft_buf_addf(r->out, "\\%c{%s%.*s}", negative && !wrap ? 'P' : 'p',
                general || n <= 2 || !strncmp(text, "Any", n) ? "" : "sc:", (int)n, text);
    if (!(in_class && negative)) ft_buf_add(r->out, more.data ? more.data : "", more.n);
    if (wrap) ft_buf_addc(r->out, ']');
    ft_buf_fini(&more);
    r->i += end + (p[2] == '{' ? 1 : 0);
}

static void escape(struct rewrite *r, bool in_class)
{
    const char c = r->i + 1 < r->n ? r->p[r->i + 1] : 0;
    const char *open = in_class ? "" : "[", *close = in_class ? "" : "]";
    switch (c) {
    case 'p':
    case 'P': property(r, in_class); return;
    case 's': ft_buf_addf(r->out, "%s" SPACES "%s", open, close); break;
    case 'S': ft_buf_adds(r->out, in_class ? "\\S" : "[^" SPACES "]"); break;
    case 'w':
        ft_buf_addf(r->out, "%s" WORDS, open);
        add_newer(r->out, "L", 1), add_newer(r->out, "M", 1), add_newer(r->out, "Nd", 2);
        ft_buf_adds(r->out, close);
        break;
    case 'd':
        ft_buf_addf(r->out, "%s\\p{Nd}", open);
        add_newer(r->out, "Nd", 2);
        ft_buf_adds(r->out, close);
        break;
    case 'u': { /* \u3040 */
        const char *hex = r->p + r->i + 2;
        if (r->n - r->i < 6 || strspn(hex, "0123456789abcdefABCDEF") < 4) {
            r->why = "\\u needs four hexadecimal digits";
            break;
        }
        ft_buf_addf(r->out, "\\x{%.4s}", hex);
        r->i += 4;
        break;
    }
    case 'h': ft_buf_addf(r->out, "%s0-9a-fA-F%s", open, close); break;
    default:
        ft_buf_addc(r->out, '\\');
        if (c) ft_buf_addc(r->out, c);
        break;
    }
    r->i += c ? 2 : 1;
}

/* A class at i. One that holds \S is written as an alternative, since classes cannot be nested; a class inside is a union for the
 * files' authors, so its members are written without its brackets. */
static void class(struct rewrite *r)
{
    struct ft_buf inside = {0}, *outer = r->out;
    bool negative = false, not_space = false;
    int depth = 0;
    r->i++;
    if (r->i < r->n && r->p[r->i] == '^') negative = true, r->i++;
    r->out = &inside;
    if (r->i < r->n && r->p[r->i] == ']') ft_buf_adds(&inside, "\\]"), r->i++;
    for (; r->i < r->n && (depth || r->p[r->i] != ']');) {
        const char *p = r->p + r->i;
        if (p[0] == '\\' && r->i + 1 < r->n && p[1] == 'S') not_space = true, r->i += 2;
        else if (p[0] == '\\') escape(r, true);
        else if (p[0] == '[' && r->i + 1 < r->n && p[1] == ':') {
            const char *end = strstr(p, ":]");
            const size_t n = end ? (size_t)(end - p) + 2 : 1;
            ft_buf_add(&inside, p, n);
            r->i += n;
        } else if (p[0] == '[' || p[0] == ']') {
            if (p[0] == '[' && r->i + 1 < r->n && p[1] == '^') r->why = "a negated class inside a class";
            depth += p[0] == '[' ? 1 : -1, r->i++;
        } else if (p[0] == '&' && r->i + 1 < r->n && p[1] == '&') r->why = "an intersection of classes (&&)", r->i += 2;
        else ft_buf_addc(&inside, p[0]), r->i++;
    }
    r->out = outer;
    const char *in = ft_buf_str(&inside);
    if (!not_space) ft_buf_addf(outer, "[%s%s%s", negative ? "^" : "", in, r->i < r->n ? "]" : "");
    else if (!inside.n) ft_buf_adds(outer, negative ? "[" SPACES "]" : "[^" SPACES "]");
    else if (negative) ft_buf_addf(outer, "(?:(?![%s])[" SPACES "])", in);
    else ft_buf_addf(outer, "(?:[^" SPACES "]|[%s])", in);
    ft_buf_fini(&inside);
    if (r->i < r->n) r->i++;
}

/* {n,m} at i, followed by '+': for PCRE2 possessive, for the files' authors one more repetition. */
static bool repeated_interval(const struct rewrite *r)
{
    const char *p = r->p + r->i;
    const size_t n = strspn(p + 1, "0123456789,");
    return n && p[n + 1] == '}' && p[n + 2] == '+';
}

/* NULL, or what cannot be written for PCRE2. */
static const char *rewrite(const char *pattern, struct ft_buf *out)
{
    struct rewrite r = {.p = pattern, .n = strlen(pattern), .out = out};
    while (r.i < r.n) {
        if (pattern[r.i] == '\\') escape(&r, false);
        else if (pattern[r.i] == '[') class(&r);
        else {
            if (pattern[r.i] == '{' && repeated_interval(&r)) r.why = "'+' behind an interval";
            ft_buf_addc(out, pattern[r.i++]);
        }
    }
    return r.why;
}

enum ft_code ft_regex_compile(const char *pattern, struct ft_regex **out, struct ft_err *err)
{
    struct ft_buf text = {0};
    int code = 0;
    PCRE2_SIZE at = 0;
    if (strlen(pattern) > PATTERN_MAX)
        return ft_fail(err, FT_DATA, "a regular expression of %zu bytes is too long", strlen(pattern));
    if (ft_utf8_valid(pattern, strlen(pattern)) != strlen(pattern))
        return ft_fail(err, FT_DATA, "a regular expression is not UTF-8");
    const char *why_not = rewrite(pattern, &text);
    if (why_not) {
        ft_buf_fini(&text);
        return ft_fail(err, FT_UNSUPPORTED, "cannot compile the regular expression '%s': %s is not supported", pattern, why_not);
    }
    pcre2_compile_context *c = pcre2_compile_context_create(NULL);
    if (!c) ft_die_nomem(1);
    pcre2_set_newline(c, PCRE2_NEWLINE_LF);
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)ft_buf_str(&text), text.n, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &code, &at,
                                         c);
    pcre2_compile_context_free(c);
    ft_buf_fini(&text);
    if (!compiled) {
        PCRE2_UCHAR why[160];
        pcre2_get_error_message(code, why, sizeof why);
        return ft_fail(err, FT_DATA, "cannot compile the regular expression '%s': %s", pattern, (const char *)why);
    }
    struct ft_regex *r = ft_xcalloc(1, sizeof *r);
    r->code = compiled;
    r->pattern = ft_xstrdup(pattern);
    r->jit = pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE) == 0;
    *out = r;
    return FT_OK;
}

void ft_regex_destroy(struct ft_regex *r)
{
    if (!r) return;
    pcre2_code_free(r->code);
    free(r->pattern);
    free(r);
}

const char *ft_regex_pattern(const struct ft_regex *r) { return r->pattern; }

struct ft_regex_work *ft_regex_work_create(void)
{
    struct ft_regex_work *w = ft_xcalloc(1, sizeof *w);
    w->data = pcre2_match_data_create(1, NULL);
    w->context = pcre2_match_context_create(NULL);
    w->stack = pcre2_jit_stack_create(STACK_MIN, STACK_MAX, NULL);
    if (!w->data || !w->context) ft_die_nomem(1);
    if (w->stack) pcre2_jit_stack_assign(w->context, NULL, w->stack);
    return w;
}

void ft_regex_work_destroy(struct ft_regex_work *w)
{
    if (!w) return;
    pcre2_match_data_free(w->data);
    pcre2_match_context_free(w->context);
    pcre2_jit_stack_free(w->stack);
    free(w);
}

int ft_regex_next(const struct ft_regex *r, struct ft_regex_work *w, const char *s, size_t n, size_t at, size_t *begin, size_t *end,
                  struct ft_err *err)
{
    PCRE2_SPTR text = (PCRE2_SPTR)(s ? s : "");
    int rc = r->jit ? pcre2_jit_match(r->code, text, n, at, PCRE2_NO_UTF_CHECK, w->data, w->context) : PCRE2_ERROR_JIT_STACKLIMIT;
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT || rc == PCRE2_ERROR_JIT_BADOPTION)
        rc = pcre2_match(r->code, text, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, w->data, w->context);
    if (rc == PCRE2_ERROR_NOMATCH) return 0;
    if (rc < 0) {
        PCRE2_UCHAR why[160];
        pcre2_get_error_message(rc, why, sizeof why);
        (void)ft_fail(err, FT_DATA, "the regular expression '%s' cannot be matched: %s", r->pattern, (const char *)why);
        return -1;
    }
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(w->data);
    *begin = v[0], *end = v[1] > v[0] ? v[1] : v[0]; /* \K may turn them round */
    return 1;
}
