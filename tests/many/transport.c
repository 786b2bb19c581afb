/* Nodes that exist only as agents on this machine: what `transport = ssh` is in ftlaunch-many, so that plan, hello, facts, meeting, job,
 * GO, stop and goodbye are those of a cluster, without sshd and logins. Each node is the program many-node (node.c) beside this one, in
 * namespaces of its own; [ssh] parallel of them are started at a time, as logins are.
 * FT_MANY names the folder in which they note how they ended; its file `starts` gets the CPU seconds that forking them took the head, which a
 * transport to other machines does not do. Linked instead of launcher/transport/ssh.c, so that the product has no
 * transport that somebody could choose by mistake. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "launcher/transport/child.h"

struct many;
struct one { /* a node that was started; it may be reached again while the first one ends */
    struct many *many;
    struct ft_child child;
    bool starting; /* nothing was heard from its agent yet */
    struct one *before;
};
struct many {
    struct ft_transport_request q;
    const char *folder;
    char *program, *agent;
    struct one **nodes; /* (n_nodes) the one started last; NULL */
    int *queue;         /* nodes that wait for their start: queue[at..n) */
    size_t n, at, cap;
    int64_t n_starting;
    size_t n_running;
    int64_t start_ns; /* CPU time of all starts */
};

static void start_next(struct many *m);

static void tell_starts(const struct many *m)
{
    struct ft_buf path = {0}, text = {0};
    struct ft_err err;
    ft_buf_addf(&path, "%s/starts", m->folder);
    ft_buf_addf(&text, "%.9f\n", (double)m->start_ns / 1e9);
    if (ft_write_file(path.data, text.data, text.n, 0600, &err)) ft_log(FT_LOG_WARN, "many", "%s", err.text);
    ft_buf_fini(&path);
    ft_buf_fini(&text);
}

static void heard(struct one *o)
{
    struct many *m = o->many;
    if (!o->starting) return;
    o->starting = false;
    m->n_starting--;
    start_next(m);
    if (!m->n_starting) tell_starts(m);
}

static void on_data(void *self, int node, const void *p, size_t n)
{
    struct one *o = self;
    heard(o);
    o->many->q.user.data(o->many->q.user.self, node, p, n);
}

static void on_room(void *self, int node)
{
    struct one *o = self;
    o->many->q.user.room(o->many->q.user.self, node);
}

static void on_closed(void *self, int node, const struct ft_link_error *why)
{
    struct one *o = self;
    heard(o);
    o->many->q.user.closed(o->many->q.user.self, node, why);
}

static void on_said(void *self, int node, const char *text, size_t n)
{
    struct one *o = self;
    o->many->q.user.said(o->many->q.user.self, node, text, n);
}

static void on_over(void *self, struct ft_child *c)
{
    struct one *o = self;
    (void)c;
    o->many->n_running--;
}

static int64_t cpu_ns(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) < 0) FT_BUG("no clock of CPU time");
    return (int64_t)t.tv_sec * FT_SEC + t.tv_nsec;
}

static void start(struct many *m, int node)
{
    const int64_t before = cpu_ns();
    struct one *o = ft_xcalloc(1, sizeof *o);
    char number[16];
    snprintf(number, sizeof number, "%d", node + 1);
    char *argv[] = {m->program, ft_xstrdup(m->q.nodes[node]->name), number, ft_xstrdup(m->folder), m->agent, NULL};
    *o = (struct one){.many = m, .starting = true, .before = m->nodes[node]};
    m->nodes[node] = o;
    m->n_starting++;
    m->n_running++;
    const struct ft_child_spec spec = {.loop = m->q.loop,
                                       .user = {o, on_data, on_room, on_closed, on_said, NULL},
                                       .node = node,
                                       .path = m->program,
                                       .argv = argv,
                                       .over = on_over,
                                       .self = o};
    ft_child_start(&o->child, &spec);
    free(argv[1]);
    free(argv[3]);
    m->start_ns += cpu_ns() - before;
}

static void start_next(struct many *m)
{
    while (m->at < m->n && m->n_starting < m->q.config->ssh.parallel) {
        const int node = m->queue[m->at++];
        if (node >= 0) start(m, node);
    }
}

static enum ft_code open_many(const struct ft_transport_request *q, void **out, struct ft_err *err)
{
    struct ft_buf program = {0}, agent = {0};
    const char *folder = getenv("FT_MANY");
    if (!folder) return ft_fail(err, FT_USAGE, "FT_MANY names no folder for the nodes");
    struct many *m = ft_xcalloc(1, sizeof *m);
    ft_buf_addf(&program, "%s/many-node", q->program_dir);
    ft_buf_addf(&agent, "%s/../bin/ftlaunch-agent", q->program_dir);
    *m = (struct many){.q = *q, .folder = folder, .program = program.data, .agent = agent.data};
    m->nodes = ft_xcalloc(q->n_nodes, sizeof(struct one *));
    *out = m;
    return FT_OK;
}

static void reach(void *t, int node)
{
    struct many *m = t;
    ft_grow(&m->queue, &m->cap, m->n + 1, sizeof *m->queue);
    m->queue[m->n++] = node;
    start_next(m);
}

static size_t write_many(void *t, int node, const void *p, size_t n)
{
    struct one *o = ((struct many *)t)->nodes[node];
    return o ? ft_child_write(&o->child, p, n) : 0;
}

static void shut(void *t, int node)
{
    struct many *m = t;
    for (size_t i = m->at; i < m->n; i++)
        if (m->queue[i] == node) m->queue[i] = -1;
    if (!m->nodes[node]) return;
    ft_child_close(&m->nodes[node]->child);
    heard(m->nodes[node]);
}

static bool busy(void *t) { return ((struct many *)t)->n_running > 0; }

static size_t descriptors(void *t) { return FT_CHILD_DESCRIPTORS * ((struct many *)t)->q.n_nodes; }

static void close_many(void *t)
{
    struct many *m = t;
    if (!m) return;
    for (size_t i = 0; i < m->q.n_nodes; i++)
        for (struct one *o = m->nodes[i], *before; o; o = before) {
            before = o->before;
            ft_child_fini(&o->child);
            free(o);
        }
    free(m->nodes);
    free(m->queue);
    free(m->program);
    free(m->agent);
    free(m);
}

extern const struct ft_transport_ops ft_transport_ssh;
const struct ft_transport_ops ft_transport_ssh = {.name = "many",
                                                  .open = open_many,
                                                  .reach = reach,
                                                  .write = write_many,
                                                  .shut = shut,
                                                  .busy = busy,
                                                  .close = close_many,
                                                  .descriptors = descriptors};
