/* The CPU as a device: host memory straight from mmap (only what is touched becomes resident), kernels of the best instruction
 * set. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/cpu/cpu.h"
#include "runtime/device/device.h"

extern const struct ft_device_ops ft_device_cpu;

static enum ft_code cpu_open(int index, int n_threads, struct ft_device *d, struct ft_err *err)
{
    (void)index;
    char why[512] = "";
    d->kctx = ft_cpu_kctx_create(n_threads, why, sizeof why);
    if (!d->kctx) {
        ft_fail(err, FT_DEVICE, "the CPU device does not open: %s", why);
        return ft_fix(err, "likely: lower OMP_NUM_THREADS");
    }
    d->kernels = ft_cpu_kernels();
    return FT_OK;
}

static void cpu_close(struct ft_device *d) { ft_cpu_kctx_destroy(d->kctx); }

static size_t whole(int64_t bytes) { return (size_t)(bytes + 4095) / 4096 * 4096 + 4096; }

static void *cpu_alloc(struct ft_device *d, int64_t bytes)
{
    (void)d;
    if (bytes > INT64_MAX - 8192) return NULL;
    void *p = mmap(NULL, whole(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (bytes >= (int64_t)1 << 22) (void)madvise(p, whole(bytes), MADV_HUGEPAGE);
    return p;
}

static void cpu_free(struct ft_device *d, void *p, int64_t bytes)
{
    (void)d;
    munmap(p, whole(bytes));
}

static void cpu_copy(struct ft_device *d, void *dst, const void *src, int64_t bytes)
{
    (void)d;
    memcpy(dst, src, (size_t)bytes);
}

static int64_t cpu_free_bytes(struct ft_device *d)
{
    (void)d;
    FILE *f = fopen("/proc/meminfo", "re");
    if (!f) return 0;
    char line[128];
    long long kib = 0;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %lld", &kib) == 1) break;
    fclose(f);
    return kib * 1024;
}

const struct ft_device_ops ft_device_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .write = cpu_copy,
    .read = cpu_copy,
    .free_bytes = cpu_free_bytes,
};
