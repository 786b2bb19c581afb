/* data prepare: builds the prepared data ahead of a run, or writes the normalised records as messages. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/fd.h"
#include "runtime/data/cmd_job.h"
#include "runtime/data/files.h"
#include "runtime/data/prepared.h"
#include "runtime/data/report.h"

enum { OPT_WRITE = 1 };

/* One record of any chat format as {"messages": …, "tools": …}. */
static bool write_record(struct ft_convo *c, FILE *out)
{
    struct ft_buf line = {0};
    const struct ft_dumps how = {.indent = -1};
    const char *why = NULL;
    ft_buf_adds(&line, "{\"messages\": ");
    bool good = ft_v_dumps(c->messages, &how, &line, &why);
    if (good && c->tools.type == FT_V_LIST) {
        ft_buf_adds(&line, ", \"tools\": ");
        good = ft_v_dumps(c->tools, &how, &line, &why);
    }
    ft_buf_adds(&line, "}\n");
    good = good && fwrite(line.data, 1, line.n, out) == line.n;
    ft_buf_fini(&line);
    return good;
}

static enum ft_code convert_file(struct ft_data_job *j, const char *path, struct ft_report *report, FILE *out, int64_t *n,
                                 struct ft_err *err)
{
    struct ft_jsonl *in = NULL;
    struct ft_line line;
    struct ft_convo c = {0};
    enum ft_data_format format = (enum ft_data_format)j->fields.format;
    enum ft_code rc = format == FT_FORMAT_AUTO ? ft_peek_format(&j->fields, path, &format, err) : FT_OK;
    if (rc == FT_OK && (format == FT_FORMAT_TEXT || format == FT_FORMAT_TOKENS))
        rc = ft_fail(err, FT_CONFIG, "'%s': format = %s has no messages to write", path, ft_format_name(format));
    if (rc == FT_OK) rc = ft_jsonl_open(path, &in, err);
    if (rc != FT_OK) return rc;
    while (ft_jsonl_next(in, &line, err)) {
        struct ft_json *v = NULL;
        struct ft_line_fault f;
        const bool good = ft_line_parse(&line, &v, &f) && ft_record_read(format, &j->fields.columns, &line, v, &c, &f);
        if (!good) (void)ft_report_add(report, f.kind, path, line.number, f.column, "%s", f.text);
        else if (!write_record(&c, out)) rc = ft_fail(err, FT_IO, "cannot write: %s", strerror(errno));
        else ++*n;
        ft_json_destroy(v);
        if (rc != FT_OK) break;
    }
    if (ft_jsonl_failed(in)) rc = FT_IO;
    ft_jsonl_close(in);
    ft_convo_fini(&c);
    return rc;
}

static int convert(struct ft_data_job *j, const struct ft_command *self, const char *path)
{
    struct ft_err err = {0};
    struct ft_files files = {0};
    struct ft_report report = {.faults = &j->faults, .limit = j->options.max_faults, .skip = ft_data_skip(&j->fields)};
    int64_t n = 0;
    FILE *out = fopen(path, "we");
    enum ft_code rc = out ? ft_files_find(&j->fields.train, "train", &files, &err)
                          : ft_fail(&err, FT_IO, "cannot write '%s': %s", path, strerror(errno));
    for (size_t i = 0; i < files.n && rc == FT_OK; i++) rc = convert_file(j, files.v[i], &report, out, &n, &err);
    if (out && fclose(out) && rc == FT_OK) rc = ft_fail(&err, FT_IO, "cannot write '%s': %s", path, strerror(errno));
    if (rc == FT_OK && report.n > report.skipped) {
        struct ft_buf text = {0};
        ft_report_summary(&report, &text);
        rc = ft_fail(&err, FT_DATA, "%s", ft_buf_str(&text));
        ft_buf_fini(&text);
    }
    ft_files_fini(&files);
    if (rc != FT_OK) {
        ft_data_job_refuse(j, self, &err);
        if (out) (void)unlink(path);
        return 2;
    }
    ft_report_print(stderr, &j->faults);
    printf("%" PRId64 " records written to %s\n", n, path);
    return 0;
}

static int prepare_all(struct ft_data_job *j, const struct ft_command *self)
{
    struct ft_err err = {0};
    if (!j->fields.cache) {
        (void)ft_fail(&err, FT_CONFIG, "where to? [data] cache is not set");
        (void)ft_fix(&err, "set cache = FOLDER in [data]");
        return ft_cmd_usage(self, &err);
    }
    for (int split = FT_SPLIT_TRAIN; split <= FT_SPLIT_GENERAL; split++) {
        const struct ft_load_how how = {
            .o = &j->options, .split = (enum ft_split)split, .faults = &j->faults, .check_overlap = true};
        struct ft_loaded l;
        bool named, built;
        char key[33];
        if (ft_prepared_load(&how, j->fields.cache, &named, &l, &built, &err) != FT_OK ||
            ft_prepared_key(&j->options, how.split, key, &err) != FT_OK) {
            ft_data_job_refuse(j, self, &err);
            return 2;
        }
        if (!named) continue;
        const struct ft_dataset_facts *f = &l.facts;
        printf("%s: %s/%s (%s)\n", ft_split_name(how.split), j->fields.cache, key, built ? "written" : "was there");
        printf("  records: %" PRId64 " read, %" PRId64 " kept; left out: %" PRId64 " faulty, %" PRId64 " repeated, %" PRId64
               " too long\n",
               f->records, f->kept, f->faulty, j->fields.dedupe == FT_DEDUPE_EXACT ? f->duplicates : 0, f->overlong - f->truncated);
        printf("  tokens: %" PRId64 ", trained %" PRId64 "; longest sample %" PRId64 "\n", f->tokens, f->trained_tokens,
               f->longest);
        if (f->terminator_id >= 0) printf("  terminator %s (%d)\n", f->terminator, f->terminator_id);
        for (size_t i = 0; i < l.n_notes && !j->quiet; i++) printf("  note: %s\n", l.notes[i]);
        ft_loaded_fini(&l);
    }
    ft_report_print(stderr, &j->faults);
    return 0;
}

static int prepare_main(const struct ft_command *self, int argc, char **argv)
{
    struct ft_data_job j;
    struct ft_err err = {0};
    struct ft_argv a = ft_argv_begin(self, argc, argv);
    const char *value, *write_to = NULL;
    int status = -1;
    ft_data_job_begin(&j, argc);
    for (int id; status < 0 && (id = ft_argv_next(&a, &value, &err)) != FT_ARG_END;) {
        if (id == FT_ARG_HELP) status = ft_cmd_help(self);
        else if (id == FT_ARG_BAD) status = ft_cmd_usage(self, &err);
        else if (id == OPT_WRITE) write_to = value;
        else (void)ft_data_job_option(&j, id, value);
    }
    if (status < 0) status = ft_data_job_read(&j, self);
    if (status < 0) status = write_to ? convert(&j, self, write_to) : prepare_all(&j, self);
    ft_data_job_end(&j);
    return status;
}

static const struct ft_option options[] = {
    FT_DATA_JOB_OPTIONS,
    {.name = "write-jsonl", .arg = "OUT", .help = "write the normalised records of train as messages instead", .id = OPT_WRITE},
};

const struct ft_command ft_cmd_prepare = {
    .name = "prepare",
    .usage = "JOB.ini… [--write-jsonl OUT]",
    .summary = "prepared data ahead of a run, or records as messages",
    .text = "Writes what training reads to the folder [data] cache. Exit 0: written or already there, 2: faults.",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .main = prepare_main};
