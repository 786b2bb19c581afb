#include "runtime/train/pipeline.h"

#include <string.h>

#include "runtime/coll/comm.h"

/* ---- messages ---- */

static int64_t virtual_stage(const struct ft_pipeline *p, int chunk) { return (int64_t)chunk * p->stages + p->stage; }
static bool is_last(const struct ft_pipeline *p, int chunk) { return p->stage == p->stages - 1 && chunk == p->chunks - 1; }
static int after(const struct ft_pipeline *p) { return (p->stage + 1) % p->stages; }
static int before(const struct ft_pipeline *p) { return (p->stage + p->stages - 1) % p->stages; }

/* border: the virtual stage in front of it. */
static uint32_t tag(const struct ft_pipeline *p, const struct ft_action *a, int64_t border)
{
    return (uint32_t)(a->micro * p->chunks + border / p->stages) << 1 | (a->pass == FT_PASS_BACKWARD);
}

/* What this action waits for: false: for nobody. */
static bool comes(const struct ft_pipeline *p, const struct ft_action *a, const struct ft_batch *b, struct ft_message *out)
{
    const int64_t at = virtual_stage(p, a->chunk);
    const bool forward = a->pass == FT_PASS_FORWARD;
    if (forward ? at == 0 : is_last(p, a->chunk)) return false;
    *out = (struct ft_message){.way = FT_WAY_RECV,
                               .peer = forward ? before(p) : after(p),
                               .tag = tag(p, a, forward ? at - 1 : at),
                               .bytes = ft_model_stage_bytes(p->model, b)};
    return true;
}

/* What it leaves for a neighbour. */
static bool leaves(const struct ft_pipeline *p, const struct ft_action *a, const struct ft_batch *b, struct ft_message *out)
{
    const int64_t at = virtual_stage(p, a->chunk);
    const bool forward = a->pass == FT_PASS_FORWARD;
    if (forward ? is_last(p, a->chunk) : at == 0) return false;
    *out = (struct ft_message){.way = FT_WAY_SEND,
                               .peer = forward ? after(p) : before(p),
                               .tag = tag(p, a, forward ? at : at - 1),
                               .bytes = ft_model_stage_bytes(p->model, b),
                               .out = forward ? ft_model_stage_output(p->model) : (const void *)ft_model_stage_gradient(p->model)};
    return true;
}

/* ---- one chunk: the next action waits for one message at most ---- */

/* A pass on its way through this stage. */
struct walk {
    const struct ft_pipeline *p;
    struct ft_message leaves; /* what the last action left for a neighbour */
    bool leaving;
};

static enum ft_code move(struct walk *w, const struct ft_message *m, struct ft_err *err)
{
    struct ft_message list[2];
    size_t n = 0;
    if (w->leaving) list[n++] = w->leaves;
    if (m) list[n++] = *m;
    w->leaving = false;
    return n ? ft_comm_exchange(w->p->comm, FT_GROUP_PP, list, n, err) : FT_OK;
}

/* What this action waits for comes while what the last one left goes. A gradient goes out before the next one comes in: both lie in
 * the same place. */
static enum ft_code receive(struct walk *w, const struct ft_action *a, const struct ft_batch *b, int slot, struct ft_err *err)
{
    const struct ft_pipeline *p = w->p;
    struct ft_message m;
    if (!comes(p, a, b, &m)) return move(w, NULL, err);
    m.in = a->pass == FT_PASS_FORWARD ? ft_model_stage_input(p->model, slot) : ft_model_stage_gradient(p->model);
    enum ft_code code = FT_OK;
    if (w->leaving && w->leaves.out == m.in) code = move(w, NULL, err);
    return code ? code : move(w, &m, err);
}

static enum ft_code compute(const struct ft_pipeline *p, const struct ft_action *a, const struct ft_batch *b, int slot,
                            double scale, double *ce_sum, struct ft_err *err)
{
    double ce = 0;
    const enum ft_code code = a->pass == FT_PASS_FORWARD ? ft_model_stage_forward(p->model, b, a->chunk, slot, scale, &ce, err)
                                                         : ft_model_stage_backward(p->model, b, a->chunk, slot, err);
    if (!code) *ce_sum += ce;
    return code;
}

static enum ft_code train_plain(const struct ft_pipeline *p, const struct ft_pipeline_schedule *s, const struct ft_micro_batches *b,
                                double scale, double *ce, struct ft_err *err)
{
    struct walk w = {.p = p};
    enum ft_code code = FT_OK;
    for (size_t i = 0; !code && i < s->n; i++) {
        const struct ft_action *a = &s->actions[i];
        const struct ft_batch batch = b->get(b->ctx, b->first + a->micro);
        const int slot = (int)(a->micro % ft_model_live(p->model));
        code = receive(&w, a, &batch, slot, err);
        if (!code) code = compute(p, a, &batch, slot, scale, ce, err);
        if (!code) w.leaving = leaves(p, a, &batch, &w.leaves);
    }
    return code ? code : move(&w, NULL, err);
}

/* ---- chunks: rounds of one action, or of a forward and a backward between warm-up and drain ----
 * Everything that a round left goes, and everything that the next one waits for comes, in one exchange. Stages are a ring here, the
 * last one sends forward to the first: were messages exchanged action by action, all could wait in a circle for one that is to be taken
 * later. With two stages both ways are between the same ranks, and rounds make both list their messages in the same order. */

enum { MOST = 4 };

struct rounds {
    const struct ft_pipeline *p;
    const struct ft_micro_batches *b;
    struct ft_message list[MOST]; /* of the next exchange */
    size_t n;
    int *slot; /* (micro-batches, chunks) */
    int *free; /* slots that are free */
    int n_free;
};

static int *slot_of(struct rounds *r, const struct ft_action *a) { return &r->slot[a->micro * r->p->chunks + a->chunk]; }

static void expect(struct rounds *r, const struct ft_action *a)
{
    const struct ft_batch batch = r->b->get(r->b->ctx, r->b->first + a->micro);
    const bool forward = a->pass == FT_PASS_FORWARD;
    struct ft_message m;
    if (forward) *slot_of(r, a) = r->free[--r->n_free];
    if (!comes(r->p, a, &batch, &m)) return;
    m.in = forward ? ft_model_stage_input(r->p->model, *slot_of(r, a)) : ft_model_stage_gradient_next(r->p->model);
    r->list[r->n++] = m;
}

static enum ft_code exchange(struct rounds *r, struct ft_err *err)
{
    const enum ft_code code = r->n ? ft_comm_exchange(r->p->comm, FT_GROUP_PP, r->list, r->n, err) : FT_OK;
    r->n = 0;
    return code;
}

static enum ft_code act(struct rounds *r, const struct ft_action *a, double scale, double *ce, struct ft_err *err)
{
    const struct ft_batch batch = r->b->get(r->b->ctx, r->b->first + a->micro);
    const bool forward = a->pass == FT_PASS_FORWARD;
    const int slot = *slot_of(r, a);
    if (!forward && !is_last(r->p, a->chunk)) ft_model_stage_turn(r->p->model);
    const enum ft_code code = compute(r->p, a, &batch, slot, scale, ce, err);
    if (code) return code;
    if (!forward) r->free[r->n_free++] = slot;
    r->n += leaves(r->p, a, &batch, &r->list[r->n]);
    return FT_OK;
}

static enum ft_code train_chunks(const struct ft_pipeline *p, const struct ft_pipeline_schedule *s,
                                 const struct ft_micro_batches *b, double scale, double *ce, struct ft_arena *arena,
                                 struct ft_err *err)
{
    struct rounds r = {.p = p, .b = b, .n_free = ft_model_live(p->model)};
    r.slot = ft_arena_array(arena, (size_t)(b->n * p->chunks), sizeof *r.slot);
    r.free = ft_arena_array(arena, (size_t)r.n_free, sizeof *r.free);
    for (int i = 0; i < r.n_free; i++) r.free[i] = r.n_free - 1 - i;
    const size_t w = (size_t)s->warmup;
    enum ft_code code = FT_OK;
    for (size_t i = 0, k; !code && i < s->n; i += k) {
        k = i < w || i >= s->n - w ? 1 : 2;
        for (size_t j = 0; j < k; j++) expect(&r, &s->actions[i + j]);
        code = exchange(&r, err);
        for (size_t j = 0; !code && j < k; j++) code = act(&r, &s->actions[i + j], scale, ce, err);
    }
    return code ? code : exchange(&r, err);
}

/* ---- the calls ---- */

enum ft_code ft_pipeline_train(const struct ft_pipeline *p, const struct ft_micro_batches *b, double scale, double *ce_sum,
                               struct ft_err *err)
{
    struct ft_arena *arena = ft_arena_create();
    const struct ft_pipeline_schedule s = ft_pipeline_schedule(p->stages, p->stage, p->chunks, b->n, arena);
    if (s.peak > ft_model_live(p->model))
        FT_BUG("%lld micro-batches at once, %d planned", (long long)s.peak, ft_model_live(p->model));
    double ce = 0;
    const enum ft_code code = p->chunks > 1 ? train_chunks(p, &s, b, scale, &ce, arena, err)
                                            : train_plain(p, &s, b, scale, &ce, err);
    ft_arena_destroy(arena);
    if (!code) *ce_sum = ce;
    return code;
}

enum ft_code ft_pipeline_evaluate(const struct ft_pipeline *p, const struct ft_batch *b, double *ce_sum, float *token_loss,
                                  struct ft_err *err)
{
    struct walk w = {.p = p};
    enum ft_code code = FT_OK;
    for (int chunk = 0; !code && chunk < p->chunks; chunk++) {
        const struct ft_action a = {FT_PASS_FORWARD, chunk, 0};
        code = receive(&w, &a, b, 0, err);
        if (!code) code = ft_model_stage_evaluate(p->model, b, chunk, ce_sum, token_loss, err);
        if (!code) w.leaving = leaves(p, &a, b, &w.leaves);
    }
    return code ? code : move(&w, NULL, err);
}
