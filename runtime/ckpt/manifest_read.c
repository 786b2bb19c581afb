#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/hash.h"
#include "runtime/ckpt/manifest.h"
#include "runtime/ckpt/safetensors.h"

enum { TAIL = 11 /* 8 hex digits, quote, brace, newline */, MAX_ENTRIES = 500000, MAX_VALUES = 12000000, MAX_BYTES = 1 << 30 };

static const char tail_key[] = "\"self_crc32c\":\"";

/* What is being read, for messages. */
struct reader {
    struct ft_manifest *m;
    const char *path;
    struct ft_err *err;
};

static enum ft_code bad(struct reader *r, const char *what, const char *why)
{
    ft_fail(r->err, FT_DATA, "%s: %s %s", ft_manifest_base(r->path), what, why);
    ft_at(r->err, "%s", r->path);
    return FT_DATA;
}

/* Last two parts of a path: "step_00000100/manifest.json". */
const char *ft_manifest_base(const char *dir)
{
    const char *slash = strrchr(dir, '/');
    return slash ? slash + 1 : dir;
}

static bool get_hex(const struct ft_json *v, int digits, uint64_t *out)
{
    const char *s = ft_json_str(v);
    uint64_t x = 0;
    if (!s || (int)ft_json_str_len(v) != digits) return false;
    for (int i = 0; i < digits; i++) {
        const char c = s[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
        x = x << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    *out = x;
    return true;
}

/* A counter: 0 … 2^53. */
static bool get_count(const struct ft_json *v, int64_t *out)
{
    if (!ft_json_is(v, FT_JSON_INT)) return false;
    *out = ft_json_int(v, -1);
    return *out >= 0 && *out <= (int64_t)1 << 53;
}

static bool get_dims(const struct ft_json *v, int want, int *n_dims, int64_t out[2])
{
    const size_t n = ft_json_count(v);
    if (!ft_json_is(v, FT_JSON_ARRAY) || n < 1 || n > 2 || (want && (int)n != want)) return false;
    out[1] = 1;
    for (size_t i = 0; i < n; i++)
        if (!get_count(ft_json_at(v, i), &out[i])) return false;
    *n_dims = (int)n;
    return out[0] == 0 || out[1] <= INT64_MAX / 8 / out[0];
}

static bool file_name_ok(const char *s)
{
    /* w-[0-9]{5}-of-[0-9]{5}(\.[0-9]+)?\.safetensors */
    static const char shape[] = "w-#####-of-#####";
    for (size_t i = 0; shape[i]; i++)
        if (shape[i] == '#' ? s[i] < '0' || s[i] > '9' : s[i] != shape[i]) return false;
    s += sizeof shape - 1;
    if (s[0] == '.' && s[1] >= '0' && s[1] <= '9') {
        const size_t n = strspn(s + 1, "0123456789");
        if (n > 9) return false;
        s += 1 + n;
    }
    return !strcmp(s, ".safetensors");
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static enum ft_code read_files(struct reader *r, const struct ft_json *list)
{
    struct ft_manifest *m = r->m;
    if (!ft_json_is(list, FT_JSON_ARRAY)) return bad(r, "files", "is not a list");
    m->n_files = ft_json_count(list);
    m->files = ft_arena_array(m->arena, m->n_files, sizeof *m->files);
    for (size_t i = 0; i < m->n_files; i++) {
        const struct ft_json *v = ft_json_at(list, i);
        struct ft_mf_file *f = &m->files[i];
        uint64_t crc;
        int64_t writer;
        f->name = ft_json_str(ft_json_get(v, "name"));
        if (!f->name || strlen(f->name) != ft_json_str_len(ft_json_get(v, "name")) || !file_name_ok(f->name))
            return bad(r, f->name ? f->name : "files", "is not a name of a tensor file");
        if (!get_count(ft_json_get(v, "size"), &f->size) || !get_count(ft_json_get(v, "header_bytes"), &f->header_bytes) ||
            f->header_bytes < 8 || f->header_bytes > f->size || f->header_bytes > 100000008 ||
            !get_hex(ft_json_get(v, "header_crc32c"), 8, &crc) || !get_count(ft_json_get(v, "writer"), &writer) ||
            writer > INT32_MAX)
            return bad(r, f->name, "has a broken size, header_bytes, header_crc32c or writer");
        f->header_crc = (uint32_t)crc;
        f->writer = (int)writer;
    }
    const char **names = ft_arena_array(m->arena, m->n_files, sizeof *names);
    for (size_t i = 0; i < m->n_files; i++) names[i] = m->files[i].name;
    if (m->n_files) qsort(names, m->n_files, sizeof *names, by_text);
    for (size_t i = 1; i < m->n_files; i++)
        if (!strcmp(names[i], names[i - 1])) return bad(r, names[i], "is listed twice");
    return FT_OK;
}

static enum ft_code read_entry(struct reader *r, const struct ft_json *v, const struct ft_mf_tensor *t, struct ft_mf_entry *e)
{
    int64_t file;
    uint64_t crc;
    int n_dims;
    if (!get_dims(ft_json_get(v, "offset"), t->n_dims, &n_dims, e->rect.at) ||
        !get_dims(ft_json_get(v, "extent"), t->n_dims, &n_dims, e->rect.n) || !get_count(ft_json_get(v, "file"), &file) ||
        !get_count(ft_json_get(v, "begin"), &e->begin) || !get_count(ft_json_get(v, "bytes"), &e->bytes) ||
        !get_hex(ft_json_get(v, "crc32c"), 8, &crc))
        return bad(r, t->name, "has a broken entry");
    if (t->n_dims == 1) e->rect.at[1] = 0;
    if (file >= (int64_t)r->m->n_files) return bad(r, t->name, "has an entry in a file that is not listed");
    e->file = (size_t)file;
    e->crc = (uint32_t)crc;
    for (int d = 0; d < 2; d++)
        if (e->rect.n[d] > t->dims[d] || e->rect.at[d] > t->dims[d] - e->rect.n[d])
            return bad(r, t->name, "has an entry outside its shape");
    const struct ft_mf_file *f = &r->m->files[e->file];
    if (e->bytes != e->rect.n[0] * e->rect.n[1] * (int64_t)ft_dtype_bytes(t->dtype) || e->begin < f->header_bytes ||
        e->begin > f->size - e->bytes)
        return bad(r, t->name, "has an entry whose bytes do not fit its extent or its file");
    return FT_OK;
}

static bool get_dtype(const struct ft_json *v, enum ft_dtype *out)
{
    static const enum ft_dtype known[] = {FT_F32, FT_F16, FT_BF16, FT_U8};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (ft_json_str(v) && !strcmp(ft_json_str(v), ft_st_dtype_name(known[i]))) {
            *out = known[i];
            return true;
        }
    return false;
}

static enum ft_code read_tensor(struct reader *r, const struct ft_json *v, bool stored, bool from, struct ft_mf_tensor *t)
{
    t->name = ft_json_str(ft_json_get(v, "name"));
    if (!t->name || !*t->name) return bad(r, "a tensor", "has no name");
    if (!get_dtype(ft_json_get(v, "dtype"), &t->dtype) || !get_dims(ft_json_get(v, "shape"), 0, &t->n_dims, t->dims) ||
        !get_hex(ft_json_get(v, "hash"), 16, &t->hash))
        return bad(r, t->name, "has a broken dtype, shape or hash");
    if (from && !(t->from = ft_json_str(ft_json_get(v, "from")))) return bad(r, t->name, "does not say from what it is derived");
    if (!stored) return FT_OK;
    const struct ft_json *list = ft_json_get(v, "entries");
    if (!ft_json_is(list, FT_JSON_ARRAY)) return bad(r, t->name, "has no list of entries");
    t->n_entries = ft_json_count(list);
    if (t->n_entries > FT_MF_MAX_ENTRIES) return bad(r, t->name, "has more entries than any run of ours writes");
    t->entries = ft_arena_array(r->m->arena, t->n_entries, sizeof *t->entries);
    for (size_t i = 0; i < t->n_entries; i++)
        if (read_entry(r, ft_json_at(list, i), t, &t->entries[i])) return FT_DATA;
    return FT_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct ft_mf_tensor *const *)a)->name, (*(const struct ft_mf_tensor *const *)b)->name);
}

static enum ft_code read_list(struct reader *r, const char *key, bool stored, bool from, struct ft_mf_list *out)
{
    const struct ft_json *list = ft_json_get(r->m->root, key);
    if (!ft_json_is(list, FT_JSON_ARRAY)) return bad(r, key, "is not a list");
    out->n = ft_json_count(list);
    out->v = ft_arena_array(r->m->arena, out->n, sizeof *out->v);
    const struct ft_mf_tensor **sorted = ft_arena_array(r->m->arena, out->n, sizeof *sorted);
    for (size_t i = 0; i < out->n; i++) {
        if (read_tensor(r, ft_json_at(list, i), stored, from, &out->v[i])) return FT_DATA;
        sorted[i] = &out->v[i];
    }
    if (out->n) qsort(sorted, out->n, sizeof *sorted, by_name);
    out->sorted = sorted;
    for (size_t i = 1; i < out->n; i++)
        if (!strcmp(sorted[i]->name, sorted[i - 1]->name)) return bad(r, sorted[i]->name, "is there twice");
    return FT_OK;
}

const struct ft_mf_tensor *ft_mf_find(const struct ft_mf_list *l, const char *name)
{
    if (l->sorted) {
        const struct ft_mf_tensor key = {.name = name}, *k = &key;
        const struct ft_mf_tensor **hit = l->n ? bsearch(&k, l->sorted, l->n, sizeof *l->sorted, by_name) : NULL;
        return hit ? *hit : NULL;
    }
    for (size_t i = 0; i < l->n; i++)
        if (!strcmp(l->v[i].name, name)) return &l->v[i];
    return NULL;
}

/* --- scalars ------------------------------------------------------------------------------------------------------------- */

static int64_t count_or(const struct ft_json *v, const char *key, bool *ok)
{
    int64_t x = 0;
    if (!get_count(ft_json_get(v, key), &x)) *ok = false;
    return x;
}

static double real_or_nan(const struct ft_json *v) { return ft_json_real(v, (double)NAN); }

static void read_window(const struct ft_json *watch, struct ft_ckpt_scalars *s, bool *ok)
{
    const struct ft_json *losses = ft_json_get(watch, "losses"), *norms = ft_json_get(watch, "norms");
    const size_t n = ft_json_count(losses);
    if (n > FT_CKPT_WINDOW || ft_json_count(norms) != n) {
        *ok = false;
        return;
    }
    s->n_window = (int)n;
    for (size_t i = 0; i < n; i++) {
        s->losses[i] = real_or_nan(ft_json_at(losses, i));
        s->norms[i] = real_or_nan(ft_json_at(norms, i));
    }
}

static enum ft_code read_scalars(struct reader *r)
{
    const struct ft_json *o = r->m->root, *data = ft_json_get(o, "data"), *eval = ft_json_get(o, "eval"),
                         *watch = ft_json_get(o, "watch");
    struct ft_ckpt_scalars *s = &r->m->scalars;
    bool ok = true;
    s->step = r->m->step = count_or(o, "step", &ok);
    s->t = count_or(ft_json_get(o, "optimizer"), "t", &ok);
    s->epoch = count_or(data, "epoch", &ok);
    s->row_in_epoch = count_or(data, "row_in_epoch", &ok);
    s->rows = count_or(data, "rows", &ok);
    s->samples = count_or(data, "samples", &ok);
    s->tokens = count_or(data, "tokens", &ok);
    s->trained_tokens = count_or(data, "trained_tokens", &ok);
    s->skipped_steps = count_or(o, "skipped_steps", &ok);
    if (ft_json_is(eval, FT_JSON_OBJECT)) {
        s->has_eval = true;
        s->best = real_or_nan(ft_json_get(eval, "best"));
        s->best_step = count_or(eval, "best_step", &ok);
        s->bad = count_or(eval, "bad", &ok);
        s->count = count_or(eval, "count", &ok);
        s->has_general = ft_json_is_number(ft_json_get(eval, "general0"));
        s->general0 = s->has_general ? real_or_nan(ft_json_get(eval, "general0")) : 0;
        s->general_bad = count_or(eval, "general_bad", &ok);
        if (s->best_step > 0 && !isfinite(s->best)) ok = false;
    }
    s->loss1 = real_or_nan(ft_json_get(watch, "loss1"));
    s->best20 = real_or_nan(ft_json_get(watch, "best20"));
    s->above = count_or(watch, "above", &ok);
    s->seen = ft_json_int(ft_json_get(watch, "seen"), s->step);
    s->last_spike = ft_json_int(ft_json_get(watch, "last_spike"), 0);
    read_window(watch, s, &ok);
    return ok ? FT_OK : bad(r, "step, optimizer.t, data, skipped_steps, eval or watch", "is missing or broken");
}

static void warn_unknown(struct ft_manifest *m)
{
    static const char *const known[] = {
        "format", "version", "writer",       "run_id",        "lineage", "parent",     "created",    "step",
        "layout", "method",  "precision",    "model",         "base",    "lora",       "optimizer",  "schedule",
        "rng",    "data",    "global_batch", "skipped_steps", "eval",    "watch",      "loss_scale", "fp8",
        "files",  "tensors", "derived",      "frozen",        "bytes",   "state_hash", "self_crc32c"};
    m->warnings = ft_arena_array(m->arena, ft_json_count(m->root), sizeof *m->warnings);
    for (void *it = ft_json_iter(m->root); it; it = ft_json_iter_next(m->root, it)) {
        bool is = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) is |= !strcmp(known[i], ft_json_iter_key(it));
        if (!is) m->warnings[m->n_warnings++] = ft_arena_printf(m->arena, "unknown key '%s' in the manifest", ft_json_iter_key(it));
    }
}

static enum ft_code read_root(struct reader *r)
{
    struct ft_manifest *m = r->m;
    const struct ft_json *o = m->root;
    uint64_t hash;
    if (!ft_json_str(ft_json_get(o, "format")) || strcmp(ft_json_str(ft_json_get(o, "format")), "ftckpt") != 0)
        return bad(r, "format", "is not ftckpt");
    const int64_t version = ft_json_int(ft_json_get(o, "version"), 0);
    if (version > FT_MF_VERSION) {
        const char *who = ft_json_str(ft_json_get(ft_json_get(o, "writer"), "version"));
        ft_fail(r->err, FT_UNSUPPORTED, "%s has version %lld: written by a newer fttrain (%s)", ft_manifest_base(r->path),
                (long long)version, who ? who : "?");
        return ft_at(r->err, "%s", r->path);
    }
    if (version != FT_MF_VERSION) return bad(r, "version", "is not 1");
    m->run_id = ft_json_str(ft_json_get(o, "run_id"));
    m->lineage = ft_json_str(ft_json_get(o, "lineage"));
    m->created = ft_json_str(ft_json_get(o, "created"));
    m->precision = ft_json_str(ft_json_get(o, "precision"));
    if (!m->run_id || !m->lineage || !m->created || !m->precision)
        return bad(r, "run_id, lineage, created or precision", "is missing");
    if (read_scalars(r) || read_files(r, ft_json_get(o, "files")) || read_list(r, "tensors", true, false, &m->tensors) ||
        read_list(r, "derived", false, true, &m->derived) || read_list(r, "frozen", false, false, &m->frozen))
        return FT_DATA;
    if (!get_count(ft_json_get(o, "bytes"), &m->bytes) || !get_hex(ft_json_get(o, "state_hash"), 16, &hash))
        return bad(r, "bytes or state_hash", "is missing or broken");
    m->state_hash = hash;
    if (ft_mf_state_hash(&m->tensors, &m->derived) != hash)
        return bad(r, "state_hash", "does not belong to the hashes of the tensors");
    warn_unknown(m);
    return FT_OK;
}

static enum ft_code check_tail(struct reader *r, const char *text, size_t n)
{
    uint32_t crc = 0;
    if (n < TAIL + sizeof tail_key || text[n - 1] != '\n' || text[n - 2] != '}' || text[n - 3] != '"' ||
        memcmp(text + n - TAIL - (sizeof tail_key - 1), tail_key, sizeof tail_key - 1) != 0)
        return bad(r, "manifest.json", "is cut off or no manifest of ours");
    for (size_t i = n - TAIL; i < n - 3; i++) {
        const char c = text[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return bad(r, "manifest.json", "does not end with its CRC");
        crc = crc << 4 | (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    const uint32_t have = ft_crc32c(0, text, n - TAIL);
    if (have != crc) {
        char why[64];
        snprintf(why, sizeof why, "has CRC %08x, it says %08x", have, crc);
        return bad(r, "manifest.json", why);
    }
    r->m->self_crc = crc;
    return FT_OK;
}

static size_t count_entries(const char *text, size_t n)
{
    static const char mark[] = "\"offset\"";
    const size_t len = sizeof mark - 1;
    size_t k = 0;
    for (size_t i = 0; i + len <= n; i++)
        if (text[i] == '"' && text[i + 1] == 'o' && !memcmp(text + i, mark, len)) k++;
    return k;
}

/* Values of the text, a few too many (commas inside of names): what parsing it may cost in memory. */
static size_t count_values(const char *text, size_t n)
{
    size_t k = 1;
    for (size_t i = 0; i < n; i++) k += text[i] == ',' || text[i] == '[' || text[i] == '{';
    return k;
}

enum ft_code ft_manifest_parse(const char *path, const char *text, size_t n, struct ft_manifest **out, struct ft_err *err)
{
    struct ft_manifest *m = ft_xcalloc(1, sizeof *m);
    struct reader r = {.m = m, .path = path, .err = err};
    m->arena = ft_arena_create();
    enum ft_code rc = n > MAX_BYTES ? bad(&r, "manifest.json", "is larger than 1 GiB") : check_tail(&r, text, n);
    if (!rc && count_entries(text, n) > MAX_ENTRIES) rc = bad(&r, "manifest.json", "has more than 500000 entries");
    if (!rc && count_values(text, n) > MAX_VALUES) rc = bad(&r, "manifest.json", "has more than 12000000 values");
    if (!rc && ft_json_parse(text, n, 0, &m->root, NULL, err)) rc = ft_wrap(err, "reading %s", path);
    if (!rc) rc = read_root(&r);
    if (rc) {
        ft_manifest_destroy(m);
        return rc;
    }
    *out = m;
    return FT_OK;
}

void ft_manifest_destroy(struct ft_manifest *m)
{
    if (!m) return;
    ft_json_destroy(m->root);
    ft_arena_destroy(m->arena);
    free(m);
}

enum ft_code ft_manifest_read(const char *dir, struct ft_buf *out, struct ft_err *err)
{
    struct ft_buf path = {0};
    ft_buf_addf(&path, "%s/manifest.json", dir);
    const enum ft_code rc = ft_read_file(ft_buf_str(&path), MAX_BYTES, out, err);
    ft_buf_fini(&path);
    return rc;
}
