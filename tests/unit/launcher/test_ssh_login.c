/* Whole logins against a real sshd on a port of this machine: keys in every form, ssh-agent, certificates, host keys by several
 * threads at a time, an sshd that drops connections. Skipped where there is no sshd that this user may start. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "launcher/ssh_pool.h"
#include "ssh_oracle.h"

static int64_t now_ns(void) { return ft_clock_now(ft_clock_real()); }

static struct {
    char *dir;
    struct ft_arena *arena;
    struct ft_ssh_me me;
    pid_t sshd, agent;
    int port;
    char *sock;
} g;

static char *path(const char *name) { return ft_arena_printf(g.arena, "%s/%s", g.dir, name); }

static void must(const char *what, char *const *argv)
{
    struct ft_buf out = {0};
    const int rc = run_program(argv, &out, 1);
    if (rc) fail_msg("%s: status %d: %s", what, rc, ft_buf_str(&out));
    ft_buf_fini(&out);
}
#define WORD(s) ft_arena_strdup(g.arena, s)

static void keygen(const char *name, const char *passphrase)
{
    char *argv[] = {WORD("ssh-keygen"), WORD("-q"), WORD("-t"), WORD("ed25519"), WORD("-N"), WORD(passphrase),
                    WORD("-C"),         WORD(name), WORD("-f"), path(name),      NULL};
    must("ssh-keygen", argv);
}

static pid_t spawn(char *const *argv)
{
    const pid_t pid = fork();
    if (pid == 0) {
        const int null = open("/dev/null", O_RDWR);
        dup2(null, 0);
        dup2(null, 1);
        dup2(null, 2);
        execvp(argv[0], argv);
        _exit(127);
    }
    return pid;
}

static void end(pid_t *pid)
{
    if (*pid <= 0) return;
    kill(*pid, SIGTERM);
    waitpid(*pid, NULL, 0);
    *pid = 0;
}

static char *text_of(const char *name)
{
    struct ft_buf b = {0};
    struct ft_err err = {0};
    if (ft_read_file(path(name), 1 << 20, &b, &err) != FT_OK) fail_msg("%s", err.text);
    char *copy = ft_arena_strdup(g.arena, ft_buf_str(&b));
    ft_buf_fini(&b);
    return copy;
}

static bool listens(void)
{
    for (int i = 0; i < 3000; i++) {
        if (access(path("pid"), R_OK) == 0) return true;
        if (waitpid(g.sshd, NULL, WNOHANG) == g.sshd) return false;
        usleep(20000);
    }
    return false;
}

static int setup(void **state)
{
    (void)state;
    g.arena = ft_arena_create();
    g.me = ft_ssh_me(g.arena);
    if (access("/usr/sbin/sshd", X_OK) || (getuid() == 0 && access("/run/sshd", X_OK) && mkdir("/run/sshd", 0755))) {
        printf("skipped: there is no sshd to start\n");
        return 0;
    }
    g.dir = make_folder();
    keygen("host", "");
    keygen("plain", "");
    keygen("locked", "secret words");
    keygen("held", "");
    keygen("stranger", "");
    keygen("ca", "");
    keygen("certified", "");
    char *sign[] = {
        WORD("ssh-keygen"),    WORD("-q"), WORD("-s"), path("ca"), WORD("-I"), WORD("test"), WORD("-n"), WORD(g.me.user),
        path("certified.pub"), NULL};
    must("ssh-keygen -s", sign);
    g.sock = path("agent.sock");
    char *agent[] = {WORD("ssh-agent"), WORD("-D"), WORD("-a"), g.sock, NULL};
    g.agent = spawn(agent);
    for (int i = 0; i < 3000 && access(g.sock, F_OK); i++) usleep(20000);
    setenv("SSH_AUTH_SOCK", g.sock, 1);
    char *add[] = {WORD("ssh-add"), WORD("-q"), path("held"), NULL};
    must("ssh-add", add);
    unlink(path("held")); /* ssh-agent is the only one that has it; held.pub stays */
    write_text(g.dir, "authorized",
               ft_arena_printf(g.arena, "%s%s%scert-authority %s", text_of("plain.pub"), text_of("locked.pub"), text_of("held.pub"),
                               text_of("ca.pub")));
    unsigned short r;
    assert_true(ft_random(&r, sizeof r));
    g.port = 29500 + r % 3000; /* where neither runs nor other tests take ports */
    write_text(
        g.dir, "sshd_config",
        ft_arena_printf(g.arena,
                        "Port %d\nListenAddress 127.0.0.1\nHostKey %s\nPidFile %s\nAuthorizedKeysFile %s\nStrictModes no\nUsePAM "
                        "no\nPasswordAuthentication no\n"
                        "KbdInteractiveAuthentication no\nMaxStartups 4:60:8\nSubsystem sftp internal-sftp\nPermitRootLogin yes\n",
                        g.port, path("host"), path("pid"), path("authorized")));
    char *sshd[] = {WORD("/usr/sbin/sshd"), WORD("-D"), WORD("-f"), path("sshd_config"), NULL};
    g.sshd = spawn(sshd);
    if (!listens()) {
        printf("skipped: sshd does not start here\n");
        end(&g.sshd);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    end(&g.sshd);
    end(&g.agent);
    if (g.dir) remove_folder(g.dir);
    ft_arena_destroy(g.arena);
    return 0;
}

struct bench {
    struct ft_ssh_hosts *hosts;
    struct ft_ssh_keyring *keys;
    struct ft_ssh_target t;
};

static struct ft_ssh_settings no_settings(void) { return (struct ft_ssh_settings){.hostname = {.text = "127.0.0.1"}}; }

static void bench_open(struct bench *b, const char *identity, const struct ft_ssh_settings *s)
{
    static const char *const commands[] = {FT_BIN "/ftlaunch-agent"};
    struct ft_ssh_settings none = no_settings();
    b->hosts = ft_ssh_hosts_create();
    b->keys = ft_ssh_keyring_create(&g.me);
    b->t = (struct ft_ssh_target){.name = "here",
                                  .host = "127.0.0.1",
                                  .user = g.me.user,
                                  .port = g.port,
                                  .hosts = b->hosts,
                                  .who = {.name = "127.0.0.1", .port = g.port},
                                  .policy = FT_POLICY_OFF,
                                  .mode_hint = "",
                                  .commands = commands,
                                  .n_commands = 1,
                                  .build = ""};
    const char *one = identity ? path(identity) : NULL;
    ft_ssh_offers_make(b->keys, &one, one ? 1 : 0, s ? s : &none, &b->t.offers);
}

static void bench_close(struct bench *b)
{
    ft_ssh_keyring_destroy(b->keys);
    ft_ssh_hosts_destroy(b->hosts);
}

/* n logins at a time; all must come up with an agent that said HELLO, or (why) all fail with this text. */
static void log_in(struct bench *b, int n, const char *why)
{
    struct ft_ssh_pool *p;
    struct ft_err err = {0};
    assert_int_equal(ft_ssh_pool_create(16, &p, &err), FT_OK);
    const int64_t deadline = now_ns() + 100 * FT_SEC;
    for (int i = 0; i < n; i++) ft_ssh_pool_add(p, &b->t, -1, deadline, i);
    for (int got = 0; got < n;) {
        struct ft_ssh_login l;
        int tag;
        struct pollfd f = {ft_ssh_pool_fd(p), POLLIN, 0};
        (void)poll(&f, 1, 100);
        ft_ssh_pool_tick(p, now_ns());
        while (ft_ssh_pool_take(p, &l, &tag)) {
            got++;
            if (why ? l.fate == FT_FATE_UP || !strstr(l.reason, why) : l.fate != FT_FATE_UP)
                fail_msg("login %d: fate %d, %s: %s", tag, l.fate, ft_ssh_phase_name(l.phase), l.reason);
            if (!why) assert_non_null(memmem(l.bytes.data, l.bytes.n, "ftwire", 6));
            ft_ssh_login_fini(&l);
        }
        if (now_ns() > deadline + 30 * FT_SEC) fail_msg("%d of %d logins came back", got, n);
    }
    ft_ssh_pool_destroy(p);
}

#define NEED_SSHD                                                                                                                  \
    if (g.sshd <= 0) skip()

static void keys(void **state)
{
    (void)state;
    NEED_SSHD;
    struct bench b;
    bench_open(&b, "plain", NULL);
    assert_int_equal(b.t.offers.n, 1);
    log_in(&b, 1, NULL);
    bench_close(&b);
    bench_open(&b, "locked", NULL); /* nobody is asked for its passphrase */
    assert_int_equal(b.t.offers.n, 0);
    assert_true(b.t.offers.passphrase);
    assert_non_null(strstr(b.t.offers.skipped, "needs a passphrase and ssh-agent does not hold it"));
    log_in(&b, 1, "needs a passphrase");
    bench_close(&b);
    bench_open(&b, "held", NULL); /* named, but only ssh-agent has it: then nothing else is offered */
    assert_int_equal(b.t.offers.n, 1);
    assert_non_null(b.t.offers.v[0].agent);
    log_in(&b, 1, NULL);
    bench_close(&b);
    bench_open(&b, "held.pub", NULL); /* so can one name it, too */
    log_in(&b, 1, NULL);
    bench_close(&b);
    bench_open(&b, "stranger", NULL);
    log_in(&b, 1, "keys tried");
    bench_close(&b);
    bench_open(&b, "missing", NULL);
    assert_non_null(strstr(b.t.offers.skipped, "No such file"));
    bench_close(&b);
    bench_open(&b, "certified", NULL); /* its certificate first, then the key itself */
    assert_int_equal(b.t.offers.n, 2);
    log_in(&b, 1, NULL);
    bench_close(&b);
    struct ft_ssh_pair *pair = NULL; /* a certificate of another key is not taken for this one's */
    assert_int_equal(ft_ssh_pair_load(path("plain"), path("certified-cert.pub"), &pair), FT_PAIR_UNREADABLE);
    assert_int_equal(chmod(path("plain"), 0644), 0);
    bench_open(&b, "plain", NULL);
    assert_int_equal(b.t.offers.n, 0);
    assert_non_null(strstr(b.t.offers.skipped, "others can read it"));
    bench_close(&b);
    assert_int_equal(chmod(path("plain"), 0600), 0);
}

static void agent(void **state)
{
    (void)state;
    NEED_SSHD;
    struct bench b;
    struct ft_ssh_settings s = no_settings();
    bench_open(&b, NULL, &s); /* nothing named: what ssh-agent holds */
    assert_true(b.t.offers.n >= 1);
    assert_non_null(strstr(b.t.offers.v[0].name, "held"));
    log_in(&b, 8, NULL);
    bench_close(&b);
    s.identity_agent = (struct ft_ssh_value){.raw = "none", .text = "none"};
    bench_open(&b, "held", &s);
    assert_int_equal(b.t.offers.n, 0);
    bench_close(&b);
    struct ft_ssh_agent_keys list;
    struct ft_err err = {0};
    assert_int_equal(ft_ssh_agent_list(g.sock, 60 * FT_SEC, g.arena, &list, &err), FT_OK);
    assert_int_equal(list.n, 1);
    assert_string_equal(list.v[0].type, "ssh-ed25519");
    assert_int_equal(ft_ssh_agent_list(path("nothing"), FT_SEC, g.arena, &list, &err), FT_IO);
    kill(g.agent, SIGSTOP); /* one that does not answer costs its limit, no more */
    const int64_t begin = now_ns();
    assert_int_equal(ft_ssh_agent_list(g.sock, FT_SEC / 2, g.arena, &list, &err), FT_TIMEOUT);
    assert_true(now_ns() - begin < 30 * FT_SEC);
    kill(g.agent, SIGCONT);
}

static void host_keys(void **state)
{
    (void)state;
    NEED_SSHD;
    struct bench b;
    bench_open(&b, "plain", NULL);
    b.t.policy = FT_POLICY_STRICT;
    log_in(&b, 1, "unknown host key ssh-ed25519 SHA256:");
    b.t.policy = FT_POLICY_ACCEPT_NEW;
    b.t.append = path("kept");
    log_in(&b, 8, NULL); /* all at once: one line */
    const char *line = strchr(text_of("kept"), '\n');
    assert_true(line && !line[1]);
    b.t.policy = FT_POLICY_STRICT;
    log_in(&b, 1, NULL);
    bench_close(&b);
    bench_open(&b, "plain", NULL);
    struct ft_err err = {0};
    write_text(g.dir, "other", ft_arena_printf(g.arena, "[127.0.0.1]:%d %s", g.port, text_of("stranger.pub")));
    assert_int_equal(ft_ssh_hosts_read(b.hosts, path("other"), &err), FT_OK);
    log_in(&b, 1, "CHANGED"); /* whatever the policy */
    bench_close(&b);
}

/* MaxStartups 4:60:8: many are dropped before their key exchange; every one comes up in the end. */
static void crowd(void **state)
{
    (void)state;
    NEED_SSHD;
    struct bench b;
    bench_open(&b, "plain", NULL);
    log_in(&b, 24, NULL);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys),
        cmocka_unit_test(agent),
        cmocka_unit_test(host_keys),
        cmocka_unit_test(crowd),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
