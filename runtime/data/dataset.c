#include "runtime/data/dataset.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/data/loader.h"

struct ft_dataset {
    struct ft_loaded l;
    int64_t *perm;    /* (samples) row i of the current order */
    int32_t (*cu)[2]; /* (samples) cumulative lengths of a row of one sample */
    uint64_t seed;
    bool shuffle;
};

enum ft_code ft_dataset_open(const struct ft_dataset_options *o, enum ft_split split, struct ft_faults *faults,
                             struct ft_dataset **out, struct ft_err *err)
{
    const struct ft_load_how how = {.o = o, .split = split, .faults = faults, .check_overlap = true};
    struct ft_loaded l;
    bool named;
    const enum ft_code rc = ft_load(&how, &named, &l, err);
    if (rc != FT_OK) return rc;
    *out = NULL;
    if (!named) return FT_OK;
    struct ft_dataset *d = ft_xcalloc(1, sizeof *d);
    d->l = l;
    d->seed = o->seed, d->shuffle = o->fields->shuffle;
    d->perm = ft_xcalloc(l.samples.n + 1, sizeof *d->perm);
    d->cu = ft_xcalloc(l.samples.n + 1, sizeof *d->cu);
    for (size_t i = 0; i < l.samples.n; i++) d->perm[i] = (int64_t)i, d->cu[i][1] = l.samples.v[i].n;
    *out = d;
    return FT_OK;
}

void ft_dataset_close(struct ft_dataset *d)
{
    if (!d) return;
    ft_loaded_fini(&d->l);
    free(d->perm);
    free(d->cu);
    free(d);
}

void ft_dataset_epoch(struct ft_dataset *d, int64_t epoch)
{
    ft_epoch_order(d->seed, epoch, d->shuffle, (int64_t)d->l.samples.n, d->perm);
}

int64_t ft_dataset_rows_of(const struct ft_dataset *d, int64_t epoch)
{
    (void)epoch;
    return (int64_t)d->l.samples.n;
}

int64_t ft_dataset_n_rows(const struct ft_dataset *d) { return (int64_t)d->l.samples.n; }

static const struct ft_sample *sample_of(const struct ft_dataset *d, int64_t i)
{
    FT_ASSERT(i >= 0 && i < (int64_t)d->l.samples.n);
    return &d->l.samples.v[d->perm[i]];
}

struct ft_row ft_dataset_row(const struct ft_dataset *d, int64_t i)
{
    const struct ft_sample *s = sample_of(d, i);
    return (struct ft_row){.n_tokens = s->n,
                           .ids = d->l.samples.ids + s->at,
                           .labels = d->l.samples.labels + s->at,
                           .n_segments = 1,
                           .cu_seqlens = d->cu[d->perm[i]],
                           .n_trained = s->trained};
}

int ft_dataset_row_file(const struct ft_dataset *d, int64_t i) { return sample_of(d, i)->file; }
size_t ft_dataset_n_files(const struct ft_dataset *d) { return d->l.n_files; }
const char *ft_dataset_file_name(const struct ft_dataset *d, size_t file) { return file < d->l.n_files ? d->l.names[file] : NULL; }
struct ft_dataset_facts ft_dataset_facts(const struct ft_dataset *d) { return d->l.facts; }
size_t ft_dataset_n_notes(const struct ft_dataset *d) { return d->l.n_notes; }
const char *ft_dataset_note(const struct ft_dataset *d, size_t i) { return i < d->l.n_notes ? d->l.notes[i] : NULL; }
