#include "run.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits/mix64.h"
#include "base/clock.h"
#include "base/fd.h"
#include "runtime/arch/config.h"

static const struct {
    const char *name;
    int n_dims;
    int64_t dims[2];
} shapes[N_PARAMS] = {{"model.embed_tokens.weight", 2, {101, 6}},
                      {"model.layers.0.self_attn.q_proj.weight", 2, {8, 6}},
                      {"model.layers.0.mlp.down_proj.weight", 2, {16, 8}},
                      {"model.norm.weight", 1, {6, 1}},
                      {"lm_head.weight", 2, {37, 6}}};

/* kind: 0 master, 1 m, 2 v. */
static float value(size_t param, int kind, int64_t element, int64_t step)
{
    const uint64_t h = ft_mix64((uint64_t)param * 7919 + (uint64_t)kind * 104729 + (uint64_t)element * 31 +
                                (uint64_t)step * 1000003);
    return (float)((double)(h >> 40) / 16777216.0 - 0.5);
}

static void say_line(void *self, const char *line)
{
    struct fake *f = self;
    const size_t used = strlen(f->said);
    snprintf(f->said + used, sizeof f->said - used, "%s\n", line);
}

/* Tensor shards as the model's rows have them: rows of embedding (padded), q, up and head; columns of down; norm on all. */
static void shard(struct ft_param *p, size_t i, int tensor, int rank)
{
    static const enum ft_shard axis[N_PARAMS] = {FT_SHARD_DIM0, FT_SHARD_DIM0, FT_SHARD_DIM1, FT_SHARD_NONE, FT_SHARD_DIM0};
    p->shard = axis[i];
    if (p->shard == FT_SHARD_NONE) return;
    const int d = p->shard == FT_SHARD_DIM0 ? 0 : 1;
    p->local[d] = (p->dims[d] + tensor - 1) / tensor;
    p->origin[d] = p->local[d] * rank;
}

static void five_rows(struct fake *f, int tensor, int rank)
{
    f->n_params = f->n_model = N_PARAMS;
    f->params = f->model = ft_arena_array(f->arena, N_PARAMS, sizeof *f->params);
    for (size_t i = 0; i < N_PARAMS; i++) {
        f->params[i] = (struct ft_param){.name = shapes[i].name, .n_dims = shapes[i].n_dims, .layer = -1};
        memcpy(f->params[i].dims, shapes[i].dims, sizeof shapes[i].dims);
        memcpy(f->params[i].local, shapes[i].dims, sizeof shapes[i].dims);
        shard(&f->params[i], i, tensor, rank);
    }
}

static struct ft_param *rows_of(struct fake *f, const struct ft_model_config *c, int t, int r, int p, int stage, size_t *n)
{
    const struct ft_param *rows = ft_model_config_rows(c, t, r, p, stage, 1, f->arena, n, NULL);
    struct ft_param *own = ft_arena_array(f->arena, *n, sizeof *own);
    memcpy(own, rows, *n * sizeof *own);
    return own;
}

static enum ft_code make_rows(struct fake *f, const struct fake_layout *l, struct ft_coord at, struct ft_err *err)
{
    struct ft_model_config c;
    if (!l->config) {
        five_rows(f, l->tensor, at.c[FT_AXIS_TP]);
    } else {
        const enum ft_code rc = ft_model_config_parse("config.json", l->config, strlen(l->config), f->arena, &c, err);
        if (rc) return rc;
        f->params = rows_of(f, &c, l->tensor, at.c[FT_AXIS_TP], l->pipeline, at.c[FT_AXIS_PP], &f->n_params);
        f->model = rows_of(f, &c, 1, 0, 1, 0, &f->n_model);
        f->run.tied = c.tied;
    }
    f->model_of = ft_arena_array(f->arena, f->n_params, sizeof *f->model_of);
    for (size_t i = 0; i < f->n_params; i++)
        while (strcmp(f->model[f->model_of[i]].name, f->params[i].name) != 0) f->model_of[i]++;
    return FT_OK;
}

/* Element of the logical tensor; -1: padding. */
static int64_t logical(const struct ft_param *p, int64_t local)
{
    const int64_t row = local / p->local[1] + p->origin[0], column = local % p->local[1] + p->origin[1];
    return row < p->dims[0] ? row * p->dims[1] + column : -1;
}

static void lay_out(struct fake *f, int data, int rank)
{
    enum { SMALL = 3000 }; /* elements of a bucket: a tiny model has many */
    struct ft_bucket_param *b = ft_arena_array(f->arena, f->n_params, sizeof *b);
    for (size_t i = 0; i < f->n_params; i++)
        b[i] = (struct ft_bucket_param){.n = ft_param_local(&f->params[i]), .tied_copy = f->params[i].tied_copy};
    f->buckets = ft_buckets_make(b, f->n_params, data, rank, SMALL, f->arena);
    float **pools[3] = {&f->master, &f->m, &f->v};
    for (int k = 0; k < 3; k++) {
        *pools[k] = ft_arena_array(f->arena, (size_t)f->buckets.state_total + 1, sizeof(float));
        memset(*pools[k], 0xFF, (size_t)f->buckets.state_total * sizeof(float)); /* NaN */
    }
    f->pieces = ft_arena_array(f->arena, f->buckets.n_pieces + 1, sizeof *f->pieces);
    for (size_t i = 0; i < f->buckets.n_pieces; i++) {
        const struct ft_piece *p = &f->buckets.pieces[i];
        f->pieces[i] = (struct ft_ckpt_piece){.param = p->param,
                                              .from = p->from,
                                              .to = p->to,
                                              .master = f->master + p->state,
                                              .m = f->m + p->state,
                                              .v = f->v + p->state};
    }
}

enum ft_code fake_begin(struct fake *f, const struct ft_place *place, const char *dir, const char *run_id,
                        enum ft_ckpt_precision precision, const struct fake_layout *layout, struct ft_err *err)
{
    struct fake_layout l = *layout;
    memset(f, 0, sizeof *f);
    f->arena = ft_arena_create();
    if (!l.tensor) l.tensor = 1;
    if (!l.pipeline) l.pipeline = 1;
    const int data = place->world / l.tensor / l.pipeline;
    const struct ft_mesh mesh = ft_mesh_make(l.tensor, 1, data, l.pipeline);
    const struct ft_coord at = ft_mesh_coord(mesh, place->rank);
    const struct ft_comm_options o = {.engine = "auto", .timeout_ns = 60 * FT_SEC, .join_ns = 60 * FT_SEC};
    enum ft_code rc = ft_comm_open(place, mesh, &o, &f->comm, err);
    if (rc) return rc;
    f->maths[0] = (struct ft_ckpt_fact){"vocab_size", "37"};
    f->maths[1] = (struct ft_ckpt_fact){"rope_theta", "10000"};
    f->maths[2] = (struct ft_ckpt_fact){"num_key_value_heads", "2"};
    f->maths[3] = (struct ft_ckpt_fact){"rms_norm_eps", "1e-06"};
    static const char *const no_decay[] = {"model.norm.weight"};
    f->run = (struct ft_ckpt_run){.run_id = run_id,
                                  .backend = "cpu",
                                  .tensor = l.tensor,
                                  .pipeline = l.pipeline,
                                  .data = data,
                                  .virtual_pipeline = 1,
                                  .order = "tp-dp-pp",
                                  .method = "full",
                                  .precision = precision,
                                  .family = "llama",
                                  .config_json = l.config ? l.config : "{\"model_type\": \"llama\", \"vocab_size\": 37}",
                                  .maths = f->maths,
                                  .n_maths = 4,
                                  .vocab = 37,
                                  .base_path = "/models/tiny",
                                  .config_sha256 = "00",
                                  .terminator_id = -1,
                                  .beta1 = 0.9,
                                  .beta2 = 0.999,
                                  .eps = 1e-8,
                                  .weight_decay = 0.01,
                                  .clip = 1,
                                  .no_decay = no_decay,
                                  .n_no_decay = 1,
                                  .schedule = "cosine",
                                  .hi = 1e-3,
                                  .lo = 1e-5,
                                  .warmup = 2,
                                  .n = 100,
                                  .seed = 7,
                                  .data_fingerprint = "abcdef",
                                  .seq_len = 64,
                                  .shuffle = true,
                                  .global_batch = 16};
    rc = make_rows(f, &l, at, err);
    if (rc) return rc;
    lay_out(f, data, at.c[FT_AXIS_DP]);
    f->o = (struct ft_ckpt_options){.dir = dir,
                                    .keep = 2,
                                    .resume = "auto",
                                    .accept = f->accept,
                                    .comm = f->comm,
                                    .run = &f->run,
                                    .model = f->model,
                                    .n_model = f->n_model,
                                    .params = f->params,
                                    .n_params = f->n_params,
                                    .tensor_rank = at.c[FT_AXIS_TP],
                                    .copy = ft_arena_array(f->arena, 3 * (size_t)f->buckets.state_total + 1, sizeof(float)),
                                    .say = say_line,
                                    .self = f};
    return FT_OK;
}

void fake_end(struct fake *f)
{
    ft_comm_close(f->comm);
    ft_arena_destroy(f->arena);
}

void fake_fill(struct fake *f, int64_t step)
{
    for (size_t i = 0; i < f->buckets.n_pieces; i++) {
        const struct ft_ckpt_piece *p = &f->pieces[i];
        float *to[3] = {p->master, p->m, p->v};
        for (int64_t e = p->from; e < p->to; e++) {
            const int64_t at = logical(&f->params[p->param], e);
            for (int k = 0; k < 3; k++) to[k][e - p->from] = at < 0 ? 0 : value(f->model_of[p->param], k, at, step);
        }
    }
}

int64_t fake_wrong(const struct fake *f, int64_t step)
{
    int64_t wrong = 0;
    for (size_t i = 0; i < f->buckets.n_pieces; i++) {
        const struct ft_ckpt_piece *p = &f->pieces[i];
        const float *have[3] = {p->master, p->m, p->v};
        for (int64_t e = p->from; e < p->to; e++) {
            const int64_t at = logical(&f->params[p->param], e);
            for (int k = 0; k < 3 && at >= 0; k++) {
                const float want = value(f->model_of[p->param], k, at, step);
                wrong += memcmp(&have[k][e - p->from], &want, sizeof want) != 0;
            }
        }
    }
    return wrong;
}

struct ft_ckpt_scalars fake_scalars(int64_t step)
{
    struct ft_ckpt_scalars s = {.step = step,
                                .t = step,
                                .epoch = 1,
                                .row_in_epoch = 16 * step % 40,
                                .rows = 16 * step,
                                .samples = 17 * step,
                                .tokens = 1000 * step,
                                .trained_tokens = 300 * step,
                                .skipped_steps = 1,
                                .has_eval = true,
                                .has_general = true,
                                .best = 1.0 / 3,
                                .general0 = 2.1,
                                .best_step = step,
                                .bad = 2,
                                .count = 3,
                                .general_bad = 1,
                                .loss1 = 4.1,
                                .best20 = 1e-17,
                                .above = 1,
                                .seen = step,
                                .last_spike = 0,
                                .n_window = (int)(step < FT_CKPT_WINDOW ? step : FT_CKPT_WINDOW)};
    for (int i = 0; i < s.n_window; i++) {
        s.losses[i] = 1.0 / (i + 3);
        s.norms[i] = 0.1 * i;
    }
    return s;
}

bool scalars_equal(const struct ft_ckpt_scalars *a, const struct ft_ckpt_scalars *b)
{
    bool same = a->step == b->step && a->t == b->t && a->epoch == b->epoch && a->row_in_epoch == b->row_in_epoch &&
                a->rows == b->rows && a->samples == b->samples && a->tokens == b->tokens &&
                a->trained_tokens == b->trained_tokens && a->skipped_steps == b->skipped_steps && a->has_eval == b->has_eval &&
                a->has_general == b->has_general && a->best == b->best && a->general0 == b->general0 &&
                a->best_step == b->best_step && a->bad == b->bad && a->count == b->count && a->general_bad == b->general_bad &&
                a->loss1 == b->loss1 && a->best20 == b->best20 && a->above == b->above && a->seen == b->seen &&
                a->last_spike == b->last_spike && a->n_window == b->n_window;
    for (int i = 0; same && i < a->n_window; i++) same = a->losses[i] == b->losses[i] && a->norms[i] == b->norms[i];
    return same;
}

char *make_dir(void)
{
    static char names[64][32]; /* no heap: ranks are forked and check for leaks of their own */
    static size_t n;
    char *dir = names[n++ % 64];
    snprintf(dir, sizeof names[0], "/tmp/ftckpt-test-XXXXXX");
    assert_non_null(mkdtemp(dir));
    return dir;
}

static void remove_tree(const char *path)
{
    DIR *d = opendir(path);
    char sub[1024];
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(sub, sizeof sub, "%s/%s", path, e->d_name);
        if (unlink(sub)) remove_tree(sub);
    }
    if (d) closedir(d);
    rmdir(path);
}

void remove_dir(char *dir)
{
    chmod(dir, 0700);
    remove_tree(dir);
}

void copy_dir(const char *from, const char *to)
{
    DIR *d = opendir(from);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char a[1024], b[1024];
        struct ft_buf bytes = {0};
        struct ft_err err;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(a, sizeof a, "%s/%s", from, e->d_name);
        snprintf(b, sizeof b, "%s/%s", to, e->d_name);
        if (ft_is_dir(a)) {
            assert_int_equal(mkdir(b, 0700), 0);
            copy_dir(a, b);
            continue;
        }
        FILE *f = fopen(b, "we");
        assert_non_null(f);
        if (ft_read_file(a, 1 << 26, &bytes, &err)) fail_msg("%s", err.text);
        assert_int_equal(fwrite(bytes.data, 1, bytes.n, f), bytes.n);
        assert_int_equal(fclose(f), 0);
        ft_buf_fini(&bytes);
    }
    closedir(d);
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

void list_dir(const char *dir, char *out, size_t n)
{
    char *names[256];
    size_t k = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) && k < 256;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) names[k++] = strdup(e->d_name);
    closedir(d);
    qsort(names, k, sizeof *names, by_text);
    out[0] = 0;
    for (size_t i = 0; i < k; i++) {
        const size_t used = strlen(out);
        snprintf(out + used, n - used, "%s%s", i ? " " : "", names[i]);
        free(names[i]);
    }
}
