#include "launcher/cmd/sections.h"

#include <string.h>

#include "launcher/ask.h"
#include "topology/sections.h"

static const struct ft_section *of_launcher(const char *name, struct ft_arena *arena, const char *help)
{
    for (size_t i = 0; ft_launcher_sections[i]; i++)
        if (!strcmp(ft_launcher_sections[i]->name, name)) return ft_launcher_sections[i];
    struct ft_section *free_keys = ft_arena_alloc(arena, sizeof *free_keys);
    *free_keys = (struct ft_section){.name = name, .help = help};
    return free_keys;
}

static const struct ft_section *of_fttrain(const char *name, const struct ft_json *answer, struct ft_arena *arena)
{
    const struct ft_json *list = ft_json_get(answer, "sections");
    for (size_t i = 0; i < ft_json_count(list); i++) {
        const char *here = ft_json_str(ft_json_get(ft_json_at(list, i), "name"));
        if (here && !strcmp(here, name)) return ft_section_from_json(ft_json_at(list, i), arena);
    }
    return NULL;
}

struct ft_cmd_sections ft_cmd_sections(struct ft_cmd *c)
{
    struct ft_arena *arena = c->arena;
    const char *partial = NULL;
    struct ft_cmd_sections out = {0};
    struct ft_json *answer = NULL;
    struct ft_err err = {0};
    int status;
    size_t n = 0;
    while (ft_section_names[n].name) n++;
    out.v = ft_arena_array(arena, n, sizeof *out.v);
    struct ft_question q = {.fttrain = ft_find_fttrain(arena), .word = "fields"};
    if (!q.fttrain) partial = "no fttrain beside ftlaunch or on PATH";
    else if (ft_ask_fttrain(&q, &answer, &status, &err)) partial = err.text;
    for (size_t i = 0; i < n; i++) {
        const struct ft_section_name *s = &ft_section_names[i];
        const struct ft_section *section = s->owner == FT_OWNER_TRAIN ? of_fttrain(s->name, answer, arena)
                                                                      : of_launcher(s->name, arena, s->help);
        if (section) out.v[out.n++] = section;
    }
    ft_json_destroy(answer);
    if (partial && c->verbose >= 0)
        ft_cmd_say(c, ft_arena_printf(arena, "ftlaunch: note: keys of fttrain are left out: %s\n", partial));
    return out;
}
