/* ftlaunch-agent: started by ftlaunch with the wire on descriptors 0 and 1. It takes no arguments but --version. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "launcher/agent/agent.h"

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--version") == 0) return printf("ftlaunch-agent %s wire %d\n", FT_VERSION, FT_WIRE_NUMBER) < 0;
    if (argc > 1) {
        fprintf(stderr, "ftlaunch-agent: error: it takes no arguments; ftlaunch starts it\n");
        return 2;
    }
    if (isatty(0)) {
        fprintf(stderr, "ftlaunch-agent: error: descriptor 0 is a terminal; ftlaunch starts this program and speaks to it there\n");
        return 2;
    }
    ft_std_fds();
    ft_log_set((struct ft_log_sink){.fd = 2, .level = FT_LOG_WARN, .prog = "ftlaunch-agent", .also_fd = -1});
    return ft_keeper_main();
}
