/* examples/01_laptop and conversations whose ids and trained positions are known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/data/dataset.h"

static const char *const train[] = {FT_SOURCE "/examples/01_laptop/data/train.jsonl"};
static const char *const valid[] = {FT_SOURCE "/examples/01_laptop/data/valid.jsonl"};

static struct ft_data_fields fields(void)
{
    return (struct ft_data_fields){.train = {train, 1},
                                   .valid = {valid, 1},
                                   .packing = FT_PACKING_NO,
                                   .bad_records = "refuse",
                                   .template_ = "auto",
                                   .terminator = "auto"};
}

static struct ft_dataset *open_split(const struct ft_data_fields *f, enum ft_split split)
{
    const struct ft_dataset_options o = {
        .fields = f, .model_dir = FT_SOURCE "/examples/01_laptop/model", .seq_len = 256, .seed = 1};
    struct ft_arena *a = ft_arena_create();
    struct ft_faults faults = {.arena = a};
    struct ft_dataset *d = NULL;
    struct ft_err err = {0};
    const enum ft_code rc = ft_dataset_open(&o, split, &faults, &d, &err);
    for (size_t i = 0; i < faults.n; i++)
        fprintf(stderr, "%s:%d: %s\n", faults.v[i].at.file, faults.v[i].at.line, faults.v[i].text);
    ft_arena_destroy(a);
    if (rc != FT_OK) fail_msg("%s", err.text);
    return d;
}

static void one_pass(void **state)
{
    (void)state;
    const struct ft_data_fields f = fields();
    struct ft_dataset *d = open_split(&f, FT_SPLIT_TRAIN), *v = open_split(&f, FT_SPLIT_VALID);
    const struct ft_dataset_facts facts = ft_dataset_facts(d);
    assert_int_equal(facts.records, 1864);
    assert_int_equal(facts.rows, 1864);
    assert_int_equal(facts.tokens, 62752);
    assert_int_equal(facts.trained_tokens, 21931);
    assert_int_equal(facts.longest, 55);
    assert_int_equal(facts.terminator_id, 2);
    assert_string_equal(facts.terminator, "<|im_end|>");
    assert_int_equal(ft_dataset_n_rows(v), 120);
    assert_string_equal(ft_dataset_file_name(v, 0), "valid");
    int64_t tokens = 0, trained = 0;
    for (int64_t i = 0; i < ft_dataset_n_rows(d); i++) {
        const struct ft_row r = ft_dataset_row(d, i);
        tokens += r.n_tokens, trained += r.n_trained;
        assert_int_equal(r.ids[0], 1); /* <|im_start|> */
        for (int64_t k = 0; k < r.n_tokens; k++) assert_true(r.labels[k] == -100 || r.labels[k] == r.ids[k]);
        assert_int_equal(r.labels[r.n_tokens - 1], -100); /* the newline behind the terminator */
        assert_int_equal(r.labels[r.n_tokens - 2], 2);
    }
    assert_int_equal(tokens, 62752);
    assert_int_equal(trained, 21931);
    ft_dataset_close(d);
    ft_dataset_close(v);
}

static void packed_rows(void **state)
{
    (void)state;
    struct ft_data_fields f = fields();
    f.packing = FT_PACKING_YES, f.shuffle = true;
    struct ft_dataset *d = open_split(&f, FT_SPLIT_TRAIN), *v = open_split(&f, FT_SPLIT_VALID);
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        int64_t tokens = 0, trained = 0, segments = 0;
        ft_dataset_epoch(d, epoch);
        assert_int_equal(ft_dataset_rows_of(d, epoch), ft_dataset_n_rows(d));
        for (int64_t i = 0; i < ft_dataset_n_rows(d); i++) {
            const struct ft_row r = ft_dataset_row(d, i);
            assert_true(r.n_tokens <= 256);
            assert_int_equal(r.cu_seqlens[0], 0);
            assert_int_equal(r.cu_seqlens[r.n_segments], r.n_tokens);
            int64_t n = 0;
            for (int64_t k = 0; k < r.n_segments; k++) {
                assert_int_equal(r.ids[r.cu_seqlens[k]], 1);
                assert_int_equal(r.labels[r.cu_seqlens[k]], -100);
            }
            for (int64_t k = 0; k < r.n_tokens; k++) n += r.labels[k] != -100;
            assert_int_equal(n, r.n_trained);
            tokens += r.n_tokens, trained += n, segments += r.n_segments;
        }
        assert_int_equal(tokens, 62752);
        assert_int_equal(trained, 21931);
        assert_int_equal(segments, 1864);
        /* best-fit decreasing: at most 11/9 of the optimum, plus one (Johnson 1973) */
        printf("%d rows, lower bound %d\n", (int)ft_dataset_n_rows(d), (62752 + 255) / 256);
        assert_true(9 * ft_dataset_n_rows(d) <= 11 * ((62752 + 255) / 256) + 9);
    }
    assert_true(ft_dataset_n_rows(v) < 120);
    ft_dataset_close(d);
    ft_dataset_close(v);
}

static void remove_tree(const char *dir)
{
    char command[512];
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(command, sizeof command, "%s/%s", dir, e->d_name);
        if (e->d_name[0] == '.') continue;
        if (unlink(command)) remove_tree(command);
    }
    if (d) closedir(d);
    rmdir(dir);
}

static void same_rows(struct ft_dataset *a, struct ft_dataset *b)
{
    assert_int_equal(ft_dataset_n_rows(a), ft_dataset_n_rows(b));
    for (int64_t i = 0; i < ft_dataset_n_rows(a); i++) {
        const struct ft_row x = ft_dataset_row(a, i), y = ft_dataset_row(b, i);
        assert_int_equal(x.n_tokens, y.n_tokens);
        assert_int_equal(x.n_segments, y.n_segments);
        assert_int_equal(x.n_trained, y.n_trained);
        assert_memory_equal(x.ids, y.ids, (size_t)x.n_tokens * sizeof *x.ids);
        assert_memory_equal(x.labels, y.labels, (size_t)x.n_tokens * sizeof *x.labels);
        assert_memory_equal(x.cu_seqlens, y.cu_seqlens, (size_t)(x.n_segments + 1) * sizeof *x.cu_seqlens);
    }
    const struct ft_dataset_facts f = ft_dataset_facts(a), g = ft_dataset_facts(b);
    assert_true(f.fingerprint_hi == g.fingerprint_hi && f.fingerprint_lo == g.fingerprint_lo);
    assert_int_equal(f.trained_tokens, g.trained_tokens);
    assert_int_equal(ft_dataset_n_notes(a), ft_dataset_n_notes(b));
}

/* Prepared data give the same rows: when they are made, when they are read again, from two processes at once. */
static void prepared_rows(void **state)
{
    (void)state;
    char dir[] = "/tmp/ft-cache-XXXXXX";
    assert_non_null(mkdtemp(dir));
    for (int packing = FT_PACKING_YES; packing <= FT_PACKING_NO; packing++) {
        struct ft_data_fields f = fields();
        f.packing = packing, f.shuffle = true;
        struct ft_dataset *memory = open_split(&f, FT_SPLIT_TRAIN);
        f.cache = dir;
        for (int again = 0; again < 2; again++) {
            struct ft_dataset *d = open_split(&f, FT_SPLIT_TRAIN);
            if (!again) same_rows(memory, d); /* both in file order */
            ft_dataset_epoch(memory, again);
            ft_dataset_epoch(d, again);
            same_rows(memory, d);
            ft_dataset_close(d);
        }
        ft_dataset_close(memory);
    }
    remove_tree(dir);
    pid_t child[3];
    for (int i = 0; i < 3; i++) {
        child[i] = fork();
        if (child[i]) continue;
        struct ft_data_fields f = fields();
        f.cache = dir;
        struct ft_dataset *d = open_split(&f, FT_SPLIT_TRAIN);
        const bool good = ft_dataset_facts(d).trained_tokens == 21931 && ft_dataset_row(d, 7).n_trained > 0;
        ft_dataset_close(d);
        _exit(good ? 0 : 1);
    }
    for (int i = 0; i < 3; i++) {
        int status = -1;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_int_equal(status, 0);
    }
    remove_tree(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_pass), cmocka_unit_test(packed_rows), cmocka_unit_test(prepared_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
