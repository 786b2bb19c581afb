/* The last part of a login: a command that turns out to be our agent. Between ssh_login.c and ssh_begin.c only. */
#ifndef FT_LAUNCHER_SSH_BEGIN_H
#define FT_LAUNCHER_SSH_BEGIN_H

#include "launcher/ssh_login.h"

struct ft_ssh_trial {
    const struct ft_ssh_target *target;
    const struct ft_ssh_limits *limits;
    struct ft_ssh_login *out;
    int64_t phase_at;
    void (*at)(void *self, enum ft_ssh_phase p);
    void *self;
    bool any_build; /* another build that speaks our wire is taken, with a note */
};

/* Sets fate and reason; returns false. */
bool ft_ssh_login_fail(struct ft_ssh_login *out, enum ft_ssh_fate fate, const char *fmt, ...) FT_PRINTF(3, 4);
/* Waits for the session (or until_ns). false: the deadline (reason: late) or the pool's end. */
bool ft_ssh_login_pause(struct ft_ssh_trial *t, int64_t until_ns, const char *late);

bool ft_ssh_begin_agent(struct ft_ssh_trial *t);

#endif
