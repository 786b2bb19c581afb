#include "runtime/data/data_fields.h"

#include <string.h>

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

static bool check_pair(const char *value, struct ft_buf *why)
{
    const char *colon = strchr(value, ':');
    if (colon && colon != value && colon[1]) return true;
    ft_buf_addf(why, "'%s' is not NAME:VALUE", value);
    return false;
}

/* Fields of records that may have a name of their own. */
static const char *const standard_names[] = {"messages", "conversations", "prompt",      "completion", "response",
                                             "input",    "output",        "instruction", "system",     "text"};

static bool check_column(const char *value, struct ft_buf *why)
{
    enum { N = sizeof standard_names / sizeof *standard_names };
    char name[32];
    if (!check_pair(value, why)) return false;
    const size_t n = (size_t)(strchr(value, ':') - value);
    (void)snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), value);
    for (size_t i = 0; i < N; i++)
        if (ft_str_eq(name, standard_names[i])) return true;
    ft_buf_addf(why, "'%s': no record format has a field '%.*s' (", value, (int)n, value);
    for (size_t i = 0; i < N; i++) ft_buf_addf(why, "%s%s", i ? " " : "", standard_names[i]);
    ft_buf_adds(why, "); the standard name stands first");
    return false;
}

/* P% with P between 0 and 100; anything else is a file. */
static bool check_valid(const char *value, struct ft_buf *why)
{
    char number[32];
    double x;
    const size_t n = strlen(value);
    if (n < 2 || n >= sizeof number || value[n - 1] != '%') return true;
    memcpy(number, value, n - 1), number[n - 1] = 0;
    if (!ft_parse_real(number, &x) || (x > 0 && x < 100)) return true;
    ft_buf_addf(why, "'%s' is no share of train: more than 0%% and less than 100%% can be kept aside", value);
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
     .max = 1e6,
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

void ft_data_fields_check(const struct ft_data_fields *f, const struct ft_ini *ini, struct ft_faults *faults)
{
    /* what token ids have behind them already */
    static const char *const idle[] = {"columns",  "template", "template_vars", "template_date",
                                       "boundary", "special",  "terminator"};
    static const char *const defaults[] = {"", "auto", "", "", "auto", "text", "auto"};
    for (size_t i = 0; f->format == FT_FORMAT_TOKENS && i < sizeof idle / sizeof *idle; i++) {
        const struct ft_ini_entry *e = ft_ini_find(ini, "data", idle[i]);
        if (!e || ft_str_eq(e->value, defaults[i])) continue;
        ft_faults_add(faults, FT_SEV_WARNING, e->value_at, "data", idle[i], "%s = %s has no effect with format = tokens", idle[i],
                      e->value);
        ft_fault_fix(faults, "leave %s out", idle[i]);
    }
    for (size_t i = 0; f->valid.n > 1 && i < f->valid.n; i++) {
        const struct ft_data_fields one = {.valid = {.v = &f->valid.v[i], .n = 1}};
        const struct ft_ini_entry *e = ft_ini_find(ini, "data", "valid");
        if (!e || !(ft_data_valid_share(&one) > 0)) continue;
        ft_faults_add(faults, FT_SEV_ERROR, e->value_at, "data", "valid",
                      "valid = %s: a share of train stands alone, not beside files", e->value);
        ft_fault_fix(faults, "name files, or one share");
    }
}

int64_t ft_data_skip(const struct ft_data_fields *f)
{
    int64_t n = 0;
    if (f->bad_records && ft_str_starts(f->bad_records, "skip:") && ft_parse_i64(f->bad_records + 5, 0, INT64_MAX, &n)) return n;
    return 0;
}

double ft_data_valid_share(const struct ft_data_fields *f)
{
    if (f->valid.n != 1) return 0;
    const size_t n = strlen(f->valid.v[0]);
    char number[32];
    double x;
    if (n < 2 || n > 30 || f->valid.v[0][n - 1] != '%') return 0;
    memcpy(number, f->valid.v[0], n - 1), number[n - 1] = 0;
    return ft_parse_real(number, &x) && x > 0 && x < 100 ? x / 100 : 0;
}
