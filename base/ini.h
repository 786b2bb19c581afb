/* Strict INI files. inih does the section/key grammar; this file reads whole logical lines, positions, comments and
 * encodings, so that every build of inih gives the same result. Which sections and keys exist is the business of field
 * tables and of topology/sections.h.
 *
 *   struct ft_ini *ini = ft_ini_create(arena);
 *   ft_ini_read(ini, "cluster.ini", faults); ft_ini_read(ini, "job.ini", faults);   // files from left to right
 *   ft_ini_set(ini, "train.lr=1e-4", faults);                                       // then --set
 *   … faults->n_errors == 0 …
 *
 * Accepted: LF or CRLF, a byte order mark (one note each per file), no final newline, blanks and tabs at both ends, lines of
 * any length (file <= 64 MiB), sections that are reopened. A comment is a line whose first non-blank is ';' or '#', and
 * blank + ';' behind an entry or a header (in [nodes] also blank + '#'). There are no continuation lines.
 * Refused with line and column (bytes, from 1; a byte order mark is not counted): ':' for '=', a line without '=', an empty
 * name, text after ']', NUL, a lone CR, bytes that are not UTF-8. Brackets inside a section's name nest ([env gpu[01-04]]).
 * [env] and [env RANGE]: the name is any text before the first '='; the value is the rest of the line without the blanks at
 * its ends: no comments, any byte. Values of other sections may hold bytes that are not UTF-8 too (paths): ft_section_read
 * refuses them where the field is no path.
 * [nodes]: a line that begins with '[' and goes on behind the matching ']' with text and an '=' is an entry ([1-4]x = …). */
#ifndef FT_BASE_INI_H
#define FT_BASE_INI_H

#include <stdbool.h>

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

/* A [header], whether entries follow or not. */
struct ft_ini_header {
    const char *section;
    struct ft_source at;      /* first byte of the name */
    struct ft_source bracket; /* its '[' */
    unsigned file_index;
};

struct ft_ini {
    struct ft_arena *arena;
    struct ft_ini_entry *v; /* in order of reading: a later entry of the same section and key replaces an earlier one */
    size_t n, cap;
    struct ft_ini_header *headers;
    size_t n_headers, headers_cap;
    unsigned n_files;
    const char **files;
    size_t files_cap;
};

struct ft_ini *ft_ini_create(struct ft_arena *arena);
/* Reads one file; every fault of it goes to faults (missing file included); good entries are kept. */
void ft_ini_read(struct ft_ini *ini, const char *path, struct ft_faults *faults);
/* The same from memory; name stands in messages. */
void ft_ini_read_text(struct ft_ini *ini, const char *name, const char *text, size_t n, struct ft_faults *faults);
/* "SECTION.KEY=VALUE": the first '.' outside brackets and the first '=' after it divide. After all files. */
void ft_ini_set(struct ft_ini *ini, const char *assignment, struct ft_faults *faults);
/* The entry that is in force, or NULL. */
const struct ft_ini_entry *ft_ini_find(const struct ft_ini *ini, const char *section, const char *key);
/* Did the entry come from --set? Such entries may repeat a key. */
bool ft_ini_is_set(const struct ft_ini *ini, const struct ft_ini_entry *e);
/* ft_faults_sort with the files in the order in which they were read, then --set, then faults without a file. */
void ft_ini_sort_faults(const struct ft_ini *ini, struct ft_faults *faults);
/* "env" or "env RANGE" */
bool ft_ini_is_env(const char *section);

/* 'text' in single quotes for messages: control bytes and bytes that are not UTF-8 as \xHH, at most 200 bytes, then "…". */
const char *ft_quote(struct ft_arena *a, const char *s, size_t n);

#endif
