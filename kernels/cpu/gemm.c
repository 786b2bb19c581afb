/* The only user of OpenBLAS. The library is opened at run time, with prototypes of our own, for two reasons: its kernels are
 * chosen in its constructor by tables of CPU models that are older than the CPU (0.3.21 takes AVX2 kernels on Zen 4 and Zen 5:
 * half the rate of its own AVX-512 ones, 129 against 245 GFLOP/s on Zen 5), and its own thread pool must never start. Both are
 * environment variables that must be set before the library comes in; they are put back right behind. */
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

/* The name of the kernels to ask for; NULL: the library's own choice is right. */
static const char *better_core(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_is("amd") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return "SkylakeX";
#endif
    return NULL;
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
    const char *core = getenv("OPENBLAS_CORETYPE") ? NULL : better_core();
    char *threads = set_for_now("OPENBLAS_NUM_THREADS", "1"), *old = core ? set_for_now("OPENBLAS_CORETYPE", core) : NULL;
    b->library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    put_back("OPENBLAS_NUM_THREADS", threads);
    if (core) put_back("OPENBLAS_CORETYPE", old);
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
