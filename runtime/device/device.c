#include "runtime/device/device.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/str.h"

static enum ft_code open_one(const struct ft_device_ops *ops, int index, int n_threads, struct ft_device **out, struct ft_err *err)
{
    struct ft_device *d = ft_xcalloc(1, sizeof *d);
    d->ops = ops;
    const enum ft_code code = ops->open(index, n_threads, d, err);
    if (code) {
        free(d);
        return code;
    }
    *out = d;
    return FT_OK;
}

static enum ft_code unknown(const char *name, struct ft_err *err)
{
    const char *names[16];
    size_t n = 0;
    for (const struct ft_device_entry *e = ft_device_table; e->name && n < 15; e++) names[n++] = e->name;
    const char *near = ft_nearest(name, names, n);
    const enum ft_code code = ft_fail(err, FT_CONFIG, "no device '%s'", name);
    if (near) ft_fix(err, "[train] device = %s", near);
    return code;
}

enum ft_code ft_device_open(const char *name, int index, int n_threads, struct ft_device **out, struct ft_err *err)
{
    if (n_threads < 1) FT_BUG("device with %d threads", n_threads);
    const bool any = ft_str_eq(name, "auto");
    for (const struct ft_device_entry *e = ft_device_table; e->name; e++) {
        if (any && e->ops) return open_one(e->ops, index, n_threads, out, err);
        if (any || !ft_str_eq(e->name, name)) continue;
        if (e->ops) return open_one(e->ops, index, n_threads, out, err);
        ft_fail(err, FT_UNSUPPORTED, "device '%s' is not in this build", name);
        return ft_fix(err, "set [train] device = cpu, or build with it");
    }
    return unknown(name, err);
}

void ft_device_close(struct ft_device *d)
{
    if (!d) return;
    d->ops->close(d);
    free(d);
}

int ft_device_threads(const char *omp_num_threads, int local_world_size)
{
    int64_t n;
    if (omp_num_threads) { /* "4" or a nesting list "4,2": its first number */
        char *first = ft_xstrdup(omp_num_threads);
        first[strcspn(first, ",")] = '\0';
        const bool good = ft_parse_i64(first, 1, 4096, &n);
        free(first);
        if (good) return (int)n;
    }
    cpu_set_t set;
    const int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    const int share = local_world_size > 1 ? cores / local_world_size : cores;
    return share > 0 ? share : 1;
}

enum ft_code ft_device_alloc(struct ft_device *d, int64_t bytes, const char *what, const char *key, void **out, struct ft_err *err)
{
    void *p = bytes >= 0 ? d->ops->alloc(d, bytes) : NULL;
    if (!p) {
        ft_fail(err, FT_NOMEM, "no memory for %s: %lld bytes asked, %lld free on %s, %lld used by this rank", what,
                (long long)bytes, (long long)d->ops->free_bytes(d), d->ops->name, (long long)d->used);
        return key ? ft_fix(err, "lower %s", key) : FT_NOMEM;
    }
    d->used += bytes;
    if (d->used > d->peak) d->peak = d->used;
    *out = p;
    return FT_OK;
}

void ft_device_free(struct ft_device *d, void *p, int64_t bytes)
{
    if (!p) return;
    d->ops->free(d, p, bytes);
    d->used -= bytes;
}

void ft_device_write(struct ft_device *d, void *dst, const void *host, int64_t bytes) { d->ops->write(d, dst, host, bytes); }
void ft_device_read(struct ft_device *d, void *host, const void *src, int64_t bytes) { d->ops->read(d, host, src, bytes); }
