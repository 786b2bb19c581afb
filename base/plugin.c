#include "base/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

/* Folder of the running program with file in the plugins' folder beside it. */
static enum ft_code path_of(const char *file, char *out, size_t n, struct ft_err *err)
{
    char self[PATH_MAX];
    const ssize_t k = readlink("/proc/self/exe", self, sizeof self - 1);
    if (k < 0) return ft_fail(err, FT_IO, "/proc/self/exe: %s", strerror(errno));
    self[k] = '\0';
    char *slash = strrchr(self, '/');
    if (slash) *slash = '\0';
    const int length = snprintf(out, n, "%s/../%s/%s", self, FT_PLUGIN_DIR, file);
    if (length < 0 || (size_t)length >= n) return ft_fail(err, FT_IO, "the folder of this program has too long a name");
    return FT_OK;
}

enum ft_code ft_plugin_open(const char *file, const char *function, const struct ft_plugin_head *want, enum ft_plugin_scope scope,
                            const void **table, struct ft_err *err)
{
    char path[PATH_MAX + 256];
    const void *(*get)(void);
    const enum ft_code rc = path_of(file, path, sizeof path, err);
    if (rc) return rc;
    if (access(path, R_OK) < 0) return ft_fail(err, FT_UNSUPPORTED, "%s: %s", path, strerror(errno));
    void *library = dlopen(path, RTLD_NOW | (scope == FT_PLUGIN_GLOBAL ? RTLD_GLOBAL : RTLD_LOCAL));
    if (!library) return ft_fail(err, FT_UNSUPPORTED, "%s cannot be opened: %s", file, dlerror());
    void *found = dlsym(library, function);
    if (!found) return ft_fail(err, FT_UNSUPPORTED, "%s has no function %s: it is not of this build", path, function);
    memcpy(&get, &found, sizeof get); /* a function's address, as POSIX has it */
    const struct ft_plugin_head *head = get();
    if (head->abi != want->abi || head->bytes != want->bytes || strcmp(head->version, want->version) != 0) {
        ft_fail(err, FT_UNSUPPORTED, "%s is of ftlaunch %s (table %u of %u bytes), this program of %s (table %u of %u bytes)", path,
                head->version, head->abi, head->bytes, want->version, want->abi, want->bytes);
        return ft_fix(err, "install program and plugin of one build");
    }
    *table = head;
    return FT_OK;
}
