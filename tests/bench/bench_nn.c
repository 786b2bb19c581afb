/* Time of one update's forward and backward (and AdamW) on the CPU for SmolLM2-135M's sizes, fp32, and the share of it that is in GEMM,
 * as a fraction of the rate of one product alone.
 *
 *   bench_nn dense [threads] [repeats]     one row of 512 trained tokens
 *   bench_nn chats [threads] [repeats]     8 conversations of 50 to 500 tokens, a third of the tokens trained
 *   ... [fp32|bf16] [off|selective|full]   working type, recompute
 * Also printed: resident memory of forward and backward beside the plan (runtime maths, section 16).
 * Release build, run alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/bits/mix64.h"
#include "kernels/cpu/cpu.h"
#include "kernels/kernels.h"
#include "runtime/arch/config.h"
#include "runtime/device/device.h"
#include "runtime/nn/model.h"

static const char *const config_text =
    "{\"model_type\":\"llama\",\"hidden_size\":576,\"intermediate_size\":1536,\"num_hidden_layers\":30,\"num_attention_heads\":9,"
    "\"num_key_value_heads\":3,\"max_position_embeddings\":2048,\"rms_norm_eps\":1e-5,\"rope_theta\":100000,\"tie_word_"
    "embeddings\":true,"
    "\"vocab_size\":49152}";

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Processor time of all threads: what other programs on the machine do changes it little. */
static double busy(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- a table that counts time per op: the same functions behind a clock ---- */

struct clocked {
    struct ft_kernels table;
    const struct ft_kernels *real;
    double gemm_s, gemm_flop, attn_s;
};
static struct clocked clocked;

static void clock_gemm(struct ft_kctx *k, const struct ft_gemm *g)
{
    const double t = busy();
    clocked.real->gemm(k, g);
    clocked.gemm_s += busy() - t;
    for (int i = 0; i < g->n_terms; i++) clocked.gemm_flop += 2.0 * (double)g->m * (double)g->n * (double)g->term[i].k;
}
static void clock_attn_fwd(struct ft_kctx *k, enum ft_dtype t, const struct ft_attn *a, const void *q, const void *key,
                           const void *v, void *out, float *lse)
{
    const double s = busy();
    clocked.real->attn_fwd(k, t, a, q, key, v, out, lse);
    clocked.attn_s += busy() - s;
}
static void clock_attn_bwd(struct ft_kctx *k, enum ft_dtype t, const struct ft_attn *a, const void *q, const void *key,
                           const void *v, const void *out, const float *lse, const void *dout, void *dq, void *dk, void *dv)
{
    const double s = busy();
    clocked.real->attn_bwd(k, t, a, q, key, v, out, lse, dout, dq, dk, dv);
    clocked.attn_s += busy() - s;
}

/* Rate of one product that has the core for itself. */
static double bare_sgemm(const struct ft_device *d)
{
    enum { M = 512, N = 1536, K = 576 };
    float *a = ft_xcalloc(M * K, 4), *b = ft_xcalloc(N * K, 4), *c = ft_xcalloc(M * N, 4);
    const struct ft_gemm g = {.m = M, .n = N, .ldc = N, .c = c, .n_terms = 1, .term = {{a, b, K, K, K, false, true}}};
    double best = 1e9;
    for (int i = 0; i < 40; i++) {
        const double t = busy();
        d->kernels->gemm(d->kctx, &g);
        const double s = busy() - t;
        if (s < best) best = s;
    }
    free(a);
    free(b);
    free(c);
    return 2.0 * M * N * K / best;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double resident(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    long pages = 0;
    if (f && fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return 4096e-6 * (double)pages;
}

struct work {
    int64_t n_micro;
    struct ft_batch micro[8];
    int64_t tokens, trained;
};

static struct ft_batch batch(int64_t T, int64_t trained_from, uint64_t seed)
{
    int32_t *v = ft_xcalloc((size_t)(3 * T), 4), *cu = ft_xcalloc(2, 4);
    for (int64_t i = 0; i < T; i++) {
        v[i] = (int32_t)(ft_mix64(seed + (uint64_t)i) % 49152);
        v[T + i] = (int32_t)i;
    }
    for (int64_t i = 0; i < T; i++) v[2 * T + i] = i >= trained_from && i + 1 < T ? v[i + 1] : -100;
    cu[1] = (int32_t)T;
    return (struct ft_batch){T, v, v + T, v + 2 * T, 1, cu, NULL, NULL};
}

static struct work make_work(bool chats)
{
    struct work w = {.n_micro = chats ? 8 : 1};
    for (int64_t i = 0; i < w.n_micro; i++) {
        const int64_t T = chats ? 50 + (int64_t)(ft_mix64(99 + (uint64_t)i) % 451) : 512;
        w.micro[i] = batch(T, chats ? T - T / 3 : 0, (uint64_t)i * 1000);
        w.tokens += T;
        for (int64_t j = 0; j < T; j++) w.trained += w.micro[i].targets[j] != -100;
    }
    return w;
}

int main(int argc, char **argv)
{
    const bool chats = argc > 1 && strcmp(argv[1], "chats") == 0;
    const int threads = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 1, repeats = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 5;
    const enum ft_dtype type = argc > 4 && strcmp(argv[4], "bf16") == 0 ? FT_BF16 : FT_F32;
    const int recompute = argc > 5 ? (strcmp(argv[5], "full") == 0) * 2 + (strcmp(argv[5], "selective") == 0) : 0;
    struct ft_arena *a = ft_arena_create();
    struct ft_model_config c;
    struct ft_device *d = NULL;
    struct ft_model *m = NULL;
    struct ft_err err = {0};
    if (ft_model_config_parse("bench", config_text, strlen(config_text), a, &c, &err) ||
        ft_device_open("cpu", 0, threads, &d, &err)) {
        ft_err_print(stderr, "bench_nn", &err);
        return 1;
    }
    clocked.real = d->kernels;
    clocked.table = *d->kernels;
    clocked.table.gemm = clock_gemm;
    clocked.table.attn_fwd = clock_attn_fwd;
    clocked.table.attn_bwd = clock_attn_bwd;
    d->kernels = &clocked.table;
    const struct work w = make_work(chats);
    const struct ft_model_options o = {.config = &c,
                                       .device = d,
                                       .tensor = 1,
                                       .pipeline = 1,
                                       .compute = type,
                                       .recompute = recompute,
                                       .max_tokens = 512,
                                       .seq_len = 512};
    if (ft_model_create(&o, &m, &err)) {
        ft_err_print(stderr, "bench_nn", &err);
        return 1;
    }
    size_t n;
    const struct ft_param *p = ft_model_params(m, &n);
    int64_t *offsets = ft_arena_array(a, n, sizeof *offsets), total = 0;
    for (size_t i = 0; i < n; i++) {
        offsets[i] = total;
        total += (ft_param_local(&p[i]) + 63) / 64 * 64;
    }
    float *weights = ft_xcalloc((size_t)total, 4), *grads = ft_xcalloc((size_t)total, 4), *m1 = ft_xcalloc((size_t)total, 4),
          *m2 = ft_xcalloc((size_t)total, 4);
    for (size_t i = 0; i < n; i++)
        for (int64_t j = 0; j < ft_param_local(&p[i]); j++)
            weights[offsets[i] + j] = p[i].init_std > 0
                                          ? (float)((double)(int64_t)ft_mix64((uint64_t)(offsets[i] + j)) * 0x1p-63 * p[i].init_std)
                                          : 1;
    uint16_t *half = type == FT_BF16 ? ft_xcalloc((size_t)total, 2) : NULL;
    if (half) d->kernels->cast(d->kctx, total, FT_F32, weights, FT_BF16, half);
    ft_model_bind(m, half ? (void *)half : weights, grads, offsets);
    d->kernels->zero(d->kctx, total * 4, grads);
    d->kernels->zero(d->kctx, total * 4, m1);
    d->kernels->zero(d->kctx, total * 4, m2);
    const double before = resident();
    double times[64], cpu[64], gemm = 0, attn = 0, flop = 0, adam = 0, loss = 0;
    const int count = repeats < 64 ? repeats : 64;
    for (int r = -1; r < count; r++) {
        clocked.gemm_s = clocked.gemm_flop = clocked.attn_s = loss = 0;
        const double t0 = now(), c0 = busy();
        d->kernels->zero(d->kctx, total * 4, grads);
        for (int64_t i = 0; i < w.n_micro; i++) {
            double ce;
            if (ft_model_forward_backward(m, &w.micro[i], 1.0 / (double)w.trained, &ce, &err)) return 1;
            loss += ce;
        }
        const double c1 = busy();
        const struct ft_adamw ad = {1e-5, 0.9, 0.999, 1e-8, 0.01, 1, 1, 1};
        const double norm = sqrt(d->kernels->sum_squares(d->kctx, total, grads));
        d->kernels->adamw(d->kctx, &ad, total, weights, m1, m2, grads, half, type);
        const double t2 = now(), c2 = busy();
        if (r < 0) {
            printf("loss %.6f norm %.4f\n", loss / (double)w.trained, norm);
            continue;
        }
        times[r] = t2 - t0;
        cpu[r] = c2 - c0;
        gemm += clocked.gemm_s / count;
        attn += clocked.attn_s / count;
        flop = clocked.gemm_flop;
        adam += (c2 - c1) / count;
    }
    if (!count) return 0;
    qsort(times, (size_t)count, sizeof *times, by_value);
    qsort(cpu, (size_t)count, sizeof *cpu, by_value);
    const double median = times[count / 2], cost = cpu[count / 2], bare = bare_sgemm(d);
    printf("%s, %d threads: %.4f s an update (median of %d, best %.4f; processor time %.4f, best %.4f), %.0f tokens/s "
           "(%lld tokens, %lld trained)\n",
           chats ? "chats" : "dense", threads, median, count, times[0], cost, cpu[0], (double)w.tokens / median,
           (long long)w.tokens, (long long)w.trained);
    printf(
        "of the processor time: gemm %.1f%% at %.0f GFLOP/s = %.2f of one product alone (%.0f); attention %.1f%%, AdamW and norm "
        "%.1f%%, rest %.1f%%\n",
        100 * gemm / cost, flop / gemm * 1e-9, flop / gemm / bare, bare * 1e-9, 100 * attn / cost, 100 * adam / cost,
        100 * (cost - gemm - attn - adam) / cost);
    const struct ft_model_memory plan = ft_model_memory(&o);
    printf("resident memory grew by %.1f MB, planned %.1f MB (activations %.1f, logits %.1f, buffers %.1f)\n", resident() - before,
           1e-6 * (double)(plan.activations + plan.logits + plan.buffers), 1e-6 * (double)plan.activations,
           1e-6 * (double)plan.logits, 1e-6 * (double)plan.buffers);
    return 0;
}
