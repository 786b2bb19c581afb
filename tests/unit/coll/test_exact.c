/* Exact integers and exact bits over every built engine, every type and operation, sizes around every border, 1 to 8 ranks, on
 * one node and on several. Each rank knows what all ranks put in, so it checks against a plain loop in ascending order. */
#include "ranks.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits/mix64.h"
#include "base/clock.h"
#include "runtime/coll/engine.h"

struct plan {
    const char *engine;
    struct ft_mesh mesh;
};

static const int sizes[] = {0, 1, 2, 3, 7, 64, 1000, 1025, 4097, 70001, 300001};
enum { N_SIZES = sizeof sizes / sizeof *sizes, BIG = 64 << 20 };

static double value(int rank, int64_t i, bool integers)
{
    const uint64_t h = ft_mix64((uint64_t)rank * 1000003u + (uint64_t)i + 1);
    return integers ? (double)(h % 15) : ((double)(h >> 11) / 9007199254740992.0 - 0.5) * (double)(1u << (h & 15));
}

static void put(void *p, int64_t at, enum ft_dtype t, double x)
{
    const float f = (float)x;
    const uint16_t h = ft_f32_to_bf16(f);
    const int64_t q = (int64_t)x;
    const uint8_t u = (uint8_t)(int64_t)x;
    const void *from = t == FT_F32    ? (const void *)&f
                       : t == FT_F64  ? (const void *)&x
                       : t == FT_BF16 ? (const void *)&h
                       : t == FT_I64  ? (const void *)&q
                                      : (const void *)&u;
    memcpy((char *)p + (size_t)at * ft_dtype_bytes(t), from, ft_dtype_bytes(t));
}

static double get(const void *p, int64_t at, enum ft_dtype t)
{
    const char *c = (const char *)p + (size_t)at * ft_dtype_bytes(t);
    float f;
    double d;
    uint16_t h;
    int64_t q;
    if (t == FT_F32) return memcpy(&f, c, 4), (double)f;
    if (t == FT_F64) return memcpy(&d, c, 8), d;
    if (t == FT_BF16) return memcpy(&h, c, 2), (double)ft_bf16_to_f32(h);
    if (t == FT_I64) return memcpy(&q, c, 8), (double)q;
    return (double)*(const unsigned char *)c;
}

/* What the ordered reduction gives for element i over the members of my group. */
static void expect(void *out, int64_t at, const int *members, int n, int64_t i, enum ft_dtype t, enum ft_reduce op, bool integers)
{
    unsigned char one[8];
    double acc64 = 0;
    float acc32 = 0;
    for (int k = 0; k < n; k++) {
        put(one, 0, t, value(members[k], i, integers));
        const double x = get(one, 0, t);
        const float f = (float)x;
        if (k == 0) {
            acc64 = x;
            acc32 = f;
        } else if (op == FT_SUM) {
            acc64 += x;
            acc32 += f;
        } else {
            acc64 = (op == FT_MIN) == (x < acc64) && x != acc64 ? x : acc64;
            acc32 = (op == FT_MIN) == (f < acc32) && f != acc32 ? f : acc32;
        }
    }
    put(out, at, t, t == FT_F32 || t == FT_BF16 ? (double)acc32 : acc64);
}

static int members_of(struct ft_mesh mesh, int rank, enum ft_group g, int *out)
{
    const unsigned axes = g == FT_GROUP_TP ? 1u << FT_AXIS_TP : g == FT_GROUP_PP ? 1u << FT_AXIS_PP : 1u << FT_AXIS_DP;
    if (g == FT_GROUP_WORLD) {
        for (int r = 0; r < ft_mesh_world(mesh); r++) out[r] = r;
        return ft_mesh_world(mesh);
    }
    int n = ft_mesh_group_size(mesh, axes);
    for (int i = 0; i < n; i++) out[i] = ft_mesh_group_member(mesh, axes, ft_mesh_group_of(mesh, axes, rank), i);
    if (g == FT_GROUP_EMBEDDING) FT_BUG("not here");
    return n;
}

#define TRY(call)                                                                                                                  \
    do {                                                                                                                           \
        const enum ft_code code_ = (call);                                                                                         \
        if (code_) {                                                                                                               \
            say("line %d: ", __LINE__);                                                                                            \
            say_err(code_, &err);                                                                                                  \
            return 1;                                                                                                              \
        }                                                                                                                          \
    } while (0)

#define SAME(got, want, bytes, name)                                                                                               \
    do {                                                                                                                           \
        if (memcmp(got, want, bytes) != 0) {                                                                                       \
            say("%s over group %d, %lld elements of type %d, op %d: wrong\n", name, (int)g, (long long)n, (int)t, (int)op);        \
            return 1;                                                                                                              \
        }                                                                                                                          \
    } while (0)

static int one_case(struct ft_comm *c, struct ft_mesh mesh, int rank, enum ft_group g, int64_t n, enum ft_dtype t,
                    enum ft_reduce op, bool integers)
{
    int who[RANKS_MAX];
    struct ft_err err = {0};
    const int size = members_of(mesh, rank, g, who), me = ft_comm_rank(c, g);
    const size_t w = ft_dtype_bytes(t), all = (size_t)n * (size_t)size;
    char *in = malloc(all * w + 8), *out = malloc(all * w + 8), *want = malloc(all * w + 8);
    if (ft_comm_size(c, g) != size || who[me] != rank) return say("group %d has the wrong members\n", (int)g), 1;

    for (int64_t i = 0; i < n; i++) put(in, i, t, value(rank, i, integers)), expect(want, i, who, size, i, t, op, integers);
    TRY(ft_comm_all_reduce(c, g, in, n, t, op, &err));
    SAME(in, want, (size_t)n * w, "all_reduce");

    for (int64_t i = 0; i < n * size; i++) put(in, i, t, value(rank, i, integers));
    for (int64_t i = 0; i < n; i++) expect(want, i, who, size, n * me + i, t, op, integers);
    TRY(ft_comm_reduce_scatter(c, g, in, out, n, t, op, &err));
    SAME(out, want, (size_t)n * w, "reduce_scatter");
    TRY(ft_comm_reduce_scatter(c, g, in, in + (size_t)me * (size_t)n * w, n, t, op, &err)); /* in place */
    SAME(in + (size_t)me * (size_t)n * w, want, (size_t)n * w, "reduce_scatter in place");

    for (int64_t i = 0; i < n; i++) put(in, i, t, value(rank, i, integers));
    for (int k = 0; k < size; k++)
        for (int64_t i = 0; i < n; i++) put(want, k * n + i, t, value(who[k], i, integers));
    memset(out, 0xEE, all * w);
    TRY(ft_comm_all_gather(c, g, in, out, n, t, &err));
    SAME(out, want, all * w, "all_gather");
    memset(out, 0xEE, all * w);
    memcpy(out + (size_t)me * (size_t)n * w, in, (size_t)n * w);
    TRY(ft_comm_all_gather(c, g, out + (size_t)me * (size_t)n * w, out, n, t, &err)); /* in place */
    SAME(out, want, all * w, "all_gather in place");
    free(in);
    free(out);
    free(want);
    return 0;
}

static int moves(struct ft_comm *c, enum ft_group g, int64_t most)
{
    struct ft_err err = {0};
    const int size = ft_comm_size(c, g), me = ft_comm_rank(c, g);
    static const int64_t bytes[] = {0, 1, 5, 16, 4099, 700001, 3000001};
    for (size_t k = 0; k < sizeof bytes / sizeof *bytes && bytes[k] <= most; k++)
        for (int root = 0; root<size; root += size> 1 ? size - 1 : 1) {
            unsigned char *b = malloc((size_t)bytes[k] + 1);
            for (int64_t i = 0; i < bytes[k]; i++) b[i] = (unsigned char)(me == root ? i * 7 + root : 0xEE);
            TRY(ft_comm_broadcast(c, g, root, b, bytes[k], &err));
            for (int64_t i = 0; i < bytes[k]; i++)
                if (b[i] != (unsigned char)(i * 7 + root))
                    return say("broadcast of %lld bytes is wrong at %lld\n", (long long)bytes[k], (long long)i), 1;
            /* a chain: what the root has goes round by send and receive */
            if (size > 1) {
                if (me > 0) TRY(ft_comm_recv(c, g, me - 1, b, bytes[k], &err));
                for (int64_t i = 0; i < bytes[k]; i++) b[i] = (unsigned char)(me == 0 ? i : b[i] + 1);
                if (me < size - 1) TRY(ft_comm_send(c, g, me + 1, b, bytes[k], &err));
                for (int64_t i = 0; i < bytes[k]; i++)
                    if (b[i] != (unsigned char)(i + me)) return say("send/recv of %lld bytes is wrong\n", (long long)bytes[k]), 1;
            }
            free(b);
            TRY(ft_comm_barrier(c, g, &err));
        }
    return 0;
}

/* What member from sends to member to as its message k: repeats after PATTERN bytes. */
enum { PATTERN = 1 << 16 };

static void pattern(unsigned char *out, int from, int to, int k)
{
    for (int i = 0; i < PATTERN; i++) out[i] = (unsigned char)(from * 31 + to * 7 + k * 3 + i * 5 + (i >> 8));
}

static void fill(unsigned char *b, int64_t bytes, int from, int to, int k)
{
    unsigned char want[PATTERN];
    pattern(want, from, to, k);
    for (int64_t i = 0; i < bytes; i += PATTERN) memcpy(b + i, want, (size_t)(bytes - i < PATTERN ? bytes - i : PATTERN));
}

static bool filled(const unsigned char *b, int64_t bytes, int from, int to, int k)
{
    unsigned char want[PATTERN];
    bool same = true;
    pattern(want, from, to, k);
    for (int64_t i = 0; i < bytes && same; i += PATTERN)
        same = !memcmp(b + i, want, (size_t)(bytes - i < PATTERN ? bytes - i : PATTERN));
    return same;
}

static uint32_t tag_of(int message) { return message == 0 ? 0 : message == 1 ? 0xFFFFFFFFu : 7u; }

/* Message number k of this exchange, of `bytes`, to or from `peer`. */
static void post(struct ft_message *m, size_t *n, enum ft_way way, int me, int peer, int k, int64_t bytes)
{
    unsigned char *b = bytes ? malloc((size_t)bytes) : NULL;
    if (way == FT_WAY_SEND) fill(b, bytes, me, peer, k);
    else if (bytes) memset(b, 0xEE, (size_t)bytes);
    m[*n] = (struct ft_message){.way = way, .peer = peer, .tag = tag_of(k), .bytes = bytes};
    if (way == FT_WAY_SEND) m[(*n)++].out = b;
    else m[(*n)++].in = b;
}

/* Makes the exchange, looks at what came, frees the buffers. */
static int exchange(struct ft_comm *c, enum ft_group g, const struct ft_message *m, size_t n)
{
    struct ft_err err = {0};
    const int me = ft_comm_rank(c, g);
    TRY(ft_comm_exchange(c, g, m, n, &err));
    int nth[RANKS_MAX] = {0}; /* messages that came from each member */
    for (size_t k = 0; k < n; k++) {
        if (m[k].way == FT_WAY_RECV) {
            const int message = nth[m[k].peer]++;
            if (!filled(m[k].in, m[k].bytes, m[k].peer, me, message))
                return say("message %d from %d (%lld bytes) is wrong\n", message, m[k].peer, (long long)m[k].bytes), 1;
        }
        free(m[k].way == FT_WAY_SEND ? (void *)(uintptr_t)m[k].out : m[k].in);
    }
    return 0;
}

/* Three messages to and from every other member, listed in orders that only agree within each channel. */
static int exchange_all(struct ft_comm *c, enum ft_group g, const int64_t *bytes)
{
    struct ft_message m[6 * RANKS_MAX];
    const int size = ft_comm_size(c, g), me = ft_comm_rank(c, g);
    size_t n = 0;
    for (int k = 0; k < 3; k++)
        for (int step = 1; step < size; step++) {
            post(m, &n, FT_WAY_SEND, me, (me + step) % size, k, bytes[k]);
            if (k == 1) post(m, &n, FT_WAY_RECV, me, (me + step) % size, 0, bytes[0]);
        }
    for (int k = 1; k < 3; k++)
        for (int j = 0; j < size; j++)
            if (j != me) post(m, &n, FT_WAY_RECV, me, j, k, bytes[k]);
    return exchange(c, g, m, n);
}

/* A pipeline's step: to the next and from the previous one, and back; with two members both are the same. */
static int exchange_ring(struct ft_comm *c, enum ft_group g, int64_t bytes)
{
    struct ft_message m[4];
    const int size = ft_comm_size(c, g), me = ft_comm_rank(c, g), next = (me + 1) % size, before = (me + size - 1) % size;
    size_t n = 0;
    const int second = size == 2; /* the second message of the one channel */
    post(m, &n, FT_WAY_SEND, me, next, 0, bytes);
    post(m, &n, FT_WAY_SEND, me, before, second, bytes / 2);
    post(m, &n, FT_WAY_RECV, me, before, 0, bytes);
    post(m, &n, FT_WAY_RECV, me, next, second, bytes / 2);
    return exchange(c, g, m, n);
}

static int exchanges(struct ft_comm *c, enum ft_group g, bool big)
{
    static const int64_t none[] = {0, 0, 0}, odd[] = {0, 5, 4099}, falling[] = {700001, 16, 0}, rising[] = {1, 15, 3000001};
    struct ft_err err = {0};
    TRY(ft_comm_exchange(c, g, NULL, 0, &err));
    if (ft_comm_size(c, g) == 1) return 0;
    if (exchange_all(c, g, none) || exchange_all(c, g, odd) || exchange_all(c, g, falling) || exchange_all(c, g, rising)) return 1;
    if (exchange_ring(c, g, 0) || exchange_ring(c, g, 33) || exchange_ring(c, g, 1000003)) return 1;
    if (!big) return 0;
    struct ft_message m[2]; /* far more than any channel holds, both ways at once; the others have nothing to do */
    const int me = ft_comm_rank(c, g);
    size_t n = 0;
    if (me < 2) post(m, &n, FT_WAY_SEND, me, 1 - me, 0, BIG);
    if (me < 2) post(m, &n, FT_WAY_RECV, me, 1 - me, 0, BIG);
    return exchange(c, g, m, n);
}

static int run(const struct ft_place *place, void *arg)
{
    const struct plan *plan = arg;
    struct ft_err err = {0};
    struct ft_comm *c = NULL;
    const struct ft_comm_options o = {
        .engine = plan->engine, .timeout_ns = 60 * FT_SEC, .join_ns = 60 * FT_SEC, .fingerprint = "model=x\n"};
    static const struct {
        enum ft_dtype t;
        enum ft_reduce op;
    } kinds[] = {{FT_F32, FT_SUM}, {FT_F32, FT_MIN},  {FT_F32, FT_MAX},  {FT_F64, FT_SUM},  {FT_F64, FT_MIN},
                 {FT_F64, FT_MAX}, {FT_BF16, FT_SUM}, {FT_BF16, FT_MIN}, {FT_BF16, FT_MAX}, {FT_I64, FT_SUM},
                 {FT_I64, FT_MIN}, {FT_I64, FT_MAX},  {FT_U8, FT_MIN},   {FT_U8, FT_MAX}};
    TRY(ft_comm_open(place, plan->mesh, &o, &c, &err));
    if (strcmp(ft_comm_engine(c), plan->engine) != 0) return say("engine is %s\n", ft_comm_engine(c)), 1;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int s = 0; s < N_SIZES; s++) {
            if (sizes[s] > 5000 && k % 3) continue; /* the long ones for one operation of each type, the longest for one type */
            if (sizes[s] > 100000 && (k || place->world > 4)) continue;
            if (one_case(c, plan->mesh, place->rank, FT_GROUP_WORLD, sizes[s], kinds[k].t, kinds[k].op, true)) return 1;
        }
    static const enum ft_group groups[] = {FT_GROUP_WORLD, FT_GROUP_TP, FT_GROUP_PP, FT_GROUP_DP};
    for (size_t k = 0; k < 4; k++) { /* reals: same bits as the plain loop, whatever the nodes are */
        if (one_case(c, plan->mesh, place->rank, groups[k], 1537, FT_F32, FT_SUM, false)) return 1;
        if (one_case(c, plan->mesh, place->rank, groups[k], 9001, FT_BF16, FT_SUM, false)) return 1;
        if (one_case(c, plan->mesh, place->rank, groups[k], 2049, FT_F64, FT_SUM, false)) return 1;
        if (moves(c, groups[k], k == 0 ? INT64_MAX : 1000000)) return 1; /* the longest once */
        if (exchanges(c, groups[k], k == 0 && place->world <= 4)) return 1;
    }
    ft_comm_close(c);
    return 0;
}

static const int two_and_two[] = {0, 0, 1, 1, 2, 2, 3, 3}, alternating[] = {0, 1, 0, 1, 0, 1, 0, 1},
                 apart[] = {0, 1, 2, 3, 4, 5, 6, 7};

static void every_engine(int n, struct ft_mesh mesh, const int *nodes)
{
    int tried = 0;
    for (const struct ft_coll_entry *e = ft_coll_table; e->name; e++) {
        /* an engine whose ranks must be started by its own launcher: tests/mpi runs this program so */
        if (!e->ops || e->ops->suits || (n == 1) != !strcmp(e->name, "self")) continue;
        struct plan plan = {.engine = e->name, .mesh = mesh};
        struct ranks r = {.n = n, .node_of = nodes, .run = run, .arg = &plan, .limit_s = 300};
        ranks_run(&r);
        ranks_all_ok(&r);
        tried++;
    }
    assert_true(tried > 0);
}

static void test_one_rank(void **state)
{
    (void)state;
    every_engine(1, ft_mesh_make(1, 1, 1, 1), NULL);
}
static void test_two(void **state)
{
    (void)state;
    every_engine(2, ft_mesh_make(1, 1, 2, 1), NULL);
}
static void test_two_apart(void **state)
{
    (void)state;
    every_engine(2, ft_mesh_make(1, 1, 2, 1), apart);
}
static void test_three(void **state)
{
    (void)state;
    every_engine(3, ft_mesh_make(1, 1, 3, 1), NULL);
}
static void test_R8_four_on_one(void **state)
{
    (void)state;
    every_engine(4, ft_mesh_make(2, 1, 2, 1), NULL);
}
static void test_R8_two_and_two(void **state)
{
    (void)state;
    every_engine(4, ft_mesh_make(2, 1, 2, 1), two_and_two);
}
static void test_R8_alternating(void **state)
{
    (void)state;
    every_engine(4, ft_mesh_make(1, 1, 2, 2), alternating);
}
static void test_eight(void **state)
{
    (void)state;
    every_engine(8, ft_mesh_make(2, 1, 2, 2), two_and_two);
}

/* test_coll_exact ENGINE: one rank of it, started by mpirun. */
static int one_rank(const struct ft_place *place, void *engine)
{
    struct plan plan = {.engine = engine, .mesh = ft_mesh_make(1, 1, place->world, 1)};
    if (place->world == 4) plan.mesh = ft_mesh_make(2, 1, 2, 1);
    return run(place, &plan);
}

int main(int argc, char **argv)
{
    if (argc > 1) return rank_here(one_rank, argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank),       cmocka_unit_test(test_two),
        cmocka_unit_test(test_two_apart),      cmocka_unit_test(test_three),
        cmocka_unit_test(test_R8_four_on_one), cmocka_unit_test(test_R8_two_and_two),
        cmocka_unit_test(test_R8_alternating), cmocka_unit_test(test_eight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
