/* ftlaunch init: a commented starter file; --all names every key. */
#include <string.h>

#include "launcher/ask.h"
#include "launcher/cmd/cmd.h"
#include "launcher/cmd/sections.h"
#include "launcher/cmd/templates.h"

enum { OPT_ALL = 1 };
static const struct ft_option options[] = {
    {"all", 0, NULL, "name every key of every section, commented, with its default", OPT_ALL},
    FT_OPTIONS_SHARED,
};

static const struct {
    const char *name, *text;
} starters[] = {{"laptop", ft_template_laptop}, {"ssh", ft_template_ssh}, {"slurm", ft_template_slurm}};

static const char *starter(const char *name)
{
    for (size_t i = 0; i < sizeof starters / sizeof *starters; i++)
        if (!strcmp(starters[i].name, name)) return starters[i].text;
    return NULL;
}

static void print_all(struct ft_cmd *c, struct ft_buf *out)
{
    struct ft_cmd_sections all = ft_cmd_sections(c);
    ft_buf_adds(out, "\n\n; ---- every key, with its default ----\n");
    for (size_t i = 0; i < all.n; i++) {
        ft_buf_addc(out, '\n');
        ft_section_write_ini(all.v[i], out);
    }
}

static int run(const struct ft_command *self, int argc, char **argv)
{
    struct ft_cmd c;
    const char *value;
    bool all = false;
    ft_cmd_begin(&c, self, argc, argv);
    for (int id; (id = ft_cmd_next(&c, &value)) > 0;) all = true;
    if (c.done) return ft_cmd_end(&c);
    const char *text = starter(c.n_words ? c.words[0] : "laptop");
    if (c.n_words > 1 || !text) {
        struct ft_err err;
        static const char *const names[] = {"laptop", "ssh", "slurm"};
        const char *near = c.n_words == 1 ? ft_nearest(c.words[0], names, 3) : NULL;
        if (c.n_words > 1) ft_fail(&err, FT_USAGE, "init takes one word: laptop, ssh or slurm");
        else ft_fail(&err, FT_USAGE, "there is no starter file '%s': laptop, ssh, slurm", c.words[0]);
        if (near) ft_fix(&err, "did you mean '%s'?", near);
        ft_cmd_fail(&c, &err);
        return ft_cmd_end(&c);
    }
    struct ft_buf out = {0};
    ft_buf_adds(&out, text);
    if (all) print_all(&c, &out);
    fwrite(out.data, 1, out.n, stdout);
    ft_buf_fini(&out);
    return ft_cmd_end(&c);
}

static const struct ft_command command = {
    .name = "init",
    .usage = "[laptop|ssh|slurm] [--all]",
    .summary = "a commented starter file on stdout",
    .text =
        "ftlaunch init > job.ini writes a file whose values work in this build. With --all every key of every section follows,\n"
        "commented, with type, range and default.",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .main = run,
};
const struct ft_cmd_ops ft_cmd_init = {&command, false};
