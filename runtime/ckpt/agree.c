/* What must agree between a checkpoint and the job that resumes from it (on-disk formats, section 10). Both sides are read from the
 * same JSON: the checkpoint's manifest, and the head that this run would write. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/ckpt/state.h"

enum rule { MUST, ACCEPT, POSITION /* like ACCEPT; a change restarts the position at a fresh epoch */, FREE };

struct row {
    const char *path;  /* in the manifest */
    const char *key;   /* what it is called in messages and in `accept` */
    const char *other; /* a second key that accepts it */
    enum rule rule;
};

static const struct row rows[] = {
    {"method", "train.method", NULL, MUST},
    {"model.family", "model family", NULL, MUST},
    {"model.vocab", "vocab_size", NULL, MUST},
    {"model.tied", "tie_word_embeddings", NULL, MUST},
    {"lora.rank", "lora.rank", NULL, MUST},
    {"lora.alpha", "lora.alpha", NULL, MUST},
    {"lora.targets", "lora.targets", NULL, MUST},
    {"lora.rslora", "lora.rslora", NULL, MUST},
    {"optimizer.name", "optimizer", NULL, MUST},
    {"precision", "model.precision", NULL, ACCEPT},
    {"schedule.n", "train.steps", "train.epochs", ACCEPT},
    {"schedule.hi", "train.lr", NULL, ACCEPT},
    {"schedule.lo", "train.min_lr", NULL, ACCEPT},
    {"schedule.style", "train.schedule", NULL, ACCEPT},
    {"schedule.warmup", "train.warmup", NULL, ACCEPT},
    {"optimizer.beta1", "train.beta1", NULL, ACCEPT},
    {"optimizer.beta2", "train.beta2", NULL, ACCEPT},
    {"optimizer.eps", "train.eps", NULL, ACCEPT},
    {"optimizer.weight_decay", "train.weight_decay", NULL, ACCEPT},
    {"optimizer.clip", "train.clip", NULL, ACCEPT},
    {"rng.seed", "train.seed", NULL, ACCEPT},
    {"global_batch", "train.global_batch", NULL, ACCEPT},
    {"model.dropout", "model.dropout", NULL, ACCEPT},
    {"lora.dropout", "lora.dropout", NULL, ACCEPT},
    {"base.template_sha256", "data.template", NULL, ACCEPT},
    {"data.seq_len", "data.seq_len", NULL, POSITION},
    {"data.packing", "data.packing", NULL, POSITION},
    {"data.shuffle", "data.shuffle", NULL, POSITION},
    {"data.fingerprint", "data.train", NULL, POSITION},
    {"layout.tensor", "tensor", NULL, FREE},
    {"layout.pipeline", "pipeline", NULL, FREE},
    {"layout.data", "data", NULL, FREE},
    {"layout.sequence", "sequence", NULL, FREE},
    {"layout.virtual_pipeline", "virtual_pipeline", NULL, FREE},
    {"layout.order", "order", NULL, FREE},
};

static const struct ft_json *at(const struct ft_json *v, const char *path)
{
    char part[64];
    while (v && *path) {
        const size_t n = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        v = ft_json_get(v, part);
        path += n + (path[n] == '.');
    }
    return v;
}

static bool same(const struct ft_json *a, const struct ft_json *b)
{
    if ((!a || ft_json_is(a, FT_JSON_NULL)) && (!b || ft_json_is(b, FT_JSON_NULL))) return true;
    if (!a || !b) return false;
    if (ft_json_is(a, FT_JSON_INT) && ft_json_is(b, FT_JSON_INT)) return ft_json_int(a, 0) == ft_json_int(b, 1);
    if (ft_json_is_number(a) && ft_json_is_number(b)) return ft_json_real(a, 0) == ft_json_real(b, 1);
    return ft_json_equal(a, b);
}

static void show(struct ft_buf *b, const struct ft_json *v)
{
    if (!v || ft_json_is(v, FT_JSON_NULL)) {
        ft_buf_adds(b, "nothing");
    } else if (ft_json_str(v)) {
        ft_buf_adds(b, ft_json_str(v));
    } else if (ft_json_is_bool(v)) {
        ft_buf_adds(b, ft_json_bool(v, false) ? "yes" : "no");
    } else {
        struct ft_jw w = ft_jw_begin(b);
        ft_jw_value(&w, v);
    }
}

/* "train.lr is 0.001, checkpoint has 0.0005" */
static void differ(struct ft_buf *b, const char *key, const struct ft_json *now, const struct ft_json *then)
{
    ft_buf_addf(b, "%s%s is ", b->n ? "; " : "", key);
    show(b, now);
    ft_buf_adds(b, ", checkpoint has ");
    show(b, then);
}

static void changed(struct ft_buf *b, const char *key, const struct ft_json *now, const struct ft_json *then)
{
    ft_buf_addf(b, "%s%s ", b->n ? ", " : "", key);
    show(b, then);
    ft_buf_adds(b, " -> ");
    show(b, now);
}

/* A key, its section ("data") or its second name. */
static bool accepted(const struct ft_ckpt *c, const struct row *r)
{
    const size_t section = strcspn(r->key, ".");
    for (size_t i = 0; i < c->o.n_accept; i++) {
        const char *a = c->o.accept[i];
        if (!strcmp(a, r->key) || (r->other && !strcmp(a, r->other))) return true;
        if (r->rule == POSITION && strlen(a) == section && !strncmp(a, r->key, section)) return true;
    }
    return false;
}

bool ft_ckpt_accepts(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i];
        const size_t section = strcspn(r->key, ".");
        if (r->rule != ACCEPT && r->rule != POSITION) continue;
        if (!strcmp(name, r->key) || (r->other && !strcmp(name, r->other))) return true;
        if (r->rule == POSITION && strlen(name) == section && !strncmp(name, r->key, section)) return true;
    }
    return false;
}

/* Every name that either side has. */
static void compare_maths(const struct ft_json *now, const struct ft_json *then, struct ft_buf *must)
{
    for (void *it = ft_json_iter(now); it; it = ft_json_iter_next(now, it)) {
        const struct ft_json *old = ft_json_get(then, ft_json_iter_key(it));
        if (!same(ft_json_iter_value(it), old)) differ(must, ft_json_iter_key(it), ft_json_iter_value(it), old);
    }
    for (void *it = ft_json_iter(then); it; it = ft_json_iter_next(then, it))
        if (!ft_json_get(now, ft_json_iter_key(it)) && !ft_json_is(ft_json_iter_value(it), FT_JSON_NULL))
            differ(must, ft_json_iter_key(it), NULL, ft_json_iter_value(it));
}

static enum ft_code refuse(const struct ft_buf *must, const struct ft_buf *open, const struct ft_buf *keys, struct ft_err *err)
{
    if (must->n) {
        ft_fail(err, FT_CONFIG, "%s", ft_buf_str(must));
        return ft_fix(err, "resume with the model and method that the run was started with, or set resume = never");
    }
    ft_fail(err, FT_CONFIG, "%s", ft_buf_str(open));
    return ft_fix(err, "give the job the checkpoint's values, or name what may differ: [checkpoint] accept = %s", ft_buf_str(keys));
}

enum ft_code ft_ckpt_agree(const struct ft_ckpt *c, const struct ft_manifest *m, const char *dir, struct ft_ckpt_agreed *out,
                           struct ft_err *err)
{
    struct ft_buf head = {0}, must = {0}, open = {0}, keys = {0}, change = {0};
    struct ft_json *now = NULL;
    const struct ft_mf_origin none = {.lineage = m->lineage};
    *out = (struct ft_ckpt_agreed){0};
    ft_manifest_write_head(&head, c->o.run, &m->scalars, &none, m->created);
    ft_buf_addc(&head, '}');
    enum ft_code rc = ft_json_parse(head.data, head.n, 0, &now, NULL, err);
    if (rc) rc = ft_fail(err, FT_BUG_FOUND, "the facts of this run are no JSON: %s", err ? err->text : "");
    if (!rc) compare_maths(at(now, "model.maths"), at(m->root, "model.maths"), &must);
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !rc; i++) {
        const struct row *r = &rows[i];
        const struct ft_json *mine = at(now, r->path), *theirs = at(m->root, r->path);
        if (same(mine, theirs)) continue;
        if (r->rule == MUST) {
            differ(&must, r->key, mine, theirs);
        } else if (r->rule == FREE || accepted(c, r)) {
            changed(&change, r->key, mine, theirs);
            out->fresh_position |= r->rule == POSITION;
        } else {
            differ(&open, r->key, mine, theirs);
            ft_buf_addf(&keys, "%s%s", keys.n ? ", " : "", r->key);
        }
    }
    if (!rc && (must.n || open.n)) {
        rc = FT_CONFIG;
        refuse(&must, &open, &keys, err);
        ft_at(err, "%s/manifest.json", dir);
    }
    out->changed = change.data;
    if (rc) {
        free(out->changed);
        out->changed = NULL;
    }
    ft_json_destroy(now);
    ft_buf_fini(&head);
    ft_buf_fini(&must);
    ft_buf_fini(&open);
    ft_buf_fini(&keys);
    return rc;
}
