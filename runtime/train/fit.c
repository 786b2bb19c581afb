/* When a job does not fit: what it needs, and settings of the same global batch that need less. */
#include <stdio.h>

#include "runtime/train/setup.h"

struct ft_settings ft_setup_settings(const struct ft_setup *s)
{
    return (struct ft_settings){s->layout.deal.micro, s->options.recompute, s->options.tensor, (int)s->layout.deal.data,
                                s->options.sequence};
}

struct ft_memory ft_setup_memory(const struct ft_setup *s, const struct ft_buckets *b, const struct ft_model_options *o)
{
    struct ft_memory m = ft_memory_plan(b, o);
    if (s->job->checkpoint.async) m.staging = b->state_total * 12; /* fp32: master, m and v */
    return m;
}

/* Elements of the logical tensor: the last rows of a padded vocabulary are none. */
static int64_t held(const struct ft_param *p)
{
    int64_t n = 1;
    for (int i = 0; i < 2; i++) {
        const int64_t real = p->dims[i] - p->origin[i];
        n *= real < 0 ? 0 : real < p->local[i] ? real : p->local[i];
    }
    return n;
}

struct ft_need ft_setup_need(const struct ft_setup *s, const struct ft_settings *x, int tensor_rank, int stage)
{
    struct ft_model_options o = s->options;
    o.max_tokens = x->micro_batch * s->seq_len;
    o.recompute = x->recompute;
    o.tensor = x->tensor;
    o.sequence = x->sequence;
    o.tensor_rank = tensor_rank;
    o.stage = stage;
    o.micro_batches = s->layout.deal.global_batch / (x->micro_batch * x->data);
    size_t n;
    struct ft_need need = {0};
    struct ft_arena *arena = ft_arena_create();
    const struct ft_param *rows = ft_model_rows(&o, arena, &n);
    const struct ft_buckets b = ft_memory_buckets(rows, n, x->data, 0, arena);
    for (size_t i = 0; i < n; i++) need.parameters += held(&rows[i]);
    need.memory = ft_setup_memory(s, &b, &o);
    ft_arena_destroy(arena);
    return need;
}

struct ft_memory ft_setup_worst(const struct ft_setup *s, const struct ft_settings *x)
{
    struct ft_memory worst = {0};
    for (int i = 0; i < s->options.pipeline; i++) {
        const struct ft_memory m = ft_setup_need(s, x, 0, i).memory;
        if (ft_memory_total(&m) > ft_memory_total(&worst)) worst = m;
    }
    return worst;
}

static int64_t total_with(const struct ft_setup *s, const struct ft_settings *x)
{
    const struct ft_memory m = ft_setup_worst(s, x);
    return ft_memory_total(&m);
}

/* The next smaller number of rows that still divides the rows of a data rank; 0: there is none. */
static int64_t next_micro(const struct ft_setup *s, int64_t micro)
{
    const int64_t rows = s->layout.deal.global_batch / s->layout.deal.data;
    int64_t m = micro / 2;
    while (m > 0 && rows % m) m--;
    return m;
}

bool ft_setup_fit(const struct ft_setup *s, int64_t available, struct ft_settings *out)
{
    *out = ft_setup_settings(s);
    while (total_with(s, out) > available) {
        const int64_t m = next_micro(s, out->micro_batch);
        if (!m && out->recompute == FT_RECOMPUTE_FULL) return false;
        if (m) out->micro_batch = m;
        else out->recompute++;
    }
    return true;
}

void ft_setup_use(struct ft_setup *s, const struct ft_settings *x)
{
    s->layout.deal.micro = x->micro_batch;
    s->layout.accumulation = s->layout.deal.global_batch / (x->micro_batch * s->layout.deal.data);
    s->options.recompute = x->recompute;
    s->options.max_tokens = x->micro_batch * s->seq_len;
    s->options.micro_batches = s->layout.accumulation;
    s->memory = ft_setup_memory(s, &s->buckets, &s->options);
}

static void advise(struct ft_buf *out, const char *what, int64_t bytes)
{
    ft_buf_addf(out, "%s%s (", out->n ? "; " : "", what);
    ft_bytes_text(bytes, out);
    ft_buf_addc(out, ')');
}

/* The next larger tensor size that this model can be cut into and that uses the ranks there are, or else more of them; false: none. */
static bool more_tensor(const struct ft_setup *s, struct ft_settings *x)
{
    const int t = x->tensor, d = x->data;
    for (int k = 2; (int64_t)k * t <= s->config.H; k++) {
        if (!ft_model_config_cuts(&s->config, k * t)) continue;
        x->tensor = k * t;
        x->data = d % k ? d : d / k;
        return true;
    }
    return false;
}

/* Each with what the plan would be then. */
static void add_advice(const struct ft_setup *s, const struct ft_memory *need, struct ft_buf *fix)
{
    const struct ft_settings now = ft_setup_settings(s);
    const int64_t global = s->layout.deal.global_batch;
    struct ft_settings x = now;
    char what[96];
    x.micro_batch = 1;
    if (now.micro_batch > 1) {
        (void)snprintf(what, sizeof what, "micro_batch = 1, accumulation %lld", (long long)(global / now.data));
        advise(fix, what, total_with(s, &x));
    }
    x.recompute = FT_RECOMPUTE_FULL;
    const int64_t both = total_with(s, &x);
    x.micro_batch = now.micro_batch;
    if (now.recompute != FT_RECOMPUTE_FULL) advise(fix, "recompute = full", total_with(s, &x));
    if (now.micro_batch > 1 && now.recompute != FT_RECOMPUTE_FULL) advise(fix, "both", both);
    x = now;
    x.sequence = true;
    if (now.tensor > 1 && !now.sequence) advise(fix, "[parallel] sequence = yes", total_with(s, &x));
    x = now;
    if (need->staging) advise(fix, "[checkpoint] async = no", ft_memory_total(need) - need->staging);
    x.data *= 2;
    if (global % (now.micro_batch * x.data) == 0) {
        (void)snprintf(what, sizeof what, "%d data ranks on more machines", x.data);
        advise(fix, what, total_with(s, &x));
    }
    x = now;
    if (more_tensor(s, &x)) {
        if (x.data < now.data) (void)snprintf(what, sizeof what, "tensor = %d, data = %d on the same ranks", x.tensor, x.data);
        else (void)snprintf(what, sizeof what, "tensor = %d on %d ranks", x.tensor, x.tensor * x.data * s->options.pipeline);
        advise(fix, what, total_with(s, &x));
    }
}

void ft_setup_check_memory(const struct ft_setup *s, const struct ft_memory *need, int64_t available, struct ft_faults *faults)
{
    if (!s->has_model || available <= 0 || ft_memory_total(need) <= available) return;
    const struct ft_memory *m = need;
    const struct {
        const char *name;
        int64_t bytes;
    } live[] = {{"weights", m->weights},         {"gradients", m->gradients}, {"optimizer", m->master + m->moments},
                {"activations", m->activations}, {"logits", m->logits},       {"buffers", m->buffers},
                {"staging", m->staging}};
    struct ft_buf text = {0}, fix = {0};
    ft_buf_adds(&text, "one rank needs ");
    ft_bytes_text(ft_memory_total(m), &text);
    ft_buf_adds(&text, " of memory, ");
    ft_bytes_text(available, &text);
    ft_buf_adds(&text, " are free:");
    for (size_t i = 0; i < sizeof live / sizeof *live; i++) {
        if (!live[i].bytes) continue;
        ft_buf_addf(&text, "%s %s ", i ? "," : "", live[i].name);
        ft_bytes_text(live[i].bytes, &text);
    }
    add_advice(s, need, &fix);
    ft_job_fault(s->job, faults, FT_SEV_ERROR, FT_JOB_TRAIN, "micro_batch", "%s", text.data);
    if (fix.n) ft_fault_fix(faults, "with the same global batch: %s", fix.data);
    ft_buf_fini(&text);
    ft_buf_fini(&fix);
}
