#include "runtime/ckpt/fio.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"

enum ft_code ft_fio_init(struct ft_fio *f, int rank, struct ft_err *err)
{
    const char *text = getenv("FT_FAULT");
    memset(f, 0, sizeof *f);
    return text && *text ? ft_fio_parse(f, text, rank, err) : FT_OK;
}

void ft_fio_fini(struct ft_fio *f)
{
    free(f->rules);
    memset(f, 0, sizeof *f);
}

/* 0, or -1 with errno when this call shall fail. */
static int gate(struct ft_fio *f, enum ft_fio_site site)
{
    const struct ft_fio_rule r = ft_fio_next(f, site);
    if (r.action != FT_FIO_FAIL) return 0;
    errno = r.error;
    return -1;
}

int ft_fio_open(struct ft_fio *f, enum ft_fio_site site, const char *path, int flags, mode_t mode)
{
    if (gate(f, site)) return -1;
    for (;;) {
        const int fd = open(path, flags | O_CLOEXEC, mode);
        if (fd >= 0 || errno != EINTR) return fd;
    }
}

int ft_fio_mkdir(struct ft_fio *f, const char *path, mode_t mode) { return gate(f, FT_FIO_MKDIR) ? -1 : mkdir(path, mode); }

int ft_fio_fallocate(struct ft_fio *f, int fd, int64_t bytes)
{
    if (gate(f, FT_FIO_FALLOCATE)) return -1;
    if (!bytes) return 0;
    for (;;) {
        if (!fallocate(fd, 0, 0, bytes)) return 0;
        if (errno == EOPNOTSUPP || errno == ENOSYS) return 0;
        if (errno != EINTR) return -1;
    }
}

static int write_all(int fd, const void *p, size_t n)
{
    const char *c = p;
    while (n) {
        const ssize_t k = write(fd, c, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) {
            if (k == 0) errno = EIO;
            return -1;
        }
        c += k;
        n -= (size_t)k;
    }
    return 0;
}

int ft_fio_write(struct ft_fio *f, int fd, const void *p, size_t n)
{
    const struct ft_fio_rule r = ft_fio_next(f, FT_FIO_WRITE);
    if (r.action == FT_FIO_FAIL) {
        errno = r.error;
        return -1;
    }
    if (r.action == FT_FIO_SHORT) { /* half of it, then the rest as after a short write */
        if (write_all(fd, p, n / 2)) return -1;
        return write_all(fd, (const char *)p + n / 2, n - n / 2);
    }
    if (r.action == FT_FIO_FLIP && n) { /* what lies on the disk is not what was handed over */
        char *copy = ft_xcalloc(n, 1);
        memcpy(copy, p, n);
        copy[n / 2] ^= 0x10;
        const int rc = write_all(fd, copy, n);
        free(copy);
        return rc;
    }
    return write_all(fd, p, n);
}

int ft_fio_pread(struct ft_fio *f, int fd, void *p, size_t n, int64_t at)
{
    const struct ft_fio_rule r = ft_fio_next(f, FT_FIO_PREAD);
    char *c = p;
    if (r.action == FT_FIO_FAIL) {
        errno = r.error;
        return -1;
    }
    for (size_t left = n; left;) {
        const ssize_t k = pread(fd, c, left, at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) {
            if (k == 0) errno = ENODATA;
            return -1;
        }
        c += k;
        at += k;
        left -= (size_t)k;
    }
    if (r.action == FT_FIO_FLIP && n) ((char *)p)[n / 2] ^= 0x10;
    return 0;
}

int ft_fio_fsync(struct ft_fio *f, int fd)
{
    if (gate(f, FT_FIO_FSYNC)) return -1;
    return fsync(fd);
}

int ft_fio_close(struct ft_fio *f, int *fd)
{
    const int injected = gate(f, FT_FIO_CLOSE), saved = errno, rc = close(*fd);
    *fd = -1;
    if (injected) errno = saved;
    return injected ? -1 : rc && errno != EINTR ? -1 : 0;
}

int ft_fio_rename(struct ft_fio *f, enum ft_fio_site site, const char *from, const char *to)
{
    return gate(f, site) ? -1 : rename(from, to);
}

int ft_fio_fsyncdir(struct ft_fio *f, const char *path)
{
    if (gate(f, FT_FIO_FSYNCDIR)) return -1;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -1;
    int rc = fsync(fd);
    if (rc && errno == EINVAL) rc = 0;
    const int saved = errno;
    close(fd);
    errno = saved;
    return rc;
}

int ft_fio_unlink(struct ft_fio *f, const char *path) { return gate(f, FT_FIO_UNLINK) ? -1 : unlink(path); }
int ft_fio_rmdir(struct ft_fio *f, const char *path) { return gate(f, FT_FIO_RMDIR) ? -1 : rmdir(path); }
