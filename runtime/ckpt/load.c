/* Coverage, reading and verification (on-disk formats, section 9). */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/fd.h"
#include "base/hash.h"
#include "runtime/ckpt/safetensors.h"
#include "runtime/ckpt/state.h"
#include "runtime/coll/comm.h"

struct ft_ckpt_item *ft_ckpt_items(const struct ft_ckpt *c, const struct ft_ckpt_piece *pieces, size_t n, size_t *n_items)
{
    struct ft_ckpt_item *v = ft_xcalloc(n * 9 + 1, sizeof *v);
    size_t k = 0;
    for (int slot = 0; slot < FT_CKPT_STORED; slot++)
        for (size_t i = 0; i < n; i++) {
            const struct ft_ckpt_piece *q = &pieces[i];
            const struct ft_param *p = &c->o.params[q->param];
            const float *x = slot == FT_CKPT_MASTER ? q->master : slot == FT_CKPT_M ? q->m : q->v;
            if (p->replica || (p->shard == FT_SHARD_NONE && c->o.tensor_rank != 0)) continue;
            struct ft_rect r[3];
            const int n_rects = ft_rects(p, q->from, q->to, r);
            for (int j = 0; j < n_rects; j++)
                v[k++] = (struct ft_ckpt_item){
                    .model = c->model_of[q->param], .slot = (enum ft_ckpt_slot)slot, .rect = r[j], .x = x + (r[j].from - q->from)};
        }
    *n_items = k;
    return v;
}

/* What a manifest stores of weights: the other kind than ours is possible when the precision was changed with `accept`. */
static enum ft_ckpt_precision kind_of(const struct ft_manifest *m)
{
    for (size_t i = 0; i < m->tensors.n; i++)
        if (!strncmp(m->tensors.v[i].name, "optim.master/", 13)) return FT_CKPT_BF16;
    return FT_CKPT_FP32;
}

static void shape(struct ft_buf *b, int n_dims, const int64_t *dims)
{
    ft_buf_addf(b, "[%lld", (long long)dims[0]);
    if (n_dims == 2) ft_buf_addf(b, ",%lld", (long long)dims[1]);
    ft_buf_addc(b, ']');
}

static enum ft_code other_shape(const struct ft_mf_tensor *t, const struct ft_param *p, struct ft_err *err)
{
    struct ft_buf have = {0}, want = {0};
    shape(&have, t->n_dims, t->dims);
    shape(&want, p->n_dims, p->dims);
    ft_fail(err, FT_CONFIG, "%s is %s %s, this model needs F32 %s", t->name, ft_st_dtype_name(t->dtype), ft_buf_str(&have),
            ft_buf_str(&want));
    ft_buf_fini(&have);
    ft_buf_fini(&want);
    return FT_CONFIG;
}

static enum ft_code unknown(const struct ft_mf_tensor *t, const char *const *wanted, size_t n, struct ft_err *err)
{
    const char *near = ft_nearest(t->name, wanted, n);
    if (near) return ft_fail(err, FT_DATA, "unknown tensor '%s' (nearest: %s)", t->name, near);
    return ft_fail(err, FT_DATA, "unknown tensor '%s'", t->name);
}

enum ft_code ft_ckpt_cover(const struct ft_ckpt *c, const struct ft_manifest *m, struct ft_err *err)
{
    const enum ft_ckpt_precision kind = kind_of(m);
    const size_t n = c->o.n_model * FT_CKPT_STORED;
    char **wanted = ft_xcalloc(n + 1, sizeof *wanted);
    bool *used = ft_xcalloc(m->tensors.n + 1, sizeof *used);
    struct ft_buf name = {0};
    enum ft_code rc = FT_OK;
    const char *missing = NULL;
    for (size_t i = 0; i < n; i++) {
        const struct ft_param *p = &c->o.model[i / FT_CKPT_STORED];
        ft_ckpt_tensor_name(&name, kind, (enum ft_ckpt_slot)(i % FT_CKPT_STORED), p->name);
        wanted[i] = ft_xstrdup(ft_buf_str(&name));
        const struct ft_mf_tensor *t = i < m->tensors.n && !strcmp(m->tensors.v[i].name, wanted[i])
                                           ? &m->tensors.v[i]
                                           : ft_mf_find(&m->tensors, wanted[i]);
        if (!t) {
            if (!missing) missing = wanted[i];
            continue;
        }
        used[t - m->tensors.v] = true;
        if (!rc && (t->dtype != FT_F32 || t->n_dims != p->n_dims || t->dims[0] != p->dims[0] || t->dims[1] != p->dims[1]))
            rc = other_shape(t, p, err);
    }
    for (size_t i = 0; i < m->tensors.n && !rc; i++)
        if (!used[i]) rc = unknown(&m->tensors.v[i], (const char *const *)wanted, n, err);
    if (!rc && missing) rc = ft_fail(err, FT_DATA, "%s is missing", missing);
    if (!rc) rc = ft_manifest_check_tiles(m, err);
    for (size_t i = 0; i < n; i++) free(wanted[i]);
    free(wanted);
    free(used);
    ft_buf_fini(&name);
    return rc;
}

/* --- reading ------------------------------------------------------------------------------------------------------------------ */

struct load {
    struct ft_ckpt *c;
    const struct ft_manifest *m;
    const char *dir;
    int *fds;                    /* n_files; -1: not open */
    struct ft_st_file **headers; /* n_files; NULL: not open */
    char *stage;                 /* PIECE bytes; NULL: not yet needed */
};

static enum ft_code open_file(struct load *l, size_t file, struct ft_err *err)
{
    const struct ft_mf_file *f = &l->m->files[file];
    struct ft_buf path = {0};
    struct stat st;
    enum ft_code rc = FT_OK;
    if (l->fds[file] >= 0) return FT_OK;
    ft_buf_addf(&path, "%s/%s", l->dir, f->name);
    int fd = ft_fio_open(&l->c->fio, FT_FIO_OPEN, ft_buf_str(&path), O_RDONLY, 0);
    if (fd < 0 && errno == ENOENT)
        rc = ft_fail(err, FT_DATA, "%s is missing (retention of another run may have taken it)", f->name);
    else if (fd < 0) rc = ft_fail(err, FT_IO, "%s cannot be opened: %s", f->name, strerror(errno));
    else if (fstat(fd, &st) < 0 || st.st_size != f->size)
        rc = ft_fail(err, FT_DATA, "%s has %lld bytes, manifest says %lld", f->name, (long long)st.st_size, (long long)f->size);
    if (!rc) {
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
        rc = ft_st_open(ft_buf_str(&path), &l->headers[file], err);
        if (rc) rc = FT_DATA;
    }
    if (rc) {
        ft_at(err, "%s", ft_buf_str(&path));
        ft_close(&fd);
    } else {
        l->fds[file] = fd;
    }
    ft_buf_fini(&path);
    return rc;
}

/* The header of the file says the same about this entry as the manifest does. */
static enum ft_code check_header(struct load *l, const struct ft_mf_tensor *t, const struct ft_mf_entry *e, struct ft_err *err)
{
    struct ft_buf key = {0};
    const struct ft_mf_file *f = &l->m->files[e->file];
    ft_mf_key(&key, t->name, t->n_dims, t->dims, &e->rect);
    const struct ft_st_tensor *s = ft_st_find(l->headers[e->file], ft_buf_str(&key));
    const bool same = s && s->type == t->dtype && s->n_dims == t->n_dims && s->dims[0] == e->rect.n[0] &&
                      (t->n_dims == 1 || s->dims[1] == e->rect.n[1]) && s->begin + f->header_bytes == e->begin;
    const enum ft_code rc = same ? FT_OK
                                 : ft_fail(err, FT_DATA, "%s: the header of %s does not have it as the manifest says",
                                           ft_buf_str(&key), f->name);
    ft_buf_fini(&key);
    return rc;
}

static enum ft_code crc_differs(const struct load *l, const struct ft_mf_tensor *t, const struct ft_mf_entry *e, uint32_t crc,
                                struct ft_err *err)
{
    struct ft_buf rows = {0};
    ft_mf_rows(&rows, t->n_dims, e->rect.at[0], e->rect.at[0] + e->rect.n[0]);
    ft_fail(err, FT_DATA, "%s %s: CRC %08x, manifest says %08x (%s, bytes %lld..%lld)", t->name, ft_buf_str(&rows), crc, e->crc,
            l->m->files[e->file].name, (long long)e->begin, (long long)(e->begin + e->bytes));
    ft_at(err, "%s/%s", l->dir, l->m->files[e->file].name);
    ft_buf_fini(&rows);
    return FT_DATA;
}

enum { PIECE = 1 << 20 /* bytes of one read: it stays in the cache for its CRC */, GAP = 256 << 10 };

/* crc: fed unless NULL. */
static enum ft_code read_bytes(struct load *l, const struct ft_mf_entry *e, void *to, int64_t n, int64_t at, uint32_t *crc,
                               struct ft_err *err)
{
    for (int64_t i = 0; i < n; i += PIECE) {
        const size_t k = (size_t)(n - i < PIECE ? n - i : PIECE);
        if (ft_fio_pread(&l->c->fio, l->fds[e->file], (char *)to + i, k, at + i)) {
            ft_fail(err, FT_IO, "reading %s: %s", l->m->files[e->file].name, strerror(errno));
            return ft_at(err, "%s/%s", l->dir, l->m->files[e->file].name);
        }
        if (crc) *crc = ft_crc32c(*crc, (char *)to + i, k);
    }
    return FT_OK;
}

/* Rows that lie apart in the file, or here: as many with one read as fit a piece, small gaps between them are read through. */
static enum ft_code read_rows(struct load *l, const struct ft_rect *both, const struct ft_mf_entry *e, float *to, int64_t to_stride,
                              int64_t at, uint32_t *crc, struct ft_err *err)
{
    const int64_t stride = 4 * e->rect.n[1], run = 4 * both->n[1];
    const int64_t at_once = stride - run > GAP || run + stride > PIECE ? 1 : (PIECE - run) / stride + 1;
    enum ft_code rc = FT_OK;
    if (at_once > 1 && !l->stage) l->stage = ft_xcalloc(PIECE, 1);
    for (int64_t row = 0; row < both->n[0] && !rc; row += at_once) {
        const int64_t n = both->n[0] - row < at_once ? both->n[0] - row : at_once;
        if (n == 1) {
            rc = read_bytes(l, e, to + row * to_stride, run, at + row * stride, crc, err);
            continue;
        }
        rc = read_bytes(l, e, l->stage, (n - 1) * stride + run, at + row * stride, crc, err);
        for (int64_t k = 0; k < n && !rc; k++) memcpy(to + (row + k) * to_stride, l->stage + k * stride, (size_t)run);
    }
    return rc;
}

/* What item and entry have in common: at once where both are as wide, else by rows. An entry that is read whole is checked by its CRC. */
static enum ft_code read_common(struct load *l, const struct ft_ckpt_item *it, float *x, const struct ft_mf_tensor *t,
                                const struct ft_mf_entry *e, struct ft_err *err)
{
    struct ft_rect both;
    if (!ft_rect_meet(&it->rect, &e->rect, &both)) return FT_OK;
    enum ft_code rc = open_file(l, e->file, err);
    if (!rc) rc = check_header(l, t, e, err);
    if (rc) return rc;
    float *to = x + (both.at[0] - it->rect.at[0]) * it->rect.n[1] + (both.at[1] - it->rect.at[1]);
    const int64_t at = e->begin + 4 * ((both.at[0] - e->rect.at[0]) * e->rect.n[1] + (both.at[1] - e->rect.at[1]));
    const bool whole = ft_rect_count(&both) == ft_rect_count(&e->rect); /* then no gap is read through */
    uint32_t sum = 0, *crc = whole ? &sum : NULL;
    if (both.n[1] == e->rect.n[1] && both.n[1] == it->rect.n[1]) rc = read_bytes(l, e, to, 4 * ft_rect_count(&both), at, crc, err);
    else rc = read_rows(l, &both, e, to, it->rect.n[1], at, crc, err);
    if (rc) return rc;
    return whole && sum != e->crc ? crc_differs(l, t, e, sum, err) : FT_OK;
}

/* Rectangles that this rank needs: all of its pieces, replicas too. */
static enum ft_code read_piece(struct load *l, const struct ft_ckpt_piece *q, bool masters_only, struct ft_err *err)
{
    const struct ft_ckpt *c = l->c;
    const struct ft_param *p = &c->o.params[q->param];
    struct ft_rect r[3];
    struct ft_buf name = {0};
    const int n = ft_rects(p, q->from, q->to, r);
    enum ft_code rc = FT_OK;
    for (int slot = 0; slot < (masters_only ? 1 : FT_CKPT_STORED) && !rc; slot++) {
        float *x = slot == FT_CKPT_MASTER ? q->master : slot == FT_CKPT_M ? q->m : q->v;
        ft_ckpt_tensor_name(&name, kind_of(l->m), (enum ft_ckpt_slot)slot, p->name);
        const struct ft_mf_tensor *t = ft_mf_find(&l->m->tensors, ft_buf_str(&name));
        if (!t) {
            rc = ft_fail(err, FT_BUG_FOUND, "%s was covered and is not there", ft_buf_str(&name));
            break;
        }
        for (int j = 0; j < n && !rc; j++) {
            const struct ft_ckpt_item it = {.rect = r[j]};
            for (size_t i = 0; i < t->n_entries && !rc; i++)
                rc = read_common(l, &it, x + (r[j].from - q->from), t, &t->entries[i], err);
        }
    }
    ft_buf_fini(&name);
    return rc;
}

/* --- verification ------------------------------------------------------------------------------------------------------------------- */

enum ft_code ft_ckpt_check_entry(struct ft_fio *f, const struct ft_manifest *m, const struct ft_mf_tensor *t,
                                 const struct ft_mf_entry *e, const char *dir, uint64_t *hash, struct ft_err *err)
{
    const struct load l = {.m = m, .dir = dir};
    struct ft_buf path = {0};
    char *x = ft_xcalloc(PIECE, 1);
    uint32_t crc = 0;
    const int width = (int)ft_dtype_bytes(t->dtype);
    ft_buf_addf(&path, "%s/%s", dir, m->files[e->file].name);
    int fd = ft_fio_open(f, FT_FIO_OPEN, ft_buf_str(&path), O_RDONLY, 0);
    enum ft_code rc = fd >= 0 ? FT_OK : ft_fail(err, FT_IO, "%s cannot be opened: %s", ft_buf_str(&path), strerror(errno));
    for (int64_t at = 0; at < e->bytes && !rc; at += PIECE) {
        const size_t k = (size_t)(e->bytes - at < PIECE ? e->bytes - at : PIECE);
        if (ft_fio_pread(f, fd, x, k, e->begin + at)) {
            rc = ft_fail(err, FT_IO, "reading %s: %s", ft_buf_str(&path), strerror(errno));
            break;
        }
        crc = ft_crc32c(crc, x, k);
        for (int64_t i = at / width, end = (at + (int64_t)k) / width; hash && i < end;) { /* runs inside a row of the rectangle */
            const int64_t row = i / e->rect.n[1], column = i % e->rect.n[1],
                          n = e->rect.n[1] - column < end - i ? e->rect.n[1] - column : end - i;
            *hash += ft_logical_hash(x + i * width - at, (size_t)n, width,
                                     (uint64_t)((e->rect.at[0] + row) * t->dims[1] + e->rect.at[1] + column));
            i += n;
        }
    }
    if (!rc && crc != e->crc) rc = crc_differs(&l, t, e, crc, err);
    ft_close(&fd);
    free(x);
    ft_buf_fini(&path);
    return rc;
}

/* Hashes do not agree: which file is it? */
static enum ft_code blame(struct load *l, const struct ft_mf_tensor *t, const char *name, uint64_t have, uint64_t want,
                          struct ft_err *err)
{
    for (size_t i = 0; i < t->n_entries; i++) {
        const enum ft_code rc = ft_ckpt_check_entry(&l->c->fio, l->m, t, &t->entries[i], l->dir, NULL, err);
        if (rc) return rc;
    }
    return ft_fail(err, FT_DATA, "%s: hash %016llx, manifest says %016llx; all CRCs are right: slices exchanged or a reader fault",
                   name, (unsigned long long)have, (unsigned long long)want);
}

static enum ft_code compare(struct load *l, const uint64_t *sums, bool masters_only, struct ft_err *err)
{
    const struct ft_ckpt *c = l->c;
    const enum ft_ckpt_precision kind = kind_of(l->m);
    struct ft_buf name = {0};
    enum ft_code rc = FT_OK;
    for (size_t i = 0; i < c->o.n_model && !rc; i++) {
        const struct ft_mf_tensor *first = NULL;
        for (int slot = 0; slot < (masters_only ? 1 : FT_CKPT_STORED) && !rc; slot++) {
            ft_ckpt_tensor_name(&name, kind, (enum ft_ckpt_slot)slot, c->o.model[i].name);
            const struct ft_mf_tensor *t = ft_mf_find(&l->m->tensors, ft_buf_str(&name));
            const uint64_t have = sums[i * FT_CKPT_SLOTS + (size_t)slot];
            if (!slot) first = t;
            if (have != t->hash) rc = blame(l, t, t->name, have, t->hash, err);
        }
        const struct ft_mf_tensor *d = rc || kind == FT_CKPT_FP32 ? NULL : ft_mf_find(&l->m->derived, c->o.model[i].name);
        const uint64_t have = sums[i * FT_CKPT_SLOTS + FT_CKPT_DERIVED];
        if (d && d->dtype == FT_BF16 && have != d->hash) rc = blame(l, first, d->name, have, d->hash, err);
    }
    ft_buf_fini(&name);
    return rc;
}

static enum ft_code verify(struct load *l, const struct ft_ckpt_piece *pieces, size_t n, bool masters_only, struct ft_err *err)
{
    struct ft_ckpt *c = l->c;
    size_t n_items;
    struct ft_ckpt_item *items = ft_ckpt_items(c, pieces, n, &n_items);
    uint64_t *sums = ft_xcalloc(c->o.n_model * FT_CKPT_SLOTS + 1, sizeof *sums);
    const bool derived = kind_of(l->m) != FT_CKPT_FP32;
    for (size_t i = 0; i < n_items; i++) {
        const struct ft_ckpt_item *it = &items[i];
        if (masters_only && it->slot != FT_CKPT_MASTER) continue;
        const struct ft_rect_sums s = ft_rect_sums(&it->rect, c->o.model[it->model].dims[1], it->x,
                                                   derived && it->slot == FT_CKPT_MASTER);
        sums[it->model * FT_CKPT_SLOTS + it->slot] += s.hash;
        sums[it->model * FT_CKPT_SLOTS + FT_CKPT_DERIVED] += s.hash_bf16;
    }
    free(items);
    enum ft_code rc = ft_comm_all_reduce(c->o.comm, FT_GROUP_WORLD, sums, (int64_t)(c->o.n_model * FT_CKPT_SLOTS), FT_I64, FT_SUM,
                                         err);
    if (!rc) rc = ft_ckpt_share(c, c->rank == 0 ? compare(l, sums, masters_only, err) : FT_OK, err);
    if (!rc) rc = ft_ckpt_check_replicas(c, pieces, n, "what was loaded is wrong", err);
    free(sums);
    return rc;
}

enum ft_code ft_ckpt_load(struct ft_ckpt *c, const struct ft_manifest *m, const char *dir, const struct ft_ckpt_piece *pieces,
                          size_t n, bool masters_only, struct ft_err *err)
{
    struct load l = {.c = c, .m = m, .dir = dir};
    enum ft_code rc = FT_OK;
    l.fds = ft_xcalloc(m->n_files + 1, sizeof *l.fds);
    l.headers = ft_xcalloc(m->n_files + 1, sizeof *l.headers);
    for (size_t i = 0; i < m->n_files; i++) l.fds[i] = -1;
    for (size_t i = 0; i < n && !rc; i++) rc = read_piece(&l, &pieces[i], masters_only, err);
    rc = ft_ckpt_share(c, rc, err);
    if (!rc) rc = verify(&l, pieces, n, masters_only, err);
    for (size_t i = 0; i < m->n_files; i++) {
        ft_close(&l.fds[i]);
        ft_st_close(l.headers[i]);
    }
    free(l.fds);
    free(l.headers);
    free(l.stage);
    return rc;
}
