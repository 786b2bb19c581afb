/* Job files: any bytes are read, checked and planned without a crash; what is planned survives resolving byte for byte. The first
 * byte is the number of ranks (0: none). Nothing is opened: a job with a host list is not planned. */
#include <stdint.h>
#include <string.h>

#include "launcher/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const struct ft_plan *plan(const char *text, size_t n, int ranks, struct ft_arena *arena)
{
    static char token[] = "TOKEN=t", nl[] = "NL=a\nb", empty[] = "E=", *const environ_[] = {token, nl, empty, NULL};
    struct ft_faults faults = {.arena = arena};
    struct ft_ini *ini = ft_ini_create(arena);
    ft_ini_read_text(ini, "job.ini", text, n, &faults);
    if (ft_ini_find(ini, "cluster", "hostfile")) return NULL;
    const struct ft_launcher_config *c = ft_config_read(ini, environ_, arena, &faults);
    ft_ini_sort_faults(ini, &faults);
    for (size_t i = 0; i < faults.n; i++) FT_ASSERT(faults.v[i].text && faults.v[i].at.line >= 0 && faults.v[i].at.column >= 0);
    if (!c || faults.n_errors) return NULL;
    struct ft_plan_request q = {.config = c, .n_ranks = ranks, .job_name = "job"};
    return ft_plan_make(&q, arena, &faults);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!n || n > 1 << 16) return 0;
    struct ft_arena *arena = ft_arena_create();
    const struct ft_plan *p = plan((const char *)data + 1, n - 1, data[0], arena);
    if (p && p->world <= 512 && p->config->n_nodes <= 512) {
        struct ft_buf job = {0}, one = {0}, two = {0}, text = {0};
        ft_plan_write_json(p, &one);
        ft_plan_print(p, &text);
        ft_plan_print_env(p, &text);
        ft_plan_write_job(p, "/work", NULL, &job);
        const struct ft_plan *again = plan(job.data, job.n, 0, arena);
        if (!again) FT_BUG("the resolved job is refused:\n%s", job.data);
        ft_plan_write_json(again, &two);
        if (one.n != two.n || memcmp(one.data, two.data, one.n) != 0)
            FT_BUG("the resolved job plans otherwise:\n%s\n%s\n%s", job.data, one.data, two.data);
        ft_buf_fini(&job);
        ft_buf_fini(&one);
        ft_buf_fini(&two);
        ft_buf_fini(&text);
    }
    ft_arena_destroy(arena);
    return 0;
}
