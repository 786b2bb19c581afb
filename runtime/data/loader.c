#include "runtime/data/loader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/data/files.h"
#include "runtime/data/keys.h"

enum { PEEK = 100, SHOWN = 5 };

/* What one pass over the files needs. */
struct reader {
    const struct ft_load_how *how;
    const struct ft_dataset_options *o;
    struct ft_loaded *l;
    struct ft_report report;
    struct ft_keyset seen, prompts;
    struct ft_ids ids;
    struct ft_convo convo;
    struct ft_sampler sampler;
    struct ft_worker *worker; /* NULL: no tokenizer is needed so far */
    double share;             /* valid = P%: records that go to valid */
    bool keep_share, stopped;
    enum ft_data_format format;
    int32_t file;
    const char *path;
    struct ft_keyset other; /* prompts of the other split, for the overlap */
    struct ft_err store;    /* the first failure of the sample files */
};

const char *ft_split_name(enum ft_split split)
{
    static const char *const names[] = {"train", "valid", "general"};
    return names[split];
}

static FT_PRINTF(2, 3) void note(struct ft_loaded *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    ft_grow(&l->notes, &l->notes_cap, l->n_notes + 1, sizeof *l->notes);
    l->notes[l->n_notes++] = ft_arena_vprintf(l->arena, fmt, ap);
    va_end(ap);
}

/* ---- which shape a file has ---- */

/* "line 1 has a, b" */
static void name_fields(const struct ft_json *v, int64_t line, struct ft_buf *out)
{
    ft_buf_addf(out, "line %" PRId64 " has ", line);
    int k = 0;
    for (void *it = ft_json_iter(v); it && k < 8; it = ft_json_iter_next(v, it), k++)
        ft_buf_addf(out, "%s%.*s", k ? ", " : "", (int)ft_utf8_valid(ft_json_iter_key(it), strnlen(ft_json_iter_key(it), 40)),
                    ft_json_iter_key(it));
    if (!k) ft_buf_adds(out, "none");
}

enum ft_code ft_peek_format(const struct ft_data_fields *fields, const char *path, enum ft_data_format *out, struct ft_err *err)
{
    struct ft_jsonl *j = NULL;
    struct ft_line line;
    struct ft_line_fault f;
    int64_t count[FT_FORMAT_TRANSCRIPT + 1] = {0}, first[FT_FORMAT_TRANSCRIPT + 1] = {0}, good = 0;
    struct ft_buf unknown = {0}; /* fields of the first record of no shape */
    enum ft_code rc = ft_jsonl_open(path, &j, err);
    if (rc != FT_OK) return rc;
    while (good < PEEK && ft_jsonl_next(j, &line, err)) {
        struct ft_json *v = NULL;
        if (!ft_line_parse(&line, &v, &f)) continue;
        const enum ft_data_format shape = ft_record_shape(v, &fields->columns);
        if (!count[shape]++) first[shape] = line.number;
        if (shape == FT_FORMAT_AUTO && !unknown.n) name_fields(v, line.number, &unknown);
        good += shape != FT_FORMAT_AUTO;
        ft_json_destroy(v);
    }
    ft_jsonl_close(j);
    enum ft_data_format best = FT_FORMAT_AUTO;
    for (int k = FT_FORMAT_MESSAGES; k <= FT_FORMAT_TRANSCRIPT; k++)
        if (count[k] > (best == FT_FORMAT_AUTO ? 0 : count[best]) ||
            (best != FT_FORMAT_AUTO && count[k] == count[best] && count[k] && first[k] < first[best]))
            best = (enum ft_data_format)k;
    if (best == FT_FORMAT_TEXT || best == FT_FORMAT_TOKENS) {
        const char *name = ft_format_name(best);
        (void)ft_fail(err, FT_CONFIG, "'%s' holds %s, which is never guessed", path,
                      best == FT_FORMAT_TEXT ? "plain text" : "token ids");
        rc = best == FT_FORMAT_TEXT ? ft_fix(err, "set format = text to train on plain text")
                                    : ft_fix(err, "set format = %s", name);
    }
    if (best == FT_FORMAT_AUTO && unknown.n) {
        (void)ft_fail(err, FT_CONFIG, "'%s': no record has the fields of a known format (%s)", path, ft_buf_str(&unknown));
        rc = ft_fix(err,
                    "set [data] format, and columns when the fields have other names: columns = prompt:question, response:answer");
    }
    ft_buf_fini(&unknown);
    *out = best == FT_FORMAT_AUTO ? FT_FORMAT_MESSAGES : best;
    return rc;
}

/* ---- one sample ---- */

/* Does `overlong` keep the sample (perhaps cut)? */
static bool fit_length(struct reader *r, const struct ft_line *line, struct ft_ids *s)
{
    const size_t top = (size_t)r->o->seq_len;
    struct ft_loaded *l = r->l;
    ft_grow(&l->lengths, &l->lengths_cap, l->n_lengths + 1, sizeof *l->lengths);
    l->lengths[l->n_lengths++] = (int32_t)s->n;
    if (s->n <= top) return true;
    if (r->o->fields->overlong == FT_OVERLONG_REFUSE) {
        (void)ft_report_add(&r->report, FT_KIND_OVERLONG, r->path, line->number, 1, "the sample has %zu tokens, seq_len is %zu",
                            s->n, top);
        return false;
    }
    size_t first = 1;
    while (first < s->n && s->labels[first] == FT_NOT_TRAINED) first++;
    l->facts.overlong++;
    l->prompt_too_long += first >= top;
    /* A cut must lie inside a trained answer: the token before it and the one behind it are trained. */
    if (r->o->fields->overlong == FT_OVERLONG_TRUNCATE && top > 1 && s->labels[top - 1] != FT_NOT_TRAINED &&
        s->labels[top] != FT_NOT_TRAINED) {
        l->facts.tokens_lost += (int64_t)(s->n - top);
        s->n = top;
        l->facts.truncated++;
        return true;
    }
    l->facts.tokens_lost += (int64_t)s->n;
    return false;
}

static bool in_my_share(const struct reader *r, struct ft_hash128 key)
{
    return !(r->share > 0) || ((double)(key.hi % 10000) < 10000 * r->share) == r->keep_share;
}

/* The record stays: not an exact repeat (counted), and of this split. */
static bool take_keys(struct reader *r, struct ft_record_keys k)
{
    if (!in_my_share(r, k.prompt)) return false;
    if (r->how->check_overlap && r->how->split != FT_SPLIT_TRAIN && r->o->fields->overlap == FT_OVERLAP_REFUSE)
        ft_keyset_add(&r->other, k.prompt);
    const bool fresh = r->o->fields->dedupe == FT_DEDUPE_NO || ft_keyset_add(&r->seen, k.record);
    r->l->facts.duplicates += !fresh;
    if (!fresh && r->o->fields->dedupe == FT_DEDUPE_EXACT) return false;
    if (fresh && r->how->statistics) r->l->same_prompt += !ft_keyset_add(&r->prompts, k.prompt);
    return true;
}

/* Two bytes a token when every id fits. */
static bool open_files(struct reader *r)
{
    const int64_t ids = r->worker ? ft_tokenizer_n_ids(r->sampler.tokenizer) : r->o->vocab_rows;
    const int width = ids > 0 && ids <= UINT16_MAX + 1 ? 2 : 4;
    if (r->how->width_used) *r->how->width_used = width;
    return ft_samples_to_files(&r->l->samples, r->how->files_dir, width, &r->store) == FT_OK;
}

static void keep_sample(struct reader *r, const struct ft_line *line)
{
    if (!fit_length(r, line, &r->ids)) return;
    if (r->how->files_dir && !r->l->samples.files && !open_files(r)) {
        r->stopped = true;
        return;
    }
    if (!ft_samples_add(&r->l->samples, r->ids.ids, r->ids.labels, (int32_t)r->ids.n, r->file, line->number))
        r->l->facts.untrained++;
}

/* packing = split: a plain text becomes windows of seq_len tokens, each a sample of its own. */
static void keep_windows(struct reader *r, const struct ft_line *line)
{
    const struct ft_ids whole = r->ids;
    const size_t top = (size_t)r->o->seq_len;
    for (size_t at = 0; at < whole.n && !r->stopped; at += top) {
        r->ids.ids = whole.ids + at, r->ids.labels = whole.labels + at, r->ids.n = whole.n - at < top ? whole.n - at : top;
        if (r->ids.n > 1 || !at) keep_sample(r, line);
        else r->l->facts.tokens_lost++; /* one token alone predicts nothing */
    }
    r->ids = whole;
}

static bool take_tokens(struct reader *r, const struct ft_line *line, const struct ft_json *v, struct ft_line_fault *f)
{
    if (!ft_record_tokens(line, v, r->o->vocab_rows, r->o->fields->train_on == FT_TRAIN_ON_ALL, &r->ids, f)) return false;
    struct ft_record_keys k;
    k.prompt = ft_hash_chain((struct ft_hash128){0, 0}, r->ids.ids, r->ids.n * sizeof *r->ids.ids);
    k.record = ft_hash_chain(k.prompt, r->ids.labels, r->ids.n * sizeof *r->ids.labels);
    if (!in_my_share(r, k.prompt)) return true;
    const bool fresh = r->o->fields->dedupe == FT_DEDUPE_NO || ft_keyset_add(&r->seen, k.record);
    r->l->facts.duplicates += !fresh;
    if (!fresh && r->o->fields->dedupe == FT_DEDUPE_EXACT) return true;
    if (r->how->visit) r->stopped = !r->how->visit(r->how->ctx, r->path, line->number, &r->ids, NULL, NULL);
    keep_sample(r, line);
    return true;
}

static bool take_convo(struct reader *r, const struct ft_line *line, const struct ft_json *v, struct ft_line_fault *f)
{
    struct ft_sample_view view;
    if (!ft_record_read(r->format, &r->o->fields->columns, line, v, &r->convo, f)) return false;
    if (!take_keys(r, ft_record_keys(&r->convo))) return true;
    if (r->how->statistics) ft_statistics_add(&r->l->statistics, &r->convo);
    if (!ft_sample(r->worker, &r->convo, line, &r->ids, r->how->visit ? &view : NULL, f)) return false;
    if (r->how->visit) r->stopped = !r->how->visit(r->how->ctx, r->path, line->number, &r->ids, &view, &r->sampler);
    if (r->o->fields->packing == FT_PACKING_SPLIT) keep_windows(r, line);
    else keep_sample(r, line);
    return true;
}

static void take_line(struct reader *r, const struct ft_line *line)
{
    struct ft_json *v = NULL;
    struct ft_line_fault f;
    r->l->facts.records++;
    bool ok = ft_line_parse(line, &v, &f);
    if (ok) ok = r->format == FT_FORMAT_TOKENS ? take_tokens(r, line, v, &f) : take_convo(r, line, v, &f);
    if (!ok && ft_report_add(&r->report, f.kind, r->path, line->number, f.column, "%s", f.text)) r->l->facts.faulty++;
    ft_json_destroy(v);
}

/* ---- files ---- */

static enum ft_code open_sampler(struct reader *r, struct ft_err *err)
{
    if (r->format == FT_FORMAT_TOKENS) return FT_OK;
    const bool needs_template = r->format == FT_FORMAT_MESSAGES || r->format == FT_FORMAT_SHAREGPT;
    if (r->worker) {
        if (!needs_template || r->sampler.source.plain) return FT_OK;
        return ft_sampler_no_template(r->o->fields, r->o->model_dir, err);
    }
    const enum ft_code rc = ft_sampler_open(r->o->fields, r->o->model_dir, r->o->vocab_rows, needs_template, &r->sampler, err);
    if (rc == FT_OK) r->worker = ft_worker_create(&r->sampler);
    return rc;
}

static enum ft_code read_file(struct reader *r, const char *path, struct ft_err *err)
{
    struct ft_jsonl *j = NULL;
    struct ft_line line;
    enum ft_code rc = FT_OK;
    r->format = (enum ft_data_format)r->o->fields->format;
    if (r->format == FT_FORMAT_AUTO) rc = ft_peek_format(r->o->fields, path, &r->format, err);
    if (rc == FT_OK && r->o->fields->packing == FT_PACKING_SPLIT && r->format != FT_FORMAT_TEXT) {
        (void)ft_fail(err, FT_CONFIG, "packing = split cuts samples, which only format = text allows; '%s' is %s", path,
                      ft_format_name(r->format));
        rc = ft_fix(err, "set packing = yes");
    }
    if (rc == FT_OK) rc = open_sampler(r, err);
    if (rc == FT_OK) rc = ft_jsonl_open(path, &j, err);
    if (rc != FT_OK) return rc;
    r->l->formats[r->file] = r->format;
    r->path = ft_arena_strdup(r->report.faults ? r->report.faults->arena : r->l->arena, path);
    const int64_t before = r->l->facts.records;
    while (!r->stopped && ft_jsonl_next(j, &line, err)) take_line(r, &line);
    if (r->l->facts.records == before && r->l->n_files > 1 && !ft_jsonl_failed(j)) note(r->l, "'%s' holds no record", path);
    r->l->facts.blank += ft_jsonl_blank(j);
    if (ft_jsonl_failed(j)) rc = err ? err->code : FT_IO;
    ft_jsonl_close(j);
    return rc;
}

static const char *base_name(struct ft_arena *a, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strchr(name, '.');
    return ft_arena_strndup(a, name, dot && dot != name ? (size_t)(dot - name) : strlen(name));
}

static void name_files(struct ft_loaded *l, const struct ft_files *f)
{
    l->names = ft_arena_array(l->arena, f->n + 1, sizeof *l->names);
    l->paths = ft_arena_array(l->arena, f->n + 1, sizeof *l->paths);
    l->formats = ft_arena_array(l->arena, f->n + 1, sizeof *l->formats);
    l->n_files = f->n;
    for (size_t i = 0; i < f->n; i++) l->names[i] = base_name(l->arena, f->v[i]), l->paths[i] = ft_arena_strdup(l->arena, f->v[i]);
}

/* ---- overlap: prompts of train that stand in this split too ---- */

static enum ft_code overlap_of_file(struct reader *r, const char *path, int64_t *n, struct ft_buf *shown, struct ft_err *err)
{
    struct ft_jsonl *j = NULL;
    struct ft_line line;
    struct ft_line_fault f;
    enum ft_data_format format = (enum ft_data_format)r->o->fields->format;
    enum ft_code rc = format == FT_FORMAT_AUTO ? ft_peek_format(r->o->fields, path, &format, err) : FT_OK;
    if (rc == FT_OK) rc = ft_jsonl_open(path, &j, err);
    if (rc != FT_OK) return rc;
    while (ft_jsonl_next(j, &line, err)) {
        struct ft_json *v = NULL;
        if (!ft_line_parse(&line, &v, &f)) continue;
        if (ft_record_read(format, &r->o->fields->columns, &line, v, &r->convo, &f) &&
            ft_keyset_has(&r->other, ft_record_keys(&r->convo).prompt) && (*n)++ < SHOWN)
            ft_buf_addf(shown, "%s%s:%" PRId64, shown->n ? ", " : "", path, line.number);
        ft_json_destroy(v);
    }
    if (ft_jsonl_failed(j)) rc = err ? err->code : FT_IO;
    ft_jsonl_close(j);
    return rc;
}

static enum ft_code check_overlap(struct reader *r, struct ft_err *err)
{
    struct ft_files files = {0};
    struct ft_buf shown = {0};
    int64_t n = 0;
    if (!r->how->check_overlap || !r->other.n || r->how->split == FT_SPLIT_TRAIN || !r->o->fields->train.n || r->share > 0)
        return FT_OK;
    enum ft_code rc = ft_files_find(&r->o->fields->train, "train", &files, err);
    for (size_t i = 0; i < files.n && rc == FT_OK; i++) rc = overlap_of_file(r, files.v[i], &n, &shown, err);
    if (rc == FT_OK && n) {
        const char *name = ft_split_name(r->how->split);
        (void)ft_fail(err, FT_DATA, "%" PRId64 " records of [data] train have a prompt that stands in %s too (%s%s)", n, name,
                      ft_buf_str(&shown), n > SHOWN ? ", …" : "");
        rc = ft_fix(err, "take them out of train or %s, or set overlap = allow", name);
    }
    ft_buf_fini(&shown);
    ft_files_fini(&files);
    return rc;
}

/* ---- the end ---- */

/* Is there something to train on? Every reason why not, as one sentence. */
static enum ft_code verdict(struct reader *r, struct ft_err *err)
{
    const char *key = ft_split_name(r->how->split);
    struct ft_buf text = {0};
    struct ft_loaded *l = r->l;
    if (r->report.n > r->report.skipped) {
        ft_report_summary(&r->report, &text);
        (void)ft_fail(err, FT_DATA, "%s of [data] %s", ft_buf_str(&text), key);
        ft_buf_fini(&text);
        if (r->report.by_kind[FT_KIND_OVERLONG] == r->report.n) return ft_fix(err, "set seq_len higher, or overlong = drop");
        return ft_fix(err, "correct these lines, or set bad_records = skip:%" PRId64, r->report.n);
    }
    if ((l->samples.n && l->samples.trained) || r->stopped) return FT_OK;
    if (!l->facts.records)
        return ft_fail(err, FT_DATA, "[data] %s holds no record: '%s'%s %s empty", key, l->paths[0], l->n_files > 1 ? ", …" : "",
                       l->n_files > 1 ? "are" : "is");
    if (l->facts.overlong && !l->samples.n) {
        (void)ft_fail(err, FT_DATA, "all %" PRId64 " records of [data] %s are longer than seq_len %" PRId64 " tokens",
                      l->facts.records, key, r->o->seq_len);
        return ft_fix(err, "set seq_len higher%s", r->o->fields->overlong == FT_OVERLONG_DROP ? ", or overlong = truncate" : "");
    }
    if (!l->samples.n && r->share > 0) {
        (void)ft_fail(err, FT_DATA, "valid = %g%% leaves no record to %s: records are cut by their prompt, equal prompts together",
                      100 * r->share, key);
        return ft_fix(err, "set another share, or valid to a file of its own");
    }
    if (!l->samples.n) return ft_fail(err, FT_DATA, "no record of [data] %s is left", key);
    return ft_fail(err, FT_DATA, "no token of [data] %s is trained: every label is -100", key);
}

static int up(const void *a, const void *b)
{
    return (*(const int32_t *)a > *(const int32_t *)b) - (*(const int32_t *)a < *(const int32_t *)b);
}

static void length_notes(struct reader *r)
{
    struct ft_loaded *l = r->l;
    const int64_t lost = l->facts.overlong - l->facts.truncated;
    if (!l->n_lengths) return;
    qsort(l->lengths, l->n_lengths, sizeof *l->lengths, up);
    if (20 * lost > (int64_t)l->n_lengths)
        note(l, "%" PRId64 " of %zu samples are longer than seq_len %" PRId64 " and dropped; seq_len = %d keeps 99 %%", lost,
             l->n_lengths, r->o->seq_len, l->lengths[(l->n_lengths * 99 + 99) / 100 - 1]);
    else if (l->facts.overlong)
        note(l, "kept %" PRId64 ", dropped %" PRId64 " (prompt alone >= seq_len: %" PRId64 "), truncated %" PRId64,
             (int64_t)l->samples.n, lost, l->prompt_too_long, l->facts.truncated);
}

static void chat_notes(struct reader *r)
{
    struct ft_loaded *l = r->l;
    const struct ft_sample_counts *c = &l->counts;
    const struct ft_sampler *s = &r->sampler;
    if (ft_tokenizer_remark(s->tokenizer)[0]) note(l, "%s", ft_tokenizer_remark(s->tokenizer));
    if (s->source.warning) note(l, "%s", s->source.warning);
    if (!s->source.plain && c->answers) note(l, "no chat template: prompt + response + eos are put together as they are");
    if (c->rewritten) note(l, "the template rewrote %" PRId64 " assistant turns; they are trained as rendered", c->rewritten);
    if (c->prompt_differs)
        note(l, "%" PRId64 " answers follow another text than the generation prompt; they are trained from their content on",
             c->prompt_differs);
    if (c->boundary_differs)
        note(l, "%" PRId64 " of %" PRId64 " answers would merge with the prompt (boundary = %s)", c->boundary_differs, c->answers,
             s->split ? "split" : "joint");
    if (c->cut_tail)
        note(l, "in %" PRId64 " records the template writes on behind the last terminator; that text is cut", c->cut_tail);
    if (c->special_in_content)
        note(l, "%" PRId64 " records hold special tokens in their contents (first: %s); special = %s reads them as %s",
             c->special_in_content, c->special_example, r->o->fields->special == FT_SPECIAL_TEXT ? "text" : "parse",
             r->o->fields->special == FT_SPECIAL_TEXT ? "ordinary text" : "tokens");
    if (c->unterminated)
        note(l, "%" PRId64 " answers have no terminator (terminator = none): the model does not learn to stop there",
             c->unterminated);
    if (c->appended) note(l, "terminator = %s is added behind %" PRId64 " answers", r->o->fields->terminator, c->appended);
    if (c->bos_removed) note(l, "%" PRId64 " records began with the BOS token twice; one is removed", c->bos_removed);
    if (!c->bos_there && !c->bos_added && !c->bos_removed && s->config_bos >= 0)
        note(l, "tokenizer adds no BOS, config.json names bos_token_id %d", s->config_bos);
}

static void finish(struct reader *r)
{
    struct ft_loaded *l = r->l;
    const struct ft_samples *s = &l->samples;
    l->facts.kept = l->facts.samples = l->facts.rows = (int64_t)s->n;
    l->facts.tokens = (int64_t)s->n_tokens, l->facts.trained_tokens = s->trained, l->facts.longest = s->longest;
    const struct ft_hash128 h = ft_hash_chain(s->hash, &r->o->seq_len, sizeof r->o->seq_len);
    l->facts.fingerprint_hi = h.hi, l->facts.fingerprint_lo = h.lo;
    l->facts.terminator_id = -1;
    l->bos = -1;
    if (l->facts.untrained) note(l, "%" PRId64 " of %zu samples have no trained token", l->facts.untrained, s->n);
    length_notes(r);
    if (!r->worker) return;
    l->counts = *ft_worker_counts(r->worker);
    l->bos = r->sampler.bos, l->wants_bos = r->sampler.wants_bos;
    if (r->sampler.source.plain) {
        l->template_origin = ft_arena_strdup(l->arena, r->sampler.source.origin);
        l->template_sha = ft_arena_strdup(l->arena, r->sampler.source.sha256);
        l->template_generation = ft_template_has_generation(r->sampler.source.plain);
    }
    int64_t most = 0;
    for (size_t i = 0; i < FT_MAX_STOPS; i++) {
        size_t n;
        if (l->counts.terminator_n[i] <= most) continue;
        most = l->counts.terminator_n[i];
        l->facts.terminator_id = l->counts.terminator_ids[i];
        const char *name = ft_tokenizer_token(r->sampler.tokenizer, l->facts.terminator_id, &n);
        if (n >= sizeof l->facts.terminator) n = sizeof l->facts.terminator - 1;
        memcpy(l->facts.terminator, name, n), l->facts.terminator[n] = 0;
    }
    for (size_t i = 0; i < r->sampler.n_generation_stops; i++)
        l->terminator_is_stop = l->terminator_is_stop || r->sampler.generation_stops[i] == l->facts.terminator_id;
    chat_notes(r);
}

static enum ft_code read_all(struct reader *r, const struct ft_list *list, struct ft_err *err)
{
    struct ft_files files = {0};
    enum ft_code rc = ft_files_find(list, ft_split_name(r->how->split), &files, err);
    if (rc != FT_OK) return rc;
    name_files(r->l, &files);
    for (size_t i = 0; i < files.n && rc == FT_OK && !r->stopped; i++) {
        r->file = (int32_t)i;
        rc = read_file(r, files.v[i], err);
    }
    ft_files_fini(&files);
    if (rc == FT_OK && r->store.code != FT_OK) {
        if (err) *err = r->store;
        return r->store.code;
    }
    if (rc == FT_OK) rc = verdict(r, err);
    if (rc == FT_OK && r->l->samples.files) rc = ft_samples_finish_files(&r->l->samples, err);
    return rc == FT_OK ? check_overlap(r, err) : rc;
}

enum ft_code ft_load(const struct ft_load_how *how, bool *named, struct ft_loaded *out, struct ft_err *err)
{
    const struct ft_data_fields *f = how->o->fields;
    const double share = ft_data_valid_share(f);
    const bool cut = share > 0 && how->split == FT_SPLIT_VALID;
    const struct ft_list *list = how->split == FT_SPLIT_TRAIN || cut ? &f->train
                                 : how->split == FT_SPLIT_VALID      ? &f->valid
                                                                     : &f->general;
    FT_ASSERT(how->o->seq_len > 0);
    memset(out, 0, sizeof *out);
    *named = list->n > 0;
    if (!list->n) return FT_OK;
    out->arena = ft_arena_create();
    struct reader r = {.how = how, .o = how->o, .l = out, .keep_share = cut};
    r.report = (struct ft_report){.faults = how->faults, .limit = how->o->max_faults, .skip = ft_data_skip(f)};
    if (how->split != FT_SPLIT_GENERAL) r.share = share;
    const enum ft_code rc = read_all(&r, list, err);
    if (rc == FT_OK) finish(&r);
    ft_ids_fini(&r.ids);
    ft_convo_fini(&r.convo);
    ft_keyset_fini(&r.seen);
    ft_keyset_fini(&r.prompts);
    ft_keyset_fini(&r.other);
    ft_worker_destroy(r.worker);
    ft_sampler_close(&r.sampler);
    if (rc != FT_OK) ft_loaded_fini(out);
    return rc;
}

void ft_loaded_fini(struct ft_loaded *l)
{
    ft_samples_fini(&l->samples);
    ft_statistics_fini(&l->statistics);
    free(l->notes);
    free(l->lengths);
    if (l->arena) ft_arena_destroy(l->arena);
    memset(l, 0, sizeof *l);
}
