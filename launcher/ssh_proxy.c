#include "launcher/ssh_proxy.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "launcher/proc.h"

extern char **environ;

enum { SAID_BYTES = 4096 };

/* ---- words ---- */

struct words {
    struct ft_arena *arena;
    const char *host;
    const struct ft_ssh_settings *s;
    const struct ft_ssh_me *me;
};

static const char *token(const struct words *w, char c)
{
    switch (c) {
    case '%': return "%";
    case 'h': return w->s->hostname.text;
    case 'n': return w->host;
    case 'p': return w->s->port.text;
    case 'r': return w->s->user.text;
    default: return NULL;
    }
}

static enum ft_code needs_shell(const char *p, struct ft_err *err)
{
    ft_fail(err, FT_UNSUPPORTED, "ProxyCommand: '%c' needs a shell, and no shell is started", *p);
    return ft_fix(err, "put the command into a script of its own and name that, or use ProxyJump");
}

/* One word from *at on; quotes and backslashes as in sh. */
static enum ft_code one_word(const struct words *w, const char **at, struct ft_buf *out, struct ft_err *err)
{
    char quote = 0;
    const char *p = *at;
    if (p[0] == '~' && (p[1] == '/' || !p[1] || p[1] == ' ')) {
        ft_buf_adds(out, w->me->home);
        p++;
    }
    for (; *p && (quote || !strchr(" \t", *p)); p++) {
        if (*p == quote) quote = 0;
        else if (!quote && (*p == '\'' || *p == '"')) quote = *p;
        else if (*p == '%') {
            const char *t = token(w, p[1]);
            if (!t) return ft_fail(err, FT_CONFIG, "ProxyCommand: '%%%c' is none of %%h %%n %%p %%r %%%%", p[1] ? p[1] : ' ');
            ft_buf_adds(out, t);
            p++;
        } else if (*p == '\\' && quote != '\'' && p[1] && (!quote || strchr("\"\\$`", p[1]))) ft_buf_addc(out, *++p);
        else if (quote != '\'' && strchr("$`", *p)) return needs_shell(p, err);
        else if (!quote && (strchr("|&;<>()*?", *p) || (*p == '#' && p == *at))) return needs_shell(p, err);
        else ft_buf_addc(out, *p);
    }
    if (quote) return ft_fail(err, FT_CONFIG, "ProxyCommand: the quote %c is not closed", quote);
    *at = p;
    return FT_OK;
}

/* What may be left out: an `exec` in front; `2>/dev/null` at the end, for its standard error is not shown anyway. */
static const char *behind_exec(const char *line)
{
    line += strspn(line, " \t");
    return strncmp(line, "exec", 4) == 0 && strchr(" \t", line[4]) && line[4] ? line + 5 : line;
}

static size_t without_silence(const char *line)
{
    static const char *const ways[] = {"2>/dev/null", "2> /dev/null"};
    size_t n = strlen(line);
    while (n && strchr(" \t", line[n - 1])) n--;
    for (size_t i = 0; i < 2; i++) {
        const size_t k = strlen(ways[i]);
        if (n > k && strncmp(line + n - k, ways[i], k) == 0 && strchr(" \t", line[n - k - 1])) return n - k;
    }
    return n;
}

enum ft_code ft_ssh_proxy_words(const char *line, const char *host, const struct ft_ssh_settings *settings,
                                const struct ft_ssh_me *me, struct ft_arena *arena, char *const **out_words, struct ft_err *err)
{
    const struct words w = {.arena = arena, .host = host, .s = settings, .me = me};
    line = behind_exec(line);
    const char *p = ft_arena_strndup(arena, line, without_silence(line));
    char **v = ft_arena_array(arena, strlen(p) / 2 + 2, sizeof *v); /* zeroed: it ends with a NULL */
    size_t n = 0;
    enum ft_code c = FT_OK;
    for (p += strspn(p, " \t"); *p && c == FT_OK; p += strspn(p, " \t")) {
        struct ft_buf one = {0};
        c = one_word(&w, &p, &one, err);
        v[n++] = ft_arena_strdup(arena, ft_buf_str(&one));
        ft_buf_fini(&one);
    }
    if (c != FT_OK) return c;
    if (!n) return ft_fail(err, FT_CONFIG, "ProxyCommand: no command");
    struct ft_buf path = {0};
    const int e = ft_proc_find(v[0], NULL, environ, &path);
    ft_buf_fini(&path);
    if (e) return ft_fail(err, FT_CONFIG, "ProxyCommand: '%s': %s", v[0], strerror(e));
    *out_words = v;
    return FT_OK;
}

/* ---- the process ---- */

/* A file in memory that does not grow: whoever writes more gets an error, not our memory. */
static int said_file(void)
{
    const int fd = memfd_create("proxy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && (ftruncate(fd, SAID_BYTES) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) < 0)) errno = 0;
    return fd;
}

enum ft_code ft_ssh_proxy_start(char *const *words, struct ft_ssh_proxy *out, int *out_fd, struct ft_err *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) return ft_fail(err, FT_IO, "socketpair: %s", strerror(errno));
    struct ft_buf path = {0};
    struct ft_proc proc;
    *out = (struct ft_ssh_proxy){.said = said_file()};
    const int e = ft_proc_find(words[0], NULL, environ, &path);
    const struct ft_proc_spec spec = {
        .path = ft_buf_str(&path), .argv = words, .env = environ, .std = {pair[1], pair[1], out->said}, .cgroup = -1};
    enum ft_code c = e ? ft_fail(err, FT_IO, "'%s': %s", words[0], strerror(e)) : ft_proc_start(&spec, &proc, err);
    if (c == FT_OK) c = ft_nonblock(pair[0], err);
    ft_buf_fini(&path);
    close(pair[1]);
    if (c == FT_OK) {
        out->pid = proc.pid;
        *out_fd = pair[0];
        ft_close(&proc.pidfd); /* a failed exec shows as the end of the connection, and in what was said */
        ft_close(&proc.exec_fd);
        return FT_OK;
    }
    close(pair[0]);
    ft_ssh_proxy_end(out);
    return c;
}

void ft_ssh_proxy_said(const struct ft_ssh_proxy *p, char *out, size_t cap)
{
    char text[SAID_BYTES + 1];
    const ssize_t got = p->said >= 0 ? pread(p->said, text, SAID_BYTES, 0) : 0;
    text[got > 0 ? got : 0] = 0;
    size_t n = strlen(text);
    while (n && strchr("\r\n \t", text[n - 1])) text[--n] = 0;
    const char *last = strrchr(text, '\n') ? strrchr(text, '\n') + 1 : text;
    size_t k = 0;
    for (; last[k] && k + 1 < cap; k++) out[k] = (unsigned char)last[k] < 0x20 || last[k] == 0x7F ? '?' : last[k];
    out[k] = 0;
}

void ft_ssh_proxy_end(struct ft_ssh_proxy *p)
{
    if (p->pid > 0) {
        kill(-p->pid, SIGKILL); /* it leads a group, unless it has not come that far */
        kill(p->pid, SIGKILL);
        while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR) {}
    }
    ft_close(&p->said);
    *p = (struct ft_ssh_proxy){.said = -1};
}
