#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "runtime/arch/config.h"
#include "runtime/chat/source.h"
#include "runtime/ckpt/export.h"
#include "runtime/ckpt/weights.h"
#include "runtime/train/cli.h"

/* ---- info ---- */

static void write_rope(struct ft_jw *w, const struct ft_rope *r)
{
    static const char *const types[] = {[FT_ROPE_NONE] = "none",
                                        [FT_ROPE_DEFAULT] = "default",
                                        [FT_ROPE_LLAMA3] = "llama3",
                                        [FT_ROPE_LINEAR] = "linear",
                                        [FT_ROPE_YARN] = "yarn"};
    ft_jw_kstr(w, "rope", types[r->type]);
    if (r->type != FT_ROPE_NONE) ft_jw_kreal(w, "rope_theta", r->theta);
}

static void write_info(struct ft_jw *w, const char *dir, const struct ft_model_config *c, const struct ft_import *m)
{
    ft_jw_object(w);
    ft_jw_kint(w, "schema", 1);
    ft_jw_kstr(w, "folder", dir);
    ft_jw_kstr(w, "family", c->model_type);
    ft_jw_kint(w, "parameters", ft_model_config_params(c));
    ft_jw_kint(w, "layers", c->L);
    ft_jw_kint(w, "hidden", c->h);
    ft_jw_kint(w, "heads", c->H);
    ft_jw_kint(w, "kv_heads", c->K);
    ft_jw_kint(w, "head_dim", c->D);
    ft_jw_kint(w, "ffn", c->f);
    ft_jw_kint(w, "vocabulary", c->V);
    ft_jw_kint(w, "positions", c->max_positions);
    ft_jw_kbool(w, "tied", c->tied);
    write_rope(w, &c->rope);
    ft_jw_key(w, "tensors");
    size_t n = 0;
    const struct ft_import_tensor *t = m ? ft_import_tensors(m, &n) : NULL;
    if (!m) ft_jw_null(w);
    else ft_jw_array(w);
    for (size_t i = 0; i < n; i++) {
        ft_jw_object(w);
        ft_jw_kstr(w, "name", t[i].tensor->name);
        ft_jw_kstr(w, "dtype", t[i].tensor->dtype);
        ft_jw_key(w, "shape");
        ft_jw_array(w);
        for (int d = 0; d < t[i].tensor->n_dims; d++) ft_jw_int(w, t[i].tensor->dims[d]);
        ft_jw_end(w);
        ft_jw_end(w);
    }
    if (m) ft_jw_end(w);
    ft_jw_end(w);
    ft_buf_addc(w->out, '\n');
}

static void print_info(struct ft_buf *b, const char *dir, const struct ft_model_config *c, const struct ft_import *m, bool verbose)
{
    ft_buf_addf(b, "%s: %s, %lld parameters\n", dir, c->model_type, (long long)ft_model_config_params(c));
    ft_buf_addf(b,
                "  layers %lld  hidden %lld  heads %lld  kv heads %lld  head dim %lld  ffn %lld  vocabulary %lld  positions %lld\n",
                (long long)c->L, (long long)c->h, (long long)c->H, (long long)c->K, (long long)c->D, (long long)c->f,
                (long long)c->V, (long long)c->max_positions);
    ft_buf_addf(b, "  head %s\n", c->tied ? "tied to the embedding" : "of its own");
    size_t n = 0;
    const struct ft_import_tensor *t = m ? ft_import_tensors(m, &n) : NULL;
    if (!m) ft_buf_adds(b, "  no weights in this folder\n");
    else ft_buf_addf(b, "  %zu tensors\n", n);
    for (size_t i = 0; verbose && i < n; i++) {
        ft_buf_addf(b, "  %s  %s [", t[i].tensor->name, t[i].tensor->dtype);
        for (int d = 0; d < t[i].tensor->n_dims; d++) ft_buf_addf(b, d ? ", %lld" : "%lld", (long long)t[i].tensor->dims[d]);
        ft_buf_adds(b, "]\n");
    }
}

static bool has_weights(const char *dir)
{
    struct ft_buf p = {0};
    ft_buf_addf(&p, "%s/model.safetensors", dir);
    bool yes = ft_is_file(p.data);
    ft_buf_adds(&p, ".index.json");
    yes = yes || ft_is_file(p.data);
    ft_buf_fini(&p);
    return yes;
}

static enum ft_code info(const char *dir, const struct ft_cli *cli, struct ft_buf *out, struct ft_err *err)
{
    struct ft_arena *arena = ft_arena_create();
    struct ft_model_config c;
    struct ft_import *m = NULL;
    enum ft_code code = ft_import_config(dir, arena, &c, err);
    if (!code && has_weights(dir)) code = ft_import_open(dir, &c, &m, err);
    struct ft_jw w = ft_jw_begin(out);
    if (!code) cli->json ? write_info(&w, dir, &c, m) : print_info(out, dir, &c, m, cli->verbose);
    ft_import_close(m);
    ft_arena_destroy(arena);
    return code;
}

/* ---- export: a folder or a checkpoint, written as a folder ---- */

struct source {
    const struct ft_import *m; /* the base folder: names, types, files */
    const struct ft_param *params;
    struct ft_weights *weights; /* NULL: the folder's own */
};

static enum ft_code fetch(void *ctx, size_t i, int64_t from, int64_t to, float *out, struct ft_err *err)
{
    const struct source *s = ctx;
    if (s->weights) return ft_weights_read(s->weights, &s->params[i], from, to, out, err);
    return ft_import_read(s->m, &s->params[i], from, to, out, err);
}

static enum ft_code parse_dtype(const char *text, enum ft_dtype *out, struct ft_err *err)
{
    static const struct {
        const char *name;
        enum ft_dtype type;
    } types[] = {{"base", FT_N_DTYPES}, {"fp32", FT_F32}, {"bf16", FT_BF16}, {"fp16", FT_F16}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!text || !strcmp(text, types[i].name)) {
            *out = types[i].type;
            return FT_OK;
        }
    return ft_fail(err, FT_USAGE, "--dtype '%s' is none of base, fp32, bf16, fp16", text);
}

/* path is a model folder, a run or a checkpoint; the latter two know their base folder. */
static enum ft_code open_source(const char *path, struct ft_buf *base, struct source *s, struct ft_err *err)
{
    struct ft_buf config = {0}, dir = {0};
    ft_buf_addf(&config, "%s/config.json", path);
    ft_buf_adds(base, path);
    enum ft_code code = FT_OK;
    if (!ft_is_file(config.data)) {
        code = ft_weights_find(path, &dir, err);
        if (!code) code = ft_weights_open(dir.data, &s->weights, err);
        const char *from = code ? NULL : ft_weights_base(s->weights);
        if (!code && !from) code = ft_fail(err, FT_DATA, "the checkpoint '%s' does not say which folder was trained", dir.data);
        ft_buf_clear(base);
        ft_buf_adds(base, from ? from : path);
    }
    ft_buf_fini(&config);
    ft_buf_fini(&dir);
    return code;
}

static enum ft_code export_from(const char *path, const struct ft_cli *cli, struct ft_err *err)
{
    if (!cli->out) return ft_fail(err, FT_USAGE, "export needs a target: -o DIR");
    struct ft_arena *arena = ft_arena_create();
    struct ft_model_config c;
    struct ft_import *m = NULL;
    struct ft_buf base = {0};
    struct source s = {0};
    struct ft_export e = {.dir = cli->out, .terminator_id = -1, .fetch = fetch, .ctx = &s};
    enum ft_code code = parse_dtype(cli->dtype, &e.dtype, err);
    if (!code) code = ft_export_check(cli->out, err);
    if (!code) code = open_source(path, &base, &s, err);
    if (!code) code = ft_import_config(base.data, arena, &c, err);
    if (!code) code = ft_import_open(base.data, &c, &m, err);
    if (!code) {
        size_t n;
        s.m = e.base = m;
        s.params = ft_import_params(m, &n);
        e.base_dir = base.data;
        if (s.weights) code = ft_weights_check(s.weights, s.params, n, err);
    }
    struct ft_chat_source chat = {0};
    int64_t terminator = -1;
    if (!code && s.weights && !ft_weights_chat(s.weights, &e.chat_template, &terminator) &&
        !ft_chat_source_load(base.data, "auto", &chat, NULL))
        e.chat_template = chat.text;
    e.terminator_id = terminator >= 0 && terminator < INT_MAX ? (int)terminator : -1;
    if (!code) code = ft_export_full(&e, err);
    ft_chat_source_fini(&chat);
    if (!code && s.weights && !cli->quiet) printf("step %lld written to %s\n", (long long)ft_weights_step(s.weights), cli->out);
    ft_weights_close(s.weights);
    ft_import_close(m);
    ft_buf_fini(&base);
    ft_arena_destroy(arena);
    return code;
}

static enum ft_code dispatch(const struct ft_cli *cli, struct ft_buf *out, struct ft_err *err)
{
    const char *verb = cli->n_words ? cli->words[0] : "";
    const bool is_info = !strcmp(verb, "info"), is_export = !strcmp(verb, "export");
    if (!strcmp(verb, "merge") || !strcmp(verb, "quantize"))
        return ft_fail(err, FT_UNSUPPORTED, "'model %s' is not built yet (adapters are not)", verb);
    if (!is_info && !is_export) return ft_fail(err, FT_USAGE, "'model' wants info or export, found '%s'", verb);
    if (cli->n_words < 2) return ft_fail(err, FT_USAGE, "'model %s' wants a folder", verb);
    if (is_export && cli->n_words > 2) return ft_fail(err, FT_USAGE, "'model export' takes one folder, run or checkpoint");
    enum ft_code code = FT_OK;
    for (size_t i = 1; !code && i < cli->n_words; i++)
        code = is_info ? info(cli->words[i], cli, out, err) : export_from(cli->words[i], cli, err);
    return code;
}

int ft_model_main(const struct ft_command *self, int argc, char **argv)
{
    struct ft_arena *arena = ft_arena_create();
    struct ft_cli cli;
    struct ft_buf out = {0};
    struct ft_err err;
    int status = ft_cli_parse(self, argc, argv, arena, &cli);
    if (status < 0) {
        status = dispatch(&cli, &out, &err) ? FT_EXIT_REFUSED : FT_EXIT_DONE;
        ft_cli_print(&out);
        if (status) ft_err_print(stderr, "fttrain", &err);
    }
    ft_buf_fini(&out);
    ft_arena_destroy(arena);
    return status;
}
