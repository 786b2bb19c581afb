/* Sections: tables of fields read from an INI file, written as JSON and as a commented INI file. */
#include "base/field.h"

#include <math.h>
#include <string.h>

const struct ft_field *ft_section_find(const struct ft_section *s, const char *key)
{
    for (size_t i = 0; i < s->n_fields; i++)
        if (!strcmp(s->fields[i].name, key)) return &s->fields[i];
    return NULL;
}

static void unknown_key(const struct ft_section *s, const struct ft_ini_entry *e, struct ft_faults *faults)
{
    const char **names = ft_arena_array(faults->arena, s->n_fields + 1, sizeof *names);
    for (size_t i = 0; i < s->n_fields; i++) names[i] = s->fields[i].name;
    const char *near = ft_nearest(e->key, names, s->n_fields);
    ft_faults_add(faults, FT_SEV_ERROR, e->at, s->name, e->key, "unknown key %s in [%s]",
                  ft_quote(faults->arena, e->key, strlen(e->key)), s->name);
    if (near) ft_fault_fix(faults, "likely: %s", near);
}

/* The value in force (NULL: the default is) against the rows of what this build lacks. */
static void check_built(const struct ft_section *s, const struct ft_field *f, const struct ft_ini_entry *e,
                        struct ft_faults *faults)
{
    for (const struct ft_unbuilt *u = f->unbuilt; u && u->value; u++) {
        if (!e && !strcmp(u->value, "default")) {
            ft_faults_add(faults, FT_SEV_ERROR, (struct ft_source){0}, s->name, f->name, "the default %s = %s is not built yet",
                          f->name, f->def ? f->def : "(none)");
            if (u->fix) ft_fault_fix(faults, "%s", u->fix);
            return;
        }
        if (!e || !strcmp(u->value, "default")) continue;
        const bool any = !strcmp(u->value, "*"), is_default = !strcmp(e->value, f->def ? f->def : "");
        bool hit = any ? !is_default : !strcmp(u->value, e->value);
        size_t n = strlen(u->value);
        for (const char *c = e->value; f->list && !hit && !any && *c; c += strcspn(c, ","), c += *c == ',') {
            c += strspn(c, " \t");
            hit = !strncmp(c, u->value, n) && strspn(c + n, " \t") == strcspn(c + n, ",");
        }
        if (!hit) continue;
        if (any) ft_faults_add(faults, FT_SEV_ERROR, e->at, s->name, f->name, "%s is not built yet", f->name);
        else ft_faults_add(faults, FT_SEV_ERROR, e->value_at, s->name, f->name, "%s = %s is not built yet", f->name, u->value);
        if (u->fix) ft_fault_fix(faults, "%s", u->fix);
        return;
    }
}

/* One entry of the section: checks it and, being later than what came before, stores it. */
static void read_entry(const struct ft_section *s, const struct ft_ini *ini, const struct ft_ini_entry *e,
                       const struct ft_ini_entry **last, const struct ft_ini_entry **good, char *out, struct ft_value *values,
                       struct ft_faults *faults)
{
    const struct ft_field *f = ft_section_find(s, e->key);
    if (!f) {
        unknown_key(s, e, faults);
        return;
    }
    size_t i = (size_t)(f - s->fields);
    if (last[i] && last[i]->file_index == e->file_index && !ft_ini_is_set(ini, e)) {
        ft_faults_add(faults, FT_SEV_ERROR, e->at, s->name, f->name, "key %s is given twice in this file (first on line %d)",
                      ft_quote(faults->arena, e->key, strlen(e->key)), last[i]->at.line);
        return;
    }
    struct ft_buf why = {0};
    int64_t scratch[2] = {0};
    last[i] = e;
    if (ft_field_parse(f, e->value, scratch, ini->arena, &why)) {
        good[i] = e;
        memcpy(out + f->at, scratch, ft_field_bytes(f));
        if (values) values[i] = (struct ft_value){*e->value ? e->value : NULL, e->value_at};
    } else {
        ft_faults_add(faults, FT_SEV_ERROR, e->value_at, s->name, f->name, "%s: %s", f->name, ft_buf_str(&why));
    }
    ft_buf_fini(&why);
}

void ft_section_read(const struct ft_section *s, const struct ft_ini *ini, void *out, struct ft_value *values,
                     struct ft_faults *faults)
{
    _Static_assert(sizeof(struct ft_list) <= 2 * sizeof(int64_t), "scratch of read_entry");
    const struct ft_ini_entry **last = ft_arena_array(ini->arena, s->n_fields + 1, sizeof *last); /* given */
    const struct ft_ini_entry **good = ft_arena_array(ini->arena, s->n_fields + 1, sizeof *good); /* given and right */
    memset(out, 0, s->bytes);
    for (size_t i = 0; i < s->n_fields; i++) {
        const struct ft_field *f = &s->fields[i];
        struct ft_buf why = {0};
        if (values) values[i] = (struct ft_value){.text = f->def};
        if (f->def && !ft_field_parse(f, f->def, (char *)out + f->at, ini->arena, &why))
            FT_BUG("default of [%s] %s: %s", s->name, f->name, ft_buf_str(&why));
        ft_buf_fini(&why);
    }
    for (size_t i = 0; i < ini->n; i++)
        if (!strcmp(ini->v[i].section, s->name)) read_entry(s, ini, &ini->v[i], last, good, out, values, faults);
    for (size_t i = 0; i < s->n_fields; i++)
        if (s->fields[i].unbuilt && (!last[i] || last[i] == good[i])) check_built(s, &s->fields[i], good[i], faults);
}

void ft_section_write_json(const struct ft_section *s, struct ft_jw *w)
{
    ft_jw_object(w);
    ft_jw_kstr(w, "name", s->name);
    ft_jw_kstr(w, "help", s->help);
    ft_jw_key(w, "fields");
    ft_jw_array(w);
    for (size_t i = 0; i < s->n_fields; i++) {
        const struct ft_field *f = &s->fields[i];
        ft_jw_object(w);
        ft_jw_kstr(w, "name", f->name);
        ft_jw_kstr(w, "type", ft_field_type_name(f->type));
        ft_jw_kstr(w, "unit", f->unit);
        ft_jw_kstr(w, "default", f->def);
        ft_jw_key(w, "values");
        if (f->values) {
            ft_jw_array(w);
            for (size_t k = 0; f->values[k]; k++) ft_jw_str(w, f->values[k]);
            ft_jw_end(w);
        } else {
            ft_jw_null(w);
        }
        ft_jw_key(w, "min");
        ft_field_has_range(f) ? ft_jw_real(w, f->min) : ft_jw_null(w);
        ft_jw_key(w, "max");
        ft_field_has_max(f) ? ft_jw_real(w, f->max) : ft_jw_null(w);
        ft_jw_kbool(w, "list", f->list);
        ft_jw_kstr(w, "help", f->help);
        ft_jw_end(w);
    }
    ft_jw_end(w);
    ft_jw_end(w);
}

/* A text member as an arena copy; NULL when it is none. */
static const char *copy_str(const struct ft_json *object, const char *key, struct ft_arena *arena)
{
    const char *s = ft_json_str(ft_json_get(object, key));
    return s ? ft_arena_strdup(arena, s) : NULL;
}

static struct ft_field field_from_json(const struct ft_json *v, size_t offset, struct ft_arena *arena)
{
    struct ft_field f = {.name = copy_str(v, "name", arena),
                         .unit = copy_str(v, "unit", arena),
                         .def = copy_str(v, "default", arena),
                         .help = copy_str(v, "help", arena),
                         .list = ft_json_bool(ft_json_get(v, "list"), false),
                         .at = offset};
    const char *type = ft_json_str(ft_json_get(v, "type"));
    for (int t = 0; type && t <= FT_F_ENUM; t++)
        if (!strcmp(type, ft_field_type_name((enum ft_field_type)t))) f.type = (enum ft_field_type)t;
    const struct ft_json *min = ft_json_get(v, "min"), *max = ft_json_get(v, "max"), *words = ft_json_get(v, "values");
    if (ft_json_is_number(min) || ft_json_is_number(max)) {
        f.min = ft_json_real(min, -INFINITY);
        f.max = ft_json_real(max, INFINITY);
    }
    if (ft_json_is(words, FT_JSON_ARRAY)) {
        const char **list = ft_arena_array(arena, ft_json_count(words) + 1, sizeof *list);
        size_t n = 0;
        for (size_t i = 0; i < ft_json_count(words); i++) {
            const char *word = ft_json_str(ft_json_at(words, i));
            if (word) list[n++] = ft_arena_strdup(arena, word);
        }
        f.values = list;
    }
    return f;
}

struct ft_section *ft_section_from_json(const struct ft_json *v, struct ft_arena *arena)
{
    const char *name = copy_str(v, "name", arena);
    const struct ft_json *fields = ft_json_get(v, "fields");
    if (!name || !ft_json_is(fields, FT_JSON_ARRAY)) return NULL;
    size_t n = ft_json_count(fields), n_good = 0;
    struct ft_field *rows = ft_arena_array(arena, n + 1, sizeof *rows);
    for (size_t i = 0; i < n; i++) {
        rows[n_good] = field_from_json(ft_json_at(fields, i), n_good * sizeof(struct ft_list), arena);
        if (rows[n_good].name) n_good++;
    }
    struct ft_section *s = ft_arena_alloc(arena, sizeof *s);
    *s = (struct ft_section){name, copy_str(v, "help", arena), rows, n_good, n_good * sizeof(struct ft_list)};
    return s;
}

void ft_section_write_ini(const struct ft_section *s, struct ft_buf *out)
{
    if (s->help) ft_buf_addf(out, "; %s\n", s->help);
    ft_buf_addf(out, "[%s]\n", s->name);
    for (size_t i = 0; i < s->n_fields; i++) {
        const struct ft_field *f = &s->fields[i];
        ft_buf_addf(out, "; %s (", f->help ? f->help : f->name);
        ft_field_describe(f, out);
        ft_buf_addf(out, ")\n; %s =%s%s\n", f->name, f->def ? " " : "", f->def ? f->def : "");
    }
}
