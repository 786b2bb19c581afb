/* ftlaunch completion: shell completion, from the tables of options and fields. Run at build time. */
#include <string.h>

#include "launcher/cmd/cmd.h"
#include "launcher/cmd/sections.h"

static void words_of(const struct ft_command *cmd, struct ft_buf *out)
{
    for (size_t i = 0; i < cmd->n_options; i++) {
        const struct ft_option *o = &cmd->options[i];
        if (o->name) ft_buf_addf(out, "--%s ", o->name);
        if (o->letter) ft_buf_addf(out, "-%c ", o->letter);
    }
    ft_buf_adds(out, "--help");
}

/* Options whose next word is their value: nothing is proposed there but keys for --set. */
static void add_bash(struct ft_cmd *c, struct ft_buf *out)
{
    struct ft_cmd_sections all = ft_cmd_sections(c);
    ft_buf_adds(
        out,
        "# bash completion for ftlaunch; generated from its tables\n_ftlaunch()\n{\n"
        "    local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\" cmd=\"${COMP_WORDS[1]}\" words=\"\"\n"
        "    COMPREPLY=()\n    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        COMPREPLY=($(compgen -W \"--help --version help");
    for (const struct ft_cmd_entry *e = ft_cmd_table; e->name; e++)
        if (e->ops && !e->ops->hidden) ft_buf_addf(out, " %s", e->name);
    ft_buf_adds(
        out,
        "\" -- \"$cur\"))\n        return\n    fi\n    if [ \"$prev\" = --set ]; then\n        compopt -o nospace 2>/dev/null\n"
        "        COMPREPLY=($(compgen -S = -W \"");
    for (size_t i = 0; i < all.n; i++)
        for (size_t k = 0; k < all.v[i]->n_fields; k++) ft_buf_addf(out, "%s.%s ", all.v[i]->name, all.v[i]->fields[k].name);
    ft_buf_adds(
        out, "\" -- \"$cur\"))\n        return\n    fi\n    if [ \"$prev\" = --color ]; then\n"
             "        COMPREPLY=($(compgen -W \"auto never always\" -- \"$cur\"))\n        return\n    fi\n    case \"$cmd\" in\n");
    for (const struct ft_cmd_entry *e = ft_cmd_table; e->name; e++) {
        if (!e->ops || e->ops->hidden) continue;
        ft_buf_addf(out, "    %s) words=\"", e->name);
        words_of(e->ops->command, out);
        ft_buf_adds(out, "\" ;;\n");
    }
    ft_buf_adds(out, "    esac\n    case \"$cur\" in\n    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n"
                     "    *) [ \"$cmd\" = init ] && COMPREPLY=($(compgen -W \"laptop ssh slurm\" -- \"$cur\")) ||\n"
                     "       COMPREPLY=($(compgen -f -X '!*.ini' -- \"$cur\") $(compgen -d -- \"$cur\")) ;;\n"
                     "    esac\n}\ncomplete -o filenames -F _ftlaunch ftlaunch\n");
}

static bool page(struct ft_cmd *c, const char *word, struct ft_buf *out)
{
    if (strcmp(word, "bash") != 0) return false;
    add_bash(c, out);
    return true;
}

static int run(const struct ft_command *self, int argc, char **argv) { return ft_cmd_print_page(self, argc, argv, page); }

static const struct ft_option options[] = {FT_OPTIONS_SHARED};
static const struct ft_command command = {.name = "completion",
                                          .usage = "bash",
                                          .summary = "shell completion on stdout",
                                          .options = options,
                                          .n_options = sizeof options / sizeof *options,
                                          .main = run};
const struct ft_cmd_ops ft_cmd_completion = {&command, true};
