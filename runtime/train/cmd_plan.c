#include <stdio.h>

#include "runtime/train/cli.h"
#include "runtime/train/pipeline.h"
#include "runtime/train/setup.h"
#include "topology/shard.h"

/* Data ranks of one tensor rank and stage need the same; a padded vocabulary gives the last tensor ranks fewer parameters. */
static void write_memory(struct ft_jw *w, const struct ft_setup *s)
{
    const int t = s->options.tensor, p = s->options.pipeline;
    const struct ft_settings x = ft_setup_settings(s);
    struct ft_need *needs = ft_arena_array(s->arena, s->has_model ? (size_t)t * (size_t)p : 1, sizeof *needs);
    for (int i = 0; s->has_model && i < t * p; i++) needs[i] = ft_setup_need(s, &x, i % t, i / t);
    ft_jw_key(w, "memory");
    ft_jw_array(w);
    for (int r = 0; s->has_model && r < ft_mesh_world(s->layout.mesh); r++) {
        const struct ft_coord at = ft_mesh_coord(s->layout.mesh, r);
        const struct ft_need *need = &needs[at.c[FT_AXIS_PP] * t + at.c[FT_AXIS_TP]];
        ft_jw_object(w);
        ft_jw_kint(w, "rank", r);
        ft_jw_kint(w, "parameters", need->parameters);
        ft_jw_kint(w, "bytes", ft_memory_total(&need->memory));
        ft_jw_key(w, "parts");
        ft_memory_write_json(&need->memory, w);
        ft_jw_end(w);
    }
    ft_jw_end(w);
}

/* Of the whole model, whatever this rank holds. */
static void write_names(struct ft_jw *w, const char *key, const struct ft_setup *s, bool decay)
{
    size_t n;
    const struct ft_param *rows = ft_model_config_rows(&s->config, 1, 0, 1, 0, 1, s->arena, &n, NULL);
    ft_jw_key(w, key);
    ft_jw_array(w);
    for (size_t i = 0; i < n; i++)
        if (rows[i].decay == decay) ft_jw_str(w, rows[i].name);
    ft_jw_end(w);
}

static const char *const recomputes[] = {"off", "selective", "full"};

/* What --fit changed, as --set would: {} when the job fits as it is. */
static void write_fit(struct ft_jw *w, const struct ft_setup *s, const struct ft_settings *f)
{
    ft_jw_key(w, "fit");
    ft_jw_object(w);
    if (f->micro_batch != s->job->train.micro_batch) ft_jw_kint(w, "train.micro_batch", f->micro_batch);
    if (f->recompute != s->job->model.recompute) ft_jw_kstr(w, "model.recompute", recomputes[f->recompute]);
    ft_jw_end(w);
}

static void write_plan(struct ft_jw *w, const struct ft_job_config *job, const struct ft_setup *s, const struct ft_settings *fit,
                       struct ft_faults *faults)
{
    ft_faults_sort(faults);
    const char *why = NULL;
    for (size_t i = 0; !why && i < faults->n; i++)
        if (faults->v[i].severity == FT_SEV_ERROR) why = faults->v[i].text;
    ft_jw_object(w);
    ft_jw_kint(w, "schema", 1);
    ft_jw_key(w, "mesh");
    ft_jw_object(w);
    ft_jw_kint(w, "tensor", s->layout.mesh.size[FT_AXIS_TP]);
    ft_jw_kint(w, "pipeline", s->layout.mesh.size[FT_AXIS_PP]);
    ft_jw_kint(w, "data", s->layout.mesh.size[FT_AXIS_DP]);
    ft_jw_kbool(w, "sequence", job->parallel.sequence && s->layout.mesh.size[FT_AXIS_TP] > 1);
    ft_jw_kstr(w, "order", job->parallel.order);
    ft_jw_end(w);
    ft_jw_kbool(w, "legal", faults->n_errors == 0);
    ft_jw_kstr(w, "why", why);
    ft_jw_key(w, "faults");
    ft_cli_write_faults(faults, w);
    write_memory(w, s);
    ft_jw_key(w, "stages");
    ft_jw_array(w);
    const int p = s->layout.mesh.size[FT_AXIS_PP];
    for (int i = 0; s->has_model && i < p; i++) {
        ft_jw_object(w);
        ft_jw_key(w, "layers");
        ft_jw_array(w);
        for (int chunk = 0; chunk < s->options.chunks; chunk++) {
            const struct ft_range layers = ft_layers_of(s->config.L, p, s->options.chunks, i, chunk);
            ft_jw_int(w, layers.first);
            ft_jw_int(w, layers.end);
        }
        ft_jw_end(w);
        ft_jw_end(w);
    }
    ft_jw_end(w);
    if (s->has_model) {
        ft_jw_key(w, "batch");
        ft_jw_object(w);
        ft_jw_kint(w, "global", s->layout.deal.global_batch);
        ft_jw_kint(w, "micro", s->layout.deal.micro);
        ft_jw_kint(w, "accumulation", s->layout.accumulation);
        ft_jw_kint(w, "data", s->layout.deal.data);
        ft_jw_end(w);
        if (fit) write_fit(w, s, fit);
        write_names(w, "decay", s, true);
        write_names(w, "no_decay", s, false);
    }
    ft_jw_end(w);
}

static void print_part(struct ft_buf *b, const char *name, int64_t bytes)
{
    if (!bytes) return;
    ft_buf_addf(b, "  %s ", name);
    ft_bytes_text(bytes, b);
}

/* One line for all ranks, or one for each stage. */
static void print_memory(struct ft_buf *b, const struct ft_setup *s, int stage)
{
    const struct ft_settings x = ft_setup_settings(s);
    const struct ft_need need = ft_setup_need(s, &x, 0, stage);
    const struct ft_memory *m = &need.memory;
    const int p = s->options.pipeline;
    ft_buf_adds(b, "memory  ");
    ft_bytes_text(ft_memory_total(m), b);
    ft_buf_adds(b, p > 1 ? " a rank of " : " a rank");
    if (p > 1) ft_buf_addf(b, "stage %d", stage);
    if (p * s->options.tensor > 1) ft_buf_addf(b, " with %lld parameters", (long long)need.parameters);
    ft_buf_addc(b, ':');
    print_part(b, "weights", m->weights);
    print_part(b, "gradients", m->gradients);
    print_part(b, "optimizer", m->master + m->moments);
    print_part(b, "activations", m->activations);
    print_part(b, "logits", m->logits);
    print_part(b, "buffers", m->buffers);
    print_part(b, "staging", m->staging);
    print_part(b, "library", m->library);
    ft_buf_addc(b, '\n');
}

static void print_decay(struct ft_buf *b, const struct ft_setup *s)
{
    size_t n;
    const struct ft_param *rows = ft_model_config_rows(&s->config, 1, 0, 1, 0, 1, s->arena, &n, NULL);
    int64_t decayed = 0, n_decayed = 0;
    for (size_t i = 0; i < n; i++) {
        if (!rows[i].decay) continue;
        decayed += ft_param_count(&rows[i]);
        n_decayed++;
    }
    ft_buf_addf(b, "decay   %lld tensors with %lld elements; the other %lld (norms, biases) have none\n", (long long)n_decayed,
                (long long)decayed, (long long)((int64_t)n - n_decayed));
}

/* What each stage does in an update, in order. */
static void print_schedule(struct ft_buf *b, const struct ft_setup *s)
{
    for (int i = 0; i < s->options.pipeline; i++) {
        const struct ft_pipeline_schedule x = ft_pipeline_schedule(s->options.pipeline, i, s->options.chunks,
                                                                   s->layout.accumulation, s->arena);
        ft_buf_addf(b, "stage %d ", i);
        ft_pipeline_print(&x, b);
        ft_buf_addc(b, '\n');
    }
}

static void print_plan(struct ft_buf *b, const struct ft_setup *s)
{
    const struct ft_model_config *c = &s->config;
    const int t = s->options.tensor, p = s->options.pipeline;
    ft_buf_addf(b, "model   %s, %lld parameters, %lld layers, seq_len %lld\n", c->model_type, (long long)s->n_parameters,
                (long long)c->L, (long long)s->seq_len);
    if (t * p > 1)
        ft_buf_addf(b, "layout  tensor %d × pipeline %d × data %lld%s\n", t, p, (long long)s->layout.deal.data,
                    t > 1 && s->options.sequence ? ", sequence parallel" : "");
    ft_buf_addf(b, "batch   global batch %lld = micro %lld × accumulation %lld × dp %lld\n", (long long)s->layout.deal.global_batch,
                (long long)s->layout.deal.micro, (long long)s->layout.accumulation, (long long)s->layout.deal.data);
    if (p > 1) {
        const double bubble = ft_pipeline_bubble(p, s->options.chunks, s->layout.accumulation);
        ft_buf_addf(b, "stages  %lld layers each", (long long)(c->L / p));
        if (s->options.chunks > 1) ft_buf_addf(b, " in %d chunks", s->options.chunks);
        ft_buf_addf(b, ", 1F1B over %lld micro-batches: idle %.3g of the working time (%.1f %% of an update)\n",
                    (long long)s->layout.accumulation, bubble, 100 * bubble / (1 + bubble));
    }
    for (int i = 0; i < p; i++) print_memory(b, s, i);
    print_decay(b, s);
    if (c->embd_drop > 0 || c->resid_drop > 0 || c->attn_drop > 0)
        ft_buf_addf(b, "dropout embedding %g, residual %g, attention %g (config.json)\n", c->embd_drop, c->resid_drop,
                    c->attn_drop);
}

static int64_t available(const struct ft_cli *cli, const struct ft_place *place)
{
    return cli->memory ? cli->memory : ft_memory_available() / (place->local_world > 0 ? place->local_world : 1);
}

static int plan(const struct ft_cli *cli, struct ft_job_config *job, struct ft_faults *faults, const struct ft_place *place)
{
    struct ft_job_layout layout;
    struct ft_setup s;
    struct ft_settings fit = {0};
    ft_job_layout(job, cli->world ? cli->world : place->world > 1 ? place->world : 0, &layout, faults);
    ft_setup_init(&s, job, &layout, 0);
    ft_setup_model(&s, faults);
    const bool asked = s.has_model && cli->fit, fits = !asked || ft_setup_fit(&s, available(cli, place), &fit);
    const bool changed = asked && fits && (fit.micro_batch != s.layout.deal.micro || fit.recompute != s.options.recompute);
    if (changed) ft_setup_use(&s, &fit);
    if (!fits || (s.has_model && cli->memory)) {
        const struct ft_settings x = ft_setup_settings(&s);
        const struct ft_memory worst = ft_setup_worst(&s, &x);
        ft_setup_check_memory(&s, &worst, available(cli, place), faults);
    }
    const bool bad = faults->n_errors > 0;
    struct ft_buf out = {0};
    if (cli->json) {
        struct ft_jw w = ft_jw_begin(&out);
        write_plan(&w, job, &s, asked && fits ? &fit : NULL, faults);
        ft_buf_addc(&out, '\n');
    } else {
        ft_cli_print_faults(faults);
        if (!bad && changed)
            ft_buf_addf(&out, "fit     changed: micro_batch = %lld, recompute = %s\n", (long long)fit.micro_batch,
                        recomputes[fit.recompute]);
        if (!bad) print_plan(&out, &s);
        if (!bad && cli->verbose && s.options.pipeline > 1) print_schedule(&out, &s);
    }
    ft_cli_print(&out);
    ft_buf_fini(&out);
    ft_setup_fini(&s);
    return bad ? FT_EXIT_REFUSED : FT_EXIT_DONE;
}

int ft_plan_main(const struct ft_command *self, int argc, char **argv) { return ft_cli_with_job(self, argc, argv, plan); }
