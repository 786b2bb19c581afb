/* ftlaunch data|model|ckpt …: runs fttrain data|model|ckpt … (as git runs its sub-programs), so that a user learns one command. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/cmd/cmd.h"

static int run(const struct ft_command *self, int argc, char **argv)
{
    struct ft_arena *arena = ft_arena_create();
    struct ft_err err;
    const char *fttrain = ft_find_fttrain(arena);
    int status = 127;
    if (!fttrain) {
        ft_fail(&err, FT_USAGE, "'ftlaunch %s' needs fttrain, which is neither beside ftlaunch nor on PATH", self->name);
    } else {
        char **v = ft_xcalloc((size_t)argc + 2, sizeof *v);
        v[0] = ft_arena_strdup(arena, fttrain);
        for (int i = 0; i < argc; i++) v[i + 1] = argv[i];
        execv(fttrain, v);
        ft_fail(&err, FT_IO, "cannot start '%s': %s", fttrain, strerror(errno));
        status = errno == ENOENT ? 127 : 126;
        free(v);
    }
    ft_err_print(stderr, "ftlaunch", &err);
    ft_arena_destroy(arena);
    return status;
}

static const struct ft_command data = {.name = "data",
                                       .usage = "check|show|prepare|encode|decode|render …",
                                       .summary = "training data: faults by line, what the model will see",
                                       .text = "Runs fttrain data … (fttrain data --help says more).",
                                       .main = run};
static const struct ft_command model = {.name = "model",
                                        .usage = "info|export|merge|quantize …",
                                        .summary = "model folders and adapters",
                                        .text = "Runs fttrain model … (fttrain model --help says more).",
                                        .main = run};
static const struct ft_command ckpt = {.name = "ckpt",
                                       .usage = "ls|verify|diff|prune …",
                                       .summary = "checkpoints",
                                       .text = "Runs fttrain ckpt … (fttrain ckpt --help says more).",
                                       .main = run};
const struct ft_cmd_ops ft_cmd_data = {&data, false}, ft_cmd_model = {&model, false}, ft_cmd_ckpt = {&ckpt, false};
