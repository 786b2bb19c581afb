/* ProxyCommand: the words of a line without a shell; a process as a connection, and its end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "launcher/ssh_proxy.h"

static const struct ft_ssh_me me = {.user = "me", .home = "/home/me", .uid = 7, .host = "here"};

static enum ft_code words(struct ft_arena *a, const char *line, char *const **out, struct ft_err *err)
{
    const struct ft_ssh_settings s = {.hostname = {.text = "10.1.2.3"}, .port = {.text = "2222"}, .user = {.text = "ml"}};
    *err = (struct ft_err){0};
    return ft_ssh_proxy_words(line, "gpu01", &s, &me, a, out, err);
}

static void lines_become_words(void **state)
{
    (void)state;
    static const struct {
        const char *line, *words; /* joined by '|' */
    } rows[] = {
        {"cat %h %p", "cat|10.1.2.3|2222"},
        {"  exec cat\t%r@%n  ", "cat|ml@gpu01"},
        {"cat -W '%h:%p' \"a b\" c\\ d", "cat|-W|10.1.2.3:2222|a b|c d"},
        {"cat 'a\"b' \"a'b\" \"\\$x\\\\\" ''", "cat|a\"b|a'b|$x\\|"},
        {"cat 'a | b $(c) `d` > e'", "cat|a | b $(c) `d` > e"},
        {"cat ~/x a~/x 100%%", "cat|/home/me/x|a~/x|100%"},
        {"cat %h 2>/dev/null", "cat|10.1.2.3"},
        {"cat %h 2> /dev/null ", "cat|10.1.2.3"},
        {"sh -c 'exec cat %h'", "sh|-c|exec cat 10.1.2.3"},
        {"cat -W [%h]:%p x#y", "cat|-W|[10.1.2.3]:2222|x#y"},
        {"cat --proxy-command=x%h", "cat|--proxy-command=x10.1.2.3"},
    };
    struct ft_arena *a = ft_arena_create();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *const *v;
        struct ft_err err;
        struct ft_buf b = {0};
        assert_int_equal(words(a, rows[i].line, &v, &err), FT_OK);
        for (size_t k = 0; v[k]; k++) ft_buf_addf(&b, "%s%s", k ? "|" : "", v[k]);
        assert_string_equal(ft_buf_str(&b), rows[i].words);
        ft_buf_fini(&b);
    }
    ft_arena_destroy(a);
}

static void what_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *line, *says;
    } rows[] = {
        {"cat %h | cat", "'|' needs a shell"},
        {"cat %h 2>/tmp/x", "'>' needs a shell"},
        {"cat $HOME", "'$' needs a shell"},
        {"cat \"`id`\"", "'`' needs a shell"},
        {"cat %h; id", "';' needs a shell"},
        {"cat & ", "'&' needs a shell"},
        {"cat # x", "'#' needs a shell"},
        {"cat ?", "'?' needs a shell"},
        {"cat *", "'*' needs a shell"},
        {"cat 'x", "quote ' is not closed"},
        {"cat %q", "'%q' is none of"},
        {"cat %", "is none of"},
        {"", "no command"},
        {"exec ", "no command"},
        {"/nowhere/nc %h", "No such file or d"},
        {"/etc %h", "Permission denied"},
    };
    struct ft_arena *a = ft_arena_create();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *const *v;
        struct ft_err err;
        assert_int_not_equal(words(a, rows[i].line, &v, &err), FT_OK);
        if (!strstr(err.text, rows[i].says)) fail_msg("'%s' says '%s', not '%s'", rows[i].line, err.text, rows[i].says);
    }
    ft_arena_destroy(a);
}

static ssize_t read_soon(int fd, char *to, size_t n)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 60000) == 1 ? read(fd, to, n) : -1;
}

static void a_process_is_a_connection(void **state)
{
    (void)state;
    struct ft_arena *a = ft_arena_create();
    struct ft_ssh_proxy p;
    struct ft_err err;
    char *const *v, bytes[64];
    int fd;
    assert_int_equal(words(a, "cat", &v, &err), FT_OK);
    assert_int_equal(ft_ssh_proxy_start(v, &p, &fd, &err), FT_OK);
    const pid_t pid = p.pid;
    assert_int_equal(write(fd, "SSH-2.0\r\n", 9), 9);
    assert_int_equal(read_soon(fd, bytes, sizeof bytes), 9);
    assert_memory_equal(bytes, "SSH-2.0\r\n", 9);
    ft_ssh_proxy_said(&p, bytes, sizeof bytes);
    assert_string_equal(bytes, "");
    ft_ssh_proxy_end(&p); /* reaped as well */
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(read_soon(fd, bytes, sizeof bytes), 0);
    close(fd);
    /* its last words; more of them than are kept are no harm */
    assert_int_equal(words(a, "sh -c 'echo first >&2; echo \"last\tword\" >&2; exit 1'", &v, &err), FT_OK);
    assert_int_equal(ft_ssh_proxy_start(v, &p, &fd, &err), FT_OK);
    assert_int_equal(read_soon(fd, bytes, sizeof bytes), 0);
    ft_ssh_proxy_said(&p, bytes, sizeof bytes);
    assert_string_equal(bytes, "last?word");
    ft_ssh_proxy_end(&p);
    close(fd);
    assert_int_equal(words(a, "sh -c 'head -c 1000000 /dev/zero | tr \"\\0\" x >&2; echo done'", &v, &err), FT_OK);
    assert_int_equal(ft_ssh_proxy_start(v, &p, &fd, &err), FT_OK);
    assert_int_equal(read_soon(fd, bytes, sizeof bytes), 5);
    ft_ssh_proxy_end(&p);
    close(fd);
    ft_arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_become_words),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(a_process_is_a_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
