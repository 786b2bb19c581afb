#include "runtime/data/dataset.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/data/files.h"
#include "runtime/data/record_tokens.h"
#include "runtime/data/samples.h"

struct ft_dataset {
    struct ft_arena *arena;
    struct ft_samples samples;
    struct ft_dataset_facts facts;
    int64_t *perm;    /* (samples) row i of the current order */
    int32_t (*cu)[2]; /* (samples) cumulative lengths of a row of one sample */
    uint64_t seed;
    bool shuffle;
    const char **names;
    size_t n_files;
    const char **notes;
    size_t n_notes, notes_cap;
};

/* What one pass over the files needs. */
struct reader {
    const struct ft_dataset_options *o;
    struct ft_dataset *d;
    struct ft_report report;
    struct ft_keyset seen;
    struct ft_ids ids;
    double share;    /* valid = P%: records that go to valid */
    bool keep_share; /* this split is the cut one */
    int32_t file;
    const char *path;
};

static void note(struct ft_dataset *d, const char *text)
{
    ft_grow(&d->notes, &d->notes_cap, d->n_notes + 1, sizeof *d->notes);
    d->notes[d->n_notes++] = ft_arena_strdup(d->arena, text);
}

/* Does `overlong` keep the sample (perhaps cut)? */
static bool fit_length(struct reader *r, const struct ft_line *line, struct ft_ids *s)
{
    const size_t top = (size_t)r->o->seq_len;
    if (s->n <= top) return true;
    if (r->o->fields->overlong == FT_OVERLONG_REFUSE) {
        (void)ft_report_add(&r->report, FT_KIND_OVERLONG, r->path, line->number, 1, "the sample has %zu tokens, seq_len is %zu",
                            s->n, top);
        return false;
    }
    r->d->facts.overlong++;
    /* A cut must lie inside a trained answer: the token before it and the one behind it are trained. */
    if (r->o->fields->overlong == FT_OVERLONG_TRUNCATE && top > 1 && s->labels[top - 1] != FT_NOT_TRAINED &&
        s->labels[top] != FT_NOT_TRAINED) {
        s->n = top;
        r->d->facts.truncated++;
        return true;
    }
    return false;
}

static void take_sample(struct reader *r, const struct ft_line *line, struct ft_ids *s)
{
    struct ft_hash128 key = ft_hash_chain((struct ft_hash128){0, 0}, s->ids, s->n * sizeof *s->ids);
    if (r->share > 0 && (((double)(key.hi % 10000) < 10000 * r->share) != r->keep_share)) return;
    key = ft_hash_chain(key, s->labels, s->n * sizeof *s->labels);
    if (r->o->fields->dedupe != FT_DEDUPE_NO && !ft_keyset_add(&r->seen, key)) {
        r->d->facts.duplicates++;
        if (r->o->fields->dedupe == FT_DEDUPE_EXACT) return;
    }
    if (!fit_length(r, line, s)) return;
    if (!ft_samples_add(&r->d->samples, s->ids, s->labels, (int32_t)s->n, r->file, line->number)) r->d->facts.untrained++;
}

static void take_line(struct reader *r, const struct ft_line *line)
{
    struct ft_json *v = NULL;
    struct ft_line_fault f;
    r->d->facts.records++;
    bool ok = ft_line_parse(line, &v, &f);
    if (ok) ok = ft_record_tokens(line, v, r->o->vocab_rows, r->o->fields->train_on == FT_TRAIN_ON_ALL, &r->ids, &f);
    ft_json_destroy(v);
    if (ok) take_sample(r, line, &r->ids);
    else if (ft_report_add(&r->report, f.kind, r->path, line->number, f.column, "%s", f.text)) r->d->facts.faulty++;
}

static enum ft_code read_file(struct reader *r, const char *path, struct ft_err *err)
{
    struct ft_jsonl *j = NULL;
    struct ft_line line;
    enum ft_code rc = ft_jsonl_open(path, &j, err);
    if (rc != FT_OK) return rc;
    r->path = ft_arena_strdup(r->report.faults ? r->report.faults->arena : r->d->arena, path);
    while (ft_jsonl_next(j, &line, err)) take_line(r, &line);
    r->d->facts.blank += ft_jsonl_blank(j);
    if (ft_jsonl_failed(j)) rc = err ? err->code : FT_IO;
    ft_jsonl_close(j);
    return rc;
}

static const char *base_name(struct ft_arena *a, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strchr(name, '.');
    return ft_arena_strndup(a, name, dot && dot != name ? (size_t)(dot - name) : strlen(name));
}

static void name_files(struct ft_dataset *d, const struct ft_files *f)
{
    d->names = ft_arena_array(d->arena, f->n, sizeof *d->names);
    d->n_files = f->n;
    for (size_t i = 0; i < f->n; i++) d->names[i] = base_name(d->arena, f->v[i]);
}

static void finish(struct ft_dataset *d, const struct ft_dataset_options *o)
{
    const struct ft_samples *s = &d->samples;
    d->perm = ft_xcalloc(s->n + 1, sizeof *d->perm);
    d->cu = ft_xcalloc(s->n + 1, sizeof *d->cu);
    for (size_t i = 0; i < s->n; i++) d->perm[i] = (int64_t)i, d->cu[i][1] = s->v[i].n;
    d->seed = o->seed, d->shuffle = o->fields->shuffle;
    d->facts.kept = d->facts.samples = d->facts.rows = (int64_t)s->n;
    d->facts.tokens = (int64_t)s->n_tokens, d->facts.trained_tokens = s->trained, d->facts.longest = s->longest;
    const int64_t options[2] = {o->seq_len, o->fields->packing};
    const struct ft_hash128 h = ft_hash_chain(s->hash, options, sizeof options);
    d->facts.fingerprint_hi = h.hi, d->facts.fingerprint_lo = h.lo;
    d->facts.terminator_id = -1;
    if (d->facts.untrained) {
        char text[96];
        snprintf(text, sizeof text, "%" PRId64 " of %zu samples have no trained token", d->facts.untrained, s->n);
        note(d, text);
    }
}

/* Is there something to train on? Every reason why not, as one sentence. */
static enum ft_code verdict(struct reader *r, enum ft_split split, struct ft_err *err)
{
    static const char *const keys[] = {"train", "valid", "general"};
    struct ft_buf text = {0};
    struct ft_dataset *d = r->d;
    if (r->report.n > r->report.skipped) {
        ft_report_summary(&r->report, &text);
        (void)ft_fail(err, FT_DATA, "%s of [data] %s", ft_buf_str(&text), keys[split]);
        ft_buf_fini(&text);
        if (r->report.by_kind[FT_KIND_OVERLONG] == r->report.n) return ft_fix(err, "set seq_len higher, or overlong = drop");
        return ft_fix(err, "correct these lines, or set bad_records = skip:%" PRId64, r->report.n);
    }
    if (d->samples.n && d->samples.trained) return FT_OK;
    if (!d->facts.records) return ft_fail(err, FT_DATA, "[data] %s holds no record", keys[split]);
    if (d->facts.overlong && !d->samples.n) {
        (void)ft_fail(err, FT_DATA, "all %" PRId64 " records of [data] %s are longer than seq_len %" PRId64 " tokens",
                      d->facts.records, keys[split], r->o->seq_len);
        return ft_fix(err, "set seq_len higher, or overlong = truncate");
    }
    if (!d->samples.n && r->share > 0)
        return ft_fail(err, FT_DATA, "valid = %g%% leaves no record to %s", 100 * r->share, keys[split]);
    if (!d->samples.n) return ft_fail(err, FT_DATA, "no record of [data] %s is left", keys[split]);
    return ft_fail(err, FT_DATA, "no token of [data] %s is trained: every label is -100", keys[split]);
}

static enum ft_code check_options(const struct ft_dataset_options *o, struct ft_err *err)
{
    FT_ASSERT(o->seq_len > 0 && o->fields);
    if (o->fields->format == FT_FORMAT_TOKENS) return FT_OK;
    (void)ft_fail(err, FT_UNSUPPORTED, "this format of [data] is not built yet");
    return ft_fix(err, "set format = tokens");
}

static enum ft_code read_all(struct reader *r, const struct ft_list *list, enum ft_split split, struct ft_err *err)
{
    static const char *const keys[] = {"train", "valid", "general"};
    struct ft_files files = {0};
    enum ft_code rc = ft_files_find(list, keys[split], &files, err);
    if (rc != FT_OK) return rc;
    name_files(r->d, &files);
    for (size_t i = 0; i < files.n && rc == FT_OK; i++) {
        r->file = (int32_t)i;
        rc = read_file(r, files.v[i], err);
    }
    ft_files_fini(&files);
    return rc == FT_OK ? verdict(r, split, err) : rc;
}

enum ft_code ft_dataset_open(const struct ft_dataset_options *o, enum ft_split split, struct ft_faults *faults,
                             struct ft_dataset **out, struct ft_err *err)
{
    const struct ft_data_fields *f = o->fields;
    const double share = ft_data_valid_share(f);
    const bool cut = share > 0 && split == FT_SPLIT_VALID;
    const struct ft_list *list = split == FT_SPLIT_TRAIN || cut ? &f->train : split == FT_SPLIT_VALID ? &f->valid : &f->general;
    if (!list->n) {
        *out = NULL;
        return FT_OK;
    }
    enum ft_code rc = check_options(o, err);
    if (rc != FT_OK) return rc;
    struct ft_dataset *d = ft_xcalloc(1, sizeof *d);
    d->arena = ft_arena_create();
    struct reader r = {
        .o = o, .d = d, .report = {.faults = faults, .limit = o->max_faults, .skip = ft_data_skip(f)}, .keep_share = cut};
    if (split != FT_SPLIT_GENERAL) r.share = share;
    rc = read_all(&r, list, split, err);
    ft_ids_fini(&r.ids);
    ft_keyset_fini(&r.seen);
    if (rc != FT_OK) {
        ft_dataset_close(d);
        return rc;
    }
    finish(d, o);
    *out = d;
    return FT_OK;
}

void ft_dataset_close(struct ft_dataset *d)
{
    if (!d) return;
    ft_samples_fini(&d->samples);
    free(d->perm);
    free(d->cu);
    free(d->notes);
    ft_arena_destroy(d->arena);
    free(d);
}

void ft_dataset_epoch(struct ft_dataset *d, int64_t epoch)
{
    ft_epoch_order(d->seed, epoch, d->shuffle, (int64_t)d->samples.n, d->perm);
}

int64_t ft_dataset_rows_of(const struct ft_dataset *d, int64_t epoch)
{
    (void)epoch;
    return (int64_t)d->samples.n;
}

int64_t ft_dataset_n_rows(const struct ft_dataset *d) { return (int64_t)d->samples.n; }

static const struct ft_sample *sample_of(const struct ft_dataset *d, int64_t i)
{
    FT_ASSERT(i >= 0 && i < (int64_t)d->samples.n);
    return &d->samples.v[d->perm[i]];
}

struct ft_row ft_dataset_row(const struct ft_dataset *d, int64_t i)
{
    const struct ft_sample *s = sample_of(d, i);
    return (struct ft_row){.n_tokens = s->n,
                           .ids = d->samples.ids + s->at,
                           .labels = d->samples.labels + s->at,
                           .n_segments = 1,
                           .cu_seqlens = d->cu[d->perm[i]],
                           .n_trained = s->trained};
}

int ft_dataset_row_file(const struct ft_dataset *d, int64_t i) { return sample_of(d, i)->file; }
size_t ft_dataset_n_files(const struct ft_dataset *d) { return d->n_files; }
const char *ft_dataset_file_name(const struct ft_dataset *d, size_t file) { return file < d->n_files ? d->names[file] : NULL; }
struct ft_dataset_facts ft_dataset_facts(const struct ft_dataset *d) { return d->facts; }
size_t ft_dataset_n_notes(const struct ft_dataset *d) { return d->n_notes; }
const char *ft_dataset_note(const struct ft_dataset *d, size_t i) { return i < d->n_notes ? d->notes[i] : NULL; }
