#include "base/ini.h"

#include <ini.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>

#include "base/fd.h"
#include "base/str.h"

enum { MAX_FILE = 64 << 20 };

enum kind { PLAIN, ENV, NODES }; /* which of the three line grammars the current section has */

/* One file while it is read. Lines are cut in place: ends of keys and values become NULs. */
struct scan {
    struct ft_ini *ini;
    struct ft_faults *faults;
    const char *name;
    unsigned file_index;
    char *p, *end; /* what is left of the text; *end is a NUL of ours */
    int line;
    char *start; /* of the current line */
    size_t header;
    enum kind kind;
    bool in_section, skipping; /* skipping: behind a header or a first line that was refused */
    bool crlf_noted;
    size_t pending; /* entries written behind ini->n that inih has not yet handed back: 0 or 1 */
};

struct ft_ini *ft_ini_create(struct ft_arena *arena)
{
    struct ft_ini *ini = ft_arena_alloc(arena, sizeof *ini);
    ini->arena = arena;
    return ini;
}

bool ft_ini_is_env(const char *section) { return !strcmp(section, "env") || !strncmp(section, "env ", 4); }

bool ft_ini_is_set(const struct ft_ini *ini, const struct ft_ini_entry *e) { return e->file_index >= ini->n_files; }

void ft_ini_sort_faults(const struct ft_ini *ini, struct ft_faults *faults)
{
    struct ft_fault *v = ft_arena_array(faults->arena, faults->n + 1, sizeof *v);
    size_t n = 0;
    for (unsigned file = 0; file <= ini->n_files + 1; file++) { /* files, --set, the rest */
        const char *name = file < ini->n_files ? ini->files[file] : "--set";
        for (size_t i = 0; i < faults->n; i++) {
            struct ft_fault *f = &faults->v[i];
            bool here = file > ini->n_files || ft_str_eq(f->at.file, name);
            if (f->order == UINT_MAX || !here) continue;
            v[n] = *f;
            v[n].order = (unsigned)n;
            n++;
            f->order = UINT_MAX;
        }
    }
    if (n) memcpy(faults->v, v, n * sizeof *v);
    ft_faults_sort(faults);
}

const char *ft_quote(struct ft_arena *a, const char *s, size_t n)
{
    struct ft_buf b = {0};
    ft_buf_addc(&b, '\'');
    size_t i = 0;
    while (i < n && i < 200) {
        unsigned char c = (unsigned char)s[i];
        size_t len = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
        if (c < 0x20 || c == 0x7f || len > n - i || ft_utf8_valid(s + i, len) != len) {
            ft_buf_addf(&b, "\\x%02X", c);
            i++;
        } else {
            ft_buf_add(&b, s + i, len);
            i += len;
        }
    }
    ft_buf_adds(&b, i < n ? "…'" : "'");
    char *out = ft_arena_strndup(a, ft_buf_str(&b), b.n);
    ft_buf_fini(&b);
    return out;
}

/* Room for one more element in an arena array. */
static void *room(struct ft_arena *a, void *v, size_t n, size_t *cap, size_t size)
{
    if (n < *cap) return v;
    size_t cap2 = *cap ? *cap * 2 : 16;
    void *v2 = ft_arena_array(a, cap2, size);
    if (n) memcpy(v2, v, n * size);
    *cap = cap2;
    return v2;
}

static struct ft_source at(const struct scan *s, const char *p)
{
    return (struct ft_source){s->name, s->line, (int)(p - s->start) + 1};
}

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

static char *skip_blanks(char *p, const char *e)
{
    while (p < e && is_blank(*p)) p++;
    return p;
}

static char *trim_end(char *p, char *e)
{
    while (e > p && is_blank(e[-1])) e--;
    return e;
}

/* Where a comment that stands behind something begins (its blank included), or e. */
static char *comment_start(char *p, char *e, enum kind kind)
{
    for (char *c = p; c + 1 < e; c++)
        if (is_blank(c[0]) && (c[1] == ';' || (kind == NODES && c[1] == '#'))) return c;
    return e;
}

static bool check_utf8(struct scan *s, char *p, char *e)
{
    size_t ok = ft_utf8_valid(p, (size_t)(e - p));
    if (ok == (size_t)(e - p)) return true;
    ft_faults_add(s->faults, FT_SEV_ERROR, at(s, p + ok), NULL, NULL, "byte 0x%02X is not UTF-8", (unsigned)(unsigned char)p[ok]);
    ft_fault_fix(s->faults, "store the file as UTF-8");
    return false;
}

/* The ']' that closes the '[' at p, or NULL. */
static char *closing(char *p, char *e)
{
    int depth = 0;
    for (; p < e; p++) {
        if (*p == '[') depth++;
        if (*p == ']' && --depth == 0) return p;
    }
    return NULL;
}

/* Takes the next line out of the text: *p..*e without its end; false at the end of the text. Reports NUL and CR. */
static bool next_line(struct scan *s, char **p, char **e, bool *usable)
{
    if (s->p >= s->end) return false;
    s->line++;
    s->start = s->p;
    char *nl = memchr(s->p, '\n', (size_t)(s->end - s->p));
    char *stop = nl ? nl : s->end;
    s->p = nl ? nl + 1 : s->end;
    if (nl && stop > s->start && stop[-1] == '\r') {
        stop--;
        if (!s->crlf_noted)
            ft_faults_add(s->faults, FT_SEV_NOTE, at(s, stop), NULL, NULL, "lines of this file end in CR LF; read as LF");
        s->crlf_noted = true;
    }
    *usable = true;
    char *bad = memchr(s->start, '\0', (size_t)(stop - s->start));
    if (bad) {
        ft_faults_add(s->faults, FT_SEV_ERROR, at(s, bad), NULL, NULL, "a NUL byte");
        *usable = false;
    } else if ((bad = memchr(s->start, '\r', (size_t)(stop - s->start)))) {
        ft_faults_add(s->faults, FT_SEV_ERROR, at(s, bad), NULL, NULL, "a carriage return without a line feed behind it");
        *usable = false;
    }
    *p = skip_blanks(s->start, stop);
    *e = trim_end(*p, stop);
    return true;
}

/* "[NAME]" at p; close is its ']'. true: a header was recorded. */
static bool take_header(struct scan *s, char *p, char *e, char *close)
{
    struct ft_ini *ini = s->ini;
    s->in_section = true;
    s->skipping = true;
    s->kind = PLAIN;
    if (!check_utf8(s, p, e)) return false;
    if (!close) {
        ft_faults_add(s->faults, FT_SEV_ERROR, at(s, p), NULL, NULL, "'[' is not closed: %s",
                      ft_quote(ini->arena, p, (size_t)(e - p)));
        ft_fault_fix(s->faults, "write ']' behind the section's name");
        return false;
    }
    char *name = skip_blanks(p + 1, close), *name_end = trim_end(name, close);
    if (name == name_end) {
        ft_faults_add(s->faults, FT_SEV_ERROR, at(s, p), NULL, NULL, "a section without a name");
        return false;
    }
    char *rest = skip_blanks(close + 1, e);
    if (rest < e && (rest == close + 1 || (*rest != ';' && *rest != '#'))) {
        ft_faults_add(s->faults, FT_SEV_ERROR, at(s, rest), NULL, NULL, "text behind ']': %s",
                      ft_quote(ini->arena, rest, (size_t)(e - rest)));
        ft_fault_fix(s->faults, "begin a new line behind ']'");
        return false;
    }
    *name_end = '\0';
    ini->headers = room(ini->arena, ini->headers, ini->n_headers, &ini->headers_cap, sizeof *ini->headers);
    s->header = ini->n_headers;
    ini->headers[ini->n_headers++] = (struct ft_ini_header){name, at(s, name), at(s, p), s->file_index};
    s->kind = ft_ini_is_env(name) ? ENV : !strcmp(name, "nodes") ? NODES : PLAIN;
    s->skipping = false;
    return true;
}

/* A line for a message. What follows a name may be a secret: in [env], and where the name says so. */
static const char *quote_line(const struct scan *s, const char *p, const char *e)
{
    struct ft_arena *a = s->ini->arena;
    size_t n = 0;
    while (p + n < e && !is_blank(p[n]) && p[n] != ':' && p[n] != '=') n++;
    const char *name = ft_arena_strndup(a, p, n);
    const bool hide = p + n < e && s->kind != NODES && (s->kind == ENV || ft_is_secret_name(name));
    return hide ? ft_arena_printf(a, "%s …", ft_quote(a, p, n)) : ft_quote(a, p, (size_t)(e - p));
}

/* A line that is no entry: says why. */
static void refuse_entry(struct scan *s, char *p, char *e, char *colon)
{
    const char *quoted = quote_line(s, p, e);
    if (colon) {
        ft_faults_add(s->faults, FT_SEV_ERROR, at(s, colon), NULL, NULL, "':' between a key and its value: %s", quoted);
        ft_fault_fix(s->faults, "write '=' for ':'");
    } else {
        ft_faults_add(s->faults, FT_SEV_ERROR, at(s, p), NULL, NULL, "a line without '=': %s", quoted);
        if (s->kind == NODES) ft_fault_fix(s->faults, "write %.*s =", e - p < 200 ? (int)(e - p) : 200, p);
        else ft_fault_fix(s->faults, "write KEY = VALUE");
    }
}

/* A ':' that was meant as '=': any in front of '=' in plain sections, one with a blank beside it in [nodes] (an address may
 * hold others). */
static char *wrong_colon(const struct scan *s, char *p, char *e)
{
    if (s->kind == ENV) return NULL;
    for (char *c = p; c < e; c++) {
        if (*c != ':') continue;
        if (s->kind == PLAIN || (c > p && is_blank(c[-1])) || (c + 1 < e && is_blank(c[1]))) return c;
    }
    return NULL;
}

/* p..e is a line that is no comment and no header. true: an entry lies behind ini->n. */
static bool take_entry(struct scan *s, char *p, char *e)
{
    struct ft_ini *ini = s->ini;
    if (!s->in_section) {
        ft_faults_add(s->faults, FT_SEV_ERROR, at(s, p), NULL, NULL, "text before the first [section]: %s", quote_line(s, p, e));
        s->in_section = s->skipping = true;
    }
    if (s->skipping) return false;
    char *line_end = e;
    if (s->kind != ENV) e = trim_end(p, comment_start(p, e, s->kind));
    char *eq = e > p ? memchr(p, '=', (size_t)(e - p)) : NULL;
    char *key_end = trim_end(p, eq ? eq : e);
    char *value = eq ? skip_blanks(eq + 1, e) : e;
    if (s->kind != ENV && (!check_utf8(s, p, key_end) || !check_utf8(s, e, line_end))) return false;
    char *colon = wrong_colon(s, p, eq ? eq : e);
    if (!eq || colon) {
        if (!eq && s->kind == ENV && ft_utf8_valid(p, (size_t)(e - p)) == (size_t)(e - p)) colon = memchr(p, ':', (size_t)(e - p));
        refuse_entry(s, p, e, colon);
        return false;
    }
    if (key_end == p) {
        ft_faults_add(s->faults, FT_SEV_ERROR, at(s, eq), NULL, NULL, "no key before '='");
        return false;
    }
    ini->v = room(ini->arena, ini->v, ini->n, &ini->cap, sizeof *ini->v);
    const struct ft_ini_header *h = &ini->headers[s->header];
    ini->v[ini->n] = (struct ft_ini_entry){.section = h->section,
                                           .key = p,
                                           .value = value,
                                           .value_len = (size_t)(e - value),
                                           .at = at(s, p),
                                           .value_at = at(s, value),
                                           .section_at = h->at,
                                           .file_index = s->file_index};
    *key_end = '\0'; /* a blank or the '=' */
    *e = '\0';       /* a blank, CR, LF or the NUL behind the text */
    return true;
}

/* What inih gets instead of the file: "[INDEX]" for a header, "e = INDEX" for an entry. It never sees a comment, a blank at
 * the front of a line, a ':' or more than a few bytes, so none of its build options matters. */
static char *reader(char *str, int num, void *stream)
{
    struct scan *s = stream;
    char *p, *e;
    bool usable;
    while (next_line(s, &p, &e, &usable)) {
        if (!usable || p == e) continue;
        if (*p == ';' || *p == '#') {
            if (s->kind != ENV) (void)check_utf8(s, p, e);
            continue;
        }
        int n = 0;
        char *close = *p == '[' ? closing(p, e) : NULL;
        bool node = s->kind == NODES && close && close + 1 < e && !is_blank(close[1]) && memchr(close, '=', (size_t)(e - close));
        bool env_name = s->kind == ENV && *p == '[' && close && close + 1 < e && memchr(close, '=', (size_t)(e - close)) &&
                        !is_blank(close[1]);
        if (*p == '[' && !node && !env_name) {
            if (!take_header(s, p, e, close)) continue;
            n = snprintf(str, (size_t)num, "[%zu]\n", s->header);
        } else {
            if (!take_entry(s, p, e)) continue;
            s->pending++;
            n = snprintf(str, (size_t)num, "e = %zu\n", s->ini->n);
        }
        FT_ASSERT(n > 0 && n < num);
        return str;
    }
    return NULL;
}

#if INI_HANDLER_LINENO
static int handler(void *user, const char *section, const char *name, const char *value, int line)
#else
static int handler(void *user, const char *section, const char *name, const char *value)
#endif
{
    struct scan *s = user;
    struct ft_ini *ini = s->ini;
#if INI_HANDLER_LINENO
    (void)line;
#endif
    if (!name || !value) return 1; /* some builds announce sections this way */
    uint64_t header, index;
    bool ok = !strcmp(name, "e") && ft_parse_u64(value, SIZE_MAX, &index) && ft_parse_u64(section, SIZE_MAX, &header) &&
              index == ini->n && header == s->header && s->pending == 1;
    if (!ok) FT_BUG("inih handed back [%s] %s = %s for entry %zu of section %zu", section, name, value, ini->n, s->header);
    ini->n++;
    s->pending = 0;
    return 1;
}

void ft_ini_read_text(struct ft_ini *ini, const char *name, const char *text, size_t n, struct ft_faults *faults)
{
    ini->files = room(ini->arena, ini->files, ini->n_files, &ini->files_cap, sizeof *ini->files);
    name = ft_arena_strdup(ini->arena, name);
    char *copy = ft_arena_strndup(ini->arena, text, n);
    struct scan s = {.ini = ini, .faults = faults, .name = name, .file_index = ini->n_files, .p = copy, .end = copy + n};
    ini->files[ini->n_files++] = name;
    if (n >= 3 && !memcmp(copy, "\xEF\xBB\xBF", 3)) {
        ft_faults_add(faults, FT_SEV_NOTE, (struct ft_source){name, 1, 1}, NULL, NULL, "a byte order mark at the start; skipped");
        s.p += 3;
    }
    int rc = ini_parse_stream(reader, &s, handler, &s);
    if (rc != 0 || s.pending) FT_BUG("inih stopped with %d in its stand-in text", rc);
}

void ft_ini_read(struct ft_ini *ini, const char *path, struct ft_faults *faults)
{
    struct ft_buf text = {0};
    struct ft_err err = {0};
    if (ft_read_file(path, MAX_FILE, &text, &err)) {
        ini->files = room(ini->arena, ini->files, ini->n_files, &ini->files_cap, sizeof *ini->files);
        ini->files[ini->n_files++] = ft_arena_strdup(ini->arena, path);
        ft_faults_add(faults, FT_SEV_ERROR, (struct ft_source){ini->files[ini->n_files - 1], 0, 0}, NULL, NULL, "%s", err.text);
        if (err.fix[0]) ft_fault_fix(faults, "%s", err.fix);
    } else {
        ft_ini_read_text(ini, path, text.data ? text.data : "", text.n, faults);
    }
    ft_buf_fini(&text);
}

/* The first '.' outside brackets of a --set word. */
static const char *section_end(const char *w)
{
    int depth = 0;
    for (; *w; w++) {
        if (*w == '[') depth++;
        if (*w == ']') depth--;
        if (*w == '.' && depth <= 0) return w;
        if (*w == '=' && depth <= 0) return NULL;
    }
    return NULL;
}

/* An assignment as it may be shown: its value may be a secret. */
static const char *without_value(struct ft_arena *a, const char *w, const char *end)
{
    const char *eq = memchr(w, '=', (size_t)(end - w));
    return eq ? ft_arena_printf(a, "%.*s=…", (int)(eq - w), w) : w;
}

/* What --set takes could stand in a file: the resolved job is one. The value is not shown. */
static bool fits_a_file(const struct ft_ini *ini, const char *section, const char *key, const char *value, struct ft_faults *faults)
{
    static const struct ft_source here = {"--set", 0, 0};
    const bool env = ft_ini_is_env(section);
    const char *name = ft_arena_printf(ini->arena, "%s.%s", section, key);
    name = ft_quote(ini->arena, name, strlen(name));
    if (strchr(";#[", *key)) {
        ft_faults_add(faults, FT_SEV_ERROR, here, section, key, "the key of %s begins with '%c', which in a file begins a %s", name,
                      *key, *key == '[' ? "section" : "comment");
        if (env) ft_fault_fix(faults, "no program reads such a variable; likely: '%s.%s=…'", section, key + strspn(key, ";#["));
        return false;
    }
    if (ft_utf8_valid(section, strlen(section)) != strlen(section) || ft_utf8_valid(key, strlen(key)) != strlen(key)) {
        ft_faults_add(faults, FT_SEV_ERROR, here, NULL, NULL, "%s holds a byte that is not UTF-8", name);
        return false;
    }
    const bool lines = value[strcspn(value, "\n\r")] != '\0', comment = !env && (strstr(value, " ;") || strstr(value, "\t;"));
    if (lines)
        ft_faults_add(faults, FT_SEV_ERROR, here, section, key, "the value of %s has several lines; a file has one for it", name);
    else if (comment)
        ft_faults_add(faults, FT_SEV_ERROR, here, section, key,
                      "the value of %s holds blank + ';', which in a file begins a comment", name);
    if (lines && env) ft_fault_fix(faults, "export %s and say --set '%s.%s=${%s}'", key, section, key, key);
    return !lines && !comment;
}

void ft_ini_set(struct ft_ini *ini, const char *assignment, struct ft_faults *faults)
{
    static const struct ft_source here = {"--set", 0, 0};
    char *w = ft_arena_strdup(ini->arena, assignment), *end = w + strlen(w);
    const char *dot_c = section_end(w);
    char *dot = dot_c ? w + (dot_c - w) : NULL;
    char *eq = dot ? strchr(dot, '=') : NULL;
    char *section = skip_blanks(w, end), *key = dot ? skip_blanks(dot + 1, end) : end;
    char *section_stop = dot ? trim_end(section, dot) : section, *key_stop = eq ? trim_end(key, eq) : key;
    if (!eq || section >= section_stop || key >= key_stop) {
        const char *shown = without_value(ini->arena, w, end);
        ft_faults_add(faults, FT_SEV_ERROR, here, NULL, NULL, "%s is not SECTION.KEY=VALUE",
                      ft_quote(ini->arena, shown, strlen(shown)));
        return;
    }
    *section_stop = *key_stop = '\0';
    char *value = skip_blanks(eq + 1, end);
    end = trim_end(value, end);
    *end = '\0';
    if (!fits_a_file(ini, section, key, value, faults)) return;
    ini->v = room(ini->arena, ini->v, ini->n, &ini->cap, sizeof *ini->v);
    ini->v[ini->n++] = (struct ft_ini_entry){.section = section,
                                             .key = key,
                                             .value = value,
                                             .value_len = (size_t)(end - value),
                                             .at = here,
                                             .value_at = here,
                                             .section_at = here,
                                             .file_index = ini->n_files};
}

const struct ft_ini_entry *ft_ini_find(const struct ft_ini *ini, const char *section, const char *key)
{
    for (size_t i = ini->n; i-- > 0;)
        if (!strcmp(ini->v[i].key, key) && !strcmp(ini->v[i].section, section)) return &ini->v[i];
    return NULL;
}
