/* The objects of a tokenizer.json that are no model, as tables. Whatever is not known refuses the file and is named. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/token/tok.h"

enum { MAX_PARTS = 64 };

static const char *type_of(const struct ft_json *v)
{
    const char *type = ft_json_str(ft_json_get(v, "type"));
    return type ? type : "(no type)";
}

static enum ft_code unknown(const char *part, const struct ft_json *v, struct ft_err *err)
{
    (void)ft_fail(err, FT_UNSUPPORTED, "%s '%s' is not supported", part, type_of(v));
    return err ? err->code : FT_UNSUPPORTED;
}

static enum ft_code odd(const char *part, const struct ft_json *v, const char *field, struct ft_err *err)
{
    return ft_fail(err, FT_DATA, "%s '%s' has no usable field '%s'", part, type_of(v), field);
}

static bool flag(const struct ft_json *v, const char *name, bool otherwise)
{
    return ft_json_bool(ft_json_get(v, name), otherwise);
}

/* {"String": "x"} or {"Regex": "x"} */
static enum ft_code read_pattern(const char *part, const struct ft_json *v, struct ft_pattern *out, struct ft_err *err)
{
    const struct ft_json *p = ft_json_get(v, "pattern"), *text = ft_json_get(p, "String"), *regex = ft_json_get(p, "Regex");
    if (ft_json_is(p, FT_JSON_STRING)) text = p;
    if (ft_json_is(text, FT_JSON_STRING)) {
        out->literal_n = ft_json_str_len(text);
        out->literal = ft_xcalloc(out->literal_n + 1, 1);
        memcpy(out->literal, ft_json_str(text), out->literal_n);
        return FT_OK;
    }
    if (ft_json_is(regex, FT_JSON_STRING)) return ft_regex_compile(ft_json_str(regex), &out->regex, err);
    return odd(part, v, "pattern", err);
}

static enum ft_code read_content(const char *part, const struct ft_json *v, const char *field, char **out, size_t *n,
                                 struct ft_err *err)
{
    const struct ft_json *c = ft_json_get(v, field);
    if (!ft_json_is(c, FT_JSON_STRING)) return odd(part, v, field, err);
    *n = ft_json_str_len(c);
    *out = ft_xcalloc(*n + 1, 1);
    memcpy(*out, ft_json_str(c), *n);
    return FT_OK;
}

/* One character, kept as UTF-8. */
static enum ft_code read_char(const char *part, const struct ft_json *v, const char *field, char out[5], struct ft_err *err)
{
    const struct ft_json *c = ft_json_get(v, field);
    uint32_t cp;
    memset(out, 0, 5);
    if (!ft_json_is(c, FT_JSON_STRING) || !ft_json_str_len(c)) return odd(part, v, field, err);
    const int k = ft_utf8_decode(ft_json_str(c), ft_json_str_len(c), &cp);
    if ((size_t)k != ft_json_str_len(c)) return odd(part, v, field, err);
    memcpy(out, ft_json_str(c), (size_t)k);
    return FT_OK;
}

/* ---- normalizer ---- */

static enum ft_code one_normalizer(const struct ft_json *v, struct ft_norms *out, struct ft_err *err)
{
    static const char part[] = "normalizer";
    static const struct {
        const char *name;
        enum ft_norm_kind kind;
        enum ft_nf form;
    } kinds[] = {{"NFC", FT_NORM_FORM, FT_NFC},
                 {"NFD", FT_NORM_FORM, FT_NFD},
                 {"NFKC", FT_NORM_FORM, FT_NFKC},
                 {"NFKD", FT_NORM_FORM, FT_NFKD},
                 {"Replace", FT_NORM_REPLACE, FT_NFC},
                 {"Prepend", FT_NORM_PREPEND, FT_NFC},
                 {"Lowercase", FT_NORM_LOWERCASE, FT_NFC},
                 {"Strip", FT_NORM_STRIP, FT_NFC},
                 {"StripAccents", FT_NORM_STRIP_ACCENTS, FT_NFC}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!ft_str_eq(type_of(v), kinds[i].name)) continue;
        if (out->n >= MAX_PARTS) return ft_fail(err, FT_DATA, "more than %d normalizers", MAX_PARTS);
        ft_grow(&out->v, &out->cap, out->n + 1, sizeof *out->v);
        struct ft_norm *x = &out->v[out->n++];
        *x = (struct ft_norm){.kind = kinds[i].kind, .form = kinds[i].form};
        x->left = flag(v, "strip_left", true), x->right = flag(v, "strip_right", true);
        if (x->kind == FT_NORM_PREPEND) return read_content(part, v, "prepend", &x->content, &x->content_n, err);
        if (x->kind != FT_NORM_REPLACE) return FT_OK;
        const enum ft_code rc = read_pattern(part, v, &x->pattern, err);
        return rc == FT_OK ? read_content(part, v, "content", &x->content, &x->content_n, err) : rc;
    }
    return unknown(part, v, err);
}

enum ft_code ft_read_normalizer(const struct ft_json *v, struct ft_norms *out, struct ft_err *err)
{
    if (!v || ft_json_is(v, FT_JSON_NULL)) return FT_OK;
    if (!ft_str_eq(type_of(v), "Sequence")) return one_normalizer(v, out, err);
    const struct ft_json *list = ft_json_get(v, "normalizers");
    if (!ft_json_is(list, FT_JSON_ARRAY)) return odd("normalizer", v, "normalizers", err);
    enum ft_code rc = FT_OK;
    for (size_t i = 0; i < ft_json_count(list) && rc == FT_OK; i++) {
        const struct ft_json *x = ft_json_at(list, i);
        rc = ft_str_eq(type_of(x), "Sequence")
                 ? ft_fail(err, FT_UNSUPPORTED, "a normalizer 'Sequence' inside another is not supported")
                 : one_normalizer(x, out, err);
    }
    return rc;
}

/* ---- pre-tokenizer ---- */

static enum ft_code read_behavior(const struct ft_json *v, enum ft_split_how *out, struct ft_err *err)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *text = ft_json_str(ft_json_get(v, "behavior"));
    for (size_t i = 0; text && i < 5; i++)
        if (ft_str_eq(text, names[i])) {
            *out = (enum ft_split_how)i;
            return FT_OK;
        }
    return odd("pre_tokenizer", v, "behavior", err);
}

static enum ft_code read_prepend(const char *part, const struct ft_json *v, enum ft_prepend *out, struct ft_err *err)
{
    const struct ft_json *scheme = ft_json_get(v, "prepend_scheme");
    const char *text = ft_json_str(scheme);
    *out = flag(v, "add_prefix_space", true) ? FT_PREPEND_ALWAYS : FT_PREPEND_NEVER;
    if (!scheme || ft_json_is(scheme, FT_JSON_NULL)) return FT_OK;
    if (ft_str_eq(text, "always")) *out = FT_PREPEND_ALWAYS;
    else if (ft_str_eq(text, "first")) *out = FT_PREPEND_FIRST;
    else if (ft_str_eq(text, "never")) *out = FT_PREPEND_NEVER;
    else return odd(part, v, "prepend_scheme", err);
    return FT_OK;
}

static enum ft_code read_pre_fields(const struct ft_json *v, struct ft_pre *x, struct ft_err *err)
{
    static const char part[] = "pre_tokenizer";
    enum ft_code rc = FT_OK;
    switch (x->kind) {
    case FT_PRE_SPLIT:
        x->invert = flag(v, "invert", false);
        rc = read_behavior(v, &x->how, err);
        return rc == FT_OK ? read_pattern(part, v, &x->pattern, err) : rc;
    case FT_PRE_BYTE_LEVEL:
        x->add_prefix_space = flag(v, "add_prefix_space", true), x->use_regex = flag(v, "use_regex", true);
        return x->use_regex ? ft_regex_compile(ft_gpt2_pattern, &x->pattern.regex, err) : FT_OK;
    case FT_PRE_METASPACE:
        x->split = flag(v, "split", true);
        rc = read_char(part, v, "replacement", x->replacement, err);
        if (rc != FT_OK) return rc;
        x->pattern.literal = ft_xstrdup(x->replacement), x->pattern.literal_n = strlen(x->replacement);
        return read_prepend(part, v, &x->prepend, err);
    case FT_PRE_DIGITS: x->individual = flag(v, "individual_digits", false); return FT_OK;
    case FT_PRE_PUNCTUATION: x->how = FT_SPLIT_ISOLATED; return ft_json_get(v, "behavior") ? read_behavior(v, &x->how, err) : FT_OK;
    case FT_PRE_WHITESPACE:
    case FT_PRE_WHITESPACE_SPLIT: return FT_OK;
    }
    return FT_OK;
}

static enum ft_code one_pre_tokenizer(const struct ft_json *v, struct ft_pres *out, struct ft_err *err)
{
    static const char *const names[] = {"Split",       "ByteLevel",  "Metaspace",      "Digits",
                                        "Punctuation", "Whitespace", "WhitespaceSplit"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!ft_str_eq(type_of(v), names[i])) continue;
        if (out->n >= MAX_PARTS) return ft_fail(err, FT_DATA, "more than %d pre_tokenizers", MAX_PARTS);
        ft_grow(&out->v, &out->cap, out->n + 1, sizeof *out->v);
        struct ft_pre *x = &out->v[out->n++];
        *x = (struct ft_pre){.kind = (enum ft_pre_kind)i};
        return read_pre_fields(v, x, err);
    }
    return unknown("pre_tokenizer", v, err);
}

enum ft_code ft_read_pre_tokenizer(const struct ft_json *v, struct ft_pres *out, struct ft_err *err)
{
    if (!v || ft_json_is(v, FT_JSON_NULL)) return FT_OK;
    enum ft_code rc = FT_OK;
    if (!ft_str_eq(type_of(v), "Sequence")) {
        rc = one_pre_tokenizer(v, out, err);
    } else {
        const struct ft_json *list = ft_json_get(v, "pretokenizers");
        if (!ft_json_is(list, FT_JSON_ARRAY)) return odd("pre_tokenizer", v, "pretokenizers", err);
        for (size_t i = 0; i < ft_json_count(list) && rc == FT_OK; i++) {
            const struct ft_json *x = ft_json_at(list, i);
            rc = ft_str_eq(type_of(x), "Sequence")
                     ? ft_fail(err, FT_UNSUPPORTED, "a pre_tokenizer 'Sequence' inside another is not supported")
                     : one_pre_tokenizer(x, out, err);
        }
    }
    return rc;
}

/* ---- decoder ---- */

static enum ft_code one_decoder(const struct ft_json *v, struct ft_decs *out, struct ft_err *err)
{
    static const char part[] = "decoder";
    static const char *const names[] = {"ByteLevel", "ByteFallback", "Fuse", "Strip", "Replace", "Metaspace"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!ft_str_eq(type_of(v), names[i])) continue;
        char c[5];
        enum ft_code rc = FT_OK;
        if (out->n >= MAX_PARTS) return ft_fail(err, FT_DATA, "more than %d decoders", MAX_PARTS);
        ft_grow(&out->v, &out->cap, out->n + 1, sizeof *out->v);
        struct ft_dec *x = &out->v[out->n++];
        *x = (struct ft_dec){.kind = (enum ft_dec_kind)i};
        switch (x->kind) {
        case FT_DEC_BYTE_LEVEL:
        case FT_DEC_BYTE_FALLBACK:
        case FT_DEC_FUSE: return FT_OK;
        case FT_DEC_STRIP:
            rc = read_char(part, v, "content", c, err);
            if (rc != FT_OK) return rc;
            (void)ft_utf8_decode(c, strlen(c), &x->strip_char);
            const int64_t start = ft_json_int(ft_json_get(v, "start"), 0), stop = ft_json_int(ft_json_get(v, "stop"), 0);
            x->start = start > 0 ? (size_t)start : 0, x->stop = stop > 0 ? (size_t)stop : 0;
            return FT_OK;
        case FT_DEC_REPLACE:
            rc = read_pattern(part, v, &x->pattern, err);
            return rc == FT_OK ? read_content(part, v, "content", &x->content, &x->content_n, err) : rc;
        case FT_DEC_METASPACE:
            rc = read_char(part, v, "replacement", x->replacement, err);
            return rc == FT_OK ? read_prepend(part, v, &x->prepend, err) : rc;
        }
    }
    return unknown(part, v, err);
}

enum ft_code ft_read_decoder(const struct ft_json *v, struct ft_decs *out, struct ft_err *err)
{
    if (!v || ft_json_is(v, FT_JSON_NULL)) return FT_OK;
    out->any = true;
    if (!ft_str_eq(type_of(v), "Sequence")) return one_decoder(v, out, err);
    const struct ft_json *list = ft_json_get(v, "decoders");
    if (!ft_json_is(list, FT_JSON_ARRAY)) return odd("decoder", v, "decoders", err);
    enum ft_code rc = FT_OK;
    for (size_t i = 0; i < ft_json_count(list) && rc == FT_OK; i++) {
        const struct ft_json *x = ft_json_at(list, i);
        rc = ft_str_eq(type_of(x), "Sequence")
                 ? ft_fail(err, FT_UNSUPPORTED, "a decoder 'Sequence' inside another is not supported")
                 : one_decoder(x, out, err);
    }
    return rc;
}

/* ---- post-processor: only what it puts around one text matters ---- */

static enum ft_code add_ids(const struct ft_json *ids, bool front, struct ft_tokenizer *t, struct ft_err *err)
{
    for (size_t i = 0; i < ft_json_count(ids); i++) {
        const int64_t id = ft_json_int(ft_json_at(ids, i), -1);
        if (id < 0 || id > FT_MAX_ID)
            return ft_fail(err, FT_DATA, "post_processor TemplateProcessing has an id that is no token id");
        if (front) {
            ft_grow(&t->front, &t->front_cap, t->n_front + 1, sizeof *t->front);
            t->front[t->n_front++] = (int32_t)id;
        } else {
            ft_grow(&t->back, &t->back_cap, t->n_back + 1, sizeof *t->back);
            t->back[t->n_back++] = (int32_t)id;
        }
    }
    return FT_OK;
}

static enum ft_code read_template(const struct ft_json *v, struct ft_tokenizer *t, struct ft_err *err)
{
    static const char part[] = "post_processor";
    const struct ft_json *single = ft_json_get(v, "single"), *special = ft_json_get(v, "special_tokens");
    bool seen = false;
    if (!ft_json_is(single, FT_JSON_ARRAY)) return odd(part, v, "single", err);
    for (size_t i = 0; i < ft_json_count(single); i++) {
        const struct ft_json *piece = ft_json_at(single, i), *token = ft_json_get(piece, "SpecialToken");
        if (ft_json_get(piece, "Sequence")) {
            if (seen) return ft_fail(err, FT_UNSUPPORTED, "post_processor TemplateProcessing repeats the text: not supported");
            seen = true;
            continue;
        }
        const char *name = ft_json_str(ft_json_get(token, "id"));
        const struct ft_json *entry = name ? ft_json_get(special, name) : NULL, *ids = ft_json_get(entry, "ids");
        if (!ft_json_is(ids, FT_JSON_ARRAY))
            return ft_fail(err, FT_DATA, "post_processor TemplateProcessing names the token '%s' without ids", name ? name : "?");
        const enum ft_code rc = add_ids(ids, !seen, t, err);
        if (rc != FT_OK) return rc;
    }
    return seen ? FT_OK : ft_fail(err, FT_UNSUPPORTED, "post_processor TemplateProcessing leaves the text out: not supported");
}

static enum ft_code one_post_processor(const struct ft_json *v, struct ft_tokenizer *t, struct ft_err *err)
{
    if (ft_str_eq(type_of(v), "ByteLevel")) return FT_OK; /* trims offsets only; ours stay whole */
    if (ft_str_eq(type_of(v), "TemplateProcessing")) {
        if (t->n_front || t->n_back)
            return ft_fail(err, FT_UNSUPPORTED, "two post_processors TemplateProcessing are not supported");
        return read_template(v, t, err);
    }
    return unknown("post_processor", v, err);
}

enum ft_code ft_read_post_processor(const struct ft_json *v, struct ft_tokenizer *t, struct ft_err *err)
{
    if (!v || ft_json_is(v, FT_JSON_NULL)) return FT_OK;
    if (!ft_str_eq(type_of(v), "Sequence")) return one_post_processor(v, t, err);
    const struct ft_json *list = ft_json_get(v, "processors");
    if (!ft_json_is(list, FT_JSON_ARRAY)) return odd("post_processor", v, "processors", err);
    enum ft_code rc = FT_OK;
    for (size_t i = 0; i < ft_json_count(list) && rc == FT_OK; i++) rc = one_post_processor(ft_json_at(list, i), t, err);
    return rc;
}
