/* transport = local: the agent beside this program (child.h). The base case: same wire, same program, same rules as at a distance. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "launcher/agent/contain.h"
#include "launcher/transport/child.h"

struct link {
    struct ft_child child;
    struct link *next;
};

struct local {
    struct ft_transport_request q;
    struct link *links; /* newest first: a node may have an old link whose processes are still ending */
    char *agent;
};

static enum ft_code open_local(const struct ft_transport_request *q, void **out, struct ft_err *err)
{
    struct local *l = ft_xcalloc(1, sizeof *l);
    struct ft_buf path = {0};
    l->q = *q;
    ft_buf_addf(&path, "%s/ftlaunch-agent", q->program_dir);
    l->agent = path.data;
    if (access(l->agent, X_OK) < 0) {
        ft_fail(err, FT_IO, "cannot start the agent '%s': %s", l->agent, strerror(errno));
        free(l->agent);
        free(l);
        return ft_fix(err, "install ftlaunch-agent beside ftlaunch");
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    *out = l;
    return FT_OK;
}

static struct link *find(struct local *l, int node)
{
    for (struct link *k = l->links; k; k = k->next)
        if (k->child.node == node && k->child.open) return k;
    return NULL;
}

/* A process of ours below a keeper that lives. */
static bool is_known(struct local *l, const struct ft_process *rows, size_t n, const struct ft_process *p)
{
    for (int depth = 0; p && depth < 4096; depth++) {
        for (struct link *k = l->links; k; k = k->next)
            if (k->child.proc.pidfd >= 0 && k->child.proc.pid == p->pid) return true;
        p = ft_process_find(rows, n, p->ppid);
    }
    return false;
}

/* Keeper and agent were both killed: what was in their tree has become ours (we are a subreaper) and is ended here. */
static void end_orphans(struct local *l)
{
    enum { PASSES = 200 };
    for (int i = 0; i < PASSES; i++) { /* at most a second */
        struct ft_process *rows;
        size_t n = ft_processes_all(&rows, getpid()), left = 0;
        for (size_t k = 0; k < n; k++) {
            if (!rows[k].ours || is_known(l, rows, n, &rows[k])) continue;
            left++;
            if (rows[k].state != 'Z') kill(rows[k].pid, SIGKILL);
            if (rows[k].ppid == getpid()) waitpid(rows[k].pid, NULL, WNOHANG);
        }
        free(rows);
        if (!left) return;
        poll(NULL, 0, 5);
    }
}

static void on_over(void *self, struct ft_child *c)
{
    if (c->killed) end_orphans(self);
}

static void reach(void *t, int node)
{
    struct local *l = t;
    struct link *k = ft_xcalloc(1, sizeof *k);
    char name[] = "ftlaunch-agent", *argv[] = {name, NULL};
    const struct ft_child_spec spec = {
        .loop = l->q.loop, .user = l->q.user, .node = node, .path = l->agent, .argv = argv, .over = on_over, .self = l};
    k->next = l->links;
    l->links = k;
    ft_child_start(&k->child, &spec);
}

static size_t write_local(void *t, int node, const void *p, size_t n)
{
    struct link *k = find(t, node);
    return k ? ft_child_write(&k->child, p, n) : 0;
}

static void shut(void *t, int node)
{
    struct link *k = find(t, node);
    if (k) ft_child_close(&k->child);
}

static bool busy(void *t)
{
    struct local *l = t;
    for (struct link *k = l->links; k; k = k->next)
        if (k->child.proc.pidfd >= 0) return true;
    return false;
}

static size_t descriptors(void *t)
{
    const struct local *l = t;
    return FT_CHILD_DESCRIPTORS * l->q.n_nodes;
}

static void close_local(void *t)
{
    struct local *l = t;
    if (!l) return;
    for (struct link *k = l->links, *next; k; k = next) {
        next = k->next;
        ft_child_fini(&k->child);
        free(k);
    }
    free(l->agent);
    free(l);
}

extern const struct ft_transport_ops ft_transport_local;
const struct ft_transport_ops ft_transport_local = {.name = "local",
                                                    .open = open_local,
                                                    .reach = reach,
                                                    .write = write_local,
                                                    .shut = shut,
                                                    .busy = busy,
                                                    .close = close_local,
                                                    .descriptors = descriptors,
                                                    .same_machine = true};
