/* ftlaunch stop RUN: ends a run as its grace says, or at once. */
#include <poll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "launcher/cmd/cmd.h"
#include "launcher/ctl.h"
#include "launcher/runs.h"

enum { OPT_NOW = 1 };
#define SETTLE (30 * FT_SEC) /* beyond the grace of the job */

/* Waits until the head has let go of the run. */
static bool wait_for_end(const struct ft_rundir *dir, int64_t limit)
{
    int64_t until = ft_clock_now(ft_clock_real()) + limit;
    while (ft_run_is_alive(dir)) {
        if (ft_clock_now(ft_clock_real()) > until) return false;
        poll(NULL, 0, 50);
    }
    return true;
}

static void refuse(struct ft_cmd *c, const struct ft_run_info *r)
{
    struct ft_err err;
    char host[256] = "";
    if (gethostname(host, sizeof host - 1) < 0) host[0] = 0;
    if (r->host && !ft_str_eq(r->host, host) && !r->ended)
        ft_fail(&err, FT_USAGE, "run '%s' belongs to host '%s'; stop it there", r->dir.id, r->host);
    else if (r->ended) ft_fail(&err, FT_USAGE, "run '%s' has ended with status %d", r->dir.id, r->status);
    else ft_fail(&err, FT_USAGE, "the launcher of run '%s' has died; there is nothing to stop", r->dir.id);
    ft_cmd_fail(c, &err);
}

static void stop_one(struct ft_cmd *c, const char *parent, const char *run, bool at_once)
{
    struct ft_rundir dir;
    struct ft_err err = {.code = FT_OK};
    struct ft_run_info r;
    struct ft_buf answer = {0};
    if (ft_rundir_find(parent, run, c->arena, &dir, &err)) {
        /* not in this folder: its head may answer all the same */
        if (ft_ctl_ask(run, at_once ? "stop now" : "stop", 5000, &answer, NULL) != FT_OK) ft_cmd_fail(c, &err);
        ft_buf_fini(&answer);
        return;
    }
    ft_run_info_read(&dir, c->arena, &r);
    if (!r.alive) {
        refuse(c, &r);
        return;
    }
    enum ft_code code = ft_ctl_ask(dir.id, at_once ? "stop now" : "stop", 5000, &answer, &err);
    if (!code && !wait_for_end(&dir, (at_once ? 0 : c->config->launch.grace) + SETTLE))
        code = ft_fail(&err, FT_TIMEOUT, "run '%s' is still being stopped", dir.id);
    if (code) ft_cmd_fail(c, &err);
    ft_buf_fini(&answer);
}

static int run(const struct ft_command *self, int argc, char **argv)
{
    struct ft_cmd c;
    const char *value;
    bool now = false;
    ft_cmd_begin(&c, self, argc, argv);
    for (int id; (id = ft_cmd_next(&c, &value)) > 0;) now = now || id == OPT_NOW;
    if (!c.done && !c.n_words) {
        struct ft_err err;
        ft_fail(&err, FT_USAGE, "stop: which run?");
        ft_fix(&err, "ftlaunch ps lists them");
        ft_cmd_fail(&c, &err);
    }
    size_t n = c.n_words;
    c.n_words = 0; /* they are runs, not job files */
    if (c.done || !ft_cmd_read_job(&c)) {
        c.n_words = n;
        return ft_cmd_end(&c);
    }
    c.n_words = n;
    for (size_t i = 0; i < n; i++) stop_one(&c, c.config->launch.run_dir, c.words[i], now);
    return ft_cmd_end(&c);
}

static const struct ft_option options[] = {
    {"now", 0, NULL, "SIGKILL at once, no grace", OPT_NOW},
    FT_OPTION_SET,
    FT_OPTIONS_SHARED,
};
static const struct ft_command command = {
    .name = "stop",
    .usage = "RUN… [--now]",
    .summary = "end a run: SIGTERM, its grace, SIGKILL",
    .text = "RUN is a folder, its name, or an unambiguous beginning or end of it. Returns when the run is over; its launcher exits "
            "143.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .main = run,
};
const struct ft_cmd_ops ft_cmd_stop = {&command, false};
