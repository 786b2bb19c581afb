#include "runtime/data/cmd_job.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/fd.h"
#include "runtime/data/report.h"

void ft_data_job_begin(struct ft_data_job *j, int argc)
{
    memset(j, 0, sizeof *j);
    j->arena = ft_arena_create();
    j->faults.arena = j->arena;
    j->words = ft_arena_array(j->arena, (size_t)argc + 1, sizeof *j->words);
    j->sets = ft_arena_array(j->arena, (size_t)argc + 1, sizeof *j->sets);
}

void ft_data_job_end(struct ft_data_job *j) { ft_arena_destroy(j->arena); }

bool ft_data_job_option(struct ft_data_job *j, int id, const char *value)
{
    if (id == FT_ARG_WORD) j->words[j->n_words++] = value;
    else if (id == FT_DATA_OPT_SET) j->sets[j->n_sets++] = value;
    else if (id == FT_DATA_OPT_JSON) j->json = true;
    else if (id == FT_DATA_OPT_QUIET) j->quiet = true;
    else if (id == FT_DATA_OPT_VERBOSE) j->verbose = true;
    else return false;
    return true;
}

/* What config.json says of the data, as a run takes it: the key of prepared data and the faults are the same then. `limit`: of
 * seq_len = auto, 2048 or the model's when that is smaller; `vocab`: rows of the embedding. 0 for what is not known. */
static void read_config(const char *model_dir, int64_t *limit, int64_t *vocab)
{
    struct ft_buf path = {0};
    struct ft_json *config = NULL;
    struct ft_err err = {0};
    *limit = *vocab = 0;
    ft_buf_addf(&path, "%s/config.json", model_dir);
    if (ft_is_file(path.data) && ft_json_read_file(path.data, FT_JSON_DUPLICATES, &config, &err) == FT_OK) {
        *limit = ft_json_int(ft_json_get(config, "max_position_embeddings"), 0);
        if (!*limit) *limit = ft_json_int(ft_json_get(config, "n_positions"), 0);
        *vocab = ft_json_int(ft_json_get(config, "vocab_size"), 0);
    }
    ft_json_destroy(config);
    ft_buf_fini(&path);
    if (*limit <= 0 || *limit > FT_SEQ_LEN_DEFAULT) *limit = FT_SEQ_LEN_DEFAULT;
    if (*vocab < 0) *vocab = 0;
}

int ft_data_job_read(struct ft_data_job *j, const struct ft_command *self)
{
    struct ft_err err = {0};
    struct ft_buf home = {0};
    if (!j->n_words && !j->n_sets) {
        (void)ft_fail(&err, FT_USAGE, "which job?");
        (void)ft_fix(&err, "name a job file: ftlaunch data %s job.ini", self->name);
        return ft_cmd_usage(self, &err);
    }
    struct ft_ini *ini = ft_ini_create(j->arena);
    for (size_t i = 0; i < j->n_words; i++) ft_ini_read(ini, j->words[i], &j->faults);
    for (size_t i = 0; i < j->n_sets; i++) ft_ini_set(ini, j->sets[i], &j->faults);
    struct ft_value *values = ft_arena_array(j->arena, ft_data_section.n_fields + 1, sizeof *values);
    ft_section_read(&ft_data_section, ini, &j->fields, values, &j->faults);
    if (!j->faults.n_errors) ft_data_fields_check(&j->fields, values, &j->faults);
    const struct ft_ini_entry *path = ft_ini_find(ini, "model", "path"), *seed = ft_ini_find(ini, "train", "seed");
    if (path) {
        if (ft_expand_home(path->value, &home, &err))
            ft_faults_add(&j->faults, FT_SEV_ERROR, path->value_at, "model", "path", "%s", err.text);
        j->options.model_dir = ft_arena_strdup(j->arena, ft_buf_str(&home));
        ft_buf_fini(&home);
    }
    j->options.seed = 1;
    if (seed && !ft_parse_u64(seed->value, UINT64_MAX, &j->options.seed))
        ft_faults_add(&j->faults, FT_SEV_ERROR, seed->value_at, "train", "seed", "'%s' is no number", seed->value);
    if (j->faults.n_errors) {
        ft_faults_sort(&j->faults);
        ft_faults_print(stderr, "fttrain data", &j->faults);
        return 2;
    }
    if (j->faults.n && !j->json) { /* warnings; --json has them in its answer */
        ft_faults_print(stderr, "fttrain data", &j->faults);
        j->faults.n = 0;
    }
    if (!j->fields.train.n && !j->fields.valid.n && !j->fields.general.n) {
        (void)ft_fail(&err, FT_CONFIG, "[data] names no files");
        (void)ft_fix(&err, "set train = FILE in [data]");
        return ft_cmd_usage(self, &err);
    }
    j->options.fields = &j->fields;
    int64_t limit;
    read_config(j->options.model_dir ? j->options.model_dir : ".", &limit, &j->options.vocab_rows);
    j->options.seq_len = j->fields.seq_len > 0 ? j->fields.seq_len : limit;
    j->options.max_faults = j->verbose ? SIZE_MAX / 2 : 0;
    return -1;
}

void ft_data_job_refuse(struct ft_data_job *j, const struct ft_command *self, const struct ft_err *err)
{
    ft_report_print(stderr, &j->faults);
    (void)ft_cmd_usage(self, err);
}
