/* Field tables of the launcher's sections. Names and defaults: docs, "The INI files". [nodes] and [env] have free keys: nodes.c,
 * env.c. What this build lacks is refused by its name from the same rows. */
#include <arpa/inet.h>
#include <net/if.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "launcher/config.h"

enum { MAX_COUNT = 1 << 20 };
static const double forever = 3600e9 * 24 * 365;

static const char *const autos[] = {"auto", NULL};
static const char *const alls[] = {"all", NULL};
static const char *const nones[] = {"none", NULL};

/* ---- rules ---- */

static bool no_control(const char *value, struct ft_buf *why)
{
    for (const char *c = value; *c; c++) {
        if ((unsigned char)*c >= 0x20 && *c != 0x7f) continue;
        ft_buf_addf(why, "it holds a control character (0x%02X)", (unsigned)(unsigned char)*c);
        return false;
    }
    return true;
}

/* Names become parts of file names. */
static bool job_name(const char *value, struct ft_buf *why)
{
    if (strlen(value) <= 64 && value[0] != '-' && value[0] != '.' &&
        strspn(value, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == strlen(value))
        return true;
    ft_buf_addf(why, "'%s' is not a name: up to 64 letters, digits, '.', '_' and '-', not beginning with '.' or '-'", value);
    return false;
}

/* An address, or a name that could be one. */
static bool address(const char *value, struct ft_buf *why)
{
    struct ft_arena *a = ft_arena_create();
    struct ft_range_fault f = {0};
    bool ok = !strcmp(value, "auto") || ft_is_address(value) || ft_hostname_check(value, strlen(value), a, &f);
    if (!ok) ft_buf_adds(why, f.text);
    ft_arena_destroy(a);
    return ok;
}

static bool no_option(const char *value, struct ft_buf *why)
{
    if (value[0] != '-' && !strpbrk(value, " \t")) return no_control(value, why);
    ft_buf_addf(why, "'%s' begins with '-' or holds a blank", value);
    return false;
}

/* A name as the kernel allows it, or a network. */
static bool interface(const char *value, struct ft_buf *why)
{
    unsigned char bytes[16];
    char text[64];
    const char *slash = strchr(value, '/');
    int64_t bits;
    if (!slash) {
        if (inet_pton(AF_INET, value, bytes) == 1) ft_buf_addf(why, "%s is an address; write %s/32 for its network", value, value);
        else if (inet_pton(AF_INET6, value, bytes) == 1)
            ft_buf_addf(why, "%s is an address; write %s/128 for its network", value, value);
        else if (strlen(value) >= IF_NAMESIZE)
            ft_buf_addf(why, "'%s' is longer than the name of an interface (%d bytes)", value, IF_NAMESIZE - 1);
        else return no_option(value, why);
        return false;
    }
    snprintf(text, sizeof text, "%.*s", (int)(slash - value), value);
    const bool v4 = inet_pton(AF_INET, text, bytes) == 1, v6 = !v4 && inet_pton(AF_INET6, text, bytes) == 1;
    if ((size_t)(slash - value) < sizeof text && (v4 || v6) && ft_parse_i64(slash + 1, 0, v4 ? 32 : 128, &bits)) return true;
    ft_buf_addf(why, "'%s' is neither the name of an interface nor a network such as 10.1.0.0/16 or fd00::/8", value);
    return false;
}

/* Sets of nodes: the operators of other tools are specified, not built. */
static bool selection(const char *value, struct ft_buf *why)
{
    size_t n = strcspn(value, "!&^@");
    if (!value[n]) return true;
    ft_buf_addf(why, "'%c' in a set of nodes is not built yet; write the nodes themselves", value[n]);
    return false;
}

static bool zero_only(const char *value, struct ft_buf *why)
{
    if (!value[strspn(value, "0msh")] && value[0] == '0') return true;
    ft_buf_addf(why, "%s is not built yet; set it to 0", value);
    return false;
}

static bool variable_name(const char *value, struct ft_buf *why)
{
    if (!strchr(value, '=')) return no_control(value, why);
    ft_buf_addf(why, "'%s' is no name of a variable", value);
    return false;
}

/* ---- [cluster] ---- */

static const char *const transports[] = {"local", "ssh", "mpi", "slurm", NULL};
#define AT(m) .at = offsetof(struct ft_cluster_fields, m)
static const struct ft_field cluster[] = {
    {.name = "name",
     .type = FT_F_TEXT,
     AT(name),
     .check = job_name,
     .help = "name of the job and of its run folders (else the job file's name)"},
    {.name = "transport", .type = FT_F_ENUM, .values = transports, .def = "local", AT(transport), .help = "how nodes are reached"},
    {.name = "master_addr",
     .type = FT_F_TEXT,
     .def = "auto",
     AT(master_addr),
     .check = address,
     .help = "where ranks meet; auto: an address of the first node that every other node reaches"},
    {.name = "master_port",
     .type = FT_F_INT,
     .def = "auto",
     .values = autos,
     .word_value = 0,
     .min = 1,
     .max = 65535,
     AT(master_port),
     .help = "port there; auto: a free one, checked on the first node"},
    {.name = "interface",
     .type = FT_F_TEXT,
     .def = "auto",
     AT(interface),
     .check = interface,
     .help = "network interface or CIDR for meeting; also sets NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME when given"},
    {.name = "hostfile", .type = FT_F_PATH, AT(hostfile), .help = "a host list of another tool ('-': standard input)"},
    {.name = "slots",
     .type = FT_F_INT,
     .unit = "ranks",
     .min = 1,
     .max = FT_MAX_SLOTS,
     AT(slots),
     .help = "ranks on each node that says nothing itself (else 1)"},
    {.name = "include", .type = FT_F_TEXT, AT(include), .check = selection, .help = "use only these nodes (a set, as in [nodes])"},
    {.name = "exclude",
     .type = FT_F_TEXT,
     AT(exclude),
     .check = selection,
     .help = "do not use these nodes (a set, as in [nodes])"},
};
#undef AT

/* ---- [ssh] ---- */

static const char *const host_keys[] = {"strict", "accept-new", "off", NULL};
#define AT(m) .at = offsetof(struct ft_ssh_fields, m)
static const struct ft_field ssh[] = {
    {.name = "user",
     .type = FT_F_TEXT,
     AT(user),
     .check = no_option,
     .help = "user on the nodes (else ssh_config's, else this user)"},
    {.name = "port", .type = FT_F_INT, .min = 1, .max = 65535, AT(port), .help = "port of sshd (else ssh_config's, else 22)"},
    {.name = "identity",
     .type = FT_F_PATH,
     .list = true,
     AT(identity),
     .help = "private keys to offer (else ssh_config's, else the usual ones)"},
    {.name = "config", .type = FT_F_PATH, AT(config), .help = "ssh_config to read (else the user's, then the system's)"},
    {.name = "known_hosts",
     .type = FT_F_PATH,
     AT(known_hosts),
     .help = "file of known host keys (else ssh_config's, else the usual ones)"},
    {.name = "host_keys",
     .type = FT_F_ENUM,
     .values = host_keys,
     .def = "strict",
     AT(host_keys),
     .help = "what to do with an unknown host key"},
    {.name = "jump", .type = FT_F_TEXT, .def = "none", AT(jump), .check = no_option, .help = "hosts to go through, A or A,B"},
    {.name = "timeout",
     .type = FT_F_DURATION,
     .def = "30s",
     .min = 1e8,
     .max = forever,
     AT(timeout),
     .help = "deadline for all nodes together"},
    {.name = "parallel", .type = FT_F_INT, .def = "64", .min = 1, .max = 1024, AT(parallel), .help = "logins at a time"},
    {.name = "agent",
     .type = FT_F_TEXT,
     .def = "auto",
     AT(agent),
     .check = no_option,
     .help = "path of ftlaunch-agent on the nodes; auto: found, else sent"},
    {.name = "keep",
     .type = FT_F_DURATION,
     .def = "0",
     .min = 0,
     .max = forever,
     AT(keep),
     .check = zero_only,
     .help = "how long idle sessions stay open between runs"},
};
#undef AT

/* ---- [mpi] ---- */

static const char *const wireups[] = {"no", "pmi2", "pmix", NULL};
static const struct ft_unbuilt no_wireup[] = {{"pmi2", "set wireup = no"}, {"pmix", "set wireup = no"}, {NULL, NULL}};
#define AT(m) .at = offsetof(struct ft_mpi_fields, m)
static const struct ft_field mpi[] = {
    {.name = "mpirun", .type = FT_F_PATH, .def = "mpirun", AT(mpirun), .help = "the mpirun or mpiexec to use"},
    {.name = "args", .type = FT_F_TEXT, AT(args), .check = no_control, .help = "further arguments for it, divided by blanks"},
    {.name = "wireup",
     .type = FT_F_ENUM,
     .values = wireups,
     .def = "no",
     .unbuilt = no_wireup,
     AT(wireup),
     .help = "wire-up of MPI programs that srun starts"},
};
#undef AT

/* ---- [slurm] ---- */

static const struct ft_unbuilt no_container[] = {{"*", "leave container out"}, {NULL, NULL}};
#define AT(m) .at = offsetof(struct ft_slurm_fields, m)
#define TEXT(m, h)                                                                                                                 \
    {                                                                                                                              \
        .name = #m, .type = FT_F_TEXT, AT(m), .check = no_control, .help = h                                                       \
    }
static const struct ft_field slurm[] = {
    TEXT(partition, "partition"),
    TEXT(account, "account"),
    TEXT(qos, "quality of service"),
    TEXT(time, "time limit, as Slurm writes it (08:00:00)"),
    {.name = "nodes", .type = FT_F_INT, .min = 1, .max = FT_MAX_NODES, AT(nodes), .help = "number of nodes"},
    {.name = "gpus_per_node",
     .type = FT_F_INT,
     .min = 1,
     .max = FT_MAX_SLOTS,
     AT(gpus_per_node),
     .help = "GPUs on each node; also its slots"},
    {.name = "cpus_per_task", .type = FT_F_INT, .min = 1, .max = MAX_COUNT, AT(cpus_per_task), .help = "cores for each rank"},
    TEXT(mem, "memory of each node, as Slurm writes it (64G)"),
    TEXT(constraint, "features that nodes must have"),
    TEXT(exclude, "nodes that Slurm must not give"),
    TEXT(array, "job array, as Slurm writes it (0-3%2)"),
    TEXT(dependency, "dependency, as Slurm writes it (afterok:123)"),
    {.name = "requeue",
     .type = FT_F_BOOL,
     .def = "no",
     AT(requeue),
     .help = "go back into the queue when time is up or the job is preempted"},
    TEXT(signal, "warning before the time limit (USR1@120)"),
    {.name = "container",
     .type = FT_F_TEXT,
     AT(container),
     .check = no_control,
     .unbuilt = no_container,
     .help = "container image for the ranks"},
    {.name = "modules", .type = FT_F_TEXT, .list = true, AT(modules), .check = no_control, .help = "environment modules to load"},
    TEXT(setup, "a line of shell in the batch script before the job"),
    {.name = "extra", .type = FT_F_TEXT, .list = true, AT(extra), .check = no_control, .help = "further #SBATCH options"},
};
#undef TEXT
#undef AT

/* ---- [launch] ---- */

static const char *const outputs[] = {"prefix", "files", "both", "quiet", NULL};
static const char *const binds[] = {"auto", "none", "core", "numa", "gpu", NULL};
static const char *const stdins[] = {"none", "all", NULL};
static const char *const slow[] = {"wait", "drop", NULL};
static const char *const children[] = {"end", "keep", NULL};
static const char *const ends[] = {"all", "rank0", NULL};
static const struct ft_unbuilt no_gather[] = {{"yes", "set gather = no"}, {NULL, NULL}};
static const char forward[] =
    "PATH, LD_LIBRARY_PATH, PYTHONPATH, VIRTUAL_ENV, CONDA_PREFIX, CUDA_HOME, LANG, LC_*, TZ, OMP_*, MKL_*, KMP_*, CUDA_*, "
    "NCCL_*, GLOO_*, UCX_*, FI_*, TORCH_*, PYTORCH_*, HF_*, TRITON_*";
static bool show_all(const char *value, struct ft_buf *why)
{
    if (!strcmp(value, "all")) return true;
    ft_buf_addf(why, "show = %s is not built yet; set show = all", value);
    return false;
}

#define AT(m) .at = offsetof(struct ft_launch_fields, m)
#define WAIT(m, d, lo, h)                                                                                                          \
    {                                                                                                                              \
        .name = #m, .type = FT_F_DURATION, .def = d, .min = lo, .max = forever, AT(m), .help = h                                   \
    }
static const struct ft_field launch[] = {
    {.name = "workdir",
     .type = FT_F_PATH,
     AT(workdir),
     .help = "working directory of the ranks (else the head's current directory)"},
    {.name = "run_dir", .type = FT_F_PATH, .def = "runs", AT(run_dir), .help = "where run folders are made"},
    {.name = "output",
     .type = FT_F_ENUM,
     .values = outputs,
     .def = "both",
     AT(output),
     .help = "where output of the ranks goes: the console, files in the run folder, both, or quietly files"},
    WAIT(grace, "30s", 0, "how long ranks may go on after SIGTERM before SIGKILL"),
    WAIT(heartbeat, "2s", 1e8, "time between signs of life; four missed ones are a lost node"),
    WAIT(hang_timeout, "15m", 0, "end the job when no rank makes progress for this long; 0: off"),
    {.name = "restarts",
     .type = FT_F_INT,
     .def = "0",
     .min = 0,
     .max = MAX_COUNT,
     AT(restarts),
     .help = "how often a failed job is started again"},
    WAIT(restart_window, "0", 0, "time in which restarts are counted; 0: the whole run"),
    {.name = "spare_nodes",
     .type = FT_F_INT,
     .def = "0",
     .min = 0,
     .max = FT_MAX_NODES,
     AT(spare_nodes),
     .help = "last nodes that are held back to replace others (as tag spare does)"},
    {.name = "min_nodes",
     .type = FT_F_INT,
     .def = "all",
     .values = alls,
     .word_value = 0,
     .min = 1,
     .max = FT_MAX_NODES,
     AT(min_nodes),
     .help = "how many nodes are enough"},
    {.name = "bind",
     .type = FT_F_ENUM,
     .values = binds,
     .def = "auto",
     AT(bind),
     .help = "what ranks are bound to; auto: gpu where the node shows GPUs, else none"},
    {.name = "stage", .type = FT_F_BOOL, .def = "yes", AT(stage), .help = "send ftlaunch-agent where it is not installed"},
    {.name = "forward",
     .type = FT_F_TEXT,
     .list = true,
     .def = forward,
     AT(forward),
     .check = variable_name,
     .help = "variables that ranks get from the head's environment (NAME or PREFIX*)"},
    {.name = "stdin",
     .type = FT_F_INT,
     .def = "none",
     .values = stdins,
     .word_value = FT_STDIN_NONE,
     .min = 0,
     .max = 1 << 28,
     AT(stdin_rank),
     .help = "which rank reads the head's standard input"},
    {.name = "show",
     .type = FT_F_TEXT,
     .def = "all",
     AT(show),
     .check = show_all,
     .help = "ranks whose output reaches the console"},
    {.name = "gather",
     .type = FT_F_BOOL,
     .def = "no",
     .unbuilt = no_gather,
     AT(gather),
     .help = "print equal lines of several ranks once"},
    {.name = "slow_output",
     .type = FT_F_ENUM,
     .values = slow,
     .def = "wait",
     AT(slow_output),
     .help = "a console that reads slowly: ranks wait, or lines are dropped and counted"},
    {.name = "children",
     .type = FT_F_ENUM,
     .values = children,
     .def = "end",
     AT(children),
     .help = "processes that a rank leaves behind: ended, or kept and listed (what they write later goes to the rank's file)"},
    {.name = "end",
     .type = FT_F_ENUM,
     .values = ends,
     .def = "all",
     AT(end),
     .help = "the job is done when all ranks are, or when rank 0 is"},
    {.name = "deadline",
     .type = FT_F_DURATION,
     .def = "none",
     .values = nones,
     .word_value = 0,
     .min = 1e6,
     .max = forever,
     AT(deadline),
     .help = "end the job after this long"},
    {.name = "cooldown",
     .type = FT_F_DURATION,
     .def = "30m",
     .min = 0,
     .max = forever,
     AT(cooldown),
     .help = "how long a node that was lost, or failed twice at the start, is used last; 0: not remembered"},
    {.name = "secrets",
     .type = FT_F_TEXT,
     .list = true,
     AT(secrets),
     .check = variable_name,
     .help = "variables of [env] that are masked everywhere, besides *TOKEN* *KEY* *SECRET* *PASS* *CRED*"},
};
#undef WAIT
#undef AT

#define SECTION(n, h) const struct ft_section ft_##n##_section = {#n, h, n, sizeof n / sizeof *n, sizeof(struct ft_##n##_fields)}
SECTION(cluster, "which nodes, how they are reached, where ranks meet");
SECTION(ssh, "how nodes are reached over ssh");
SECTION(mpi, "how nodes are reached through an mpirun");
SECTION(slurm, "what is asked of Slurm");
SECTION(launch, "how ranks are started, watched and ended");

const struct ft_section *const ft_launcher_sections[] = {
    &ft_cluster_section, &ft_ssh_section, &ft_mpi_section, &ft_slurm_section, &ft_launch_section, &ft_parallel_section, NULL};
