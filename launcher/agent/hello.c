/* HELLO: who this agent is, and on which machine. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"
#include "launcher/agent/agent.h"

static void read_word(const char *path, char *out, size_t cap)
{
    struct ft_buf b = {0};
    out[0] = 0;
    if (ft_read_file(path, 4096, &b, NULL) == FT_OK && b.n) snprintf(out, cap, "%.*s", (int)strcspn(b.data, "\n"), b.data);
    ft_buf_fini(&b);
}

/* Hash of the agent's own file; 0: it cannot be read. */
static uint64_t own_build(void)
{
    struct stat st;
    uint64_t hash = 0;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0) {
        const size_t n = (size_t)st.st_size;
        void *p = mmap(NULL, n, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0); /* it is in memory: nothing is copied */
        if (p != MAP_FAILED) {
            hash = ft_xxh3_64(p, n);
            munmap(p, n);
        }
    }
    ft_close(&fd);
    return hash;
}

void ft_agent_hello(struct ft_agent *a)
{
    char boot[64], build[32];
    struct stat st = {.st_ino = 0};
    read_word("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    snprintf(build, sizeof build, "%016llx", (unsigned long long)own_build());
    if (gethostname(a->host, sizeof a->host - 1) < 0) a->host[0] = 0;
    if (stat("/proc/self/ns/net", &st) < 0) st.st_ino = 0;
    struct ft_msg m = ft_msg_make(FT_MSG_HELLO, FT_WIRE_NODE);
    ft_msg_text(&m, 0, FT_VERSION);
    ft_msg_u(&m, 1, FT_WIRE_NUMBER);
    ft_msg_text(&m, 2, build);
    ft_msg_text(&m, 3, a->host);
    ft_msg_text(&m, 4, boot);
    ft_msg_u(&m, 5, (uint64_t)st.st_ino);
    ft_msg_u(&m, 6, (uint64_t)getuid());
    ft_msg_u(&m, 7, (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
    ft_msg_u(&m, 8, (uint64_t)ft_clock_now(ft_clock_real()));
    ft_wire_send(&a->wire, &m);
    ft_agent_flush(a);
}
