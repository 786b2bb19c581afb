#include "runtime/ckpt/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/hash.h"
#include "runtime/ckpt/state.h"

struct ft_weights {
    char *dir;
    struct ft_manifest *m;
    const struct ft_mf_tensor *held; /* its values are in x */
    float *x;
};

static bool is_file_in(const char *dir, const char *name)
{
    struct ft_buf p = {0};
    ft_buf_addf(&p, "%s/%s", dir, name);
    const bool yes = ft_is_file(p.data);
    ft_buf_fini(&p);
    return yes;
}

/* DIR/NAME of the hint, when that folder has a manifest. */
static bool take_hint(const char *dir, const char *hint, struct ft_buf *out)
{
    struct ft_buf name = {0};
    ft_ckpt_hint_read(dir, hint, &name);
    ft_buf_clear(out);
    if (name.n) ft_buf_addf(out, "%s/%s", dir, name.data);
    ft_buf_fini(&name);
    return out->n && is_file_in(out->data, "manifest.json");
}

enum ft_code ft_weights_find(const char *path, struct ft_buf *dir, struct ft_err *err)
{
    struct ft_buf sub = {0};
    ft_buf_clear(dir);
    ft_buf_adds(dir, path);
    if (is_file_in(path, "manifest.json")) return FT_OK;
    ft_buf_addf(&sub, "%s/checkpoints", path);
    const bool found = take_hint(path, "BEST", dir) || take_hint(path, "LATEST", dir) || take_hint(sub.data, "BEST", dir) ||
                       take_hint(sub.data, "LATEST", dir);
    ft_buf_fini(&sub);
    if (found) return FT_OK;
    return ft_fail(err, FT_CONFIG, "'%s' is neither a model folder nor a run with checkpoints nor a checkpoint", path);
}

enum ft_code ft_weights_open(const char *dir, struct ft_weights **out, struct ft_err *err)
{
    struct ft_weights *w = ft_xcalloc(1, sizeof *w);
    struct ft_buf text = {0}, path = {0};
    w->dir = ft_xstrdup(dir);
    ft_buf_addf(&path, "%s/manifest.json", dir);
    enum ft_code code = ft_manifest_read(dir, &text, err);
    if (!code) code = ft_manifest_parse(path.data, text.data, text.n, &w->m, err);
    if (!code) code = ft_manifest_check_files(w->m, dir, err);
    if (!code) code = ft_manifest_check_tiles(w->m, err);
    ft_buf_fini(&text);
    ft_buf_fini(&path);
    if (code) {
        ft_weights_close(w);
        return ft_wrap(err, "reading the checkpoint '%s'", dir);
    }
    *out = w;
    return FT_OK;
}

int64_t ft_weights_step(const struct ft_weights *w) { return w->m->step; }
const char *ft_weights_base(const struct ft_weights *w)
{
    return ft_json_str(ft_json_get(ft_json_get(w->m->root, "base"), "path"));
}

bool ft_weights_chat(const struct ft_weights *w, const char **template_text, int64_t *terminator_id)
{
    const struct ft_json *base = ft_json_get(w->m->root, "base");
    *template_text = ft_json_str(ft_json_get(base, "template"));
    *terminator_id = ft_json_int(ft_json_get(base, "terminator_id"), -1);
    return ft_json_get(base, "terminator_id") != NULL;
}

/* The weight itself, or its master where the precision is not fp32. */
static const struct ft_mf_tensor *find(const struct ft_weights *w, const char *name)
{
    struct ft_buf master = {0};
    ft_buf_addf(&master, "optim.master/%s", name);
    const struct ft_mf_tensor *t = ft_mf_find(&w->m->tensors, name);
    if (!t) t = ft_mf_find(&w->m->tensors, master.data);
    ft_buf_fini(&master);
    return t;
}

enum ft_code ft_weights_check(const struct ft_weights *w, const struct ft_param *params, size_t n, struct ft_err *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct ft_mf_tensor *t = find(w, params[i].name);
        if (!t) return ft_fail(err, FT_DATA, "the checkpoint '%s' has no %s", w->dir, params[i].name);
        if (t->dtype == FT_F32 && t->n_dims == params[i].n_dims && t->dims[0] == params[i].dims[0] &&
            t->dims[1] == params[i].dims[1])
            continue;
        return ft_fail(err, FT_DATA, "%s is [%lld,%lld] in the checkpoint '%s', this model needs F32 [%lld,%lld]", t->name,
                       (long long)t->dims[0], (long long)t->dims[1], w->dir, (long long)params[i].dims[0],
                       (long long)params[i].dims[1]);
    }
    return FT_OK;
}

static enum ft_code read_entry(struct ft_weights *w, const struct ft_mf_tensor *t, const struct ft_mf_entry *e, struct ft_err *err)
{
    struct ft_buf path = {0};
    ft_buf_addf(&path, "%s/%s", w->dir, w->m->files[e->file].name);
    float *part = ft_xcalloc((size_t)ft_rect_count(&e->rect) + 1, sizeof *part);
    int fd = open(path.data, O_RDONLY | O_CLOEXEC);
    enum ft_code code = fd < 0 ? ft_fail(err, FT_IO, "cannot open '%s': %s", path.data, strerror(errno)) : FT_OK;
    if (!code) code = ft_pread_exact(fd, part, (size_t)e->bytes, e->begin, err);
    ft_close(&fd);
    const uint32_t crc = ft_crc32c(0, part, (size_t)e->bytes);
    if (!code && crc != e->crc)
        code = ft_fail(err, FT_DATA, "%s: CRC %08x, manifest says %08x (%s)", t->name, crc, e->crc, path.data);
    const int64_t cols = t->dims[1];
    for (int64_t r = 0; !code && r < e->rect.n[0]; r++)
        memcpy(w->x + (e->rect.at[0] + r) * cols + e->rect.at[1], part + r * e->rect.n[1], (size_t)e->rect.n[1] * sizeof *part);
    free(part);
    ft_buf_fini(&path);
    return code;
}

enum ft_code ft_weights_read(struct ft_weights *w, const struct ft_param *p, int64_t from, int64_t to, float *out,
                             struct ft_err *err)
{
    const struct ft_mf_tensor *t = find(w, p->name);
    if (!t) FT_BUG("%s was not checked", p->name);
    if (t != w->held) {
        w->held = NULL;
        free(w->x);
        w->x = ft_xcalloc((size_t)(t->dims[0] * t->dims[1]), sizeof *w->x);
        for (size_t i = 0; i < t->n_entries; i++) {
            enum ft_code code = read_entry(w, t, &t->entries[i], err);
            if (code) return code;
        }
        w->held = t;
    }
    memcpy(out, w->x + from, (size_t)(to - from) * sizeof *out);
    return FT_OK;
}

void ft_weights_close(struct ft_weights *w)
{
    if (!w) return;
    ft_manifest_destroy(w->m);
    free(w->x);
    free(w->dir);
    free(w);
}
