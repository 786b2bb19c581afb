#include "launcher/ssh_stage.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "launcher/ssh_session.h"

/* draft-ietf-secsh-filexfer-02 */
enum {
    FXP_INIT = 1,
    FXP_VERSION = 2,
    FXP_OPEN = 3,
    FXP_CLOSE = 4,
    FXP_WRITE = 6,
    FXP_LSTAT = 7,
    FXP_FSTAT = 8,
    FXP_SETSTAT = 9,
    FXP_REMOVE = 13,
    FXP_MKDIR = 14,
    FXP_REALPATH = 16,
    FXP_RENAME = 18,
    FXP_STATUS = 101,
    FXP_HANDLE = 102,
    FXP_NAME = 104,
    FXP_ATTRS = 105,
    FXP_EXTENDED = 200
};
enum { FXF_WRITE = 2, FXF_CREAT = 8, FXF_EXCL = 32 };
enum { ATTR_SIZE = 1, ATTR_UIDGID = 2, ATTR_PERMISSIONS = 4 };
enum { CHUNK = 32000, MAX_REPLY = 256 * 1024, MAX_PENDING = 64 };

struct attrs {
    uint64_t size;
    uint32_t uid, mode;
    bool has_all;
};

struct sftp {
    struct ft_ssh *ssh;
    struct ft_ssh_channel *channel;
    const struct ft_ssh_limits *lim;
    struct ft_buf in, request;
    uint32_t id;
    enum ft_code broken; /* FT_OK: the connection is whole */
    char why[512];       /* last refusal, or what broke */
    /* the last answer: type and payload behind the id, pointing into in */
    uint8_t type;
    const char *p;
    size_t n;
};

bool ft_ssh_plain_word(const char *s)
{
    static const char ok[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+-";
    return *s && *s != '-' && !s[strspn(s, ok)];
}

static uint32_t get32(const char *p)
{
    const unsigned char *u = (const unsigned char *)p;
    return (uint32_t)u[0] << 24 | (uint32_t)u[1] << 16 | (uint32_t)u[2] << 8 | u[3];
}

static void add32(struct ft_buf *b, uint32_t x)
{
    const unsigned char v[4] = {(unsigned char)(x >> 24), (unsigned char)(x >> 16), (unsigned char)(x >> 8), (unsigned char)x};
    ft_buf_add(b, v, 4);
}

static void add_text(struct ft_buf *b, const void *p, size_t n)
{
    add32(b, (uint32_t)n);
    ft_buf_add(b, p, n);
}

/* ---- moving bytes within the deadline ---- */

static bool fail(struct sftp *x, enum ft_code code, const char *why)
{
    x->broken = code;
    snprintf(x->why, sizeof x->why, "%s", why);
    return false;
}

static bool pause_for(struct sftp *x)
{
    short revents;
    switch (ft_ssh_poll(ft_ssh_fd(x->ssh), ft_ssh_events(x->ssh), x->lim, INT64_MAX, &revents)) {
    case FT_FATE_UP: return true;
    case FT_FATE_CANCELLED: return fail(x, FT_INTERRUPTED, "interrupted");
    case FT_FATE_LATER:
    case FT_FATE_DROPPED:
    case FT_FATE_NO_ROUTE:
    case FT_FATE_FINAL:
    case FT_FATE_NO_ANSWER: break;
    }
    return fail(x, FT_TIMEOUT, "sftp does not answer");
}

static bool lost(struct sftp *x)
{
    char text[400];
    ft_ssh_why(x->ssh, text, sizeof text);
    return fail(x, FT_NET, *text ? text : "connection lost");
}

static bool send_all(struct sftp *x, const struct ft_buf *b)
{
    for (size_t done = 0; done < b->n;) {
        size_t k;
        const enum ft_ssh_rc rc = ft_ssh_channel_write(x->channel, b->data + done, b->n - done, &k);
        if (rc == FT_SSH_ERROR) return lost(x);
        done += k;
        if (rc == FT_SSH_OK) continue;
        char none[1];
        size_t got; /* lets libssh take window adjustments in; stderr of the subsystem is of no use */
        (void)ft_ssh_channel_read(x->channel, 2, none, sizeof none, &got);
        if (!pause_for(x)) return false;
    }
    return true;
}

/* Reads one whole packet into in; its first bytes are length, type, id. */
static bool next_packet(struct sftp *x, uint32_t *id)
{
    for (;;) {
        if (x->in.n >= 4) {
            const uint32_t n = get32(x->in.data);
            if (n < 5 || n > MAX_REPLY) return fail(x, FT_NET, "sftp gives an answer that cannot be read");
            if (x->in.n >= 4 + (size_t)n) {
                x->type = (uint8_t)x->in.data[4];
                *id = get32(x->in.data + 5);
                x->p = x->in.data + 9;
                x->n = n - 5;
                return true;
            }
        }
        char bytes[8192];
        size_t k;
        const enum ft_ssh_rc rc = ft_ssh_channel_read(x->channel, 1, bytes, sizeof bytes, &k);
        if (rc == FT_SSH_OK) ft_buf_add(&x->in, bytes, k);
        else if (rc == FT_SSH_END) return fail(x, FT_UNSUPPORTED, "the server gives no sftp");
        else if (rc != FT_SSH_AGAIN) return lost(x);
        else if (!pause_for(x)) return false;
    }
}

static void drop_packet(struct sftp *x)
{
    if (x->in.n >= 4) ft_buf_drop(&x->in, 4 + (size_t)get32(x->in.data));
}

static void begin(struct sftp *x, int type)
{
    ft_buf_clear(&x->request);
    add32(&x->request, 0);
    ft_buf_addc(&x->request, (char)type);
    add32(&x->request, ++x->id);
}

static bool finish(struct sftp *x)
{
    const uint32_t n = (uint32_t)x->request.n - 4;
    for (int i = 0; i < 4; i++) x->request.data[i] = (char)(n >> (24 - 8 * i));
    return send_all(x, &x->request);
}

/* Sends what was begun and waits for its answer, which is valid until the next request. */
static bool ask(struct sftp *x)
{
    uint32_t id;
    if (x->p) drop_packet(x);
    x->p = NULL;
    if (!finish(x) || !next_packet(x, &id)) return false;
    return id == x->id || fail(x, FT_NET, "sftp answers something else");
}

static bool was_ok(struct sftp *x)
{
    if (x->type != FXP_STATUS || x->n < 4) return false;
    const uint32_t code = get32(x->p);
    if (code == 0) return true;
    const uint32_t len = x->n >= 8 ? get32(x->p + 4) : 0;
    snprintf(x->why, sizeof x->why, "%.*s", len <= x->n - 8 && x->n >= 8 ? (int)(len < 200 ? len : 200) : 0,
             x->n >= 8 ? x->p + 8 : "");
    if (!*x->why) snprintf(x->why, sizeof x->why, "sftp status %u", code);
    return false;
}

/* ---- requests ---- */

static bool simple(struct sftp *x, int type, const char *path)
{
    begin(x, type);
    add_text(&x->request, path, strlen(path));
    return ask(x);
}

static bool real_path(struct sftp *x, const char *path, struct ft_buf *out)
{
    if (!simple(x, FXP_REALPATH, path) || x->type != FXP_NAME || x->n < 8) return false;
    const uint32_t n = get32(x->p + 4);
    if (n > x->n - 8) return false;
    ft_buf_clear(out);
    ft_buf_add(out, x->p + 8, n);
    return strlen(ft_buf_str(out)) == n;
}

static bool take_attrs(const struct sftp *x, struct attrs *a)
{
    size_t at = 4;
    if (x->type != FXP_ATTRS || x->n < 4) return false;
    const uint32_t flags = get32(x->p);
    *a = (struct attrs){0};
    if (flags & ATTR_SIZE) {
        if (x->n - at < 8) return false;
        a->size = (uint64_t)get32(x->p + at) << 32 | get32(x->p + at + 4);
        at += 8;
    }
    if (flags & ATTR_UIDGID) {
        if (x->n - at < 8) return false;
        a->uid = get32(x->p + at);
        at += 8;
    }
    if (flags & ATTR_PERMISSIONS) {
        if (x->n - at < 4) return false;
        a->mode = get32(x->p + at);
    }
    a->has_all = (flags & 7) == 7;
    return a->has_all;
}

static bool lstat_of(struct sftp *x, const char *path, struct attrs *a) { return simple(x, FXP_LSTAT, path) && take_attrs(x, a); }

static bool make_dir(struct sftp *x, const char *path)
{
    begin(x, FXP_MKDIR);
    add_text(&x->request, path, strlen(path));
    add32(&x->request, ATTR_PERMISSIONS);
    add32(&x->request, 0700);
    return ask(x) && was_ok(x);
}

/* A new file, 0700; handle gets sftp's name for it, a its attributes. */
static bool create_file(struct sftp *x, const char *path, struct ft_buf *handle, struct attrs *a)
{
    begin(x, FXP_OPEN);
    add_text(&x->request, path, strlen(path));
    add32(&x->request, FXF_WRITE | FXF_CREAT | FXF_EXCL);
    add32(&x->request, ATTR_PERMISSIONS);
    add32(&x->request, 0700);
    if (!ask(x)) return false;
    if (x->type != FXP_HANDLE || x->n < 4 || get32(x->p) > x->n - 4) {
        (void)was_ok(x);
        return false;
    }
    ft_buf_clear(handle);
    ft_buf_add(handle, x->p + 4, get32(x->p));
    begin(x, FXP_FSTAT);
    add_text(&x->request, handle->data, handle->n);
    return ask(x) && take_attrs(x, a);
}

static bool close_file(struct sftp *x, const struct ft_buf *handle)
{
    begin(x, FXP_CLOSE);
    add_text(&x->request, handle->data, handle->n);
    return ask(x) && was_ok(x);
}

/* Writes in pieces, some of them under way at a time. */
static bool write_file(struct sftp *x, const struct ft_buf *handle, const struct ft_ssh_file *file)
{
    if (x->p) drop_packet(x);
    x->p = NULL;
    bool good = true;
    int pending = 0;
    for (size_t at = 0; at < file->n || pending;) {
        if (at < file->n && pending < MAX_PENDING) {
            const size_t k = file->n - at < CHUNK ? file->n - at : CHUNK;
            begin(x, FXP_WRITE);
            add_text(&x->request, handle->data, handle->n);
            add32(&x->request, (uint32_t)((uint64_t)at >> 32));
            add32(&x->request, (uint32_t)at);
            add_text(&x->request, (const char *)file->bytes + at, k);
            if (!finish(x)) return false;
            at += k;
            pending++;
            continue;
        }
        uint32_t id;
        if (!next_packet(x, &id)) return false;
        good = was_ok(x) && good;
        drop_packet(x);
        x->p = NULL;
        pending--;
        if (!good) at = file->n; /* the rest is of no use */
    }
    return good;
}

static bool rename_over(struct sftp *x, const char *from, const char *to)
{
    static const char posix[] = "posix-rename@openssh.com";
    begin(x, FXP_EXTENDED);
    add_text(&x->request, posix, sizeof posix - 1);
    add_text(&x->request, from, strlen(from));
    add_text(&x->request, to, strlen(to));
    if (!ask(x)) return false;
    if (was_ok(x)) return true;
    for (int i = 0; i < 2; i++) {
        begin(x, FXP_RENAME);
        add_text(&x->request, from, strlen(from));
        add_text(&x->request, to, strlen(to));
        if (!ask(x)) return false;
        if (was_ok(x)) return true;
        if (!simple(x, FXP_REMOVE, to)) return false;
    }
    return false;
}

/* ---- folders ---- */

static void random_name(char out[24])
{
    unsigned char r[8];
    if (!ft_random(r, sizeof r)) FT_BUG("getrandom failed");
    for (int i = 0; i < 8; i++) snprintf(out + 2 * i, 3, "%02x", r[i]);
}

/* Who are we there? A file that we make in a folder for all tells. */
static bool learn_uid(struct sftp *x, const char *folder, uint32_t *uid)
{
    struct ft_buf path = {0}, handle = {0};
    struct attrs a;
    char r[24];
    random_name(r);
    ft_buf_addf(&path, "%s/.ftlaunch-%s", folder, r);
    bool ok = create_file(x, path.data, &handle, &a);
    if (ok) {
        *uid = a.uid;
        ok = close_file(x, &handle) && simple(x, FXP_REMOVE, path.data) && was_ok(x);
    }
    ft_buf_fini(&path);
    ft_buf_fini(&handle);
    return ok;
}

static bool name_folder(struct sftp *x, int k, struct ft_buf *out)
{
    uint32_t uid = 0;
    if (k == 0) {
        if (!real_path(x, ".", out)) return false;
        if (ft_str_eq(out->data, "/")) { /* no home */
            snprintf(x->why, sizeof x->why, "no home folder");
            return false;
        }
        ft_buf_adds(out, "/.cache");
        (void)make_dir(x, out->data);
        if (x->broken) return false;
        ft_buf_adds(out, "/ftlaunch");
        return true;
    }
    const char *base = k == 1 ? "/dev/shm" : "/tmp";
    if (!learn_uid(x, base, &uid)) return false;
    ft_buf_clear(out);
    ft_buf_addf(out, "%s/ftlaunch-%u", base, uid);
    return true;
}

static bool refuse(struct sftp *x, const char *why)
{
    if (!x->broken) snprintf(x->why, sizeof x->why, "%s", why);
    return false;
}

static bool put(struct sftp *x, const char *folder, const struct ft_ssh_file *file, bool rewrite, struct ft_buf *path,
                bool *written)
{
    struct attrs dir, a;
    (void)make_dir(x, folder);
    if (x->broken) return false;
    if (!lstat_of(x, folder, &dir)) return refuse(x, "cannot be made");
    if (!S_ISDIR(dir.mode)) return refuse(x, "is no folder");
    if (dir.mode & 077) return refuse(x, "is open to others (its mode should be 0700)");
    ft_buf_clear(path);
    ft_buf_addf(path, "%s/%s", folder, file->name);
    if (!ft_ssh_plain_word(path->data)) return refuse(x, "has a name that a shell would change");
    *written = false;
    if (!rewrite && lstat_of(x, path->data, &a) && S_ISREG(a.mode) && a.size == file->n && a.uid == dir.uid && (a.mode & 0100))
        return true;
    if (x->broken) return false;
    struct ft_buf part = {0}, handle = {0};
    char r[24];
    random_name(r);
    ft_buf_addf(&part, "%s/.part-%s", folder, r);
    bool ok = create_file(x, part.data, &handle, &a);
    if (ok) {
        const bool ours = a.uid == dir.uid;
        ok = ours && write_file(x, &handle, file);
        ok = close_file(x, &handle) && ok;
        if (!ours) (void)refuse(x, "belongs to someone else");
        ok = ok && rename_over(x, part.data, path->data);
        if (!ok && !x->broken) {
            char kept[sizeof x->why];
            memcpy(kept, x->why, sizeof kept);
            (void)simple(x, FXP_REMOVE, part.data);
            if (!x->broken) memcpy(x->why, kept, sizeof kept);
        }
        *written = ok;
    }
    ft_buf_fini(&part);
    ft_buf_fini(&handle);
    return ok;
}

/* ---- the subsystem ---- */

static bool open_sftp(struct sftp *x)
{
    enum ft_ssh_fate fate = FT_FATE_UP;
    enum ft_ssh_rc rc = ft_ssh_session_open(x->ssh, x->lim, &x->channel, &fate);
    if (rc == FT_SSH_AGAIN)
        return fate == FT_FATE_CANCELLED ? fail(x, FT_INTERRUPTED, "interrupted")
                                         : fail(x, FT_TIMEOUT, "the server opens no channel");
    if (rc == FT_SSH_OK)
        while ((rc = ft_ssh_channel_sftp(x->channel)) == FT_SSH_AGAIN)
            if (!pause_for(x)) return false;
    if (rc == FT_SSH_DENIED) return fail(x, FT_UNSUPPORTED, "the server gives no sftp");
    if (rc != FT_SSH_OK) return lost(x);
    struct ft_buf hello = {0};
    add32(&hello, 5);
    ft_buf_addc(&hello, FXP_INIT);
    add32(&hello, 3);
    uint32_t version;
    const bool ok = send_all(x, &hello) && next_packet(x, &version);
    ft_buf_fini(&hello);
    if (!ok && x->broken == FT_NET && ft_ssh_alive(x->ssh)) /* the subsystem's program ended at once */
        return fail(x, FT_UNSUPPORTED, "the server gives no sftp");
    if (!ok) return false;
    if (x->type != FXP_VERSION) return fail(x, FT_UNSUPPORTED, "the server gives no sftp");
    drop_packet(x);
    x->p = NULL;
    return true;
}

enum ft_code ft_ssh_stage(struct ft_ssh *s, const struct ft_ssh_limits *lim, const struct ft_ssh_file *file, int *k, bool rewrite,
                          struct ft_buf *out_path, bool *out_written, struct ft_err *err)
{
    struct sftp x = {.ssh = s, .lim = lim};
    struct ft_buf folder = {0}, all = {0};
    bool ok = open_sftp(&x);
    for (; ok && *k < FT_SSH_STAGE_FOLDERS; (*k)++, rewrite = false) {
        x.why[0] = 0;
        if (name_folder(&x, *k, &folder) && put(&x, folder.data, file, rewrite, out_path, out_written)) break;
        ft_buf_addf(&all, "%s%s: %s", all.n ? "; " : "", folder.n ? folder.data : "home", *x.why ? x.why : "not usable");
        ft_buf_clear(&folder);
        if (x.broken) ok = false;
    }
    enum ft_code c = FT_OK;
    if (!ok) c = ft_fail(err, x.broken, "%s", x.why);
    else if (*k >= FT_SSH_STAGE_FOLDERS) c = ft_fail(err, FT_IO, "no folder takes the agent (%s)", ft_buf_str(&all));
    ft_ssh_channel_destroy(x.channel);
    ft_buf_fini(&x.in);
    ft_buf_fini(&x.request);
    ft_buf_fini(&folder);
    ft_buf_fini(&all);
    return c;
}
