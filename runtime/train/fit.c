/* When a job does not fit: what it needs, and settings of the same global batch that need less. */
#include <stdio.h>

#include "runtime/train/setup.h"

/* What a rank would need with other settings of the same global batch. */
static int64_t total_with(const struct ft_setup *s, int64_t micro, int recompute, int data)
{
    struct ft_model_options o = s->options;
    o.max_tokens = micro * s->seq_len;
    o.recompute = recompute;
    struct ft_arena *arena = ft_arena_create();
    const struct ft_buckets b = ft_memory_buckets(s->rows, s->n_rows, data, 0, arena);
    const struct ft_memory m = ft_memory_plan(&b, &o);
    ft_arena_destroy(arena);
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

bool ft_setup_fit(const struct ft_setup *s, int64_t available, struct ft_fit *out)
{
    const int data = (int)s->layout.deal.data;
    *out = (struct ft_fit){s->layout.deal.micro, s->options.recompute, false};
    while (total_with(s, out->micro_batch, out->recompute, data) > available) {
        const int64_t m = next_micro(s, out->micro_batch);
        if (!m && out->recompute == FT_RECOMPUTE_FULL) return false;
        if (m) out->micro_batch = m;
        else out->recompute++;
        out->changed = true;
    }
    return true;
}

static void advise(struct ft_buf *out, const char *what, int64_t bytes)
{
    ft_buf_addf(out, "%s%s (", out->n ? "; " : "", what);
    ft_bytes_text(bytes, out);
    ft_buf_addc(out, ')');
}

/* Each with what the plan would be then. */
static void add_advice(const struct ft_setup *s, struct ft_buf *fix)
{
    const int64_t micro = s->layout.deal.micro, global = s->layout.deal.global_batch;
    const int d = (int)s->layout.deal.data, recompute = s->options.recompute;
    char what[96];
    if (micro > 1) {
        (void)snprintf(what, sizeof what, "micro_batch = 1, accumulation %lld", (long long)(global / d));
        advise(fix, what, total_with(s, 1, recompute, d));
    }
    if (recompute != FT_RECOMPUTE_FULL) advise(fix, "recompute = full", total_with(s, micro, FT_RECOMPUTE_FULL, d));
    if (micro > 1 && recompute != FT_RECOMPUTE_FULL) advise(fix, "both", total_with(s, 1, FT_RECOMPUTE_FULL, d));
    if (global % (micro * d * 2) == 0) {
        (void)snprintf(what, sizeof what, "%d data ranks on more machines", d * 2);
        advise(fix, what, total_with(s, micro, recompute, d * 2));
    }
}

void ft_setup_check_memory(const struct ft_setup *s, int64_t available, struct ft_faults *faults)
{
    if (!s->has_model || available <= 0 || ft_memory_total(&s->memory) <= available) return;
    const struct ft_memory *m = &s->memory;
    const struct {
        const char *name;
        int64_t bytes;
    } live[] = {{"weights", m->weights},         {"gradients", m->gradients}, {"optimizer", m->master + m->moments},
                {"activations", m->activations}, {"logits", m->logits},       {"buffers", m->buffers}};
    struct ft_buf text = {0}, fix = {0};
    ft_buf_adds(&text, "one rank needs ");
    ft_bytes_text(ft_memory_total(m), &text);
    ft_buf_adds(&text, " of memory, ");
    ft_bytes_text(available, &text);
    ft_buf_adds(&text, " are free:");
    for (size_t i = 0; i < sizeof live / sizeof *live; i++) {
        ft_buf_addf(&text, "%s %s ", i ? "," : "", live[i].name);
        ft_bytes_text(live[i].bytes, &text);
    }
    add_advice(s, &fix);
    ft_job_fault(s->job, faults, FT_SEV_ERROR, FT_JOB_TRAIN, "micro_batch", "%s", text.data);
    if (fix.n) ft_fault_fix(faults, "with the same global batch: %s", fix.data);
    ft_buf_fini(&text);
    ft_buf_fini(&fix);
}
