#include "topology/hostlist.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>

#include "base/ini.h"

enum { MAX_LABEL = 63, MAX_NAME = 253, MAX_DIGITS = 18 };

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_blank(char c) { return c == ' ' || c == '\t'; }
static bool is_name_char(char c) { return isalnum((unsigned char)c) || c == '-' || c == '_' || c == '.'; }

static bool refuse(struct ft_range_fault *f, size_t offset, const char *fix, const char *text)
{
    *f = (struct ft_range_fault){offset, text, fix};
    return false;
}

/* ---- one name ---- */

bool ft_is_address(const char *text)
{
    struct in6_addr six;
    char plain[INET6_ADDRSTRLEN + 1];
    size_t n = strcspn(text, "%");
    if (inet_pton(AF_INET, text, &six) == 1) return true;
    if (n >= sizeof plain || (text[n] && !text[n + 1])) return false;
    memcpy(plain, text, n);
    plain[n] = '\0';
    return inet_pton(AF_INET6, plain, &six) == 1;
}

/* Bytes of the character at s, 1 when it is not UTF-8. */
static size_t char_bytes(const char *s, size_t n)
{
    for (size_t len = 1; len <= 4 && len <= n; len++)
        if (ft_utf8_valid(s, len) == len) return len;
    return 1;
}

/* What is said about a character that no name has. */
static bool refuse_char(const char *name, size_t n, size_t at, struct ft_arena *a, struct ft_range_fault *f)
{
    const char *quoted = ft_quote(a, name, n);
    switch (name[at]) {
    case '@': return refuse(f, at, "write the user as an attribute: user=NAME", ft_arena_printf(a, "'@' in the name %s", quoted));
    case ':': return refuse(f, at, "write the port as an attribute: port=N", ft_arena_printf(a, "':' in the name %s", quoted));
    default:
        return refuse(
            f, at, "names have letters, digits, '-', '_' and '.'",
            ft_arena_printf(a, "%s is no part of a name: %s", ft_quote(a, name + at, char_bytes(name + at, n - at)), quoted));
    }
}

bool ft_hostname_check(const char *name, size_t n, struct ft_arena *a, struct ft_range_fault *f)
{
    const char *quoted = n <= MAX_NAME ? ft_quote(a, name, n) : "";
    if (!n) return refuse(f, 0, NULL, "an empty name");
    if (name[0] == '-')
        return refuse(f, 0, NULL,
                      ft_arena_printf(a, "the name %s begins with '-' and could be taken for an option", ft_quote(a, name, n)));
    for (size_t i = 0; i < n; i++)
        if (!is_name_char(name[i])) return refuse_char(name, n, i, a, f);
    size_t label = 0;
    for (size_t i = 0; i <= n; i++) {
        if (i < n && name[i] != '.') continue;
        size_t len = i - label;
        if (!len && !(i == n && n > 1)) return refuse(f, label, NULL, ft_arena_printf(a, "an empty label in the name %s", quoted));
        if (len > MAX_LABEL)
            return refuse(f, label, NULL, ft_arena_printf(a, "a label of %zu letters in a name; at most %d", len, MAX_LABEL));
        if (len && (name[label] == '-' || name[i - 1] == '-'))
            return refuse(f, label, NULL, ft_arena_printf(a, "a label that begins or ends with '-' in the name %s", quoted));
        label = i + 1;
    }
    if (n > MAX_NAME) return refuse(f, 0, NULL, ft_arena_printf(a, "a name of %zu letters; at most %d", n, MAX_NAME));
    bool digits_only = true;
    for (size_t i = 0; i < n; i++) digits_only = digits_only && (is_digit(name[i]) || name[i] == '.');
    if (digits_only && !ft_is_address(ft_arena_strndup(a, name, n)))
        return refuse(f, 0, "give the node a name and its address as host=",
                      ft_arena_printf(a, "%s is neither a name nor a full address", quoted));
    return true;
}

/* ---- expanding ---- */

struct range {
    uint64_t first, last, step, n;
    int width;
    size_t offset;
};
/* A piece of an item: text, or a bracket with its ranges. now, value: the odometer. */
struct piece {
    const char *text;
    size_t n_text;
    struct range *ranges;
    size_t n_ranges, now;
    uint64_t value;
};
struct expanding {
    const char *text;
    size_t n, limit, total;
    struct ft_arena *arena;
    struct ft_range_fault *fault;
    struct ft_names names;
    size_t *offsets;
    size_t cap;
    struct ft_name_index index;
};

static const char *quote(struct expanding *x, size_t from, size_t to) { return ft_quote(x->arena, x->text + from, to - from); }

/* Digits at *p as a number; false: none, or more than fit. */
static bool take_number(struct expanding *x, size_t *p, size_t end, uint64_t *out, size_t *digits)
{
    size_t from = *p;
    uint64_t v = 0;
    size_t significant = 0;
    for (; *p < end && is_digit(x->text[*p]); (*p)++) {
        if (significant || x->text[*p] != '0') significant++;
        if (significant <= MAX_DIGITS) v = v * 10 + (uint64_t)(x->text[*p] - '0');
    }
    *digits = *p - from;
    *out = v;
    return *digits && significant <= MAX_DIGITS && *digits <= MAX_LABEL;
}

/* D [ "-" D [ "/" STEP ] ] in text[from,to) */
static bool parse_range(struct expanding *x, size_t from, size_t to, struct range *r)
{
    size_t p = from, w1, w2;
    const char *q = quote(x, from, to);
    *r = (struct range){.step = 1, .n = 1, .offset = from};
    if (from == to) return refuse(x->fault, from, NULL, "an empty range");
    if (!take_number(x, &p, to, &r->first, &w1))
        return refuse(x->fault, from, NULL, ft_arena_printf(x->arena, "%s is no range of numbers", q));
    r->last = r->first;
    r->width = (int)w1;
    if (p == to) return true;
    if (x->text[p] != '-') return refuse(x->fault, p, NULL, ft_arena_printf(x->arena, "%s is no range of numbers", q));
    size_t second = ++p;
    if (!take_number(x, &p, to, &r->last, &w2))
        return refuse(x->fault, from, NULL, ft_arena_printf(x->arena, "%s is no range of numbers", q));
    if (p < to && x->text[p] == '/') {
        size_t slash = p++, w3;
        if (!take_number(x, &p, to, &r->step, &w3) || !r->step || p != to)
            return refuse(x->fault, slash, NULL, ft_arena_printf(x->arena, "the step of %s is no number above 0", q));
    }
    if (p != to) return refuse(x->fault, p, NULL, ft_arena_printf(x->arena, "%s is no range of numbers", q));
    bool padded1 = w1 > 1 && x->text[from] == '0', padded2 = w2 > 1 && x->text[second] == '0';
    if (w1 != w2 && (padded2 || (padded1 && w2 < w1)))
        return refuse(x->fault, from, "write both ends with the same number of digits",
                      ft_arena_printf(x->arena, "the ends of %s are padded to different widths", q));
    if (r->last < r->first) return refuse(x->fault, from, NULL, ft_arena_printf(x->arena, "%s runs backwards", q));
    if (!padded1) r->width = w1 == w2 ? (int)w1 : 1;
    r->n = (r->last - r->first) / r->step + 1;
    return true;
}

/* The bracket whose '[' is at open and whose ']' is at close. */
static bool parse_bracket(struct expanding *x, size_t open, size_t close, struct piece *out, uint64_t *n_item)
{
    size_t n = 1;
    for (size_t i = open + 1; i < close; i++) n += x->text[i] == ',';
    *out = (struct piece){.ranges = ft_arena_array(x->arena, n, sizeof *out->ranges)};
    uint64_t sum = 0;
    for (size_t from = open + 1; from <= close;) {
        size_t to = from;
        while (to < close && x->text[to] != ',') to++;
        size_t a = from, b = to;
        while (a < b && is_blank(x->text[a])) a++;
        while (b > a && is_blank(x->text[b - 1])) b--;
        if (a == b && n == 1)
            return refuse(x->fault, open, NULL, ft_arena_printf(x->arena, "empty brackets: %s", quote(x, open, close + 1)));
        struct range *r = &out->ranges[out->n_ranges];
        if (!parse_range(x, a, b, r)) return false;
        out->n_ranges++;
        sum += r->n < FT_MAX_NODES * 2u ? r->n : FT_MAX_NODES * 2u;
        if (sum * *n_item + x->total > x->limit)
            return refuse(x->fault, a, NULL,
                          ft_arena_printf(x->arena, "%s makes more than %d nodes", quote(x, a, b), FT_MAX_NODES));
        from = to + 1;
    }
    *n_item *= sum;
    out->value = out->ranges[0].first;
    return true;
}

static bool add_name(struct expanding *x, const char *name, size_t offset)
{
    size_t before = x->index.n;
    ft_name_index_add(&x->index, name);
    if (x->index.n == before)
        return refuse(x->fault, offset, NULL,
                      ft_arena_printf(x->arena, "%s is named twice", ft_quote(x->arena, name, strlen(name))));
    if (x->names.n == x->cap) {
        size_t cap = x->cap ? x->cap * 2 : 16;
        const char **v = ft_arena_array(x->arena, cap, sizeof *v);
        size_t *offsets = ft_arena_array(x->arena, cap, sizeof *offsets);
        if (x->names.n) {
            memcpy(v, x->names.v, x->names.n * sizeof *v);
            memcpy(offsets, x->offsets, x->names.n * sizeof *offsets);
        }
        x->names.v = v;
        x->offsets = offsets;
        x->cap = cap;
    }
    x->offsets[x->names.n] = offset;
    x->names.v[x->names.n++] = name;
    return true;
}

/* Moves the odometer on; false: it went round. */
static bool advance(struct piece *pieces, size_t n)
{
    while (n-- > 0) {
        struct piece *p = &pieces[n];
        if (!p->n_ranges) continue;
        const struct range *r = &p->ranges[p->now];
        if (r->last - p->value >= r->step) {
            p->value += r->step;
            return true;
        }
        bool round = ++p->now == p->n_ranges;
        if (round) p->now = 0;
        p->value = p->ranges[p->now].first;
        if (!round) return true;
    }
    return false;
}

static bool make_names(struct expanding *x, struct piece *pieces, size_t n, size_t item)
{
    struct ft_buf b = {0};
    bool ok = true, more = true;
    size_t brackets = 0;
    for (size_t i = 0; i < n; i++) brackets += pieces[i].n_ranges > 0;
    while (ok && more) {
        size_t offset = item;
        ft_buf_clear(&b);
        for (size_t i = 0; i < n; i++) {
            const struct piece *p = &pieces[i];
            if (!p->n_ranges) {
                ft_buf_add(&b, p->text, p->n_text);
            } else {
                ft_buf_addf(&b, "%0*llu", p->ranges[p->now].width, (unsigned long long)p->value);
                if (brackets == 1) offset = p->ranges[p->now].offset;
            }
        }
        struct ft_range_fault f;
        ok = ft_hostname_check(ft_buf_str(&b), b.n, x->arena, &f);
        if (!ok) refuse(x->fault, brackets ? item : item + f.offset, f.fix, f.text);
        ok = ok && add_name(x, ft_arena_strndup(x->arena, b.data, b.n), offset);
        more = advance(pieces, n);
    }
    ft_buf_fini(&b);
    return ok;
}

/* One item: text[from,to), blanks at its ends already gone. */
static bool expand_item(struct expanding *x, size_t from, size_t to)
{
    size_t colons = 0, n = 0, max = 1;
    for (size_t i = from; i < to; i++) {
        colons += x->text[i] == ':';
        max += x->text[i] == '[' ? 2 : 0;
    }
    if (from == to) return refuse(x->fault, from, NULL, "an empty name");
    if (colons > 1)
        return refuse(x->fault, from, "give the node a name and write its address as host=ADDRESS (and port=N)",
                      ft_arena_printf(x->arena, "%s is an address, not a name", quote(x, from, to)));
    struct piece *pieces = ft_arena_array(x->arena, max, sizeof *pieces);
    uint64_t n_item = 1;
    for (size_t p = from; p < to;) {
        size_t start = p;
        if (x->text[p] == '[') {
            while (p < to && x->text[p] != ']') p++;
            if (p == to)
                return refuse(x->fault, start, NULL, ft_arena_printf(x->arena, "'[' is not closed: %s", quote(x, from, to)));
            if (!parse_bracket(x, start, p++, &pieces[n++], &n_item)) return false;
            continue;
        }
        for (; p < to && x->text[p] != '['; p++) {
            struct ft_range_fault f;
            if (is_name_char(x->text[p])) continue;
            if (x->text[p] == ']')
                return refuse(x->fault, p, NULL, ft_arena_printf(x->arena, "']' without '[': %s", quote(x, from, to)));
            refuse_char(x->text + from, to - from, p - from, x->arena, &f);
            return refuse(x->fault, p, f.fix, f.text);
        }
        pieces[n++] = (struct piece){.text = x->text + start, .n_text = p - start};
    }
    x->total += n_item;
    if (x->total > x->limit)
        return refuse(x->fault, from, NULL,
                      ft_arena_printf(x->arena, "%s makes more than %d nodes", quote(x, from, to), FT_MAX_NODES));
    return make_names(x, pieces, n, from);
}

bool ft_hostlist_expand(const char *text, size_t n, size_t limit, struct ft_arena *arena, struct ft_names *out, size_t **offsets,
                        struct ft_range_fault *fault)
{
    struct expanding x = {.text = text, .n = n, .limit = limit, .arena = arena, .fault = fault, .index = ft_name_index_make(arena)};
    for (size_t from = 0; from <= n;) {
        size_t to = from;
        for (bool inside = false; to < n && (inside || text[to] != ','); to++) {
            if (text[to] == '[') inside = true;
            if (text[to] == ']') inside = false;
        }
        size_t next = to + 1, empty_at = from;
        while (from < to && is_blank(text[from])) from++;
        while (to > from && is_blank(text[to - 1])) to--;
        if (from == to) return refuse(fault, empty_at, NULL, "an empty name between commas");
        if (!expand_item(&x, from, to)) return false;
        from = next;
    }
    *out = x.names;
    if (offsets) *offsets = x.offsets;
    return true;
}
