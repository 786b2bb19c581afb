/* A bounded pool of threads that perform logins, with the retry table and one deadline per login.
 *
 *   1. ft_ssh_pool_create; poll ft_ssh_pool_fd for POLLIN
 *   2. ft_ssh_pool_add for each node: it is tried until it is up, final, or the deadline has passed
 *   3. when the descriptor is readable: ft_ssh_pool_take until it gives nothing; a session then belongs to the caller
 *   4. ft_ssh_pool_tick at least four times a second while anything is under way (logins that only wait for a silent peer do not
 *      count against the bound; a thread that the resolver keeps beyond the deadline is abandoned, never joined)
 *   5. ft_ssh_pool_destroy: everything under way is cancelled; it returns when no thread uses the targets any more
 *
 * All functions are called by one thread. Targets are the caller's and live until the login was taken or the pool is destroyed. */
#ifndef FT_LAUNCHER_SSH_POOL_H
#define FT_LAUNCHER_SSH_POOL_H

#include "launcher/ssh_login.h"

struct ft_ssh_pool;

enum ft_code ft_ssh_pool_create(unsigned parallel, struct ft_ssh_pool **out, struct ft_err *err) FT_MUST_CHECK;
void ft_ssh_pool_destroy(struct ft_ssh_pool *p); /* NULL is fine */
int ft_ssh_pool_fd(const struct ft_ssh_pool *p);
/* fd: a connection through a bastion (taken over), else -1. deadline: CLOCK_MONOTONIC ns. */
void ft_ssh_pool_add(struct ft_ssh_pool *p, const struct ft_ssh_target *t, int fd, int64_t deadline, int tag);
/* A login that ended: the caller frees it with ft_ssh_login_fini. */
bool ft_ssh_pool_take(struct ft_ssh_pool *p, struct ft_ssh_login *out, int *out_tag);
/* No result of this login is wanted any more; it is thrown away when it comes. */
void ft_ssh_pool_drop(struct ft_ssh_pool *p, int tag);
void ft_ssh_pool_tick(struct ft_ssh_pool *p, int64_t now);
/* What keeps a login that is still under way: its phase, and the reason of the last try ("" before the first failed). */
bool ft_ssh_pool_look(struct ft_ssh_pool *p, int tag, enum ft_ssh_phase *phase, char reason[FT_SSH_REASON]);
size_t ft_ssh_pool_busy(struct ft_ssh_pool *p); /* logins under way */

#endif
