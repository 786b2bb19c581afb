/* What the words of fttrain share: their options, reading the job, how faults are shown. Exit statuses (docs: "fttrain"): 0 done,
 * 1 stopped later, 2 refused before the first update, 3 a watch stopped it, 69 ended because a peer ended, 143 after SIGTERM. */
#ifndef FT_RUNTIME_TRAIN_CLI_H
#define FT_RUNTIME_TRAIN_CLI_H

#include "base/argv.h"
#include "runtime/train/job.h"
#include "topology/place.h"

enum { FT_EXIT_DONE = 0, FT_EXIT_FAILED = 1, FT_EXIT_REFUSED = 2, FT_EXIT_WATCH = 3, FT_EXIT_PEER = 69, FT_EXIT_TERM = 143 };

/* Ids of the shared options; a command's table may hold any of them. */
enum {
    FT_OPT_SET = 1,
    FT_OPT_JSON,
    FT_OPT_SHALLOW,
    FT_OPT_QUIET,
    FT_OPT_VERBOSE,
    FT_OPT_WORLD,
    FT_OPT_FIT,
    FT_OPT_MEMORY,
    FT_OPT_OUT,
    FT_OPT_DTYPE
};

struct ft_cli {
    const char **words; /* job files, folders: whatever the command takes */
    size_t n_words;
    const char **sets;
    size_t n_sets;
    bool json, shallow, quiet, verbose, fit;
    int world;      /* --world; 0: not given */
    int64_t memory; /* --memory, bytes of one rank; 0: not given */
    const char *out, *dtype;
};

/* Parses the command line of a command. -1: go on; else the exit status (help was printed, or an error). */
int ft_cli_parse(const struct ft_command *self, int argc, char **argv, struct ft_arena *arena, struct ft_cli *cli);

/* Job files of the command line, else FT_JOB of the environment; neither: FT_USAGE. Faults of the job go to faults. */
enum ft_code ft_cli_job(const struct ft_cli *cli, const struct ft_place *place, struct ft_job_config *job, struct ft_faults *faults,
                        struct ft_err *err) FT_MUST_CHECK;
/* The life of a command that looks at a job: options, environment, job files, then act(), whose exit status is returned. */
int ft_cli_with_job(const struct ft_command *self, int argc, char **argv,
                    int (*act)(const struct ft_cli *cli, struct ft_job_config *job, struct ft_faults *faults,
                               const struct ft_place *place));
/* All faults, in order, on stderr. */
void ft_cli_print_faults(struct ft_faults *faults);
void ft_cli_write_faults(struct ft_faults *faults, struct ft_jw *w); /* the array of interface "check --json" */
void ft_cli_print(const struct ft_buf *out);                         /* to stdout, at once */

/* One rank of a job from reading it to its end; the exit status. */
int ft_train_rank(const struct ft_cli *cli, const struct ft_place *place);

int ft_train_main(const struct ft_command *self, int argc, char **argv);
int ft_check_main(const struct ft_command *self, int argc, char **argv);
int ft_plan_main(const struct ft_command *self, int argc, char **argv);
int ft_fields_main(const struct ft_command *self, int argc, char **argv);
int ft_model_main(const struct ft_command *self, int argc, char **argv);

#endif
