/* Host lists of other tools: forms, notes, faults with their places. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "topology/hostlist.h"

/* want: "name/slots[/user][:port] …", or "LINE:COL word" for the one fault; notes: how many */
static const struct {
    const char *text;
    size_t n;
    const char *want;
    size_t notes;
} cases[] = {
    {"node01 slots=4\nnode02 slots=4 max_slots=8", 0, "node01/4 node02/4", 1},
    {"a max-slots=8\nb max_slots=2", 0, "a/0 b/0", 1},
    {"node01:4\nnode02:2", 0, "node01/4 node02/2", 0},
    {"node01\nnode02", 0, "node01/0 node02/0", 0},
    {"node01\nnode01\nnode02\nnode01", 0, "node01/3 node02/0", 1},
    {"node01\nNODE01\n", 0, "node01/2", 1},
    {"node01 slots=2\nnode01 slots=2", 0, "2:1 line 1", 0},
    {"node01\nnode01 slots=2", 0, "2:1 line 1", 0},
    {"node01 slots=2\nnode01", 0, "2:1 line 1", 0},
    {"node[01-03,07]", 0, "node01/0 node02/0 node03/0 node07/0", 0},
    {"node[01-02] slots=8", 0, "node01/8 node02/8", 0},
    {"gpu[01-02],cpu3", 0, "gpu01/0 gpu02/0 cpu3/0", 0},
    {"gpu[01-02] , cpu3 slots=2", 0, "gpu01/2 gpu02/2 cpu3/2", 0},
    {"node[01-02]:4", 0, "node01/4 node02/4", 0},
    {"ml@node01", 0, "node01/0/ml", 0},
    {"ml@node01:2222", 0, "node01/0/ml:2222", 0},
    {"ml@node01:2222 slots=3", 0, "node01/3/ml:2222", 0},
    {"[fd00::1]:2222", 0, "fd00::1/0:2222", 0},
    {"::1", 0, "::1/0", 0},
    {"::1 slots=2", 0, "::1/2", 0},
    {"[::1]", 0, "::1/0", 0},
    {"10.1.2.3:4", 0, "10.1.2.3/4", 0},
    {"10.1.2.3", 0, "10.1.2.3/0", 0},
    {"a@b@c", 0, "1:4 '@'", 0},
    {"node01 # first", 0, "node01/0", 0},
    {"node01#first", 0, "1:7 '#'", 0},
    {" # c\n#c\n\n\tnode01 \t\n", 0, "node01/0", 0},
    {"node01 node02", 0, "1:8 'node02'", 0},
    {"node01 lots=8", 0, "1:8 'lots'", 0},
    {"node01 slots=0", 0, "1:14 1..4096", 0},
    {"node01 slots=4,node02 slots=4", 0, "1:14 '4,node02'", 0},
    {"node01 slots=4 slots=4", 0, "1:16 twice", 0},
    {"node01:4 slots=4", 0, "1:7 twice", 0},
    {"", 0, "1:1 no node", 0},
    {"# a\n # b\n", 0, "1:1 no node", 0},
    {"node01 slots=4\r\nnode02 slots=4\r\n", 0, "node01/4 node02/4", 1},
    {"\xEF\xBB\xBFnode01", 0, "node01/0", 1},
    {"@gpu", 0, "1:1 '@gpu'", 0},
    {"node01:99999", 0, "1:8 4096", 0},
    {"ml@node01:99999", 0, "1:11 65535", 0},
    {"[fd00::1]x", 0, "1:10 'x'", 0},
    {"localhost", 0, "localhost/0", 0},
    {"node01 slots=4\0", 15, "1:15 NUL", 0},
    {"node01\rnode02", 0, "1:7 carriage", 0},
    {"n\xff", 0, "1:2 0xFF", 0},
    {"a,a", 0, "1:3 'a'", 0},
    {"n[5-1]", 0, "1:3 5-1", 0},
    {"-n slots=1", 0, "1:1 '-n'", 0},
    {"-x@n", 0, "1:1 '-x'", 0},
};

static void test_cases(void **state)
{
    (void)state;
    int failed = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ft_arena *arena = ft_arena_create();
        struct ft_faults faults = {.arena = arena};
        struct ft_host_rows rows = ft_hostfile_parse("h", cases[i].text, cases[i].n ? cases[i].n : strlen(cases[i].text), arena,
                                                     &faults);
        struct ft_buf got = {0};
        size_t notes = faults.n - faults.n_errors;
        bool ok;
        if (faults.n_errors) {
            const struct ft_fault *v = faults.v;
            while (v->severity != FT_SEV_ERROR) v++;
            ft_buf_addf(&got, "%d:%d %s", v->at.line, v->at.column, v->text);
            const char *word = strchr(cases[i].want, ' ');
            size_t place = word ? (size_t)(word - cases[i].want) + 1 : 0;
            ok = faults.n_errors == 1 && word && !strncmp(got.data, cases[i].want, place) && strstr(got.data, word + 1);
        } else {
            for (size_t k = 0; k < rows.n; k++) {
                ft_buf_addf(&got, "%s%s/%d", k ? " " : "", rows.v[k].name, rows.v[k].slots);
                if (rows.v[k].user) ft_buf_addf(&got, "/%s", rows.v[k].user);
                if (rows.v[k].port) ft_buf_addf(&got, ":%d", rows.v[k].port);
            }
            ok = !strcmp(ft_buf_str(&got), cases[i].want) && notes == cases[i].notes;
        }
        if (!ok) {
            failed++;
            print_error("case %zu: %s, %zu notes; wanted %s\n", i, ft_buf_str(&got), notes, cases[i].want);
        }
        ft_buf_fini(&got);
        ft_arena_destroy(arena);
    }
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
