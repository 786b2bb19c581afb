/* The wire: every row there and back, pieces of any size, and everything that must end the stream. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "launcher/wire.h"

static void move(struct ft_wire *from, struct ft_wire *to, size_t step)
{
    for (size_t at = 0; at < from->out.n; at += step)
        ft_wire_feed(to, from->out.data + at, from->out.n - at < step ? from->out.n - at : step);
    ft_buf_clear(&from->out);
}

/* A message with a different value in every field. */
static struct ft_msg fill(const struct ft_wire_row *row, char *text)
{
    struct ft_msg m = ft_msg_make((enum ft_msg_type)row->type, 7);
    for (unsigned i = 0; row->fields[i].kind != FT_WIRE_END; i++) {
        if (row->fields[i].kind == FT_WIRE_TEXT) {
            memset(text + 100 * i, 'a' + (int)i, 100);
            ft_msg_bytes(&m, i, text + 100 * i, 3 * i);
        } else
            ft_msg_u(&m, i,
                     row->fields[i].kind == FT_WIRE_U8    ? 200 + i
                     : row->fields[i].kind == FT_WIRE_U32 ? 0xFFFFFF00u + i
                                                          : UINT64_MAX - i);
    }
    return m;
}

static void every_row_there_and_back(void **state)
{
    (void)state;
    static char text[100 * (FT_WIRE_FIELDS + 1)];
    for (size_t step = 1; step < 5000; step = step * 3 + 1)
        for (size_t k = 0; k < ft_wire_n_rows; k++) {
            const struct ft_wire_row *row = &ft_wire_rows[k];
            struct ft_wire a, b;
            ft_wire_init(&a, row->to_head ? FT_WIRE_AGENT : FT_WIRE_HEAD);
            ft_wire_init(&b, row->to_head ? FT_WIRE_HEAD : FT_WIRE_AGENT);
            struct ft_msg m = fill(row, text), got;
            ft_wire_send(&a, &m);
            ft_wire_send(&a, &m);
            move(&a, &b, step);
            for (uint64_t seq = 0; seq < 2; seq++) {
                assert_int_equal(ft_wire_next(&b, &got), 1);
                assert_int_equal(got.type, row->type);
                assert_int_equal(got.slot, 7);
                assert_int_equal(got.seq, seq);
                for (unsigned i = 0; row->fields[i].kind != FT_WIRE_END; i++) {
                    if (row->fields[i].kind == FT_WIRE_TEXT) {
                        assert_int_equal(got.f[i].n, 3 * i);
                        assert_memory_equal(got.f[i].p, text + 100 * i, 3 * i);
                    } else assert_true(got.f[i].u == m.f[i].u);
                }
            }
            assert_int_equal(ft_wire_next(&b, &got), 0);
            struct ft_buf shown = {0};
            ft_msg_print(&m, &shown);
            assert_non_null(strstr(shown.data, row->name));
            ft_buf_fini(&shown);
            ft_wire_fini(&a);
            ft_wire_fini(&b);
        }
}

static void types_are_unique(void **state)
{
    (void)state;
    for (size_t i = 0; i < ft_wire_n_rows; i++) assert_ptr_equal(ft_wire_row(ft_wire_rows[i].type), &ft_wire_rows[i]);
    assert_null(ft_wire_row(0));
    assert_null(ft_wire_row(255));
}

static void pieces(void **state)
{
    (void)state;
    static char big[300000];
    for (size_t i = 0; i < sizeof big; i++) big[i] = (char)(i * 7 + i / 251);
    static const size_t sizes[] = {0, 1, FT_WIRE_CHUNK - 1, FT_WIRE_CHUNK, FT_WIRE_CHUNK + 1, sizeof big};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        struct ft_wire a, b;
        ft_wire_init(&a, FT_WIRE_AGENT);
        ft_wire_init(&b, FT_WIRE_HEAD);
        ft_wire_send_pieces(&a, ft_msg_make(FT_MSG_STACK, 1), 1, big, sizes[k]);
        move(&a, &b, 1000);
        struct ft_msg m;
        struct ft_buf all = {0};
        do {
            assert_int_equal(ft_wire_next(&b, &m), 1);
            ft_buf_add(&all, m.f[1].n ? m.f[1].p : "", m.f[1].n);
        } while (m.flags & FT_WIRE_MORE);
        assert_int_equal(all.n, sizes[k]);
        if (all.n) assert_memory_equal(all.data, big, all.n);
        assert_int_equal(ft_wire_next(&b, &m), 0);
        ft_buf_fini(&all);
        ft_wire_fini(&a);
        ft_wire_fini(&b);
    }
}

static void noise_before_the_magic(void **state)
{
    (void)state;
    struct ft_wire a, b;
    ft_wire_init(&a, FT_WIRE_AGENT);
    ft_wire_init(&b, FT_WIRE_HEAD);
    struct ft_msg m = ft_msg_make(FT_MSG_GONE, FT_WIRE_NODE), got;
    ft_wire_send(&a, &m);
    static const char motd[] = "Welcome!\n\0\0\xFF"
                               "ftwir\0";
    ft_wire_feed(&b, motd, sizeof motd - 1);
    assert_int_equal(ft_wire_next(&b, &got), 0);
    move(&a, &b, 3);
    assert_int_equal(ft_wire_next(&b, &got), 1);
    assert_int_equal(got.type, FT_MSG_GONE);
    assert_int_equal(b.noise.n, sizeof motd - 1);
    ft_wire_fini(&a);
    ft_wire_fini(&b);
}

struct bad {
    const char *name;
    size_t at; /* byte of the stream that is changed (behind the magic: 16 + …) */
    unsigned char to;
    const char *why;
};

static void bad_streams_end(void **state)
{
    (void)state;
    static const struct bad cases[] = {
        {"wire number", 12, 9, "wire number 9"},
        {"zero behind it", 14, 1, "not zero"},
        {"length", 16 + 2, 2, "a frame of 131"},
        {"type", 16 + 4, 99, "unknown message 99"},
        {"direction", 16 + 4, FT_MSG_GO, "direction"},
        {"flags", 16 + 5, 0x82, "flags"},
        {"seq", 16 + 8, 1, "number 1 where 0"},
        {"text longer than the payload", 32 + 1, 200, "has 200 bytes"},
        {"field cut", 16, 3, "is cut"},
        {"surplus", 32 + 1, 2, "behind the last field"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ft_wire a, b;
        ft_wire_init(&a, FT_WIRE_AGENT);
        ft_wire_init(&b, FT_WIRE_HEAD);
        struct ft_msg m = ft_msg_make(FT_MSG_OUT, 0), got;
        ft_msg_u(&m, 0, 1);
        ft_msg_bytes(&m, 1, "hello", 5);
        ft_wire_send(&a, &m);
        a.out.data[cases[i].at] = (char)cases[i].to;
        move(&a, &b, 1 << 20);
        int r = ft_wire_next(&b, &got);
        if (r != -1) fail_msg("%s: %d", cases[i].name, r);
        if (!strstr(b.why, cases[i].why)) fail_msg("%s: said '%s'", cases[i].name, b.why);
        ft_wire_feed(&b, "more", 4);
        assert_int_equal(ft_wire_next(&b, &got), -1); /* and stays so */
        ft_wire_fini(&a);
        ft_wire_fini(&b);
    }
}

/* Random bytes and random damage: never a crash, never a message out of nothing (sanitizers watch). */
static void random_damage(void **state)
{
    (void)state;
    unsigned seed = 20261130;
    print_message("seed %u\n", seed);
    static char text[100 * (FT_WIRE_FIELDS + 1)];
    unsigned broken = 0, fine = 0;
    for (int round = 0; round < 3000; round++) {
        enum ft_wire_end end = round % 2 ? FT_WIRE_HEAD : FT_WIRE_AGENT;
        struct ft_wire a, b;
        ft_wire_init(&a, end == FT_WIRE_HEAD ? FT_WIRE_AGENT : FT_WIRE_HEAD);
        ft_wire_init(&b, end);
        for (int k = 0; k < 5; k++) {
            const struct ft_wire_row *row;
            do {
                seed = seed * 1103515245u + 12345u;
                row = &ft_wire_rows[(seed >> 8) % ft_wire_n_rows];
            } while (row->to_head != (end == FT_WIRE_HEAD));
            struct ft_msg m = fill(row, text);
            ft_wire_send(&a, &m);
        }
        for (int k = 0; k < round % 4; k++) {
            seed = seed * 1103515245u + 12345u;
            a.out.data[(seed >> 4) % a.out.n] ^= (char)(1u << (seed >> 28 & 7));
        }
        seed = seed * 1103515245u + 12345u;
        move(&a, &b, 1 + (seed >> 8) % 700);
        struct ft_msg m;
        int r, n = 0;
        while ((r = ft_wire_next(&b, &m)) == 1) n++;
        assert_true(n <= 5);
        broken += r < 0;
        fine += n == 5;
        ft_wire_fini(&a);
        ft_wire_fini(&b);
    }
    assert_true(broken > 500);
    assert_true(fine >= 750);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_there_and_back), cmocka_unit_test(types_are_unique), cmocka_unit_test(pieces),
        cmocka_unit_test(noise_before_the_magic),   cmocka_unit_test(bad_streams_end),  cmocka_unit_test(random_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
