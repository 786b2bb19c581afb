/* Any bytes as a known_hosts file: a key that no line can hold is never known. */
#include <stdint.h>

#include "launcher/ssh_hosts.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const struct ft_ssh_who who[] = {
        {.name = "node01", .port = 22}, {.name = "node01", .port = 2222}, {.name = "FD00::1", .port = 0}};
    struct ft_ssh_hosts *h = ft_ssh_hosts_create();
    struct ft_buf types = {0};
    ft_ssh_hosts_read_text(h, "fuzz", (const char *)p, n);
    for (size_t i = 0; i < sizeof who / sizeof *who; i++) {
        struct ft_source at;
        const enum ft_ssh_known k = ft_ssh_hosts_judge(h, &who[i], "ssh-ed25519", "a key with blanks", &at);
        FT_ASSERT(k != FT_KNOWN_YES && k != FT_KNOWN_REVOKED);
        FT_ASSERT((k == FT_KNOWN_NO) == (at.line == 0));
        ft_ssh_hosts_types(h, &who[i], &types);
    }
    ft_buf_fini(&types);
    ft_ssh_hosts_destroy(h);
    return 0;
}
