/* A device of one rank: its op table, its context (threads or stream) and the only source of big memory.
 *
 *  1. ft_device_open("cpu", 0, n_threads)   registry FT_DEVICES; a device that is not in this build says how to get it
 *  2. ft_device_alloc(), kernels->op(kctx, …), ft_device_read/write()
 *  3. ft_device_free(), ft_device_close()
 * One thread at a time; the kernels' workers are inside. */
#ifndef FT_RUNTIME_DEVICE_DEVICE_H
#define FT_RUNTIME_DEVICE_DEVICE_H

#include <stdint.h>

#include "base/err.h"

struct ft_kernels;
struct ft_kctx;
struct ft_device;

/* What a device module provides (runtime/device/NAME.c). */
struct ft_device_ops {
    const char *name;
    enum ft_code (*open)(int index, int n_threads, struct ft_device *d, struct ft_err *err); /* fills kernels, kctx, state */
    void (*close)(struct ft_device *d);
    void *(*alloc)(struct ft_device *d, int64_t bytes); /* aligned to 256; NULL: no memory */
    void (*free)(struct ft_device *d, void *p, int64_t bytes);
    void (*write)(struct ft_device *d, void *dst, const void *host, int64_t bytes);
    void (*read)(struct ft_device *d, void *host, const void *src, int64_t bytes);
    int64_t (*free_bytes)(struct ft_device *d);
};
struct ft_device_entry {
    const char *name;
    const struct ft_device_ops *ops;
};
extern const struct ft_device_entry ft_device_table[];

struct ft_device {
    const struct ft_device_ops *ops;
    const struct ft_kernels *kernels;
    struct ft_kctx *kctx;
    void *state;        /* of the device module */
    int64_t used, peak; /* bytes handed out */
};

/* name: "cpu", "cuda", or "auto" (the first of the registry that is built and works). n_threads >= 1: workers of the CPU device
 * (OMP_NUM_THREADS, else allowed cores / LOCAL_WORLD_SIZE: the caller's arithmetic, see ft_device_threads). */
enum ft_code ft_device_open(const char *name, int index, int n_threads, struct ft_device **out, struct ft_err *err) FT_MUST_CHECK;
void ft_device_close(struct ft_device *d); /* NULL is fine */
/* Threads of a rank: omp_num_threads when it is a positive number, else allowed cores / local_world_size, at least 1. */
int ft_device_threads(const char *omp_num_threads, int local_world_size);

/* Not cleared. what ("activations") and key ("[train] micro_batch") stand in the error: bytes asked, bytes free, key to lower. */
enum ft_code ft_device_alloc(struct ft_device *d, int64_t bytes, const char *what, const char *key, void **out,
                             struct ft_err *err) FT_MUST_CHECK;
void ft_device_free(struct ft_device *d, void *p, int64_t bytes); /* NULL is fine */
void ft_device_write(struct ft_device *d, void *dst, const void *host, int64_t bytes);
void ft_device_read(struct ft_device *d, void *host, const void *src, int64_t bytes);

#endif
