#include "launcher/events.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

enum ft_code ft_events_open(struct ft_events *e, const char *path, int attempt, struct ft_err *err)
{
    *e = (struct ft_events){.fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600), .attempt = attempt};
    char why[200];
    if (e->fd < 0) return ft_fail(err, FT_IO, "cannot write '%s': %s", path, ft_errno_text(errno, why));
    if (flock(e->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) { /* a file system without locks is no reason to stop */
        ft_close(&e->fd);
        return ft_fail(err, FT_USAGE, "the run of '%s' lives: another launcher holds it", path);
    }
    return FT_OK;
}

void ft_events_close(struct ft_events *e)
{
    ft_close(&e->fd);
    ft_buf_fini(&e->line);
}

struct ft_jw *ft_events_begin(struct ft_events *e, const char *ev)
{
    char t[32];
    ft_wall_iso(ft_wall_ns(), t);
    ft_buf_clear(&e->line);
    e->w = ft_jw_begin(&e->line);
    ft_jw_object(&e->w);
    ft_jw_kstr(&e->w, "t", t);
    ft_jw_kstr(&e->w, "ev", ev);
    ft_jw_kint(&e->w, "attempt", e->attempt);
    return &e->w;
}

bool ft_events_end(struct ft_events *e)
{
    ft_jw_end(&e->w);
    ft_buf_addc(&e->line, '\n');
    if (e->fd < 0 || ft_write_all(e->fd, e->line.data, e->line.n, NULL) == FT_OK) return true;
    bool first = !e->failed;
    e->failed = true;
    return !first;
}
