/* --fit: what fttrain would change so that a rank fits, as further --set of the job. */
#include <string.h>

#include "launcher/ask.h"
#include "launcher/cmd/cmd.h"

struct ft_json *ft_cmd_ask_plan(struct ft_cmd *c, const struct ft_plan *p, bool fit, struct ft_err *err)
{
    struct ft_json *answer = NULL;
    int status;
    if (!p->n_argv) {
        ft_fail(err, FT_USAGE, "no fttrain beside ftlaunch or on PATH: memory and batch are not planned");
        return NULL;
    }
    struct ft_question q = {.fttrain = p->argv[0],
                            .word = "plan",
                            .more = {fit ? "--fit" : NULL},
                            .files = c->words,
                            .n_files = c->n_words,
                            .sets = c->sets,
                            .n_sets = c->n_sets,
                            .more_set = ft_arena_printf(c->arena, "parallel.data=%d", p->mesh.size[FT_AXIS_DP])};
    return ft_ask_fttrain(&q, &answer, &status, err) ? NULL : answer;
}

static void fault(struct ft_cmd *c, const char *text)
{
    ft_faults_add(&c->faults, FT_SEV_ERROR, (struct ft_source){0}, NULL, NULL, "--fit: %s", text);
}

/* One --set for each member of "fit". */
static size_t take_changes(struct ft_cmd *c, const struct ft_json *fit)
{
    size_t n = 0;
    struct ft_buf said = {0};
    for (void *it = ft_json_iter(fit); it; it = ft_json_iter_next(fit, it), n++) {
        const struct ft_json *v = ft_json_iter_value(it);
        const char *text = ft_json_str(v);
        if (!text) text = ft_arena_printf(c->arena, "%lld", (long long)ft_json_int(v, 0));
        const char *set = ft_arena_printf(c->arena, "%s=%s", ft_json_iter_key(it), text);
        ft_cmd_add_set(c, set);
        ft_buf_addf(&said, "%s%s", n ? ", " : "", set);
    }
    if (n && c->verbose >= 0) ft_cmd_say(c, ft_arena_printf(c->arena, "ftlaunch: note: --fit changed %s\n", said.data));
    ft_buf_fini(&said);
    return n;
}

const struct ft_plan *ft_cmd_fit(struct ft_cmd *c, const struct ft_plan *p, int n_ranks)
{
    struct ft_err err = {0};
    if (!p->is_fttrain) {
        fault(c, "a program of your own is not changed; leave --fit out");
        return NULL;
    }
    struct ft_json *answer = ft_cmd_ask_plan(c, p, true, &err);
    const char *why = ft_json_str(ft_json_get(answer, "why"));
    size_t n = 0;
    if (!answer) fault(c, err.text);
    else if (!ft_json_bool(ft_json_get(answer, "legal"), true)) fault(c, why ? why : "this layout is not legal");
    else n = take_changes(c, ft_json_get(answer, "fit"));
    ft_json_destroy(answer);
    if (c->faults.n_errors) return NULL;
    if (!n) return p;
    c->faults = (struct ft_faults){.arena = c->arena}; /* notes of the same files were said */
    return ft_cmd_load_job(c) ? ft_cmd_make_plan(c, n_ranks) : NULL;
}
