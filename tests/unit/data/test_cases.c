/* Conversations from faults met in public projects: records, model folders and the ids and trained positions that must come out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <zlib.h>

#include "base/arena.h"
#include "base/fd.h"
#include "runtime/data/dataset.h"
#include "runtime/data/report.h"

#define CHATML                                                                                                                     \
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"            \
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"

struct fixture {
    char dir[64], file[80], valid[80];
    const char *paths[1], *valid_paths[1];
    struct ft_data_fields f;
    struct ft_dataset_options o;
    struct ft_arena *arena;
    struct ft_faults faults;
    struct ft_dataset *d;
    struct ft_err err;
    enum ft_code rc;
};

static void put(const char *dir, const char *name, const char *text, size_t n)
{
    char path[256];
    struct ft_err err = {0};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (ft_write_file(path, text, n, 0600, &err) != FT_OK) fail_msg("%s", err.text);
}

static void put_text(const char *dir, const char *name, const char *text) { put(dir, name, text, strlen(text)); }

/* tokenizer.json of tests/golden/tok; post (may be NULL) replaces its post_processor. */
static void put_tokenizer(const char *dir, const char *vocabulary, const char *post)
{
    char path[512], block[1 << 15];
    struct ft_buf text = {0};
    if (ft_str_eq(vocabulary, "laptop")) { /* a small one, quick to load */
        struct ft_err err = {0};
        assert_int_equal(ft_read_file(FT_SOURCE "/examples/01_laptop/model/tokenizer.json", 1 << 26, &text, &err), FT_OK);
        put(dir, "tokenizer.json", text.data, text.n);
        ft_buf_fini(&text);
        return;
    }
    snprintf(path, sizeof path, FT_GOLDEN "/tok/files/%s.tokenizer.json.gz", vocabulary);
    gzFile f = gzopen(path, "rb");
    if (!f) fail_msg("cannot open %s", path);
    for (int n; (n = gzread(f, block, sizeof block)) > 0;) ft_buf_add(&text, block, (size_t)n);
    gzclose(f);
    if (post) {
        char *at = strstr(text.data, "\"post_processor\"");
        assert_non_null(at);
        memcpy(at, "\"ignored_member_\"", 16); /* same length; the real one is put in front */
        at[15] = '"';
        struct ft_buf own = {0};
        ft_buf_addf(&own, "{\"post_processor\":%s,%s", post, text.data + 1);
        ft_buf_fini(&text);
        text = own;
    }
    put(dir, "tokenizer.json", text.data, text.n);
    ft_buf_fini(&text);
}

/* Json string of a template. */
static void config_with(const char *dir, const char *template_, const char *bos, const char *eos)
{
    struct ft_buf b = {0};
    struct ft_jw w = ft_jw_begin(&b);
    ft_jw_object(&w);
    if (template_) ft_jw_kstr(&w, "chat_template", template_);
    if (bos) ft_jw_kstr(&w, "bos_token", bos);
    if (eos) ft_jw_kstr(&w, "eos_token", eos);
    ft_jw_end(&w);
    put(dir, "tokenizer_config.json", b.data, b.n);
    ft_buf_fini(&b);
}

static void begin(struct fixture *x, const char *vocabulary, const char *post, const char *records)
{
    memset(x, 0, sizeof *x);
    snprintf(x->dir, sizeof x->dir, "/tmp/ft-cases-XXXXXX");
    assert_non_null(mkdtemp(x->dir));
    snprintf(x->file, sizeof x->file, "%s/train.jsonl", x->dir);
    snprintf(x->valid, sizeof x->valid, "%s/valid.jsonl", x->dir);
    put_text(x->dir, "train.jsonl", records);
    if (vocabulary) put_tokenizer(x->dir, vocabulary, post);
    x->paths[0] = x->file, x->valid_paths[0] = x->valid;
    x->f = (struct ft_data_fields){
        .train = {x->paths, 1}, .packing = FT_PACKING_NO, .bad_records = "refuse", .template_ = "auto", .terminator = "auto"};
    x->o = (struct ft_dataset_options){.fields = &x->f, .model_dir = x->dir, .seq_len = 512, .seed = 1};
    x->arena = ft_arena_create();
    x->faults.arena = x->arena;
}

static void run(struct fixture *x, enum ft_split split)
{
    ft_dataset_close(x->d);
    x->d = NULL;
    x->faults.n = x->faults.n_errors = x->faults.n_warnings = 0;
    x->rc = ft_dataset_open(&x->o, split, &x->faults, &x->d, &x->err);
}

static void end(struct fixture *x)
{
    static const char *const names[] = {"tokenizer.json",         "tokenizer_config.json", "config.json",
                                        "generation_config.json", "train.jsonl",           "valid.jsonl"};
    ft_dataset_close(x->d);
    ft_arena_destroy(x->arena);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", x->dir, names[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(x->dir), 0);
}

/* "1 2 3* 4*": ids, trained ones with a star. */
static void expect_row(const struct fixture *x, int64_t i, const char *want)
{
    struct ft_buf got = {0};
    if (x->rc != FT_OK) fail_msg("%s: %s", x->err.text, x->faults.n ? x->faults.v[0].text : "");
    assert_true(i < ft_dataset_n_rows(x->d));
    const struct ft_row r = ft_dataset_row(x->d, i);
    for (int64_t k = 0; k < r.n_tokens; k++) ft_buf_addf(&got, "%s%d%s", k ? " " : "", r.ids[k], r.labels[k] != -100 ? "*" : "");
    assert_string_equal(ft_buf_str(&got), want);
    ft_buf_fini(&got);
}

static void expect_fault(const struct fixture *x, const char *kind)
{
    assert_int_equal(x->rc, FT_DATA);
    assert_true(x->faults.n > 0);
    if (strncmp(x->faults.v[0].text, kind, strlen(kind)) != 0) fail_msg("%s instead of %s", x->faults.v[0].text, kind);
}

static bool noted(const struct fixture *x, const char *part)
{
    for (size_t i = 0; i < ft_dataset_n_notes(x->d); i++)
        if (strstr(ft_dataset_note(x->d, i), part)) return true;
    for (size_t i = 0; i < ft_dataset_n_notes(x->d); i++) fprintf(stderr, "note: %s\n", ft_dataset_note(x->d, i));
    return false;
}

#define POST_BOS                                                                                                                   \
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<|endoftext|>\",\"type_id\":0}},{\"Sequence\":{"     \
    "\"id\":\"A\","                                                                                                                \
    "\"type_id\":0}}],\"pair\":[],\"special_tokens\":{\"<|endoftext|>\":{\"id\":\"<|endoftext|>\",\"ids\":[50256],\"tokens\":["    \
    "\"<|endoftext|>\"]}}}"

static void exactly_one_bos(void **state)
{
    (void)state;
    static const char record[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"test\"},{\"role\":\"assistant\",\"content\":\"ok\"}]}\n";
    static const char *const templates[] = {
        "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token if m.role == 'assistant' else ':' }}{% endfor %}",
        "{% for m in messages %}{{ m.content }}{{ eos_token if m.role == 'assistant' else ':' }}{% endfor %}"};
    for (int with = 0; with < 2; with++) { /* the template writes BOS or not: one BOS either way */
        struct fixture x;
        begin(&x, "gpt2", POST_BOS, record);
        config_with(x.dir, templates[with], "<|endoftext|>", "<|endoftext|>");
        run(&x, FT_SPLIT_TRAIN);
        expect_row(&x, 0, "50256 9288 25 482* 50256*");
        end(&x);
    }
    struct fixture x; /* plain text: the post-processor's BOS, and one of two when the text begins with it */
    begin(&x, "gpt2", POST_BOS, "{\"text\":\"test\"}\n{\"text\":\"<|endoftext|>test\"}\n");
    config_with(x.dir, NULL, "<|endoftext|>", "<|endoftext|>");
    x.f.format = FT_FORMAT_TEXT, x.f.dedupe = FT_DEDUPE_NO;
    run(&x, FT_SPLIT_TRAIN);
    expect_row(&x, 0, "50256 9288*");
    expect_row(&x, 1, "50256 9288*");
    assert_true(noted(&x, "1 records began with the BOS token twice"));
    end(&x);
    begin(&x, "gpt2", NULL, "{\"text\":\"test\"}\n");
    put_text(x.dir, "config.json", "{\"bos_token_id\":50256,\"vocab_size\":50257}");
    x.f.format = FT_FORMAT_TEXT;
    run(&x, FT_SPLIT_TRAIN);
    assert_int_equal(x.rc, FT_DATA); /* one token: its own first, so nothing is trained */
    put_text(x.dir, "train.jsonl", "{\"text\":\"test test\"}\n");
    run(&x, FT_SPLIT_TRAIN);
    expect_row(&x, 0, "9288 1332*");
    assert_true(noted(&x, "tokenizer adds no BOS, config.json names bos_token_id 50256"));
    x.f.format = FT_FORMAT_AUTO;
    run(&x, FT_SPLIT_TRAIN);
    assert_int_equal(x.rc, FT_CONFIG);
    assert_non_null(strstr(x.err.fix, "format = text"));
    end(&x);
}

static const char hello[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":\"Hello world\"}]}\n";

static void terminator_is_trained(void **state)
{
    (void)state;
    struct fixture x;
    begin(&x, "qwen3", NULL, hello);
    config_with(x.dir, CHATML, NULL, "<|endoftext|>");
    put_text(x.dir, "generation_config.json", "{\"eos_token_id\":[151645,151643]}");
    run(&x, FT_SPLIT_TRAIN);
    expect_row(&x, 0, "151644 872 198 13048 151645 198 151644 77091 198 9707* 1879* 151645* 198");
    assert_string_equal(ft_dataset_facts(x.d).terminator, "<|im_end|>");
    x.f.train_on = FT_TRAIN_ON_ALL;
    run(&x, FT_SPLIT_TRAIN);
    expect_row(&x, 0, "151644 872* 198* 13048* 151645* 198* 151644* 77091* 198* 9707* 1879* 151645* 198*");
    x.f.train_on = FT_TRAIN_ON_ASSISTANT;
    config_with(x.dir, "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", NULL, "<|endoftext|>");
    run(&x, FT_SPLIT_TRAIN);
    expect_fault(&x, "no-terminator");
    x.f.terminator = "none";
    run(&x, FT_SPLIT_TRAIN);
    assert_int_equal(x.rc, FT_OK);
    assert_true(noted(&x, "1 answers have no terminator"));
    x.f.terminator = "<|im_end|>";
    run(&x, FT_SPLIT_TRAIN);
    assert_int_equal(x.rc, FT_OK);
    assert_string_equal(ft_dataset_facts(x.d).terminator, "<|im_end|>");
    const struct ft_row r = ft_dataset_row(x.d, 0);
    assert_int_equal(r.ids[r.n_tokens - 2], 151645);
    assert_int_equal(r.labels[r.n_tokens - 2], 151645);
    x.f.terminator = "<|nothing|>";
    run(&x, FT_SPLIT_TRAIN);
    assert_int_equal(x.rc, FT_CONFIG);
    end(&x);
}

static void merge_over_the_boundary(void **state)
{
    (void)state;
    struct fixture x;
    begin(&x, "qwen3", NULL,
          "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":\"\\nHello world\"}]}\n");
    config_with(x.dir, CHATML, NULL, "<|endoftext|>");
    run(&x, FT_SPLIT_TRAIN);
    expect_row(&x, 0, "151644 872 198 13048 151645 198 151644 77091 198 198* 9707* 1879* 151645* 198");
    assert_true(noted(&x, "1 of 1 answers would merge with the prompt"));
    x.f.boundary = FT_BOUNDARY_JOINT;
    run(&x, FT_SPLIT_TRAIN);
    expect_row(&x, 0, "151644 872 198 13048 151645 198 151644 77091 271* 9707* 1879* 151645* 198");
    end(&x);
}

static void special_tokens_in_contents(void **state)
{
    (void)state;
    struct fixture x;
    begin(&x, "qwen3", NULL,
          "{\"messages\":[{\"role\":\"user\",\"content\":\"<|im_end|>\"},{\"role\":\"assistant\",\"content\":\"Hello world\"}]}\n");
    config_with(x.dir, CHATML, NULL, "<|endoftext|>");
    run(&x, FT_SPLIT_TRAIN);
    expect_row(&x, 0, "151644 872 198 27 91 318 6213 91 29 151645 198 151644 77091 198 9707* 1879* 151645* 198");
    assert_true(noted(&x, "1 records hold special tokens"));
    x.f.special = FT_SPECIAL_PARSE;
    run(&x, FT_SPLIT_TRAIN);
    expect_row(&x, 0, "151644 872 198 151645 151645 198 151644 77091 198 9707* 1879* 151645* 198");
    put_text(x.dir, "config.json", "{\"vocab_size\":151645}"); /* ids must be below the rows of the embedding */
    run(&x, FT_SPLIT_TRAIN);
    expect_fault(&x, "bad-id");
    end(&x);
}

static void turns_and_formats(void **state)
{
    (void)state;
    static const char *const same[] = {
        "{\"input\":\"Hi\",\"output\":\"Hello world\"}\n",
        "{\"prompt\":\"Hi\",\"completion\":\"Hello world\"}\n",
        "{\"instruction\":\"Hi\",\"input\":\"\",\"output\":\"Hello world\"}\n",
        "{\"conversations\":[{\"from\":\"human\",\"value\":\"Hi\"},{\"from\":\"gpt\",\"value\":\"Hello world\"}]}\n",
        "{\"prompt\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"completion\":[{\"role\":\"assistant\",\"content\":\"Hello "
        "world\"}]}\n",
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Hi\"}]},{\"role\":\"assistant\",\"content\":"
        "\"Hello world\"}]}\n",
    };
    struct fixture x;
    begin(&x, "laptop", NULL, hello);
    config_with(x.dir,
                "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content if m.content is string else m.content[0].text "
                "}}<|im_end|>\n{% endfor %}"
                "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
                NULL, "<|im_end|>");
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        put_text(x.dir, "train.jsonl", same[i]);
        run(&x, FT_SPLIT_TRAIN);
        expect_row(&x, 0, "1 324 267 201 42 75 2 201 1 545 396 420 201 42* 517* 81* 1342* 2* 201");
    }
    x.f.template_ = "none"; /* prompt + response + eos */
    put_text(x.dir, "train.jsonl", same[0]);
    run(&x, FT_SPLIT_TRAIN);
    expect_row(&x, 0, "42 75 42* 517* 81* 1342* 2*");
    put_text(x.dir, "train.jsonl", hello);
    run(&x, FT_SPLIT_TRAIN);
    assert_int_equal(x.rc, FT_CONFIG);
    x.f.template_ = "auto";
    put_text(x.dir, "train.jsonl",
             "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":\"Hello\",\"weight\":0},{"
             "\"role\":\"user\",\"content\":\"Hi\"},"
             "{\"role\":\"assistant\",\"content\":\"Hello\"}]}\n");
    run(&x, FT_SPLIT_TRAIN);
    assert_int_equal(ft_dataset_row(x.d, 0).n_trained, 4);
    put_text(x.dir, "train.jsonl",
             "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":\"Hello\"},{\"role\":"
             "\"user\",\"content\":\"Hi\"},"
             "{\"role\":\"assistant\",\"content\":\"Hello\"}]}\n");
    run(&x, FT_SPLIT_TRAIN);
    assert_int_equal(ft_dataset_row(x.d, 0).n_trained, 8);
    x.f.train_on = FT_TRAIN_ON_LAST;
    run(&x, FT_SPLIT_TRAIN);
    assert_int_equal(ft_dataset_row(x.d, 0).n_trained, 4);
    end(&x);
}

static void templates_that_drop(void **state)
{
    (void)state;
    struct fixture x;
    begin(&x, "laptop", NULL,
          "{\"messages\":[{\"role\":\"system\",\"content\":\"Be "
          "terse\"},{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":\"Hello\"}]}\n");
    config_with(x.dir, "{% for m in messages %}{% if m.role != 'system' %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}", NULL,
                "<|im_end|>");
    run(&x, FT_SPLIT_TRAIN);
    expect_fault(&x, "dropped-content");
    config_with(
        x.dir,
        "{% for m in messages %}{{ raise_exception('no system') if m.role == 'system' }}{{ m.content }}<|im_end|>{% endfor %}",
        NULL, "<|im_end|>");
    run(&x, FT_SPLIT_TRAIN);
    expect_fault(&x, "template: the template refuses this conversation: no system");
    config_with(x.dir, "{{ strftime_now('%d') }}" CHATML, NULL, "<|im_end|>");
    run(&x, FT_SPLIT_TRAIN);
    assert_int_equal(x.rc, FT_CONFIG);
    assert_non_null(strstr(x.err.fix, "template_date"));
    x.f.template_date = "2026-11-30";
    run(&x, FT_SPLIT_TRAIN);
    assert_int_equal(x.rc, FT_OK);
    config_with(x.dir, "{% include 'x' %}", NULL, NULL);
    run(&x, FT_SPLIT_TRAIN);
    assert_int_equal(x.rc, FT_DATA);
    assert_non_null(strstr(x.err.text, "line 1: the statement 'include' is not supported"));
    end(&x);
}

struct dirty {
    const char *line, *kind; /* kind NULL: a good record */
};

static void dirty_lines(void **state)
{
    (void)state;
    static const struct dirty lines[] = {
        {"\xef\xbb\xbf{\"input\":\"q1\",\"output\":\"b\"}\r\n", NULL},
        {"\n", NULL},
        {"{\"input\":\"a\"}\n", "missing-field"},
        {"{\"input\":\"a\",\"output\":\"\"}\n", "empty-output"},
        {"{\"input\":\"a\",\"output\":null}\n", "null-output"},
        {"{\"input\":\"a\",\"output\":5}\n", "wrong-type"},
        {"{\"input\":\"a\",\"output\":\"\xff\"}\n", "utf8"},
        {"{\"input\":\"a\",\"output\":\"\\ud800\"}\n", "utf8"},
        {"{\"input\":\"a\",\"output\":\"\\u0000\"}\n", "utf8"},
        {"{\"input\":\"a\",\"input\":\"a\",\"output\":\"b\"}\n", "duplicate-key"},
        {"{\"input\":\"a\",\"output\":\"b\",}\n", "json"},
        {"{\"a\":1} x\n", "json"},
        {"{\"messages\":[]}\n", "other-shape"},
        {"{\"conversations\":[]}\n", "other-shape"},
        {"{\"input\":\"  \",\"output\":\"b\"}\n", "empty-prompt"},
        {"{\"input\":\"q2\",\"output\":\"b\",\"extra\":1,\"id\":99999999999999999999}\n", NULL},
        {"{\"input\":\"Q2 \",\"output\":\" B\"}\n", NULL}, /* the same in other case and spacing */
        {"{\"input\":\"q1\",\"output\":\"b\"}", NULL},
    };
    struct ft_buf text = {0};
    struct fixture x;
    size_t n_bad = 0;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) ft_buf_adds(&text, lines[i].line), n_bad += lines[i].kind != NULL;
    begin(&x, "laptop", NULL, text.data);
    config_with(x.dir, CHATML, NULL, "<|im_end|>");
    run(&x, FT_SPLIT_TRAIN);
    assert_int_equal(x.rc, FT_DATA);
    assert_int_equal(x.faults.n, n_bad);
    for (size_t i = 0, k = 0; i < sizeof lines / sizeof *lines; i++) {
        if (!lines[i].kind) continue;
        assert_int_equal(x.faults.v[k].at.line, i + 1);
        if (strncmp(x.faults.v[k].text, lines[i].kind, strlen(lines[i].kind)) != 0)
            fail_msg("line %zu: %s instead of %s", i + 1, x.faults.v[k].text, lines[i].kind);
        k++;
    }
    x.f.bad_records = "skip:13";
    run(&x, FT_SPLIT_TRAIN);
    assert_int_equal(x.rc, FT_OK);
    assert_int_equal(ft_dataset_n_rows(x.d), 2);
    assert_int_equal(ft_dataset_facts(x.d).duplicates, 2);
    assert_int_equal(ft_dataset_facts(x.d).blank, 1);
    x.f.bad_records = "skip:12";
    run(&x, FT_SPLIT_TRAIN);
    assert_int_equal(x.rc, FT_DATA);
    ft_buf_fini(&text);
    end(&x);
}

static void message_faults(void **state)
{
    (void)state;
    static const struct dirty lines[] = {
        {"{\"messages\":[]}", "empty-messages"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", "last-not-assistant"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"},{\"role\":\"user\","
         "\"content\":\"c\"}]}",
         "last-not-assistant"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"robot\",\"content\":\"b\"}]}", "unknown-role"},
        {"{\"messages\":[{\"role\":5,\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}]}", "wrong-type"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"b\"}]}", "empty-prompt"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":null}]}", "null-output"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\" \"}]}", "empty-output"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\",\"weight\":0}]}",
         "no-trained-turn"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":3},{\"role\":\"assistant\",\"content\":\"b\"}]}", "wrong-type"},
        {"{\"messages\":[{\"from\":\"human\",\"value\":\"a\"}]}", "other-shape"},
        {"{\"messages\":7}", "wrong-type"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"},{\"role\":\"assistant\","
         "\"content\":\"c\"}]}",
         NULL},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct fixture x;
        begin(&x, "gpt2", NULL, lines[i].line);
        config_with(x.dir, "{% for m in messages %}{{ m.content }}<|endoftext|>{% endfor %}", NULL, "<|endoftext|>");
        run(&x, FT_SPLIT_TRAIN);
        if (lines[i].kind) expect_fault(&x, lines[i].kind);
        else assert_int_equal(x.rc, FT_OK);
        end(&x);
    }
}

/* A long plain text in windows of seq_len; without split it is dropped. */
static void text_in_windows(void **state)
{
    (void)state;
    struct fixture x;
    begin(&x, "laptop", NULL, "{\"text\":\"one two three four five six seven eight nine ten\"}\n");
    x.f.format = FT_FORMAT_TEXT, x.o.seq_len = 8;
    run(&x, FT_SPLIT_TRAIN);
    assert_int_equal(x.rc, FT_DATA);
    x.f.packing = FT_PACKING_SPLIT;
    run(&x, FT_SPLIT_TRAIN);
    assert_int_equal(x.rc, FT_OK);
    const struct ft_dataset_facts f = ft_dataset_facts(x.d);
    assert_true(f.rows >= 2 && f.tokens > 8);
    int64_t tokens = 0;
    for (int64_t i = 0; i < f.rows; i++) {
        const struct ft_row r = ft_dataset_row(x.d, i);
        assert_true(r.n_tokens <= 8);
        assert_int_equal(r.n_trained, r.n_tokens - r.n_segments);
        tokens += r.n_tokens;
    }
    assert_int_equal(tokens, f.tokens);
    end(&x);
}

static void overlap_refuses(void **state)
{
    (void)state;
    struct fixture x;
    begin(&x, "gpt2", NULL, "{\"input\":\"q1\",\"output\":\"a\"}\n{\"input\":\"q2\",\"output\":\"a\"}\n");
    put_text(x.dir, "valid.jsonl", "{\"input\":\"q9\",\"output\":\"a\"}\n{\"input\":\"Q2\",\"output\":\"other\"}\n");
    config_with(x.dir, NULL, NULL, "<|endoftext|>");
    x.f.valid = (struct ft_list){x.valid_paths, 1};
    run(&x, FT_SPLIT_VALID);
    assert_int_equal(x.rc, FT_DATA);
    assert_non_null(strstr(x.err.text, "1 records of [data] train have a prompt that stands in valid too"));
    assert_non_null(strstr(x.err.text, "train.jsonl:2"));
    x.f.overlap = FT_OVERLAP_ALLOW;
    run(&x, FT_SPLIT_VALID);
    assert_int_equal(x.rc, FT_OK);
    assert_int_equal(ft_dataset_n_rows(x.d), 2);
    end(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exactly_one_bos),
        cmocka_unit_test(terminator_is_trained),
        cmocka_unit_test(merge_over_the_boundary),
        cmocka_unit_test(special_tokens_in_contents),
        cmocka_unit_test(turns_and_formats),
        cmocka_unit_test(templates_that_drop),
        cmocka_unit_test(dirty_lines),
        cmocka_unit_test(message_faults),
        cmocka_unit_test(overlap_refuses),
        cmocka_unit_test(text_in_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
