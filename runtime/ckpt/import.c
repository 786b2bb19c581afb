#include "runtime/ckpt/import.h"

#include <dirent.h>
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/str.h"

enum { NAMES_SHOWN = 10 };
static const char gpt2_prefix[] = "transformer.", head_name[] = "lm_head.weight";

struct ft_import {
    struct ft_arena *arena;
    struct ft_st_folder *folder;
    const struct ft_model_config *config;
    const struct ft_param *params; /* rows of the whole model */
    size_t n_params;
    struct ft_import_place *places; /* [n_params] */
    struct ft_import_tensor *tensors;
    size_t n_tensors;
    bool prefixed;         /* GPT-2 names with "transformer." */
    const char **warnings; /* NULL terminated */
};

/* "h.0.attn.c_attn.weight#k" -> base name and which part (0 q, 1 k, 2 v; -1: not fused). */
static int split_part(struct ft_arena *a, const char *name, const char **base)
{
    const char *hash = strchr(name, '#');
    *base = hash ? ft_arena_strndup(a, name, (size_t)(hash - name)) : name;
    if (!hash) return -1;
    return hash[1] == 'q' ? 0 : hash[1] == 'k' ? 1 : 2;
}

static const struct ft_st_tensor *find(const struct ft_import *m, const char *name)
{
    if (!m->prefixed || !strcmp(name, head_name)) return ft_st_folder_find(m->folder, name);
    struct ft_buf b = {0};
    ft_buf_addf(&b, "%s%s", gpt2_prefix, name);
    const struct ft_st_tensor *t = ft_st_folder_find(m->folder, b.data);
    ft_buf_fini(&b);
    return t;
}

/* Elements in front of part k of a fused q|k|v axis, and its whole extent. */
static int64_t part_offset(const struct ft_model_config *c, int part)
{
    const int64_t q = c->H * c->D, kv = c->K * c->D;
    return part <= 0 ? 0 : part == 1 ? q : q + kv;
}
static int64_t fused_extent(const struct ft_model_config *c) { return (c->H + 2 * c->K) * c->D; }

static void shape_text(struct ft_buf *b, const int64_t *dims, int n)
{
    ft_buf_addc(b, '[');
    for (int i = 0; i < n; i++) ft_buf_addf(b, i ? ",%lld" : "%lld", (long long)dims[i]);
    ft_buf_addc(b, ']');
}

/* The shape is config's, with one axis divided by a whole number: what a tensor-parallel slice looks like. */
static int64_t slice_of(const struct ft_st_tensor *t, const int64_t *want, int n_dims)
{
    int64_t ratio = 0;
    for (int i = 0; i < n_dims; i++) {
        if (t->dims[i] == want[i]) continue;
        if (ratio || t->dims[i] <= 0 || want[i] % t->dims[i]) return 0;
        ratio = want[i] / t->dims[i];
    }
    return ratio;
}

static enum ft_code check_tensor(const struct ft_st_tensor *t, const int64_t *want, int n_dims, struct ft_err *err)
{
    const char *path = ft_st_path(t->file);
    if (t->type != FT_F32 && t->type != FT_F16 && t->type != FT_BF16) {
        ft_fail(err, FT_UNSUPPORTED, "tensor %s is %s: weights to train must be F32, F16 or BF16", t->name, t->dtype);
        return ft_at(err, "%s", path);
    }
    bool same = t->n_dims == n_dims;
    for (int i = 0; same && i < n_dims; i++) same = t->dims[i] == want[i];
    if (same) return FT_OK;
    struct ft_buf has = {0}, says = {0};
    shape_text(&has, t->dims, t->n_dims);
    shape_text(&says, want, n_dims);
    const int64_t ratio = t->n_dims == n_dims ? slice_of(t, want, n_dims) : 0;
    ft_fail(err, FT_DATA, "%s is %s in %s, config.json says %s", t->name, has.data, path, says.data);
    if (ratio) {
        ft_fail(err, FT_DATA, "%s is %s in %s, config.json says %s: looks like one slice of tensor size %lld", t->name, has.data,
                path, says.data, (long long)ratio);
        ft_fix(err, "export the whole model to Hugging Face format with the tool that wrote it");
    }
    ft_buf_fini(&has);
    ft_buf_fini(&says);
    return ft_at(err, "%s", path);
}

/* Finds parameter i; a tensor that is not there leaves places[i].tensor NULL. */
static enum ft_code locate(struct ft_import *m, size_t i, struct ft_err *err)
{
    const struct ft_param *p = &m->params[i];
    const char *base;
    const int part = split_part(m->arena, p->name, &base);
    const struct ft_st_tensor *t = find(m, base);
    const char *alias = ft_st_folder_metadata(m->folder, base);
    if (!t && alias && m->config->tied) t = find(m, alias); /* the embedding stored under the head's name */
    if (!t) return FT_OK;
    const int64_t at = part_offset(m->config, part);
    int64_t want[2] = {p->dims[0], p->dims[1]};
    if (part >= 0) want[p->n_dims - 1] = fused_extent(m->config);
    enum ft_code code = check_tensor(t, want, p->n_dims, err);
    if (!code) m->places[i] = (struct ft_import_place){t, p->n_dims == 1 ? at : 0, p->n_dims == 1 ? 0 : at};
    return code;
}

static bool harmless(const char *name)
{
    return !fnmatch("*.rotary_emb.inv_freq", name, 0) || !fnmatch("*h.*.attn.bias", name, 0) ||
           !fnmatch("*h.*.attn.masked_bias", name, 0);
}

struct names {
    struct ft_buf text;
    size_t n;
};
static void add_name(struct names *l, const char *name)
{
    if (l->n++ < NAMES_SHOWN) ft_buf_addf(&l->text, "%s%s", l->n > 1 ? ", " : "", name);
}

static enum ft_code refuse_names(struct names *missing, struct names *unknown, const char *dir, struct ft_err *err)
{
    enum ft_code code = FT_OK;
    const char *dots = missing->n > NAMES_SHOWN || unknown->n > NAMES_SHOWN ? ", …" : "";
    if (missing->n && unknown->n)
        code = ft_fail(err, FT_DATA, "%zu tensors are missing (%s) and %zu are unknown (%s%s)", missing->n, missing->text.data,
                       unknown->n, unknown->text.data, dots);
    else if (missing->n)
        code = ft_fail(err, FT_DATA, "%zu tensor%s missing: %s%s", missing->n, missing->n > 1 ? "s are" : " is", missing->text.data,
                       dots);
    else if (unknown->n)
        code = ft_fail(err, FT_DATA, "%zu tensor%s not part of the model that config.json describes: %s%s", unknown->n,
                       unknown->n > 1 ? "s are" : " is", unknown->text.data, dots);
    if (code) ft_at(err, "%s", dir);
    if (missing->n == 1 && !strcmp(ft_buf_str(&missing->text), head_name))
        ft_fix(err, "likely: set tie_word_embeddings to true in config.json, if the head is the embedding");
    ft_buf_fini(&missing->text);
    ft_buf_fini(&unknown->text);
    return code;
}

static int by_tensor(const void *a, const void *b)
{
    const struct ft_st_tensor *const *x = a, *const *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Which tensors of the folder hold parameters, and which are neither parameters nor harmless. */
static enum ft_code account(struct ft_import *m, const char *dir, struct ft_err *err)
{
    struct names missing = {{0}, 0}, unknown = {{0}, 0};
    const size_t n_files = ft_st_folder_count(m->folder);
    const struct ft_st_tensor **used = ft_arena_array(m->arena, m->n_params + 1, sizeof *used);
    size_t n_used = 0;
    for (size_t i = 0; i < m->n_params; i++)
        if (m->places[i].tensor) used[n_used++] = m->places[i].tensor;
        else add_name(&missing, m->params[i].name);
    qsort(used, n_used, sizeof(const struct ft_st_tensor *), by_tensor);
    m->tensors = ft_arena_array(m->arena, n_files + 1, sizeof *m->tensors);
    for (size_t i = 0; i < n_files; i++) {
        const struct ft_st_tensor *t = ft_st_folder_at(m->folder, i);
        if (bsearch(&t, used, n_used, sizeof(const struct ft_st_tensor *), by_tensor)) m->tensors[m->n_tensors++].tensor = t;
        else if (!harmless(t->name) && !(m->config->tied && !strcmp(t->name, head_name))) add_name(&unknown, t->name);
    }
    return refuse_names(&missing, &unknown, dir, err);
}

/* Gives each tensor the rows that make it up, in order of their columns (as declared: q k v). */
static void join_parts(struct ft_import *m)
{
    for (size_t k = 0; k < m->n_tensors; k++) m->tensors[k].params = ft_arena_array(m->arena, 3, sizeof(size_t));
    for (size_t i = 0; i < m->n_params; i++) {
        struct ft_import_tensor *t = NULL;
        for (size_t k = 0; !t && k < m->n_tensors; k++)
            if (m->tensors[(k + i) % m->n_tensors].tensor == m->places[i].tensor) t = &m->tensors[(k + i) % m->n_tensors];
        if (t && t->n_params < 3) t->params[t->n_params++] = i;
    }
}

/* A tied model's folder may hold the head as well: it must be the embedding, bit for bit. */
static enum ft_code check_second_head(const struct ft_import *m, struct ft_err *err)
{
    const struct ft_st_tensor *head = ft_st_folder_find(m->folder, head_name), *embed = NULL;
    const char *embed_name = m->config->learned_positions ? "wte.weight" : "model.embed_tokens.weight";
    for (size_t i = 0; i < m->n_params; i++)
        if (!strcmp(m->params[i].name, embed_name)) embed = m->places[i].tensor;
    if (!m->config->tied || !head || !embed || head == embed) return FT_OK;
    const int64_t want[2] = {m->config->V, m->config->h};
    enum ft_code code = check_tensor(head, want, 2, err);
    if (code) return code;
    float *a = ft_xcalloc((size_t)m->config->h, 2 * sizeof *a), *b = a + m->config->h;
    for (int64_t row = 0; !code && row < m->config->V; row++) {
        code = ft_st_read_f32(head, row * m->config->h, m->config->h, a, err);
        if (!code) code = ft_st_read_f32(embed, row * m->config->h, m->config->h, b, err);
        if (code || !memcmp(a, b, (size_t)m->config->h * sizeof *a)) continue;
        code = ft_fail(err, FT_DATA, "config.json says tie_word_embeddings, but %s differs from %s from row %lld on", head->name,
                       embed->name, (long long)row);
        ft_at(err, "%s", ft_st_path(head->file));
        ft_fix(err, "set tie_word_embeddings to false in config.json to train both, or remove %s to train the embedding",
               head->name);
    }
    free(a);
    return code;
}

/* Weight files beside an index that it does not name. */
static void find_ignored(struct ft_import *m, const char *dir)
{
    size_t n = 0, cap = 0;
    const char **v = NULL;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (fnmatch("model*.safetensors", e->d_name, 0) != 0) continue;
        bool used = false;
        for (size_t i = 0; !used && i < ft_st_folder_n_files(m->folder); i++) {
            const char *path = ft_st_path(ft_st_folder_file(m->folder, i)), *slash = strrchr(path, '/');
            used = !strcmp(slash ? slash + 1 : path, e->d_name);
        }
        if (used) continue;
        ft_grow(&v, &cap, n + 1, sizeof *v);
        v[n++] = ft_arena_printf(m->arena, "%s/%s is not named by the index and is ignored", dir, e->d_name);
    }
    if (d) closedir(d);
    m->warnings = ft_arena_array(m->arena, n + 1, sizeof *m->warnings);
    for (size_t i = 0; i < n; i++) m->warnings[i] = v[i];
    free(v);
}

enum ft_code ft_import_config(const char *dir, struct ft_arena *a, struct ft_model_config *out, struct ft_err *err)
{
    struct ft_buf config = {0};
    ft_buf_addf(&config, "%s/config.json", dir);
    enum ft_code code = ft_is_file(config.data) ? FT_OK : ft_import_foreign(dir, err);
    ft_buf_fini(&config);
    return code ? code : ft_model_config_read(dir, a, out, err);
}

static bool has_weights(const char *dir)
{
    struct ft_buf path = {0};
    ft_buf_addf(&path, "%s/model.safetensors", dir);
    bool yes = ft_is_file(path.data);
    ft_buf_adds(&path, ".index.json");
    yes = yes || ft_is_file(path.data);
    ft_buf_fini(&path);
    return yes;
}

static enum ft_code open_folder(struct ft_import *m, const char *dir, struct ft_err *err)
{
    enum ft_code code = has_weights(dir) ? FT_OK : ft_import_foreign(dir, err);
    if (!code) code = ft_st_folder_open(dir, "model", &m->folder, err);
    if (code) return code;
    m->params = ft_model_config_rows(m->config, 1, 0, 1, 0, 1, m->arena, &m->n_params, NULL);
    m->places = ft_arena_array(m->arena, m->n_params + 1, sizeof *m->places);
    m->prefixed = m->config->conv1d && ft_st_folder_find(m->folder, "transformer.wte.weight");
    for (size_t i = 0; !code && i < m->n_params; i++) code = locate(m, i, err);
    if (!code) code = account(m, dir, err);
    if (code) return code;
    join_parts(m);
    find_ignored(m, dir);
    return check_second_head(m, err);
}

enum ft_code ft_import_open(const char *dir, const struct ft_model_config *config, struct ft_import **out, struct ft_err *err)
{
    struct ft_import *m = ft_xcalloc(1, sizeof *m);
    m->arena = ft_arena_create();
    m->config = config;
    enum ft_code code = open_folder(m, dir, err);
    if (code) {
        ft_import_close(m);
        return ft_wrap(err, "reading the weights of '%s'", dir);
    }
    *out = m;
    return FT_OK;
}

void ft_import_close(struct ft_import *m)
{
    if (!m) return;
    ft_st_folder_close(m->folder);
    ft_arena_destroy(m->arena);
    free(m);
}

/* Rows [row, row+rows), columns [col, col+cols) of the local matrix; what lies beyond the logical shape is zero. */
static enum ft_code read_rect(const struct ft_import_place *at, const struct ft_param *p, int64_t row, int64_t rows, int64_t col,
                              int64_t cols, float *out, struct ft_err *err)
{
    const int64_t r0 = p->origin[0] + row, c0 = p->origin[1] + col;
    int64_t n = p->dims[0] - r0;
    n = n < 0 ? 0 : n < rows ? n : rows;
    if (n < rows) memset(out + n * cols, 0, (size_t)((rows - n) * cols) * sizeof *out);
    if (!n || !cols) return FT_OK;
    return ft_st_read_rect_f32(at->tensor, at->row0 + r0, n, at->col0 + c0, cols, out, cols, err);
}

/* A flat range of a matrix with C columns is at most three rectangles: the rest of a row, whole rows, the head of a row. */
static enum ft_code read_flat(const struct ft_import_place *at, const struct ft_param *p, int64_t from, int64_t to, float *out,
                              struct ft_err *err)
{
    const int64_t C = p->local[1];
    while (from < to) {
        const int64_t row = from / C, col = from % C;
        const bool whole = col == 0 && to - from >= C;
        const int64_t rows = whole ? (to - from) / C : 1;
        const int64_t cols = whole ? C : (C - col < to - from ? C - col : to - from);
        enum ft_code code = read_rect(at, p, row, rows, col, cols, out, err);
        if (code) return code;
        out += rows * cols;
        from += rows * cols;
    }
    return FT_OK;
}

enum ft_code ft_import_read(const struct ft_import *m, const struct ft_param *p, int64_t from, int64_t to, float *out,
                            struct ft_err *err)
{
    const struct ft_import_place *at = NULL;
    for (size_t i = 0; !at && i < m->n_params; i++)
        if (!strcmp(m->params[i].name, p->name)) at = &m->places[i];
    if (!at) FT_BUG("parameter %s is not in the model that was opened", p->name);
    enum ft_code code = read_flat(at, p, from, to, out, err);
    for (int64_t i = 0; !code && i < to - from; i++) {
        if (isfinite(out[i])) continue;
        code = ft_fail(err, FT_DATA, "%s holds %s at element %lld", at->tensor->name, isnan(out[i]) ? "NaN" : "infinity",
                       (long long)(from + i));
        ft_at(err, "%s", ft_st_path(at->tensor->file));
    }
    return code;
}

const struct ft_import_tensor *ft_import_tensors(const struct ft_import *m, size_t *n)
{
    *n = m->n_tensors;
    return m->tensors;
}

const struct ft_param *ft_import_params(const struct ft_import *m, size_t *n)
{
    *n = m->n_params;
    return m->params;
}

struct ft_import_place ft_import_place(const struct ft_import *m, size_t param) { return m->places[param]; }

const char *const *ft_import_warnings(const struct ft_import *m) { return m->warnings; }
