#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "runtime/ckpt/state.h"
#include "runtime/ckpt/target.h"
#include "runtime/coll/comm.h"

/* How long a file of another rank may take to show on a network file system. */
#define SEEN_NS (30 * FT_SEC)

int64_t ft_ckpt_bytes(const struct ft_param *model, size_t n)
{
    int64_t elements = 0;
    for (size_t i = 0; i < n; i++) elements += ft_param_count(&model[i]);
    return elements * 12;
}

int64_t ft_ckpt_last_step(const struct ft_ckpt *c) { return c->last_step; }
void ft_ckpt_tick(struct ft_ckpt *c) { ft_ckpt_lock_touch(&c->lock, ft_clock_now(ft_clock_real())); }

static void check_room(struct ft_ckpt *c)
{
    struct statvfs v;
    const int64_t one = ft_ckpt_bytes(c->o.model, c->o.n_model), want = (c->o.keep > 0 ? c->o.keep + 2 : 3) * one;
    if (statvfs(c->dir, &v)) return;
    const int64_t room = (int64_t)(v.f_bavail * v.f_frsize);
    if (room < want)
        ft_ckpt_say(c, "warning: %s has %.1f MB free; %s checkpoints of %.1f MB and two more need %.1f MB", c->dir,
                    (double)room / 1e6, c->o.keep > 0 ? "the kept" : "all", (double)one / 1e6, (double)want / 1e6);
}

enum ft_code ft_ckpt_check_dir(const char *dir, struct ft_err *err)
{
    struct ft_err why = {0};
    if (!ft_target_check(dir, &why)) return FT_OK;
    ft_fail(err, FT_IO, "cannot keep checkpoints in '%s': %s", dir, why.text);
    return ft_fix(err, "set [checkpoint] dir to a folder that can be written");
}

/* Rank 0: folder, lock, leftovers; text: what LOCK says, for the others. */
static enum ft_code prepare(struct ft_ckpt *c, struct ft_buf *text, struct ft_err *err)
{
    struct ft_buf taken = {0}, path = {0};
    enum ft_code rc = ft_ckpt_check_dir(c->dir, err);
    if (!rc) rc = ft_mkdirs(c->dir, 0777, err);
    if (rc) return rc;
    rc = ft_ckpt_lock_take(&c->lock, &c->fio, c->dir,
                           (struct ft_ckpt_owner){.run_id = c->o.run->run_id, .lineage = c->o.run->run_id}, &taken, err);
    if (!rc && taken.n) ft_ckpt_say(c, "%s", ft_buf_str(&taken));
    if (!rc) rc = ft_ckpt_sweep(c, err);
    if (!rc) check_room(c);
    ft_buf_addf(&path, "%s/LOCK", c->dir);
    if (!rc) rc = ft_read_file(ft_buf_str(&path), 65536, text, err);
    ft_buf_fini(&taken);
    ft_buf_fini(&path);
    return rc;
}

/* The others: is rank 0's LOCK there for us too? Two nodes with the same local path are not one folder. */
static enum ft_code see_lock(struct ft_ckpt *c, const struct ft_buf *text, struct ft_err *err)
{
    struct ft_buf path = {0}, mine = {0};
    const int64_t until = ft_clock_now(ft_clock_real()) + (c->rank ? SEEN_NS : 0);
    bool seen = false;
    ft_buf_addf(&path, "%s/LOCK", c->dir);
    for (;;) {
        seen = !ft_read_file(ft_buf_str(&path), 65536, &mine, NULL) && mine.n == text->n && !memcmp(mine.data, text->data, mine.n);
        /* On one machine what is not there now will not come; a network file system may need a moment. */
        if (seen || ft_clock_now(ft_clock_real()) > until || (!ft_is_dir(c->dir) && errno == ENOENT)) break;
        poll(NULL, 0, 200);
    }
    ft_buf_fini(&path);
    ft_buf_fini(&mine);
    if (seen) return FT_OK;
    char host[256] = "";
    if (gethostname(host, sizeof host - 1) < 0) host[0] = 0;
    ft_fail(err, FT_IO, "rank %d on %s does not see %s/LOCK of rank 0: checkpoints need a file system that all nodes share",
            c->rank, host, c->dir);
    return ft_fix(err, "set [checkpoint] dir to a folder on a shared file system");
}

/* Where the parameters of this rank stand in the whole model. */
static enum ft_code find_params(struct ft_ckpt *c, struct ft_err *err)
{
    c->model_of = ft_xcalloc(c->o.n_params + 1, sizeof *c->model_of);
    for (size_t i = 0; i < c->o.n_params; i++) {
        size_t k = i;
        if (k >= c->o.n_model || strcmp(c->o.model[k].name, c->o.params[i].name) != 0)
            for (k = 0; k < c->o.n_model && strcmp(c->o.model[k].name, c->o.params[i].name) != 0; k++) continue;
        if (k == c->o.n_model) return ft_fail(err, FT_BUG_FOUND, "'%s' is no parameter of the model", c->o.params[i].name);
        c->model_of[i] = k;
    }
    return FT_OK;
}

static enum ft_code check_options(const struct ft_ckpt_options *o, struct ft_err *err)
{
    static const char legal[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    const char *id = o->run->run_id;
    if (!id || !*id || strlen(id) > 128 || id[strspn(id, legal)])
        return ft_fail(err, FT_CONFIG, "run id '%s' has other characters than letters, digits, '.', '_' and '-'", id ? id : "");
    return FT_OK;
}

enum ft_code ft_ckpt_open(const struct ft_ckpt_options *o, struct ft_ckpt **out, struct ft_err *err)
{
    struct ft_ckpt *c = ft_xcalloc(1, sizeof *c);
    struct ft_buf text = {0};
    c->o = *o;
    c->rank = ft_comm_rank(o->comm, FT_GROUP_WORLD);
    c->world = ft_comm_size(o->comm, FT_GROUP_WORLD);
    c->dir = ft_xstrdup(o->dir);
    for (size_t n = strlen(c->dir); n > 1 && c->dir[n - 1] == '/'; n--) c->dir[n - 1] = 0;
    c->lock.fd = -1;
    c->kind = o->run->precision != FT_CKPT_FP32 && !strcmp(o->run->method, "full") ? FT_CKPT_BF16 : FT_CKPT_FP32;
    enum ft_code rc = check_options(o, err);
    if (!rc) rc = ft_fio_init(&c->fio, c->rank, err);
    if (!rc) rc = find_params(c, err);
    if (!rc && c->rank == 0) rc = prepare(c, &text, err);
    rc = ft_ckpt_share(c, rc, err);
    if (!rc) rc = ft_ckpt_spread(c, &text, err);
    if (!rc) rc = ft_ckpt_share(c, see_lock(c, &text, err), err);
    ft_buf_fini(&text);
    if (rc) {
        ft_ckpt_close(c);
        return rc;
    }
    *out = c;
    return FT_OK;
}

void ft_ckpt_close(struct ft_ckpt *c)
{
    if (!c) return;
    ft_ckpt_cancel(c);
    ft_ckpt_lock_drop(&c->lock, c->dir);
    ft_fio_fini(&c->fio);
    free(c->model_of);
    free(c->dir);
    free(c->lineage);
    free(c->resumed);
    free(c->last);
    free(c);
}
