/* What goes to the agents: the job in pieces, and the machine's actions. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"
#include "launcher/head.h"

extern char **environ;

enum { STACKS_MS = 10000, MAX_JOB = 64 << 20 };

/* ---- JOB ---- */

static void add_z(struct ft_buf *b, const char *s) { ft_buf_add(b, s, strlen(s) + 1); }

static void add_env(struct ft_buf *b, const struct ft_env *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ft_buf_adds(b, v[i].name);
        ft_buf_addc(b, '=');
        add_z(b, v[i].value);
    }
}

static void send_part(struct ft_head *h, int node, enum ft_job_part part, unsigned slot, const struct ft_buf *bytes)
{
    struct ft_head_node *n = &h->nodes[node];
    size_t at = 0;
    do { /* each piece carries the hash of its own bytes */
        size_t k = bytes->n - at < FT_WIRE_CHUNK ? bytes->n - at : FT_WIRE_CHUNK;
        const char *p = bytes->n ? bytes->data + at : "";
        struct ft_msg m = ft_msg_make(FT_MSG_JOB, slot);
        ft_msg_u(&m, 0, part);
        ft_msg_bytes(&m, 1, p, k);
        ft_msg_u(&m, 2, ft_xxh3_64(p, k));
        at += k;
        m.flags = at < bytes->n ? FT_WIRE_MORE : 0;
        ft_wire_send(&n->wire, &m);
    } while (at < bytes->n);
}

/* "LC_*" takes every name that begins so. */
static bool is_forwarded(const struct ft_list *l, const char *name_value)
{
    size_t len = strcspn(name_value, "=");
    for (size_t i = 0; i < l->n; i++) {
        size_t k = strlen(l->v[i]);
        if (k && l->v[i][k - 1] == '*' ? strncmp(name_value, l->v[i], k - 1) == 0
                                       : k == len && strncmp(name_value, l->v[i], k) == 0)
            return true;
    }
    return false;
}

static void send_env(struct ft_head *h, int node, struct ft_buf *b)
{
    const struct ft_launcher_config *c = h->config;
    ft_buf_clear(b);
    for (char **e = environ; *e; e++)
        if (is_forwarded(&c->launch.forward, *e)) add_z(b, *e);
    send_part(h, node, FT_PART_FORWARD, FT_WIRE_NODE, b);
    ft_buf_clear(b);
    struct ft_arena *arena = ft_arena_create();
    size_t n = 0;
    struct ft_env *env = ft_plan_node_env(h->plan, h->nodes[node].conf, arena, &n);
    add_env(b, env, n);
    ft_arena_destroy(arena);
    send_part(h, node, FT_PART_ENV, FT_WIRE_NODE, b);
}

static void send_rank_env(struct ft_head *h, int node, struct ft_buf *b)
{
    const struct ft_plan_node *p = ft_head_seat(h, node);
    struct ft_run_facts f = {.run_id = h->q->dir.id,
                             .run_dir = h->q->dir.path,
                             .master_addr = h->master_addr,
                             .master_port = h->master_port,
                             .restart = h->job.attempt,
                             .token = h->token};
    struct ft_arena *arena = ft_arena_create();
    f.job_file = ft_rundir_file(&h->q->dir, "job.ini", arena);
    for (int i = 0; i < p->n_ranks; i++) {
        size_t n = 0;
        struct ft_env *env = ft_plan_rank_env(h->plan, p->first_rank + i, &f, arena, &n);
        ft_buf_clear(b);
        add_env(b, env, n);
        send_part(h, node, FT_PART_RANK_ENV, (unsigned)i, b);
    }
    ft_arena_destroy(arena);
}

static void stdin_setting(const struct ft_launcher_config *c, struct ft_buf *b)
{
    if (c->launch.stdin_rank == FT_STDIN_ALL) add_z(b, "stdin=all");
    else if (c->launch.stdin_rank >= 0) {
        ft_buf_addf(b, "stdin=%lld", (long long)c->launch.stdin_rank);
        ft_buf_addc(b, 0);
    } else add_z(b, "stdin=-");
}

/* Agents that may not see the head's run folder get what they need to make one. */
static void send_folder(struct ft_head *h, int node, struct ft_buf *b)
{
    if (h->ops->same_machine) return;
    struct ft_err err = {.code = FT_OK};
    ft_buf_clear(b);
    if (h->check) {
        char *cwd = getcwd(NULL, 0);
        ft_plan_write_job(h->plan, cwd, ft_json_get(ft_json_get(h->q->facts, "facts"), "resolved"), b);
        free(cwd);
        ft_buf_addc(b, 0);
        send_part(h, node, FT_PART_JOB_FILE, FT_WIRE_NODE, b);
        return;
    }
    add_z(b, h->q->dir.path);
    add_z(b, h->folder_nonce);
    send_part(h, node, FT_PART_RUN_DIR, FT_WIRE_NODE, b);
    if (!h->job_file.n) {
        if (ft_read_file(ft_rundir_file(&h->q->dir, "job.ini", h->arena), MAX_JOB, &h->job_file, &err) != FT_OK)
            ft_head_say(h, FT_LOG_WARN, "%s", err.text);
        ft_buf_addc(&h->job_file, 0);
    }
    send_part(h, node, FT_PART_JOB_FILE, FT_WIRE_NODE, &h->job_file);
}

static void send_settings(struct ft_head *h, int node, struct ft_buf *b)
{
    static const char *const binds[] = {"auto", "none", "core", "numa", "gpu"}; /* enum ft_bind */
    const struct ft_plan_node *p = ft_head_seat(h, node);
    ft_buf_clear(b);
    ft_buf_addf(b, "job=%u", h->job_number);
    ft_buf_addc(b, 0);
    ft_buf_addf(b, "slots=%d", p ? p->n_ranks : 1);
    ft_buf_addc(b, 0);
    ft_buf_addf(b, "first_rank=%d", p ? p->first_rank : 0);
    ft_buf_addc(b, 0);
    add_z(b, h->config->launch.children == FT_CHILDREN_KEEP ? "children=keep" : "children=end");
    ft_buf_addf(b, "bind=%s", binds[h->config->launch.bind]);
    ft_buf_addc(b, 0);
    ft_buf_addf(b, "interface=%s", h->config->cluster.interface); /* each node knows its own name for a network */
    ft_buf_addc(b, 0);
    if (h->mux.folder) add_z(b, "files=yes");
    stdin_setting(h->config, b);
    if (h->check) add_z(b, "check=yes");
    if (h->plan->is_fttrain && !h->ops->same_machine) add_z(b, "else_path=yes"); /* a node may have fttrain elsewhere */
    struct ft_buf path = {0};
    if (!h->check && h->ops->same_machine && ft_ctl_path(h->q->dir.id, &path, NULL) == FT_OK) {
        ft_buf_addf(b, "socket=%s", path.data);
        ft_buf_addc(b, 0);
    }
    ft_buf_fini(&path);
    send_part(h, node, FT_PART_SETTINGS, FT_WIRE_NODE, b);
}

void ft_head_send_context(struct ft_head *h, int node)
{
    struct ft_buf b = {0};
    send_settings(h, node, &b);
    ft_buf_clear(&b);
    char *cwd = NULL;
    const char *workdir = h->config->launch.workdir;
    if (!workdir || workdir[0] != '/') cwd = getcwd(NULL, 0);
    if (cwd) ft_buf_adds(&b, cwd);
    if (cwd && workdir) ft_buf_addc(&b, '/');
    if (workdir) ft_buf_adds(&b, workdir);
    free(cwd);
    send_part(h, node, FT_PART_WORKDIR, FT_WIRE_NODE, &b);
    ft_buf_clear(&b);
    for (char **a = h->q->argv; *a; a++) add_z(&b, *a);
    send_part(h, node, FT_PART_ARGV, FT_WIRE_NODE, &b);
    send_env(h, node, &b);
    send_folder(h, node, &b);
    ft_buf_fini(&b);
}

void ft_head_prepare(struct ft_head *h, int node)
{
    h->nodes[node].prepared_at = ft_head_now();
    struct ft_buf b = {0};
    ft_head_send_context(h, node);
    if (!h->check) send_rank_env(h, node, &b);
    ft_buf_clear(&b);
    send_part(h, node, FT_PART_END, FT_WIRE_NODE, &b);
    ft_buf_fini(&b);
    ft_head_flush(h, node);
}

/* ---- actions ---- */

static void send_simple(struct ft_head *h, enum ft_msg_type type, uint64_t number)
{
    struct ft_msg m = ft_msg_make(type, FT_WIRE_NODE);
    ft_msg_u(&m, 0, number);
    ft_head_send_all(h, &m);
}

/* To the nodes that have ranks. */
static void send_seated(struct ft_head *h, enum ft_msg_type type, uint64_t number)
{
    struct ft_msg m = ft_msg_make(type, FT_WIRE_NODE);
    ft_msg_u(&m, 0, number);
    for (size_t s = 0; s < h->plan->n_nodes; s++) {
        const struct ft_head_node *n = &h->nodes[h->seats[s]];
        if (n->greeted && !n->sweeping && h->job.nodes[n->index].state == FT_NODE_UP) ft_head_send(h, n->index, &m);
    }
}

static void prepare_all(struct ft_head *h)
{
    h->job_number++;
    ft_buf_clear(&h->job_file); /* another layout has another one */
    if (h->plan->is_fttrain && !h->ops->same_machine && h->job.attempt == h->q->attempt)
        ft_head_choose_asked(h, h->seats, (int)h->plan->n_nodes);
    for (size_t s = 0; s < h->plan->n_nodes; s++) ft_head_prepare(h, h->seats[s]);
    ft_head_open_ctl(h);
}

static void begin_attempt(struct ft_head *h)
{
    h->events.attempt = h->job.attempt;
    h->refused[0] = 0;
    h->n_lost = 0;
    h->killed_said = false;
    h->attempt_at = ft_head_now();
    h->all_up_at = h->address_at = h->go_at = 0;
    for (int n = 0; n < h->n_nodes; n++) h->nodes[n].ready_at = h->nodes[n].started_ns = h->nodes[n].gone_ns = 0;
    for (int r = 0; r < h->job.c.n_ranks; r++) {
        struct ft_head_rank *k = &h->ranks[r];
        free(k->last);
        free(k->evidence);
        *k = (struct ft_head_rank){.pid = 0};
    }
}

void ft_head_record_killed(struct ft_head *h)
{
    if (h->killed_said) return;
    h->killed_said = true;
    struct ft_jw *w = ft_head_record(h, "killed");
    int n = 0;
    for (int r = 0; r < h->job.c.n_ranks; r++) n += h->job.ranks[r].state != FT_RANK_ENDED;
    ft_jw_kint(w, "n", n);
    ft_head_recorded(h);
}

/* The job has waited for them as long as it wanted to: a login that is still on its way would come up beside that of the new attempt. */
static void end_sweeps(struct ft_head *h)
{
    for (int i = 0; i < h->n_nodes; i++) {
        struct ft_head_node *n = &h->nodes[i];
        if (!n->open || !n->sweeping) continue;
        h->ops->shut(h->transport, i);
        n->open = n->greeted = n->sweeping = n->up = false;
    }
}

static void say_restart(struct ft_head *h, int64_t wait)
{
    ft_head_summary(h); /* of the attempt that ended */
    struct ft_jw *w = ft_head_record(h, "restart");
    ft_jw_kstr(w, "reason", ft_stop_reason_name(h->job.stop));
    ft_jw_key(w, "nodes");
    ft_jw_array(w);
    for (size_t n = 0; n < h->plan->n_nodes; n++) ft_jw_str(w, h->nodes[h->seats[n]].name);
    ft_jw_end(w);
    ft_jw_kint(w, "next", h->job.attempt);
    int64_t step = -1;
    for (int r = 0; r < h->job.c.n_ranks; r++)
        if (h->job.ranks[r].saved > step) step = h->job.ranks[r].saved;
    ft_jw_kint(w, "step", step);
    ft_head_recorded(h);
    ft_head_say(h, FT_LOG_WARN, "attempt %d begins in %.1f s", h->job.attempt, (double)wait / 1e9);
    end_sweeps(h);
    begin_attempt(h);
}

static void finish(struct ft_head *h, int status)
{
    h->status = status;
    h->finished = true;
}

void ft_head_act(struct ft_head *h, const struct ft_job_action *a)
{
    switch (a->kind) {
    case FT_DO_REACH: ft_head_reach(h, a->node, false); break;
    case FT_DO_ADDRESS:
        h->all_up_at = ft_head_now();
        ft_head_meet_start(h);
        break;
    case FT_DO_SEAT: ft_head_seat_all(h); break;
    case FT_DO_PREPARE:
        h->address_at = ft_head_now();
        prepare_all(h);
        break;
    case FT_DO_GO:
        h->go_at = ft_head_now();
        send_seated(h, FT_MSG_GO, 0);
        ft_head_input_start(h);
        break;
    case FT_DO_SIGNAL: send_seated(h, FT_MSG_SIGNAL, (uint64_t)a->number); break;
    case FT_DO_PAUSE: send_simple(h, FT_MSG_PAUSE, 0); break;
    case FT_DO_RESUME: send_simple(h, FT_MSG_RESUME, 0); break;
    case FT_DO_STOP: send_seated(h, FT_MSG_STOP, (uint64_t)(a->ns / FT_MS)); break;
    case FT_DO_KILL: send_seated(h, FT_MSG_KILL, 0); break;
    case FT_DO_STACKS: send_seated(h, FT_MSG_STACKS, STACKS_MS); break;
    case FT_DO_SWEEP: ft_head_reach(h, a->node, true); break;
    case FT_DO_BYE: send_simple(h, FT_MSG_BYE, 0); break;
    case FT_DO_SAY_STOP: ft_head_record_stop(h); break;
    case FT_DO_SAY_KILL: ft_head_record_killed(h); break;
    case FT_DO_SAY_FIRST_STEP:
    case FT_DO_SAY_SLOW_STEP: {
        bool slow = a->kind == FT_DO_SAY_SLOW_STEP;
        struct ft_jw *w = ft_head_record(h, slow ? "slow_step" : "first_step");
        ft_jw_kint(w, "rank", a->rank);
        ft_jw_kint(w, "step", a->step);
        if (slow) ft_jw_kreal(w, "seconds", (double)a->ns / 1e9);
        ft_head_recorded(h);
        if (slow)
            ft_head_say(h, FT_LOG_INFO, "step %lld took %.1f s, more than 10 times the median; rank %d was last",
                        (long long)a->step, (double)a->ns / 1e9, a->rank);
        break;
    }
    case FT_DO_SAY_HANG: ft_head_say_hang(h, a->rank, a->step); break;
    case FT_DO_SAY_RESTART: say_restart(h, a->ns); break;
    case FT_DO_SAY_NO_RESTART: ft_head_say(h, FT_LOG_WARN, "no further attempt: %s", a->text); break;
    case FT_DO_FINISH: finish(h, a->number); break;
    }
}
