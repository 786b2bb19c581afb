#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/str.h"
#include "runtime/ckpt/safetensors.h"

struct ft_st_folder {
    struct ft_st_file **files;
    const struct ft_st_tensor **tensors, **by_name;
    size_t n_files, n;
};

static int by_name(const void *a, const void *b)
{
    const struct ft_st_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Lists all tensors of the open files; a name in two files is refused. */
static enum ft_code collect(struct ft_st_folder *f, struct ft_err *err)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n_files; i++) n += ft_st_count(f->files[i]);
    f->tensors = ft_xcalloc(n + 1, sizeof *f->tensors);
    f->by_name = ft_xcalloc(n + 1, sizeof *f->by_name);
    for (size_t i = 0; i < f->n_files; i++)
        for (size_t j = 0; j < ft_st_count(f->files[i]); j++) f->tensors[f->n++] = ft_st_at(f->files[i], j);
    memcpy(f->by_name, f->tensors, f->n * sizeof *f->tensors);
    qsort(f->by_name, f->n, sizeof *f->by_name, by_name);
    for (size_t i = 1; i < f->n; i++)
        if (strcmp(f->by_name[i - 1]->name, f->by_name[i]->name) == 0)
            return ft_fail(err, FT_DATA, "tensor '%s' is in two files: '%s' and '%s'", f->by_name[i]->name,
                           ft_st_path(f->by_name[i - 1]->file), ft_st_path(f->by_name[i]->file));
    return FT_OK;
}

static enum ft_code add_file(struct ft_st_folder *f, const char *path, struct ft_err *err)
{
    f->files = ft_xrealloc(f->files, f->n_files + 1, sizeof(struct ft_st_file *));
    const enum ft_code code = ft_st_open(path, &f->files[f->n_files], err);
    if (!code) f->n_files++;
    return code;
}

/* A shard's name is a file name in the folder: no slash, no "..". */
static enum ft_code open_shards(struct ft_st_folder *f, const char *dir, const char *index, const struct ft_json *map,
                                struct ft_err *err)
{
    struct ft_buf path = {0};
    enum ft_code code = FT_OK;
    for (void *it = ft_json_iter(map); it && !code; it = ft_json_iter_next(map, it)) {
        const char *file = ft_json_str(ft_json_iter_value(it));
        if (!file || !*file || strchr(file, '/') || ft_str_eq(file, "..") || !ft_str_ends(file, ".safetensors")) {
            code = ft_fail(err, FT_DATA, "'%s': weight_map of '%s' is not the name of a .safetensors file in the folder", index,
                           ft_json_iter_key(it));
            break;
        }
        ft_buf_clear(&path);
        ft_buf_addf(&path, "%s/%s", dir, file);
        bool seen = false;
        for (size_t i = 0; i < f->n_files && !seen; i++) seen = ft_str_eq(ft_st_path(f->files[i]), path.data);
        if (!seen && (code = add_file(f, path.data, err)) != FT_OK) ft_wrap(err, "opening a file that '%s' names", index);
    }
    ft_buf_fini(&path);
    return code;
}

/* Both ways: each mapped name is in its file, each tensor of those files is mapped to that file. */
static enum ft_code check_index(const struct ft_st_folder *f, const char *index, const struct ft_json *map, struct ft_err *err)
{
    for (void *it = ft_json_iter(map); it; it = ft_json_iter_next(map, it)) {
        const char *name = ft_json_iter_key(it), *file = ft_json_str(ft_json_iter_value(it));
        const struct ft_st_tensor *t = ft_st_folder_find(f, name);
        if (!t) return ft_fail(err, FT_DATA, "'%s' says that tensor '%s' is in '%s'; it is not", index, name, file);
        const char *slash = strrchr(ft_st_path(t->file), '/');
        if (!ft_str_eq(slash + 1, file))
            return ft_fail(err, FT_DATA, "'%s' says that tensor '%s' is in '%s'; it is in '%s'", index, name, file, slash + 1);
    }
    for (size_t i = 0; i < f->n; i++)
        if (!ft_json_get(map, f->tensors[i]->name))
            return ft_fail(err, FT_DATA, "tensor '%s' of '%s' is not in '%s'", f->tensors[i]->name, ft_st_path(f->tensors[i]->file),
                           index);
    return FT_OK;
}

static enum ft_code open_index(struct ft_st_folder *f, const char *dir, const char *index, struct ft_err *err)
{
    struct ft_json *j = NULL;
    enum ft_code code = ft_json_read_file(index, 0, &j, err);
    if (code) return code;
    const struct ft_json *map = ft_json_get(j, "weight_map");
    if (!ft_json_is(map, FT_JSON_OBJECT) || ft_json_count(map) == 0) code = ft_fail(err, FT_DATA, "'%s' has no weight_map", index);
    if (!code) code = open_shards(f, dir, index, map, err);
    if (!code) code = collect(f, err);
    if (!code) code = check_index(f, index, map, err);
    ft_json_destroy(j);
    return code;
}

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

enum ft_code ft_st_folder_open(const char *dir, const char *base, struct ft_st_folder **out, struct ft_err *err)
{
    struct ft_st_folder *f = ft_xcalloc(1, sizeof *f);
    struct ft_buf one = {0}, index = {0};
    ft_buf_addf(&one, "%s/%s.safetensors", dir, base);
    ft_buf_addf(&index, "%s/%s.safetensors.index.json", dir, base);
    enum ft_code code;
    if (exists(one.data) && exists(index.data)) {
        code = ft_fail(err, FT_DATA, "'%s' has both %s.safetensors and %s.safetensors.index.json", dir, base, base);
        ft_fix(err, "remove the one that does not belong to this model");
    } else if (exists(index.data)) {
        code = open_index(f, dir, index.data, err);
    } else {
        code = add_file(f, one.data, err);
        if (!code) code = collect(f, err);
    }
    ft_buf_fini(&one);
    ft_buf_fini(&index);
    if (code) {
        ft_st_folder_close(f);
        return code;
    }
    *out = f;
    return FT_OK;
}

void ft_st_folder_close(struct ft_st_folder *f)
{
    if (!f) return;
    for (size_t i = 0; i < f->n_files; i++) ft_st_close(f->files[i]);
    free(f->files);
    free(f->tensors);
    free(f->by_name);
    free(f);
}

size_t ft_st_folder_count(const struct ft_st_folder *f) { return f->n; }
const struct ft_st_tensor *ft_st_folder_at(const struct ft_st_folder *f, size_t i) { return f->tensors[i]; }
size_t ft_st_folder_n_files(const struct ft_st_folder *f) { return f->n_files; }
const struct ft_st_file *ft_st_folder_file(const struct ft_st_folder *f, size_t i) { return f->files[i]; }

const struct ft_st_tensor *ft_st_folder_find(const struct ft_st_folder *f, const char *name)
{
    const struct ft_st_tensor key = {.name = name}, *pkey = &key;
    const struct ft_st_tensor **hit = bsearch(&pkey, f->by_name, f->n, sizeof *f->by_name, by_name);
    return hit ? *hit : NULL;
}

const char *ft_st_folder_metadata(const struct ft_st_folder *f, const char *key)
{
    for (size_t i = 0; i < f->n_files; i++) {
        const char *v = ft_st_metadata(f->files[i], key);
        if (v) return v;
    }
    return NULL;
}
