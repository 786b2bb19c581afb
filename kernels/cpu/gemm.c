/* The only user of OpenBLAS. The library is opened at run time, with a prototype of our own: its constructor starts a pool of threads
 * unless OPENBLAS_NUM_THREADS says 1 before it comes in (put back right behind), a machine without it gets a sentence instead of a
 * loader error, and which kernels it takes stays the user's business (OPENBLAS_CORETYPE). */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
typedef void sgemm_fn(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb,
                      float beta, float *c, int ldc);

void ft_cpu_sgemm(const struct ft_kctx *k, int ta, int tb, int64_t m, int64_t n, int64_t kk, float alpha, const float *a,
                  int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    sgemm_fn *f;
    memcpy(&f, &ft_cpu_kctx_library(k)->sgemm, sizeof f);
    f(ROW_MAJOR, ta ? TRANS : NO_TRANS, tb ? TRANS : NO_TRANS, (int)m, (int)n, (int)kk, alpha, a, (int)lda, b, (int)ldb, beta, c,
      (int)ldc);
}

static char *set_for_now(const char *name, const char *value)
{
    const char *old = getenv(name);
    char *copy = old ? strdup(old) : NULL;
    setenv(name, value, 1);
    return copy;
}

static void put_back(const char *name, char *old)
{
    if (old) setenv(name, old, 1);
    else unsetenv(name);
    free(old);
}

int ft_cpu_blas_open(struct ft_cpu_blas *b, char *why, size_t why_bytes)
{
    char *threads = set_for_now("OPENBLAS_NUM_THREADS", "1");
    b->library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    put_back("OPENBLAS_NUM_THREADS", threads);
    if (!b->library) {
        snprintf(why, why_bytes, "cannot open OpenBLAS: %s", dlerror());
        return 0;
    }
    b->sgemm = dlsym(b->library, "cblas_sgemm");
    void *set_threads = dlsym(b->library, "openblas_set_num_threads"), *name = dlsym(b->library, "openblas_get_corename");
    if (!b->sgemm || !set_threads) {
        snprintf(why, why_bytes, "libopenblas.so.0 lacks %s", b->sgemm ? "openblas_set_num_threads" : "cblas_sgemm");
        return 0;
    }
    void (*set)(int);
    memcpy(&set, &set_threads, sizeof set);
    set(1);
    char *(*get)(void) = NULL;
    if (name) memcpy(&get, &name, sizeof get);
    snprintf(b->core, sizeof b->core, "%s", get ? get() : "unknown");
    return 1;
}

void ft_cpu_blas_close(struct ft_cpu_blas *b)
{
    if (b->library) dlclose(b->library);
    b->library = NULL;
}
