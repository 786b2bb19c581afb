#include "runtime/data/files.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/arena.h"

static int bytewise(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void keep(struct ft_files *f, const char *path)
{
    ft_grow(&f->v, &f->cap, f->n + 1, sizeof *f->v);
    f->v[f->n++] = ft_xstrdup(path);
}

static enum ft_code add_glob(const char *pattern, const char *key, struct ft_files *out, struct ft_err *err)
{
    glob_t g;
    const int rc = glob(pattern, GLOB_NOSORT | GLOB_ERR, NULL, &g);
    if (rc == GLOB_NOMATCH) return ft_fail(err, FT_CONFIG, "[data] %s: no file matches '%s'", key, pattern);
    if (rc != 0) return ft_fail(err, FT_IO, "[data] %s: cannot read the folders of '%s'", key, pattern);
    qsort(g.gl_pathv, g.gl_pathc, sizeof *g.gl_pathv, bytewise);
    for (size_t i = 0; i < g.gl_pathc; i++) keep(out, g.gl_pathv[i]);
    globfree(&g);
    return FT_OK;
}

static enum ft_code check_all(const struct ft_files *f, const char *key, struct ft_err *err)
{
    for (size_t i = 0; i < f->n; i++) {
        struct stat st;
        if (stat(f->v[i], &st)) return ft_fail(err, FT_CONFIG, "[data] %s: cannot open '%s': %s", key, f->v[i], strerror(errno));
        if (S_ISDIR(st.st_mode)) return ft_fail(err, FT_CONFIG, "[data] %s: '%s' is a folder, not a file", key, f->v[i]);
        for (size_t k = 0; k < i; k++)
            if (ft_str_eq(f->v[i], f->v[k])) return ft_fail(err, FT_CONFIG, "[data] %s: '%s' is named twice", key, f->v[i]);
    }
    return FT_OK;
}

enum ft_code ft_files_find(const struct ft_list *list, const char *key, struct ft_files *out, struct ft_err *err)
{
    struct ft_files f = {0};
    enum ft_code rc = FT_OK;
    for (size_t i = 0; i < list->n && rc == FT_OK; i++) {
        struct stat st;
        if (strpbrk(list->v[i], "*?[") && stat(list->v[i], &st)) rc = add_glob(list->v[i], key, &f, err);
        else keep(&f, list->v[i]);
    }
    if (rc == FT_OK) rc = check_all(&f, key, err);
    if (rc == FT_OK) *out = f;
    else ft_files_fini(&f);
    return rc;
}

void ft_files_fini(struct ft_files *f)
{
    for (size_t i = 0; i < f->n; i++) free(f->v[i]);
    free(f->v);
    memset(f, 0, sizeof *f);
}
