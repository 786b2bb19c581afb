#include "topology/shard.h"

#include <string.h>

struct ft_range ft_shard(int64_t n, int parts, int i)
{
    int64_t each = n / parts;
    return (struct ft_range){each * i, each * (i + 1)};
}

void ft_divisors(int64_t n, int64_t limit, struct ft_buf *out)
{
    const char *between = "";
    for (int64_t d = 1; d <= n && d <= limit; d++) {
        if (n % d) continue;
        ft_buf_addf(out, "%s%lld", between, (long long)d);
        between = ",";
    }
}

enum ft_code ft_divide(int64_t n, int by, const char *what, int64_t *out_each, struct ft_err *err)
{
    if (by > 0 && n % by == 0) {
        *out_each = n / by;
        return FT_OK;
    }
    struct ft_buf works = {0};
    ft_divisors(n, 1024, &works);
    ft_fail(err, FT_CONFIG, "%s do not divide by %d; works: %s", what, by, ft_buf_str(&works));
    ft_buf_fini(&works);
    return FT_CONFIG;
}

int64_t ft_vocab_padded(int64_t vocab, int tp, int multiple)
{
    int64_t step = (int64_t)multiple * tp;
    return (vocab + step - 1) / step * step;
}

struct ft_range ft_vocab_rows(int64_t vocab, int tp, int multiple, int tp_rank)
{
    return ft_shard(ft_vocab_padded(vocab, tp, multiple), tp, tp_rank);
}

bool ft_heads_fit(int64_t heads, int64_t kv_heads, int64_t tp)
{
    return tp > 0 && heads % tp == 0 && (kv_heads % tp == 0 || tp % kv_heads == 0);
}

void ft_heads_works(int64_t heads, int64_t kv_heads, struct ft_buf *out)
{
    const char *between = "";
    for (int64_t t = 1; t <= heads; t++) {
        if (!ft_heads_fit(heads, kv_heads, t)) continue;
        ft_buf_addf(out, "%s%lld", between, (long long)t);
        between = ",";
    }
}

/* Each problem with what would work for it alone; where kv heads narrow that down, with them too. */
enum ft_code ft_heads_check(int64_t heads, int64_t kv_heads, int tp, struct ft_err *err)
{
    if (ft_heads_fit(heads, kv_heads, tp)) return FT_OK;
    struct ft_buf text = {0}, all = {0}, both = {0};
    const bool kv_fit = tp <= 0 || kv_heads == heads || kv_heads % tp == 0 || tp % kv_heads == 0;
    ft_divisors(heads, heads, &all);
    ft_heads_works(heads, kv_heads, &both);
    if (tp <= 0 || heads % tp) {
        ft_buf_addf(&text, "%lld heads do not divide by %d; works: %s", (long long)heads, tp, ft_buf_str(&all));
        if (kv_fit && strcmp(ft_buf_str(&all), ft_buf_str(&both)) != 0)
            ft_buf_addf(&text, " (with %lld kv heads: %s)", (long long)kv_heads, ft_buf_str(&both));
    }
    if (!kv_fit)
        ft_buf_addf(&text, "%s%lld kv heads and tp %d: neither divides the other; works (by heads and kv heads): %s",
                    text.n ? "; " : "", (long long)kv_heads, tp, ft_buf_str(&both));
    ft_fail(err, FT_CONFIG, "%s", ft_buf_str(&text));
    ft_buf_fini(&text);
    ft_buf_fini(&all);
    ft_buf_fini(&both);
    return FT_CONFIG;
}

struct ft_heads ft_heads_of(int64_t heads, int64_t kv_heads, int tp, int tp_rank)
{
    struct ft_heads h = {.q = ft_shard(heads, tp, tp_rank)};
    if (kv_heads % tp == 0) {
        h.kv = ft_shard(kv_heads, tp, tp_rank);
    } else {
        h.kv.first = tp_rank * kv_heads / tp;
        h.kv.end = h.kv.first + 1;
    }
    return h;
}

enum ft_code ft_layers_check(int64_t layers, int pp, int vpp, struct ft_err *err)
{
    if (pp > 0 && vpp > 0 && layers % ((int64_t)pp * vpp) == 0) return FT_OK;
    struct ft_buf works = {0};
    if (vpp == 1) {
        ft_divisors(layers, layers, &works);
        ft_fail(err, FT_CONFIG, "%lld layers over %d stages; works: %s", (long long)layers, pp, ft_buf_str(&works));
    } else {
        if (pp > 0 && layers % pp == 0) ft_divisors(layers / pp, layers, &works);
        ft_fail(err, FT_CONFIG, "%lld layers over %d stages of %d chunks; works with %d stages: %s", (long long)layers, pp, vpp, pp,
                works.n ? works.data : "no number of chunks");
    }
    ft_buf_fini(&works);
    return FT_CONFIG;
}

struct ft_range ft_layers_of(int64_t layers, int pp, int vpp, int stage, int chunk)
{
    return ft_shard(layers, pp * vpp, chunk * pp + stage);
}
