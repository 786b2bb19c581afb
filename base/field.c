#include "base/field.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"

static const char *const type_names[] = {
    [FT_F_TEXT] = "text",         [FT_F_PATH] = "path", [FT_F_INT] = "int",     [FT_F_REAL] = "real", [FT_F_BOOL] = "bool",
    [FT_F_DURATION] = "duration", [FT_F_SIZE] = "size", [FT_F_SHARE] = "share", [FT_F_ENUM] = "enum"};

const char *ft_field_type_name(enum ft_field_type type) { return type_names[type]; }

static const struct {
    const char *unit;
    int64_t ns;
} durations[] = {{"ms", FT_MS}, {"s", FT_SEC}, {"m", 60 * FT_SEC}, {"h", 3600 * FT_SEC}};

bool ft_field_has_range(const struct ft_field *f) { return f->min != 0 || f->max != 0; }
bool ft_field_has_max(const struct ft_field *f) { return ft_field_has_range(f) && f->max >= f->min && !isinf(f->max); }

static void add_number(double x, struct ft_buf *out)
{
    if (x == floor(x) && fabs(x) < 1e15) ft_buf_addf(out, "%lld", (long long)x);
    else ft_buf_add_real(out, x);
}

/* A bound in the notation of the field's type. */
static void add_bound(const struct ft_field *f, double x, struct ft_buf *out)
{
    switch (f->type) {
    case FT_F_DURATION: {
        int64_t ns = (int64_t)x;
        size_t i = sizeof durations / sizeof *durations - 1;
        while (i > 0 && ns % durations[i].ns) i--;
        if (!ns) i = 1;
        add_number((double)ns / (double)durations[i].ns, out);
        ft_buf_adds(out, durations[i].unit);
        break;
    }
    case FT_F_SIZE: {
        static const char units[] = "KMGT";
        int64_t bytes = (int64_t)x;
        int u = 0;
        while (u < 4 && bytes && bytes % 1024 == 0) {
            bytes /= 1024;
            u++;
        }
        ft_buf_addf(out, "%lld", (long long)bytes);
        if (u) ft_buf_addc(out, units[u - 1]);
        break;
    }
    case FT_F_SHARE:
        add_number(x * 100, out);
        ft_buf_addc(out, '%');
        break;
    case FT_F_INT:
    case FT_F_TEXT:
    case FT_F_PATH:
    case FT_F_REAL:
    case FT_F_BOOL:
    case FT_F_ENUM: add_number(x, out); break;
    }
}

static void add_range(const struct ft_field *f, struct ft_buf *out)
{
    if (ft_field_has_max(f)) {
        add_bound(f, f->min, out);
        ft_buf_adds(out, "..");
        add_bound(f, f->max, out);
    } else {
        add_bound(f, f->min, out);
        ft_buf_adds(out, " or more");
    }
}

static void add_words(const struct ft_field *f, const char *between, struct ft_buf *out)
{
    for (size_t i = 0; f->values[i]; i++) {
        if (i) ft_buf_adds(out, between);
        ft_buf_adds(out, f->values[i]);
    }
}

/* What the type wants to read, for "'x' is not …". */
static void add_wanted(const struct ft_field *f, struct ft_buf *out)
{
    switch (f->type) {
    case FT_F_TEXT: ft_buf_adds(out, "a text"); break;
    case FT_F_PATH: ft_buf_adds(out, "a path"); break;
    case FT_F_INT: ft_buf_adds(out, "a whole number"); break;
    case FT_F_REAL: ft_buf_adds(out, "a number"); break;
    case FT_F_BOOL: ft_buf_adds(out, "yes or no"); break;
    case FT_F_DURATION: ft_buf_adds(out, "a duration with its unit (ms, s, m or h)"); break;
    case FT_F_SIZE: ft_buf_adds(out, "a size (a whole number, then K, M, G or T if wanted)"); break;
    case FT_F_SHARE: ft_buf_adds(out, "a share (a number and %)"); break;
    case FT_F_ENUM:
        ft_buf_adds(out, "one of ");
        add_words(f, ", ", out);
        return;
    }
    if (f->values) {
        ft_buf_adds(out, " or ");
        add_words(f, ", ", out);
    }
    if (ft_field_has_range(f)) {
        ft_buf_adds(out, ", ");
        add_range(f, out);
    }
}

/* "12ab" -> number up to the first letter, unit behind it. false: no number. */
static bool split_number(const char *text, double *number, const char **unit)
{
    char digits[64];
    size_t n = strspn(text, "0123456789.");
    if (!n || n >= sizeof digits) return false;
    memcpy(digits, text, n);
    digits[n] = '\0';
    *unit = text + n;
    return ft_parse_real(digits, number);
}

static bool parse_duration(const char *text, double *out)
{
    double x;
    const char *unit;
    if (!split_number(text, &x, &unit)) return false;
    if (!*unit && x == 0) return (*out = 0, true);
    for (size_t i = 0; i < sizeof durations / sizeof *durations; i++)
        if (!strcmp(unit, durations[i].unit)) return (*out = x * (double)durations[i].ns, true);
    return false;
}

static bool parse_size(const char *text, int64_t *out)
{
    size_t n = strlen(text);
    const char *units = "KMGT", *u = n ? strchr(units, text[n - 1]) : NULL;
    int shift = u && *u ? 10 * (int)(u - units + 1) : 0;
    char digits[24];
    if (shift) n--;
    if (!n || n >= sizeof digits || strspn(text, "0123456789") < n) return false;
    memcpy(digits, text, n);
    digits[n] = '\0';
    int64_t x;
    if (!ft_parse_i64(digits, 0, INT64_MAX >> shift, &x)) return false;
    *out = x << shift;
    return true;
}

static bool parse_share(const char *text, double *out)
{
    double x;
    const char *unit;
    if (!split_number(text, &x, &unit) || strcmp(unit, x == 0 && !*unit ? "" : "%") != 0) return false;
    *out = x / 100;
    return true;
}

static bool in_range(const struct ft_field *f, double x)
{
    return !ft_field_has_range(f) || (x >= f->min && (!ft_field_has_max(f) || x <= f->max));
}

/* Stores a whole number / a real where the field lies. */
static void put_int(void *to, int64_t x) { memcpy(to, &x, sizeof x); }
static void put_real(void *to, double x) { memcpy(to, &x, sizeof x); }
static void put_text(void *to, const char *x) { memcpy(to, &x, sizeof x); }

/* Index of text in the field's words, or -1. */
static int word_index(const struct ft_field *f, const char *text)
{
    for (int i = 0; f->values && f->values[i]; i++)
        if (!strcmp(f->values[i], text)) return i;
    return -1;
}

static bool parse_word(const struct ft_field *f, int word, void *to)
{
    int64_t stored = f->word_value - word;
    if (f->type == FT_F_REAL || f->type == FT_F_SHARE) put_real(to, (double)stored);
    else put_int(to, stored);
    return true;
}

static void parse_text(const struct ft_field *f, const char *text, void *to, struct ft_arena *arena)
{
    if (f->type == FT_F_PATH && *text == '~') {
        struct ft_buf path = {0};
        (void)ft_expand_home(text, &path, NULL); /* whether it has a home was asked before */
        put_text(to, ft_arena_strndup(arena, ft_buf_str(&path), path.n));
        ft_buf_fini(&path);
    } else {
        put_text(to, *text ? ft_arena_strdup(arena, text) : NULL);
    }
}

static bool has_home(const struct ft_field *f, const char *text, struct ft_buf *why)
{
    if (f->type != FT_F_PATH || *text != '~') return true;
    struct ft_buf path = {0};
    struct ft_err err;
    const bool ok = ft_expand_home(text, &path, &err) == FT_OK;
    if (!ok) ft_buf_addf(why, "%s; %s", err.text, err.fix);
    ft_buf_fini(&path);
    return ok;
}

/* Type and range. false: the text is not of the type or out of range. */
static bool parse_type(const struct ft_field *f, const char *text, void *to, struct ft_arena *arena)
{
    int word = word_index(f, text);
    int64_t i;
    double x;
    switch (f->type) {
    case FT_F_TEXT:
    case FT_F_PATH: return (parse_text(f, text, to, arena), true);
    case FT_F_INT:
        if (word >= 0) return parse_word(f, word, to);
        if (!ft_parse_i64(text, INT64_MIN, INT64_MAX, &i) || !in_range(f, (double)i)) return false;
        return (put_int(to, i), true);
    case FT_F_SIZE:
        if (word >= 0) return parse_word(f, word, to);
        if (!parse_size(text, &i) || !in_range(f, (double)i)) return false;
        return (put_int(to, i), true);
    case FT_F_REAL:
        if (word >= 0) return parse_word(f, word, to);
        if (!ft_parse_real(text, &x) || !isfinite(x) || !in_range(f, x)) return false;
        return (put_real(to, x), true);
    case FT_F_SHARE:
        if (word >= 0) return parse_word(f, word, to);
        if (!parse_share(text, &x) || !in_range(f, x)) return false;
        return (put_real(to, x), true);
    case FT_F_DURATION:
        if (word >= 0) return parse_word(f, word, to);
        if (!parse_duration(text, &x) || x >= 9.2e18 || !in_range(f, x)) return false;
        return (put_int(to, (int64_t)llround(x)), true);
    case FT_F_BOOL: {
        bool yes = !strcmp(text, "yes");
        if (!yes && strcmp(text, "no") != 0) return false;
        return (memcpy(to, &yes, sizeof yes), true);
    }
    case FT_F_ENUM: return word >= 0 ? (memcpy(to, &word, sizeof word), true) : false;
    }
    return false;
}

static bool parse_one(const struct ft_field *f, const char *text, void *to, struct ft_arena *arena, struct ft_buf *why)
{
    const char *quoted = ft_quote(arena, text, strlen(text));
    bool is_text = f->type == FT_F_TEXT || f->type == FT_F_PATH;
    if (!*text && (!is_text || f->def)) {
        ft_buf_adds(why, "no value; wanted: ");
        add_wanted(f, why);
        return false;
    }
    size_t valid = ft_utf8_valid(text, strlen(text));
    if (f->type != FT_F_PATH && text[valid]) {
        ft_buf_addf(why, "%s holds a byte that is not UTF-8", quoted);
        return false;
    }
    if (!parse_type(f, text, to, arena)) {
        struct ft_field any = *f;
        any.min = any.max = 0;
        bool out_of_range = ft_field_has_range(f) && parse_type(&any, text, to, arena);
        ft_buf_addf(why, "%s is not %s", quoted, out_of_range ? "in " : "");
        out_of_range ? add_range(f, why) : add_wanted(f, why);
        const char *near = NULL;
        if (f->values) {
            size_t n = 0;
            while (f->values[n]) n++;
            near = ft_nearest(text, f->values, n);
        }
        if (near) ft_buf_addf(why, " (did you mean '%s'?)", near);
        return false;
    }
    if (!has_home(f, text, why)) return false;
    return !*text || word_index(f, text) >= 0 || !f->check || f->check(text, why);
}

size_t ft_field_bytes(const struct ft_field *f)
{
    if (f->list) return sizeof(struct ft_list);
    switch (f->type) {
    case FT_F_TEXT:
    case FT_F_PATH: return sizeof(const char *);
    case FT_F_INT:
    case FT_F_DURATION:
    case FT_F_SIZE: return sizeof(int64_t);
    case FT_F_REAL:
    case FT_F_SHARE: return sizeof(double);
    case FT_F_BOOL: return sizeof(bool);
    case FT_F_ENUM: return sizeof(int);
    }
    return 0;
}

/* Cuts at commas and trims; calls parse_one for each item so that each is checked. */
static bool parse_list(const struct ft_field *f, const char *text, void *to, struct ft_arena *arena, struct ft_buf *why)
{
    size_t n = *text ? 1 : 0;
    for (const char *c = text; *c; c++) n += *c == ',';
    const char **v = ft_arena_array(arena, n + 1, sizeof *v);
    for (size_t i = 0; i < n; i++) {
        size_t len = strcspn(text, ",");
        const char *next = text + len + 1;
        while (len && (*text == ' ' || *text == '\t')) {
            text++;
            len--;
        }
        while (len && (text[len - 1] == ' ' || text[len - 1] == '\t')) len--;
        v[i] = ft_arena_strndup(arena, text, len);
        int64_t scratch[2];
        if (!len) {
            ft_buf_addf(why, "item %zu of the list is empty", i + 1);
            return false;
        }
        if (!parse_one(f, v[i], scratch, arena, why)) return false;
        if (f->type == FT_F_PATH) memcpy(&v[i], scratch, sizeof v[i]); /* "~/" is expanded */
        text = next;
    }
    struct ft_list list = {v, n};
    memcpy(to, &list, sizeof list);
    return true;
}

bool ft_field_parse(const struct ft_field *f, const char *text, void *out_at, struct ft_arena *arena, struct ft_buf *why)
{
    if (f->list) return parse_list(f, text, out_at, arena, why);
    int64_t value = 0;
    if (!parse_one(f, text, &value, arena, why)) return false;
    memcpy(out_at, &value, ft_field_bytes(f));
    return true;
}

void ft_field_describe(const struct ft_field *f, struct ft_buf *out)
{
    if (f->type == FT_F_ENUM) add_words(f, "|", out);
    else if (f->type == FT_F_BOOL) ft_buf_adds(out, "yes|no");
    else if (f->type == FT_F_INT) ft_buf_adds(out, "whole number");
    else if (f->type == FT_F_REAL) ft_buf_adds(out, "number");
    else ft_buf_adds(out, type_names[f->type]);
    if (f->values && f->type != FT_F_ENUM) {
        ft_buf_adds(out, " or ");
        add_words(f, "|", out);
    }
    if (f->list) ft_buf_adds(out, ", several with commas");
    if (f->unit) ft_buf_addf(out, ", %s", f->unit);
    if (ft_field_has_range(f)) {
        ft_buf_adds(out, ", ");
        add_range(f, out);
    }
}
