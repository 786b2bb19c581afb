/* An environment (lines NAME=VALUE): a place or a sentence; a place that is written reads back the same. */
#include <stdint.h>
#include <string.h>

#include "base/str.h"
#include "topology/place.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n > 1 << 14) return 0;
    struct ft_arena *arena = ft_arena_create();
    char *text = ft_arena_strndup(arena, (const char *)data, n), **env = ft_arena_array(arena, n + 2, sizeof *env);
    size_t n_env = 0;
    for (char *p = text; p <= text + n; p += strlen(p) + 1) {
        p[strcspn(p, "\n")] = '\0';
        env[n_env++] = p;
    }
    struct ft_place p, q;
    struct ft_err err = {0};
    if (ft_place_from_env(env, arena, &p, &err)) {
        FT_ASSERT(err.code == FT_CONFIG && err.text[0]);
    } else {
        FT_ASSERT(p.rank >= 0 && p.rank < p.world && p.local_rank < p.local_world && p.node_rank >= 0 && p.dialect);
        p.run_id = "r"; /* as ftlaunch writes it */
        size_t n_vars;
        struct ft_place_var *v = ft_place_to_env(&p, arena, &n_vars);
        char **again = ft_arena_array(arena, n_vars + 1, sizeof *again);
        for (size_t i = 0; i < n_vars; i++) again[i] = ft_arena_printf(arena, "%s=%s", v[i].name, v[i].value);
        if (ft_place_from_env(again, arena, &q, &err)) FT_BUG("%s", err.text);
        FT_ASSERT(p.rank == q.rank && p.world == q.world && p.local_rank == q.local_rank && p.local_world == q.local_world);
        FT_ASSERT(p.node_rank == q.node_rank && p.master_port == q.master_port && ft_str_eq(p.master_addr, q.master_addr));
        FT_ASSERT(ft_str_eq(p.token, q.token) && p.tp_rank == q.tp_rank && p.dp_size == q.dp_size &&
                  p.progress_fd == q.progress_fd);
    }
    ft_arena_destroy(arena);
    return 0;
}
