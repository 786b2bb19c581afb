/* bench_logins KEY USER HOST…: the floor of a start over ssh: one thread per host does TCP, key exchange, authentication and the
 * command `true`, with the algorithms of the launcher, and nothing else (host keys are not judged). Status: 0 when every one was run
 * to its end. tests/bench/launcher-ssh runs it beside the launchers. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "launcher/ssh.h"
#include "launcher/ssh_dial.h"

enum { STATUS_WAITS = 30 }; /* of a second at most */

struct login {
    pthread_t thread;
    const char *host, *user;
    const struct ft_ssh_pair *pair;
    int status; /* of the command; -1: not run */
};

static bool always(void *self)
{
    (void)self;
    return true;
}

static void pause_for(struct ft_ssh *s)
{
    struct pollfd p = {.fd = ft_ssh_fd(s), .events = ft_ssh_events(s)};
    (void)poll(&p, 1, 1000);
}

static bool log_in(struct ft_ssh *s, const struct ft_ssh_pair *pair)
{
    enum ft_ssh_rc rc;
    while ((rc = ft_ssh_connect(s)) == FT_SSH_AGAIN) pause_for(s);
    if (rc != FT_SSH_OK) return false;
    while ((rc = ft_ssh_auth_key(s, pair)) == FT_SSH_AGAIN) pause_for(s);
    return rc == FT_SSH_OK;
}

/* The end of the output may come before the status; -1: the server ends without one. */
static int status_of(struct ft_ssh *s, struct ft_ssh_channel *c)
{
    int status;
    for (int i = 0; (status = ft_ssh_channel_status(c)) < 0 && ft_ssh_alive(s) && i < STATUS_WAITS; i++) pause_for(s);
    return status;
}

static int run_true(struct ft_ssh *s)
{
    struct ft_ssh_channel *c = ft_ssh_channel_create(s);
    enum ft_ssh_rc rc;
    char bytes[256];
    size_t n;
    while ((rc = ft_ssh_channel_open(c)) == FT_SSH_AGAIN) pause_for(s);
    if (rc == FT_SSH_OK)
        while ((rc = ft_ssh_channel_exec(c, "true")) == FT_SSH_AGAIN) pause_for(s);
    if (rc == FT_SSH_OK)
        while ((rc = ft_ssh_channel_read(c, 1, bytes, sizeof bytes, &n)) == FT_SSH_AGAIN || rc == FT_SSH_OK) pause_for(s);
    const int status = rc == FT_SSH_END ? status_of(s, c) : -1;
    ft_ssh_channel_destroy(c);
    return status;
}

static void *work(void *arg)
{
    struct login *l = arg;
    struct ft_err err = {0};
    const struct ft_ssh_dialer d = {
        .host = l->host,
        .port = 22,
        .limits = {.deadline = ft_clock_now(ft_clock_real()) + 30 * FT_SEC, .cancel_fd = -1},
        .resolved = always,
    };
    struct ft_ssh_spec spec = {.user = l->user, .known_types = ""};
    struct ft_ssh *s;
    const char *phase;
    char reason[256];
    if (ft_ssh_dial(&d, &spec.fd, &phase, reason, sizeof reason) != FT_FATE_UP || ft_ssh_create(&spec, &s, &err) != FT_OK)
        return NULL;
    if (log_in(s, l->pair)) l->status = run_true(s);
    ft_ssh_destroy(s);
    return NULL;
}

int main(int argc, char **argv)
{
    struct ft_ssh_pair *pair;
    int bad = 0;
    if (argc < 4) {
        fprintf(stderr, "usage: bench_logins KEY USER HOST...\n");
        return 2;
    }
    if (ft_ssh_pair_load(argv[1], NULL, &pair) != FT_PAIR_OK) {
        fprintf(stderr, "bench_logins: cannot use the key '%s'\n", argv[1]);
        return 2;
    }
    const int n = argc - 3;
    struct login *logins = calloc((size_t)n, sizeof *logins);
    if (!logins) return 2;
    for (int i = 0; i < n; i++) {
        logins[i] = (struct login){.host = argv[3 + i], .user = argv[2], .pair = pair, .status = -1};
        if (pthread_create(&logins[i].thread, NULL, work, &logins[i]) != 0) return 2;
    }
    for (int i = 0; i < n; i++) {
        pthread_join(logins[i].thread, NULL);
        bad += logins[i].status != 0;
    }
    if (bad) fprintf(stderr, "bench_logins: %d of %d failed\n", bad, n);
    free(logins);
    ft_ssh_pair_destroy(pair);
    return bad ? 1 : 0;
}
