#include "runtime/data/dataset.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/data/loader.h"
#include "runtime/data/order.h"
#include "runtime/data/pack.h"
#include "runtime/data/prepared.h"

/* A row put together when it is asked for; the last FT_ROWS_ALIVE of them are kept. */
struct block {
    int32_t *ids, *labels, *cu;
    size_t ids_cap, labels_cap, cu_cap;
    int64_t row; /* + 1; 0: empty */
    int64_t n_tokens, n_trained;
};

struct ft_dataset {
    struct ft_loaded l;
    int32_t *lengths;      /* (samples) */
    int32_t (*cu)[2];      /* (samples) cumulative lengths of a row of one sample */
    struct ft_packs packs; /* rows of the current order; without packing one sample each */
    struct block blocks[FT_ROWS_ALIVE];
    size_t next_block;
    pthread_mutex_t lock; /* blocks */
    uint64_t seed;
    int32_t row; /* tokens */
    bool shuffle, packing, by_file;
    double *weights; /* (n_files) how often a file is drawn per epoch; NULL: once each */
};

/* Every sample a row of its own, in this order. */
static struct ft_packs singles(const int64_t *order, int64_t n)
{
    struct ft_packs p = {.n = n, .n_packs = n};
    p.sample = ft_xcalloc((size_t)n + 1, sizeof *p.sample), p.start = ft_xcalloc((size_t)n + 2, sizeof *p.start);
    for (int64_t i = 0; i < n; i++) p.sample[i] = order[i], p.start[i + 1] = i + 1;
    return p;
}

/* Rows of validation never mix files: each file is packed alone. */
static struct ft_packs pack_by_file(const struct ft_dataset *d, const int64_t *order, int64_t n)
{
    struct ft_packs all = {.n = n};
    all.sample = ft_xcalloc((size_t)n + 1, sizeof *all.sample), all.start = ft_xcalloc((size_t)n + 2, sizeof *all.start);
    for (int64_t at = 0, end; at < n; at = end) {
        const int32_t file = d->l.samples.v[order[at]].file;
        for (end = at; end < n && d->l.samples.v[order[end]].file == file;) end++;
        struct ft_packs p = ft_pack(d->lengths, order + at, end - at, d->row, FT_PACK_WINDOW);
        memcpy(all.sample + at, p.sample, (size_t)(end - at) * sizeof *all.sample);
        for (int64_t k = 0; k < p.n_packs; k++) all.start[++all.n_packs] = at + p.start[k + 1];
        ft_packs_fini(&p);
    }
    return all;
}

/* The samples of one pass: each once; with weights floor(w) times, and a seeded part of the rest once more. */
static int64_t *samples_of_epoch(const struct ft_dataset *d, int64_t epoch, int64_t *n)
{
    const struct ft_samples *s = &d->l.samples;
    int64_t total = 0, from = 0;
    double most = 1;
    for (size_t f = 0; d->weights && f < d->l.n_files; f++)
        if (d->weights[f] > most) most = d->weights[f];
    int64_t *list = ft_xcalloc(s->n * ((size_t)most + 1) + 1, sizeof *list);
    for (size_t i = 0; !d->weights && i < s->n; i++) list[total++] = (int64_t)i;
    for (size_t f = 0; d->weights && f < d->l.n_files; f++) { /* files stand one after another */
        int64_t k = 0;
        while (from + k < (int64_t)s->n && s->v[from + k].file == (int32_t)f) k++;
        const int64_t whole = (int64_t)d->weights[f], part = (int64_t)((d->weights[f] - (double)whole) * (double)k + 0.5);
        for (int64_t pass = 0; pass < whole; pass++)
            for (int64_t i = 0; i < k; i++) list[total++] = from + i;
        int64_t *perm = ft_xcalloc((size_t)k + 1, sizeof *perm);
        ft_keyed_order(d->seed + f + 1, FT_SITE_SAMPLES, epoch < 0 ? 0 : epoch, k, perm);
        for (int64_t i = 0; i < part; i++) list[total++] = from + perm[i];
        free(perm);
        from += k;
    }
    *n = total;
    return list;
}

/* epoch < 0: file order, nothing shuffled. */
static struct ft_packs rows_of_epoch(const struct ft_dataset *d, int64_t epoch)
{
    int64_t n;
    int64_t *list = samples_of_epoch(d, epoch, &n);
    const bool shuffle = d->shuffle && epoch >= 0;
    int64_t *order = ft_xcalloc((size_t)n + 1, sizeof *order);
    ft_epoch_order(d->seed, epoch, shuffle, n, order);
    for (int64_t i = 0; i < n; i++) order[i] = list[order[i]];
    struct ft_packs p = !d->packing  ? singles(order, n)
                        : d->by_file ? pack_by_file(d, order, n)
                                     : ft_pack(d->lengths, order, n, d->row, FT_PACK_WINDOW);
    if (d->packing && shuffle) {
        ft_keyed_order(d->seed, FT_SITE_PACKS, epoch, p.n_packs, order);
        ft_packs_reorder(&p, order);
    }
    free(order);
    free(list);
    return p;
}

static void set_rows(struct ft_dataset *d, int64_t epoch)
{
    for (size_t i = 0; i < FT_ROWS_ALIVE; i++) d->blocks[i].row = 0;
    ft_packs_fini(&d->packs);
    d->packs = rows_of_epoch(d, epoch);
}

/* Other weights are other rows: a position among them means something else. Once each is what a job without weights says. */
static void add_weights(struct ft_dataset *d)
{
    bool once = true;
    for (size_t f = 0; d->weights && f < d->l.n_files; f++) once = once && d->weights[f] == 1;
    if (once) return;
    const struct ft_hash128 h = ft_hash_chain((struct ft_hash128){d->l.facts.fingerprint_hi, d->l.facts.fingerprint_lo}, d->weights,
                                              d->l.n_files * sizeof *d->weights);
    d->l.facts.fingerprint_hi = h.hi, d->l.facts.fingerprint_lo = h.lo;
}

enum ft_code ft_dataset_open(const struct ft_dataset_options *o, enum ft_split split, struct ft_faults *faults,
                             struct ft_dataset **out, struct ft_err *err)
{
    const struct ft_load_how how = {.o = o, .split = split, .faults = faults, .check_overlap = true};
    struct ft_loaded l;
    bool named;
    const char *cache = o->cache_dir ? o->cache_dir : o->fields->cache;
    const enum ft_code rc = cache ? ft_prepared_load(&how, cache, &named, &l, NULL, err) : ft_load(&how, &named, &l, err);
    if (rc != FT_OK) return rc;
    *out = NULL;
    if (!named) return FT_OK;
    struct ft_dataset *d = ft_xcalloc(1, sizeof *d);
    d->l = l;
    const struct ft_hash128 h = ft_hash_chain((struct ft_hash128){l.facts.fingerprint_hi, l.facts.fingerprint_lo},
                                              &o->fields->packing, sizeof o->fields->packing);
    d->l.facts.fingerprint_hi = h.hi, d->l.facts.fingerprint_lo = h.lo;
    d->seed = o->seed, d->shuffle = o->fields->shuffle && split == FT_SPLIT_TRAIN, d->by_file = split != FT_SPLIT_TRAIN;
    d->packing = o->fields->packing != FT_PACKING_NO, d->row = (int32_t)o->seq_len;
    d->lengths = ft_xcalloc(l.samples.n + 1, sizeof *d->lengths);
    d->cu = ft_xcalloc(l.samples.n + 1, sizeof *d->cu);
    for (size_t i = 0; i < l.samples.n; i++) d->lengths[i] = d->cu[i][1] = l.samples.v[i].n;
    pthread_mutex_init(&d->lock, NULL);
    enum ft_code weighed = split == FT_SPLIT_TRAIN ? ft_data_weights(o->fields, d->l.n_files, &d->weights, err) : FT_OK;
    if (weighed == FT_OK) {
        add_weights(d);
        set_rows(d, -1);
        d->l.facts.rows = d->packs.n_packs;
        if (d->weights && !d->packs.n_packs) weighed = ft_fail(err, FT_CONFIG, "[data] weights leave no row of train");
    }
    if (weighed != FT_OK) {
        ft_dataset_close(d);
        return weighed;
    }
    *out = d;
    return FT_OK;
}

void ft_dataset_close(struct ft_dataset *d)
{
    if (!d) return;
    for (size_t i = 0; i < FT_ROWS_ALIVE; i++) {
        free(d->blocks[i].ids);
        free(d->blocks[i].labels);
        free(d->blocks[i].cu);
    }
    ft_packs_fini(&d->packs);
    ft_loaded_fini(&d->l);
    pthread_mutex_destroy(&d->lock);
    free(d->lengths);
    free(d->weights);
    free(d->cu);
    free(d);
}

void ft_dataset_epoch(struct ft_dataset *d, int64_t epoch) { set_rows(d, epoch); }

int64_t ft_dataset_rows_of(const struct ft_dataset *d, int64_t epoch)
{
    if (!d->packing && !d->weights) return (int64_t)d->l.samples.n;
    struct ft_packs p = rows_of_epoch(d, epoch);
    const int64_t n = p.n_packs;
    ft_packs_fini(&p);
    return n;
}

int64_t ft_dataset_n_rows(const struct ft_dataset *d) { return d->packs.n_packs; }

/* The samples of row i one after another. */
static void build(const struct ft_dataset *d, int64_t i, struct block *b)
{
    const struct ft_samples *s = &d->l.samples;
    const int64_t from = d->packs.start[i], n = d->packs.start[i + 1] - from;
    ft_grow(&b->cu, &b->cu_cap, (size_t)n + 1, sizeof *b->cu);
    b->row = i + 1, b->n_trained = 0, b->cu[0] = 0;
    for (int64_t k = 0; k < n; k++) b->cu[k + 1] = b->cu[k] + s->v[d->packs.sample[from + k]].n;
    b->n_tokens = b->cu[n];
    ft_grow(&b->ids, &b->ids_cap, (size_t)b->n_tokens, sizeof *b->ids);
    ft_grow(&b->labels, &b->labels_cap, (size_t)b->n_tokens, sizeof *b->labels);
    for (int64_t k = 0; k < n; k++) {
        ft_samples_read(s, (size_t)d->packs.sample[from + k], b->ids + b->cu[k], b->labels + b->cu[k]);
        b->n_trained += s->v[d->packs.sample[from + k]].trained;
    }
}

static struct ft_row built_row(struct ft_dataset *d, int64_t i)
{
    struct block *b = NULL;
    pthread_mutex_lock(&d->lock);
    for (size_t k = 0; k < FT_ROWS_ALIVE && !b; k++)
        if (d->blocks[k].row == i + 1) b = &d->blocks[k];
    if (!b) {
        b = &d->blocks[d->next_block++ % FT_ROWS_ALIVE];
        build(d, i, b);
    }
    const struct ft_row r = {.n_tokens = b->n_tokens,
                             .ids = b->ids,
                             .labels = b->labels,
                             .n_segments = d->packs.start[i + 1] - d->packs.start[i],
                             .cu_seqlens = b->cu,
                             .n_trained = b->n_trained};
    pthread_mutex_unlock(&d->lock);
    return r;
}

struct ft_row ft_dataset_row(const struct ft_dataset *d, int64_t i)
{
    FT_ASSERT(i >= 0 && i < d->packs.n_packs);
    if (d->packs.start[i + 1] - d->packs.start[i] > 1 || d->l.samples.files)
        return built_row((struct ft_dataset *)(uintptr_t)d, i); /* made rows are a cache: the set itself does not change */
    const int64_t k = d->packs.sample[d->packs.start[i]];
    const struct ft_sample *s = &d->l.samples.v[k];
    return (struct ft_row){.n_tokens = s->n,
                           .ids = d->l.samples.ids + s->at,
                           .labels = d->l.samples.labels + s->at,
                           .n_segments = 1,
                           .cu_seqlens = d->cu[k],
                           .n_trained = s->trained};
}

int ft_dataset_row_file(const struct ft_dataset *d, int64_t i)
{
    FT_ASSERT(i >= 0 && i < d->packs.n_packs);
    return d->l.samples.v[d->packs.sample[d->packs.start[i]]].file;
}

size_t ft_dataset_n_files(const struct ft_dataset *d) { return d->l.n_files; }
const char *ft_dataset_file_name(const struct ft_dataset *d, size_t file) { return file < d->l.n_files ? d->l.names[file] : NULL; }
struct ft_dataset_facts ft_dataset_facts(const struct ft_dataset *d) { return d->l.facts; }
size_t ft_dataset_n_notes(const struct ft_dataset *d) { return d->l.n_notes; }
const char *ft_dataset_note(const struct ft_dataset *d, size_t i) { return i < d->l.n_notes ? d->l.notes[i] : NULL; }
