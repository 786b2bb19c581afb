/* ProxyCommand of ssh_config: a process whose standard input and output are the connection.
 *
 *   1. ft_ssh_proxy_words: the line as a list of words, %-tokens replaced; before anything is contacted. No shell sees it: what needs one
 *      (pipes, redirections, variables, globs) is refused by name
 *   2. ft_ssh_proxy_start: the process, with one end of a socket pair; the other end is given to a session
 *   3. ft_ssh_proxy_end: with the connection; the process and its group are killed and reaped
 *
 * Its standard error is kept (the first 4 KiB) for the reason of a failed login. The process has a session of its own, so it can ask nobody.
 * If the head is killed the process reads the end of its input. Any thread may start and end one. */
#ifndef FT_LAUNCHER_SSH_PROXY_H
#define FT_LAUNCHER_SSH_PROXY_H

#include <sys/types.h>

#include "launcher/ssh_config.h"

struct ft_ssh_proxy {
    pid_t pid; /* 0: none */
    int said;  /* its standard error; -1: none */
};

/* NULL-terminated; in the arena. settings: those of the host that the line is for. */
enum ft_code ft_ssh_proxy_words(const char *line, const char *host, const struct ft_ssh_settings *settings,
                                const struct ft_ssh_me *me, struct ft_arena *arena, char *const **out_words,
                                struct ft_err *err) FT_MUST_CHECK;
/* *out_fd: our end, non-blocking, close-on-exec. */
enum ft_code ft_ssh_proxy_start(char *const *words, struct ft_ssh_proxy *out, int *out_fd, struct ft_err *err) FT_MUST_CHECK;
/* The last line that it has written to its standard error; "": none. */
void ft_ssh_proxy_said(const struct ft_ssh_proxy *p, char *out, size_t cap);
void ft_ssh_proxy_end(struct ft_ssh_proxy *p);

#endif
