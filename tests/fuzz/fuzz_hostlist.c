/* Ranges and host lists. First byte: 0 a set (expanding and folding are inverse), 1 a host list, 2 tasks per node. */
#include <stdint.h>
#include <string.h>

#include "topology/hostlist.h"
#include "topology/place.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void set(const char *text, size_t n, struct ft_arena *arena)
{
    struct ft_names names, again;
    struct ft_range_fault f = {0};
    size_t *offsets;
    if (!ft_hostlist_expand(text, n, 4096, arena, &names, &offsets, &f)) {
        FT_ASSERT(f.text && f.offset <= n);
        return;
    }
    struct ft_buf folded = {0};
    ft_hostlist_fold(&names, &folded);
    if (!ft_hostlist_expand(folded.data, folded.n, 4096, arena, &again, NULL, &f))
        FT_BUG("%s does not expand: %s", folded.data, f.text);
    FT_ASSERT(names.n == again.n);
    for (size_t i = 0; i < names.n; i++) {
        FT_ASSERT(!strcmp(names.v[i], again.v[i]));
        FT_ASSERT(offsets[i] < n);
        FT_ASSERT(ft_hostname_check(names.v[i], strlen(names.v[i]), arena, &f));
    }
    ft_buf_fini(&folded);
}

static void list(const char *text, size_t n, struct ft_arena *arena)
{
    struct ft_faults faults = {.arena = arena};
    struct ft_host_rows rows = ft_hostfile_parse("h", text, n, arena, &faults);
    FT_ASSERT(rows.n || faults.n_errors);
    for (size_t i = 0; i < faults.n; i++) FT_ASSERT(faults.v[i].at.line > 0 && faults.v[i].at.column > 0);
    for (size_t i = 0; i < rows.n; i++) FT_ASSERT(rows.v[i].port >= 0 && rows.v[i].port <= 65535 && rows.v[i].slots >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!n || n > 1 << 14) return 0;
    struct ft_arena *arena = ft_arena_create();
    char *text = ft_arena_strndup(arena, (const char *)data + 1, n - 1);
    if (data[0] % 3 == 0) set(text, n - 1, arena);
    if (data[0] % 3 == 1) list(text, n - 1, arena);
    if (data[0] % 3 == 2) FT_ASSERT(ft_slurm_tasks_of(text, 3) >= -1);
    ft_arena_destroy(arena);
    return 0;
}
