/* Which checkpoint a run resumes from (on-disk formats, section 8), and the walk through the candidates. Rank 0 chooses and gives the
 * bytes of the manifest to all; no other rank lists folders. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "runtime/ckpt/import.h"
#include "runtime/ckpt/state.h"

struct candidate {
    char *path, *lineage, *created;
    int64_t step;
    bool readable; /* its manifest is */
};

struct chooser {         /* rank 0 */
    struct candidate *v; /* oldest first */
    size_t n, cap;
    size_t left;  /* v[0..left) are still to try */
    size_t n_bad; /* damaged ones that were passed over */
    bool exact;   /* this one or none */
};

static void add(struct chooser *h, const char *path, int64_t step)
{
    struct ft_buf text = {0};
    struct ft_manifest *m = NULL;
    struct candidate k = {.path = ft_xstrdup(path), .step = step};
    k.readable = !ft_manifest_read(path, &text, NULL) && !ft_manifest_parse(path, text.data, text.n, &m, NULL);
    k.lineage = ft_xstrdup(k.readable ? m->lineage : "");
    k.created = ft_xstrdup(k.readable ? m->created : "");
    if (k.readable) k.step = m->step;
    ft_manifest_destroy(m);
    ft_buf_fini(&text);
    ft_grow(&h->v, &h->cap, h->n + 1, sizeof *h->v);
    h->v[h->n++] = k;
}

static void drop(struct candidate *k)
{
    free(k->path);
    free(k->lineage);
    free(k->created);
}

static void fini(struct chooser *h)
{
    for (size_t i = 0; i < h->n; i++) drop(&h->v[i]);
    free(h->v);
}

static enum ft_code list_all(struct ft_ckpt *c, struct chooser *h, struct ft_err *err)
{
    struct ft_ckpt_names l;
    struct ft_buf path = {0};
    const enum ft_code rc = ft_ckpt_names_read(c->dir, &l, err);
    for (size_t i = 0; i < l.n && !rc; i++) {
        if (l.v[i].kind != FT_CKPT_STEP) continue;
        ft_buf_clear(&path);
        ft_buf_addf(&path, "%s/%s", c->dir, l.v[i].name);
        add(h, ft_buf_str(&path), l.v[i].step);
    }
    ft_ckpt_names_fini(&l);
    ft_buf_fini(&path);
    return rc;
}

/* The candidate that LATEST names, if its manifest can be read. */
static const struct candidate *latest(const struct ft_ckpt *c, const struct chooser *h)
{
    struct ft_buf name = {0};
    const struct candidate *found = NULL;
    ft_ckpt_hint_read(c->dir, "LATEST", &name);
    for (size_t i = 0; i < h->n && name.n; i++)
        if (h->v[i].readable && !strcmp(ft_manifest_base(h->v[i].path), ft_buf_str(&name))) found = &h->v[i];
    ft_buf_fini(&name);
    return found;
}

static enum ft_code several(const struct chooser *h, struct ft_err *err)
{
    struct ft_buf b = {0};
    for (size_t i = 0; i < h->n; i++) {
        bool before = false;
        for (size_t j = 0; j < i; j++) before |= !strcmp(h->v[i].lineage, h->v[j].lineage);
        if (h->v[i].readable && !before)
            ft_buf_addf(&b, "%s%s (%s)", b.n ? ", " : "", h->v[i].lineage, ft_manifest_base(h->v[i].path));
    }
    ft_fail(err, FT_CONFIG, "checkpoints of several runs and no LATEST that says which one goes on: %s", ft_buf_str(&b));
    ft_buf_fini(&b);
    return ft_fix(err, "set [checkpoint] resume to the step or the path that is meant");
}

/* Leaves only what `auto` may take: the lineage of LATEST, or the only one there is. Damaged manifests stay, to be named. */
static enum ft_code keep_lineage(struct ft_ckpt *c, struct chooser *h, struct ft_err *err)
{
    const struct candidate *l = latest(c, h);
    const char *lineage = l ? l->lineage : NULL;
    for (size_t i = 0; i < h->n && !l; i++) {
        if (!h->v[i].readable) continue;
        if (lineage && strcmp(lineage, h->v[i].lineage) != 0) return several(h, err);
        lineage = h->v[i].lineage;
    }
    char *keep = ft_xstrdup(lineage ? lineage : ""), *created = ft_xstrdup(l ? l->created : "");
    const int64_t step = l ? l->step : INT64_MAX;
    size_t n = 0;
    for (size_t i = 0; i < h->n; i++) {
        const struct candidate *k = &h->v[i];
        /* A later step that is older than LATEST is of a branch that was given up by resuming at an earlier step. */
        const bool abandoned = k->readable && k->step > step && strcmp(k->created, created) < 0;
        if ((k->readable && strcmp(k->lineage, keep) != 0) || abandoned) drop(&h->v[i]);
        else h->v[n++] = h->v[i];
    }
    h->n = n;
    free(keep);
    free(created);
    return FT_OK;
}

static enum ft_code one_step(struct ft_ckpt *c, struct chooser *h, int64_t step, struct ft_err *err)
{
    const struct candidate *l = latest(c, h);
    size_t hit = h->n, n_hits = 0;
    for (size_t i = 0; i < h->n; i++) {
        if (h->v[i].step != step) continue;
        if (l && h->v[i].readable && !strcmp(l->lineage, h->v[i].lineage)) { /* the run that LATEST speaks of */
            hit = i;
            n_hits = 1;
            break;
        }
        hit = i;
        n_hits++;
    }
    if (n_hits > 1) return several(h, err);
    if (!n_hits) {
        ft_fail(err, FT_CONFIG, "there is no checkpoint of step %lld", (long long)step);
        ft_at(err, "%s", c->dir);
        return ft_fix(err, "fttrain ckpt ls %s lists what is there", c->dir);
    }
    struct candidate k = h->v[hit];
    for (size_t i = 0; i < h->n; i++)
        if (i != hit) drop(&h->v[i]);
    h->v[0] = k;
    h->n = 1;
    return FT_OK;
}

static enum ft_code one_path(struct chooser *h, const char *path, struct ft_err *err)
{
    struct ft_buf file = {0};
    ft_buf_addf(&file, "%s/manifest.json", path);
    const bool there = ft_is_file(ft_buf_str(&file));
    ft_buf_fini(&file);
    if (!there) {
        if (ft_import_foreign(path, err)) return FT_CONFIG;
        ft_fail(err, FT_CONFIG, "resume = %s: %s", path,
                ft_is_dir(path)    ? "it has no manifest.json, so it is no checkpoint"
                : ft_is_file(path) ? "a file, no checkpoint"
                                   : "no such folder");
        return ft_fix(err, "give a step, or the path of a step_… folder");
    }
    add(h, path, 0);
    return FT_OK;
}

static enum ft_code start(struct ft_ckpt *c, struct chooser *h, struct ft_err *err)
{
    const char *how = c->o.resume ? c->o.resume : "auto";
    int64_t step;
    enum ft_code rc = FT_OK;
    if (!strcmp(how, "never")) return FT_OK;
    h->exact = strcmp(how, "auto") != 0;
    if (!h->exact) {
        rc = list_all(c, h, err);
        if (!rc) rc = keep_lineage(c, h, err);
    } else if (ft_parse_i64(how, 0, INT64_MAX, &step)) {
        rc = list_all(c, h, err);
        if (!rc) rc = one_step(c, h, step, err);
    } else {
        rc = one_path(h, how, err);
    }
    h->left = h->n;
    return rc;
}

static enum ft_code none_valid(const struct ft_ckpt *c, const struct chooser *h, const struct ft_err *last, struct ft_err *err)
{
    ft_fail(err, FT_DATA, "none of the %zu checkpoints is valid; the last one tried: %s", h->n_bad, last->text);
    ft_at(err, "%s", c->dir);
    return ft_fix(err, "a fresh start would lose this run; set [checkpoint] resume = never to mean it");
}

static enum ft_code cannot(const char *path, struct ft_err *err)
{
    const struct ft_err old = err ? *err : (struct ft_err){.code = FT_DATA};
    ft_fail(err, old.code, "cannot resume from '%s': %s", ft_manifest_base(path), old.text);
    ft_at(err, "%s/manifest.json", path);
    if (*old.where) ft_at(err, "%s", old.where);
    if (*old.fix) ft_fix(err, "%s", old.fix);
    return old.code;
}

/* The next candidate whose manifest and files look right; path empty: start afresh. last: what was wrong with the one before. */
static enum ft_code next(struct ft_ckpt *c, struct chooser *h, struct ft_err *last, struct ft_buf *path, struct ft_buf *text,
                         struct ft_err *err)
{
    ft_buf_clear(path);
    ft_buf_clear(text);
    while (h->left) {
        const struct candidate *k = &h->v[--h->left];
        struct ft_manifest *m = NULL;
        ft_buf_clear(text);
        enum ft_code rc = ft_manifest_read(k->path, text, last);
        if (!rc) rc = ft_manifest_parse(k->path, text->data, text->n, &m, last);
        for (size_t i = 0; m && i < m->n_warnings; i++)
            ft_ckpt_say(c, "warning: %s: %s", ft_manifest_base(k->path), m->warnings[i]);
        if (!rc) rc = ft_manifest_check_files(m, k->path, last);
        ft_manifest_destroy(m);
        if (!rc) {
            ft_buf_adds(path, k->path);
            return FT_OK;
        }
        h->n_bad++;
        if (h->exact) {
            if (err) *err = *last;
            return cannot(k->path, err);
        }
        ft_ckpt_say(c, "%s is damaged and is passed over: %s", ft_manifest_base(k->path), last->text);
    }
    ft_buf_clear(text);
    return h->n_bad ? none_valid(c, h, last, err) : FT_OK;
}

static void say_resumed(struct ft_ckpt *c, const struct ft_manifest *m, const struct ft_ckpt_agreed *a, int64_t ns)
{
    const struct ft_json *l = ft_json_get(m->root, "layout");
    const struct ft_ckpt_run *r = c->o.run;
    ft_ckpt_say(c,
                "resumed step %lld (saved tp=%lld pp=%lld dp=%lld, now tp=%d pp=%d dp=%d): %zu tensors, %.1f MB verified in %.1f s",
                (long long)m->step, (long long)ft_json_int(ft_json_get(l, "tensor"), 0),
                (long long)ft_json_int(ft_json_get(l, "pipeline"), 0), (long long)ft_json_int(ft_json_get(l, "data"), 0), r->tensor,
                r->pipeline, r->data, m->tensors.n, (double)m->bytes / 1e6, (double)ns / FT_SEC);
    if (a->changed && *a->changed) ft_ckpt_say(c, "changed since checkpoint: %s", a->changed);
}

static void remember(struct ft_ckpt *c, const struct ft_manifest *m, const char *path)
{
    const size_t n = strlen(c->dir);
    free(c->lineage);
    c->lineage = ft_xstrdup(m->lineage);
    c->origin = (struct ft_mf_origin){.lineage = c->lineage, .has_parent = true, .parent_step = m->step, .parent_crc = m->self_crc};
    free(c->resumed);
    c->resumed = !strncmp(path, c->dir, n) && path[n] == '/' && !strchr(path + n + 1, '/') ? ft_xstrdup(path + n + 1) : NULL;
    c->last_step = m->step;
}

/* One candidate, on all ranks. */
static enum ft_code attempt(struct ft_ckpt *c, const char *path, const struct ft_buf *text, const struct ft_ckpt_piece *pieces,
                            size_t n, struct ft_ckpt_scalars *scalars, int64_t *step, bool *fresh_position, struct ft_err *err)
{
    struct ft_manifest *m = NULL;
    struct ft_ckpt_agreed agreed = {0};
    const int64_t started = ft_clock_now(ft_clock_real());
    enum ft_code rc = ft_manifest_parse(path, text->data, text->n, &m, err);
    if (!rc) rc = ft_ckpt_agree(c, m, path, &agreed, err);
    if (!rc && (rc = ft_ckpt_cover(c, m, err)))
        ft_wrap(err, "checking coverage for tensor=%d pipeline=%d data=%d", c->o.run->tensor, c->o.run->pipeline, c->o.run->data);
    rc = ft_ckpt_share(c, rc, err);
    if (!rc) rc = ft_ckpt_load(c, m, path, pieces, n, false, err);
    if (!rc) {
        *scalars = m->scalars;
        *step = m->step;
        *fresh_position = agreed.fresh_position;
        remember(c, m, path);
        say_resumed(c, m, &agreed, ft_clock_now(ft_clock_real()) - started);
    }
    free(agreed.changed);
    ft_manifest_destroy(m);
    return rc;
}

enum ft_code ft_ckpt_resume(struct ft_ckpt *c, const struct ft_ckpt_piece *pieces, size_t n, struct ft_ckpt_scalars *scalars,
                            int64_t *step, bool *fresh_position, struct ft_err *err)
{
    struct chooser h = {0};
    struct ft_buf path = {0}, text = {0};
    struct ft_err last = {0};
    enum ft_code rc = ft_ckpt_share(c, c->rank == 0 ? start(c, &h, err) : FT_OK, err);
    int64_t exact = h.exact;
    struct ft_buf flag = {0};
    ft_buf_add(&flag, &exact, sizeof exact);
    if (!rc) rc = ft_ckpt_spread(c, &flag, err);
    if (!rc) memcpy(&exact, flag.data, sizeof exact);
    ft_buf_fini(&flag);
    *step = 0;
    *fresh_position = false;
    while (!rc) {
        rc = ft_ckpt_share(c, c->rank == 0 ? next(c, &h, &last, &path, &text, err) : FT_OK, err);
        if (!rc) rc = ft_ckpt_spread(c, &path, err);
        if (!rc) rc = ft_ckpt_spread(c, &text, err);
        if (rc || !path.n) break;
        rc = attempt(c, ft_buf_str(&path), &text, pieces, n, scalars, step, fresh_position, err);
        if (!rc) break;
        const bool damaged = rc == FT_DATA || rc == FT_IO;
        if (exact || !damaged) {
            if (rc != FT_COLL && rc != FT_TIMEOUT) cannot(ft_buf_str(&path), err);
            break;
        }
        if (err) last = *err;
        h.n_bad++;
        ft_ckpt_say(c, "%s is damaged and is passed over: %s", ft_manifest_base(ft_buf_str(&path)), last.text);
        rc = FT_OK;
    }
    fini(&h);
    ft_buf_fini(&path);
    ft_buf_fini(&text);
    return rc;
}

/* Rank 0: the folder of a step of this lineage, or of BEST; path empty: there is none. */
static enum ft_code find_weights(struct ft_ckpt *c, int64_t step, struct ft_buf *path, struct ft_buf *text, struct ft_err *err)
{
    struct ft_buf name = {0}, lineage = {0};
    struct ft_ckpt_names l = {0};
    enum ft_code rc = FT_OK;
    if (!step) {
        ft_ckpt_hint_read(c->dir, "BEST", &name);
    } else {
        rc = ft_ckpt_names_read(c->dir, &l, err);
        for (size_t i = 0; i < l.n && !rc; i++)
            if (l.v[i].kind == FT_CKPT_STEP && l.v[i].step == step && ft_ckpt_lineage(c->dir, l.v[i].name, &lineage, NULL) &&
                c->lineage && !strcmp(ft_buf_str(&lineage), c->lineage)) {
                ft_buf_clear(&name);
                ft_buf_adds(&name, l.v[i].name);
            }
        ft_ckpt_names_fini(&l);
    }
    if (!rc && name.n) {
        ft_buf_addf(path, "%s/%s", c->dir, ft_buf_str(&name));
        rc = ft_manifest_read(ft_buf_str(path), text, err);
    }
    ft_buf_fini(&name);
    ft_buf_fini(&lineage);
    return rc;
}

enum ft_code ft_ckpt_load_weights(struct ft_ckpt *c, int64_t step, const struct ft_ckpt_piece *pieces, size_t n, bool *there,
                                  struct ft_err *err)
{
    struct ft_buf path = {0}, text = {0};
    struct ft_manifest *m = NULL;
    enum ft_code rc = ft_ckpt_share(c, c->rank == 0 ? find_weights(c, step, &path, &text, err) : FT_OK, err);
    if (!rc) rc = ft_ckpt_spread(c, &path, err);
    if (!rc) rc = ft_ckpt_spread(c, &text, err);
    *there = !rc && path.n > 0;
    if (*there) {
        enum ft_code own = ft_manifest_parse(ft_buf_str(&path), text.data, text.n, &m, err);
        if (!own) own = ft_ckpt_cover(c, m, err);
        rc = ft_ckpt_share(c, own, err);
    }
    if (*there && !rc) rc = ft_ckpt_load(c, m, ft_buf_str(&path), pieces, n, true, err);
    ft_manifest_destroy(m);
    ft_buf_fini(&path);
    ft_buf_fini(&text);
    return rc;
}
