/* The host keys that are known: files of known_hosts read once into a table, asked by name.
 *
 *   1. ft_ssh_hosts_create; ft_ssh_hosts_read each file (a missing one is empty); before any thread
 *   2. ft_ssh_hosts_types: which key types are known for a host, to be asked for first
 *   3. ft_ssh_hosts_judge: what the table says about the key that a server showed
 *   4. ft_ssh_hosts_append: a new line, once, under a lock of the file and of the table
 *
 * Lines: [@revoked|@cert-authority] NAMES TYPE BASE64. NAMES: a list of patterns ("[name]:port" for ports other than 22) or
 * one hashed name "|1|SALT|HASH" (HMAC-SHA1, looked up only). Lines that cannot be read are skipped, as ssh does.
 * 2 to 4 may be called by several threads. */
#ifndef FT_LAUNCHER_SSH_HOSTS_H
#define FT_LAUNCHER_SSH_HOSTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/fault.h"
#include "base/str.h"

struct ft_ssh_hosts;

struct ft_ssh_hosts *ft_ssh_hosts_create(void);
void ft_ssh_hosts_destroy(struct ft_ssh_hosts *h);
/* A file that is not there is empty; a file read before is not read again. */
enum ft_code ft_ssh_hosts_read(struct ft_ssh_hosts *h, const char *path, struct ft_err *err) FT_MUST_CHECK;
void ft_ssh_hosts_read_text(struct ft_ssh_hosts *h, const char *name, const char *text, size_t n);

/* Whose key: HostKeyAlias as it is (port 0), else the host name with its port. files: the paths that count for this host;
 * n_files 0: all that were read. */
struct ft_ssh_who {
    const char *name;
    int port;
    const char *const *files;
    size_t n_files;
};

enum ft_ssh_known {
    FT_KNOWN_YES,
    FT_KNOWN_NO,      /* no line for it */
    FT_KNOWN_CHANGED, /* another key is known (at) */
    FT_KNOWN_REVOKED, /* at */
    FT_KNOWN_BY_CA    /* only a @cert-authority line fits (at): host certificates are not built */
};
/* type: "ssh-ed25519"; key64: the key's bytes in base64. *out_at: the line that decided; its texts live as long as h. */
enum ft_ssh_known ft_ssh_hosts_judge(struct ft_ssh_hosts *h, const struct ft_ssh_who *who, const char *type, const char *key64,
                                     struct ft_source *out_at);
/* Known key types of the host, each once, as "ssh-ed25519,ssh-rsa"; empty: none. */
void ft_ssh_hosts_types(struct ft_ssh_hosts *h, const struct ft_ssh_who *who, struct ft_buf *out);
/* Appends "NAME TYPE KEY" to the file (made with its folder, 0600 and 0700, when it is not there) and to the table. A line
 * that is there already is not written again. */
enum ft_code ft_ssh_hosts_append(struct ft_ssh_hosts *h, const char *path, const struct ft_ssh_who *who, const char *type,
                                 const char *key64, struct ft_err *err) FT_MUST_CHECK;

/* HMAC-SHA1 (RFC 2104, FIPS 180-4), for hashed names only. */
void ft_ssh_hmac_sha1(const void *key, size_t key_bytes, const void *p, size_t n, unsigned char out[20]);
/* Base64 with padding; returns the number of bytes or -1. */
int ft_ssh_unbase64(const char *s, size_t n, unsigned char *out, size_t cap);

#endif
