/* Descriptors and files. Everything is close-on-exec; EINTR is retried; short writes are continued. */
#ifndef FT_BASE_FD_H
#define FT_BASE_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/str.h"

enum ft_code ft_write_all(int fd, const void *p, size_t n, struct ft_err *err) FT_MUST_CHECK;
/* Reads exactly n bytes; a shorter file is FT_IO. */
enum ft_code ft_read_exact(int fd, void *p, size_t n, struct ft_err *err) FT_MUST_CHECK;
enum ft_code ft_pread_exact(int fd, void *p, size_t n, int64_t at, struct ft_err *err) FT_MUST_CHECK;
/* Whole file into out (replaced). Directories, missing and unreadable files give the errno text; over max: FT_IO. */
enum ft_code ft_read_file(const char *path, size_t max, struct ft_buf *out, struct ft_err *err) FT_MUST_CHECK;
/* Writes PATH.part-RANDOM, fsync, rename, fsync of the folder: PATH is old or new, never half. */
enum ft_code ft_write_file(const char *path, const void *p, size_t n, mode_t mode, struct ft_err *err) FT_MUST_CHECK;
enum ft_code ft_mkdirs(const char *path, mode_t mode, struct ft_err *err) FT_MUST_CHECK; /* parents too; existing is fine */
enum ft_code ft_pipe(int fd[2], struct ft_err *err) FT_MUST_CHECK;                       /* O_CLOEXEC */
enum ft_code ft_nonblock(int fd, struct ft_err *err) FT_MUST_CHECK;
/* strerror, and for "too many open files" which limit it is and how it is raised. Returns out. */
const char *ft_errno_text(int e, char out[200]);
void ft_close(int *fd); /* closes when >= 0 and sets -1; errno is kept */
/* Opens descriptors 0..2 on /dev/null where they are closed. */
void ft_std_fds(void);
bool ft_random(void *p, size_t n); /* getrandom(2) */
bool ft_is_dir(const char *path);
bool ft_is_file(const char *path);
/* Folder of this program's own file (from /proc/self/exe), without a final slash. */
enum ft_code ft_self_dir(struct ft_buf *out, struct ft_err *err) FT_MUST_CHECK;
/* "~", "~/x": this user's home ($HOME, else the one of the user database); "~name/x": that user's; anything else unchanged.
 * Where no home is known: FT_CONFIG, and out holds the path as it was. */
enum ft_code ft_expand_home(const char *path, struct ft_buf *out, struct ft_err *err);

#endif
