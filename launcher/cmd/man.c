/* ftlaunch man: the man pages, from the same tables as --help and the readers of files. Run at build time. */
#include <string.h>

#include "launcher/cmd/cmd.h"
#include "launcher/cmd/sections.h"

static void head(const char *name, int part, const char *what, struct ft_buf *out)
{
    ft_buf_addf(out, ".TH %s %d \"\" \"ftlaunch %s\" \"ftlaunch\"\n.SH NAME\n", name, part, FT_VERSION);
    ft_roff(out, what);
    ft_buf_addc(out, '\n');
}

static void text(const char *s, struct ft_buf *out)
{
    ft_roff(out, s);
    ft_buf_addc(out, '\n');
}

static void page_commands(struct ft_buf *out)
{
    static const struct {
        const char *status, *meaning;
    } statuses[] = {
        {"0", "done"},
        {"1", "a tool found a fault"},
        {"2", "nothing was started (usage, configuration, failed check)"},
        {"124", "a deadline passed, or the job hung"},
        {"125", "the launcher itself failed or a node was lost"},
        {"126, 127", "the program is not executable / not found"},
        {"128+N", "killed by signal N"},
        {"other", "the exit status of the first rank that failed"},
    };
    head("FTLAUNCH", 1, "ftlaunch - launch, diagnose, measure and run LLM fine-tuning across nodes", out);
    ft_buf_adds(out, ".SH SYNOPSIS\n.B ftlaunch\n.I COMMAND\n[\\fIOPTION\\fR…] [\\fIJOB.ini\\fR…] [\\fB\\-\\-\\fR \\fIPROGRAM\\fR "
                     "\\fIARGS\\fR…]\n");
    ft_buf_adds(out, ".SH DESCRIPTION\n");
    text("Reads job files, plans which rank runs where, starts and watches the ranks. Several job files merge from left to right, "
         "--set "
         "comes last. Results go to stdout, everything said about them to stderr. The keys of job files: ftlaunch-job(5).",
         out);
    ft_buf_adds(out, ".SH COMMANDS\n");
    for (const struct ft_cmd_entry *e = ft_cmd_table; e->name; e++)
        if (e->ops && !e->ops->hidden) ft_command_man("ftlaunch", e->ops->command, out);
    ft_buf_adds(out, ".SH EXIT STATUS\n");
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        ft_buf_adds(out, ".TP\n.B ");
        text(statuses[i].status, out);
        text(statuses[i].meaning, out);
    }
    ft_buf_adds(out, ".SH SEE ALSO\n.BR ftlaunch-job (5)\n");
}

static void field(const struct ft_field *f, struct ft_buf *out)
{
    struct ft_buf line = {0};
    ft_buf_adds(out, ".TP\n.BI ");
    ft_roff(out, f->name);
    ft_buf_adds(out, " \" = \" ");
    ft_field_describe(f, &line);
    ft_buf_addc(out, '"');
    ft_roff(out, ft_buf_str(&line));
    ft_buf_adds(out, "\"\n");
    ft_buf_clear(&line);
    ft_buf_addf(&line, "%s%s%s%s", f->help ? f->help : "", f->def ? " (default: " : "", f->def ? f->def : "", f->def ? ")" : "");
    text(ft_buf_str(&line), out);
    ft_buf_fini(&line);
}

static void page_job(struct ft_cmd *c, struct ft_buf *out)
{
    struct ft_cmd_sections all = ft_cmd_sections(c);
    head("FTLAUNCH-JOB", 5, "ftlaunch-job - job files of ftlaunch and fttrain", out);
    ft_buf_adds(out, ".SH DESCRIPTION\n");
    text("An INI file: [section] lines and KEY = VALUE lines. A comment is a line that begins with ; or #, and blank + ; behind a "
         "value "
         "(in [nodes] also blank + #). In [env] the value is the rest of the line. Durations take ms s m h, sizes K M G T "
         "(binary), shares "
         "%, booleans yes no, lists commas. A path that begins with ~/ starts at the home directory. Of ${NAME} in [env] the value "
         "is taken "
         "from the environment; $${ is a literal ${.",
         out);
    for (size_t i = 0; i < all.n; i++) {
        const struct ft_section *s = all.v[i];
        ft_buf_adds(out, ".SH ");
        ft_buf_addf(out, "[%s]\n", s->name);
        if (s->help) text(s->help, out);
        for (size_t k = 0; k < s->n_fields; k++) field(&s->fields[k], out);
    }
    ft_buf_adds(out, ".SH SEE ALSO\n.BR ftlaunch (1)\n");
}

static bool page(struct ft_cmd *c, const char *word, struct ft_buf *out)
{
    const bool commands = !strcmp(word, "ftlaunch");
    if (!commands && strcmp(word, "job") != 0) return false;
    if (commands) page_commands(out);
    else page_job(c, out);
    return true;
}

static int run(const struct ft_command *self, int argc, char **argv) { return ft_cmd_print_page(self, argc, argv, page); }

static const struct ft_option options[] = {FT_OPTIONS_SHARED};
static const struct ft_command command = {.name = "man",
                                          .usage = "ftlaunch|job",
                                          .summary = "man pages on stdout",
                                          .options = options,
                                          .n_options = sizeof options / sizeof *options,
                                          .main = run};
const struct ft_cmd_ops ft_cmd_man = {&command, true};
