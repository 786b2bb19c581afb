/* The parts of the room that are functions of values: reductions, proof, frames, meeting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/coll/frame.h"
#include "runtime/coll/meeting.h"
#include "runtime/coll/net.h"
#include "runtime/coll/proof.h"
#include "runtime/coll/reduce.h"

/* 512 ranks, one 1.0 and 511 times 2^-9 in bf16: the fp32 sum is 1.998046875; a running sum in bf16 would stay at 1. */
static void test_RT16_fp32_sum(void **state)
{
    (void)state;
    static uint16_t x[512];
    static float f[512];
    const void *b16[512], *f32[512];
    for (int i = 0; i < 512; i++) {
        f[i] = i ? 0.001953125f : 1.0f;
        x[i] = ft_f32_to_bf16(f[i]);
        b16[i] = &x[i];
        f32[i] = &f[i];
    }
    float out;
    uint16_t out16;
    ft_reduce_ordered(f32, 512, &out, 1, FT_F32, FT_SUM);
    assert_true(out == 1.998046875f);
    ft_reduce_ordered(b16, 512, &out16, 1, FT_BF16, FT_SUM);
    assert_int_equal(out16, ft_f32_to_bf16(1.998046875f));
}

static void test_order_and_nan(void **state)
{
    (void)state;
    const float a[4] = {1e8f, NAN, 2, -0.0f}, b[4] = {-1e8f, 1, NAN, 0.0f}, c[4] = {1, 5, 3, -1};
    const void *src[3] = {a, b, c};
    float out[4];
    ft_reduce_ordered(src, 3, out, 4, FT_F32, FT_SUM);
    assert_true(out[0] == 1.0f); /* (1e8 - 1e8) + 1: any other order loses the 1 */
    ft_reduce_ordered(src, 3, out, 4, FT_F32, FT_MAX);
    assert_true(isnan(out[1]) && isnan(out[2]) && out[0] == 1e8f && signbit(out[3]) && out[3] == 0);
    ft_reduce_ordered(src, 3, out, 4, FT_F32, FT_MIN);
    assert_true(isnan(out[1]) && isnan(out[2]) && out[3] == -1);
    const int64_t big[2] = {INT64_MAX, 1}, one[2] = {1, -2};
    const void *ints[2] = {big, one};
    int64_t sum[2];
    ft_reduce_ordered(ints, 2, sum, 2, FT_I64, FT_SUM);
    assert_true(sum[0] == INT64_MIN && sum[1] == -1);
    assert_false(ft_reduce_has(FT_U8, FT_SUM));
    assert_false(ft_reduce_has(FT_F16, FT_SUM));
    assert_true(ft_reduce_has(FT_U8, FT_MAX));
}

static enum ft_proof_result shake(const char *client, const char *server, int flip)
{
    struct ft_err err;
    struct ft_proof c, s;
    unsigned char last[FT_PROOF_LAST];
    memset(&s, 0, sizeof s);
    assert_int_equal(ft_proof_hello(&c, client, &err), FT_OK);
    memcpy(s.hello, c.hello, sizeof s.hello);
    if (flip == 1) s.hello[20] ^= 1; /* the nonce on its way */
    enum ft_proof_result r = ft_proof_answer(&s, server);
    if (r != FT_PROOF_OK) return r;
    memcpy(c.answer, s.answer, sizeof c.answer);
    if (flip == 2) c.answer[40] ^= 1;
    r = ft_proof_check_answer(&c, last);
    if (r != FT_PROOF_OK) return r;
    if (flip == 3) last[5] ^= 1;
    return ft_proof_check_last(&s, last);
}

static void test_proof(void **state)
{
    (void)state;
    assert_int_equal(shake("secret", "secret", 0), FT_PROOF_OK);
    assert_int_equal(shake(NULL, NULL, 0), FT_PROOF_OK);
    assert_int_equal(shake("", NULL, 0), FT_PROOF_OK);
    assert_int_equal(shake("secret", "Secret", 0), FT_PROOF_WRONG);
    assert_int_equal(shake("secret", NULL, 0), FT_PROOF_NO_MINE);
    assert_int_equal(shake(NULL, "secret", 0), FT_PROOF_NO_THEIRS);
    for (int flip = 1; flip <= 3; flip++) assert_int_equal(shake("secret", "secret", flip), FT_PROOF_WRONG);
    struct ft_proof s;
    memset(&s, 'G', sizeof s); /* "GET / HTTP/1.1" */
    assert_int_equal(ft_proof_answer(&s, "secret"), FT_PROOF_STRANGE);
}

static void test_frames(void **state)
{
    (void)state;
    struct ft_buf b = {0};
    const size_t at = ft_frame_begin(&b, FT_FRAME_SET);
    ft_frame_text(&b, "name");
    ft_frame_bytes(&b, "\0\1\2", 3);
    ft_frame_u64(&b, 0x0123456789ABCDEFull);
    ft_frame_end(&b, at);
    enum ft_frame type;
    struct ft_frame_reader r;
    size_t whole, n;
    for (size_t cut = 0; cut < b.n; cut++) {
        struct ft_buf part = {.data = b.data, .n = cut, .cap = b.cap};
        assert_int_equal(ft_frame_parse(&part, &type, &r, &whole), 0);
    }
    assert_int_equal(ft_frame_parse(&b, &type, &r, &whole), 1);
    assert_int_equal(type, FT_FRAME_SET);
    assert_int_equal(whole, b.n);
    char *name = ft_frame_get_text(&r);
    assert_string_equal(name, "name");
    free(name);
    assert_memory_equal(ft_frame_get_bytes(&r, &n), "\0\1\2", 3);
    assert_int_equal(n, 3);
    assert_true(ft_frame_get_u64(&r) == 0x0123456789ABCDEFull && !r.bad);
    assert_int_equal(ft_frame_get_u32(&r), 0);
    assert_true(r.bad);
    memset(b.data, 0xFF, 4);
    assert_int_equal(ft_frame_parse(&b, &type, &r, &whole), -1);
    ft_buf_fini(&b);
    /* a text that says it is longer than its frame */
    const unsigned char lie[8] = {200, 0, 0, 0, 'a', 'b', 'c', 'd'};
    r = (struct ft_frame_reader){.p = lie, .n = sizeof lie};
    ft_frame_get_bytes(&r, &n);
    assert_true(r.bad && n == 0);
}

static struct ft_member member(int rank, int node, const char *text)
{
    static char host[] = "gpu", boot[2][4] = {"b0", "b1"};
    static char texts[16][64];
    static int next;
    char *t = texts[next++ % 16];
    snprintf(t, 64, "%s", text);
    return (struct ft_member){.rank = rank, .node_rank = node, .pid = 100 + rank, .host = host, .boot = boot[rank >= 2], .text = t};
}

/* The address that is told where nobody gave one: numeric, of this machine, not loopback; else a refusal with the remedy. */
static void test_own_address(void **state)
{
    (void)state;
    char text[64] = "";
    struct ft_err err = {0};
    struct ft_addr a;
    int fd = -1, port = 0;
    const enum ft_code rc = ft_net_own_address(text, sizeof text, &err);
    if (rc) {
        assert_int_equal(rc, FT_NET);
        assert_non_null(strstr(err.fix, "set MASTER_ADDR"));
        return;
    }
    assert_int_equal(strspn(text, "0123456789abcdef.:%"), strlen(text));
    assert_int_equal(ft_net_resolve(text, 0, &a, &err), FT_OK);
    assert_false(ft_net_is_loopback(&a));
    assert_int_equal(ft_net_listen(&a, 1, &fd, &port, NULL, &err), FT_OK);
    assert_true(port > 0);
    close(fd);
}

static void test_meeting(void **state)
{
    (void)state;
    struct ft_err err;
    struct ft_member m[4];
    for (int i = 0; i < 4; i++) m[i] = member(3 - i, (3 - i) / 2, "a=1\nb=2\n"); /* any order of coming */
    assert_int_equal(ft_meeting_compare(m, 4, &err), FT_OK);
    m[1] = member(2, 1, "a=1\nb=2\nc=3\n"); /* a line that only one has */
    assert_int_equal(ft_meeting_compare(m, 4, &err), FT_CONFIG);
    assert_non_null(strstr(err.text, "do not agree on c: nothing on ranks 0, 1, 3; 3 on rank 2"));
    m[1] = member(2, 1, "a=7\nb=9\n"); /* the first of two; values stand by rank, whoever came first */
    for (int first = 0; first < 4; first++) {
        const struct ft_member other = m[0];
        m[0] = m[first];
        m[first] = other;
        assert_int_equal(ft_meeting_compare(m, 4, &err), FT_CONFIG);
        assert_non_null(strstr(err.text, "do not agree on a: 1 on ranks 0, 1, 3; 7 on rank 2"));
        m[first] = m[0];
        m[0] = other;
    }
    m[1] = member(2, 0, "a=1\nb=2\n"); /* rank 2 runs on the second machine but says node 0 */
    assert_int_equal(ft_meeting_compare(m, 4, &err), FT_CONFIG);
    assert_non_null(strstr(err.text, "NODE_RANK 0 but run on different machines"));
    m[1] = member(1, 0, "a=1\nb=2\n");
    assert_int_equal(ft_meeting_compare(m, 4, &err), FT_CONFIG);
    assert_non_null(strstr(err.text, "two processes are rank 1: pid 101 on gpu and pid 101 on gpu"));
    assert_int_equal(ft_meeting_late(m, 1, 7, 120, "10.0.0.1:5", &err), FT_TIMEOUT);
    assert_string_equal(err.text, "ranks 0-2, 4-6 have not come after 120 s: 1 of 7 met at 10.0.0.1:5");
    int v[] = {9, 3, 1, 2, 7, 8};
    struct ft_buf b = {0};
    ft_ranks_text(&b, v, 6);
    assert_string_equal(ft_buf_str(&b), "ranks 1-3, 7-9");
    ft_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_RT16_fp32_sum), cmocka_unit_test(test_order_and_nan), cmocka_unit_test(test_proof),
        cmocka_unit_test(test_frames),        cmocka_unit_test(test_own_address),   cmocka_unit_test(test_meeting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
