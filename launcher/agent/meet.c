/* Finding an address that every node reaches: the node of rank 0 listens on its own ones, the others try them. Both are over
 * within the time the head gives; nothing is accepted or said without the head's nonce. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/netif.h"

enum { MAX_ADDRESSES = 32, MAX_GUESTS = 4096, NONCE = 64, HALF = NONCE / 2 };

/* One socket: a listener, a guest of it, or a try of ours. */
struct peer {
    struct ft_meeting *meeting;
    int fd, index; /* index of the address; -1: a guest */
    bool listens, said;
    char got[NONCE];
    size_t n_got;
    struct ft_watch watch;
    struct peer *next;
};
struct ft_meeting {
    struct ft_agent *agent;
    uint32_t id;
    char nonce[NONCE + 1];
    struct peer *peers;
    int n_guests;
    struct ft_timer end;
    /* CONNECT */
    bool connects;
    char reached[MAX_ADDRESSES + 1];
    int n, n_open;
};

static void drop_peer(struct peer *p)
{
    ft_watch_remove(&p->meeting->agent->loop, &p->watch);
    ft_close(&p->fd);
    p->meeting->n_guests -= !p->listens && p->index < 0;
}

void ft_agent_meet_end(struct ft_agent *a)
{
    struct ft_meeting *m = a->meeting;
    if (!m) return;
    for (struct peer *p = m->peers, *next; p; p = next) {
        next = p->next;
        drop_peer(p);
        free(p);
    }
    ft_timer_cancel(&m->end);
    free(m);
    a->meeting = NULL;
}

void ft_agent_answer(struct ft_agent *a, uint32_t id, bool ok, uint64_t number, const char *text, size_t n)
{
    struct ft_msg r = ft_msg_make(FT_MSG_RESULT, FT_WIRE_NODE);
    ft_msg_u(&r, 0, id);
    ft_msg_u(&r, 1, ok);
    ft_msg_u(&r, 2, number);
    ft_wire_send_pieces(&a->wire, r, 3, text, n);
    ft_agent_flush(a);
}

static void answer(struct ft_agent *a, uint32_t id, bool ok, const char *text)
{
    ft_agent_answer(a, id, ok, 0, text, strlen(text));
}

static void on_end(void *self, int64_t now)
{
    (void)now;
    struct ft_meeting *m = self;
    if (m->connects) answer(m->agent, m->id, true, m->reached);
    ft_agent_meet_end(m->agent);
}

static struct peer *add_peer(struct ft_meeting *m, int fd, int index, bool listens, short events, void (*ready)(void *, short))
{
    struct peer *p = ft_xcalloc(1, sizeof *p);
    *p = (struct peer){.meeting = m, .fd = fd, .index = index, .listens = listens, .next = m->peers};
    m->peers = p;
    ft_watch_add(&m->agent->loop, &p->watch, fd, events, ready, p);
    return p;
}

static struct ft_meeting *begin(struct ft_agent *a, uint32_t id, const char *nonce, int64_t limit_ms)
{
    ft_agent_meet_end(a);
    struct ft_meeting *m = ft_xcalloc(1, sizeof *m);
    m->agent = a;
    m->id = id;
    snprintf(m->nonce, sizeof m->nonce, "%s", nonce);
    a->meeting = m;
    ft_timer_set(&a->loop, &m->end, ft_clock_now(ft_clock_real()) + limit_ms * FT_MS, on_end, m);
    return m;
}

/* ---- listening ---- */

/* A guest says the first half of the nonce and gets the second. */
static void on_guest(void *self, short revents)
{
    (void)revents;
    struct peer *p = self;
    const ssize_t n = recv(p->fd, p->got + p->n_got, HALF - p->n_got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0) p->n_got += (size_t)n;
    if (n > 0 && p->n_got < HALF) return;
    if (n > 0 && memcmp(p->got, p->meeting->nonce, HALF) == 0)
        (void)!send(p->fd, p->meeting->nonce + HALF, HALF, MSG_NOSIGNAL | MSG_DONTWAIT);
    drop_peer(p);
}

static void on_listener(void *self, short revents)
{
    (void)revents;
    struct peer *p = self;
    for (;;) {
        int fd = accept4(p->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) return;
        if (p->meeting->n_guests >= MAX_GUESTS) {
            close(fd);
            continue;
        }
        p->meeting->n_guests++;
        add_peer(p->meeting, fd, -1, false, POLLIN, on_guest);
    }
}

/* Listens on one address (that address only); a line for the head. */
static bool listen_on(struct ft_meeting *m, const struct sockaddr *sa, const char *text, const char *interface, struct ft_buf *out)
{
    struct sockaddr_storage any;
    socklen_t len = sa->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    memset(&any, 0, sizeof any);
    memcpy(&any, sa, len);
    struct sockaddr_in *v4 = (struct sockaddr_in *)&any;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&any;
    if (sa->sa_family == AF_INET) v4->sin_port = 0;
    else v6->sin6_port = 0;
    int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&any, len) || listen(fd, 1024) || getsockname(fd, (struct sockaddr *)&any, &len)) {
        ft_close(&fd);
        return false;
    }
    ft_buf_addf(out, "%s %u %s\n", text, (unsigned)ntohs(sa->sa_family == AF_INET ? v4->sin_port : v6->sin6_port), interface);
    add_peer(m, fd, m->n++, true, POLLIN, on_listener);
    return true;
}

/* The address by which the login came, of SSH_CONNECTION ("client port server port"). */
static void address_of_login(char out[64])
{
    const char *s = getenv("SSH_CONNECTION");
    if (!s || sscanf(s, "%*s %*s %63s", out) != 1) out[0] = 0;
}

static void listen_all(struct ft_meeting *m, const char *interface, const char *only, struct ft_buf *out)
{
    struct ifaddrs *list = NULL;
    char login[64], text[64];
    address_of_login(login);
    if (getifaddrs(&list)) return;
    for (int pass = 0; pass < 3; pass++) /* the login's address, then IPv4, then IPv6 */
        for (struct ifaddrs *i = list; i && m->n < MAX_ADDRESSES; i = i->ifa_next) {
            ft_netif_address(i, text);
            if (!text[0]) continue;
            const bool v4 = i->ifa_addr->sa_family == AF_INET;
            const bool first = strcmp(text, login) == 0;
            if (pass != (first ? 0 : v4 ? 1 : 2)) continue;
            if (*only ? strcmp(text, only) != 0 : !ft_netif_is_usable(i, interface)) continue;
            (void)listen_on(m, i->ifa_addr, text, i->ifa_name, out);
        }
    freeifaddrs(list);
}

static const char *next_line(char **p)
{
    char *line = *p, *end = strchr(line, '\n');
    if (end) {
        *end = 0;
        *p = end + 1;
    } else *p = line + strlen(line);
    return line;
}

void ft_agent_probe_listen(struct ft_agent *a, uint32_t id, int64_t limit_ms, char *text)
{
    const char *nonce = next_line(&text), *interface = next_line(&text), *only = next_line(&text);
    if (strlen(nonce) != NONCE) {
        answer(a, id, false, "the head's question cannot be read");
        return;
    }
    struct ft_meeting *m = begin(a, id, nonce, limit_ms);
    struct ft_buf out = {0};
    listen_all(m, interface, only, &out);
    if (!m->n) {
        ft_buf_clear(&out);
        char name[IF_NAMESIZE];
        if (*only && !ft_netif_has_address(only, a->node, &out)) errno = 0;
        else if (*only) ft_buf_addf(&out, "nothing can listen on master_addr = %s of %s", only, a->node);
        else if (strcmp(interface, "auto") != 0 && ft_netif_find(interface, a->node, name, &out))
            ft_buf_addf(&out, "nothing can listen on interface %s of %s", name, a->node);
        else if (!out.n)
            ft_buf_addf(&out,
                        "%s has no address but loopback, link-local and those of containers; name one with [cluster] interface",
                        a->node);
        ft_agent_meet_end(a);
        answer(a, id, false, out.data);
    } else answer(a, id, true, out.data);
    ft_buf_fini(&out);
}

/* ---- trying ---- */

static void try_over(struct peer *p, bool reached)
{
    struct ft_meeting *m = p->meeting;
    if (reached) m->reached[p->index] = '1';
    drop_peer(p);
    if (--m->n_open == 0) ft_timer_set(&m->agent->loop, &m->end, 0, on_end, m);
}

static void on_try(void *self, short revents)
{
    (void)revents;
    struct peer *p = self;
    const char *nonce = p->meeting->nonce;
    if (!p->said) {
        int error = 0;
        socklen_t len = sizeof error;
        if (getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &error, &len) || error ||
            send(p->fd, nonce, HALF, MSG_NOSIGNAL | MSG_DONTWAIT) != HALF) {
            try_over(p, false);
            return;
        }
        p->said = true;
        ft_watch_want(&p->meeting->agent->loop, &p->watch, POLLIN);
        return;
    }
    const ssize_t n = recv(p->fd, p->got + p->n_got, HALF - p->n_got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0) p->n_got += (size_t)n;
    if (n > 0 && p->n_got < HALF) return;
    try_over(p, n > 0 && memcmp(p->got, nonce + HALF, HALF) == 0);
}

static void try_one(struct ft_meeting *m, const char *addr, unsigned port, int index)
{
    struct sockaddr_storage sa;
    const socklen_t len = ft_agent_address(addr, port, &sa);
    int fd = len ? socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    if (fd < 0 || (connect(fd, (struct sockaddr *)&sa, len) && errno != EINPROGRESS)) {
        ft_close(&fd);
        return;
    }
    m->n_open++;
    add_peer(m, fd, index, false, POLLOUT, on_try);
}

void ft_agent_probe_connect(struct ft_agent *a, uint32_t id, int64_t limit_ms, char *text)
{
    const char *nonce = next_line(&text);
    if (strlen(nonce) != NONCE) {
        answer(a, id, false, "the head's question cannot be read");
        return;
    }
    struct ft_meeting *m = begin(a, id, nonce, limit_ms);
    m->connects = true;
    while (*text && m->n < MAX_ADDRESSES) {
        char addr[64];
        unsigned port;
        const bool ok = sscanf(next_line(&text), "%63s %u", addr, &port) == 2 && port <= 65535;
        m->reached[m->n] = '0';
        if (ok) try_one(m, addr, port, m->n);
        m->n++;
    }
    if (!m->n_open) ft_timer_set(&a->loop, &m->end, 0, on_end, m);
}
