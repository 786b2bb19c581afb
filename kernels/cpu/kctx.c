#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

enum { SPIN = 2000 }; /* about 20 us: ops follow each other closely, but a rank may share its core with another */

struct worker {
    struct ft_kctx *k;
    pthread_t thread;
    void *scratch, *space;
    int64_t scratch_bytes, space_bytes;
};

struct ft_kctx {
    int n_threads;          /* with the caller */
    struct worker *workers; /* [0]: the caller */
    void *shared;
    int64_t shared_bytes;

    /* One job at a time. A worker enters under the lock while the job is open; the caller closes it when no piece is left and
     * waits only for those inside: a worker that wakes late costs nothing. */
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    atomic_uint generation; /* counts jobs; spun on by idle workers */
    atomic_int inside;
    int open, stop; /* under lock */
    ft_cpu_piece *fn;
    void *arg;
    int64_t n, scratch_bytes;
    atomic_llong next;
};

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void die(int64_t bytes)
{
    fprintf(stderr, "kernels: no memory for a workspace of %lld bytes\n", (long long)bytes);
    abort();
}

static void *grow(void **p, int64_t *have, int64_t need)
{
    if (need > *have) {
        free(*p);
        const int64_t bytes = (need + 4095) / 4096 * 4096;
        *p = aligned_alloc(4096, (size_t)bytes);
        if (!*p) die(bytes);
        *have = bytes;
    }
    return *p;
}

void *ft_cpu_shared(struct ft_kctx *k, int64_t bytes) { return grow(&k->shared, &k->shared_bytes, bytes); }

/* Worker 0 is whoever calls. */
void *ft_cpu_worker_space(struct ft_kctx *k, int64_t bytes)
{
    struct worker *w = &k->workers[0];
    const pthread_t me = pthread_self();
    for (int i = 1; i < k->n_threads; i++)
        if (pthread_equal(k->workers[i].thread, me)) w = &k->workers[i];
    return grow(&w->space, &w->space_bytes, bytes);
}

static void run_pieces(struct ft_kctx *k, struct worker *w)
{
    void *scratch = grow(&w->scratch, &w->scratch_bytes, k->scratch_bytes);
    for (int64_t i; (i = atomic_fetch_add_explicit(&k->next, 1, memory_order_relaxed)) < k->n;) k->fn(k->arg, i, scratch);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct ft_kctx *k = w->k;
    unsigned seen = 0;
    for (;;) {
        for (int i = 0; i < SPIN && atomic_load_explicit(&k->generation, memory_order_acquire) == seen; i++) pause_cpu();
        pthread_mutex_lock(&k->lock);
        while (atomic_load_explicit(&k->generation, memory_order_relaxed) == seen && !k->stop)
            pthread_cond_wait(&k->work, &k->lock);
        seen = atomic_load_explicit(&k->generation, memory_order_relaxed);
        const int stop = k->stop, enter = k->open;
        if (enter) atomic_fetch_add_explicit(&k->inside, 1, memory_order_relaxed);
        pthread_mutex_unlock(&k->lock);
        if (stop) return NULL;
        if (!enter) continue;
        run_pieces(k, w);
        pthread_mutex_lock(&k->lock);
        if (atomic_fetch_sub_explicit(&k->inside, 1, memory_order_release) == 1) pthread_cond_signal(&k->done);
        pthread_mutex_unlock(&k->lock);
    }
}

void ft_cpu_parallel(struct ft_kctx *k, int64_t n, int64_t scratch_bytes, ft_cpu_piece *fn, void *arg)
{
    if (n <= 0) return;
    struct worker *me = &k->workers[0];
    if (n == 1 || k->n_threads == 1) {
        void *scratch = grow(&me->scratch, &me->scratch_bytes, scratch_bytes);
        for (int64_t i = 0; i < n; i++) fn(arg, i, scratch);
        return;
    }
    pthread_mutex_lock(&k->lock);
    k->fn = fn;
    k->arg = arg;
    k->n = n;
    k->scratch_bytes = scratch_bytes;
    atomic_store_explicit(&k->next, 0, memory_order_relaxed);
    k->open = 1;
    atomic_fetch_add_explicit(&k->generation, 1, memory_order_release);
    pthread_cond_broadcast(&k->work);
    pthread_mutex_unlock(&k->lock);
    run_pieces(k, me);
    pthread_mutex_lock(&k->lock);
    k->open = 0;
    pthread_mutex_unlock(&k->lock);
    for (int i = 0; i < SPIN && atomic_load_explicit(&k->inside, memory_order_acquire) > 0; i++) pause_cpu();
    pthread_mutex_lock(&k->lock);
    while (atomic_load_explicit(&k->inside, memory_order_relaxed) > 0) pthread_cond_wait(&k->done, &k->lock);
    pthread_mutex_unlock(&k->lock);
}

struct ft_kctx *ft_cpu_kctx_create(int n_threads, char *why, size_t why_bytes)
{
    struct ft_kctx *k = calloc(1, sizeof *k);
    if (!k || !(k->workers = calloc((size_t)(n_threads < 1 ? 1 : n_threads), sizeof *k->workers))) die(sizeof *k);
    pthread_mutex_init(&k->lock, NULL);
    pthread_cond_init(&k->work, NULL);
    pthread_cond_init(&k->done, NULL);
    k->n_threads = 1;
    k->workers[0].k = k;
    for (int i = 1; i < n_threads; i++) {
        k->workers[i].k = k;
        const int e = pthread_create(&k->workers[i].thread, NULL, work, &k->workers[i]);
        if (e) {
            snprintf(why, why_bytes, "cannot start thread %d of %d: %s", i + 1, n_threads, strerror(e));
            ft_cpu_kctx_destroy(k);
            return NULL;
        }
        k->n_threads = i + 1;
    }
    return k;
}

void ft_cpu_kctx_destroy(struct ft_kctx *k)
{
    if (!k) return;
    pthread_mutex_lock(&k->lock);
    k->stop = 1;
    pthread_cond_broadcast(&k->work);
    pthread_mutex_unlock(&k->lock);
    for (int i = 1; i < k->n_threads; i++) pthread_join(k->workers[i].thread, NULL);
    for (int i = 0; i < k->n_threads; i++) {
        free(k->workers[i].scratch);
        free(k->workers[i].space);
    }
    pthread_cond_destroy(&k->work);
    pthread_cond_destroy(&k->done);
    pthread_mutex_destroy(&k->lock);
    free(k->shared);
    free(k->workers);
    free(k);
}

int ft_cpu_kctx_threads(const struct ft_kctx *k) { return k->n_threads; }
