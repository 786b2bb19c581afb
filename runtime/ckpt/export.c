#include "runtime/ckpt/export.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/str.h"
#include "runtime/ckpt/target.h"

enum { PIECE = 1 << 20 };
static const int64_t default_file_bytes = 5000000000;

enum ft_code ft_export_check(const char *dir, struct ft_err *err)
{
    struct stat st;
    if (lstat(dir, &st) == 0) {
        ft_fail(err, FT_CONFIG, "cannot export to '%s': it exists", dir);
        return ft_fix(err, "set [export] dir to a new folder, or remove this one");
    }
    struct ft_err why = {0};
    if (!ft_target_check(dir, &why)) return FT_OK;
    return ft_fail(err, FT_IO, "cannot export to '%s': %s", dir, why.text);
}

struct writing {
    const struct ft_export *e;
    const struct ft_import_tensor *tensors;
    size_t n;
    const struct ft_param *params;
    const char *tmp;
    size_t *first; /* [n_files+1] tensors of each file */
    size_t n_files;
    int64_t total;
};

static enum ft_dtype type_of(const struct ft_export *e, const struct ft_st_tensor *t)
{
    return e->dtype == FT_N_DTYPES ? t->type : e->dtype;
}

static void path_in(struct ft_buf *b, const char *dir, const char *name)
{
    ft_buf_clear(b);
    ft_buf_addf(b, "%s/%s", dir, name);
}

/* Cuts the tensors, in order, into files of at most max bytes (a larger tensor has a file of its own). */
static void cut_files(struct writing *w)
{
    const int64_t max = w->e->max_file_bytes ? w->e->max_file_bytes : default_file_bytes;
    int64_t bytes = 0;
    w->first = ft_xcalloc(w->n + 2, sizeof *w->first);
    for (size_t i = 0; i < w->n; i++) {
        const int64_t b = w->tensors[i].tensor->count * (int64_t)ft_dtype_bytes(type_of(w->e, w->tensors[i].tensor));
        if (i && bytes + b > max) {
            w->first[++w->n_files] = i;
            bytes = 0;
        }
        bytes += b;
        w->total += b;
    }
    w->first[++w->n_files] = w->n;
}

static void file_name(const struct writing *w, size_t k, struct ft_buf *out)
{
    ft_buf_clear(out);
    if (w->n_files == 1) ft_buf_adds(out, "model.safetensors");
    else ft_buf_addf(out, "model-%05zu-of-%05zu.safetensors", k + 1, w->n_files);
}

/* Some rows of a tensor of several parts (q|k|v), part by part. */
static enum ft_code put_rows(const struct writing *w, struct ft_st_writer *out, size_t at, const struct ft_import_tensor *t,
                             int64_t from, int64_t to, float *buf, struct ft_err *err)
{
    const int64_t cols = t->tensor->dims[t->tensor->n_dims - 1], rows = t->tensor->count / cols;
    enum ft_code code = FT_OK;
    for (size_t k = 0; !code && k < t->n_params; k++) {
        const struct ft_param *p = &w->params[t->params[k]];
        const struct ft_import_place place = ft_import_place(w->e->base, t->params[k]);
        const int64_t n = ft_param_count(p) / rows, column = place.col0 + (p->n_dims == 1 ? place.row0 : 0);
        code = w->e->fetch(w->e->ctx, t->params[k], from * n, to * n, buf, err);
        for (int64_t r = from; !code && r < to; r++)
            code = ft_st_writer_put_f32(out, at, r * cols + column, buf + (r - from) * n, n, err);
    }
    return code;
}

static enum ft_code put_tensor(const struct writing *w, struct ft_st_writer *out, size_t at, const struct ft_import_tensor *t,
                               float *buf, struct ft_err *err)
{
    const int64_t cols = t->tensor->dims[t->tensor->n_dims - 1], rows = t->tensor->count / cols;
    const int64_t step = t->n_params == 1 ? PIECE
                         : cols < PIECE   ? PIECE / cols
                                          : 1,
                  end = t->n_params == 1 ? t->tensor->count : rows;
    enum ft_code code = FT_OK;
    for (int64_t from = 0; !code && from < end; from += step) {
        const int64_t to = from + step < end ? from + step : end;
        if (t->n_params > 1) {
            code = put_rows(w, out, at, t, from, to, buf, err);
            continue;
        }
        code = w->e->fetch(w->e->ctx, t->params[0], from, to, buf, err);
        if (!code) code = ft_st_writer_put_f32(out, at, from, buf, to - from, err);
    }
    return code;
}

static enum ft_code write_file_of_tensors(const struct writing *w, size_t k, float *buf, struct ft_err *err)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    const size_t first = w->first[k], n = w->first[k + 1] - first;
    struct ft_st_out *rows = ft_xcalloc(n, sizeof *rows);
    for (size_t i = 0; i < n; i++) {
        const struct ft_st_tensor *t = w->tensors[first + i].tensor;
        rows[i] = (struct ft_st_out){.name = t->name, .type = type_of(w->e, t), .n_dims = t->n_dims};
        memcpy(rows[i].dims, t->dims, sizeof rows[i].dims);
    }
    struct ft_buf name = {0}, path = {0};
    file_name(w, k, &name);
    path_in(&path, w->tmp, name.data);
    const struct ft_st_writer_options o = {.metadata = metadata, .align = 8, .sync = true};
    struct ft_st_writer *out = NULL;
    enum ft_code code = ft_st_writer_create(path.data, rows, n, &o, &out, err);
    for (size_t i = 0; !code && i < n; i++) code = put_tensor(w, out, i, &w->tensors[first + i], buf, err);
    if (!code) code = ft_st_writer_commit(out, err);
    ft_st_writer_destroy(out);
    ft_buf_fini(&name);
    ft_buf_fini(&path);
    free(rows);
    return code;
}

struct mapped {
    const char *name;
    size_t file;
};
static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct mapped *)a)->name, ((const struct mapped *)b)->name);
}

static enum ft_code write_index(const struct writing *w, struct ft_err *err)
{
    struct mapped *m = ft_xcalloc(w->n, sizeof *m);
    for (size_t k = 0; k < w->n_files; k++)
        for (size_t i = w->first[k]; i < w->first[k + 1]; i++) m[i] = (struct mapped){w->tensors[i].tensor->name, k};
    qsort(m, w->n, sizeof *m, by_name);
    struct ft_buf text = {0}, name = {0}, path = {0};
    struct ft_jw j = ft_jw_begin(&text);
    ft_jw_object(&j);
    ft_jw_key(&j, "metadata");
    ft_jw_object(&j);
    ft_jw_kint(&j, "total_size", w->total);
    ft_jw_end(&j);
    ft_jw_key(&j, "weight_map");
    ft_jw_object(&j);
    for (size_t i = 0; i < w->n; i++) {
        file_name(w, m[i].file, &name);
        ft_jw_kstr(&j, m[i].name, name.data);
    }
    ft_jw_end(&j);
    ft_jw_end(&j);
    ft_buf_addc(&text, '\n');
    path_in(&path, w->tmp, "model.safetensors.index.json");
    enum ft_code code = ft_write_file(path.data, text.data, text.n, 0666, err);
    ft_buf_fini(&text);
    ft_buf_fini(&name);
    ft_buf_fini(&path);
    free(m);
    return code;
}

/* Elements: a piece, or one row of a tensor of several parts. */
static size_t buffer_size(const struct writing *w)
{
    int64_t most = PIECE;
    for (size_t i = 0; i < w->n; i++) {
        const struct ft_st_tensor *t = w->tensors[i].tensor;
        if (w->tensors[i].n_params > 1 && t->dims[t->n_dims - 1] > most) most = t->dims[t->n_dims - 1];
    }
    return (size_t)most;
}

static enum ft_code write_all(struct writing *w, struct ft_err *err)
{
    enum ft_code code = FT_OK;
    float *buf = ft_xcalloc(buffer_size(w), sizeof *buf);
    cut_files(w);
    for (size_t k = 0; !code && k < w->n_files; k++) code = write_file_of_tensors(w, k, buf, err);
    free(buf);
    if (!code && w->n_files > 1) code = write_index(w, err);
    if (!code) code = ft_export_files(w->e, w->tmp, err);
    free(w->first);
    return code;
}

/* Files one level deep are all that export makes. */
static void remove_folder(const char *dir)
{
    struct ft_buf path = {0};
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        path_in(&path, dir, e->d_name);
        if (unlink(path.data) != 0 && errno == EISDIR) remove_folder(path.data);
    }
    if (d) closedir(d);
    (void)rmdir(dir);
    ft_buf_fini(&path);
}

static enum ft_code publish(const char *tmp, const char *dir, struct ft_err *err)
{
    int fd = open(tmp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL)) {
        ft_close(&fd);
        return ft_fail(err, FT_IO, "cannot sync folder '%s': %s", tmp, strerror(errno));
    }
    ft_close(&fd);
    if (renameat2(AT_FDCWD, tmp, AT_FDCWD, dir, RENAME_NOREPLACE) == 0) return FT_OK;
    if (errno != EINVAL && errno != ENOSYS) return ft_fail(err, FT_IO, "cannot rename '%s' to '%s': %s", tmp, dir, strerror(errno));
    enum ft_code code = ft_export_check(dir, err); /* a file system without RENAME_NOREPLACE */
    if (!code && rename(tmp, dir) != 0) code = ft_fail(err, FT_IO, "cannot rename '%s' to '%s': %s", tmp, dir, strerror(errno));
    return code;
}

enum ft_code ft_export_full(const struct ft_export *e, struct ft_err *err)
{
    enum ft_code code = ft_export_check(e->dir, err);
    if (code) return code;
    struct ft_buf dir = {0}, tmp = {0};
    uint64_t salt = 0;
    if (!ft_random(&salt, sizeof salt)) return ft_fail(err, FT_IO, "no random bytes: %s", strerror(errno));
    ft_buf_adds(&dir, e->dir);
    while (dir.n > 1 && dir.data[dir.n - 1] == '/') dir.data[--dir.n] = 0;
    ft_buf_addf(&tmp, "%s.part-%016llx", dir.data, (unsigned long long)salt);
    struct writing w = {.e = e, .tmp = tmp.data};
    size_t n_params;
    w.tensors = ft_import_tensors(e->base, &w.n);
    w.params = ft_import_params(e->base, &n_params);
    code = ft_mkdirs(tmp.data, 0777, err);
    if (!code) code = write_all(&w, err);
    if (!code) code = publish(tmp.data, dir.data, err);
    if (code) {
        remove_folder(tmp.data);
        ft_wrap(err, "exporting the model to '%s'", e->dir);
    }
    ft_buf_fini(&dir);
    ft_buf_fini(&tmp);
    return code;
}
