/* LOCK (on-disk formats, section 12): who writes into a folder of checkpoints. Two signs: the file itself, made with O_EXCL, and on
 * file systems that have them an OFD lock on it, which ends with the process. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "runtime/ckpt/state.h"

enum { TOUCH_S = 60 };

static void path_of(struct ft_buf *b, const char *dir)
{
    ft_buf_clear(b);
    ft_buf_addf(b, "%s/LOCK", dir);
}

static void read_line(const char *path, struct ft_buf *b)
{
    if (ft_read_file(path, 256, b, NULL)) ft_buf_clear(b);
    while (b->n && b->data[b->n - 1] == '\n') b->data[--b->n] = 0;
}

static void write_me(struct ft_buf *b, struct ft_ckpt_owner me)
{
    char host[256] = "", since[32];
    struct ft_buf boot = {0};
    if (gethostname(host, sizeof host - 1) < 0) host[0] = 0;
    read_line("/proc/sys/kernel/random/boot_id", &boot);
    ft_wall_iso(ft_wall_ns(), since);
    struct ft_jw w = ft_jw_begin(b);
    ft_jw_object(&w);
    ft_jw_kstr(&w, "run_id", me.run_id);
    ft_jw_kstr(&w, "lineage", me.lineage);
    ft_jw_kstr(&w, "host", host);
    ft_jw_kint(&w, "pid", getpid());
    ft_jw_kstr(&w, "boot_id", ft_buf_str(&boot));
    ft_jw_kstr(&w, "since", since);
    ft_jw_end(&w);
    ft_buf_addc(b, '\n');
    ft_buf_fini(&boot);
}

/* 1: held now; 0: somebody alive holds it; -1: this file system has no such locks. */
static int hold(int fd)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (!fcntl(fd, F_OFD_SETLK, &l)) return 1;
    return errno == EAGAIN || errno == EACCES ? 0 : -1;
}

struct holder {
    struct ft_json *v;
    const char *run_id, *host, *boot, *since;
    int64_t pid;
};

static void read_holder(const char *path, struct holder *h)
{
    struct ft_buf text = {0};
    *h = (struct holder){.run_id = "?", .host = "?", .boot = "", .since = "?"};
    if (!ft_read_file(path, 65536, &text, NULL) && !ft_json_parse(text.data, text.n, 0, &h->v, NULL, NULL)) {
        const char *const keys[] = {"run_id", "host", "boot_id", "since"};
        const char **const at[] = {&h->run_id, &h->host, &h->boot, &h->since};
        for (int i = 0; i < 4; i++)
            if (ft_json_str(ft_json_get(h->v, keys[i]))) *at[i] = ft_json_str(ft_json_get(h->v, keys[i]));
        h->pid = ft_json_int(ft_json_get(h->v, "pid"), 0);
    }
    ft_buf_fini(&text);
}

/* Is the writer that LOCK names certainly gone? */
static bool gone(const struct holder *h, const char *my_run)
{
    char host[256] = "";
    struct ft_buf boot = {0};
    if (!strcmp(h->run_id, my_run)) return true; /* a restart of the same run */
    if (gethostname(host, sizeof host - 1) < 0) host[0] = 0;
    read_line("/proc/sys/kernel/random/boot_id", &boot);
    const bool here = !strcmp(h->host, host), rebooted = strcmp(h->boot, ft_buf_str(&boot)) != 0;
    ft_buf_fini(&boot);
    return here && (rebooted || (h->pid > 0 && kill((pid_t)h->pid, 0) < 0 && errno == ESRCH));
}

static enum ft_code busy(const char *path, const struct holder *h, struct ft_err *err)
{
    struct stat st = {0};
    const int64_t age = stat(path, &st) ? 0 : ft_wall_ns() / FT_SEC - (int64_t)st.st_mtime;
    ft_fail(err, FT_CONFIG, "run %s on %s (pid %lld, since %s, last sign of life %lld s ago) writes here", h->run_id, h->host,
            (long long)h->pid, h->since, (long long)(age > 0 ? age : 0));
    ft_at(err, "%s", path);
    return ft_fix(err, "stop it, set another [checkpoint] dir, or remove LOCK if it is dead");
}

static enum ft_code fill(struct ft_fio *f, int fd, const char *path, struct ft_ckpt_owner me, struct ft_err *err)
{
    struct ft_buf b = {0};
    write_me(&b, me);
    const bool ok = !ftruncate(fd, 0) && lseek(fd, 0, SEEK_SET) == 0 && !ft_fio_write(f, fd, b.data, b.n) && !ft_fio_fsync(f, fd);
    const int saved = errno;
    ft_buf_fini(&b);
    return ok ? FT_OK : ft_fail(err, FT_IO, "writing %s: %s", path, strerror(saved));
}

/* The LOCK that is there already. FT_OK: it is ours now. */
static enum ft_code take_old(struct ft_ckpt_lock *l, struct ft_fio *f, const char *path, struct ft_ckpt_owner me,
                             struct ft_buf *taken_over, struct ft_err *err)
{
    struct holder h;
    struct stat by_fd, by_path;
    int fd = ft_fio_open(f, FT_FIO_LOCK, path, O_RDWR, 0);
    if (fd < 0) return ft_fail(err, FT_IO, "opening %s: %s", path, strerror(errno));
    const int held = hold(fd);
    read_holder(path, &h);
    enum ft_code rc = FT_OK;
    /* Nobody holds it and it says nothing: its writer was killed before the first word. */
    const bool stillborn = held == 1 && !h.v;
    if (held == 0 || (!stillborn && !gone(&h, me.run_id))) {
        rc = busy(path, &h, err);
    } else if (fstat(fd, &by_fd) < 0 || stat(path, &by_path) < 0 || by_fd.st_ino != by_path.st_ino) {
        rc = busy(path, &h, err); /* another run was faster */
    } else {
        rc = fill(f, fd, path, me, err);
        if (stillborn) ft_buf_adds(taken_over, "took over an empty LOCK");
        else
            ft_buf_addf(taken_over, "took over LOCK of run %s on %s (pid %lld), which has ended", h.run_id, h.host,
                        (long long)h.pid);
    }
    ft_json_destroy(h.v);
    if (rc) ft_close(&fd);
    else l->fd = fd;
    return rc;
}

enum ft_code ft_ckpt_lock_take(struct ft_ckpt_lock *l, struct ft_fio *f, const char *dir, struct ft_ckpt_owner me,
                               struct ft_buf *taken_over, struct ft_err *err)
{
    struct ft_buf path = {0};
    enum ft_code rc = FT_OK;
    path_of(&path, dir);
    int fd = ft_fio_open(f, FT_FIO_LOCK, ft_buf_str(&path), O_RDWR | O_CREAT | O_EXCL, 0666);
    if (fd >= 0) {
        if (hold(fd) == 0) { /* another run found it empty and was faster */
            struct holder h;
            read_holder(ft_buf_str(&path), &h);
            rc = busy(ft_buf_str(&path), &h, err);
            ft_json_destroy(h.v);
            ft_close(&fd);
        } else if ((rc = fill(f, fd, ft_buf_str(&path), me, err))) {
            ft_close(&fd);
            unlink(ft_buf_str(&path));
        }
        l->fd = fd;
    } else if (errno == EEXIST) {
        rc = take_old(l, f, ft_buf_str(&path), me, taken_over, err);
    } else {
        rc = ft_fail(err, FT_IO, "cannot write checkpoints into %s: %s", dir, strerror(errno));
    }
    ft_buf_fini(&path);
    l->touched = ft_clock_now(ft_clock_real());
    return rc;
}

void ft_ckpt_lock_touch(struct ft_ckpt_lock *l, int64_t now)
{
    if (l->fd < 0 || now - l->touched < TOUCH_S * FT_SEC) return;
    l->touched = now;
    if (futimens(l->fd, NULL) < 0) ft_log(FT_LOG_WARN, "lock", "touching LOCK: %s", strerror(errno));
}

void ft_ckpt_lock_drop(struct ft_ckpt_lock *l, const char *dir)
{
    struct ft_buf path = {0};
    struct stat by_fd, by_path;
    if (l->fd < 0) return;
    path_of(&path, dir);
    if (!fstat(l->fd, &by_fd) && !stat(ft_buf_str(&path), &by_path) && by_fd.st_ino == by_path.st_ino) unlink(ft_buf_str(&path));
    ft_buf_fini(&path);
    ft_close(&l->fd);
}
