#include <math.h>
#include <string.h>

#include "runtime/arch/arch.h"

static const struct {
    const char *name;
    enum ft_rope_type type;
} types[] = {{"default", FT_ROPE_DEFAULT}, {"llama3", FT_ROPE_LLAMA3}, {"linear", FT_ROPE_LINEAR}, {"yarn", FT_ROPE_YARN}};
enum { N_TYPES = sizeof types / sizeof *types };

/* Keys of a RoPE object: which types read them (bit = 1 << type). */
static const struct {
    const char *name;
    unsigned types;
} keys[] = {
    {"rope_type", ~0u},
    {"type", ~0u},
    {"rope_theta", ~0u},
    {"factor", 1u << FT_ROPE_LLAMA3 | 1u << FT_ROPE_LINEAR | 1u << FT_ROPE_YARN},
    {"original_max_position_embeddings", 1u << FT_ROPE_LLAMA3 | 1u << FT_ROPE_YARN},
    {"low_freq_factor", 1u << FT_ROPE_LLAMA3},
    {"high_freq_factor", 1u << FT_ROPE_LLAMA3},
    {"beta_fast", 1u << FT_ROPE_YARN},
    {"beta_slow", 1u << FT_ROPE_YARN},
    {"attention_factor", 1u << FT_ROPE_YARN},
    {"mscale", 1u << FT_ROPE_YARN},
    {"mscale_all_dim", 1u << FT_ROPE_YARN},
    {"truncate", 1u << FT_ROPE_YARN},
};

static enum ft_code real_of(const char *path, const char *where, const struct ft_json *o, const char *key, double otherwise,
                            double *out, struct ft_err *err)
{
    const struct ft_json *v = ft_json_get(o, key);
    *out = otherwise;
    if (!v || ft_json_is(v, FT_JSON_NULL)) return FT_OK;
    *out = ft_json_real(v, NAN);
    if (!ft_json_is_number(v) || !isfinite(*out)) return ft_fail(err, FT_CONFIG, "'%s': %s.%s is not a number", path, where, key);
    return FT_OK;
}

static enum ft_code read_type(const char *path, const char *where, const struct ft_json *o, enum ft_rope_type *out,
                              struct ft_err *err)
{
    const struct ft_json *a = ft_json_get(o, "rope_type"), *b = ft_json_get(o, "type");
    const char *x = ft_json_str(a), *y = ft_json_str(b);
    if ((a && !x) || (b && !y)) return ft_fail(err, FT_CONFIG, "'%s': the type in %s is not text", path, where);
    if (x && y && strcmp(x, y) != 0) return ft_fail(err, FT_CONFIG, "'%s': %s has rope_type '%s' and type '%s'", path, where, x, y);
    const char *name = x ? x : y ? y : "default";
    for (int i = 0; i < N_TYPES; i++)
        if (strcmp(types[i].name, name) == 0) {
            *out = types[i].type;
            return FT_OK;
        }
    return ft_fail(err, FT_UNSUPPORTED, "'%s': rope_type '%s' is not built (default, llama3, linear and yarn are)", path, name);
}

static enum ft_code check_keys(const char *path, const char *where, const struct ft_json *o, enum ft_rope_type type,
                               struct ft_err *err)
{
    for (void *it = ft_json_iter(o); it; it = ft_json_iter_next(o, it)) {
        const char *k = ft_json_iter_key(it);
        const struct ft_json *v = ft_json_iter_value(it);
        if (ft_json_is(v, FT_JSON_NULL) || ft_json_is(v, FT_JSON_FALSE)) continue;
        if (strcmp(k, "partial_rotary_factor") == 0 && ft_json_real(v, 0) == 1) continue;
        bool known = false;
        for (size_t i = 0; i < sizeof keys / sizeof *keys && !known; i++)
            known = strcmp(keys[i].name, k) == 0 && keys[i].types & 1u << type;
        if (!known)
            return ft_fail(err, FT_UNSUPPORTED, "'%s': %s.%s may change the maths and is not known for this rope_type", path, where,
                           k);
    }
    return FT_OK;
}

/* 0.1 m ln f + 1 (YaRN's temperature), 1 for f <= 1. */
static double mscale(double f, double m) { return f <= 1 ? 1 : 0.1 * m * log(f) + 1; }

static enum ft_code read_yarn(const char *path, const char *where, const struct ft_json *o, struct ft_rope *r, struct ft_err *err)
{
    double a, m, m_all;
    if (real_of(path, where, o, "beta_fast", 32, &r->beta_fast, err) ||
        real_of(path, where, o, "beta_slow", 1, &r->beta_slow, err) || real_of(path, where, o, "attention_factor", 0, &a, err) ||
        real_of(path, where, o, "mscale", 0, &m, err) || real_of(path, where, o, "mscale_all_dim", 0, &m_all, err))
        return err->code;
    const struct ft_json *t = ft_json_get(o, "truncate");
    r->truncate = ft_json_bool(t, true);
    if (t && !ft_json_is_bool(t)) return ft_fail(err, FT_CONFIG, "'%s': %s.truncate is not true or false", path, where);
    r->attention_factor = a != 0                 ? a
                          : m != 0 && m_all != 0 ? mscale(r->factor, m) / mscale(r->factor, m_all)
                                                 : mscale(r->factor, 1);
    return FT_OK;
}

/* One object (NULL: none) over the defaults in r. */
static enum ft_code read_object(const char *path, const char *where, const struct ft_json *o, int64_t max_positions,
                                struct ft_rope *r, struct ft_err *err)
{
    enum ft_code code = read_type(path, where, o, &r->type, err);
    if (!code) code = check_keys(path, where, o, r->type, err);
    if (!code) code = real_of(path, where, o, "rope_theta", r->theta, &r->theta, err);
    if (!code) code = real_of(path, where, o, "factor", 0, &r->factor, err);
    if (!code) code = real_of(path, where, o, "original_max_position_embeddings", (double)max_positions, &r->original_max, err);
    if (!code) code = real_of(path, where, o, "low_freq_factor", 0, &r->low_freq, err);
    if (!code) code = real_of(path, where, o, "high_freq_factor", 0, &r->high_freq, err);
    if (code) return code;
    if (r->type != FT_ROPE_DEFAULT && !(r->factor > 0))
        return ft_fail(err, FT_CONFIG, "'%s': %s needs a factor above 0", path, where);
    if (!(r->original_max > 0))
        return ft_fail(err, FT_CONFIG, "'%s': %s.original_max_position_embeddings is not above 0", path, where);
    if (r->type == FT_ROPE_LLAMA3 && !(r->low_freq > 0 && r->high_freq > r->low_freq))
        return ft_fail(err, FT_CONFIG, "'%s': %s needs 0 < low_freq_factor < high_freq_factor", path, where);
    return r->type == FT_ROPE_YARN ? read_yarn(path, where, o, r, err) : FT_OK;
}

static bool same(const struct ft_rope *a, const struct ft_rope *b)
{
    if (a->type != b->type || a->theta != b->theta) return false;
    if (a->type == FT_ROPE_DEFAULT) return true;
    return a->factor == b->factor && (a->type == FT_ROPE_LINEAR || a->original_max == b->original_max) &&
           a->low_freq == b->low_freq && a->high_freq == b->high_freq && a->beta_fast == b->beta_fast &&
           a->beta_slow == b->beta_slow && a->attention_factor == b->attention_factor && a->truncate == b->truncate;
}

enum ft_code ft_arch_read_rope(const char *path, const struct ft_json *root, double theta, int64_t max_positions, int64_t D,
                               struct ft_rope *out, struct ft_err *err)
{
    struct ft_err own;
    if (!err) err = &own;
    const struct ft_json *scaling = ft_json_get(root, "rope_scaling"), *params = ft_json_get(root, "rope_parameters");
    if (ft_json_is(scaling, FT_JSON_NULL)) scaling = NULL;
    if (ft_json_is(params, FT_JSON_NULL)) params = NULL;
    const bool has_old = scaling || ft_json_get(root, "rope_theta");
    struct ft_rope old = {.type = FT_ROPE_DEFAULT, .theta = theta, .attention_factor = 1, .original_max = (double)max_positions},
                   new = old;
    if ((scaling && !ft_json_is(scaling, FT_JSON_OBJECT)) || (params && !ft_json_is(params, FT_JSON_OBJECT)))
        return ft_fail(err, FT_CONFIG, "'%s': %s is not an object", path,
                       scaling && !ft_json_is(scaling, FT_JSON_OBJECT) ? "rope_scaling" : "rope_parameters");
    if (scaling && read_object(path, "rope_scaling", scaling, max_positions, &old, err)) return err->code;
    if (params && read_object(path, "rope_parameters", params, max_positions, &new, err)) return err->code;
    if (params && scaling && !same(&old, &new))
        return ft_fail(err, FT_CONFIG, "'%s': rope_scaling and rope_parameters say different things", path);
    if (params && !scaling && has_old && old.theta != new.theta)
        return ft_fail(err, FT_CONFIG, "'%s': rope_theta is %.17g, rope_parameters say %.17g", path, old.theta, new.theta);
    *out = params ? new : old;
    if (!(out->theta > 1)) return ft_fail(err, FT_CONFIG, "'%s': rope_theta is %.17g, not above 1", path, out->theta);
    if (D % 2) return ft_fail(err, FT_CONFIG, "'%s': RoPE needs an even head size, not %lld", path, (long long)D);
    return FT_OK;
}

/* ---- tables ---- */

static const double PI = 3.14159265358979323846;

static double llama3(const struct ft_rope *r, double inv)
{
    const double w = 2 * PI / inv;
    if (w < r->original_max / r->high_freq) return inv;
    if (w > r->original_max / r->low_freq) return inv / r->factor;
    const double g = (r->original_max / w - r->low_freq) / (r->high_freq - r->low_freq);
    return (1 - g) * inv / r->factor + g * inv;
}

/* Peng et al. 2023: dimensions that turn often keep their frequency, slow ones are interpolated, a ramp between. */
static double yarn(const struct ft_rope *r, int64_t D, int64_t i, double inv)
{
    const double ln = 2 * log(r->theta), d = (double)D;
    double lo = d * log(r->original_max / (2 * PI * r->beta_fast)) / ln,
           hi = d * log(r->original_max / (2 * PI * r->beta_slow)) / ln;
    if (r->truncate) {
        lo = floor(lo);
        hi = ceil(hi);
    }
    lo = fmax(lo, 0);
    hi = fmin(hi, d - 1);
    if (lo == hi) hi += 0.001;
    const double rho = fmin(fmax(((double)i - lo) / (hi - lo), 0), 1);
    return rho * inv / r->factor + (1 - rho) * inv;
}

void ft_rope_tables(const struct ft_rope *r, int64_t D, int64_t n_positions, float *cos_out, float *sin_out)
{
    const int64_t half = D / 2;
    const double scale = r->type == FT_ROPE_YARN ? r->attention_factor : 1;
    for (int64_t i = 0; i < half; i++) {
        double inv = pow(r->theta, -2.0 * (double)i / (double)D);
        if (r->type == FT_ROPE_LLAMA3) inv = llama3(r, inv);
        if (r->type == FT_ROPE_LINEAR) inv /= r->factor;
        if (r->type == FT_ROPE_YARN) inv = yarn(r, D, i, inv);
        const float inv32 = (float)inv;
        for (int64_t p = 0; p < n_positions; p++) {
            const float angle = (float)p * inv32;
            cos_out[p * half + i] = (float)(cos((double)angle) * scale);
            sin_out[p * half + i] = (float)(sin((double)angle) * scale);
        }
    }
}
