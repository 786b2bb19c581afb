#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/ckpt/state.h"
#include "runtime/coll/comm.h"

void ft_ckpt_say(struct ft_ckpt *c, const char *fmt, ...)
{
    if (c->rank != 0 || !c->o.say) return;
    struct ft_buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    ft_buf_vaddf(&b, fmt, ap);
    va_end(ap);
    c->o.say(c->o.self, ft_buf_str(&b));
    ft_buf_fini(&b);
}

enum ft_code ft_ckpt_share(struct ft_ckpt *c, enum ft_code own, struct ft_err *err)
{
    struct ft_err mine = {0};
    if (c->world == 1) return own;
    if (own) mine = err ? *err : (struct ft_err){.code = own};
    int64_t *codes = ft_xcalloc((size_t)c->world, sizeof *codes);
    codes[c->rank] = (int64_t)own;
    enum ft_code rc = ft_comm_all_gather(c->o.comm, FT_GROUP_WORLD, &codes[c->rank], codes, 1, FT_I64, err);
    int first = -1;
    for (int r = 0; r < c->world && !rc && first < 0; r++)
        if (codes[r]) first = r;
    const enum ft_code code = first >= 0 ? (enum ft_code)codes[first] : FT_OK;
    free(codes);
    if (rc || first < 0) return rc;
    rc = ft_comm_broadcast(c->o.comm, FT_GROUP_WORLD, first, &mine, (int64_t)sizeof mine, err);
    if (rc) return rc;
    if (err) *err = mine;
    return code;
}

enum ft_code ft_ckpt_spread(struct ft_ckpt *c, struct ft_buf *b, struct ft_err *err)
{
    int64_t n = (int64_t)b->n;
    if (c->world == 1) return FT_OK;
    enum ft_code rc = ft_comm_broadcast(c->o.comm, FT_GROUP_WORLD, 0, &n, (int64_t)sizeof n, err);
    if (rc) return rc;
    if (c->rank != 0) {
        ft_buf_clear(b);
        ft_buf_reserve(b, (size_t)n + 1);
        b->n = (size_t)n;
        b->data[n] = 0;
    }
    return ft_comm_broadcast(c->o.comm, FT_GROUP_WORLD, 0, b->data, n, err);
}

enum ft_code ft_ckpt_collect(struct ft_ckpt *c, const struct ft_buf *mine, struct ft_buf *all, struct ft_err *err)
{
    if (c->rank == 0) ft_buf_add(all, mine->data, mine->n);
    if (c->world == 1) return FT_OK;
    int64_t *sizes = ft_xcalloc((size_t)c->world, sizeof *sizes);
    sizes[c->rank] = (int64_t)mine->n;
    enum ft_code rc = ft_comm_all_gather(c->o.comm, FT_GROUP_WORLD, &sizes[c->rank], sizes, 1, FT_I64, err);
    if (!rc && c->rank != 0 && mine->n) rc = ft_comm_send(c->o.comm, FT_GROUP_WORLD, 0, mine->data, (int64_t)mine->n, err);
    for (int r = 1; r < c->world && c->rank == 0 && !rc; r++) {
        if (!sizes[r]) continue;
        ft_buf_reserve(all, (size_t)sizes[r] + 1);
        rc = ft_comm_recv(c->o.comm, FT_GROUP_WORLD, r, all->data + all->n, sizes[r], err);
        all->n += (size_t)sizes[r];
        all->data[all->n] = 0;
    }
    free(sizes);
    return rc;
}
