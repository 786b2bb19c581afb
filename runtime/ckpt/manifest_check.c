#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/hash.h"
#include "runtime/ckpt/manifest.h"

static enum ft_code check_file(const struct ft_mf_file *f, const char *path, struct ft_err *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ENOENT) return ft_fail(err, FT_DATA, "%s is missing", f->name);
        return ft_fail(err, FT_IO, "%s cannot be opened: %s", f->name, strerror(errno));
    }
    enum ft_code rc = FT_OK;
    char *head = ft_xcalloc((size_t)f->header_bytes, 1);
    if (fstat(fd, &st) < 0) rc = ft_fail(err, FT_IO, "%s: %s", f->name, strerror(errno));
    else if (st.st_size != f->size)
        rc = ft_fail(err, FT_DATA, "%s has %lld bytes, manifest says %lld", f->name, (long long)st.st_size, (long long)f->size);
    else if (ft_pread_exact(fd, head, (size_t)f->header_bytes, 0, err)) rc = ft_wrap(err, "reading the header of %s", f->name);
    if (!rc && ft_crc32c(0, head, (size_t)f->header_bytes) != f->header_crc)
        rc = ft_fail(err, FT_DATA, "%s has header CRC %08x, manifest says %08x", f->name,
                     ft_crc32c(0, head, (size_t)f->header_bytes), f->header_crc);
    free(head);
    ft_close(&fd);
    return rc;
}

enum ft_code ft_manifest_check_files(const struct ft_manifest *m, const char *dir, struct ft_err *err)
{
    struct ft_buf path = {0};
    enum ft_code rc = FT_OK;
    for (size_t i = 0; i < m->n_files && !rc; i++) {
        ft_buf_clear(&path);
        ft_buf_addf(&path, "%s/%s", dir, m->files[i].name);
        rc = check_file(&m->files[i], ft_buf_str(&path), err);
        if (rc) ft_at(err, "%s", ft_buf_str(&path));
    }
    ft_buf_fini(&path);
    return rc;
}

static int by_row(const void *a, const void *b)
{
    const struct ft_rect *x = &(*(const struct ft_mf_entry *const *)a)->rect, *y = &(*(const struct ft_mf_entry *const *)b)->rect;
    if (x->at[0] != y->at[0]) return x->at[0] < y->at[0] ? -1 : 1;
    return (x->at[1] > y->at[1]) - (x->at[1] < y->at[1]);
}

static enum ft_code twice(const struct ft_mf_tensor *t, const struct ft_mf_entry *a, const struct ft_mf_entry *b,
                          const struct ft_rect *both, struct ft_err *err)
{
    struct ft_buf rows = {0};
    ft_mf_rows(&rows, t->n_dims, both->at[0], both->at[0] + both->n[0]);
    const bool same = a->crc == b->crc && a->bytes == b->bytes;
    ft_fail(err, FT_DATA, "%s: %s written twice%s", t->name, ft_buf_str(&rows), same ? "" : ", with different content");
    ft_buf_fini(&rows);
    return FT_DATA;
}

static int by_value(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The first rows that are not whole. Only called when something is missing. */
static enum ft_code missing(const struct ft_mf_tensor *t, const struct ft_mf_entry *const *sorted, struct ft_err *err)
{
    int64_t *cuts = ft_xcalloc(2 * t->n_entries + 2, sizeof *cuts), from = 0, to = t->dims[0];
    size_t n = 0;
    cuts[n++] = 0;
    cuts[n++] = t->dims[0];
    for (size_t i = 0; i < t->n_entries; i++) {
        cuts[n++] = sorted[i]->rect.at[0];
        cuts[n++] = sorted[i]->rect.at[0] + sorted[i]->rect.n[0];
    }
    qsort(cuts, n, sizeof *cuts, by_value);
    bool found = false;
    for (size_t k = 0; k + 1 < n; k++) {
        if (cuts[k] == cuts[k + 1]) continue;
        int64_t columns = 0;
        for (size_t i = 0; i < t->n_entries; i++)
            if (sorted[i]->rect.at[0] <= cuts[k] && sorted[i]->rect.at[0] + sorted[i]->rect.n[0] >= cuts[k + 1])
                columns += sorted[i]->rect.n[1];
        const bool hole = columns < t->dims[1];
        if (hole && !found) from = cuts[k];
        if (hole) to = cuts[k + 1];
        if (!hole && found) break;
        found |= hole;
    }
    free(cuts);
    struct ft_buf rows = {0};
    ft_mf_rows(&rows, t->n_dims, from, to);
    ft_fail(err, FT_DATA, "%s %s missing", t->name, ft_buf_str(&rows));
    ft_buf_fini(&rows);
    return FT_DATA;
}

static enum ft_code check_tensor(const struct ft_mf_tensor *t, struct ft_err *err)
{
    const struct ft_mf_entry **v = ft_xcalloc(t->n_entries + 1, sizeof *v);
    int64_t volume = 0;
    size_t n = 0, live = 0; /* v[live..i): may still reach into the rows of v[i] */
    enum ft_code rc = FT_OK;
    for (size_t i = 0; i < t->n_entries; i++)
        if (ft_rect_count(&t->entries[i].rect)) v[n++] = &t->entries[i];
    qsort(v, n, sizeof *v, by_row);
    for (size_t i = 0; i < n && !rc; i++) {
        struct ft_rect both;
        while (live < i && v[live]->rect.at[0] + v[live]->rect.n[0] <= v[i]->rect.at[0]) live++;
        for (size_t j = live; j < i && !rc; j++)
            if (ft_rect_meet(&v[j]->rect, &v[i]->rect, &both)) rc = twice(t, v[j], v[i], &both, err);
        volume += ft_rect_count(&v[i]->rect);
    }
    if (!rc && volume < t->dims[0] * t->dims[1]) {
        struct ft_mf_tensor shown = *t;
        shown.n_entries = n;
        rc = missing(&shown, v, err);
    }
    free(v);
    return rc;
}

enum ft_code ft_manifest_check_tiles(const struct ft_manifest *m, struct ft_err *err)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < m->tensors.n; i++) {
        const struct ft_mf_tensor *t = &m->tensors.v[i];
        const enum ft_code rc = check_tensor(t, err);
        if (rc) return rc;
        bytes += t->dims[0] * t->dims[1] * (int64_t)ft_dtype_bytes(t->dtype);
    }
    if (bytes != m->bytes)
        return ft_fail(err, FT_DATA, "the tensors have %lld bytes, manifest says %lld", (long long)bytes, (long long)m->bytes);
    return FT_OK;
}
