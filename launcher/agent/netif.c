#include "launcher/agent/netif.h"

#include <arpa/inet.h>
#include <fnmatch.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

static bool in_network(const struct sockaddr *sa, const char *cidr)
{
    char text[80];
    unsigned char want[16];
    const char *slash = strchr(cidr, '/');
    int64_t bits;
    const bool v4 = sa->sa_family == AF_INET;
    if (!slash || (size_t)(slash - cidr) >= sizeof text || !ft_parse_i64(slash + 1, 0, v4 ? 32 : 128, &bits)) return false;
    snprintf(text, sizeof text, "%.*s", (int)(slash - cidr), cidr);
    if (inet_pton(sa->sa_family, text, want) != 1) return false;
    const void *have = v4 ? (const void *)&((const struct sockaddr_in *)(const void *)sa)->sin_addr
                          : (const void *)&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr;
    const unsigned char *h = have;
    for (int i = 0; i < bits; i++)
        if ((h[i / 8] ^ want[i / 8]) & (0x80 >> i % 8)) return false;
    return true;
}

bool ft_netif_is_usable(const struct ifaddrs *i, const char *wanted)
{
    static const char *const inner[] = {"docker*", "br-*", "veth*", "virbr*", "cni*", "cali*", "flannel*"};
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP)) return false;
    if (i->ifa_addr->sa_family == AF_INET6) {
        const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)(const void *)i->ifa_addr;
        if (IN6_IS_ADDR_LINKLOCAL(&a->sin6_addr)) return false;
    } else if (i->ifa_addr->sa_family == AF_INET) {
        const struct sockaddr_in *a = (const struct sockaddr_in *)(const void *)i->ifa_addr;
        if ((ntohl(a->sin_addr.s_addr) >> 16) == 0xA9FE) return false;
    } else return false;
    if (strcmp(wanted, "auto") != 0)
        return strchr(wanted, '/') ? in_network(i->ifa_addr, wanted) : strcmp(i->ifa_name, wanted) == 0;
    if (i->ifa_flags & IFF_LOOPBACK) return false;
    for (size_t k = 0; k < sizeof inner / sizeof *inner; k++)
        if (fnmatch(inner[k], i->ifa_name, 0) == 0) return false;
    return true;
}

void ft_netif_address(const struct ifaddrs *i, char out[64])
{
    const int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
    const socklen_t n = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    out[0] = 0;
    if (family != AF_INET && family != AF_INET6) return;
    if (getnameinfo(i->ifa_addr, n, out, 64, NULL, 0, NI_NUMERICHOST)) out[0] = 0;
}

/* "eth0 10.0.0.1, lo 127.0.0.1": every address, or the names alone of those without one. */
static void add_all(const struct ifaddrs *list, struct ft_buf *out)
{
    enum { MOST = 16 };
    char text[64];
    int n = 0;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        ft_netif_address(i, text);
        if (!text[0] || n++ >= MOST) continue;
        ft_buf_addf(out, "%s%s %s%s", n > 1 ? ", " : "", i->ifa_name, text, i->ifa_flags & IFF_UP ? "" : " (down)");
    }
    if (n > MOST) ft_buf_addf(out, " and %d more", n - MOST);
    if (!n) ft_buf_adds(out, "no address at all");
}

bool ft_netif_find(const char *wanted, const char *node, char name[IF_NAMESIZE], struct ft_buf *why)
{
    struct ifaddrs *list = NULL;
    bool found = false, known = false;
    if (getifaddrs(&list)) list = NULL;
    for (const struct ifaddrs *i = list; i && !found; i = i->ifa_next) {
        known = known || strcmp(i->ifa_name, wanted) == 0;
        found = ft_netif_is_usable(i, wanted);
        if (found) snprintf(name, IF_NAMESIZE, "%.*s", IF_NAMESIZE - 1, i->ifa_name);
    }
    if (!found) {
        if (strchr(wanted, '/')) ft_buf_addf(why, "no interface of %s has an address in %s", node, wanted);
        else if (known) ft_buf_addf(why, "interface %s of %s is down or has no address", wanted, node);
        else ft_buf_addf(why, "%s has no interface %s", node, wanted);
        ft_buf_adds(why, "; it has ");
        add_all(list, why);
    }
    freeifaddrs(list);
    return found;
}

bool ft_netif_has_address(const char *addr, const char *node, struct ft_buf *why)
{
    struct ifaddrs *list = NULL;
    struct in_addr v4;
    char text[64];
    bool found = inet_pton(AF_INET, addr, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127;
    if (getifaddrs(&list)) list = NULL;
    for (const struct ifaddrs *i = list; i && !found; i = i->ifa_next) {
        ft_netif_address(i, text);
        found = strcmp(text, addr) == 0;
    }
    if (!found) {
        ft_buf_addf(why, "master_addr = %s is no address of %s; it has ", addr, node);
        add_all(list, why);
    }
    freeifaddrs(list);
    return found;
}
