#include "runtime/train/setup.h"

#include <string.h>

#include "runtime/chat/source.h"
#include "runtime/train/watch.h"
#include "topology/shard.h"

void ft_setup_init(struct ft_setup *s, const struct ft_job_config *job, const struct ft_job_layout *layout, int rank)
{
    memset(s, 0, sizeof *s);
    s->arena = ft_arena_create();
    s->job = job;
    s->layout = *layout;
    s->coord = ft_mesh_coord(layout->mesh, rank);
}

void ft_setup_fini(struct ft_setup *s)
{
    ft_dataset_close(s->train);
    ft_dataset_close(s->valid);
    ft_dataset_close(s->general);
    ft_import_close(s->import);
    ft_arena_destroy(s->arena);
    memset(s, 0, sizeof *s);
}

/* An error of a lower room as a fault of the key that led to it. */
static void add_error(const struct ft_setup *s, struct ft_faults *faults, enum ft_job_part part, const char *key,
                      const struct ft_err *err)
{
    struct ft_buf b = {0};
    ft_buf_adds(&b, err->text);
    if (err->where[0]) ft_buf_addf(&b, " (%s)", err->where);
    ft_job_fault(s->job, faults, FT_SEV_ERROR, part, key, "%s", ft_buf_str(&b));
    if (err->fix[0]) ft_fault_fix(faults, "%s", err->fix);
    ft_buf_fini(&b);
}

/* One fault per line. */
static void add_lines(const struct ft_setup *s, struct ft_faults *faults, enum ft_severity sev, enum ft_job_part part,
                      const char *key, const char *lines)
{
    while (*lines) {
        const size_t n = strcspn(lines, "\n");
        if (n) ft_job_fault(s->job, faults, sev, part, key, "%.*s", (int)n, lines);
        lines += n + (lines[n] == '\n');
    }
}

/* Parameters that a token is multiplied with: all but the input embeddings; a tied one is the head too. */
static int64_t count_mm(const struct ft_setup *s)
{
    size_t n;
    const enum ft_slot *slots;
    const struct ft_param *p = ft_model_config_rows(&s->config, 1, 0, 1, 0, 1, s->arena, &n, &slots);
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        if (slots[i] != FT_SLOT_POS && (slots[i] != FT_SLOT_EMBED || s->config.tied)) sum += ft_param_count(&p[i]);
    return sum;
}

static void plan_memory(struct ft_setup *s)
{
    const struct ft_job_config *j = s->job;
    const int t = s->layout.mesh.size[FT_AXIS_TP], p = s->layout.mesh.size[FT_AXIS_PP];
    s->options = (struct ft_model_options){.config = &s->config,
                                           .tensor = t,
                                           .tensor_rank = s->coord.c[FT_AXIS_TP],
                                           .pipeline = p,
                                           .stage = s->coord.c[FT_AXIS_PP],
                                           .chunks = (int)j->parallel.virtual_pipeline,
                                           .micro_batches = s->layout.accumulation,
                                           .sequence = j->parallel.sequence,
                                           .compute = j->model.precision == FT_PRECISION_FP32 ? FT_F32 : FT_BF16,
                                           .recompute = j->model.recompute,
                                           .max_tokens = j->train.micro_batch * s->seq_len,
                                           .seq_len = s->seq_len,
                                           .seed = (uint64_t)j->train.seed};
    s->rows = ft_model_rows(&s->options, s->arena, &s->n_rows);
    s->buckets = ft_memory_buckets(s->rows, s->n_rows, s->layout.mesh.size[FT_AXIS_DP], s->coord.c[FT_AXIS_DP], s->arena);
    s->memory = ft_setup_memory(s, &s->buckets, &s->options);
}

void ft_setup_model(struct ft_setup *s, struct ft_faults *faults)
{
    struct ft_err err;
    if (!s->job->model.path) return; /* said by the rules between keys */
    if (ft_import_config(s->job->model.path, s->arena, &s->config, &err)) {
        add_error(s, faults, FT_JOB_MODEL, "path", &err);
        return;
    }
    for (size_t i = 0; i < s->config.n_warnings; i++)
        ft_job_fault(s->job, faults, FT_SEV_WARNING, FT_JOB_MODEL, "path", "%s", s->config.warnings[i]);
    s->seq_len = ft_job_seq_len(s->job, s->config.max_positions);
    const char *warning = NULL;
    const size_t before = faults->n_errors;
    if (ft_model_config_seq_len(&s->config, s->seq_len, s->arena, &warning, &err))
        add_error(s, faults, FT_JOB_DATA, "seq_len", &err);
    else if (warning) ft_job_fault(s->job, faults, FT_SEV_WARNING, FT_JOB_DATA, "seq_len", "%s", warning);
    struct ft_buf why = {0};
    if (ft_model_config_layout(&s->config, s->layout.mesh.size[FT_AXIS_TP], 1, &why))
        add_lines(s, faults, FT_SEV_ERROR, FT_JOB_PARALLEL, "tensor", ft_buf_str(&why));
    ft_buf_clear(&why);
    if (ft_model_config_layout(&s->config, 1, s->layout.mesh.size[FT_AXIS_PP], &why))
        add_lines(s, faults, FT_SEV_ERROR, FT_JOB_PARALLEL, "pipeline", ft_buf_str(&why));
    ft_buf_fini(&why);
    const int64_t chunks = s->job->parallel.virtual_pipeline;
    if (chunks > 1 && ft_layers_check(s->config.L, s->layout.mesh.size[FT_AXIS_PP], (int)chunks, &err))
        add_error(s, faults, FT_JOB_PARALLEL, "virtual_pipeline", &err);
    if (faults->n_errors > before) return;
    s->n_parameters = ft_model_config_params(&s->config);
    s->n_mm = count_mm(s);
    plan_memory(s);
    s->has_model = true;
}

void ft_setup_weights(struct ft_setup *s, struct ft_faults *faults)
{
    struct ft_err err;
    if (!s->has_model) return;
    if (ft_import_open(s->job->model.path, &s->config, &s->import, &err)) {
        add_error(s, faults, FT_JOB_MODEL, "path", &err);
        return;
    }
    const char *const *w = ft_import_warnings(s->import);
    for (; *w; w++) ft_job_fault(s->job, faults, FT_SEV_WARNING, FT_JOB_MODEL, "path", "%s", *w);
}

static struct ft_dataset *open_split(struct ft_setup *s, enum ft_split split, const char *key, struct ft_faults *faults)
{
    const struct ft_dataset_options o = {.fields = &s->job->data,
                                         .model_dir = s->job->model.path,
                                         .vocab_rows = s->config.V,
                                         .seq_len = s->seq_len,
                                         .seed = (uint64_t)s->job->train.seed};
    struct ft_dataset *d = NULL;
    struct ft_err err;
    const size_t before = faults->n_errors;
    if (ft_dataset_open(&o, split, faults, &d, &err)) {
        if (faults->n_errors == before) add_error(s, faults, FT_JOB_DATA, key, &err);
        return NULL;
    }
    for (size_t i = 0; d && i < ft_dataset_n_notes(d); i++)
        ft_job_fault(s->job, faults, FT_SEV_NOTE, FT_JOB_DATA, key, "%s", ft_dataset_note(d, i));
    return d;
}

/* The text itself goes into the export; data has used it already, so it is there and compiles. */
static void find_template(struct ft_setup *s)
{
    const int format = s->job->data.format;
    struct ft_chat_source c;
    if (format == FT_FORMAT_TOKENS || format == FT_FORMAT_TEXT) return;
    if (ft_chat_source_load(s->job->model.path, s->job->data.template_ ? s->job->data.template_ : "auto", &c, NULL)) return;
    if (c.text) {
        s->template_text = ft_arena_strdup(s->arena, c.text);
        s->template_sha256 = ft_arena_strdup(s->arena, c.sha256);
    }
    ft_chat_source_fini(&c);
}

static void count_updates(struct ft_setup *s)
{
    const struct ft_train_fields *t = &s->job->train;
    s->n_updates = t->steps;
    for (int64_t e = 0; !t->steps && e < t->epochs; e++)
        s->n_updates += ft_updates_of_epochs(1, ft_dataset_rows_of(s->train, e), t->global_batch);
    s->schedule = (struct ft_schedule){.style = (enum ft_lr_style)t->schedule,
                                       .hi = t->lr,
                                       .lo = t->min_lr,
                                       .warmup = ft_warmup_updates(t->warmup, s->n_updates),
                                       .n = s->n_updates};
}

void ft_setup_data(struct ft_setup *s, struct ft_faults *faults)
{
    if (!s->has_model) return;
    const size_t before = faults->n_errors;
    s->train = open_split(s, FT_SPLIT_TRAIN, "train", faults);
    s->valid = open_split(s, FT_SPLIT_VALID, "valid", faults);
    s->general = open_split(s, FT_SPLIT_GENERAL, "general", faults);
    if (faults->n_errors > before || !s->train) return;
    if (!ft_dataset_facts(s->train).trained_tokens) {
        ft_job_fault(s->job, faults, FT_SEV_ERROR, FT_JOB_DATA, "train",
                     "no token of the training data is trained: there is nothing to learn");
        return;
    }
    find_template(s);
    count_updates(s);
}

void ft_setup_warn(const struct ft_setup *s, struct ft_faults *faults)
{
    const struct ft_train_fields *t = &s->job->train;
    if (!s->train || !s->n_updates) return;
    const struct ft_watch_start w = {.adapters = t->method != FT_METHOD_FULL,
                                     .lr = t->lr,
                                     .warmup = s->schedule.warmup,
                                     .n_updates = s->n_updates,
                                     .epochs = t->epochs,
                                     .records = ft_dataset_facts(s->train).records};
    struct ft_buf b = {0};
    (void)ft_watch_before_start(&w, &b);
    for (char *line = b.data, *next; line && *line; line = next) {
        next = line + strcspn(line, "\n");
        if (*next) *next++ = 0;
        char *colon = strchr(line, ':');
        *colon = 0;
        ft_job_fault(s->job, faults, FT_SEV_WARNING, FT_JOB_TRAIN, line, "%s", colon + 2);
    }
    ft_buf_fini(&b);
}

const char *ft_setup_export_dir(const struct ft_setup *s, const char *run_dir)
{
    if (s->job->export.dir) return s->job->export.dir;
    return ft_arena_printf(s->arena, "%s/export", run_dir ? run_dir : ".");
}
