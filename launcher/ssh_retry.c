#include "launcher/ssh_retry.h"

#include "base/clock.h"

int64_t ft_ssh_retry_at(struct ft_ssh_retry *r, enum ft_ssh_fate fate, int64_t now, int64_t deadline, uint32_t random)
{
    int64_t wait = -1;
    switch (fate) {
    case FT_FATE_LATER: wait = 500 * FT_MS; break;
    case FT_FATE_DROPPED: {
        const unsigned k = r->n_dropped++;
        const int64_t whole = (200 * FT_MS) << (k < 5 ? k : 5);
        wait = whole / 2 + (int64_t)((double)whole * ((double)random / 4294967296.0)); /* half to one and a half */
        break;
    }
    case FT_FATE_NO_ROUTE:
        if (++r->n_no_route < 3) wait = FT_SEC;
        break;
    case FT_FATE_UP:
    case FT_FATE_NO_ANSWER:
    case FT_FATE_FINAL:
    case FT_FATE_CANCELLED: break;
    }
    return wait >= 0 && now + wait < deadline ? now + wait : -1;
}

unsigned ft_ssh_gate_after(unsigned allowed, enum ft_ssh_fate fate)
{
    if (fate != FT_FATE_DROPPED) return allowed;
    return allowed > 1 ? allowed / 2 : 1;
}
