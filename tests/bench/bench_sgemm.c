/* bench_sgemm [--blas LIB] [--repeat N] [--isa NAME] [--type fp32|bf16] [--threads N]: GFLOP per second of processor time of our gemm op
 * beside cblas_sgemm of OpenBLAS (opened here, at run time; the only user), over the products of a small model's layers and head: the
 * best of N runs each, alternating. bf16 and more threads: ours alone, threads by the clock.
 *
 * OPENBLAS_CORETYPE is the caller's business: tests/bench/sgemm runs this with and without. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cpu/cpu.h"
#include "kernels/kernels.h"

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
typedef void sgemm_fn(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb,
                      float beta, float *c, int ldc);

struct shape {
    char form[3]; /* N, T of A and of B */
    int64_t m, n, k;
    bool add;
};
static const struct shape shapes[] = {
    {"NT", 512, 576, 576, false},   {"NT", 512, 192, 576, false},   {"NT", 512, 1536, 576, false},  {"NT", 512, 576, 1536, false},
    {"NT", 512, 49152, 576, false}, {"NN", 512, 576, 576, false},   {"NN", 512, 576, 1536, false},  {"NN", 512, 1536, 576, false},
    {"NN", 512, 576, 49152, false}, {"TN", 576, 576, 512, true},    {"TN", 1536, 576, 512, true},   {"TN", 576, 1536, 512, true},
    {"TN", 49152, 576, 512, true},  {"NT", 1, 1536, 576, false},    {"NT", 4, 1536, 576, false},    {"NT", 8, 1536, 576, false},
    {"NT", 16, 1536, 576, false},   {"NT", 32, 1536, 576, false},   {"NT", 48, 1536, 576, false},   {"NT", 64, 1536, 576, false},
    {"NT", 128, 1536, 576, false},  {"NN", 1, 576, 1536, false},    {"NN", 8, 576, 1536, false},    {"NN", 16, 576, 1536, false},
    {"NN", 32, 576, 1536, false},   {"NN", 64, 576, 1536, false},   {"NT", 512, 16, 576, false},    {"NT", 512, 576, 16, true},
    {"TN", 16, 576, 512, true},     {"TN", 576, 16, 512, true},     {"NT", 64, 256, 64, false},     {"NN", 64, 64, 256, false},
    {"TN", 256, 64, 64, true},      {"NT", 512, 4096, 4096, false}, {"NN", 512, 4096, 4096, false}, {"TN", 4096, 4096, 512, true},
};

/* Of this thread's processor time when it works alone: others on the machine then disturb less. */
static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *numbers(int64_t n)
{
    float *p = aligned_alloc(4096, (size_t)(n * 4 + 4095) / 4096 * 4096);
    if (!p) abort();
    for (int64_t i = 0; i < n; i++) p[i] = (float)(i % 17 - 8) * 0.01f;
    return p;
}

static sgemm_fn *open_blas(const char *name)
{
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL), *f = library ? dlsym(library, "cblas_sgemm") : NULL;
    if (!f) {
        fprintf(stderr, "bench_sgemm: no %s: ours alone\n", name);
        return NULL;
    }
    char *(*core)(void) = NULL;
    void *c = dlsym(library, "openblas_get_corename");
    if (c) memcpy(&core, &c, sizeof core);
    printf("cblas_sgemm: %s, kernels %s\n", name, core ? core() : "unknown");
    sgemm_fn *out;
    memcpy(&out, &f, sizeof out);
    return out;
}

int main(int argc, char **argv)
{
    const char *name = "libopenblas.so.0", *isa = NULL;
    int repeat = 7, threads = 1;
    enum ft_dtype type = FT_F32;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && strcmp(argv[i], "--blas") == 0) name = argv[i + 1];
        else if (i + 1 < argc && strcmp(argv[i], "--isa") == 0) isa = argv[i + 1];
        else if (i + 1 < argc && strcmp(argv[i], "--repeat") == 0 && strtol(argv[i + 1], NULL, 10) > 0)
            repeat = (int)strtol(argv[i + 1], NULL, 10);
        else if (i + 1 < argc && strcmp(argv[i], "--threads") == 0 && strtol(argv[i + 1], NULL, 10) > 0)
            threads = (int)strtol(argv[i + 1], NULL, 10);
        else if (i + 1 < argc && strcmp(argv[i], "--type") == 0 &&
                 (strcmp(argv[i + 1], "fp32") == 0 || strcmp(argv[i + 1], "bf16") == 0))
            type = argv[i + 1][0] == 'f' ? FT_F32 : FT_BF16;
        else {
            fprintf(stderr,
                    "usage: bench_sgemm [--blas LIB] [--isa generic|avx2|avx512] [--type fp32|bf16] [--threads N] [--repeat N]\n");
            return 2;
        }
    }
    char why[256];
    struct ft_kctx *k = ft_cpu_kctx_create(threads, why, sizeof why);
    const struct ft_kernels *o = isa ? ft_cpu_kernels_isa(isa) : ft_cpu_kernels();
    if (!k || !o) {
        fprintf(stderr, "bench_sgemm: %s\n", k ? "this CPU does not run these kernels" : why);
        return 1;
    }
    const clockid_t clock = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    sgemm_fn *blas = type == FT_F32 && threads == 1 ? open_blas(name) : NULL;
    printf("%-4s %6s %6s %6s %9s %9s %6s\n", "form", "m", "n", "k", "ours", "cblas", "ratio");
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const struct shape *x = &shapes[s];
        const bool ta = x->form[0] == 'T', tb = x->form[1] == 'T';
        const int64_t lda = ta ? x->m : x->k, ldb = tb ? x->k : x->n;
        float *a = numbers(x->m * x->k), *b = numbers(x->n * x->k), *c = numbers(x->m * x->n);
        const struct ft_gemm g = {.m = x->m,
                                  .n = x->n,
                                  .ldc = x->n,
                                  .ab_type = type,
                                  .c_type = x->add ? FT_F32 : type,
                                  .add = x->add,
                                  .c = c,
                                  .n_terms = 1,
                                  .term = {{a, b, lda, ldb, x->k, ta, tb}}};
        const double work = 2.0 * (double)x->m * (double)x->n * (double)x->k;
        const int inner = (int)(1 + 2e7 / work);
        double best[2] = {1e9, 1e9};
        for (int r = 0; r < repeat; r++)
            for (int who = 0; who < (blas ? 2 : 1); who++) {
                const double start = now(clock);
                for (int i = 0; i < inner; i++)
                    if (who)
                        blas(ROW_MAJOR, ta ? TRANS : NO_TRANS, tb ? TRANS : NO_TRANS, (int)x->m, (int)x->n, (int)x->k, 1, a,
                             (int)lda, b, (int)ldb, x->add, c, (int)x->n);
                    else o->gemm(k, &g);
                const double t = (now(clock) - start) / inner;
                if (t < best[who]) best[who] = t;
            }
        printf("%-4s %6lld %6lld %6lld %9.1f", x->form, (long long)x->m, (long long)x->n, (long long)x->k, work / best[0] * 1e-9);
        if (blas) printf(" %9.1f %6.2f", work / best[1] * 1e-9, best[1] / best[0]);
        printf("\n");
        fflush(stdout);
        free(a);
        free(b);
        free(c);
    }
    ft_cpu_kctx_destroy(k);
    return 0;
}
