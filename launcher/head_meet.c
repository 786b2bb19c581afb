/* Where the ranks meet: rank 0's node listens on its own addresses for a few seconds, every other node tries all of them, the
 * first that all have reached wins and is printed; then a port is leased there. One node: 127.0.0.1. */
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"
#include "launcher/head.h"

enum { MEET_MS = 5000, MAX_ADDRESSES = 32 };
enum stage { MEET_LISTEN, MEET_CONNECT, MEET_PORT };

struct ft_meet {
    enum stage stage;
    int id; /* of the probe under way */
    char nonce[65];
    char addr[MAX_ADDRESSES][64], interface[MAX_ADDRESSES][32];
    int port[MAX_ADDRESSES];
    int n, won;
    uint32_t *reached; /* (nodes) bit per address */
    bool *answered;
    int n_waiting;
};

static int n_seats(const struct ft_head *h) { return (int)h->plan->n_nodes; }
static const struct ft_head_node *at_seat(const struct ft_head *h, int seat) { return &h->nodes[h->seats[seat]]; }

static void probe(struct ft_head *h, int seat, enum ft_probe kind, uint64_t number, uint64_t start, const char *text)
{
    struct ft_msg m = ft_msg_make(FT_MSG_PROBE, FT_WIRE_NODE);
    ft_msg_u(&m, 0, (uint64_t)h->meet->id);
    ft_msg_u(&m, 1, kind);
    ft_msg_u(&m, 2, number);
    ft_msg_u(&m, 3, start);
    ft_msg_text(&m, 4, text);
    ft_head_send(h, h->seats[seat], &m);
}

static void refuse(struct ft_head *h, const char *text)
{
    snprintf(h->refused, sizeof h->refused, "%s", text);
    ft_head_event(h, (struct ft_job_event){.kind = FT_EV_NO_ADDRESS, .text = h->refused});
}

/* The same with the key that asked for it (NULL: none did) and where that stands. */
static void refuse_key(struct ft_head *h, const char *text, const char *key, const char *fix)
{
    struct ft_buf b = {0};
    ft_buf_addf(&b, "%.2000s", text);
    if (key) {
        const struct ft_source at = ft_config_at(h->config, "cluster", key);
        ft_buf_addf(&b, "\n  where: %s%s[cluster] %s\n  fix:   %s", at.file ? ft_source_text(at, h->arena) : "",
                    at.file ? ", " : "", key, fix);
    }
    refuse(h, b.data);
    ft_buf_fini(&b);
}

static void ask_port(struct ft_head *h)
{
    const uint64_t start = ft_xxh3_64(h->q->dir.id, strlen(h->q->dir.id));
    h->meet->stage = MEET_PORT;
    h->meet->id++;
    /* a restart takes another port: the search begins elsewhere, by a step that no number of ports is a multiple of */
    probe(h, 0, FT_PROBE_PORT, (uint64_t)h->config->cluster.master_port, start + (uint64_t)h->job.attempt * 131, h->master_addr);
}

/* A name that was given becomes a number once, at the head. */
static bool numeric(const char *name, char *out, size_t cap)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    if (getaddrinfo(name, NULL, &hints, &list)) return false;
    const bool ok = getnameinfo(list->ai_addr, list->ai_addrlen, out, (socklen_t)cap, NULL, 0, NI_NUMERICHOST) == 0;
    freeaddrinfo(list);
    return ok;
}

void ft_head_meet_end(struct ft_head *h)
{
    if (!h->meet) return;
    free(h->meet->reached);
    free(h->meet->answered);
    free(h->meet);
    h->meet = NULL;
}

static int by_number(uint64_t a, uint64_t b) { return (a > b) - (a < b); }

/* By machine, nodes of one in the order of their seats. */
static int by_machine(const void *x, const void *y)
{
    const struct ft_head_node *const *px = x, *const *py = y, *a = *px, *b = *py;
    int c = strcmp(a->boot, b->boot);
    if (!c) c = by_number(a->netns, b->netns);
    return c ? c : a->seat - b->seat;
}

/* One machine under two names: equal boot and equal network. Equal boot alone (containers) is said once. */
static bool is_one_machine(struct ft_head *h)
{
    const int n = n_seats(h);
    const struct ft_head_node **v = ft_xcalloc((size_t)n, sizeof *v), *one[2] = {NULL, NULL}, *boot[2] = {NULL, NULL};
    for (int i = 0; i < n; i++) v[i] = at_seat(h, i);
    qsort(v, (size_t)n, sizeof *v, by_machine);
    for (int i = 1; i < n; i++) {
        const struct ft_head_node *a = v[i - 1], *b = v[i], **pair = a->netns == b->netns ? one : boot;
        if (!a->boot[0] || strcmp(a->boot, b->boot) != 0 || (pair[0] && pair[0]->seat < a->seat)) continue;
        pair[0] = a;
        pair[1] = b;
    }
    free(v);
    if (one[0]) {
        char text[1024];
        snprintf(text, sizeof text,
                 "nodes %.100s and %.100s are the same machine (equal boot id and network)\n  where: %.200s and %.200s",
                 one[0]->name, one[1]->name, one[0]->conf->from, one[1]->conf->from);
        refuse(h, text);
        return true;
    }
    if (boot[0]) ft_head_say(h, FT_LOG_INFO, "nodes %s and %s run on one machine (equal boot id)", boot[0]->name, boot[1]->name);
    return false;
}

void ft_head_meet_start(struct ft_head *h)
{
    const struct ft_cluster_fields *c = &h->config->cluster;
    const bool given = c->master_addr && !ft_str_eq(c->master_addr, "auto");
    const int id = h->meet ? h->meet->id + 1 : 1;
    ft_head_meet_end(h);
    h->meet = ft_xcalloc(1, sizeof *h->meet);
    h->meet->id = id;
    h->meet->reached = ft_xcalloc((size_t)n_seats(h), sizeof *h->meet->reached);
    h->meet->answered = ft_xcalloc((size_t)n_seats(h), sizeof *h->meet->answered);
    unsigned char r[32];
    if (!ft_random(r, sizeof r)) FT_BUG("getrandom failed");
    ft_hex(r, sizeof r, h->meet->nonce);
    if (given && !numeric(c->master_addr, h->master_addr, sizeof h->master_addr)) {
        char text[512];
        snprintf(text, sizeof text, "master_addr = %.300s: no address is known for it", c->master_addr);
        refuse(h, text);
        return;
    }
    if (n_seats(h) == 1) {
        if (!given) snprintf(h->master_addr, sizeof h->master_addr, "127.0.0.1");
        ask_port(h);
        return;
    }
    if (is_one_machine(h)) return;
    struct ft_buf b = {0};
    ft_buf_addf(&b, "%s\n%s\n%s\n", h->meet->nonce, c->interface ? c->interface : "auto", given ? h->master_addr : "");
    probe(h, 0, FT_PROBE_LISTEN, MEET_MS, 0, b.data);
    ft_buf_fini(&b);
}

/* ---- what everyone reached ---- */

static int n_reached(const struct ft_head *h, int k)
{
    int n = 0;
    for (int i = 1; i < n_seats(h); i++) n += (h->meet->reached[i] >> k & 1) != 0;
    return n;
}

static void say_matrix(struct ft_head *h)
{
    struct ft_meet *m = h->meet;
    struct ft_buf b = {0};
    ft_buf_addf(&b, "no address of %s is reached by every node; run 'ftlaunch doctor'", at_seat(h, 0)->name);
    for (int k = 0; k < m->n; k++) {
        ft_buf_addf(&b, "\n  %s (%s of %s): reached by %d of %d, not by", m->addr[k], m->interface[k], at_seat(h, 0)->name,
                    n_reached(h, k), n_seats(h) - 1);
        int listed = 0;
        for (int i = 1; i < n_seats(h); i++)
            if (!(m->reached[i] >> k & 1) && listed++ < 8) ft_buf_addf(&b, "%s %s", listed > 1 ? "," : "", at_seat(h, i)->name);
        if (listed > 8) ft_buf_addf(&b, " and %d more", listed - 8);
    }
    refuse(h, b.data);
    ft_buf_fini(&b);
}

static void all_answered(struct ft_head *h)
{
    struct ft_meet *m = h->meet;
    const int others = n_seats(h) - 1;
    for (m->won = 0; m->won < m->n && n_reached(h, m->won) < others; m->won++) {}
    if (m->won == m->n) {
        say_matrix(h);
        return;
    }
    snprintf(h->master_addr, sizeof h->master_addr, "%s", m->addr[m->won]);
    ft_head_say(h, FT_LOG_INFO, "MASTER_ADDR %s (%s of %s, reached by %d of %d)", h->master_addr, m->interface[m->won],
                at_seat(h, 0)->name, others, others);
    ask_port(h);
}

/* ---- answers ---- */

static void on_listen(struct ft_head *h, const char *text)
{
    struct ft_meet *m = h->meet;
    struct ft_buf b = {0};
    m->n = 0;
    ft_buf_addf(&b, "%s\n", m->nonce);
    for (const char *p = text; *p && m->n < MAX_ADDRESSES;) {
        const char *end = strchrnul(p, '\n');
        char line[160];
        snprintf(line, sizeof line, "%.*s", (int)(end - p), p);
        if (sscanf(line, "%63s %d %31s", m->addr[m->n], &m->port[m->n], m->interface[m->n]) == 3) {
            ft_buf_addf(&b, "%s %d\n", m->addr[m->n], m->port[m->n]);
            m->n++;
        }
        p = *end ? end + 1 : end;
    }
    m->stage = MEET_CONNECT;
    m->id++;
    m->n_waiting = n_seats(h) - 1;
    for (int i = 1; i < n_seats(h); i++) probe(h, i, FT_PROBE_CONNECT, MEET_MS - 1000, 0, b.data);
    ft_buf_fini(&b);
}

static void on_connect(struct ft_head *h, int node, const char *text)
{
    struct ft_meet *m = h->meet;
    const int seat = h->nodes[node].seat;
    if (seat <= 0 || m->answered[seat]) return;
    m->answered[seat] = true;
    for (int k = 0; k < m->n && text[k]; k++)
        if (text[k] == '1') m->reached[seat] |= 1u << k;
    if (--m->n_waiting == 0) all_answered(h);
}

static void on_port(struct ft_head *h, int port)
{
    const struct ft_meet *m = h->meet;
    h->master_port = port;
    struct ft_jw *w = ft_head_record(h, "address");
    ft_jw_kstr(w, "addr", h->master_addr);
    ft_jw_kint(w, "port", h->master_port);
    ft_jw_kstr(w, "interface", m->n ? m->interface[m->won] : "lo");
    ft_jw_key(w, "reached");
    ft_jw_array(w);
    for (int i = m->n ? 1 : 0; i < n_seats(h); i++) ft_jw_str(w, at_seat(h, i)->name);
    ft_jw_end(w);
    ft_jw_kint(w, "of", m->n ? n_seats(h) - 1 : n_seats(h));
    ft_head_recorded(h);
    ft_head_event(h, (struct ft_job_event){.kind = FT_EV_ADDRESS});
}

void ft_head_meet_result(struct ft_head *h, int node, const struct ft_msg *m)
{
    if (!h->meet || (int)m->f[0].u != h->meet->id || h->job.state != FT_JOB_CHECKING) return;
    char *text = ft_xcalloc(m->f[3].n + 1, 1);
    memcpy(text, m->f[3].p ? m->f[3].p : "", m->f[3].n);
    if (!m->f[1].u) {
        const bool listen = h->meet->stage == MEET_LISTEN || h->meet->stage == MEET_PORT;
        const bool addr = listen && ft_str_starts(text, "master_addr = ");
        const bool interface = !addr && h->meet->stage == MEET_LISTEN && strcmp(h->config->cluster.interface, "auto") != 0;
        const bool port = !addr && h->meet->stage == MEET_PORT && h->config->cluster.master_port > 0;
        refuse_key(h, text,
                   addr        ? "master_addr"
                   : interface ? "interface"
                   : port      ? "master_port"
                               : NULL,
                   addr        ? "set master_addr = auto, or to an address of the first node"
                   : interface ? "name an interface that every node has, or a network (CIDR) of theirs, or set interface = auto"
                               : "set master_port = auto, or end what holds the port");
    } else if (h->meet->stage == MEET_LISTEN) on_listen(h, text);
    else if (h->meet->stage == MEET_CONNECT) on_connect(h, node, text);
    else on_port(h, (int)m->f[2].u);
    free(text);
}
