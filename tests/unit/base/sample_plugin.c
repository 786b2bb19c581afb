/* A plugin for test_plugin.c. */
#include "base/plugin.h"

struct sample {
    struct ft_plugin_head head;
    int (*twice)(int x);
};

static int twice(int x) { return 2 * x; }

const void *ft_sample_plugin(void);
__attribute__((visibility("default"))) const void *ft_sample_plugin(void)
{
    static const struct sample table = {.head = {.abi = 7, .bytes = sizeof table, .version = FT_VERSION}, .twice = twice};
    return &table;
}
