/* Reads all of a checkpoint in one process: checksums, headers, coverage, hashes of the stored tensors. All faults are listed. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/fd.h"
#include "runtime/ckpt/cmd.h"
#include "runtime/ckpt/safetensors.h"

struct verify {
    struct ft_ckpt_call *c;
    struct ft_jw w;
    int n_wrong, n_checked;
};

static void wrong(struct verify *v, const char *path, const char *text)
{
    v->n_wrong++;
    if (v->c->json) ft_jw_str(&v->w, text);
    else fprintf(v->c->out, "%s: %s\n", path, text);
}

/* Every entry of the manifest stands in the header of its file, and the other way round. */
static void check_headers(struct verify *v, const struct ft_manifest *m, const char *path)
{
    struct ft_buf file = {0}, key = {0};
    struct ft_err err = {0};
    size_t *n_entries = ft_xcalloc(m->n_files + 1, sizeof *n_entries);
    struct ft_st_file **open = ft_xcalloc(m->n_files + 1, sizeof(struct ft_st_file *));
    for (size_t i = 0; i < m->n_files; i++) {
        ft_buf_clear(&file);
        ft_buf_addf(&file, "%s/%s", path, m->files[i].name);
        if (ft_st_open(ft_buf_str(&file), &open[i], &err)) wrong(v, path, err.text);
    }
    for (size_t i = 0; i < m->tensors.n; i++)
        for (size_t k = 0; k < m->tensors.v[i].n_entries; k++) {
            const struct ft_mf_tensor *t = &m->tensors.v[i];
            const struct ft_mf_entry *e = &t->entries[k];
            if (!open[e->file]) continue;
            n_entries[e->file]++;
            ft_buf_clear(&key);
            ft_mf_key(&key, t->name, t->n_dims, t->dims, &e->rect);
            const struct ft_st_tensor *s = ft_st_find(open[e->file], ft_buf_str(&key));
            if (s && s->begin + m->files[e->file].header_bytes == e->begin && s->end - s->begin == e->bytes) continue;
            ft_fail(&err, FT_DATA, "%s: the header of %s does not have it as the manifest says", ft_buf_str(&key),
                    m->files[e->file].name);
            wrong(v, path, err.text);
        }
    for (size_t i = 0; i < m->n_files; i++) {
        if (open[i] && ft_st_count(open[i]) != n_entries[i]) {
            ft_fail(&err, FT_DATA, "%s has %zu tensors, the manifest %zu", m->files[i].name, ft_st_count(open[i]), n_entries[i]);
            wrong(v, path, err.text);
        }
        ft_st_close(open[i]);
    }
    free(open);
    free(n_entries);
    ft_buf_fini(&file);
    ft_buf_fini(&key);
}

static void check_values(struct verify *v, const struct ft_manifest *m, const char *path)
{
    struct ft_fio fio = {0};
    struct ft_err err = {0};
    for (size_t i = 0; i < m->tensors.n; i++) {
        const struct ft_mf_tensor *t = &m->tensors.v[i];
        uint64_t hash = 0;
        bool read = true;
        for (size_t k = 0; k < t->n_entries; k++)
            if (ft_ckpt_check_entry(&fio, m, t, &t->entries[k], path, &hash, &err)) {
                wrong(v, path, err.text);
                read = false;
            }
        if (!read || hash == t->hash) continue;
        ft_fail(&err, FT_DATA, "%s: hash %016llx, manifest says %016llx; all CRCs are right: slices exchanged or a reader fault",
                t->name, (unsigned long long)hash, (unsigned long long)t->hash);
        wrong(v, path, err.text);
    }
}

static void check_one(struct verify *v, const char *path)
{
    struct ft_buf text = {0};
    struct ft_manifest *m = NULL;
    struct ft_err err = {0};
    const int before = v->n_wrong;
    v->n_checked++;
    if (v->c->json) {
        ft_jw_object(&v->w);
        ft_jw_kstr(&v->w, "path", path);
        ft_jw_key(&v->w, "wrong");
        ft_jw_array(&v->w);
    }
    if (ft_ckpt_cmd_open(path, &text, &m, &err)) {
        wrong(v, path, err.text);
    } else if (ft_manifest_check_files(m, path, &err)) {
        wrong(v, path, err.text);
    } else {
        if (ft_manifest_check_tiles(m, &err)) wrong(v, path, err.text);
        check_headers(v, m, path);
        check_values(v, m, path);
    }
    if (v->c->json) {
        ft_jw_end(&v->w);
        ft_jw_kbool(&v->w, "valid", v->n_wrong == before);
        ft_jw_end(&v->w);
    } else if (v->n_wrong == before) {
        fprintf(v->c->out, "%s: step %lld, %zu tensors, %.1f MB: all right\n", path, (long long)m->step, m->tensors.n,
                (double)m->bytes / 1e6);
    }
    ft_manifest_destroy(m);
    ft_buf_fini(&text);
}

int ft_ckpt_cmd_verify(struct ft_ckpt_call *c)
{
    struct ft_buf json = {0}, path = {0};
    struct verify v = {.c = c, .w = ft_jw_begin(&json)};
    ft_jw_object(&v.w);
    ft_jw_kint(&v.w, "schema", 1);
    ft_jw_key(&v.w, "checkpoints");
    ft_jw_array(&v.w);
    int rc = 0;
    for (size_t i = 0; i < c->n_words; i++) {
        struct ft_err err = {0};
        struct ft_ckpt_names names = {0};
        ft_buf_clear(&path);
        ft_buf_addf(&path, "%s/manifest.json", c->words[i]);
        const bool one = ft_is_file(ft_buf_str(&path));
        if (!one && ft_ckpt_names_read(c->words[i], &names, &err)) {
            ft_err_print(c->err, "fttrain", &err);
            rc = 2;
        }
        if (one) check_one(&v, c->words[i]);
        const int before = v.n_checked;
        for (size_t k = 0; k < names.n; k++) {
            if (names.v[k].kind != FT_CKPT_STEP) continue;
            ft_buf_clear(&path);
            ft_buf_addf(&path, "%s/%s", c->words[i], names.v[k].name);
            check_one(&v, ft_buf_str(&path));
        }
        if (!one && !rc && v.n_checked == before) { /* nothing was looked at: that is not "all right" */
            ft_fail(&err, FT_USAGE, "%s is no checkpoint and has none", c->words[i]);
            ft_err_print(c->err, "fttrain", &err);
            rc = 2;
        }
        ft_ckpt_names_fini(&names);
    }
    ft_jw_end(&v.w);
    ft_jw_end(&v.w);
    if (c->json) fprintf(c->out, "%s\n", ft_buf_str(&json));
    ft_buf_fini(&json);
    ft_buf_fini(&path);
    return rc ? rc : v.n_wrong ? 1 : 0;
}
