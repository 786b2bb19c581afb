/* Marks of runs (contain.h). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/hash.h"
#include "launcher/agent/contain.h"

enum { MAGIC_SHIFT = 48, RUN_SHIFT = 12, SLOTS = 1 << RUN_SHIFT };
#define MAGIC 0x2F74ULL /* 14 bits: a mark stays below 2^62, far from "unlimited" */

static uint64_t of_name(const char *lease, size_t n)
{
    const uint64_t mask = (1ULL << (MAGIC_SHIFT - RUN_SHIFT)) - 1;
    return MAGIC << MAGIC_SHIFT | (ft_xxh3_64(lease, n) & mask) << RUN_SHIFT;
}

uint64_t ft_mark(const char *run, int slot)
{
    char name[FT_LEASE_NAME];
    size_t n = ft_lease_name(name, getuid(), run);
    return of_name(name, n) | (uint64_t)(slot % SLOTS);
}

bool ft_mark_read(pid_t pid, uint64_t *out)
{
    char path[48], text[4096];
    snprintf(path, sizeof path, "/proc/%d/limits", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, text, sizeof text - 1); /* the kernel gives the whole table at once */
    close(fd);
    if (n <= 0) return false;
    text[n] = 0;
    static const char row[] = "Max file locks";
    const char *p = strstr(text, row);
    if (!p) return false;
    const uint64_t soft = strtoull(p + sizeof row - 1, NULL, 10); /* "unlimited": 0 */
    if (soft >> MAGIC_SHIFT != MAGIC) return false;
    *out = soft;
    return true;
}

bool ft_mark_same_run(uint64_t a, uint64_t b) { return a >> RUN_SHIFT == b >> RUN_SHIFT; }
int ft_mark_slot(uint64_t mark) { return (int)(mark % SLOTS); }

/* One pass over the sockets of this network namespace. */
static bool seen_held(FILE *f, uint64_t mark)
{
    char prefix[FT_LEASE_NAME], *line = NULL;
    const size_t n = ft_lease_name(prefix, getuid(), "");
    size_t cap = 0;
    bool held = false;
    while (!held && getline(&line, &cap, f) > 0) {
        const char *name = strstr(line, " @"); /* the NUL of an abstract name is shown as '@' */
        if (!name || strncmp(name + 2, prefix, n) != 0) continue;
        held = ft_mark_same_run(of_name(name + 2, strcspn(name + 2, "\n")), mark);
    }
    free(line);
    return held;
}

bool ft_mark_held(uint64_t mark)
{
    bool held = false;
    /* The table comes in pieces, and a socket that goes between two of them hides its neighbour: only what was never seen is dead. */
    for (int pass = 0; !held && pass < 3; pass++) {
        FILE *f = fopen("/proc/net/unix", "re");
        if (!f) return true; /* it cannot be told */
        held = seen_held(f, mark);
        fclose(f);
    }
    return held;
}
