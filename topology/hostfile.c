/* Host lists of other tools. The form is recognised line by line. */
#include <string.h>

#include "base/ini.h"
#include "topology/hostlist.h"

struct hosts {
    const char *name;
    struct ft_arena *arena;
    struct ft_faults *faults;
    struct ft_host_rows rows;
    size_t cap;
    struct ft_name_index index;
    bool *counted; /* the row was given plainly: slots are the times it was named */
    const char *start;
    int line;
    bool said_max, said_repeat;
};

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

static struct ft_source at(const struct hosts *h, const char *p)
{
    return (struct ft_source){h->name, h->line, (int)(p - h->start) + 1};
}

static const char *quote(const struct hosts *h, const char *p, const char *e) { return ft_quote(h->arena, p, (size_t)(e - p)); }

static bool fault(struct hosts *h, const char *p, const char *fix, const char *text)
{
    ft_faults_add(h->faults, FT_SEV_ERROR, at(h, p), NULL, NULL, "%s", text);
    if (fix) ft_fault_fix(h->faults, "%s", fix);
    return false;
}

/* Digits of p..e in [1,max]; 0 and a fault when it is none. */
static int number(struct hosts *h, const char *what, const char *p, const char *e, int max, const char *fix)
{
    int64_t x;
    char *text = ft_arena_strndup(h->arena, p, (size_t)(e - p));
    if (ft_parse_i64(text, 1, max, &x)) return (int)x;
    fault(h, p, fix, ft_arena_printf(h->arena, "%s: %s is not in 1..%d", what, quote(h, p, e), max));
    return 0;
}

/* What a line says about all of its hosts. */
struct row {
    const char *user;
    int slots, port;
    bool attributes; /* more than bare names */
};

static void add_host(struct hosts *h, const char *name, const char *p, const struct row *r)
{
    long known = ft_name_index_find(&h->index, name);
    if (known >= 0) {
        struct ft_host_row *old = &h->rows.v[known];
        if (r->attributes || !h->counted[known]) {
            fault(h, p, NULL,
                  ft_arena_printf(h->arena, "%s is given twice (first on line %d)", ft_quote(h->arena, name, strlen(name)),
                                  old->at.line));
        } else {
            if (!h->said_repeat)
                ft_faults_add(h->faults, FT_SEV_NOTE, at(h, p), NULL, NULL,
                              "a node that is named n times gets n slots, beginning with '%s'", name);
            h->said_repeat = true;
            old->slots = old->slots ? old->slots + 1 : 2;
        }
        return;
    }
    if (h->rows.n == h->cap) {
        size_t cap = h->cap ? h->cap * 2 : 16;
        struct ft_host_row *v = ft_arena_array(h->arena, cap, sizeof *v);
        bool *counted = ft_arena_array(h->arena, cap, sizeof *counted);
        if (h->rows.n) {
            memcpy(v, h->rows.v, h->rows.n * sizeof *v);
            memcpy(counted, h->counted, h->rows.n * sizeof *counted);
        }
        h->rows.v = v;
        h->counted = counted;
        h->cap = cap;
    }
    ft_name_index_add(&h->index, name);
    h->counted[h->rows.n] = !r->attributes;
    h->rows.v[h->rows.n++] = (struct ft_host_row){name, r->user, r->slots, r->port, at(h, p)};
}

/* One "NAME=VALUE" word behind the hosts. */
static bool take_word(struct hosts *h, const char *p, const char *e, struct row *r)
{
    static const char *const known[] = {"slots", "max_slots", "max-slots"};
    const char *eq = memchr(p, '=', (size_t)(e - p));
    r->attributes = true;
    if (!eq) return fault(h, p, "write one node a line", ft_arena_printf(h->arena, "unknown word %s", quote(h, p, e)));
    const char *name = ft_arena_strndup(h->arena, p, (size_t)(eq - p));
    if (!strcmp(name, "max_slots") || !strcmp(name, "max-slots")) {
        if (!h->said_max) ft_faults_add(h->faults, FT_SEV_NOTE, at(h, p), NULL, NULL, "%s is ignored", name);
        h->said_max = true;
        return true;
    }
    if (strcmp(name, "slots") != 0) {
        const char *near = ft_nearest(name, known, sizeof known / sizeof *known);
        return fault(h, p,
                     near ? ft_arena_printf(h->arena, "likely: %s", near) : "the words of a host list are slots=N and max_slots=N",
                     ft_arena_printf(h->arena, "unknown word %s", quote(h, p, eq)));
    }
    if (r->slots) return fault(h, p, NULL, "slots are given twice");
    r->slots = number(h, "slots", eq + 1, e, FT_MAX_SLOTS, NULL);
    return r->slots > 0;
}

/* The hosts of a line: p..e without attributes; user and what follows a colon go to r. */
static bool take_hosts(struct hosts *h, const char *p, const char *e, struct row *r, struct ft_names *names, size_t **offsets,
                       const char **base)
{
    if (*p == '@')
        return fault(h, p, "write the nodes themselves",
                     ft_arena_printf(h->arena, "%s is a group of another tool", quote(h, p, e)));
    const char *user_end = memchr(p, '@', (size_t)(e - p));
    if (user_end) {
        const char *second = memchr(user_end + 1, '@', (size_t)(e - user_end - 1));
        if (second) return fault(h, second, NULL, ft_arena_printf(h->arena, "a second '@' in %s", quote(h, p, e)));
        r->user = ft_arena_strndup(h->arena, p, (size_t)(user_end - p));
        r->attributes = true;
        if (*r->user == '-' || !ft_utf8_valid(r->user, strlen(r->user)))
            return fault(h, p, NULL, ft_arena_printf(h->arena, "%s is no user", quote(h, p, user_end)));
        p = user_end + 1;
    }
    *base = p;
    const char *close = *p == '[' ? memchr(p, ']', (size_t)(e - p)) : NULL;
    const char *inner = close ? ft_arena_strndup(h->arena, p + 1, (size_t)(close - p - 1))
                              : ft_arena_strndup(h->arena, p, (size_t)(e - p));
    const char *colon = NULL;
    if (ft_is_address(inner)) {
        const char **one = ft_arena_array(h->arena, 1, sizeof *one);
        one[0] = inner;
        *names = (struct ft_names){one, 1};
        *offsets = ft_arena_array(h->arena, 1, sizeof **offsets);
        if (close && close + 1 < e) {
            if (close[1] != ':')
                return fault(h, close + 1, NULL, ft_arena_printf(h->arena, "text behind an address: %s", quote(h, close + 1, e)));
            r->attributes = true;
            return (r->port = number(h, "port", close + 2, e, 65535, NULL)) > 0;
        }
        if (close || strchr(inner, ':')) return true;
    }
    colon = memchr(p, ':', (size_t)(e - p));
    if (colon) {
        r->attributes = true;
        if (user_end) r->port = number(h, "port", colon + 1, e, 65535, NULL);
        else r->slots = number(h, "slots", colon + 1, e, FT_MAX_SLOTS, "NAME:N means N slots; write a port as port=N in [nodes]");
        if (!r->port && !r->slots) return false;
        e = colon;
    }
    struct ft_range_fault f;
    if (ft_hostlist_expand(p, (size_t)(e - p), FT_MAX_NODES - h->rows.n, h->arena, names, offsets, &f)) return true;
    return fault(h, p + f.offset, f.fix, f.text);
}

/* Where the word at p ends; a blank beside a comma does not end it. */
static const char *word_end(const char *p, const char *e, bool hosts)
{
    for (; p < e; p++) {
        if (!is_blank(*p)) continue;
        const char *next = p;
        while (next < e && is_blank(*next)) next++;
        if (!hosts || next == e || (p[-1] != ',' && *next != ',')) return p;
        p = next - 1;
    }
    return e;
}

static void take_line(struct hosts *h, const char *p, const char *e)
{
    for (const char *c = p; c + 1 < e; c++)
        if (is_blank(c[0]) && c[1] == '#') e = c;
    while (e > p && is_blank(e[-1])) e--;
    struct row r = {0};
    const char *end = word_end(p, e, true), *hosts_end = end;
    for (const char *w = end; w < e;) {
        while (is_blank(*w)) w++;
        end = word_end(w, e, false);
        if (!take_word(h, w, end, &r)) return;
        w = end;
    }
    struct ft_names names = {0};
    size_t *offsets = NULL;
    const char *base = p;
    bool slots_before = r.slots > 0;
    const char *colon = slots_before && *p != '[' ? memchr(p, ':', (size_t)(hosts_end - p)) : NULL;
    if (!take_hosts(h, p, hosts_end, &r, &names, &offsets, &base)) return;
    if (colon && names.n && !strchr(names.v[0], ':') && !r.port) {
        fault(h, colon, NULL, "slots are given twice");
        return;
    }
    for (size_t i = 0; i < names.n; i++) add_host(h, names.v[i], base + offsets[i], &r);
}

/* false: the line has a byte that no list has. */
static bool check_bytes(struct hosts *h, const char *p, const char *e)
{
    const char *bad = memchr(p, '\0', (size_t)(e - p));
    if (bad) return fault(h, bad, NULL, "a NUL byte");
    bad = memchr(p, '\r', (size_t)(e - p));
    if (bad) return fault(h, bad, NULL, "a carriage return without a line feed behind it");
    size_t ok = ft_utf8_valid(p, (size_t)(e - p));
    if (ok == (size_t)(e - p)) return true;
    return fault(h, p + ok, "store the file as UTF-8",
                 ft_arena_printf(h->arena, "byte 0x%02X is not UTF-8", (unsigned)(unsigned char)p[ok]));
}

struct ft_host_rows ft_hostfile_parse(const char *name, const char *text, size_t n, struct ft_arena *arena,
                                      struct ft_faults *faults)
{
    struct hosts h = {.name = name, .arena = arena, .faults = faults, .index = ft_name_index_make(arena)};
    const char *p = text, *end = text + n;
    size_t errors = faults->n_errors;
    bool said_crlf = false;
    if (n >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) {
        ft_faults_add(faults, FT_SEV_NOTE, (struct ft_source){name, 1, 1}, NULL, NULL, "a byte order mark at the start; skipped");
        p += 3;
    }
    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p)), *e = nl ? nl : end;
        h.start = p;
        h.line++;
        if (nl && e > p && e[-1] == '\r') {
            e--;
            if (!said_crlf)
                ft_faults_add(faults, FT_SEV_NOTE, at(&h, e), NULL, NULL, "lines of this file end in CR LF; read as LF");
            said_crlf = true;
        }
        if (check_bytes(&h, p, e)) {
            while (p < e && is_blank(*p)) p++;
            if (p < e && *p != '#') take_line(&h, p, e);
        }
        p = nl ? nl + 1 : end;
    }
    if (!h.rows.n && faults->n_errors == errors)
        ft_faults_add(faults, FT_SEV_ERROR, (struct ft_source){name, 1, 1}, NULL, NULL, "no node in this host list");
    return h.rows;
}
