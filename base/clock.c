#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static int64_t read_clock(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * FT_SEC + t.tv_nsec;
}

static int64_t real_now(void *self)
{
    (void)self;
    return read_clock(CLOCK_MONOTONIC);
}
static int64_t fake_now(void *self) { return *(const int64_t *)self; }

struct ft_clock ft_clock_real(void) { return (struct ft_clock){real_now, NULL}; }
struct ft_clock ft_clock_fake(int64_t *now_ns) { return (struct ft_clock){fake_now, now_ns}; }
int64_t ft_clock_now(struct ft_clock c) { return c.now_ns(c.self); }
int64_t ft_wall_ns(void) { return read_clock(CLOCK_REALTIME); }

static struct tm broken_down(int64_t wall_ns)
{
    const time_t s = (time_t)(wall_ns / FT_SEC);
    struct tm tm;
    gmtime_r(&s, &tm);
    return tm;
}

void ft_wall_iso(int64_t wall_ns, char out[32])
{
    const struct tm tm = broken_down(wall_ns);
    const size_t n = strftime(out, 24, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + n, 32 - n, ".%03dZ", (int)(wall_ns / FT_MS % 1000));
}

void ft_wall_compact(int64_t wall_ns, char out[32])
{
    const struct tm tm = broken_down(wall_ns);
    strftime(out, 32, "%Y%m%d-%H%M%S", &tm);
}
