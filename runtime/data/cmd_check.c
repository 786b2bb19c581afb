/* data check: reads everything, reports all faults and what was found; trains nothing, writes nothing. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/data/cmd_job.h"
#include "runtime/data/loader.h"
#include "runtime/data/pack.h"
#include "runtime/data/report.h"

enum { OPT_NEAR = 1, OPT_REQUIRE, OPT_FACTS, FEW_RECORDS = 200, FEW_TOKENS = 50000 };

struct fill {
    int64_t packs;
    double fill;
};

/* Rows of one pass in file order (the count hardly depends on the order). */
static struct fill pack_fill(const struct ft_data_job *j, const struct ft_loaded *l)
{
    const int64_t n = (int64_t)l->samples.n;
    struct fill f = {n, 0};
    if (j->fields.packing != FT_PACKING_NO && n) {
        int32_t *lengths = ft_xcalloc((size_t)n, sizeof *lengths);
        int64_t *order = ft_xcalloc((size_t)n, sizeof *order);
        for (int64_t i = 0; i < n; i++) lengths[i] = l->samples.v[i].n, order[i] = i;
        struct ft_packs p = ft_pack(lengths, order, n, (int32_t)j->options.seq_len, FT_PACK_WINDOW);
        f.packs = p.n_packs;
        ft_packs_fini(&p);
        free(lengths);
        free(order);
    }
    if (f.packs) f.fill = (double)l->samples.n_tokens / ((double)f.packs * (double)j->options.seq_len);
    return f;
}

static double share_of(int64_t part, int64_t whole) { return whole ? 100.0 * (double)part / (double)whole : 0; }

static void print_bos(const struct ft_loaded *l)
{
    const struct ft_sample_counts *c = &l->counts;
    if (l->bos < 0) printf("  BOS: the model names none\n");
    else
        printf("  BOS: id %d, %s; there already in %" PRId64 " records, added to %" PRId64 ", one of two removed in %" PRId64 "\n",
               l->bos, l->wants_bos ? "wanted by the tokenizer" : "not added by the tokenizer", c->bos_there, c->bos_added,
               c->bos_removed);
}

static void print_note(void *ctx, const char *text)
{
    (void)ctx;
    printf("  note: %s\n", text);
}

static void write_note(void *ctx, const char *text) { ft_jw_str(ctx, text); }

static void print_split(const struct ft_data_job *j, enum ft_split split, const struct ft_loaded *l)
{
    const struct ft_dataset_facts *f = &l->facts;
    const struct fill fill = pack_fill(j, l);
    printf("%s: %zu file%s\n", ft_split_name(split), l->n_files, l->n_files == 1 ? "" : "s");
    for (size_t i = 0; i < l->n_files; i++) printf("  %s (%s)\n", l->paths[i], ft_format_name(l->formats[i]));
    printf("  records: %" PRId64 " read, %" PRId64 " kept; left out: %" PRId64 " faulty, %" PRId64 " repeated, %" PRId64
           " too long; %" PRId64 " blank lines\n",
           f->records, f->kept, f->faulty, j->fields.dedupe == FT_DEDUPE_EXACT ? f->duplicates : 0, f->overlong - f->truncated,
           f->blank);
    if (l->same_prompt) printf("  same prompt, another answer: %" PRId64 " records\n", l->same_prompt);
    printf("  tokens: %" PRId64 ", trained %" PRId64 " (%.1f %%); longest sample %" PRId64 ", seq_len %" PRId64 "\n", f->tokens,
           f->trained_tokens, share_of(f->trained_tokens, f->tokens), f->longest, j->options.seq_len);
    printf("  rows: %" PRId64 ", filled %.1f %%%s\n", fill.packs, 100 * fill.fill,
           j->fields.packing != FT_PACKING_NO ? " (packed)" : "");
    if (l->template_origin)
        printf("  template: %s\n    sha256 %s, %s {%% generation %%}\n", l->template_origin, l->template_sha,
               l->template_generation ? "has" : "without");
    if (l->counts.answers) print_bos(l);
    if (f->terminator_id >= 0)
        printf("  terminator %s (%d): trained in %" PRId64 " of %" PRId64 " answers; stop token of generation_config: %s\n",
               f->terminator, f->terminator_id, l->counts.terminated, l->counts.answers,
               l->terminator_is_stop ? "yes" : "no (export adds it)");
    for (size_t i = 0; i < l->n_notes && !j->quiet; i++) printf("  note: %s\n", l->notes[i]);
    if (!j->quiet) ft_statistics_notes(&l->statistics, print_note, NULL);
    if (split == FT_SPLIT_TRAIN && !j->quiet && (f->kept < FEW_RECORDS || f->trained_tokens < FEW_TOKENS))
        printf("  note: a small set (%" PRId64 " samples, %" PRId64
               " trained tokens): consider LoRA with a small rank, fewer epochs, general data beside it\n",
               f->kept, f->trained_tokens);
}

static void write_split(const struct ft_data_job *j, enum ft_split split, const struct ft_loaded *l, struct ft_jw *w)
{
    const struct ft_dataset_facts *f = &l->facts;
    const struct fill fill = pack_fill(j, l);
    ft_jw_object(w);
    ft_jw_kstr(w, "split", ft_split_name(split));
    ft_jw_key(w, "files");
    ft_jw_array(w);
    for (size_t i = 0; i < l->n_files; i++) {
        ft_jw_object(w);
        ft_jw_kstr(w, "path", l->paths[i]);
        ft_jw_kstr(w, "format", ft_format_name(l->formats[i]));
        ft_jw_end(w);
    }
    ft_jw_end(w);
    ft_jw_kint(w, "records", f->records);
    ft_jw_kint(w, "kept", f->kept);
    ft_jw_kint(w, "faulty", f->faulty);
    ft_jw_kint(w, "duplicates", f->duplicates);
    ft_jw_kint(w, "overlong", f->overlong);
    ft_jw_kint(w, "truncated", f->truncated);
    ft_jw_kint(w, "blank", f->blank);
    ft_jw_kint(w, "same_prompt", l->same_prompt);
    ft_jw_kint(w, "tokens", f->tokens);
    ft_jw_kint(w, "trained_tokens", f->trained_tokens);
    ft_jw_kint(w, "longest", f->longest);
    ft_jw_kint(w, "rows", fill.packs);
    ft_jw_kreal(w, "fill", fill.fill);
    ft_jw_kint(w, "answers", l->counts.answers);
    ft_jw_kint(w, "terminated", l->counts.terminated);
    ft_jw_kint(w, "terminator_id", f->terminator_id);
    ft_jw_kstr(w, "terminator", f->terminator_id >= 0 ? f->terminator : NULL);
    ft_jw_kstr(w, "template", l->template_origin);
    ft_jw_kstr(w, "template_sha256", l->template_sha);
    ft_jw_key(w, "notes");
    ft_jw_array(w);
    for (size_t i = 0; i < l->n_notes; i++) ft_jw_str(w, l->notes[i]);
    ft_statistics_notes(&l->statistics, write_note, w);
    ft_jw_end(w);
    ft_jw_end(w);
}

static void write_faults(const struct ft_data_job *j, const char *error, struct ft_jw *w)
{
    ft_jw_end(w);
    ft_jw_key(w, "faults");
    ft_jw_array(w);
    for (size_t i = 0; i < j->faults.n; i++) {
        const struct ft_fault *x = &j->faults.v[i];
        ft_jw_object(w);
        ft_jw_kstr(w, "severity", x->severity == FT_SEV_ERROR ? "error" : "warning");
        ft_jw_kstr(w, "file", x->at.file);
        ft_jw_kint(w, "line", x->at.line);
        ft_jw_kint(w, "column", x->at.column);
        ft_jw_kstr(w, "text", x->text);
        ft_jw_end(w);
    }
    ft_jw_end(w);
    ft_jw_kstr(w, "error", error);
    ft_jw_end(w);
}

static int check_all(struct ft_data_job *j, const struct ft_command *self)
{
    struct ft_buf out = {0};
    struct ft_jw w = ft_jw_begin(&out);
    struct ft_err err = {0};
    int status = 0;
    char first[FT_ERR_TEXT] = "";
    ft_jw_object(&w);
    ft_jw_kint(&w, "schema", 1);
    ft_jw_key(&w, "splits");
    ft_jw_array(&w);
    for (int split = FT_SPLIT_TRAIN; split <= FT_SPLIT_GENERAL; split++) { /* all of them: every fault in one run */
        const struct ft_load_how how = {
            .o = &j->options, .split = (enum ft_split)split, .faults = &j->faults, .check_overlap = true, .statistics = true};
        struct ft_loaded l;
        bool named;
        if (ft_load(&how, &named, &l, &err) != FT_OK) {
            if (!first[0]) memcpy(first, err.text, sizeof first);
            if (!j->json) ft_data_job_refuse(j, self, &err), j->faults.n = 0;
            status = 2;
            continue;
        }
        if (!named) continue;
        double *weights = NULL;
        if (split == FT_SPLIT_TRAIN && ft_data_weights(&j->fields, l.n_files, &weights, &err) != FT_OK) {
            if (!first[0]) memcpy(first, err.text, sizeof first);
            if (!j->json) ft_data_job_refuse(j, self, &err), j->faults.n = 0;
            status = 2;
        }
        free(weights);
        if (j->json) write_split(j, (enum ft_split)split, &l, &w);
        else print_split(j, (enum ft_split)split, &l);
        ft_loaded_fini(&l);
    }
    if (!j->json && j->faults.n) ft_report_print(stderr, &j->faults);
    write_faults(j, first[0] ? first : NULL, &w);
    if (j->json) printf("%s\n", ft_buf_str(&out));
    ft_buf_fini(&out);
    return status;
}

static int check_main(const struct ft_command *self, int argc, char **argv)
{
    struct ft_data_job j;
    struct ft_err err = {0};
    struct ft_argv a = ft_argv_begin(self, argc, argv);
    const char *value;
    int status = -1;
    ft_data_job_begin(&j, argc);
    for (int id; status < 0 && (id = ft_argv_next(&a, &value, &err)) != FT_ARG_END;) {
        if (id == FT_ARG_HELP) status = ft_cmd_help(self);
        else if (id == FT_ARG_BAD) status = ft_cmd_usage(self, &err);
        else if (id == OPT_NEAR || id == OPT_REQUIRE || id == OPT_FACTS) {
            (void)ft_fail(&err, FT_UNSUPPORTED, "--%s is not built yet",
                          id == OPT_NEAR      ? "near"
                          : id == OPT_REQUIRE ? "require"
                                              : "facts-in-prompt");
            status = ft_cmd_usage(self, &err);
        } else {
            (void)ft_data_job_option(&j, id, value);
        }
    }
    if (status < 0) status = ft_data_job_read(&j, self);
    if (status < 0) status = check_all(&j, self);
    ft_data_job_end(&j);
    return status;
}

static const struct ft_option options[] = {
    FT_DATA_JOB_OPTIONS,
    {.name = "json", .help = "one JSON object instead of text", .id = FT_DATA_OPT_JSON},
    {.name = "near", .help = "also near duplicates (not built yet)", .id = OPT_NEAR},
    {.name = "require", .arg = "REGEX", .help = "list answers that do not match (not built yet)", .id = OPT_REQUIRE},
    {.name = "facts-in-prompt", .help = "list facts of answers that the prompt has not (not built yet)", .id = OPT_FACTS},
};

const struct ft_command ft_cmd_check = {.name = "check",
                                        .usage = "JOB.ini… [--set SECTION.KEY=VALUE]… [--json]",
                                        .summary = "every fault of the training data, and what it holds",
                                        .text = "Reads all files of [data] as training does. Exit 0: clean, 2: faults.",
                                        .options = options,
                                        .n_options = sizeof options / sizeof *options,
                                        .main = check_main};
