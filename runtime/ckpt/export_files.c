/* The small files of an exported folder: configuration, tokenizer, template, licences. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/str.h"
#include "runtime/ckpt/export.h"

enum { SMALL_FILE_MAX = 1 << 30 };

/* Copied byte for byte when they are there. */
static const char *const copied[] = {
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json",     "merges.txt",      "chat_template.jinja"};
static const char template_folder[] = "additional_chat_templates";
/* Licence and notice files, by the beginning of their names. */
static const char *const legal[] = {"license", "licence", "notice", "copying", "use_policy"};

struct files {
    const struct ft_export *e;
    const char *tmp;
};

static void path_in(struct ft_buf *b, const char *dir, const char *name)
{
    ft_buf_clear(b);
    ft_buf_addf(b, "%s/%s", dir, name);
}

static enum ft_code copy_file(const char *from_dir, const char *to_dir, const char *name, struct ft_err *err)
{
    struct ft_buf from = {0}, to = {0}, bytes = {0};
    path_in(&from, from_dir, name);
    path_in(&to, to_dir, name);
    enum ft_code code = ft_is_file(from.data) ? ft_read_file(from.data, SMALL_FILE_MAX, &bytes, err) : FT_OK;
    if (!code && ft_is_file(from.data)) code = ft_write_file(to.data, bytes.data, bytes.n, 0666, err);
    ft_buf_fini(&from);
    ft_buf_fini(&to);
    ft_buf_fini(&bytes);
    return code;
}

static enum ft_code copy_folder(const char *from_dir, const char *to_dir, const char *name, struct ft_err *err)
{
    struct ft_buf from = {0}, to = {0};
    path_in(&from, from_dir, name);
    path_in(&to, to_dir, name);
    DIR *d = opendir(from.data);
    enum ft_code code = d ? ft_mkdirs(to.data, 0777, err) : FT_OK;
    for (struct dirent *e; !code && d && (e = readdir(d));) code = copy_file(from.data, to.data, e->d_name, err);
    if (d) closedir(d);
    ft_buf_fini(&from);
    ft_buf_fini(&to);
    return code;
}

static bool is_legal(const char *name)
{
    for (size_t i = 0; i < sizeof legal / sizeof *legal; i++)
        if (!strncasecmp(name, legal[i], strlen(legal[i]))) return true;
    return false;
}

/* The default template of a tokenizer_config.json: a text, or one of a list of {name, template}. */
static const char *default_template(const struct ft_json *config)
{
    const struct ft_json *v = ft_json_get(config, "chat_template");
    for (size_t i = 0; ft_json_is(v, FT_JSON_ARRAY) && i < ft_json_count(v); i++)
        if (ft_str_eq(ft_json_str(ft_json_get(ft_json_at(v, i), "name")), "default"))
            return ft_json_str(ft_json_get(ft_json_at(v, i), "template"));
    return ft_json_str(v);
}

/* tokenizer_config.json is changed only where it holds another template. */
static enum ft_code write_tokenizer_config(const struct files *w, struct ft_err *err)
{
    struct ft_buf path = {0}, text = {0}, value = {0}, edited = {0};
    struct ft_json *config = NULL;
    path_in(&path, w->tmp, "tokenizer_config.json");
    enum ft_code code = FT_OK;
    if (ft_is_file(path.data)) code = ft_read_file(path.data, SMALL_FILE_MAX, &text, err);
    if (!code && text.n) code = ft_json_parse(text.data, text.n, FT_JSON_BIGINT_AS_REAL | FT_JSON_DUPLICATES, &config, NULL, err);
    if (!code && ft_json_get(config, "chat_template") && !ft_str_eq(default_template(config), w->e->chat_template)) {
        struct ft_jw j = ft_jw_begin(&value);
        ft_jw_str(&j, w->e->chat_template);
        code = ft_json_edit(text.data, text.n, "chat_template", value.data, &edited, err);
        if (!code) code = ft_write_file(path.data, edited.data, edited.n, 0666, err);
    }
    ft_json_destroy(config);
    ft_buf_fini(&path);
    ft_buf_fini(&text);
    ft_buf_fini(&value);
    ft_buf_fini(&edited);
    return code;
}

static enum ft_code write_template(const struct files *w, struct ft_err *err)
{
    struct ft_buf path = {0}, old = {0};
    path_in(&path, w->tmp, "chat_template.jinja");
    const size_t n = strlen(w->e->chat_template);
    const bool same = ft_is_file(path.data) && !ft_read_file(path.data, SMALL_FILE_MAX, &old, NULL) && old.n == n &&
                      !memcmp(ft_buf_str(&old), w->e->chat_template, n);
    enum ft_code code = same ? FT_OK : ft_write_file(path.data, w->e->chat_template, n, 0666, err);
    ft_buf_fini(&path);
    ft_buf_fini(&old);
    return code ? code : write_tokenizer_config(w, err);
}

static enum ft_code copy_others(const struct files *w, struct ft_err *err)
{
    enum ft_code code = FT_OK;
    const char *base = w->e->base_dir;
    for (size_t i = 0; !code && i < sizeof copied / sizeof *copied; i++) code = copy_file(base, w->tmp, copied[i], err);
    if (!code) code = copy_folder(base, w->tmp, template_folder, err);
    DIR *d = opendir(base);
    for (struct dirent *e; !code && d && (e = readdir(d));)
        if (is_legal(e->d_name)) code = copy_file(base, w->tmp, e->d_name, err);
    if (d) closedir(d);
    if (!code && w->e->chat_template) code = write_template(w, err);
    return code;
}

static const char *torch_name(enum ft_dtype t)
{
    return t == FT_F32 ? "\"float32\"" : t == FT_F16 ? "\"float16\"" : "\"bfloat16\"";
}

/* config.json: the base's bytes, the dtype key changed when the type is another. */
static enum ft_code write_config(const struct files *w, struct ft_json **config, struct ft_err *err)
{
    struct ft_buf path = {0}, text = {0}, edited = {0};
    path_in(&path, w->e->base_dir, "config.json");
    enum ft_code code = ft_read_file(path.data, SMALL_FILE_MAX, &text, err);
    if (!code) code = ft_json_parse(text.data, text.n, FT_JSON_BIGINT_AS_REAL, config, NULL, err);
    if (!code && w->e->dtype != FT_N_DTYPES) {
        const char *const value = torch_name(w->e->dtype);
        const char *key = ft_json_get(*config, "dtype") ? "dtype" : "torch_dtype";
        const char *now = ft_json_str(ft_json_get(*config, key));
        if (!now || strlen(now) + 2 != strlen(value) || strncmp(now, value + 1, strlen(now)) != 0)
            code = ft_json_edit(text.data, text.n, key, value, &edited, err);
    }
    const struct ft_buf *out = edited.n ? &edited : &text;
    if (code) ft_wrap(err, "reading '%s'", path.data);
    path_in(&path, w->tmp, "config.json");
    if (!code) code = ft_write_file(path.data, out->data, out->n, 0666, err);
    ft_buf_fini(&path);
    ft_buf_fini(&text);
    ft_buf_fini(&edited);
    return code;
}

/* "[2, 0]": the trained terminator in front of what was there. false: it is there already, first. */
static bool new_eos(const struct ft_json *eos, int64_t id, struct ft_buf *out)
{
    const bool list = ft_json_is(eos, FT_JSON_ARRAY);
    const size_t n = list ? ft_json_count(eos) : ft_json_is_number(eos) ? 1 : 0;
    int64_t others = 0;
    ft_buf_addf(out, "%lld", (long long)id);
    for (size_t i = 0; i < n; i++) {
        const int64_t x = (int64_t)ft_json_real(list ? ft_json_at(eos, i) : eos, -1); /* integers were read as reals */
        if (i == 0 && x == id) return false;
        if (x == id || x < 0) continue;
        ft_buf_addf(out, ", %lld", (long long)x);
        others++;
    }
    if (!others) return true;
    struct ft_buf whole = {0};
    ft_buf_addf(&whole, "[%s]", out->data);
    ft_buf_fini(out);
    *out = whole;
    return true;
}

/* Without a generation_config.json of the base one is made when there is something to say: the ids of config.json. */
static void make_generation(const struct ft_json *config, const char *eos, struct ft_buf *out)
{
    static const char *const kept[] = {"bos_token_id", "pad_token_id"};
    struct ft_jw w = ft_jw_begin(out);
    ft_jw_object(&w);
    for (size_t i = 0; i < 2; i++) {
        const struct ft_json *x = ft_json_get(config, kept[i]);
        if (!ft_json_is_number(x)) continue;
        ft_jw_kint(&w, kept[i], (int64_t)ft_json_real(x, 0));
    }
    ft_jw_key(&w, "eos_token_id");
    ft_jw_raw(&w, eos);
    ft_jw_end(&w);
    ft_buf_addc(out, '\n');
}

static enum ft_code write_generation(const struct files *w, const struct ft_json *config, struct ft_err *err)
{
    struct ft_buf path = {0}, text = {0}, eos = {0}, edited = {0};
    struct ft_json *old = NULL;
    path_in(&path, w->e->base_dir, "generation_config.json");
    const bool there = ft_is_file(path.data);
    enum ft_code code = there ? ft_read_file(path.data, SMALL_FILE_MAX, &text, err) : FT_OK;
    if (!code && there) code = ft_json_parse(text.data, text.n, FT_JSON_BIGINT_AS_REAL, &old, NULL, err);
    if (code) ft_wrap(err, "reading '%s'", path.data);
    const struct ft_json *had = ft_json_get(old, "eos_token_id");
    if (!had) had = ft_json_get(config, "eos_token_id");
    if (!code && w->e->terminator_id >= 0 &&
        (new_eos(had, w->e->terminator_id, &eos) || (there && !ft_json_get(old, "eos_token_id")))) {
        if (there) code = ft_json_edit(text.data, text.n, "eos_token_id", eos.data, &edited, err);
        else make_generation(config, eos.data, &edited);
    }
    const struct ft_buf *out = edited.n ? &edited : &text;
    path_in(&path, w->tmp, "generation_config.json");
    if (!code && out->n) code = ft_write_file(path.data, out->data, out->n, 0666, err);
    ft_json_destroy(old);
    ft_buf_fini(&path);
    ft_buf_fini(&text);
    ft_buf_fini(&eos);
    ft_buf_fini(&edited);
    return code;
}

enum ft_code ft_export_files(const struct ft_export *e, const char *tmp, struct ft_err *err)
{
    const struct files w = {e, tmp};
    struct ft_json *config = NULL;
    enum ft_code code = write_config(&w, &config, err);
    if (!code) code = write_generation(&w, config, err);
    ft_json_destroy(config);
    return code ? code : copy_others(&w, err);
}
