/* Interfaces and addresses of this machine, as [cluster] interface and master_addr name them. No state; getifaddrs each time. */
#ifndef FT_LAUNCHER_AGENT_NETIF_H
#define FT_LAUNCHER_AGENT_NETIF_H

#include <ifaddrs.h>
#include <net/if.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "base/str.h"

/* An address that ranks may meet on: up and not link-local; wanted = "auto": not loopback and no bridge of containers; else of the
 * interface of that name, or in that network (CIDR). */
bool ft_netif_is_usable(const struct ifaddrs *i, const char *wanted);
/* The address as digits ("" when it has none that is IPv4 or IPv6). */
void ft_netif_address(const struct ifaddrs *i, char out[64]);
/* Name of the interface that `wanted` (a name or CIDR, not "auto") means here; false: none, and why says what there is. */
bool ft_netif_find(const char *wanted, const char *node, char name[IF_NAMESIZE], struct ft_buf *why);
/* Is this an address (digits) of this machine? All of 127.0.0.0/8 are. false: why says which it has. */
bool ft_netif_has_address(const char *addr, const char *node, struct ft_buf *why);

#endif
