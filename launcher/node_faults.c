#include "launcher/node_faults.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "topology/hostlist.h"

enum { MAX_BYTES = 16 << 20, SHRINK_ABOVE = 1 << 20, STARTS = 2 };

/* false: no home is known, nothing is remembered. */
static bool folder(struct ft_buf *out)
{
    const char *state = getenv("XDG_STATE_HOME");
    if (state && *state == '/') ft_buf_addf(out, "%s/ftlaunch", state);
    else return ft_expand_home("~/.local/state/ftlaunch", out, NULL) == FT_OK;
    return true;
}

static const char *cluster_of(const struct ft_launcher_config *c) { return c->cluster.name ? c->cluster.name : ""; }

/* The file when it is ours; -1. */
static int open_file(int flags)
{
    struct ft_buf path = {0};
    struct stat st;
    const bool known = folder(&path);
    ft_buf_adds(&path, "/faults.jsonl");
    int fd = !known ? -1 : open(path.data, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    ft_buf_fini(&path);
    if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022))) ft_close(&fd);
    return fd;
}

static void read_all(int fd, struct ft_buf *out)
{
    char bytes[65536];
    ssize_t n;
    while (out->n < MAX_BYTES && ((n = read(fd, bytes, sizeof bytes)) > 0 || (n < 0 && errno == EINTR)))
        if (n > 0) ft_buf_add(out, bytes, (size_t)n);
}

struct known {
    const char *node, *run;
    int n_losses, n_starts;
    int64_t last; /* wall ns */
};
struct knowing {
    struct ft_arena *arena;
    struct ft_name_index index; /* of v */
    struct known *v;
    size_t n, cap;
};

static struct known *find(struct knowing *k, const char *node)
{
    const long at = ft_name_index_find(&k->index, node);
    if (at >= 0) return &k->v[at];
    ft_grow(&k->v, &k->cap, k->n + 1, sizeof *k->v);
    k->v[k->n] = (struct known){.node = ft_arena_strdup(k->arena, node)};
    ft_name_index_add(&k->index, k->v[k->n].node);
    return &k->v[k->n++];
}

static void take_line(struct knowing *k, const struct ft_launcher_config *c, const struct ft_json *v, int64_t since)
{
    const char *node = ft_json_str(ft_json_get(v, "node")), *kind = ft_json_str(ft_json_get(v, "kind"));
    const char *run = ft_json_str(ft_json_get(v, "run"));
    const int64_t at = ft_json_int(ft_json_get(v, "at"), 0);
    if (!node || !kind || at < since || !ft_str_eq(ft_json_str(ft_json_get(v, "cluster")), cluster_of(c))) return;
    struct known *f = find(k, node);
    f->n_losses += !strcmp(kind, "loss");
    f->n_starts += !strcmp(kind, "start");
    if (at < f->last) return;
    f->last = at;
    f->run = ft_arena_strdup(k->arena, run ? run : "?");
}

void ft_node_faults_read(const struct ft_launcher_config *c, struct ft_arena *arena, struct ft_names *late,
                         struct ft_faults *faults)
{
    struct knowing k = {.arena = arena, .index = ft_name_index_make(arena)};
    struct ft_name_index named = ft_name_index_make(arena);
    struct ft_buf b = {0};
    const int64_t now = ft_wall_ns();
    *late = (struct ft_names){0};
    int fd = c->launch.cooldown ? open_file(O_RDONLY) : -1;
    if (fd < 0) return;
    read_all(fd, &b);
    ft_close(&fd);
    for (const char *p = ft_buf_str(&b); *p;) {
        const size_t n = strcspn(p, "\n");
        struct ft_json *v = NULL;
        if (n && !ft_json_parse(p, n, 0, &v, NULL, NULL)) take_line(&k, c, v, now - c->launch.cooldown);
        ft_json_destroy(v);
        p += n + (p[n] == '\n');
    }
    late->v = ft_arena_array(arena, k.n + 1, sizeof *late->v);
    for (size_t i = 0; i < c->n_nodes; i++) ft_name_index_add(&named, c->nodes[i].name);
    for (size_t i = 0; i < k.n; i++) {
        const struct known *f = &k.v[i];
        if (ft_name_index_find(&named, f->node) < 0 || (!f->n_losses && f->n_starts < STARTS)) continue;
        late->v[late->n++] = f->node;
        ft_faults_add(faults, FT_SEV_NOTE, (struct ft_source){0}, NULL, NULL,
                      "node %s is used last: it %s %lld min ago in run %s (cooldown)", f->node,
                      f->n_losses ? "was lost" : "could not be started twice, lastly", (long long)((now - f->last) / (60 * FT_SEC)),
                      f->run);
    }
    free(k.v);
    ft_buf_fini(&b);
}

/* What cannot be written is not remembered. */
static void append(int fd, const char *p, size_t n)
{
    if (ft_write_all(fd, p, n, NULL)) errno = 0;
}

/* The newer half stays. */
static void shrink(int fd)
{
    struct ft_buf b = {0};
    if (lseek(fd, 0, SEEK_SET) == 0) read_all(fd, &b);
    const char *half = b.n ? memchr(b.data + b.n / 2, '\n', b.n - b.n / 2) : NULL;
    if (half && ftruncate(fd, 0) == 0) append(fd, half + 1, (size_t)(b.data + b.n - half - 1));
    ft_buf_fini(&b);
}

void ft_node_faults_add(const struct ft_launcher_config *c, const struct ft_node_fault *f)
{
    struct ft_buf dir = {0}, line = {0};
    struct stat st;
    char t[32];
    if (!c->launch.cooldown) return;
    int fd = folder(&dir) && ft_mkdirs(dir.data, 0700, NULL) == FT_OK ? open_file(O_RDWR | O_CREAT | O_APPEND) : -1;
    ft_buf_fini(&dir);
    if (fd < 0) return;
    const int64_t now = ft_wall_ns();
    ft_wall_iso(now, t);
    struct ft_jw w = ft_jw_begin(&line);
    ft_jw_object(&w);
    ft_jw_kstr(&w, "t", t);
    ft_jw_kint(&w, "at", now);
    ft_jw_kstr(&w, "cluster", cluster_of(c));
    ft_jw_kstr(&w, "node", f->node);
    ft_jw_kstr(&w, "boot", f->boot);
    ft_jw_kstr(&w, "kind", f->kind);
    ft_jw_kstr(&w, "run", f->run);
    ft_jw_end(&w);
    ft_buf_addc(&line, '\n');
    if (flock(fd, LOCK_EX) == 0) {
        if (fstat(fd, &st) == 0 && st.st_size > SHRINK_ABOVE) shrink(fd);
        append(fd, line.data, line.n);
    }
    ft_close(&fd);
    ft_buf_fini(&line);
}
