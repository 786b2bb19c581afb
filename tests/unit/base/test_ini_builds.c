/* The same strict reading over every build of inih. This program has an ini_parse_stream of its own, written after inih's, with its
 * build options as variables: a buffer of 200 bytes on the stack or one on the heap that grows, continuation lines, inline
 * comments, ':' as separator, names cut at 49 bytes, stop at the first error. */
#include <ini.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/ini.h"
#include "base/str.h"

static bool use_heap, multiline, inline_comments, announce_sections;

static char *skip_blank(char *s)
{
    while (*s == ' ' || *s == '\t' || *s == '\r' || *s == '\n') s++;
    return s;
}
static char *strip(char *s)
{
    char *e = s + strlen(s);
    while (e > s && strchr(" \t\r\n", e[-1])) *--e = '\0';
    return s;
}
/* First of chars (or a comment behind a blank), or the end. */
static char *find(char *s, const char *chars)
{
    bool blank = false;
    while (*s && (!chars || !strchr(chars, *s)) && !(inline_comments && blank && *s == ';')) {
        blank = *s == ' ' || *s == '\t';
        s++;
    }
    return s;
}

int ini_parse_stream(ini_reader reader, void *stream, ini_handler handler, void *user)
{
    char stack[200], section[50] = "", before[50] = "", *line = stack;
    size_t size = sizeof stack;
    int error = 0, number = 0;
    if (use_heap) line = ft_xcalloc(1, size = 24);
    while (reader(line, (int)size, stream)) {
        for (size_t n = strlen(line); use_heap && n == size - 1 && line[n - 1] != '\n'; n = strlen(line)) {
            line = ft_xrealloc(line, size *= 2, 1);
            if (!reader(line + n, (int)(size - n), stream)) break;
        }
        number++;
        char *start = skip_blank(strip(line));
        if (strchr(";#", *start) || !*start) continue;
        if (multiline && *before && start > line) {
            if (!handler(user, section, before, start) && !error) error = number;
        } else if (*start == '[') {
            char *end = find(start + 1, "]");
            if (*end != ']') {
                error = error ? error : number;
                continue;
            }
            *end = '\0';
            snprintf(section, sizeof section, "%s", start + 1);
            *before = '\0';
            if (announce_sections && !handler(user, section, NULL, NULL) && !error) error = number;
        } else {
            char *eq = find(start, "=:");
            if (*eq != '=' && *eq != ':') {
                error = error ? error : number;
                continue;
            }
            *eq = '\0';
            char *name = strip(start), *value = eq + 1;
            *find(value, NULL) = '\0';
            value = strip(skip_blank(value));
            snprintf(before, sizeof before, "%s", name);
            if (!handler(user, section, name, value) && !error) error = number;
        }
    }
    if (use_heap) free(line);
    return error;
}

static void test_builds(void **state)
{
    (void)state;
    struct ft_buf text = {0};
    ft_buf_adds(&text, "[env]\nX = ");
    for (int i = 0; i < 190; i++) ft_buf_addc(&text, 'a');
    ft_buf_adds(&text, " y = 1");
    for (int i = 0; i < 400; i++) ft_buf_addc(&text, 'b');
    ft_buf_adds(&text, "\n  Y = c:d ; e\n[");
    for (int i = 0; i < 60; i++) ft_buf_addc(&text, 's');
    ft_buf_adds(&text, "]\n\tk = v:w=x\n\t;c\n  l=\n[nodes]\n[1-2]x = slots=1\nbad\nn : 1\n");
    for (int build = 0; build < 16; build++) {
        use_heap = build & 1;
        multiline = build & 2;
        inline_comments = build & 4;
        announce_sections = build & 8;
        struct ft_arena *arena = ft_arena_create();
        struct ft_faults faults = {.arena = arena};
        struct ft_ini *ini = ft_ini_create(arena);
        ft_ini_read_text(ini, "job.ini", text.data, text.n, &faults);
        assert_int_equal(ini->n, 5);
        assert_int_equal(ini->v[0].value_len, 596);
        assert_string_equal(ini->v[1].value, "c:d ; e");
        assert_int_equal(strlen(ini->v[2].section), 60);
        assert_string_equal(ini->v[2].value, "v:w=x");
        assert_string_equal(ini->v[3].value, "");
        assert_string_equal(ini->v[4].key, "[1-2]x");
        assert_int_equal(faults.n_errors, 2);
        assert_int_equal(faults.v[0].at.line, 10);
        assert_int_equal(faults.v[1].at.line, 11);
        ft_arena_destroy(arena);
    }
    ft_buf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_builds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
