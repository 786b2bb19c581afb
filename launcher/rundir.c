#include "launcher/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

/* Only letters that need no quoting anywhere. */
static void clean_name(const char *name, struct ft_buf *out)
{
    const char *base = name ? strrchr(name, '/') : NULL;
    base = base ? base + 1 : name ? name : "";
    for (; *base && out->n < 64; base++) {
        bool plain = (*base >= 'a' && *base <= 'z') || (*base >= 'A' && *base <= 'Z') || (*base >= '0' && *base <= '9') ||
                     strchr("._+", *base);
        ft_buf_addc(out, plain || (*base == '-' && out->n) ? *base : '_');
    }
    if (!out->n || out->data[0] == '.') {
        ft_buf_clear(out);
        ft_buf_adds(out, "run");
    }
}

static enum ft_code absolute(const char *path, struct ft_arena *arena, const char **out, struct ft_err *err)
{
    char *real = realpath(path, NULL);
    if (!real) return ft_fail(err, FT_IO, "cannot use the folder '%s': %s", path, strerror(errno));
    *out = ft_arena_strdup(arena, real);
    free(real);
    return FT_OK;
}

enum ft_code ft_rundir_create(const char *parent, const char *name, struct ft_arena *arena, struct ft_rundir *out,
                              struct ft_err *err)
{
    struct ft_buf clean = {0};
    const char *root = NULL;
    enum ft_code c = ft_mkdirs(parent, 0777, err);
    if (!c) c = absolute(parent, arena, &root, err);
    clean_name(name, &clean);
    for (int i = 0; !c; i++) {
        unsigned char r[2];
        char stamp[32];
        ft_wall_compact(ft_wall_ns(), stamp);
        if (!ft_random(r, sizeof r)) r[0] = r[1] = (unsigned char)i;
        out->id = ft_arena_printf(arena, "%s-%s-%02x%02x", clean.data, stamp, r[0], r[1]);
        out->path = ft_arena_printf(arena, "%s/%s", root, out->id);
        if (mkdir(out->path, 0700) == 0) break;
        if (errno != EEXIST || i == 1000)
            c = ft_fail(err, FT_IO, "cannot make the run folder '%s': %s", out->path, strerror(errno));
    }
    if (!c && mkdir(ft_rundir_file(out, "ranks", arena), 0700) < 0)
        c = ft_fail(err, FT_IO, "cannot make '%s/ranks': %s", out->path, strerror(errno));
    ft_buf_fini(&clean);
    return c;
}

const char *ft_rundir_file(const struct ft_rundir *d, const char *name, struct ft_arena *arena)
{
    return ft_arena_printf(arena, "%s/%s", d->path, name);
}

enum ft_code ft_rundir_write(const struct ft_rundir *d, const char *name, const struct ft_buf *text, struct ft_err *err)
{
    struct ft_buf path = {0};
    ft_buf_addf(&path, "%s/%s", d->path, name);
    int fd = open(path.data, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    enum ft_code c = FT_OK;
    char why[200];
    if (fd < 0) c = ft_fail(err, FT_IO, "cannot write '%s': %s", path.data, ft_errno_text(errno, why));
    else {
        c = ft_write_all(fd, ft_buf_str(text), text->n, err);
        if (c) ft_wrap(err, "writing '%s'", path.data);
        close(fd);
    }
    ft_buf_fini(&path);
    return c;
}

size_t ft_rundir_is_run(const char *name)
{
    size_t n = strlen(name);
    static const char shape[] = "-dddddddd-dddddd-xxxx";
    size_t k = sizeof shape - 1;
    if (n <= k) return 0;
    for (size_t i = 0; i < k; i++) {
        char c = name[n - k + i];
        bool ok = shape[i] == '-' ? c == '-' : (c >= '0' && c <= '9') || (shape[i] == 'x' && c >= 'a' && c <= 'f');
        if (!ok) return 0;
    }
    return n - k;
}

enum ft_code ft_rundir_find(const char *parent, const char *run, struct ft_arena *arena, struct ft_rundir *out, struct ft_err *err)
{
    struct ft_buf path = {0};
    ft_buf_adds(&path, run);
    while (path.n > 1 && path.data[path.n - 1] == '/') path.data[--path.n] = 0;
    const char *slash = strrchr(path.data, '/');
    const char *folder = NULL;
    if (ft_rundir_is_run(slash ? slash + 1 : path.data) && ft_is_dir(path.data)) folder = ft_arena_strdup(arena, path.data);
    DIR *d = folder ? NULL : opendir(parent);
    unsigned found = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!ft_rundir_is_run(e->d_name)) continue;
        bool exact = ft_str_eq(e->d_name, run);
        if (!exact && !ft_str_ends(e->d_name, run) && !ft_str_starts(e->d_name, run)) continue;
        if (exact) found = 0;
        folder = ft_arena_printf(arena, "%s/%s", parent, e->d_name);
        found++;
        if (exact) break;
    }
    if (d) closedir(d);
    ft_buf_fini(&path);
    if (found > 1) return ft_fail(err, FT_USAGE, "'%s' names %u runs in '%s'", run, found, parent);
    if (!folder) return ft_fail(err, FT_USAGE, "there is no run '%s' in '%s'", run, parent);
    enum ft_code c = absolute(folder, arena, &out->path, err);
    if (!c) out->id = ft_arena_strdup(arena, strrchr(out->path, '/') + 1);
    return c;
}
