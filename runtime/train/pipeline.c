#include "runtime/train/pipeline.h"

#include <string.h>

#include "runtime/coll/comm.h"

/* A pass on its way through this stage. */
struct walk {
    const struct ft_pipeline *p;
    struct ft_message leaves; /* what the last action left for a neighbour */
    bool leaving;
};

static bool is_last(const struct ft_pipeline *p) { return p->stage == p->stages - 1; }

static uint32_t tag(enum ft_pass pass, int64_t micro) { return (uint32_t)micro << 1 | (pass == FT_PASS_BACKWARD); }

static enum ft_code move(struct walk *w, const struct ft_message *comes, struct ft_err *err)
{
    struct ft_message m[2];
    size_t n = 0;
    if (w->leaving) m[n++] = w->leaves;
    if (comes) m[n++] = *comes;
    w->leaving = false;
    return n ? ft_comm_exchange(w->p->comm, FT_GROUP_PP, m, n, err) : FT_OK;
}

/* What this action waits for comes while what the last one left goes. A gradient goes out before the next one comes in: both lie in
 * the same place. */
static enum ft_code receive(struct walk *w, const struct ft_action *a, const struct ft_batch *b, int slot, struct ft_err *err)
{
    const struct ft_pipeline *p = w->p;
    struct ft_message m = {.way = FT_WAY_RECV, .tag = tag(a->pass, a->micro), .bytes = ft_model_stage_bytes(p->model, b)};
    if (a->pass == FT_PASS_FORWARD) {
        if (p->stage == 0) return move(w, NULL, err);
        m.peer = p->stage - 1;
        m.in = ft_model_stage_input(p->model, slot);
        return move(w, &m, err);
    }
    if (is_last(p)) return move(w, NULL, err);
    m.peer = p->stage + 1;
    m.in = ft_model_stage_gradient(p->model);
    enum ft_code code = FT_OK;
    if (w->leaving && w->leaves.out == m.in) code = move(w, NULL, err);
    return code ? code : move(w, &m, err);
}

static void leave(struct walk *w, const struct ft_action *a, const struct ft_batch *b)
{
    const struct ft_pipeline *p = w->p;
    const bool forward = a->pass == FT_PASS_FORWARD;
    if (forward ? is_last(p) : p->stage == 0) return;
    w->leaving = true;
    w->leaves = (struct ft_message){.way = FT_WAY_SEND,
                                    .peer = forward ? p->stage + 1 : p->stage - 1,
                                    .tag = tag(a->pass, a->micro),
                                    .bytes = ft_model_stage_bytes(p->model, b),
                                    .out = forward ? ft_model_stage_output(p->model) : ft_model_stage_gradient(p->model)};
}

static enum ft_code act(struct walk *w, const struct ft_action *a, const struct ft_batch *b, double scale, double *ce_sum,
                        struct ft_err *err)
{
    struct ft_model *m = w->p->model;
    const int slot = (int)(a->micro % ft_model_live(m));
    enum ft_code code = receive(w, a, b, slot, err);
    double ce = 0;
    if (code) return code;
    if (a->pass == FT_PASS_FORWARD) code = ft_model_stage_forward(m, b, slot, scale, &ce, err);
    else code = ft_model_stage_backward(m, b, slot, err);
    if (code) return code;
    *ce_sum += ce;
    leave(w, a, b);
    return FT_OK;
}

enum ft_code ft_pipeline_train(const struct ft_pipeline *p, const struct ft_micro_batches *b, double scale, double *ce_sum,
                               struct ft_err *err)
{
    struct ft_arena *arena = ft_arena_create();
    const struct ft_pipeline_schedule s = ft_pipeline_schedule(p->stages, p->stage, b->n, arena);
    if (s.peak > ft_model_live(p->model))
        FT_BUG("%lld micro-batches at once, %d planned", (long long)s.peak, ft_model_live(p->model));
    struct walk w = {.p = p};
    enum ft_code code = FT_OK;
    double ce = 0;
    for (size_t i = 0; !code && i < s.n; i++) {
        const struct ft_batch batch = b->get(b->ctx, b->first + s.actions[i].micro);
        code = act(&w, &s.actions[i], &batch, scale, &ce, err);
    }
    if (!code) code = move(&w, NULL, err);
    ft_arena_destroy(arena);
    if (!code) *ce_sum = ce;
    return code;
}

enum ft_code ft_pipeline_evaluate(const struct ft_pipeline *p, const struct ft_batch *b, double *ce_sum, float *token_loss,
                                  struct ft_err *err)
{
    struct walk w = {.p = p};
    const struct ft_action a = {FT_PASS_FORWARD, 0};
    enum ft_code code = receive(&w, &a, b, 0, err);
    if (!code) code = ft_model_stage_evaluate(p->model, b, ce_sum, token_loss, err);
    if (code) return code;
    leave(&w, &a, b);
    return move(&w, NULL, err);
}
