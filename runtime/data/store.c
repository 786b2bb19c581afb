/* Samples in memory and in files (samples.h). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/fd.h"
#include "runtime/data/samples.h"

enum { TOKENS, SPANS, INDEX, N_FILES };
static const char *const names[N_FILES] = {"tokens.bin", "spans.bin", "index.bin"};

struct ft_sample_files {
    int width;          /* bytes a token */
    FILE *out[N_FILES]; /* while writing */
    int64_t n_spans;
    void *map[N_FILES]; /* when mapped */
    size_t bytes[N_FILES];
    bool failed;
    int error; /* errno of the first failure */
};

void ft_samples_fini(struct ft_samples *s)
{
    struct ft_sample_files *f = s->files;
    for (int i = 0; f && i < N_FILES; i++) {
        if (f->out[i]) fclose(f->out[i]);
        if (f->map[i]) munmap(f->map[i], f->bytes[i]);
    }
    if (!f) free(s->v);
    free(f);
    free(s->ids);
    free(s->labels);
    memset(s, 0, sizeof *s);
}

static void put(struct ft_sample_files *f, int file, const void *p, size_t n)
{
    if (f->failed || !n || fwrite(p, 1, n, f->out[file]) == n) return;
    f->failed = true, f->error = errno;
}

/* Trained ranges; an id with another label than itself cannot be told by ranges, so the label follows as a range of no length. */
static void put_spans(struct ft_sample_files *f, const int32_t *ids, const int32_t *labels, int32_t n, struct ft_sample *x)
{
    x->span_at = f->n_spans;
    for (int32_t i = 0, end; i < n; i = end) {
        end = i + 1;
        if (labels[i] == FT_NOT_TRAINED) continue;
        struct ft_trained_span span = {(uint32_t)i, 0};
        if (labels[i] == ids[i])
            while (end < n && labels[end] == ids[end]) end++;
        span.end = (uint32_t)end;
        put(f, SPANS, &span, sizeof span);
        f->n_spans++, x->n_spans++;
        if (labels[i] == ids[i]) continue;
        const struct ft_trained_span other = {UINT32_MAX, (uint32_t)labels[i]};
        put(f, SPANS, &other, sizeof other);
        f->n_spans++, x->n_spans++;
    }
}

static void put_tokens(struct ft_sample_files *f, const int32_t *ids, int32_t n)
{
    uint16_t narrow[1024];
    if (f->width == 4) put(f, TOKENS, ids, (size_t)n * sizeof *ids);
    for (int32_t at = 0; f->width == 2 && at < n; at += 1024) {
        const int32_t k = n - at < 1024 ? n - at : 1024;
        for (int32_t i = 0; i < k; i++) {
            narrow[i] = (uint16_t)ids[at + i];
            if (ids[at + i] > UINT16_MAX) f->failed = true, f->error = ERANGE;
        }
        put(f, TOKENS, narrow, (size_t)k * sizeof *narrow);
    }
}

static void keep_in_memory(struct ft_samples *s, const int32_t *ids, const int32_t *labels, const struct ft_sample *x)
{
    const size_t at = s->n_tokens, more = (size_t)x->n;
    ft_grow(&s->ids, &s->ids_cap, at + more, sizeof *s->ids);
    ft_grow(&s->labels, &s->labels_cap, at + more, sizeof *s->labels);
    memcpy(s->ids + at, ids, more * sizeof *ids);
    memcpy(s->labels + at, labels, more * sizeof *labels);
    ft_grow(&s->v, &s->cap, s->n + 1, sizeof *s->v);
    s->v[s->n] = *x;
}

int32_t ft_samples_add(struct ft_samples *s, const int32_t *ids, int32_t *labels, int32_t n, int32_t file, int64_t line)
{
    struct ft_sample x = {.at = (int64_t)s->n_tokens, .n = n, .file = file, .line = line};
    if (n) labels[0] = FT_NOT_TRAINED;
    for (int32_t i = 0; i < n; i++) x.trained += labels[i] != FT_NOT_TRAINED;
    if (s->files) {
        put_tokens(s->files, ids, n);
        put_spans(s->files, ids, labels, n, &x);
        put(s->files, INDEX, &x, sizeof x);
    } else {
        keep_in_memory(s, ids, labels, &x);
    }
    s->n++;
    s->n_tokens += (size_t)n;
    s->trained += x.trained;
    if (n > s->longest) s->longest = n;
    s->hash = ft_hash_chain(s->hash, ids, (size_t)n * sizeof *ids);
    s->hash = ft_hash_chain(s->hash, labels, (size_t)n * sizeof *labels);
    return x.trained;
}

void ft_samples_read(const struct ft_samples *s, size_t i, int32_t *ids, int32_t *labels)
{
    const struct ft_sample *x = &s->v[i];
    const size_t n = (size_t)x->n;
    if (!s->files) {
        memcpy(ids, s->ids + x->at, n * sizeof *ids);
        memcpy(labels, s->labels + x->at, n * sizeof *labels);
        return;
    }
    const struct ft_trained_span *span = (const struct ft_trained_span *)s->files->map[SPANS] + x->span_at;
    const uint16_t *narrow = (const uint16_t *)s->files->map[TOKENS] + (s->files->width == 2 ? x->at : 0);
    if (s->files->width == 4) memcpy(ids, (const int32_t *)s->files->map[TOKENS] + x->at, n * sizeof *ids);
    else
        for (size_t k = 0; k < n; k++) ids[k] = narrow[k];
    for (size_t k = 0; k < n; k++) labels[k] = FT_NOT_TRAINED;
    for (int32_t k = 0; k < x->n_spans; k++) {
        const bool other = k + 1 < x->n_spans && span[k + 1].begin == UINT32_MAX;
        for (uint32_t t = span[k].begin; t < span[k].end && t < n; t++) labels[t] = other ? (int32_t)span[k + 1].end : ids[t];
        k += other;
    }
}

static enum ft_code file_error(const char *what, const char *dir, const char *name, int error, struct ft_err *err)
{
    return ft_fail(err, FT_IO, "cannot %s '%s/%s': %s", what, dir, name, strerror(error));
}

enum ft_code ft_samples_to_files(struct ft_samples *s, const char *dir, int width, struct ft_err *err)
{
    s->files = ft_xcalloc(1, sizeof *s->files);
    s->files->width = width;
    for (int i = 0; i < N_FILES; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        s->files->out[i] = fopen(path, "wxe");
        if (!s->files->out[i]) return file_error("write", dir, names[i], errno, err);
    }
    return FT_OK;
}

enum ft_code ft_samples_finish_files(struct ft_samples *s, struct ft_err *err)
{
    struct ft_sample_files *f = s->files;
    for (int i = 0; i < N_FILES; i++) {
        FILE *out = f->out[i];
        f->out[i] = NULL;
        bool good = !fflush(out) && !fsync(fileno(out));
        if (!good && !f->failed) f->failed = true, f->error = errno;
        good = !fclose(out);
        if (!good && !f->failed) f->failed = true, f->error = errno;
    }
    return f->failed ? ft_fail(err, FT_IO, "cannot write prepared data: %s", strerror(f->error)) : FT_OK;
}

static enum ft_code map_one(struct ft_sample_files *f, int i, const char *dir, size_t want, struct ft_err *err)
{
    char path[4096];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, names[i]);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) {
        const int e = errno;
        ft_close(&fd);
        return file_error("open", dir, names[i], e, err);
    }
    if (want != SIZE_MAX && (size_t)st.st_size != want) {
        ft_close(&fd);
        return ft_fail(err, FT_DATA, "'%s' has %lld bytes instead of %zu", path, (long long)st.st_size, want);
    }
    f->bytes[i] = (size_t)st.st_size;
    void *p = st.st_size ? mmap(NULL, f->bytes[i], PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    ft_close(&fd);
    if (p == MAP_FAILED) return file_error("map", dir, names[i], errno, err);
    f->map[i] = p;
    return FT_OK;
}

/* Entries must lie inside the files: they were written by us, but a disk can lie. */
static bool sound(const struct ft_samples *s, size_t n_spans)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct ft_sample *x = &s->v[i];
        if (x->n <= 0 || x->at < 0 || (size_t)x->at > s->n_tokens || (size_t)x->n > s->n_tokens - (size_t)x->at) return false;
        if (x->n_spans < 0 || x->span_at < 0 || (size_t)x->span_at > n_spans || (size_t)x->n_spans > n_spans - (size_t)x->span_at)
            return false;
    }
    return true;
}

enum ft_code ft_samples_map(struct ft_samples *s, const char *dir, int width, struct ft_err *err)
{
    struct ft_sample_files *f = s->files ? s->files : ft_xcalloc(1, sizeof *f);
    s->files = f;
    f->width = width;
    enum ft_code rc = map_one(f, TOKENS, dir, s->n_tokens * (size_t)width, err);
    if (rc == FT_OK) rc = map_one(f, SPANS, dir, SIZE_MAX, err);
    if (rc == FT_OK) rc = map_one(f, INDEX, dir, s->n * sizeof *s->v, err);
    s->v = f->map[INDEX];
    if (rc == FT_OK && !sound(s, f->bytes[SPANS] / sizeof(struct ft_trained_span)))
        rc = ft_fail(err, FT_DATA, "'%s/%s' is damaged", dir, names[INDEX]);
    return rc;
}
