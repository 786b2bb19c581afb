#include "runtime/data/data_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

static const char *const formats[] = {"auto",   "messages", "sharegpt", "alpaca",     "io",
                                      "prompt", "text",     "tokens",   "transcript", NULL};
static const char *const packings[] = {"yes", "no", "split", NULL};
static const char *const train_ons[] = {"assistant", "last", "all", NULL};
static const char *const boundaries[] = {"auto", "split", "joint", NULL};
static const char *const specials[] = {"text", "parse", NULL};
static const char *const overlongs[] = {"drop", "truncate", "refuse", NULL};
static const char *const dedupes[] = {"exact", "report", "no", NULL};
static const char *const overlaps[] = {"refuse", "allow", NULL};
static const char *const seq_words[] = {"auto", NULL};

/* What the pages specify and this build does not have yet. */
static const struct ft_unbuilt no_format[] = {{"transcript", "convert the file to messages"}, {NULL, NULL}};
static const struct ft_unbuilt no_key[] = {{"*", "leave it out"}, {NULL, NULL}};

static bool check_skip(const char *value, struct ft_buf *why)
{
    int64_t n;
    if (ft_str_eq(value, "refuse")) return true;
    if (ft_str_starts(value, "skip:") && ft_parse_i64(value + 5, 0, INT64_MAX, &n)) return true;
    ft_buf_addf(why, "'%s' is neither refuse nor skip:N", value);
    return false;
}

static bool check_date(const char *value, struct ft_buf *why)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int64_t y = 0, m = 0, d = 0;
    char part[3][8] = {"", "", ""};
    if (strlen(value) == 10 && value[4] == '-' && value[7] == '-') {
        memcpy(part[0], value, 4), memcpy(part[1], value + 5, 2), memcpy(part[2], value + 8, 2);
        if (ft_parse_i64(part[0], 1, 9999, &y) && ft_parse_i64(part[1], 1, 12, &m) && ft_parse_i64(part[2], 1, 31, &d)) {
            const bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
            if (d <= days[m - 1] + (m == 2 && leap)) return true;
        }
    }
    ft_buf_addf(why, "'%s' is no date like 2026-11-30", value);
    return false;
}

/* "30%" -> 0.3; false: no share. */
static bool read_share(const char *value, double *out)
{
    const size_t n = strlen(value);
    char number[32];
    if (n < 2 || n > sizeof number || value[n - 1] != '%') return false;
    memcpy(number, value, n - 1), number[n - 1] = 0;
    if (!ft_parse_real(number, out) || !(*out > 0 && *out < 100)) return false;
    *out /= 100;
    return true;
}

/* What ends with % is a share, never a file. */
static bool check_valid(const char *value, struct ft_buf *why)
{
    double share;
    if (!ft_str_ends(value, "%") || read_share(value, &share)) return true;
    ft_buf_addf(why, "'%s' is no share of train: more than 0%% and less than 100%% can be kept aside (a file of that name: ./%s)",
                value, value);
    return false;
}

static bool check_pair(const char *value, struct ft_buf *why)
{
    const char *colon = strchr(value, ':');
    if (colon && colon != value && colon[1]) return true;
    ft_buf_addf(why, "'%s' is not NAME:VALUE", value);
    return false;
}

/* The names that `columns` renames, and the formats that read them. */
static const struct {
    const char *name;
    unsigned formats; /* bits of enum ft_data_format */
} columns[] = {
    {"messages", 1U << FT_FORMAT_MESSAGES},
    {"conversations", 1U << FT_FORMAT_SHAREGPT},
    {"instruction", 1U << FT_FORMAT_ALPACA},
    {"input", 1U << FT_FORMAT_ALPACA | 1U << FT_FORMAT_IO},
    {"output", 1U << FT_FORMAT_ALPACA | 1U << FT_FORMAT_IO},
    {"prompt", 1U << FT_FORMAT_ALPACA | 1U << FT_FORMAT_IO | 1U << FT_FORMAT_PROMPT},
    {"completion", 1U << FT_FORMAT_PROMPT},
    {"response", 1U << FT_FORMAT_ALPACA | 1U << FT_FORMAT_IO | 1U << FT_FORMAT_PROMPT},
    {"system", 1U << FT_FORMAT_SHAREGPT | 1U << FT_FORMAT_ALPACA | 1U << FT_FORMAT_IO | 1U << FT_FORMAT_PROMPT},
    {"text", 1U << FT_FORMAT_TEXT},
};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

static size_t column_of(const char *pair, size_t n)
{
    for (size_t i = 0; i < N_COLUMNS; i++)
        if (strlen(columns[i].name) == n && !memcmp(columns[i].name, pair, n)) return i;
    return N_COLUMNS;
}

static bool check_column(const char *value, struct ft_buf *why)
{
    if (!check_pair(value, why)) return false;
    const size_t n = (size_t)(strchr(value, ':') - value);
    if (column_of(value, n) < N_COLUMNS) return true;
    ft_buf_addf(why, "'%s': no record format has a field '%.*s' (", value, (int)n, value);
    for (size_t i = 0; i < N_COLUMNS; i++) ft_buf_addf(why, "%s%s", i ? " " : "", columns[i].name);
    ft_buf_adds(why, "); the standard name stands first");
    return false;
}

#define AT(field) .at = offsetof(struct ft_data_fields, field)

static const struct ft_field rows[] = {
    {.name = "train", .type = FT_F_PATH, .list = true, AT(train), .help = "files to train on: paths and globs, read in this order"},
    {.name = "valid",
     .type = FT_F_PATH,
     .list = true,
     AT(valid),
     .help = "files to validate on, or a share of train (2%)",
     .check = check_valid},
    {.name = "general", .type = FT_F_PATH, .list = true, AT(general), .help = "general files: watch what the model forgets"},
    {.name = "weights",
     .type = FT_F_REAL,
     .list = true,
     .min = 0,
     .max = 1000,
     AT(weights),
     .help = "how often each file of train is drawn per epoch"},
    {.name = "format",
     .type = FT_F_ENUM,
     .values = formats,
     .def = "auto",
     AT(format),
     .help = "shape of a record",
     .unbuilt = no_format},
    {.name = "columns",
     .type = FT_F_TEXT,
     .list = true,
     AT(columns),
     .help = "own field names (prompt:question, response:answer)",
     .check = check_column},
    {.name = "roles",
     .type = FT_F_TEXT,
     .list = true,
     AT(roles),
     .help = "speaker labels of transcripts (user:Customer)",
     .check = check_pair,
     .unbuilt = no_key},
    {.name = "prompts", .type = FT_F_PATH, AT(prompts), .help = "file with one prompt pattern a line", .unbuilt = no_key},
    {.name = "bad_records",
     .type = FT_F_TEXT,
     .def = "refuse",
     AT(bad_records),
     .help = "refuse, or skip:N to leave out at most N faulty records",
     .check = check_skip},
    {.name = "template",
     .type = FT_F_TEXT,
     .def = "auto",
     AT(template_),
     .help = "chat template: auto, none, a .jinja file or a name of the folder"},
    {.name = "template_vars",
     .type = FT_F_TEXT,
     .list = true,
     AT(template_vars),
     .help = "further template variables (enable_thinking:no)",
     .check = check_pair},
    {.name = "template_date",
     .type = FT_F_TEXT,
     AT(template_date),
     .help = "the date that a template shows (YYYY-MM-DD)",
     .check = check_date},
    {.name = "seq_len",
     .type = FT_F_INT,
     .unit = "tokens",
     .def = "auto",
     .values = seq_words,
     .word_value = FT_SEQ_LEN_AUTO,
     .min = 1,
     .max = 1 << 24,
     AT(seq_len),
     .help = "length of a row; auto: 2048, or the model's limit when smaller"},
    {.name = "packing", .type = FT_F_ENUM, .values = packings, .def = "yes", AT(packing), .help = "several samples share a row"},
    {.name = "train_on",
     .type = FT_F_ENUM,
     .values = train_ons,
     .def = "assistant",
     AT(train_on),
     .help = "which turns carry loss"},
    {.name = "boundary",
     .type = FT_F_ENUM,
     .values = boundaries,
     .def = "auto",
     AT(boundary),
     .help = "token boundary between prompt and answer"},
    {.name = "special",
     .type = FT_F_ENUM,
     .values = specials,
     .def = "text",
     AT(special),
     .help = "special tokens inside contents"},
    {.name = "terminator", .type = FT_F_TEXT, .def = "auto", AT(terminator), .help = "what ends an answer: auto, none or a token"},
    {.name = "overlong",
     .type = FT_F_ENUM,
     .values = overlongs,
     .def = "drop",
     AT(overlong),
     .help = "samples longer than seq_len"},
    {.name = "shuffle",
     .type = FT_F_BOOL,
     .def = "yes",
     AT(shuffle),
     .help = "another order in every epoch (a function of the seed)"},
    {.name = "dedupe",
     .type = FT_F_ENUM,
     .values = dedupes,
     .def = "exact",
     AT(dedupe),
     .help = "records that repeat an earlier one"},
    {.name = "overlap",
     .type = FT_F_ENUM,
     .values = overlaps,
     .def = "refuse",
     AT(overlap),
     .help = "prompts of train that stand in valid or general too"},
    {.name = "cache", .type = FT_F_PATH, AT(cache), .help = "folder of prepared data"},
};

const struct ft_section ft_data_section = {"data", "what to train and validate on", rows, sizeof rows / sizeof *rows,
                                           sizeof(struct ft_data_fields)};

int64_t ft_data_skip(const struct ft_data_fields *f)
{
    int64_t n = 0;
    if (f->bad_records && ft_str_starts(f->bad_records, "skip:") && ft_parse_i64(f->bad_records + 5, 0, INT64_MAX, &n)) return n;
    return 0;
}

double ft_data_valid_share(const struct ft_data_fields *f)
{
    double share;
    return f->valid.n == 1 && read_share(f->valid.v[0], &share) ? share : 0;
}

enum ft_code ft_data_weights(const struct ft_data_fields *f, size_t n_files, double **out, struct ft_err *err)
{
    const struct ft_list *l = &f->weights;
    double sum = 0;
    *out = NULL;
    if (!l->n) return FT_OK;
    if (l->n != n_files) {
        (void)ft_fail(err, FT_CONFIG, "[data] weights has %zu numbers, train has %zu files", l->n, n_files);
        return ft_fix(err, "give one weight per file");
    }
    double *v = ft_xcalloc(l->n + 1, sizeof *v);
    for (size_t i = 0; i < l->n; i++) sum += ft_parse_real(l->v[i], &v[i]) ? v[i] : 0; /* the field has seen each */
    if (sum > 0) *out = v;
    else free(v);
    return sum > 0 ? FT_OK : ft_fail(err, FT_CONFIG, "[data] weights: all are 0");
}

/* ---- keys together ---- */

static struct ft_source place(const struct ft_value *values, const char *key)
{
    return values[ft_section_find(&ft_data_section, key) - rows].at;
}

static bool is_default(const struct ft_value *values, const char *key)
{
    const struct ft_field *f = ft_section_find(&ft_data_section, key);
    const char *text = values[f - rows].text;
    return !text || !*text || (f->def && ft_str_eq(text, f->def));
}

/* A key that the chosen format does not look at would be obeyed in the user's mind only. */
static void idle_keys(const struct ft_data_fields *f, const struct ft_value *values, struct ft_faults *faults)
{
    const unsigned tokens = 1U << FT_FORMAT_TOKENS, plain = tokens | 1U << FT_FORMAT_TEXT;
    const struct {
        const char *key;
        unsigned formats;
        bool unless; /* then it has an effect after all */
    } idle[] = {
        {"template", plain, false},
        {"template_vars", plain, false},
        {"template_date", plain, false},
        {"terminator", plain, false},
        {"boundary", plain, false},
        {"special", tokens, false},
        {"train_on", plain, f->train_on == FT_TRAIN_ON_ALL},
    };
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++) {
        const char *key = idle[i].key;
        if (!(idle[i].formats >> f->format & 1U) || idle[i].unless || is_default(values, key)) continue;
        ft_faults_add(faults, FT_SEV_WARNING, place(values, key), "data", key, "%s = %s has no effect with format = %s", key,
                      values[ft_section_find(&ft_data_section, key) - rows].text, formats[f->format]);
        ft_fault_fix(faults, "leave %s out", key);
    }
}

static void check_columns(const struct ft_data_fields *f, const struct ft_value *values, struct ft_faults *faults)
{
    const struct ft_source at = place(values, "columns");
    const struct ft_list *l = &f->columns;
    for (size_t i = 0; i < l->n; i++) {
        const size_t n = strcspn(l->v[i], ":"), c = column_of(l->v[i], n);
        for (size_t k = 0; k < i; k++)
            if (n == strcspn(l->v[k], ":") && !memcmp(l->v[i], l->v[k], n))
                ft_faults_add(faults, FT_SEV_ERROR, at, "data", "columns", "columns = %s and %s: one field has one name", l->v[k],
                              l->v[i]);
        if (f->format == FT_FORMAT_AUTO || c == N_COLUMNS || columns[c].formats >> f->format & 1U) continue;
        ft_faults_add(faults, FT_SEV_WARNING, at, "data", "columns",
                      "columns = %s has no effect with format = %s: it has no field %s", l->v[i], formats[f->format],
                      columns[c].name);
    }
}

void ft_data_fields_check(const struct ft_data_fields *f, const struct ft_value *values, struct ft_faults *faults)
{
    idle_keys(f, values, faults);
    check_columns(f, values, faults);
    for (size_t i = 0; i < f->valid.n && f->valid.n > 1; i++) {
        if (!ft_str_ends(f->valid.v[i], "%")) continue;
        ft_faults_add(faults, FT_SEV_ERROR, place(values, "valid"), "data", "valid",
                      "valid = %s: a share of train stands alone, not beside files", f->valid.v[i]);
        ft_fault_fix(faults, "name files, or one share");
    }
    if (ft_str_eq(f->template_, "none") && (f->format == FT_FORMAT_MESSAGES || f->format == FT_FORMAT_SHAREGPT)) {
        ft_faults_add(faults, FT_SEV_ERROR, place(values, "template"), "data", "template",
                      "template = none: conversations (format = %s) become text by a chat template only", formats[f->format]);
        ft_fault_fix(faults, "leave template out (the folder's own), or set it to the PATH of a .jinja file");
    }
}
