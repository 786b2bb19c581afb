/* Embedding rows: one row copy a token, memory-bound. Backward: each distinct id belongs to one piece, tokens ascending. */
#include "kernels/cpu/ops.h"

struct fwd {
    enum ft_dtype t;
    int64_t T, h, per, first_row, n_rows;
    const int32_t *ids;
    const void *E;
    void *x;
};

static void fwd_piece(void *arg, int64_t piece, void *scratch)
{
    (void)scratch;
    const struct fwd *w = arg;
    const size_t bytes = (size_t)w->h * ft_dtype_bytes(w->t);
    for (int64_t i = piece * w->per; i < min64(w->T, (piece + 1) * w->per); i++) {
        const int64_t row = w->ids[i] - w->first_row;
        char *out = (char *)w->x + (size_t)i * bytes;
        if (row >= 0 && row < w->n_rows) memcpy(out, (const char *)w->E + (size_t)row * bytes, bytes);
        else memset(out, 0, bytes);
    }
}

void ISA(embed_fwd)(struct ft_kctx *k, enum ft_dtype t, int64_t T, int64_t h, const int32_t *ids, int64_t first_row, int64_t n_rows,
                    const void *E, void *x)
{
    struct fwd w = {t, T, h, rows_per_piece(h), first_row, n_rows, ids, E, x};
    ft_cpu_parallel(k, ceil_div(T, w.per), 0, fwd_piece, &w);
}

struct bwd {
    enum ft_dtype t;
    int64_t h, per;
    const struct ft_lists *l;
    const void *dx;
    float *dE;
};

static void bwd_piece(void *arg, int64_t piece, void *scratch)
{
    const struct bwd *w = arg;
    for (int64_t r = piece * w->per; r < min64(w->l->n, (piece + 1) * w->per); r++) {
        float *d = w->dE + w->l->row[r] * w->h;
        for (int32_t j = w->l->start[r]; j < w->l->start[r + 1]; j++) {
            const float *g = row_in(w->t, w->dx, w->l->token[j] * w->h, w->h, scratch);
            add_rows_of(d, g, w->h, d);
        }
    }
}

void ISA(embed_bwd)(struct ft_kctx *k, enum ft_dtype t, int64_t h, const struct ft_lists *l, const void *dx, float *dE)
{
    struct bwd w = {t, h, max64(1, rows_per_piece(h) / 2), l, dx, dE};
    ft_cpu_parallel(k, ceil_div(l->n, w.per), h * (int64_t)sizeof(float), bwd_piece, &w);
}

struct add_job {
    enum ft_dtype t;
    int64_t T, h, per;
    const int32_t *index;
    const void *table;
    void *x;
};

static void add_piece(void *arg, int64_t piece, void *scratch)
{
    const struct add_job *w = arg;
    float *tmp = scratch, *tmp2 = tmp + w->h;
    for (int64_t i = piece * w->per; i < min64(w->T, (piece + 1) * w->per); i++) {
        const float *a = row_in(w->t, w->x, i * w->h, w->h, tmp), *b = row_in(w->t, w->table, w->index[i] * w->h, w->h, tmp2);
        float *y = row_out(w->t, w->x, i * w->h, tmp);
        add_rows_of(a, b, w->h, y);
        row_end(w->t, w->x, i * w->h, w->h, y);
    }
}

void ISA(add_rows)(struct ft_kctx *k, enum ft_dtype t, int64_t T, int64_t h, const int32_t *index, const void *table, void *x)
{
    struct add_job w = {t, T, h, rows_per_piece(h), index, table, x};
    ft_cpu_parallel(k, ceil_div(T, w.per), 2 * h * (int64_t)sizeof(float), add_piece, &w);
}
