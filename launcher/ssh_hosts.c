#include "launcher/ssh_hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/fd.h"
#include "launcher/ssh_match.h"

enum { MAX_BYTES = 64 << 20, SHA1 = 20 };
#define BLANKS " \t\r"

enum marker { PLAIN, REVOKED, AUTHORITY };

struct line {
    enum marker marker;
    struct ft_source at;
    const char *names; /* list of patterns; NULL: hashed */
    unsigned char salt[SHA1], hash[SHA1];
    const char *type, *key64;
};

struct ft_ssh_hosts {
    struct ft_arena *arena;
    pthread_mutex_t lock;
    struct line *v;
    size_t n, cap;
    const char **files;
    size_t n_files, files_cap;
};

/* ---- SHA-1 ---- */

static uint32_t rol(uint32_t x, int n) { return x << n | x >> (32 - n); }

static void sha1_block(uint32_t h[5], const unsigned char *p)
{
    uint32_t w[80];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | (uint32_t)p[4 * i + 3];
    for (int i = 16; i < 80; i++) w[i] = rol(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int i = 0; i < 80; i++) {
        const uint32_t f = i < 20 ? (b & c) | (~b & d) : i < 40 ? b ^ c ^ d : i < 60 ? (b & c) | (b & d) | (c & d) : b ^ c ^ d;
        const uint32_t k = i < 20 ? 0x5A827999u : i < 40 ? 0x6ED9EBA1u : i < 60 ? 0x8F1BBCDCu : 0xCA62C1D6u;
        const uint32_t t = rol(a, 5) + f + e + k + w[i];
        e = d;
        d = c;
        c = rol(b, 30);
        b = a;
        a = t;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
}

/* Digest of two pieces one after the other. */
static void sha1(const void *p1, size_t n1, const void *p2, size_t n2, unsigned char out[SHA1])
{
    uint32_t h[5] = {0x67452301u, 0xEFCDAB89u, 0x98BADCFEu, 0x10325476u, 0xC3D2E1F0u};
    unsigned char block[64];
    size_t fill = 0;
    const uint64_t bits = 8 * (uint64_t)(n1 + n2);
    for (size_t i = 0; i < n1 + n2; i++) {
        block[fill++] = i < n1 ? ((const unsigned char *)p1)[i] : ((const unsigned char *)p2)[i - n1];
        if (fill == 64) {
            sha1_block(h, block);
            fill = 0;
        }
    }
    block[fill++] = 0x80;
    if (fill > 56) {
        memset(block + fill, 0, 64 - fill);
        sha1_block(h, block);
        fill = 0;
    }
    memset(block + fill, 0, 56 - fill);
    for (int i = 0; i < 8; i++) block[56 + i] = (unsigned char)(bits >> (56 - 8 * i));
    sha1_block(h, block);
    for (int i = 0; i < SHA1; i++) out[i] = (unsigned char)(h[i / 4] >> (24 - 8 * (i % 4)));
}

void ft_ssh_hmac_sha1(const void *key, size_t key_bytes, const void *p, size_t n, unsigned char out[20])
{
    unsigned char pad[64] = {0}, inner[SHA1];
    if (key_bytes > sizeof pad) sha1(key, key_bytes, NULL, 0, pad);
    else if (key_bytes) memcpy(pad, key, key_bytes);
    for (size_t i = 0; i < sizeof pad; i++) pad[i] ^= 0x36;
    sha1(pad, sizeof pad, p, n, inner);
    for (size_t i = 0; i < sizeof pad; i++) pad[i] ^= 0x36 ^ 0x5C;
    sha1(pad, sizeof pad, inner, SHA1, out);
}

int ft_ssh_unbase64(const char *s, size_t n, unsigned char *out, size_t cap)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (n % 4) return -1;
    size_t got = 0;
    for (size_t i = 0; i < n; i += 4) {
        const size_t pads = i + 4 == n ? (s[i + 3] == '=') + (s[i + 3] == '=' && s[i + 2] == '=') : 0;
        uint32_t x = 0;
        for (size_t k = 0; k < 4; k++) {
            const char *d = k >= 4 - pads ? digits : s[i + k] ? strchr(digits, s[i + k]) : NULL;
            if (!d) return -1;
            x = x << 6 | (uint32_t)(d - digits);
        }
        for (size_t k = 0; k < 3 - pads; k++) {
            if (got == cap) return -1;
            out[got++] = (unsigned char)(x >> (16 - 8 * k));
        }
    }
    return (int)got;
}

/* ---- reading ---- */

struct ft_ssh_hosts *ft_ssh_hosts_create(void)
{
    struct ft_ssh_hosts *h = ft_xcalloc(1, sizeof *h);
    h->arena = ft_arena_create();
    pthread_mutex_init(&h->lock, NULL);
    return h;
}

void ft_ssh_hosts_destroy(struct ft_ssh_hosts *h)
{
    if (!h) return;
    pthread_mutex_destroy(&h->lock);
    ft_arena_destroy(h->arena);
    free(h->v);
    free(h->files);
    free(h);
}

static const char *word(struct ft_ssh_hosts *h, const char **p, const char *end)
{
    while (*p < end && strchr(BLANKS, **p) && **p) (*p)++;
    const char *from = *p;
    while (*p < end && **p && !strchr(BLANKS, **p)) (*p)++;
    return *p > from ? ft_arena_strndup(h->arena, from, (size_t)(*p - from)) : NULL;
}

static bool read_hashed(const char *names, struct line *l)
{
    const char *salt = names + 3, *bar = strchr(salt, '|');
    return strncmp(names, "|1|", 3) == 0 && bar && ft_ssh_unbase64(salt, (size_t)(bar - salt), l->salt, SHA1) == SHA1 &&
           ft_ssh_unbase64(bar + 1, strlen(bar + 1), l->hash, SHA1) == SHA1;
}

static void read_line(struct ft_ssh_hosts *h, struct ft_source at, const char *p, const char *end)
{
    struct line l = {.at = at};
    const char *names = word(h, &p, end);
    if (!names || *names == '#') return;
    if (*names == '@') {
        if (strcmp(names, "@revoked") == 0) l.marker = REVOKED;
        else if (strcmp(names, "@cert-authority") == 0) l.marker = AUTHORITY;
        else return;
        names = word(h, &p, end);
    }
    l.type = word(h, &p, end);
    l.key64 = word(h, &p, end);
    if (!names || !l.type || !l.key64) return;
    if (*names != '|') l.names = names;
    else if (!read_hashed(names, &l)) return;
    ft_grow(&h->v, &h->cap, h->n + 1, sizeof *h->v);
    h->v[h->n++] = l;
}

static void read_text(struct ft_ssh_hosts *h, const char *file, const char *text, size_t n)
{
    struct ft_source at = {.file = file};
    for (const char *p = text, *end = text + n; p < end;) {
        const char *nl = memchr(p, '\n', (size_t)(end - p)), *stop = nl ? nl : end;
        at.line++;
        read_line(h, at, p, stop);
        p = nl ? nl + 1 : end;
    }
}

static const char *keep_file(struct ft_ssh_hosts *h, const char *path)
{
    for (size_t i = 0; i < h->n_files; i++)
        if (strcmp(h->files[i], path) == 0) return NULL;
    ft_grow(&h->files, &h->files_cap, h->n_files + 1, sizeof *h->files);
    return h->files[h->n_files++] = ft_arena_strdup(h->arena, path);
}

void ft_ssh_hosts_read_text(struct ft_ssh_hosts *h, const char *name, const char *text, size_t n)
{
    const char *file = keep_file(h, name);
    if (file) read_text(h, file, text, n);
}

enum ft_code ft_ssh_hosts_read(struct ft_ssh_hosts *h, const char *path, struct ft_err *err)
{
    const char *file = keep_file(h, path);
    if (!file || access(path, F_OK)) return FT_OK;
    struct ft_buf b = {0};
    const enum ft_code c = ft_read_file(path, MAX_BYTES, &b, err);
    if (c == FT_OK) read_text(h, file, ft_buf_str(&b), b.n);
    else ft_wrap(err, "reading the known host keys");
    ft_buf_fini(&b);
    return c;
}

/* ---- asking ---- */

struct name {
    struct ft_buf exact, bare; /* bare: without the port; empty when the same */
};

static struct name make_name(const struct ft_ssh_who *who)
{
    struct name n = {0};
    if (who->port && who->port != 22) {
        ft_buf_addf(&n.exact, "[%s]:%d", who->name, who->port);
        ft_buf_adds(&n.bare, who->name);
    } else ft_buf_adds(&n.exact, who->name);
    for (size_t i = 0; i < n.exact.n; i++)
        if (n.exact.data[i] >= 'A' && n.exact.data[i] <= 'Z') n.exact.data[i] = (char)(n.exact.data[i] + 32);
    for (size_t i = 0; i < n.bare.n; i++)
        if (n.bare.data[i] >= 'A' && n.bare.data[i] <= 'Z') n.bare.data[i] = (char)(n.bare.data[i] + 32);
    return n;
}

static void free_name(struct name *n)
{
    ft_buf_fini(&n->exact);
    ft_buf_fini(&n->bare);
}

static bool fits(const struct line *l, const struct ft_buf *name)
{
    if (!name->n) return false;
    if (l->names) return ft_ssh_match_list(name->data, l->names, true) == FT_MATCH_YES;
    unsigned char mac[SHA1];
    ft_ssh_hmac_sha1(l->salt, SHA1, name->data, name->n, mac);
    return memcmp(mac, l->hash, SHA1) == 0;
}

static bool counts(const struct line *l, const struct ft_ssh_who *who)
{
    for (size_t i = 0; i < who->n_files; i++)
        if (strcmp(who->files[i], l->at.file) == 0) return true;
    return !who->n_files;
}

enum ft_ssh_known ft_ssh_hosts_judge(struct ft_ssh_hosts *h, const struct ft_ssh_who *who, const char *type, const char *key64,
                                     struct ft_source *out_at)
{
    struct name name = make_name(who);
    const struct line *same = NULL, *other = NULL, *other_type = NULL, *revoked = NULL, *ca = NULL;
    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; i < h->n; i++) {
        const struct line *l = &h->v[i];
        if (!counts(l, who)) continue;
        const bool exact = fits(l, &name.exact), bare = !exact && fits(l, &name.bare);
        if (!exact && !bare) continue;
        const bool equal = strcmp(l->type, type) == 0 && strcmp(l->key64, key64) == 0;
        if (l->marker == REVOKED) {
            if (equal && !revoked) revoked = l;
        } else if (l->marker == AUTHORITY) {
            if (exact && !ca) ca = l;
        } else if (equal) {
            if (!same) same = l;
        } else if (exact && strcmp(l->type, type) == 0) {
            if (!other) other = l;
        } else if (exact && !other_type) other_type = l;
    }
    /* A server that has given up every key type we know of it has changed as well. */
    if (!other) other = other_type;
    const struct line *at = revoked ? revoked : same ? same : other ? other : ca;
    *out_at = at ? at->at : (struct ft_source){0};
    pthread_mutex_unlock(&h->lock);
    free_name(&name);
    return revoked ? FT_KNOWN_REVOKED : same ? FT_KNOWN_YES : other ? FT_KNOWN_CHANGED : ca ? FT_KNOWN_BY_CA : FT_KNOWN_NO;
}

static bool has_word(const struct ft_buf *list, const char *type)
{
    const size_t n = strlen(type);
    for (const char *p = ft_buf_str(list); *p;) {
        const char *end = strchrnul(p, ',');
        if ((size_t)(end - p) == n && memcmp(p, type, n) == 0) return true;
        p = *end ? end + 1 : end;
    }
    return false;
}

void ft_ssh_hosts_types(struct ft_ssh_hosts *h, const struct ft_ssh_who *who, struct ft_buf *out)
{
    struct name name = make_name(who);
    ft_buf_clear(out);
    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; i < h->n; i++) {
        const struct line *l = &h->v[i];
        if (l->marker != PLAIN || !counts(l, who) || has_word(out, l->type)) continue;
        if (fits(l, &name.exact) || fits(l, &name.bare)) ft_buf_addf(out, "%s%s", out->n ? "," : "", l->type);
    }
    pthread_mutex_unlock(&h->lock);
    free_name(&name);
}

/* ---- appending ---- */

static enum ft_code append_file(const char *path, const struct ft_buf *line, struct ft_err *err)
{
    const char *slash = strrchr(path, '/');
    if (slash && slash > path) {
        struct ft_buf dir = {0};
        ft_buf_add(&dir, path, (size_t)(slash - path));
        const enum ft_code c = ft_mkdirs(dir.data, 0700, err);
        ft_buf_fini(&dir);
        if (c != FT_OK) return c;
    }
    int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX)) {
        const enum ft_code c = ft_fail(err, FT_IO, "cannot write '%s': %s", path, strerror(errno));
        ft_close(&fd);
        return c;
    }
    struct ft_buf old = {0};
    enum ft_code c = ft_read_file(path, MAX_BYTES, &old, err);
    if (c == FT_OK) {
        const bool open_line = old.n && old.data[old.n - 1] != '\n';
        const char *found = strstr(ft_buf_str(&old), line->data);
        if (!found || (found > old.data && found[-1] != '\n')) {
            if (open_line) c = ft_write_all(fd, "\n", 1, err);
            if (c == FT_OK) c = ft_write_all(fd, line->data, line->n, err);
        }
    }
    ft_buf_fini(&old);
    ft_close(&fd);
    return c;
}

enum ft_code ft_ssh_hosts_append(struct ft_ssh_hosts *h, const char *path, const struct ft_ssh_who *who, const char *type,
                                 const char *key64, struct ft_err *err)
{
    struct name name = make_name(who);
    struct ft_buf line = {0};
    ft_buf_addf(&line, "%s %s %s\n", ft_buf_str(&name.exact), type, key64);
    pthread_mutex_lock(&h->lock);
    const enum ft_code c = append_file(path, &line, err);
    if (c == FT_OK) {
        const char *file = keep_file(h, path);
        for (size_t i = 0; i < h->n_files && !file; i++)
            if (strcmp(h->files[i], path) == 0) file = h->files[i];
        read_line(h, (struct ft_source){.file = file}, line.data, line.data + line.n - 1);
    }
    pthread_mutex_unlock(&h->lock);
    ft_buf_fini(&line);
    free_name(&name);
    return c == FT_OK ? FT_OK : ft_wrap(err, "keeping the key of '%s'", who->name);
}
