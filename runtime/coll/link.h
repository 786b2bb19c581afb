/* A byte channel both ways over one TCP connection between two ranks of different nodes. What has come in is kept in a ring of our
 * own, so that peek and consume work as in shared memory. */
#ifndef FT_RUNTIME_COLL_LINK_H
#define FT_RUNTIME_COLL_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct ft_store;

struct ft_link {
    int fd;            /* -1: no link */
    unsigned char *in; /* ring of FT_LINK_RING bytes */
    size_t head, tail; /* bytes ever read / received */
    bool ended;        /* closed or reset by the peer; errno in problem (0: closed) */
    int problem;
};
enum { FT_LINK_RING = 512 << 10 };

/* Connects rank `me` with every rank r for which wanted[r]; links: world entries. Lower ranks listen, higher ones connect. */
enum ft_code ft_links_open(struct ft_store *store, const char *token, int me, int world, const bool *wanted, int64_t deadline,
                           struct ft_link *links, struct ft_err *err) FT_MUST_CHECK;
void ft_link_close(struct ft_link *l);

size_t ft_link_push(struct ft_link *l, const void *p, size_t n);
size_t ft_link_peek(struct ft_link *l, const void **p);
void ft_link_consume(struct ft_link *l, size_t n);

#endif
