/* What check, show and prepare share: the job's [data] section, where the model lies, the splits. Only for files of this folder. */
#ifndef FT_RUNTIME_DATA_CMD_JOB_H
#define FT_RUNTIME_DATA_CMD_JOB_H

#include "runtime/data/cmd.h"
#include "runtime/data/dataset.h"

enum { FT_DATA_OPT_SET = 100, FT_DATA_OPT_JSON, FT_DATA_OPT_QUIET, FT_DATA_OPT_VERBOSE };

struct ft_data_job {
    struct ft_arena *arena;
    struct ft_faults faults;
    const char **words, **sets; /* JOB.ini…, --set */
    size_t n_words, n_sets;
    struct ft_data_fields fields;
    struct ft_dataset_options options;
    bool json, quiet, verbose;
};

void ft_data_job_begin(struct ft_data_job *j, int argc);
void ft_data_job_end(struct ft_data_job *j);
/* Options that every word takes. true: it was one of them. */
bool ft_data_job_option(struct ft_data_job *j, int id, const char *value);
/* Reads the files. -1: go on; else the exit status (faults are printed). */
int ft_data_job_read(struct ft_data_job *j, const struct ft_command *self);
/* Prints faults of records ("FILE:LINE:COLUMN: kind: text"), then the error. */
void ft_data_job_refuse(struct ft_data_job *j, const struct ft_command *self, const struct ft_err *err);

#define FT_DATA_JOB_OPTIONS                                                                                                        \
    {.name = "set", .arg = "SECTION.KEY=VALUE", .help = "as if it stood in the last file", .id = FT_DATA_OPT_SET},                 \
        {.name = "quiet", .letter = 'q', .help = "no remarks", .id = FT_DATA_OPT_QUIET},                                           \
    {                                                                                                                              \
        .name = "verbose", .letter = 'v', .help = "all faults, not the first 20", .id = FT_DATA_OPT_VERBOSE                        \
    }

#endif
