/* Time as a value that can be faked. All in nanoseconds; monotonic unless said. */
#ifndef FT_BASE_CLOCK_H
#define FT_BASE_CLOCK_H

#include <stdint.h>

struct ft_clock {
    int64_t (*now_ns)(void *self);
    void *self;
};
struct ft_clock ft_clock_real(void);            /* CLOCK_MONOTONIC */
struct ft_clock ft_clock_fake(int64_t *now_ns); /* reads *now_ns; the test moves it */
int64_t ft_clock_now(struct ft_clock c);

int64_t ft_wall_ns(void); /* CLOCK_REALTIME, for people and files only */
/* "2026-11-30T17:41:00.123Z" (24 characters + NUL) / "20261130-174100". */
void ft_wall_iso(int64_t wall_ns, char out[32]);
void ft_wall_compact(int64_t wall_ns, char out[32]);

#define FT_MS  1000000LL
#define FT_SEC 1000000000LL

#endif
