/* Every file operation of checkpoints goes through here, so that test builds can make the n-th one fail, lie or kill the process.
 * Semantics are those of the system calls (errno, -1), with EINTR retried.
 *
 * FT_FAULT=SITE[@RANK]:N:ACTION, several joined by ';' (test builds only; other builds have no such thing).
 * SITE: lock mkdir open fallocate write fsync close rename fsyncdir latest unlink rmdir pread replica. N: the n-th call of that site in this
 * process, or rand:SEED. ACTION: kill enospc eio estale short delay=MS gate=FD (waits for one byte, or the end, of that descriptor)
 * flip. */
#ifndef FT_RUNTIME_CKPT_FIO_H
#define FT_RUNTIME_CKPT_FIO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum ft_fio_site {
    FT_FIO_LOCK,
    FT_FIO_MKDIR,
    FT_FIO_OPEN,
    FT_FIO_FALLOCATE,
    FT_FIO_WRITE,
    FT_FIO_FSYNC,
    FT_FIO_CLOSE,
    FT_FIO_RENAME,
    FT_FIO_FSYNCDIR,
    FT_FIO_LATEST,
    FT_FIO_UNLINK,
    FT_FIO_RMDIR,
    FT_FIO_PREAD,
    FT_FIO_REPLICA,
    FT_N_FIO_SITES
};
enum ft_fio_action { FT_FIO_NOTHING, FT_FIO_KILL, FT_FIO_FAIL, FT_FIO_SHORT, FT_FIO_DELAY, FT_FIO_GATE, FT_FIO_FLIP };

struct ft_fio_rule {
    enum ft_fio_site site;
    int64_t n;
    enum ft_fio_action action;
    int error, delay_ms, gate_fd;
};

/* {0} injects nothing. */
struct ft_fio {
    struct ft_fio_rule *rules; /* heap */
    size_t n_rules;
    int64_t calls[FT_N_FIO_SITES];
};

/* Reads FT_FAULT for this rank. A broken text is FT_USAGE. */
enum ft_code ft_fio_init(struct ft_fio *f, int rank, struct ft_err *err) FT_MUST_CHECK;
void ft_fio_fini(struct ft_fio *f);
/* What the present call of a site shall do; counts it. delay, gate and kill happen inside. Implemented by inject.c or inject_off.c. */
struct ft_fio_rule ft_fio_next(struct ft_fio *f, enum ft_fio_site site);
enum ft_code ft_fio_parse(struct ft_fio *f, const char *text, int rank, struct ft_err *err) FT_MUST_CHECK;

int ft_fio_open(struct ft_fio *f, enum ft_fio_site site, const char *path, int flags, mode_t mode);
int ft_fio_mkdir(struct ft_fio *f, const char *path, mode_t mode);
int ft_fio_fallocate(struct ft_fio *f, int fd, int64_t bytes);
/* Whole buffer, short writes continued. */
int ft_fio_write(struct ft_fio *f, int fd, const void *p, size_t n);
/* Whole buffer from `at`; EIO and errno 0 message "end of file" when the file is shorter (errno ENODATA). */
int ft_fio_pread(struct ft_fio *f, int fd, void *p, size_t n, int64_t at);
int ft_fio_fsync(struct ft_fio *f, int fd);
int ft_fio_close(struct ft_fio *f, int *fd); /* *fd becomes -1 whatever happens */
int ft_fio_rename(struct ft_fio *f, enum ft_fio_site site, const char *from, const char *to);
int ft_fio_fsyncdir(struct ft_fio *f, const char *path); /* EINVAL of file systems without it is no error */
int ft_fio_unlink(struct ft_fio *f, const char *path);
int ft_fio_rmdir(struct ft_fio *f, const char *path);

#endif
