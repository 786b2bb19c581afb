#include "runtime/data/sampler.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/fd.h"

/* ---- what the model folder says ---- */

static enum ft_code read_optional(const char *dir, const char *name, struct ft_json **out, struct ft_err *err)
{
    struct ft_buf path = {0};
    enum ft_code rc = FT_OK;
    ft_buf_addf(&path, "%s/%s", dir, name);
    if (ft_is_file(path.data)) rc = ft_json_read_file(path.data, FT_JSON_DUPLICATES, out, err);
    if (rc != FT_OK) rc = ft_json_read_file(path.data, FT_JSON_DUPLICATES | FT_JSON_BIGINT_AS_REAL, out, err);
    ft_buf_fini(&path);
    return rc;
}

static int32_t id_of(const struct ft_json *v)
{
    const double x = ft_json_real(v, -1);
    return ft_json_is_number(v) && x >= 0 && x < INT32_MAX ? (int32_t)x : -1;
}

static void add_stop(int32_t *stops, size_t *n, int32_t id)
{
    if (id < 0) return;
    for (size_t i = 0; i < *n; i++)
        if (stops[i] == id) return;
    if (*n < FT_MAX_STOPS) stops[(*n)++] = id;
}

/* eos_token_id: an integer or a list. */
static void add_stops(int32_t *stops, size_t *n, const struct ft_json *v)
{
    if (ft_json_is(v, FT_JSON_ARRAY))
        for (size_t i = 0; i < ft_json_count(v); i++) add_stop(stops, n, id_of(ft_json_at(v, i)));
    else add_stop(stops, n, id_of(v));
}

static int32_t token_id(const struct ft_sampler *s, const char *name) { return name ? ft_tokenizer_id(s->tokenizer, name) : -1; }

static enum ft_code read_folder(struct ft_sampler *s, const char *dir, struct ft_err *err)
{
    struct ft_json *config = NULL, *generation = NULL, *tokenizer = NULL;
    enum ft_code rc = read_optional(dir, "config.json", &config, err);
    if (rc == FT_OK) rc = read_optional(dir, "generation_config.json", &generation, err);
    if (rc == FT_OK) rc = read_optional(dir, "tokenizer_config.json", &tokenizer, err);
    if (rc == FT_OK) {
        const int32_t *front;
        const size_t n_front = ft_tokenizer_post_ids(s->tokenizer, true, &front);
        add_stops(s->generation_stops, &s->n_generation_stops, ft_json_get(generation, "eos_token_id"));
        add_stops(s->stops, &s->n_stops, ft_json_get(generation, "eos_token_id"));
        add_stops(s->stops, &s->n_stops, ft_json_get(config, "eos_token_id"));
        s->eos = token_id(s, s->source.eos);
        add_stop(s->stops, &s->n_stops, s->eos);
        if (s->eos < 0 && s->n_stops) s->eos = s->stops[0];
        s->config_bos = id_of(ft_json_get(config, "bos_token_id"));
        s->bos = token_id(s, s->source.bos);
        if (n_front) s->bos = front[0];
        if (s->bos < 0) s->bos = s->config_bos;
        s->wants_bos = n_front > 0 ||
                       (ft_json_bool(ft_json_get(tokenizer, "add_bos_token"), false) && token_id(s, s->source.bos) >= 0);
        if (!s->vocab_rows) s->vocab_rows = ft_json_int(ft_json_get(config, "vocab_size"), 0);
    }
    ft_json_destroy(config);
    ft_json_destroy(generation);
    ft_json_destroy(tokenizer);
    return rc;
}

/* ---- options ---- */

static enum ft_code read_vars(struct ft_sampler *s, struct ft_err *err)
{
    const struct ft_list *l = &s->fields->template_vars;
    s->vars = ft_xcalloc(l->n + 1, sizeof *s->vars);
    for (size_t i = 0; i < l->n; i++) {
        const char *colon = strchr(l->v[i], ':'), *value = colon ? colon + 1 : "";
        if (!colon) return ft_fail(err, FT_CONFIG, "template_vars: '%s' is not NAME:VALUE", l->v[i]);
        char *name = ft_xcalloc((size_t)(colon - l->v[i]) + 1, 1);
        memcpy(name, l->v[i], (size_t)(colon - l->v[i]));
        struct ft_jval v = ft_v_cstr(value);
        if (ft_str_eq(value, "yes")) v = ft_v_bool(true);
        else if (ft_str_eq(value, "no")) v = ft_v_bool(false);
        s->vars[s->n_vars++] = (struct ft_var){name, v};
    }
    return FT_OK;
}

static enum ft_code read_terminator(struct ft_sampler *s, struct ft_err *err)
{
    const char *t = s->fields->terminator;
    s->terminator = -1;
    if (!t || ft_str_eq(t, "auto") || ft_str_eq(t, "none")) return FT_OK;
    s->terminator = ft_tokenizer_id(s->tokenizer, t);
    if (s->terminator >= 0) return FT_OK;
    (void)ft_fail(err, FT_CONFIG, "[data] terminator: the vocabulary has no token '%s'", t);
    return ft_fix(err, "use auto, none or a token of tokenizer.json");
}

enum ft_code ft_sampler_no_template(const struct ft_data_fields *f, const char *model_dir, struct ft_err *err)
{
    if (ft_str_eq(f->template_, "none")) {
        (void)ft_fail(err, FT_CONFIG, "template = none: conversations of messages become text by a chat template only");
        return ft_fix(err, "leave [data] template out (the folder's own), or set it to the PATH of a .jinja file");
    }
    (void)ft_fail(err, FT_CONFIG, "'%s' has no chat template", model_dir);
    return ft_fix(err, "set [data] template = PATH of a .jinja file");
}

enum ft_code ft_sampler_open(const struct ft_data_fields *f, const char *model_dir, int64_t vocab_rows, bool needs_template,
                             struct ft_sampler *out, struct ft_err *err)
{
    struct ft_sampler *s = out;
    memset(s, 0, sizeof *s);
    s->fields = f, s->vocab_rows = vocab_rows, s->bos = s->eos = s->config_bos = s->terminator = -1;
    if (!model_dir) return ft_fail(err, FT_CONFIG, "[model] path is not set: this format of [data] needs the model's tokenizer");
    enum ft_code rc = ft_tokenizer_load(model_dir, &s->tokenizer, err);
    if (rc == FT_OK) rc = ft_chat_source_load(model_dir, f->template_ ? f->template_ : "auto", &s->source, err);
    if (rc == FT_OK) rc = read_folder(s, model_dir, err);
    if (rc == FT_OK) rc = read_terminator(s, err);
    if (rc == FT_OK) rc = read_vars(s, err);
    if (rc == FT_OK && needs_template && !s->source.plain) rc = ft_sampler_no_template(f, model_dir, err);
    if (rc == FT_OK && s->source.plain && !f->template_date && ft_template_is_dated(s->source.plain)) {
        (void)ft_fail(err, FT_CONFIG, "the chat template '%s' writes the date of the day, so the run could not be repeated",
                      s->source.origin);
        rc = ft_fix(err, "set [data] template_date = YYYY-MM-DD");
    }
    if (rc != FT_OK) {
        ft_sampler_close(s);
        return rc;
    }
    s->split = f->boundary == FT_BOUNDARY_SPLIT || (f->boundary == FT_BOUNDARY_AUTO && !ft_tokenizer_adds_prefix(s->tokenizer));
    return FT_OK;
}

void ft_sampler_close(struct ft_sampler *s)
{
    ft_tokenizer_destroy(s->tokenizer);
    ft_chat_source_fini(&s->source);
    for (size_t i = 0; i < s->n_vars; i++) free((void *)(uintptr_t)s->vars[i].name);
    free(s->vars);
    memset(s, 0, sizeof *s);
}
