/* Who failed first (launcher rules, "Who failed first"). Pure: a function of the ends of all ranks. */
#ifndef FT_LAUNCHER_VERDICT_H
#define FT_LAUNCHER_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The end of one rank as it counts here. */
struct ft_end_of {
    int rank, node;
    int status, signal; /* both 0: ended well */
    bool after_stop;    /* we had told it to end before */
    bool oom;           /* the kernel killed it for want of memory (evidence, not a guess) */
    int64_t t_ns;       /* when, on the head's monotonic clock */
    int64_t error_ns;   /* of that time; 0 on one node */
    uint64_t order;     /* order of death on its node */
};

struct ft_verdict {
    int first;      /* index into the ends; -1: nobody failed */
    int n_failures; /* failures in all, the first included */
    bool undecided; /* another one may have been first */
    int64_t gap_ns; /* from the first to the next failure (or to the one it was weighed against); -1: there is none */
    int next;       /* index of that one; -1 */
};

/* "ended only because a peer ended": never the cause while another failure exists. A rank that has failed tells its peers before it is
 * gone, so the stop that their 69 brings may still meet it alive: what it ends with then is its own, unless it is what TERM makes. */
enum { FT_STATUS_PEER_ENDED = 69 };

bool ft_end_is_failure(const struct ft_end_of *e);
/* true: a was certainly before b. */
bool ft_end_before(const struct ft_end_of *a, const struct ft_end_of *b);
struct ft_verdict ft_verdict_find(const struct ft_end_of *ends, size_t n);

#endif
