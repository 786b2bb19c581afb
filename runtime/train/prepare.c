/* What a trainer needs before its first update: model, pools, weights of the folder, the proof of packing. */
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "runtime/train/selftest.h"
#include "runtime/train/trainer_state.h"

static enum ft_code pool(struct ft_trainer *t, int64_t bytes, const char *what, const char *key, void **out, struct ft_err *err)
{
    enum ft_code code = ft_device_alloc(t->o.device, bytes ? bytes : 1, what, key, out, err);
    if (!code) memset(*out, 0, (size_t)bytes); /* on the CPU: zeros are m and v at the start, and padding */
    return code;
}

static enum ft_code make_pools(struct ft_trainer *t, struct ft_err *err)
{
    static const char key[] = "[train] micro_batch";
    const struct ft_memory *m = &t->s->memory;
    const struct {
        const char *what, *key;
        int64_t bytes;
        void *at;
    } pools[] = {
        {"weights", key, m->weights, &t->weights},      {"gradients", key, m->gradients, &t->grads},
        {"masters", key, m->master, &t->master},        {"first moments", key, m->moments / 2, &t->m},
        {"second moments", key, m->moments / 2, &t->v}, {"the copy that a save is written from", NULL, m->staging, &t->staging}};
    enum ft_code code = FT_OK;
    for (size_t i = 0; !code && i < sizeof pools / sizeof *pools; i++) {
        void *p = NULL;
        if (pools[i].bytes || pools[i].at == &t->m || pools[i].at == &t->v)
            code = pool(t, pools[i].bytes, pools[i].what, pools[i].key, &p, err);
        if (code && !pools[i].key) ft_fix(err, "set [checkpoint] async = no");
        memcpy(pools[i].at, &p, sizeof p);
    }
    return code;
}

static void wire(struct ft_trainer *t)
{
    const struct ft_train_fields *f = &t->s->job->train;
    t->sync = (struct ft_gradsync){.buckets = &t->s->buckets,
                                   .params = t->s->rows,
                                   .comm = t->o.comm,
                                   .weights = t->weights,
                                   .weight_type = t->s->options.compute,
                                   .grads = t->grads};
    t->optim = (struct ft_optimizer){.kernels = t->o.device->kernels,
                                     .kctx = t->o.device->kctx,
                                     .buckets = &t->s->buckets,
                                     .params = t->s->rows,
                                     .tensor_rank = t->s->options.tensor_rank,
                                     .beta1 = f->beta1,
                                     .beta2 = f->beta2,
                                     .eps = f->eps,
                                     .weight_decay = f->weight_decay,
                                     .weights = t->weights,
                                     .weight_type = t->s->options.compute,
                                     .grads = t->grads,
                                     .master = t->master,
                                     .m = t->m,
                                     .v = t->v};
    t->offsets = ft_arena_array(t->s->arena, t->s->n_rows + 1, sizeof *t->offsets);
    for (size_t i = 0; i < t->s->n_rows; i++) t->offsets[i] = t->s->buckets.place[i].start;
    ft_model_bind(t->model, t->weights, t->grads, t->offsets);
}

/* Each data rank reads its own pieces; the rest comes over the data group. */
static enum ft_code read_weights(struct ft_trainer *t, struct ft_err *err)
{
    enum ft_code code = FT_OK;
    for (size_t i = 0; !code && i < t->s->buckets.n_pieces; i++) {
        const struct ft_piece *p = &t->s->buckets.pieces[i];
        code = ft_import_read(t->s->import, &t->s->rows[p->param], p->from, p->to, ft_optimizer_masters(&t->optim, p), err);
        if (!code) ft_optimizer_round(&t->optim, p);
    }
    return code;
}

enum ft_code ft_trainer_prepare(struct ft_trainer *t, struct ft_err *err)
{
    t->s->options.device = t->o.device;
    t->s->options.comm = t->o.comm;
    enum ft_code code = ft_model_create(&t->s->options, &t->model, err);
    if (!code) code = make_pools(t, err);
    if (code) return code;
    t->pipeline = (struct ft_pipeline){t->model, t->o.comm, t->s->options.stage, t->s->options.pipeline, t->s->options.chunks};
    wire(t);
    return read_weights(t, err);
}

/* Two to four samples of the first rows. The beginning of a longer one will do: together they are no longer than one row, since the
 * control, which has no borders, counts positions through all of them. */
static size_t find_samples(const struct ft_trainer *t, struct ft_sample *out)
{
    enum { ROWS = 64, LONGEST = 512 };
    const int64_t n_rows = ft_dataset_n_rows(t->s->train), row = t->s->options.seq_len, micro = t->s->options.max_tokens;
    const int64_t part = (row < micro ? row : micro) / FT_SELFTEST_SAMPLES, room = part < LONGEST ? part : LONGEST;
    size_t n = 0;
    for (int64_t i = 0; i < n_rows && i < ROWS; i++) {
        const struct ft_row r = ft_dataset_row(t->s->train, i);
        for (int64_t k = 0; n < FT_SELFTEST_SAMPLES && k < r.n_segments; k++) {
            const int64_t len = r.cu_seqlens[k + 1] - r.cu_seqlens[k];
            if (len >= 2 && room >= 2) out[n++] = (struct ft_sample){r.ids + r.cu_seqlens[k], len < room ? len : room};
        }
    }
    return n;
}

/* The first start of a run with packing proves on its model and device that packing changes nothing; a resumed run has done so. */
enum ft_code ft_trainer_test_packing(struct ft_trainer *t, struct ft_err *err)
{
    struct ft_sample samples[FT_SELFTEST_SAMPLES];
    struct ft_selftest r;
    if (t->s->job->data.packing == FT_PACKING_NO || t->resumed) return FT_OK;
    ft_dataset_epoch(t->s->train, 0);
    const size_t n = find_samples(t, samples);
    const bool speaks = ft_trainer_speaks(t);
    if (n < 2) {
        if (speaks)
            ft_log(FT_LOG_WARN, "packing",
                   "not tested: fewer than two samples of two tokens in the first rows, or rows shorter than 8 tokens");
        return FT_OK;
    }
    enum ft_code code = ft_packing_selftest(&t->pipeline, samples, n, t->s->options.compute == FT_F32 ? 1e-5 : 2e-2, &r, err);
    if (code || !speaks) return code;
    if (!r.proves)
        ft_log(FT_LOG_WARN, "packing", "the test proves nothing: without the borders no loss moves by more than %.3g", r.control);
    struct ft_buf text = {0}, path = {0};
    struct ft_jw w = ft_jw_begin(&text);
    ft_jw_object(&w);
    ft_jw_kint(&w, "samples", (int64_t)n);
    ft_jw_kreal(&w, "packed", r.packed);
    ft_jw_kreal(&w, "reordered", r.reordered);
    ft_jw_kreal(&w, "control", r.control);
    ft_jw_kbool(&w, "proves", r.proves);
    ft_jw_end(&w);
    ft_buf_addc(&text, '\n');
    ft_buf_addf(&path, "%s/packing.json", t->o.place->run_dir ? t->o.place->run_dir : ".");
    code = ft_write_file(path.data, text.data, text.n, 0666, err);
    ft_buf_fini(&text);
    ft_buf_fini(&path);
    return code;
}
