/* Proof of the run's FT_TOKEN on a fresh connection, before anything else is read. Both sides show by HMAC-SHA256 over both
 * nonces that they know the token; the serving side first. Without a token on both sides the connection is open.
 *
 *   client                                   server
 *   hello:  magic, version, flags, nonce  -> 
 *                                         <- answer: magic, version, flags, nonce, proof(server)
 *   proof(client)                         ->
 * A side that finds the other one without (or with another) token closes; nothing was processed. Steps are pure functions of
 * bytes, so that a poll loop can drive them; the two blocking forms drive them over a socket. */
#ifndef FT_RUNTIME_COLL_PROOF_H
#define FT_RUNTIME_COLL_PROOF_H

#include <stdint.h>

#include "base/err.h"

enum { FT_PROOF_HELLO = 32, FT_PROOF_ANSWER = 64, FT_PROOF_LAST = 32 };

enum ft_proof_result {
    FT_PROOF_OK,
    FT_PROOF_STRANGE,   /* not our protocol */
    FT_PROOF_VERSION,   /* another version of it */
    FT_PROOF_NO_MINE,   /* the other side has a token, this one has none */
    FT_PROOF_NO_THEIRS, /* this side has a token, the other one has none */
    FT_PROOF_WRONG      /* another token */
};

struct ft_proof {
    const char *token; /* NULL or "": none; borrowed */
    unsigned char hello[FT_PROOF_HELLO], answer[FT_PROOF_ANSWER];
};

enum ft_code ft_proof_hello(struct ft_proof *p, const char *token, struct ft_err *err) FT_MUST_CHECK; /* client: fills p->hello */
/* Server: p->hello has come; fills p->answer, which is sent whatever the result is. */
enum ft_proof_result ft_proof_answer(struct ft_proof *p, const char *token);
/* Client: p->answer has come; last: what to send now. */
enum ft_proof_result ft_proof_check_answer(const struct ft_proof *p, unsigned char last[FT_PROOF_LAST]);
enum ft_proof_result ft_proof_check_last(const struct ft_proof *p, const unsigned char last[FT_PROOF_LAST]); /* server */

/* The error of a result. who: "rank 0 at 10.0.0.1:29500". */
enum ft_code ft_proof_fail(enum ft_proof_result r, const char *who, struct ft_err *err);
enum ft_code ft_proof_client(int fd, const char *token, const char *who, int64_t deadline, struct ft_err *err) FT_MUST_CHECK;
enum ft_code ft_proof_server(int fd, const char *token, const char *who, int64_t deadline, struct ft_err *err) FT_MUST_CHECK;

#endif
