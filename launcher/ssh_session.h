/* A session channel on a connection that is logged in. A server that allows one at a time (MaxSessions 1) still counts the one before
 * for a moment after its end: a refusal is tried again for a second. */
#ifndef FT_LAUNCHER_SSH_SESSION_H
#define FT_LAUNCHER_SSH_SESSION_H

#include "launcher/ssh.h"
#include "launcher/ssh_dial.h"

/* OK: *out is open. AGAIN: the wait ended, *fate says how (cancelled, no answer). DENIED, ERROR: as of the last try. *out is the caller's in
 * any case. */
enum ft_ssh_rc ft_ssh_session_open(struct ft_ssh *s, const struct ft_ssh_limits *lim, struct ft_ssh_channel **out,
                                   enum ft_ssh_fate *fate);

#endif
