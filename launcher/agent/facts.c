/* The inventory of a node: what the head compares between nodes and shows with `check`. Read from libc, /proc and /sys only; a
 * fact that cannot be read is left out. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/fd.h"
#include "base/hash.h"
#include "launcher/agent/agent.h"

enum { MAX_PROGRAM = 1 << 28, MAX_KINDS = 16 };

static void fact(struct ft_agent *a, const char *name, const char *value)
{
    if (!value[0]) return;
    struct ft_msg m = ft_msg_make(FT_MSG_FACT, FT_WIRE_NODE);
    ft_msg_text(&m, 0, name);
    ft_msg_text(&m, 1, value);
    if (!a->head_gone) ft_wire_send(&a->wire, &m);
}

/* Equal machines differ by what their firmware keeps: whole GiB from 10 on. */
static void add_gib(double bytes, struct ft_buf *out)
{
    const double gib = bytes / (double)(1 << 30);
    ft_buf_addf(out, gib < 10 ? "%.2f GiB" : "%.0f GiB", gib);
}

/* The rest of the first line of a file that begins with key; "" when there is none. */
static void line_of(const char *path, const char *key, char *out, size_t cap)
{
    struct ft_buf b = {0};
    out[0] = 0;
    if (ft_read_file(path, 1 << 20, &b, NULL) == FT_OK) {
        const char *p = b.n ? strstr(b.data, key) : NULL;
        if (p) p += strlen(key);
        while (p && (*p == ' ' || *p == '\t' || *p == ':')) p++;
        if (p) snprintf(out, cap, "%.*s", (int)strcspn(p, "\n"), p);
    }
    ft_buf_fini(&b);
}

static void limit_of(struct ft_agent *a, const char *name, int what, double unit, const char *suffix)
{
    struct rlimit lim;
    char text[64];
    if (getrlimit((__rlimit_resource_t)what, &lim) < 0) return;
    if (lim.rlim_max == RLIM_INFINITY) snprintf(text, sizeof text, "unlimited");
    else snprintf(text, sizeof text, "%.0f%s", (double)lim.rlim_max / unit, suffix);
    fact(a, name, text);
}

/* "8 x NVIDIA H200", equal ones together; "0" without the driver's folder. */
static void gpus(struct ft_agent *a)
{
    static const char folder[] = "/proc/driver/nvidia/gpus";
    char names[MAX_KINDS][128], path[400], driver[256];
    int count[MAX_KINDS] = {0}, kinds = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        char model[128];
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s/information", folder, e->d_name);
        line_of(path, "Model:", model, sizeof model);
        int k = 0;
        while (k < kinds && strcmp(names[k], model) != 0) k++;
        if (k == MAX_KINDS) continue;
        if (k == kinds) snprintf(names[kinds++], sizeof names[0], "%s", model);
        count[k]++;
    }
    if (d) closedir(d);
    struct ft_buf b = {0};
    for (int k = 0; k < kinds; k++) ft_buf_addf(&b, "%s%d x %s", k ? ", " : "", count[k], names[k][0] ? names[k] : "GPU");
    fact(a, "gpus", kinds ? b.data : "0");
    ft_buf_fini(&b);
    line_of("/proc/driver/nvidia/version", "Kernel Module", driver, sizeof driver);
    driver[strcspn(driver, " ")] = 0;
    fact(a, "driver", driver);
}

void ft_agent_facts(struct ft_agent *a)
{
    struct utsname u;
    struct ft_buf b = {0};
    char text[256];
    if (uname(&u) == 0) {
        fact(a, "kernel", u.release);
        fact(a, "arch", u.machine);
    }
    if (confstr(_CS_GNU_LIBC_VERSION, text, sizeof text) > 0) fact(a, "libc", text);
    line_of("/proc/cpuinfo", "model name", text, sizeof text);
    fact(a, "cpu", text);
    struct ft_cpus *allowed = ft_xcalloc(1, sizeof *allowed);
    int n = 0;
    ft_bind_allowed(allowed);
    for (int i = 0; i < FT_BIND_CPUS; i++) n += allowed->has[i] != 0;
    free(allowed);
    snprintf(text, sizeof text, "%d", n);
    fact(a, "cores", text);
    add_gib((double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE), &b);
    fact(a, "memory", b.data);
    struct statvfs shm;
    if (statvfs("/dev/shm", &shm) == 0) {
        ft_buf_clear(&b);
        add_gib((double)shm.f_blocks * (double)shm.f_frsize, &b);
        fact(a, "shm", b.data);
    }
    ft_buf_fini(&b);
    limit_of(a, "memlock", RLIMIT_MEMLOCK, 1 << 20, " MiB");
    limit_of(a, "nofile", RLIMIT_NOFILE, 1, "");
    gpus(a);
}

void ft_agent_facts_of_job(struct ft_agent *a, const char *program)
{
    struct ft_buf b = {0}, text = {0}, path = {0};
    if (program && program[0] != '/' && ft_ranks_workdir(a)) ft_buf_addf(&path, "%s/", ft_ranks_workdir(a));
    ft_buf_adds(&path, program ? program : "");
    if (program && ft_read_file(path.data, MAX_PROGRAM, &b, NULL) == FT_OK) {
        ft_buf_addf(&text, "%s %016llx", program, (unsigned long long)ft_xxh3_64(ft_buf_str(&b), b.n));
        fact(a, "program", text.data);
    }
    struct statvfs v;
    const char *dir = ft_ranks_workdir(a);
    if (statvfs(dir ? dir : ".", &v) == 0) {
        char number[32];
        snprintf(number, sizeof number, "%llu", (unsigned long long)v.f_bavail * v.f_frsize);
        fact(a, "room", number);
    }
    ft_buf_fini(&b);
    ft_buf_fini(&text);
    ft_buf_fini(&path);
}
