#include "runtime/ckpt/target.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

/* The nearest path that exists, dir itself included. */
static void nearest(const char *dir, struct ft_buf *at)
{
    struct stat st;
    ft_buf_adds(at, dir);
    while (lstat(at->data, &st) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
        while (at->n > 1 && at->data[at->n - 1] == '/') at->data[--at->n] = 0;
        const char *slash = strrchr(at->data, '/');
        const size_t keep = !slash ? 0 : slash == at->data ? 1 : (size_t)(slash - at->data);
        ft_buf_clear(at);
        if (keep) ft_buf_add(at, dir, keep);
        else ft_buf_adds(at, ".");
    }
}

enum ft_code ft_target_check(const char *dir, struct ft_err *err)
{
    struct ft_buf at = {0}, probe = {0};
    uint64_t salt = 0;
    enum ft_code code = FT_OK;
    nearest(dir, &at);
    if (!ft_random(&salt, sizeof salt)) code = ft_fail(err, FT_IO, "no random bytes: %s", strerror(errno));
    ft_buf_addf(&probe, "%s/.ft-probe-%016llx", at.data, (unsigned long long)salt);
    if (!code && !ft_is_dir(at.data)) code = ft_fail(err, FT_IO, "'%s' is no folder", at.data);
    if (!code && (mkdir(probe.data, 0700) != 0 || rmdir(probe.data) != 0))
        code = ft_fail(err, FT_IO, "no folder can be made in '%s': %s", at.data, strerror(errno));
    ft_buf_fini(&at);
    ft_buf_fini(&probe);
    return code;
}
