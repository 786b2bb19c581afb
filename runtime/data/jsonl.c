#include "runtime/data/jsonl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/fd.h"

enum { BLOCK = 1 << 16 };

struct ft_jsonl {
    int fd;
    gzFile gz; /* a .gz file; it owns fd then */
    char *path;
    struct ft_buf line;
    char *block;
    size_t at, end; /* unread part of block */
    int64_t number, blank, bytes;
    bool eof, failed, own_fd;
    bool array, opened, first, closed; /* one JSON array: '[' was read, no element yet, ']' was read */
};

static bool fill(struct ft_jsonl *j, struct ft_err *err)
{
    ssize_t n;
    if (j->gz) {
        int code = Z_OK;
        n = gzread(j->gz, j->block, BLOCK);
        const char *why = n <= 0 ? gzerror(j->gz, &code) : "";
        if (n < 0 || code == Z_BUF_ERROR) {                                           /* the latter: the file ends in the middle */
            const char *text = ft_str_starts(why, "<fd:") ? strstr(why, ": ") : NULL; /* zlib's own name of the file */
            (void)ft_fail(err, FT_DATA, "cannot unpack '%s': %s", j->path, n >= 0 ? "it is cut short" : text ? text + 2 : why);
            j->failed = true;
            return false;
        }
    } else {
        do n = read(j->fd, j->block, BLOCK);
        while (n < 0 && errno == EINTR);
    }
    if (n < 0) {
        (void)ft_fail(err, FT_IO, "cannot read '%s': %s", j->path, strerror(errno));
        j->failed = true;
        return false;
    }
    j->at = 0, j->end = (size_t)n, j->bytes += n;
    if (!n) j->eof = true;
    return n > 0;
}

/* What is no JSONL, by name and first bytes. */
static const char *other_kind(const char *path, const char *p, size_t n, bool *array)
{
    size_t i = 0;
    if (ft_str_ends(path, ".ini")) return "an INI file";
    if (ft_str_ends(path, ".yaml") || ft_str_ends(path, ".yml")) return "a YAML file";
    if (n >= 2 && !memcmp(p, "\x1f\x8b", 2))
        return "compressed with gzip (unpack standard input with zcat; files are read as they are)";
    if (n >= 4 && !memcmp(p, "\x28\xb5\x2f\xfd", 4)) return "compressed with zstd, which is not built yet: unpack it with unzstd";
    if (n >= 6 && !memcmp(p,
                          "\xfd"
                          "7zXZ",
                          6))
        return "compressed with xz: unpack it with unxz";
    if (n >= 3 && !memcmp(p, "BZh", 3)) return "compressed with bzip2: unpack it with bunzip2";
    if (n >= 4 && !memcmp(p, "PK\3\4", 4)) return "a zip archive: unpack it";
    if (n >= 4 && !memcmp(p, "PAR1", 4)) return "a Parquet file";
    if (n >= 2 && (!memcmp(p, "\xff\xfe", 2) || !memcmp(p, "\xfe\xff", 2))) return "UTF-16 text (write it as UTF-8)";
    if (n >= 3 && !memcmp(p, "\xef\xbb\xbf", 3)) i = 3;
    if (n >= 3 && !memcmp(p, "---", 3)) return "a YAML file";
    while (i < n && (p[i] == ' ' || p[i] == '\t' || p[i] == '\r' || p[i] == '\n')) i++;
    if (i < n && p[i] == '{') return NULL; /* whatever follows is a fault of its line */
    if (memchr(p, 0, n < 4096 ? n : 4096)) return "a binary file";
    if (i < n && p[i] == '[') {
        const char *end = memchr(p + i, '\n', n - i), *close = memchr(p + i, ']', (size_t)((end ? end : p + n) - (p + i)));
        size_t k = i + 1;
        while (k < n && (p[k] == '_' || p[k] == '-' || (p[k] >= 'a' && p[k] <= 'z') || (p[k] >= 'A' && p[k] <= 'Z'))) k++;
        if (close && p + k == close && k > i + 1) return "an INI file";
        *array = true;
    }
    return NULL;
}

/* A file that begins as gzip files do is read through zlib. */
static void unpack(struct ft_jsonl *j)
{
    unsigned char magic[2];
    if (!j->own_fd || pread(j->fd, magic, 2, 0) != 2 || magic[0] != 0x1f || magic[1] != 0x8b) return;
    j->gz = gzdopen(j->fd, "rb");
}

enum ft_code ft_jsonl_open(const char *path, struct ft_jsonl **out, struct ft_err *err)
{
    struct ft_jsonl *j = ft_xcalloc(1, sizeof *j);
    j->path = ft_xstrdup(path);
    j->block = ft_xcalloc(1, BLOCK);
    j->own_fd = !ft_str_eq(path, "-");
    j->fd = j->own_fd ? open(path, O_RDONLY | O_CLOEXEC) : 0;
    if (j->fd < 0) {
        (void)ft_fail(err, FT_IO, "cannot open '%s': %s", path, strerror(errno));
    } else if (ft_is_dir(path)) {
        (void)ft_fail(err, FT_IO, "cannot read '%s': it is a folder", path);
    } else if (unpack(j), fill(j, err) || !j->failed) {
        const char *other = other_kind(path, j->block, j->end, &j->array);
        if (!other) {
            if (j->end >= 3 && !memcmp(j->block, "\xef\xbb\xbf", 3)) j->at = 3;
            if (j->array) j->number = 1, j->first = true;
            *out = j;
            return FT_OK;
        }
        (void)ft_fail(err, FT_DATA, "'%s' is no JSONL file: it is %s", path, other);
    }
    ft_jsonl_close(j);
    return err ? err->code : FT_IO;
}

void ft_jsonl_close(struct ft_jsonl *j)
{
    if (!j) return;
    if (j->gz) gzclose(j->gz);
    else if (j->own_fd) ft_close(&j->fd);
    ft_buf_fini(&j->line);
    free(j->block);
    free(j->path);
    free(j);
}

static bool is_blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r') return false;
    return true;
}

/* One line into j->line, whatever it holds; false at the end. */
static bool take_line(struct ft_jsonl *j, bool *too_long, struct ft_err *err)
{
    bool any = false;
    ft_buf_clear(&j->line);
    *too_long = false;
    while (true) {
        if (j->at == j->end && (j->eof || !fill(j, err))) return any && !j->failed;
        const char *p = j->block + j->at, *nl = memchr(p, '\n', j->end - j->at);
        const size_t n = nl ? (size_t)(nl - p) : j->end - j->at;
        any = true;
        if (*too_long || j->line.n + n > FT_JSONL_LINE + (size_t)1) {
            *too_long = true;
            ft_buf_clear(&j->line);
        } else {
            ft_buf_add(&j->line, p, n);
        }
        j->at += n + (nl ? 1 : 0);
        if (nl) return true;
    }
}

/* ---- one JSON array: its elements, one after another ---- */

/* The next byte without taking it; -1 at the end. */
static int look(struct ft_jsonl *j, struct ft_err *err)
{
    if (j->at == j->end && (j->eof || !fill(j, err))) return -1;
    return (unsigned char)j->block[j->at];
}

static int skip_blank(struct ft_jsonl *j, struct ft_err *err)
{
    int c;
    for (; (c = look(j, err)) == ' ' || c == '\t' || c == '\r' || c == '\n'; j->at++) j->number += c == '\n';
    return c;
}

/* Takes one byte into the line unless the line is too long already. */
static void take_byte(struct ft_jsonl *j, int c, bool *too_long)
{
    if (j->line.n > FT_JSONL_LINE) *too_long = true, ft_buf_clear(&j->line);
    if (!*too_long) ft_buf_addc(&j->line, (char)c);
    j->number += c == '\n';
    j->at++;
}

/* One value, whatever it holds, or the rest of the line where a value or a comma is missing (the parser says what is wrong). */
static void take_value(struct ft_jsonl *j, bool broken, bool *too_long, struct ft_err *err)
{
    int depth = 0;
    bool string = false;
    for (int c; (c = look(j, err)) >= 0;) {
        if (broken
                ? c == '\n'
                : !string && depth == 0 && j->line.n && (c == ',' || c == ']' || c == ' ' || c == '\n' || c == '\t' || c == '\r'))
            return;
        const bool escape = string && c == '\\';
        take_byte(j, c, too_long);
        if (escape) {
            if ((c = look(j, err)) >= 0) take_byte(j, c, too_long);
        } else if (c == '"') string = !string;
        else if (!string && (c == '{' || c == '[')) depth++;
        else if (!string && (c == '}' || c == ']')) depth--;
        if (!broken && !string && depth <= 0 && (c == '}' || c == ']' || c == '"')) return;
    }
}

static bool take_element(struct ft_jsonl *j, struct ft_line *out, struct ft_err *err)
{
    bool too_long = false, broken = false;
    ft_buf_clear(&j->line);
    int c = skip_blank(j, err);
    if (!j->opened && c == '[') j->opened = true, j->at++, c = skip_blank(j, err);
    if (c < 0 && (j->closed || j->failed)) return false;
    if (c == ']' && !j->closed) {
        j->closed = true, j->at++;
        return take_element(j, out, err);
    }
    if (!j->closed && !j->first && c == ',') j->at++, c = skip_blank(j, err);
    else if (!j->first || j->closed) broken = true; /* no comma, or something behind the array */
    j->first = false;
    out->number = j->number;
    if (c == ']' || c < 0)
        ft_buf_adds(&j->line, c < 0 ? "[" : ","), j->closed = true, j->at += c >= 0; /* unfinished, or a comma too many */
    else take_value(j, broken, &too_long, err);
    out->too_long = too_long;
    if (broken && !j->failed) ft_buf_adds(&j->line, " ,");
    out->text = too_long ? "" : ft_buf_str(&j->line), out->n = too_long ? 0 : j->line.n;
    return !j->failed;
}

bool ft_jsonl_next(struct ft_jsonl *j, struct ft_line *out, struct ft_err *err)
{
    bool too_long;
    if (j->array) return take_element(j, out, err);
    while (take_line(j, &too_long, err)) {
        j->number++;
        size_t n = j->line.n;
        if (n && j->line.data[n - 1] == '\r') n--;
        if (n > FT_JSONL_LINE) too_long = true;
        if (!too_long && is_blank(j->line.data, n)) {
            j->blank++;
            continue;
        }
        *out = (struct ft_line){
            .text = too_long ? "" : j->line.data, .n = too_long ? 0 : n, .number = j->number, .too_long = too_long};
        return true;
    }
    return false;
}

bool ft_jsonl_failed(const struct ft_jsonl *j) { return j->failed; }
int64_t ft_jsonl_blank(const struct ft_jsonl *j) { return j->blank; }
int64_t ft_jsonl_bytes(const struct ft_jsonl *j) { return j->bytes; }

static int64_t chars(const char *s, size_t n)
{
    int64_t c = 0;
    for (size_t i = 0; i < n; i++) c += ((unsigned char)s[i] & 0xC0) != 0x80;
    return c;
}

/* Writes ".0" behind integers that do not fit 64 bits, so that only these become reals. */
static void widen(const char *s, size_t n, struct ft_buf *out)
{
    for (size_t i = 0; i < n;) {
        if (s[i] == '"') {
            size_t k = i + 1;
            while (k < n && s[k] != '"') k += s[k] == '\\' ? 2 : 1;
            k = k < n ? k + 1 : n;
            ft_buf_add(out, s + i, k - i);
            i = k;
        } else if (s[i] == '-' || (s[i] >= '0' && s[i] <= '9')) {
            size_t k = i + 1;
            while (k < n && strchr("0123456789.eE+-", s[k]) && s[k]) k++;
            char number[24];
            int64_t x;
            bool real = false;
            for (size_t m = i; m < k; m++) real = real || s[m] == '.' || s[m] == 'e' || s[m] == 'E';
            ft_buf_add(out, s + i, k - i);
            if (k - i < sizeof number) memcpy(number, s + i, k - i), number[k - i] = 0;
            if (!real && (k - i >= sizeof number || !ft_parse_i64(number, INT64_MIN, INT64_MAX, &x))) ft_buf_adds(out, ".0");
            i = k;
        } else {
            ft_buf_addc(out, s[i++]);
        }
    }
}

static bool fault(struct ft_line_fault *f, enum ft_fault_kind kind, int64_t column, const char *text)
{
    f->kind = kind;
    f->column = column > 0 ? column : 1;
    size_t n = strlen(text);
    if (n >= sizeof f->text) n = sizeof f->text - 1;
    memcpy(f->text, text, n);
    f->text[n] = 0;
    return false;
}

static bool parse_fault(const struct ft_json_where *w, struct ft_line_fault *f)
{
    enum ft_fault_kind kind = FT_KIND_JSON;
    if (w->duplicate_key) kind = FT_KIND_DUPLICATE_KEY;
    else if (w->bad_utf8 || w->bad_escape || strstr(w->text, "control character") || strstr(w->text, "u0000")) kind = FT_KIND_UTF8;
    return fault(f, kind, w->column, strstr(w->text, "ALLOW_NUL") ? "\\u0000 must not stand in a string" : w->text);
}

bool ft_line_parse(const struct ft_line *line, struct ft_json **out, struct ft_line_fault *f)
{
    if (line->too_long) return fault(f, FT_KIND_LINE_TOO_LONG, 1, "the line is longer than 32 MiB");
    const size_t valid = ft_utf8_valid(line->text, line->n);
    if (valid < line->n) {
        char text[64];
        snprintf(text, sizeof text, "byte %02X is not valid UTF-8 here", (unsigned)(unsigned char)line->text[valid]);
        return fault(f, FT_KIND_UTF8, chars(line->text, valid) + 1, text);
    }
    struct ft_json *v = NULL;
    struct ft_json_where w = {0};
    struct ft_err err = {0};
    enum ft_code rc = ft_json_parse(line->text, line->n, FT_JSON_ANY_ROOT, &v, &w, &err);
    if (rc != FT_OK && w.big_integer) {
        struct ft_buf wide = {0};
        widen(line->text, line->n, &wide);
        memset(&w, 0, sizeof w);
        rc = ft_json_parse(ft_buf_str(&wide), wide.n, FT_JSON_ANY_ROOT, &v, &w, &err);
        ft_buf_fini(&wide);
    }
    if (rc != FT_OK) return parse_fault(&w, f);
    if (ft_json_is(v, FT_JSON_OBJECT)) {
        *out = v;
        return true;
    }
    char text[96];
    snprintf(text, sizeof text, "a record is a JSON object, this is %s", ft_json_type_name(v));
    ft_json_destroy(v);
    return fault(f, FT_KIND_NOT_OBJECT, 1, text);
}

/* ---- where a value stands: a scanner over text that is already known to be valid JSON ---- */

static size_t skip_space(const char *s, size_t n, size_t i)
{
    while (i < n && (s[i] == ' ' || s[i] == '\t' || s[i] == '\r' || s[i] == '\n')) i++;
    return i;
}

static size_t skip_string(const char *s, size_t n, size_t i)
{
    for (i++; i < n && s[i] != '"'; i++)
        if (s[i] == '\\') i++;
    return i < n ? i + 1 : n;
}

static size_t skip_value(const char *s, size_t n, size_t i)
{
    int depth = 0;
    do {
        i = skip_space(s, n, i);
        if (i >= n) return n;
        if (s[i] == '"') i = skip_string(s, n, i);
        else if (s[i] == '{' || s[i] == '[') depth++, i++;
        else if (s[i] == '}' || s[i] == ']') depth--, i++;
        else if (s[i] == ',' || s[i] == ':' || !s[i]) i++;
        else
            while (i < n && !strchr(",:]} \t\r\n", s[i])) i++;
    } while (depth > 0);
    return i;
}

/* Start of member `key` of the object or element of the array at i; n when there is none. */
static size_t step_into(const char *s, size_t n, size_t i, const char *key)
{
    i = skip_space(s, n, i);
    if (i >= n || (s[i] != '{' && s[i] != '[')) return n;
    const bool object = s[i] == '{';
    const size_t key_n = strlen(key);
    int64_t index = 0, want = -1;
    if (!object && !ft_parse_i64(key, 0, INT32_MAX, &want)) return n;
    for (i = skip_space(s, n, i + 1); i < n && s[i] != '}' && s[i] != ']'; index++) {
        bool hit = index == want;
        if (object) {
            const size_t end = skip_string(s, n, i);
            hit = end - i == key_n + 2 && !memcmp(s + i + 1, key, key_n);
            i = skip_space(s, n, end);
            if (i < n && s[i] == ':') i = skip_space(s, n, i + 1);
        }
        if (hit) return i;
        i = skip_space(s, n, skip_value(s, n, i));
        if (i < n && s[i] == ',') i = skip_space(s, n, i + 1);
    }
    return n;
}

int64_t ft_line_column(const struct ft_line *line, const char *const *path)
{
    size_t at = skip_space(line->text, line->n, 0);
    for (; *path; path++) {
        const size_t next = step_into(line->text, line->n, at, *path);
        if (next >= line->n) break;
        at = next;
    }
    return chars(line->text, at) + 1;
}
