/* Fault injection of test builds. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/bits/mix64.h"
#include "base/log.h"
#include "base/str.h"
#include "runtime/ckpt/fio.h"

static const char *const sites[FT_N_FIO_SITES] = {"lock",   "mkdir",    "open",   "fallocate", "write", "fsync", "close",
                                                  "rename", "fsyncdir", "latest", "unlink",    "rmdir", "pread", "replica"};

static bool parse_site(const char *text, size_t n, enum ft_fio_site *out)
{
    for (int i = 0; i < FT_N_FIO_SITES; i++)
        if (strlen(sites[i]) == n && !memcmp(sites[i], text, n)) {
            *out = (enum ft_fio_site)i;
            return true;
        }
    return false;
}

static bool parse_action(const char *text, struct ft_fio_rule *r)
{
    static const struct {
        const char *name;
        enum ft_fio_action action;
        int error;
    } rows[] = {{"kill", FT_FIO_KILL, 0},        {"enospc", FT_FIO_FAIL, ENOSPC}, {"eio", FT_FIO_FAIL, EIO},
                {"estale", FT_FIO_FAIL, ESTALE}, {"short", FT_FIO_SHORT, 0},      {"flip", FT_FIO_FLIP, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(text, rows[i].name)) {
            r->action = rows[i].action;
            r->error = rows[i].error;
            return true;
        }
    int64_t x;
    if (!strncmp(text, "delay=", 6) && ft_parse_i64(text + 6, 0, 600000, &x)) {
        r->action = FT_FIO_DELAY;
        r->delay_ms = (int)x;
        return true;
    }
    if (strncmp(text, "gate=", 5) != 0 || !ft_parse_i64(text + 5, 0, 1 << 20, &x)) return false;
    r->action = FT_FIO_GATE;
    r->gate_fd = (int)x;
    return true;
}

/* SITE[@RANK]:N:ACTION; *mine: it is for this rank. */
static bool parse_rule(char *text, int rank, struct ft_fio_rule *r, bool *mine)
{
    char *colon = strchr(text, ':'), *action = colon ? strrchr(text, ':') : NULL;
    if (!colon || action == colon) return false;
    *action++ = 0;
    *colon++ = 0;
    char *at = strchr(text, '@');
    int64_t who = rank;
    uint64_t seed;
    if (at) {
        *at++ = 0;
        if (!ft_parse_i64(at, 0, 1 << 20, &who)) return false;
    }
    *mine = who == rank;
    if (!parse_site(text, strlen(text), &r->site)) return false;
    if (!strncmp(colon, "rand:", 5)) {
        if (!ft_parse_u64(colon + 5, UINT64_MAX, &seed)) return false;
        r->n = 1 + (int64_t)(ft_mix64(seed + 1) % 8);
    } else if (!ft_parse_i64(colon, 1, INT64_MAX, &r->n)) {
        return false;
    }
    return parse_action(action, r);
}

enum ft_code ft_fio_parse(struct ft_fio *f, const char *text, int rank, struct ft_err *err)
{
    char *copy = ft_xstrdup(text), *rest = copy;
    size_t cap = 0;
    enum ft_code rc = FT_OK;
    for (char *one; !rc && (one = strsep(&rest, ";"));) {
        struct ft_fio_rule r = {0};
        bool mine = false;
        if (!*one) continue;
        char *shown = ft_xstrdup(one);
        if (!parse_rule(one, rank, &r, &mine)) {
            rc = ft_fail(err, FT_USAGE, "FT_FAULT: '%s' is not SITE[@RANK]:N:ACTION", shown);
        } else if (mine) {
            ft_grow(&f->rules, &cap, f->n_rules + 1, sizeof *f->rules);
            f->rules[f->n_rules++] = r;
        }
        free(shown);
    }
    free(copy);
    return rc;
}

struct ft_fio_rule ft_fio_next(struct ft_fio *f, enum ft_fio_site site)
{
    const int64_t n = ++f->calls[site];
    for (size_t i = 0; i < f->n_rules; i++) {
        const struct ft_fio_rule *r = &f->rules[i];
        if (r->site != site || r->n != n) continue;
        ft_log(FT_LOG_WARN, "inject", "fault at %s, call %lld", sites[site], (long long)n);
        if (r->action == FT_FIO_KILL) raise(SIGKILL);
        if (r->action == FT_FIO_DELAY) {
            const struct timespec t = {.tv_sec = r->delay_ms / 1000, .tv_nsec = r->delay_ms % 1000 * 1000000L};
            nanosleep(&t, NULL);
        }
        if (r->action == FT_FIO_GATE) {
            char byte;
            while (read(r->gate_fd, &byte, 1) < 0 && errno == EINTR) continue;
        }
        return *r;
    }
    return (struct ft_fio_rule){.site = site};
}
