#include "runtime/train/saving.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/log.h"
#include "runtime/ckpt/ckpt.h"
#include "runtime/train/trainer_state.h"

enum { MAX_MATHS = 40, RUN_ID_MAX = 64, SMALL_FILE_MAX = 1 << 28 };

struct ft_saving {
    struct ft_ckpt *ckpt;
    struct ft_ckpt_run run;
    struct ft_ckpt_fact maths[MAX_MATHS], dropout[3];
    struct ft_ckpt_piece *pieces;
    size_t n_pieces;
    char run_id[RUN_ID_MAX];
    int64_t every_updates, every_ns, last_ns, saved; /* saved: step of the last save of this run; -1: none */
    bool failed;
};

static struct ft_arena *arena_of(const struct ft_trainer *t) { return t->s->arena; }

/* ---- what the run is ---- */

static void add_fact(struct ft_trainer *t, const char *name, const char *fmt, ...) FT_PRINTF(3, 4);
static void add_fact(struct ft_trainer *t, const char *name, const char *fmt, ...)
{
    struct ft_saving *s = t->saving;
    va_list ap;
    va_start(ap, fmt);
    FT_ASSERT(s->run.n_maths < MAX_MATHS);
    s->maths[s->run.n_maths++] = (struct ft_ckpt_fact){name, ft_arena_vprintf(arena_of(t), fmt, ap)};
    va_end(ap);
}

static const char *real_text(struct ft_trainer *t, double x)
{
    struct ft_buf b = {0};
    struct ft_jw w = ft_jw_begin(&b);
    ft_jw_real(&w, x);
    const char *text = ft_arena_strdup(arena_of(t), b.data);
    ft_buf_fini(&b);
    return text;
}

static void add_number(struct ft_trainer *t, const char *name, double x) { add_fact(t, name, "%s", real_text(t, x)); }
static void add_flag(struct ft_trainer *t, const char *name, bool x) { add_fact(t, name, "%s", x ? "true" : "false"); }

static void add_rope(struct ft_trainer *t, const struct ft_rope *r)
{
    static const char *const types[] = {"none", "default", "llama3", "linear", "yarn"};
    add_fact(t, "rope_type", "\"%s\"", types[r->type]);
    add_number(t, "rope_theta", r->theta);
    if (r->type == FT_ROPE_NONE || r->type == FT_ROPE_DEFAULT) return;
    add_number(t, "rope_factor", r->factor);
    add_number(t, "rope_original_max", r->original_max);
    if (r->type == FT_ROPE_LLAMA3) {
        add_number(t, "rope_low_freq", r->low_freq);
        add_number(t, "rope_high_freq", r->high_freq);
    }
    if (r->type == FT_ROPE_YARN) {
        add_number(t, "rope_beta_fast", r->beta_fast);
        add_number(t, "rope_beta_slow", r->beta_slow);
        add_number(t, "rope_attention_factor", r->attention_factor);
        add_flag(t, "rope_truncate", r->truncate);
    }
}

/* Named as in config.json where there is such a key. */
static void add_maths(struct ft_trainer *t)
{
    const struct ft_model_config *c = &t->s->config;
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"vocab_size", c->V},          {"hidden_size", c->h},         {"num_hidden_layers", c->L},
                 {"num_attention_heads", c->H}, {"num_key_value_heads", c->K}, {"head_dim", c->D},
                 {"intermediate_size", c->f},   {"sliding_window", c->window}, {"window_first", c->window_first},
                 {"pad_token_id", c->pad_id}};
    const struct {
        const char *name;
        bool value;
    } flags[] = {{"layernorm", c->layernorm}, {"learned_positions", c->learned_positions},
                 {"gelu", c->gelu},           {"q_bias", c->q_bias},
                 {"o_bias", c->o_bias},       {"mlp_bias", c->mlp_bias},
                 {"qk_norm", c->qk_norm},     {"tie_word_embeddings", c->tied}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) add_fact(t, sizes[i].name, "%lld", (long long)sizes[i].value);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) add_flag(t, flags[i].name, flags[i].value);
    add_number(t, "norm_eps", c->eps);
    add_rope(t, &c->rope);
}

/* SHA-256 of a file of the model folder in hex; NULL: not there. */
static const char *hash_of(struct ft_trainer *t, const char *name)
{
    struct ft_buf path = {0}, bytes = {0};
    unsigned char sum[32];
    char *hex = NULL;
    ft_buf_addf(&path, "%s/%s", t->s->job->model.path, name);
    if (!ft_read_file(path.data, SMALL_FILE_MAX, &bytes, NULL)) {
        hex = ft_arena_alloc(arena_of(t), 65);
        ft_sha256(bytes.data, bytes.n, sum);
        ft_hex(sum, sizeof sum, hex);
    }
    ft_buf_fini(&path);
    ft_buf_fini(&bytes);
    return hex;
}

static const char *config_text(struct ft_trainer *t)
{
    struct ft_buf path = {0}, bytes = {0};
    const char *text = "{}";
    ft_buf_addf(&path, "%s/config.json", t->s->job->model.path);
    if (!ft_read_file(path.data, SMALL_FILE_MAX, &bytes, NULL)) text = ft_arena_strdup(arena_of(t), ft_buf_str(&bytes));
    ft_buf_fini(&path);
    ft_buf_fini(&bytes);
    return text;
}

static const char *const *no_decay(struct ft_trainer *t, size_t *n)
{
    size_t n_model;
    const struct ft_param *model = ft_import_params(t->s->import, &n_model);
    const char **v = ft_arena_array(arena_of(t), n_model + 1, sizeof *v);
    *n = 0;
    for (size_t i = 0; i < n_model; i++)
        if (!model[i].decay) v[(*n)++] = model[i].name;
    return v;
}

/* The launcher's, else one of our own: the same on every rank. */
static enum ft_code name_run(struct ft_trainer *t, struct ft_err *err)
{
    char *id = t->saving->run_id;
    char now[32];
    uint32_t salt = 0;
    ft_wall_compact(ft_wall_ns(), now);
    (void)ft_random(&salt, sizeof salt);
    if (t->o.place->run_id) (void)snprintf(id, RUN_ID_MAX, "%s", t->o.place->run_id);
    else (void)snprintf(id, RUN_ID_MAX, "fttrain-%s-%08x", now, salt);
    return ft_comm_broadcast(t->o.comm, FT_GROUP_WORLD, 0, id, RUN_ID_MAX, err);
}

static void describe(struct ft_trainer *t)
{
    static const char *const styles[] = {"constant", "linear", "cosine"}, *const methods[] = {"full", "lora", "qlora"};
    struct ft_saving *s = t->saving;
    const struct ft_setup *u = t->s;
    const struct ft_job_config *j = u->job;
    const struct ft_dataset_facts f = ft_dataset_facts(u->train);
    add_maths(t);
    const struct ft_model_config *c = &u->config;
    s->dropout[0] = (struct ft_ckpt_fact){"embedding", real_text(t, c->embd_drop)};
    s->dropout[1] = (struct ft_ckpt_fact){"residual", real_text(t, c->resid_drop)};
    s->dropout[2] = (struct ft_ckpt_fact){"attention", real_text(t, c->attn_drop)};
    struct ft_ckpt_run *r = &s->run;
    r->run_id = s->run_id;
    r->backend = t->o.device->kernels->device;
    r->tensor = u->layout.mesh.size[FT_AXIS_TP];
    r->pipeline = u->layout.mesh.size[FT_AXIS_PP];
    r->data = u->layout.mesh.size[FT_AXIS_DP];
    r->virtual_pipeline = (int)j->parallel.virtual_pipeline;
    r->sequence = j->parallel.sequence;
    r->order = j->parallel.order;
    r->method = methods[j->train.method];
    r->precision = j->model.precision == FT_PRECISION_FP32   ? FT_CKPT_FP32
                   : j->model.precision == FT_PRECISION_BF16 ? FT_CKPT_BF16
                                                             : FT_CKPT_FP8;
    r->family = c->model_type;
    r->config_json = config_text(t);
    r->maths = s->maths;
    r->tied = c->tied;
    r->vocab = c->V;
    r->base_path = j->model.path;
    r->config_sha256 = hash_of(t, "config.json");
    r->tokenizer_sha256 = hash_of(t, "tokenizer.json");
    r->template_sha256 = u->template_sha256;
    r->template_text = u->template_text;
    r->terminator_id = f.terminator_id;
    r->dropout = s->dropout;
    r->n_dropout = 3;
    r->beta1 = j->train.beta1;
    r->beta2 = j->train.beta2;
    r->eps = j->train.eps;
    r->weight_decay = j->train.weight_decay;
    r->clip = j->train.clip;
    r->no_decay = no_decay(t, &r->n_no_decay);
    r->schedule = styles[u->schedule.style];
    r->hi = u->schedule.hi;
    r->lo = u->schedule.lo;
    r->warmup = u->schedule.warmup;
    r->n = u->schedule.n;
    r->seed = (uint64_t)j->train.seed;
    r->data_fingerprint = ft_arena_printf(arena_of(t), "%016llx%016llx", (unsigned long long)f.fingerprint_hi,
                                          (unsigned long long)f.fingerprint_lo);
    r->seq_len = u->seq_len;
    r->packing = j->data.packing != FT_PACKING_NO;
    r->shuffle = j->data.shuffle;
    r->global_batch = j->train.global_batch;
}

static void list_pieces(struct ft_trainer *t)
{
    struct ft_saving *s = t->saving;
    const struct ft_buckets *b = &t->s->buckets;
    s->n_pieces = b->n_pieces;
    s->pieces = ft_arena_array(arena_of(t), b->n_pieces + 1, sizeof *s->pieces);
    for (size_t i = 0; i < b->n_pieces; i++) {
        const struct ft_piece *p = &b->pieces[i];
        s->pieces[i] = (struct ft_ckpt_piece){p->param,        p->from,        p->to, ft_optimizer_masters(&t->optim, p),
                                              t->m + p->state, t->v + p->state};
    }
}

/* ---- what changes ---- */

static void write_scalars(const struct ft_trainer *t, struct ft_ckpt_scalars *x)
{
    const struct ft_watch *w = &t->watch;
    const struct ft_best *b = &t->judge;
    *x = (struct ft_ckpt_scalars){.step = t->k,
                                  .t = t->optim.t,
                                  .epoch = t->at.epoch,
                                  .row_in_epoch = t->at.in_epoch,
                                  .rows = t->at.rows,
                                  .samples = t->total.samples,
                                  .tokens = t->total.tokens,
                                  .trained_tokens = t->total.trained,
                                  .skipped_steps = t->skipped,
                                  .has_eval = t->s->valid != NULL || t->s->general != NULL,
                                  .has_general = b->has_general,
                                  .best = b->best,
                                  .general0 = b->general0,
                                  .best_step = b->best_step,
                                  .bad = b->bad,
                                  .count = b->count,
                                  .general_bad = b->general_bad,
                                  .loss1 = w->loss1,
                                  .best20 = w->best20,
                                  .above = w->above,
                                  .seen = w->n,
                                  .last_spike = w->last_spike};
    x->n_window = (int)(w->n < FT_WATCH_N ? w->n : FT_WATCH_N);
    for (int i = 0; i < x->n_window; i++) {
        const int64_t k = w->n - x->n_window + i;
        x->losses[i] = w->losses[k % FT_WATCH_N];
        x->norms[i] = w->norms[k % FT_WATCH_N];
    }
}

static void read_scalars(struct ft_trainer *t, const struct ft_ckpt_scalars *x, bool fresh_position)
{
    t->k = x->step;
    t->optim.t = x->t;
    t->at = (struct ft_position){x->epoch, x->row_in_epoch, x->rows};
    if (fresh_position) {
        t->at.epoch += x->row_in_epoch > 0;
        t->at.in_epoch = 0;
    }
    t->total.samples = x->samples;
    t->total.tokens = x->tokens;
    t->total.trained = x->trained_tokens;
    t->skipped = x->skipped_steps;
    t->judge = (struct ft_best){x->best, x->best_step, x->bad, x->count, x->general0, x->has_general, x->general_bad};
    t->watch = (struct ft_watch){
        .loss1 = x->loss1, .best20 = x->best20, .above = (int)x->above, .n = x->seen, .last_spike = x->last_spike};
    for (int i = 0; i < x->n_window; i++) {
        const int64_t k = x->seen - x->n_window + i;
        if (k < 0) continue;
        t->watch.losses[k % FT_WATCH_N] = x->losses[i];
        t->watch.norms[k % FT_WATCH_N] = x->norms[i];
    }
}

/* ---- life ---- */

static void say(void *self, const char *line)
{
    const struct ft_trainer *t = self;
    if (t->o.quiet) return;
    printf("%s\n", line);
    fflush(stdout);
}

static enum ft_code resume(struct ft_trainer *t, struct ft_err *err)
{
    struct ft_saving *s = t->saving;
    struct ft_ckpt_scalars x;
    int64_t step = 0;
    bool fresh = false;
    enum ft_code code = ft_ckpt_resume(s->ckpt, s->pieces, s->n_pieces, &x, &step, &fresh, err);
    if (code || !step) return code;
    read_scalars(t, &x, fresh);
    for (size_t i = 0; i < t->s->buckets.n_pieces; i++) ft_optimizer_round(&t->optim, &t->s->buckets.pieces[i]);
    s->saved = step;
    t->resumed = true;
    size_t odd;
    code = ft_gradsync_gather(&t->sync, err);
    return code ? code : ft_gradsync_check_replicas(&t->sync, &odd, err); /* working copies are the rounded masters on all ranks */
}

enum ft_code ft_saving_open(struct ft_trainer *t, struct ft_err *err)
{
    const struct ft_checkpoint_fields *f = &t->s->job->checkpoint;
    struct ft_saving *s = t->saving = ft_xcalloc(1, sizeof *s);
    s->saved = -1;
    enum ft_code code = name_run(t, err);
    if (code) return code;
    describe(t);
    list_pieces(t);
    (void)ft_checkpoint_every(f->every, &s->every_updates, &s->every_ns);
    size_t n_model;
    const struct ft_param *model = ft_import_params(t->s->import, &n_model);
    const struct ft_ckpt_options o = {
        .dir = f->dir ? f->dir : ft_arena_printf(arena_of(t), "%s/checkpoints", t->o.place->run_dir ? t->o.place->run_dir : "."),
        .keep = f->keep,
        .resume = f->resume,
        .accept = f->accept.v,
        .n_accept = f->accept.n,
        .comm = t->o.comm,
        .run = &s->run,
        .model = model,
        .n_model = n_model,
        .params = t->s->rows,
        .n_params = t->s->n_rows,
        .tensor_rank = t->s->options.tensor_rank,
        .say = say,
        .self = t};
    code = ft_ckpt_open(&o, &s->ckpt, err);
    if (!code) code = resume(t, err);
    s->last_ns = ft_clock_now(ft_clock_real());
    return code;
}

bool ft_saving_wanted(const struct ft_trainer *t, int64_t step)
{
    const struct ft_saving *s = t->saving;
    if (!s || !ft_trainer_speaks(t)) return false;
    if (s->every_updates) return step % s->every_updates == 0;
    return s->every_ns && ft_clock_now(ft_clock_real()) - s->last_ns >= s->every_ns;
}

enum ft_code ft_saving_save(struct ft_trainer *t, bool best, struct ft_err *err)
{
    struct ft_saving *s = t->saving;
    if (!s || (s->saved == t->k && !best)) return FT_OK;
    struct ft_ckpt_scalars x;
    write_scalars(t, &x);
    ft_comm_note(t->o.comm, "checkpoint");
    enum ft_code code = ft_ckpt_save(s->ckpt, s->pieces, s->n_pieces, &x, best, err);
    s->last_ns = ft_clock_now(ft_clock_real());
    s->failed = code != FT_OK;
    if (!code) {
        s->saved = t->k;
        return FT_OK;
    }
    /* Values that are not finite, or not the same on all their holders: it is not the disk that failed. */
    if (code == FT_DATA || code == FT_BUG_FOUND || code == FT_COLL || code == FT_TIMEOUT) return code;
    if (t->s->job->checkpoint.on_error == 1) return code;
    if (ft_trainer_speaks(t))
        ft_log(FT_LOG_WARN, "checkpoint", "no checkpoint of step %lld: %s", (long long)t->k, err ? err->text : "");
    return FT_OK;
}

enum ft_code ft_saving_load_best(struct ft_trainer *t, bool *there, struct ft_err *err)
{
    struct ft_saving *s = t->saving;
    *there = s && !s->failed;
    return *there ? ft_ckpt_load_weights(s->ckpt, t->judge.best_step, s->pieces, s->n_pieces, err) : FT_OK;
}

enum ft_code ft_saving_export(struct ft_trainer *t, const struct ft_export *e, struct ft_err *err)
{
    return ft_ckpt_export(t->saving->ckpt, t->saving->pieces, t->saving->n_pieces, e, err);
}

void ft_saving_tick(struct ft_trainer *t)
{
    if (t->saving) ft_ckpt_tick(t->saving->ckpt);
}

void ft_saving_close(struct ft_trainer *t)
{
    if (!t->saving) return;
    ft_ckpt_close(t->saving->ckpt);
    free(t->saving);
    t->saving = NULL;
}

bool ft_saving_failed(const struct ft_trainer *t) { return t->saving && t->saving->failed; }

int64_t ft_saving_last_step(const struct ft_trainer *t) { return t->saving ? ft_ckpt_last_step(t->saving->ckpt) : 0; }
