#include "runtime/train/pipeline.h"

struct ft_pipeline_schedule ft_pipeline_schedule(int stages, int stage, int64_t m, struct ft_arena *a)
{
    const int64_t w = stages - 1 - stage < m ? stages - 1 - stage : m;
    struct ft_action *list = ft_arena_array(a, (size_t)(2 * m), sizeof *list);
    size_t n = 0;
    int64_t forward = 0, backward = 0;
    while (forward < w) list[n++] = (struct ft_action){FT_PASS_FORWARD, forward++};
    while (forward < m) {
        list[n++] = (struct ft_action){FT_PASS_FORWARD, forward++};
        list[n++] = (struct ft_action){FT_PASS_BACKWARD, backward++};
    }
    while (backward < m) list[n++] = (struct ft_action){FT_PASS_BACKWARD, backward++};
    return (struct ft_pipeline_schedule){list, n, w, w < m ? w + 1 : m};
}

double ft_pipeline_bubble(int stages, int64_t m) { return (double)(stages - 1) / (double)m; }

void ft_pipeline_print(const struct ft_pipeline_schedule *s, struct ft_buf *out)
{
    for (size_t i = 0; i < s->n; i++)
        ft_buf_addf(out, "%s%c%lld", i ? " " : "", s->actions[i].pass == FT_PASS_FORWARD ? 'F' : 'B',
                    (long long)s->actions[i].micro);
}
