#include "runtime/chat/source.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/hash.h"

enum { TEMPLATE_MAX = 1 << 24, CONFIG_MAX = 1 << 26 };

struct text {
    struct ft_buf s;
    struct ft_buf origin;
    bool found;
};

struct search {
    const char *dir;
    struct ft_json *config, *legacy; /* tokenizer_config.json, chat_template.json */
    struct text first, second, tools;
    struct ft_err *err;
};

static void fini(struct text *t)
{
    ft_buf_fini(&t->s);
    ft_buf_fini(&t->origin);
}

static void keep(struct search *s, const char *text, size_t n, const char *origin)
{
    struct text *t = !s->first.found ? &s->first : &s->second;
    if (t->found) return;
    t->found = true;
    ft_buf_add(&t->s, text, n);
    ft_buf_adds(&t->origin, origin);
}

static void path_of(const struct search *s, const char *name, struct ft_buf *out)
{
    ft_buf_clear(out);
    ft_buf_addf(out, "%s/%s", s->dir, name);
}

static enum ft_code keep_file(struct search *s, const char *path)
{
    struct ft_buf text = {0};
    const enum ft_code rc = ft_read_file(path, TEMPLATE_MAX, &text, s->err);
    if (rc == FT_OK) keep(s, ft_buf_str(&text), text.n, path);
    ft_buf_fini(&text);
    return rc;
}

static enum ft_code read_json(const struct search *s, const char *name, struct ft_json **out)
{
    struct ft_buf path = {0};
    enum ft_code rc = FT_OK;
    path_of(s, name, &path);
    if (ft_is_file(path.data)) rc = ft_json_read_file(path.data, FT_JSON_BIGINT_AS_REAL | FT_JSON_DUPLICATES, out, s->err);
    ft_buf_fini(&path);
    return rc;
}

/* The entry `name` of chat_template in a config: a text is "default". */
static const struct ft_json *entry(const struct ft_json *config, const char *name)
{
    const struct ft_json *v = ft_json_get(config, "chat_template");
    if (ft_json_is(v, FT_JSON_STRING)) return ft_str_eq(name, "default") ? v : NULL;
    for (size_t i = 0; i < ft_json_count(v) && ft_json_is(v, FT_JSON_ARRAY); i++) {
        const struct ft_json *e = ft_json_at(v, i), *text = ft_json_get(e, "template");
        if (ft_str_eq(ft_json_str(ft_json_get(e, "name")), name) && ft_json_is(text, FT_JSON_STRING)) return text;
    }
    return ft_json_is(v, FT_JSON_OBJECT) ? ft_json_get(v, name) : NULL;
}

static bool keep_entry(struct search *s, const struct ft_json *config, const char *file, const char *name)
{
    const struct ft_json *text = entry(config, name);
    if (!ft_json_is(text, FT_JSON_STRING)) return false;
    struct ft_buf origin = {0};
    ft_buf_addf(&origin, "%s/%s: chat_template%s%s", s->dir, file, ft_str_eq(name, "default") ? "" : " ",
                ft_str_eq(name, "default") ? "" : name);
    keep(s, ft_json_str(text), ft_json_str_len(text), origin.data);
    ft_buf_fini(&origin);
    return true;
}

static enum ft_code keep_additional(struct search *s, const char *name)
{
    struct ft_buf path = {0};
    enum ft_code rc = FT_OK;
    path_of(s, "additional_chat_templates/", &path);
    ft_buf_addf(&path, "%s.jinja", name);
    if (!strchr(name, '/') && ft_is_file(path.data)) rc = keep_file(s, path.data);
    ft_buf_fini(&path);
    return rc;
}

/* template = auto */
static enum ft_code find_auto(struct search *s)
{
    struct ft_buf path = {0};
    enum ft_code rc = FT_OK;
    path_of(s, "chat_template.jinja", &path);
    if (ft_is_file(path.data)) rc = keep_file(s, path.data);
    ft_buf_fini(&path);
    if (rc != FT_OK) return rc;
    const bool file = s->first.found;
    keep_entry(s, s->config, "tokenizer_config.json", "default");
    keep_entry(s, s->legacy, "chat_template.json", "default");
    const struct ft_json *tools = file ? NULL : entry(s->config, "tool_use");
    if (ft_json_is(tools, FT_JSON_STRING)) {
        s->tools.found = true;
        ft_buf_add(&s->tools.s, ft_json_str(tools), ft_json_str_len(tools));
    } else {
        struct search more = {.dir = s->dir, .err = s->err};
        rc = keep_additional(&more, "tool_use");
        if (more.first.found) s->tools = more.first;
    }
    return rc;
}

static enum ft_code find_named(struct search *s, const char *want)
{
    if (strchr(want, '/') || ft_str_ends(want, ".jinja") || ft_str_ends(want, ".j2")) return keep_file(s, want);
    if (!s->dir) return ft_is_file(want) ? keep_file(s, want) : ft_fail(s->err, FT_CONFIG, "no template file '%s'", want);
    keep_entry(s, s->config, "tokenizer_config.json", want);
    keep_entry(s, s->legacy, "chat_template.json", want);
    const enum ft_code rc = s->first.found ? FT_OK : keep_additional(s, want);
    if (rc != FT_OK || s->first.found) return rc;
    if (ft_is_file(want)) return keep_file(s, want);
    (void)ft_fail(s->err, FT_CONFIG, "'%s' has no chat template named '%s'", s->dir, want);
    return ft_fix(s->err, "a file is named by a path that ends in .jinja");
}

static char *token_name(const struct ft_json *config, const struct ft_json *map, const char *key)
{
    const struct ft_json *from[2] = {ft_json_get(config, key), ft_json_get(map, key)};
    for (int i = 0; i < 2; i++) {
        const struct ft_json *v = ft_json_is(from[i], FT_JSON_OBJECT) ? ft_json_get(from[i], "content") : from[i];
        if (ft_json_is(v, FT_JSON_STRING)) return ft_xstrdup(ft_json_str(v));
    }
    return NULL;
}

static enum ft_code read_names(struct search *s, struct ft_chat_source *out)
{
    struct ft_json *map = NULL;
    const enum ft_code rc = read_json(s, "special_tokens_map.json", &map);
    out->bos = token_name(s->config, map, "bos_token"), out->eos = token_name(s->config, map, "eos_token");
    out->unk = token_name(s->config, map, "unk_token"), out->pad = token_name(s->config, map, "pad_token");
    ft_json_destroy(map);
    return rc;
}

static enum ft_code compile_all(struct search *s, struct ft_chat_source *out)
{
    unsigned char sha[32];
    struct ft_buf warning = {0};
    if (!s->first.found) return FT_OK;
    enum ft_code rc = ft_template_compile(ft_buf_str(&s->first.origin), ft_buf_str(&s->first.s), s->first.s.n, &out->plain, s->err);
    if (rc == FT_OK && s->tools.found)
        rc = ft_template_compile("tool_use", ft_buf_str(&s->tools.s), s->tools.s.n, &out->tools, s->err);
    ft_sha256(ft_buf_str(&s->first.s), s->first.s.n, sha);
    ft_hex(sha, sizeof sha, out->sha256);
    out->text = ft_xstrdup(ft_buf_str(&s->first.s));
    out->origin = ft_xstrdup(ft_buf_str(&s->first.origin));
    if (s->second.found &&
        (s->second.s.n != s->first.s.n || memcmp(ft_buf_str(&s->second.s), ft_buf_str(&s->first.s), s->first.s.n) != 0)) {
        ft_buf_addf(&warning, "two chat templates that differ: '%s' is used, '%s' is not", ft_buf_str(&s->first.origin),
                    ft_buf_str(&s->second.origin));
        out->warning = ft_xstrdup(ft_buf_str(&warning));
    }
    ft_buf_fini(&warning);
    return rc;
}

enum ft_code ft_chat_source_load(const char *dir, const char *want, struct ft_chat_source *out, struct ft_err *err)
{
    struct search s = {.dir = dir, .err = err};
    enum ft_code rc = FT_OK;
    memset(out, 0, sizeof *out);
    if (dir) rc = read_json(&s, "tokenizer_config.json", &s.config);
    if (rc == FT_OK && dir) rc = read_json(&s, "chat_template.json", &s.legacy);
    if (rc == FT_OK && dir) rc = read_names(&s, out);
    if (rc == FT_OK && ft_str_eq(want, "auto")) rc = dir ? find_auto(&s) : FT_OK;
    else if (rc == FT_OK && !ft_str_eq(want, "none")) rc = find_named(&s, want);
    if (rc == FT_OK) rc = compile_all(&s, out);
    ft_json_destroy(s.config);
    ft_json_destroy(s.legacy);
    fini(&s.first);
    fini(&s.second);
    fini(&s.tools);
    if (rc != FT_OK) ft_chat_source_fini(out);
    return rc;
}

void ft_chat_source_fini(struct ft_chat_source *s)
{
    ft_template_destroy(s->plain);
    ft_template_destroy(s->tools);
    free(s->text);
    free(s->origin);
    free(s->warning);
    free(s->bos);
    free(s->eos);
    free(s->unk);
    free(s->pad);
    memset(s, 0, sizeof *s);
}
