/* Rank 0's part of a save: manifest, renames, LATEST and BEST, retention (on-disk formats, sections 6, 7 and 11). No collective, so that
 * any thread may do it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "runtime/ckpt/save.h"

/* --- manifest ------------------------------------------------------------------------------------------------------------------------ */

static int by_offset(const void *a, const void *b)
{
    const struct ft_rect *x = &((const struct ft_mf_entry *)a)->rect, *y = &((const struct ft_mf_entry *)b)->rect;
    if (x->at[0] != y->at[0]) return x->at[0] < y->at[0] ? -1 : 1;
    return (x->at[1] > y->at[1]) - (x->at[1] < y->at[1]);
}

/* Tensors with their hashes and room for their entries. */
static void make_tensors(struct ft_ckpt_save *s, const size_t *n_entries)
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
static void fill_entries(struct ft_ckpt_save *s, const struct ft_buf *all, size_t *n_entries)
{
    struct ft_manifest *m = &s->m;
    const bool counting = !m->tensors.n;
    int rank = 0;
    for (size_t at = 0; at < all->n; rank++) {
        struct ft_ckpt_wire_head h;
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
        for (int64_t k = 0; k < h.n; k++, at += sizeof(struct ft_ckpt_wire_item)) {
            struct ft_ckpt_wire_item w;
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

static enum ft_code write_manifest(struct ft_ckpt_save *s, struct ft_err *err)
{
    struct ft_ckpt *c = s->c;
    char created[32];
    struct ft_buf part = {0}, path = {0};
    size_t *n_entries = ft_xcalloc(c->o.n_model * FT_CKPT_STORED + 1, sizeof *n_entries);
    s->m.files = ft_arena_array(s->m.arena, (size_t)c->world, sizeof *s->m.files);
    fill_entries(s, &s->all, n_entries);
    make_tensors(s, n_entries);
    fill_entries(s, &s->all, NULL);
    free(n_entries);
    enum ft_code rc = ft_manifest_check_tiles(&s->m, err);
    if (rc) rc = ft_fail(err, FT_BUG_FOUND, "the pieces of the ranks do not make up the model: %s", err ? err->text : "");
    s->m.state_hash = ft_mf_state_hash(&s->m.tensors, &s->m.derived);
    ft_wall_iso(ft_wall_ns(), created);
    ft_manifest_write_head(&s->text, c->o.run, &s->scalars, &c->origin, created);
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

static enum ft_code check_published(const struct ft_ckpt_save *s, const char *path, struct ft_err *err)
{
    struct ft_buf text = {0};
    enum ft_code rc = ft_manifest_read(path, &text, err);
    if (rc == FT_DATA) rc = ft_fail(err, FT_IO, "%s does not read as it was written", path); /* the disk's fault, not the state's */
    if (!rc && (text.n != s->text.n || memcmp(text.data, s->text.data, text.n) != 0))
        rc = ft_fail(err, FT_IO, "%s/manifest.json does not read as it was written", path);
    ft_buf_fini(&text);
    return rc;
}

static enum ft_code publish(struct ft_ckpt_save *s, struct ft_err *err)
{
    struct ft_ckpt *c = s->c;
    bool ours;
    struct ft_buf to = {0}, old = {0};
    s->name = choose_name(c, s->scalars.step, &ours);
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
    if (!rc && s->best) rc = ft_ckpt_hint_write(&c->fio, c->dir, "BEST", s->name, err);
    ft_buf_fini(&to);
    ft_buf_fini(&old);
    return rc;
}

/* After publication; nothing here can undo it. */
static void tidy(struct ft_ckpt_save *s)
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
                                        .best_step = s->scalars.has_eval ? s->scalars.best_step : 0,
                                        .kept = {s->name, c->resumed, best.n ? ft_buf_str(&best) : NULL, NULL}};
    if (ft_ckpt_retain(&c->fio, &r, &removed, &why)) {
        c->wrote_old = true; /* a .del-… folder may be left: again at the next save */
        ft_log(FT_LOG_WARN, "ckpt", "%s", why.text);
    }
    if (removed.n) ft_log(FT_LOG_INFO, "ckpt", "removed %s (keep = %lld)", ft_buf_str(&removed), (long long)c->o.keep);
    ft_buf_fini(&best);
    ft_buf_fini(&removed);
}

enum ft_code ft_ckpt_publish(struct ft_ckpt_save *s, struct ft_err *err)
{
    enum ft_code rc = write_manifest(s, err);
    if (!rc) rc = publish(s, err);
    if (!rc) tidy(s);
    return rc;
}
