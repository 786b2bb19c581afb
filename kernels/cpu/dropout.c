/* Dropout whose mask is a pure function of (key, row, element): Philox4x32-10, four elements a draw. */
#include "base/bits/philox.h"
#include "kernels/cpu/ops.h"

void ISA(drop_row)(const struct drop_site *s, uint64_t row, uint64_t e0, int64_t n, float *out)
{
    for (int64_t j = 0; j < n;) {
        const uint64_t e = e0 + (uint64_t)j, q = e >> 2;
        const struct ft_philox_word4 w = ft_philox4x32((uint32_t)s->key, (uint32_t)(s->key >> 32), (uint32_t)q, (uint32_t)(q >> 32),
                                                       (uint32_t)row, (uint32_t)(row >> 32));
        for (unsigned i = e & 3; i < 4 && j < n; i++, j++) out[j] = w.v[i] < s->threshold ? 0.0f : s->scale;
    }
}

struct job {
    enum ft_dtype t;
    struct drop_site site;
    const struct ft_segments *s;
    int64_t C, C_logical, c0;
    const void *y;
    void *out;
};

static void piece_of(void *arg, int64_t segment, void *scratch)
{
    const struct job *w = arg;
    const struct ft_segments *s = w->s;
    float *keep = scratch, *tmp = keep + w->C;
    const int64_t first = s->row_offset ? s->row_offset[segment] : 0;
    for (int64_t i = s->cu[segment]; i < s->cu[segment + 1]; i++) {
        const int64_t token = first + i - s->cu[segment];
        ISA(drop_row)(&w->site, (uint64_t)s->rows[segment], (uint64_t)(token * w->C_logical + w->c0), w->C, keep);
        const float *y = row_in(w->t, w->y, i * w->C, w->C, tmp);
        float *out = row_out(w->t, w->out, i * w->C, tmp);
        const int64_t C = w->C;
        IVDEP
        for (int64_t c = 0; c < C; c++) out[c] = y[c] * keep[c];
        row_end(w->t, w->out, i * w->C, w->C, out);
    }
}

void ISA(dropout)(struct ft_kctx *k, enum ft_dtype t, const struct ft_dropout *d, const struct ft_segments *s, int64_t C,
                  int64_t C_logical, int64_t c0, const void *y, void *out)
{
    struct job w = {t, drop_site(d), s, C, C_logical, c0, y, out};
    ft_cpu_parallel(k, s->n, 2 * C * (int64_t)sizeof(float), piece_of, &w);
}
