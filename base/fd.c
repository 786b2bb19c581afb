#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"

enum ft_code ft_write_all(int fd, const void *p, size_t n, struct ft_err *err)
{
    const char *at = p;
    while (n) {
        const ssize_t w = write(fd, at, n);
        if (w < 0 && errno == EINTR) continue;
        if (w < 0) return ft_fail(err, FT_IO, "write failed: %s", strerror(errno));
        at += w;
        n -= (size_t)w;
    }
    return FT_OK;
}

enum ft_code ft_read_exact(int fd, void *p, size_t n, struct ft_err *err)
{
    char *at = p;
    while (n) {
        const ssize_t r = read(fd, at, n);
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) return ft_fail(err, FT_IO, "read failed: %s", strerror(errno));
        if (!r) return ft_fail(err, FT_IO, "read ended %zu bytes early", n);
        at += r;
        n -= (size_t)r;
    }
    return FT_OK;
}

enum ft_code ft_pread_exact(int fd, void *p, size_t n, int64_t off, struct ft_err *err)
{
    char *at = p;
    while (n) {
        const ssize_t r = pread(fd, at, n, off);
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) return ft_fail(err, FT_IO, "read failed: %s", strerror(errno));
        if (!r) return ft_fail(err, FT_IO, "file ends %zu bytes early", n);
        at += r;
        off += r;
        n -= (size_t)r;
    }
    return FT_OK;
}

static enum ft_code read_open(int fd, const char *path, size_t max, struct ft_buf *out, struct ft_err *err)
{
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) return ft_fail(err, FT_IO, "cannot read '%s': Is a directory", path);
    ft_buf_clear(out);
    for (;;) {
        size_t step = 65536;
        if (S_ISREG(st.st_mode) && (size_t)st.st_size > out->n) step = (size_t)st.st_size - out->n + 1;
        if (step > max - out->n + 1) step = max - out->n + 1;
        ft_buf_reserve(out, step);
        const ssize_t r = read(fd, out->data + out->n, step);
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) return ft_fail(err, FT_IO, "cannot read '%s': %s", path, strerror(errno));
        out->n += (size_t)r;
        out->data[out->n] = 0;
        if (!r) return FT_OK;
        if (out->n > max) return ft_fail(err, FT_IO, "cannot read '%s': larger than %zu bytes", path, max);
    }
}

enum ft_code ft_read_file(const char *path, size_t max, struct ft_buf *out, struct ft_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return ft_fail(err, FT_IO, "cannot read '%s': %s", path, strerror(errno));
    const enum ft_code code = read_open(fd, path, max, out, err);
    ft_close(&fd);
    return code;
}

static enum ft_code sync_folder(const char *path, struct ft_err *err)
{
    const char *slash = strrchr(path, '/');
    struct ft_buf dir = {0};
    if (!slash) ft_buf_adds(&dir, ".");
    else ft_buf_add(&dir, path, slash == path ? 1 : (size_t)(slash - path));
    int fd = open(ft_buf_str(&dir), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    enum ft_code code = FT_OK;
    if (fd >= 0 && fsync(fd) != 0 && errno != EINVAL)
        code = ft_fail(err, FT_IO, "cannot sync folder '%s': %s", ft_buf_str(&dir), strerror(errno));
    ft_close(&fd);
    ft_buf_fini(&dir);
    return code;
}

enum ft_code ft_write_file(const char *path, const void *p, size_t n, mode_t mode, struct ft_err *err)
{
    uint64_t salt = 0;
    if (!ft_random(&salt, sizeof salt)) return ft_fail(err, FT_IO, "no random bytes: %s", strerror(errno));
    struct ft_buf part = {0};
    ft_buf_addf(&part, "%s.part-%016llx", path, (unsigned long long)salt);
    int fd = open(part.data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    enum ft_code code = FT_OK;
    if (fd < 0) code = ft_fail(err, FT_IO, "cannot create '%s': %s", part.data, strerror(errno));
    if (!code && (code = ft_write_all(fd, p, n, err))) ft_wrap(err, "writing '%s'", path);
    if (!code && fsync(fd) != 0) code = ft_fail(err, FT_IO, "cannot sync '%s': %s", part.data, strerror(errno));
    if (fd >= 0 && close(fd) != 0 && !code) code = ft_fail(err, FT_IO, "cannot close '%s': %s", part.data, strerror(errno));
    if (!code && rename(part.data, path) != 0)
        code = ft_fail(err, FT_IO, "cannot rename '%s' to '%s': %s", part.data, path, strerror(errno));
    if (code && fd >= 0) unlink(part.data);
    if (!code) code = sync_folder(path, err);
    ft_buf_fini(&part);
    return code;
}

enum ft_code ft_mkdirs(const char *path, mode_t mode, struct ft_err *err)
{
    char *copy = ft_xstrdup(path);
    enum ft_code code = FT_OK;
    for (char *p = copy + 1; !code; p++) {
        if (*p && *p != '/') continue;
        const char was = *p;
        *p = 0;
        if (mkdir(copy, mode) != 0 && (errno != EEXIST || !ft_is_dir(copy)))
            code = ft_fail(err, FT_IO, "cannot make folder '%s': %s", copy, strerror(errno == EEXIST ? ENOTDIR : errno));
        *p = was;
        if (!was) break;
    }
    free(copy);
    return code;
}

enum ft_code ft_pipe(int fd[2], struct ft_err *err)
{
    char why[200];
    if (pipe2(fd, O_CLOEXEC) == 0) return FT_OK;
    return ft_fail(err, FT_IO, "cannot make a pipe: %s", ft_errno_text(errno, why));
}

enum ft_code ft_nonblock(int fd, struct ft_err *err)
{
    const int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0) return FT_OK;
    return ft_fail(err, FT_IO, "cannot make descriptor %d non-blocking: %s", fd, strerror(errno));
}

const char *ft_errno_text(int e, char out[200])
{
    struct rlimit lim;
    if (e == EMFILE && getrlimit(RLIMIT_NOFILE, &lim) == 0)
        snprintf(out, 200, "%s: this process may have %llu (raise it with ulimit -n; the hard limit is %llu)", strerror(e),
                 (unsigned long long)lim.rlim_cur, (unsigned long long)lim.rlim_max);
    else snprintf(out, 200, "%s", strerror(e));
    return out;
}

void ft_close(int *fd)
{
    if (*fd < 0) return;
    const int keep = errno;
    close(*fd);
    *fd = -1;
    errno = keep;
}

void ft_std_fds(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) >= 0) continue;
        const int got = open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY); /* the lowest free number is fd */
        if (got >= 0 && got != fd) {
            dup2(got, fd);
            close(got);
        }
    }
}

bool ft_random(void *p, size_t n)
{
    char *at = p;
    while (n) {
        const ssize_t r = getrandom(at, n, 0);
        if (r < 0 && errno == EINTR) continue;
        if (r <= 0) return false;
        at += r;
        n -= (size_t)r;
    }
    return true;
}

bool ft_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool ft_is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

enum ft_code ft_self_dir(struct ft_buf *out, struct ft_err *err)
{
    char path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
    if (n <= 0 || n >= (ssize_t)sizeof path) return ft_fail(err, FT_IO, "cannot read /proc/self/exe: %s", strerror(errno));
    size_t len = (size_t)n;
    while (len > 1 && path[len - 1] != '/') len--;
    ft_buf_clear(out);
    ft_buf_add(out, path, len > 1 ? len - 1 : 1);
    return FT_OK;
}

/* Home of a user by name, or of this one ("") in the user database. false: none. */
static bool home_in_database(const char *name, struct ft_buf *out)
{
    struct passwd row, *found = NULL;
    struct ft_buf room = {0};
    int e = ERANGE;
    for (size_t size = 4096; e == ERANGE && size < (4u << 20); size *= 2) {
        ft_buf_reserve(&room, size);
        e = *name ? getpwnam_r(name, &row, room.data, size, &found) : getpwuid_r(getuid(), &row, room.data, size, &found);
    }
    const bool known = !e && found && row.pw_dir && row.pw_dir[0] == '/';
    if (known) ft_buf_adds(out, row.pw_dir);
    ft_buf_fini(&room);
    return known;
}

enum ft_code ft_expand_home(const char *path, struct ft_buf *out, struct ft_err *err)
{
    ft_buf_clear(out);
    const size_t n = path[0] == '~' ? strcspn(path, "/") : 0;
    const char *home = n == 1 ? getenv("HOME") : NULL;
    char *name = ft_xstrdup(n ? path + 1 : "");
    if (n) name[n - 1] = 0;
    const bool known = n == 0 || (home && *home) || home_in_database(name, out);
    if (n && known && !out->n) ft_buf_adds(out, home);
    ft_buf_adds(out, known ? path + n : path);
    enum ft_code code = FT_OK;
    if (!known) {
        code = ft_fail(err, FT_CONFIG,
                       *name ? "no home folder of a user '%s' is known for '%s'" : "no home folder%s is known for '%s'", name,
                       path);
        ft_fix(err, "write the path in full%s", *name ? "; a folder whose name begins with '~' is './~…'" : ", or set HOME");
    }
    free(name);
    return code;
}
