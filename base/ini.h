/* Strict INI files (rules: docs/design.md, "INI"). inih does the section/key grammar; this file reads whole logical lines,
 * positions, comments and encodings, so that every build of inih gives the same result. Nothing is interpreted here:
 * which sections and keys exist is the business of field tables and of topology/sections.h.
 *
 *   struct ft_ini *ini = ft_ini_create(arena);
 *   ft_ini_read(ini, "cluster.ini", faults); ft_ini_read(ini, "job.ini", faults);   // files from left to right
 *   ft_ini_set(ini, "train.lr=1e-4", faults);                                       // then --set
 *   … faults->n_errors == 0 …
 */
#ifndef FT_BASE_INI_H
#define FT_BASE_INI_H

#include "base/fault.h"

/* One entry as it stands in a file. value[0..value_len) (may hold any byte in [env]); NUL terminated besides. */
struct ft_ini_entry {
    const char *section, *key, *value;
    size_t value_len;
    struct ft_source at;         /* first byte of the key */
    struct ft_source value_at;   /* first byte of the value (just behind '=' and blanks when empty) */
    struct ft_source section_at; /* first byte of the section's name in its [header] */
    unsigned file_index;         /* 0 = first file; --set entries have one more than the last file */
};

struct ft_ini {
    struct ft_arena *arena;
    struct ft_ini_entry *v; /* in order of reading: a later entry of the same section and key replaces an earlier one */
    size_t n, cap;
    unsigned n_files;
    const char **files;
    size_t files_cap;
};

struct ft_ini *ft_ini_create(struct ft_arena *arena);
/* Reads one file; every fault of it goes to faults (missing file included); good entries are kept. */
void ft_ini_read(struct ft_ini *ini, const char *path, struct ft_faults *faults);
/* The same from memory; name stands in messages. */
void ft_ini_read_text(struct ft_ini *ini, const char *name, const char *text, size_t n, struct ft_faults *faults);
/* "SECTION.KEY=VALUE" (the first '.' and the first '=' after it divide). */
void ft_ini_set(struct ft_ini *ini, const char *assignment, struct ft_faults *faults);
/* The entry that is in force, or NULL. */
const struct ft_ini_entry *ft_ini_find(const struct ft_ini *ini, const char *section, const char *key);

#endif
