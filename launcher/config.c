#include "launcher/config.h"

#include <string.h>

#include "launcher/config_parts.h"
#include "topology/sections.h"

struct ft_source ft_config_at(const struct ft_launcher_config *c, const char *section, const char *key)
{
    for (size_t s = 0; ft_launcher_sections[s]; s++) {
        if (strcmp(ft_launcher_sections[s]->name, section) != 0) continue;
        const struct ft_field *f = ft_section_find(ft_launcher_sections[s], key);
        return f ? c->values[s][f - ft_launcher_sections[s]->fields].at : (struct ft_source){0};
    }
    return (struct ft_source){0};
}

const char *ft_source_text(struct ft_source at, struct ft_arena *arena)
{
    if (!at.file) return "default";
    if (!at.line) return ft_arena_strdup(arena, at.file);
    if (!at.column) return ft_arena_printf(arena, "%s:%d", at.file, at.line);
    return ft_arena_printf(arena, "%s:%d:%d", at.file, at.line, at.column);
}

bool ft_config_is_secret(const struct ft_launcher_config *c, const char *name)
{
    if (ft_is_secret_name(name)) return true;
    for (size_t i = 0; i < c->launch.secrets.n; i++)
        if (!strcmp(c->launch.secrets.v[i], name)) return true;
    return false;
}

const char *ft_config_mask_set(const struct ft_launcher_config *c, const char *set, struct ft_arena *arena)
{
    const char *equal = strchr(set, '='), *dot = memchr(set, '.', equal ? (size_t)(equal - set) : 0);
    if (!dot || !ft_ini_is_env(ft_arena_strndup(arena, set, (size_t)(dot - set)))) return set;
    /* the name of [env RANGE] may hold dots too: every way to read it counts */
    for (const char *d = dot; d; d = memchr(d + 1, '.', (size_t)(equal - d - 1)))
        if (ft_config_is_secret(c, ft_arena_strndup(arena, d + 1, (size_t)(equal - d - 1))))
            return ft_arena_printf(arena, "%.*s=***", (int)(equal - set), set);
    return set;
}

const struct ft_launcher_config *ft_config_read(const struct ft_ini *ini, char *const *environ_, struct ft_arena *arena,
                                                struct ft_faults *faults)
{
    struct ft_launcher_config *c = ft_arena_alloc(arena, sizeof *c);
    struct ft_config_parts parts = {c, ini, environ_, arena, faults};
    void *const fields[] = {&c->cluster, &c->ssh, &c->mpi, &c->slurm, &c->launch, &c->parallel};
    _Static_assert(sizeof fields / sizeof *fields == sizeof c->values / sizeof *c->values, "one place for each section");
    size_t errors = faults->n_errors;
    c->ini = ini;
    ft_sections_check(ini, faults);
    for (size_t s = 0; ft_launcher_sections[s]; s++) {
        c->values[s] = ft_arena_array(arena, ft_launcher_sections[s]->n_fields, sizeof *c->values[s]);
        ft_section_read(ft_launcher_sections[s], ini, fields[s], c->values[s], faults);
    }
    ft_config_read_nodes(&parts);
    ft_config_read_env(&parts);
    return faults->n_errors == errors ? c : NULL;
}
