/* Preloaded into the processes of one node: a wall clock that is WALL_AHEAD seconds ahead. The monotonic clocks stay. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *t)
{
    const long r = syscall(SYS_clock_gettime, id, t);
    const char *ahead = id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE ? getenv("WALL_AHEAD") : NULL;
    if (r == 0 && ahead) t->tv_sec += strtol(ahead, NULL, 10);
    return (int)r;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) < 0) return -1;
    *t = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) < 0) return (time_t)-1;
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
