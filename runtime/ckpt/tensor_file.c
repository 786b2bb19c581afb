/* One rank's file of rectangles: a strict profile of safetensors (on-disk formats, section 3). */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "runtime/ckpt/state.h"

enum { ALIGN = 4096, PIECE = 1 << 20, WRITE_BACK = 32 << 20, TRIES = 3 };

void ft_ckpt_tensor_name(struct ft_buf *b, enum ft_ckpt_precision p, enum ft_ckpt_slot slot, const char *name)
{
    ft_buf_clear(b);
    const char *kind = slot == FT_CKPT_M                             ? "optim.m/"
                       : slot == FT_CKPT_V                           ? "optim.v/"
                       : slot == FT_CKPT_MASTER && p != FT_CKPT_FP32 ? "optim.master/"
                                                                     : "";
    ft_buf_addf(b, "%s%s", kind, name);
}

/* Header with its length in front, padded so that the data begins at a multiple of ALIGN; sets begin and bytes of the items. */
static int64_t write_header(const struct ft_ckpt *c, int64_t step, struct ft_ckpt_item *items, size_t n, struct ft_buf *b)
{
    struct ft_buf name = {0}, key = {0};
    char text[32];
    int64_t at = 0;
    unsigned char length[8] = {0};
    ft_buf_add(b, length, 8);
    struct ft_jw w = ft_jw_begin(b);
    ft_jw_object(&w);
    ft_jw_key(&w, "__metadata__");
    ft_jw_object(&w);
    ft_jw_kstr(&w, "format", "ftckpt");
    ft_jw_kstr(&w, "run_id", c->o.run->run_id);
    snprintf(text, sizeof text, "%lld", (long long)step);
    ft_jw_kstr(&w, "step", text);
    ft_jw_end(&w);
    for (size_t i = 0; i < n; i++) {
        struct ft_ckpt_item *it = &items[i];
        const struct ft_param *p = &c->o.model[it->model];
        ft_ckpt_tensor_name(&name, c->kind, it->slot, p->name);
        ft_buf_clear(&key);
        ft_mf_key(&key, ft_buf_str(&name), p->n_dims, p->dims, &it->rect);
        it->bytes = ft_rect_count(&it->rect) * 4;
        ft_jw_key(&w, ft_buf_str(&key));
        ft_jw_object(&w);
        ft_jw_kstr(&w, "dtype", "F32");
        ft_jw_key(&w, "shape");
        ft_jw_array(&w);
        for (int d = 0; d < p->n_dims; d++) ft_jw_int(&w, it->rect.n[d]);
        ft_jw_end(&w);
        ft_jw_key(&w, "data_offsets");
        ft_jw_array(&w);
        ft_jw_int(&w, at);
        ft_jw_int(&w, at + it->bytes);
        ft_jw_end(&w);
        ft_jw_end(&w);
        it->begin = at;
        at += it->bytes;
    }
    ft_jw_end(&w);
    while (b->n % ALIGN) ft_buf_addc(b, ' ');
    const uint64_t header = b->n - 8;
    for (int i = 0; i < 8; i++) b->data[i] = (char)(unsigned char)(header >> (8 * i));
    for (size_t i = 0; i < n; i++) items[i].begin += (int64_t)b->n;
    ft_buf_fini(&name);
    ft_buf_fini(&key);
    return (int64_t)b->n + at;
}

/* What failed and its errno; what NULL: nothing. */
struct fault {
    const char *what;
    int error;
};

/* CRC and write of a piece follow each other, so that the second finds it in the cache. Writing back begins at once: it goes on beside
 * the rest, and fsync has little left to wait for. */
static struct fault write_data(struct ft_ckpt *c, int fd, struct ft_ckpt_item *items, size_t n, const atomic_bool *cancelled)
{
    int64_t asked = 0;
    for (size_t i = 0; i < n; i++) {
        struct ft_ckpt_item *it = &items[i];
        it->crc = 0;
        for (int64_t at = 0; at < it->bytes; at += PIECE) {
            const size_t k = (size_t)(it->bytes - at < PIECE ? it->bytes - at : PIECE);
            const char *p = (const char *)it->x + at;
            if (atomic_load(cancelled)) return (struct fault){"write", ECANCELED};
            it->crc = ft_crc32c(it->crc, p, k);
            if (ft_fio_write(&c->fio, fd, p, k)) return (struct fault){"write", errno};
            const int64_t written = it->begin + at + (int64_t)k;
            if (written - asked < WRITE_BACK) continue;
            (void)sync_file_range(fd, asked, written - asked, SYNC_FILE_RANGE_WRITE);
            asked = written;
        }
    }
    return (struct fault){0};
}

static struct fault write_once(struct ft_ckpt *c, const char *path, const struct ft_buf *head, int64_t size,
                               struct ft_ckpt_item *items, size_t n, const atomic_bool *cancelled)
{
    int fd = ft_fio_open(&c->fio, FT_FIO_OPEN, path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (fd < 0) return (struct fault){"open", errno};
    struct fault f = {0};
    if (ft_fio_fallocate(&c->fio, fd, size)) f = (struct fault){"fallocate", errno};
    else if (ft_fio_write(&c->fio, fd, head->data, head->n)) f = (struct fault){"write", errno};
    else f = write_data(c, fd, items, n, cancelled);
    if (!f.what && ft_fio_fsync(&c->fio, fd)) f = (struct fault){"fsync", errno};
    if (!f.what) (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (ft_fio_close(&c->fio, &fd) && !f.what) f = (struct fault){"close", errno};
    return f;
}

/* May the same succeed in a new file a moment later? */
static bool may_pass(struct fault f)
{
    if (!strcmp(f.what, "fsync") || !strcmp(f.what, "close")) return f.error != ENOSPC && f.error != EDQUOT;
    return f.error == EIO || f.error == ESTALE || f.error == ETIMEDOUT || f.error == ENOENT;
}

static enum ft_code fail(struct fault f, const char *path, const char *dir, int64_t size, struct ft_err *err)
{
    struct statvfs v;
    const bool known = !statvfs(dir, &v);
    ft_fail(err, FT_IO, "%s: %s failed: %s (%lld bytes needed, %lld free)", path, f.what, strerror(f.error), (long long)size,
            known ? (long long)(v.f_bavail * v.f_frsize) : -1LL);
    return FT_IO;
}

enum ft_code ft_ckpt_write_file(struct ft_ckpt *c, const char *tmp, int64_t step, struct ft_ckpt_item *items, size_t n,
                                const atomic_bool *cancelled, struct ft_ckpt_written *out, struct ft_err *err)
{
    struct ft_buf head = {0}, path = {0};
    memset(out, 0, sizeof *out);
    if (!n) return FT_OK;
    out->size = write_header(c, step, items, n, &head);
    out->header_bytes = (int64_t)head.n;
    out->header_crc = ft_crc32c(0, head.data, head.n);
    enum ft_code rc = FT_OK;
    for (int try = 0; try < TRIES; try++) {
        struct fault f;
        if (try) snprintf(out->name, sizeof out->name, "w-%05d-of-%05d.%d.safetensors", c->rank, c->world, try);
        else snprintf(out->name, sizeof out->name, "w-%05d-of-%05d.safetensors", c->rank, c->world);
        ft_buf_clear(&path);
        ft_buf_addf(&path, "%s/%s", tmp, out->name);
        f = write_once(c, ft_buf_str(&path), &head, out->size, items, n, cancelled);
        if (!f.what) break;
        if (try + 1 == TRIES || !may_pass(f) || atomic_load(cancelled)) {
            rc = fail(f, ft_buf_str(&path), c->dir, out->size, err);
            break;
        }
        unlink(ft_buf_str(&path)); /* what it holds is not known */
        const struct timespec pause = {.tv_sec = try ? 4 : 1};
        ft_log(FT_LOG_WARN, "ckpt", "%s: %s: %s; trying a new file", ft_buf_str(&path), f.what, strerror(f.error));
        nanosleep(&pause, NULL);
    }
    ft_buf_fini(&head);
    ft_buf_fini(&path);
    return rc;
}
