/* data encode, data decode: JSON lines of texts to ids and back, as training does it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/fd.h"
#include "runtime/data/cmd.h"
#include "runtime/data/jsonl.h"
#include "runtime/token/token.h"

enum { OPT_MODEL = 1, OPT_NO_SPECIAL, OPT_TEXT, OPT_SKIP_SPECIAL };

struct job {
    struct ft_tokenizer *tokenizer;
    struct ft_encoder *encoder;
    bool no_special, skip_special;
    struct ft_tokens tokens;
    int32_t *ids;
    size_t ids_cap;
    struct ft_buf out;
    int64_t faults;
};

static bool flush(struct job *j)
{
    struct ft_err err = {0};
    const bool good = ft_write_all(1, ft_buf_str(&j->out), j->out.n, &err) == FT_OK;
    if (!good) ft_err_print(stderr, "fttrain data", &err);
    ft_buf_clear(&j->out);
    return good;
}

static void refuse(struct job *j, const char *file, int64_t line, int64_t column, enum ft_fault_kind kind, const char *text)
{
    if (++j->faults <= FT_REPORT_LIMIT)
        fprintf(stderr, "%s:%" PRId64 ":%" PRId64 ": %s: %s\n", file, line, column, ft_fault_kind_name(kind), text);
}

/* The text of one token: its own bytes where they are UTF-8, as the vocabulary writes it otherwise. */
static void write_ids(struct job *j)
{
    const size_t from = j->out.n;
    struct ft_jw w = ft_jw_begin(&j->out);
    ft_jw_object(&w);
    ft_jw_key(&w, "ids");
    ft_jw_array(&w);
    for (size_t i = 0; i < j->tokens.n; i++) ft_jw_int(&w, j->tokens.v[i].id);
    ft_jw_end(&w);
    ft_jw_key(&w, "tokens");
    ft_jw_array(&w);
    for (size_t i = 0; i < j->tokens.n; i++) {
        size_t n;
        const char *s = ft_tokenizer_token(j->tokenizer, j->tokens.v[i].id, &n);
        if (s) ft_jw_strn(&w, s, n);
        else ft_jw_null(&w);
    }
    ft_jw_end(&w);
    ft_jw_end(&w);
    ft_cmd_end_line(&j->out, from);
}

static bool encode_text(struct job *j, const char *text, size_t n, struct ft_err *err)
{
    const struct ft_encode_how how = {.flags = j->no_special ? 0 : FT_ENCODE_POST};
    j->tokens.n = 0;
    if (ft_encode(j->encoder, text, n, &how, &j->tokens, err) != FT_OK) return false;
    write_ids(j);
    return true;
}

static void encode_line(struct job *j, const char *file, const struct ft_line *line)
{
    struct ft_json *v = NULL;
    struct ft_line_fault f;
    struct ft_err err = {0};
    if (!ft_line_parse(line, &v, &f)) {
        refuse(j, file, line->number, f.column, f.kind, f.text);
        return;
    }
    const struct ft_json *text = ft_json_get(v, "text");
    if (!text) refuse(j, file, line->number, 1, FT_KIND_MISSING_FIELD, "no field text");
    else if (!ft_json_is(text, FT_JSON_STRING)) refuse(j, file, line->number, 1, FT_KIND_WRONG_TYPE, "text must be a string");
    else if (!encode_text(j, ft_json_str(text), ft_json_str_len(text), &err))
        refuse(j, file, line->number, 1, FT_KIND_WRONG_TYPE, err.text);
    ft_json_destroy(v);
}

static bool take_ids(struct job *j, const struct ft_json *ids, size_t *n)
{
    if (!ft_json_is(ids, FT_JSON_ARRAY)) return false;
    *n = ft_json_count(ids);
    ft_grow(&j->ids, &j->ids_cap, *n + 1, sizeof *j->ids);
    for (size_t i = 0; i < *n; i++) {
        const struct ft_json *v = ft_json_at(ids, i);
        const int64_t id = ft_json_int(v, -1);
        size_t len;
        if (!ft_json_is(v, FT_JSON_INT) || id < 0 || id > INT32_MAX || !ft_tokenizer_token(j->tokenizer, (int32_t)id, &len))
            return false;
        j->ids[i] = (int32_t)id;
    }
    return true;
}

static void decode_line(struct job *j, const char *file, const struct ft_line *line)
{
    struct ft_json *v = NULL;
    struct ft_line_fault f;
    size_t n = 0;
    if (!ft_line_parse(line, &v, &f)) {
        refuse(j, file, line->number, f.column, f.kind, f.text);
        return;
    }
    const struct ft_json *ids = ft_json_get(v, "ids");
    if (!ids) refuse(j, file, line->number, 1, FT_KIND_MISSING_FIELD, "no field ids");
    else if (!take_ids(j, ids, &n))
        refuse(j, file, line->number, 1, FT_KIND_BAD_ID, "ids must be an array of ids that the vocabulary has");
    else {
        struct ft_buf text = {0};
        ft_decode(j->tokenizer, j->ids, n, j->skip_special, &text);
        const size_t from = j->out.n;
        struct ft_jw w = ft_jw_begin(&j->out);
        ft_jw_object(&w);
        ft_jw_key(&w, "text");
        ft_jw_strn(&w, ft_buf_str(&text), text.n);
        ft_jw_end(&w);
        ft_cmd_end_line(&j->out, from);
        ft_buf_fini(&text);
    }
    ft_json_destroy(v);
}

static int run_file(struct job *j, const char *path, void (*take)(struct job *, const char *, const struct ft_line *))
{
    struct ft_jsonl *in = NULL;
    struct ft_line line;
    struct ft_err err = {0};
    if (ft_jsonl_open(path, &in, &err) != FT_OK) {
        ft_err_print(stderr, "fttrain data", &err);
        return 2;
    }
    const char *name = ft_str_eq(path, "-") ? "(stdin)" : path;
    bool good = true;
    while (good && ft_jsonl_next(in, &line, &err)) {
        take(j, name, &line);
        if (j->out.n > (1 << 16)) good = flush(j);
    }
    if (ft_jsonl_failed(in)) {
        ft_err_print(stderr, "fttrain data", &err);
        good = false;
    }
    ft_jsonl_close(in);
    return good ? 0 : 2;
}

static int finish(struct job *j, int status)
{
    if (!flush(j)) status = 2;
    if (j->faults > FT_REPORT_LIMIT) fprintf(stderr, "%" PRId64 " faulty lines, %d shown\n", j->faults, FT_REPORT_LIMIT);
    ft_tokens_fini(&j->tokens);
    free(j->ids);
    ft_buf_fini(&j->out);
    ft_encoder_destroy(j->encoder);
    ft_tokenizer_destroy(j->tokenizer);
    return j->faults ? 2 : status;
}

static int run(const struct ft_command *self, int argc, char **argv,
               void (*take)(struct job *, const char *, const struct ft_line *))
{
    struct job j = {0};
    struct ft_err err = {0};
    struct ft_argv a = ft_argv_begin(self, argc, argv);
    const char *value, *model = NULL, *text = NULL, **files = ft_xcalloc((size_t)argc + 1, sizeof *files);
    size_t n_files = 0;
    int status = -1;
    for (int id; status < 0 && (id = ft_argv_next(&a, &value, &err)) != FT_ARG_END;) {
        if (id == FT_ARG_HELP) status = ft_cmd_help(self);
        else if (id == FT_ARG_BAD) status = ft_cmd_usage(self, &err);
        else if (id == OPT_MODEL) model = value;
        else if (id == OPT_TEXT) text = value;
        else if (id == OPT_NO_SPECIAL) j.no_special = true;
        else if (id == OPT_SKIP_SPECIAL) j.skip_special = true;
        else files[n_files++] = value;
    }
    if (status < 0 && !model) {
        (void)ft_fail(&err, FT_USAGE, "which vocabulary?");
        (void)ft_fix(&err, "give --model DIR or --model tokenizer.json");
        status = ft_cmd_usage(self, &err);
    }
    if (status < 0 && ft_tokenizer_load(model, &j.tokenizer, &err) != FT_OK) status = ft_cmd_usage(self, &err);
    if (status < 0) {
        status = 0;
        j.encoder = ft_encoder_create(j.tokenizer);
        if (text && !encode_text(&j, text, strlen(text), &err)) status = ft_cmd_usage(self, &err);
        if (!text && !n_files) files[n_files++] = "-";
        for (size_t i = 0; i < n_files && !status; i++) status = run_file(&j, files[i], take);
    }
    free(files);
    return finish(&j, status);
}

static int encode_main(const struct ft_command *self, int argc, char **argv) { return run(self, argc, argv, encode_line); }
static int decode_main(const struct ft_command *self, int argc, char **argv) { return run(self, argc, argv, decode_line); }

static const struct ft_option encode_options[] = {
    {.name = "model", .arg = "DIR|FILE", .help = "model folder or tokenizer.json", .id = OPT_MODEL},
    {.name = "no-special", .help = "without the tokens that the post-processor adds", .id = OPT_NO_SPECIAL},
    {.name = "text", .arg = "STRING", .help = "one text instead of files", .id = OPT_TEXT},
};
static const struct ft_option decode_options[] = {
    {.name = "model", .arg = "DIR|FILE", .help = "model folder or tokenizer.json", .id = OPT_MODEL},
    {.name = "skip-special", .help = "leave special tokens out", .id = OPT_SKIP_SPECIAL},
};

const struct ft_command ft_cmd_encode = {
    .name = "encode",
    .usage = "--model DIR|FILE [--no-special] [--text STRING | FILE…]",
    .summary = "texts to token ids",
    .text = "Reads lines {\"text\": …} from files or stdin and writes one line {\"ids\", \"tokens\"} each.",
    .options = encode_options,
    .n_options = sizeof encode_options / sizeof *encode_options,
    .main = encode_main};
const struct ft_command ft_cmd_decode = {
    .name = "decode",
    .usage = "--model DIR|FILE [--skip-special] [FILE…]",
    .summary = "token ids to texts",
    .text = "Reads lines {\"ids\": […]} from files or stdin and writes one line {\"text\"} each.",
    .options = decode_options,
    .n_options = sizeof decode_options / sizeof *decode_options,
    .main = decode_main};
