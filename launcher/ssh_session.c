#include "launcher/ssh_session.h"

#include "base/clock.h"

#define TRY_FOR   FT_SEC
#define TRY_EVERY (50 * FT_MS)

static int64_t now_ns(void) { return ft_clock_now(ft_clock_real()); }

enum ft_ssh_rc ft_ssh_session_open(struct ft_ssh *s, const struct ft_ssh_limits *lim, struct ft_ssh_channel **out,
                                   enum ft_ssh_fate *fate)
{
    const int64_t until = now_ns() + TRY_FOR;
    for (;;) {
        enum ft_ssh_rc rc;
        short revents;
        *out = ft_ssh_channel_create(s);
        while ((rc = ft_ssh_channel_open(*out)) == FT_SSH_AGAIN)
            if ((*fate = ft_ssh_poll(ft_ssh_fd(s), ft_ssh_events(s), lim, INT64_MAX, &revents)) != FT_FATE_UP) return FT_SSH_AGAIN;
        if (rc != FT_SSH_DENIED || now_ns() >= until) return rc;
        ft_ssh_channel_destroy(*out);
        *out = NULL;
        const int64_t next = now_ns() + TRY_EVERY;
        while (now_ns() < next) /* what arrives meanwhile is read by the next try */
            if ((*fate = ft_ssh_poll(ft_ssh_fd(s), 0, lim, next, &revents)) != FT_FATE_UP) return FT_SSH_AGAIN;
    }
}
