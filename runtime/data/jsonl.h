/* Reading JSON lines, one record at a time, with bounded memory.
 *
 *  1. ft_jsonl_open()     refuses what is no JSONL file by its name or first bytes (INI, YAML, zstd, binary); gzip files are unpacked
 *  2. ft_jsonl_next()     the next line that is not blank
 *  3. ft_jsonl_parse()    the line as a JSON object, or a fault kind with its column
 *  4. ft_jsonl_close()
 *
 * A file that begins with '[' is one JSON array: its elements are the records, numbered by the line they begin on.
 * A line ends at byte 0A; a 0D before it is dropped; a UTF-8 byte order mark at the start of the file is skipped. A line beyond
 * FT_JSONL_LINE bytes is read to its end without being stored. One thread. */
#ifndef FT_RUNTIME_DATA_JSONL_H
#define FT_RUNTIME_DATA_JSONL_H

#include "base/json.h"
#include "runtime/data/report.h"

enum { FT_JSONL_LINE = 32 << 20 };

struct ft_jsonl;

struct ft_line {
    const char *text; /* (n) without its end; valid until the next call */
    size_t n;
    int64_t number; /* from 1 */
    bool too_long;  /* text is empty then */
};

struct ft_line_fault {
    enum ft_fault_kind kind;
    int64_t column; /* in characters from 1 */
    char text[256];
};

/* path "-": standard input. */
enum ft_code ft_jsonl_open(const char *path, struct ft_jsonl **out, struct ft_err *err) FT_MUST_CHECK;
void ft_jsonl_close(struct ft_jsonl *j);
/* false: end of the file, or a read error (then *err has it and ft_jsonl_failed() is true). */
bool ft_jsonl_next(struct ft_jsonl *j, struct ft_line *out, struct ft_err *err);
bool ft_jsonl_failed(const struct ft_jsonl *j);
int64_t ft_jsonl_blank(const struct ft_jsonl *j); /* blank lines so far */
int64_t ft_jsonl_bytes(const struct ft_jsonl *j); /* bytes read so far */

/* The line as an object (owned by the caller), or false with the fault. Integers beyond 64 bit become reals. */
bool ft_line_parse(const struct ft_line *line, struct ft_json **out, struct ft_line_fault *fault);

/* Column (characters, from 1) of the value that a path of keys leads to, e.g. "messages", "2", "role" (a number is an index);
 * ends with NULL. Where the path stops early, the column of the last value found; 1 when nothing is found. */
int64_t ft_line_column(const struct ft_line *line, const char *const *path);

#endif
