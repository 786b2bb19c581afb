#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/fd.h"
#include "runtime/token/tok.h"

enum { FILE_MAX = 1 << 29 };

static enum ft_code read_vocab(const struct ft_json *vocab, struct ft_tokenizer *t, struct ft_err *err)
{
    if (!ft_json_is(vocab, FT_JSON_OBJECT)) return ft_fail(err, FT_DATA, "model has no vocab");
    for (void *it = ft_json_iter(vocab); it; it = ft_json_iter_next(vocab, it)) {
        const char *name = ft_json_iter_key(it);
        const int64_t id = ft_json_int(ft_json_iter_value(it), -1);
        if (id < 0 || id > FT_MAX_ID) return ft_fail(err, FT_DATA, "vocab: the id of '%s' is no token id", name);
        if (strlen(name) > UINT16_MAX) return ft_fail(err, FT_DATA, "vocab: a token of %zu bytes is too long", strlen(name));
        ft_vocab_add(&t->vocab, name, strlen(name), (int32_t)id);
    }
    return FT_OK;
}

/* Splits "a b" at its one blank. */
static bool split_merge(const struct ft_json *v, const char **a, size_t *na, const char **b, size_t *nb)
{
    if (ft_json_is(v, FT_JSON_ARRAY) && ft_json_count(v) == 2) {
        const struct ft_json *x = ft_json_at(v, 0), *y = ft_json_at(v, 1);
        if (!ft_json_is(x, FT_JSON_STRING) || !ft_json_is(y, FT_JSON_STRING)) return false;
        *a = ft_json_str(x), *na = ft_json_str_len(x), *b = ft_json_str(y), *nb = ft_json_str_len(y);
        return true;
    }
    if (!ft_json_is(v, FT_JSON_STRING)) return false;
    const char *s = ft_json_str(v), *blank = memchr(s, ' ', ft_json_str_len(v));
    if (!blank) return false;
    *a = s, *na = (size_t)(blank - s), *b = blank + 1, *nb = ft_json_str_len(v) - *na - 1;
    return !memchr(*b, ' ', *nb);
}

static enum ft_code read_merges(const struct ft_json *merges, struct ft_tokenizer *t, struct ft_err *err)
{
    struct ft_buf both = {0};
    enum ft_code rc = FT_OK;
    uint32_t rank = 0;
    if (!ft_json_is(merges, FT_JSON_ARRAY)) return ft_fail(err, FT_DATA, "model has no merges");
    for (size_t i = 0; i < ft_json_count(merges) && rc == FT_OK; i++) {
        const struct ft_json *v = ft_json_at(merges, i);
        const char *a, *b;
        size_t na, nb;
        if (ft_json_is(v, FT_JSON_STRING) && ft_str_starts(ft_json_str(v), "#version")) continue;
        if (!split_merge(v, &a, &na, &b, &nb)) {
            rc = ft_fail(err, FT_DATA, "merges[%zu] is neither \"a b\" nor [\"a\",\"b\"]", i);
            break;
        }
        ft_buf_clear(&both);
        ft_buf_add(&both, a, na);
        ft_buf_add(&both, b, nb);
        const int32_t left = ft_vocab_find(&t->vocab, a, na), right = ft_vocab_find(&t->vocab, b, nb);
        const int32_t id = ft_vocab_find(&t->vocab, both.data, both.n);
        if (left < 0 || right < 0 || id < 0) {
            const char *what = left < 0 || right < 0 ? "names a token" : "makes a token";
            rc = ft_fail(err, FT_DATA, "merges[%zu] (\"%.*s %.*s\") %s that is not in the vocabulary", i, (int)na, a, (int)nb, b,
                         what);
            break;
        }
        ft_bpe_merge_add(&t->bpe, left, right, rank++, id);
    }
    ft_buf_fini(&both);
    return rc;
}

static bool empty(const struct ft_json *v)
{
    return !v || ft_json_is(v, FT_JSON_NULL) || (ft_json_is(v, FT_JSON_STRING) && !ft_json_str_len(v)) ||
           (ft_json_is_number(v) && ft_json_real(v, 1) == 0);
}

static void fallback_ids(const struct ft_vocab *v, int32_t ids[256])
{
    for (int b = 0; b < 256; b++) {
        char name[8];
        ids[b] = ft_vocab_find(v, name, (size_t)snprintf(name, sizeof name, "<0x%02X>", (unsigned)b));
    }
}

/* The same tokens as bytes, for a text that was never put into the byte alphabet. */
static void raw_vocab(struct ft_tokenizer *t)
{
    struct ft_buf raw = {0};
    for (size_t id = 0; id < t->vocab.n_ids; id++) {
        size_t n;
        const char *s = ft_vocab_text(&t->vocab, (int32_t)id, &n);
        bool good = s && n;
        ft_buf_clear(&raw);
        for (size_t i = 0; good && i < n;) {
            uint32_t cp;
            i += (size_t)ft_utf8_decode(s + i, n - i, &cp);
            const int b = ft_char_to_byte(cp);
            good = b >= 0;
            ft_buf_addc(&raw, (char)b);
        }
        if (good) ft_vocab_add(&t->bpe.raw, raw.data, raw.n, (int32_t)id);
    }
    for (int b = 0; b < 256; b++) {
        const char c = (char)b;
        t->bpe.byte_id[b] = ft_vocab_find(&t->bpe.raw, &c, 1);
    }
    ft_buf_fini(&raw);
}

static enum ft_code read_bpe(const struct ft_json *m, struct ft_tokenizer *t, struct ft_err *err)
{
    static const char *const absent[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 3; i++)
        if (!empty(ft_json_get(m, absent[i]))) return ft_fail(err, FT_UNSUPPORTED, "model BPE with %s is not supported", absent[i]);
    enum ft_code rc = read_vocab(ft_json_get(m, "vocab"), t, err);
    if (rc == FT_OK) rc = read_merges(ft_json_get(m, "merges"), t, err);
    if (rc != FT_OK) return rc;
    t->bpe.names = &t->vocab;
    t->bpe.byte_fallback = ft_json_bool(ft_json_get(m, "byte_fallback"), false);
    t->bpe.fuse_unk = ft_json_bool(ft_json_get(m, "fuse_unk"), false);
    t->bpe.ignore_merges = ft_json_bool(ft_json_get(m, "ignore_merges"), false);
    const struct ft_json *unk = ft_json_get(m, "unk_token");
    t->bpe.unk = -1;
    if (ft_json_is(unk, FT_JSON_STRING)) {
        t->bpe.unk = ft_vocab_find(&t->vocab, ft_json_str(unk), ft_json_str_len(unk));
        if (t->bpe.unk < 0) return ft_fail(err, FT_DATA, "unk_token '%s' is not in the vocabulary", ft_json_str(unk));
    }
    fallback_ids(&t->vocab, t->bpe.byte_id);
    struct ft_pre *last = t->pres.n ? &t->pres.v[t->pres.n - 1] : NULL;
    if (last && last->kind == FT_PRE_BYTE_LEVEL) {
        size_t before = 0;
        for (size_t i = 0; i + 1 < t->pres.n; i++) before += t->pres.v[i].kind == FT_PRE_BYTE_LEVEL;
        if (!before && !t->bpe.byte_fallback) {
            last->raw = t->bpe.byte_level = true;
            raw_vocab(t);
        }
    }
    return FT_OK;
}

static enum ft_code read_unigram(const struct ft_json *m, struct ft_tokenizer *t, struct ft_err *err)
{
    const struct ft_json *vocab = ft_json_get(m, "vocab");
    struct ft_unigram *u = &t->unigram;
    if (!ft_json_is(vocab, FT_JSON_ARRAY) || ft_json_count(vocab) > FT_MAX_ID)
        return ft_fail(err, FT_DATA, "model Unigram has no vocab");
    t->is_unigram = true;
    u->n = ft_json_count(vocab);
    u->score = ft_xcalloc(u->n + 1, sizeof *u->score);
    double lowest = 0;
    for (size_t i = 0; i < u->n; i++) {
        const struct ft_json *row = ft_json_at(vocab, i), *name = ft_json_at(row, 0);
        if (!ft_json_is(row, FT_JSON_ARRAY) || !ft_json_is(name, FT_JSON_STRING) || !ft_json_is_number(ft_json_at(row, 1)))
            return ft_fail(err, FT_DATA, "model Unigram: vocab[%zu] is no [token, score]", i);
        const size_t n = ft_json_str_len(name);
        if (n > UINT16_MAX) return ft_fail(err, FT_DATA, "model Unigram: vocab[%zu] is too long", i);
        u->score[i] = ft_json_real(ft_json_at(row, 1), 0);
        if (u->score[i] < lowest) lowest = u->score[i];
        if (n > u->longest) u->longest = n;
        ft_vocab_add(&t->vocab, ft_json_str(name), n, (int32_t)i);
    }
    u->names = &t->vocab;
    const int64_t unk = ft_json_int(ft_json_get(m, "unk_id"), -1);
    if (unk >= (int64_t)u->n) return ft_fail(err, FT_DATA, "model Unigram: unk_id %lld is no token", (long long)unk);
    u->unk = (int32_t)unk;
    u->unk_score = lowest - 10; /* the reference's kUnkPenalty */
    u->fuse_unk = true;
    u->byte_fallback = ft_json_bool(ft_json_get(m, "byte_fallback"), false);
    fallback_ids(&t->vocab, u->byte_id);
    return FT_OK;
}

static enum ft_code read_model(const struct ft_json *m, struct ft_tokenizer *t, struct ft_err *err)
{
    const char *type = ft_json_str(ft_json_get(m, "type"));
    if (!ft_json_is(m, FT_JSON_OBJECT)) return ft_fail(err, FT_DATA, "no model");
    if (!type) type = ft_json_is(ft_json_get(m, "merges"), FT_JSON_ARRAY) ? "BPE" : "(no type)"; /* files of 2019 leave it out */
    if (ft_str_eq(type, "BPE")) return read_bpe(m, t, err);
    if (ft_str_eq(type, "Unigram")) return read_unigram(m, t, err);
    return ft_fail(err, FT_UNSUPPORTED, "model '%s' is not supported", type);
}

/* The id that the reference gives: the model's when the token is there, else counted on behind the vocabulary; the id in the file
 * is what a save with the same rule wrote. */
static int32_t added_id(const struct ft_tokenizer *t, const char *name, size_t n, int32_t *highest)
{
    int32_t id = ft_vocab_find(&t->vocab, name, n);
    const struct ft_added *same = ft_added_find(&t->added, name, n);
    if (same) return same->id;
    const int32_t size = (int32_t)t->vocab.n;
    if (id < 0) id = *highest >= size ? *highest + 1 : size;
    if (id > *highest) *highest = id;
    return id;
}

static char *copy(const char *s, size_t n)
{
    char *c = ft_xcalloc(n + 1, 1);
    if (n) memcpy(c, s, n);
    return c;
}

static enum ft_code read_added(const struct ft_json *list, struct ft_tokenizer *t, struct ft_err *err)
{
    struct ft_added_set *a = &t->added;
    struct ft_regex_work *w = ft_regex_work_create();
    enum ft_code rc = FT_OK;
    int32_t highest = -1;
    for (size_t i = 0; i < ft_json_count(list) && rc == FT_OK; i++) {
        const struct ft_json *v = ft_json_at(list, i), *content = ft_json_get(v, "content");
        const size_t n = ft_json_str_len(content);
        if (!ft_json_is(content, FT_JSON_STRING) || i > FT_MAX_ID) {
            rc = ft_fail(err, FT_DATA, "added_tokens[%zu] has no content", i);
            break;
        }
        if (!n) continue; /* the reference ignores it too */
        struct ft_added x = {.name_n = n, .special = ft_json_bool(ft_json_get(v, "special"), false)};
        x.id = added_id(t, ft_json_str(content), n, &highest);
        x.single_word = ft_json_bool(ft_json_get(v, "single_word"), false);
        x.lstrip = ft_json_bool(ft_json_get(v, "lstrip"), false), x.rstrip = ft_json_bool(ft_json_get(v, "rstrip"), false);
        x.normalized = ft_json_bool(ft_json_get(v, "normalized"), !x.special);
        struct ft_text in = {0}, other = {0}, *out = &in;
        ft_text_borrow(&in, ft_json_str(content), n, 0);
        if (x.normalized) rc = ft_norms_apply(&t->norms, w, &in, &other, false, &out, err);
        if (rc == FT_OK) {
            x.name = copy(ft_json_str(content), n), x.content = copy(out->s, out->n), x.n = out->n;
            ft_grow(&a->v, &a->cap, a->n + 1, sizeof *a->v);
            if (ft_vocab_find(&a->names, x.name, n) < 0) ft_vocab_add(&a->names, x.name, n, (int32_t)a->n);
            a->v[a->n++] = x;
        }
        ft_text_fini(&in);
        ft_text_fini(&other);
    }
    ft_regex_work_destroy(w);
    ft_added_build(a);
    return rc;
}

static enum ft_code read_all(const struct ft_json *root, struct ft_tokenizer *t, struct ft_err *err)
{
    if (!ft_json_is(root, FT_JSON_OBJECT)) return ft_fail(err, FT_DATA, "not a JSON object");
    enum ft_code rc = ft_read_normalizer(ft_json_get(root, "normalizer"), &t->norms, err);
    if (rc == FT_OK) rc = ft_read_pre_tokenizer(ft_json_get(root, "pre_tokenizer"), &t->pres, err);
    if (rc == FT_OK) rc = read_model(ft_json_get(root, "model"), t, err);
    if (rc == FT_OK) rc = read_added(ft_json_get(root, "added_tokens"), t, err);
    if (rc == FT_OK) rc = ft_read_post_processor(ft_json_get(root, "post_processor"), t, err);
    if (rc == FT_OK) rc = ft_read_decoder(ft_json_get(root, "decoder"), &t->decs, err);
    static const char *const ignored[] = {"truncation", "padding"};
    for (size_t i = 0; i < 2; i++)
        if (!empty(ft_json_get(root, ignored[i])))
            ft_buf_addf(&t->remark, "%s%s: '%s' is ignored", t->remark.n ? "; " : "", t->name, ignored[i]);
    return rc;
}

enum ft_code ft_tokenizer_from_json(const char *name, const struct ft_json *root, struct ft_tokenizer **out, struct ft_err *err)
{
    struct ft_tokenizer *t = ft_xcalloc(1, sizeof *t);
    t->name = ft_xstrdup(name);
    const enum ft_code rc = read_all(root, t, err);
    if (rc == FT_OK) {
        *out = t;
        return FT_OK;
    }
    ft_tokenizer_destroy(t);
    return ft_wrap(err, "reading the tokenizer '%s'", name);
}

enum ft_code ft_tokenizer_parse(const char *name, const char *text, size_t n, struct ft_tokenizer **out, struct ft_err *err)
{
    struct ft_json *root = NULL;
    enum ft_code rc = ft_json_parse(text, n, FT_JSON_NUL | FT_JSON_DUPLICATES, &root, NULL, err);
    if (rc != FT_OK) return ft_wrap(err, "reading the tokenizer '%s'", name);
    rc = ft_tokenizer_from_json(name, root, out, err);
    ft_json_destroy(root);
    return rc;
}

enum ft_code ft_tokenizer_load(const char *path, struct ft_tokenizer **out, struct ft_err *err)
{
    struct ft_buf file = {0}, name = {0};
    ft_buf_addf(&name, "%s%s", path, ft_is_dir(path) ? "/tokenizer.json" : "");
    enum ft_code rc = FT_OK;
    if (ft_is_dir(path) && !ft_is_file(name.data)) {
        rc = ft_fail(err, FT_CONFIG, "no tokenizer.json in '%s'", path);
        (void)ft_fix(err, "only tokenizer.json is read; make one with transformers' save_pretrained");
    }
    if (rc == FT_OK) rc = ft_read_file(name.data, FILE_MAX, &file, err);
    if (rc == FT_OK) rc = ft_tokenizer_parse(name.data, ft_buf_str(&file), file.n, out, err);
    ft_buf_fini(&file);
    ft_buf_fini(&name);
    return rc;
}

void ft_tokenizer_destroy(struct ft_tokenizer *t)
{
    if (!t) return;
    ft_norms_fini(&t->norms);
    ft_pres_fini(&t->pres);
    ft_bpe_fini(&t->bpe);
    ft_unigram_fini(&t->unigram);
    ft_added_fini(&t->added);
    ft_decs_fini(&t->decs);
    ft_vocab_fini(&t->vocab);
    ft_buf_fini(&t->remark);
    free(t->front);
    free(t->back);
    free(t->name);
    free(t);
}

int32_t ft_tokenizer_n_ids(const struct ft_tokenizer *t)
{
    return (int32_t)(t->added.n_ids > t->vocab.n_ids ? t->added.n_ids : t->vocab.n_ids);
}

int32_t ft_tokenizer_id(const struct ft_tokenizer *t, const char *token)
{
    const struct ft_added *x = ft_added_find(&t->added, token, strlen(token));
    return x ? x->id : ft_vocab_find(&t->vocab, token, strlen(token));
}

const char *ft_tokenizer_token(const struct ft_tokenizer *t, int32_t id, size_t *n)
{
    const struct ft_added *x = ft_added_of(&t->added, id);
    if (!x) return ft_vocab_text(&t->vocab, id, n);
    *n = x->n;
    return x->content;
}

bool ft_tokenizer_is_added(const struct ft_tokenizer *t, int32_t id) { return ft_added_of(&t->added, id) != NULL; }

bool ft_tokenizer_is_special(const struct ft_tokenizer *t, int32_t id)
{
    const struct ft_added *x = ft_added_of(&t->added, id);
    return x && x->special;
}

bool ft_tokenizer_is_byte_level(const struct ft_tokenizer *t) { return !t->is_unigram && t->bpe.byte_level; }
const char *ft_tokenizer_remark(const struct ft_tokenizer *t) { return ft_buf_str(&t->remark); }

bool ft_tokenizer_adds_prefix(const struct ft_tokenizer *t)
{
    for (size_t i = 0; i < t->norms.n; i++)
        if (t->norms.v[i].kind == FT_NORM_PREPEND) return true;
    for (size_t i = 0; i < t->pres.n; i++) {
        const struct ft_pre *p = &t->pres.v[i];
        if (p->kind == FT_PRE_METASPACE && p->prepend != FT_PREPEND_NEVER) return true;
        if (p->kind == FT_PRE_BYTE_LEVEL && p->add_prefix_space) return true;
    }
    return false;
}

int32_t ft_tokenizer_post_front(const struct ft_tokenizer *t) { return t->n_front ? t->front[0] : -1; }

size_t ft_tokenizer_post_ids(const struct ft_tokenizer *t, bool front, const int32_t **ids)
{
    *ids = front ? t->front : t->back;
    return front ? t->n_front : t->n_back;
}
