#include "runtime/train/job.h"

#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include "runtime/coll/comm.h"
#include "topology/sections.h"
#include "topology/shard.h"

static const struct {
    const struct ft_section *section;
    size_t at;
} parts[FT_JOB_N_PARTS] = {
    [FT_JOB_PARALLEL] = {&ft_parallel_section, offsetof(struct ft_job_config, parallel)},
    [FT_JOB_MODEL] = {&ft_model_section, offsetof(struct ft_job_config, model)},
    [FT_JOB_DATA] = {&ft_data_section, offsetof(struct ft_job_config, data)},
    [FT_JOB_TRAIN] = {&ft_train_section, offsetof(struct ft_job_config, train)},
    [FT_JOB_LORA] = {&ft_lora_section, offsetof(struct ft_job_config, lora)},
    [FT_JOB_EVAL] = {&ft_eval_section, offsetof(struct ft_job_config, eval)},
    [FT_JOB_CHECKPOINT] = {&ft_checkpoint_section, offsetof(struct ft_job_config, checkpoint)},
    [FT_JOB_EXPORT] = {&ft_export_section, offsetof(struct ft_job_config, export)},
};

const struct ft_section *ft_job_section(enum ft_job_part part) { return parts[part].section; }

void ft_job_init(struct ft_job_config *j, struct ft_faults *faults)
{
    memset(j, 0, sizeof *j);
    j->arena = ft_arena_create();
    memset(faults, 0, sizeof *faults);
    faults->arena = j->arena;
}

void ft_job_fini(struct ft_job_config *j)
{
    ft_arena_destroy(j->arena);
    memset(j, 0, sizeof *j);
}

struct ft_value ft_job_value(const struct ft_job_config *j, enum ft_job_part part, const char *key)
{
    const struct ft_section *s = parts[part].section;
    const struct ft_field *f = ft_section_find(s, key);
    if (!f) FT_BUG("[%s] has no key %s", s->name, key);
    return j->values[part][f - s->fields];
}

void ft_job_fault(const struct ft_job_config *j, struct ft_faults *faults, enum ft_severity sev, enum ft_job_part part,
                  const char *key, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const char *text = ft_arena_vprintf(faults->arena, fmt, ap);
    va_end(ap);
    ft_faults_add(faults, sev, ft_job_value(j, part, key).at, parts[part].section->name, key, "%s", text);
}

static bool given(const struct ft_job_config *j, enum ft_job_part part, const char *key)
{
    return ft_job_value(j, part, key).at.file != NULL;
}

/* What must be there, and pairs of keys that contradict each other. */
/* As they are written: `dir` is `of` or lies below it. */
static bool within(const char *dir, const char *of)
{
    size_t n = strlen(of);
    while (n > 1 && of[n - 1] == '/') n--;
    return !strncmp(dir, of, n) && (!dir[n] || dir[n] == '/' || of[n - 1] == '/');
}

static void check_pairs(const struct ft_job_config *j, struct ft_faults *faults)
{
    const enum ft_severity e = FT_SEV_ERROR;
    if (!j->model.path) {
        ft_job_fault(j, faults, e, FT_JOB_MODEL, "path", "[model] path is not given: which model is to be trained?");
        ft_fault_fix(faults, "set [model] path to a folder with config.json and safetensors");
    }
    if (!j->data.train.n) {
        ft_job_fault(j, faults, e, FT_JOB_DATA, "train", "[data] train is not given: what is the model to be trained on?");
        ft_fault_fix(faults, "set [data] train to a JSONL file");
    }
    if (j->train.steps && j->train.epochs) {
        ft_job_fault(j, faults, e, FT_JOB_TRAIN, "epochs", "steps = %lld and epochs = %lld are both given",
                     (long long)j->train.steps, (long long)j->train.epochs);
        ft_fault_fix(faults, "remove one of them");
    }
    if (j->train.min_lr > j->train.lr)
        ft_job_fault(j, faults, e, FT_JOB_TRAIN, "min_lr", "min_lr = %g is larger than lr = %g", j->train.min_lr, j->train.lr);
    if (j->export.what != FT_EXPORT_NONE && j->export.dir && j->checkpoint.dir && within(j->checkpoint.dir, j->export.dir)) {
        ft_job_fault(j, faults, e, FT_JOB_EXPORT, "dir",
                     "the checkpoints go to '%s': an export makes a new folder, '%s' would be there", j->checkpoint.dir,
                     j->export.dir);
        ft_fault_fix(faults, "set [export] dir to another folder");
    }
    const bool valid = j->data.valid.n > 0;
    if (j->eval.patience && !valid) {
        ft_job_fault(j, faults, e, FT_JOB_EVAL, "patience",
                     "patience = %lld without [data] valid: nothing could become better or worse", (long long)j->eval.patience);
        ft_fault_fix(faults, "set [data] valid, or patience = 0");
    }
    if (j->eval.patience && valid && !j->eval.every) {
        ft_job_fault(j, faults, e, FT_JOB_EVAL, "patience", "patience = %lld with every = 0: there is no evaluation on the way",
                     (long long)j->eval.patience);
        ft_fault_fix(faults, "set [eval] every to a number of updates");
    }
    if (j->parallel.sequence && j->parallel.tensor == 1)
        ft_job_fault(j, faults, FT_SEV_WARNING, FT_JOB_PARALLEL, "sequence",
                     "sequence = yes has no effect with tensor = 1: tokens are split over the tensor ranks");
    if (j->eval.every && !valid && !j->data.general.n)
        ft_job_fault(j, faults, FT_SEV_WARNING, FT_JOB_EVAL, "every",
                     "every = %lld has no effect: neither [data] valid nor general is given", (long long)j->eval.every);
}

/* Layouts and engines that are specified and not in this build. */
static void check_built(const struct ft_job_config *j, struct ft_faults *faults)
{
    struct ft_err why;
    if (ft_coll_built(ft_train_collectives[j->train.collectives], &why)) {
        ft_job_fault(j, faults, FT_SEV_ERROR, FT_JOB_TRAIN, "collectives", "%s", why.text);
        ft_fault_fix(faults, "%s", why.fix);
    }
}

void ft_job_read(struct ft_job_config *j, const char *const *files, size_t n_files, const char *const *sets, size_t n_sets,
                 struct ft_faults *faults)
{
    j->ini = ft_ini_create(j->arena);
    for (size_t i = 0; i < n_files; i++) ft_ini_read(j->ini, files[i], faults);
    for (size_t i = 0; i < n_sets; i++) ft_ini_set(j->ini, sets[i], faults);
    ft_sections_check(j->ini, faults);
    /* a file that could not be read at all: what it would have said is not to be missed */
    struct ft_faults unheard = {.arena = j->arena};
    const bool empty = faults->n_errors && !j->ini->n;
    const size_t before = faults->n_errors;
    for (int i = 0; i < FT_JOB_N_PARTS; i++) {
        const struct ft_section *s = parts[i].section;
        j->values[i] = ft_arena_array(j->arena, s->n_fields + 1, sizeof **j->values);
        ft_section_read(s, j->ini, (char *)j + parts[i].at, j->values[i], empty ? &unheard : faults);
    }
    if (empty) return;
    if (j->train.method != FT_METHOD_FULL && !given(j, FT_JOB_TRAIN, "lr")) j->train.lr = 2e-4;
    if (!j->train.steps && !j->train.epochs) j->train.epochs = 1;
    j->readable = faults->n_errors == before;
    check_built(j, faults);
    if (!j->readable) return; /* values that could not be read have no meaning together */
    check_pairs(j, faults);
    ft_data_fields_check(&j->data, j->values[FT_JOB_DATA], faults);
}

enum { MAX_RANKS = 1 << 20 };

/* Data ranks of a world of t·p·d ranks; 0: there is no such number, said why. */
static int64_t data_ranks(const struct ft_job_config *j, int world, int64_t tp, struct ft_faults *faults)
{
    const int64_t d = j->parallel.data;
    if (world > 0 && world % tp) {
        struct ft_buf works = {0};
        ft_divisors(world, world, &works);
        ft_job_fault(j, faults, FT_SEV_ERROR, FT_JOB_PARALLEL, "tensor", "world size %d is not divisible by tp·pp = %lld", world,
                     (long long)tp);
        ft_fault_fix(faults, "set tensor and pipeline so that their product is one of %s", ft_buf_str(&works));
        ft_buf_fini(&works);
        return 0;
    }
    if (world > 0 && d > 0 && d * tp != world) {
        ft_job_fault(j, faults, FT_SEV_ERROR, FT_JOB_PARALLEL, "data",
                     "data = %lld with tensor %lld and pipeline %lld makes %lld ranks, but there are %d", (long long)d,
                     (long long)j->parallel.tensor, (long long)j->parallel.pipeline, (long long)(d * tp), world);
        ft_fault_fix(faults, "set data = auto or %lld", (long long)(world / tp));
        return 0;
    }
    if (world <= 0 && tp > MAX_RANKS / (d > 0 ? d : 1)) {
        ft_job_fault(j, faults, FT_SEV_ERROR, FT_JOB_PARALLEL, "tensor",
                     "tensor %lld, pipeline %lld and data %lld make more than %d ranks", (long long)j->parallel.tensor,
                     (long long)j->parallel.pipeline, (long long)(d > 0 ? d : 1), MAX_RANKS);
        return 0;
    }
    return d > 0 ? d : world > 0 ? world / tp : 1;
}

static void check_batch(const struct ft_job_config *j, struct ft_job_layout *out, struct ft_faults *faults)
{
    const struct ft_deal *d = &out->deal;
    int64_t lower, upper;
    if (ft_deal_ok(d, &lower, &upper)) {
        out->accumulation = d->global_batch / (d->micro * d->data);
        return;
    }
    const char *key = given(j, FT_JOB_TRAIN, "micro_batch") && !given(j, FT_JOB_TRAIN, "global_batch") ? "micro_batch"
                                                                                                       : "global_batch";
    char near[64];
    if (lower) (void)snprintf(near, sizeof near, "%lld, %lld", (long long)lower, (long long)upper);
    else (void)snprintf(near, sizeof near, "%lld", (long long)upper);
    ft_job_fault(j, faults, FT_SEV_ERROR, FT_JOB_TRAIN, key,
                 "global_batch %lld is not a multiple of %lld·%lld = %lld; nearest %s (micro_batch·data)",
                 (long long)d->global_batch, (long long)d->micro, (long long)d->data, (long long)(d->micro * d->data), near);
    ft_fault_fix(faults, "set global_batch = %lld", (long long)(lower ? lower : upper));
}

/* Interleaved chunks go through the stages in groups of p micro-batches. */
static void check_chunks(const struct ft_job_config *j, int64_t m, struct ft_faults *faults)
{
    const int64_t v = j->parallel.virtual_pipeline, p = j->parallel.pipeline, below = m / p * p;
    if (v <= 1) return;
    if (p == 1) {
        ft_job_fault(j, faults, FT_SEV_ERROR, FT_JOB_PARALLEL, "virtual_pipeline", "virtual_pipeline = %lld needs pipeline > 1",
                     (long long)v);
    } else if (m % p) {
        ft_job_fault(
            j, faults, FT_SEV_ERROR, FT_JOB_PARALLEL, "virtual_pipeline",
            "virtual_pipeline = %lld: m = %lld micro-batches of an update are not a multiple of p = %lld stages; nearest m %s%lld",
            (long long)v, (long long)m, (long long)p, below ? ft_arena_printf(faults->arena, "%lld, ", (long long)below) : "",
            (long long)(below + p));
        ft_fault_fix(faults, "set global_batch to micro_batch·data·m");
    }
}

void ft_job_layout(const struct ft_job_config *j, int world, struct ft_job_layout *out, struct ft_faults *faults)
{
    memset(out, 0, sizeof *out);
    const int64_t t = j->parallel.tensor, p = j->parallel.pipeline, d = data_ranks(j, world, t * p, faults);
    struct ft_err err;
    out->known = world > 0 || j->parallel.data > 0;
    out->mesh = ft_mesh_make((int)t, 1, d ? (int)d : 1, (int)p);
    if (ft_mesh_parse_order(j->parallel.order, &out->mesh, &err))
        ft_job_fault(j, faults, FT_SEV_ERROR, FT_JOB_PARALLEL, "order", "%s", err.text);
    out->deal = (struct ft_deal){.global_batch = j->train.global_batch,
                                 .micro = j->train.micro_batch,
                                 .data = d ? d : 1,
                                 .group = j->parallel.virtual_pipeline > 1 ? p : 1};
    if (d) check_batch(j, out, faults);
    check_chunks(j, out->accumulation, faults);
}

int64_t ft_job_seq_len(const struct ft_job_config *j, int64_t limit)
{
    if (j->data.seq_len != FT_SEQ_LEN_AUTO) return j->data.seq_len;
    return limit > 0 && limit < FT_SEQ_LEN_DEFAULT ? limit : FT_SEQ_LEN_DEFAULT;
}
