#include <stdio.h>

#include "runtime/ckpt/ckpt.h"
#include "runtime/ckpt/export.h"
#include "runtime/train/cli.h"
#include "runtime/train/setup.h"

/* "default", "--set" or "job.ini:14". */
static void write_from(struct ft_jw *w, const struct ft_value *v)
{
    struct ft_buf b = {0};
    if (!v->at.file) ft_buf_adds(&b, "default");
    else if (v->at.line) ft_buf_addf(&b, "%s:%d", v->at.file, v->at.line);
    else ft_buf_adds(&b, v->at.file);
    ft_jw_kstr(w, "from", b.data);
    ft_buf_fini(&b);
}

static void write_resolved(struct ft_jw *w, const struct ft_job_config *job)
{
    ft_jw_key(w, "resolved");
    ft_jw_object(w);
    for (int p = 0; p < FT_JOB_N_PARTS; p++) {
        const struct ft_section *s = ft_job_section((enum ft_job_part)p);
        for (size_t i = 0; i < s->n_fields; i++) {
            struct ft_buf name = {0};
            ft_buf_addf(&name, "%s.%s", s->name, s->fields[i].name);
            ft_jw_key(w, name.data);
            ft_jw_object(w);
            ft_jw_kstr(w, "value", job->values[p][i].text);
            write_from(w, &job->values[p][i]);
            ft_jw_end(w);
            ft_buf_fini(&name);
        }
    }
    ft_jw_end(w);
}

static void write_split(struct ft_jw *w, const char *name, const struct ft_dataset *d)
{
    if (!d) return;
    const struct ft_dataset_facts f = ft_dataset_facts(d);
    ft_jw_key(w, name);
    ft_jw_object(w);
    ft_jw_kint(w, "records", f.records);
    ft_jw_kint(w, "kept", f.kept);
    ft_jw_kint(w, "duplicates", f.duplicates);
    ft_jw_kint(w, "overlong", f.overlong);
    ft_jw_kint(w, "rows", f.rows);
    ft_jw_kint(w, "tokens", f.tokens);
    ft_jw_kint(w, "trained_tokens", f.trained_tokens);
    ft_jw_kint(w, "longest", f.longest);
    ft_jw_end(w);
}

static void write_facts(struct ft_jw *w, const struct ft_setup *s)
{
    if (s->layout.accumulation) {
        ft_jw_key(w, "batch");
        ft_jw_object(w);
        ft_jw_kint(w, "global", s->layout.deal.global_batch);
        ft_jw_kint(w, "micro", s->layout.deal.micro);
        ft_jw_kint(w, "accumulation", s->layout.accumulation);
        ft_jw_kint(w, "data", s->layout.deal.data);
        ft_jw_end(w);
    }
    if (s->has_model) {
        ft_jw_key(w, "model");
        ft_jw_object(w);
        ft_jw_kstr(w, "family", s->config.model_type);
        ft_jw_kint(w, "parameters", s->n_parameters);
        ft_jw_kint(w, "seq_len", s->seq_len);
        ft_jw_end(w);
        ft_jw_key(w, "memory");
        ft_jw_object(w);
        const struct ft_settings x = ft_setup_settings(s);
        const struct ft_memory worst = ft_setup_worst(s, &x);
        ft_jw_kint(w, "bytes", ft_memory_total(&worst));
        ft_jw_key(w, "parts");
        ft_memory_write_json(&worst, w);
        ft_jw_end(w);
    }
    if (s->train) {
        ft_jw_key(w, "data");
        ft_jw_object(w);
        write_split(w, "train", s->train);
        write_split(w, "valid", s->valid);
        write_split(w, "general", s->general);
        ft_jw_kint(w, "updates", s->n_updates);
        ft_jw_kint(w, "warmup", s->schedule.warmup);
        ft_jw_end(w);
    }
}

/* Folders that the run will write, long after its start. */
static void look_at_targets(struct ft_setup *s, const struct ft_place *place, struct ft_faults *faults)
{
    struct ft_err err;
    if (s->job->export.what != FT_EXPORT_NONE && ft_export_check(ft_setup_export_dir(s, place->run_dir), &err)) {
        ft_job_fault(s->job, faults, FT_SEV_ERROR, FT_JOB_EXPORT, "dir", "%s", err.text);
        if (err.fix[0]) ft_fault_fix(faults, "%s", err.fix);
    }
    const char *dir = s->job->checkpoint.dir;
    if (dir && ft_ckpt_check_dir(dir, &err)) {
        ft_job_fault(s->job, faults, FT_SEV_ERROR, FT_JOB_CHECKPOINT, "dir", "%s", err.text);
        ft_fault_fix(faults, "%s", err.fix);
    }
}

/* Everything that can be found out before a run: model folder, data, memory, target of the export. */
static void look_deeper(struct ft_setup *s, const struct ft_place *place, struct ft_faults *faults)
{
    ft_setup_model(s, faults);
    if (!s->job->readable) return;
    ft_setup_weights(s, faults);
    ft_setup_data(s, faults);
    ft_setup_warn(s, faults);
    const int here = place->local_world > 0 ? place->local_world : 1;
    if (s->has_model) {
        const struct ft_settings x = ft_setup_settings(s);
        const struct ft_memory worst = ft_setup_worst(s, &x);
        ft_setup_check_memory(s, &worst, ft_memory_available() / here, faults);
    }
    look_at_targets(s, place, faults);
}

static void say(const struct ft_setup *s)
{
    printf("job       global batch %lld = micro %lld × accumulation %lld × data %lld\n", (long long)s->layout.deal.global_batch,
           (long long)s->layout.deal.micro, (long long)s->layout.accumulation, (long long)s->layout.deal.data);
    if (s->has_model)
        printf("model     %s, %lld parameters, seq_len %lld\n", s->config.model_type, (long long)s->n_parameters,
               (long long)s->seq_len);
    if (s->train) {
        const struct ft_dataset_facts f = ft_dataset_facts(s->train);
        printf("data      %lld records, %lld rows, %lld tokens, %lld trained; %lld updates\n", (long long)f.records,
               (long long)f.rows, (long long)f.tokens, (long long)f.trained_tokens, (long long)s->n_updates);
    }
}

static int check(const struct ft_cli *cli, struct ft_job_config *job, struct ft_faults *faults, const struct ft_place *place)
{
    struct ft_job_layout layout;
    struct ft_setup s;
    ft_job_layout(job, cli->world ? cli->world : place->world > 1 ? place->world : 0, &layout, faults);
    ft_setup_init(&s, job, &layout, 0);
    if (!cli->shallow) look_deeper(&s, place, faults);
    const bool bad = faults->n_errors > 0;
    if (cli->json) {
        struct ft_buf out = {0};
        struct ft_jw w = ft_jw_begin(&out);
        ft_jw_object(&w);
        ft_jw_kint(&w, "schema", 1);
        ft_jw_key(&w, "faults");
        ft_cli_write_faults(faults, &w);
        ft_jw_key(&w, "facts");
        ft_jw_object(&w);
        write_resolved(&w, job);
        write_facts(&w, &s);
        ft_jw_end(&w);
        ft_jw_end(&w);
        ft_buf_addc(&out, '\n');
        ft_cli_print(&out);
        ft_buf_fini(&out);
    } else {
        ft_cli_print_faults(faults);
        if (!bad) say(&s);
    }
    ft_setup_fini(&s);
    return bad ? FT_EXIT_REFUSED : FT_EXIT_DONE;
}

int ft_check_main(const struct ft_command *self, int argc, char **argv) { return ft_cli_with_job(self, argc, argv, check); }
