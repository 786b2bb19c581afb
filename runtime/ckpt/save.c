/* Saving (on-disk formats, section 7): two parts of work, writing and publishing, with an agreement of all ranks behind each. Every
 * collective of a save is made by all ranks, on their main threads, whatever has failed on one of them. */
#include "runtime/ckpt/save.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "runtime/coll/comm.h"

#define SEEN_NS (30 * FT_SEC)

/* Signals are the main thread's. */
static bool start_thread(void *(*run)(void *), struct ft_ckpt_save *s, pthread_t *thread)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const bool ok = !pthread_create(thread, NULL, run, s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return ok;
}

/* --- hashes, beside the writing ------------------------------------------------------------------------------------------------ */

static void *hash_items(void *arg)
{
    struct ft_ckpt_save *s = arg;
    for (size_t i = 0; i < s->n_items && !atomic_load(&s->cancelled); i++) {
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

static enum ft_code diverged(const struct ft_ckpt_save *s, struct ft_err *err)
{
    const struct ft_ckpt_item *it = &s->items[s->bad_item];
    struct ft_buf name = {0};
    ft_ckpt_tensor_name(&name, s->c->kind, it->slot, s->c->o.model[it->model].name);
    const int64_t row = it->rect.at[0] + (int64_t)s->bad_element / it->rect.n[1],
                  column = it->rect.at[1] + (int64_t)s->bad_element % it->rect.n[1];
    ft_fail(err, FT_DATA,
            "step %lld is not saved: %llu values are not finite, the first in %s (row %lld, column %lld): the run has diverged",
            (long long)s->scalars.step, (unsigned long long)s->nonfinite, ft_buf_str(&name), (long long)row, (long long)column);
    ft_buf_fini(&name);
    return FT_DATA;
}

/* --- files -------------------------------------------------------------------------------------------------------------------------- */

static enum ft_code make_tmp(struct ft_ckpt_save *s, struct ft_err *err)
{
    struct ft_ckpt *c = s->c;
    const char *base = ft_manifest_base(s->tmp);
    enum ft_code rc = ft_ckpt_remove(&c->fio, c->dir, base, err); /* of a save of ours that failed */
    if (!rc && ft_fio_mkdir(&c->fio, s->tmp, 0777)) rc = ft_fail(err, FT_IO, "mkdir %s: %s", s->tmp, strerror(errno));
    return rc;
}

static enum ft_code see_tmp(const struct ft_ckpt_save *s, struct ft_err *err)
{
    const int64_t until = ft_clock_now(ft_clock_real()) + SEEN_NS;
    while (!ft_is_dir(s->tmp) && !atomic_load(&s->cancelled)) {
        if (ft_clock_now(ft_clock_real()) > until)
            return ft_fail(err, FT_IO, "rank %d does not see %s, which rank 0 has made", s->c->rank, s->tmp);
        poll(NULL, 0, 50);
    }
    return FT_OK;
}

static enum ft_code write_mine(struct ft_ckpt_save *s, struct ft_err *err)
{
    pthread_t thread;
    if (!s->n_items) return FT_OK;
    enum ft_code rc = see_tmp(s, err);
    const bool beside = start_thread(hash_items, s, &thread);
    if (!beside) (void)hash_items(s);
    if (!rc) rc = ft_ckpt_write_file(s->c, s->tmp, s->scalars.step, s->items, s->n_items, &s->cancelled, &s->file, err);
    if (beside) pthread_join(thread, NULL);
    if (s->nonfinite) rc = diverged(s, err);
    return rc;
}

/* --- parts ---------------------------------------------------------------------------------------------------------------------------- */

static void *work(void *arg)
{
    struct ft_ckpt_save *s = arg;
    s->own = s->part == FT_CKPT_WRITING ? write_mine(s, &s->err) : ft_ckpt_publish(s, &s->err);
    atomic_store(&s->ended, true);
    return NULL;
}

/* Without a thread the part is done when this returns. */
static void start_part(struct ft_ckpt_save *s, enum ft_ckpt_part part)
{
    s->part = part;
    s->own = FT_OK;
    const bool idle = part == FT_CKPT_PUBLISHING && s->c->rank != 0;
    atomic_store(&s->ended, idle);
    if (idle) return;
    s->threaded = s->beside && start_thread(work, s, &s->thread);
    if (!s->threaded) (void)work(s);
}

static void wait_part(struct ft_ckpt_save *s)
{
    if (s->threaded) pthread_join(s->thread, NULL);
    s->threaded = false;
}

static void pack(const struct ft_ckpt_save *s, struct ft_buf *b)
{
    const struct ft_ckpt_wire_head h = {.file = s->file, .n = (int64_t)s->n_items};
    ft_buf_add(b, &h, sizeof h);
    for (size_t i = 0; i < s->n_items; i++) {
        const struct ft_ckpt_item *it = &s->items[i];
        const struct ft_ckpt_wire_item w = {.model = (int64_t)it->model,
                                            .slot = it->slot,
                                            .at = {it->rect.at[0], it->rect.at[1]},
                                            .n = {it->rect.n[0], it->rect.n[1]},
                                            .begin = it->begin,
                                            .bytes = it->bytes,
                                            .crc = it->crc};
        ft_buf_add(b, &w, sizeof w);
    }
}

/* Each rank gives the result of its part. */
static enum ft_code share_part(struct ft_ckpt_save *s, struct ft_err *err)
{
    if (s->own && err) *err = s->err;
    return ft_ckpt_share(s->c, s->own, err);
}

/* Agreement 1: all files are whole; their hashes are summed and their lists are on rank 0. */
static enum ft_code agree_on_files(struct ft_ckpt_save *s, struct ft_err *err)
{
    struct ft_ckpt *c = s->c;
    struct ft_buf mine = {0};
    enum ft_code rc = share_part(s, err);
    if (!rc)
        rc = ft_comm_all_reduce(c->o.comm, FT_GROUP_WORLD, s->hashes, (int64_t)(c->o.n_model * FT_CKPT_SLOTS), FT_I64, FT_SUM, err);
    if (!rc) {
        pack(s, &mine);
        rc = ft_ckpt_collect(c, &mine, &s->all, err);
    }
    ft_buf_fini(&mine);
    return rc;
}

/* --- the life of a save ----------------------------------------------------------------------------------------------------------- */

static struct ft_ckpt_save *create(struct ft_ckpt *c, const struct ft_ckpt_piece *pieces, size_t n,
                                   const struct ft_ckpt_scalars *scalars)
{
    struct ft_ckpt_save *s = ft_xcalloc(1, sizeof *s);
    struct ft_buf tmp = {0};
    if (!c->lineage) c->lineage = ft_xstrdup(c->o.run->run_id);
    c->origin.lineage = c->lineage;
    s->c = c;
    s->scalars = *scalars;
    s->items = ft_ckpt_items(c, pieces, n, &s->n_items);
    s->hashes = ft_xcalloc(c->o.n_model * FT_CKPT_SLOTS + 1, sizeof *s->hashes);
    s->m.arena = ft_arena_create();
    ft_buf_addf(&tmp, "%s/.tmp-step_%08lld-%s", c->dir, (long long)scalars->step, c->o.run->run_id);
    s->tmp = tmp.data;
    return s;
}

static void destroy(struct ft_ckpt_save *s)
{
    free(s->items);
    free(s->hashes);
    free(s->name);
    free(s->tmp);
    ft_buf_fini(&s->all);
    ft_buf_fini(&s->text);
    ft_arena_destroy(s->m.arena);
    free(s);
}

/* Published, or failed on all ranks; then nothing of it stays. */
static enum ft_code end(struct ft_ckpt_save *s, enum ft_code rc, struct ft_err *err)
{
    struct ft_ckpt *c = s->c;
    struct ft_err why = {0};
    const int64_t step = s->scalars.step;
    if (!rc) {
        c->last_step = step;
        free(c->last);
        c->last = s->name ? ft_xstrdup(s->name) : NULL;
    } else if (c->rank == 0 && rc != FT_COLL && ft_ckpt_remove(&c->fio, c->dir, ft_manifest_base(s->tmp), &why)) {
        ft_log(FT_LOG_WARN, "ckpt", "%s", why.text);
    }
    destroy(s);
    c->save = NULL;
    if (rc) ft_wrap(err, "saving step %lld", (long long)step);
    return rc;
}

static void copy_items(struct ft_ckpt_save *s)
{
    float *to = s->c->o.copy;
    for (size_t i = 0; i < s->n_items; i++) {
        struct ft_ckpt_item *it = &s->items[i];
        const int64_t n = ft_rect_count(&it->rect);
        memcpy(to, it->x, (size_t)n * sizeof *to);
        it->x = to;
        to += n;
    }
}

/* Steps 2 and 3; the writing begins. */
static enum ft_code begin(struct ft_ckpt_save *s, const struct ft_ckpt_piece *pieces, size_t n, struct ft_err *err)
{
    struct ft_ckpt *c = s->c;
    char refusal[64];
    FT_ASSERT(!c->save);
    snprintf(refusal, sizeof refusal, "step %lld is not saved, the state is wrong", (long long)s->scalars.step);
    enum ft_code rc = ft_ckpt_check_replicas(c, pieces, n, refusal, err);
    if (!rc) rc = ft_ckpt_share(c, c->rank == 0 ? make_tmp(s, err) : FT_OK, err);
    if (rc) return end(s, rc, err);
    c->save = s;
    if (s->beside) copy_items(s);
    start_part(s, FT_CKPT_WRITING);
    return FT_OK;
}

enum ft_code ft_ckpt_save(struct ft_ckpt *c, const struct ft_ckpt_piece *pieces, size_t n, const struct ft_ckpt_scalars *scalars,
                          bool best, struct ft_err *err)
{
    struct ft_ckpt_save *s = create(c, pieces, n, scalars);
    s->best = best;
    const enum ft_code rc = begin(s, pieces, n, err);
    return rc ? rc : ft_ckpt_drain(c, err);
}

enum ft_code ft_ckpt_begin(struct ft_ckpt *c, const struct ft_ckpt_piece *pieces, size_t n, const struct ft_ckpt_scalars *scalars,
                           bool best, struct ft_err *err)
{
    struct ft_ckpt_save *s = create(c, pieces, n, scalars);
    FT_ASSERT(c->o.copy || !s->n_items);
    s->best = best;
    s->beside = true;
    return begin(s, pieces, n, err);
}

bool ft_ckpt_saving(const struct ft_ckpt *c) { return c->save != NULL; }
bool ft_ckpt_busy(const struct ft_ckpt *c) { return c->save && !atomic_load(&c->save->ended); }

enum ft_code ft_ckpt_go_on(struct ft_ckpt *c, struct ft_err *err)
{
    struct ft_ckpt_save *s = c->save;
    wait_part(s);
    if (s->part == FT_CKPT_PUBLISHING) return end(s, share_part(s, err), err);
    const enum ft_code rc = agree_on_files(s, err);
    if (rc) return end(s, rc, err);
    start_part(s, FT_CKPT_PUBLISHING);
    return FT_OK;
}

enum ft_code ft_ckpt_drain(struct ft_ckpt *c, struct ft_err *err)
{
    enum ft_code rc = FT_OK;
    while (!rc && c->save) rc = ft_ckpt_go_on(c, err);
    return rc;
}

void ft_ckpt_cancel(struct ft_ckpt *c)
{
    if (!c->save) return;
    atomic_store(&c->save->cancelled, true);
    wait_part(c->save);
    destroy(c->save);
    c->save = NULL;
}
