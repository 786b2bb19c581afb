#include "topology/sections.h"

#include <string.h>

#include "base/str.h"

const struct ft_section_name ft_section_names[] = {
    {"cluster", FT_OWNER_LAUNCHER, "which nodes, how they are reached, where ranks meet"},
    {"nodes", FT_OWNER_LAUNCHER, "NAME or RANGE = slots=N host=ADDRESS port=N user=NAME tags=A,B identity=FILE jump=HOST"},
    {"ssh", FT_OWNER_LAUNCHER, "how nodes are reached over ssh"},
    {"mpi", FT_OWNER_LAUNCHER, "how nodes are reached through an mpirun"},
    {"slurm", FT_OWNER_LAUNCHER, "what is asked of Slurm"},
    {"env", FT_OWNER_LAUNCHER,
     "environment of every rank (NAME = value, exactly as written; [env RANGE]: of the ranks on these nodes)"},
    {"launch", FT_OWNER_LAUNCHER, "how ranks are started, watched and ended"},
    {"parallel", FT_OWNER_SHARED, "how ranks divide the work"},
    {"model", FT_OWNER_TRAIN, "what is trained"},
    {"data", FT_OWNER_TRAIN, "what it is trained on"},
    {"train", FT_OWNER_TRAIN, "how it is trained"},
    {"lora", FT_OWNER_TRAIN, "adapters"},
    {"eval", FT_OWNER_TRAIN, "when validation data is looked at"},
    {"checkpoint", FT_OWNER_TRAIN, "how the state of training is kept"},
    {"export", FT_OWNER_TRAIN, "what is left at the end"},
    {NULL, FT_OWNER_NONE, NULL},
};
enum { N_SECTIONS = sizeof ft_section_names / sizeof *ft_section_names - 1 };

enum ft_owner ft_section_owner(const char *section)
{
    if (ft_ini_is_env(section)) return FT_OWNER_LAUNCHER;
    for (size_t i = 0; i < N_SECTIONS; i++)
        if (!strcmp(ft_section_names[i].name, section)) return ft_section_names[i].owner;
    return FT_OWNER_NONE;
}

static void unknown(const char *section, struct ft_source at, struct ft_faults *faults)
{
    const char *names[N_SECTIONS];
    for (size_t i = 0; i < N_SECTIONS; i++) names[i] = ft_section_names[i].name;
    const char *near = ft_nearest(section, names, N_SECTIONS);
    ft_faults_add(faults, FT_SEV_ERROR, at, NULL, NULL, "unknown section %s", ft_quote(faults->arena, section, strlen(section)));
    if (near) ft_fault_fix(faults, "likely: [%s]", near);
}

void ft_sections_check(const struct ft_ini *ini, struct ft_faults *faults)
{
    for (size_t i = 0; i < ini->n_headers; i++)
        if (!ft_section_owner(ini->headers[i].section)) unknown(ini->headers[i].section, ini->headers[i].at, faults);
    for (size_t i = 0; i < ini->n; i++)
        if (ft_ini_is_set(ini, &ini->v[i]) && !ft_section_owner(ini->v[i].section))
            unknown(ini->v[i].section, ini->v[i].section_at, faults);
}
