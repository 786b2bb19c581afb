/* The oracle is `ssh -G`: every case below, and some hundred made by chance, must give what it prints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits/mix64.h"
#include "launcher/ssh_config.h"
#include "launcher/ssh_match.h"
#include "ssh_oracle.h"

struct world {
    struct ft_arena *arena;
    struct ft_ssh_me me;
    struct ft_faults notes;
    char *folder;
};

static int setup(void **state)
{
    struct world *w = ft_xcalloc(1, sizeof *w);
    w->arena = ft_arena_create();
    w->me = ft_ssh_me(w->arena);
    w->notes.arena = w->arena;
    w->folder = make_folder();
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    remove_folder(w->folder);
    ft_arena_destroy(w->arena);
    free(w);
    return 0;
}

static bool have_ssh(void)
{
    struct ft_buf b = {0};
    char *argv[] = {(char[]){"ssh"}, (char[]){"-V"}, NULL};
    const int rc = run_program(argv, &b, 1);
    ft_buf_fini(&b);
    if (rc) printf("skipped: there is no ssh to compare with\n");
    return rc == 0;
}

static void line(struct ft_buf *b, const char *key, const char *value)
{
    if (value) ft_buf_addf(b, "%s %s\n", key, value);
}

static const char *strict_word(const char *raw)
{
    if (!raw) return "ask";
    if (ft_str_case_eq(raw, "yes") || ft_str_case_eq(raw, "true")) return "true";
    if (ft_str_case_eq(raw, "no") || ft_str_case_eq(raw, "false") || ft_str_case_eq(raw, "off")) return "false";
    return ft_str_case_eq(raw, "accept-new") ? "accept-new" : "ask";
}

static bool is_none(const char *s) { return s && ft_str_case_eq(s, "none"); }

/* What `ssh -G` prints, of the keys that are read, sorted by key in its order of values. */
static void print_ours(const struct ft_ssh_settings *s, struct ft_buf *b)
{
    line(b, "hostname", s->hostname.text);
    line(b, "user", s->user.text);
    line(b, "port", s->port.text);
    line(b, "identitiesonly",
         s->identities_only.raw && (ft_str_case_eq(s->identities_only.raw, "yes") || ft_str_case_eq(s->identities_only.raw, "true"))
             ? "yes"
             : "no");
    line(b, "identityagent", s->identity_agent.raw);
    line(b, "hostkeyalias", s->host_key_alias.raw);
    line(b, "stricthostkeychecking", strict_word(s->strict.raw));
    if (!is_none(s->proxy_jump.raw)) line(b, "proxyjump", s->proxy_jump.raw);
    if (!is_none(s->proxy_command.raw)) line(b, "proxycommand", s->proxy_command.raw);
    for (size_t i = 0; i < s->identity.n; i++) line(b, "identityfile", s->identity.v[i].raw);
    for (size_t i = 0; i < s->certificate.n; i++) line(b, "certificatefile", s->certificate.v[i].raw);
    ft_buf_adds(b, "userknownhostsfile");
    for (size_t i = 0; i < s->user_known_hosts.n; i++)
        ft_buf_addf(b, " %s", s->user_known_hosts.v[i].at.file ? s->user_known_hosts.v[i].raw : s->user_known_hosts.v[i].text);
    ft_buf_adds(b, "\nglobalknownhostsfile");
    for (size_t i = 0; i < s->global_known_hosts.n; i++) ft_buf_addf(b, " %s", s->global_known_hosts.v[i].raw);
    ft_buf_addc(b, '\n');
}

static void take_key(const struct ft_buf *theirs, const char *key, struct ft_buf *out)
{
    const size_t n = strlen(key);
    for (const char *p = ft_buf_str(theirs); *p;) {
        const char *end = strchrnul(p, '\n');
        if (strncmp(p, key, n) == 0 && p[n] == ' ') ft_buf_addf(out, "%.*s\n", (int)(end - p), p);
        p = *end ? end + 1 : end;
    }
}

static void print_theirs(const struct ft_buf *g, bool identities, struct ft_buf *b)
{
    static const char *const keys[] = {"hostname",
                                       "user",
                                       "port",
                                       "identitiesonly",
                                       "identityagent",
                                       "hostkeyalias",
                                       "stricthostkeychecking",
                                       "proxyjump",
                                       "proxycommand",
                                       "identityfile",
                                       "certificatefile",
                                       "userknownhostsfile",
                                       "globalknownhostsfile"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (identities || strcmp(keys[i], "identityfile") != 0) take_key(g, keys[i], b);
}

/* 1: compared equal; 0: ssh refused it and so did we; fails on any difference. */
static int compare(struct world *w, const char *text, const char *host, const char *user, const char *hostname)
{
    write_text(w->folder, "config", text);
    char *file = ft_arena_printf(w->arena, "%s/config", w->folder);
    char *argv[12] = {(char[]){"ssh"}, (char[]){"-G"}, (char[]){"-F"}, file};
    int n = 4;
    if (user) {
        argv[n++] = ft_arena_strdup(w->arena, "-l");
        argv[n++] = ft_arena_strdup(w->arena, user);
    }
    if (hostname) {
        argv[n++] = ft_arena_strdup(w->arena, "-o");
        argv[n++] = ft_arena_printf(w->arena, "HostName=%s", hostname);
    }
    argv[n++] = ft_arena_strdup(w->arena, host);
    struct ft_buf g = {0}, a = {0}, b = {0};
    const int rc = run_program(argv, &g, 1);
    struct ft_ssh_conf *conf = NULL;
    struct ft_ssh_settings s;
    struct ft_err err = {0};
    enum ft_code c = ft_ssh_conf_read(file, &w->me, w->arena, &w->notes, &conf, &err);
    if (c == FT_OK)
        c = ft_ssh_conf_lookup(conf, &(struct ft_ssh_query){.host = host, .user = user, .hostname = hostname}, w->arena, &s, &err);
    if (rc == 0) {
        if (c != FT_OK) fail_msg("ssh takes it, we say '%s':\n%s", err.text, text);
        print_ours(&s, &a);
        print_theirs(&g, s.identity.n > 0, &b);
        if (strcmp(ft_buf_str(&a), ft_buf_str(&b)) != 0)
            fail_msg("host %s user %s\n--- config\n%s--- ours\n%s--- ssh -G\n%s", host, user ? user : "-", text, ft_buf_str(&a),
                     ft_buf_str(&b));
    } else if (c == FT_OK) fail_msg("ssh refuses it (%s), we take it:\n%s", ft_buf_str(&g), text);
    ft_buf_fini(&g);
    ft_buf_fini(&a);
    ft_buf_fini(&b);
    return rc == 0;
}

static void cases(void **state)
{
    struct world *w = *state;
    if (!have_ssh()) skip();
    static const struct {
        const char *text, *host, *user, *hostname;
    } v[] = {
        {"", "node01", NULL, NULL},
        {"Host *\n  User ml\n  Port 2222\n", "node01", NULL, NULL},
        {"Host node01\n  HostName 10.0.0.1\nHost *\n HostName other\n", "node01", NULL, NULL},
        {"Host node* !node02\nUser a\nHost *\nUser b\n", "node02", NULL, NULL},
        {"Host node* !node02\nUser a\nHost *\nUser b\n", "node03", NULL, NULL},
        {"Host ?ode0?\n\tPort=2200\n", "node01", NULL, NULL},
        {"Port = 2200\n", "node01", NULL, NULL},
        {"Port \"2200\"\n", "node01", NULL, NULL},
        {"\"Port\" 2200\n", "node01", NULL, NULL},
        {"HostName %h.lab.example\n", "node01", NULL, NULL},
        {"HostName 100%%%h\n", "node01", NULL, NULL},
        {"HostName NODE01.Lab\n", "node01", NULL, NULL},
        {"Host NODE01\nUser big\n", "NODE01", NULL, NULL},
        {"Host node01\nUser small\n", "NODE01", NULL, NULL},
        {"IdentityFile ~/.ssh/a\nIdentityFile ~/.ssh/b\nIdentityFile ~/.ssh/a\n", "n", NULL, NULL},
        {"IdentityFile \"/k/with blank\"\nCertificateFile /k/c-cert.pub\n", "n", NULL, NULL},
        {"IdentityFile /k/it\\'s\n", "n", NULL, NULL},
        {"IdentityFile none\nIdentitiesOnly yes\n", "n", NULL, NULL},
        {"IdentitiesOnly true\nIdentityAgent none\n", "n", NULL, NULL},
        {"IdentityAgent SSH_AUTH_SOCK\n", "n", NULL, NULL},
        {"StrictHostKeyChecking accept-new\n", "n", NULL, NULL},
        {"StrictHostKeyChecking off\n", "n", NULL, NULL},
        {"UserKnownHostsFile /a /b\nUserKnownHostsFile /c\n", "n", NULL, NULL},
        {"UserKnownHostsFile /a \"/b\"   # with a comment\nGlobalKnownHostsFile /g\n", "n", NULL, NULL},
        {"HostKeyAlias lab\n", "n", NULL, NULL},
        {"ProxyJump bastion\nProxyCommand nc %h %p\n", "n", NULL, NULL},
        {"ProxyCommand nc %h %p\nProxyJump bastion\n", "n", NULL, NULL},
        {"ProxyJump none\nProxyJump bastion\n", "n", NULL, NULL},
        {"ProxyJump=a\n", "n", NULL, NULL},
        {"Match host node01\nUser m\n", "node01", NULL, NULL},
        {"Match host NODE*\nUser m\n", "node01", NULL, NULL},
        {"HostName 10.0.0.9\nMatch host 10.0.*\nUser m\n", "node01", NULL, NULL},
        {"HostName 10.0.0.9\nMatch originalhost node01\nUser m\n", "node01", NULL, NULL},
        {"Match user root\nPort 1\n", "n", NULL, NULL},
        {"Match user root\nPort 1\nMatch user ml\nPort 2\n", "n", "ml", NULL},
        {"User ml\nMatch user ml\nPort 2\n", "n", NULL, NULL},
        {"Match localuser root,x user y\nPort 2\n", "n", "y", NULL},
        {"Match all\nPort 7\n", "n", NULL, NULL},
        {"Match !all\nPort 7\n", "n", NULL, NULL},
        {"Match !host a,b\nPort 7\n", "n", NULL, NULL},
        {"Match !host n,b\nPort 7\n", "n", NULL, NULL},
        {"Match host *,!n\nPort 7\n", "n", NULL, NULL},
        {"Match final host *.lab\nPort 7\nHost *\nHostName %h.lab\n", "n", NULL, NULL},
        {"Match final all\nPort 7\n", "n", NULL, NULL},
        {"Match canonical all\nPort 7\n", "n", NULL, NULL},
        {"Match !final host n\nPort 7\n", "n", NULL, NULL},
        {"Match host=n user=root\nPort 7\n", "n", NULL, NULL},
        {"Match host \"n\" # why\nPort 7\n", "n", NULL, NULL},
        {"Match host n all\nPort 7\n", "n", NULL, NULL},
        {"Match user root host n all\nPort 7\n", "n", NULL, NULL},
        {"Match host\nPort 7\n", "n", NULL, NULL},
        {"Host\nPort 7\n", "n", NULL, NULL},
        {"Port\n", "n", NULL, NULL},
        {"Port 7 8\n", "n", NULL, NULL},
        {"Port 0\n", "n", NULL, NULL},
        {"Port 65536\n", "n", NULL, NULL},
        {"User \"a\n", "n", NULL, NULL},
        {"IdentitiesOnly maybe\n", "n", NULL, NULL},
        {"StrictHostKeyChecking perhaps\n", "n", NULL, NULL},
        {"HostName %q\n", "n", NULL, NULL},
        {"   # comment\n\n\t\n#Port 3\nPort 4 # four\r\n", "n", NULL, NULL},
        {"Host n m\nUser a\nhOsT *\npOrT 99\n", "m", NULL, NULL},
        {"User x\nHostName y\n", "n", "given", "10.1.1.1"},
        {"Match host 10.1.*\nPort 12\nMatch originalhost n\nUser z\n", "n", NULL, "10.1.1.1"},
        {"Ciphers aes128-ctr\nServerAliveInterval 3\nSendEnv A B\nPort 5\n", "n", NULL, NULL},
        {"Host fd00::1\nPort 5\n", "fd00::1", NULL, NULL},
        {"Host a\n  Port 1\n  Host b\n  Port 2\n", "b", NULL, NULL},
    };
    int equal = 0, refused = 0;
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        if (compare(w, v[i].text, v[i].host, v[i].user, v[i].hostname)) equal++;
        else refused++;
    }
    assert_int_equal(equal + refused, sizeof v / sizeof *v);
    assert_true(equal > 45 && refused > 8);
    printf("%d as ssh -G, %d refused by both\n", equal, refused);
}

static void includes(void **state)
{
    struct world *w = *state;
    if (!have_ssh()) skip();
    write_text(w->folder, "one.conf", "User one\nHost other\nPort 1\nHost n\nPort 11\n");
    write_text(w->folder, "two.conf", "Match host n\nHostKeyAlias two\nMatch all\nIdentityFile /two\n");
    const char *const texts[] = {
        "Include %s/one.conf\nPort 5\n",
        "Host m\nInclude %s/*.conf\nHost n\nPort 6\n",
        "Host n\nInclude %s/*.conf\nIdentityFile /after\n",
        "Host m\nInclude %s/one.conf\nPort 9\n",
        "Include %s/missing*.conf\nPort 7\n",
        "Include %s/one.conf %s/two.conf\nUser x\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct ft_buf b = {0};
        for (const char *p = texts[i]; *p; p++) {
            if (p[0] == '%' && p[1] == 's') {
                ft_buf_adds(&b, w->folder);
                p++;
            } else ft_buf_addc(&b, *p);
        }
        assert_int_equal(compare(w, b.data, "n", NULL, NULL), 1);
        ft_buf_fini(&b);
    }
    /* a file that includes itself ends with an error that names the depth */
    struct ft_buf self = {0};
    ft_buf_addf(&self, "Include %s/config\n", w->folder);
    assert_int_equal(compare(w, self.data, "n", NULL, NULL), 0);
    ft_buf_fini(&self);
}

static uint64_t seed;
static unsigned pick(unsigned n)
{
    seed += 0x9E3779B97F4A7C15ull;
    return (unsigned)(ft_mix64(seed) >> 33) % n;
}

static void by_chance(void **state)
{
    struct world *w = *state;
    if (!have_ssh()) skip();
    static const char *const hosts[] = {"n",     "node01",  "node02", "gpu7.lab", "N",  "*",
                                        "node*", "!node02", "?",      "*.lab",    "!*", "10.0.0.3"};
    static const char *const words[] = {"host", "originalhost", "user", "localuser", "!host", "!user"};
    static const char *const settings[] = {"User %s",
                                           "Port 22%s",
                                           "HostName h%s",
                                           "IdentityFile /i%s",
                                           "HostKeyAlias a%s",
                                           "IdentitiesOnly yes",
                                           "StrictHostKeyChecking no",
                                           "UserKnownHostsFile /u%s /v",
                                           "ProxyJump j%s",
                                           "ProxyCommand p%s",
                                           "CertificateFile /c%s",
                                           "HostName %%h%s",
                                           "IdentityAgent /s%s"};
    seed = 7;
    int equal = 0;
    for (int round = 0; round < 250; round++) {
        struct ft_buf b = {0};
        for (unsigned i = 0, n = 1 + pick(12); i < n; i++) {
            const unsigned kind = pick(5);
            if (kind == 0) {
                ft_buf_adds(&b, "Host");
                for (unsigned k = 0, m = 1 + pick(3); k < m; k++) ft_buf_addf(&b, " %s", hosts[pick(12)]);
            } else if (kind == 1) {
                ft_buf_addf(&b, "Match%s", pick(6) == 0 ? " final" : "");
                for (unsigned k = 0, m = 1 + pick(2); k < m; k++)
                    ft_buf_addf(&b, " %s %s,%s", words[pick(6)], hosts[pick(12)], pick(2) ? "root" : "7");
            } else {
                const char *s = settings[pick(13)];
                char digit[2] = {(char)('1' + pick(9)), 0};
                for (; *s; s++) {
                    if (s[0] == '%' && s[1] == 's') ft_buf_adds(&b, digit), s++;
                    else if (s[0] == '%' && s[1] == '%') ft_buf_addc(&b, '%'), s++;
                    else ft_buf_addc(&b, *s);
                }
            }
            ft_buf_addc(&b, '\n');
        }
        equal += compare(w, b.data, hosts[pick(5)], pick(4) ? NULL : "7", pick(6) ? NULL : "10.0.0.3");
        ft_buf_fini(&b);
    }
    printf("250 files by chance (seed 7): %d equal, the rest refused by both\n", equal);
    assert_true(equal > 200);
}

static void notes_and_places(void **state)
{
    struct world *w = *state;
    const char text[] = "Port 5\nMatch exec true\n User nobody\nMatch tagged x\n User nobody\nHost n\n User me\n";
    struct ft_ssh_conf *conf;
    struct ft_ssh_settings s;
    struct ft_err err = {0};
    assert_int_equal(ft_ssh_conf_read_text("f", text, sizeof text - 1, true, &w->me, w->arena, &w->notes, &conf, &err), FT_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ft_ssh_conf_lookup(conf, &(struct ft_ssh_query){.host = "n"}, w->arena, &s, &err), FT_OK);
    assert_string_equal(s.user.text, "me");
    assert_int_equal(s.user.at.line, 7);
    assert_int_equal(s.port.at.line, 1);
    assert_int_equal(w->notes.n, 2); /* once each, however many hosts ask */
    assert_int_equal(w->notes.v[0].at.line, 2);
    assert_non_null(strstr(w->notes.v[0].text, "exec"));
    /* paths */
    const char paths[] = "IdentityFile ~/.ssh/%r-%h-%n-%p\nUserKnownHostsFile %d/%u\nUser ml\nHostName real\nPort 9\n";
    assert_int_equal(ft_ssh_conf_read_text("g", paths, sizeof paths - 1, true, &w->me, w->arena, &w->notes, &conf, &err), FT_OK);
    assert_int_equal(ft_ssh_conf_lookup(conf, &(struct ft_ssh_query){.host = "n"}, w->arena, &s, &err), FT_OK);
    assert_string_equal(s.identity.v[0].text, ft_arena_printf(w->arena, "%s/.ssh/ml-real-n-9", w->me.home));
    assert_string_equal(s.user_known_hosts.v[0].text, ft_arena_printf(w->arena, "%s/%s", w->me.home, w->me.user));
    /* errors name the line */
    const char wrong[] = "Port 5\nHost n\n Port x\n";
    assert_int_equal(ft_ssh_conf_read_text("h", wrong, sizeof wrong - 1, true, &w->me, w->arena, &w->notes, &conf, &err), FT_OK);
    assert_int_equal(ft_ssh_conf_lookup(conf, &(struct ft_ssh_query){.host = "n"}, w->arena, &s, &err), FT_OK);
    assert_string_equal(s.port.text, "5");
    const char wrong2[] = "Host n\n Port x\n";
    assert_int_equal(ft_ssh_conf_read_text("h2", wrong2, sizeof wrong2 - 1, true, &w->me, w->arena, &w->notes, &conf, &err), FT_OK);
    assert_int_equal(ft_ssh_conf_lookup(conf, &(struct ft_ssh_query){.host = "n"}, w->arena, &s, &err), FT_CONFIG);
    assert_string_equal(err.where, "h2:2");
}

static void hops(void **state)
{
    struct world *w = *state;
    static const struct {
        const char *text, *want;
    } v[] = {
        {"none", ""},
        {"", ""},
        {"a", "-@a:-;"},
        {"u@a:22,b", "u@a:22;-@b:-;"},
        {"[fd00::1]:2222", "-@fd00::1:2222;"},
        {"fd00::1", "-@fd00::1:-;"},
        {"ssh://u@h:7/", "u@h:7;"},
        {" a , b ", "-@a:-;-@b:-;"},
        {"x@y@h", "x@y@h:-;"},
        {"a,,b", NULL},
        {"-o", NULL},
        {"a:0", NULL},
        {"a:b", NULL},
        {"@a", NULL},
        {"[x", NULL},
        {"a b", NULL},
        {"a;b", NULL},
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct ft_ssh_hop *h;
        size_t n;
        struct ft_err err = {0};
        const enum ft_code c = ft_ssh_hops(v[i].text, w->arena, &h, &n, &err);
        if (!v[i].want) {
            if (c != FT_CONFIG) fail_msg("'%s' was taken", v[i].text);
            continue;
        }
        assert_int_equal(c, FT_OK);
        struct ft_buf b = {0};
        for (size_t k = 0; k < n; k++)
            ft_buf_addf(&b, "%s@%s:%s;", h[k].user ? h[k].user : "-", h[k].host, h[k].port ? h[k].port : "-");
        assert_string_equal(ft_buf_str(&b), v[i].want);
        ft_buf_fini(&b);
    }
}

static void globs(void **state)
{
    (void)state;
    assert_true(ft_ssh_glob("", ""));
    assert_true(ft_ssh_glob("", "**"));
    assert_true(ft_ssh_glob("abc", "a*c"));
    assert_true(ft_ssh_glob("abcbc", "*bc"));
    assert_false(ft_ssh_glob("abcb", "*bc"));
    assert_false(ft_ssh_glob("a", "a?"));
    char many[4001], stars[81];
    memset(many, 'a', 4000);
    many[4000] = 0;
    for (int i = 0; i < 80; i += 2) stars[i] = '*', stars[i + 1] = 'a';
    stars[79] = 'b';
    stars[80] = 0;
    assert_false(ft_ssh_glob(many, stars)); /* ends soon or the test's time does */
    assert_int_equal(ft_ssh_match_list("b", "a,b,!b", false), FT_MATCH_NEGATED);
    assert_int_equal(ft_ssh_match_list("b", "a,B", true), FT_MATCH_YES);
    assert_int_equal(ft_ssh_match_list("b", "a,B", false), FT_MATCH_NO);
    assert_int_equal(ft_ssh_match_list("", "", false), FT_MATCH_YES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(globs),
        cmocka_unit_test_setup_teardown(cases, setup, teardown),
        cmocka_unit_test_setup_teardown(includes, setup, teardown),
        cmocka_unit_test_setup_teardown(by_chance, setup, teardown),
        cmocka_unit_test_setup_teardown(notes_and_places, setup, teardown),
        cmocka_unit_test_setup_teardown(hops, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
