#include "launcher/ssh_memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "launcher/ssh_lines.h"
#include "launcher/ssh_stage.h"

enum { MAX_BYTES = 16 << 20 };

static const char *login_of(struct ft_arena *a, const char *user, const char *host, int port)
{
    return ft_arena_printf(a, "%s@%s:%d", user, host, port);
}

static void add(struct ft_ssh_memory *m, const char *login, const char *command)
{
    struct ft_ssh_remembered *r = ft_ssh_push(m->arena, &m->v, &m->n, &m->cap, sizeof *m->v);
    r->login = login;
    r->command = command;
}

void ft_ssh_memory_read(struct ft_ssh_memory *m, const struct ft_ssh_me *me, const char *build, struct ft_arena *arena)
{
    *m = (struct ft_ssh_memory){.arena = arena};
    const char *state = getenv("XDG_STATE_HOME");
    m->path = state && *state == '/' ? ft_arena_printf(arena, "%s/ftlaunch/agents/%s", state, build)
                                     : ft_arena_printf(arena, "%s/.local/state/ftlaunch/agents/%s", me->home, build);
    struct stat st;
    struct ft_buf b = {0};
    if (stat(m->path, &st) || st.st_uid != me->uid || (st.st_mode & 022) || ft_read_file(m->path, MAX_BYTES, &b, NULL) != FT_OK)
        return;
    for (char *p = b.data; p && *p;) {
        char *end = strchrnul(p, '\n'), *blank = memchr(p, ' ', (size_t)(end - p));
        if (blank) {
            const char *command = ft_arena_strndup(arena, blank + 1, (size_t)(end - blank - 1));
            if (ft_ssh_plain_word(command)) add(m, ft_arena_strndup(arena, p, (size_t)(blank - p)), command);
        }
        p = *end ? end + 1 : end;
    }
    ft_buf_fini(&b);
}

static struct ft_ssh_remembered *find(const struct ft_ssh_memory *m, const char *login)
{
    for (size_t i = 0; i < m->n; i++)
        if (strcmp(m->v[i].login, login) == 0) return &m->v[i];
    return NULL;
}

const char *ft_ssh_memory_get(const struct ft_ssh_memory *m, const char *user, const char *host, int port)
{
    const struct ft_ssh_remembered *r = find(m, login_of(m->arena, user, host, port));
    return r ? r->command : NULL;
}

void ft_ssh_memory_put(struct ft_ssh_memory *m, const char *user, const char *host, int port, const char *command)
{
    const char *login = login_of(m->arena, user, host, port);
    struct ft_ssh_remembered *r = find(m, login);
    if (r && strcmp(r->command, command) == 0) return;
    const char *copy = ft_arena_strdup(m->arena, command);
    if (r) r->command = copy;
    else add(m, login, copy);
    m->changed = true;
}

void ft_ssh_memory_write(struct ft_ssh_memory *m)
{
    if (!m->changed) return;
    struct ft_buf b = {0}, dir = {0};
    for (size_t i = 0; i < m->n; i++) ft_buf_addf(&b, "%s %s\n", m->v[i].login, m->v[i].command);
    ft_buf_add(&dir, m->path, (size_t)(strrchr(m->path, '/') - m->path));
    if (ft_mkdirs(dir.data, 0700, NULL) == FT_OK && ft_write_file(m->path, b.data, b.n, 0600, NULL) == FT_OK) m->changed = false;
    ft_buf_fini(&b);
    ft_buf_fini(&dir);
}
