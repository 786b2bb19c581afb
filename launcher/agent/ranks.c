/* Ranks of one node: starting them, taking their deaths in order, saying how they ended. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/netif.h"

enum { OUT_PIPE_BYTES = 256 * 1024 };

void ft_ranks_create(struct ft_agent *a)
{
    a->n_slots = a->job.n_slots;
    a->slots = ft_xcalloc((size_t)a->n_slots, sizeof *a->slots);
    for (int i = 0; i < a->n_slots; i++) {
        struct ft_slot *s = &a->slots[i];
        *s = (struct ft_slot){.agent = a, .index = i, .rank = a->job.first_rank + i, .cgroup = -1, .in_fd = -1};
        s->proc.pidfd = s->proc.exec_fd = -1;
        for (int k = 0; k < 3; k++) s->pump[k] = (struct ft_pump){.agent = a, .slot = s, .fd = -1, .stream = k + 1, .dry = true};
    }
}

void ft_ranks_destroy(struct ft_agent *a)
{
    for (int i = 0; i < a->n_slots; i++) {
        struct ft_slot *s = &a->slots[i];
        for (int k = 0; k < 3; k++) ft_pump_close(&s->pump[k]);
        ft_slot_close_input(s);
        ft_watch_remove(&a->loop, &s->exec_watch);
        ft_close(&s->proc.exec_fd);
        ft_close(&s->proc.pidfd);
        ft_close(&s->cgroup);
        ft_buf_fini(&s->rank_env);
        ft_buf_fini(&s->last);
        ft_buf_fini(&s->word);
        ft_buf_fini(&s->in);
    }
    free(a->slots);
    a->slots = NULL;
    a->n_slots = 0;
}

static char **list_of(const struct ft_buf *b)
{
    size_t n = 0;
    for (size_t at = 0; at < b->n; at += strlen(b->data + at) + 1) n++;
    char **v = ft_xcalloc(n + 1, sizeof *v);
    n = 0;
    for (size_t at = 0; at < b->n; at += strlen(b->data + at) + 1) v[n++] = b->data + at;
    return v;
}

const char *ft_ranks_workdir(const struct ft_agent *a) { return a->job.workdir.n ? a->job.workdir.data : NULL; }

/* Decides what every rank is bound to; the table goes to the head's -v. false: it cannot be done. */
static bool bind_ranks(struct ft_agent *a, char *const *env, struct ft_buf *why)
{
    struct ft_cpus *allowed = ft_xcalloc(1, sizeof *allowed);
    struct ft_binding *v = ft_xcalloc((size_t)a->n_slots, sizeof *v);
    struct ft_bind_request q = {
        .how = a->job.bind[0] ? a->job.bind : "none", .n_ranks = a->n_slots, .allowed = allowed, .sys = "/sys", .proc = "/proc"};
    for (; *env; env++)
        if (strncmp(*env, "CUDA_VISIBLE_DEVICES=", 21) == 0) q.visible = *env + 21;
    ft_bind_allowed(allowed);
    struct ft_buf note = {0};
    bool ok = ft_bind_plan(&q, v, why, &note);
    if (note.n) ft_agent_note(a, 3, "%s", note.data);
    for (int i = 0; ok && i < a->n_slots; i++) {
        a->slots[i].binding = v[i];
        if (!v[i].bound) continue;
        struct ft_buf list = {0};
        ft_bind_print(&v[i].cpus, &list);
        ft_agent_note(a, 3, "rank %d is bound to CPUs %s, memory node %d, GPU %d", a->slots[i].rank, list.data, v[i].numa,
                      v[i].gpu);
        ft_buf_fini(&list);
    }
    ft_buf_fini(&note);
    free(allowed);
    free(v);
    return ok;
}

/* [cluster] interface: it must be here; NCCL and GLOO are told this node's own name for it (over what was forwarded). */
static bool name_interface(struct ft_agent *a, struct ft_buf *why)
{
    char name[IF_NAMESIZE];
    if (!a->job.interface[0] || strcmp(a->job.interface, "auto") == 0) return true;
    if (!ft_netif_find(a->job.interface, "this node", name, why)) {
        ft_buf_adds(why, ": name one of these in [cluster] interface, or set it to auto");
        return false;
    }
    ft_buf_addf(&a->job.forward, "NCCL_SOCKET_IFNAME==%s", name); /* '=': this very name, not every name that begins so */
    ft_buf_addc(&a->job.forward, 0);
    ft_buf_addf(&a->job.forward, "GLOO_SOCKET_IFNAME=%s", name);
    ft_buf_addc(&a->job.forward, 0);
    return true;
}

/* Every rank takes descriptors of ours; better no rank than some. */
static bool has_descriptors(const struct ft_agent *a, struct ft_buf *why)
{
    enum { EACH = 6, OWN = 24 }; /* three pipes, stdin, pidfd, cgroup · our own, and those that a start needs for an instant */
    struct rlimit lim;
    const unsigned long long need = OWN + EACH * (unsigned long long)a->n_slots;
    if (getrlimit(RLIMIT_NOFILE, &lim) < 0 || lim.rlim_cur >= need) return true;
    ft_buf_addf(
        why,
        "only %llu files may be open here, %d rank%s need about %llu: raise the hard limit (ulimit -Hn, limits.conf, LimitNOFILE=)",
        (unsigned long long)lim.rlim_cur, a->n_slots, a->n_slots == 1 ? "" : "s", need);
    return false;
}

int ft_ranks_ready(struct ft_agent *a, struct ft_buf *why)
{
    if (!a->job.argv.n || a->n_slots < 1) {
        ft_buf_adds(why, "the job has no program or no ranks");
        return 2;
    }
    if (ft_ranks_workdir(a) && !ft_is_dir(ft_ranks_workdir(a))) {
        ft_buf_addf(why, "working directory '%s': %s", ft_ranks_workdir(a),
                    access(ft_ranks_workdir(a), F_OK) < 0 ? strerror(errno) : "Not a directory");
        return 2;
    }
    if (!name_interface(a, why) || !has_descriptors(a, why)) return 2;
    if (!a->job.check && !ft_agent_make_folder(a, why)) return 2;
    ft_agent_else_path(a);
    char **env = ft_environ_make(&a->job.forward, &a->slots[0].rank_env, &a->job.env, NULL);
    struct ft_buf path = {0};
    int e = ft_proc_find(a->job.argv.data, ft_ranks_workdir(a), env, &path);
    if (e)
        ft_buf_addf(why, "program '%s': %s", ft_buf_str(&path),
                    e == ENOENT && !strchr(a->job.argv.data, '/') ? "not found in PATH" : strerror(e));
    if (a->job.check) ft_agent_facts_of_job(a, e ? NULL : path.data);
    ft_buf_fini(&path);
    bool bound = e || bind_ranks(a, env, why);
    free(env);
    if (!bound) return 2;
    return e == 0 ? 0 : e == ENOENT || e == ENOTDIR ? 127 : e == EACCES ? 126 : 2;
}

static void send_execfail(struct ft_slot *s, enum ft_step step, int error, const char *text)
{
    struct ft_msg m = ft_msg_make(FT_MSG_EXECFAIL, (unsigned)s->index);
    ft_msg_u(&m, 0, (uint64_t)step);
    ft_msg_u(&m, 1, (uint64_t)error);
    ft_msg_text(&m, 2, text);
    if (!s->agent->head_gone) ft_wire_send(&s->agent->wire, &m);
    s->state = FT_SLOT_ENDED;
    for (int k = 0; k < 3; k++) ft_pump_close(&s->pump[k]);
    ft_slot_close_input(s);
}

/* Looks whether the exec is decided. */
static void check_exec(struct ft_slot *s)
{
    if (s->state != FT_SLOT_STARTING) return;
    enum ft_proc_state st = ft_proc_poll(&s->proc);
    if (st == FT_PROC_PENDING) return;
    ft_watch_remove(&s->agent->loop, &s->exec_watch);
    ft_close(&s->proc.exec_fd);
    if (st == FT_PROC_FAILED) {
        struct ft_buf text = {0};
        ft_buf_addf(&text, "%s: %s", ft_step_name(s->proc.step), strerror(s->proc.error));
        send_execfail(s, s->proc.step, s->proc.error, text.data);
        ft_buf_fini(&text);
        return;
    }
    s->state = FT_SLOT_RUNNING;
    struct ft_msg m = ft_msg_make(FT_MSG_STARTED, (unsigned)s->index);
    ft_msg_u(&m, 0, (uint64_t)s->proc.pid);
    ft_msg_u(&m, 1, (uint64_t)ft_clock_now(ft_clock_real()));
    if (!s->agent->head_gone) ft_wire_send(&s->agent->wire, &m);
}

static void on_exec(void *self, short revents)
{
    (void)revents;
    struct ft_slot *s = self;
    check_exec(s);
    ft_agent_flush(s->agent);
}

static bool gets_input(const struct ft_agent *a, const struct ft_slot *s)
{
    int64_t rank;
    if (strcmp(a->job.in, "all") == 0) return true;
    return ft_parse_i64(a->job.in, 0, INT32_MAX, &rank) && rank == s->rank;
}

struct pipes {
    int out[2], err[2], progress[2], in[2];
};

static bool open_pipes(struct ft_agent *a, struct ft_slot *s, struct pipes *p)
{
    *p = (struct pipes){{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
    if (ft_pipe(p->out, NULL) || ft_pipe(p->err, NULL) || ft_pipe(p->progress, NULL)) return false;
    if (gets_input(a, s) && ft_pipe(p->in, NULL)) return false;
    if (fcntl(p->out[1], F_SETPIPE_SZ, OUT_PIPE_BYTES) < 0) errno = 0; /* a wish: the default size does as well */
    if (p->in[1] >= 0 && fcntl(p->in[1], F_SETFL, O_NONBLOCK) < 0) FT_BUG("F_SETFL on a pipe of ours: %s", strerror(errno));
    return true;
}

static void close_pipes(struct pipes *p, bool mine)
{
    int *all[] = {p->out, p->err, p->progress, p->in};
    for (int i = 0; i < 4; i++) {
        int theirs = i == 3 ? 0 : 1; /* the end that the rank holds */
        ft_close(&all[i][theirs]);
        if (mine) ft_close(&all[i][1 - theirs]);
    }
}

static void start_one(struct ft_agent *a, struct ft_slot *s)
{
    struct pipes p;
    if (!open_pipes(a, s, &p)) {
        int e = errno;
        close_pipes(&p, true);
        send_execfail(s, FT_STEP_FILES, e, strerror(e));
        return;
    }
    char progress[32];
    snprintf(progress, sizeof progress, "FT_PROGRESS=%d", 3);
    if (a->job.keep_children) {
        static const char keep[] = "FT_CHILDREN=keep";
        ft_buf_add(&s->rank_env, keep, sizeof keep);
    }
    static const char order[] = "CUDA_DEVICE_ORDER=PCI_BUS_ID"; /* then device numbers mean the same to us and to CUDA */
    if (s->binding.gpu >= 0) ft_buf_add(&s->rank_env, order, sizeof order);
    char **env = ft_environ_make(&a->job.forward, &s->rank_env, &a->job.env, progress), **argv = list_of(&a->job.argv);
    struct ft_buf path = {0};
    int e = ft_proc_find(argv[0], ft_ranks_workdir(a), env, &path);
    s->cgroup = ft_contain_rank(&a->contain, s->index);
    struct ft_proc_spec spec = {.path = path.data,
                                .argv = argv,
                                .env = env,
                                .workdir = ft_ranks_workdir(a),
                                .std = {p.in[0], p.out[1], p.err[1]},
                                .kept = {p.progress[1]},
                                .n_kept = 1,
                                .cgroup = s->cgroup,
                                .death_signal = SIGKILL,
                                .mark = a->job.keep_children ? 0 : ft_mark(a->run, s->index),
                                .nice_nofile = 1};
    cpu_set_t *cpus = s->binding.bound ? CPU_ALLOC(FT_BIND_CPUS) : NULL;
    if (cpus) {
        spec.cpus = cpus;
        spec.cpus_bytes = CPU_ALLOC_SIZE(FT_BIND_CPUS);
        CPU_ZERO_S(spec.cpus_bytes, cpus);
        for (int i = 0; i < FT_BIND_CPUS; i++)
            if (s->binding.cpus.has[i]) CPU_SET_S((size_t)i, spec.cpus_bytes, cpus);
    }
    spec.memory_node = s->binding.numa + 1;
    struct ft_err err = {.code = FT_OK};
    if (!e && ft_proc_start(&spec, &s->proc, &err)) e = EAGAIN;
    CPU_FREE(cpus);
    close_pipes(&p, e != 0);
    if (e) {
        send_execfail(s, err.code ? FT_STEP_FORK : FT_STEP_EXEC, e, err.code ? err.text : strerror(e));
    } else {
        s->state = FT_SLOT_STARTING;
        ft_pump_open(&s->pump[0], s, 1, p.out[0]);
        ft_pump_open(&s->pump[1], s, 2, p.err[0]);
        ft_pump_open(&s->pump[2], s, 3, p.progress[0]);
        s->in_fd = p.in[1];
        ft_watch_add(&a->loop, &s->exec_watch, s->proc.exec_fd, POLLIN, on_exec, s);
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = s};
        if (epoll_ctl(a->deaths, EPOLL_CTL_ADD, s->proc.pidfd, &ev) < 0) FT_BUG("epoll_ctl on a pidfd: %s", strerror(errno));
    }
    ft_buf_fini(&path);
    free(env);
    free(argv);
}

void ft_ranks_start(struct ft_agent *a)
{
    a->mode = FT_AGENT_RUNNING;
    a->attempt_at = ft_clock_now(ft_clock_real());
    for (int i = 0; i < a->n_slots; i++) start_one(a, &a->slots[i]);
    if (a->starved) { /* the new pumps rest with the others */
        a->starved = false;
        ft_pumps_wake(a);
    }
    ft_agent_flush(a);
}

/* Takes one death: how it ended and when, in the order of the ready list. */
static void reap(struct ft_agent *a, struct ft_slot *s)
{
    siginfo_t info = {.si_pid = 0};
    if (waitid(P_PIDFD, (id_t)s->proc.pidfd, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0) return;
    epoll_ctl(a->deaths, EPOLL_CTL_DEL, s->proc.pidfd, NULL);
    check_exec(s);
    ft_close(&s->proc.pidfd);
    if (s->state == FT_SLOT_ENDED) return; /* the exec had failed */
    s->state = FT_SLOT_DEAD;
    s->ended_at = ft_clock_now(ft_clock_real());
    s->order = ++a->order;
    s->status = info.si_code == CLD_EXITED ? info.si_status : 0;
    s->signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
    s->marks = (info.si_code == CLD_DUMPED ? FT_EXIT_CORE : 0) | (s->after_stop ? FT_EXIT_AFTER_STOP : 0);
    s->leftovers = !a->job.keep_children;
    s->leftovers_kill_at = s->ended_at + FT_LEFTOVER_MS * FT_MS;
    s->leftovers_look_at = s->ended_at + FT_LOOK_MS * FT_MS;
    for (int k = 0; k < 3; k++) {
        s->pump[k].dry = s->pump[k].fd < 0;
        s->pump[k].since_death = 0;
    }
}

void ft_ranks_reap(struct ft_agent *a)
{
    for (;;) {
        struct epoll_event ev[64];
        int n = epoll_wait(a->deaths, ev, 64, 0);
        if (n <= 0) break;
        for (int i = 0; i < n; i++) reap(a, ev[i].data.ptr);
        if (n < 64) break;
    }
}

void ft_ranks_deaths(struct ft_agent *a)
{
    ft_ranks_reap(a);
    ft_ranks_advance(a);
}

/* Reads what the kernel's log has since the last look and keeps the pids that it killed for want of memory. */
static void read_kernel_log(struct ft_agent *a)
{
    char line[2048];
    for (int i = 0; a->kmsg_fd >= 0 && i < 100000; i++) {
        ssize_t n = read(a->kmsg_fd, line, sizeof line - 1);
        if (n < 0 && (errno == EPIPE || errno == EINTR)) continue; /* overwritten meanwhile: the next one */
        if (n <= 0) break;
        line[n] = 0;
        const char *p = strstr(line, "Killed process ");
        if (!p || !strstr(line, "ut of memory")) continue;
        pid_t pid = (pid_t)strtol(p + 15, NULL, 10);
        ft_buf_add(&a->oom_pids, &pid, sizeof pid);
    }
}

/* Did the kernel kill this process for want of memory? By its log where it can be read, else by the count of our cgroup. */
static bool kernel_killed(struct ft_agent *a, pid_t pid)
{
    read_kernel_log(a);
    bool found = false;
    for (size_t at = 0; at < a->oom_pids.n; at += sizeof pid) found = found || memcmp(a->oom_pids.data + at, &pid, sizeof pid) == 0;
    uint64_t kills = ft_contain_oom_kills();
    if (kills > a->oom_kills) {
        a->oom_kills++;
        found = true;
    }
    return found;
}

static void add_core(struct ft_agent *a, const struct ft_slot *s, struct ft_buf *out)
{
    struct ft_buf pattern = {0}, uses_pid = {0}, path = {0};
    if (ft_read_file("/proc/sys/kernel/core_pattern", 4096, &pattern, NULL) || !pattern.n) goto done;
    while (pattern.n && pattern.data[pattern.n - 1] == '\n') pattern.data[--pattern.n] = 0;
    if (pattern.data[0] == '|') {
        ft_buf_addf(out, "core dump handed to '%s'", pattern.data + 1);
        goto done;
    }
    bool numbered = ft_read_file("/proc/sys/kernel/core_uses_pid", 16, &uses_pid, NULL) == FT_OK && uses_pid.n &&
                    uses_pid.data[0] == '1';
    if (pattern.data[0] != '/') ft_buf_addf(&path, "%s/", ft_ranks_workdir(a) ? ft_ranks_workdir(a) : ".");
    for (const char *p = pattern.data; *p; p++) {
        if (p[0] == '%' && (p[1] == 'p' || p[1] == 'P')) {
            ft_buf_addf(&path, "%d", (int)s->proc.pid);
            numbered = false;
            p++;
        } else if (p[0] == '%' && p[1] == '%') {
            ft_buf_addc(&path, '%');
            p++;
        } else ft_buf_addc(&path, *p);
    }
    if (numbered) ft_buf_addf(&path, ".%d", (int)s->proc.pid);
    ft_buf_addf(out, ft_is_file(path.data) ? "core file %s" : "core dumped (core_pattern %s)",
                ft_is_file(path.data) ? path.data : pattern.data);
done:
    ft_buf_fini(&pattern);
    ft_buf_fini(&uses_pid);
    ft_buf_fini(&path);
}

static void add_memory(struct ft_buf *out)
{
    struct ft_buf text = {0};
    if (ft_read_file("/proc/meminfo", 65536, &text, NULL) == FT_OK) {
        const char *p = strstr(text.data, "MemAvailable:");
        if (p) ft_buf_addf(out, "%.1f GB free", (double)strtoull(p + 13, NULL, 10) / 1e6);
    }
    ft_buf_fini(&text);
}

static void send_exit(struct ft_agent *a, struct ft_slot *s)
{
    struct ft_buf evidence = {0};
    if (s->signal == SIGKILL && !s->after_stop) {
        if (kernel_killed(a, s->proc.pid)) s->marks |= FT_EXIT_OOM;
        add_memory(&evidence);
    }
    if (s->marks & FT_EXIT_CORE) add_core(a, s, &evidence);
    struct ft_msg m = ft_msg_make(FT_MSG_EXIT, (unsigned)s->index);
    ft_msg_u(&m, 0, (uint64_t)s->status);
    ft_msg_u(&m, 1, (uint64_t)s->signal);
    ft_msg_u(&m, 2, s->marks);
    ft_msg_u(&m, 3, (uint64_t)s->ended_at);
    ft_msg_u(&m, 4, s->order);
    ft_msg_bytes(&m, 5, evidence.data, evidence.n);
    size_t n = s->last.n < FT_STDERR_KEPT ? s->last.n : FT_STDERR_KEPT;
    bool failed = s->status || s->signal;
    ft_msg_bytes(&m, 6, n && failed ? s->last.data + s->last.n - n : NULL, failed ? n : 0);
    if (!a->head_gone) ft_wire_send(&a->wire, &m);
    ft_buf_fini(&evidence);
    ft_buf_fini(&s->last);
    s->state = FT_SLOT_ENDED;
    ft_slot_close_input(s);
    if (!a->job.keep_children) ft_pump_close(&s->pump[2]); /* else what stays may write to it: drain.c */
}

/* The dead rank whose end has not been sent and which died first after `done`. */
static struct ft_slot *next_dead(struct ft_agent *a, uint64_t done)
{
    struct ft_slot *best = NULL;
    for (int i = 0; i < a->n_slots; i++) {
        struct ft_slot *s = &a->slots[i];
        if (s->state == FT_SLOT_DEAD && s->order > done && (!best || s->order < best->order)) best = s;
    }
    return best;
}

void ft_ranks_advance(struct ft_agent *a)
{
    int64_t now = ft_clock_now(ft_clock_real());
    struct ft_slot *s;
    for (uint64_t done = 0; (s = next_dead(a, done)); done = s->order) {
        for (int k = 2; k >= 0; k--)
            if (!s->pump[k].dry) ft_pump_read(&s->pump[k], true);
        bool dry = s->pump[0].dry && s->pump[1].dry && s->pump[2].dry;
        if (!dry && now < s->ended_at + FT_DRAIN_MS * FT_MS) continue;
        if (!dry) s->marks |= FT_EXIT_UNDRAINED;
        send_exit(a, s);
    }
    ft_ending_leftovers(a, now);
    ft_agent_flush(a);
    ft_agent_check_gone(a);
}

bool ft_ranks_all_ended(const struct ft_agent *a)
{
    for (int i = 0; i < a->n_slots; i++)
        if (a->slots[i].state != FT_SLOT_ENDED && a->slots[i].state != FT_SLOT_WAITING) return false;
    return true;
}
