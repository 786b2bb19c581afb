#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <zlib.h>

#include "runtime/data/dataset.h"
#include "runtime/data/order.h"
#include "runtime/data/report.h"

struct set {
    char path[64];
    const char *paths[1];
    struct ft_data_fields f;
    struct ft_dataset_options o;
    struct ft_arena *arena;
    struct ft_faults faults;
    struct ft_dataset *d;
    struct ft_err err;
    enum ft_code rc;
};

/* Opens text (n bytes) as the training file of a set with format = tokens. */
static void begin(struct set *s, const char *text, size_t n)
{
    memset(s, 0, sizeof *s);
    snprintf(s->path, sizeof s->path, "%s", "/tmp/ft-data-XXXXXX.jsonl");
    const int fd = mkstemps(s->path, 6);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, n), n);
    close(fd);
    s->paths[0] = s->path;
    s->f.train = (struct ft_list){s->paths, 1};
    s->f.format = FT_FORMAT_TOKENS, s->f.packing = FT_PACKING_NO, s->f.dedupe = FT_DEDUPE_NO, s->f.bad_records = "refuse";
    s->o = (struct ft_dataset_options){.fields = &s->f, .vocab_rows = 100, .seq_len = 8, .seed = 1};
    s->arena = ft_arena_create();
    s->faults.arena = s->arena;
}
static void run(struct set *s) { s->rc = ft_dataset_open(&s->o, FT_SPLIT_TRAIN, &s->faults, &s->d, &s->err); }
static void end(struct set *s)
{
    ft_dataset_close(s->d);
    ft_arena_destroy(s->arena);
    unlink(s->path);
}

static void reads_rows(void **state)
{
    (void)state;
    static const char text[] = "\xef\xbb\xbf{\"input_ids\":[1,2,3],\"labels\":[1,-100,3]}\r\n\n"
                               "{\"input_ids\":[5,6,7,2,2],\"labels\":[-100,-100,7,2,-100],\"attention_mask\":[1,1,1,1,0],\"id\":"
                               "123456789012345678901234}\n"
                               "{\"input_ids\":[1,2,3,4,5,6,7,8,9],\"labels\":[1,2,3,4,5,6,7,8,9]}\n"
                               "{\"input_ids\":[9],\"labels\":[9]}";
    struct set s;
    begin(&s, text, sizeof text - 1);
    run(&s);
    assert_int_equal(s.rc, FT_OK);
    assert_int_equal(ft_dataset_n_rows(s.d), 3);
    const struct ft_row a = ft_dataset_row(s.d, 0), b = ft_dataset_row(s.d, 1), c = ft_dataset_row(s.d, 2);
    assert_int_equal(a.n_tokens, 3);
    assert_int_equal(a.n_segments, 1);
    assert_int_equal(a.cu_seqlens[1], 3);
    assert_int_equal(a.labels[0], -100); /* the first token of a sample is never a target */
    assert_int_equal(a.labels[1], -100);
    assert_int_equal(a.labels[2], 3);
    assert_int_equal(a.n_trained, 1);
    assert_int_equal(b.n_tokens, 4); /* padding is known by the mask, not by id 2 */
    assert_int_equal(b.labels[3], 2);
    assert_int_equal(b.n_trained, 2);
    assert_int_equal(c.n_trained, 0);
    const struct ft_dataset_facts f = ft_dataset_facts(s.d);
    assert_int_equal(f.records, 4);
    assert_int_equal(f.overlong, 1);
    assert_int_equal(f.blank, 1);
    assert_int_equal(f.tokens, 8);
    assert_int_equal(f.trained_tokens, 3);
    assert_int_equal(f.untrained, 1);
    assert_int_equal(ft_dataset_n_notes(s.d), 2); /* the untrained one, the overlong one */
    end(&s);
}

struct fault_case {
    const char *line, *expect;
};

static void names_every_fault(void **state)
{
    (void)state;
    static const struct fault_case cases[] = {
        {"{\"input_ids\":[1,2,100],\"labels\":[1,2,3]}", "1:19: bad-id: input_ids[2] is 100, the model has ids 0 to 99"},
        {"{\"input_ids\":[1,2],\"labels\":[1,-1]}", "1:32: bad-id: labels[1] is -1, the model has ids 0 to 99"},
        {"{\"input_ids\":[1,2],\"labels\":[1]}", "1:29: ids-labels-length: labels has 1 elements, input_ids has 2"},
        {"{\"labels\":[1]}", "1:1: missing-field: no field input_ids"},
        {"{\"input_ids\":[1,2]}", "1:1: missing-field: no field labels (set train_on = all to train on every token)"},
        {"{\"input_ids\":\"x\",\"labels\":[1]}", "1:14: wrong-type: input_ids must be an array of integers, this is a string"},
        {"{\"input_ids\":[1.5],\"labels\":[1]}", "1:15: wrong-type: input_ids[0] must be an integer, this is a real number"},
        {"{\"input_ids\":[],\"labels\":[]}", "1:14: wrong-type: input_ids is empty"},
        {"{\"input_ids\":[1,2,3],\"labels\":[1,2,3],\"attention_mask\":[1,0,1]}",
         "1:56: wrong-type: attention_mask has a 0 between ones: only padding at an end is understood"},
        {"[1]", "1:1: not-object: a record is a JSON object, this is an integer"},
        {"\"x\"", "1:1: not-object: a record is a JSON object, this is a string"},
        {"{\"a\":1} x", "1:9: json: "},
        {"{\"a\":1,}", "json: "},
        {"{\"a\":NaN}", "json: "},
        {"{\"a\":1,\"a\":2}", "duplicate-key: "},
        {"{\"a\":\"\\ud800\"}", "utf8: "},
        {"{\"a\":\"\\u0000\"}", "utf8: "},
        {"{\"\xc3\xa4\":\"\xff\"}", "1:7: utf8: byte FF is not valid UTF-8 here"},
        {"{\"a\":\"\x01\"}", "utf8: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct set s;
        begin(&s, cases[i].line, strlen(cases[i].line));
        run(&s);
        assert_int_equal(s.rc, FT_DATA);
        assert_null(s.d);
        {
            char *text = NULL;
            size_t n;
            FILE *out = open_memstream(&text, &n);
            ft_report_print(out, &s.faults);
            fclose(out);
            if (!strstr(text, cases[i].expect)) fail_msg("%s\n gave %s instead of %s", cases[i].line, text, cases[i].expect);
            free(text);
        }
        end(&s);
    }
}

static void counts_all_prints_some(void **state)
{
    (void)state;
    struct ft_buf text = {0};
    struct set s;
    for (int i = 0; i < 50; i++) ft_buf_adds(&text, i % 2 ? "{}\n" : "{\"input_ids\":[1,2],\"labels\":[1,2]}\n");
    begin(&s, text.data, text.n);
    run(&s);
    assert_int_equal(s.rc, FT_DATA);
    assert_int_equal(s.faults.n, 20);
    assert_int_equal(s.faults.v[19].at.line, 40);
    assert_non_null(strstr(s.err.text, "25 faulty records (missing-field 25)"));
    ft_arena_destroy(s.arena);
    s.arena = ft_arena_create();
    s.faults = (struct ft_faults){.arena = s.arena};
    s.f.bad_records = "skip:25";
    run(&s);
    assert_int_equal(s.rc, FT_OK);
    assert_int_equal(ft_dataset_facts(s.d).faulty, 25);
    assert_int_equal(ft_dataset_n_rows(s.d), 25);
    ft_dataset_close(s.d);
    s.d = NULL;
    s.f.bad_records = "skip:24";
    run(&s);
    assert_int_equal(s.rc, FT_DATA);
    ft_buf_fini(&text);
    end(&s);
}

/* 20 + 5, 10 + 10 and 4 + 4 tokens at seq_len 16. */
static void too_long(void **state)
{
    (void)state;
    static const int shape[3][2] = {{20, 5}, {10, 10}, {4, 4}};
    struct ft_buf text = {0};
    for (int i = 0; i < 3; i++) {
        const int n = shape[i][0] + shape[i][1];
        ft_buf_adds(&text, "{\"input_ids\":[");
        for (int k = 0; k < n; k++) ft_buf_addf(&text, "%s%d", k ? "," : "", k);
        ft_buf_adds(&text, "],\"labels\":[");
        for (int k = 0; k < n; k++) ft_buf_addf(&text, "%s%d", k ? "," : "", k < shape[i][0] ? -100 : k);
        ft_buf_adds(&text, "]}\n");
    }
    for (int policy = 0; policy < 3; policy++) {
        struct set s;
        begin(&s, text.data, text.n);
        s.f.overlong = policy, s.o.seq_len = 16;
        run(&s);
        if (policy == FT_OVERLONG_REFUSE) {
            assert_int_equal(s.rc, FT_DATA);
            assert_int_equal(s.faults.n, 2);
        } else {
            assert_int_equal(s.rc, FT_OK);
            assert_int_equal(ft_dataset_n_rows(s.d), policy == FT_OVERLONG_DROP ? 1 : 2);
            if (policy == FT_OVERLONG_TRUNCATE) assert_int_equal(ft_dataset_row(s.d, 0).n_trained, 6);
        }
        end(&s);
    }
    struct set s;
    begin(&s, text.data, text.n);
    s.o.seq_len = 4;
    run(&s);
    assert_int_equal(s.rc, FT_DATA);
    assert_non_null(strstr(s.err.text, "all 3 records"));
    end(&s);
    ft_buf_fini(&text);
}

static void drops_repeats_and_cuts_a_share(void **state)
{
    (void)state;
    struct ft_buf text = {0};
    struct set s;
    for (int i = 0; i < 400; i++) ft_buf_addf(&text, "{\"input_ids\":[1,%d,%d],\"labels\":[1,2,3]}\n", i % 20, i % 100 / 20);
    begin(&s, text.data, text.n);
    s.f.dedupe = FT_DEDUPE_EXACT;
    run(&s);
    assert_int_equal(s.rc, FT_OK);
    assert_int_equal(ft_dataset_n_rows(s.d), 100);
    assert_int_equal(ft_dataset_facts(s.d).duplicates, 300);
    ft_dataset_close(s.d);
    s.d = NULL;
    const char *share[1] = {"25%"};
    struct ft_dataset *valid = NULL;
    s.f.valid = (struct ft_list){share, 1};
    run(&s);
    assert_int_equal(s.rc, FT_OK);
    assert_int_equal(ft_dataset_open(&s.o, FT_SPLIT_VALID, &s.faults, &valid, &s.err), FT_OK);
    assert_int_equal(ft_dataset_n_rows(valid) + ft_dataset_n_rows(s.d), 100);
    assert_in_range(ft_dataset_n_rows(valid), 10, 40);
    ft_dataset_close(valid);
    ft_buf_fini(&text);
    end(&s);
}

static void order_is_a_keyed_permutation(void **state)
{
    (void)state;
    int64_t p[97], q[97], seen[97] = {0};
    ft_epoch_order(42, 3, true, 97, p);
    ft_epoch_order(42, 4, true, 97, q);
    assert_memory_not_equal(p, q, sizeof p);
    for (int i = 0; i < 97; i++) seen[p[i]]++;
    for (int i = 0; i < 97; i++) assert_int_equal(seen[i], 1);
    ft_epoch_order(42, 3, true, 97, q);
    assert_memory_equal(p, q, sizeof p);
    ft_epoch_order(42, 3, false, 97, p);
    for (int i = 0; i < 97; i++) assert_int_equal(p[i], i);
}

static void other_files_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"[data]\ntrain = x\n", "---\na: 1\n", "\x28\xb5\x2f\xfd", "ab\0cd"};
    static const size_t n[] = {17, 10, 4, 5};
    for (size_t i = 0; i < 4; i++) {
        struct set s;
        begin(&s, texts[i], n[i]);
        run(&s);
        assert_int_equal(s.rc, FT_DATA);
        assert_non_null(strstr(s.err.text, "is no JSONL file"));
        end(&s);
    }
}

#define ROW(x) "{\"input_ids\":[1," x "],\"labels\":[1,2]}"

/* One JSON array: elements over several lines, and every way in which it can be broken. */
static void one_array(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int rows;          /* -1: faulty */
        const char *fault; /* "LINE: KIND" */
    } cases[] = {
        {"[" ROW("2") "," ROW("3") "]", 2, NULL},
        {"\xef\xbb\xbf [\n  " ROW("2") ",\n  {\n\"input_ids\" : [1,\n3], \"labels\":[1,2],\"x\":\"]},{\\\"\"}\n]\n", 2, NULL},
        {"[" ROW("2") "\n,\n{\"input_ids\":[1,999],\"labels\":[1,2]}\n]", -1, "3: bad-id"},
        {"[" ROW("2") "\n" ROW("3") "]", -1, "2: json"},
        {"[" ROW("2") ",\n]", -1, "2: json"},
        {"[" ROW("2"), -1, "1: json"},
        {"[" ROW("2") "]\nmore", -1, "2: json"},
        {"[" ROW("2") ",\n{\"input_ids\":[1", -1, "2: json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct set s;
        begin(&s, cases[i].text, strlen(cases[i].text));
        run(&s);
        if (cases[i].rows >= 0) {
            if (s.rc != FT_OK) fail_msg("%s: %s", cases[i].text, s.faults.n ? s.faults.v[0].text : s.err.text);
            assert_int_equal(ft_dataset_n_rows(s.d), cases[i].rows);
        } else {
            char got[160];
            assert_int_equal(s.rc, FT_DATA);
            assert_true(s.faults.n > 0);
            snprintf(got, sizeof got, "%d: %s", s.faults.v[0].at.line, s.faults.v[0].text);
            if (strncmp(got, cases[i].fault, strlen(cases[i].fault)) != 0)
                fail_msg("%s: %s instead of %s", cases[i].text, got, cases[i].fault);
        }
        end(&s);
    }
}

static void gzip_file(void **state)
{
    (void)state;
    for (int cut = 0; cut < 2; cut++) {
        struct set s;
        begin(&s, "", 0);
        gzFile f = gzopen(s.path, "wb");
        assert_non_null(f);
        for (int i = 0; i < 3000; i++)
            assert_true(gzprintf(f, "{\"input_ids\":[1,%d],\"labels\":[1,%d]}\n", i * 7919 % 97, i * 31 % 89) > 0);
        gzclose(f);
        struct stat st;
        assert_int_equal(stat(s.path, &st), 0);
        if (cut) assert_int_equal(truncate(s.path, st.st_size / 2), 0);
        run(&s);
        assert_int_equal(s.rc, cut ? FT_DATA : FT_OK);
        if (cut) assert_non_null(strstr(s.err.text, "it is cut short"));
        else assert_int_equal(ft_dataset_n_rows(s.d), 3000);
        end(&s);
    }
}

/* Two files, weights 2 and 0.5: a pass has the first twice and half of the second. */
static void weighted_files(void **state)
{
    (void)state;
    struct ft_buf text = {0};
    struct set s;
    char other[] = "/tmp/ft-data-XXXXXX";
    for (int i = 0; i < 10; i++) ft_buf_addf(&text, "{\"input_ids\":[1,%d,3],\"labels\":[1,2,3]}\n", i);
    begin(&s, text.data, text.n);
    ft_buf_clear(&text);
    for (int i = 0; i < 8; i++) ft_buf_addf(&text, "{\"input_ids\":[2,%d],\"labels\":[1,2]}\n", i);
    const int fd = mkstemp(other);
    assert_int_equal(write(fd, text.data, text.n), text.n);
    close(fd);
    const char *paths[2] = {s.path, other}, *weights[2] = {"2", "0.5"};
    s.f.train = (struct ft_list){paths, 2}, s.f.weights = (struct ft_list){weights, 2};
    s.f.shuffle = true;
    run(&s);
    assert_int_equal(s.rc, FT_OK);
    int seen[2][2][10] = {{{0}}};
    for (int epoch = 0; epoch < 2; epoch++) {
        ft_dataset_epoch(s.d, epoch);
        assert_int_equal(ft_dataset_n_rows(s.d), 24);
        assert_int_equal(ft_dataset_rows_of(s.d, epoch), 24);
        for (int64_t i = 0; i < 24; i++) {
            const struct ft_row r = ft_dataset_row(s.d, i);
            seen[epoch][ft_dataset_row_file(s.d, i)][r.ids[1]]++;
        }
        int second = 0;
        for (int i = 0; i < 10; i++) assert_int_equal(seen[epoch][0][i], 2);
        for (int i = 0; i < 8; i++) assert_in_range(seen[epoch][1][i], 0, 1), second += seen[epoch][1][i];
        assert_int_equal(second, 4);
    }
    s.f.weights.n = 1;
    ft_dataset_close(s.d);
    s.d = NULL;
    run(&s);
    assert_int_equal(s.rc, FT_CONFIG);
    s.f.weights.n = 0, s.f.packing = FT_PACKING_SPLIT;
    run(&s);
    assert_int_equal(s.rc, FT_CONFIG);
    assert_non_null(strstr(s.err.text, "only format = text"));
    unlink(other);
    ft_buf_fini(&text);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_rows),
        cmocka_unit_test(weighted_files),
        cmocka_unit_test(one_array),
        cmocka_unit_test(gzip_file),
        cmocka_unit_test(names_every_fault),
        cmocka_unit_test(counts_all_prints_some),
        cmocka_unit_test(too_long),
        cmocka_unit_test(drops_repeats_and_cuts_a_share),
        cmocka_unit_test(order_is_a_keyed_permutation),
        cmocka_unit_test(other_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
