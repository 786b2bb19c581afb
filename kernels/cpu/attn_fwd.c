/* Causal attention, forward: FlashAttention's online softmax (Dao et al. 2022) over blocks; key blocks above the diagonal are
 * never touched. A piece is (query block, head); compute-bound through products of blocks. */
#include "kernels/cpu/attn.h"

struct fwd {
    struct attn_job j;
    void *out;
    float *lse;
    int64_t n_blocks;
    const struct block {
        int64_t segment, i0;
    } * blocks;
};

/* Softmax numerators of one row of scores s over [lo,hi), zeros elsewhere; *m and *l are updated; returns the factor for what was summed before. */
static float online(float *s, int64_t lo, int64_t hi, int64_t n, float *m, float *l)
{
    memset(s, 0, (size_t)lo * sizeof *s);
    memset(s + hi, 0, (size_t)(n - hi) * sizeof *s);
    if (lo >= hi) return 1.0f;
    vf top = all(-INFINITY), sum = {0};
    int64_t c = lo;
    for (; c + LANES <= hi; c += LANES) top = vmax(ld(s + c), top);
    if (c < hi) top = vmax(ld_part(s + c, hi - c, -INFINITY), top);
    const float block_max = hmax(top), new_m = block_max > *m ? block_max : *m;
    for (c = lo; c + LANES <= hi; c += LANES) {
        const vf p = vexp(ld(s + c) - new_m);
        st(s + c, p);
        sum += p;
    }
    if (c < hi) {
        const vf p = vexp(ld_part(s + c, hi - c, -INFINITY) - new_m);
        st_part(s + c, p, hi - c);
        sum += p;
    }
    const float factor = *m > -INFINITY ? exp1(*m - new_m) : 0.0f;
    *l = *l * factor + hsum(sum);
    *m = new_m;
    return factor;
}

static void one_block(const struct fwd *f, int64_t segment, int64_t i0, int64_t rows, int64_t head, float *scratch)
{
    const struct attn_job *w = &f->j;
    const struct ft_attn *a = w->a;
    const int64_t D = a->D, t0 = a->seg.cu[segment], kv = head / w->group;
    float *S = scratch, *O = S + BQ * BK, *m = O + BQ * D, *l = m + BQ, *keep = l + BQ, *qf = keep + BK, *kf = qf + BQ * D,
          *vf_ = kf + BK * D;
    int64_t ld_q, ld_k, ld_v;
    const float *q = attn_rows(w->t, w->q, a->ld_q, t0 + i0, rows, head, D, qf, &ld_q);
    for (int64_t r = 0; r < rows; r++) {
        m[r] = -INFINITY;
        l[r] = 0;
    }
    const int64_t first = attn_first_key(a, i0);
    for (int64_t j0 = first; j0 < i0 + rows; j0 += BK) {
        const int64_t n = min64(BK, i0 + rows - j0);
        const float *k = attn_rows(w->t, w->key, a->ld_kv, t0 + j0, n, kv, D, kf, &ld_k);
        const float *v = attn_rows(w->t, w->v, a->ld_kv, t0 + j0, n, kv, D, vf_, &ld_v);
        ISA(sgemm)(w->k, 0, 1, rows, n, D, a->scale, q, ld_q, k, ld_k, 0, S, BK);
        for (int64_t r = 0; r < rows; r++) {
            int64_t lo, hi;
            attn_visible(a, i0 + r, j0, n, &lo, &hi);
            const float factor = online(S + r * BK, lo, hi, n, &m[r], &l[r]);
            if (j0 > first)
                for (int64_t c = 0; c < D; c++) O[r * D + c] *= factor;
            if (!w->drops) continue;
            attn_drop(w, segment, head, i0 + r, j0, hi, keep);
            for (int64_t c = lo; c < hi; c++) S[r * BK + c] *= keep[c];
        }
        ISA(sgemm)(w->k, 0, 0, rows, D, n, 1, S, BK, v, ld_v, j0 > first, O, D);
    }
    for (int64_t r = 0; r < rows; r++) {
        const int64_t at = (t0 + i0 + r) * a->ld_out + head * D;
        const float inv = 1.0f / l[r];
        float *y = row_out(w->t, f->out, at, O + r * D);
        for (int64_t c = 0; c < D; c++) y[c] = O[r * D + c] * inv;
        row_end(w->t, f->out, at, D, y);
        f->lse[(t0 + i0 + r) * a->H + head] = m[r] + logf(l[r]);
    }
}

static void fwd_piece(void *arg, int64_t piece, void *scratch)
{
    const struct fwd *f = arg;
    const struct ft_attn *a = f->j.a;
    const struct block *b = &f->blocks[f->n_blocks - 1 - piece / a->H]; /* long rows first */
    const int64_t len = a->seg.cu[b->segment + 1] - a->seg.cu[b->segment];
    one_block(f, b->segment, b->i0, min64(BQ, len - b->i0), piece % a->H, scratch);
}

/* Rows behind the last segment belong to none: they see nothing. */
static void empty_rows(const struct fwd *f)
{
    const struct ft_attn *a = f->j.a;
    const size_t size = ft_dtype_bytes(f->j.t);
    for (int64_t i = a->seg.cu[a->seg.n]; i < a->T; i++) {
        memset((char *)f->out + (size_t)(i * a->ld_out) * size, 0, (size_t)(a->H * a->D) * size);
        for (int64_t head = 0; head < a->H; head++) f->lse[i * a->H + head] = -INFINITY;
    }
}

void ISA(attn_fwd)(struct ft_kctx *k, enum ft_dtype t, const struct ft_attn *a, const void *q, const void *key, const void *v,
                   void *out, float *lse)
{
    struct fwd f = {.j = attn_job(k, t, a, q, key, v), .out = out, .lse = lse};
    for (int64_t s = 0; s < a->seg.n; s++) f.n_blocks += ceil_div(a->seg.cu[s + 1] - a->seg.cu[s], BQ);
    struct block *blocks = ft_cpu_shared(k, (f.n_blocks + 1) * (int64_t)sizeof *blocks);
    int64_t n = 0;
    for (int64_t s = 0; s < a->seg.n; s++)
        for (int64_t i0 = 0; i0 < a->seg.cu[s + 1] - a->seg.cu[s]; i0 += BQ) blocks[n++] = (struct block){s, i0};
    f.blocks = blocks;
    const int64_t floats = BQ * BK + 2 * BQ + BK + 2 * (BQ + BK) * a->D;
    ft_cpu_parallel(k, f.n_blocks * a->H, floats * (int64_t)sizeof(float), fwd_piece, &f);
    empty_rows(&f);
}
