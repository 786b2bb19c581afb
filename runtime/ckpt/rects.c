#include "runtime/ckpt/rects.h"

#include "base/bits/dtype.h"
#include "base/hash.h"

enum { CHUNK = 4096 };

/* Local rows [r0,r1), columns [c0,c1) of the shard, moved to the logical tensor and clipped. */
static int add(const struct ft_param *p, int64_t r0, int64_t r1, int64_t c0, int64_t c1, struct ft_rect *out)
{
    struct ft_rect r = {.at = {r0 + p->origin[0], c0 + p->origin[1]}, .n = {r1 - r0, c1 - c0}, .from = r0 * p->local[1] + c0};
    for (int d = 0; d < 2; d++)
        if (r.at[d] + r.n[d] > p->dims[d]) r.n[d] = p->dims[d] - r.at[d];
    if (r.n[0] <= 0 || r.n[1] <= 0) return 0;
    *out = r;
    return 1;
}

int ft_rects(const struct ft_param *p, int64_t a, int64_t b, struct ft_rect out[3])
{
    const int64_t C = p->local[1];
    int n = 0;
    if (b <= a || C <= 0) return 0;
    int64_t row = a / C;
    if (a % C) {
        const int64_t end = b < (row + 1) * C ? b : (row + 1) * C;
        n += add(p, row, row + 1, a % C, end - row * C, &out[n]);
        row++;
    }
    if (b / C > row) {
        n += add(p, row, b / C, 0, C, &out[n]);
        row = b / C;
    }
    if (b % C && row * C < b) n += add(p, row, row + 1, 0, b % C, &out[n]);
    return n;
}

bool ft_rect_meet(const struct ft_rect *a, const struct ft_rect *b, struct ft_rect *out)
{
    *out = (struct ft_rect){.from = 0};
    for (int d = 0; d < 2; d++) {
        const int64_t lo = a->at[d] > b->at[d] ? a->at[d] : b->at[d];
        const int64_t ea = a->at[d] + a->n[d], eb = b->at[d] + b->n[d], hi = ea < eb ? ea : eb;
        if (hi <= lo) return false;
        out->at[d] = lo;
        out->n[d] = hi - lo;
    }
    return true;
}

static bool is_finite(float x) { return (ft_f32_bits(x) & 0x7F800000u) != 0x7F800000u; }

/* Full chunks have a fixed length, so that the compiler makes vectors of these two loops. */
static uint64_t count_bad(const float *x, int64_t n)
{
    uint32_t bad = 0;
    if (n == CHUNK)
        for (int64_t i = 0; i < CHUNK; i++) bad += (ft_f32_bits(x[i]) & 0x7F800000u) == 0x7F800000u;
    else
        for (int64_t i = 0; i < n; i++) bad += !is_finite(x[i]);
    return bad;
}

static void round_all(uint16_t *restrict out, const float *restrict x, int64_t n)
{
    if (n == CHUNK)
        for (int64_t i = 0; i < CHUNK; i++) out[i] = ft_f32_to_bf16(x[i]);
    else
        for (int64_t i = 0; i < n; i++) out[i] = ft_f32_to_bf16(x[i]);
}

/* A run of n consecutive elements of the logical tensor from row-major index `first` on; `done` came before it in the rectangle. */
static void sum_run(struct ft_rect_sums *s, const float *x, int64_t n, uint64_t first, uint64_t done, bool bf16)
{
    uint16_t half[CHUNK];
    for (int64_t at = 0; at < n; at += CHUNK) {
        const int64_t k = n - at < CHUNK ? n - at : CHUNK;
        const uint64_t bad = count_bad(x + at, k);
        for (int64_t i = 0; bad && !s->nonfinite && i < k; i++)
            if (!is_finite(x[at + i])) {
                s->first_nonfinite = done + (uint64_t)(at + i);
                break;
            }
        s->nonfinite += bad;
        s->hash += ft_logical_hash(x + at, (size_t)k, 4, first + (uint64_t)at);
        if (!bf16) continue;
        round_all(half, x + at, k);
        s->hash_bf16 += ft_logical_hash(half, (size_t)k, 2, first + (uint64_t)at);
    }
}

struct ft_rect_sums ft_rect_sums(const struct ft_rect *r, int64_t columns, const float *x, bool bf16)
{
    struct ft_rect_sums s = {0};
    if (r->n[1] == columns) {
        sum_run(&s, x, ft_rect_count(r), (uint64_t)(r->at[0] * columns), 0, bf16);
        return s;
    }
    for (int64_t i = 0; i < r->n[0]; i++)
        sum_run(&s, x + i * r->n[1], r->n[1], (uint64_t)((r->at[0] + i) * columns + r->at[1]), (uint64_t)(i * r->n[1]), bf16);
    return s;
}
