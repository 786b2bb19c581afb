#include "kernels/cpu/cpu.h"

#include <string.h>

#include "kernels/cpu/isa_list.h"
#include "kernels/kernels.h"

/* Best first; a set is listed when this build has it (isa_list.h is generated). */
static const struct {
    const char *name;
    const struct ft_kernels *table;
} sets[] = {
#define ISA_ENTRY(name) {#name, &ft_cpu_table_##name},
    FT_CPU_ISAS(ISA_ENTRY)};

static int runs_here(const char *isa)
{
#if defined(__x86_64__)
    if (strcmp(isa, "avx512") == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
    if (strcmp(isa, "avx2") == 0) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return strcmp(isa, "generic") == 0;
}

const struct ft_kernels *ft_cpu_kernels_isa(const char *isa)
{
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (strcmp(sets[i].name, isa) == 0) return runs_here(isa) ? sets[i].table : NULL;
    return NULL;
}

const struct ft_kernels *ft_cpu_kernels(void)
{
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (runs_here(sets[i].name)) return sets[i].table;
    return NULL;
}
