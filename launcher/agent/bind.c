#include "launcher/agent/bind.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/fd.h"

enum { MAX_NUMA = 256, MAX_GPUS = 256 };

static bool read_int(const char *path, int64_t *out)
{
    struct ft_buf b = {0};
    bool ok = ft_read_file(path, 4096, &b, NULL) == FT_OK && b.n;
    if (ok) {
        b.data[strcspn(b.data, "\n")] = 0;
        ok = ft_parse_i64(b.data, -1, INT32_MAX, out);
    }
    ft_buf_fini(&b);
    return ok;
}

/* "0-3,8-11" as in sysfs. */
static void parse_list(const char *s, struct ft_cpus *out)
{
    memset(out, 0, sizeof *out);
    while (*s >= '0' && *s <= '9') {
        char *end;
        long a = strtol(s, &end, 10), b = a;
        if (*end == '-') b = strtol(end + 1, &end, 10);
        for (long c = a; c <= b && c < FT_BIND_CPUS; c++) out->has[c] = 1;
        s = *end == ',' ? end + 1 : end;
    }
}

void ft_bind_print(const struct ft_cpus *c, struct ft_buf *out)
{
    for (int i = 0, n = 0; i < FT_BIND_CPUS; i++) {
        if (!c->has[i]) continue;
        int k = i;
        while (k + 1 < FT_BIND_CPUS && c->has[k + 1]) k++;
        ft_buf_addf(out, k > i ? "%s%d-%d" : "%s%d", n++ ? "," : "", i, k);
        i = k;
    }
}

void ft_bind_allowed(struct ft_cpus *out)
{
    memset(out, 0, sizeof *out);
    size_t bytes = CPU_ALLOC_SIZE(FT_BIND_CPUS);
    cpu_set_t *set = CPU_ALLOC(FT_BIND_CPUS);
    if (set && sched_getaffinity(0, bytes, set) == 0)
        for (int i = 0; i < FT_BIND_CPUS; i++) out->has[i] = CPU_ISSET_S((size_t)i, bytes, set) != 0;
    CPU_FREE(set);
}

/* One physical core: its hardware threads are those CPUs with the same package and core number. */
struct core {
    int64_t package, id;
    int first;
};

static int by_place(const void *a, const void *b)
{
    const struct core *x = a, *y = b;
    if (x->package != y->package) return x->package < y->package ? -1 : 1;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

static struct core core_of(const char *sys, int cpu)
{
    char path[512];
    struct core c = {.first = cpu};
    snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%d/topology/physical_package_id", sys, cpu);
    if (!read_int(path, &c.package)) c.package = 0;
    snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%d/topology/core_id", sys, cpu);
    if (!read_int(path, &c.id)) c.id = cpu; /* not known: every CPU is a core */
    return c;
}

/* Divides the cores among `within` into n equal parts; part k goes to out[k]. false: fewer cores than parts. */
static bool split_cores(const char *sys, const struct ft_cpus *within, struct ft_binding **out, int n, int *n_cores)
{
    struct core *v = ft_xcalloc(FT_BIND_CPUS, sizeof *v);
    size_t cpus = 0;
    for (int i = 0; i < FT_BIND_CPUS; i++)
        if (within->has[i]) v[cpus++] = core_of(sys, i);
    qsort(v, cpus, sizeof *v, by_place);
    *n_cores = 0;
    for (size_t i = 0; i < cpus; i++) *n_cores += i == 0 || v[i].package != v[i - 1].package || v[i].id != v[i - 1].id;
    int each = n ? *n_cores / n : 0, core = -1;
    for (size_t i = 0; i < cpus && each; i++) {
        if (i == 0 || v[i].package != v[i - 1].package || v[i].id != v[i - 1].id) core++;
        if (core / each >= n) break; /* what does not divide stays free */
        out[core / each]->bound = true;
        out[core / each]->cpus.has[v[i].first] = 1;
    }
    free(v);
    return each > 0;
}

static int by_number(const void *a, const void *b)
{
    const int x = *(const int *)a, y = *(const int *)b;
    return x < y ? -1 : x > y;
}

/* Numbers of the NUMA nodes that the machine shows, ascending. */
static int numa_ids(const char *sys, int *ids)
{
    char path[512];
    snprintf(path, sizeof path, "%s/devices/system/node", sys);
    DIR *d = opendir(path);
    int n = 0;
    for (struct dirent *e; d && n < MAX_NUMA && (e = readdir(d));) {
        int64_t id;
        if (ft_str_starts(e->d_name, "node") && ft_parse_i64(e->d_name + 4, 0, INT32_MAX, &id)) ids[n++] = (int)id;
    }
    if (d) closedir(d);
    qsort(ids, (size_t)n, sizeof *ids, by_number);
    return n;
}

/* CPUs of the NUMA nodes that have some of the allowed ones; returns how many there are (0: the machine shows none). */
static int read_numa(const struct ft_bind_request *q, struct ft_cpus *cpus, int *ids)
{
    int all[MAX_NUMA], n = 0;
    const int n_all = numa_ids(q->sys, all);
    for (int k = 0; k < n_all; k++) {
        char path[512];
        struct ft_buf b = {0};
        snprintf(path, sizeof path, "%s/devices/system/node/node%d/cpulist", q->sys, all[k]);
        bool any = false;
        if (ft_read_file(path, 65536, &b, NULL) == FT_OK) {
            parse_list(ft_buf_str(&b), &cpus[n]);
            for (int i = 0; i < FT_BIND_CPUS; i++) {
                cpus[n].has[i] = cpus[n].has[i] && q->allowed->has[i];
                any = any || cpus[n].has[i];
            }
        }
        ft_buf_fini(&b);
        if (any) ids[n++] = all[k];
    }
    return n;
}

/* Ranks whose node index (of[]) is given share that node's cores in equal parts. */
static bool split_nodes(const struct ft_bind_request *q, struct ft_binding *out, const int *of, const struct ft_cpus *cpus,
                        const int *ids, int n_numa, struct ft_buf *why)
{
    struct ft_binding **part = ft_xcalloc((size_t)q->n_ranks, sizeof *part);
    bool ok = true;
    for (int k = 0; k < n_numa && ok; k++) {
        int n = 0, n_cores = 0;
        for (int r = 0; r < q->n_ranks; r++)
            if (of[r] == k) {
                part[n++] = &out[r];
                out[r].numa = ids[k];
            }
        ok = !n || split_cores(q->sys, &cpus[k], part, n, &n_cores);
        if (!ok)
            ft_buf_addf(why, "bind = %s: %d ranks on NUMA node %d, which has %d free physical cores", q->how, n, ids[k], n_cores);
    }
    free(part);
    return ok;
}

static bool bind_numa(const struct ft_bind_request *q, struct ft_binding *out, struct ft_buf *why)
{
    struct ft_cpus *cpus = ft_xcalloc(MAX_NUMA, sizeof *cpus);
    int ids[MAX_NUMA], n_numa = read_numa(q, cpus, ids), *of = ft_xcalloc((size_t)q->n_ranks, sizeof *of);
    bool ok = n_numa > 0;
    if (!ok) ft_buf_adds(why, "bind = numa: this machine shows no NUMA node with cores that may be used");
    for (int r = 0; r < q->n_ranks && ok; r++) of[r] = (int)((int64_t)r * n_numa / q->n_ranks);
    ok = ok && split_nodes(q, out, of, cpus, ids, n_numa, why);
    free(of);
    free(cpus);
    return ok;
}

/* ---- GPUs, in order of PCI address (CUDA_DEVICE_ORDER = PCI_BUS_ID) ---- */

static int by_text(const void *a, const void *b) { return strcmp(a, b); }

static int read_gpus(const struct ft_bind_request *q, char (*pci)[32])
{
    char path[512];
    snprintf(path, sizeof path, "%s/driver/nvidia/gpus", q->proc);
    DIR *d = opendir(path);
    int n = 0;
    for (struct dirent *e; d && n < MAX_GPUS && (e = readdir(d));)
        if (e->d_name[0] != '.') snprintf(pci[n++], sizeof pci[0], "%.31s", e->d_name);
    if (d) closedir(d);
    qsort(pci, (size_t)n, sizeof pci[0], by_text);
    return n;
}

/* The GPU that LOCAL_RANK r sees as its device: numbers of CUDA_VISIBLE_DEVICES, else r. -1: none, or named by UUID. */
static int gpu_of_rank(const struct ft_bind_request *q, int r)
{
    const char *p = q->visible;
    if (!p) return r;
    for (int i = 0; i < r && p; i++) {
        p = strchr(p, ',');
        if (p) p++;
    }
    return p && *p >= '0' && *p <= '9' ? (int)strtol(p, NULL, 10) : -1;
}

static bool bind_gpu(const struct ft_bind_request *q, struct ft_binding *out, struct ft_buf *why, struct ft_buf *note)
{
    bool must = strcmp(q->how, "gpu") == 0;
    char(*pci)[32] = ft_xcalloc(MAX_GPUS, sizeof *pci);
    struct ft_cpus *cpus = ft_xcalloc(MAX_NUMA, sizeof *cpus);
    const int n_gpus = read_gpus(q, pci);
    bool ok = n_gpus >= q->n_ranks;
    int ids[MAX_NUMA], n_numa = ok ? read_numa(q, cpus, ids) : 0, *of = ft_xcalloc((size_t)q->n_ranks, sizeof *of);
    if (!ok && (must || n_gpus))
        ft_buf_addf(must ? why : note, "%d rank%s, %d devices: %s", q->n_ranks, q->n_ranks == 1 ? "" : "s", n_gpus,
                    must ? "bind = gpu needs one for each" : "ranks are not bound");
    for (int r = 0; r < q->n_ranks && ok; r++) {
        int gpu = gpu_of_rank(q, r);
        int64_t numa = -1;
        char path[512];
        of[r] = -1;
        if (gpu < 0 || gpu >= n_gpus) continue;
        out[r].gpu = gpu;
        snprintf(path, sizeof path, "%s/bus/pci/devices/%s/numa_node", q->sys, pci[gpu]);
        if (!read_int(path, &numa)) continue;
        for (int k = 0; k < n_numa; k++)
            if (ids[k] == numa || (numa < 0 && n_numa == 1)) of[r] = k;
    }
    if (ok) ok = split_nodes(q, out, of, cpus, ids, n_numa, must ? why : note);
    if (!ok && !must)
        for (int r = 0; r < q->n_ranks; r++) out[r] = (struct ft_binding){.numa = -1, .gpu = -1};
    free(of);
    free(cpus);
    free(pci);
    return ok || !must;
}

bool ft_bind_plan(const struct ft_bind_request *q, struct ft_binding *out, struct ft_buf *why, struct ft_buf *note)
{
    for (int r = 0; r < q->n_ranks; r++) out[r] = (struct ft_binding){.numa = -1, .gpu = -1};
    if (strcmp(q->how, "none") == 0) return true;
    if (strcmp(q->how, "numa") == 0) return bind_numa(q, out, why);
    if (strcmp(q->how, "core") != 0) return bind_gpu(q, out, why, note);
    struct ft_binding **part = ft_xcalloc((size_t)q->n_ranks, sizeof *part);
    int n_cores = 0;
    for (int r = 0; r < q->n_ranks; r++) part[r] = &out[r];
    bool ok = split_cores(q->sys, q->allowed, part, q->n_ranks, &n_cores);
    if (!ok) ft_buf_addf(why, "bind = core: %d ranks, but only %d physical cores may be used", q->n_ranks, n_cores);
    free(part);
    return ok;
}
