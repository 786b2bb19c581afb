/* The mux: lines whole and prefixed, pieces of long lines, late ends, bars, files by rank. The console is two files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fd.h"
#include "launcher/mux.h"

struct bed {
    struct ft_loop loop;
    struct ft_console console;
    struct ft_mux mux;
    char folder[64];
    int out, saved[2];
    int64_t now;
};

/* stdout and stderr lead to one file for the length of the test. */
static struct bed *open_bed(int n_ranks)
{
    static struct bed b;
    memset(&b, 0, sizeof b);
    snprintf(b.folder, sizeof b.folder, "/tmp/ftmux-XXXXXX");
    assert_non_null(mkdtemp(b.folder));
    char path[100];
    snprintf(path, sizeof path, "%s/console", b.folder);
    b.out = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(b.out >= 0);
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        b.saved[i] = fcntl(i + 1, F_DUPFD_CLOEXEC, 10);
        assert_true(dup2(b.out, i + 1) == i + 1);
    }
    ft_console_open(&b.console, &b.loop, NULL, NULL);
    b.mux = (struct ft_mux){.console = &b.console, .folder = b.folder, .show = true};
    ft_mux_open(&b.mux, n_ranks);
    for (int r = 0; r < n_ranks; r++) b.mux.ranks[r].node = "n1";
    b.now = 100 * FT_SEC;
    return &b;
}

static void finish(struct bed *b, struct ft_buf *shown)
{
    struct ft_err err;
    char path[100];
    ft_console_flush(&b->console);
    ft_mux_close(&b->mux);
    ft_console_close(&b->console);
    ft_loop_fini(&b->loop);
    for (int i = 0; i < 2; i++) {
        dup2(b->saved[i], i + 1);
        close(b->saved[i]);
    }
    close(b->out);
    snprintf(path, sizeof path, "%s/console", b->folder);
    assert_int_equal(ft_read_file(path, 1 << 28, shown, &err), FT_OK);
    unlink(path);
    for (int r = 0; r < 8; r++) {
        snprintf(path, sizeof path, "%s/%04d.log", b->folder, r);
        unlink(path);
    }
    assert_int_equal(rmdir(b->folder), 0);
}

static void feed(struct bed *b, int rank, int stream, const char *s) { ft_mux_bytes(&b->mux, rank, stream, s, strlen(s), b->now); }

static void later(struct bed *b, int64_t ms)
{
    b->now += ms * FT_MS;
    if (b->now >= b->mux.tick_at) ft_mux_tick(&b->mux, b->now);
}

static void expect(struct bed *b, const char *want)
{
    struct ft_buf shown = {0};
    finish(b, &shown);
    assert_string_equal(ft_buf_str(&shown), want);
    ft_buf_fini(&shown);
}

static void lines_are_whole(void **state)
{
    (void)state;
    struct bed *b = open_bed(2);
    feed(b, 0, 1, "hel");
    feed(b, 1, 1, "other\n");
    feed(b, 0, 2, "err\n");
    feed(b, 0, 1, "lo\nnext\nla");
    feed(b, 0, 1, "");
    feed(b, 1, 1, "\n");
    ft_mux_end(&b->mux, 0); /* a last line without newline gets one */
    ft_mux_end(&b->mux, 0);
    expect(b, "[1 n1] other\n[0 n1] err\n[0 n1] hello\n[0 n1] next\n[1 n1] \n[0 n1] la\n");
}

static void files_hold_every_byte(void **state)
{
    (void)state;
    struct bed *b = open_bed(1);
    struct ft_buf file = {0};
    struct ft_err err;
    char path[100];
    static const char odd[] = "a\0b\xFF\r\x1B[2J";
    ft_mux_bytes(&b->mux, 0, 1, odd, sizeof odd - 1, b->now);
    feed(b, 0, 2, "err");
    assert_int_equal(ft_mux_offset(&b->mux, 0), sizeof odd - 1 + 3);
    snprintf(path, sizeof path, "%s/0000.log", b->folder);
    assert_int_equal(ft_read_file(path, 1 << 20, &file, &err), FT_OK);
    assert_int_equal(file.n, sizeof odd - 1 + 3);
    assert_memory_equal(file.data, odd, sizeof odd - 1);
    ft_buf_fini(&file);
    finish(b, &file);
    ft_buf_fini(&file);
}

static void late_ends(void **state)
{
    (void)state;
    struct bed *b = open_bed(1);
    feed(b, 0, 1, "name? ");
    later(b, 1000);
    later(b, 1300); /* a prompt is shown after 2.2 s */
    feed(b, 0, 1, "more");
    feed(b, 0, 1, "\nnext\n");
    feed(b, 0, 1, "shown whole");
    later(b, 2300);
    feed(b, 0, 1, "\nlast\n"); /* its late newline says nothing new */
    expect(b, "[0 n1] name? \n[0 n1]+ more\n[0 n1] next\n[0 n1] shown whole\n[0 n1] last\n");
}

static void bars_once_a_second(void **state)
{
    (void)state;
    struct bed *b = open_bed(1);
    for (int i = 0; i < 25; i++) { /* 2.5 s of a bar */
        char text[32];
        snprintf(text, sizeof text, "\r%3d%%", i * 4);
        feed(b, 0, 2, text);
        later(b, 100);
    }
    feed(b, 0, 2, "\r100%\n");
    feed(b, 0, 2, "done\n");
    struct ft_buf shown = {0};
    finish(b, &shown);
    unsigned lines = 0;
    for (const char *p = ft_buf_str(&shown); (p = strchr(p, '\n')); p++) lines++;
    assert_int_equal(lines, 4); /* two of the bar, its end, done */
    assert_non_null(strstr(shown.data, "[0 n1] 100%\n[0 n1] done\n"));
    assert_null(strchr(shown.data, '\r'));
    ft_buf_fini(&shown);
}

static void crlf_is_no_bar(void **state)
{
    (void)state;
    struct bed *b = open_bed(1);
    feed(b, 0, 1, "a\r\nb\r");
    feed(b, 0, 1, "\nc\n");
    expect(b, "[0 n1] a\r\n[0 n1] b\r\n[0 n1] c\n"); /* to a file: bytes as they are */
}

static void long_lines_come_in_pieces(void **state)
{
    (void)state;
    struct bed *b = open_bed(1);
    struct ft_buf text = {0}, shown = {0}, joined = {0};
    for (int i = 0; i < 70000; i++) ft_buf_adds(&text, i % 3 ? "\xE2\x82\xAC" : "x");
    for (size_t at = 0; at < text.n; at += 999)
        ft_mux_bytes(&b->mux, 0, 1, text.data + at, text.n - at < 999 ? text.n - at : 999, b->now);
    feed(b, 0, 1, "\n");
    finish(b, &shown);
    unsigned pieces = 0;
    for (char *p = shown.data, *end; (end = strchr(p, '\n')); p = end + 1, pieces++) {
        const char *prefix = pieces ? "[0 n1]+ " : "[0 n1] ";
        assert_true(ft_str_starts(p, prefix));
        p += strlen(prefix);
        assert_true(end - p <= FT_MUX_LINE);
        assert_int_equal(ft_utf8_valid(p, (size_t)(end - p)), end - p);
        ft_buf_add(&joined, p, (size_t)(end - p));
    }
    assert_true(pieces >= text.n / FT_MUX_LINE);
    assert_int_equal(joined.n, text.n);
    assert_memory_equal(joined.data, text.data, text.n);
    ft_buf_fini(&text);
    ft_buf_fini(&shown);
    ft_buf_fini(&joined);
}

static void a_line_of_64_KiB_is_one(void **state)
{
    (void)state;
    struct bed *b = open_bed(1);
    struct ft_buf shown = {0};
    char *text = malloc(FT_MUX_LINE + 1);
    assert_non_null(text);
    memset(text, 'y', FT_MUX_LINE);
    text[FT_MUX_LINE] = '\n';
    for (size_t at = 0; at < FT_MUX_LINE + 1; at += 4097)
        ft_mux_bytes(&b->mux, 0, 1, text + at, FT_MUX_LINE + 1 - at < 4097 ? FT_MUX_LINE + 1 - at : 4097, b->now);
    finish(b, &shown);
    assert_int_equal(shown.n, strlen("[0 n1] ") + FT_MUX_LINE + 1);
    ft_buf_fini(&shown);
    free(text);
}

/* Every kind of line, in one chunk and in pieces of every small size: what is shown does not depend on how the bytes come. */
static void chunks_do_not_matter(void **state)
{
    (void)state;
    static const char odd[] = "first\n\n\nwith\0zero\n\r\nends in CR\r\n\xFF\xFE\na longer line than the others, of no kind\n";
    struct ft_buf text = {0}, first = {0}, shown = {0};
    for (int i = 0; i < 40; i++) ft_buf_add(&text, odd, sizeof odd - 1);
    for (int extra = -1; extra <= 1; extra++) { /* around the longest whole line, one beyond it */
        ft_buf_reserve(&text, FT_MUX_LINE + 2);
        memset(text.data + text.n, 'a' + 1 + extra, (size_t)(FT_MUX_LINE + extra));
        text.n += (size_t)(FT_MUX_LINE + extra);
        ft_buf_adds(&text, "\nafter\n");
    }
    ft_buf_adds(&text, "no end");
    static const size_t sizes[] = {SIZE_MAX, 1, 7, 61, 4096, 65536, 65537, 65544};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        struct bed *b = open_bed(1);
        for (size_t at = 0, n; at < text.n; at += n) {
            n = text.n - at < sizes[k] ? text.n - at : sizes[k];
            ft_mux_bytes(&b->mux, 0, 1, text.data + at, n, b->now);
        }
        ft_mux_end(&b->mux, 0);
        ft_buf_clear(&shown);
        finish(b, &shown);
        if (k == 0) ft_buf_add(&first, shown.data, shown.n);
        assert_int_equal(shown.n, first.n);
        assert_memory_equal(shown.data, first.data, first.n);
    }
    unsigned lines = 0, prefixes = 0;
    for (const char *p = first.data, *end; (end = memchr(p, '\n', (size_t)(first.data + first.n - p))); p = end + 1) {
        lines++;
        prefixes += ft_str_starts(p, "[0 n1] ");
    }
    assert_int_equal(lines, 40 * 8 + 6 + 1 + 1); /* the line beyond comes in two pieces */
    assert_int_equal(prefixes, lines - 1);
    ft_buf_fini(&text);
    ft_buf_fini(&first);
    ft_buf_fini(&shown);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_whole),
        cmocka_unit_test(files_hold_every_byte),
        cmocka_unit_test(late_ends),
        cmocka_unit_test(bars_once_a_second),
        cmocka_unit_test(crlf_is_no_bar),
        cmocka_unit_test(long_lines_come_in_pieces),
        cmocka_unit_test(a_line_of_64_KiB_is_one),
        cmocka_unit_test(chunks_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
