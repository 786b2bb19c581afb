/* What differs between two checkpoints: scalars, then tensors. Exit 0: nothing; 1: something, or one of them cannot be read. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/fd.h"
#include "runtime/ckpt/cmd.h"

struct diff {
    struct ft_ckpt_call *c;
    struct ft_jw w;
    int n;
};

static void show(struct ft_buf *b, const struct ft_json *v)
{
    struct ft_jw w = ft_jw_begin(b);
    if (v) ft_jw_value(&w, v);
    else ft_buf_adds(b, "nothing");
}

static void scalar(struct diff *d, const char *key, const struct ft_json *a, const struct ft_json *b)
{
    struct ft_buf x = {0}, y = {0};
    show(&x, a);
    show(&y, b);
    d->n++;
    if (d->c->json) {
        ft_jw_object(&d->w);
        ft_jw_kstr(&d->w, "key", key);
        ft_jw_key(&d->w, "a");
        ft_jw_raw(&d->w, a ? ft_buf_str(&x) : "null");
        ft_jw_key(&d->w, "b");
        ft_jw_raw(&d->w, b ? ft_buf_str(&y) : "null");
        ft_jw_end(&d->w);
    } else {
        fprintf(d->c->out, "%s: %s | %s\n", key, ft_buf_str(&x), ft_buf_str(&y));
    }
    ft_buf_fini(&x);
    ft_buf_fini(&y);
}

/* Leaf by leaf, in the order of a; then what only b has. */
static void walk(struct diff *d, const char *prefix, const struct ft_json *a, const struct ft_json *b)
{
    static const char *const skipped[] = {"files", "tensors", "derived", "frozen", "self_crc32c", "state_hash", "created"};
    struct ft_buf key = {0};
    for (int side = 0; side < 2; side++) {
        const struct ft_json *from = side ? b : a;
        for (void *it = ft_json_iter(from); it; it = ft_json_iter_next(from, it)) {
            const char *name = ft_json_iter_key(it);
            const struct ft_json *x = ft_json_get(a, name), *y = ft_json_get(b, name);
            bool skip = side && x;
            for (size_t i = 0; i < sizeof skipped / sizeof *skipped; i++) skip |= !*prefix && !strcmp(skipped[i], name);
            if (skip) continue;
            ft_buf_clear(&key);
            ft_buf_addf(&key, "%s%s%s", prefix, *prefix ? "." : "", name);
            if (ft_json_is(x, FT_JSON_OBJECT) && ft_json_is(y, FT_JSON_OBJECT)) walk(d, ft_buf_str(&key), x, y);
            else if (!x || !y || !ft_json_equal(x, y)) scalar(d, ft_buf_str(&key), x, y);
        }
    }
    ft_buf_fini(&key);
}

/* All of a tensor in memory, fp32. NULL: not F32 or not readable. */
static float *read_tensor(const struct ft_mf_tensor *t, const struct ft_manifest *m, const char *path)
{
    struct ft_fio fio = {0};
    struct ft_buf file = {0};
    float *x = t->dtype == FT_F32 ? ft_xcalloc((size_t)(t->dims[0] * t->dims[1]) + 1, sizeof *x) : NULL;
    bool ok = x != NULL;
    for (size_t i = 0; i < t->n_entries && ok; i++) {
        const struct ft_mf_entry *e = &t->entries[i];
        ft_buf_clear(&file);
        ft_buf_addf(&file, "%s/%s", path, m->files[e->file].name);
        int fd = ft_fio_open(&fio, FT_FIO_OPEN, ft_buf_str(&file), 0, 0);
        for (int64_t r = 0; r < e->rect.n[0] && ok; r++)
            ok = fd >= 0 && !ft_fio_pread(&fio, fd, x + (e->rect.at[0] + r) * t->dims[1] + e->rect.at[1], (size_t)e->rect.n[1] * 4,
                                          e->begin + r * e->rect.n[1] * 4);
        ft_close(&fd);
    }
    ft_buf_fini(&file);
    if (ok) return x;
    free(x);
    return NULL;
}

static double max_difference(const struct ft_mf_tensor *a, const struct ft_manifest *ma, const char *pa,
                             const struct ft_mf_tensor *b, const struct ft_manifest *mb, const char *pb)
{
    float *x = read_tensor(a, ma, pa), *y = read_tensor(b, mb, pb);
    double most = 0;
    if (!x || !y) most = (double)NAN;
    for (int64_t i = 0; x && y && i < a->dims[0] * a->dims[1]; i++) {
        const double e = fabs((double)x[i] - (double)y[i]);
        if (e > most) most = e;
    }
    free(x);
    free(y);
    return most;
}

static void tensor(struct diff *d, const char *name, const char *what, double most)
{
    d->n++;
    if (d->c->json) {
        ft_jw_object(&d->w);
        ft_jw_kstr(&d->w, "name", name);
        ft_jw_kstr(&d->w, "what", what);
        if (d->c->verbose) ft_jw_kreal(&d->w, "max", most);
        ft_jw_end(&d->w);
    } else if (d->c->verbose && isfinite(most)) {
        fprintf(d->c->out, "%s: %s, max |a-b| %.6g\n", name, what, most);
    } else {
        fprintf(d->c->out, "%s: %s\n", name, what);
    }
}

static void tensors(struct diff *d, const struct ft_manifest *a, const struct ft_manifest *b)
{
    for (size_t i = 0; i < a->tensors.n; i++) {
        const struct ft_mf_tensor *x = &a->tensors.v[i], *y = ft_mf_find(&b->tensors, x->name);
        if (!y) tensor(d, x->name, "only in a", (double)NAN);
        else if (x->dtype != y->dtype || x->n_dims != y->n_dims || x->dims[0] != y->dims[0] || x->dims[1] != y->dims[1])
            tensor(d, x->name, "another shape or type", (double)NAN);
        else if (x->hash != y->hash)
            tensor(d, x->name, "another content",
                   d->c->verbose ? max_difference(x, a, d->c->words[0], y, b, d->c->words[1]) : (double)NAN);
    }
    for (size_t i = 0; i < b->tensors.n; i++)
        if (!ft_mf_find(&a->tensors, b->tensors.v[i].name)) tensor(d, b->tensors.v[i].name, "only in b", (double)NAN);
}

int ft_ckpt_cmd_diff(struct ft_ckpt_call *c)
{
    struct ft_buf ta = {0}, tb = {0}, json = {0};
    struct ft_manifest *a = NULL, *b = NULL;
    struct ft_err err = {0};
    struct diff d = {.c = c, .w = ft_jw_begin(&json)};
    int rc = 0;
    if (ft_ckpt_cmd_open(c->words[0], &ta, &a, &err) || ft_ckpt_cmd_open(c->words[1], &tb, &b, &err)) {
        ft_err_print(c->err, "fttrain", &err);
        rc = 2; /* nothing was compared */
    } else {
        ft_jw_object(&d.w);
        ft_jw_kint(&d.w, "schema", 1);
        ft_jw_key(&d.w, "scalars");
        ft_jw_array(&d.w);
        walk(&d, "", a->root, b->root);
        ft_jw_end(&d.w);
        ft_jw_key(&d.w, "tensors");
        ft_jw_array(&d.w);
        tensors(&d, a, b);
        ft_jw_end(&d.w);
        ft_jw_end(&d.w);
        if (c->json) fprintf(c->out, "%s\n", ft_buf_str(&json));
        else if (!d.n) fprintf(c->out, "no difference\n");
        rc = d.n ? 1 : 0;
    }
    ft_manifest_destroy(a);
    ft_manifest_destroy(b);
    ft_buf_fini(&ta);
    ft_buf_fini(&tb);
    ft_buf_fini(&json);
    return rc;
}
