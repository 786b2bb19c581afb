/* Any bytes as a user's ssh_config: read, or refused with a reason; then judged for a few hosts. Includes are not followed. */
#include <stdint.h>

#include "launcher/ssh_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const struct ft_ssh_query hosts[] = {
        {.host = "node01"}, {.host = "a", .hostname = "10.0.0.1", .user = "ml", .port = "2222"}, {.host = "fd00::1"}};
    static const struct ft_ssh_me me = {.user = "root", .home = "/root", .host = "head.lab"};
    struct ft_arena *arena = ft_arena_create();
    struct ft_faults notes = {.arena = arena};
    struct ft_ssh_conf *conf;
    struct ft_err err = {.code = FT_OK};
    if (ft_ssh_conf_read_text("fuzz", (const char *)p, n, true, &me, arena, &notes, &conf, &err) == FT_OK) {
        for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
            struct ft_ssh_settings s;
            struct ft_ssh_hop *hops;
            size_t n_hops;
            if (ft_ssh_conf_lookup(conf, &hosts[i], arena, &s, &err) != FT_OK) {
                FT_ASSERT(err.text[0]);
                continue;
            }
            FT_ASSERT(s.hostname.text && s.user.text && s.port.text);
            if (s.proxy_jump.raw && ft_ssh_hops(s.proxy_jump.raw, arena, &hops, &n_hops, &err) == FT_OK)
                for (size_t k = 0; k < n_hops; k++) FT_ASSERT(hops[k].host[0] && hops[k].host[0] != '-');
        }
    } else FT_ASSERT(err.text[0] && err.where[0]);
    ft_arena_destroy(arena);
    return 0;
}
