#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "runtime/ckpt/state.h"

static void join(struct ft_buf *b, const char *dir, const char *name)
{
    ft_buf_clear(b);
    ft_buf_addf(b, "%s/%s", dir, name);
}

/* step_DIGITS (8 at least) with or without -RUNID, behind .tmp- .old- .del- or nothing. */
bool ft_ckpt_name_parse(const char *name, enum ft_ckpt_kind *kind, int64_t *step)
{
    static const struct {
        const char *prefix;
        enum ft_ckpt_kind kind;
    } rows[] = {{"step_", FT_CKPT_STEP}, {".tmp-step_", FT_CKPT_TMP}, {".old-step_", FT_CKPT_OLD}, {".del-step_", FT_CKPT_DEL}};
    for (size_t i = 0; i < 4; i++) {
        const size_t n = strlen(rows[i].prefix);
        if (strncmp(name, rows[i].prefix, n) != 0) continue;
        const char *s = name + n;
        const size_t digits = strspn(s, "0123456789");
        if (digits < 8 || digits > 15 || (digits > 8 && s[0] == '0')) return false;
        const char *rest = s + digits;
        static const char legal[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
        if (*rest && (*rest != '-' || !rest[1] || rest[1 + strspn(rest + 1, legal)])) return false;
        *kind = rows[i].kind;
        *step = strtoll(s, NULL, 10);
        return true;
    }
    return false;
}

static int by_kind(const void *a, const void *b)
{
    const struct ft_ckpt_name *x = a, *y = b;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    return strcmp(x->name, y->name);
}

enum ft_code ft_ckpt_names_read(const char *dir, struct ft_ckpt_names *out, struct ft_err *err)
{
    DIR *d = opendir(dir);
    size_t cap = 0;
    *out = (struct ft_ckpt_names){0};
    if (!d) return ft_fail(err, FT_IO, "cannot list %s: %s", dir, strerror(errno));
    for (struct dirent *e; (e = readdir(d));) {
        struct ft_ckpt_name n = {0};
        if (!ft_ckpt_name_parse(e->d_name, &n.kind, &n.step)) continue;
        n.name = ft_xstrdup(e->d_name);
        ft_grow(&out->v, &cap, out->n + 1, sizeof *out->v);
        out->v[out->n++] = n;
    }
    closedir(d);
    if (out->n) qsort(out->v, out->n, sizeof *out->v, by_kind);
    return FT_OK;
}

void ft_ckpt_names_fini(struct ft_ckpt_names *l)
{
    for (size_t i = 0; i < l->n; i++) free(l->v[i].name);
    free(l->v);
    *l = (struct ft_ckpt_names){0};
}

void ft_ckpt_hint_read(const char *dir, const char *hint, struct ft_buf *out)
{
    struct ft_buf path = {0};
    enum ft_ckpt_kind kind;
    int64_t step;
    join(&path, dir, hint);
    if (ft_read_file(ft_buf_str(&path), 4096, out, NULL)) ft_buf_clear(out);
    ft_buf_fini(&path);
    while (out->n && (out->data[out->n - 1] == '\n' || out->data[out->n - 1] == ' ')) out->data[--out->n] = 0;
    if (!ft_ckpt_name_parse(ft_buf_str(out), &kind, &step) || kind != FT_CKPT_STEP) ft_buf_clear(out);
}

enum ft_code ft_ckpt_hint_write(struct ft_fio *f, const char *dir, const char *hint, const char *name, struct ft_err *err)
{
    struct ft_buf part = {0}, path = {0}, line = {0};
    join(&path, dir, hint);
    ft_buf_addf(&part, "%s/%s.part", dir, hint);
    ft_buf_addf(&line, "%s\n", name);
    int fd = ft_fio_open(f, FT_FIO_OPEN, ft_buf_str(&part), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    bool ok = fd >= 0 && !ft_fio_write(f, fd, line.data, line.n) && !ft_fio_fsync(f, fd);
    int saved = errno;
    if (fd >= 0 && ft_fio_close(f, &fd) && ok) {
        saved = errno;
        ok = false;
    }
    if (ok && (ft_fio_rename(f, FT_FIO_LATEST, ft_buf_str(&part), ft_buf_str(&path)) || ft_fio_fsyncdir(f, dir))) {
        saved = errno;
        ok = false;
    }
    if (!ok) {
        unlink(ft_buf_str(&part));
        ft_fail(err, FT_IO, "writing %s: %s", ft_buf_str(&path), strerror(saved));
    }
    ft_buf_fini(&part);
    ft_buf_fini(&path);
    ft_buf_fini(&line);
    return ok ? FT_OK : FT_IO;
}

enum ft_code ft_ckpt_remove(struct ft_fio *f, const char *dir, const char *name, struct ft_err *err)
{
    struct ft_buf path = {0}, file = {0};
    enum ft_code rc = FT_OK;
    join(&path, dir, name);
    DIR *d = opendir(ft_buf_str(&path));
    if (!d) {
        if (errno != ENOENT) rc = ft_fail(err, FT_IO, "opening %s: %s", ft_buf_str(&path), strerror(errno));
        ft_buf_fini(&path);
        return rc;
    }
    for (struct dirent *e; !rc && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        join(&file, ft_buf_str(&path), e->d_name);
        if (ft_fio_unlink(f, ft_buf_str(&file)) && errno != ENOENT)
            rc = ft_fail(err, FT_IO, "removing %s: %s", ft_buf_str(&file), strerror(errno));
    }
    closedir(d);
    if (!rc && ft_fio_rmdir(f, ft_buf_str(&path)) && errno != ENOENT)
        rc = ft_fail(err, FT_IO, "removing %s: %s", ft_buf_str(&path), strerror(errno));
    ft_buf_fini(&path);
    ft_buf_fini(&file);
    return rc;
}

enum ft_code ft_ckpt_delete(struct ft_fio *f, const char *dir, const char *name, const char *run_id, struct ft_err *err)
{
    struct ft_buf from = {0}, to = {0}, base = {0};
    enum ft_code rc = FT_OK;
    ft_buf_addf(&base, ".del-%s-%s", name, run_id);
    join(&from, dir, name);
    join(&to, dir, ft_buf_str(&base));
    if (ft_fio_rename(f, FT_FIO_RENAME, ft_buf_str(&from), ft_buf_str(&to)))
        rc = ft_fail(err, FT_IO, "renaming %s: %s", ft_buf_str(&from), strerror(errno));
    else rc = ft_ckpt_remove(f, dir, ft_buf_str(&base), err);
    ft_buf_fini(&from);
    ft_buf_fini(&to);
    ft_buf_fini(&base);
    return rc;
}

bool ft_ckpt_lineage(const char *dir, const char *name, struct ft_buf *lineage, struct ft_buf *run_id)
{
    struct ft_buf path = {0}, text = {0};
    struct ft_manifest *m = NULL;
    join(&path, dir, name);
    const bool ok = !ft_manifest_read(ft_buf_str(&path), &text, NULL) &&
                    !ft_manifest_parse(ft_buf_str(&path), text.data, text.n, &m, NULL);
    ft_buf_clear(lineage);
    if (run_id) ft_buf_clear(run_id);
    if (ok) {
        ft_buf_adds(lineage, m->lineage);
        if (run_id) ft_buf_adds(run_id, m->run_id);
    }
    ft_manifest_destroy(m);
    ft_buf_fini(&path);
    ft_buf_fini(&text);
    return ok;
}

/* A folder that a re-save had set aside: back to its place when that is free and nothing newer of its lineage stands there. */
static enum ft_code put_back(struct ft_ckpt *c, const struct ft_ckpt_name *old, struct ft_err *err)
{
    char plain[64];
    struct ft_buf mine = {0}, run = {0}, other = {0}, from = {0}, to = {0};
    snprintf(plain, sizeof plain, "step_%08lld", (long long)old->step);
    const bool ok = ft_ckpt_lineage(c->dir, old->name, &mine, &run);
    join(&from, c->dir, old->name);
    join(&to, c->dir, plain);
    bool back = ok && !ft_is_dir(ft_buf_str(&to));
    if (ok && !back && ft_ckpt_lineage(c->dir, plain, &other, NULL) && strcmp(ft_buf_str(&other), ft_buf_str(&mine)) != 0) {
        ft_buf_addf(&to, "-%s", ft_buf_str(&run)); /* the plain name belongs to another lineage */
        back = !ft_is_dir(ft_buf_str(&to));
    }
    enum ft_code rc = FT_OK;
    if (back) {
        if (ft_fio_rename(&c->fio, FT_FIO_RENAME, ft_buf_str(&from), ft_buf_str(&to)))
            rc = ft_fail(err, FT_IO, "renaming %s: %s", ft_buf_str(&from), strerror(errno));
        else ft_ckpt_say(c, "put back %s, which an earlier run had set aside", ft_manifest_base(ft_buf_str(&to)));
    } else {
        rc = ft_ckpt_remove(&c->fio, c->dir, old->name, err);
        if (!rc) ft_ckpt_say(c, "removed %s, left by an earlier run", old->name);
    }
    ft_buf_fini(&mine);
    ft_buf_fini(&run);
    ft_buf_fini(&other);
    ft_buf_fini(&from);
    ft_buf_fini(&to);
    return rc;
}

enum ft_code ft_ckpt_sweep(struct ft_ckpt *c, struct ft_err *err)
{
    struct ft_ckpt_names l;
    enum ft_code rc = ft_ckpt_names_read(c->dir, &l, err);
    for (size_t i = 0; i < l.n && !rc; i++) {
        struct ft_err why = {0};
        enum ft_code one = FT_OK;
        if (l.v[i].kind == FT_CKPT_OLD) one = put_back(c, &l.v[i], &why);
        if (l.v[i].kind == FT_CKPT_TMP || l.v[i].kind == FT_CKPT_DEL) {
            one = ft_ckpt_remove(&c->fio, c->dir, l.v[i].name, &why);
            if (!one) ft_ckpt_say(c, "removed %s, left by an earlier run", l.v[i].name);
        }
        if (one) ft_log(FT_LOG_WARN, "ckpt", "%s", why.text); /* a leftover that stays is no reason not to train */
    }
    ft_ckpt_names_fini(&l);
    return rc;
}

static bool stays(const struct ft_ckpt_retention *r, const struct ft_ckpt_name *n)
{
    for (size_t i = 0; i < 4; i++)
        if (r->kept[i] && !strcmp(r->kept[i], n->name)) return true;
    return r->best_step > 0 && n->step == r->best_step;
}

enum ft_code ft_ckpt_retain(struct ft_fio *f, const struct ft_ckpt_retention *r, struct ft_buf *removed, struct ft_err *err)
{
    struct ft_ckpt_names l;
    struct ft_buf lineage = {0};
    if (r->keep <= 0) return FT_OK;
    enum ft_code rc = ft_ckpt_names_read(r->dir, &l, err);
    int64_t seen = 0;
    for (size_t k = l.n; k-- > 0 && !rc;) { /* newest first */
        const struct ft_ckpt_name *n = &l.v[k];
        if (n->kind != FT_CKPT_STEP || !ft_ckpt_lineage(r->dir, n->name, &lineage, NULL) ||
            strcmp(ft_buf_str(&lineage), r->lineage) != 0)
            continue;
        if (seen++ < r->keep || stays(r, n)) continue;
        if (!r->dry_run) rc = ft_ckpt_delete(f, r->dir, n->name, r->run_id, err);
        if (!rc) ft_buf_addf(removed, "%s%s", removed->n ? " " : "", n->name);
    }
    ft_ckpt_names_fini(&l);
    ft_buf_fini(&lineage);
    return rc;
}
