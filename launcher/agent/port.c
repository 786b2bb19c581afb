/* MASTER_PORT: outside ip_local_port_range, free on the address (a test bind), and leased by an abstract socket that is held
 * until the attempt ends, so that two jobs never collide. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/netif.h"

static int lease(unsigned port)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int n = snprintf(sa.sun_path + 1, sizeof sa.sun_path - 1, "ftlaunch/port/%u", port);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&sa, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0 &&
        listen(fd, 1) == 0)
        return fd;
    if (fd >= 0) close(fd);
    return -1;
}

socklen_t ft_agent_address(const char *addr, unsigned port, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    if (inet_pton(AF_INET, addr, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        return sizeof *v4;
    }
    if (inet_pton(AF_INET6, addr, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        return sizeof *v6;
    }
    return 0;
}

/* 0 when a listener could be there now; else errno. Without SO_REUSEADDR: a port in TIME_WAIT is taken as busy. */
static int test_bind(const char *addr, unsigned port)
{
    struct sockaddr_storage sa;
    socklen_t len = ft_agent_address(addr, port, &sa);
    if (!len) return EAFNOSUPPORT;
    int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;
    int e = bind(fd, (struct sockaddr *)&sa, len) == 0 && listen(fd, 1) == 0 ? 0 : errno;
    close(fd);
    return e;
}

/* Inode of the socket that listens on the port; 0: none seen. */
static uint64_t listener_inode(const char *table, unsigned port)
{
    FILE *f = fopen(table, "re");
    char line[512];
    uint64_t found = 0;
    while (f && !found && fgets(line, sizeof line, f)) {
        unsigned p, state;
        unsigned long long inode;
        if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*x:%*x %*x:%*x %*x %*u %*u %llu", &p, &state, &inode) == 3 &&
            p == port && state == 0x0A)
            found = inode;
    }
    if (f) fclose(f);
    return found;
}

static bool process_holds(pid_t pid, uint64_t inode)
{
    char name[300], link[64], want[64];
    snprintf(name, sizeof name, "/proc/%d/fd", (int)pid);
    snprintf(want, sizeof want, "socket:[%llu]", (unsigned long long)inode);
    DIR *d = opendir(name);
    bool found = false;
    for (struct dirent *e; d && !found && (e = readdir(d));) {
        ssize_t n = readlinkat(dirfd(d), e->d_name, link, sizeof link - 1);
        found = n > 0 && (size_t)n == strlen(want) && memcmp(link, want, (size_t)n) == 0;
    }
    if (d) closedir(d);
    return found;
}

static void describe_owner(unsigned port, struct ft_buf *out)
{
    uint64_t inode = listener_inode("/proc/net/tcp", port);
    if (!inode) inode = listener_inode("/proc/net/tcp6", port);
    DIR *d = inode ? opendir("/proc") : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        int64_t pid;
        if (!ft_parse_i64(e->d_name, 1, INT32_MAX, &pid) || !process_holds((pid_t)pid, inode)) continue;
        char command[160];
        ft_process_command((pid_t)pid, command, sizeof command);
        ft_buf_addf(out, "; held by pid %lld, %s", (long long)pid, command);
        break;
    }
    if (d) closedir(d);
}

static bool try_port(struct ft_agent *a, const char *addr, unsigned port)
{
    if (test_bind(addr, port)) return false;
    a->port_fd = lease(port);
    return a->port_fd >= 0;
}

/* Search ranges: 61000-64999, else 20000-29499, else anywhere above 1023; the kernel's own range is left out of all. */
static unsigned search(struct ft_agent *a, const char *addr, uint64_t start)
{
    static const unsigned from[] = {61000, 20000, 1024}, to[] = {64999, 29499, 65535};
    unsigned low = 32768, high = 60999;
    struct ft_buf text = {0};
    if (ft_read_file("/proc/sys/net/ipv4/ip_local_port_range", 64, &text, NULL) == FT_OK &&
        sscanf(text.data, "%u %u", &low, &high) != 2)
        low = 32768, high = 60999;
    ft_buf_fini(&text);
    for (int pass = 0; pass < 4; pass++) {
        int r = pass < 3 ? pass : 2;
        unsigned n = to[r] - from[r] + 1;
        for (unsigned i = 0; i < n; i++) {
            unsigned port = from[r] + (unsigned)((start + i) % n);
            if (pass < 3 && port >= low && port <= high) continue;
            if (try_port(a, addr, port)) return port;
        }
    }
    return 0;
}

void ft_agent_probe_port(struct ft_agent *a, uint32_t id, const char *addr, unsigned wished, uint64_t start)
{
    ft_close(&a->port_fd);
    struct ft_buf text = {0};
    unsigned port = 0;
    if (!ft_netif_has_address(addr, a->node, &text)) port = 0;
    else if (!wished) {
        port = search(a, addr, start);
        if (!port) ft_buf_addf(&text, "no free port on %s", addr);
    } else {
        int e = test_bind(addr, wished);
        if (e) {
            ft_buf_addf(&text, "port %u on %s: %s", wished, addr, strerror(e));
            if (e == EADDRINUSE) describe_owner(wished, &text);
        } else if ((a->port_fd = lease(wished)) < 0)
            ft_buf_addf(&text, "port %u on %s is leased by another job of ftlaunch", wished, addr);
        else port = wished;
    }
    struct ft_msg m = ft_msg_make(FT_MSG_RESULT, FT_WIRE_NODE);
    ft_msg_u(&m, 0, id);
    ft_msg_u(&m, 1, port != 0);
    ft_msg_u(&m, 2, port);
    ft_msg_bytes(&m, 3, text.data, text.n);
    ft_wire_send(&a->wire, &m);
    ft_agent_flush(a);
    ft_buf_fini(&text);
}
