/* data show: what the model will see. Trained parts are marked: in colour on a terminal, with ⟦…⟧ elsewhere. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "runtime/data/cmd_job.h"
#include "runtime/data/loader.h"
#include "runtime/data/report.h"

enum { OPT_N = 1, OPT_RECORD, OPT_PACK, OPT_LENGTHS, OPT_TOKENS, BARS = 16, WIDTH = 50 };

struct job {
    struct ft_data_job base;
    int64_t n, pack; /* records to show; -1: no pack asked for */
    const char *record_file;
    int64_t record_line;
    bool lengths, tokens, colour, found;
};

static void open_mark(const struct job *j) { fputs(j->colour ? "\033[32m" : "⟦", stdout); }
static void close_mark(const struct job *j) { fputs(j->colour ? "\033[0m" : "⟧", stdout); }

static void print_text(const struct job *j, const struct ft_sample_view *v)
{
    size_t at = 0;
    for (size_t i = 0; i < v->n_trained; i++) {
        fwrite(v->text + at, 1, v->trained[i].begin - at, stdout);
        open_mark(j);
        fwrite(v->text + v->trained[i].begin, 1, v->trained[i].end - v->trained[i].begin, stdout);
        close_mark(j);
        at = v->trained[i].end;
    }
    fwrite(v->text + at, 1, v->n - at, stdout);
    if (v->n && v->text[v->n - 1] != '\n') putchar('\n');
}

static void print_token(const struct ft_tokenizer *t, int32_t id, int32_t label, int64_t position, int64_t sample)
{
    struct ft_buf text = {0};
    struct ft_jw w = ft_jw_begin(&text);
    size_t n;
    const char *s = t ? ft_tokenizer_token(t, id, &n) : NULL;
    if (s) ft_jw_strn(&w, s, n);
    printf("%8d  %-24s  %8d  %6" PRId64 "  %6" PRId64 "\n", id, s ? ft_buf_str(&text) : "", label, position, sample);
    ft_buf_fini(&text);
}

static void print_head(void) { printf("%8s  %-24s  %8s  %6s  %6s\n", "id", "token", "label", "pos", "sample"); }

static bool visit(void *ctx, const char *path, int64_t line, const struct ft_ids *ids, const struct ft_sample_view *view,
                  const struct ft_sampler *s)
{
    struct job *j = ctx;
    if (j->record_line && (line != j->record_line || !ft_str_ends(path, j->record_file))) return true;
    int64_t trained = 0;
    for (size_t i = 1; i < ids->n; i++) trained += ids->labels[i] != FT_NOT_TRAINED;
    printf("── %s:%" PRId64 ": %zu tokens, %" PRId64 " trained\n", path, line, ids->n, trained);
    if (view) print_text(j, view);
    if (j->tokens || !view) {
        print_head();
        for (size_t i = 0; i < ids->n; i++)
            print_token(s ? s->tokenizer : NULL, ids->ids[i], i ? ids->labels[i] : FT_NOT_TRAINED, (int64_t)i, 0);
    }
    j->found = true;
    return !j->record_line && --j->n > 0;
}

static void histogram(const struct job *j, const struct ft_loaded *l)
{
    int64_t count[BARS] = {0}, most = 1;
    int32_t top = 1;
    for (size_t i = 0; i < l->n_lengths; i++)
        if (l->lengths[i] > top) top = l->lengths[i];
    const int32_t step = (top + BARS - 1) / BARS;
    for (size_t i = 0; i < l->n_lengths; i++) count[(l->lengths[i] - 1) / step]++;
    for (int i = 0; i < BARS; i++)
        if (count[i] > most) most = count[i];
    printf("tokens of %zu samples (seq_len %" PRId64 ")\n", l->n_lengths, j->base.options.seq_len);
    for (int i = 0; i < BARS; i++) {
        printf("%8d - %-8d %8" PRId64 " ", i * step + 1, (i + 1) * step, count[i]);
        for (int64_t k = 0; k < count[i] * WIDTH / most; k++) putchar('#');
        putchar('\n');
    }
}

static int show_records(struct job *j, const struct ft_command *self)
{
    const struct ft_load_how how = {.o = &j->base.options, .faults = &j->base.faults, .visit = j->lengths ? NULL : visit, .ctx = j};
    struct ft_loaded l;
    struct ft_err err = {0};
    bool named;
    if (ft_load(&how, &named, &l, &err) != FT_OK) {
        ft_data_job_refuse(&j->base, self, &err);
        return 2;
    }
    if (named && j->lengths) histogram(j, &l);
    ft_loaded_fini(&l);
    if (!j->record_line || j->found) return 0;
    (void)ft_fail(&err, FT_USAGE, "no record that is trained on stands at %s:%" PRId64, j->record_file, j->record_line);
    return ft_cmd_usage(self, &err);
}

static void print_pack(const struct job *j, const struct ft_row *r, const struct ft_tokenizer *t)
{
    printf("── row %" PRId64 ": %" PRId64 " tokens, %" PRId64 " samples, %" PRId64 " trained\n", j->pack, r->n_tokens,
           r->n_segments, r->n_trained);
    if (j->tokens) print_head();
    for (int64_t s = 0; s < r->n_segments; s++) {
        const int32_t from = r->cu_seqlens[s], to = r->cu_seqlens[s + 1];
        if (!j->tokens) printf("── sample %" PRId64 ": tokens %d to %d\n", s, from, to);
        for (int32_t i = from, end; i < to && !j->tokens && t; i = end) { /* runs of equal kind */
            const bool trained = r->labels[i] != FT_NOT_TRAINED;
            struct ft_buf text = {0};
            for (end = i + 1; end < to && (r->labels[end] != FT_NOT_TRAINED) == trained;) end++;
            ft_decode(t, r->ids + i, (size_t)(end - i), false, &text);
            if (trained) open_mark(j);
            fwrite(ft_buf_str(&text), 1, text.n, stdout);
            if (trained) close_mark(j);
            ft_buf_fini(&text);
        }
        for (int32_t i = from; i < to && (j->tokens || !t); i++) print_token(t, r->ids[i], r->labels[i], i - from, s);
        if (!j->tokens) putchar('\n');
    }
}

static int show_pack(struct job *j, const struct ft_command *self)
{
    struct ft_dataset *d = NULL;
    struct ft_tokenizer *t = NULL;
    struct ft_err err = {0};
    enum ft_code rc = ft_dataset_open(&j->base.options, FT_SPLIT_TRAIN, &j->base.faults, &d, &err);
    if (rc == FT_OK && !d) rc = ft_fail(&err, FT_CONFIG, "[data] train names no file");
    if (rc == FT_OK && j->base.fields.format != FT_FORMAT_TOKENS) rc = ft_tokenizer_load(j->base.options.model_dir, &t, &err);
    if (rc == FT_OK) {
        ft_dataset_epoch(d, 0);
        if (j->pack >= ft_dataset_n_rows(d))
            rc = ft_fail(&err, FT_USAGE, "the first pass has rows 0 to %" PRId64, ft_dataset_n_rows(d) - 1);
    }
    if (rc == FT_OK) {
        const struct ft_row r = ft_dataset_row(d, j->pack);
        print_pack(j, &r, t);
    } else {
        ft_data_job_refuse(&j->base, self, &err);
    }
    ft_tokenizer_destroy(t);
    ft_dataset_close(d);
    return rc == FT_OK ? 0 : 2;
}

static bool take(struct job *j, int id, const char *value, struct ft_err *err)
{
    if (id == OPT_LENGTHS) j->lengths = true;
    else if (id == OPT_TOKENS) j->tokens = true;
    else if (id == OPT_N)
        return ft_parse_i64(value, 1, INT64_MAX, &j->n) || ft_fail(err, FT_USAGE, "-n %s is no number of records", value) == FT_OK;
    else if (id == OPT_PACK)
        return ft_parse_i64(value, 0, INT64_MAX, &j->pack) || ft_fail(err, FT_USAGE, "--pack %s is no row", value) == FT_OK;
    else if (id == OPT_RECORD) {
        const char *colon = strrchr(value, ':');
        if (!colon || !ft_parse_i64(colon + 1, 1, INT64_MAX, &j->record_line))
            return ft_fail(err, FT_USAGE, "--record %s is not FILE:LINE", value) == FT_OK;
        j->record_file = ft_arena_strndup(j->base.arena, value, (size_t)(colon - value));
    } else {
        (void)ft_data_job_option(&j->base, id, value);
    }
    return true;
}

static int show_main(const struct ft_command *self, int argc, char **argv)
{
    struct job j = {.n = 3, .pack = -1};
    struct ft_err err = {0};
    struct ft_argv a = ft_argv_begin(self, argc, argv);
    const char *value;
    int status = -1;
    ft_data_job_begin(&j.base, argc);
    j.colour = isatty(1) && !getenv("NO_COLOR");
    for (int id; status < 0 && (id = ft_argv_next(&a, &value, &err)) != FT_ARG_END;) {
        if (id == FT_ARG_HELP) status = ft_cmd_help(self);
        else if (id == FT_ARG_BAD || !take(&j, id, value, &err)) status = ft_cmd_usage(self, &err);
    }
    if (status < 0) status = ft_data_job_read(&j.base, self);
    if (status < 0) status = j.pack >= 0 ? show_pack(&j, self) : show_records(&j, self);
    ft_data_job_end(&j.base);
    return status;
}

static const struct ft_option options[] = {
    FT_DATA_JOB_OPTIONS,
    {.name = "records", .letter = 'n', .arg = "N", .help = "how many records (3)", .id = OPT_N},
    {.name = "record", .arg = "FILE:LINE", .help = "one record", .id = OPT_RECORD},
    {.name = "pack", .arg = "I", .help = "row I of the first pass, with the borders of its samples", .id = OPT_PACK},
    {.name = "lengths", .help = "a histogram of lengths", .id = OPT_LENGTHS},
    {.name = "tokens", .help = "a table of tokens: id, text, label, position, sample", .id = OPT_TOKENS},
};

const struct ft_command ft_cmd_show = {.name = "show",
                                       .usage = "JOB.ini… [-n N] [--record FILE:LINE] [--pack I] [--lengths] [--tokens]",
                                       .summary = "what the model will see: texts with their trained parts",
                                       .options = options,
                                       .n_options = sizeof options / sizeof *options,
                                       .main = show_main};
