#include "runtime/coll/proof.h"

#include <errno.h>
#include <string.h>

#include "base/fd.h"
#include "base/hash.h"
#include "runtime/coll/net.h"

/* 0..11 magic (CR/LF translation shows at once), 12 version, 13 flags (1: has a token), 14..15 zero, 16..31 nonce, 32..63 proof */
enum { AT_VERSION = 12, AT_FLAGS = 13, AT_NONCE = 16, NONCE = 16, AT_PROOF = 32, VERSION = 1, HAS_TOKEN = 1 };
static const unsigned char magic[12] = {0x00, 0xFF, 'f', 't', 'c', 'o', 'l', 'l', 0x0D, 0x0A, 0x1A, 0x0A};

static bool has(const char *token) { return token && *token; }

static void prove(const struct ft_proof *p, const char *role, unsigned char out[32])
{
    unsigned char text[16 + NONCE + NONCE] = {0};
    memcpy(text, role, strlen(role));
    memcpy(text + 16, p->hello + AT_NONCE, NONCE);
    memcpy(text + 16 + NONCE, p->answer + AT_NONCE, NONCE);
    ft_hmac_sha256(p->token, strlen(p->token), text, sizeof text, out);
}

static bool head(unsigned char *out, const char *token)
{
    memset(out, 0, FT_PROOF_HELLO);
    memcpy(out, magic, sizeof magic);
    out[AT_VERSION] = VERSION;
    out[AT_FLAGS] = has(token) ? HAS_TOKEN : 0;
    return ft_random(out + AT_NONCE, NONCE);
}

static enum ft_proof_result check_head(const unsigned char *in, const char *token)
{
    if (memcmp(in, magic, sizeof magic) != 0) return FT_PROOF_STRANGE;
    if (in[AT_VERSION] != VERSION) return FT_PROOF_VERSION;
    const bool theirs = in[AT_FLAGS] & HAS_TOKEN;
    if (theirs && !has(token)) return FT_PROOF_NO_MINE;
    if (!theirs && has(token)) return FT_PROOF_NO_THEIRS;
    return FT_PROOF_OK;
}

enum ft_code ft_proof_hello(struct ft_proof *p, const char *token, struct ft_err *err)
{
    memset(p, 0, sizeof *p);
    p->token = token;
    if (!head(p->hello, token)) return ft_fail(err, FT_IO, "getrandom: %s", strerror(errno));
    return FT_OK;
}

enum ft_proof_result ft_proof_answer(struct ft_proof *p, const char *token)
{
    p->token = token;
    memset(p->answer, 0, sizeof p->answer);
    if (!head(p->answer, token)) return FT_PROOF_WRONG;
    const enum ft_proof_result r = check_head(p->hello, token);
    if (r == FT_PROOF_OK && has(token)) prove(p, "ftcoll server", p->answer + AT_PROOF);
    return r;
}

enum ft_proof_result ft_proof_check_answer(const struct ft_proof *p, unsigned char last[FT_PROOF_LAST])
{
    memset(last, 0, FT_PROOF_LAST);
    const enum ft_proof_result r = check_head(p->answer, p->token);
    if (r != FT_PROOF_OK || !has(p->token)) return r;
    unsigned char want[32];
    prove(p, "ftcoll server", want);
    if (!ft_secret_equal(want, p->answer + AT_PROOF, 32)) return FT_PROOF_WRONG;
    prove(p, "ftcoll client", last);
    return FT_PROOF_OK;
}

enum ft_proof_result ft_proof_check_last(const struct ft_proof *p, const unsigned char last[FT_PROOF_LAST])
{
    if (!has(p->token)) return FT_PROOF_OK;
    unsigned char want[32];
    prove(p, "ftcoll client", want);
    return ft_secret_equal(want, last, 32) ? FT_PROOF_OK : FT_PROOF_WRONG;
}

enum ft_code ft_proof_fail(enum ft_proof_result r, const char *who, struct ft_err *err)
{
    switch (r) {
    case FT_PROOF_OK: return FT_OK;
    case FT_PROOF_STRANGE:
        ft_fail(err, FT_NET, "what answers as %s is not an fttrain of this run", who);
        return ft_fix(err, "give another MASTER_PORT ([cluster] master_port), or end the program that listens there");
    case FT_PROOF_VERSION:
        return ft_fail(err, FT_CONFIG, "%s speaks another version of the protocol: run one build on all nodes", who);
    case FT_PROOF_NO_MINE:
        ft_fail(err, FT_AUTH, "%s has FT_TOKEN, this rank has none", who);
        return ft_fix(err, "start all ranks the same way: all with the run's FT_TOKEN or all without");
    case FT_PROOF_NO_THEIRS:
        ft_fail(err, FT_AUTH, "this rank has FT_TOKEN, %s has none", who);
        return ft_fix(err, "start all ranks the same way: all with the run's FT_TOKEN or all without");
    case FT_PROOF_WRONG: break;
    }
    return ft_fail(err, FT_AUTH, "%s has another FT_TOKEN than this rank: it belongs to another run", who);
}

enum ft_code ft_proof_client(int fd, const char *token, const char *who, int64_t deadline, struct ft_err *err)
{
    struct ft_proof p;
    unsigned char last[FT_PROOF_LAST];
    if (ft_proof_hello(&p, token, err) || ft_net_send_all(fd, p.hello, sizeof p.hello, deadline, err) ||
        ft_net_recv_all(fd, p.answer, sizeof p.answer, deadline, err))
        return ft_wrap(err, "greeting %s", who);
    const enum ft_proof_result r = ft_proof_check_answer(&p, last);
    if (r != FT_PROOF_OK) return ft_proof_fail(r, who, err);
    if (ft_net_send_all(fd, last, sizeof last, deadline, err)) return ft_wrap(err, "greeting %s", who);
    return FT_OK;
}

enum ft_code ft_proof_server(int fd, const char *token, const char *who, int64_t deadline, struct ft_err *err)
{
    struct ft_proof p;
    unsigned char last[FT_PROOF_LAST];
    memset(&p, 0, sizeof p);
    if (ft_net_recv_all(fd, p.hello, sizeof p.hello, deadline, err)) return ft_wrap(err, "greeting %s", who);
    enum ft_proof_result r = ft_proof_answer(&p, token);
    if (r == FT_PROOF_STRANGE) return ft_proof_fail(r, who, err);
    if (ft_net_send_all(fd, p.answer, sizeof p.answer, deadline, err)) return ft_wrap(err, "greeting %s", who);
    if (r != FT_PROOF_OK) return ft_proof_fail(r, who, err);
    if (ft_net_recv_all(fd, last, sizeof last, deadline, err)) return ft_wrap(err, "greeting %s", who);
    r = ft_proof_check_last(&p, last);
    return r == FT_PROOF_OK ? FT_OK : ft_proof_fail(r, who, err);
}
