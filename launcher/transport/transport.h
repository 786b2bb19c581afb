/* A transport starts one agent per node and carries the bytes between it and the head. It answers four questions: start these
 * agents · what is readable · write this · why did it fail. Nothing outside launcher/transport knows its name.
 *
 * launcher/transport/NAME.c defines `const struct ft_transport_ops ft_transport_NAME`; NAME is a word of FT_TRANSPORTS.
 *   1. open: nothing is contacted yet
 *   2. reach(node): an agent is started; its bytes come through user.data. Whatever fails comes through user.closed, once per
 *      reach, never from inside reach() or write()
 *   3. write; when it takes less than it was given, user.room says that it may be tried again
 *   4. shut(node): the head is done with that stream; no callback follows for it. A node may be reached again after that
 *   5. busy: something of ours (a process, a connection) is still there; close ends it */
#ifndef FT_LAUNCHER_TRANSPORT_H
#define FT_LAUNCHER_TRANSPORT_H

#include <stdbool.h>
#include <sys/types.h>

#include "launcher/loop.h"
#include "launcher/plan.h"

struct ft_link_error {
    const char *phase; /* resolve tcp banner kex hostkey auth channel agent; "stream": it had been up */
    char reason[512];
    int status; /* what a run that has not started would end with: 2 */
};

struct ft_transport_user {
    void *self;
    void (*data)(void *self, int node, const void *p, size_t n);
    void (*room)(void *self, int node);
    void (*closed)(void *self, int node, const struct ft_link_error *why);
    void (*said)(void *self, int node, const char *text, size_t n); /* the agent's (or login's) stderr */
    void (*note)(void *self, int node, const char *text);           /* for people; node -1: of no node alone */
};

enum { FT_TRANSPORT_PHASES = 5 };
struct ft_transport_times {
    struct {
        const char *name;
        int64_t ns;
    } v[FT_TRANSPORT_PHASES];
    size_t n;
};

struct ft_transport_request {
    const struct ft_launcher_config *config;
    const struct ft_plan_node *const *nodes; /* whom it may be asked to reach; node N of the calls below is nodes[N] */
    size_t n_nodes;
    struct ft_loop *loop;
    struct ft_transport_user user;
    bool explain;            /* for people: what set what */
    const char *program_dir; /* where ftlaunch lies; its agent lies beside it */
};

struct ft_transport_ops {
    const char *name;
    enum ft_code (*open)(const struct ft_transport_request *q, void **out, struct ft_err *err) FT_MUST_CHECK;
    void (*reach)(void *t, int node);
    size_t (*write)(void *t, int node, const void *p, size_t n);
    void (*shut)(void *t, int node);
    bool (*busy)(void *t);
    void (*close)(void *t); /* NULL is fine */
    /* How long the phases of reaching this node took (resolve tcp kex auth agent). NULL: one phase only. */
    void (*times)(void *t, int node, struct ft_transport_times *out);
    /* How this node is reached, each setting with the place that set it; with request.explain only. NULL: nothing to say. */
    const char *(*explain)(void *t, int node);
    /* Descriptors of the head that all nodes of the request take while they are up. */
    size_t (*descriptors)(void *t);
    bool same_machine; /* its agents see the head's files */
};
struct ft_transport_entry {
    const char *name;
    const struct ft_transport_ops *ops; /* NULL: known, but not in this build */
};
extern const struct ft_transport_entry ft_transport_table[]; /* generated; ends with {0, 0} */

/* The transport of that name, or FT_UNSUPPORTED (known, not built) / FT_CONFIG. */
enum ft_code ft_transport_find(const char *name, const struct ft_transport_ops **out, struct ft_err *err) FT_MUST_CHECK;

#endif
