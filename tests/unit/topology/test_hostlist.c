/* Ranges: expanding, every refusal with its place, folding as the inverse of expanding. */
#include "topology/hostlist.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static struct ft_arena *arena;

static bool expand(const char *text, struct ft_names *names, struct ft_range_fault *f)
{
    return ft_hostlist_expand(text, strlen(text), FT_MAX_NODES, arena, names, NULL, f);
}
static const char *joined(const struct ft_names *names)
{
    struct ft_buf b = {0};
    for (size_t i = 0; i < names->n; i++) ft_buf_addf(&b, "%s%s", i ? " " : "", names->v[i]);
    char *out = ft_arena_strndup(arena, ft_buf_str(&b), b.n);
    ft_buf_fini(&b);
    return out;
}
static const char *folded(const struct ft_names *names)
{
    struct ft_buf b = {0};
    ft_hostlist_fold(names, &b);
    char *out = ft_arena_strndup(arena, ft_buf_str(&b), b.n);
    ft_buf_fini(&b);
    return out;
}

static const struct {
    const char *text, *names, *fold; /* fold NULL: as text */
} good[] = {
    {"a", "a", NULL},
    {"node[01-04]", "node01 node02 node03 node04", NULL},
    {"node[1-4]", "node1 node2 node3 node4", NULL},
    {"node[08-11]", "node08 node09 node10 node11", NULL},
    {"node[8-11]", "node8 node9 node10 node11", NULL},
    {"n[098-101]", "n098 n099 n100 n101", NULL},
    {"n[98-101]", "n98 n99 n100 n101", NULL},
    {"n[0-2]", "n0 n1 n2", NULL},
    {"n[00-02]", "n00 n01 n02", NULL},
    {"c09,c010", "c09 c010", NULL},
    {"c9,c10", "c9 c10", "c[9-10]"},
    {"c[09,010]", "c09 c010", "c09,c010"},
    {"n[1-3]-r[1-2]", "n1-r1 n1-r2 n2-r1 n2-r2 n3-r1 n3-r2", "n1-r[1-2],n2-r[1-2],n3-r[1-2]"},
    {"n[1-2]-ib0", "n1-ib0 n2-ib0", NULL},
    {"n[1-9/4]", "n1 n5 n9", "n[1,5,9]"},
    {"gpu[01-03,07] , cpu3", "gpu01 gpu02 gpu03 gpu07 cpu3", "gpu[01-03,07],cpu3"},
    {"gpu[ 01 - 03 ]", NULL, NULL},
    {"gpu[ 01-03 , 07 ]", "gpu01 gpu02 gpu03 gpu07", "gpu[01-03,07]"},
    {"[1-3]x", "1x 2x 3x", NULL},
    {"b,a,c", "b a c", NULL},
    {"n[3,1,2]", "n3 n1 n2", "n[3,1-2]"},
    {"10.1.2.[3-4]", "10.1.2.3 10.1.2.4", NULL},
    {"node_01.lab.example.com", "node_01.lab.example.com", NULL},
    {"n[08-09,10-11]", "n08 n09 n10 n11", "n[08-11]"},
    {"n[9,010]", "n9 n010", "n9,n010"},
    {"n[1-2]a[01-02]b", "n1a01b n1a02b n2a01b n2a02b", "n1a[01-02]b,n2a[01-02]b"},
};

static void test_expand(void **state)
{
    (void)state;
    int failed = 0;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct ft_names names, again;
        struct ft_range_fault f;
        bool ok = expand(good[i].text, &names, &f);
        if (!good[i].names) {
            if (!ok) continue;
            print_error("%s was taken\n", good[i].text);
            failed++;
            continue;
        }
        const char *want = good[i].fold ? good[i].fold : good[i].text;
        if (ok && !strcmp(joined(&names), good[i].names) && !strcmp(folded(&names), want) && expand(folded(&names), &again, &f) &&
            !strcmp(joined(&again), good[i].names))
            continue;
        print_error("%s: %s; folded %s\n", good[i].text, ok ? joined(&names) : f.text, ok ? folded(&names) : "-");
        failed++;
    }
    assert_int_equal(failed, 0);
}

static const struct {
    const char *text;
    size_t offset;
    const char *word, *fix;
} bad[] = {
    {"n[5-1]", 2, "5-1", NULL},
    {"n[1-", 1, "[", NULL},
    {"n[]", 1, "[]", NULL},
    {"n[1-1000000000]", 2, "65536", NULL},
    {"n[1-99999999999999999999]", 2, "99999999999999999999", NULL},
    {"n[1-3,2]", 6, "'n2'", NULL},
    {"n[01-3]", 2, "01-3", "digits"},
    {"n[001-03]", 2, "001-03", "digits"},
    {"n[1-010]", 2, "1-010", "digits"},
    {"n[1-3,]", 6, "empty", NULL},
    {"n[,1]", 2, "empty", NULL},
    {"n1,,n2", 3, "empty", NULL},
    {"n1,", 3, "empty", NULL},
    {",n1", 0, "empty", NULL},
    {"", 0, "empty", NULL},
    {"::1", 0, "'::1'", "host="},
    {"[fd00::1]:2222", 0, "address", "host="},
    {"n1,fe80::1", 3, "address", "host="},
    {"node01:22", 6, "':'", "port="},
    {"ml@node01", 2, "'@'", "user="},
    {"a@b@c", 1, "'@'", "user="},
    {"-n", 0, "'-n'", NULL},
    {"1.2.3", 0, "'1.2.3'", "host="},
    {"1.2.3.400", 0, "1.2.3.400", "host="},
    {"[1-4]", 0, "'1'", "host="},
    {"n\xc3\xb6"
     "de",
     1, "\xc3\xb6", "names"},
    {"n\xff", 1, "\\xFF", "names"},
    {"a..b", 2, "label", NULL},
    {".a", 0, "label", NULL},
    {"a-.b", 0, "label", NULL},
    {"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", 0, "63", NULL},
    {"n[1-3/0]", 5, "step", NULL},
    {"n[1-3/]", 5, "step", NULL},
    {"n[1/2]", 3, "no range", NULL},
    {"n[1-]", 2, "no range", NULL},
    {"n[-1]", 2, "no range", NULL},
    {"n[a]", 2, "no range", NULL},
    {"n[1-2-3]", 5, "no range", NULL},
    {"n]1", 1, "']'", NULL},
    {"n[[1]]", 2, "no range", NULL},
    {"n[1-300][1-300]", 9, "65536", NULL},
    {"n[1-40000],m[1-40000]", 13, "65536", NULL},
    {"node01 slots", 6, "' '", "names"},
    {"a,A", 2, "'A'", NULL},
    {"a[1-2]-b[1,1]", 0, "'a1-b1'", NULL},
};

static void test_refused(void **state)
{
    (void)state;
    int failed = 0;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ft_names names;
        struct ft_range_fault f = {0};
        bool ok = expand(bad[i].text, &names, &f);
        if (!ok && f.offset == bad[i].offset && strstr(f.text, bad[i].word) &&
            (!bad[i].fix || (f.fix && strstr(f.fix, bad[i].fix))))
            continue;
        print_error("%s: %s at %zu (%s)\n", bad[i].text, ok ? "taken" : f.text, f.offset, f.fix ? f.fix : "-");
        failed++;
    }
    assert_int_equal(failed, 0);
}

/* Random lists: folding and expanding give the same names back; a random text never breaks anything. */
static void test_inverse(void **state)
{
    (void)state;
    unsigned seed = 42;
    print_message("seed %u\n", seed);
    static const char *const stems[] = {"n", "gpu-", "a1b", "rack2.n", "x0y"};
    for (int round = 0; round < 400; round++) {
        ft_arena_destroy(arena);
        arena = ft_arena_create();
        struct ft_name_index seen = ft_name_index_make(arena);
        unsigned n = 1 + (seed = seed * 1103515245u + 12345u) / 65536 % 60, at = seed / 7 % 120;
        for (unsigned i = 0; i < n; i++) {
            seed = seed * 1103515245u + 12345u;
            at = seed / 65536 % 4 ? at + 1 : seed / 1024 % 1200;
            const char *name = ft_arena_printf(arena, "%s%0*u%s", stems[seed / 4096 % (round % 5 + 1)], (int)(seed / 8192 % 2 * 3),
                                               at, seed / 32768 % 8 ? "" : "-ib1");
            ft_name_index_add(&seen, name);
        }
        struct ft_names names = {seen.names, seen.n}, again;
        struct ft_range_fault f;
        if (!expand(folded(&names), &again, &f)) fail_msg("%s: %s", folded(&names), f.text);
        if (strcmp(joined(&names), joined(&again)) != 0) fail_msg("%s\n%s\n%s", joined(&names), folded(&names), joined(&again));
    }
    static const char letters[] = "n1-0,[]/. a9:@";
    for (int round = 0; round < 20000; round++) {
        char text[24];
        size_t n = round % (sizeof text - 1);
        for (size_t i = 0; i < n; i++) text[i] = letters[(seed = seed * 1103515245u + 12345u) / 65536 % (sizeof letters - 1)];
        text[n] = '\0';
        struct ft_names names, again;
        struct ft_range_fault f = {0};
        if (!expand(text, &names, &f)) {
            assert_true(f.offset <= n && f.text);
        } else {
            if (!expand(folded(&names), &again, &f)) fail_msg("'%s' -> '%s': %s", text, folded(&names), f.text);
            assert_string_equal(joined(&names), joined(&again));
        }
        if (round % 500 == 0) {
            ft_arena_destroy(arena);
            arena = ft_arena_create();
        }
    }
}

/* Linear, not quadratic: 65,536 names in every shape in a second or two of this process, sanitizers on. */
static void test_large(void **state)
{
    (void)state;
    struct ft_names names, again;
    struct ft_range_fault f;
    struct timespec a, b;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    assert_true(expand("n[00001-65536]", &names, &f));
    assert_int_equal(names.n, 65536);
    assert_string_equal(folded(&names), "n[00001-65536]");
    struct ft_buf odd = {0};
    ft_buf_adds(&odd, "x[1");
    for (int i = 3; i < 60000; i += 2) ft_buf_addf(&odd, ",%d", i);
    ft_buf_adds(&odd, "]");
    assert_true(expand(odd.data, &names, &f));
    assert_int_equal(names.n, 30000);
    assert_true(expand(folded(&names), &again, &f));
    assert_int_equal(again.n, 30000);
    ft_buf_fini(&odd);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    assert_true(b.tv_sec - a.tv_sec < 20);
}

static void test_address(void **state)
{
    (void)state;
    assert_true(ft_is_address("10.0.0.1"));
    assert_true(ft_is_address("::1"));
    assert_true(ft_is_address("fe80::1%eth0"));
    assert_false(ft_is_address("10.0.0"));
    assert_false(ft_is_address("fe80::1%"));
    assert_false(ft_is_address("10.0.0.1%eth0"));
    assert_false(ft_is_address("node"));
    assert_false(ft_is_address(""));
}

static int begin(void **state)
{
    (void)state;
    arena = ft_arena_create();
    return 0;
}
static int end(void **state)
{
    (void)state;
    ft_arena_destroy(arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_expand), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_inverse), cmocka_unit_test(test_large),
                                       cmocka_unit_test(test_address)};
    return cmocka_run_group_tests(tests, begin, end);
}
