/* config.json. What is accepted has sizes that the rest of the runtime may multiply, and rows when it is small. */
#include <stdint.h>

#include "runtime/arch/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct ft_arena *a = ft_arena_create();
    struct ft_model_config c;
    struct ft_err err;
    if (ft_model_config_parse("config.json", (const char *)data, n, a, &c, &err) == FT_OK) {
        FT_ASSERT(c.V > 0 && c.h > 0 && c.L > 0 && c.H > 0 && c.K > 0 && c.H % c.K == 0 && c.D > 0 && c.f > 0 && c.eps > 0);
        if (c.L < 100) FT_ASSERT(ft_model_config_params(&c) > 0);
        if (!c.learned_positions && c.D <= 64) {
            float cs[3 * 32], sn[3 * 32];
            ft_rope_tables(&c.rope, c.D, 3, cs, sn);
        }
        struct ft_buf out = {0};
        (void)ft_model_config_layout(&c, 3, 2, &out);
        ft_buf_fini(&out);
    }
    ft_arena_destroy(a);
    return 0;
}
