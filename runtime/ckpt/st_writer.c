#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/str.h"
#include "runtime/ckpt/safetensors.h"

struct row {
    enum ft_dtype type;
    int64_t begin, bytes, put; /* put: bytes that have come */
};

struct ft_st_writer {
    char *path, *part;
    int fd;
    int64_t data_at;
    struct row *rows;
    char **names;
    size_t n;
    bool sync;
    pthread_mutex_t lock; /* row.put */
};

static enum ft_code pwrite_all(const struct ft_st_writer *w, const void *p, size_t n, int64_t at, struct ft_err *err)
{
    const char *c = p;
    while (n) {
        const ssize_t k = pwrite(w->fd, c, n, at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return ft_fail(err, FT_IO, "cannot write '%s': %s", w->part, strerror(k < 0 ? errno : ENOSPC));
        c += k;
        at += k;
        n -= (size_t)k;
    }
    return FT_OK;
}

/* Lays the rows out and makes the JSON. */
static enum ft_code plan(struct ft_st_writer *w, const struct ft_st_out *t, const struct ft_st_writer_options *o,
                         struct ft_buf *json, struct ft_err *err)
{
    struct ft_jw j = ft_jw_begin(json);
    ft_jw_object(&j);
    if (o->metadata && o->metadata[0]) {
        ft_jw_key(&j, "__metadata__");
        ft_jw_object(&j);
        for (const char *const *m = o->metadata; m[0]; m += 2) ft_jw_kstr(&j, m[0], m[1]);
        ft_jw_end(&j);
    }
    int64_t at = 0;
    for (size_t i = 0; i < w->n; i++) {
        int64_t bytes = (int64_t)ft_dtype_bytes(t[i].type);
        ft_jw_key(&j, t[i].name);
        ft_jw_object(&j);
        ft_jw_kstr(&j, "dtype", ft_st_dtype_name(t[i].type));
        ft_jw_key(&j, "shape");
        ft_jw_array(&j);
        for (int d = 0; d < t[i].n_dims; d++) {
            ft_jw_int(&j, t[i].dims[d]);
            if (__builtin_mul_overflow(bytes, t[i].dims[d], &bytes))
                return ft_fail(err, FT_DATA, "tensor '%s' is too large for a file", t[i].name);
        }
        ft_jw_end(&j);
        w->rows[i] = (struct row){.type = t[i].type, .begin = at, .bytes = bytes};
        w->names[i] = ft_xstrdup(t[i].name);
        ft_jw_key(&j, "data_offsets");
        ft_jw_array(&j);
        ft_jw_int(&j, at);
        if (__builtin_add_overflow(at, bytes, &at)) return ft_fail(err, FT_DATA, "'%s' would be too large for a file", w->path);
        ft_jw_int(&j, at);
        ft_jw_end(&j);
        ft_jw_end(&j);
    }
    ft_jw_end(&j);
    const size_t align = o->align > 0 ? (size_t)o->align : 8;
    while ((8 + json->n) % align) ft_buf_addc(json, ' ');
    w->data_at = 8 + (int64_t)json->n;
    return FT_OK;
}

static enum ft_code begin(struct ft_st_writer *w, const struct ft_buf *json, struct ft_err *err)
{
    w->fd = open(w->part, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w->fd < 0) return ft_fail(err, FT_IO, "cannot create '%s': %s", w->part, strerror(errno));
    unsigned char head[8];
    for (int i = 0; i < 8; i++) head[i] = (unsigned char)((uint64_t)json->n >> (8 * i));
    const enum ft_code code = pwrite_all(w, head, 8, 0, err);
    return code ? code : pwrite_all(w, json->data, json->n, 8, err);
}

enum ft_code ft_st_writer_create(const char *path, const struct ft_st_out *tensors, size_t n, const struct ft_st_writer_options *o,
                                 struct ft_st_writer **out, struct ft_err *err)
{
    struct ft_st_writer *w = ft_xcalloc(1, sizeof *w);
    w->fd = -1;
    w->n = n;
    w->sync = o->sync;
    w->path = ft_xstrdup(path);
    w->rows = ft_xcalloc(n + 1, sizeof *w->rows);
    w->names = ft_xcalloc(n + 1, sizeof *w->names);
    pthread_mutex_init(&w->lock, NULL);
    struct ft_buf part = {0}, json = {0};
    ft_buf_addf(&part, "%s.part", path);
    w->part = part.data;
    enum ft_code code = plan(w, tensors, o, &json, err);
    if (!code) code = begin(w, &json, err);
    ft_buf_fini(&json);
    if (code) {
        ft_st_writer_destroy(w);
        return code;
    }
    *out = w;
    return FT_OK;
}

enum ft_code ft_st_writer_put(struct ft_st_writer *w, size_t i, int64_t first, const void *bytes, int64_t n, struct ft_err *err)
{
    struct row *r = &w->rows[i];
    if (i >= w->n || first < 0 || n < 0 || first > r->bytes - n) FT_BUG("put [%lld, +%lld)", (long long)first, (long long)n);
    const enum ft_code code = pwrite_all(w, bytes, (size_t)n, w->data_at + r->begin + first, err);
    if (code) return code;
    pthread_mutex_lock(&w->lock);
    r->put += n;
    pthread_mutex_unlock(&w->lock);
    return FT_OK;
}

enum { CHUNK = 65536 };

/* A weight that 16 bits cannot hold must not become infinity without a word: who loads the file would get NaN from it. */
static enum ft_code too_large(const struct ft_st_writer *w, size_t i, int64_t element, float x, struct ft_err *err)
{
    const enum ft_dtype type = w->rows[i].type;
    ft_fail(err, FT_DATA, "%s: element %lld is %g, %s ends at %g", w->names[i], (long long)element, (double)x,
            ft_st_dtype_name(type), type == FT_F16 ? 65504.0 : (double)ft_bf16_to_f32(0x7f7f));
    return ft_fix(err, "write another dtype: fp32 holds it%s", type == FT_F16 ? ", bf16 too" : "");
}

enum ft_code ft_st_writer_put_f32(struct ft_st_writer *w, size_t i, int64_t first, const float *x, int64_t n, struct ft_err *err)
{
    const enum ft_dtype type = w->rows[i].type;
    if (type == FT_F32) return ft_st_writer_put(w, i, first * 4, x, n * 4, err);
    if (type != FT_F16 && type != FT_BF16) FT_BUG("put_f32 into %s", ft_st_dtype_name(type));
    uint16_t *half = ft_xcalloc(CHUNK, sizeof *half);
    enum ft_code code = FT_OK;
    for (int64_t a = 0; a < n && !code; a += CHUNK) {
        const int64_t m = n - a < CHUNK ? n - a : CHUNK;
        const uint16_t infinity = type == FT_BF16 ? 0x7f80 : 0x7c00;
        int64_t bad = -1; /* the last one, to keep the loop plain */
        for (int64_t j = 0; j < m; j++) {
            half[j] = type == FT_BF16 ? ft_f32_to_bf16(x[a + j]) : ft_f32_to_f16(x[a + j]);
            if ((half[j] & 0x7fff) == infinity && isfinite(x[a + j])) bad = j;
        }
        code = bad >= 0 ? too_large(w, i, first + a + bad, x[a + bad], err) : FT_OK;
        if (!code) code = ft_st_writer_put(w, i, (first + a) * 2, half, m * 2, err);
    }
    free(half);
    return code;
}

static enum ft_code sync_folder(const char *path, struct ft_err *err)
{
    char *dir = ft_xstrdup(path), *slash = strrchr(dir, '/');
    if (slash) slash[slash == dir] = '\0';
    int fd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    enum ft_code code = FT_OK;
    if (fd < 0 || fsync(fd) != 0) code = ft_fail(err, FT_IO, "cannot sync the folder of '%s': %s", path, strerror(errno));
    ft_close(&fd);
    free(dir);
    return code;
}

enum ft_code ft_st_writer_commit(struct ft_st_writer *w, struct ft_err *err)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->rows[i].put != w->rows[i].bytes)
            FT_BUG("'%s': %lld of %lld bytes of '%s' were written", w->path, (long long)w->rows[i].put, (long long)w->rows[i].bytes,
                   w->names[i]);
    if (w->sync && fsync(w->fd) != 0) return ft_fail(err, FT_IO, "cannot sync '%s': %s", w->part, strerror(errno));
    const int fd = w->fd;
    w->fd = -1;
    if (close(fd) != 0) return ft_fail(err, FT_IO, "cannot write '%s': %s", w->part, strerror(errno));
    if (rename(w->part, w->path) != 0)
        return ft_fail(err, FT_IO, "cannot rename '%s' to '%s': %s", w->part, w->path, strerror(errno));
    free(w->part);
    w->part = NULL;
    return w->sync ? sync_folder(w->path, err) : FT_OK;
}

void ft_st_writer_destroy(struct ft_st_writer *w)
{
    if (!w) return;
    ft_close(&w->fd);
    if (w->part) unlink(w->part);
    for (size_t i = 0; i < w->n; i++) free(w->names[i]);
    free(w->names);
    free(w->rows);
    free(w->part);
    free(w->path);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
