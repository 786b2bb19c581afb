/* Dropout whose mask is a pure function of (key, row, element): Philox4x32-10, four elements a draw. */
#include "base/bits/philox.h"
#include "kernels/cpu/ops.h"

enum { DRAWS = 16 }; /* counters at once: the rounds' loops run over them in vectors */

/* Keep-factors of elements [4q, 4q + 4*DRAWS). */
static void drop_many(const struct drop_site *s, uint64_t row, uint64_t q, float *out)
{
    uint32_t c0[DRAWS], c1[DRAWS], c2[DRAWS], c3[DRAWS], k0 = (uint32_t)s->key, k1 = (uint32_t)(s->key >> 32);
    for (uint64_t i = 0; i < DRAWS; i++) {
        c0[i] = (uint32_t)(q + i);
        c1[i] = (uint32_t)((q + i) >> 32);
        c2[i] = (uint32_t)row;
        c3[i] = (uint32_t)(row >> 32);
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < DRAWS; i++) {
            const uint64_t p0 = (uint64_t)0xD2511F53u * c0[i], p1 = (uint64_t)0xCD9E8D57u * c2[i];
            const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c1[i] = (uint32_t)p1;
            c3[i] = (uint32_t)p0;
            c0[i] = n0;
            c2[i] = n2;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    const uint32_t threshold = (uint32_t)s->threshold;
    const float scale = s->scale;
    for (int i = 0; i < DRAWS; i++) {
        out[4 * i] = c0[i] < threshold ? 0.0f : scale;
        out[4 * i + 1] = c1[i] < threshold ? 0.0f : scale;
        out[4 * i + 2] = c2[i] < threshold ? 0.0f : scale;
        out[4 * i + 3] = c3[i] < threshold ? 0.0f : scale;
    }
}

void ISA(drop_row)(const struct drop_site *s, uint64_t row, uint64_t e0, int64_t n, float *out)
{
    for (int64_t j = 0; j < n;) {
        const uint64_t e = e0 + (uint64_t)j, q = e >> 2;
        if (!(e & 3) && n - j >= 4 * DRAWS) {
            drop_many(s, row, q, out + j);
            j += 4 * DRAWS;
            continue;
        }
        const struct ft_philox_word4 w = ft_philox4x32((uint32_t)s->key, (uint32_t)(s->key >> 32), (uint32_t)q, (uint32_t)(q >> 32),
                                                       (uint32_t)row, (uint32_t)(row >> 32));
        for (unsigned i = e & 3; i < 4 && j < n; i++, j++) out[j] = w.v[i] < s->threshold ? 0.0f : s->scale;
    }
}

struct job {
    enum ft_dtype t;
    struct drop_site site;
    const struct ft_segments *s;
    int64_t C, C_logical, c0, per;
    const void *y;
    void *out;
};

static void one_token(const struct job *w, int64_t segment, int64_t i, float *keep, float *tmp)
{
    const struct ft_segments *s = w->s;
    const int64_t token = (s->row_offset ? s->row_offset[segment] : 0) + i - s->cu[segment], C = w->C;
    ISA(drop_row)(&w->site, (uint64_t)s->rows[segment], (uint64_t)(token * w->C_logical + w->c0), C, keep);
    const float *y = row_in(w->t, w->y, i * C, C, tmp);
    float *out = row_out(w->t, w->out, i * C, tmp);
    IVDEP
    for (int64_t c = 0; c < C; c++) out[c] = y[c] * keep[c];
    row_end(w->t, w->out, i * C, C, out);
}

/* A piece is a run of tokens, whatever their segments. */
static void piece_of(void *arg, int64_t piece, void *scratch)
{
    const struct job *w = arg;
    const int64_t first = piece * w->per, end = min64(w->s->cu[w->s->n], first + w->per);
    int64_t segment = 0;
    for (int64_t i = first; i < end; i++) {
        while (i >= w->s->cu[segment + 1]) segment++;
        one_token(w, segment, i, scratch, (float *)scratch + w->C);
    }
}

void ISA(dropout)(struct ft_kctx *k, enum ft_dtype t, const struct ft_dropout *d, const struct ft_segments *s, int64_t C,
                  int64_t C_logical, int64_t c0, const void *y, void *out)
{
    struct job w = {t, drop_site(d), s, C, C_logical, c0, max64(1, rows_per_piece(C) / 4), y, out};
    ft_cpu_parallel(k, ceil_div(s->cu[s->n], w.per), 2 * C * (int64_t)sizeof(float), piece_of, &w);
}
