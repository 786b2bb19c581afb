/* When a login that did not come up is tried again: a pure table (launcher, "Reaching nodes", ssh, Retry).
 *
 *   refused, name not known      again every 0.5 s until the deadline
 *   closed before its key        again after 0.2 s * 2^k with jitter; fewer handshakes at a time for that address
 *   no route                     three times, 1 s apart
 *   no answer, anything else     final */
#ifndef FT_LAUNCHER_SSH_RETRY_H
#define FT_LAUNCHER_SSH_RETRY_H

#include <stdint.h>

#include "launcher/ssh_dial.h"

struct ft_ssh_retry {
    unsigned n_dropped, n_no_route; /* {0} at first */
};
/* Time (ns) of the next try, or -1: that was the last one. random: 32 bits. */
int64_t ft_ssh_retry_at(struct ft_ssh_retry *r, enum ft_ssh_fate fate, int64_t now, int64_t deadline, uint32_t random);

enum { FT_SSH_GATE = 8 }; /* handshakes at a time to one address at first: sshd begins to drop at the 11th */
unsigned ft_ssh_gate_after(unsigned allowed, enum ft_ssh_fate fate);

#endif
