/* A reference case in memory: model folder bound to one simple pool, its batches as micro-batches. */
#ifndef FT_TESTS_NN_FIXTURE_H
#define FT_TESTS_NN_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/str.h"
#include "kernels/kernels.h"
#include "runtime/arch/config.h"
#include "runtime/ckpt/safetensors.h"
#include "runtime/device/device.h"
#include "runtime/nn/model.h"

#ifndef FT_GOLDEN /* this header alone */
#define FT_GOLDEN "tests/golden"
#endif

struct fixture {
    struct ft_arena *a;
    struct ft_model_config config;
    struct ft_device *device;
    struct ft_model *model;
    const struct ft_param *params;
    size_t n;
    int64_t *offsets, total;
    float *weights, *grads;
    uint16_t *half; /* bf16 copy of the weights, when computing in it */
};

#define OK(call)                                                                                                                   \
    do {                                                                                                                           \
        struct ft_err err_ = {0};                                                                                                  \
        struct ft_err *err = &err_;                                                                                                \
        if (call) fail_msg("%s: %s", #call, err_.text);                                                                            \
    } while (0)

/* A file of a case: "llama" lies in hf, "variants/llama-yarn" where it says. */
static inline void case_path(char *out, size_t n, const char *name, const char *file)
{
    snprintf(out, n, "%s/%s%s%s", FT_GOLDEN, strchr(name, '/') ? "" : "hf/", name, file);
}

/* The tensor of a file that holds a row: with or without "transformer.", fused parts cut by the caller. */
static inline const struct ft_st_tensor *find_tensor(const struct ft_st_folder *folder, const struct ft_st_file *file,
                                                     const char *name)
{
    char base[256], prefixed[300];
    snprintf(base, sizeof base, "%.*s", (int)strcspn(name, "#"), name);
    snprintf(prefixed, sizeof prefixed, "transformer.%s", base);
    const struct ft_st_tensor *t = folder ? ft_st_folder_find(folder, base) : ft_st_find(file, base);
    if (!t) t = folder ? ft_st_folder_find(folder, prefixed) : ft_st_find(file, prefixed);
    return t;
}

/* The row's values; its part of a fused tensor. */
static inline void read_row(const struct ft_st_tensor *t, const struct ft_param *p, float *out)
{
    if (!t) fail_msg("no tensor for '%s'", p->name);
    const char *mark = strchr(p->name, '#');
    const int64_t part = !mark ? 0 : mark[1] == 'q' ? 0 : mark[1] == 'k' ? 1 : 2;
    if (!mark) OK(ft_st_read_f32(t, 0, ft_param_count(p), out, err));
    else if (p->n_dims == 1) OK(ft_st_read_f32(t, part * p->dims[0], p->dims[0], out, err));
    else OK(ft_st_read_rect_f32(t, 0, p->dims[0], part * p->dims[1], p->dims[1], out, p->dims[1], err));
}

static inline void lay_out(struct fixture *f)
{
    f->params = ft_model_params(f->model, &f->n);
    f->offsets = ft_xcalloc(f->n, sizeof *f->offsets);
    for (size_t i = 0; i < f->n; i++) {
        f->offsets[i] = f->total;
        f->total += (ft_param_local(&f->params[i]) + 63) / 64 * 64;
    }
    f->weights = ft_xcalloc((size_t)f->total, sizeof *f->weights);
    f->grads = ft_xcalloc((size_t)f->total, sizeof *f->grads);
}

static inline void bind_weights(struct fixture *f, enum ft_dtype compute)
{
    void *w = f->weights;
    if (compute == FT_BF16) {
        f->half = ft_xcalloc((size_t)f->total, sizeof *f->half);
        for (int64_t i = 0; i < f->total; i++) f->half[i] = ft_f32_to_bf16(f->weights[i]);
        w = f->half;
    }
    ft_model_bind(f->model, w, f->grads, f->offsets);
}

static inline void create(struct fixture *f, struct ft_model_options o, int threads)
{
    OK(ft_device_open("cpu", 0, threads, &f->device, err));
    o.config = &f->config;
    o.device = f->device;
    o.tensor = o.pipeline = 1;
    OK(ft_model_create(&o, &f->model, err));
    lay_out(f);
}

/* o: max_tokens, seq_len, compute, recompute, logits_chunk_bytes, seed. drop >= 0: all dropout rates. f stays where it is. */
static inline void open_case(struct fixture *f, const char *name, struct ft_model_options o, int threads, double drop)
{
    *f = (struct fixture){.a = ft_arena_create()};
    char dir[512];
    case_path(dir, sizeof dir, name, "");
    OK(ft_model_config_read(dir, f->a, &f->config, err));
    if (drop >= 0) f->config.embd_drop = f->config.resid_drop = f->config.attn_drop = drop;
    create(f, o, threads);
    struct ft_st_folder *folder = NULL;
    OK(ft_st_folder_open(dir, "model", &folder, err));
    for (size_t i = 0; i < f->n; i++)
        read_row(find_tensor(folder, NULL, f->params[i].name), &f->params[i], f->weights + f->offsets[i]);
    ft_st_folder_close(folder);
    bind_weights(f, o.compute);
}

static inline void close_case(struct fixture *f)
{
    ft_model_destroy(f->model);
    ft_device_close(f->device);
    ft_arena_destroy(f->a);
    free(f->offsets);
    free(f->weights);
    free(f->grads);
    free(f->half);
}

/* Rows of one batch: ids and labels (rows, T), as in io.safetensors. */
struct rows {
    int64_t n, T;
    int32_t *ids, *labels;
};

/* Batch 0 of a case. */
static inline struct rows read_rows(const char *name)
{
    char path[512];
    struct rows r;
    case_path(path, sizeof path, name, "/io.safetensors");
    struct ft_st_file *io = NULL;
    OK(ft_st_open(path, &io, err));
    const struct ft_st_tensor *ids = ft_st_find(io, "ids"), *labels = ft_st_find(io, "labels");
    assert_true(ids && labels && ids->n_dims == 3);
    r.n = ids->dims[1];
    r.T = ids->dims[2];
    r.ids = ft_xcalloc((size_t)(r.n * r.T), 4);
    r.labels = ft_xcalloc((size_t)(r.n * r.T), 4);
    OK(ft_st_read(ids, 0, r.n * r.T, r.ids, err));
    OK(ft_st_read(labels, 0, r.n * r.T, r.labels, err));
    ft_st_close(io);
    return r;
}
static inline void free_rows(struct rows *r)
{
    free(r->ids);
    free(r->labels);
}

/* n rows from row `first` on as one micro-batch; trailing pads are cut, labels are shifted to the position that predicts them. */
struct micro {
    struct ft_batch b;
    int32_t *ids, *positions, *targets, *cu;
    int64_t *rows;
};
static inline struct micro make_micro(const struct rows *r, int64_t first, int64_t n)
{
    struct micro m;
    const size_t most = (size_t)(n * r->T + 1);
    m.ids = ft_xcalloc(most, sizeof *m.ids);
    m.positions = ft_xcalloc(most, sizeof *m.ids);
    m.targets = ft_xcalloc(most, sizeof *m.ids);
    m.cu = ft_xcalloc((size_t)n + 1, sizeof *m.cu);
    m.rows = ft_xcalloc((size_t)n, sizeof *m.rows);
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        const int32_t *ids = r->ids + (first + i) * r->T, *labels = r->labels + (first + i) * r->T;
        int64_t len = r->T;
        while (len > 1 && labels[len - 1] == -100) len--;
        for (int64_t j = 0; j < len; j++, at++) {
            m.ids[at] = ids[j];
            m.positions[at] = (int32_t)j;
            m.targets[at] = j + 1 < len ? labels[j + 1] : -100;
        }
        m.cu[i + 1] = (int32_t)at;
        m.rows[i] = first + i;
    }
    m.b = (struct ft_batch){at, m.ids, m.positions, m.targets, n, m.cu, m.rows, NULL};
    return m;
}
static inline void free_micro(struct micro *m)
{
    free(m->ids);
    free(m->positions);
    free(m->targets);
    free(m->cu);
    free(m->rows);
}

#endif
