#include "runtime/train/buckets.h"

static int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        const int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

struct builder {
    struct ft_buckets *b;
    int64_t align, start, end; /* of the bucket that is open */
    bool any;                  /* it holds a parameter */
};

static void close_bucket(struct builder *w)
{
    if (!w->any) return;
    w->end = round_up(w->end, w->align);
    w->b->v[w->b->n++] = (struct ft_bucket){w->start, w->end};
    w->start = w->end;
    w->any = false;
}

static void lay_out(struct builder *w, const struct ft_bucket_param *params, size_t n, int64_t limit)
{
    for (size_t i = n; i-- > 0;) {
        if (params[i].tied_copy) close_bucket(w);
        const int64_t at = round_up(w->end, FT_BUCKET_ALIGN);
        w->end = at + params[i].n;
        w->any = true;
        w->b->place[i] = (struct ft_place_in_buffer){at, w->end, w->b->n};
        if (params[i].tied_copy || w->end - w->start >= limit) close_bucket(w);
    }
    close_bucket(w);
    w->b->total = w->end;
}

/* Parameters lie in reverse order of declaration, so walking them backwards walks the addresses upwards. */
static void find_pieces(struct ft_buckets *b, struct ft_arena *arena)
{
    b->pieces = ft_arena_array(arena, b->n_params ? b->n_params : 1, sizeof *b->pieces);
    size_t i = b->n_params;
    int64_t state = 0;
    for (size_t k = 0; k < b->n; k++) {
        const struct ft_bucket s = ft_buckets_shard(b, k);
        for (; i > 0 && b->place[i - 1].bucket == k; i--) {
            const struct ft_place_in_buffer *p = &b->place[i - 1];
            const int64_t from = p->start > s.start ? p->start : s.start, to = p->end < s.end ? p->end : s.end;
            if (from >= to) continue;
            b->pieces[b->n_pieces++] = (struct ft_piece){i - 1, from - p->start, to - p->start, from, state + from - s.start};
        }
        state += s.end - s.start;
    }
    b->state_total = state;
}

struct ft_buckets ft_buckets_make(const struct ft_bucket_param *params, size_t n, int data, int rank, int64_t limit,
                                  struct ft_arena *arena)
{
    struct ft_buckets b = {.data = data, .rank = rank, .n_params = n};
    b.place = ft_arena_array(arena, n ? n : 1, sizeof *b.place);
    b.v = ft_arena_array(arena, n ? n : 1, sizeof *b.v);
    struct builder w = {.b = &b, .align = (int64_t)data / gcd(data, 128) * 128};
    lay_out(&w, params, n, limit);
    find_pieces(&b, arena);
    return b;
}

struct ft_bucket ft_buckets_shard(const struct ft_buckets *b, size_t bucket)
{
    const struct ft_bucket *k = &b->v[bucket];
    const int64_t each = (k->end - k->start) / b->data;
    return (struct ft_bucket){k->start + b->rank * each, k->start + (b->rank + 1) * each};
}
