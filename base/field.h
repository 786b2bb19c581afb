/* Field tables: one row per key, which parses, validates, documents (init --all, man, completion, JSON) and prints itself.
 * A section is a table of rows plus a plain struct that receives the values:
 *
 *   struct ft_train_fields { int64_t steps; double lr; int schedule; … };
 *   static const struct ft_field rows[] = {
 *       {.name = "lr", .type = FT_F_REAL, .def = "1e-5", .min = 0, .max = 1, .at = offsetof(struct ft_train_fields, lr), .help = "peak learning rate"},
 *       {.name = "schedule", .type = FT_F_ENUM, .values = schedules, .def = "cosine", .at = offsetof(…, schedule), .help = "…"}, };
 *   const struct ft_section ft_train_section = {"train", "how to train", rows, N, sizeof(struct ft_train_fields)};
 *   ft_section_read(&ft_train_section, ini, &fields, values, faults);
 */
#ifndef FT_BASE_FIELD_H
#define FT_BASE_FIELD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ini.h"
#include "base/json.h"

/* What lies at `at`; with .list a struct ft_list of trimmed texts, each validated as the type. */
enum ft_field_type {
    FT_F_TEXT,     /* const char * (NULL when there is neither value nor default) */
    FT_F_PATH,     /* const char *; "~/" expanded */
    FT_F_INT,      /* int64_t */
    FT_F_REAL,     /* double */
    FT_F_BOOL,     /* bool; yes | no */
    FT_F_DURATION, /* int64_t nanoseconds; 500ms 30s 15m 2h; a bare 0 */
    FT_F_SIZE,     /* int64_t bytes; 64M 2G (binary) */
    FT_F_SHARE,    /* double, 0.05 for "5%" */
    FT_F_ENUM      /* int: index into values */
};

struct ft_list {
    const char *const *v;
    size_t n;
};

/* A value (or "*": any value but the default, which a resolved job writes out; or "default": leaving the key out) that the pages
 * specify and this build lacks. */
struct ft_unbuilt {
    const char *value;
    const char *fix; /* "set packing = no" */
};

struct ft_field {
    const char *name;
    enum ft_field_type type;
    const char *unit;          /* "tokens", "updates"; NULL */
    const char *def;           /* as written in a file; NULL: no default (TEXT NULL, numbers 0, lists empty) */
    const char *const *values; /* ENUM: NULL-terminated names; other types: words accepted beside the type ("auto"): */
    int64_t word_value;        /*   what such a word stores (minus its index: word_value, word_value-1, …); REAL too */
    double min, max;           /* in stored units; both 0: no range; max < min or INFINITY: no upper bound */
    bool list;
    const char *help;                 /* one line */
    size_t at;                        /* offsetof */
    const struct ft_unbuilt *unbuilt; /* ends with {NULL} ; NULL: all is built */
    /* Extra rule; false and a sentence in *why when the value breaks it. NULL: none. */
    bool (*check)(const char *value, struct ft_buf *why);
};

struct ft_section {
    const char *name, *help;
    const struct ft_field *fields;
    size_t n_fields, bytes;
};

/* Where a resolved value came from: one per field, same order. at.file NULL: the default. */
struct ft_value {
    const char *text; /* as written, or the default; NULL: neither */
    struct ft_source at;
};

/* An empty value ("key =") stands for nothing: NULL for TEXT and PATH without a default, an empty list; else it is refused.
 * Fills *out (section->bytes, zeroed first) and values[n_fields] (may be NULL); every fault is recorded: unknown key (with the
 * nearest name), key twice in one file, wrong type, unit, range, value not built. Texts live in ini->arena. */
void ft_section_read(const struct ft_section *s, const struct ft_ini *ini, void *out, struct ft_value *values,
                     struct ft_faults *faults);
const struct ft_field *ft_section_find(const struct ft_section *s, const char *key);
/* One text as the field's type, for checks outside a file. false: why holds the sentence ("'0' is not in 1..64"). */
bool ft_field_parse(const struct ft_field *f, const char *text, void *out_at, struct ft_arena *arena, struct ft_buf *why);

/* {"name":…,"help":…,"fields":[…]} as interface "fields --json"; the reader's counterpart makes a section from it (arena). */
void ft_section_write_json(const struct ft_section *s, struct ft_jw *w);
struct ft_section *ft_section_from_json(const struct ft_json *v, struct ft_arena *arena);
/* A commented INI section: "; help" and "; key = default" per field (init --all). */
void ft_section_write_ini(const struct ft_section *s, struct ft_buf *out);
/* "integer, tokens, 1..64", "yes|no", "duration": type, unit, words and range of a field for people. */
void ft_field_describe(const struct ft_field *f, struct ft_buf *out);
bool ft_field_has_range(const struct ft_field *f);
bool ft_field_has_max(const struct ft_field *f);
size_t ft_field_bytes(const struct ft_field *f);         /* what lies at `at` */
const char *ft_field_type_name(enum ft_field_type type); /* "text", "int", … as in "fields --json" */

#endif
