#include <stdio.h>

#include "runtime/train/cli.h"
#include "runtime/train/setup.h"

extern char **environ;

/* Ranks of one tensor and pipeline place need the same; the last data rank never more than the first. */
static void write_memory(struct ft_jw *w, const struct ft_setup *s)
{
    ft_jw_key(w, "memory");
    ft_jw_array(w);
    for (int r = 0; s->has_model && r < ft_mesh_world(s->layout.mesh); r++) {
        ft_jw_object(w);
        ft_jw_kint(w, "rank", r);
        ft_jw_kint(w, "bytes", ft_memory_total(&s->memory));
        ft_jw_key(w, "parts");
        ft_memory_write_json(&s->memory, w);
        ft_jw_end(w);
    }
    ft_jw_end(w);
}

static void write_names(struct ft_jw *w, const char *key, const struct ft_setup *s, bool decay)
{
    ft_jw_key(w, key);
    ft_jw_array(w);
    for (size_t i = 0; i < s->n_rows; i++)
        if (s->rows[i].decay == decay) ft_jw_str(w, s->rows[i].name);
    ft_jw_end(w);
}

static const char *const recomputes[] = {"off", "selective", "full"};

/* What --fit changed, as --set would: {} when the job fits as it is. */
static void write_fit(struct ft_jw *w, const struct ft_setup *s, const struct ft_fit *f)
{
    ft_jw_key(w, "fit");
    ft_jw_object(w);
    if (f->micro_batch != s->job->train.micro_batch) ft_jw_kint(w, "train.micro_batch", f->micro_batch);
    if (f->recompute != s->job->model.recompute) ft_jw_kstr(w, "model.recompute", recomputes[f->recompute]);
    ft_jw_end(w);
}

static void write_plan(struct ft_jw *w, const struct ft_job_config *job, const struct ft_setup *s, const struct ft_fit *fit,
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
        ft_jw_int(w, s->config.L * i / p);
        ft_jw_int(w, s->config.L * (i + 1) / p);
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

static void print_plan(struct ft_buf *b, const struct ft_setup *s)
{
    const struct ft_memory *m = &s->memory;
    const struct ft_model_config *c = &s->config;
    int64_t decayed = 0, n_decayed = 0;
    for (size_t i = 0; i < s->n_rows; i++)
        if (s->rows[i].decay) {
            decayed += ft_param_local(&s->rows[i]);
            n_decayed++;
        }
    ft_buf_addf(b, "model   %s, %lld parameters, %lld layers, seq_len %lld\n", c->model_type, (long long)s->n_parameters,
                (long long)c->L, (long long)s->seq_len);
    ft_buf_addf(b, "batch   global batch %lld = micro %lld × accumulation %lld × dp %lld\n", (long long)s->layout.deal.global_batch,
                (long long)s->layout.deal.micro, (long long)s->layout.accumulation, (long long)s->layout.deal.data);
    ft_buf_adds(b, "memory  ");
    ft_bytes_text(ft_memory_total(m), b);
    ft_buf_adds(b, " a rank:");
    print_part(b, "weights", m->weights);
    print_part(b, "gradients", m->gradients);
    print_part(b, "optimizer", m->master + m->moments);
    print_part(b, "activations", m->activations);
    print_part(b, "logits", m->logits);
    print_part(b, "buffers", m->buffers);
    print_part(b, "library", m->library);
    ft_buf_addf(b, "\ndecay   %lld tensors with %lld elements; the other %lld (norms, biases) have none\n", (long long)n_decayed,
                (long long)decayed, (long long)((int64_t)s->n_rows - n_decayed));
    if (c->embd_drop > 0 || c->resid_drop > 0 || c->attn_drop > 0)
        ft_buf_addf(b, "dropout embedding %g, residual %g, attention %g (config.json)\n", c->embd_drop, c->resid_drop,
                    c->attn_drop);
}

/* Plans again with what fits; the job keeps what was written, so that the difference can be told. */
static void replan(struct ft_setup *s, const struct ft_fit *f, struct ft_faults *faults)
{
    struct ft_job_config *job = ft_arena_alloc(s->arena, sizeof *job);
    *job = *s->job;
    job->train.micro_batch = f->micro_batch;
    job->model.recompute = f->recompute;
    struct ft_setup with;
    struct ft_job_layout layout = s->layout;
    layout.deal.micro = f->micro_batch;
    layout.accumulation = layout.deal.global_batch / (f->micro_batch * layout.deal.data);
    ft_setup_init(&with, job, &layout, 0);
    ft_setup_model(&with, faults);
    s->memory = with.memory;
    s->layout = layout;
    ft_setup_fini(&with);
}

static int64_t available(const struct ft_cli *cli, const struct ft_place *place)
{
    return cli->memory ? cli->memory : ft_memory_available() / (place->local_world > 0 ? place->local_world : 1);
}

static int plan(const struct ft_cli *cli, struct ft_job_config *job, struct ft_faults *faults, const struct ft_place *place)
{
    struct ft_job_layout layout;
    struct ft_setup s;
    struct ft_fit fit = {0};
    ft_job_layout(job, cli->world ? cli->world : place->world > 1 ? place->world : 0, &layout, faults);
    ft_setup_init(&s, job, &layout, 0);
    ft_setup_model(&s, faults);
    const bool fits = !s.has_model || !cli->fit || ft_setup_fit(&s, available(cli, place), &fit);
    if (fits && fit.changed) replan(&s, &fit, faults);
    if (!fits || (s.has_model && cli->memory)) ft_setup_check_memory(&s, available(cli, place), faults);
    const bool bad = faults->n_errors > 0;
    struct ft_buf out = {0};
    if (cli->json) {
        struct ft_jw w = ft_jw_begin(&out);
        write_plan(&w, job, &s, cli->fit && fits ? &fit : NULL, faults);
        ft_buf_addc(&out, '\n');
    } else {
        ft_cli_print_faults(faults);
        if (!bad && fit.changed)
            ft_buf_addf(&out, "fit     changed: micro_batch = %lld, recompute = %s\n", (long long)fit.micro_batch,
                        recomputes[fit.recompute]);
        if (!bad) print_plan(&out, &s);
    }
    ft_cli_print(&out);
    ft_buf_fini(&out);
    ft_setup_fini(&s);
    return bad ? FT_EXIT_REFUSED : FT_EXIT_DONE;
}

int ft_plan_main(const struct ft_command *self, int argc, char **argv)
{
    struct ft_job_config job;
    struct ft_faults faults;
    struct ft_cli cli;
    struct ft_place place;
    struct ft_err err;
    ft_job_init(&job, &faults);
    int status = ft_cli_parse(self, argc, argv, job.arena, &cli);
    if (status < 0 && (ft_place_from_env(environ, job.arena, &place, &err) || ft_cli_job(&cli, &place, &job, &faults, &err))) {
        ft_err_print(stderr, "fttrain", &err);
        status = FT_EXIT_REFUSED;
    }
    if (status < 0) status = plan(&cli, &job, &faults, &place);
    ft_job_fini(&job);
    return status;
}
