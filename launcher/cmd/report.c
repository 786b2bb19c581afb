/* ftlaunch report RUN…: one self-contained HTML page. */
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "launcher/cmd/cmd.h"
#include "launcher/report/report.h"

enum { OPT_OUT = 1 };

static void write_page(struct ft_cmd *c, const char *parent, const char *out)
{
    struct ft_err err = {.code = FT_OK};
    struct ft_run_info *runs = ft_arena_array(c->arena, c->n_words, sizeof *runs);
    for (size_t i = 0; i < c->n_words; i++) {
        struct ft_rundir dir;
        if (ft_rundir_find(parent, c->words[i], c->arena, &dir, &err)) {
            ft_cmd_fail(c, &err);
            return;
        }
        ft_run_info_read(&dir, c->arena, &runs[i]);
    }
    struct ft_buf page = {0};
    ft_report_page(runs, c->n_words, c->arena, &page);
    if (!out) out = c->n_words == 1 ? ft_rundir_file(&runs[0].dir, "report.html", c->arena) : "report.html";
    if (ft_str_eq(out, "-")) fwrite(page.data, 1, page.n, stdout);
    else if (ft_write_file(out, page.data, page.n, 0600, &err)) ft_cmd_fail(c, &err);
    else printf("%s\n", out);
    ft_buf_fini(&page);
}

static int run(const struct ft_command *self, int argc, char **argv)
{
    struct ft_cmd c;
    const char *value, *out = NULL;
    ft_cmd_begin(&c, self, argc, argv);
    for (int id; (id = ft_cmd_next(&c, &value)) > 0;)
        if (id == OPT_OUT) out = value;
    if (!c.done && !c.n_words) {
        struct ft_err err;
        ft_fail(&err, FT_USAGE, "report: which run?");
        ft_fix(&err, "ftlaunch ps lists them");
        ft_cmd_fail(&c, &err);
    }
    size_t n = c.n_words;
    c.n_words = 0; /* they are runs, not job files */
    bool ok = !c.done && ft_cmd_read_job(&c);
    c.n_words = n;
    if (ok) write_page(&c, c.config->launch.run_dir, out);
    return ft_cmd_end(&c);
}

static const struct ft_option options[] = {
    {"output", 'o', "FILE", "where the page goes (-: stdout); else report.html in the run's folder, or here for several runs",
     OPT_OUT},
    FT_OPTION_SET,
    FT_OPTIONS_SHARED,
};
static const struct ft_command command = {
    .name = "report",
    .usage = "RUN… [-o FILE]",
    .summary = "one self-contained HTML page: curves, ranks, failure, events",
    .text = "RUN is a folder, its name, or an unambiguous beginning or end of it. Several runs share the axes of their curves.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .main = run,
};
const struct ft_cmd_ops ft_cmd_report = {&command, false};
