#include "runtime/data/data_cmd.h"

#include <stdio.h>
#include <string.h>

#include "runtime/data/cmd.h"

static const struct ft_command *const commands[] = {&ft_cmd_check,  &ft_cmd_show,   &ft_cmd_prepare,
                                                    &ft_cmd_encode, &ft_cmd_decode, &ft_cmd_render};

int ft_cmd_usage(const struct ft_command *self, const struct ft_err *err)
{
    char prog[64];
    snprintf(prog, sizeof prog, "fttrain data %s", self->name);
    ft_err_print(stderr, prog, err);
    return 2;
}

int ft_cmd_help(const struct ft_command *self)
{
    struct ft_buf text = {0};
    ft_command_help("ftlaunch data", self, &text);
    fwrite(ft_buf_str(&text), 1, text.n, stdout);
    ft_buf_fini(&text);
    return 0;
}

void ft_cmd_end_line(struct ft_buf *out, size_t from)
{
    struct ft_buf line = {0};
    const char *s = ft_buf_str(out);
    for (size_t i = from; i < out->n; i++) {
        const unsigned char c = (unsigned char)s[i];
        if (c == 0xC2 && (unsigned char)s[i + 1] == 0x85) ft_buf_adds(&line, "\\u0085"), i++;
        else if (c == 0xE2 && (unsigned char)s[i + 1] == 0x80 && ((unsigned char)s[i + 2] & 0xFE) == 0xA8)
            ft_buf_addf(&line, "\\u202%x", (unsigned)(unsigned char)s[i + 2] & 0xF), i += 2;
        else ft_buf_addc(&line, s[i]);
    }
    ft_buf_addc(&line, '\n');
    out->n = from;
    ft_buf_add(out, line.data, line.n);
    ft_buf_fini(&line);
}

const struct ft_command *const *ft_data_commands(size_t *n)
{
    *n = sizeof commands / sizeof *commands;
    return commands;
}

static int overview(FILE *out, int status)
{
    fprintf(out, "usage: ftlaunch data WORD …\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        fprintf(out, "  %-8s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(out, "\n'ftlaunch data WORD --help' tells more.\n");
    return status;
}

int ft_data_main(int argc, char **argv)
{
    if (argc < 2) return overview(stderr, 2);
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) return overview(stdout, 0);
    const char *names[16];
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        names[i] = commands[i]->name;
        if (!strcmp(argv[1], names[i])) return commands[i]->main(commands[i], argc - 1, argv + 1);
    }
    struct ft_err err = {0};
    const char *near = ft_nearest(argv[1], names, sizeof commands / sizeof *commands);
    (void)ft_fail(&err, FT_USAGE, "data has no word '%s'", argv[1]);
    if (near) (void)ft_fix(&err, "did you mean '%s'?", near);
    ft_err_print(stderr, "fttrain", &err);
    return 2;
}
