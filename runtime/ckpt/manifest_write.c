#include <math.h>
#include <string.h>

#include "base/bits/mix64.h"
#include "base/hash.h"
#include "runtime/ckpt/manifest.h"
#include "runtime/ckpt/safetensors.h"

static void kreal(struct ft_jw *w, const char *key, double x)
{
    char text[40];
    ft_jw_key(w, key);
    if (!isfinite(x)) {
        ft_jw_null(w);
        return;
    }
    snprintf(text, sizeof text, "%.17g", x);
    ft_jw_raw(w, text);
}

static void reals(struct ft_jw *w, const char *key, const double *x, int n)
{
    char text[40];
    ft_jw_key(w, key);
    ft_jw_array(w);
    for (int i = 0; i < n; i++) {
        snprintf(text, sizeof text, "%.17g", x[i]);
        ft_jw_raw(w, isfinite(x[i]) ? text : "null");
    }
    ft_jw_end(w);
}

static void facts(struct ft_jw *w, const char *key, const struct ft_ckpt_fact *f, size_t n)
{
    ft_jw_key(w, key);
    if (!f) {
        ft_jw_null(w);
        return;
    }
    ft_jw_object(w);
    for (size_t i = 0; i < n; i++) {
        ft_jw_key(w, f[i].name);
        ft_jw_raw(w, f[i].json);
    }
    ft_jw_end(w);
}

static void begin(struct ft_jw *w, const char *key)
{
    ft_jw_key(w, key);
    ft_jw_object(w);
}

static const char *precision_name(enum ft_ckpt_precision p)
{
    return p == FT_CKPT_BF16 ? "bf16" : p == FT_CKPT_FP8 ? "fp8" : "fp32";
}

static void identity(struct ft_jw *w, const struct ft_ckpt_run *r, const struct ft_ckpt_scalars *s, const struct ft_mf_origin *o,
                     const char *created)
{
    ft_jw_kstr(w, "format", "ftckpt");
    ft_jw_kint(w, "version", FT_MF_VERSION);
    begin(w, "writer");
    ft_jw_kstr(w, "program", "fttrain");
    ft_jw_kstr(w, "version", FT_VERSION);
    ft_jw_kstr(w, "backend", r->backend);
    ft_jw_end(w);
    ft_jw_kstr(w, "run_id", r->run_id);
    ft_jw_kstr(w, "lineage", o->lineage);
    ft_jw_key(w, "parent");
    if (o->has_parent) {
        char hex[16];
        snprintf(hex, sizeof hex, "%08x", o->parent_crc);
        ft_jw_object(w);
        ft_jw_kint(w, "step", o->parent_step);
        ft_jw_kstr(w, "self_crc32c", hex);
        ft_jw_end(w);
    } else {
        ft_jw_null(w);
    }
    ft_jw_kstr(w, "created", created);
    ft_jw_kint(w, "step", s->step);
    begin(w, "layout");
    ft_jw_kint(w, "tensor", r->tensor);
    ft_jw_kint(w, "pipeline", r->pipeline);
    ft_jw_kint(w, "data", r->data);
    ft_jw_kbool(w, "sequence", r->sequence);
    ft_jw_kint(w, "virtual_pipeline", r->virtual_pipeline);
    ft_jw_kstr(w, "order", r->order);
    ft_jw_kint(w, "world", (int64_t)r->tensor * r->pipeline * r->data);
    ft_jw_end(w);
    ft_jw_kstr(w, "method", r->method);
    ft_jw_kstr(w, "precision", precision_name(r->precision));
}

static void model(struct ft_jw *w, const struct ft_ckpt_run *r)
{
    begin(w, "model");
    ft_jw_kstr(w, "family", r->family);
    ft_jw_key(w, "config");
    struct ft_json *config = NULL;
    if (r->config_json && !ft_json_parse(r->config_json, strlen(r->config_json), FT_JSON_DUPLICATES, &config, NULL, NULL))
        ft_jw_value(w, config);
    else ft_jw_null(w);
    ft_json_destroy(config);
    facts(w, "maths", r->maths, r->n_maths);
    ft_jw_kbool(w, "tied", r->tied);
    ft_jw_kint(w, "vocab", r->vocab);
    facts(w, "dropout", r->dropout, r->n_dropout);
    ft_jw_end(w);
    begin(w, "base");
    ft_jw_kstr(w, "path", r->base_path);
    ft_jw_kstr(w, "config_sha256", r->config_sha256);
    ft_jw_kstr(w, "tokenizer_sha256", r->tokenizer_sha256);
    ft_jw_kstr(w, "template_sha256", r->template_sha256);
    ft_jw_kstr(w, "template", r->template_text);
    ft_jw_kint(w, "terminator_id", r->terminator_id < 0 ? -1 : r->terminator_id);
    ft_jw_end(w);
    facts(w, "lora", r->lora, r->n_lora);
}

static void optimizer(struct ft_jw *w, const struct ft_ckpt_run *r, const struct ft_ckpt_scalars *s)
{
    begin(w, "optimizer");
    ft_jw_kstr(w, "name", "adamw");
    ft_jw_kint(w, "t", s->t);
    kreal(w, "beta1", r->beta1);
    kreal(w, "beta2", r->beta2);
    kreal(w, "eps", r->eps);
    kreal(w, "weight_decay", r->weight_decay);
    kreal(w, "clip", r->clip);
    ft_jw_key(w, "no_decay");
    ft_jw_array(w);
    for (size_t i = 0; i < r->n_no_decay; i++) ft_jw_str(w, r->no_decay[i]);
    ft_jw_end(w);
    ft_jw_end(w);
    begin(w, "schedule");
    ft_jw_kstr(w, "style", r->schedule);
    kreal(w, "hi", r->hi);
    kreal(w, "lo", r->lo);
    ft_jw_kint(w, "warmup", r->warmup);
    ft_jw_kint(w, "n", r->n);
    ft_jw_kint(w, "k", s->step);
    ft_jw_end(w);
    begin(w, "rng");
    ft_jw_kstr(w, "algorithm", "philox4x32-10");
    ft_jw_key(w, "seed");
    ft_jw_u64(w, r->seed);
    ft_jw_end(w);
}

static void progress(struct ft_jw *w, const struct ft_ckpt_run *r, const struct ft_ckpt_scalars *s)
{
    begin(w, "data");
    ft_jw_kstr(w, "fingerprint", r->data_fingerprint);
    ft_jw_kint(w, "epoch", s->epoch);
    ft_jw_kint(w, "row_in_epoch", s->row_in_epoch);
    ft_jw_kint(w, "rows", s->rows);
    ft_jw_kint(w, "samples", s->samples);
    ft_jw_kint(w, "tokens", s->tokens);
    ft_jw_kint(w, "trained_tokens", s->trained_tokens);
    ft_jw_kint(w, "seq_len", r->seq_len);
    ft_jw_kbool(w, "packing", r->packing);
    ft_jw_kbool(w, "shuffle", r->shuffle);
    ft_jw_end(w);
    ft_jw_kint(w, "global_batch", r->global_batch);
    ft_jw_kint(w, "skipped_steps", s->skipped_steps);
    ft_jw_key(w, "eval");
    if (s->has_eval) {
        ft_jw_object(w);
        ft_jw_key(w, "best");
        char text[40];
        snprintf(text, sizeof text, "%.17g", s->best);
        ft_jw_raw(w, s->best_step > 0 && isfinite(s->best) ? text : "null");
        ft_jw_kint(w, "best_step", s->best_step);
        ft_jw_kint(w, "bad", s->bad);
        ft_jw_kint(w, "count", s->count);
        kreal(w, "general0", s->has_general ? s->general0 : (double)NAN);
        ft_jw_kint(w, "general_bad", s->general_bad);
        ft_jw_end(w);
    } else {
        ft_jw_null(w);
    }
    begin(w, "watch");
    kreal(w, "loss1", s->loss1);
    kreal(w, "best20", s->best20);
    ft_jw_kint(w, "above", s->above);
    reals(w, "losses", s->losses, s->n_window);
    reals(w, "norms", s->norms, s->n_window);
    ft_jw_kint(w, "seen", s->seen);
    ft_jw_kint(w, "last_spike", s->last_spike);
    ft_jw_end(w);
    ft_jw_key(w, "loss_scale");
    ft_jw_null(w);
    ft_jw_key(w, "fp8");
    ft_jw_null(w);
}

void ft_manifest_write_head(struct ft_buf *b, const struct ft_ckpt_run *run, const struct ft_ckpt_scalars *s,
                            const struct ft_mf_origin *origin, const char *created)
{
    struct ft_jw w = ft_jw_begin(b);
    ft_jw_object(&w);
    identity(&w, run, s, origin, created);
    model(&w, run);
    optimizer(&w, run, s);
    progress(&w, run, s);
    ft_jw_end(&w);
    b->data[--b->n] = 0; /* the brace: more follows */
}

static void hex64(struct ft_jw *w, const char *key, uint64_t x)
{
    char text[24];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)x);
    ft_jw_kstr(w, key, text);
}

static void hex32(struct ft_jw *w, const char *key, uint32_t x)
{
    char text[16];
    snprintf(text, sizeof text, "%08x", x);
    ft_jw_kstr(w, key, text);
}

static void ints(struct ft_jw *w, const char *key, const int64_t *x, int n)
{
    ft_jw_key(w, key);
    ft_jw_array(w);
    for (int i = 0; i < n; i++) ft_jw_int(w, x[i]);
    ft_jw_end(w);
}

static void write_tensor(struct ft_buf *b, const struct ft_mf_tensor *t, bool stored)
{
    struct ft_jw w = ft_jw_begin(b);
    ft_jw_object(&w);
    ft_jw_kstr(&w, "name", t->name);
    ft_jw_kstr(&w, "dtype", ft_st_dtype_name(t->dtype));
    ints(&w, "shape", t->dims, t->n_dims);
    if (t->from) ft_jw_kstr(&w, "from", t->from);
    hex64(&w, "hash", t->hash);
    if (stored) {
        ft_jw_key(&w, "entries");
        ft_jw_array(&w);
        for (size_t i = 0; i < t->n_entries; i++) {
            const struct ft_mf_entry *e = &t->entries[i];
            ft_jw_object(&w);
            ints(&w, "offset", e->rect.at, t->n_dims);
            ints(&w, "extent", e->rect.n, t->n_dims);
            ft_jw_kint(&w, "file", (int64_t)e->file);
            ft_jw_kint(&w, "begin", e->begin);
            ft_jw_kint(&w, "bytes", e->bytes);
            hex32(&w, "crc32c", e->crc);
            ft_jw_end(&w);
        }
        ft_jw_end(&w);
    }
    ft_jw_end(&w);
}

static void write_list(struct ft_buf *b, const char *key, const struct ft_mf_list *l, bool stored)
{
    ft_buf_addf(b, ",\n\"%s\":[", key);
    for (size_t i = 0; i < l->n; i++) {
        ft_buf_adds(b, i ? ",\n" : "\n");
        write_tensor(b, &l->v[i], stored);
    }
    ft_buf_adds(b, "]");
}

void ft_manifest_write_rest(struct ft_buf *b, const struct ft_manifest *m)
{
    ft_buf_adds(b, ",\n\"files\":[");
    for (size_t i = 0; i < m->n_files; i++) {
        const struct ft_mf_file *f = &m->files[i];
        ft_buf_adds(b, i ? ",\n" : "\n");
        struct ft_jw w = ft_jw_begin(b);
        ft_jw_object(&w);
        ft_jw_kstr(&w, "name", f->name);
        ft_jw_kint(&w, "size", f->size);
        ft_jw_kint(&w, "header_bytes", f->header_bytes);
        hex32(&w, "header_crc32c", f->header_crc);
        ft_jw_kint(&w, "writer", f->writer);
        ft_jw_end(&w);
    }
    ft_buf_adds(b, "]");
    write_list(b, "tensors", &m->tensors, true);
    write_list(b, "derived", &m->derived, false);
    write_list(b, "frozen", &m->frozen, false);
    ft_buf_addf(b, ",\n\"bytes\":%lld,\"state_hash\":\"%016llx\",\"self_crc32c\":\"", (long long)m->bytes,
                (unsigned long long)m->state_hash);
    ft_buf_addf(b, "%08x\"}\n", ft_crc32c(0, b->data, b->n));
}

uint64_t ft_mf_state_hash(const struct ft_mf_list *stored, const struct ft_mf_list *derived)
{
    uint64_t h = 0;
    const struct ft_mf_list *lists[2] = {stored, derived};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < lists[k]->n; i++)
            h += ft_mix64(lists[k]->v[i].hash ^ ft_fnv1a64(lists[k]->v[i].name, strlen(lists[k]->v[i].name)));
    return h;
}

void ft_mf_key(struct ft_buf *b, const char *name, int n_dims, const int64_t dims[2], const struct ft_rect *r)
{
    ft_buf_adds(b, name);
    if (r->n[0] == dims[0] && r->n[1] == dims[1]) return;
    ft_buf_addf(b, "[%lld:%lld", (long long)r->at[0], (long long)(r->at[0] + r->n[0]));
    if (n_dims == 2) ft_buf_addf(b, ",%lld:%lld", (long long)r->at[1], (long long)(r->at[1] + r->n[1]));
    ft_buf_addc(b, ']');
}

void ft_mf_rows(struct ft_buf *b, int n_dims, int64_t from, int64_t to)
{
    ft_buf_addf(b, "%s %lld..%lld", n_dims == 2 ? "rows" : "elements", (long long)from, (long long)to);
}
