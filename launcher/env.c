/* [env] and [env RANGE]: values reach the ranks byte for byte. Only ${NAME} is replaced ($${ is a literal ${). */
#include <string.h>

#include "launcher/config_parts.h"

enum { MAX_STRING = 131071 }; /* Linux: MAX_ARG_STRLEN without its NUL */

static const char *get(char *const *env, const char *name, size_t n)
{
    for (; env && *env; env++)
        if (!strncmp(*env, name, n) && (*env)[n] == '=') return *env + n + 1;
    return NULL;
}

static void bad(struct ft_config_parts *p, const struct ft_ini_entry *e, struct ft_source at, const char *fix, const char *text)
{
    ft_faults_add(p->faults, FT_SEV_ERROR, at, e->section, e->key, "%s", text);
    if (fix) ft_fault_fix(p->faults, "%s", fix);
}

/* The value with ${NAME} replaced; NULL: a fault was recorded. */
static const char *replace(struct ft_config_parts *p, const struct ft_ini_entry *e)
{
    struct ft_buf out = {0};
    const char *v = e->value, *end = v + e->value_len, *result = NULL;
    bool ok = true;
    while (v < end) {
        const char *dollar = memchr(v, '$', (size_t)(end - v));
        if (!dollar) dollar = end;
        ft_buf_add(&out, v, (size_t)(dollar - v));
        v = dollar;
        if (end - v >= 3 && !memcmp(v, "$${", 3)) {
            ft_buf_adds(&out, "${");
            v += 3;
        } else if (end - v >= 2 && v[1] == '{') {
            struct ft_source at = ft_source_behind(e->value_at, (size_t)(v - e->value));
            const char *close = memchr(v, '}', (size_t)(end - v));
            const char *value = close ? get(p->environ_, v + 2, (size_t)(close - v - 2)) : NULL;
            if (!close || close == v + 2) {
                bad(p, e, at, "write $${ for a literal ${", "'${' without a name and '}' behind it");
                ok = false;
                break;
            }
            const char *name = ft_quote(p->arena, v + 2, (size_t)(close - v - 2));
            if (value) ft_buf_adds(&out, value);
            else
                bad(p, e, at, "export it, or write $${ for a literal ${",
                    ft_arena_printf(p->arena, "%s is not set in this environment", name));
            ok = ok && value;
            v = close + 1;
        } else if (v < end) {
            ft_buf_addc(&out, *v++);
        }
    }
    size_t n_key = strlen(e->key);
    if (ok && n_key + 1 + out.n > MAX_STRING) {
        bad(p, e, e->value_at, "put long texts into a file and pass its path",
            ft_arena_printf(p->arena, "the value of %s has %zu bytes; name, '=' and value together may have %d",
                            ft_quote(p->arena, e->key, n_key), out.n, MAX_STRING));
        ok = false;
    }
    if (ok) result = ft_arena_strndup(p->arena, ft_buf_str(&out), out.n);
    ft_buf_fini(&out);
    return result;
}

/* A list that is being made, with a hash of its names (in which case counts). */
struct making {
    struct ft_env_list *list;
    const struct ft_ini_entry **last;
    size_t cap, n_slots;
    size_t *slots; /* index + 1 */
};

static size_t slot_of(const struct making *m, const char *name)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (const char *c = name; *c; c++) h = (h ^ (unsigned char)*c) * 0x100000001b3u;
    size_t i = (size_t)(h ^ h >> 29) & (m->n_slots - 1);
    while (m->slots[i] && strcmp(m->list->v[m->slots[i] - 1].name, name) != 0) i = (i + 1) & (m->n_slots - 1);
    return i;
}

static size_t find_or_add(struct ft_config_parts *p, struct making *m, const char *name)
{
    if (2 * (m->list->n + 1) > m->n_slots) {
        m->n_slots = m->n_slots ? m->n_slots * 2 : 32;
        m->slots = ft_arena_array(p->arena, m->n_slots, sizeof *m->slots);
        for (size_t i = 0; i < m->list->n; i++) m->slots[slot_of(m, m->list->v[i].name)] = i + 1;
    }
    size_t s = slot_of(m, name);
    if (m->slots[s]) return m->slots[s] - 1;
    if (m->list->n == m->cap) {
        size_t cap = m->cap ? m->cap * 2 : 16;
        struct ft_env *v = ft_arena_array(p->arena, cap, sizeof *v);
        const struct ft_ini_entry **last = ft_arena_array(p->arena, cap, sizeof *last);
        if (m->list->n) {
            memcpy(v, m->list->v, m->list->n * sizeof *v);
            memcpy(last, m->last, m->list->n * sizeof *last);
        }
        m->list->v = v;
        m->last = last;
        m->cap = cap;
    }
    m->list->v[m->list->n++] = (struct ft_env){.name = name};
    m->slots[s] = m->list->n;
    return m->list->n - 1;
}

static void read_list(struct ft_config_parts *p, const char *section, struct ft_env_list *list)
{
    struct making m = {.list = list};
    for (size_t i = 0; i < p->ini->n; i++) {
        const struct ft_ini_entry *e = &p->ini->v[i];
        if (strcmp(e->section, section) != 0) continue;
        size_t k = find_or_add(p, &m, e->key);
        const struct ft_ini_entry *before = m.last[k];
        m.last[k] = e;
        if (before && before->file_index == e->file_index && !ft_ini_is_set(p->ini, e)) {
            bad(p, e, e->at, NULL,
                ft_arena_printf(p->arena, "key %s is given twice in this file (first on line %d)",
                                ft_quote(p->arena, e->key, strlen(e->key)), before->at.line));
            continue;
        }
        const char *value = replace(p, e);
        if (!value) continue;
        list->v[k] = (struct ft_env){
            .name = e->key, .value = value, .secret = ft_config_is_secret(p->c, e->key), .raw = e->value, .at = e->value_at};
    }
}

/* "env RANGE": the range and where it begins; NULL for [env] itself. */
static const char *range_of(const char *section, struct ft_source *at)
{
    if (!ft_ini_is_env(section) || !section[3]) return NULL;
    size_t skip = 3 + strspn(section + 3, " \t");
    *at = ft_source_behind(*at, skip);
    return section + skip;
}

static void add_range(struct ft_config_parts *p, const char *section, struct ft_source at, size_t *cap)
{
    struct ft_launcher_config *c = p->c;
    const char *range = range_of(section, &at);
    struct ft_range_fault f;
    if (!range) return;
    for (size_t i = 0; i < c->n_env_ranges; i++)
        if (!strcmp(c->env_ranges[i].range, range)) return;
    struct ft_env_range r = {.range = range, .at = at};
    if (!ft_hostlist_expand(range, strlen(range), FT_MAX_NODES, p->arena, &r.nodes, NULL, &f)) {
        ft_faults_add(p->faults, FT_SEV_ERROR, ft_source_behind(at, f.offset), section, NULL, "%s", f.text);
        return;
    }
    r.index = ft_name_index_make(p->arena);
    for (size_t i = 0; i < r.nodes.n; i++) ft_name_index_add(&r.index, r.nodes.v[i]);
    if (c->n_env_ranges == *cap) {
        *cap = *cap ? *cap * 2 : 8;
        struct ft_env_range *v = ft_arena_array(p->arena, *cap, sizeof *v);
        if (c->n_env_ranges) memcpy(v, c->env_ranges, c->n_env_ranges * sizeof *v);
        c->env_ranges = v;
    }
    read_list(p, section, &r.env);
    c->env_ranges[c->n_env_ranges++] = r;
}

void ft_config_read_env(struct ft_config_parts *p)
{
    size_t cap = 0;
    read_list(p, "env", &p->c->env);
    for (size_t i = 0; i < p->ini->n_headers; i++) add_range(p, p->ini->headers[i].section, p->ini->headers[i].at, &cap);
    for (size_t i = 0; i < p->ini->n; i++)
        if (ft_ini_is_set(p->ini, &p->ini->v[i])) add_range(p, p->ini->v[i].section, p->ini->v[i].section_at, &cap);
}
