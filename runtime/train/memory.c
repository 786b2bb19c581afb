#include "runtime/train/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

/* Code and data of the program, BLAS buffers, stacks of workers, the reader's and writer's pieces: measured, not computed. */
static const int64_t cpu_library_bytes = 24 << 20;

struct ft_memory ft_memory_plan(const struct ft_buckets *b, const struct ft_model_options *o)
{
    const struct ft_model_memory m = ft_model_memory(o);
    const int64_t width = (int64_t)ft_dtype_bytes(o->compute);
    return (struct ft_memory){.weights = b->total * width,
                              .gradients = b->total * 4,
                              .master = o->compute == FT_F32 ? 0 : b->state_total * 4,
                              .moments = b->state_total * 8,
                              .activations = m.activations,
                              .logits = m.logits,
                              .buffers = m.buffers,
                              .library = cpu_library_bytes};
}

int64_t ft_memory_total(const struct ft_memory *m)
{
    return m->weights + m->gradients + m->master + m->moments + m->activations + m->logits + m->buffers + m->staging + m->library;
}

void ft_memory_write_json(const struct ft_memory *m, struct ft_jw *w)
{
    ft_jw_object(w);
    ft_jw_kint(w, "weights", m->weights);
    ft_jw_kint(w, "gradients", m->gradients);
    ft_jw_kint(w, "optimizer", m->master + m->moments);
    ft_jw_kint(w, "activations", m->activations);
    ft_jw_kint(w, "logits", m->logits);
    ft_jw_kint(w, "buffers", m->buffers);
    ft_jw_kint(w, "staging", m->staging);
    ft_jw_kint(w, "library", m->library);
    ft_jw_end(w);
}

struct ft_buckets ft_memory_buckets(const struct ft_param *rows, size_t n, int data, int rank, struct ft_arena *arena)
{
    struct ft_bucket_param *p = ft_arena_array(arena, n + 1, sizeof *p);
    for (size_t i = 0; i < n; i++) p[i] = (struct ft_bucket_param){ft_param_local(&rows[i]), rows[i].tied_copy};
    return ft_buckets_make(p, n, data, rank, FT_BUCKET_LIMIT, arena);
}

/* The number behind "NAME:" in a file of such lines (kB), in bytes; 0: not there. */
static int64_t proc_bytes(const char *path, const char *name)
{
    struct ft_buf text = {0};
    int64_t bytes = 0;
    if (!ft_read_file(path, 1 << 20, &text, NULL)) {
        const char *at = strstr(text.data, name);
        if (at) bytes = strtoll(at + strlen(name), NULL, 10) * 1024;
    }
    ft_buf_fini(&text);
    return bytes;
}

/* Limit and use of the control group that holds us (version 2), INT64_MAX without one. */
static int64_t group_room(void)
{
    struct ft_buf max = {0}, now = {0};
    int64_t room = INT64_MAX;
    if (!ft_read_file("/sys/fs/cgroup/memory.max", 64, &max, NULL) &&
        !ft_read_file("/sys/fs/cgroup/memory.current", 64, &now, NULL) && max.data[0] >= '0' && max.data[0] <= '9')
        room = strtoll(max.data, NULL, 10) - strtoll(now.data, NULL, 10);
    ft_buf_fini(&max);
    ft_buf_fini(&now);
    return room;
}

int64_t ft_memory_available(void)
{
    const int64_t machine = proc_bytes("/proc/meminfo", "MemAvailable:"), group = group_room();
    return group < machine ? group : machine;
}

int64_t ft_memory_resident(void) { return proc_bytes("/proc/self/status", "VmRSS:"); }
int64_t ft_memory_peak(void) { return proc_bytes("/proc/self/status", "VmHWM:"); }

void ft_bytes_text(int64_t bytes, struct ft_buf *out)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    double x = (double)bytes;
    size_t u = 0;
    while (x >= 1000 && u + 1 < sizeof units / sizeof *units) {
        x /= 1000;
        u++;
    }
    ft_buf_addf(out, u == 0 || x >= 99.95 ? "%.0f %s" : "%.1f %s", x, units[u]);
}
