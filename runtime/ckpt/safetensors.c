#include "runtime/ckpt/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/fd.h"
#include "base/json.h"

enum { MAX_HEADER = 100000000 };

struct ft_st_file {
    char *path;
    int fd;          /* -1: parsed from memory */
    int64_t data_at; /* file offset of the data */
    struct ft_json *header;
    struct ft_st_tensor *tensors; /* ascending begin */
    struct ft_st_tensor **by_name;
    size_t n;
};

static const struct {
    const char *name;
    int bytes;
    enum ft_dtype type;
} dtypes[] = {
    {"F32", 4, FT_F32},      {"F16", 2, FT_F16},         {"BF16", 2, FT_BF16},       {"F64", 8, FT_F64},
    {"I32", 4, FT_I32},      {"I64", 8, FT_I64},         {"U8", 1, FT_U8},           {"I8", 1, FT_I8},
    {"BOOL", 1, FT_BOOL},    {"F8_E4M3", 1, FT_F8_E4M3}, {"F8_E5M2", 1, FT_F8_E5M2}, {"I16", 2, FT_N_DTYPES},
    {"U16", 2, FT_N_DTYPES}, {"U32", 4, FT_N_DTYPES},    {"U64", 8, FT_N_DTYPES},
};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

const char *ft_st_dtype_name(enum ft_dtype t)
{
    for (int i = 0; i < N_DTYPES; i++)
        if (dtypes[i].type == t && t != FT_N_DTYPES) return dtypes[i].name;
    return "?";
}

static int by_begin(const void *a, const void *b)
{
    const struct ft_st_tensor *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1; /* empty ones first */
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    const struct ft_st_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* shape -> dims and count; false with a message on anything that is not a list of sizes whose product is a size. */
static enum ft_code read_shape(const char *path, const struct ft_json *shape, struct ft_st_tensor *t, struct ft_err *err)
{
    if (!ft_json_is(shape, FT_JSON_ARRAY))
        return ft_fail(err, FT_DATA, "'%s': tensor '%s': shape is %s, not a list", path, t->name, ft_json_type_name(shape));
    if (ft_json_count(shape) > FT_ST_DIMS)
        return ft_fail(err, FT_DATA, "'%s': tensor '%s' has %zu dimensions; at most %d are read", path, t->name,
                       ft_json_count(shape), FT_ST_DIMS);
    t->n_dims = (int)ft_json_count(shape);
    t->count = 1;
    for (int i = 0; i < t->n_dims; i++) {
        const struct ft_json *v = ft_json_at(shape, (size_t)i);
        const int64_t d = ft_json_int(v, -1);
        if (!ft_json_is(v, FT_JSON_INT) || d < 0)
            return ft_fail(err, FT_DATA, "'%s': tensor '%s': size %d of its shape is not a number >= 0", path, t->name, i);
        if (__builtin_mul_overflow(t->count, d, &t->count))
            return ft_fail(err, FT_DATA, "'%s': tensor '%s': the product of its shape overflows", path, t->name);
        t->dims[i] = d;
    }
    return FT_OK;
}

static enum ft_code read_entry(const char *path, const struct ft_json *e, int64_t data_bytes, struct ft_st_tensor *t,
                               struct ft_err *err)
{
    if (!ft_json_is(e, FT_JSON_OBJECT))
        return ft_fail(err, FT_DATA, "'%s': entry '%s' is %s, not an object", path, t->name, ft_json_type_name(e));
    const char *dtype = ft_json_str(ft_json_get(e, "dtype"));
    if (!dtype) return ft_fail(err, FT_DATA, "'%s': tensor '%s' has no dtype", path, t->name);
    int d = 0;
    while (d < N_DTYPES && strcmp(dtypes[d].name, dtype) != 0) d++;
    if (d == N_DTYPES) return ft_fail(err, FT_DATA, "'%s': tensor '%s': unknown dtype '%s'", path, t->name, dtype);
    t->dtype = dtypes[d].name;
    t->type = dtypes[d].type;
    if (read_shape(path, ft_json_get(e, "shape"), t, err)) return err ? err->code : FT_DATA;
    const struct ft_json *o = ft_json_get(e, "data_offsets"), *o0 = ft_json_at(o, 0), *o1 = ft_json_at(o, 1);
    if (!ft_json_is(o, FT_JSON_ARRAY) || ft_json_count(o) != 2 || !ft_json_is(o0, FT_JSON_INT) || !ft_json_is(o1, FT_JSON_INT))
        return ft_fail(err, FT_DATA, "'%s': tensor '%s': data_offsets is not a pair of numbers", path, t->name);
    t->begin = ft_json_int(o0, -1);
    t->end = ft_json_int(o1, -1);
    if (t->begin < 0 || t->end < t->begin || t->end > data_bytes)
        return ft_fail(err, FT_DATA, "'%s': tensor '%s': data_offsets [%lld, %lld) are outside the %lld bytes of data", path,
                       t->name, (long long)t->begin, (long long)t->end, (long long)data_bytes);
    int64_t bytes;
    if (__builtin_mul_overflow(t->count, (int64_t)dtypes[d].bytes, &bytes) || bytes != t->end - t->begin)
        return ft_fail(err, FT_DATA, "'%s': tensor '%s': %lld elements of %s do not fill its %lld bytes", path, t->name,
                       (long long)t->count, t->dtype, (long long)(t->end - t->begin));
    for (void *it = ft_json_iter(e); it; it = ft_json_iter_next(e, it)) {
        const char *k = ft_json_iter_key(it);
        if (strcmp(k, "dtype") != 0 && strcmp(k, "shape") != 0 && strcmp(k, "data_offsets") != 0)
            return ft_fail(err, FT_DATA, "'%s': tensor '%s': unknown member '%s'", path, t->name, k);
    }
    return FT_OK;
}

static enum ft_code check_metadata(const char *path, const struct ft_json *m, struct ft_err *err)
{
    if (!ft_json_is(m, FT_JSON_OBJECT))
        return ft_fail(err, FT_DATA, "'%s': __metadata__ is %s, not an object", path, ft_json_type_name(m));
    for (void *it = ft_json_iter(m); it; it = ft_json_iter_next(m, it))
        if (!ft_json_is(ft_json_iter_value(it), FT_JSON_STRING))
            return ft_fail(err, FT_DATA, "'%s': __metadata__ '%s' is not text", path, ft_json_iter_key(it));
    return FT_OK;
}

/* Sorted ranges must tile [0, data_bytes). */
static enum ft_code check_tiling(const struct ft_st_file *f, int64_t data_bytes, struct ft_err *err)
{
    int64_t at = 0;
    for (size_t i = 0; i < f->n; i++) {
        const struct ft_st_tensor *t = &f->tensors[i];
        if (t->begin < at)
            return ft_fail(err, FT_DATA, "'%s': tensors '%s' and '%s' overlap at byte %lld of the data", f->path,
                           f->tensors[i - 1].name, t->name, (long long)t->begin);
        if (t->begin > at)
            return ft_fail(err, FT_DATA, "'%s': a hole of %lld bytes before tensor '%s'", f->path, (long long)(t->begin - at),
                           t->name);
        at = t->end;
    }
    if (at != data_bytes)
        return ft_fail(err, FT_DATA, "'%s': %lld bytes of data, but its tensors end at %lld", f->path, (long long)data_bytes,
                       (long long)at);
    return FT_OK;
}

static enum ft_code read_entries(struct ft_st_file *f, int64_t data_bytes, struct ft_err *err)
{
    f->tensors = ft_xcalloc(ft_json_count(f->header) + 1, sizeof *f->tensors);
    for (void *it = ft_json_iter(f->header); it; it = ft_json_iter_next(f->header, it)) {
        const struct ft_json *e = ft_json_iter_value(it);
        if (strcmp(ft_json_iter_key(it), "__metadata__") == 0) {
            if (check_metadata(f->path, e, err)) return FT_DATA;
            continue;
        }
        struct ft_st_tensor *t = &f->tensors[f->n++];
        t->name = ft_json_iter_key(it);
        t->file = f;
        if (read_entry(f->path, e, data_bytes, t, err)) return FT_DATA;
    }
    qsort(f->tensors, f->n, sizeof *f->tensors, by_begin);
    if (check_tiling(f, data_bytes, err)) return FT_DATA;
    f->by_name = ft_xcalloc(f->n + 1, sizeof *f->by_name);
    for (size_t i = 0; i < f->n; i++) f->by_name[i] = &f->tensors[i];
    qsort(f->by_name, f->n, sizeof *f->by_name, by_name);
    return FT_OK;
}

enum ft_code ft_st_parse(const char *path, const char *header, size_t n, int64_t data_bytes, struct ft_st_file **out,
                         struct ft_err *err)
{
    if (n == 0 || header[0] != '{') return ft_fail(err, FT_DATA, "'%s': its header does not begin with '{'", path);
    struct ft_st_file *f = ft_xcalloc(1, sizeof *f);
    f->path = ft_xstrdup(path);
    f->fd = -1;
    enum ft_code code = ft_json_parse(header, n, 0, &f->header, NULL, err);
    if (code) ft_wrap(err, "reading the header of '%s'", path), code = FT_DATA;
    else code = read_entries(f, data_bytes, err);
    if (code) {
        ft_st_close(f);
        return code;
    }
    *out = f;
    return FT_OK;
}

static enum ft_code open_fd(const char *path, int fd, struct ft_st_file **out, struct ft_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return ft_fail(err, FT_IO, "cannot read '%s': %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return ft_fail(err, FT_IO, "'%s' is not a file", path);
    unsigned char head[8];
    if (st.st_size < 8) return ft_fail(err, FT_DATA, "'%s' has %lld bytes: not a safetensors file", path, (long long)st.st_size);
    enum ft_code code = ft_pread_exact(fd, head, 8, 0, err);
    if (code) return ft_wrap(err, "reading '%s'", path);
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) n = n << 8 | head[i];
    if (n > MAX_HEADER || n > (uint64_t)st.st_size - 8)
        return ft_fail(err, FT_DATA, "'%s': a header of %llu bytes in a file of %lld (damaged, cut off, or not a safetensors file)",
                       path, (unsigned long long)n, (long long)st.st_size);
    char *header = ft_xcalloc((size_t)n + 1, 1);
    code = ft_pread_exact(fd, header, (size_t)n, 8, err);
    if (code) code = ft_wrap(err, "reading '%s'", path);
    else code = ft_st_parse(path, header, (size_t)n, st.st_size - 8 - (int64_t)n, out, err);
    free(header);
    if (code) return code;
    (*out)->fd = fd;
    (*out)->data_at = 8 + (int64_t)n;
    return FT_OK;
}

enum ft_code ft_st_open(const char *path, struct ft_st_file **out, struct ft_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang */
    if (fd < 0) return ft_fail(err, FT_IO, "cannot open '%s': %s", path, strerror(errno));
    const enum ft_code code = open_fd(path, fd, out, err);
    if (code) ft_close(&fd);
    return code;
}

void ft_st_close(struct ft_st_file *f)
{
    if (!f) return;
    if (f->fd >= 0) ft_close(&f->fd);
    free(f->by_name);
    free(f->tensors);
    ft_json_destroy(f->header);
    free(f->path);
    free(f);
}

const char *ft_st_path(const struct ft_st_file *f) { return f->path; }
size_t ft_st_count(const struct ft_st_file *f) { return f->n; }
const struct ft_st_tensor *ft_st_at(const struct ft_st_file *f, size_t i) { return &f->tensors[i]; }

const struct ft_st_tensor *ft_st_find(const struct ft_st_file *f, const char *name)
{
    const struct ft_st_tensor key = {.name = name}, *pkey = &key;
    struct ft_st_tensor *const *hit = bsearch(&pkey, f->by_name, f->n, sizeof *f->by_name, by_name);
    return hit ? *hit : NULL;
}

const char *ft_st_metadata(const struct ft_st_file *f, const char *key)
{
    return ft_json_str(ft_json_get(ft_json_get(f->header, "__metadata__"), key));
}

/* ---- data ---- */

enum ft_code ft_st_read(const struct ft_st_tensor *t, int64_t first, int64_t n, void *out, struct ft_err *err)
{
    const int64_t size = t->count ? (t->end - t->begin) / t->count : 0;
    if (first < 0 || n < 0 || first > t->count - n) FT_BUG("read [%lld, +%lld) of '%s'", (long long)first, (long long)n, t->name);
    if (n == 0) return FT_OK;
    if (t->file->fd < 0) return ft_fail(err, FT_IO, "'%s' is not open", t->file->path);
    if (ft_pread_exact(t->file->fd, out, (size_t)(n * size), t->file->data_at + t->begin + first * size, err))
        return ft_wrap(err, "reading tensor '%s' of '%s'", t->name, t->file->path);
    return FT_OK;
}

/* Widens n 16-bit values that lie at the end of out's own memory (n floats), front to back: never overwrites what is unread. */
static void widen(const uint16_t *x, int64_t n, enum ft_dtype type, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        const uint16_t h = x[i];
        out[i] = type == FT_BF16 ? ft_bf16_to_f32(h) : ft_f16_to_f32(h);
    }
}

enum ft_code ft_st_read_f32(const struct ft_st_tensor *t, int64_t first, int64_t n, float *out, struct ft_err *err)
{
    if (t->type == FT_F32) return ft_st_read(t, first, n, out, err);
    if (t->type != FT_F16 && t->type != FT_BF16)
        return ft_fail(err, FT_UNSUPPORTED, "tensor '%s' of '%s' is %s; F32, F16 and BF16 are read", t->name, t->file->path,
                       t->dtype);
    uint16_t *half = (uint16_t *)out + n; /* the second half of out; element i is read before float i can reach it */
    const enum ft_code code = ft_st_read(t, first, n, half, err);
    if (code) return code;
    widen(half, n, t->type, out);
    return FT_OK;
}

enum ft_code ft_st_read_rect_f32(const struct ft_st_tensor *t, int64_t row0, int64_t rows, int64_t col0, int64_t cols, float *out,
                                 int64_t ld_out, struct ft_err *err)
{
    const int64_t width = t->n_dims == 2 ? t->dims[1] : 1;
    if (cols == width && ld_out == width) return ft_st_read_f32(t, row0 * width, rows * width, out, err);
    for (int64_t r = 0; r < rows; r++) {
        const enum ft_code code = ft_st_read_f32(t, (row0 + r) * width + col0, cols, out + r * ld_out, err);
        if (code) return code;
    }
    return FT_OK;
}
