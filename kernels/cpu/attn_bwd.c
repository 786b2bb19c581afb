/* Causal attention, backward (FlashAttention-2, Dao 2023): probabilities again from LSE, delta = sum(dO * O). A piece is (segment,
 * query head): it owns dq of its head and a partial dk, dv of that head; partials are then summed over the query heads of a kv
 * head, ascending. */
#include "kernels/cpu/attn.h"

struct bwd {
    struct attn_job j;
    const void *out, *dout;
    const float *lse;
    void *dq, *dk, *dv;
    float *pk, *pv; /* (H, T, D) partials */
};

/* Scratch of one piece, floats. */
struct space {
    float *S, *P, *dQ, *keep, *delta, *qf, *kf, *vf, *of, *gf;
};
static struct space carve(float *p, int64_t D)
{
    struct space s;
    s.S = p;
    s.P = s.S + BQ * BK;
    s.dQ = s.P + BQ * BK;
    s.keep = s.dQ + BQ * D;
    s.delta = s.keep + BK;
    s.qf = s.delta + BQ;
    s.of = s.qf + BQ * D;
    s.gf = s.of + BQ * D;
    s.kf = s.gf + BQ * D;
    s.vf = s.kf + BK * D;
    return s;
}
static int64_t space_floats(int64_t D) { return 2 * BQ * BK + BK + BQ + 4 * BQ * D + 2 * BK * D; }

/* p = exp(s - lse) over [lo,hi), zeros elsewhere. */
static void probabilities(const float *s, float lse, int64_t lo, int64_t hi, int64_t n, float *p)
{
    memset(p, 0, (size_t)lo * sizeof *p);
    memset(p + hi, 0, (size_t)(n - hi) * sizeof *p);
    int64_t c = lo;
    for (; c + LANES <= hi; c += LANES) st(p + c, vexp(ld(s + c) - lse));
    if (c < hi) st_part(p + c, vexp(ld_part(s + c, hi - c, -INFINITY) - lse), hi - c);
}

/* d (n): gradient of the (dropped) probabilities in, of the scores out; p becomes the dropped probabilities. */
static void score_grad(float *p, float *d, const float *keep, float delta, float scale, int64_t n)
{
    int64_t c = 0;
    for (; c + LANES <= n; c += LANES) {
        const vf k = keep ? ld(keep + c) : all(1), pc = ld(p + c);
        st(d + c, pc * (ld(d + c) * k - delta) * scale);
        st(p + c, pc * k);
    }
    for (; c < n; c++) {
        const float k = keep ? keep[c] : 1;
        d[c] = p[c] * (d[c] * k - delta) * scale;
        p[c] *= k;
    }
}

struct operands {
    const float *q, *o, *g; /* query rows: q, out, dout */
    int64_t ld_q, ld_o, ld_g;
    int64_t segment, head, t0, i0, rows;
};

static void key_block(const struct bwd *b, const struct operands *x, const struct space *s, int64_t j0, int64_t n, bool begun)
{
    const struct attn_job *w = &b->j;
    const struct ft_attn *a = w->a;
    const int64_t D = a->D, kv = x->head / w->group, at = (x->head * a->T + x->t0 + j0) * D;
    int64_t ld_k, ld_v;
    const float *k = attn_rows(w->t, w->key, a->ld_kv, x->t0 + j0, n, kv, D, s->kf, &ld_k);
    const float *v = attn_rows(w->t, w->v, a->ld_kv, x->t0 + j0, n, kv, D, s->vf, &ld_v);
    ISA(sgemm)(w->k, 0, 1, x->rows, n, D, a->scale, x->q, x->ld_q, k, ld_k, 0, s->P, BK);
    ISA(sgemm)(w->k, 0, 1, x->rows, n, D, 1, x->g, x->ld_g, v, ld_v, 0, s->S, BK);
    for (int64_t r = 0; r < x->rows; r++) {
        float *p = s->P + r * BK, *d = s->S + r * BK;
        int64_t lo, hi;
        attn_visible(a, x->i0 + r, j0, n, &lo, &hi);
        probabilities(p, b->lse[(x->t0 + x->i0 + r) * a->H + x->head], lo, hi, n, p);
        if (w->drops) { /* beyond the visible keys p is 0: any finite factor will do */
            attn_drop(w, x->segment, x->head, x->i0 + r, j0, hi, s->keep);
            memset(s->keep + hi, 0, (size_t)(n - hi) * sizeof *s->keep);
        }
        score_grad(p, d, w->drops ? s->keep : NULL, s->delta[r], a->scale, n);
    }
    ISA(sgemm)(w->k, 1, 0, n, D, x->rows, 1, s->P, BK, x->g, x->ld_g, 1, b->pv + at, D);
    ISA(sgemm)(w->k, 0, 0, x->rows, D, n, 1, s->S, BK, k, ld_k, begun, s->dQ, D);
    ISA(sgemm)(w->k, 1, 0, n, D, x->rows, 1, s->S, BK, x->q, x->ld_q, 1, b->pk + at, D);
}

static void bwd_piece(void *arg, int64_t piece, void *scratch)
{
    const struct bwd *b = arg;
    const struct attn_job *w = &b->j;
    const struct ft_attn *a = w->a;
    const int64_t D = a->D;
    struct operands x = {.segment = piece / a->H, .head = piece % a->H};
    x.t0 = a->seg.cu[x.segment];
    const int64_t len = a->seg.cu[x.segment + 1] - x.t0;
    const struct space s = carve(scratch, D);
    memset(b->pk + (x.head * a->T + x.t0) * D, 0, (size_t)(len * D) * sizeof(float));
    memset(b->pv + (x.head * a->T + x.t0) * D, 0, (size_t)(len * D) * sizeof(float));
    for (x.i0 = 0; x.i0 < len; x.i0 += BQ) {
        x.rows = min64(BQ, len - x.i0);
        x.q = attn_rows(w->t, w->q, a->ld_q, x.t0 + x.i0, x.rows, x.head, D, s.qf, &x.ld_q);
        x.o = attn_rows(w->t, b->out, a->ld_out, x.t0 + x.i0, x.rows, x.head, D, s.of, &x.ld_o);
        x.g = attn_rows(w->t, b->dout, a->ld_out, x.t0 + x.i0, x.rows, x.head, D, s.gf, &x.ld_g);
        for (int64_t r = 0; r < x.rows; r++) s.delta[r] = dot_of(x.o + r * x.ld_o, x.g + r * x.ld_g, D);
        const int64_t first = attn_first_key(a, x.i0);
        for (int64_t j0 = first; j0 < x.i0 + x.rows; j0 += BK) key_block(b, &x, &s, j0, min64(BK, x.i0 + x.rows - j0), j0 > first);
        for (int64_t r = 0; r < x.rows; r++) {
            const int64_t at = (x.t0 + x.i0 + r) * a->ld_q + x.head * D;
            if (w->t == FT_F32) memcpy((float *)b->dq + at, s.dQ + r * D, (size_t)D * sizeof(float));
            else narrow(s.dQ + r * D, D, (uint16_t *)b->dq + at);
        }
    }
}

enum { SUM_ROWS = 32 };

/* dk or dv of one token and kv head: its query heads' partials, ascending. */
static void sum_heads(const struct bwd *b, const float *partial, int64_t i, int64_t kv, void *out, float *tmp)
{
    const struct ft_attn *a = b->j.a;
    const int64_t at = i * a->ld_kv + kv * a->D;
    const bool empty = i >= a->seg.cu[a->seg.n];
    float *y = row_out(b->j.t, out, at, tmp);
    memset(y, 0, (size_t)a->D * sizeof *y);
    for (int64_t g = 0; g < b->j.group && !empty; g++) {
        const float *p = partial + ((kv * b->j.group + g) * a->T + i) * a->D;
        add_rows_of(y, p, a->D, y);
    }
    row_end(b->j.t, out, at, a->D, y);
}

static void sum_piece(void *arg, int64_t piece, void *scratch)
{
    const struct bwd *b = arg;
    const struct ft_attn *a = b->j.a;
    for (int64_t i = piece * SUM_ROWS; i < min64(a->T, (piece + 1) * SUM_ROWS); i++) {
        for (int64_t kv = 0; kv < a->K; kv++) {
            sum_heads(b, b->pk, i, kv, b->dk, scratch);
            sum_heads(b, b->pv, i, kv, b->dv, scratch);
        }
        const size_t size = ft_dtype_bytes(b->j.t);
        if (i >= a->seg.cu[a->seg.n]) memset((char *)b->dq + (size_t)(i * a->ld_q) * size, 0, (size_t)(a->H * a->D) * size);
    }
}

void ISA(attn_bwd)(struct ft_kctx *k, enum ft_dtype t, const struct ft_attn *a, const void *q, const void *key, const void *v,
                   const void *out, const float *lse, const void *dout, void *dq, void *dk, void *dv)
{
    struct bwd b = {.j = attn_job(k, t, a, q, key, v), .out = out, .dout = dout, .lse = lse, .dq = dq, .dk = dk, .dv = dv};
    b.pk = ft_cpu_shared(k, 2 * a->H * a->T * a->D * (int64_t)sizeof(float));
    b.pv = b.pk + a->H * a->T * a->D;
    ft_cpu_parallel(k, a->seg.n * a->H, space_floats(a->D) * (int64_t)sizeof(float), bwd_piece, &b);
    ft_cpu_parallel(k, ceil_div(a->T, SUM_ROWS), a->D * (int64_t)sizeof(float), sum_piece, &b);
}
