#include "launcher/ssh.h"

#include <libssh/libssh.h>

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "launcher/ssh_hosts.h"
#include "launcher/ssh_proxy.h"

static const char kex_list[] =
    "curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp256,ecdh-sha2-nistp384,ecdh-sha2-nistp521,"
    "diffie-hellman-group18-sha512,diffie-hellman-group16-sha512,diffie-hellman-group14-sha256";
static const char cipher_list[] =
    "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes256-ctr,aes192-ctr,aes128-ctr";
static const char host_key_list[] =
    "ssh-ed25519,ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521,rsa-sha2-512,rsa-sha2-256";

struct ft_ssh {
    ssh_session session;
    int agent_fd; /* libssh's, once it was set */
    struct ft_ssh_proxy proxy;
};
struct ft_ssh_channel {
    struct ft_ssh *ssh;
    ssh_channel channel;
};
struct ft_ssh_pair {
    ssh_key key;
};

static enum ft_ssh_rc from_rc(int rc)
{
    switch (rc) {
    case SSH_OK: return FT_SSH_OK;
    case SSH_AGAIN: return FT_SSH_AGAIN;
    case SSH_EOF: return FT_SSH_END;
    default: return FT_SSH_ERROR;
    }
}

static enum ft_ssh_rc from_auth(int rc)
{
    switch (rc) {
    case SSH_AUTH_SUCCESS: return FT_SSH_OK;
    case SSH_AUTH_AGAIN: return FT_SSH_AGAIN;
    case SSH_AUTH_DENIED: return FT_SSH_DENIED;
    case SSH_AUTH_PARTIAL: return FT_SSH_PARTIAL;
    default: return FT_SSH_ERROR;
    }
}

/* ---- session ---- */

/* Types that are known first, then the rest of ours; an RSA key signs in two newer ways. */
static void host_key_order(const char *known, struct ft_buf *out)
{
    for (const char *p = known; *p;) {
        const size_t n = strcspn(p, ",");
        const bool rsa = n == 7 && strncmp(p, "ssh-rsa", 7) == 0;
        for (const char *q = host_key_list; *q;) {
            const size_t k = strcspn(q, ",");
            if ((k == n && memcmp(p, q, n) == 0) || (rsa && strncmp(q, "rsa-sha2", 8) == 0))
                ft_buf_addf(out, "%s%.*s", out->n ? "," : "", (int)k, q);
            q += q[k] ? k + 1 : k;
        }
        p += p[n] ? n + 1 : n;
    }
    struct ft_buf first = {0};
    ft_buf_addf(&first, ",%s,", ft_buf_str(out));
    for (const char *q = host_key_list; *q;) {
        const size_t k = strcspn(q, ",");
        struct ft_buf one = {0};
        ft_buf_addf(&one, ",%.*s,", (int)k, q);
        if (!strstr(first.data, one.data)) ft_buf_addf(out, "%s%.*s", out->n ? "," : "", (int)k, q);
        ft_buf_fini(&one);
        q += q[k] ? k + 1 : k;
    }
    ft_buf_fini(&first);
}

static bool set_options(ssh_session x, const struct ft_ssh_spec *spec)
{
    const bool no = false;
    const int nothing = 0, yes = 1;
    struct ft_buf keys = {0};
    if (spec->host_key_algorithms) ft_buf_adds(&keys, spec->host_key_algorithms);
    else host_key_order(spec->known_types, &keys);
    const char *kex = spec->kex ? spec->kex : kex_list, *ciphers = spec->ciphers ? spec->ciphers : cipher_list;
    const bool ok = ssh_options_set(x, SSH_OPTIONS_PROCESS_CONFIG, &no) == 0 &&
                    ssh_options_set(x, SSH_OPTIONS_HOST, "node") ==
                        0 && /* it refuses '_' and zones, and needs it for messages only */
                    ssh_options_set(x, SSH_OPTIONS_USER, spec->user) == 0 &&
                    ssh_options_set(x, SSH_OPTIONS_FD, &spec->fd) == 0 &&
                    ssh_options_set(x, SSH_OPTIONS_KNOWNHOSTS, "/dev/null") == 0 &&
                    ssh_options_set(x, SSH_OPTIONS_GLOBAL_KNOWNHOSTS, "/dev/null") == 0 &&
                    ssh_options_set(x, SSH_OPTIONS_COMPRESSION, "no") == 0 &&
                    ssh_options_set(x, SSH_OPTIONS_GSSAPI_AUTH, &nothing) == 0 &&
                    ssh_options_set(x, SSH_OPTIONS_NODELAY, &yes) == 0 && ssh_options_set(x, SSH_OPTIONS_KEY_EXCHANGE, kex) == 0 &&
                    ssh_options_set(x, SSH_OPTIONS_CIPHERS_C_S, ciphers) == 0 &&
                    ssh_options_set(x, SSH_OPTIONS_CIPHERS_S_C, ciphers) == 0 &&
                    ssh_options_set(x, SSH_OPTIONS_HOSTKEYS, keys.data) == 0;
    ft_buf_fini(&keys);
    return ok;
}

enum ft_code ft_ssh_create(const struct ft_ssh_spec *spec, struct ft_ssh **out, struct ft_err *err)
{
    struct ft_ssh *s = ft_xcalloc(1, sizeof *s);
    s->agent_fd = -1;
    s->proxy = spec->proxy ? *spec->proxy : (struct ft_ssh_proxy){.said = -1};
    s->session = ssh_new();
    if (!s->session) ft_die_nomem(1);
    if (!set_options(s->session, spec)) {
        const char *why = ssh_get_error(s->session);
        const enum ft_code c = ft_fail(err, FT_CONFIG, "libssh: %s", *why ? why : "an option is refused");
        close(spec->fd); /* not yet libssh's */
        ssh_free(s->session);
        ft_ssh_proxy_end(&s->proxy);
        free(s);
        return c;
    }
    ssh_set_blocking(s->session, 0);
    *out = s;
    return FT_OK;
}

void ft_ssh_destroy(struct ft_ssh *s)
{
    if (!s) return;
    if (ssh_is_connected(s->session)) ssh_disconnect(s->session);
    ssh_free(s->session);
    ft_ssh_proxy_end(&s->proxy);
    free(s);
}

void ft_ssh_proxy_words_of(const struct ft_ssh *s, char *out, size_t cap) { ft_ssh_proxy_said(&s->proxy, out, cap); }

int ft_ssh_fd(const struct ft_ssh *s) { return ssh_get_fd(s->session); }

short ft_ssh_events(const struct ft_ssh *s)
{
    return (short)(POLLIN | (ssh_get_poll_flags(s->session) & SSH_WRITE_PENDING ? POLLOUT : 0));
}

bool ft_ssh_alive(const struct ft_ssh *s) { return ssh_is_connected(s->session) != 0; }

void ft_ssh_why(const struct ft_ssh *s, char *out, size_t cap)
{
    const char *text = ssh_get_error(s->session);
    size_t n = 0;
    for (; text[n] && n + 1 < cap; n++) out[n] = (unsigned char)text[n] < 0x20 || text[n] == 0x7F ? ' ' : text[n];
    while (n && out[n - 1] == ' ') n--;
    out[n] = 0;
}

/* libssh makes the socket blocking when it begins. A send of more than the kernel takes would then wait for the other side: for ever
 * where we pump that side ourselves (jump hosts), and with everything else where a node has fallen silent. It writes only after
 * POLLOUT, so that a socket that does not block is what it expects. */
enum ft_ssh_rc ft_ssh_connect(struct ft_ssh *s)
{
    const enum ft_ssh_rc rc = from_rc(ssh_connect(s->session));
    if (ssh_get_fd(s->session) >= 0 && ft_nonblock(ssh_get_fd(s->session), NULL) != FT_OK) return FT_SSH_ERROR;
    return rc;
}
bool ft_ssh_greeted(const struct ft_ssh *s) { return ssh_get_serverbanner(s->session) != NULL; }
bool ft_ssh_no_common(const struct ft_ssh *s) { return strstr(ssh_get_error(s->session), "no match for method") != NULL; }

enum ft_code ft_ssh_host_key(struct ft_ssh *s, struct ft_ssh_host_key *out, struct ft_err *err)
{
    ssh_key key = NULL;
    char *b64 = NULL, *print = NULL;
    unsigned char *hash = NULL;
    size_t hash_n = 0;
    enum ft_code c = FT_OK;
    if (ssh_get_server_publickey(s->session, &key) != SSH_OK || ssh_pki_export_pubkey_base64(key, &b64) != SSH_OK ||
        ssh_get_publickey_hash(key, SSH_PUBLICKEY_HASH_SHA256, &hash, &hash_n) != 0 ||
        !(print = ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, hash_n)))
        c = ft_fail(err, FT_NET, "the key of the server cannot be read");
    else {
        const char *type = ssh_key_type(key) == SSH_KEYTYPE_ECDSA ? ssh_pki_key_ecdsa_name(key)
                                                                  : ssh_key_type_to_char(ssh_key_type(key));
        if ((size_t)snprintf(out->key64, sizeof out->key64, "%s", b64) >= sizeof out->key64)
            c = ft_fail(err, FT_NET, "the key of the server is too long");
        /* ecdsa types of libssh carry the curve in the key, not in the type */
        snprintf(out->type, sizeof out->type, "%s", type ? type : "unknown");
        snprintf(out->fingerprint, sizeof out->fingerprint, "%s", print);
    }
    ssh_key_free(key);
    ssh_string_free_char(b64);
    ssh_string_free_char(print);
    ssh_clean_pubkey_hash(&hash);
    return c;
}

/* ---- authentication ---- */

enum ft_ssh_rc ft_ssh_auth_none(struct ft_ssh *s) { return from_auth(ssh_userauth_none(s->session, NULL)); }
bool ft_ssh_offers_keys(struct ft_ssh *s) { return (ssh_userauth_list(s->session, NULL) & SSH_AUTH_METHOD_PUBLICKEY) != 0; }

void ft_ssh_methods(struct ft_ssh *s, char *out, size_t cap)
{
    static const struct {
        int bit;
        const char *name;
    } names[] = {{SSH_AUTH_METHOD_PUBLICKEY, "publickey"},
                 {SSH_AUTH_METHOD_PASSWORD, "password"},
                 {SSH_AUTH_METHOD_INTERACTIVE, "keyboard-interactive"},
                 {SSH_AUTH_METHOD_HOSTBASED, "hostbased"},
                 {SSH_AUTH_METHOD_GSSAPI_MIC, "gssapi-with-mic"}};
    const int list = ssh_userauth_list(s->session, NULL);
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (list & names[i].bit && n < cap) n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? ", " : "", names[i].name);
    if (!n) snprintf(out, cap, "nothing");
}

enum ft_ssh_rc ft_ssh_auth_key(struct ft_ssh *s, const struct ft_ssh_pair *pair)
{
    return from_auth(ssh_userauth_publickey(s->session, NULL, pair->key));
}

enum ft_ssh_rc ft_ssh_auth_agent(struct ft_ssh *s, int agent_fd)
{
    if (agent_fd >= 0) {
        ft_close(&s->agent_fd); /* libssh forgets it, it does not close it */
        s->agent_fd = agent_fd;
        if (ssh_set_agent_socket(s->session, agent_fd) != SSH_OK) return FT_SSH_ERROR;
    }
    return from_auth(ssh_userauth_agent(s->session, NULL));
}

/* ---- keys ---- */

static int never_ask(const char *prompt, char *buf, size_t len, int echo, int verify, void *asked)
{
    (void)prompt, (void)buf, (void)len, (void)echo, (void)verify;
    *(bool *)asked = true;
    return -1;
}

/* A blob is a text (its type), then the fields of the public key; in a certificate a nonce stands between them. */
static bool cert_fits(ssh_key cert, ssh_key key)
{
    char *b64[2] = {NULL, NULL};
    unsigned char blob[2][8192];
    size_t at[2] = {0, 0}, n[2] = {0, 0};
    bool ok = ssh_pki_export_pubkey_base64(cert, &b64[0]) == SSH_OK && ssh_pki_export_pubkey_base64(key, &b64[1]) == SSH_OK;
    for (int i = 0; i < 2 && ok; i++) {
        const int got = ft_ssh_unbase64(b64[i], strlen(b64[i]), blob[i], sizeof blob[i]);
        n[i] = got > 0 ? (size_t)got : 0;
        for (int skip = i == 0 ? 2 : 1; skip && ok; skip--) {
            const unsigned char *p = blob[i] + at[i];
            const size_t len = n[i] - at[i] < 4 ? n[i] : (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
            ok = n[i] - at[i] >= 4 && len <= n[i] - at[i] - 4;
            if (ok) at[i] += 4 + len;
        }
    }
    const size_t fields = n[1] - at[1];
    ok = ok && fields > 0 && n[0] - at[0] >= fields && memcmp(blob[0] + at[0], blob[1] + at[1], fields) == 0;
    ssh_string_free_char(b64[0]);
    ssh_string_free_char(b64[1]);
    return ok;
}

enum ft_ssh_pair_state ft_ssh_pair_load(const char *path, const char *cert_path, struct ft_ssh_pair **out_pair)
{
    bool asked = false;
    ssh_key key = NULL, cert = NULL;
    struct stat st;
    if (stat(path, &st)) return FT_PAIR_MISSING;
    const int rc = ssh_pki_import_privkey_file(path, NULL, never_ask, &asked, &key);
    if (rc != SSH_OK) return asked ? FT_PAIR_PASSPHRASE : FT_PAIR_UNREADABLE;
    if (cert_path) {
        const bool ok = ssh_pki_import_cert_file(cert_path, &cert) == SSH_OK && cert_fits(cert, key) &&
                        ssh_pki_copy_cert_to_privkey(cert, key) == SSH_OK;
        ssh_key_free(cert);
        if (!ok) {
            ssh_key_free(key);
            return FT_PAIR_UNREADABLE;
        }
    }
    struct ft_ssh_pair *p = ft_xcalloc(1, sizeof *p);
    p->key = key;
    *out_pair = p;
    return FT_PAIR_OK;
}

void ft_ssh_pair_destroy(struct ft_ssh_pair *p)
{
    if (!p) return;
    ssh_key_free(p->key);
    free(p);
}

char *ft_ssh_public64(const char *path, struct ft_arena *arena)
{
    ssh_key key = NULL;
    char *b64 = NULL, *out = NULL;
    struct ft_buf pub = {0};
    ft_buf_addf(&pub, "%s.pub", path);
    if (ssh_pki_import_pubkey_file(pub.data, &key) == SSH_OK || ssh_pki_import_pubkey_file(path, &key) == SSH_OK)
        if (ssh_pki_export_pubkey_base64(key, &b64) == SSH_OK) out = ft_arena_strdup(arena, b64);
    ft_buf_fini(&pub);
    ssh_key_free(key);
    ssh_string_free_char(b64);
    return out;
}

/* ---- channels ---- */

struct ft_ssh_channel *ft_ssh_channel_create(struct ft_ssh *s)
{
    struct ft_ssh_channel *c = ft_xcalloc(1, sizeof *c);
    c->ssh = s;
    c->channel = ssh_channel_new(s->session);
    if (!c->channel) ft_die_nomem(1);
    return c;
}

void ft_ssh_channel_destroy(struct ft_ssh_channel *c)
{
    if (!c) return;
    ssh_channel_free(c->channel);
    free(c);
}

/* A channel that was refused leaves the session whole; any other error is its end. */
static enum ft_ssh_rc open_rc(const struct ft_ssh_channel *c, int rc)
{
    if (rc == SSH_ERROR && ssh_get_error_code(c->ssh->session) == SSH_REQUEST_DENIED) return FT_SSH_DENIED;
    return from_rc(rc);
}

enum ft_ssh_rc ft_ssh_channel_open(struct ft_ssh_channel *c) { return open_rc(c, ssh_channel_open_session(c->channel)); }

enum ft_ssh_rc ft_ssh_channel_connect(struct ft_ssh_channel *c, const char *host, int port)
{
    return open_rc(c, ssh_channel_open_forward(c->channel, host, port, "127.0.0.1", 0));
}

enum ft_ssh_rc ft_ssh_channel_exec(struct ft_ssh_channel *c, const char *command)
{
    return open_rc(c, ssh_channel_request_exec(c->channel, command));
}

enum ft_ssh_rc ft_ssh_channel_sftp(struct ft_ssh_channel *c)
{
    return open_rc(c, ssh_channel_request_subsystem(c->channel, "sftp"));
}

enum ft_ssh_rc ft_ssh_channel_read(struct ft_ssh_channel *c, int stream, void *p, size_t cap, size_t *out_n)
{
    const int n = ssh_channel_read_nonblocking(c->channel, p, (unsigned)cap, stream == 2);
    *out_n = n > 0 ? (size_t)n : 0;
    if (n > 0) return FT_SSH_OK;
    if (n == SSH_EOF) return FT_SSH_END;
    if (n < 0 && n != SSH_AGAIN)
        return ssh_channel_is_closed(c->channel) && ssh_is_connected(c->ssh->session) ? FT_SSH_END : FT_SSH_ERROR;
    return ssh_channel_is_closed(c->channel) ? FT_SSH_END : FT_SSH_AGAIN;
}

enum ft_ssh_rc ft_ssh_channel_write(struct ft_ssh_channel *c, const void *p, size_t n, size_t *out_n)
{
    *out_n = 0;
    const size_t window = ssh_channel_window_size(c->channel);
    if (n > window) n = window;
    if (!n) return FT_SSH_AGAIN;
    const int rc = ssh_channel_write(c->channel, p, (unsigned)n);
    if (rc == SSH_ERROR) return FT_SSH_ERROR;
    if (rc > 0) *out_n = (size_t)rc;
    return rc > 0 ? FT_SSH_OK : FT_SSH_AGAIN;
}

void ft_ssh_channel_end(struct ft_ssh_channel *c) { ssh_channel_send_eof(c->channel); }
int ft_ssh_channel_status(struct ft_ssh_channel *c) { return ssh_channel_get_exit_status(c->channel); }
