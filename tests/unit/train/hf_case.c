#include "tests/unit/train/hf_case.h"

#include <ftw.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/fd.h"
#include "base/json.h"
#include "runtime/ckpt/safetensors.h"

static struct ft_json *read_ref(const struct hf_case *c)
{
    char path[512];
    (void)snprintf(path, sizeof path, FT_GOLDEN "/hf/%s/ref.json", c->name);
    struct ft_json *v = NULL;
    struct ft_err err;
    if (ft_json_read_file(path, 0, &v, &err)) fail_msg("%s", err.text);
    return v;
}

void hf_case_path(const struct hf_case *c, const char *file, struct ft_buf *out)
{
    ft_buf_clear(out);
    ft_buf_addf(out, "%s/%s", c->dir, file);
}

static int32_t *read_i32(const struct ft_st_file *f, const char *name, const struct ft_st_tensor **t)
{
    struct ft_err err;
    *t = ft_st_find(f, name);
    assert_non_null(*t);
    int32_t *v = ft_xcalloc((size_t)(*t)->count, sizeof *v);
    assert_int_equal(ft_st_read(*t, 0, (*t)->count, v, &err), FT_OK);
    return v;
}

static void add_ints(struct ft_buf *b, const char *key, const int32_t *v, int64_t n)
{
    ft_buf_addf(b, "\"%s\": [", key);
    for (int64_t i = 0; i < n; i++) ft_buf_addf(b, i ? ", %d" : "%d", v[i]);
    ft_buf_addc(b, ']');
}

/* One record a row: up to its last trained token, as the rows of the reference end in padding. */
static void write_rows(struct hf_case *c)
{
    char path[512];
    (void)snprintf(path, sizeof path, FT_GOLDEN "/hf/%s/io.safetensors", c->name);
    struct ft_st_file *f = NULL;
    struct ft_err err;
    if (ft_st_open(path, &f, &err)) fail_msg("%s", err.text);
    const struct ft_st_tensor *t;
    int32_t *ids = read_i32(f, "ids", &t), *labels = read_i32(f, "labels", &t);
    c->n_updates = (int)t->dims[0];
    c->rows = (int)t->dims[1];
    c->T = (int)t->dims[2];
    struct ft_buf b = {0}, to = {0};
    for (int64_t r = 0; r < t->dims[0] * t->dims[1]; r++) {
        int64_t n = 0;
        for (int64_t i = 0; i < c->T; i++)
            if (labels[r * c->T + i] != -100) n = i + 1;
        ft_buf_addc(&b, '{');
        add_ints(&b, "input_ids", ids + r * c->T, n);
        ft_buf_adds(&b, ", ");
        add_ints(&b, "labels", labels + r * c->T, n);
        ft_buf_adds(&b, "}\n");
    }
    hf_case_path(c, "train.jsonl", &to);
    assert_int_equal(ft_write_file(to.data, b.data, b.n, 0600, &err), FT_OK);
    ft_buf_fini(&b);
    ft_buf_fini(&to);
    free(ids);
    free(labels);
    ft_st_close(f);
}

static void add_real_key(struct ft_buf *b, const struct ft_json *o, const char *key)
{
    ft_buf_addf(b, "%s = ", key);
    ft_buf_add_real(b, ft_json_real(ft_json_get(o, key), NAN));
    ft_buf_addc(b, '\n');
}

static void write_job(const struct hf_case *c, int micro, const char *extra)
{
    static const char *const reals[] = {"lr", "min_lr", "weight_decay", "beta1", "beta2", "eps", "clip"};
    struct ft_json *ref = read_ref(c);
    const struct ft_json *o = ft_json_get(ref, "optimizer");
    struct ft_buf b = {0}, to = {0};
    struct ft_err err;
    ft_buf_addf(&b, "[model]\npath = " FT_GOLDEN "/hf/%s\nprecision = fp32\n", c->name);
    ft_buf_addf(&b, "[data]\ntrain = %s/train.jsonl\nformat = tokens\npacking = no\nshuffle = no\ndedupe = no\nseq_len = %d\n",
                c->dir, c->T);
    ft_buf_addf(&b, "[train]\nsteps = %d\nglobal_batch = %d\nmicro_batch = %d\n", c->n_updates, c->rows, micro);
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) add_real_key(&b, o, reals[i]);
    ft_buf_addf(&b, "schedule = %s\nwarmup = %lld\ndevice = cpu\n", ft_json_str(ft_json_get(o, "schedule")),
                (long long)ft_json_int(ft_json_get(o, "warmup"), -1));
    ft_buf_addf(&b, "[export]\ndir = %s/out\ndtype = fp32\n", c->dir);
    if (extra) ft_buf_adds(&b, extra);
    hf_case_path(c, "job.ini", &to);
    assert_int_equal(ft_write_file(to.data, b.data, b.n, 0600, &err), FT_OK);
    ft_buf_fini(&b);
    ft_buf_fini(&to);
    ft_json_destroy(ref);
}

void hf_case_open(struct hf_case *c, const char *name, int micro, const char *extra)
{
    memset(c, 0, sizeof *c);
    c->name = name;
    (void)snprintf(c->dir, sizeof c->dir, "/tmp/ft-hf-%s-XXXXXX", name);
    assert_non_null(mkdtemp(c->dir));
    write_rows(c);
    write_job(c, micro, extra);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}
void remove_tree(const char *dir) { (void)nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS); }
void hf_case_close(struct hf_case *c) { remove_tree(c->dir); }

static bool close_to(double a, double b, double rel) { return fabs(a - b) <= rel * fmax(fabs(a), fabs(b)); }

static bool same_update(const struct ft_json *got, const struct ft_json *want, struct ft_buf *why)
{
    static const struct {
        const char *key;
        double rel;
    } keys[] = {{"loss", 1e-5}, {"grad_norm", 1e-5}, {"clip_coef", 1e-5}, {"lr", 1e-12}};
    bool ok = true;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const double a = ft_json_real(ft_json_get(got, keys[i].key), NAN), b = ft_json_real(ft_json_get(want, keys[i].key), NAN);
        if (close_to(a, b, keys[i].rel)) continue;
        if (!strcmp(keys[i].key, "clip_coef") && b >= 1 && a == 1) continue; /* the reference logs the quotient */
        ok = false;
        ft_buf_addf(why, "%s at update %lld is %.9g, not %.9g; ", keys[i].key,
                    (long long)ft_json_int(ft_json_get(want, "step"), -1), a, b);
    }
    if (ft_json_int(ft_json_get(got, "trained_tokens"), -1) != ft_json_int(ft_json_get(want, "tokens"), -2)) {
        ok = false;
        ft_buf_adds(why, "token counts differ; ");
    }
    return ok;
}

bool hf_case_same_updates(const struct hf_case *c, struct ft_buf *why)
{
    struct ft_buf path = {0}, text = {0};
    struct ft_err err;
    hf_case_path(c, "metrics.jsonl", &path);
    if (ft_read_file(path.data, 1 << 24, &text, &err)) {
        ft_buf_addf(why, "%s; ", err.text);
        ft_buf_fini(&path);
        return false;
    }
    struct ft_json *ref = read_ref(c);
    const struct ft_json *updates = ft_json_get(ref, "updates");
    bool ok = true;
    size_t n = 0;
    for (char *line = text.data, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        const size_t len = next ? (size_t)(next - line) : strlen(line);
        struct ft_json *v = NULL;
        assert_int_equal(ft_json_parse(line, len, 0, &v, NULL, &err), FT_OK);
        if (ft_json_get(v, "lr") && n < ft_json_count(updates)) ok = same_update(v, ft_json_at(updates, n++), why) && ok;
        ft_json_destroy(v);
        if (next) next++;
    }
    if (n != (size_t)c->n_updates) {
        ok = false;
        ft_buf_addf(why, "%zu updates were logged; ", n);
    }
    ft_json_destroy(ref);
    ft_buf_fini(&path);
    ft_buf_fini(&text);
    return ok;
}

static bool same_tensor(const struct ft_st_tensor *want, const struct ft_st_folder *out, struct ft_buf *why)
{
    const struct ft_st_tensor *got = ft_st_folder_find(out, want->name);
    if (!got && !strncmp(want->name, "transformer.", 12)) got = ft_st_folder_find(out, want->name + 12);
    if (!got && !strcmp(want->name, "lm_head.weight")) return true; /* tied: not written */
    if (!got || got->count != want->count) {
        ft_buf_addf(why, "%s is not there or of another size; ", want->name);
        return false;
    }
    struct ft_err err;
    float *a = ft_xcalloc((size_t)want->count, 2 * sizeof *a), *b = a + want->count;
    assert_int_equal(ft_st_read_f32(got, 0, got->count, a, &err), FT_OK);
    assert_int_equal(ft_st_read_f32(want, 0, want->count, b, &err), FT_OK);
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < want->count; i++) {
        diff += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)b[i] * b[i];
    }
    free(a);
    if (sqrt(diff) <= 1e-4 * sqrt(norm)) return true;
    ft_buf_addf(why, "%s is off by %.2g of its norm; ", want->name, sqrt(diff / norm));
    return false;
}

bool hf_case_same(const struct hf_case *c, struct ft_buf *why)
{
    bool ok = hf_case_same_updates(c, why);
    char path[512];
    (void)snprintf(path, sizeof path, FT_GOLDEN "/hf/%s/final.safetensors", c->name);
    struct ft_st_file *want = NULL;
    struct ft_st_folder *out = NULL;
    struct ft_buf dir = {0};
    struct ft_err err;
    assert_int_equal(ft_st_open(path, &want, &err), FT_OK);
    hf_case_path(c, "out", &dir);
    if (ft_st_folder_open(dir.data, "model", &out, &err)) {
        ft_buf_addf(why, "%s; ", err.text);
        ok = false;
    }
    for (size_t i = 0; out && i < ft_st_count(want); i++) ok = same_tensor(ft_st_at(want, i), out, why) && ok;
    ft_st_folder_close(out);
    ft_st_close(want);
    ft_buf_fini(&dir);
    return ok;
}
