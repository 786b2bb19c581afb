/* fttrain: one rank of the training runtime, and the tools around it. */
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "runtime/ckpt/ckpt.h"
#include "runtime/arch/arch.h"
#include "runtime/coll/engine.h"
#include "runtime/data/data_cmd.h"
#include "runtime/device/device.h"
#include "runtime/train/cli.h"

#define N(rows) (sizeof(rows) / sizeof *(rows))

#define OPT_SET                                                                                                                    \
    {                                                                                                                              \
        "set", 0, "SECTION.KEY=VALUE", "replace a value of the job", FT_OPT_SET                                                    \
    }
#define OPT_JSON                                                                                                                   \
    {                                                                                                                              \
        "json", 0, NULL, "one JSON object on stdout", FT_OPT_JSON                                                                  \
    }
#define OPT_QUIET                                                                                                                  \
    {                                                                                                                              \
        "quiet", 'q', NULL, "say nothing but errors", FT_OPT_QUIET                                                                 \
    }
#define OPT_VERBOSE                                                                                                                \
    {                                                                                                                              \
        "verbose", 'v', NULL, "say more", FT_OPT_VERBOSE                                                                           \
    }
#define OPT_WORLD                                                                                                                  \
    {                                                                                                                              \
        "world", 0, "N", "number of ranks (data = auto)", FT_OPT_WORLD                                                             \
    }

static const struct ft_option train_options[] = {OPT_SET, OPT_QUIET, OPT_VERBOSE};
static const struct ft_option check_options[] = {
    OPT_SET,   OPT_JSON,  {"shallow", 0, NULL, "sections only: no model, data or device is opened", FT_OPT_SHALLOW},
    OPT_WORLD, OPT_QUIET, OPT_VERBOSE};
static const struct ft_option plan_options[] = {
    OPT_SET,
    OPT_JSON,
    OPT_WORLD,
    {"fit", 0, NULL, "take micro_batch and recompute down, in this order, until a rank fits", FT_OPT_FIT},
    {"memory", 0, "BYTES", "what a rank may take (what is free on this machine, shared by its ranks)", FT_OPT_MEMORY},
    OPT_QUIET,
    OPT_VERBOSE};
static const struct ft_option fields_options[] = {OPT_JSON};
static const struct ft_option model_options[] = {
    OPT_JSON,
    OPT_QUIET,
    OPT_VERBOSE,
    {"out", 'o', "DIR", "export: the folder to make", FT_OPT_OUT},
    {"dtype", 0, "base|fp32|bf16|fp16", "export: number format", FT_OPT_DTYPE},
};

static int data_main(const struct ft_command *self, int argc, char **argv)
{
    (void)self;
    return ft_data_main(argc, argv);
}

static int ckpt_main(const struct ft_command *self, int argc, char **argv)
{
    (void)self;
    return ft_ckpt_command(argc - 1, argv + 1, stdout, stderr);
}

static const struct ft_command commands[] = {
    {"train", "[JOB.ini…] [--set SECTION.KEY=VALUE]…", "run one rank of a job (the word may be left out)",
     "Without files the job is read from FT_JOB. The rank's place comes from the environment: ftlaunch's, torchrun's, SLURM_*, "
     "OMPI_COMM_WORLD_*, PMI_*, or RANK and WORLD_SIZE; without any it is alone.",
     train_options, N(train_options), false, ft_train_main},
    {"check", "[JOB.ini…] [--json] [--shallow]", "everything that can be found out before a run", NULL, check_options,
     N(check_options), false, ft_check_main},
    {"plan", "[JOB.ini…] [--json] [--world N] [--fit] [--memory BYTES]", "mesh, batch arithmetic and memory of a job", NULL,
     plan_options, N(plan_options), false, ft_plan_main},
    {"fields", "[--json]", "the keys of the sections that fttrain reads", NULL, fields_options, N(fields_options), false,
     ft_fields_main},
    {"data", "check|show|prepare|encode|decode|render …", "training data: faults by file and line, what the model will see", NULL,
     NULL, 0, true, data_main},
    {"model", "info FOLDER… | export RUN|CHECKPOINT|FOLDER -o DIR", "model folders", NULL, model_options, N(model_options), false,
     ft_model_main},
    {"ckpt", "ls DIR | verify PATH… | diff A B [-v] | prune DIR --keep N", "look at, check, compare and remove checkpoints", NULL,
     NULL, 0, true, ckpt_main},
};

static void print_help(FILE *out)
{
    fputs("fttrain: one rank of an LLM fine-tuning run\n\nusage: fttrain [train] [JOB.ini…] [--set SECTION.KEY=VALUE]…\n", out);
    for (size_t i = 1; i < N(commands); i++) fprintf(out, "       fttrain %s %s\n", commands[i].name, commands[i].usage);
    fputs("\ncommands:\n", out);
    for (size_t i = 0; i < N(commands); i++) fprintf(out, "  %-10s%s\n", commands[i].name, commands[i].summary);
    fputs("\n'fttrain COMMAND --help' says more.\n", out);
}

/* fttrain man: the man page, from the same tables as --help. Run at build time. */
static void print_man(void)
{
    static const char *const statuses[][2] = {{"0", "done"},
                                              {"1", "stopped after the first update"},
                                              {"2", "refused before the first update"},
                                              {"3", "a watch stopped it: trying again would end the same way"},
                                              {"69", "ended only because a peer ended: never the cause"},
                                              {"143", "ended after SIGTERM: the update was finished and saved"}};
    struct ft_buf out = {0};
    ft_buf_addf(&out, ".TH FTTRAIN 1 \"\" \"ftlaunch %s\" \"ftlaunch\"\n.SH NAME\n", FT_VERSION);
    ft_roff(&out, "fttrain - one rank of an LLM fine-tuning run, and the tools around it");
    ft_buf_adds(&out, "\n.SH SYNOPSIS\n.B fttrain\n[\\fICOMMAND\\fR] [\\fIJOB.ini\\fR…] [\\fIOPTION\\fR…]\n.SH COMMANDS\n");
    for (size_t i = 0; i < N(commands); i++) ft_command_man("fttrain", &commands[i], &out);
    ft_buf_adds(&out, ".SH EXIT STATUS\n");
    for (size_t i = 0; i < N(statuses); i++) ft_buf_addf(&out, ".TP\n.B %s\n%s\n", statuses[i][0], statuses[i][1]);
    ft_buf_adds(&out, ".SH SEE ALSO\n.BR ftlaunch (1),\n.BR ftlaunch-job (5)\n");
    ft_cli_print(&out);
    ft_buf_fini(&out);
}

/* What is built, and what is known and not in this build, from the registries. */
static void print_version(void)
{
    printf("fttrain %s\n", FT_VERSION);
    for (const struct ft_device_entry *e = ft_device_table; e->name; e++)
        printf("device %s%s\n", e->name, e->ops ? "" : " (not in this build)");
    for (const struct ft_coll_entry *e = ft_coll_table; e->name; e++)
        printf("collectives %s%s\n", e->name, e->ops ? "" : " (not in this build)");
    for (const struct ft_arch_entry *e = ft_arch_table; e->name; e++)
        printf("architecture %s%s\n", e->name, e->ops ? "" : " (not in this build)");
}

/* A word that is neither a command nor a file nor looks like one. */
static bool unknown_command(const char *word)
{
    if (!word[0] || word[0] == '-' || strpbrk(word, "./") || ft_is_file(word)) return false;
    const char *names[N(commands)];
    for (size_t i = 0; i < N(commands); i++) names[i] = commands[i].name;
    const char *near = ft_nearest(word, names, N(commands));
    struct ft_err err;
    ft_fail(&err, FT_USAGE, "'%s' is neither a command nor a job file", word);
    if (near) ft_fix(&err, "did you mean '%s'?", near);
    ft_err_print(stderr, "fttrain", &err);
    return true;
}

int main(int argc, char **argv)
{
    ft_std_fds();
    ft_log_set((struct ft_log_sink){.fd = 2, .level = FT_LOG_WARN, .prog = "fttrain", .also_fd = -1});
    const char *word = argc > 1 ? argv[1] : "";
    if (!strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "help")) return (print_help(stdout), FT_EXIT_DONE);
    if (!strcmp(word, "--version")) return (print_version(), FT_EXIT_DONE);
    if (!strcmp(word, "man")) return (print_man(), FT_EXIT_DONE);
    for (size_t i = 0; i < N(commands); i++)
        if (!strcmp(word, commands[i].name)) return commands[i].main(&commands[i], argc - 1, argv + 1);
    if (unknown_command(word)) return FT_EXIT_REFUSED;
    return ft_train_main(&commands[0], argc, argv);
}
