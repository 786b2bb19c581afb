/* ftlaunch: the front door. Finds the command and runs it; help and version. */
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "launcher/cmd/cmd.h"

static const struct ft_cmd_entry *find(const char *name)
{
    for (const struct ft_cmd_entry *e = ft_cmd_table; e->name; e++)
        if (!strcmp(e->name, name)) return e;
    return NULL;
}

static void print_commands(FILE *out)
{
    fputs("usage: ftlaunch COMMAND …   (ftlaunch COMMAND --help says more)\n\n", out);
    for (const struct ft_cmd_entry *e = ft_cmd_table; e->name; e++)
        if (e->ops && !e->ops->hidden) fprintf(out, "  %-12s %s\n", e->name, e->ops->command->summary);
    fputs("\n  --version    version, build and libraries\n  --help       this text\n", out);
}

static void print_version(void)
{
    printf("ftlaunch %s\nbuild: %s\nlibraries: %s\n", FT_VERSION, FT_BUILD, FT_LIBRARIES);
    fputs("commands:", stdout);
    for (const struct ft_cmd_entry *e = ft_cmd_table; e->name; e++)
        if (e->ops && !e->ops->hidden) printf(" %s", e->name);
    fputs("\nnot in this build:", stdout);
    size_t n = 0;
    for (const struct ft_cmd_entry *e = ft_cmd_table; e->name; e++) {
        if (e->ops) continue;
        printf(" %s", e->name);
        n++;
    }
    puts(n ? "" : " -");
}

static int unknown(const char *name)
{
    struct ft_err err;
    const struct ft_cmd_entry *known = find(name);
    if (known) {
        ft_fail(&err, FT_UNSUPPORTED, "'ftlaunch %s' is not in this build", name);
    } else {
        size_t n = 0;
        for (const struct ft_cmd_entry *e = ft_cmd_table; e->name; e++) n++;
        const char **names = ft_xcalloc(n + 1, sizeof *names);
        for (size_t i = 0; i < n; i++) names[i] = ft_cmd_table[i].name;
        const char *near = ft_nearest(name, names, n);
        ft_fail(&err, FT_USAGE, "there is no command '%s'", name);
        if (near) ft_fix(&err, "did you mean 'ftlaunch %s'?", near);
        else ft_fix(&err, "ftlaunch --help lists the commands");
        free(names);
    }
    ft_err_print(stderr, "ftlaunch", &err);
    return 2;
}

static int help(int argc, char **argv)
{
    const struct ft_cmd_entry *e = argc > 2 ? find(argv[2]) : NULL;
    struct ft_buf text = {0};
    if (argc > 2 && (!e || !e->ops)) return unknown(argv[2]);
    if (!e) {
        print_commands(stdout);
        return 0;
    }
    ft_command_help("ftlaunch", e->ops->command, &text);
    fputs(ft_buf_str(&text), stdout);
    ft_buf_fini(&text);
    return 0;
}

int main(int argc, char **argv)
{
    ft_std_fds();
    ft_log_set((struct ft_log_sink){.fd = 2, .level = FT_LOG_WARN, .prog = "ftlaunch", .also_fd = -1});
    if (argc < 2) {
        print_commands(stderr);
        return 2;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) print_commands(stdout);
    else if (!strcmp(argv[1], "--version")) print_version();
    else if (!strcmp(argv[1], "help")) return help(argc, argv);
    else {
        const struct ft_cmd_entry *e = find(argv[1]);
        if (!e || !e->ops) return unknown(argv[1]);
        return e->ops->command->main(e->ops->command, argc - 1, argv + 1);
    }
    return fflush(stdout) || ferror(stdout) ? 125 : 0;
}
