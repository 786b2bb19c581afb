/* Saving (on-disk formats, section 7). Every collective of a save is made by all ranks whatever has failed on one of them. Longer than
 * most files because the steps of a save are one sequence with one state. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "runtime/ckpt/state.h"
#include "runtime/coll/comm.h"

#define SEEN_NS (30 * FT_SEC)

/* What goes to rank 0: one head per rank, then its items. */
struct wire_head {
    struct ft_ckpt_written file;
    int64_t n;
};
struct wire_item {
    int64_t model, slot, at[2], n[2], begin, bytes;
    uint32_t crc, pad;
};

struct save {
    struct ft_ckpt *c;
    const struct ft_ckpt_scalars *scalars;
    struct ft_ckpt_item *items;
    size_t n_items;
    uint64_t *hashes; /* n_model * FT_CKPT_SLOTS */
    uint64_t nonfinite;
    size_t bad_item;
    uint64_t bad_element;
    char *tmp; /* path of the folder that is being written */
    struct ft_ckpt_written file;
    struct ft_manifest m; /* rank 0, for writing */
    struct ft_buf text;
    char *name; /* of the published folder */
};

/* --- hashes, beside the writing ------------------------------------------------------------------------------------------------ */

static void *hash_items(void *arg)
{
    struct save *s = arg;
    for (size_t i = 0; i < s->n_items; i++) {
        const struct ft_ckpt_item *it = &s->items[i];
        const bool derived = it->slot == FT_CKPT_MASTER && s->c->kind != FT_CKPT_FP32;
        const struct ft_rect_sums x = ft_rect_sums(&it->rect, s->c->o.model[it->model].dims[1], it->x, derived);
        s->hashes[it->model * FT_CKPT_SLOTS + it->slot] += x.hash;
        if (derived) s->hashes[it->model * FT_CKPT_SLOTS + FT_CKPT_DERIVED] += x.hash_bf16;
        if (x.nonfinite && !s->nonfinite) {
            s->bad_item = i;
            s->bad_element = x.first_nonfinite;
        }
        s->nonfinite += x.nonfinite;
    }
    return NULL;
}

static bool start_hashing(struct save *s, pthread_t *thread)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const bool ok = !pthread_create(thread, NULL, hash_items, s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return ok;
}

static enum ft_code diverged(const struct save *s, struct ft_err *err)
{
    const struct ft_ckpt_item *it = &s->items[s->bad_item];
    struct ft_buf name = {0};
    ft_ckpt_tensor_name(&name, s->c->kind, it->slot, s->c->o.model[it->model].name);
    const int64_t row = it->rect.at[0] + (int64_t)s->bad_element / it->rect.n[1],
                  column = it->rect.at[1] + (int64_t)s->bad_element % it->rect.n[1];
    ft_fail(err, FT_DATA,
            "step %lld is not saved: %llu values are not finite, the first in %s (row %lld, column %lld): the run has diverged",
            (long long)s->scalars->step, (unsigned long long)s->nonfinite, ft_buf_str(&name), (long long)row, (long long)column);
    ft_buf_fini(&name);
    return FT_DATA;
}

/* --- files -------------------------------------------------------------------------------------------------------------------------- */

static enum ft_code make_tmp(struct save *s, struct ft_err *err)
{
    struct ft_ckpt *c = s->c;
    const char *base = ft_manifest_base(s->tmp);
    enum ft_code rc = ft_ckpt_remove(&c->fio, c->dir, base, err); /* of a save of ours that failed */
    if (!rc && ft_fio_mkdir(&c->fio, s->tmp, 0777)) rc = ft_fail(err, FT_IO, "mkdir %s: %s", s->tmp, strerror(errno));
    return rc;
}

static enum ft_code see_tmp(const struct save *s, struct ft_err *err)
{
    const int64_t until = ft_clock_now(ft_clock_real()) + SEEN_NS;
    while (!ft_is_dir(s->tmp)) {
        if (ft_clock_now(ft_clock_real()) > until)
            return ft_fail(err, FT_IO, "rank %d does not see %s, which rank 0 has made", s->c->rank, s->tmp);
        poll(NULL, 0, 50);
    }
    return FT_OK;
}

static enum ft_code write_mine(struct save *s, struct ft_err *err)
{
    pthread_t thread;
    if (!s->n_items) return FT_OK;
    enum ft_code rc = see_tmp(s, err);
    const bool beside = start_hashing(s, &thread);
    if (!beside) (void)hash_items(s);
    if (!rc) rc = ft_ckpt_write_file(s->c, s->tmp, s->scalars->step, s->items, s->n_items, &s->file, err);
    if (beside) pthread_join(thread, NULL);
    if (s->nonfinite) rc = diverged(s, err);
    return rc;
}

/* --- manifest ------------------------------------------------------------------------------------------------------------------------ */

static void pack(const struct save *s, struct ft_buf *b)
{
    const struct wire_head h = {.file = s->file, .n = (int64_t)s->n_items};
    ft_buf_add(b, &h, sizeof h);
    for (size_t i = 0; i < s->n_items; i++) {
        const struct ft_ckpt_item *it = &s->items[i];
        const struct wire_item w = {.model = (int64_t)it->model,
                                    .slot = it->slot,
                                    .at = {it->rect.at[0], it->rect.at[1]},
                                    .n = {it->rect.n[0], it->rect.n[1]},
                                    .begin = it->begin,
                                    .bytes = it->bytes,
                                    .crc = it->crc};
        ft_buf_add(b, &w, sizeof w);
    }
}

static int by_offset(const void *a, const void *b)
{
    const struct ft_rect *x = &((const struct ft_mf_entry *)a)->rect, *y = &((const struct ft_mf_entry *)b)->rect;
    if (x->at[0] != y->at[0]) return x->at[0] < y->at[0] ? -1 : 1;
    return (x->at[1] > y->at[1]) - (x->at[1] < y->at[1]);
}

/* Tensors with their hashes and room for their entries. */
static void make_tensors(struct save *s, const size_t *n_entries)
{
    const struct ft_ckpt *c = s->c;
    struct ft_manifest *m = &s->m;
    struct ft_buf name = {0};
    m->tensors.v = ft_arena_array(m->arena, c->o.n_model * FT_CKPT_STORED, sizeof *m->tensors.v);
    m->derived.v = ft_arena_array(m->arena, c->o.n_model, sizeof *m->derived.v);
    for (size_t i = 0; i < c->o.n_model; i++) {
        const struct ft_param *p = &c->o.model[i];
        for (int k = 0; k < FT_CKPT_STORED; k++) {
            struct ft_mf_tensor *t = &m->tensors.v[m->tensors.n++];
            ft_ckpt_tensor_name(&name, c->kind, (enum ft_ckpt_slot)k, p->name);
            *t = (struct ft_mf_tensor){.name = ft_arena_strdup(m->arena, ft_buf_str(&name)),
                                       .dtype = FT_F32,
                                       .n_dims = p->n_dims,
                                       .dims = {p->dims[0], p->dims[1]},
                                       .hash = s->hashes[i * FT_CKPT_SLOTS + (size_t)k]};
            t->entries = ft_arena_array(m->arena, n_entries[i * FT_CKPT_STORED + (size_t)k], sizeof *t->entries);
            m->bytes += ft_param_count(p) * 4;
        }
        if (c->kind == FT_CKPT_FP32) continue;
        m->derived.v[m->derived.n++] = (struct ft_mf_tensor){.name = p->name,
                                                             .dtype = FT_BF16,
                                                             .n_dims = p->n_dims,
                                                             .dims = {p->dims[0], p->dims[1]},
                                                             .from = m->tensors.v[i * FT_CKPT_STORED].name,
                                                             .hash = s->hashes[i * FT_CKPT_SLOTS + FT_CKPT_DERIVED]};
    }
    ft_buf_fini(&name);
}

/* all: the packed lists of all ranks, in order of ranks. Twice: count, then fill. */
static void fill_entries(struct save *s, const struct ft_buf *all, size_t *n_entries)
{
    struct ft_manifest *m = &s->m;
    const bool counting = !m->tensors.n;
    int rank = 0;
    for (size_t at = 0; at < all->n; rank++) {
        struct wire_head h;
        memcpy(&h, all->data + at, sizeof h);
        at += sizeof h;
        if (counting && h.n) {
            struct ft_mf_file *f = &m->files[m->n_files++];
            *f = (struct ft_mf_file){.name = ft_arena_strdup(m->arena, h.file.name),
                                     .size = h.file.size,
                                     .header_bytes = h.file.header_bytes,
                                     .header_crc = h.file.header_crc,
                                     .writer = rank};
        }
        size_t file = 0;
        while (file < m->n_files && m->files[file].writer != rank) file++;
        for (int64_t k = 0; k < h.n; k++, at += sizeof(struct wire_item)) {
            struct wire_item w;
            memcpy(&w, all->data + at, sizeof w);
            const size_t tensor = (size_t)(w.model * FT_CKPT_STORED + w.slot);
            if (counting) {
                n_entries[tensor]++;
                continue;
            }
            struct ft_mf_tensor *t = &m->tensors.v[tensor];
            t->entries[t->n_entries++] = (struct ft_mf_entry){.rect = {.at = {w.at[0], w.at[1]}, .n = {w.n[0], w.n[1]}},
                                                              .file = file,
                                                              .begin = w.begin,
                                                              .bytes = w.bytes,
                                                              .crc = w.crc};
        }
    }
    for (size_t i = 0; i < m->tensors.n; i++)
        qsort(m->tensors.v[i].entries, m->tensors.v[i].n_entries, sizeof(struct ft_mf_entry), by_offset);
}

static enum ft_code write_manifest(struct save *s, const struct ft_buf *all, struct ft_err *err)
{
    struct ft_ckpt *c = s->c;
    char created[32];
    struct ft_buf part = {0}, path = {0};
    size_t *n_entries = ft_xcalloc(c->o.n_model * FT_CKPT_STORED + 1, sizeof *n_entries);
    s->m.files = ft_arena_array(s->m.arena, (size_t)c->world, sizeof *s->m.files);
    fill_entries(s, all, n_entries);
    make_tensors(s, n_entries);
    fill_entries(s, all, NULL);
    free(n_entries);
    enum ft_code rc = ft_manifest_check_tiles(&s->m, err);
    if (rc) rc = ft_fail(err, FT_BUG_FOUND, "the pieces of the ranks do not make up the model: %s", err ? err->text : "");
    s->m.state_hash = ft_mf_state_hash(&s->m.tensors, &s->m.derived);
    ft_wall_iso(ft_wall_ns(), created);
    ft_manifest_write_head(&s->text, c->o.run, s->scalars, &c->origin, created);
    ft_manifest_write_rest(&s->text, &s->m);
    ft_buf_addf(&part, "%s/manifest.json.part", s->tmp);
    ft_buf_addf(&path, "%s/manifest.json", s->tmp);
    int fd = rc ? -1 : ft_fio_open(&c->fio, FT_FIO_OPEN, ft_buf_str(&part), O_WRONLY | O_CREAT | O_EXCL, 0666);
    bool ok = fd >= 0 && !ft_fio_write(&c->fio, fd, s->text.data, s->text.n) && !ft_fio_fsync(&c->fio, fd);
    int saved = errno;
    if (fd >= 0 && ft_fio_close(&c->fio, &fd) && ok) {
        saved = errno;
        ok = false;
    }
    if (ok && (ft_fio_rename(&c->fio, FT_FIO_RENAME, ft_buf_str(&part), ft_buf_str(&path)) || ft_fio_fsyncdir(&c->fio, s->tmp))) {
        saved = errno;
        ok = false;
    }
    if (!rc && !ok) rc = ft_fail(err, FT_IO, "writing %s: %s", ft_buf_str(&path), strerror(saved));
    ft_buf_fini(&part);
    ft_buf_fini(&path);
    return rc;
}

/* --- publishing ------------------------------------------------------------------------------------------------------------------------ */

/* The name of this step; *ours: a checkpoint of this lineage stands there and must be set aside. */
static char *choose_name(const struct ft_ckpt *c, int64_t step, bool *ours)
{
    struct ft_buf name = {0}, path = {0}, lineage = {0};
    ft_buf_addf(&name, "step_%08lld", (long long)step);
    ft_buf_addf(&path, "%s/%s", c->dir, ft_buf_str(&name));
    *ours = ft_is_dir(ft_buf_str(&path));
    if (*ours && (!ft_ckpt_lineage(c->dir, ft_buf_str(&name), &lineage, NULL) || strcmp(ft_buf_str(&lineage), c->lineage) != 0)) {
        ft_buf_addf(&name, "-%s", c->o.run->run_id); /* that name belongs to somebody else, or nobody can tell */
        ft_buf_clear(&path);
        ft_buf_addf(&path, "%s/%s", c->dir, ft_buf_str(&name));
        *ours = ft_is_dir(ft_buf_str(&path));
    }
    ft_buf_fini(&path);
    ft_buf_fini(&lineage);
    return name.data;
}

static enum ft_code check_published(const struct save *s, const char *path, struct ft_err *err)
{
    struct ft_buf text = {0};
    enum ft_code rc = ft_manifest_read(path, &text, err);
    if (!rc && (text.n != s->text.n || memcmp(text.data, s->text.data, text.n) != 0))
        rc = ft_fail(err, FT_IO, "%s/manifest.json does not read as it was written", path);
    ft_buf_fini(&text);
    return rc;
}

static enum ft_code publish(struct save *s, bool best, struct ft_err *err)
{
    struct ft_ckpt *c = s->c;
    bool ours;
    struct ft_buf to = {0}, old = {0};
    s->name = choose_name(c, s->scalars->step, &ours);
    ft_buf_addf(&to, "%s/%s", c->dir, s->name);
    ft_buf_addf(&old, "%s/.old-%s-%s", c->dir, s->name, c->o.run->run_id);
    enum ft_code rc = FT_OK;
    if (ours && ft_fio_rename(&c->fio, FT_FIO_RENAME, ft_buf_str(&to), ft_buf_str(&old)))
        rc = ft_fail(err, FT_IO, "setting %s aside: %s", ft_buf_str(&to), strerror(errno));
    c->wrote_old |= ours && !rc;
    if (!rc && ft_fio_rename(&c->fio, FT_FIO_RENAME, s->tmp, ft_buf_str(&to))) {
        rc = ft_fail(err, FT_IO, "renaming %s to %s: %s", s->tmp, s->name, strerror(errno));
        if (ours && rename(ft_buf_str(&old), ft_buf_str(&to)))
            ft_log(FT_LOG_WARN, "ckpt", "%s could not be put back: %s", s->name, strerror(errno));
    }
    if (!rc && ft_fio_fsyncdir(&c->fio, c->dir)) rc = ft_fail(err, FT_IO, "fsync of %s: %s", c->dir, strerror(errno));
    if (!rc) rc = check_published(s, ft_buf_str(&to), err);
    if (!rc) rc = ft_ckpt_hint_write(&c->fio, c->dir, "LATEST", s->name, err);
    if (!rc && best) rc = ft_ckpt_hint_write(&c->fio, c->dir, "BEST", s->name, err);
    ft_buf_fini(&to);
    ft_buf_fini(&old);
    return rc;
}

/* After publication; nothing here can undo it. */
static void tidy(struct save *s)
{
    struct ft_ckpt *c = s->c;
    struct ft_err why = {0};
    struct ft_ckpt_names l = {0};
    struct ft_buf best = {0}, removed = {0};
    if (c->wrote_old && !ft_ckpt_names_read(c->dir, &l, &why)) {
        c->wrote_old = false;
        for (size_t i = 0; i < l.n; i++) {
            if (l.v[i].kind != FT_CKPT_OLD && l.v[i].kind != FT_CKPT_DEL) continue;
            if (ft_ckpt_remove(&c->fio, c->dir, l.v[i].name, &why)) {
                c->wrote_old = true;
                ft_log(FT_LOG_WARN, "ckpt", "%s", why.text);
            }
        }
    }
    ft_ckpt_names_fini(&l);
    ft_ckpt_hint_read(c->dir, "BEST", &best);
    const struct ft_ckpt_retention r = {.dir = c->dir,
                                        .lineage = c->lineage,
                                        .run_id = c->o.run->run_id,
                                        .keep = c->o.keep,
                                        .kept = {s->name, c->resumed, best.n ? ft_buf_str(&best) : NULL, NULL}};
    if (ft_ckpt_retain(&c->fio, &r, &removed, &why)) {
        c->wrote_old = true; /* a .del-… folder may be left: again at the next save */
        ft_log(FT_LOG_WARN, "ckpt", "%s", why.text);
    }
    if (removed.n) ft_log(FT_LOG_INFO, "ckpt", "removed %s (keep = %lld)", ft_buf_str(&removed), (long long)c->o.keep);
    ft_buf_fini(&best);
    ft_buf_fini(&removed);
}

/* Steps 3 to 8; every rank goes through the same agreements. */
static enum ft_code run(struct save *s, const struct ft_ckpt_piece *pieces, size_t n, bool best, struct ft_err *err)
{
    struct ft_ckpt *c = s->c;
    struct ft_buf mine = {0}, all = {0};
    char refusal[64];
    snprintf(refusal, sizeof refusal, "step %lld is not saved, the state is wrong", (long long)s->scalars->step);
    enum ft_code rc = ft_ckpt_check_replicas(c, pieces, n, refusal, err);
    if (!rc) rc = ft_ckpt_share(c, c->rank == 0 ? make_tmp(s, err) : FT_OK, err);
    if (!rc) rc = ft_ckpt_share(c, write_mine(s, err), err);
    if (!rc)
        rc = ft_comm_all_reduce(c->o.comm, FT_GROUP_WORLD, s->hashes, (int64_t)(c->o.n_model * FT_CKPT_SLOTS), FT_I64, FT_SUM, err);
    if (!rc) {
        pack(s, &mine);
        rc = ft_ckpt_collect(c, &mine, &all, err);
    }
    if (!rc) {
        enum ft_code own = FT_OK;
        if (c->rank == 0) own = write_manifest(s, &all, err);
        if (c->rank == 0 && !own) own = publish(s, best, err);
        rc = ft_ckpt_share(c, own, err);
    }
    ft_buf_fini(&mine);
    ft_buf_fini(&all);
    if (c->rank != 0 || rc == FT_COLL) return rc;
    struct ft_err why = {0};
    if (!rc) tidy(s);
    else if (ft_ckpt_remove(&c->fio, c->dir, ft_manifest_base(s->tmp), &why)) ft_log(FT_LOG_WARN, "ckpt", "%s", why.text);
    return rc;
}

enum ft_code ft_ckpt_save(struct ft_ckpt *c, const struct ft_ckpt_piece *pieces, size_t n, const struct ft_ckpt_scalars *scalars,
                          bool best, struct ft_err *err)
{
    struct save s = {.c = c, .scalars = scalars};
    struct ft_buf tmp = {0};
    if (!c->lineage) c->lineage = ft_xstrdup(c->o.run->run_id);
    c->origin.lineage = c->lineage;
    s.items = ft_ckpt_items(c, pieces, n, &s.n_items);
    s.hashes = ft_xcalloc(c->o.n_model * FT_CKPT_SLOTS + 1, sizeof *s.hashes);
    s.m.arena = ft_arena_create();
    ft_buf_addf(&tmp, "%s/.tmp-step_%08lld-%s", c->dir, (long long)scalars->step, c->o.run->run_id);
    s.tmp = tmp.data;
    enum ft_code rc = run(&s, pieces, n, best, err);
    if (rc) {
        ft_wrap(err, "saving step %lld", (long long)scalars->step);
    } else {
        c->last_step = scalars->step;
        free(c->last);
        c->last = s.name ? ft_xstrdup(s.name) : NULL;
    }
    free(s.items);
    free(s.hashes);
    free(s.name);
    ft_buf_fini(&tmp);
    ft_buf_fini(&s.text);
    ft_arena_destroy(s.m.arena);
    return rc;
}
