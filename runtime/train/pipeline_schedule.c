#include "runtime/train/pipeline.h"

/* Pass number k of a kind: micro-batches go in groups of as many as there are stages, each group through all chunks; a backward takes
 * the chunks from the last. */
static struct ft_action nth(enum ft_pass pass, int64_t k, int stages, int chunks, int64_t m)
{
    const int64_t group = m < stages ? m : stages, block = group * chunks;
    const int chunk = (int)(k % block / group);
    return (struct ft_action){pass, pass == FT_PASS_FORWARD ? chunk : chunks - 1 - chunk, k / block * group + k % group};
}

struct ft_pipeline_schedule ft_pipeline_schedule(int stages, int stage, int chunks, int64_t m, struct ft_arena *a)
{
    if (chunks > 1 && m % stages && m != 1)
        FT_BUG("%lld micro-batches through %d chunks on each of %d stages", (long long)m, chunks, stages);
    const int64_t behind = stages - 1 - stage, all = m * chunks;
    const int64_t most = chunks == 1 ? behind : 2 * behind + (int64_t)(chunks - 1) * stages, w = most < all ? most : all;
    struct ft_action *list = ft_arena_array(a, (size_t)(2 * all), sizeof *list);
    size_t n = 0;
    int64_t forward = 0, backward = 0;
    while (forward < w) list[n++] = nth(FT_PASS_FORWARD, forward++, stages, chunks, m);
    while (forward < all) {
        list[n++] = nth(FT_PASS_FORWARD, forward++, stages, chunks, m);
        list[n++] = nth(FT_PASS_BACKWARD, backward++, stages, chunks, m);
    }
    while (backward < all) list[n++] = nth(FT_PASS_BACKWARD, backward++, stages, chunks, m);
    return (struct ft_pipeline_schedule){list, n, w, w < all ? w + 1 : all};
}

double ft_pipeline_bubble(int stages, int chunks, int64_t m) { return (double)(stages - 1) / ((double)chunks * (double)m); }

void ft_pipeline_print(const struct ft_pipeline_schedule *s, struct ft_buf *out)
{
    bool chunks = false;
    for (size_t i = 0; i < s->n; i++) chunks |= s->actions[i].chunk > 0;
    for (size_t i = 0; i < s->n; i++) {
        ft_buf_addf(out, "%s%c%lld", i ? " " : "", s->actions[i].pass == FT_PASS_FORWARD ? 'F' : 'B',
                    (long long)s->actions[i].micro);
        if (chunks) ft_buf_addf(out, ".%d", s->actions[i].chunk);
    }
}
