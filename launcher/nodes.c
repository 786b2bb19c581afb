/* [nodes], and the host list that [cluster] hostfile names. Both merge node by node and attribute by attribute. */
#include <string.h>

#include "base/fd.h"
#include "launcher/config_parts.h"

/* One attribute: what is checked, and where it goes. */
enum attribute { A_SLOTS, A_HOST, A_PORT, A_USER, A_TAGS, A_IDENTITY, A_JUMP, A_FROM, N_ATTRIBUTES };
static const char *const attributes[] = {"slots", "host", "port", "user", "tags", "identity", "jump", "from"};
enum { N_NAMED = A_FROM }; /* from= is written by resolved jobs only and never proposed */

struct nodes {
    struct ft_config_parts *p;
    struct ft_name_index index; /* same order as v */
    struct ft_node_conf *v;
    struct ft_source *last; /* place in the file that named the node last */
    unsigned *last_file;
    size_t cap;
    bool listed; /* a host list says which nodes there are */
};

static struct ft_node_conf *add_node(struct nodes *x, const char *name, struct ft_source at)
{
    size_t n = x->index.n;
    if (n == x->cap) {
        size_t cap = x->cap ? x->cap * 2 : 16;
        struct ft_node_conf *v = ft_arena_array(x->p->arena, cap, sizeof *v);
        struct ft_source *last = ft_arena_array(x->p->arena, cap, sizeof *last);
        unsigned *last_file = ft_arena_array(x->p->arena, cap, sizeof *last_file);
        if (n) {
            memcpy(v, x->v, n * sizeof *v);
            memcpy(last, x->last, n * sizeof *last);
            memcpy(last_file, x->last_file, n * sizeof *last_file);
        }
        x->v = v;
        x->last = last;
        x->last_file = last_file;
        x->cap = cap;
    }
    ft_name_index_add(&x->index, name);
    x->v[n] = (struct ft_node_conf){.name = name, .at = at};
    x->last_file[n] = (unsigned)-1;
    return &x->v[n];
}

static void bad(struct nodes *x, struct ft_source at, const char *fix, const char *text)
{
    ft_faults_add(x->p->faults, FT_SEV_ERROR, at, "nodes", NULL, "%s", text);
    if (fix) ft_fault_fix(x->p->faults, "%s", fix);
}

/* ---- attributes ---- */

static bool take_number(struct nodes *x, const char *name, const char *value, struct ft_source at, int max, int *out)
{
    int64_t n;
    if (ft_parse_i64(value, 1, max, &n)) {
        *out = (int)n;
        return true;
    }
    bad(x, at, NULL,
        ft_arena_printf(x->p->arena, "%s: %s is not in 1..%d", name, ft_quote(x->p->arena, value, strlen(value)), max));
    return false;
}

static bool take_host(struct nodes *x, const char *value, struct ft_source at, const char **out)
{
    struct ft_range_fault f;
    *out = value;
    if (ft_is_address(value) || ft_hostname_check(value, strlen(value), x->p->arena, &f)) return true;
    bad(x, ft_source_behind(at, f.offset), NULL, ft_arena_printf(x->p->arena, "host: %s", f.text));
    return false;
}

/* user, jump, identity: a word that no program takes for an option. */
static bool take_plain(struct nodes *x, const char *name, const char *value, struct ft_source at, const char **out)
{
    *out = value;
    bool control = false;
    for (const char *c = value; *c; c++) control = control || (unsigned char)*c < 0x20 || *c == 0x7f;
    if (*value && *value != '-' && !control) return true;
    bad(x, at, NULL,
        ft_arena_printf(x->p->arena, *value ? "%s: %s begins with '-' or holds a control character" : "%s: no value%s", name,
                        *value ? ft_quote(x->p->arena, value, strlen(value)) : ""));
    return false;
}

static bool take_tags(struct nodes *x, const char *value, struct ft_source at, struct ft_list *out)
{
    size_t n = 1;
    for (const char *c = value; *c; c++) n += *c == ',';
    const char **v = ft_arena_array(x->p->arena, n, sizeof *v);
    const char *p = value;
    for (size_t i = 0; i < n; i++) {
        size_t len = strcspn(p, ",");
        if (!len || strspn(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") < len) {
            bad(x, ft_source_behind(at, (size_t)(p - value)), NULL,
                ft_arena_printf(x->p->arena, "tags: %s is no word of letters, digits, '.', '_' and '-'",
                                ft_quote(x->p->arena, p, len)));
            return false;
        }
        v[i] = ft_arena_strndup(x->p->arena, p, len);
        p += len + 1;
    }
    *out = (struct ft_list){v, n};
    return true;
}

static bool take_attribute(struct nodes *x, enum attribute a, const char *value, struct ft_source at, struct ft_node_conf *out)
{
    switch (a) {
    case A_SLOTS: return take_number(x, "slots", value, at, FT_MAX_SLOTS, &out->slots);
    case A_PORT: return take_number(x, "port", value, at, 65535, &out->port);
    case A_HOST: return take_host(x, value, at, &out->host);
    case A_USER: return take_plain(x, "user", value, at, &out->user);
    case A_JUMP: return take_plain(x, "jump", value, at, &out->jump);
    case A_TAGS: return take_tags(x, value, at, &out->tags);
    case A_FROM: return take_plain(x, "from", value, at, &out->from);
    case A_IDENTITY: {
        struct ft_buf path = {0};
        struct ft_err err;
        const bool known = ft_expand_home(value, &path, &err) == FT_OK;
        const char *copy = ft_arena_strndup(x->p->arena, ft_buf_str(&path), path.n);
        ft_buf_fini(&path);
        if (!known) {
            bad(x, at, err.fix, err.text);
            return false;
        }
        return take_plain(x, "identity", copy, at, &out->identity);
    }
    case N_ATTRIBUTES: break;
    }
    return false;
}

/* One word of a value: w[0..n) at `at`. */
static bool take_word(struct nodes *x, const char *w, size_t n, struct ft_source at, unsigned *seen, struct ft_node_conf *out)
{
    struct ft_arena *arena = x->p->arena;
    const char *eq = memchr(w, '=', n);
    const char *name = ft_arena_strndup(arena, w, eq ? (size_t)(eq - w) : n);
    const char *quoted = ft_quote(arena, name, strlen(name));
    if (!eq) {
        bool number = strspn(name, "0123456789") == n;
        const char *near = ft_nearest(name, attributes, N_NAMED);
        bad(x, at,
            number ? ft_arena_printf(arena, "write slots=%s", name)
            : near ? ft_arena_printf(arena, "likely: %s=…", near)
                   : NULL,
            ft_arena_printf(arena, "%s is no ATTRIBUTE=VALUE", quoted));
        return false;
    }
    for (int a = 0; a < N_ATTRIBUTES; a++) {
        if (strcmp(name, attributes[a]) != 0) continue;
        if (*seen >> a & 1) {
            bad(x, at, NULL, ft_arena_printf(arena, "%s is given twice on this line", quoted));
            return false;
        }
        *seen |= 1u << a;
        size_t skip = (size_t)(eq - w) + 1;
        return take_attribute(x, (enum attribute)a, ft_arena_strndup(arena, eq + 1, n - skip), ft_source_behind(at, skip), out);
    }
    const char *near = ft_nearest(name, attributes, N_NAMED);
    bad(x, at,
        near ? ft_arena_printf(arena, "likely: %s", near) : "the attributes are slots, host, port, user, tags, identity and jump",
        ft_arena_printf(arena, "unknown attribute %s", quoted));
    return false;
}

static bool take_attributes(struct nodes *x, const struct ft_ini_entry *e, struct ft_node_conf *out)
{
    bool ok = true;
    unsigned seen = 0;
    for (const char *w = e->value; *w;) {
        size_t n = strcspn(w, " \t");
        if (n) ok = take_word(x, w, n, ft_source_behind(e->value_at, (size_t)(w - e->value)), &seen, out) && ok;
        w += n;
        w += strspn(w, " \t");
    }
    return ok;
}

static void merge(struct ft_node_conf *to, const struct ft_node_conf *a)
{
    if (a->slots) to->slots = a->slots;
    if (a->port) to->port = a->port;
    if (a->host) to->host = a->host;
    if (a->user) to->user = a->user;
    if (a->identity) to->identity = a->identity;
    if (a->jump) to->jump = a->jump;
    if (a->from) to->from = a->from;
    if (a->tags.n) to->tags = a->tags;
}

/* ---- [nodes] ---- */

/* "node01 slots=4": the key has a blank where '=' is missing. */
static bool missing_equals(struct nodes *x, const struct ft_ini_entry *e)
{
    const char *k = e->key;
    for (size_t i = 0; k[i]; i++) {
        if (k[i] != ' ' && k[i] != '\t') continue;
        size_t next = i + strspn(k + i, " \t");
        bool word = k[next] && k[next] != ',' && k[next] != ']' && i > 0 && k[i - 1] != ',' && k[i - 1] != '[';
        if (!word) {
            i = next - 1;
            continue;
        }
        bad(x, ft_source_behind(e->at, i),
            ft_arena_printf(x->p->arena, "write %.*s = %s=%s", (int)(i < 200 ? i : 200), k, k + next, e->value),
            ft_arena_printf(x->p->arena, "no '=' behind the name in %s", ft_quote(x->p->arena, k, strlen(k))));
        return true;
    }
    return false;
}

/* Was any of the names given in this file before? One fault for the line. */
static bool given_twice(struct nodes *x, const struct ft_ini_entry *e, const struct ft_names *names, const size_t *offsets)
{
    for (size_t i = 0; i < names->n; i++) {
        long k = ft_name_index_find(&x->index, names->v[i]);
        if (k < 0 || x->last_file[k] != e->file_index || ft_ini_is_set(x->p->ini, e)) continue;
        (void)offsets;
        bad(x, e->at, NULL,
            ft_arena_printf(x->p->arena, "node %s is given twice in this file (first on line %d)",
                            ft_quote(x->p->arena, names->v[i], strlen(names->v[i])), x->last[k].line));
        return true;
    }
    return false;
}

static void take_entry(struct nodes *x, const struct ft_ini_entry *e, size_t *n_in_file)
{
    struct ft_names names;
    size_t *offsets;
    struct ft_range_fault f;
    struct ft_node_conf a = {0};
    if (missing_equals(x, e)) return;
    if (!ft_hostlist_expand(e->key, strlen(e->key), FT_MAX_NODES - *n_in_file, x->p->arena, &names, &offsets, &f)) {
        bad(x, ft_source_behind(e->at, f.offset), f.fix, f.text);
        (void)take_attributes(x, e, &a);
        return;
    }
    *n_in_file += names.n;
    bool twice = given_twice(x, e, &names, offsets);
    bool good = take_attributes(x, e, &a);
    for (size_t i = 0; i < names.n && !twice; i++) {
        long k = ft_name_index_find(&x->index, names.v[i]);
        if (k < 0 && x->listed) {
            bad(x, ft_source_behind(e->at, offsets[i]), "with a host list, [nodes] only adds attributes to its names",
                ft_arena_printf(x->p->arena, "node %s is not in the host list %s",
                                ft_quote(x->p->arena, names.v[i], strlen(names.v[i])),
                                ft_quote(x->p->arena, x->p->c->cluster.hostfile, strlen(x->p->c->cluster.hostfile))));
            return;
        }
        struct ft_node_conf *node = k < 0 ? add_node(x, names.v[i], ft_source_behind(e->at, offsets[i])) : &x->v[k];
        size_t at = (size_t)(node - x->v);
        x->last[at] = e->at;
        x->last_file[at] = e->file_index;
        if (good) merge(node, &a);
    }
}

/* ---- host list ---- */

static void read_list(struct nodes *x, const char *path)
{
    struct ft_buf text = {0};
    struct ft_err err = {0};
    bool stdin_ = !strcmp(path, "-");
    x->listed = true;
    if (ft_read_file(stdin_ ? "/dev/stdin" : path, 64u << 20, &text, &err)) {
        struct ft_source at = ft_config_at(x->p->c, "cluster", "hostfile");
        ft_faults_add(x->p->faults, FT_SEV_ERROR, at, "cluster", "hostfile", "%s", err.text);
    } else {
        const char *name = stdin_ ? "(standard input)" : path;
        struct ft_host_rows rows = ft_hostfile_parse(name, ft_buf_str(&text), text.n, x->p->arena, x->p->faults);
        for (size_t i = 0; i < rows.n; i++) {
            struct ft_node_conf *node = add_node(x, rows.v[i].name, rows.v[i].at);
            node->slots = rows.v[i].slots;
            node->port = rows.v[i].port;
            node->user = rows.v[i].user;
        }
    }
    ft_buf_fini(&text);
}

/* The place as one word of a [nodes] line, so that a resolved job can keep it. */
static const char *from_text(struct ft_source at, struct ft_arena *arena)
{
    char *text = ft_arena_strdup(arena, ft_source_text(at, arena));
    for (char *c = text; *c; c++)
        if ((unsigned char)*c <= 0x20 || *c == 0x7f || *c == ';' || *c == '#' || (c == text && *c == '-' && c[1] != '-')) *c = '_';
    return text[0] == '-' ? ft_arena_printf(arena, "command-line") : text;
}

void ft_config_read_nodes(struct ft_config_parts *p)
{
    struct nodes x = {.p = p, .index = ft_name_index_make(p->arena)};
    if (p->c->cluster.hostfile) read_list(&x, p->c->cluster.hostfile);
    size_t n_in_file = 0;
    unsigned file = 0;
    for (size_t i = 0; i < p->ini->n; i++) {
        const struct ft_ini_entry *e = &p->ini->v[i];
        if (strcmp(e->section, "nodes") != 0) continue;
        if (e->file_index != file) n_in_file = 0;
        file = e->file_index;
        take_entry(&x, e, &n_in_file);
    }
    for (size_t i = 0; i < x.index.n; i++)
        if (!x.v[i].from) x.v[i].from = from_text(x.v[i].at, p->arena);
    p->c->nodes = x.v;
    p->c->n_nodes = x.index.n;
}
