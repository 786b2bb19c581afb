/* Patterns of ssh_config and known_hosts: '*' and '?', lists with commas, '!' negates. As OpenSSH's match.c judges them. */
#ifndef FT_LAUNCHER_SSH_MATCH_H
#define FT_LAUNCHER_SSH_MATCH_H

#include <stdbool.h>

enum ft_match { FT_MATCH_NEGATED = -1, FT_MATCH_NO = 0, FT_MATCH_YES = 1 };

/* '*' any bytes, '?' one byte; case counts. Linear in both lengths times the stars (never exponential). */
bool ft_ssh_glob(const char *text, const char *pattern);
/* "a*,!b?,c": NEGATED when any '!' item matches, else YES when any other item does. fold: capital letters of both sides
 * count as small ones (host names). An item that is empty matches only the empty text. */
enum ft_match ft_ssh_match_list(const char *text, const char *list, bool fold);

#endif
